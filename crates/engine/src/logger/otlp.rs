//! Log records as OTLP has them: `opentelemetry.proto.collector.logs.v1.ExportLogsServiceRequest`.

use super::SpanIds;
use crate::format::Facts;
use crate::snapshot::log::{Fixed, LogService, Template};
use crate::wire::Message;

/// Appends a stream's record, as a field of `ScopeLogs`.
pub(super) fn write_record(
    records: &mut Vec<u8>,
    service: &LogService,
    facts: &Facts<'_>,
    span: Option<SpanIds>,
) {
    let mut all = Message(std::mem::take(records));
    all.message(2, |record| {
        let start = facts.epoch_unix_ns.saturating_add(facts.record.start.as_nanos());
        record.fixed64(1, start);
        if let Some(body) = &service.body {
            record.message(5, |value| made(value, body, facts));
        }
        for (name, value) in &service.attributes {
            record.message(6, |pair| {
                pair.text(1, name.as_bytes()).message(2, |it| made(it, value, facts));
            });
        }
        if let Some((trace, span)) = span {
            record.bytes(9, &trace.to_be_bytes()).bytes(10, &span.to_be_bytes());
        }
    });
    *records = all.0;
}

/// The message around records.
pub(super) fn request(resource: &[(Box<str>, Fixed)], records: &[u8]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_logs| {
        resource_logs.message(1, |message| {
            for (name, value) in resource {
                pair(message, 1, name, value);
            }
        });
        resource_logs.bytes(2, records);
    });
    request.0
}

fn made(any: &mut Message, template: &Template, facts: &Facts<'_>) {
    match template {
        Template::Text(format) => {
            let mut text = Vec::new();
            format.write(&mut text, facts);
            any.text(1, &text);
        }
        Template::List(items) => {
            any.message(5, |list| {
                for item in items {
                    list.message(1, |it| made(it, item, facts));
                }
            });
        }
        Template::Map(entries) => {
            any.message(6, |map| {
                for (name, value) in entries {
                    map.message(1, |pair| {
                        pair.text(1, name.as_bytes()).message(2, |it| made(it, value, facts));
                    });
                }
            });
        }
    }
}

fn pair(message: &mut Message, field: u8, name: &str, value: &Fixed) {
    message.message(field, |pair| {
        pair.text(1, name.as_bytes()).message(2, |any| fixed(any, value));
    });
}

fn fixed(any: &mut Message, value: &Fixed) {
    match value {
        Fixed::Text(text) => drop(any.text(1, text.as_bytes())),
        Fixed::Bool(flag) => drop(any.number(2, u64::from(*flag))),
        Fixed::Int(number) => drop(any.number(3, number.cast_unsigned())),
        Fixed::Double(number) => drop(any.fixed64(4, number.to_bits())),
        Fixed::List(items) => drop(any.message(5, |list| {
            for item in items {
                list.message(1, |it| fixed(it, item));
            }
        })),
        Fixed::Map(entries) => drop(any.message(6, |map| {
            for (name, value) in entries {
                pair(map, 1, name, value);
            }
        })),
        Fixed::Bytes(bytes) => drop(any.bytes(7, bytes)),
        Fixed::Nothing => {}
    }
}
