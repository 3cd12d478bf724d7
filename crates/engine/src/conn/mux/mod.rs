//! What is spoken on a connection: bytes in and events out, parts of messages in and bytes out.

pub(crate) mod bolt_client;
pub(crate) mod bolt_server;
pub(crate) mod reply;
pub(crate) mod slots;

use bytes::Bytes;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::{Event, Out, http1};

use crate::local::Call;
use crate::serving::Serving;

/// What a connection speaks.
#[derive(Debug)]
pub(crate) enum Codec {
    /// HTTP/1 towards a client.
    Server(Serving<http1::Server>),
    /// HTTP/1 towards a server.
    Client(http1::Client),
    /// Bytes as they are.
    Raw(Raw),
    /// No socket: the app in this process.
    Local(Box<Call>),
    /// Bolt towards a client.
    BoltServer(Serving<Box<bolt_server::Server>>),
    /// Bolt towards a server.
    BoltClient(Serving<Box<bolt_client::Client>>),
}

/// What arrived is not the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodecError {
    Http1(http1::Error),
    Bolt(towpath_proto::bolt::Error),
}

/// The codec of opaque bytes.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    pub(crate) received: Option<Bytes>,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    Open,
    Seen,
    Told,
}

impl Codec {
    pub(crate) fn receive(&mut self, chunk: Bytes) {
        match self {
            Self::Server(server) => server.receive(chunk),
            Self::Client(client) => client.receive(chunk),
            Self::Raw(raw) => raw.received = Some(chunk),
            Self::Local(_) => {}
            Self::BoltServer(server) => server.receive(chunk),
            Self::BoltClient(client) => client.receive(chunk),
        }
    }

    pub(crate) fn ended(&mut self) {
        match self {
            Self::Server(server) => server.ended(),
            Self::Client(client) => client.ended(),
            Self::Raw(raw) => {
                if raw.end == End::Open {
                    raw.end = End::Seen;
                }
            }
            Self::Local(_) => {}
            Self::BoltServer(_) | Self::BoltClient(_) => {}
        }
    }

    pub(crate) fn poll(&mut self, heads: &mut HeadPool) -> Result<Option<Event>, CodecError> {
        match self {
            Self::Server(server) => server.poll(heads).map_err(CodecError::Http1),
            Self::Client(client) => client.poll(heads).map_err(CodecError::Http1),
            Self::Raw(raw) => Ok(raw.poll()),
            Self::Local(_) => Ok(None),
            Self::BoltServer(server) => server.poll(heads).map_err(CodecError::Bolt),
            Self::BoltClient(client) => client.poll(heads).map_err(CodecError::Bolt),
        }
    }

    /// After a piece of a body: whether it was the last, so that no end follows.
    pub(crate) fn take_end(&mut self) -> bool {
        match self {
            Self::Server(server) => server.take_end(),
            Self::Client(client) => client.take_end(),
            Self::Raw(_) | Self::Local(_) | Self::BoltServer(_) | Self::BoltClient(_) => false,
        }
    }

    /// The head of a request that was refused while it was read.
    pub(crate) fn refused(&mut self) -> Option<Head> {
        match self {
            Self::Server(server) => server.refused(),
            Self::Client(_)
            | Self::Raw(_)
            | Self::Local(_)
            | Self::BoltServer(_)
            | Self::BoltClient(_) => None,
        }
    }

    pub(crate) fn encode_head(&mut self, head: &Head, end: bool, out: &mut Out) {
        match self {
            Self::Server(server) => server.encode_head(head, end, out),
            Self::Client(client) => client.encode_head(head, end, out),
            Self::Raw(_) | Self::Local(_) | Self::BoltServer(_) | Self::BoltClient(_) => {}
        }
    }

    pub(crate) fn encode_data(&mut self, data: Bytes, out: &mut Out) {
        match self {
            Self::Server(server) => server.encode_data(data, out),
            Self::Client(client) => client.encode_data(data, out),
            Self::Raw(_) => out.push(data),
            Self::Local(_) => {}
            // Frames are written whole.
            Self::BoltServer(_) | Self::BoltClient(_) => {}
        }
    }

    pub(crate) fn encode_trailers(&mut self, trailers: &Head, out: &mut Out) {
        match self {
            Self::Server(server) => server.encode_trailers(trailers, out),
            Self::Client(client) => client.encode_trailers(trailers, out),
            Self::Raw(_) | Self::Local(_) | Self::BoltServer(_) | Self::BoltClient(_) => {}
        }
    }

    pub(crate) fn encode_end(&mut self, out: &mut Out) {
        match self {
            Self::Server(server) => server.encode_end(out),
            Self::Client(client) => client.encode_end(out),
            Self::Raw(_) | Self::Local(_) | Self::BoltServer(_) | Self::BoltClient(_) => {}
        }
    }

    /// Bytes from a client that were received and not parsed: further requests, or a part of one.
    pub(crate) fn buffered(&self) -> usize {
        match self {
            Self::Server(server) => server.buffered(),
            Self::Client(_) | Self::Local(_) | Self::BoltClient(_) => 0,
            Self::BoltServer(server) => server.buffered(),
            Self::Raw(raw) => raw.received.as_ref().map_or(0, Bytes::len),
        }
    }

    /// From here on bytes are opaque.
    pub(crate) fn upgrade(&mut self) {
        let leftover = match self {
            Self::Server(server) => server.upgraded(),
            Self::Client(client) => client.upgraded(),
            Self::Raw(_) | Self::Local(_) | Self::BoltServer(_) | Self::BoltClient(_) => return,
        };
        let received = (!leftover.is_empty()).then_some(leftover);
        *self = Self::Raw(Raw { received, end: End::Open });
    }
}

impl Raw {
    pub(crate) fn poll(&mut self) -> Option<Event> {
        if let Some(chunk) = self.received.take() {
            return Some(Event::Data(chunk));
        }
        if self.end == End::Seen {
            self.end = End::Told;
            return Some(Event::End);
        }
        None
    }
}
