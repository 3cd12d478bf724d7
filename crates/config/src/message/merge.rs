//! `--config-yaml` over the file, by protobuf's `MergeFrom`: lists append, maps take the new keys, messages merge, and
//! a scalar without presence overrides only when it is not its default.

use super::{Field, Message, Nanos, Value};
use crate::tree::{Node, Value as Tree};

/// Merges `over` into `base`. Both are of the same type.
pub(crate) fn merge(base: &mut Message, over: Message) {
    for field in over.fields {
        merge_field(base, field);
    }
}

fn merge_field(base: &mut Message, over: Field) {
    let number = over.descriptor.number();
    if let Some(oneof) = over.descriptor.containing_oneof() {
        let others: Vec<u32> =
            oneof.fields().map(|field| field.number()).filter(|other| *other != number).collect();
        base.fields.retain(|field| !others.contains(&field.descriptor.number()));
    }
    let Some(field) = base.fields.iter_mut().find(|field| field.descriptor.number() == number)
    else {
        base.fields.push(over);
        return;
    };
    match (&mut field.value, over.value) {
        (Value::List(items), Value::List(more)) => items.extend(more),
        (Value::Map(entries), Value::Map(more)) => {
            entries.retain(|(key, _)| more.iter().all(|(new, _)| new != key));
            entries.extend(more);
        }
        (Value::Message(message), Value::Message(more)) => merge(message, *more),
        (Value::Duration(duration), Value::Duration(more)) => {
            **duration = merged_duration(**duration, *more)
        }
        (Value::Json(node), Value::Json(more)) => merge_json(node, *more),
        (Value::Any(_), Value::Any(more)) if more.name.is_empty() => {}
        (value, more) => {
            if over.descriptor.supports_presence() && !matches!(more, Value::Wrapper(_))
                || !more.is_default()
            {
                (*value, field.at) = (more, over.at);
            }
        }
    }
}

/// A duration is a message of seconds and nanoseconds, and each overrides by itself.
fn merged_duration(base: Nanos, over: Nanos) -> Nanos {
    const SECOND: i128 = 1_000_000_000;
    let pick = |base: i128, over: i128| if over == 0 { base } else { over };
    Nanos(pick(base.0 / SECOND, over.0 / SECOND) * SECOND + pick(base.0 % SECOND, over.0 % SECOND))
}

fn merge_json(base: &mut Node, over: Node) {
    match (&mut base.value, over.value) {
        (Tree::Map(entries), Tree::Map(more)) => {
            entries.retain(|(key, _)| more.iter().all(|(new, _)| new.name != key.name));
            entries.extend(more);
        }
        (value, more) => *value = more,
    }
}

impl Value {
    /// Whether protobuf would not put it on the wire.
    pub(crate) fn is_default(&self) -> bool {
        match self {
            Self::Bool(bool) => !bool,
            Self::Int(number) => *number == 0,
            Self::Uint(number) => *number == 0,
            Self::Float(number) => *number == 0.0,
            Self::Enum(number) => *number == 0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            Self::Wrapper(inner) => inner.is_default(),
            Self::Message(_) | Self::Duration(_) | Self::Json(_) | Self::Text(_) | Self::Any(_) => {
                false
            }
        }
    }
}
