//! Protocol buffers that are written field by field, without a structure in between.

/// A message that is being written.
#[derive(Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn number(&mut self, field: u8, value: u64) -> &mut Self {
        self.key(field, 0);
        self.varint(value);
        self
    }

    /// A number that is not 0, which is that of a field that is not there.
    pub(crate) fn uint(&mut self, field: u8, value: u64) -> &mut Self {
        if value == 0 { self } else { self.number(field, value) }
    }

    pub(crate) fn fixed64(&mut self, field: u8, value: u64) -> &mut Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A `double`.
    pub(crate) fn double(&mut self, field: u8, value: f64) -> &mut Self {
        self.fixed64(field, value.to_bits())
    }

    /// Many of a fixed width in one field.
    pub(crate) fn packed(&mut self, field: u8, values: impl Iterator<Item = u64>) -> &mut Self {
        let all: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
        if all.is_empty() { self } else { self.bytes(field, &all) }
    }

    pub(crate) fn fixed32(&mut self, field: u8, value: u32) -> &mut Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, field: u8, value: &[u8]) -> &mut Self {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Bytes that are there.
    pub(crate) fn some(&mut self, field: u8, value: &[u8]) -> &mut Self {
        if value.is_empty() { self } else { self.bytes(field, value) }
    }

    /// Text; what is not UTF-8 is replaced.
    pub(crate) fn text(&mut self, field: u8, value: &[u8]) -> &mut Self {
        match std::str::from_utf8(value) {
            Ok(_) => self.bytes(field, value),
            Err(_) => self.bytes(field, String::from_utf8_lossy(value).as_bytes()),
        }
    }

    /// A message within this one, which `write` appends.
    pub(crate) fn message(&mut self, field: u8, write: impl FnOnce(&mut Self)) -> &mut Self {
        self.key(field, 2);
        // Most are short: one byte is enough for their length.
        let at = self.0.len();
        self.0.push(0);
        write(self);
        let length = self.0.len() - at - 1;
        let (digits, count) = varint(length as u64);
        if count > 1 {
            let end = self.0.len();
            self.0.resize(end + count - 1, 0);
            self.0.copy_within(at + 1..end, at + count);
        }
        self.0[at..at + count].copy_from_slice(&digits[..count]);
        self
    }

    fn key(&mut self, field: u8, kind: u8) {
        self.varint(u64::from(field) << 3 | u64::from(kind));
    }

    fn varint(&mut self, value: u64) {
        if value < 0x80 {
            return self.0.push(value as u8);
        }
        let (digits, count) = varint(value);
        self.0.extend_from_slice(&digits[..count]);
    }
}

/// A number in groups of seven bits, and how many bytes these are.
const fn varint(mut value: u64) -> ([u8; 10], usize) {
    let (mut digits, mut count) = ([0; 10], 0);
    while value >= 0x80 {
        digits[count] = value as u8 | 0x80;
        value >>= 7;
        count += 1;
    }
    digits[count] = value as u8;
    (digits, count + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_within_messages_say_how_long_they_are() {
        for (length, prefix) in [
            (0, &[][..]),
            (1, &[0x0a, 3, 0x0a, 1]),
            (125, &[0x0a, 127, 0x0a, 125]),
            (126, &[0x0a, 0x80, 1, 0x0a, 126]),
            (200, &[0x0a, 0xcb, 1, 0x0a, 0xc8, 1]),
            (20_000, &[0x0a, 0xa4, 0x9c, 1, 0x0a, 0xa0, 0x9c, 1]),
        ] {
            let content = vec![b'x'; length];
            let mut message = Message::default();
            message.number(2, 300).message(1, |inner| {
                inner.some(1, &content);
            });
            message.number(3, 1);
            let inner = if length == 0 { &[0x0a, 0][..] } else { prefix };
            let wanted = [&[0x10, 0xac, 2], inner, &content, &[0x18, 1]].concat();
            assert_eq!(message.0, wanted, "{length}");
        }
    }
}
