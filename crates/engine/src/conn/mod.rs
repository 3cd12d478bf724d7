//! One connection, downstream or upstream, and the table of all that a worker has.
//!
//! Arrives: the driver's [`ConnectionId`]s. Leaves: a [`Connection`] to look at, found by index.
//!
//! A connection does not know what is at its other side: it has a mux that turns bytes into protocol-neutral
//! events and back, the stream it carries, and how much of what it was given is still on its way out.

pub(crate) mod calls;
pub(crate) mod carried;
pub(crate) mod context;
pub(crate) mod counted;
pub(crate) mod drain;
pub(crate) mod mux;
pub(crate) mod spans;
pub(crate) mod table;
pub(crate) mod tls;
pub(crate) mod write;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use towpath_proto::tls::{Fault, Layer};
use towpath_proto::{Address, ConnectionId, Instant, Out};

use crate::client::slow_start::SlowStart;
use crate::client::window::Window;
use crate::conn::carried::Carried;
use crate::conn::context::ChainContext;
use crate::conn::mux::{Mux, Released};
use crate::conn::spans::Threshold;
use crate::conn::table::Table;
use crate::conn::tls::Handshakes;
use crate::deadlines::Deadlines;
use crate::ids::{Closer, PoolKey};
use crate::proxied::Proxied;
use crate::record::details::client_failure;
use crate::record::{ClientConnection, DownstreamTls, TlsNames};
use crate::serving::OfHttp2;
use crate::snapshot::listener::{Arrival, Fingerprints, Listener, ListenerFilter};
use crate::snapshot::original_src::Source;
use crate::stats::ListenerStats;
use crate::stream_info::{FilterMetadata, StateObject, StreamInfo};

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) mux: Mux,
    /// Between bytes and mux.
    pub(crate) tls: Option<Box<Layer>>,
    pub(crate) role: Role,
    pub(crate) streams: Carried,
    /// Bytes given to the driver that the kernel has not taken yet.
    pub(crate) outstanding: usize,
    /// What its `…_cx_tx_bytes_buffered` has of them.
    pub(crate) shown_buffered: u32,
    /// Above it the connection is congested, until half of it has left.
    high_watermark: u32,
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
    /// Stopped because what has come waits for its turn, which is no matter of flow control.
    PutOff,
}

/// Heads, pieces of bodies and ends of one connection in one round; a read of the smallest chunks or frames has ten
/// times as many. It bounds how long others wait.
const EVENTS_PER_ROUND: u32 = 1024;

/// Which side of the worker a connection is on.
#[derive(Debug)]
pub(crate) enum Role {
    /// A client's whose filter chain is not chosen yet.
    Arriving(Box<Arriving>),
    Downstream(Downstream),
    Upstream(Upstream),
    /// A client's that is ending.
    Closing(Box<Closing>),
}

/// A client's connection that its listener's filters look at.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) config: Arc<Listener>,
    pub(crate) stats: Arc<ListenerStats>,
    pub(crate) filters: Rc<[Box<dyn ListenerFilter>]>,
    /// Index into the worker's listeners.
    pub(crate) slot: usize,
    /// How many of the filters have seen enough.
    pub(crate) passed: usize,
    /// What they have found out.
    pub(crate) arrival: Arrival,
    /// What has come and was not for a filter alone.
    pub(crate) received: BytesMut,
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
    /// It has its mux: under TLS its handshake is over.
    pub(crate) ready: bool,
    /// Rules have not judged yet what it sends.
    pub(crate) unjudged: bool,
    pub(crate) serial: u64,
    /// What is known of it alone, if anything is.
    pub(crate) particulars: Option<Box<Particulars>>,
}

/// A client's handshake, as logs tell of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientHandshake {
    /// Its first byte came.
    pub(crate) start: Instant,
    pub(crate) end: Option<Instant>,
    /// The bytes that it began with.
    pub(crate) first: [u8; 5],
    /// Why it failed, or what came after it.
    pub(crate) failure: &'static str,
}

/// What is known of one client's connection: what a listener filter has found out, and its TLS.
#[derive(Debug, Default)]
pub(crate) struct Particulars {
    /// Its local address is where the client wanted to go.
    pub(crate) restored: bool,
    /// The peer of the socket, where a proxy has said who its client is.
    pub(crate) direct: Option<Address>,
    /// The name by which the client asked for this server.
    pub(crate) server_name: Option<Arc<str>>,
    /// By what its TLS can be told from others'.
    pub(crate) fingerprints: Option<Arc<Fingerprints>>,
    /// What a proxy has said of it beside addresses.
    pub(crate) proxied: Option<Arc<Proxied>>,
    /// Where connections to hosts come from for it, if not from us.
    pub(crate) source: Option<Source>,
    /// Objects of the filter state that its streams begin with.
    pub(crate) state: Vec<(Box<str>, StateObject)>,
    /// Its dynamic metadata, by namespace, once its filters have left some.
    pub(crate) metadata: FilterMetadata,
    /// Its first bytes have come, where filters look at them once and at more of it, or have left something.
    pub(crate) is_read: bool,
    /// Its chain lets in fewer.
    pub(crate) over_rate: bool,
    /// Why rules have refused it.
    pub(crate) termination: &'static str,
    /// How its handshake went, once it has begun, where something may tell of it.
    handshake: Option<ClientHandshake>,
    /// What its TLS says, once that was asked for.
    secured: Option<Arc<DownstreamTls>>,
}

impl Particulars {
    /// Sets the connection's own objects in what is known of one of its streams. What belongs to a connection no
    /// request replaces, as in Envoy. A request has dynamic metadata of its own; a stream of opaque bytes is its
    /// connection.
    pub(crate) fn note(&self, info: &StreamInfo, of_request: bool) {
        for (name, object) in &self.state {
            let object = StateObject { read_only: of_request, ..object.clone() };
            // It is as much as a connection may hold, at most.
            let _ = info.set_state(name, object);
        }
        if let Some(metadata) = self.metadata.as_ref().filter(|_| !of_request) {
            let _ = info.add_all(metadata);
        }
    }
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
    /// It stands among its pool's connections that take another stream.
    pub(crate) listed: bool,
    pub(crate) serial: u64,
    /// What is known of both ends: by their certificates, where the host is one of a mesh or formats ask, and which of
    /// its host's addresses it goes to, if not to the first.
    pub(crate) names: Option<Arc<TlsNames>>,
    /// What an app's has, and one that is asked ahead of streams.
    pub(crate) app: Option<Box<AppPath>>,
}

/// What is kept of the path to a server.
#[derive(Debug, Default)]
pub(crate) struct AppPath {
    /// When bytes last came, where a quiet server is asked ahead of streams.
    pub(crate) heard: Option<Instant>,
    /// Over a long path.
    pub(crate) slow_start: Option<SlowStart>,
    /// Whether the peer is there, where many streams depend on it.
    pub(crate) contact: Option<OfHttp2<Contact>>,
    /// Names of other origins that were looked for in its certificate, and whether they are there.
    pub(crate) names: Vec<(Arc<str>, bool)>,
}

impl Upstream {
    pub(crate) fn slow_start(&mut self) -> Option<&mut SlowStart> {
        self.app.as_mut()?.slow_start.as_mut()
    }

    pub(crate) fn contact(&self) -> Option<&Contact> {
        self.app.as_ref()?.contact.as_deref()
    }
}

/// What is known of whether a peer is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contact {
    /// Bytes received when it was last looked at, and since when they were there.
    pub(crate) received: u64,
    pub(crate) heard: Instant,
    /// When it was asked for a sign of life, if none has come since.
    pub(crate) asked: Option<Instant>,
    /// None came in time: no stream begins there until one comes.
    pub(crate) suspect: bool,
    /// The kernel is being asked what it knows of the path.
    pub(crate) inspecting: bool,
    /// PINGs since something of a stream came, and when the last was sent.
    pub(crate) pings: u8,
    pub(crate) pinged: Instant,
    /// What each stream may have under way.
    pub(crate) window: Window,
}

impl Contact {
    pub(crate) const fn new(window: Window, now: Instant) -> Self {
        Self {
            window,
            received: 0,
            heard: now,
            asked: None,
            suspect: false,
            inspecting: false,
            pings: 0,
            pinged: now,
        }
    }

    /// Takes note of bytes; answers since when the peer was asked for them, and whether it was.
    pub(crate) fn hear(&mut self, received: u64, now: Instant) -> Option<Instant> {
        if received - self.received != PONG_BYTES {
            self.pings = 0;
        }
        (self.received, self.heard, self.suspect) = (received, now, false);
        self.asked.take()
    }

    /// Notes that the peer is asked, unless it has been or that would be too often.
    pub(crate) fn ask(&mut self, now: Instant) -> bool {
        let pause = PING_PAUSES[usize::from(self.pings).min(PING_PAUSES.len() - 1)];
        if self.asked.is_some() || now - self.pinged < pause {
            return false;
        }
        (self.asked, self.pinged, self.pings) = (Some(now), now, self.pings.saturating_add(1));
        true
    }
}

/// The answer to a PING, with its frame's header (RFC 9113 §6.7).
const PONG_BYTES: u64 = 17;

/// From one PING to the next while nothing but answers to them comes. gRPC's servers end a connection at the fourth
/// within five minutes (`grpc/proposal: A8-client-side-keepalive.md`).
const PING_PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(4), Duration::from_secs(30), Duration::from_secs(300)];

/// Deadlines of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum ConnectionTimer {
    /// No stream for too long.
    Idle,
    /// The head of a request does not get complete, or what the listener's filters wait for; a server's SETTINGS do not
    /// come.
    RequestHead,
    /// Too old.
    MaxDuration,
    /// The peer does not answer our FIN, or a refused connection has been held long enough.
    DelayedClose,
    /// The next look at a shared connection.
    Heartbeat,
    /// Answers wait for windows that stay closed.
    Flush,
}

impl ConnectionTimer {
    pub(crate) const COUNT: usize = 6;
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Idle,
        Self::MaxDuration,
        Self::RequestHead,
        Self::DelayedClose,
        Self::Heartbeat,
        Self::Flush,
    ];
}

impl Downstream {
    /// A client's connection that a chain has taken, or the app's.
    pub(crate) fn new(context: Rc<ChainContext>, serial: u64) -> Self {
        Self {
            unjudged: context.filters.looks_at_first_bytes(),
            context,
            requests: 0,
            closing: false,
            broken: false,
            ready: false,
            serial,
            particulars: None,
        }
    }

    fn handshake(&self) -> Option<&ClientHandshake> {
        self.particulars.as_ref()?.handshake.as_ref()
    }

    /// Bytes under TLS have come, perhaps the first. Where nothing is recorded, nothing is kept of them.
    pub(crate) fn note_handshake(&mut self, bytes: &[u8], now: Instant) {
        let is_told = self.context.is_recorded || !self.context.listener.access_logs.is_empty();
        if is_told && self.handshake().is_none() {
            let mut first = [0; 5];
            let length = bytes.len().min(first.len());
            first[..length].copy_from_slice(&bytes[..length]);
            let handshake = ClientHandshake { start: now, end: None, first, failure: "" };
            self.particulars.get_or_insert_default().handshake = Some(handshake);
        }
    }

    /// Its handshake is over.
    pub(crate) fn end_handshake(&mut self, now: Instant) {
        let particulars = self.particulars.as_mut();
        if let Some(handshake) = particulars.and_then(|it| it.handshake.as_mut()) {
            handshake.end = Some(now);
        }
    }

    /// Its TLS has failed.
    pub(crate) fn fail_handshake(&mut self, fault: Fault) {
        let particulars = self.particulars.as_mut();
        if let Some(handshake) = particulars.and_then(|it| it.handshake.as_mut()) {
            handshake.failure = client_failure(fault, self.ready, &handshake.first);
        }
    }

    /// Whether its local address is where the client wanted to go.
    pub(crate) fn is_restored(&self) -> bool {
        self.particulars.as_ref().is_some_and(|it| it.restored)
    }

    /// An object of its filter state.
    pub(crate) fn state(&self, wanted: &str) -> Option<&StateObject> {
        let state = &self.particulars.as_ref()?.state;
        state.iter().find(|(name, _)| &**name == wanted).map(|(_, object)| object)
    }

    /// The cluster that its filter state names.
    pub(crate) fn cluster_by_state(&self) -> Option<Arc<str>> {
        let object = self.state("envoy.tcp_proxy.cluster")?;
        std::str::from_utf8(&object.value).ok().map(Arc::from)
    }

    /// What a proxy has said of it beside addresses.
    pub(crate) fn proxied(&self) -> Option<&Arc<Proxied>> {
        self.particulars.as_ref()?.proxied.as_ref()
    }

    /// What its filters look at: what others have left of it.
    pub(crate) fn info(&self) -> StreamInfo {
        let info = self.proxied().map_or_else(StreamInfo::default, |proxied| proxied.info());
        if let Some(particulars) = &self.particulars {
            particulars.note(&info, false);
        }
        info
    }

    /// The name by which the client asked for this server, as far as a listener filter has read it.
    pub(crate) fn server_name(&self) -> Option<&Arc<str>> {
        self.particulars.as_ref()?.server_name.as_ref()
    }
}

impl Connection {
    /// What logs tell of a client's connection. Envoy takes the handshake of a client that sends opaque bytes for one
    /// with a server, and its logs do not have its end.
    pub(crate) fn told(&self) -> ClientConnection {
        let mut told =
            ClientConnection { opened: Some(self.opened), ..ClientConnection::default() };
        let client = self.client();
        if let Some(handshake) = client.and_then(Downstream::handshake) {
            told.handshake_start = Some(handshake.start);
            told.handshake_end = handshake.end;
            told.failure = handshake.failure;
        }
        if client.is_some_and(|client| client.context.tcp().is_some()) {
            told.handshake_end = None;
        }
        told
    }

    /// The peer of a client's socket.
    pub(crate) fn direct_peer(&self) -> &Address {
        let particulars = self.client().and_then(|client| client.particulars.as_deref());
        particulars.and_then(|it| it.direct.as_ref()).unwrap_or(&self.peer)
    }

    /// A connection at rest.
    pub(crate) fn new(
        id: ConnectionId,
        mux: Mux,
        role: Role,
        local: Address,
        peer: Address,
        high_watermark: usize,
        now: Instant,
    ) -> Self {
        Self {
            id,
            mux,
            tls: None,
            role,
            streams: Carried::default(),
            outstanding: 0,
            shown_buffered: 0,
            high_watermark: u32::try_from(high_watermark).unwrap_or(u32::MAX),
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

    /// Whether its chain answers what it brings.
    pub(crate) fn is_answered(&self) -> bool {
        self.downstream().is_some_and(|downstream| downstream.context.answer().is_some())
    }

    pub(crate) fn downstream(&self) -> Option<&Downstream> {
        match &self.role {
            Role::Downstream(downstream) => Some(downstream),
            Role::Arriving(_) | Role::Upstream(_) | Role::Closing(_) => None,
        }
    }

    /// What the TLS of a client's connection says, read once.
    pub(crate) fn downstream_tls(&mut self) -> Option<Arc<DownstreamTls>> {
        let layer = self.tls.as_deref()?;
        let downstream = match &mut self.role {
            Role::Downstream(downstream) => downstream,
            Role::Closing(closing) => &mut closing.downstream,
            Role::Arriving(_) | Role::Upstream(_) => return None,
        };
        let particulars = downstream.particulars.get_or_insert_default();
        let secured = particulars.secured.get_or_insert_with(|| Arc::new(DownstreamTls::of(layer)));
        Some(Arc::clone(secured))
    }

    /// What a client's connection has, until it is gone.
    pub(crate) fn client(&self) -> Option<&Downstream> {
        match &self.role {
            Role::Downstream(downstream) => Some(downstream),
            Role::Closing(closing) => Some(&closing.downstream),
            Role::Arriving(_) | Role::Upstream(_) => None,
        }
    }

    pub(crate) fn downstream_mut(&mut self) -> Option<&mut Downstream> {
        match &mut self.role {
            Role::Downstream(downstream) => Some(downstream),
            Role::Arriving(_) | Role::Upstream(_) | Role::Closing(_) => None,
        }
    }

    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        match &self.role {
            Role::Upstream(upstream) => Some(upstream),
            Role::Arriving(_) | Role::Downstream(_) | Role::Closing(_) => None,
        }
    }

    pub(crate) fn upstream_mut(&mut self) -> Option<&mut Upstream> {
        match &mut self.role {
            Role::Upstream(upstream) => Some(upstream),
            Role::Arriving(_) | Role::Downstream(_) | Role::Closing(_) => None,
        }
    }

    /// Whether no further stream can begin on it, whatever its mux says.
    pub(crate) fn is_spent(&self) -> bool {
        self.ended || self.gone || self.tls.as_ref().is_some_and(|layer| layer.is_exhausted())
    }

    /// Whether further streams may begin on an upstream connection, now or when others are over.
    pub(crate) fn takes_streams(&self) -> bool {
        let retired = self.upstream().is_none_or(|upstream| upstream.retired);
        !(retired || self.is_spent() || self.mux.is_exhausted())
    }

    /// How many streams may begin on an upstream connection now.
    pub(crate) fn capacity(&self) -> u32 {
        let suspect = self.contact().is_some_and(|contact| contact.suspect);
        if self.congested || suspect || !self.takes_streams() { 0 } else { self.mux.capacity() }
    }

    /// Whether a stream may have it: one that `reuses` none because a used connection has failed it gets such that say
    /// themselves when they take no more; where that one may be dead, such as were opened `after` it.
    pub(crate) fn suits(&self, reuses: bool, after: Option<Instant>) -> bool {
        reuses || (!self.mux.is_alone() && after.is_none_or(|after| self.opened > after))
    }

    pub(crate) fn contact(&self) -> Option<&Contact> {
        self.upstream()?.contact()
    }

    /// When bytes last came, where a quiet server is asked ahead of streams.
    pub(crate) fn heard(&self) -> Option<Instant> {
        self.upstream()?.app.as_ref()?.heard
    }

    pub(crate) fn contact_mut(&mut self) -> Option<&mut Contact> {
        self.upstream_mut()?.app.as_mut()?.contact.as_deref_mut()
    }

    /// Streams that it has carried towards a server.
    pub(crate) fn requests(&self) -> u32 {
        self.upstream().map_or(0, |upstream| upstream.requests)
    }

    /// Notes whether its pool has it among those that take another stream, and answers whether it had.
    pub(crate) fn set_listed(&mut self, listed: bool) -> bool {
        let upstream = self.upstream_mut();
        upstream.is_some_and(|upstream| std::mem::replace(&mut upstream.listed, listed))
    }

    /// Whether a stream is on it.
    pub(crate) fn is_busy(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether the head of a client's next request has begun to arrive.
    pub(crate) fn is_amid_head(&self) -> bool {
        self.streams.is_empty() && self.mux.has_part_of_head()
    }

    /// Takes a stream off it; what that leaves of the connection.
    pub(crate) fn release(&mut self, number: u32) -> Released {
        if self.streams.get(number).is_none() {
            return Released::Close;
        }
        self.streams.unbind(number);
        self.mux.release(number)
    }

    /// Nothing more is sent: when what is queued has left, it is over.
    pub(crate) fn await_flush(&mut self) {
        (self.congested, self.high_watermark) = (true, 0);
    }

    /// Bytes above which it is congested.
    pub(crate) const fn high_watermark(&self) -> usize {
        self.high_watermark as usize
    }

    /// Whether more waits to leave than its watermark, told once.
    pub(crate) fn backs_up(&mut self) -> bool {
        let backs_up = !self.congested && self.outstanding > self.high_watermark();
        self.congested |= backs_up;
        backs_up
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
        self.events <= EVENTS_PER_ROUND || self.mux.is_opaque()
    }

    /// Whether no further request is taken from it now.
    pub(crate) fn is_full(&self) -> bool {
        self.congested || self.mux.is_full()
    }

    /// Whether what arrives next may begin a stream.
    pub(crate) fn may_begin(&self) -> bool {
        !self.mux.is_alone() || self.streams.is_empty()
    }

    /// Whether one that carries many streams is read, whatever becomes of each.
    pub(crate) fn takes_input(&self) -> bool {
        match &self.role {
            // A client that is to go away ends with the calls that it has.
            Role::Downstream(downstream) => {
                !self.is_full() && (!downstream.closing || self.mux.has_windows())
            }
            Role::Arriving(_) | Role::Upstream(_) | Role::Closing(_) => true,
        }
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

    /// When one that begins to rest is looked at, and may be idle for so long.
    pub(crate) fn next_look(&self, idle: Option<Duration>, now: Instant) -> Option<Instant> {
        let settles = self.mux.is_http2().then_some(BEFORE_SETTLING);
        let after = match (idle, settles) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        after.map(|after| now + after)
    }

    /// How long it has had no stream.
    pub(crate) fn idle_since(&self, now: Instant) -> Duration {
        now - self.rested
    }
}

/// A connection of many streams that had none for so long gives back memory that only traffic needs.
const BEFORE_SETTLING: Duration = Duration::from_secs(5);

/// The connections of a worker, and what is being encoded for one of them.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub(crate) table: Table,
    pub(crate) handshakes: Handshakes,
    /// What is being encoded, and for whom: one connection's pieces become one chunk.
    pub(crate) out: Out,
    pub(crate) out_for: Option<ConnectionId>,
}

impl Connections {
    /// Bytes that are encoded for a connection and not yet handed to the driver.
    pub(crate) fn waiting_for(&self, id: ConnectionId) -> u64 {
        if self.out_for == Some(id) { self.out.len() as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // With its slot, its timer and the driver's 104 bytes it stays below 640 bytes. Allocators give 448 bytes for
        // 433 to 440.
        let size = size_of::<Connection>() + size_of::<Option<Box<Connection>>>();
        assert!(size <= 448, "{size}");
    }

    /// Servers end a connection that is asked too often while it carries nothing else.
    #[test]
    fn a_quiet_peer_is_asked_less_and_less() {
        let (begin, ms) = (Instant::from_nanos(1_000_000), Duration::from_millis);
        let mut contact = Contact::new(Window::new(1, 1, Duration::ZERO, begin), begin);
        let (mut now, mut received) = (begin, 0);
        for pause in [0, 4000, 30_000, 300_000, 300_000] {
            if pause > 0 {
                assert!(!contact.ask(now + ms(pause - 1)), "{pause}");
            }
            now += ms(pause);
            assert!(contact.ask(now), "{pause}");
            assert!(!contact.ask(now + ms(1_000_000)), "it has not answered");
            received += PONG_BYTES;
            assert_eq!(contact.hear(received, now), Some(now));
        }
        // What else comes is a stream's.
        contact.hear(received + 1, now);
        assert!(contact.ask(now));
    }
}
