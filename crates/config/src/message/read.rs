//! How conversion reads a message: by field name, with protobuf's defaults. Every read is remembered in the field.

use std::time::Duration;

use super::{Any, At, Field, Item, Message, Value};

/// Nanoseconds, possibly negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nanos(pub(crate) i128);

impl Nanos {
    /// As a duration; what is negative becomes zero, and the rules have refused it before.
    pub(crate) fn duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.max(0)).unwrap_or(u64::MAX))
    }
}

impl Message {
    /// A field that is set.
    pub(crate) fn get(&self, name: &str) -> Option<&Field> {
        debug_assert!(
            self.descriptor.get_field_by_name(name).is_some(),
            "{} has no {name}",
            self.descriptor.full_name()
        );
        let field = self.fields.iter().find(|field| field.is_named(name))?;
        field.read.set(true);
        Some(field)
    }

    /// Whether a field is set.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Where a field is set, or the message when it is not.
    pub(crate) fn at(&self, name: &str) -> &At {
        self.get(name).map_or(&self.at, |field| &field.at)
    }

    /// A string; empty when not set.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.get(name).map(|field| &field.value) {
            Some(Value::String(text)) => text,
            Some(Value::Wrapper(inner)) => {
                if let Value::String(text) = &**inner {
                    text
                } else {
                    ""
                }
            }
            _ => "",
        }
    }

    /// A boolean; false when not set.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.wrapped_flag(name).unwrap_or(false)
    }

    /// A `BoolValue`, if set.
    pub(crate) fn wrapped_flag(&self, name: &str) -> Option<bool> {
        match self.get(name)?.value.unwrapped() {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// An unsigned integer, wrapped or not, if set.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)?.value.unwrapped() {
            Value::Uint(number) => Some(*number),
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The same in 32 bits; larger is not possible where the proto says so.
    pub(crate) fn number32(&self, name: &str) -> Option<u32> {
        self.number(name).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// A floating-point number, wrapped or not, if set.
    pub(crate) fn float(&self, name: &str) -> Option<f64> {
        match self.get(name)?.value.unwrapped() {
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// The name of an enum's value, that of the default when not set.
    pub(crate) fn choice(&self, name: &str) -> String {
        let number = match self.get(name).map(|field| &field.value) {
            Some(Value::Enum(number)) => *number,
            _ => 0,
        };
        let descriptor = self.descriptor.get_field_by_name(name);
        let kind = descriptor.map(|field| field.kind());
        let value =
            kind.as_ref().and_then(|kind| kind.as_enum()).and_then(|kind| kind.get_value(number));
        value.map_or_else(|| number.to_string(), |value| value.name().to_owned())
    }

    /// A duration, if set.
    pub(crate) fn nanos(&self, name: &str) -> Option<Nanos> {
        match &self.get(name)?.value {
            Value::Duration(nanos) => Some(**nanos),
            _ => None,
        }
    }

    /// A duration, if set.
    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        self.nanos(name).map(Nanos::duration)
    }

    /// A message, if set.
    pub(crate) fn message(&self, name: &str) -> Option<&Self> {
        match &self.get(name)?.value {
            Value::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The messages of a list.
    pub(crate) fn messages(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.items(name).iter().filter_map(|item| {
            if let Value::Message(message) = &item.value { Some(&**message) } else { None }
        })
    }

    /// The strings of a list.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = (&str, &At)> {
        self.items(name).iter().filter_map(|item| {
            if let Value::String(text) = &item.value {
                Some((text.as_str(), &item.at))
            } else {
                None
            }
        })
    }

    /// The numbers of a list.
    pub(crate) fn numbers(&self, name: &str) -> impl Iterator<Item = (u64, &At)> {
        self.items(name).iter().filter_map(|item| match &item.value {
            Value::Uint(number) => Some((*number, &item.at)),
            _ => None,
        })
    }

    /// The elements of a list.
    pub(crate) fn items(&self, name: &str) -> &[Item] {
        match self.get(name).map(|field| &field.value) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }

    /// The entries of a map.
    pub(crate) fn entries(&self, name: &str) -> &[(String, Item)] {
        match self.get(name).map(|field| &field.value) {
            Some(Value::Map(entries)) => entries,
            _ => &[],
        }
    }

    /// An `Any`, if set.
    pub(crate) fn any(&self, name: &str) -> Option<(&Any, &At)> {
        let field = self.get(name)?;
        match &field.value {
            Value::Any(any) => Some((any, &field.at)),
            _ => None,
        }
    }

    /// Which field of a oneof is set.
    pub(crate) fn oneof(&self, name: &str) -> Option<&Field> {
        let field = self.fields.iter().find(|field| {
            field.descriptor.containing_oneof().is_some_and(|oneof| oneof.name() == name)
        })?;
        field.read.set(true);
        Some(field)
    }
}

impl Value {
    /// What is in a wrapper, or the value itself.
    pub(crate) fn unwrapped(&self) -> &Self {
        if let Self::Wrapper(inner) = self { inner } else { self }
    }
}
