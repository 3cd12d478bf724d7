//! Field lines that came before: what one of them is, is known by comparing its bytes.
//!
//! Peers send most of their lines with every head, so that a line seldom has to be read again. What a line says
//! depends on nothing but its bytes: a hit is a line all of whose bytes, CRLF included, are those of one that was read,
//! and what was found in that one is true of it. Only lines that are written as they came are kept ([`Field::line`]),
//! and none that may hold a secret: it shall not outlive its message.

use super::{Field, Span};
use crate::block;
use crate::name::Name;

/// Lines of any direction and connection, each in the one place that its first bytes and its number choose.
#[derive(Debug)]
pub(crate) struct KnownLines {
    /// None until there is a line to keep.
    lines: Option<Box<[Known; SLOTS]>>,
}

/// A line with a well-known name, one space before its value, and nothing behind that but CRLF.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownLine {
    /// Counted from the line's first byte.
    pub(crate) field: Field,
    /// With its CRLF.
    pub(crate) length: usize,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    bytes: [u8; LONGEST],
    field: Field,
    length: u8,
    /// Other lines that are let pass before the next one is kept here, and how many were the last time: a line that is
    /// new in every head is kept ever less often.
    passes: u8,
    patience: u8,
}

impl KnownLines {
    pub(crate) const fn new() -> Self {
        Self { lines: None }
    }

    /// What the line is that `bytes` begin with, if it came before; `number` is its place in the head.
    #[inline(always)]
    pub(crate) fn find(&mut self, bytes: &[u8], number: u32) -> Option<KnownLine> {
        let slot = slot_of(bytes, number)?;
        let known = &mut self.lines.as_mut()?[slot];
        let length = usize::from(known.length);
        if !block::same(bytes.get(..length)?, known.bytes.get(..length)?) {
            return None;
        }
        known.patience = 0;
        known.passes = 0;
        Some(KnownLine { field: known.field, length })
    }

    /// Keeps a line that was read, if that is worth it.
    pub(crate) fn keep(&mut self, line: &[u8], name: Name, number: u32) {
        let Some(slot) = slot_of(line, number) else { return };
        if line.len() > LONGEST || may_be_secret(name) {
            return;
        }
        let lines = self.lines.get_or_insert_with(|| Box::new([Known::NONE; SLOTS]));
        let known = &mut lines[slot];
        if known.passes > 0 {
            known.passes -= 1;
            return;
        }
        known.patience = (known.patience * 2 + 1).min(MOST_PATIENCE);
        known.passes = known.patience;
        if let Some(room) = known.bytes.get_mut(..line.len()) {
            room.copy_from_slice(line);
        }
        // At most `LONGEST`.
        known.length = line.len() as u8;
        let name_len = name.as_str().len();
        let (name_span, value) =
            (Span::raw(0, name_len), Span::raw(name_len + 2, line.len().max(name_len + 4) - 2));
        known.field = Field::line(name, name_span, value, true);
    }
}

impl Known {
    /// No line is as short.
    const NONE: Self = Self {
        bytes: [0; LONGEST],
        field: Field::line(Name::Custom, Span::raw(0, 0), Span::raw(0, 0), false),
        length: 0,
        passes: 0,
        patience: 0,
    };
}

/// Lines of one head lie apart; beyond that their first bytes choose.
#[inline(always)]
fn slot_of(line: &[u8], number: u32) -> Option<usize> {
    let mixed = match line.first_chunk::<16>() {
        Some(first) => {
            let first = u128::from_le_bytes(*first);
            first as u64 ^ ((first >> 64) as u64).rotate_left(29)
        }
        None => u64::from_le_bytes(*line.first_chunk()?),
    };
    // Any odd number with bits all over.
    let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Some((mixed >> (u64::BITS - 4)) as usize | (number as usize % NUMBERS) << 4)
}

/// Whether values of this name may be secrets; of a name that is not well known any may be.
const fn may_be_secret(name: Name) -> bool {
    matches!(
        name,
        Name::Custom
            | Name::Authorization
            | Name::ProxyAuthorization
            | Name::Cookie
            | Name::SetCookie
            | Name::XForwardedClientCert
    )
}

const NUMBERS: usize = 8;
const SLOTS: usize = NUMBERS << 4;
/// Browsers' `user-agent` is the longest of those that come with every head.
const LONGEST: usize = 125;
const MOST_PATIENCE: u8 = 63;

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"Accept: */*\r\n";

    #[test]
    fn a_line_is_known_by_all_its_bytes_at_its_place() {
        let mut lines = KnownLines::new();
        assert!(lines.find(LINE, 0).is_none());
        lines.keep(LINE, Name::Accept, 0);
        for bytes in [LINE, &[LINE, b"\r\n"].concat()] {
            let known = lines.find(bytes, 0).unwrap();
            assert_eq!((known.field.name, known.length), (Name::Accept, LINE.len()));
            assert_eq!(&bytes[known.field.name_span().raw_range()], b"Accept");
            assert_eq!(&bytes[known.field.value().raw_range()], b"*/*");
        }
        for at in 0..LINE.len() {
            let mut other = LINE.to_vec();
            other[at] ^= 0x20;
            assert!(lines.find(&other, 0).is_none(), "{}", other.escape_ascii());
            assert!(lines.find(&LINE[..at], 0).is_none());
        }
    }

    #[test]
    fn what_may_be_secret_or_is_long_is_not_kept() {
        let mut lines = KnownLines::new();
        for name in [Name::Cookie, Name::Authorization, Name::Custom] {
            lines.keep(b"whatever: it says\r\n", name, 1);
        }
        lines.keep(&[b'a'; LONGEST + 1], Name::Accept, 1);
        lines.keep(b"a: b\r\n", Name::Accept, 1);
        assert!(lines.lines.is_none());
        lines.keep(&[b'a'; LONGEST], Name::Accept, 1);
        assert_eq!(lines.find(&[b'a'; 200], 1).map(|line| line.length), Some(LONGEST));
    }

    #[test]
    fn a_line_that_is_new_every_time_is_kept_ever_less_often() {
        let mut lines = KnownLines::new();
        let line = |value: u32| format!("traceparent: 00-{value:08}\r\n").into_bytes();
        let mut kept = Vec::new();
        for value in 0..1000 {
            assert!(lines.find(&line(value), 0).is_none());
            lines.keep(&line(value), Name::Traceparent, 0);
            let slot = slot_of(&line(value), 0).unwrap();
            if lines.lines.as_ref().unwrap()[slot].bytes.starts_with(&line(value)) {
                kept.push(value);
            }
        }
        assert_eq!(kept[..8], [0, 2, 6, 14, 30, 62, 126, 190]);
        // One that comes again is kept, at the latest after so many.
        for _ in 0..=MOST_PATIENCE {
            lines.keep(&line(7), Name::Traceparent, 0);
        }
        assert!(lines.find(&line(7), 0).is_some());
    }
}
