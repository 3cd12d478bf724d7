//! Where access-log lines go and which are written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::tracing::{Collector, CustomTag};
use crate::field::Field;
use crate::format::Format;
use crate::matcher::LogFilter;
use crate::wire::Message;

/// Envoy `config.accesslog.v3.AccessLog`.
#[derive(Debug)]
pub struct AccessLog {
    /// Which streams are written; `None` means all.
    pub filter: Option<LogFilter>,
    /// What is written, and where.
    pub target: LogTarget,
}

impl AccessLog {
    /// Where lines go; `None` where a server is told.
    #[must_use]
    pub const fn sink(&self) -> Option<SinkId> {
        match &self.target {
            LogTarget::Lines { sink, .. } => Some(*sink),
            LogTarget::Service(_) | LogTarget::Entry(_) => None,
        }
    }

    /// Lines of all streams.
    #[must_use]
    pub const fn lines(format: Format, sink: SinkId) -> Self {
        Self { filter: None, target: LogTarget::Lines { format, sink } }
    }
}

/// What is written of a stream, and where.
#[derive(Debug)]
pub enum LogTarget {
    /// A line.
    Lines {
        /// What it says, newline included.
        format: Format,
        /// Where it goes.
        sink: SinkId,
    },
    /// A server is told.
    Service(Arc<LogService>),
    /// Envoy's access-log service is told.
    Entry(Box<Entry>),
}

/// Envoy `HttpGrpcAccessLogConfig` or `TcpGrpcAccessLogConfig`.
#[derive(Debug)]
pub struct Entry {
    /// `common_config`: where it goes. Those that are configured alike leave together.
    pub stream: Arc<EntryStream>,
    /// What an entry of HTTP has beside the common; `None` of TCP.
    pub http: Option<HttpEntry>,
    /// `custom_tags`.
    pub tags: Vec<CustomTag>,
}

/// What else is told of requests: fields by the names that the configuration gives them.
#[derive(Debug, Default)]
pub struct HttpEntry {
    /// `additional_request_headers_to_log`.
    pub request_headers: Vec<(Box<str>, Field)>,
    /// `additional_response_headers_to_log`.
    pub response_headers: Vec<(Box<str>, Field)>,
    /// `additional_response_trailers_to_log`.
    pub response_trailers: Vec<(Box<str>, Field)>,
}

/// Envoy `CommonGrpcAccessLogConfig`: a server that is told entries by a call that goes on.
#[derive(Debug)]
pub struct EntryStream {
    /// The server that is told.
    pub collector: Collector,
    /// What the first message of a call begins with: the node and `log_name`.
    pub opening: Bytes,
    /// `buffer_size_bytes`: entries of about so many bytes leave together. Default 16 KiB; with 0 each leaves at once.
    pub batch_bytes: usize,
    /// `buffer_flush_interval`: fewer leave after that time. Default 1 s.
    pub interval: Duration,
    /// Entries are of HTTP.
    pub is_http: bool,
    /// A digest of the configuration.
    pub print: u64,
}

/// An index into [`Snapshot::sinks`](super::Snapshot::sinks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkId(pub u32);

/// A destination of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// `envoy.access_loggers.file`.
    File(PathBuf),
    /// `envoy.access_loggers.stdout`.
    Stdout,
    /// `envoy.access_loggers.stderr`.
    Stderr,
}

impl EntryStream {
    /// What the first message of a call begins with: an `Identifier` with the node, which is encoded already, and the
    /// log's name.
    #[must_use]
    pub fn opening(node: &[u8], log_name: &str) -> Bytes {
        let mut message = Message::default();
        message.message(1, |identifier| {
            identifier.bytes(1, node).text(2, log_name.as_bytes());
        });
        message.0.into()
    }
}

/// A server that is told of streams: Envoy `OpenTelemetryAccessLogConfig`.
#[derive(Debug)]
pub struct LogService {
    /// The server that is told.
    pub collector: Collector,
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `buffer_size_bytes`: entries of about so many bytes leave together. Default 16 KiB; with 0 each leaves at once.
    pub batch_bytes: usize,
    /// `buffer_flush_interval`: fewer leave after that time. Default 1 s.
    pub interval: Duration,
    /// `resource_attributes`, and the four that name the log and this node.
    pub resource: Vec<(Box<str>, Fixed)>,
    /// `body`.
    pub body: Option<Template>,
    /// `attributes`.
    pub attributes: Vec<(Box<str>, Template)>,
}

/// A value of OpenTelemetry (`AnyValue`) that is the same for all streams.
#[derive(Clone, Debug, PartialEq)]
pub enum Fixed {
    /// `string_value`.
    Text(Box<str>),
    /// `bool_value`.
    Bool(bool),
    /// `int_value`.
    Int(i64),
    /// `double_value`.
    Double(f64),
    /// `bytes_value`.
    Bytes(Box<[u8]>),
    /// `array_value`.
    List(Vec<Self>),
    /// `kvlist_value`.
    Map(Vec<(Box<str>, Self)>),
    /// Not set.
    Nothing,
}

/// A value of OpenTelemetry (`AnyValue`) that is made for each stream.
#[derive(Clone, Debug)]
pub enum Template {
    /// `string_value`: a format.
    Text(Format),
    /// `array_value`.
    List(Vec<Self>),
    /// `kvlist_value`.
    Map(Vec<(Box<str>, Self)>),
}
