//! Entries as Envoy's access-log service has them (`data.accesslog.v3.HTTPAccessLogEntry` and `TCPAccessLogEntry`), and
//! the messages that they leave in (`service.accesslog.v3.StreamAccessLogsMessage`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use towpath_proto::tls::Version as TlsVersion;
use towpath_proto::{Address, Head, Instant, Method, Name, Version};

use crate::field::Field;
use crate::format::Facts;
use crate::proxied::Proxied;
use crate::record::{DownstreamTls, Flags, Record, ShownCertificate};
use crate::snapshot::log::{Entry, HttpEntry};
use crate::stream_info::{StreamInfo, Struct, Value};
use crate::tracer::tags::value_of_tag;
use crate::wire::Message;

/// Appends a stream's entry, as a field of a list. Answers how long it is.
pub(super) fn write_entry(entries: &mut Vec<u8>, entry: &Entry, facts: &Facts<'_>) -> usize {
    let mut message = Message::default();
    message.message(1, |common| write_common(common, entry, facts));
    match &entry.http {
        Some(http) => write_http(&mut message, http, facts),
        None => {
            let record = facts.record;
            message.message(2, |connection| {
                connection.uint(1, record.bytes_received).uint(2, record.bytes_sent);
            });
        }
    }
    let mut all = Message(std::mem::take(entries));
    all.bytes(1, &message.0);
    *entries = all.0;
    message.0.len()
}

/// The message around entries.
pub(super) fn message(is_http: bool, entries: &[u8]) -> Vec<u8> {
    let mut message = Message::default();
    message.bytes(if is_http { 2 } else { 3 }, entries);
    message.0
}

fn write_common(common: &mut Message, entry: &Entry, facts: &Facts<'_>) {
    let record = facts.record;
    let since =
        |at: Option<Instant>| at.map(|at| at.as_nanos().saturating_sub(record.start.as_nanos()));
    address(common, 2, record.downstream_remote.as_ref());
    address(common, 3, record.downstream_local.as_ref());
    let has_hello = record.server_name.is_some() || record.fingerprints.is_some();
    if has_hello || record.downstream_tls.is_some() {
        common.message(4, |tls| write_tls(tls, record));
    }
    let start = facts.epoch_unix_ns.saturating_add(record.start.as_nanos());
    time(common, 5, Some(start));
    // Of TCP Envoy tells none of them.
    if record.protocol.is_some() {
        time(common, 6, since(record.request_end));
        time(common, 7, since(record.upstream_first_sent));
        time(common, 8, since(record.upstream_last_sent));
        time(common, 9, since(record.upstream_first_received));
        time(common, 10, since(record.upstream_last_received));
        time(common, 11, since(record.response_start));
        time(common, 12, since(record.response_end));
    }
    if record.upstream_host.is_some() {
        address(common, 13, record.upstream_host.as_ref());
        address(common, 14, record.upstream_local.as_ref());
        common.some(15, facts.cluster.as_bytes());
    }
    if !record.flags.is_empty() {
        common.message(16, |flags| write_flags(flags, record.flags));
    }
    if let Some(info) = facts.info {
        common.some(17, &metadata(info, record));
    }
    common.some(18, transport_failure(record.transport_failure).as_bytes());
    common.some(19, facts.route.as_bytes());
    address(common, 20, record.downstream_direct_remote.as_ref());
    for tag in &entry.tags {
        let value = value_of_tag(&tag.source, facts);
        if !value.is_empty() {
            common.message(22, |pair| {
                pair.text(1, tag.name.as_bytes()).bytes(2, &clean(&value));
            });
        }
    }
    time(common, 23, since(record.end));
    common.uint(24, u64::from(record.attempts));
    common.some(25, record.termination.as_bytes());
    let id = facts.request.and_then(|head| head.get(Name::XRequestId));
    common.some(26, &clean(id.unwrap_or_default()));
    common.uint(27, u64::from(record.end.is_none()));
    common.uint(29, record.wire_sent).uint(30, record.wire_received);
    common.uint(31, record.upstream_wire_sent).uint(32, record.upstream_wire_received);
    common.uint(33, facts.log_type_number().into());
}

fn write_http(message: &mut Message, http: &HttpEntry, facts: &Facts<'_>) {
    let record = facts.record;
    message.uint(
        2,
        match record.protocol {
            None => 0,
            Some(Version::Http10) => 1,
            Some(Version::Http11) => 2,
            Some(Version::Http2) => 3,
            Some(Version::Http3) => 4,
            Some(_) => 0,
        },
    );
    message.message(3, |request| {
        if let Some(head) = facts.request {
            let named = |name| clean(head.get(name).unwrap_or_default());
            request.uint(1, method(head));
            request.some(2, &clean(head.scheme())).some(3, &clean(head.authority()));
            request.some(5, &clean(head.path()));
            request.some(6, &named(Name::UserAgent)).some(7, &named(Name::Referer));
            request.some(8, &named(Name::XForwardedFor)).some(9, &named(Name::XRequestId));
            request.some(10, &named(Name::XEnvoyOriginalPath));
            request.uint(11, head.byte_size() as u64);
        }
        request.uint(12, record.bytes_received);
        headers(request, 13, &http.request_headers, facts.request);
    });
    message.message(4, |response| {
        if record.status != 0 {
            response.message(1, |value| {
                value.uint(1, u64::from(record.status));
            });
        }
        response.uint(2, facts.response.map_or(0, |head| head.byte_size() as u64));
        response.uint(3, record.bytes_sent);
        headers(response, 4, &http.response_headers, facts.response);
        headers(response, 5, &http.response_trailers, facts.trailers);
        response.some(6, record.details.as_bytes());
    });
}

/// A map of the fields that are there; several of a name are one value.
fn headers(message: &mut Message, field: u8, wanted: &[(Box<str>, Field)], head: Option<&Head>) {
    let Some(head) = head else { return };
    for (name, header) in wanted {
        let mut values: Option<Vec<u8>> = None;
        header.each(head, |value| match &mut values {
            Some(all) => all.extend([b",", value].concat()),
            None => values = Some(value.to_vec()),
        });
        if let Some(values) = values {
            message.message(field, |pair| {
                pair.text(1, name.as_bytes()).bytes(2, &clean(&values));
            });
        }
    }
}

fn write_tls(message: &mut Message, record: &Record) {
    if let Some(tls) = record.downstream_tls.as_deref() {
        write_connection(message, tls);
    }
    let name = record.server_name.as_deref().unwrap_or_default();
    message.some(3, &clean(name.as_bytes()));
    if let Some(tls) = record.downstream_tls.as_deref() {
        message.message(4, |it| certificate(it, tls.own.as_ref(), false));
        message.message(5, |it| certificate(it, tls.peer.as_ref(), true));
    }
    let ja3 = record.fingerprints.as_deref().and_then(|it| it.ja3.as_deref());
    message.some(7, ja3.unwrap_or_default().as_bytes());
}

fn write_connection(message: &mut Message, tls: &DownstreamTls) {
    message.uint(
        1,
        match tls.version {
            None => 0,
            Some(TlsVersion::Tls12) => 3,
            Some(TlsVersion::Tls13) => 4,
        },
    );
    if let Some(cipher) = tls.cipher {
        message.message(2, |value| {
            value.uint(1, u64::from(cipher.number()));
        });
    }
}

fn certificate(message: &mut Message, shown: Option<&ShownCertificate>, is_peer: bool) {
    let Some(shown) = shown else { return };
    for uri in &shown.uris {
        message.message(1, |name| {
            name.bytes(1, &clean(uri));
        });
    }
    message.some(2, shown.subject.as_bytes());
    if is_peer {
        message.some(3, shown.issuer.as_bytes());
    }
}

/// `ResponseFlags`: one field for each.
fn write_flags(message: &mut Message, flags: Flags) {
    for (field, flag) in (1..).zip(FLAGS) {
        if !flags.has(*flag) {
            continue;
        }
        if *flag == Flags::UNAUTHORIZED_EXTERNAL_SERVICE {
            message.message(field, |details| {
                details.uint(1, EXTERNAL_SERVICE);
            });
        } else {
            message.number(field, 1);
        }
    }
}

/// In the order of their fields.
const FLAGS: &[Flags] = &[
    Flags::FAILED_LOCAL_HEALTH_CHECK,
    Flags::NO_HEALTHY_UPSTREAM,
    Flags::UPSTREAM_REQUEST_TIMEOUT,
    Flags::LOCAL_RESET,
    Flags::UPSTREAM_REMOTE_RESET,
    Flags::UPSTREAM_CONNECTION_FAILURE,
    Flags::UPSTREAM_CONNECTION_TERMINATION,
    Flags::UPSTREAM_OVERFLOW,
    Flags::NO_ROUTE_FOUND,
    Flags::DELAY_INJECTED,
    Flags::FAULT_INJECTED,
    Flags::RATE_LIMITED,
    Flags::UNAUTHORIZED_EXTERNAL_SERVICE,
    Flags::RATELIMIT_SERVICE_ERROR,
    Flags::DOWNSTREAM_CONNECTION_TERMINATION,
    Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED,
    Flags::STREAM_IDLE_TIMEOUT,
    Flags::INVALID_ENVOY_REQUEST_HEADERS,
    Flags::DOWNSTREAM_PROTOCOL_ERROR,
    Flags::UPSTREAM_MAX_STREAM_DURATION,
    Flags::RESPONSE_FROM_CACHE,
    Flags::NO_FILTER_CONFIG_FOUND,
    Flags::DURATION_TIMEOUT,
    Flags::UPSTREAM_PROTOCOL_ERROR,
    Flags::NO_CLUSTER_FOUND,
    Flags::OVERLOAD_MANAGER,
    Flags::DNS_RESOLUTION_FAILED,
    Flags::DOWNSTREAM_REMOTE_RESET,
];

/// `Unauthorized.Reason`.
const EXTERNAL_SERVICE: u64 = 1;

/// The type of what Envoy keeps of the PROXY protocol.
const TLVS_METADATA: &[u8] = b"type.googleapis.com/envoy.data.core.v3.TlvsMetadata";

/// `RequestMethod`.
fn method(head: &Head) -> u64 {
    match head.method() {
        Method::Get => 1,
        Method::Head => 2,
        Method::Post => 3,
        Method::Put => 4,
        Method::Delete => 5,
        Method::Connect => 6,
        Method::Options => 7,
        Method::Trace => 8,
        Method::Patch => 9,
        _ => 0,
    }
}

/// Why a connect failed, in words; log lines have them without blanks.
fn transport_failure(text: &str) -> Cow<'_, str> {
    match text.split_once("_connect_error:_") {
        Some(_) => Cow::Owned(text.replace('_', " ")),
        None => Cow::Borrowed(text),
    }
}

/// A `config.core.v3.Metadata`; empty where there is none.
fn metadata(info: &StreamInfo, record: &Record) -> Vec<u8> {
    let mut message = Message::default();
    info.each_metadata(|namespace, entries| {
        message.message(1, |pair| {
            pair.text(1, namespace.as_bytes()).message(2, |fields| write_struct(fields, entries));
        });
    });
    // Of a connection, not of its requests.
    if let Some(proxied) = record.proxied.as_ref().filter(|_| record.protocol.is_none()) {
        write_typed(&mut message, proxied);
    }
    message.0
}

/// `typed_filter_metadata`: a `data.core.v3.TlvsMetadata` for each namespace.
fn write_typed(message: &mut Message, proxied: &Proxied) {
    let mut all: BTreeMap<&str, BTreeMap<&str, &[u8]>> = BTreeMap::new();
    for (namespace, key, value) in proxied.typed() {
        all.entry(namespace).or_default().insert(key, value);
    }
    for (namespace, entries) in all {
        let mut tlvs = Message::default();
        for (key, value) in entries {
            tlvs.message(1, |pair| {
                pair.text(1, key.as_bytes()).bytes(2, value);
            });
        }
        message.message(2, |pair| {
            pair.text(1, namespace.as_bytes()).message(2, |any| {
                any.text(1, TLVS_METADATA).bytes(2, &tlvs.0);
            });
        });
    }
}

/// A `google.protobuf.Struct`.
fn write_struct(message: &mut Message, entries: &Struct) {
    for (key, value) in entries {
        message.message(1, |pair| {
            pair.text(1, key.as_bytes()).message(2, |field| write_value(field, value));
        });
    }
}

/// A `google.protobuf.Value`; how deep it nests is limited where it is made.
fn write_value(message: &mut Message, value: &Value) {
    match value {
        Value::Null => message.number(1, 0),
        Value::Number(number) => message.double(2, *number),
        Value::String(text) => message.bytes(3, text.as_bytes()),
        Value::Bool(flag) => message.number(4, u64::from(*flag)),
        Value::Struct(entries) => message.message(5, |fields| write_struct(fields, entries)),
        Value::List(items) => message.message(6, |list| {
            for item in items {
                list.message(1, |field| write_value(field, item));
            }
        }),
    };
}

/// A `Duration` or a `Timestamp`.
fn time(message: &mut Message, field: u8, nanoseconds: Option<u64>) {
    let Some(ns) = nanoseconds else { return };
    message.message(field, |time| {
        time.uint(1, ns / NANOS_PER_SECOND).uint(2, ns % NANOS_PER_SECOND);
    });
}

/// A `config.core.v3.Address`.
fn address(message: &mut Message, field: u8, address: Option<&Address>) {
    let Some(address) = address else { return };
    message.message(field, |message| match address {
        Address::Ip(ip) => {
            message.message(1, |socket| {
                socket.text(2, ip.ip().to_string().as_bytes()).number(3, u64::from(ip.port()));
            });
        }
        Address::Unix(path) => {
            message.message(2, |pipe| {
                pipe.bytes(1, &clean(path.as_os_str().as_encoded_bytes()));
            });
        }
        Address::Internal(name) => {
            message.message(3, |internal| {
                internal.text(1, name.as_bytes());
            });
        }
    });
}

/// With `!` in place of what is not UTF-8.
fn clean(bytes: &[u8]) -> Cow<'_, [u8]> {
    if std::str::from_utf8(bytes).is_ok() {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        out.extend(chunk.invalid().iter().map(|_| b'!'));
    }
    Cow::Owned(out)
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
