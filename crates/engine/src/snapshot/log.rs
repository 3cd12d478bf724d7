//! Where access-log lines go and which are written.

use std::path::PathBuf;

use crate::format::Format;
use crate::matcher::LogFilter;

/// Envoy `config.accesslog.v3.AccessLog`.
#[derive(Debug)]
pub struct AccessLog {
    /// Which streams are written; `None` means all.
    pub filter: Option<LogFilter>,
    /// What a line says, newline included.
    pub format: Format,
    /// Where it goes.
    pub sink: SinkId,
}

/// An index into [`Snapshot::sinks`](super::Snapshot::sinks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
