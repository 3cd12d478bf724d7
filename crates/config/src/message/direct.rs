//! Encoded messages read in one go, where nothing about them is out of the ordinary. What is not, such as a field that
//! no message has or one that is there twice, is left to the way that tells of it: over a tree ([`super::binary`]).
//! Both come to the same message.

use std::sync::Arc;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::any::TYPED_STRUCTS;
use super::binary::{Seen, tree};
use super::decode::{Decoder, UnknownFields, is_wrapper, takes_null};
use super::legacy::current_type;
use super::{Any, At, Field, Item, Message, Nanos, Value};
use crate::report::Report;
use crate::schema::Schema;
use crate::tree::{Pos, Value as Tree};

/// Reads an encoded message of a text, if it is ordinary.
pub(super) fn read(
    schema: &Schema,
    descriptor: &MessageDescriptor,
    bytes: &[u8],
    text: usize,
) -> Option<Message> {
    let at = At::root(text).moved_to(Pos::default());
    Reader { schema, depth: 0 }.message(descriptor, bytes, &at)
}

struct Reader<'a> {
    schema: &'a Schema,
    depth: usize,
}

/// A field's value as it is encoded.
enum Wire<'b> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'b [u8]),
}

impl Reader<'_> {
    fn message(
        &mut self,
        descriptor: &MessageDescriptor,
        mut bytes: &[u8],
        at: &At,
    ) -> Option<Message> {
        if self.depth >= MAX_DEPTH || TYPED_STRUCTS.contains(&descriptor.full_name()) {
            return None;
        }
        self.depth += 1;
        let mut message = Message {
            descriptor: descriptor.clone(),
            at: Arc::new(at.clone()),
            fields: Vec::new(),
        };
        while !bytes.is_empty() {
            let (number, wire) = field(&mut bytes)?;
            self.field(&mut message, number, wire)?;
        }
        let is_sorted = |fields: &[Field]| fields.is_sorted_by_key(|it| it.number);
        if !is_sorted(&message.fields) {
            message.fields.sort_by_key(|field| field.number);
        }
        self.depth -= 1;
        Some(message)
    }

    fn field(&mut self, message: &mut Message, number: u32, wire: Wire<'_>) -> Option<()> {
        let known = |field: &Field| field.number == number;
        // Elements of a list come in a row.
        let known = match message.fields.last_mut() {
            Some(last) if known(last) => Some(last),
            Some(_) => message.fields.iter_mut().find(|field| known(field)),
            None => None,
        };
        if let Some(Field { descriptor, at, value, .. }) = known {
            return match value {
                // One that was made, and is extended.
                Value::List(items) => {
                    let within = items.first().and_then(|item| item.at.within.clone());
                    let within = within.unwrap_or_else(|| Arc::new(at.clone()));
                    self.items(&descriptor.kind(), wire, &within, items)
                }
                Value::Map(entries) => {
                    let within = entries.first().and_then(|(_, item)| item.at.within.clone());
                    let within = within.unwrap_or_else(|| Arc::new(at.clone()));
                    self.entry(&descriptor.kind(), wire, &within, entries)
                }
                _ => None,
            };
        }
        let descriptor = message.descriptor.get_field(number)?;
        let at = message.at.field(&descriptor, Pos::default());
        let value = if descriptor.is_map() {
            let mut entries = Vec::new();
            self.entry(&descriptor.kind(), wire, &Arc::new(at.clone()), &mut entries)?;
            Value::Map(entries)
        } else if descriptor.is_list() {
            let mut items = Vec::new();
            self.items(&descriptor.kind(), wire, &Arc::new(at.clone()), &mut items)?;
            if items.is_empty() {
                return None;
            }
            Value::List(items)
        } else {
            if is_of_set_oneof(message, &descriptor) {
                return None;
            }
            let Some(value) = self.single(&descriptor.kind(), wire, &at)? else { return Some(()) };
            if !descriptor.supports_presence() && is_zero(&value) {
                return Some(());
            }
            value
        };
        message.fields.push(Field::new(descriptor, at, value));
        Some(())
    }

    fn items(
        &mut self,
        kind: &Kind,
        wire: Wire<'_>,
        within: &Arc<At>,
        items: &mut Vec<Item>,
    ) -> Option<()> {
        let mut push = |value| {
            let at = within.index(items.len(), Pos::default());
            items.push(Item { at, value });
        };
        match (wire, kind) {
            (Wire::Bytes(mut packed), kind) if is_packable(kind) => {
                while !packed.is_empty() {
                    let wire = match kind {
                        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => fixed64(&mut packed)?,
                        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => fixed32(&mut packed)?,
                        _ => Wire::Varint(varint(&mut packed)?),
                    };
                    push(scalar(kind, wire)?);
                }
            }
            (wire, kind) => {
                let at = within.index(items.len(), Pos::default());
                let value = self.single(kind, wire, &at)?;
                items.push(Item { at, value: value? });
            }
        }
        Some(())
    }

    /// An entry of a map, which are in the order of their keys.
    fn entry(
        &mut self,
        kind: &Kind,
        wire: Wire<'_>,
        within: &Arc<At>,
        entries: &mut Vec<(String, Item)>,
    ) -> Option<()> {
        let (entry, Wire::Bytes(mut bytes)) = (kind.as_message()?, wire) else { return None };
        if entry.map_entry_key_field().kind() != Kind::String {
            return None;
        }
        let (mut key, mut value) = (None, None);
        while !bytes.is_empty() {
            match field(&mut bytes)? {
                (1, Wire::Bytes(text)) if key.is_none() => key = Some(utf8(text)?),
                (2, wire) if value.is_none() => value = Some(wire),
                _ => return None,
            }
        }
        let key = key?;
        let place = entries.binary_search_by(|(known, _)| known.as_str().cmp(key)).err()?;
        let at = within.key(key, Pos::default());
        let value = self.single(&entry.map_entry_value_field().kind(), value?, &at)??;
        entries.insert(place, (key.to_owned(), Item { at, value }));
        Some(())
    }

    /// A value; nothing where a field of it counts as not set.
    fn single(&mut self, kind: &Kind, wire: Wire<'_>, at: &At) -> Option<Option<Value>> {
        let Kind::Message(descriptor) = kind else { return scalar(kind, wire).map(Some) };
        let Wire::Bytes(bytes) = wire else { return None };
        let value = match descriptor.full_name() {
            "google.protobuf.Any" => Value::Any(Box::new(self.any(bytes, at)?)),
            "google.protobuf.Duration" => Value::Duration(Box::new(duration(bytes)?)),
            "google.protobuf.Struct"
            | "google.protobuf.Value"
            | "google.protobuf.ListValue"
            | "google.protobuf.Timestamp"
            | "google.protobuf.FieldMask" => return self.untyped(kind, descriptor, bytes, at),
            name if is_wrapper(name) => {
                let kind = descriptor.get_field(1)?.kind();
                Value::Wrapper(Box::new(wrapped(&kind, bytes)?))
            }
            _ => Value::Message(Box::new(self.message(descriptor, bytes, at)?)),
        };
        Some(Some(value))
    }

    /// What JSON writes in a form of its own.
    fn untyped(
        &self,
        kind: &Kind,
        descriptor: &MessageDescriptor,
        bytes: &[u8],
        at: &At,
    ) -> Option<Option<Value>> {
        let (mut seen, mut report) = (Seen::default(), Report::default());
        let node = tree(self.schema, descriptor.clone(), bytes, &mut seen).ok()?;
        if !seen.types.is_empty() || seen.unknown_fields > 0 {
            return None;
        }
        if node.value == Tree::Null && !takes_null(kind) {
            return Some(None);
        }
        let unknown = UnknownFields::Refuse;
        let mut decoder = Decoder { schema: self.schema, report: &mut report, unknown };
        decoder.message_value(descriptor, &node, at).map(Some)
    }

    fn any(&mut self, mut bytes: &[u8], at: &At) -> Option<Any> {
        let (mut url, mut value) = (None, None);
        while !bytes.is_empty() {
            match field(&mut bytes)? {
                (1, Wire::Bytes(text)) if url.is_none() => url = Some(utf8(text)?),
                (2, Wire::Bytes(bytes)) if value.is_none() => value = Some(bytes),
                _ => return None,
            }
        }
        let url = url.unwrap_or_default();
        if url.is_empty() {
            return Some(Any { name: String::new(), message: None });
        }
        let (host, name) = url.rsplit_once('/')?;
        let is_ordinary = !host.is_empty()
            && !name.starts_with("google.protobuf.")
            && current_type(name).is_none();
        let descriptor = self.schema.message(name).filter(|_| is_ordinary)?;
        let message = self.message(&descriptor, value.unwrap_or_default(), at)?;
        Some(Any { name: name.to_owned(), message: Some(message) })
    }
}

/// Whether another field of a field's oneof is set.
fn is_of_set_oneof(message: &Message, descriptor: &FieldDescriptor) -> bool {
    let oneof = descriptor.containing_oneof();
    oneof.is_some()
        && message.fields.iter().any(|field| field.descriptor.containing_oneof() == oneof)
}

/// What a field without presence does not say.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Float(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::Enum(number) => *number == 0,
        Value::Message(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Duration(_)
        | Value::Wrapper(_)
        | Value::Json(_)
        | Value::Text(_)
        | Value::Any(_) => false,
    }
}

const fn is_packable(kind: &Kind) -> bool {
    !matches!(kind, Kind::String | Kind::Bytes | Kind::Message(_))
}

fn scalar(kind: &Kind, wire: Wire<'_>) -> Option<Value> {
    Some(match (kind, wire) {
        (Kind::Bool, Wire::Varint(number)) => Value::Bool(number != 0),
        (Kind::Int32, Wire::Varint(number)) => Value::Int(i64::from(number as i32)),
        (Kind::Int64, Wire::Varint(number)) => Value::Int(number as i64),
        (Kind::Uint32, Wire::Varint(number)) => Value::Uint(u64::from(number as u32)),
        (Kind::Uint64, Wire::Varint(number)) => Value::Uint(number),
        (Kind::Sint32, Wire::Varint(number)) => {
            Value::Int(i64::from(zigzag(u64::from(number as u32)) as i32))
        }
        (Kind::Sint64, Wire::Varint(number)) => Value::Int(zigzag(number)),
        (Kind::Enum(_), Wire::Varint(number)) => Value::Enum(number as i32),
        (Kind::Fixed32, Wire::Fixed32(bits)) => Value::Uint(u64::from(bits)),
        (Kind::Sfixed32, Wire::Fixed32(bits)) => Value::Int(i64::from(bits as i32)),
        (Kind::Float, Wire::Fixed32(bits)) => Value::Float(f64::from(f32::from_bits(bits))),
        (Kind::Fixed64, Wire::Fixed64(bits)) => Value::Uint(bits),
        (Kind::Sfixed64, Wire::Fixed64(bits)) => Value::Int(bits as i64),
        (Kind::Double, Wire::Fixed64(bits)) => Value::Float(f64::from_bits(bits)),
        (Kind::String, Wire::Bytes(bytes)) => Value::String(utf8(bytes)?.to_owned()),
        (Kind::Bytes, Wire::Bytes(bytes)) => Value::Bytes(bytes.to_vec()),
        _ => return None,
    })
}

const fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// What is in a wrapper.
fn wrapped(kind: &Kind, mut bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return Some(match kind {
            Kind::Bool => Value::Bool(false),
            Kind::String => Value::String(String::new()),
            Kind::Bytes => Value::Bytes(Vec::new()),
            Kind::Float | Kind::Double => Value::Float(0.0),
            Kind::Uint32 | Kind::Uint64 => Value::Uint(0),
            _ => Value::Int(0),
        });
    }
    let (number, wire) = field(&mut bytes)?;
    (number == 1 && bytes.is_empty()).then(|| scalar(kind, wire)).flatten()
}

fn duration(mut bytes: &[u8]) -> Option<Nanos> {
    let (mut seconds, mut nanos) = (None, None);
    while !bytes.is_empty() {
        match field(&mut bytes)? {
            (1, Wire::Varint(number)) if seconds.is_none() => seconds = Some(number as i64),
            (2, Wire::Varint(number)) if nanos.is_none() => nanos = Some(number as i32),
            _ => return None,
        }
    }
    let (seconds, nanos) = (seconds.unwrap_or_default(), nanos.unwrap_or_default());
    let is_ordinary = (0..=LONGEST).contains(&seconds) && (0..1_000_000_000).contains(&nanos);
    is_ordinary.then(|| Nanos(i128::from(seconds) * 1_000_000_000 + i128::from(nanos)))
}

fn utf8(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The next field, with its number.
fn field<'b>(bytes: &mut &'b [u8]) -> Option<(u32, Wire<'b>)> {
    let tag = u32::try_from(varint(bytes)?).ok()?;
    let wire = match tag & 7 {
        0 => Wire::Varint(varint(bytes)?),
        1 => fixed64(bytes)?,
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (payload, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Wire::Bytes(payload)
        }
        5 => fixed32(bytes)?,
        // Groups, and what is no kind of field.
        _ => return None,
    };
    Some((tag >> 3, wire))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    (*byte <= 1).then(|| number | u64::from(*byte) << 63)
}

fn fixed64<'b>(bytes: &mut &'b [u8]) -> Option<Wire<'b>> {
    let (bits, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(Wire::Fixed64(u64::from_le_bytes(*bits)))
}

fn fixed32<'b>(bytes: &mut &'b [u8]) -> Option<Wire<'b>> {
    let (bits, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(Wire::Fixed32(u32::from_le_bytes(*bits)))
}

/// What nests deeper is left to the other way, which has limits of its own.
const MAX_DEPTH: usize = 50;
/// 10,000 years, in seconds.
const LONGEST: i64 = 315_576_000_000;
