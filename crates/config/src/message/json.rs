//! Messages to JSON as protobuf's printer writes it with the proto's own field names; `/config_dump` serves this.

use std::cell::RefCell;
use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{FieldDescriptor, Kind};
use serde_json::{Map, Number, Value as Json};

use super::{Any, Field, Message, Nanos, Value};
use crate::tree::{Node, Value as Tree};

/// A message as a JSON object.
pub(crate) fn to_json(message: &Message) -> Json {
    Json::Object(object(message))
}

fn object(message: &Message) -> Map<String, Json> {
    let mut object = Map::new();
    for field in &message.fields {
        let mut json = field_json(field);
        if is_sensitive(&field.descriptor) {
            redact(&mut json, &field.descriptor);
        }
        object.insert(field.descriptor.name().to_owned(), json);
    }
    object
}

/// Whether what a field holds is secret: keys, passwords.
fn is_sensitive(field: &FieldDescriptor) -> bool {
    SENSITIVE.with_borrow_mut(|known| match known.get(field.full_name()) {
        Some(is_it) => *is_it,
        None => {
            let is_it = is_marked(field);
            known.insert(field.full_name().into(), is_it);
            is_it
        }
    })
}

thread_local! {
    /// Fields that were asked about, for options are decoded anew each time. No more than there are in the protos.
    static SENSITIVE: RefCell<HashMap<Box<str>, bool>> = RefCell::default();
}

fn is_marked(field: &FieldDescriptor) -> bool {
    let name = field.full_name().strip_prefix(CALL_CREDENTIALS);
    if name.is_some_and(|name| TOKENS.contains(&name)) {
        return true;
    }
    let extension = field.parent_pool().get_extension_by_name("udpa.annotations.sensitive");
    extension
        .is_some_and(|extension| field.options().get_extension(&extension).as_bool() == Some(true))
}

/// Replaces every text and all bytes in a field, as Envoy does.
fn redact(json: &mut Json, field: &FieldDescriptor) {
    match json {
        Json::String(text) if field.kind() == Kind::Bytes => *text = STANDARD.encode(REDACTED),
        Json::String(text) => REDACTED.clone_into(text),
        Json::Array(items) => items.iter_mut().for_each(|item| redact(item, field)),
        Json::Object(object) => {
            let kind = field.kind();
            for (name, json) in object {
                let inner = kind.as_message().and_then(|message| message.get_field_by_name(name));
                match inner {
                    Some(inner) => redact(json, &inner),
                    None => redact(json, field),
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

const CALL_CREDENTIALS: &str = "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.";
/// What Envoy's protos do not mark, and is secret all the same.
const TOKENS: [&str; 4] = [
    "access_token",
    "google_refresh_token",
    "ServiceAccountJWTAccessCredentials.json_key",
    "GoogleIAMCredentials.authorization_token",
];
const REDACTED: &str = "[redacted]";

fn field_json(field: &Field) -> Json {
    let kind = field.descriptor.kind();
    match &field.value {
        Value::Map(entries) => {
            let kind = kind.as_message().map(|entry| entry.map_entry_value_field().kind());
            let entries =
                entries.iter().map(|(key, item)| (key.clone(), json(&item.value, kind.as_ref())));
            Json::Object(entries.collect())
        }
        Value::List(items) => {
            Json::Array(items.iter().map(|item| json(&item.value, Some(&kind))).collect())
        }
        value => json(value, Some(&kind)),
    }
}

fn json(value: &Value, kind: Option<&Kind>) -> Json {
    match value {
        Value::Bool(bool) => Json::Bool(*bool),
        Value::Int(number) if i32::try_from(*number).is_ok() => Json::from(*number),
        Value::Int(number) => Json::String(number.to_string()),
        Value::Uint(number) if u32::try_from(*number).is_ok() => Json::from(*number),
        Value::Uint(number) => Json::String(number.to_string()),
        Value::Float(number) => {
            Number::from_f64(*number).map_or_else(|| Json::String(number.to_string()), Json::Number)
        }
        Value::String(text) | Value::Text(text) => Json::String(text.clone()),
        Value::Bytes(bytes) => Json::String(STANDARD.encode(bytes)),
        Value::Enum(number) => enumeration(*number, kind),
        Value::Message(message) => to_json(message),
        Value::Duration(duration) => Json::String(duration.to_string()),
        Value::Wrapper(inner) => json(inner, None),
        Value::Json(node) => tree(node),
        Value::Any(any) => any_json(any),
        Value::List(_) | Value::Map(_) => Json::Null,
    }
}

fn enumeration(number: i32, kind: Option<&Kind>) -> Json {
    let value = kind.and_then(Kind::as_enum).and_then(|descriptor| descriptor.get_value(number));
    value.map_or_else(|| Json::from(number), |value| Json::String(value.name().to_owned()))
}

fn any_json(any: &Any) -> Json {
    let mut all = Map::new();
    if !any.name.is_empty() {
        all.insert("@type".to_owned(), Json::String(format!("type.googleapis.com/{}", any.name)));
    }
    all.extend(any.message.as_ref().map(object).unwrap_or_default());
    Json::Object(all)
}

/// An untyped value.
pub(crate) fn tree(node: &Node) -> Json {
    match &node.value {
        Tree::Null => Json::Null,
        Tree::Bool(bool) => Json::Bool(*bool),
        Tree::Number(text) => {
            text.parse().map_or_else(|_| Json::String(text.clone()), Json::Number)
        }
        Tree::String(text) => Json::String(text.clone()),
        Tree::List(items) => Json::Array(items.iter().map(tree).collect()),
        Tree::Map(entries) => {
            Json::Object(entries.iter().map(|(key, node)| (key.name.clone(), tree(node))).collect())
        }
    }
}

impl std::fmt::Display for Nanos {
    /// With no, three, six or nine decimals, as protobuf prints durations.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (seconds, nanos) =
            (self.0.unsigned_abs() / 1_000_000_000, self.0.unsigned_abs() % 1_000_000_000);
        match nanos {
            0 => write!(f, "{sign}{seconds}s"),
            nanos if nanos % 1_000_000 == 0 => {
                write!(f, "{sign}{seconds}.{:03}s", nanos / 1_000_000)
            }
            nanos if nanos % 1_000 == 0 => write!(f, "{sign}{seconds}.{:06}s", nanos / 1_000),
            nanos => write!(f, "{sign}{seconds}.{nanos:09}s"),
        }
    }
}
