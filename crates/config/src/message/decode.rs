//! Trees to messages, by the rules of protobuf's JSON mapping as Envoy's reader applies them.

use std::sync::Arc;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::{Any, At, Field, Item, Message, Value, any, legacy, scalar};
use crate::report::Report;
use crate::schema::Schema;
use crate::suggest::did_you_mean;
use crate::tree::{Key, Node, Value as Tree};

/// What to do with a field that its message does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    /// The default.
    #[default]
    Refuse,
    /// `--allow-unknown-static-fields`.
    Note,
}

/// Reads a tree as a message of the named type, which the schema must have.
pub(crate) fn decode(
    schema: &Schema,
    report: &mut Report,
    unknown: UnknownFields,
    type_name: &str,
    node: &Node,
    text: usize,
) -> Option<Message> {
    let descriptor = schema.message(type_name)?;
    let at = At::root(text).moved_to(node.pos);
    Decoder { schema, report, unknown }.message(&descriptor, node, &at)
}

pub(super) struct Decoder<'a> {
    pub(super) schema: &'a Schema,
    pub(super) report: &'a mut Report,
    pub(super) unknown: UnknownFields,
}

impl Decoder<'_> {
    pub(super) fn message(
        &mut self,
        descriptor: &MessageDescriptor,
        node: &Node,
        at: &At,
    ) -> Option<Message> {
        let Tree::Map(entries) = &node.value else {
            self.report.problem(at, format!("must be a map, not {}", node.kind()));
            return None;
        };
        let mut message = Message {
            descriptor: descriptor.clone(),
            at: Arc::new(at.clone()),
            fields: Vec::with_capacity(entries.len()),
        };
        for (key, value) in entries {
            if key.name == any::TYPE_KEY {
                continue;
            }
            match field_named(descriptor, &key.name) {
                Some(field) => self.field(&mut message, &field, key, value),
                None => self.unknown_field(&mut message, node, key, value),
            }
        }
        Some(message)
    }

    /// Reads a field's value and sets it.
    pub(super) fn field(
        &mut self,
        message: &mut Message,
        descriptor: &FieldDescriptor,
        key: &Key,
        node: &Node,
    ) {
        let at = message.at.field(descriptor, key.pos);
        if node.value == Tree::Null && !takes_null(&descriptor.kind()) {
            return;
        }
        if let Some(other) = already_set(message, descriptor) {
            self.report
                .problem(&at, format!("`{other}` is already set, and only one of them can be"));
            return;
        }
        let Some(value) = self.value(descriptor, node, &at) else { return };
        message.fields.push(Field::new(descriptor.clone(), at, value));
    }

    fn value(&mut self, descriptor: &FieldDescriptor, node: &Node, at: &At) -> Option<Value> {
        if descriptor.is_map() {
            return self.map(descriptor, node, at);
        }
        if !descriptor.is_list() {
            return self.single(&descriptor.kind(), node, at);
        }
        let Tree::List(nodes) = &node.value else {
            // Protobuf's reader takes one element without brackets.
            let at = Arc::new(at.clone()).index(0, node.pos);
            let value = self.single(&descriptor.kind(), node, &at)?;
            return Some(Value::List(vec![Item { at, value }]));
        };
        let mut items = Vec::with_capacity(nodes.len());
        let at = Arc::new(at.clone());
        for (index, node) in nodes.iter().enumerate() {
            let at = at.index(index, node.pos);
            if let Some(value) = self.single(&descriptor.kind(), node, &at) {
                items.push(Item { at, value });
            }
        }
        Some(Value::List(items))
    }

    fn map(&mut self, descriptor: &FieldDescriptor, node: &Node, at: &At) -> Option<Value> {
        let Tree::Map(entries) = &node.value else {
            self.report.problem(at, format!("must be a map, not {}", node.kind()));
            return None;
        };
        let Kind::Message(entry) = descriptor.kind() else { return None };
        let kind = entry.map_entry_value_field().kind();
        let mut items = Vec::with_capacity(entries.len());
        let at = Arc::new(at.clone());
        for (key, node) in entries {
            let at = at.key(&key.name, key.pos);
            if let Some(value) = self.single(&kind, node, &at) {
                items.push((key.name.clone(), Item { at, value }));
            }
        }
        Some(Value::Map(items))
    }

    fn single(&mut self, kind: &Kind, node: &Node, at: &At) -> Option<Value> {
        let result = match kind {
            Kind::Message(descriptor) => return self.message_value(descriptor, node, at),
            Kind::Enum(descriptor) => {
                if let Some(name) = scalar::proper_name(descriptor, node) {
                    self.report.note(at, format!("write `{name}`; enum names are in capitals"));
                }
                scalar::scalar(kind, node)
            }
            _ => scalar::scalar(kind, node),
        };
        result.map_err(|message| self.report.problem(at, message)).ok()
    }

    pub(super) fn message_value(
        &mut self,
        descriptor: &MessageDescriptor,
        node: &Node,
        at: &At,
    ) -> Option<Value> {
        let result = match descriptor.full_name() {
            "google.protobuf.Any" => {
                return self.any(node, at).map(|any: Any| Value::Any(Box::new(any)));
            }
            "google.protobuf.Duration" => {
                scalar::duration(node).map(|it| Value::Duration(Box::new(it)))
            }
            "google.protobuf.Struct" if !matches!(node.value, Tree::Map(_)) => {
                Err(format!("must be a map, not {}", node.kind()))
            }
            "google.protobuf.ListValue" if !matches!(node.value, Tree::List(_)) => {
                Err(format!("must be a list, not {}", node.kind()))
            }
            "google.protobuf.Struct" | "google.protobuf.Value" | "google.protobuf.ListValue" => {
                Ok(Value::Json(Box::new(node.clone())))
            }
            "google.protobuf.Timestamp" | "google.protobuf.FieldMask" => match node.text() {
                Some(text) => Ok(Value::Text(text.to_owned())),
                None => Err(format!("must be a string, not {}", node.kind())),
            },
            name if is_wrapper(name) => {
                let kind = descriptor.get_field(1)?.kind();
                let value = match &node.value {
                    Tree::Map(entries) => scalar::wrapped(&kind, entries),
                    _ => scalar::scalar(&kind, node),
                };
                value.map(|value| Value::Wrapper(Box::new(value)))
            }
            _ => return self.message(descriptor, node, at).map(|it| Value::Message(Box::new(it))),
        };
        result.map_err(|message| self.report.problem(at, message)).ok()
    }

    fn unknown_field(&mut self, message: &mut Message, node: &Node, key: &Key, value: &Node) {
        let at = message.at.named(&key.name, key.pos);
        if value.value == Tree::Null || legacy::field(self, message, node, key, value, &at) {
            return;
        }
        let text = format!("no such field in {}", message.descriptor.full_name());
        match self.unknown {
            UnknownFields::Refuse => {
                let names: Vec<_> = message.descriptor.fields().collect();
                let meant = did_you_mean(&key.name, names.iter().map(FieldDescriptor::name));
                self.report.problem(&at, text + &meant);
            }
            UnknownFields::Note => self
                .report
                .note(&at, format!("{text}; ignored, as --allow-unknown-static-fields asks")),
        }
    }
}

/// A field by either of its names.
pub(super) fn field_named(descriptor: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    descriptor.get_field_by_name(name).or_else(|| descriptor.get_field_by_json_name(name))
}

/// What keeps a field from being set: itself, or another of its oneof.
fn already_set(message: &Message, descriptor: &FieldDescriptor) -> Option<String> {
    let oneof = descriptor.containing_oneof();
    let clash = message.fields.iter().find(|field| {
        field.descriptor == *descriptor
            || (oneof.is_some() && field.descriptor.containing_oneof() == oneof)
    })?;
    Some(clash.descriptor.name().to_owned())
}

pub(super) fn takes_null(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(descriptor) if descriptor.full_name() == "google.protobuf.Value")
}

/// Whether this is one of the messages that wrap a scalar.
pub(super) fn is_wrapper(name: &str) -> bool {
    matches!(
        name,
        "google.protobuf.BoolValue"
            | "google.protobuf.StringValue"
            | "google.protobuf.BytesValue"
            | "google.protobuf.DoubleValue"
            | "google.protobuf.FloatValue"
            | "google.protobuf.Int32Value"
            | "google.protobuf.Int64Value"
            | "google.protobuf.UInt32Value"
            | "google.protobuf.UInt64Value"
    )
}
