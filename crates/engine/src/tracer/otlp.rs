//! Spans as OTLP has them: `opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest`.

use super::tags::SERVERS_FAULT;
use super::{Finished, SpanKind};
use crate::snapshot::tracing::OpenTelemetry;
use crate::wire::Message;

pub(super) fn write(spans: &[Finished], config: &OpenTelemetry) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |resource| {
            for (name, value) in &config.resource {
                resource.message(1, |pair| attribute(pair, name, value.as_bytes()));
            }
        });
        resource_spans.message(2, |scope_spans| {
            if config.tells_scope {
                scope_spans.message(1, |scope| {
                    scope.text(1, b"towpath").text(2, VERSION.as_bytes());
                });
            }
            for span in spans {
                scope_spans.message(2, |message| write_span(message, span));
            }
        });
    });
    request.0
}

fn write_span(message: &mut Message, of: &Finished) {
    let span = &of.span;
    message.bytes(1, &span.ids.trace.to_be_bytes());
    message.bytes(2, &span.ids.span.to_be_bytes());
    if !span.state().is_empty() {
        message.text(3, span.state());
    }
    if span.ids.parent != 0 {
        message.bytes(4, &span.ids.parent.to_be_bytes());
    }
    message.text(5, &span.name);
    message.number(
        6,
        match span.kind {
            SpanKind::Internal => INTERNAL,
            SpanKind::Server => SERVER,
            SpanKind::Client => CLIENT,
        },
    );
    message.fixed64(7, of.start_ns).fixed64(8, of.end_ns);
    for (name, value) in of.tags.iter() {
        let is_other = name == "http.method" && !KNOWN_METHODS.contains(&value);
        let value = if is_other { b"_OTHER" } else { value };
        message.message(9, |pair| attribute(pair, name, value));
    }
    for (at, what) in &of.events {
        message.message(11, |event| {
            event.fixed64(1, *at).text(2, what.as_bytes());
        });
    }
    if let Some(is_error) = status(of) {
        message.message(15, |status| {
            if is_error {
                status.number(3, ERROR);
            }
        });
    }
    let remote = if span.has_remote_parent { IS_REMOTE } else { 0 };
    message.fixed32(16, SAMPLED | HAS_IS_REMOTE | remote);
}

/// Whether a span's status is that of an error, where it has one: as Envoy has it, the tags of statuses say so.
fn status(of: &Finished) -> Option<bool> {
    let is_client = of.span.kind == SpanKind::Client;
    let mut status = None;
    for (name, value) in of.tags.iter() {
        let code = || std::str::from_utf8(value).ok()?.parse::<u32>().ok();
        match name {
            "http.status_code" => {
                let least = if is_client { 400 } else { 500 };
                status = code().filter(|code| *code >= least).map(|_| true).or(status);
            }
            "grpc.status_code" => status = Some(code().is_some_and(|it| fails(it, is_client))),
            _ => {}
        }
    }
    status
}

/// Whether a status of gRPC is an error: to a client each but 0, to a server those that are its fault.
fn fails(code: u32, is_client: bool) -> bool {
    if is_client { code != 0 } else { SERVERS_FAULT.iter().any(|it| u32::from(*it) == code) }
}

fn attribute(pair: &mut Message, name: &str, value: &[u8]) {
    pair.bytes(1, name.as_bytes()).message(2, |any| {
        any.text(1, value);
    });
}

/// Others are one, as OpenTelemetry's conventions ask: what a client sends is not a name without end.
const KNOWN_METHODS: [&[u8]; 10] = [
    b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"QUERY",
    b"TRACE",
];
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// `SpanKind`.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// `Status.StatusCode`.
const ERROR: u64 = 2;
/// `SpanFlags`.
const SAMPLED: u32 = 1;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
