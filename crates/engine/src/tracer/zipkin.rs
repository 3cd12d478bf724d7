//! Spans for Zipkin, as its second version has them: JSON, or protocol buffers (`zipkin.proto3`).

use super::context::{digits, trace_text};
use super::{Finished, SpanKind};
use crate::json::json_string;
use crate::number::Decimal;
use crate::snapshot::tracing::Zipkin;
use crate::wire::Message;

pub(super) fn write(spans: &[Finished], service: &str, config: &Zipkin) -> Vec<u8> {
    if config.is_binary {
        let mut list = Message::default();
        for span in spans {
            list.message(1, |message| write_binary(message, span, service, config));
        }
        return list.0;
    }
    let mut out = vec![b'['];
    for (index, span) in spans.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_json(&mut out, span, service, config);
    }
    out.push(b']');
    out
}

/// What is told beside the start: that the span is over, after what else happened.
fn events(span: &Finished) -> impl Iterator<Item = (u64, &'static str)> {
    let end = match span.span.kind {
        SpanKind::Client => Some((span.end_ns, "cr")),
        SpanKind::Server => Some((span.end_ns, "ss")),
        SpanKind::Internal => None,
    };
    span.events.iter().copied().chain(end)
}

fn micros(ns: u64) -> u64 {
    ns / 1000
}

fn duration(span: &Finished) -> u64 {
    micros(span.end_ns).saturating_sub(micros(span.start_ns))
}

/// A tag without a value is none.
fn tags(span: &Finished) -> impl Iterator<Item = (&str, &[u8])> {
    span.tags.iter().filter(|(_, value)| !value.is_empty())
}

fn write_json(out: &mut Vec<u8>, of: &Finished, service: &str, config: &Zipkin) {
    let span = &of.span;
    let text = |out: &mut Vec<u8>, name: &str, value: &[u8]| {
        out.extend_from_slice(name.as_bytes());
        json_string(out, value);
    };
    let number = |out: &mut Vec<u8>, name: &str, value: u64| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(Decimal::new().write(value));
    };
    text(out, r#"{"traceId":"#, &trace_text(span.ids.trace));
    text(out, r#","id":"#, &digits(span.ids.span));
    if span.ids.parent != 0 {
        text(out, r#","parentId":"#, &digits(span.ids.parent));
    }
    match span.kind {
        SpanKind::Client => text(out, r#","kind":"#, b"CLIENT"),
        SpanKind::Server => text(out, r#","kind":"#, b"SERVER"),
        SpanKind::Internal => {}
    }
    if span.kind == SpanKind::Server && config.shares {
        out.extend_from_slice(br#","shared":true"#);
    }
    if !span.name.is_empty() {
        text(out, r#","name":"#, &span.name);
    }
    number(out, r#","timestamp":"#, micros(of.start_ns));
    number(out, r#","duration":"#, duration(of));
    out.extend_from_slice(br#","localEndpoint":{"#);
    if !service.is_empty() {
        text(out, r#""serviceName":"#, service.as_bytes());
    }
    out.extend_from_slice(br#"},"annotations":["#);
    for (index, (at, what)) in events(of).enumerate() {
        number(out, if index > 0 { r#",{"timestamp":"# } else { r#"{"timestamp":"# }, micros(at));
        text(out, r#","value":"#, what.as_bytes());
        out.push(b'}');
    }
    out.extend_from_slice(br#"],"tags":{"#);
    for (index, (name, value)) in tags(of).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json_string(out, name.as_bytes());
        text(out, ":", value);
    }
    out.extend_from_slice(b"}}");
}

fn write_binary(message: &mut Message, of: &Finished, service: &str, config: &Zipkin) {
    let span = &of.span;
    let trace = span.ids.trace.to_be_bytes();
    let is_short = span.ids.trace >> 64 == 0;
    message.bytes(1, if is_short { &trace[8..] } else { &trace[..] });
    if span.ids.parent != 0 {
        message.bytes(2, &span.ids.parent.to_be_bytes());
    }
    message.bytes(3, &span.ids.span.to_be_bytes());
    match span.kind {
        SpanKind::Client => {
            message.number(4, 1);
        }
        SpanKind::Server => {
            message.number(4, 2);
        }
        SpanKind::Internal => {}
    }
    message.text(5, &span.name);
    message.fixed64(6, micros(of.start_ns)).number(7, duration(of));
    message.message(8, |endpoint| {
        endpoint.text(1, service.as_bytes());
    });
    for (at, what) in events(of) {
        message.message(10, |event| {
            event.fixed64(1, micros(at)).text(2, what.as_bytes());
        });
    }
    for (name, value) in tags(of) {
        message.message(11, |tag| {
            tag.bytes(1, name.as_bytes()).text(2, value);
        });
    }
    if span.kind == SpanKind::Server && config.shares {
        message.number(13, 1);
    }
}
