//! Servers that are told statistics.

use bytes::Bytes;

use super::tracing::Collector;

/// A server that is told what this program has to say.
#[derive(Debug)]
pub struct Exporter {
    /// The server that is told.
    pub collector: Collector,
    /// One call goes on for as long as the server lets it, and its first message begins with this. Without, each
    /// message is a request of its own.
    pub opening: Option<Bytes>,
}
