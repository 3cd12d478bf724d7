//! `google.protobuf.Value`: what dynamic metadata is made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::json::{json_string, number_text};

/// `google.protobuf.Struct`, in the order of its keys.
pub type Struct = BTreeMap<Box<str>, Value>;

/// Envoy `Metadata.filter_metadata` of a part of the configuration, by namespace; none where there is nothing in it.
pub type FilterMetadata = Option<Arc<Struct>>;

/// A `google.protobuf.Value`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// `null_value`.
    #[default]
    Null,
    /// `bool_value`.
    Bool(bool),
    /// `number_value`.
    Number(f64),
    /// `string_value`.
    String(Box<str>),
    /// `list_value`.
    List(Vec<Self>),
    /// `struct_value`.
    Struct(Struct),
}

/// How strings of JSON are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonStyle {
    /// As protobuf writes them: `<` and `>` are escaped.
    Protobuf,
    /// As JSON access logs have them.
    Plain,
}

impl Value {
    /// A string; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(bytes: &[u8]) -> Self {
        Self::String(String::from_utf8_lossy(bytes).into())
    }

    /// The value at a path of keys.
    #[must_use]
    pub fn at<'a>(&'a self, path: &[Box<str>]) -> Option<&'a Self> {
        path.iter().try_fold(self, |value, key| match value {
            Self::Struct(entries) => entries.get(key),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) | Self::List(_) => None,
        })
    }

    /// About how many bytes it holds.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Null | Self::Bool(_) | Self::Number(_) => 0,
                Self::String(text) => text.len(),
                Self::List(items) => items.iter().map(Self::weight).sum(),
                Self::Struct(entries) => weight_of(entries),
            }
    }

    /// Appends it as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>, style: JsonStyle) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Self::Number(number) => out.extend_from_slice(number_text(*number).as_bytes()),
            Self::String(text) => write_string(out, text, style),
            Self::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write_json(out, style);
                }
                out.push(b']');
            }
            Self::Struct(entries) => write_struct(out, entries, style),
        }
    }
}

/// Appends a struct as JSON.
pub fn write_struct(out: &mut Vec<u8>, entries: &Struct, style: JsonStyle) {
    out.push(b'{');
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(out, key, style);
        out.push(b':');
        value.write_json(out, style);
    }
    out.push(b'}');
}

/// The value at a path of keys.
#[must_use]
pub fn value_at<'a>(entries: &'a Struct, path: &[Box<str>]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    entries.get(first)?.at(rest)
}

/// Adds entries to a struct: structs are joined, lists appended to, and all else takes the place of what was there.
pub fn merge(into: &mut Struct, entries: &Struct) {
    for (key, new) in entries {
        match (into.get_mut(key), new) {
            (Some(Value::Struct(old)), Value::Struct(new)) => merge(old, new),
            (Some(Value::List(old)), Value::List(new)) => old.extend_from_slice(new),
            (Some(old), new) => *old = new.clone(),
            (None, new) => {
                into.insert(key.clone(), new.clone());
            }
        }
    }
}

/// About how many bytes a struct holds.
#[must_use]
pub fn weight_of(entries: &Struct) -> usize {
    entries.iter().map(|(key, value)| size_of::<Box<str>>() + key.len() + value.weight()).sum()
}

fn write_string(out: &mut Vec<u8>, text: &str, style: JsonStyle) {
    let start = out.len();
    json_string(out, text.as_bytes());
    if style == JsonStyle::Protobuf && out[start..].iter().any(|byte| matches!(byte, b'<' | b'>')) {
        let plain = out.split_off(start);
        for byte in plain {
            match byte {
                b'<' => out.extend_from_slice(br"\u003c"),
                b'>' => out.extend_from_slice(br"\u003e"),
                other => out.push(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &Value, style: JsonStyle) -> String {
        let mut out = Vec::new();
        value.write_json(&mut out, style);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_value_is_written_as_json() {
        let list = Value::List(vec![Value::Null, Value::Bool(true), Value::Number(1.5)]);
        let entries = [("b".into(), list), ("a".into(), Value::text(b"<\"\xff"))];
        let value = Value::Struct(entries.into_iter().collect());
        let plain = json(&value, JsonStyle::Plain);
        assert_eq!(plain, r#"{"a":"<\"�","b":[null,true,1.5]}"#);
        let escaped = json(&value, JsonStyle::Protobuf);
        assert_eq!(escaped, r#"{"a":"\u003c\"�","b":[null,true,1.5]}"#);
        assert_eq!(json(&Value::Number(3.0), JsonStyle::Plain), "3");
    }

    #[test]
    fn structs_are_joined_and_lists_grow() {
        let list =
            |numbers: &[f64]| Value::List(numbers.iter().copied().map(Value::Number).collect());
        let entries = |entries: Vec<(&str, Value)>| -> Struct {
            entries.into_iter().map(|(key, value)| (key.into(), value)).collect()
        };
        let mut all = entries(vec![
            ("list", list(&[1.0])),
            ("struct", Value::Struct(entries(vec![("a", list(&[1.0])), ("b", Value::Null)]))),
            ("other", list(&[1.0])),
        ]);
        merge(
            &mut all,
            &entries(vec![
                ("list", list(&[2.0])),
                ("struct", Value::Struct(entries(vec![("a", list(&[2.0])), ("c", Value::Null)]))),
                ("other", Value::Null),
                ("new", Value::Bool(true)),
            ]),
        );
        let inner = vec![("a", list(&[1.0, 2.0])), ("b", Value::Null), ("c", Value::Null)];
        let wanted = entries(vec![
            ("list", list(&[1.0, 2.0])),
            ("struct", Value::Struct(entries(inner))),
            ("other", Value::Null),
            ("new", Value::Bool(true)),
        ]);
        assert_eq!(all, wanted);
    }

    #[test]
    fn a_path_ends_where_there_is_no_struct() {
        let inner = [("b".into(), Value::Bool(true))].into_iter().collect();
        let entries: Struct = [("a".into(), Value::Struct(inner))].into_iter().collect();
        let path = |keys: &[&str]| keys.iter().map(|key| Box::from(*key)).collect::<Vec<_>>();
        assert_eq!(value_at(&entries, &path(&["a", "b"])), Some(&Value::Bool(true)));
        for none in [&[][..], &["b"], &["a", "b", "c"]] {
            assert_eq!(value_at(&entries, &path(none)), None, "{none:?}");
        }
    }
}
