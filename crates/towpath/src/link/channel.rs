//! A connection's bytes: as they are, or under TLS.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_proto::tls::{Client, ClientTemplate, Clock, Fault, Layer, ServerName};

use crate::wall_clock::unix_ns;

/// How TLS is spoken to a link's server.
pub(super) struct Security {
    client: Client,
    clock: Clock,
    name: ServerName,
}

impl Security {
    /// Nothing is at `host` if that is no name that a server can have: its certificate is refused.
    pub(super) fn new(template: &ClientTemplate, host: &str) -> Self {
        let clock = Clock::default();
        let name = ServerName::new(host).unwrap_or_else(|_| ServerName::unnamed());
        Self { client: template.client(&clock), clock, name }
    }

    /// Before a handshake goes on: a certificate is judged by the time at which it comes.
    pub(super) fn tell_time(&self) {
        self.clock.set(Duration::from_nanos(unix_ns()));
    }

    pub(super) fn begin(&self) -> Result<Layer, Fault> {
        self.tell_time();
        self.client.connect(&self.name)
    }
}

/// What is between frames and what the driver carries.
#[derive(Debug, Default)]
pub(super) struct Channel {
    layer: Option<Box<Layer>>,
}

/// What came of bytes that arrived.
pub(super) struct Opened {
    pub(super) plain: Bytes,
    /// For the peer, of TLS's own.
    pub(super) reply: Bytes,
    /// Nothing more comes.
    pub(super) ended: bool,
}

impl Channel {
    pub(super) const fn new(layer: Option<Box<Layer>>) -> Self {
        Self { layer }
    }

    pub(super) fn open(&mut self, chunk: Bytes) -> Opened {
        let Some(layer) = &mut self.layer else {
            return Opened { plain: chunk, reply: Bytes::new(), ended: false };
        };
        let mut plain = BytesMut::new();
        let received = layer.receive(&chunk, &mut plain);
        Opened {
            plain: plain.freeze(),
            reply: layer.take_output().into(),
            ended: received.is_err() || layer.is_ended(),
        }
    }

    /// A frame as it leaves.
    ///
    /// # Errors
    /// When the connection is of no more use.
    pub(super) fn seal(&mut self, frame: Bytes) -> Result<Bytes, Fault> {
        let Some(layer) = &mut self.layer else { return Ok(frame) };
        let mut sealed = BytesMut::new();
        layer.seal(&frame, &mut sealed)?;
        Ok(sealed.freeze())
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("name", &self.name).finish_non_exhaustive()
    }
}
