//! `towpath trace export`: spans of Perfetto files as OpenTelemetry has them, decided after the fact.
//!
//! Whole traces are kept or dropped, once all that is known of them is there: that of a slow or failed request is
//! worth a collector's room, the others are not. What is recorded costs the program no more for it.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use towpath_lab::cli::units::parse_milliseconds;
use towpath_trace::file::{self, FileValue, Spans};

use super::with_source;

/// Spans of Perfetto files as OTLP
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Export {
    /// Perfetto files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A collector, as http://HOST:4318 (then /v1/traces) or with a path of its own; or a file for the request's bytes
    #[arg(long, value_name = "URL|FILE")]
    otlp: String,
    /// Keep the traces with a span without a parent that took at least this long; with --failed, either
    #[arg(long, value_name = "TIME", value_parser = parse_milliseconds)]
    slow: Option<Duration>,
    /// Keep the traces with a span that failed: a status of 500 or more, `error`, or `otel.status_code = ERROR`
    #[arg(long)]
    failed: bool,
    /// The service's name; else the process's
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
}

const EXAMPLES: &str = "\
Only spans of a trace are handed on: those with a value `trace_id` of 32 hexadecimal digits, and those in them.
`span_id` and `parent_span_id` are taken where they are given.

Examples:
  towpath trace export slow-*.pftrace --otlp http://127.0.0.1:4318 --slow 100ms --failed
  towpath trace export app.pftrace --otlp app.otlp";

/// What was handed on and what was not.
struct Done {
    spans: usize,
    traces: usize,
    dropped: usize,
    untraced: usize,
}

impl Export {
    pub(crate) fn run(&self) -> Result<String, String> {
        let mut found = Vec::new();
        for path in &self.files {
            let spans = file::spans(path).map_err(|error| with_source(&error))?;
            if spans.real_less_boot_ns.is_none() {
                return Err(format!("{}: does not tell the time of day", path.display()));
            }
            found.extend(traced(&spans));
        }
        let (kept, done) = self.keep(found);
        let requests = self.requests(kept);
        if self.otlp.starts_with("http://") || self.otlp.starts_with("https://") {
            send(&self.otlp, &requests)?;
        } else {
            write(&self.otlp, &requests).map_err(|error| format!("{}: {error}", self.otlp))?;
        }
        let Done { spans, traces, dropped, untraced } = done;
        Ok(format!(
            "{spans} spans of {traces} traces to {}; {dropped} traces dropped, {untraced} spans of no trace\n",
            self.otlp
        ))
    }

    /// Whole traces that are worth it.
    fn keep(&self, found: Vec<Traced>) -> (Vec<Traced>, Done) {
        let all = found.len();
        let found: Vec<Traced> =
            found.into_iter().filter(|it| !it.span.trace_id.is_empty()).collect();
        let untraced = all - found.len();
        let mut wanted = HashSet::new();
        let mut traces = HashSet::new();
        for Traced { span, is_root, .. } in &found {
            traces.insert(span.trace_id.clone());
            let took = Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano);
            let slow = *is_root && self.slow.is_some_and(|slow| took >= slow);
            let is_failed = |status: &Status| status.code == StatusCode::Error as i32;
            let failed = self.failed && span.status.as_ref().is_some_and(is_failed);
            let everything = self.slow.is_none() && !self.failed;
            if slow || failed || everything {
                wanted.insert(span.trace_id.clone());
            }
        }
        let kept: Vec<Traced> =
            found.into_iter().filter(|it| wanted.contains(&it.span.trace_id)).collect();
        let dropped = traces.len() - wanted.len();
        let done = Done { spans: kept.len(), traces: wanted.len(), dropped, untraced };
        (kept, done)
    }

    /// Requests of a size that collectors take.
    fn requests(&self, kept: Vec<Traced>) -> Vec<Vec<u8>> {
        let mut requests = Vec::new();
        let mut rest = kept.into_iter().peekable();
        while rest.peek().is_some() {
            let mut by_process: HashMap<(String, u64), Vec<Span>> = HashMap::new();
            for Traced { span, process, .. } in rest.by_ref().take(SPANS_AT_ONCE) {
                by_process.entry(process).or_default().push(span);
            }
            let mut resource_spans: Vec<ResourceSpans> = by_process
                .into_iter()
                .map(|((name, pid), spans)| self.resource(&name, pid, spans))
                .collect();
            resource_spans
                .sort_by_key(|one| one.scope_spans.first().map_or(0, |it| it.spans.len()));
            requests.push(ExportTraceServiceRequest { resource_spans }.encode_to_vec());
        }
        requests
    }

    fn resource(&self, process: &str, pid: u64, spans: Vec<Span>) -> ResourceSpans {
        let service = self.service.as_deref().unwrap_or(process);
        let pid = i64::try_from(pid).unwrap_or_default();
        let resource = Resource {
            attributes: vec![
                attribute("service.name", Value::StringValue(service.to_owned())),
                attribute("process.pid", Value::IntValue(pid)),
                attribute("process.executable.name", Value::StringValue(process.to_owned())),
            ],
            ..Resource::default()
        };
        let scope = InstrumentationScope {
            name: "towpath-trace".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }
    }
}

/// Spans of one request to a collector.
const SPANS_AT_ONCE: usize = 2_000;

/// A span, its trace's number empty if it belongs to none.
struct Traced {
    span: Span,
    process: (String, u64),
    /// Nothing here caused it.
    is_root: bool,
}

/// The spans of a file; what lies in a span of a trace belongs to that trace.
fn traced(found: &Spans) -> Vec<Traced> {
    let mut traced: Vec<Traced> = Vec::with_capacity(found.spans.len());
    for (index, span) in found.spans.iter().enumerate() {
        let parent = span.parent.and_then(|parent| traced.get(parent)).map(|parent| &parent.span);
        let parent = parent.filter(|parent| !parent.trace_id.is_empty());
        let own = span.text("trace_id").and_then(|id| hex(id, 16));
        let trace_id = own.or_else(|| Some(parent?.trace_id.clone())).unwrap_or_default();
        let parent_here = parent.filter(|parent| parent.trace_id == trace_id);
        let parent_id = parent_here.map(|parent| parent.span_id.clone());
        let given = span.text("parent_span_id").and_then(|id| hex(id, 8));
        let is_root = parent_id.is_none();
        let span_id = span.text("span_id").and_then(|id| hex(id, 8));
        let span_id = span_id.unwrap_or_else(|| made_id(span, index));
        let span = Span {
            trace_id,
            span_id,
            parent_span_id: parent_id.or(given).unwrap_or_default(),
            ..converted(span, found.real_less_boot_ns.unwrap_or(0))
        };
        let process = found.spans[index].process.clone();
        traced.push(Traced { span, process, is_root });
    }
    traced
}

/// Name, times, values and marks.
fn converted(span: &file::Span, real_less_boot_ns: i64) -> Span {
    let at = |ns: u64| ns.saturating_add_signed(real_less_boot_ns);
    let told = |key: &str| span.text(key).map(str::to_ascii_lowercase);
    let kind = match told("otel.kind").as_deref() {
        Some("server") => SpanKind::Server,
        Some("client") => SpanKind::Client,
        Some("producer") => SpanKind::Producer,
        Some("consumer") => SpanKind::Consumer,
        // The sidecar's own: between a client and a server.
        None if span.name == "request" && span.categories.iter().any(|it| it == "request") => {
            SpanKind::Server
        }
        _ => SpanKind::Internal,
    };
    let mut attributes: Vec<KeyValue> = span
        .values
        .iter()
        .filter(|(key, _)| !IDS.contains(&key.as_str()) && !key.starts_with("otel."))
        .map(|(key, value)| attribute(key, converted_value(value)))
        .collect();
    for (key, value) in ["category", "code.namespace", "level"].iter().zip(&span.categories) {
        attributes.push(attribute(key, Value::StringValue(value.clone())));
    }
    if span.unfinished {
        attributes.push(attribute("unfinished", Value::BoolValue(true)));
    }
    let events = span.marks.iter().map(|mark| Event {
        time_unix_nano: at(mark.ns),
        name: mark.name.clone(),
        attributes: mark
            .values
            .iter()
            .map(|(key, it)| attribute(key, converted_value(it)))
            .collect(),
        ..Event::default()
    });
    Span {
        name: span.text("otel.name").unwrap_or(&span.name).to_owned(),
        kind: kind as i32,
        start_time_unix_nano: at(span.begin_ns),
        end_time_unix_nano: at(span.end_ns),
        attributes,
        events: events.collect(),
        status: status(span),
        ..Span::default()
    }
}

/// Values that have a place of their own.
const IDS: [&str; 3] = ["trace_id", "span_id", "parent_span_id"];

fn status(span: &file::Span) -> Option<Status> {
    let failed = match (span.value("status"), span.value("error"), span.text("otel.status_code")) {
        (_, _, Some(code)) if code.eq_ignore_ascii_case("ok") => {
            return Some(Status { code: StatusCode::Ok as i32, ..Status::default() });
        }
        (_, _, Some(code)) => code.eq_ignore_ascii_case("error"),
        (_, Some(error), _) => *error != FileValue::Bool(false),
        (Some(FileValue::Integer(status)), ..) => *status >= 500,
        _ => false,
    };
    let described = span.text("error").or_else(|| span.text("details")).unwrap_or_default();
    failed.then(|| Status { code: StatusCode::Error as i32, message: described.to_owned() })
}

fn converted_value(value: &FileValue) -> Value {
    match value {
        FileValue::Bool(value) => Value::BoolValue(*value),
        FileValue::Integer(value) => Value::IntValue(*value),
        FileValue::Float(value) => Value::DoubleValue(*value),
        FileValue::Text(value) => Value::StringValue(value.clone()),
        other => Value::StringValue(format!("{other:?}")),
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// So many bytes from twice as many hexadecimal digits, unless they are all zero.
fn hex(digits: &str, bytes: usize) -> Option<Vec<u8>> {
    if digits.len() != 2 * bytes || !digits.is_ascii() {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok();
    let id: Vec<u8> = (0..bytes).map(byte).collect::<Option<_>>()?;
    id.iter().any(|&byte| byte != 0).then_some(id)
}

/// A number for a span that was given none: the same whenever its file is read.
fn made_id(span: &file::Span, index: usize) -> Vec<u8> {
    let parts = [span.track, span.begin_ns, index as u64];
    let mixed = parts.iter().fold(0x9e37_79b9_7f4a_7c15u64, |id, part| {
        let mixed = (id ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    });
    mixed.max(1).to_be_bytes().to_vec()
}

fn write(path: &str, requests: &[Vec<u8>]) -> io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    // Messages behind each other are one message with the fields of all.
    requests.iter().try_for_each(|request| file.write_all(request))
}

fn send(url: &str, requests: &[Vec<u8>]) -> Result<(), String> {
    let has_path = url.splitn(4, '/').nth(3).is_some_and(|path| !path.is_empty());
    let url =
        if has_path { url.to_owned() } else { format!("{}/v1/traces", url.trim_end_matches('/')) };
    let engine = towpath::Engine::new().map_err(|error| error.to_string())?;
    for body in requests {
        let request = engine.client().request("POST", &url);
        let request = request.header("content-type", "application/x-protobuf").body(body.clone());
        let mut response = request.send().map_err(|error| format!("{url}: {error}"))?;
        let status = response.status();
        let said = response.body().bytes(64 << 10).map_err(|error| format!("{url}: {error}"))?;
        if !(200..300).contains(&status) {
            return Err(format!("{url}: {status} {}", String::from_utf8_lossy(&said).trim()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_digits_and_not_zero() {
        assert_eq!(hex("00f067aa0ba902b7", 8).unwrap()[1], 0xf0);
        for id in ["", "00f067aa0ba902b", "0000000000000000", "00f067aa0ba902bg", "é0f067aa0ba902b"]
        {
            assert_eq!(hex(id, 8), None, "{id}");
        }
    }
}
