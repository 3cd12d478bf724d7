//! Matchers of metadata and filter state, and values of `google.protobuf.Struct`.

use std::sync::Arc;

use towpath_engine::matcher::{FilterStateMatcher, MetadataMatcher, StateTest, ValueMatcher};
use towpath_engine::stream_info::{FilterMetadata, Struct, Value as Held};

use super::Converter;
use crate::message::{Message, Value};
use crate::tree::{Node, Value as Tree};

impl Converter<'_> {
    /// A list of `MetadataMatcher`s.
    pub(super) fn metadata_matchers(&mut self, from: &Message, name: &str) -> Vec<MetadataMatcher> {
        from.messages(name).filter_map(|matcher| self.metadata_matcher(matcher)).collect()
    }

    /// A `MetadataMatcher`.
    pub(super) fn metadata_matcher(&mut self, matcher: &Message) -> Option<MetadataMatcher> {
        let keys = matcher.messages("path").map(|segment| segment.text("key").into());
        Some(MetadataMatcher {
            namespace: matcher.text("filter").into(),
            path: keys.collect(),
            value: self.value_matcher(matcher.message("value")?)?,
            invert: matcher.flag("invert"),
        })
    }

    /// A `ValueMatcher`; how deep it nests the reader of messages limits.
    pub(super) fn value_matcher(&mut self, matcher: &Message) -> Option<ValueMatcher> {
        let field = matcher.oneof("match_pattern")?;
        Some(match (field.descriptor.name(), &field.value) {
            ("null_match", _) => ValueMatcher::Null,
            ("bool_match", Value::Bool(wanted)) => ValueMatcher::Bool(*wanted),
            ("present_match", Value::Bool(wanted)) => ValueMatcher::Present(*wanted),
            ("double_match", Value::Message(double)) => number_matcher(double)?,
            ("string_match", Value::Message(text)) => {
                ValueMatcher::Text(self.string_matcher(text)?)
            }
            ("list_match", Value::Message(list)) => {
                ValueMatcher::OneOf(Box::new(self.value_matcher(list.message("one_of")?)?))
            }
            ("or_match", Value::Message(any)) => {
                let any = any.messages("value_matchers").map(|one| self.value_matcher(one));
                ValueMatcher::AnyOf(any.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    /// A list of `FilterStateMatcher`s.
    pub(super) fn state_matchers(&mut self, from: &Message, name: &str) -> Vec<FilterStateMatcher> {
        from.messages(name).filter_map(|matcher| self.state_matcher(matcher)).collect()
    }

    /// A `FilterStateMatcher`.
    pub(super) fn state_matcher(&mut self, matcher: &Message) -> Option<FilterStateMatcher> {
        let field = matcher.oneof("matcher")?;
        let Value::Message(inner) = &field.value else { return None };
        let test = match field.descriptor.name() {
            "string_match" => StateTest::Text(self.string_matcher(inner)?),
            "address_match" => {
                let ranges = inner.messages("ranges").filter_map(|range| self.prefix(range));
                let ranges = ranges.collect();
                StateTest::Address { ranges, outside: inner.flag("invert_match") }
            }
            _ => return None,
        };
        Some(FilterStateMatcher { name: matcher.text("key").into(), test })
    }
}

fn number_matcher(double: &Message) -> Option<ValueMatcher> {
    let field = double.oneof("match_pattern")?;
    match &field.value {
        Value::Float(wanted) => Some(ValueMatcher::Number(*wanted)),
        Value::Message(range) => {
            let bound = |name| range.float(name).unwrap_or_default();
            Some(ValueMatcher::Range(bound("start"), bound("end")))
        }
        _ => None,
    }
}

/// `metadata.filter_metadata` of a message, by namespace.
pub(super) fn filter_metadata(holder: &Message) -> FilterMetadata {
    metadata_of(holder, "metadata")
}

/// The same of another field.
pub(super) fn metadata_of(holder: &Message, field: &str) -> FilterMetadata {
    let entries = holder.message(field)?.entries("filter_metadata");
    let structs = entries.iter().filter_map(|(name, entry)| match &entry.value {
        Value::Json(node) => Some((name.as_str().into(), held(node))),
        _ => None,
    });
    let all: Struct = structs.collect();
    (!all.is_empty()).then(|| Arc::new(all))
}

/// What a field that is a `Metadata` says under a namespace.
pub(super) fn namespace(holder: &Message, field: &str, name: &str) -> Option<Struct> {
    let entries = holder.message(field)?.entries("filter_metadata");
    let (_, entry) = entries.iter().find(|(known, _)| known.as_str() == name)?;
    match &entry.value {
        Value::Json(node) => match held(node) {
            Held::Struct(entries) => Some(entries),
            _ => None,
        },
        _ => None,
    }
}

/// A field that is a `google.protobuf.Struct`.
pub(super) fn structure(from: &Message, name: &str) -> Struct {
    if let Some(Value::Json(node)) = from.get(name).map(|field| &field.value)
        && let Tree::Map(entries) = &node.value
    {
        return entries.iter().map(|(key, node)| (key.name.as_str().into(), held(node))).collect();
    }
    Struct::new()
}

fn held(node: &Node) -> Held {
    match &node.value {
        Tree::Null => Held::Null,
        Tree::Bool(flag) => Held::Bool(*flag),
        Tree::Number(text) => {
            text.parse().map_or_else(|_| Held::String(text.as_str().into()), Held::Number)
        }
        Tree::String(text) => Held::String(text.as_str().into()),
        Tree::List(items) => Held::List(items.iter().map(held).collect()),
        Tree::Map(entries) => Held::Struct(
            entries.iter().map(|(key, node)| (key.name.as_str().into(), held(node))).collect(),
        ),
    }
}
