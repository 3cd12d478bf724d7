//! The PROXY protocol: what is read from clients.

use std::sync::Arc;

use towpath_engine::proxied::{NAMESPACE, TlvRule};
use towpath_engine::snapshot::proxy_protocol::ProxyProtocol;

use crate::message::{Message, Value};
use crate::report::Report;

pub(super) const PROXY_PROTOCOL: &str =
    "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";

/// The listener filter.
pub(super) fn listener_filter(config: &Message, report: &mut Report) -> ProxyProtocol {
    let versions = config.items("disallowed_versions");
    let has =
        |number| versions.iter().any(|it| matches!(it.value, Value::Enum(it) if it == number));
    // The numbers of V1 and V2.
    let disallowed = [has(0), has(1)];
    if disallowed == [true; 2] {
        report.problem(config.at("disallowed_versions"), "all versions are disallowed");
    }
    ProxyProtocol {
        is_optional: config.flag("allow_requests_without_proxy_protocol"),
        disallowed,
        stat_prefix: Arc::from(config.text("stat_prefix")),
        rules: config.messages("rules").map(|rule| Arc::new(tlv_rule(rule))).collect(),
        in_state: config.choice("tlv_location") == "FILTER_STATE",
    }
}

/// A `ProxyProtocol.Rule`; without what it says it keeps its TLV by the empty name, as in Envoy.
fn tlv_rule(rule: &Message) -> TlvRule {
    let pair = rule.message("on_tlv_present");
    let text = |name| pair.map_or("", |pair| pair.text(name));
    let namespace = match text("metadata_namespace") {
        "" => NAMESPACE,
        namespace => namespace,
    };
    TlvRule {
        kind: tlv_type(rule, "tlv_type"),
        namespace: namespace.into(),
        key: text("key").into(),
        base64: pair.is_some_and(|pair| pair.choice("value_string_encoding") == "BASE64"),
    }
}

/// The rules want it to be below 256.
fn tlv_type(message: &Message, name: &str) -> u8 {
    message.number(name).and_then(|number| u8::try_from(number).ok()).unwrap_or_default()
}
