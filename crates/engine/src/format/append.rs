//! Short pieces, appended without a call of `memcpy`: it costs more than what it copies.

use crate::number::Decimal;

/// A text that is known when a format is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal(Room);

/// What stands between two commands is most often short.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Room {
    Short(Short),
    Long(Box<[u8]>),
}

/// The first so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Short([u8; 8], u8);

impl Short {
    /// A text that is short enough.
    pub(super) fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 8];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self(bytes, text.len() as u8))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.get(..usize::from(self.1)).unwrap_or_default()
    }

    /// It is written as a block, whose end is taken away again.
    #[inline(always)]
    pub(super) fn append_to(self, out: &mut Vec<u8>) {
        let end = out.len() + usize::from(self.1);
        out.extend_from_slice(&self.0);
        out.truncate(end);
    }
}

impl Literal {
    pub(super) fn new(text: &[u8]) -> Self {
        Self(Short::new(text).map_or_else(|| Room::Long(text.into()), Room::Short))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Room::Short(short) => short.as_bytes(),
            Room::Long(bytes) => bytes,
        }
    }

    #[inline(always)]
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Room::Short(short) => short.append_to(out),
            Room::Long(bytes) => append(out, bytes),
        }
    }
}

/// Appends `bytes`.
#[inline(always)]
pub(super) fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        0..=3 => bytes.iter().for_each(|byte| out.push(*byte)),
        4..=8 => append_blocks::<4>(out, bytes),
        9..=16 => append_blocks::<8>(out, bytes),
        17..=32 => append_blocks::<16>(out, bytes),
        _ => out.extend_from_slice(bytes),
    }
}

/// Appends a number in decimal.
#[inline]
pub(super) fn append_number(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=9 => out.push(b'0' + value as u8),
        100..=999 => out.extend_from_slice(&three_digits(value as u16)),
        1000..=9999 => out.extend_from_slice(&four_digits(value as u16)),
        _ => append(out, Decimal::new().write(value)),
    }
}

/// A number below 1,000 with leading zeros.
#[inline(always)]
pub(super) const fn three_digits(value: u16) -> [u8; 3] {
    [b'0' + (value / 100) as u8, b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]
}

/// The same below 10,000.
#[inline(always)]
const fn four_digits(value: u16) -> [u8; 4] {
    let [hundreds, tens, units] = three_digits(value % 1000);
    [b'0' + (value / 1000) as u8, hundreds, tens, units]
}

/// Appends `N` to `2 * N` bytes as two blocks, of which the second covers a part of the first.
#[inline(always)]
fn append_blocks<const N: usize>(out: &mut Vec<u8>, bytes: &[u8]) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) {
        let end = out.len() + bytes.len();
        out.extend_from_slice(first);
        out.truncate(end - N);
        out.extend_from_slice(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_every_length_are_appended_behind_what_is_there() {
        let bytes: Vec<u8> = (0..100).collect();
        for before in 0..3 {
            for length in 0..bytes.len() {
                let mut out = vec![b'x'; before];
                append(&mut out, &bytes[..length]);
                assert_eq!(out, [&vec![b'x'; before], &bytes[..length]].concat());
            }
        }
    }

    #[test]
    fn literals_of_every_length_are_appended_behind_what_is_there() {
        let bytes: Vec<u8> = (0..20).collect();
        for length in 0..bytes.len() {
            let literal = Literal::new(&bytes[..length]);
            let mut out = b"x".to_vec();
            literal.append_to(&mut out);
            assert_eq!(literal.as_bytes(), &bytes[..length]);
            assert_eq!(out, [b"x", &bytes[..length]].concat());
        }
    }

    #[test]
    fn numbers_are_what_display_writes() {
        for value in (0..20).map(|power| 10u64.pow(power)).chain([0, u64::MAX]) {
            for value in [value.saturating_sub(1), value, value.saturating_add(1)] {
                let mut out = b"x".to_vec();
                append_number(&mut out, value);
                assert_eq!(out, format!("x{value}").as_bytes());
            }
        }
    }
}
