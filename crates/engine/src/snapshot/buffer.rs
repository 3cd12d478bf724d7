//! How much is held between the two connections of a stream.

use towpath_proto::{ConnectionId, Output};

/// `per_connection_buffer_limit_bytes`: what may wait to leave a connection before the other side is not read, and what
/// is read from it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimit {
    /// How many bytes.
    pub bytes: usize,
    /// More is read at once while the other side takes everything: the file says nothing.
    pub grows: bool,
}

impl BufferLimit {
    /// One that the file sets.
    #[must_use]
    pub const fn strict(bytes: usize) -> Self {
        Self { bytes, grows: false }
    }

    /// What the driver is told about a connection.
    pub(crate) const fn of_reads<M>(self, connection: ConnectionId) -> Output<M> {
        Output::ReadLimit { connection, bytes: self.bytes, grows: self.grows }
    }
}

impl Default for BufferLimit {
    /// A sixteenth of Envoy's: what a peer that does not read can make us hold.
    fn default() -> Self {
        Self { bytes: 64 * 1024, grows: true }
    }
}
