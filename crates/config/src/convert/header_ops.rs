//! Header operations: `*_headers_to_add`, `*_headers_to_remove` and the mutations of the header mutation filter.

use towpath_engine::format::Format;
use towpath_engine::header_ops::{HeaderMutation, HeaderMutations};
use towpath_engine::snapshot::route::{HeaderAction, HeaderOp, HeaderOps};
use towpath_proto::head::HeaderName;

use super::Converter;
use crate::message::{At, Message, Value};

impl Converter<'_> {
    /// `request_headers_to_add` and `request_headers_to_remove`.
    pub(super) fn request_ops(&mut self, message: &Message) -> HeaderOps {
        self.header_ops(message, "request_headers_to_add", "request_headers_to_remove")
    }

    /// `response_headers_to_add` and `response_headers_to_remove`.
    pub(super) fn response_ops(&mut self, message: &Message) -> HeaderOps {
        self.header_ops(message, "response_headers_to_add", "response_headers_to_remove")
    }

    fn header_ops(&mut self, message: &Message, add: &str, remove: &str) -> HeaderOps {
        let removed: Vec<_> = message.texts(remove).collect();
        let remove = removed.into_iter().filter_map(|(name, at)| self.removed(name, at)).collect();
        HeaderOps { remove, add: self.added(message, add) }
    }

    /// A list of `HeaderValueOption`s.
    pub(super) fn added(&mut self, message: &Message, name: &str) -> Vec<HeaderOp> {
        let options: Vec<_> = message.messages(name).collect();
        options.into_iter().filter_map(|option| self.header_op(option)).collect()
    }

    /// A list of `HeaderMutation`s.
    pub(super) fn mutations(&mut self, message: &Message, name: &str) -> HeaderMutations {
        let mutations: Vec<_> = message.messages(name).collect();
        HeaderMutations(mutations.into_iter().filter_map(|it| self.mutation(it)).collect())
    }

    fn mutation(&mut self, mutation: &Message) -> Option<HeaderMutation> {
        let field = mutation.oneof("action")?;
        match (field.descriptor.name(), &field.value) {
            ("remove", Value::String(name)) => {
                self.removed(name, &field.at).map(HeaderMutation::Remove)
            }
            ("append", Value::Message(option)) => self.header_op(option).map(HeaderMutation::Add),
            ("remove_on_match", Value::Message(matching)) => {
                let matcher = self.string_matcher(matching.message("key_matcher")?)?;
                Some(HeaderMutation::RemoveOnMatch(matcher))
            }
            _ => None,
        }
    }

    fn header_op(&mut self, option: &Message) -> Option<HeaderOp> {
        let (name, value) = self.header_value(option.message("header")?)?;
        let action = self.header_action(option);
        Some(HeaderOp { name, value, action, keep_empty: option.flag("keep_empty_value") })
    }

    /// A `HeaderValue`.
    pub(super) fn header_value(&mut self, header: &Message) -> Option<(HeaderName, Format)> {
        let name = self.header_name(header.text("key"), header.at("key"))?;
        let value = match header.get("raw_value").map(|field| &field.value) {
            Some(Value::Bytes(bytes)) if !bytes.is_empty() => Format::literal(bytes),
            _ => self.header_format(header.text("value"), header.at("value"))?,
        };
        Some((name, value))
    }

    fn header_action(&mut self, option: &Message) -> HeaderAction {
        let action = match option.choice("append_action").as_str() {
            "ADD_IF_ABSENT" => HeaderAction::AddIfAbsent,
            "OVERWRITE_IF_EXISTS_OR_ADD" => HeaderAction::Overwrite,
            "OVERWRITE_IF_EXISTS" => HeaderAction::OverwriteIfExists,
            _ => HeaderAction::Append,
        };
        let Some(append) = option.wrapped_flag("append") else { return action };
        if action != HeaderAction::Append {
            self.report
                .problem(option.at("append"), "`append` and `append_action` cannot both be set");
        }
        if append { HeaderAction::Append } else { HeaderAction::Overwrite }
    }

    fn removed(&mut self, name: &str, at: &At) -> Option<HeaderName> {
        if name.starts_with(':') || name.eq_ignore_ascii_case("host") {
            self.report.problem(at, ":-prefixed or host headers may not be removed");
            return None;
        }
        self.header_name(name, at)
    }

    /// The name of a header that may be changed.
    pub(super) fn header_name(&mut self, name: &str, at: &At) -> Option<HeaderName> {
        if name.starts_with(':') || name.eq_ignore_ascii_case("host") {
            self.report.problem(at, ":-prefixed or host headers may not be modified");
            return None;
        }
        HeaderName::new(name)
            .map_err(|_| self.report.problem(at, format!("`{name}` is not a header name")))
            .ok()
    }
}
