//! The question, written field by field: each request has one, and a tree of it would cost more than sending it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::head::Version;
use towpath_proto::{Address, Head, Name};

use super::tags;
use crate::filter::ext_authz::check::{Content, PARTIAL};
use crate::filter::ext_authz::{ExtAuthz, GrpcService, RouteExtAuthz};
use crate::filter::{Callout, CalloutSpan, RequestView, SpanName};
use crate::number::{AddressText, Decimal};
use crate::protobuf::{self, Writer};
use crate::record::ShownCertificate;
use crate::stream_info::{Struct, Value};

/// The call, about a request and what there is of its content.
pub(in crate::filter::ext_authz) fn question(
    config: &ExtAuthz,
    service: &GrpcService,
    timeout: Duration,
    request: &mut RequestView<'_>,
    content: Option<&Content>,
) -> Callout {
    let body = message(config, request, content);
    let sampled = config.sampled(request);
    let span = Some(CalloutSpan { tags, sampled, ..CalloutSpan::new(SpanName::Method) });
    Callout { body, span, ..service.call_without(METHOD, timeout, request) }
}

/// A framed `CheckRequest`.
fn message(config: &ExtAuthz, request: &RequestView<'_>, content: Option<&Content>) -> Bytes {
    let mut out = Writer::framed(USUAL_LENGTH);
    out.message(1, |out| put_attributes(out, config, request, content));
    out.into_frame()
}

/// `AttributeContext`: what Envoy's own requests say.
fn put_attributes(
    out: &mut Writer,
    config: &ExtAuthz,
    request: &RequestView<'_>,
    content: Option<&Content>,
) {
    let RequestView { head, facts, route, .. } = request;
    let record = facts.record;
    let tls = record.downstream_tls.as_deref();
    out.message(1, |out| {
        let peer = tls.and_then(|tls| tls.peer.as_ref());
        put_peer(out, record.downstream_direct_remote.as_ref(), peer);
        out.text(2, head.get(Name::XEnvoyDownstreamServiceCluster).unwrap_or_default());
        if let Some(tls) = tls.filter(|tls| config.tells_certificate && tls.peer.is_some()) {
            let mut pem = Vec::new();
            tls.write_peer_pem(&mut pem);
            out.text(5, &pem);
        }
    });
    out.message(2, |out| {
        let own = tls.and_then(|tls| tls.own.as_ref());
        put_peer(out, record.downstream_local.as_ref(), own);
        put_labels(out, &config.labels);
    });
    out.message(4, |out| {
        let start = facts.epoch_unix_ns.saturating_add(record.start.as_nanos());
        out.message(1, |out| {
            out.number(1, start / 1_000_000_000);
            out.number(2, start % 1_000_000_000);
        });
        out.message(2, |out| put_http(out, config, head, request.random, content));
    });
    let mut known: Vec<&str> = Vec::new();
    for level in route.all::<RouteExtAuthz>() {
        let RouteExtAuthz::Check { extensions, .. } = level else { continue };
        for (name, value) in extensions {
            if !known.contains(&&**name) {
                known.push(name);
                out.message(10, |out| {
                    out.text(1, name.as_bytes());
                    out.text(2, value.as_bytes());
                });
            }
        }
    }
    out.encode(11, &protobuf::metadata(facts.info, record, &config.namespaces));
    if config.tells_server_name {
        let name = record.server_name.as_deref().unwrap_or_default();
        out.message(12, |out| out.text(1, name.as_bytes()));
    }
    out.encode(13, &route_metadata(config, facts.told.route));
}

/// What the route says of itself, of those namespaces that the server sees.
fn route_metadata(config: &ExtAuthz, told: Option<&Arc<Struct>>) -> protobuf::Metadata {
    let entries = |namespace| match told?.get(namespace) {
        Some(Value::Struct(entries)) => Some(protobuf::Struct::of(entries)),
        _ => None,
    };
    let wanted = config.route_namespaces.iter();
    let found = wanted.filter_map(|name| Some((name.to_string(), entries(&**name)?)));
    protobuf::Metadata { filter_metadata: found.collect() }
}

/// `AttributeContext.Peer.labels`.
fn put_labels(out: &mut Writer, labels: &[(Box<str>, Box<str>)]) {
    for (name, value) in labels {
        out.message(3, |out| {
            out.text(1, name.as_bytes());
            out.text(2, value.as_bytes());
        });
    }
}

/// `AttributeContext.Peer`, without what only a client has.
fn put_peer(out: &mut Writer, address: Option<&Address>, shown: Option<&ShownCertificate>) {
    match address {
        None => {}
        // `config.core.v3.Address`
        Some(Address::Ip(ip)) => out.message(1, |out| {
            out.message(1, |out| {
                out.text(2, AddressText::of(ip.ip()).as_bytes());
                out.number(3, ip.port().into());
            });
        }),
        Some(Address::Unix(path)) => out.message(1, |out| {
            out.message(2, |out| out.text(1, path.as_os_str().as_encoded_bytes()));
        }),
        Some(Address::Internal(_)) => out.message(1, |_| {}),
    }
    if let Some(shown) = shown {
        out.text(4, principal(shown));
    }
}

/// Its first URI, else its first domain, else its subject.
fn principal(shown: &ShownCertificate) -> &[u8] {
    let first = shown.uris.first().or_else(|| shown.domains.first());
    first.map_or(shown.subject.as_bytes(), |name| name)
}

/// `AttributeContext.HttpRequest`.
fn put_http(
    out: &mut Writer,
    config: &ExtAuthz,
    head: &Head,
    random: u64,
    content: Option<&Content>,
) {
    out.text(1, Decimal::new().write(random));
    out.text(2, head.method_bytes());
    let partial = content.map(Content::flag);
    if !config.raw_headers {
        put_headers(out, config, head);
        if let Some(partial) = partial {
            put_entry(out, 3, PARTIAL, partial);
        }
    }
    out.text(4, head.path());
    out.text(5, head.authority());
    out.text(6, head.scheme());
    out.text(10, protocol(head.version()));
    if let Some(Content { bytes, as_bytes, .. }) = content {
        out.number(9, bytes.len() as u64);
        match as_bytes {
            true => out.bytes(12, bytes),
            false => out.text(11, bytes),
        }
    }
    if config.raw_headers {
        out.message(13, |out| {
            seen(config, head).for_each(|(name, value)| put_raw(out, name, value));
            if let Some(partial) = partial {
                put_raw(out, PARTIAL, partial);
            }
        });
    }
}

const fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0",
        Version::Http11 => b"HTTP/1.1",
        Version::Http2 | _ => b"HTTP/2",
    }
}

/// The fields that the server sees.
fn seen<'a>(
    config: &'a ExtAuthz,
    head: &'a Head,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
    let pseudo: [(&[u8], &[u8]); 4] = [
        (b":authority", head.authority()),
        (b":method", head.method_bytes()),
        (b":path", head.path()),
        (b":scheme", head.scheme()),
    ];
    let fields = head.iter().map(|field| (field.name_bytes, field.value));
    pseudo.into_iter().chain(fields).filter(|(name, _)| config.shows(name))
}

/// One of `HttpRequest.header_map`.
fn put_raw(out: &mut Writer, name: &[u8], value: &[u8]) {
    out.message(1, |out| {
        out.lower_text(1, name);
        out.bytes(3, value);
    });
}

/// `HttpRequest.headers`: those of one name are joined. Most differ in how long their names are.
fn put_headers(out: &mut Writer, config: &ExtAuthz, head: &Head) {
    let mut all: Vec<(&[u8], &[u8])> = Vec::with_capacity(USUAL_FIELDS);
    all.extend(seen(config, head));
    all.sort_by(|(a, _), (b, _)| {
        let by_length = a.len().cmp(&b.len());
        by_length.then_with(|| in_small_letters(a).cmp(in_small_letters(b)))
    });
    let mut joined = Vec::new();
    for same in all.chunk_by(|(a, _), (b, _)| a.eq_ignore_ascii_case(b)) {
        match same {
            [(name, value)] => put_entry(out, 3, name, value),
            [] => {}
            [(name, _), ..] => {
                joined.clear();
                for (_, value) in same {
                    if !joined.is_empty() {
                        joined.push(b',');
                    }
                    joined.extend_from_slice(value);
                }
                put_entry(out, 3, name, &joined);
            }
        }
    }
}

fn in_small_letters(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().map(u8::to_ascii_lowercase)
}

/// An entry of a map of texts, by a field's name.
fn put_entry(out: &mut Writer, field: u32, name: &[u8], value: &[u8]) {
    out.message(field, |out| {
        out.lower_text(1, name);
        out.text(2, value);
    });
}

const METHOD: &str = "/envoy.service.auth.v3.Authorization/Check";
/// Of a question without content.
const USUAL_LENGTH: usize = 768;

const USUAL_FIELDS: usize = 16;

#[cfg(test)]
mod tests;
