//! One connection, downstream or upstream, and the table of all that a worker has.
//!
//! Arrives: the driver's [`ConnectionId`]s. Leaves: a [`Connection`] to look at, found by index.
//!
//! A connection does not know what is at its other side: it has a codec that turns bytes into protocol-neutral
//! events and back, the stream it carries, and how much of what it was given is still on its way out.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http1;
use towpath_proto::tls::Layer;
use towpath_proto::{Address, ConnectionId, Instant};
use towpath_proto::{Event, Out};

use crate::bolt;
use crate::client::slow_start::SlowStart;
use crate::deadlines::Deadlines;
use crate::ids::{PoolKey, StreamIndex};
use crate::listener::ChainContext;
use crate::local::Call;
use crate::secure::Handshakes;
use crate::serving::Serving;
use crate::spans::Threshold;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) codec: Codec,
    /// Between bytes and codec; upstream only.
    pub(crate) tls: Option<Box<Layer>>,
    pub(crate) role: Role,
    /// The stream it carries; HTTP/1 and TCP carry one at a time. Bolt carries many, which its codec knows.
    pub(crate) stream: Option<StreamIndex>,
    /// Bytes given to the driver that the kernel has not taken yet.
    pub(crate) outstanding: usize,
    /// Above it the connection is congested, until half of it has left.
    pub(crate) high_watermark: usize,
    /// Nothing that can wait is added: the other side is not read, no further request is begun.
    pub(crate) congested: bool,
    pub(crate) reading: Reading,
    /// The peer sent FIN.
    pub(crate) ended: bool,
    /// Our end went out after the peer's: the connection was ended by us.
    pub(crate) ended_last: bool,
    /// The driver has said that it is gone.
    pub(crate) gone: bool,
    pub(crate) local: Address,
    pub(crate) peer: Address,
    pub(crate) opened: Instant,
    /// When it last had no stream any more.
    pub(crate) rested: Instant,
    pub(crate) deadlines: Deadlines<{ ConnectionTimer::COUNT }>,
    pub(crate) bytes_received: u64,
    /// Bytes that were given to the driver.
    pub(crate) encoded: u64,
    /// Bytes received that belong to streams that are over.
    pub(crate) accounted: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) threshold: Threshold,
}

/// Whether the driver reads the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    On,
    /// Stopped because what comes in cannot go out.
    Off,
}

/// Which side of the worker a connection is on.
#[derive(Debug)]
pub(crate) enum Role {
    Downstream(Downstream),
    Upstream(Upstream),
    /// Ended by us; waits for the peer's FIN so that the last bytes are not lost to a reset.
    Closing(Rc<ChainContext>),
}

/// What only a downstream connection has.
#[derive(Debug)]
pub(crate) struct Downstream {
    /// What takes its streams, and through which listener it came.
    pub(crate) context: Rc<ChainContext>,
    /// Streams so far.
    pub(crate) requests: u32,
    /// The last response said `Connection: close`, or will.
    pub(crate) closing: bool,
    pub(crate) serial: u64,
}

/// What only an upstream connection has.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) pool_key: PoolKey,
    /// Streams so far.
    pub(crate) requests: u32,
    /// Not to be used again: its host is gone, or it is too old.
    pub(crate) retired: bool,
    pub(crate) serial: u64,
    /// An app's over a long way.
    pub(crate) slow_start: Option<Box<SlowStart>>,
}

/// Deadlines of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum ConnectionTimer {
    /// No stream for too long.
    Idle,
    /// Too old.
    MaxDuration,
    /// The head of a request does not get complete.
    RequestHead,
    /// The peer does not answer our FIN, or a refused connection has been held long enough.
    DelayedClose,
    /// The next look at a shared connection.
    Heartbeat,
}

impl ConnectionTimer {
    pub(crate) const COUNT: usize = 5;
    pub(crate) const ALL: [Self; Self::COUNT] =
        [Self::Idle, Self::MaxDuration, Self::RequestHead, Self::DelayedClose, Self::Heartbeat];
}

impl Connection {
    /// A connection at rest.
    pub(crate) fn new(
        id: ConnectionId,
        codec: Codec,
        role: Role,
        local: Address,
        peer: Address,
        high_watermark: usize,
        now: Instant,
    ) -> Self {
        Self {
            id,
            codec,
            tls: None,
            role,
            stream: None,
            outstanding: 0,
            high_watermark,
            congested: false,
            reading: Reading::On,
            ended: false,
            ended_last: false,
            gone: false,
            local,
            peer,
            opened: now,
            rested: now,
            deadlines: Deadlines::new(),
            bytes_received: 0,
            encoded: 0,
            accounted: 0,
            bytes_sent: 0,
            threshold: Threshold::default(),
        }
    }

    pub(crate) fn downstream(&self) -> Option<&Downstream> {
        match &self.role {
            Role::Downstream(downstream) => Some(downstream),
            Role::Upstream(_) | Role::Closing(_) => None,
        }
    }

    pub(crate) fn downstream_mut(&mut self) -> Option<&mut Downstream> {
        match &mut self.role {
            Role::Downstream(downstream) => Some(downstream),
            Role::Upstream(_) | Role::Closing(_) => None,
        }
    }

    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        match &self.role {
            Role::Upstream(upstream) => Some(upstream),
            Role::Downstream(_) | Role::Closing(_) => None,
        }
    }

    pub(crate) fn upstream_mut(&mut self) -> Option<&mut Upstream> {
        match &mut self.role {
            Role::Upstream(upstream) => Some(upstream),
            Role::Downstream(_) | Role::Closing(_) => None,
        }
    }

    /// Whether an upstream connection can carry another stream.
    pub(crate) fn is_reusable(&self) -> bool {
        match &self.codec {
            Codec::Client(client) => {
                client.exchange_complete()
                    && client.reusable()
                    && !self.ended
                    && !self.gone
                    && self.tls.as_ref().is_none_or(|layer| !layer.is_worn())
            }
            Codec::Server(_)
            | Codec::Raw(_)
            | Codec::Local(_)
            | Codec::BoltServer(_)
            | Codec::BoltClient(_) => false,
        }
    }

    /// Whether a stream hangs on it.
    pub(crate) fn is_busy(&self) -> bool {
        self.stream.is_some()
            || match &self.codec {
                Codec::BoltServer(server) => server.in_flight() > 0,
                Codec::BoltClient(client) => client.in_flight() > 0,
                Codec::Server(_) | Codec::Client(_) | Codec::Raw(_) | Codec::Local(_) => false,
            }
    }

    /// Whether a client's next request has begun, and no more.
    pub(crate) fn is_amid_head(&self) -> bool {
        self.stream.is_none() && matches!(self.codec, Codec::Server(_)) && self.codec.buffered() > 0
    }

    /// Whether more waits to leave than its watermark, told once.
    pub(crate) fn backs_up(&mut self) -> bool {
        let backs_up = !self.congested && self.outstanding > self.high_watermark;
        self.congested |= backs_up;
        backs_up
    }

    /// The stream that the event just polled belongs to.
    pub(crate) fn current(&self) -> Option<StreamIndex> {
        match &self.codec {
            Codec::BoltClient(client) => client.current(),
            Codec::Server(_)
            | Codec::Client(_)
            | Codec::Raw(_)
            | Codec::Local(_)
            | Codec::BoltServer(_) => self.stream,
        }
    }

    /// Whether no further request is taken from it now.
    pub(crate) fn is_full(&self) -> bool {
        self.congested
            || match &self.codec {
                Codec::BoltServer(server) => server.is_full(),
                Codec::Server(_)
                | Codec::Client(_)
                | Codec::Raw(_)
                | Codec::Local(_)
                | Codec::BoltClient(_) => false,
            }
    }

    /// Whether it ends with the calls that it has.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.codec, Codec::BoltServer(_))
            && self.downstream().is_some_and(|downstream| downstream.closing)
    }

    /// Remembers that input waits for calls to end.
    pub(crate) fn hold_back(&mut self) {
        if let Codec::BoltServer(server) = &mut self.codec {
            server.hold_back();
        }
    }

    /// Whether it carries many streams at once.
    pub(crate) const fn carries_many(&self) -> bool {
        matches!(self.codec, Codec::BoltServer(_) | Codec::BoltClient(_))
    }

    /// Whether the peer ended it. Where both directions end by themselves (TCP, tunnels), who was last did.
    pub(crate) fn is_ended_by_peer(&self) -> bool {
        (self.ended && !self.ended_last) || self.gone
    }

    /// Plain bytes that were sent.
    pub(crate) const fn plain_sent(&self) -> u64 {
        // Of those under TLS the driver tells what became of their records only.
        if self.tls.is_some() { self.encoded } else { self.bytes_sent }
    }

    /// How long it has had no stream.
    pub(crate) fn idle_since(&self, now: Instant) -> Duration {
        now - self.rested
    }
}

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
    BoltServer(Serving<Box<bolt::Server>>),
    /// Bolt towards a server.
    BoltClient(Serving<Box<bolt::Client>>),
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
    received: Option<Bytes>,
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
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
    fn poll(&mut self) -> Option<Event> {
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

/// The connections of a worker, and what is being encoded for one of them.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub(crate) table: Table,
    pub(crate) handshakes: Handshakes,
    /// What is being encoded, and for whom: one connection's pieces become one chunk.
    pub(crate) out: Out,
    pub(crate) out_for: Option<ConnectionId>,
}

/// All connections of a worker, by the driver's slots.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Option<Box<Connection>>>,
    len: usize,
    locals: Locals,
}

/// Table without a socket: the app's sides of its streams. Their slots are beyond those of any driver.
#[derive(Debug, Default)]
struct Locals {
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    serial: u32,
}

const FIRST_LOCAL: u32 = 1 << 29;

impl Locals {
    fn slot(id: ConnectionId) -> usize {
        id.slot().wrapping_sub(FIRST_LOCAL as usize)
    }

    #[cold]
    fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.slots.get(Self::slot(id))?.as_deref().filter(|connection| connection.id == id)
    }

    #[cold]
    fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(Self::slot(id))?.as_deref_mut().filter(|connection| connection.id == id)
    }

    #[cold]
    fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let pool_key = self.slots.get_mut(Self::slot(id))?;
        let removed = pool_key.take_if(|connection| connection.id == id)?;
        self.free.push(u32::try_from(Self::slot(id)).unwrap_or(u32::MAX));
        Some(removed)
    }
}

impl Table {
    pub(crate) fn insert(&mut self, connection: Connection) -> &mut Connection {
        let slot = connection.id.slot();
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        let pool_key = &mut self.slots[slot];
        if pool_key.is_none() {
            self.len += 1;
        }
        pool_key.insert(Box::new(connection))
    }

    /// Adds a connection without a socket.
    pub(crate) fn insert_local(
        &mut self,
        make: impl FnOnce(ConnectionId) -> Connection,
    ) -> ConnectionId {
        let locals = &mut self.locals;
        let slot = locals.free.pop().unwrap_or_else(|| {
            locals.slots.push(None);
            u32::try_from(locals.slots.len() - 1).unwrap_or(u32::MAX)
        });
        locals.serial = locals.serial.wrapping_add(1);
        let id = ConnectionId::new(FIRST_LOCAL + slot, locals.serial);
        locals.slots[slot as usize] = Some(Box::new(make(id)));
        id
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        match self.slots.get(id.slot()) {
            Some(slot) => slot.as_deref().filter(|connection| connection.id == id),
            None => self.locals.get(id),
        }
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        match self.slots.get_mut(id.slot()) {
            Some(slot) => slot.as_deref_mut().filter(|connection| connection.id == id),
            None => self.locals.get_mut(id),
        }
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let Some(pool_key) = self.slots.get_mut(id.slot()) else { return self.locals.remove(id) };
        if pool_key.as_ref().is_some_and(|connection| connection.id == id) {
            self.len -= 1;
            return pool_key.take();
        }
        None
    }

    /// The connection in a slot, whatever its generation.
    pub(crate) fn in_slot(&self, slot: usize) -> Option<&Connection> {
        self.slots.get(slot)?.as_deref()
    }

    /// All ids, for the rare walks over everything.
    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.slots.iter().flatten().map(|connection| connection.id).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // With its slot, its timer and the driver's 104 bytes it stays below 1 KiB.
        let size = size_of::<Connection>() + size_of::<Option<Box<Connection>>>();
        assert!(size <= 768, "{size}");
    }
}
