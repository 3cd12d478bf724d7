//! What spans say of requests and of their attempts, in Envoy's names.

use std::borrow::Cow;
use std::ops::Range;

use towpath_proto::{Head, Name, Version};

use crate::filter::{Answer, Failed};
use crate::format::Facts;
use crate::grpc::{is_grpc, status_of};
use crate::number::{AddressText, Decimal};
use crate::record::Record;
use crate::snapshot::Node;
use crate::snapshot::tracing::{CustomTag, TagSource};
use crate::stream_info::{JsonStyle, Value};

/// Names and values; a name that is set again has its last value.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    entries: Vec<(Cow<'static, str>, Range<usize>)>,
    /// The values, one behind the other.
    text: Vec<u8>,
}

impl Tags {
    /// Room for what most spans say.
    fn with_room() -> Self {
        Self { entries: Vec::with_capacity(20), text: Vec::with_capacity(320) }
    }

    /// Adds one whose name is not there yet.
    pub(crate) fn add(&mut self, name: &'static str, value: impl AsRef<[u8]>) {
        self.add_parts(name, &[value.as_ref()]);
    }

    fn add_parts(&mut self, name: &'static str, parts: &[&[u8]]) {
        let value = self.write(parts);
        self.entries.push((Cow::Borrowed(name), value));
    }

    fn add_number(&mut self, name: &'static str, value: u64) {
        self.add(name, Decimal::new().write(value));
    }

    fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.into(), self.write(&[value.as_ref()]));
        match self.entries.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) => *before = value,
            None => self.entries.push((name, value)),
        }
    }

    fn write(&mut self, parts: &[&[u8]]) -> Range<usize> {
        let start = self.text.len();
        parts.iter().for_each(|part| self.text.extend_from_slice(part));
        start..self.text.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|(name, value)| (&**name, &self.text[value.clone()]))
    }

    pub(crate) fn weight(&self) -> usize {
        let names = self.entries.iter().map(|(name, _)| name.len() + 48).sum::<usize>();
        names + self.text.len()
    }
}

/// What the span of a request is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTags<'a> {
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) node: &'a Node,
    pub(crate) max_path: usize,
    /// Those of the connection manager, then those of the route.
    pub(crate) custom: [&'a [CustomTag]; 2],
}

/// What the span of a request says.
pub(crate) fn request_tags(of: &RequestTags<'_>) -> Tags {
    let RequestTags { facts, node, max_path, custom } = *of;
    let record = facts.record;
    let mut tags = Tags::with_room();
    tags.add("node_id", node.id.as_bytes());
    tags.add("zone", node.zone.as_bytes());
    if let Some(head) = facts.request {
        let or_dash = |name| head.get(name).unwrap_or(b"-");
        if let Some(id) = head.get(Name::XRequestId) {
            tags.add("guid:x-request-id", id);
        }
        tags.add_parts("http.url", &url(head, max_path));
        tags.add("http.method", head.method_bytes());
        tags.add("downstream_cluster", or_dash(Name::XEnvoyDownstreamServiceCluster));
        tags.add("user_agent", or_dash(Name::UserAgent));
        tags.add("http.protocol", record.protocol.map_or("-", Version::as_str));
        if let Some(address) = &record.downstream_direct_remote {
            match address.ip() {
                Some(address) => tags.add("peer.address", AddressText::of(address.ip()).as_bytes()),
                None => tags.add("peer.address", address.to_string()),
            }
        }
        if let Some(id) = head.get(Name::XClientTraceId) {
            tags.add("guid:x-client-trace-id", id);
        }
        if is_grpc(head) {
            tags.add("grpc.path", head.path());
            tags.add("grpc.authority", head.authority());
            tags.add("grpc.content_type", head.get(Name::ContentType).unwrap_or_default());
            if let Some(timeout) = head.get(Name::GrpcTimeout) {
                tags.add("grpc.timeout", timeout);
            }
        }
    }
    tags.add_number("request_size", record.bytes_received);
    tags.add_number("response_size", record.bytes_sent);
    add_common(&mut tags, facts, record.status, &flags(record));
    add_custom(&mut tags, custom, facts);
    add_grpc(&mut tags, facts.response, facts.trailers);
    tags
}

/// How an attempt went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome<'a> {
    /// Retries before it.
    pub(crate) retries: u32,
    /// It had a connection.
    pub(crate) connected: bool,
    /// What the server answered; 0 where it did not.
    pub(crate) status: u16,
    /// It was given up here.
    pub(crate) canceled: bool,
    /// Why it was reset, and the flag for that.
    pub(crate) failed: Option<(&'a str, &'a str)>,
}

/// What the span of an attempt says.
pub(crate) fn try_tags(of: &RequestTags<'_>, outcome: Outcome<'_>) -> Tags {
    let RequestTags { facts, custom, .. } = *of;
    let Outcome { retries, connected, status, canceled, failed } = outcome;
    let record = facts.record;
    let mut tags = Tags::with_room();
    if retries > 0 {
        tags.add_number("retry.count", retries.into());
    }
    if canceled {
        tags.add("canceled", b"true");
    }
    if let Some((reason, _)) = failed {
        tags.set("error", b"true");
        tags.add("error.reason", reason);
    }
    let protocol = record.upstream_protocol.filter(|_| connected);
    tags.add("http.protocol", protocol.map_or("-", Version::as_str));
    if let Some(address) = &record.upstream_host {
        let address = address.to_string();
        tags.add("upstream_address", &address);
        tags.add("peer.address", address);
    }
    add_common(&mut tags, facts, status, failed.map_or("-", |(_, flag)| flag));
    add_custom(&mut tags, custom, facts);
    tags
}

fn add_common(tags: &mut Tags, facts: &Facts<'_>, status: u16, flags: &str) {
    tags.add("component", &b"proxy"[..]);
    if !facts.cluster.is_empty() {
        tags.add("upstream_cluster", facts.cluster);
        tags.add("upstream_cluster.name", facts.cluster_stat_name);
    }
    tags.add_number("http.status_code", status.into());
    tags.add("response_flags", flags);
    if status == 0 || status >= 500 {
        tags.set("error", b"true");
    }
}

/// How a call by gRPC of a filter has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// With this status.
    Status(u32),
    /// Well, but without the message that was asked for.
    Nothing,
}

/// What the span of a filter's request says; without an answer it was given up here.
pub(crate) fn http_tags(facts: &Facts<'_>, status: u16, answer: Option<&Answer>) -> Tags {
    let mut tags = Tags::with_room();
    match answer {
        None => tags.add("canceled", b"true"),
        Some(Answer::Failed(Failed::Reset | Failed::TooLong)) => tags.add("error.reason", b"Reset"),
        Some(Answer::Failed(_) | Answer::Response { .. }) => {}
    }
    // As Envoy has it, whatever is spoken.
    tags.add("http.protocol", b"HTTP/1.1");
    if let Some(address) = &facts.record.upstream_host {
        let address = address.to_string();
        tags.add("upstream_address", &address);
        tags.add("peer.address", address);
    }
    add_common(&mut tags, facts, status, &flags(facts.record));
    tags
}

/// What the span of a filter's call says; without an end it was given up here.
pub(crate) fn grpc_tags(facts: &Facts<'_>, authority: &[u8], end: Option<CallEnd>) -> Tags {
    let mut tags = Tags::default();
    tags.add("upstream_cluster", facts.cluster);
    tags.add("upstream_address", authority);
    tags.add("component", b"proxy");
    match end {
        None => tags.add("status", b"canceled"),
        Some(CallEnd::Status(status)) => tags.add_number("grpc.status_code", status.into()),
        Some(CallEnd::Nothing) => tags.add_number("grpc.status_code", 0),
    }
    if end.is_some_and(|end| end != CallEnd::Status(0)) {
        tags.add("error", b"true");
    }
    tags
}

/// What the response says of a call by gRPC.
fn add_grpc(tags: &mut Tags, response: Option<&Head>, trailers: Option<&Head>) {
    for head in [response, trailers].into_iter().flatten() {
        if let Some(status) = head.get(Name::GrpcStatus) {
            tags.set("grpc.status_code", status);
        }
        if let Some(message) = head.get(Name::GrpcMessage) {
            tags.set("grpc.message", message);
        }
        if status_of(head).is_some_and(|status| SERVERS_FAULT.contains(&status)) {
            tags.set("error", b"true");
        }
    }
}

/// Unknown, DeadlineExceeded, Unimplemented, Internal, Unavailable, DataLoss.
pub(super) const SERVERS_FAULT: [u8; 6] = [2, 4, 12, 13, 14, 15];

fn add_custom(tags: &mut Tags, [of_manager, of_route]: [&[CustomTag]; 2], facts: &Facts<'_>) {
    let remains = |tag: &&CustomTag| !of_route.iter().any(|other| other.name == tag.name);
    for CustomTag { name, source } in of_manager.iter().filter(remains).chain(of_route) {
        let value = value_of_tag(source, facts);
        if !value.is_empty() {
            tags.set(name.to_string(), value);
        }
    }
}

/// The value of a tag; empty where there is none.
pub(crate) fn value_of_tag(source: &TagSource, facts: &Facts<'_>) -> Vec<u8> {
    match source {
        TagSource::Literal(value) => value.as_bytes().to_vec(),
        TagSource::Header { name, default } => {
            let said = facts.request.and_then(|head| head.get_named(name));
            said.unwrap_or(default.as_bytes()).to_vec()
        }
        TagSource::Metadata { whose, namespace, path, default } => {
            let said = whose.read(facts, namespace, path, text_of);
            said.unwrap_or_else(|| default.as_bytes().to_vec())
        }
        TagSource::Format(format) => {
            let mut value = Vec::new();
            format.write(&mut value, facts);
            value
        }
    }
}

/// A value of metadata as a tag has it; none where it is nothing.
fn text_of(value: Option<&Value>) -> Option<Vec<u8>> {
    match value? {
        Value::Null => None,
        Value::String(text) => Some(text.as_bytes().to_vec()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Struct(_)) => {
            let mut text = Vec::new();
            other.write_json(&mut text, JsonStyle::Protobuf);
            Some(text)
        }
    }
}

/// The request's URL as it came, its path not longer than so.
fn url(head: &Head, max_path: usize) -> [&[u8]; 4] {
    let path = head.get(Name::XEnvoyOriginalPath).unwrap_or_else(|| head.path());
    let path = path.get(..max_path).unwrap_or(path);
    [head.scheme(), b"://", head.authority(), path]
}

fn flags(record: &Record) -> Cow<'static, str> {
    let names: Vec<&str> = record.flags.short_names().collect();
    if names.is_empty() { "-".into() } else { names.join(",").into() }
}
