//! `towpath trace export`: spans of Perfetto files as OpenTelemetry has them, decided after the fact.
//!
//! Whole traces are kept or dropped, once all that is known of them is there: that of a slow or failed request is
//! worth a collector's room, the others are not. What is recorded costs the program no more for it.
//!
//! Files of any size take less than 64 MB of memory: spans are put in the order of their traces, in a file where there
//! are many, and each trace is looked at as a whole before its spans are handed on.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
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
use towpath_lab::cli::units::{parse_milliseconds, show_number_of};
use towpath_trace::file::{self, FileValue, Sorted, Sorter, Spans};

use super::otlp::{Out, Protocol};
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
    /// How the collector is spoken to; grpc is over HTTP/2, at http://HOST:4317 or https://
    #[arg(long, value_name = "PROTOCOL", value_enum, default_value = "http/protobuf")]
    protocol: Protocol,
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
  towpath trace export app.pftrace --otlp http://127.0.0.1:4317 --protocol grpc
  towpath trace export app.pftrace --otlp app.otlp";

/// What was handed on and what was not.
#[derive(Default)]
struct Done {
    spans: u64,
    traces: u64,
    dropped: u64,
    untraced: u64,
}

impl Export {
    pub(crate) fn run(&self) -> Result<String, String> {
        let mut done = Done::default();
        let mut by_trace = Sorter::default();
        for (number, path) in self.files.iter().enumerate() {
            let spans = file::spans(path).map_err(|error| with_source(&error))?;
            if spans.real_less_boot_ns.is_none() {
                return Err(format!("{}: does not tell the time of day", path.display()));
            }
            let sorted = self.sort(&spans, number, &mut by_trace, &mut done);
            sorted.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let by_trace = by_trace.sorted().map_err(|error| error.to_string())?;
        let mut out = Out::to(&self.otlp, self.protocol)?;
        self.hand_on(&by_trace, &mut out, &mut done)?;
        let said = out.finish()?;
        let Done { spans, traces, dropped, untraced } = done;
        let (spans, untraced) = (show_number_of(spans, "span"), show_number_of(untraced, "span"));
        let (traces, dropped) = (show_number_of(traces, "trace"), show_number_of(dropped, "trace"));
        Ok(format!(
            "{spans} of {traces} to {}; {dropped} dropped, {untraced} of no trace\n{said}",
            self.otlp
        ))
    }

    /// Puts the spans of a file beside those of the same trace.
    fn sort(
        &self,
        found: &Spans,
        file: usize,
        by_trace: &mut Sorter,
        done: &mut Done,
    ) -> io::Result<()> {
        let mut open = OpenIds::default();
        for (index, span) in found.iter()?.enumerate() {
            let span = span?;
            let (otlp, is_root) = traced(&span, open.of(&span), index, found);
            let Some(trace) = number_of(&otlp.trace_id) else {
                done.untraced += 1;
                continue;
            };
            let is_worth_it = self.is_worth_it(&otlp, is_root);
            open.insert(index, span.end_ns, (otlp.trace_id.clone(), otlp.span_id.clone()));
            let kept = Kept { is_worth_it, process: span.process, span: otlp };
            // Of one trace the order of the files counts, and in each that of the begins.
            let number = (file as u64) << 40 | index as u64;
            by_trace.push((trace, number), &kept.to_bytes())?;
        }
        Ok(())
    }

    /// A span for whose sake its trace is kept.
    fn is_worth_it(&self, span: &Span, is_root: bool) -> bool {
        let took = span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano);
        let is_slow = |limit| is_root && Duration::from_nanos(took) >= limit;
        let failed = span.status.as_ref().is_some_and(|it| it.code == StatusCode::Error as i32);
        let everything = self.slow.is_none() && !self.failed;
        everything || self.slow.is_some_and(is_slow) || (self.failed && failed)
    }

    /// Whole traces that are worth it.
    fn hand_on(&self, by_trace: &Sorted, out: &mut Out<'_>, done: &mut Done) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let mut ahead = by_trace.iter().map_err(failed)?.peekable();
        let mut spans = by_trace.iter().map_err(failed)?;
        let mut request = Vec::new();
        let mut bytes = 0;
        while let Some(first) = ahead.next() {
            let ((trace, _), first) = first.map_err(failed)?;
            let (mut count, mut is_worth_it) = (1, Kept::is_worth_it(&first));
            while let Some(next) =
                ahead.next_if(|next| next.as_ref().is_ok_and(|((of, _), _)| *of == trace))
            {
                count += 1;
                is_worth_it |= Kept::is_worth_it(&next.map_err(failed)?.1);
            }
            let of_trace = spans.by_ref().take(count);
            if !is_worth_it {
                done.dropped += 1;
                of_trace.for_each(drop);
                continue;
            }
            done.traces += 1;
            done.spans += count as u64;
            for span in of_trace {
                let (_, record) = span.map_err(failed)?;
                if request.len() >= SPANS_AT_ONCE || bytes + record.len() > BYTES_AT_ONCE {
                    out.send(self.request(std::mem::take(&mut request)))?;
                    bytes = 0;
                }
                bytes += record.len();
                request.push(Kept::of(&record).ok_or("a span came back otherwise than it went")?);
            }
        }
        if request.is_empty() { Ok(()) } else { out.send(self.request(request)) }
    }

    /// One request of so many spans.
    fn request(&self, kept: Vec<Kept>) -> Vec<u8> {
        let mut by_process: HashMap<(String, u64), Vec<Span>> = HashMap::new();
        for Kept { span, process, .. } in kept {
            by_process.entry(process).or_default().push(span);
        }
        let mut resource_spans: Vec<ResourceSpans> = by_process
            .into_iter()
            .map(|((name, pid), spans)| self.resource(&name, pid, spans))
            .collect();
        resource_spans.sort_by_key(|one| one.scope_spans.first().map_or(0, |it| it.spans.len()));
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
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

// Of one request to a collector; collectors take 4 MiB and more.
const SPANS_AT_ONCE: usize = 2_000;
const BYTES_AT_ONCE: usize = 1 << 20;

/// Trace and span.
type Ids = (Vec<u8>, Vec<u8>);

/// Spans of a trace that others may still lie in.
#[derive(Default)]
struct OpenIds {
    ids: HashMap<usize, Ids>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
}

impl OpenIds {
    fn insert(&mut self, index: usize, end_ns: u64, ids: Ids) {
        self.ids.insert(index, ids);
        self.ends.push(Reverse((end_ns, index)));
    }

    /// The ids of the span that this one lies in; nothing that ended before it is asked for again.
    fn of(&mut self, span: &file::Span) -> Option<&Ids> {
        while let Some(&Reverse((end_ns, index))) = self.ends.peek()
            && end_ns < span.begin_ns
        {
            self.ends.pop();
            self.ids.remove(&index);
        }
        self.ids.get(&span.parent?)
    }
}

/// A span of a trace while it waits for the others of its trace.
struct Kept {
    is_worth_it: bool,
    process: (String, u64),
    span: Span,
}

impl Kept {
    fn to_bytes(&self) -> Vec<u8> {
        let (name, pid) = (self.process.0.as_bytes(), self.process.1);
        let mut out = vec![u8::from(self.is_worth_it)];
        out.extend(pid.to_le_bytes());
        out.extend((name.len() as u32).to_le_bytes());
        out.extend(name);
        out.extend(self.span.encode_to_vec());
        out
    }

    fn is_worth_it(record: &[u8]) -> bool {
        record.first() == Some(&1)
    }

    fn of(record: &[u8]) -> Option<Self> {
        let (is_worth_it, rest) = record.split_first()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (name, span) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let name = String::from_utf8_lossy(name).into_owned();
        Some(Self {
            is_worth_it: *is_worth_it == 1,
            process: (name, u64::from_le_bytes(*pid)),
            span: Span::decode(span).ok()?,
        })
    }
}

fn number_of(trace_id: &[u8]) -> Option<u128> {
    trace_id.try_into().ok().map(u128::from_be_bytes)
}

/// A span with the ids of its trace, if it has one, and whether nothing here caused it; what lies in a span of a trace
/// belongs to that trace.
fn traced(span: &file::Span, parent: Option<&Ids>, index: usize, found: &Spans) -> (Span, bool) {
    let own = span.text("trace_id").and_then(|id| hex(id, 16));
    let trace_id = own.or_else(|| Some(parent?.0.clone())).unwrap_or_default();
    let parent_here = parent.filter(|(trace, _)| *trace == trace_id);
    let parent_id = parent_here.map(|(_, span)| span.clone());
    let given = span.text("parent_span_id").and_then(|id| hex(id, 8));
    let is_root = parent_id.is_none();
    let span_id = span.text("span_id").and_then(|id| hex(id, 8));
    let otlp = Span {
        trace_id,
        span_id: span_id.unwrap_or_else(|| made_id(span, index)),
        parent_span_id: parent_id.or(given).unwrap_or_default(),
        ..converted(span, found.real_less_boot_ns.unwrap_or(0))
    };
    (otlp, is_root)
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
        dropped_events_count: u32::try_from(span.marks_left_out).unwrap_or(u32::MAX),
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
