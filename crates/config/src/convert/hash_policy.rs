//! `hash_policy` of routes and clusters: what a request's hash is made of.

use std::sync::Arc;

use towpath_engine::field::Field;
use towpath_engine::snapshot::route::{HashPolicy, HashSource};

use super::Converter;
use crate::message::{Message, Value};

impl Converter<'_> {
    pub(super) fn hash_policies(&mut self, holder: &Message) -> Vec<HashPolicy> {
        let policies: Vec<_> = holder.messages("hash_policy").collect();
        let made = policies.into_iter().filter_map(|policy| {
            let is_terminal = policy.flag("terminal");
            self.hash_source(policy)?.map(|source| HashPolicy { source, is_terminal })
        });
        made.collect()
    }

    /// `Some(None)` for one that finds nothing; `None` where something is reported.
    fn hash_source(&mut self, policy: &Message) -> Option<Option<HashSource>> {
        let field = policy.oneof("policy_specifier")?;
        let Value::Message(inner) = &field.value else { return None };
        let name = inner.text(match field.descriptor.name() {
            "header" => "header_name",
            "connection_properties" => {
                return Some(inner.flag("source_ip").then_some(HashSource::SourceAddress));
            }
            "filter_state" => "key",
            "cookie" | "query_parameter" => "name",
            _ => return None,
        });
        Some(Some(match field.descriptor.name() {
            "header" => {
                let Some(field) = Field::parse(name) else {
                    let text = format!("`{name}` is no header's name");
                    self.report.problem(inner.at("header_name"), text);
                    return None;
                };
                let rewrite = match inner.message("regex_rewrite") {
                    Some(rewrite) => {
                        let (pattern, substitution) = self.rewrite(rewrite)?;
                        Some((pattern, Arc::from(substitution)))
                    }
                    None => None,
                };
                HashSource::Header(field, rewrite)
            }
            "cookie" => {
                HashSource::Cookie { name: name.as_bytes().into(), given: given_cookie(inner) }
            }
            "filter_state" => HashSource::FilterState(name.into()),
            _ => HashSource::QueryParameter(name.as_bytes().into()),
        }))
    }
}

/// What follows the value of a cookie that clients are given, if they are given one.
fn given_cookie(cookie: &Message) -> Option<Box<[u8]>> {
    let ttl = cookie.duration("ttl")?.as_secs();
    let mut text = String::new();
    if ttl > 0 {
        text += &format!("; Max-Age={ttl}");
    }
    let path = cookie.text("path");
    if !path.is_empty() {
        text += &format!("; Path={path}");
    }
    for attribute in cookie.messages("attributes") {
        text += &match (attribute.text("name"), attribute.text("value")) {
            (name, "") => format!("; {name}"),
            (name, value) => format!("; {name}={value}"),
        };
    }
    text += "; HttpOnly";
    Some(text.into_bytes().into())
}
