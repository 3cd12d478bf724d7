//! Spans that a collector is told, as lines: Zipkin's, in JSON and in protocol buffers, and OTLP's.

use std::fmt::Write;

use serde_json::Value;

use crate::wire::Message;

/// What a report says, without what is drawn or measured.
pub(crate) fn lines(report: &Message) -> Vec<String> {
    let path = report.start.split(' ').nth(1).unwrap_or_default();
    let kind = report.field("content-type").unwrap_or_default();
    let is_log = path.ends_with("LogsService/Export") || path.ends_with("/logs");
    let mut lines = match kind.as_str() {
        "application/grpc" if is_log => logs(report.body.get(5..).unwrap_or_default()),
        _ if is_log => logs(&report.body),
        "application/json" => json(&report.body),
        "application/grpc" => otlp(report.body.get(5..).unwrap_or_default()),
        _ if path.ends_with("/traces") => otlp(&report.body),
        _ => zipkin(&report.body),
    };
    lines.push(format!("report: {} {kind}", report.start));
    let names = [
        "host",
        "te",
        "grpc-timeout",
        "x-added",
        "x-envoy-internal",
        "x-envoy-expected-rq-timeout-ms",
    ];
    let fields = names.into_iter().filter_map(|name| Some((name, report.field(name)?)));
    lines.extend(fields.map(|(name, value)| format!("report: {name}: {value}")));
    lines
}

fn json(body: &[u8]) -> Vec<String> {
    let Ok(Value::Array(spans)) = serde_json::from_slice(body) else {
        return vec!["span: no JSON".to_owned()];
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for span in &spans {
        let mut line = format!("span: {} {}", text(&span["kind"]), text(&span["name"]));
        let _ = write!(line, " {} shared={}", text(&span["traceId"]), span["shared"]);
        let _ = write!(line, " parent={}", id(&text(&span["parentId"])));
        let has = ["timestamp", "duration", "id"].map(|name| span.get(name).is_some());
        let _ = write!(line, " {has:?}");
        lines.push(line);
        lines.push(format!("span: of {}", text(&span["localEndpoint"]["serviceName"])));
        let events = span["annotations"].as_array().into_iter().flatten();
        lines.extend(events.map(|event| format!("span: event {}", text(&event["value"]))));
        let tags = span["tags"].as_object().into_iter().flatten();
        lines.extend(tags.map(|(name, value)| format!("span: {name}={}", text(value))));
    }
    lines
}

fn zipkin(body: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for (_, span) in fields(body) {
        let all = fields(span.bytes());
        let get = |number: u64| all.iter().find(|(field, _)| *field == number).map(|(_, it)| it);
        let text = |number: u64| get(number).map(Field::text).unwrap_or_default();
        let hex = |number: u64| get(number).map(Field::hex).unwrap_or_default();
        let number = |number: u64| get(number).map_or(0, Field::number);
        lines.push(format!(
            "span: kind {} {} {} shared={} parent={}",
            number(4),
            text(5),
            hex(1),
            number(13),
            id(&hex(2))
        ));
        for (field, inner) in &all {
            match field {
                8 => lines.push(format!("span: of {}", pair(inner.bytes(), 3).0)),
                10 => lines.push(format!("span: event {}", pair(inner.bytes(), 2).1)),
                11 => {
                    let (name, value) = pair(inner.bytes(), 2);
                    lines.push(format!("span: {name}={value}"));
                }
                _ => {}
            }
        }
    }
    lines
}

fn otlp(body: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for (_, resource_spans) in fields(body) {
        for (field, inner) in fields(resource_spans.bytes()) {
            if field == 1 {
                for (_, attribute) in fields(inner.bytes()) {
                    lines.push(format!("resource: {}", attribute_of(attribute.bytes())));
                }
                continue;
            }
            for (field, inner) in fields(inner.bytes()) {
                match field {
                    1 => lines.push(format!("scope: {}", pair(inner.bytes(), 2).0)),
                    2 => span_of_otlp(inner.bytes(), &mut lines),
                    _ => {}
                }
            }
        }
    }
    lines
}

/// Log records, without their times.
fn logs(body: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for (_, resource_logs) in fields(body) {
        for (field, inner) in fields(resource_logs.bytes()) {
            for (part, inner) in fields(inner.bytes()) {
                if field == 1 {
                    lines.push(format!("resource: {}", key_value(inner.bytes())));
                } else if part == 2 {
                    lines.push(log_record(inner.bytes()));
                }
            }
        }
    }
    lines
}

fn log_record(record: &[u8]) -> String {
    let mut line = "record:".to_owned();
    for (field, inner) in fields(record) {
        let _ = match field {
            1 => write!(line, " time"),
            5 => write!(line, " body {}", any_value(inner.bytes())),
            6 => write!(line, " {}", key_value(inner.bytes())),
            9 => write!(line, " trace {}", inner.hex()),
            10 => write!(line, " span {}", inner.hex().len()),
            _ => write!(line, " field {field}"),
        };
    }
    line
}

fn key_value(pair: &[u8]) -> String {
    let all = fields(pair);
    let value = all.get(1).map(|(_, value)| any_value(value.bytes())).unwrap_or_default();
    format!("{}={value}", all.first().map(|(_, name)| name.text()).unwrap_or_default())
}

fn any_value(any: &[u8]) -> String {
    let Some((field, value)) = fields(any).into_iter().next() else { return "nothing".to_owned() };
    let all = |show: fn(&[u8]) -> String| -> Vec<String> {
        fields(value.bytes()).iter().map(|(_, item)| show(item.bytes())).collect()
    };
    match field {
        1 => format!("{:?}", value.text()),
        5 => format!("[{}]", all(any_value).join(", ")),
        6 => format!("{{{}}}", all(key_value).join(", ")),
        7 => value.hex(),
        _ => value.number().to_string(),
    }
}

fn span_of_otlp(span: &[u8], lines: &mut Vec<String>) {
    let (mut line, mut parent) = ("span:".to_owned(), String::new());
    for (field, inner) in fields(span) {
        let _ = match field {
            1 => write!(line, " {}", inner.hex()),
            3 => write!(line, " state {}", inner.text()),
            4 => {
                parent = inner.hex();
                Ok(())
            }
            5 => write!(line, " name {}", inner.text()),
            6 => write!(line, " kind {}", inner.number()),
            9 => {
                lines.push(format!("span: {}", attribute_of(inner.bytes())));
                Ok(())
            }
            11 => {
                lines.push(format!("span: event {}", pair(inner.bytes(), 2).1));
                Ok(())
            }
            15 => write!(line, " status {}", inner.hex()),
            16 => write!(line, " flags {:x}", inner.number()),
            _ => Ok(()),
        };
    }
    let _ = write!(line, " parent={}", id(&parent));
    lines.push(line);
}

fn attribute_of(attribute: &[u8]) -> String {
    let all = fields(attribute);
    let value = all.get(1).map(|(_, value)| pair(value.bytes(), 1).0).unwrap_or_default();
    format!("{}={value}", all.first().map(|(_, name)| name.text()).unwrap_or_default())
}

/// The texts of the fields 1 and `second`.
fn pair(message: &[u8], second: u64) -> (String, String) {
    let all = fields(message);
    let text = |number: u64| {
        all.iter().find(|(field, _)| *field == number).map(|(_, it)| it.text()).unwrap_or_default()
    };
    (text(1), text(second))
}

/// An id that may be missing.
fn id(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

#[derive(Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => &[],
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Bytes(_) => 0,
            Self::Number(number) => *number,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The fields of a message, as far as it can be read.
fn fields(mut rest: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while let Some(key) = varint(&mut rest) {
        let value = match key & 7 {
            0 => varint(&mut rest).map(Field::Number),
            1 => take(&mut rest, 8).map(|_| Field::Number(1)),
            2 => varint(&mut rest)
                .and_then(|length| take(&mut rest, usize::try_from(length).ok()?))
                .map(Field::Bytes),
            5 => take(&mut rest, 4).map(|bytes| {
                Field::Number(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
            }),
            _ => None,
        };
        let Some(value) = value else { break };
        fields.push((key >> 3, value));
    }
    fields
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
