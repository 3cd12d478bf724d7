//! Spans that a collector is told, as lines: Zipkin's, in JSON and in protocol buffers, and OTLP's.

use std::fmt::Write;

use serde_json::Value;

use crate::wire::Message;

/// What a report says, without what is drawn or measured.
pub(crate) fn lines(report: &Message) -> Vec<String> {
    let path = report.start.split(' ').nth(1).unwrap_or_default();
    let kind = report.field("content-type").unwrap_or_default();
    if is_entries(report) {
        return frames(&report.body).iter().flat_map(|it| entries(it)).collect();
    }
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

/// A call of Envoy's access-log service.
pub(crate) fn is_entries(report: &Message) -> bool {
    report.field(":path").is_some_and(|path| path.ends_with("/streamaccesslogs"))
}

/// The messages of a call by gRPC, as far as they are whole.
pub(crate) fn frames(mut body: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some([0, length @ ..]) = body.get(..5) {
        let length = length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
        let Some(frame) = body.get(5..5 + length) else { break };
        frames.push(frame);
        body = &body[5 + length..];
    }
    frames
}

/// Entries of Envoy's access-log service, without times and what is measured.
fn entries(message: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for (field, inner) in fields(message) {
        if field == 1 {
            let all = fields(inner.bytes());
            let name = all.iter().find(|(field, _)| *field == 2);
            lines
                .push(format!("entries: of {}", name.map(|(_, it)| it.text()).unwrap_or_default()));
            continue;
        }
        for (_, entry) in fields(inner.bytes()) {
            let mut parts = vec![format!("entry: of {field}:")];
            for (field, inner) in fields(entry.bytes()) {
                match field {
                    1 => common(inner.bytes(), &mut parts),
                    3 => parts.extend(message_parts("request", inner.bytes(), &[13], &[14, 15])),
                    4 => parts.extend(message_parts("response", inner.bytes(), &[4, 5], &[7, 8])),
                    _ => parts.push(format!("{field}={}", inner.hex_or_number())),
                }
            }
            lines.push(parts.join(" "));
        }
    }
    lines
}

fn common(message: &[u8], parts: &mut Vec<String>) {
    let mut all = Vec::new();
    for (field, inner) in fields(message) {
        let said = match field {
            // Addresses: a socket's, or whatever it is.
            2 | 3 | 13 | 14 | 20 => {
                let socket = fields(inner.bytes());
                let socket = socket.first().map(|(_, it)| fields(it.bytes())).unwrap_or_default();
                let part = |number| socket.iter().find(|(field, _)| *field == number);
                let host = part(2).map(|(_, it)| it.text()).unwrap_or_default();
                let port = part(3).map(|(_, it)| it.number()).unwrap_or_default();
                format!("{host}:{port}")
            }
            4 => tls(inner.bytes()),
            // Times and what is measured; what TCP streams are called is random.
            5..=12 | 23 => "there".to_owned(),
            29..=32 => continue,
            16 => {
                let flags = fields(inner.bytes());
                flags.iter().map(|(flag, _)| format!("flag{flag}")).collect::<Vec<_>>().join(",")
            }
            17 => metadata(inner.bytes()),
            22 => {
                let (name, value) = pair(inner.bytes(), 2);
                format!("{name}:{value}")
            }
            24 | 27 | 33 => inner.number().to_string(),
            _ => inner.text(),
        };
        all.push((field, format!("{field}={said}")));
    }
    all.sort();
    parts.extend(all.into_iter().map(|(_, said)| said));
}

/// Namespaces, and the encoded keys and values of each.
fn metadata(message: &[u8]) -> String {
    let all = fields(message);
    let namespace = |(_, entry): &(u64, Field<'_>)| {
        let pair = fields(entry.bytes());
        let part = |number| pair.iter().find(|(field, _)| *field == number).map(|(_, it)| it);
        let (name, values) = (part(1).map(Field::text), part(2).map(Field::hex));
        format!("{}:{}", name.unwrap_or_default(), values.unwrap_or_default())
    };
    all.iter().map(namespace).collect::<Vec<_>>().join(",")
}

fn tls(message: &[u8]) -> String {
    let mut all = Vec::new();
    for (field, inner) in fields(message) {
        let said = match field {
            1 => inner.number().to_string(),
            2 => inner.hex(),
            4 | 5 => {
                let parts = fields(inner.bytes());
                let part = |(field, it): &(u64, Field<'_>)| match field {
                    1 => format!(
                        "uri {}",
                        fields(it.bytes()).first().map(|(_, it)| it.text()).unwrap_or_default()
                    ),
                    _ => it.text(),
                };
                parts.iter().map(part).collect::<Vec<_>>().join("/")
            }
            // The id of a session is drawn.
            6 => continue,
            _ => inner.text(),
        };
        all.push(format!("tls{field}={said}"));
    }
    all.join(",")
}

/// The fields of a request or response: maps as pairs, and none of those that are left out.
fn message_parts(who: &str, message: &[u8], maps: &[u64], without: &[u64]) -> Vec<String> {
    let mut parts = Vec::new();
    for (field, inner) in fields(message).into_iter().filter(|(it, _)| !without.contains(it)) {
        let said = if maps.contains(&field) {
            let (name, value) = pair(inner.bytes(), 2);
            format!("{name}:{value}")
        } else if who == "response" && field == 1 {
            fields(inner.bytes()).first().map(|(_, it)| it.number().to_string()).unwrap_or_default()
        } else {
            inner.text_or_number()
        };
        parts.push(format!("{who}{field}={said}"));
    }
    parts.sort();
    parts
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
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => &[],
        }
    }

    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Bytes(_) => 0,
            Self::Number(number) => *number,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    fn text_or_number(&self) -> String {
        match self {
            Self::Bytes(_) => self.text(),
            Self::Number(number) => number.to_string(),
        }
    }

    fn hex_or_number(&self) -> String {
        match self {
            Self::Bytes(_) => self.hex(),
            Self::Number(number) => number.to_string(),
        }
    }

    fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The fields of a message, as far as it can be read.
pub(crate) fn fields(mut rest: &[u8]) -> Vec<(u64, Field<'_>)> {
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
