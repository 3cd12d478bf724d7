//! Encoded messages, read by the same rules as a file: over trees, but for what is ordinary ([`super::direct`]). Their
//! places have no line, only a path.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, ReflectMessage, Value as Wire};

use super::any::{TYPE_KEY, TYPED_STRUCTS};
use super::decode::{UnknownFields, decode, is_wrapper};
use super::{Message, direct};
use crate::report::Report;
use crate::schema::Schema;
use crate::tree::{Key, MAX_DEPTH, Node, Pos, Value as Tree};

/// What reading an encoded message found out beside its content.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Types that are named in it, and that the schema does not have.
    pub(crate) types: BTreeSet<String>,
    /// How many fields no message has.
    pub(crate) unknown_fields: u64,
}

/// Reads an encoded message of a text. There is none where something is wrong with it, which the report says then, or
/// where the schema does not have all types that are [`Seen`].
///
/// # Errors
/// Why it is no message of the named type.
pub(crate) fn decode_binary(
    schema: &Schema,
    report: &mut Report,
    unknown: UnknownFields,
    type_name: &str,
    bytes: &[u8],
    text: usize,
    seen: &mut Seen,
) -> Result<Option<Message>, String> {
    let descriptor = schema.message(type_name).ok_or("there is no such type")?;
    if let Some(message) = direct::read(schema, &descriptor, bytes, text) {
        return Ok(Some(message));
    }
    let tree = tree(schema, descriptor, bytes, seen)?;
    if !seen.types.is_empty() {
        return Ok(None);
    }
    Ok(decode(schema, report, unknown, type_name, &tree, text))
}

/// Reads an encoded message of a text, if nothing about it is out of the ordinary.
pub(crate) fn decode_ordinary(
    schema: &Schema,
    type_name: &str,
    bytes: &[u8],
    text: usize,
) -> Option<Message> {
    direct::read(schema, &schema.message(type_name)?, bytes, text)
}

/// An encoded message as a tree. The error says why it cannot be read.
pub(super) fn tree(
    schema: &Schema,
    descriptor: MessageDescriptor,
    bytes: &[u8],
    seen: &mut Seen,
) -> Result<Node, String> {
    Reader { schema, seen, depth: 0 }.bytes(descriptor, bytes)
}

struct Reader<'a> {
    schema: &'a Schema,
    seen: &'a mut Seen,
    /// Of messages in `Any`s, each of which begins to count anew.
    depth: usize,
}

impl Reader<'_> {
    fn bytes(&mut self, descriptor: MessageDescriptor, bytes: &[u8]) -> Result<Node, String> {
        let name = descriptor.full_name().to_owned();
        let message = DynamicMessage::decode(descriptor, bytes)
            .map_err(|error| format!("not a {name}: {error}"))?;
        self.message(&message)
    }

    fn message(&mut self, message: &DynamicMessage) -> Result<Node, String> {
        let descriptor = message.descriptor();
        let text = |name: &str| {
            let value = message.get_field_by_name(name);
            value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let value = match descriptor.full_name() {
            "google.protobuf.Any" => return self.any(message, &text("type_url")),
            "google.protobuf.Struct" => {
                let fields = message.get_field_by_name("fields");
                return fields.map_or_else(|| Ok(map(Vec::new())), |fields| self.value(&fields));
            }
            "google.protobuf.ListValue" => {
                let values = message.get_field_by_name("values");
                return values.map_or_else(|| Ok(node(Tree::Null)), |values| self.value(&values));
            }
            "google.protobuf.Value" => {
                let Some((field, value)) = message.fields().next() else {
                    return Ok(node(Tree::Null));
                };
                return if field.name() == "null_value" {
                    Ok(node(Tree::Null))
                } else {
                    self.value(value)
                };
            }
            "google.protobuf.FieldMask" => {
                let paths = message.get_field_by_name("paths");
                let paths = paths.as_ref().and_then(|paths| paths.as_list()).unwrap_or_default();
                let paths: Vec<_> = paths.iter().filter_map(Wire::as_str).collect();
                Tree::String(paths.join(","))
            }
            // Nothing that is read has one; whatever reads one says that it is no date.
            "google.protobuf.Timestamp" => Tree::String(format!("{message:?}")),
            name if is_wrapper(name) => {
                let value = message.get_field_by_name("value");
                return value.map_or_else(|| Ok(node(Tree::Null)), |value| self.value(&value));
            }
            name => {
                if TYPED_STRUCTS.contains(&name) {
                    self.name(&text("type_url"));
                }
                self.seen.unknown_fields += message.unknown_fields().count() as u64;
                let mut entries = Vec::new();
                for (field, value) in message.fields() {
                    entries.push((key(field.name()), self.value(value)?));
                }
                Tree::Map(entries)
            }
        };
        Ok(node(value))
    }

    fn any(&mut self, any: &DynamicMessage, url: &str) -> Result<Node, String> {
        if url.is_empty() {
            return Ok(map(Vec::new()));
        }
        let mut entries = vec![(key(TYPE_KEY), node(Tree::String(url.to_owned())))];
        let name = url.rsplit_once('/').map_or(url, |(_, name)| name);
        self.name(name);
        // A type that is not there is reported where it is named.
        let Some(descriptor) = self.schema.message(name) else { return Ok(map(entries)) };
        if self.depth >= MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} messages in each other"));
        }
        let value = any.get_field_by_name("value");
        let bytes = value.as_ref().and_then(|value| value.as_bytes()).cloned().unwrap_or_default();
        self.depth += 1;
        let inner = self.bytes(descriptor, &bytes)?;
        self.depth -= 1;
        match inner.value {
            Tree::Map(inner) if !name.starts_with("google.protobuf.") => entries.extend(inner),
            value => entries.push((key("value"), node(value))),
        }
        Ok(map(entries))
    }

    fn name(&mut self, name: &str) {
        let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
        if self.schema.message(name).is_none() && Schema::has(name) {
            self.seen.types.insert(name.to_owned());
        }
    }

    fn value(&mut self, value: &Wire) -> Result<Node, String> {
        let value = match value {
            Wire::Bool(flag) => Tree::Bool(*flag),
            Wire::I32(number) | Wire::EnumNumber(number) => Tree::Number(number.to_string()),
            Wire::I64(number) => Tree::Number(number.to_string()),
            Wire::U32(number) => Tree::Number(number.to_string()),
            Wire::U64(number) => Tree::Number(number.to_string()),
            Wire::F32(number) => float(f64::from(*number)),
            Wire::F64(number) => float(*number),
            Wire::String(text) => Tree::String(text.clone()),
            Wire::Bytes(bytes) => Tree::String(STANDARD.encode(bytes)),
            Wire::Message(message) => return self.message(message),
            Wire::List(items) => {
                Tree::List(items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?)
            }
            Wire::Map(entries) => {
                let mut all = Vec::new();
                for (name, value) in entries {
                    all.push((key(&map_key(name)), self.value(value)?));
                }
                // The same message is the same tree each time.
                all.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
                Tree::Map(all)
            }
        };
        Ok(node(value))
    }
}

fn float(number: f64) -> Tree {
    if number.is_nan() {
        Tree::String("NaN".to_owned())
    } else if number.is_infinite() {
        Tree::String(if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned())
    } else {
        Tree::Number(number.to_string())
    }
}

fn map_key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(flag) => flag.to_string(),
        MapKey::I32(number) => number.to_string(),
        MapKey::I64(number) => number.to_string(),
        MapKey::U32(number) => number.to_string(),
        MapKey::U64(number) => number.to_string(),
        MapKey::String(text) => text.clone(),
    }
}

fn key(name: &str) -> Key {
    Key { pos: Pos::default(), name: name.to_owned() }
}

fn node(value: Tree) -> Node {
    Node { pos: Pos::default(), value }
}

fn map(entries: Vec<(Key, Node)>) -> Node {
    node(Tree::Map(entries))
}
