//! Messages of Protocol Buffers on the wire.
//!
//! Arrives: the bytes of a message. Leaves: its fields with all their values, without what is unknown; or an error.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use super::schema::{
    FIXED32, FIXED64, GROUP_END, GROUP_START, Kind, LENGTH, MessageId, Schema, VARINT,
};

/// A message's fields by number.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) values: BTreeMap<u32, Vec<Value>>,
}

/// What a field holds once.
#[derive(Debug)]
pub(super) enum Value {
    /// A number, as its bits are on the wire.
    Bits(u64),
    /// Text or bytes.
    Bytes(Bytes),
    Message(Fields),
}

impl Fields {
    /// Reads a message.
    pub(super) fn read(schema: &Schema, id: MessageId, message: &Bytes) -> Result<Self, Malformed> {
        Self::read_at(schema, id, message, MOST_DEPTH)
    }

    fn read_at(
        schema: &Schema,
        id: MessageId,
        message: &Bytes,
        depth: u32,
    ) -> Result<Self, Malformed> {
        let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
        let kind = schema.message(id);
        let mut fields = Self::default();
        let mut reader = Reader { bytes: message, at: 0 };
        while let Some((number, wire)) = reader.tag()? {
            let Some(field) = kind.numbered(number) else {
                reader.skip(number, wire, depth)?;
                continue;
            };
            let wanted = field.kind.wire_type();
            let read = match (field.kind, wire) {
                (Kind::Message(id), LENGTH) => {
                    let inner = reader.bytes()?;
                    Value::Message(Self::read_at(schema, id, &inner, depth)?)
                }
                (Kind::String, LENGTH) => {
                    let text = reader.bytes()?;
                    if kind.is_proto3 && std::str::from_utf8(&text).is_err() {
                        return Err(Malformed::Text);
                    }
                    Value::Bytes(text)
                }
                (Kind::Bytes, LENGTH) => Value::Bytes(reader.bytes()?),
                (_, LENGTH) => {
                    let packed = reader.bytes()?;
                    let mut packed = Reader { bytes: &packed, at: 0 };
                    let all = fields.values.entry(number).or_default();
                    while packed.at < packed.bytes.len() {
                        all.push(Value::Bits(packed.bits(wanted)?));
                    }
                    if !field.is_repeated && all.len() > 1 {
                        return Err(Malformed::Repeated(number));
                    }
                    continue;
                }
                (_, wire) if wire == wanted => Value::Bits(reader.bits(wire)?),
                _ => return Err(Malformed::Type(number)),
            };
            let all = fields.values.entry(number).or_default();
            if !field.is_repeated && !all.is_empty() {
                return Err(Malformed::Repeated(number));
            }
            all.push(read);
        }
        Ok(fields)
    }

    /// The values of a field, if it has any.
    pub(super) fn of(&self, number: u32) -> &[Value] {
        self.values.get(&number).map_or(&[], Vec::as_slice)
    }

    /// A number's bits; 0 where it has none.
    pub(super) fn bits(&self, number: u32) -> u64 {
        match self.of(number).last() {
            Some(Value::Bits(bits)) => *bits,
            Some(Value::Bytes(_) | Value::Message(_)) | None => 0,
        }
    }

    /// Bytes, empty where it has none.
    pub(super) fn bytes(&self, number: u32) -> Bytes {
        match self.of(number).last() {
            Some(Value::Bytes(bytes)) => bytes.clone(),
            Some(Value::Bits(_) | Value::Message(_)) | None => Bytes::new(),
        }
    }

    /// Nothing is set.
    pub(super) fn is_empty(&self) -> bool {
        self.values.values().all(Vec::is_empty)
    }
}

/// The bytes of the field at the end of a path of messages, by their numbers; the last of each counts, and none is
/// empty.
pub(super) fn inside(message: &Bytes, path: &[u32]) -> Result<Bytes, Malformed> {
    let mut inner = message.clone();
    for wanted in path {
        let outer = std::mem::take(&mut inner);
        let mut reader = Reader { bytes: &outer, at: 0 };
        while let Some((number, wire)) = reader.tag()? {
            if number == *wanted && wire == LENGTH {
                inner = reader.bytes()?;
            } else {
                reader.skip(number, wire, MOST_DEPTH)?;
            }
        }
    }
    Ok(inner)
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// They end too early.
    End,
    /// A field that can hold one value has several.
    Repeated(u32),
    /// A text is no UTF-8.
    Text,
    /// A field is written as others are.
    Type(u32),
    /// Messages nest too deep.
    Depth,
    /// It begins no field, or ends no group.
    Tag,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("unexpected EOF"),
            Self::Repeated(number) => {
                write!(f, "repeated entries for singular field number {number}")
            }
            Self::Text => f.write_str("proto3 strings must be UTF-8"),
            Self::Type(number) => write!(f, "field number {number} is written as another type"),
            Self::Depth => f.write_str("allowed depth exceeded"),
            Self::Tag => f.write_str("bad tag"),
        }
    }
}

struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl Reader<'_> {
    /// The number of a field and how it is written; `None` at the end.
    fn tag(&mut self) -> Result<Option<(u32, u32)>, Malformed> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let tag = u32::try_from(self.varint()?).map_err(|_| Malformed::Tag)?;
        if tag >> 3 == 0 { Err(Malformed::Tag) } else { Ok(Some((tag >> 3, tag & 7))) }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (place, byte) in
            self.bytes.get(self.at..).ok_or(Malformed::End)?.iter().enumerate().take(10)
        {
            value |= u64::from(byte & 0x7f).unbounded_shl(7 * u32::try_from(place).unwrap_or(0));
            if byte & 0x80 == 0 {
                self.at += place + 1;
                return Ok(value);
            }
        }
        Err(Malformed::End)
    }

    fn bits(&mut self, wire: u32) -> Result<u64, Malformed> {
        match wire {
            VARINT => self.varint(),
            FIXED64 => self.array().map(u64::from_le_bytes),
            FIXED32 => self.array().map(u32::from_le_bytes).map(u64::from),
            _ => Err(Malformed::Tag),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let array = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        self.at += N;
        array.copied().ok_or(Malformed::End)
    }

    fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_| Malformed::End)?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(Malformed::End)?;
        let bytes = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(bytes)
    }

    fn skip(&mut self, number: u32, wire: u32, depth: u32) -> Result<(), Malformed> {
        match wire {
            VARINT | FIXED64 | FIXED32 => self.bits(wire).map(drop),
            LENGTH => self.bytes().map(drop),
            GROUP_START => {
                let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
                while let Some((inner, wire)) = self.tag()? {
                    if wire == GROUP_END {
                        return if inner == number { Ok(()) } else { Err(Malformed::Tag) };
                    }
                    self.skip(inner, wire, depth)?;
                }
                Err(Malformed::End)
            }
            _ => Err(Malformed::Tag),
        }
    }
}

/// How deep messages nest, as in Protocol Buffers' own reader.
const MOST_DEPTH: u32 = 100;

/// Writes a varint.
pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// Writes the number of a field and how it is written.
pub(super) fn put_tag(number: u32, wire: u32, out: &mut Vec<u8>) {
    put_varint((u64::from(number) << 3) | u64::from(wire), out);
}

/// Writes a field of bytes.
pub(super) fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_tag(number, LENGTH, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
