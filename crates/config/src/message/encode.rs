//! Messages back into protobuf's encoding: what a control plane is told of the bootstrap.

use std::collections::HashMap;

use prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value as Wire,
};

use super::{Any, Message, Nanos, Value};
use crate::tree::{Node, Value as Tree};

/// A message as `prost-reflect` has it. What cannot be said in it is left out.
pub(crate) fn encode(message: &Message) -> DynamicMessage {
    let mut out = DynamicMessage::new(message.descriptor.clone());
    for field in &message.fields {
        if let Some(value) = field_value(&field.descriptor, &field.value) {
            // The kinds are those of the descriptor that the message was read by.
            let _ = out.try_set_field(&field.descriptor, value);
        }
    }
    out
}

fn field_value(field: &FieldDescriptor, of: &Value) -> Option<Wire> {
    let kind = field.kind();
    match of {
        Value::List(items) => {
            Some(Wire::List(items.iter().filter_map(|item| value(&kind, &item.value)).collect()))
        }
        Value::Map(entries) => {
            let kind = kind.as_message()?.map_entry_value_field().kind();
            let entries = entries.iter().filter_map(|(key, item)| {
                Some((MapKey::String(key.clone()), value(&kind, &item.value)?))
            });
            Some(Wire::Map(entries.collect::<HashMap<_, _>>()))
        }
        single => value(&kind, single),
    }
}

fn value(kind: &Kind, value: &Value) -> Option<Wire> {
    Some(match value {
        Value::Bool(flag) => Wire::Bool(*flag),
        Value::Int(number) => match kind {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Wire::I32(i32::try_from(*number).ok()?),
            _ => Wire::I64(*number),
        },
        Value::Uint(number) => match kind {
            Kind::Uint32 | Kind::Fixed32 => Wire::U32(u32::try_from(*number).ok()?),
            _ => Wire::U64(*number),
        },
        Value::Float(number) if *kind == Kind::Float => Wire::F32(*number as f32),
        Value::Float(number) => Wire::F64(*number),
        Value::String(text) => Wire::String(text.clone()),
        Value::Bytes(bytes) => Wire::Bytes(bytes.clone().into()),
        Value::Enum(number) => Wire::EnumNumber(*number),
        Value::Message(message) => Wire::Message(encode(message)),
        Value::Duration(nanos) => Wire::Message(duration(kind.as_message()?, **nanos)),
        Value::Wrapper(inner) => Wire::Message(wrapper(kind.as_message()?, inner)?),
        Value::Json(node) => Wire::Message(json(kind.as_message()?, node)?),
        Value::Any(any) => Wire::Message(any_message(kind.as_message()?, any)),
        Value::Text(_) | Value::List(_) | Value::Map(_) => return None,
    })
}

fn duration(descriptor: &MessageDescriptor, Nanos(nanos): Nanos) -> DynamicMessage {
    let mut out = DynamicMessage::new(descriptor.clone());
    let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or_default();
    let rest = i32::try_from(nanos % 1_000_000_000).unwrap_or_default();
    let _ = out.try_set_field_by_name("seconds", Wire::I64(seconds));
    let _ = out.try_set_field_by_name("nanos", Wire::I32(rest));
    out
}

fn wrapper(descriptor: &MessageDescriptor, inner: &Value) -> Option<DynamicMessage> {
    let mut out = DynamicMessage::new(descriptor.clone());
    let field = descriptor.get_field_by_name("value")?;
    out.try_set_field(&field, value(&field.kind(), inner)?).ok()?;
    Some(out)
}

fn any_message(descriptor: &MessageDescriptor, any: &Any) -> DynamicMessage {
    let mut out = DynamicMessage::new(descriptor.clone());
    if !any.name.is_empty() {
        let url = format!("type.googleapis.com/{}", any.name);
        let _ = out.try_set_field_by_name("type_url", Wire::String(url));
    }
    if let Some(message) = &any.message {
        let bytes = encode(message).encode_to_vec();
        let _ = out.try_set_field_by_name("value", Wire::Bytes(bytes.into()));
    }
    out
}

/// A `Struct`, `Value` or `ListValue`.
fn json(descriptor: &MessageDescriptor, node: &Node) -> Option<DynamicMessage> {
    let mut out = DynamicMessage::new(descriptor.clone());
    let (name, value) = match (descriptor.name(), &node.value) {
        ("Struct", Tree::Map(entries)) => {
            let field = descriptor.get_field_by_name("fields")?;
            let kind = field.kind().as_message()?.map_entry_value_field().kind();
            let entries = entries.iter().filter_map(|(key, node)| {
                let value = json(kind.as_message()?, node)?;
                Some((MapKey::String(key.name.clone()), Wire::Message(value)))
            });
            ("fields", Wire::Map(entries.collect::<HashMap<_, _>>()))
        }
        ("ListValue", Tree::List(items)) => {
            let field = descriptor.get_field_by_name("values")?;
            let kind = field.kind();
            let items = items.iter().filter_map(|node| json(kind.as_message()?, node));
            ("values", Wire::List(items.map(Wire::Message).collect()))
        }
        (_, Tree::Null) => ("null_value", Wire::EnumNumber(0)),
        (_, Tree::Bool(flag)) => ("bool_value", Wire::Bool(*flag)),
        (_, Tree::Number(text)) => ("number_value", Wire::F64(text.parse().ok()?)),
        (_, Tree::String(text)) => ("string_value", Wire::String(text.clone())),
        (_, Tree::List(_)) => ("list_value", inner(descriptor, "list_value", node)?),
        (_, Tree::Map(_)) => ("struct_value", inner(descriptor, "struct_value", node)?),
    };
    out.try_set_field_by_name(name, value).ok()?;
    Some(out)
}

fn inner(descriptor: &MessageDescriptor, field: &str, node: &Node) -> Option<Wire> {
    let kind = descriptor.get_field_by_name(field)?.kind();
    json(kind.as_message()?, node).map(Wire::Message)
}
