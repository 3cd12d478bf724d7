//! One connection, downstream or upstream, and the table of all that a worker has.
//!
//! Arrives: the driver's [`ConnectionId`]s. Leaves: a [`Connection`] to look at, found by index.
//!
//! A connection does not know what is at its other side: it has a codec that turns bytes into protocol-neutral
//! events and back, the stream it carries, and how much of what it was given is still on its way out.

pub(crate) mod calls;
pub(crate) mod context;
pub(crate) mod drain;
pub(crate) mod mux;
pub(crate) mod spans;
pub(crate) mod table;
pub(crate) mod tls;
pub(crate) mod write;

use std::rc::Rc;
use std::time::Duration;

use towpath_proto::tls::Layer;
use towpath_proto::{Address, ConnectionId, Instant, Out};

use crate::client::slow_start::SlowStart;
use crate::conn::context::ChainContext;
use crate::conn::mux::Codec;
use crate::conn::spans::Threshold;
use crate::conn::table::Table;
use crate::conn::tls::Handshakes;
use crate::deadlines::Deadlines;
use crate::ids::{Closer, PoolKey, StreamIndex};

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
    /// The round in which it was last parsed, and the events of it then.
    pub(crate) round: u32,
    pub(crate) events: u32,
    /// It had its share of the round: what else was received is parsed in the next turn.
    pub(crate) put_off: bool,
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

/// Heads, pieces of bodies and ends of one connection in one round; a read of the smallest chunks or frames has ten
/// times as many. It bounds how long others wait.
const EVENTS_PER_ROUND: u32 = 1024;

/// Which side of the worker a connection is on.
#[derive(Debug)]
pub(crate) enum Role {
    Downstream(Downstream),
    Upstream(Upstream),
    /// A client's that is ending.
    Closing(Closing),
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
    /// What it sent is not the protocol: what follows means nothing.
    pub(crate) broken: bool,
    pub(crate) serial: u64,
}

/// A client's connection whose last bytes are written. It waits for the peer's FIN, so that they are not lost to a
/// reset, and counts in all limits until it is gone.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) downstream: Downstream,
    pub(crate) closer: Closer,
    /// How long it may take nothing of what is written for it; Envoy's `delayed_close_timeout`.
    pub(crate) wait: Duration,
    /// A `connection_limit` filter refused it, and does not count it.
    pub(crate) refused: bool,
    /// What the peer may still send; it is dropped. More stays in the kernel.
    pub(crate) takes: usize,
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
            round: 0,
            events: 0,
            put_off: false,
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

    /// What a client's connection has, until it is gone.
    pub(crate) fn client(&self) -> Option<&Downstream> {
        match &self.role {
            Role::Downstream(downstream) | Role::Closing(Closing { downstream, .. }) => {
                Some(downstream)
            }
            Role::Upstream(_) => None,
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

    /// Counts an event of a round; false when it has had its share. Opaque bytes have no events within a chunk.
    pub(crate) fn has_share(&mut self, round: u32) -> bool {
        if self.put_off {
            return false;
        }
        if self.round != round {
            (self.round, self.events) = (round, 0);
        }
        self.events += 1;
        self.events <= EVENTS_PER_ROUND || matches!(self.codec, Codec::Raw(_))
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

/// The connections of a worker, and what is being encoded for one of them.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub(crate) table: Table,
    pub(crate) handshakes: Handshakes,
    /// What is being encoded, and for whom: one connection's pieces become one chunk.
    pub(crate) out: Out,
    pub(crate) out_for: Option<ConnectionId>,
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
