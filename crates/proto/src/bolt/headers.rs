//! The block of headers: keys and values, each behind its length.

use bytes::{BufMut, BytesMut};
use thiserror::Error;

/// A block of headers that is not made of whole pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed headers")]
pub struct Malformed;

/// Stands for a key or a value that is null; its pair means nothing.
const NULL: u32 = u32::MAX;

/// The pairs of a block. Keys are case-sensitive and may come more than once.
#[derive(Clone, Debug)]
pub struct Headers<'a>(&'a [u8]);

impl<'a> Headers<'a> {
    /// Reads a block, to its end.
    ///
    /// # Errors
    /// [`Malformed`] when a length leads out of it, or a pair is half there.
    pub fn parse(block: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = block;
        while !rest.is_empty() {
            pair(&mut rest).ok_or(Malformed)?;
        }
        Ok(Self(block))
    }

    /// The first value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.clone().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let (Some(key), Some(value)) = pair(&mut self.0)? {
                return Some((key, value));
            }
        }
    }
}

type Text<'a> = Option<&'a [u8]>;

/// Takes a pair off the front.
fn pair<'a>(rest: &mut &'a [u8]) -> Option<(Text<'a>, Text<'a>)> {
    Some((text(rest)?, text(rest)?))
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<Text<'a>> {
    let (length, behind) = rest.split_first_chunk()?;
    let length = u32::from_be_bytes(*length);
    if length == NULL {
        *rest = behind;
        return Some(None);
    }
    let (text, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(Some(text))
}

/// Writes one pair; what is longer than a length can say is cut, which no block has room for anyway.
pub fn write_header(block: &mut BytesMut, key: &[u8], value: &[u8]) {
    for text in [key, value] {
        let text = &text[..text.len().min(u16::MAX.into())];
        block.put_u32(text.len() as u32);
        block.extend_from_slice(text);
    }
}
