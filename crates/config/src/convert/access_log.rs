//! Access logs and format strings.

use std::path::PathBuf;
use std::sync::Arc;

use towpath_engine::format::{
    Format, FormatError, FormatOptions, FormatReason, JsonTemplate, command_names,
};
use towpath_engine::snapshot::log::{AccessLog, LogTarget, Sink};
use towpath_engine::snapshot::route::BodyFormat;

use super::Converter;
use super::extension::{ACCESS_LOGGER, FORMATTER};
use crate::message::{At, Message, Value};
use crate::suggest::did_you_mean;
use crate::tree::{Node, Value as Tree};
use crate::zone;

const FILE: &str = "envoy.extensions.access_loggers.file.v3.FileAccessLog";
const STDOUT: &str = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";
const OPENTELEMETRY: &str =
    "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig";
const STDERR: &str = "envoy.extensions.access_loggers.stream.v3.StderrAccessLog";

const HTTP_GRPC: &str = "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig";
const TCP_GRPC: &str = "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig";

const FORMATTERS: &[&str] = &[
    "envoy.extensions.formatter.cel.v3.Cel",
    "envoy.extensions.formatter.metadata.v3.Metadata",
    "envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery",
];

/// A format string that is longer than this is a mistake.
const MAX_FORMAT_BYTES: usize = 1 << 20;

impl Converter<'_> {
    /// A list of access logs.
    pub(super) fn access_logs(&mut self, message: &Message, name: &str) -> Vec<AccessLog> {
        let logs: Vec<_> = message.messages(name).collect();
        logs.into_iter().filter_map(|log| self.access_log(log)).collect()
    }

    fn access_log(&mut self, log: &Message) -> Option<AccessLog> {
        let known = [FILE, STDOUT, STDERR, OPENTELEMETRY, HTTP_GRPC, TCP_GRPC];
        let (config, _) = self.extension(log, ACCESS_LOGGER, &known)?;
        let filter = match log.message("filter") {
            Some(filter) => Some(self.log_filter(filter)?),
            None => None,
        };
        let target = match config.descriptor.full_name() {
            OPENTELEMETRY => LogTarget::Service(Arc::new(self.log_service(config)?)),
            HTTP_GRPC | TCP_GRPC => LogTarget::Entry(Box::new(self.log_entry(config)?)),
            _ => self.log_lines(config)?,
        };
        Some(AccessLog { filter, target })
    }

    fn log_lines(&mut self, config: &Message) -> Option<LogTarget> {
        let sink = match config.descriptor.full_name() {
            STDOUT => Sink::Stdout,
            STDERR => Sink::Stderr,
            _ => Sink::File(PathBuf::from(config.text("path"))),
        };
        let format = match config.oneof("access_log_format") {
            None => Format::default_access_log(),
            Some(field) => match &field.value {
                Value::String(text) if text.is_empty() => Format::default_access_log(),
                Value::String(text) => self.format(text, false, &field.at)?,
                Value::Json(node) => self.json_format(node, false, &field.at)?,
                Value::Message(format) => self.substitution(format)?,
                _ => return None,
            },
        };
        Some(LogTarget::Lines { format, sink: self.sink(sink) })
    }

    /// A `SubstitutionFormatString`.
    pub(super) fn substitution(&mut self, message: &Message) -> Option<Format> {
        self.formatters(message);
        let omit = message.flag("omit_empty_values");
        let field = message.oneof("format")?;
        match &field.value {
            Value::String(text) => self.format(text, omit, &field.at),
            Value::Message(source) => {
                let text = self.text_data(source, MAX_FORMAT_BYTES)?;
                self.format(&text, omit, &field.at)
            }
            Value::Json(node) => self.json_format(node, omit, &field.at),
            _ => None,
        }
    }

    /// Commands that Envoy has in extensions are always there.
    pub(super) fn formatters(&mut self, holder: &Message) {
        for formatter in holder.messages("formatters") {
            self.extension(formatter, FORMATTER, FORMATTERS);
        }
    }

    /// The same for a body, which has a content type.
    pub(super) fn body_format(&mut self, message: &Message) -> Option<BodyFormat> {
        let format = self.substitution(message)?;
        let content_type = match message.text("content_type") {
            "" if message.has("json_format") => Some("application/json"),
            "" => None,
            written => Some(written),
        };
        Some(BodyFormat { format, content_type: content_type.map(Arc::from) })
    }

    /// A format string.
    pub(super) fn format(
        &mut self,
        text: &str,
        omit_empty_values: bool,
        at: &At,
    ) -> Option<Format> {
        let options = FormatOptions { omit_empty_values, ..self.format_options() };
        let result = Format::text(text, &options);
        self.format_result(result, at)
    }

    /// The value of a header operation.
    pub(super) fn header_format(&mut self, text: &str, at: &At) -> Option<Format> {
        let options = self.format_options();
        let result = Format::header(text, &options);
        self.format_result(result, at)
    }

    fn json_format(&mut self, node: &Node, omit_empty_values: bool, at: &At) -> Option<Format> {
        let options = FormatOptions { omit_empty_values, ..self.format_options() };
        let result = Format::json(&template(node), &options);
        self.format_result(result, at)
    }

    fn format_options(&self) -> FormatOptions<'static> {
        FormatOptions {
            environment: Some(&environment),
            zone: Some(zone::local),
            ..FormatOptions::default()
        }
    }

    fn format_result(&mut self, result: Result<Format, FormatError>, at: &At) -> Option<Format> {
        match result {
            Ok(format) => {
                self.snapshot.shows_upstream_tls |= format.asks_upstream_tls();
                self.snapshot.times_routes |= format.asks_route_time();
                return Some(format);
            }
            Err(error) if error.reason == FormatReason::Unsupported => {
                self.report.unsupported(at, format!("format {error}"));
            }
            Err(error) if error.reason == FormatReason::Unknown => {
                let meant = did_you_mean(&error.command, command_names());
                self.report.problem(at, format!("format {error}{meant}"));
            }
            Err(error) => self.report.problem(at, format!("format {error}")),
        }
        None
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn template(node: &Node) -> JsonTemplate {
    match &node.value {
        Tree::Null => JsonTemplate::Null,
        Tree::Bool(flag) => JsonTemplate::Bool(*flag),
        Tree::Number(text) => {
            text.parse().map_or_else(|_| JsonTemplate::Text(text.clone()), JsonTemplate::Number)
        }
        Tree::String(text) => JsonTemplate::Text(text.clone()),
        Tree::List(items) => JsonTemplate::List(items.iter().map(template).collect()),
        Tree::Map(entries) => JsonTemplate::Object(
            entries.iter().map(|(key, node)| (key.name.clone(), template(node))).collect(),
        ),
    }
}
