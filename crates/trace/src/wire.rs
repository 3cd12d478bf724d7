//! As much of the protobuf wire format as trace files need, both ways.
//!
//! <https://protobuf.dev/programming-guides/encoding/>

/// Appends fields to `buffer`.
pub(crate) fn varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

pub(crate) fn uint(buffer: &mut Vec<u8>, field: u32, value: u64) {
    varint(buffer, u64::from(field) << 3);
    varint(buffer, value);
}

pub(crate) fn fixed64(buffer: &mut Vec<u8>, field: u32, value: u64) {
    varint(buffer, u64::from(field) << 3 | 1);
    buffer.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn bytes(buffer: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(buffer, u64::from(field) << 3 | 2);
    varint(buffer, value.len() as u64);
    buffer.extend_from_slice(value);
}

/// A field as it was read.
pub(crate) fn field(buffer: &mut Vec<u8>, number: u32, field: Field<'_>) {
    match field {
        Field::Number(value) => uint(buffer, number, value),
        Field::Fixed64(value) => fixed64(buffer, number, value),
        Field::Fixed32(value) => {
            varint(buffer, u64::from(number) << 3 | 5);
            buffer.extend_from_slice(&value.to_le_bytes());
        }
        Field::Bytes(value) => bytes(buffer, number, value),
    }
}

/// A nested message: what `fill` appends.
#[inline]
pub(crate) fn message(buffer: &mut Vec<u8>, field: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    varint(buffer, u64::from(field) << 3 | 2);
    let start = buffer.len();
    buffer.push(0);
    fill(buffer);
    let length = buffer.len() - start - 1;
    if length < 0x80 {
        buffer[start] = length as u8;
        return;
    }
    // Rare and short: most messages fit the one byte set aside.
    let mut prefix = Vec::with_capacity(10);
    varint(&mut prefix, length as u64);
    buffer.splice(start..=start, prefix);
}

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Number(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(crate) const fn number(self) -> Option<u64> {
        match self {
            Self::Number(value) | Self::Fixed64(value) => Some(value),
            Self::Fixed32(value) => Some(value as u64),
            Self::Bytes(_) => None,
        }
    }

    pub(crate) const fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(value) => Some(value),
            Self::Number(_) | Self::Fixed64(_) | Self::Fixed32(_) => None,
        }
    }
}

/// The fields of a message, in order. After something that is no field the iterator ends and `broken` is set.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    pub(crate) broken: bool,
}

impl<'a> Fields<'a> {
    pub(crate) const fn of(message: &'a [u8]) -> Self {
        Self { rest: message, broken: false }
    }

    fn read(&mut self) -> Option<(u32, Field<'a>)> {
        let key = self.read_varint()?;
        let field = u32::try_from(key >> 3).ok().filter(|&field| field != 0)?;
        let value = match key & 7 {
            0 => Field::Number(self.read_varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.split(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.read_varint()?).ok()?;
                Field::Bytes(self.split(length)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.split(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((field, value))
    }

    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte has room for one bit.
            if index == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Some(value);
            }
        }
        None
    }

    fn split(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.broken {
            return None;
        }
        let before = self.rest;
        let read = self.read();
        if read.is_none() {
            self.rest = before;
            self.broken = true;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = Vec::new();
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            buffer.clear();
            uint(&mut buffer, 42, value);
            fixed64(&mut buffer, 536_870_911, value);
            assert_eq!(
                Fields::of(&buffer).collect::<Vec<_>>(),
                [(42, Field::Number(value)), (536_870_911, Field::Fixed64(value))]
            );
        }
        for length in [0, 1, 126, 127, 128, 129, 16_384] {
            buffer.clear();
            let inner = vec![7; length];
            message(&mut buffer, 1, |buffer| buffer.extend_from_slice(&inner));
            bytes(&mut buffer, 2, &inner);
            assert_eq!(
                Fields::of(&buffer).collect::<Vec<_>>(),
                [(1, Field::Bytes(&inner)), (2, Field::Bytes(&inner))]
            );
        }
    }

    #[test]
    fn broken_input_ends_the_fields_and_says_so() {
        let broken: [&[u8]; 9] = [
            &[0x80],
            &[0x08],
            &[0x08, 0x80],
            &[0x00, 0x00],
            &[0x0a, 2, 1],
            &[0x0d, 1, 2, 3],
            &[0x09, 1, 2, 3, 4, 5, 6, 7],
            &[0x0b],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        ];
        for input in broken {
            let mut fields = Fields::of(input);
            assert_eq!(fields.next(), None, "{input:?}");
            assert!(fields.broken, "{input:?}");
            assert_eq!(fields.next(), None);
            assert_eq!(fields.rest, input);
        }
    }
}
