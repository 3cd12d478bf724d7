//! `google.protobuf.Any`: a message with its type beside it, and `TypedStruct` inside it, which Istio and others use
//! for types that the sender does not know.

use std::sync::Arc;

use super::decode::{Decoder, is_wrapper};
use super::legacy;
use super::{Any, At};
use crate::schema::Schema;
use crate::tree::{Node, Value as Tree};

/// The key that holds the type's URL.
pub(super) const TYPE_KEY: &str = "@type";

/// The name of a filter chain, where a matcher leads to one. Its `value` stands beside the type.
const STRING_VALUE: &str = "google.protobuf.StringValue";

/// The names of the message that carries a type's URL and an untyped value.
pub(super) const TYPED_STRUCTS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];

impl Decoder<'_> {
    pub(super) fn any(&mut self, node: &Node, at: &At) -> Option<Any> {
        let Tree::Map(entries) = &node.value else {
            self.report.problem(at, format!("must be a map with an `@type`, not {}", node.kind()));
            return None;
        };
        let Some(url) = node.get(TYPE_KEY) else {
            if entries.is_empty() {
                return Some(Any { name: String::new(), message: None });
            }
            self.report.problem(at, "has no `@type`");
            return None;
        };
        let name = self.type_name(url, at)?;
        if TYPED_STRUCTS.contains(&name.as_str()) {
            return self.typed_struct(node, at);
        }
        let Some(descriptor) = self.schema.message(&name) else {
            let meant = Schema::suggestion(&name);
            let at = Arc::new(at.clone()).named(TYPE_KEY, url.pos);
            self.report.problem(&at, format!("there is no type `{name}`{meant}"));
            return None;
        };
        let is_special = is_wrapper(&name) || name.starts_with("google.protobuf.");
        if is_special && name != STRING_VALUE {
            // Nothing that is read from a bootstrap is one of these, so its content does not matter.
            return Some(Any { name, message: None });
        }
        let message = self.message(&descriptor, node, at)?;
        Some(Any { name, message: Some(message) })
    }

    /// What is in a `TypedStruct`, as if it had been written in its place.
    fn typed_struct(&mut self, node: &Node, at: &At) -> Option<Any> {
        let url = node.get("type_url").or_else(|| node.get("typeUrl"));
        let Some(url) = url else {
            self.report.problem(at, "a TypedStruct needs a `type_url`");
            return None;
        };
        let name = self.type_name(url, at)?;
        let Some(descriptor) = self.schema.message(&name) else {
            return Some(Any { name, message: None });
        };
        let empty = Node { pos: node.pos, value: Tree::Map(Vec::new()) };
        let value = node.get("value").unwrap_or(&empty);
        let message =
            self.message(&descriptor, value, &Arc::new(at.clone()).named("value", value.pos))?;
        Some(Any { name, message: Some(message) })
    }

    /// The full name in a type's URL. Names of the v2 API become those of v3.
    fn type_name(&mut self, url: &Node, at: &At) -> Option<String> {
        let at = Arc::new(at.clone()).named(TYPE_KEY, url.pos);
        let Some(text) = url.text() else {
            self.report.problem(&at, format!("must be a string, not {}", url.kind()));
            return None;
        };
        match text.rsplit_once('/') {
            Some((host, name)) if !host.is_empty() && !name.is_empty() => {
                let Some(current) = legacy::current_type(name) else {
                    return Some(name.to_owned());
                };
                self.report
                    .note(&at, format!("`{name}` is of the v2 API; write `{host}/{current}`"));
                Some(current.to_owned())
            }
            _ => {
                self.report.problem(
                    &at,
                    format!("`{text}` is not a type URL such as `type.googleapis.com/a.b.C`"),
                );
                None
            }
        }
    }
}
