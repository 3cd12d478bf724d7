//! Just enough of the protobuf wire format to look into a descriptor set without decoding it; the build script, which
//! makes ours, reads with it too.

/// A field of an encoded message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    /// Its number.
    pub(crate) number: u64,
    /// With its tag and length.
    pub(crate) whole: &'a [u8],
    /// What is in it, when it is length-delimited.
    pub(crate) payload: &'a [u8],
}

impl<'a> Field<'a> {
    /// The payload as text.
    pub(crate) fn text(&self) -> &'a str {
        std::str::from_utf8(self.payload).unwrap_or_default()
    }
}

/// The fields of a message, up to the first that is malformed.
pub(crate) fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let whole = rest;
        let tag = varint(&mut rest)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut rest)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (payload, tail) = rest.split_at_checked(length)?;
        rest = tail;
        Some(Field { number: tag >> 3, whole: &whole[..whole.len() - tail.len()], payload })
    })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
