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
        self.bytes(field, String::from_utf8_lossy(value).as_bytes())
    }

    pub(crate) fn message(&mut self, field: u8, write: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0)
    }

    fn key(&mut self, field: u8, kind: u8) {
        self.varint(u64::from(field) << 3 | u64::from(kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
