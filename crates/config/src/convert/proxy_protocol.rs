//! The PROXY protocol: what is read from clients, and what hosts of clusters are told of them.

use std::sync::Arc;

use towpath_engine::added_tlvs::{AddedTlvs, OwnTlvs, TlvPolicy};
use towpath_engine::proxied::{NAMESPACE, Passes, Tlv, TlvRule, TlvRules};
use towpath_engine::snapshot::proxy_header::{ProxyHeader, ProxyHeaders};
use towpath_engine::snapshot::proxy_protocol::ProxyProtocol;

use super::Converter;
use super::internal_upstream::of_sockets;
use super::tls::INTERNAL_UPSTREAM;
use crate::error::Rank;
use crate::message::{Message, Value};
use crate::report::Report;

pub(super) const PROXY_PROTOCOL: &str =
    "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";
pub(super) const UPSTREAM_PROXY: &str =
    "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport";

/// The namespace of what a host's own metadata add to headers.
const OWN_TLVS: &str = "envoy.transport_sockets.proxy_protocol";
const PER_HOST: &str = "envoy.config.core.v3.PerHostConfig";

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
        tlvs: TlvRules {
            kept: config.messages("rules").map(|rule| Arc::new(tlv_rule(rule))).collect(),
            in_state: config.choice("tlv_location") == "FILTER_STATE",
            passes: passes(config),
        },
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

/// `pass_through_tlvs` of either side.
fn passes(holder: &Message) -> Passes {
    match holder.message("pass_through_tlvs") {
        None => Passes::Nothing,
        Some(passed) if passed.choice("match_type") == "INCLUDE" => {
            let kinds = passed.numbers("tlv_type");
            Passes::These(kinds.filter_map(|(kind, _)| u8::try_from(kind).ok()).collect())
        }
        Some(_) => Passes::All,
    }
}

impl Converter<'_> {
    /// What hosts of a cluster are told of clients, by its transport sockets.
    pub(super) fn proxy_headers(&mut self, cluster: &Message) -> Option<Box<ProxyHeaders>> {
        of_sockets(cluster, |socket| self.proxy_header(socket))
    }

    /// That of a transport socket, wherever it stands among those that are within each other.
    fn proxy_header(&mut self, socket: Option<&Message>) -> Option<Arc<ProxyHeader>> {
        let (any, at) = socket?.any("typed_config")?;
        let config = any.message.as_ref()?;
        if any.name == INTERNAL_UPSTREAM {
            return self.proxy_header(config.message("transport_socket"));
        }
        if any.name != UPSTREAM_PROXY {
            return None;
        }
        if self.proxy_header(config.message("transport_socket")).is_some() {
            self.report.unsupported(at, "only one header is sent");
        }
        let header = config.message("config");
        Some(Arc::new(ProxyHeader {
            is_binary: header.is_some_and(|header| header.choice("version") == "V2"),
            passes: header.map(passes).unwrap_or_default(),
            added: header.map(|header| self.tlvs(header, "added_tlvs")).unwrap_or_default(),
        }))
    }

    /// A header without TLVs: Envoy adds none to those `of` checks and CONNECT.
    pub(super) fn bare_header(&mut self, header: &Message, of: &str) -> ProxyHeader {
        for field in ["pass_through_tlvs", "added_tlvs"] {
            if header.has(field) {
                let text = format!("the header of {of} has no TLVs, in Envoy too");
                self.report.finding(header.at(field), Rank::Harmless, text);
            }
        }
        ProxyHeader { is_binary: header.choice("version") == "V2", ..ProxyHeader::default() }
    }

    /// What a host is told beside all others. Typed metadata are ignored otherwise, so they are looked at and not read.
    pub(super) fn host_tlvs(&mut self, host: &Message) -> Option<Arc<[Tlv]>> {
        let metadata = host.message("metadata")?;
        let typed =
            metadata.fields.iter().find(|field| field.descriptor.name() == "typed_filter_metadata");
        let Value::Map(entries) = &typed?.value else { return None };
        let (_, item) = entries.iter().find(|(name, _)| name == OWN_TLVS)?;
        let Value::Any(any) = &item.value else { return None };
        let config = any.message.as_ref().filter(|_| any.name == PER_HOST);
        let Some(config) = config else {
            let text = "no `PerHostConfig`: it is left out, in Envoy too";
            self.report.finding(&item.at, Rank::Harmless, text);
            return None;
        };
        // The rules do not look into typed metadata.
        for entry in config.messages("added_tlvs") {
            if entry.has("format_string") {
                let text = "TLVs of hosts have no formats: it is empty, in Envoy too";
                self.report.finding(entry.at("format_string"), Rank::Harmless, text);
            }
            if entry.number("type").is_some_and(|kind| kind > 255) {
                self.report.problem(entry.at("type"), "is more than 255");
            }
        }
        let tlvs: Vec<Tlv> = config.messages("added_tlvs").map(|it| self.tlv(it)).collect();
        (!tlvs.is_empty()).then(|| tlvs.into())
    }

    /// `proxy_protocol_tlvs` of the TCP proxy.
    pub(super) fn own_tlvs(&mut self, proxy: &Message) -> Option<Box<OwnTlvs>> {
        let added = self.tlvs(proxy, "proxy_protocol_tlvs");
        let policy = match &*proxy.choice("proxy_protocol_tlv_merge_policy") {
            "OVERWRITE_BY_TYPE_IF_EXISTS_OR_ADD" => TlvPolicy::Overwrite,
            "APPEND_IF_EXISTS_OR_ADD" => TlvPolicy::Append,
            _ => TlvPolicy::Absent,
        };
        (added != AddedTlvs::default()).then(|| Box::new(OwnTlvs { added, policy }))
    }

    /// A list of `TlvEntry`s.
    fn tlvs(&mut self, holder: &Message, name: &str) -> AddedTlvs {
        let mut added = AddedTlvs::default();
        for entry in holder.messages(name) {
            let Some(format) = entry.message("format_string") else {
                if !entry.has("value") {
                    self.report.problem(&entry.at, "a TLV needs a `value` or a `format_string`");
                }
                added.list.push(self.tlv(entry));
                continue;
            };
            if entry.has("value") {
                let text = "a TLV has a `value` or a `format_string`";
                self.report.problem(entry.at("format_string"), text);
            }
            added.made.extend(self.substitution(format).map(|it| (tlv_type(entry, "type"), it)));
        }
        added
    }

    /// A `TlvEntry` with the value that is written in it.
    fn tlv(&mut self, entry: &Message) -> Tlv {
        let value = match entry.get("value").map(|field| &field.value) {
            Some(Value::Bytes(bytes)) => bytes.as_slice(),
            _ => &[],
        };
        if value.len() > usize::from(u16::MAX) {
            self.report.unsupported(entry.at("value"), "a TLV has at most 65,535 bytes");
        }
        Tlv { kind: tlv_type(entry, "type"), value: value.into() }
    }
}
