//! Spans of connections, and what a stream needs to make its own.

use towpath_proto::head::Head;
use towpath_proto::name::Name;
use towpath_trace::{Callsite, Category, Level, Stamp, TraceContext, Track, Value, callsite, emit};

use crate::conn::Connection;
use crate::record::Record;
use crate::uri::without_query;

/// What a stream is doing; each phase ends where the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Phase {
    /// From the first byte of the head to its last.
    Parse,
    /// Normalisation, the connection manager's headers, finding the route, HTTP filters, in this order.
    Filters,
    /// What the route says: cluster, limits, rewrites.
    Route,
    /// Choosing a host and waiting for a connection to it.
    PoolWait,
    /// Until the driver has the request whole.
    Send,
    /// Until the head of the response.
    Wait,
    /// The response, until the driver has it whole.
    Body,
    /// Opaque bytes in both directions.
    Tunnel,
    /// An answer of our own.
    Reply,
    /// Until the next attempt.
    BackOff,
    /// Counters and log lines.
    Record,
}

pub(crate) const fn phase(name: &'static str) -> Callsite {
    Callsite::new(name, Category::REQUEST, Level::Info, &[], file!(), line!())
}

pub(crate) static PHASES: [Callsite; 11] = [
    phase("parse"),
    phase("filters"),
    phase("route"),
    phase("pool wait"),
    phase("send"),
    phase("wait for first byte"),
    phase("body"),
    phase("tunnel"),
    phase("reply"),
    phase("back off"),
    phase("record"),
];

callsite!(pub(crate) SLOW, Level::Info, Category::REQUEST, "slow request", method, path, status);

callsite!(pub(crate) CONNECT, Level::Info, Category::REQUEST, "connect", upstream, outcome);

callsite!(pub(crate) HANDSHAKE, Level::Info, Category::REQUEST, "tls handshake", version, cipher);

callsite!(pub(crate) CONNECTION, Level::Info, Category::CONNECTION, "connection", peer, requests);

callsite!(pub(crate) ACCEPT, Level::Info, Category::CONNECTION, "accept");

/// Tracks of connections and of streams are told apart by these bits, and from those of others in the process.
pub(crate) const CONNECTION_TRACKS: u64 = 1 << 61;

pub(crate) const STREAM_TRACKS: u64 = 1 << 62;

// What is known at the begin comes before what is known at the end.
callsite!(pub(crate) REQUEST,
    Level::Info,
    Category::REQUEST,
    "request",
    method,
    path,
    flow,
    status,
    cluster,
    upstream,
    attempts,
    details,
    trace_id,
    parent_span_id
);

callsite!(pub(crate) TCP,
    Level::Info,
    Category::REQUEST,
    "tcp stream",
    method,
    path,
    flow,
    status,
    cluster,
    upstream,
    attempts,
    details
);

/// A stream that is traced, and how far it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanState {
    pub(crate) track: Track,
    pub(crate) began: Stamp,
    pub(crate) phase: Phase,
    pub(crate) since: Stamp,
}

/// What a downstream connection remembers for the span of its next stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Threshold {
    /// When it was accepted, if it is traced.
    pub(crate) accepted: Option<Stamp>,
    /// When the first bytes of a head were there.
    pub(crate) head: Option<Stamp>,
}

/// A connect begins now: when, if that is traced.
#[inline]
pub(crate) fn connect_begins() -> Option<Stamp> {
    CONNECT.enabled().then(Stamp::now)
}

/// A handshake begins now: when, if that is traced.
#[inline]
pub(crate) fn handshake_begins() -> Option<Stamp> {
    HANDSHAKE.enabled().then(Stamp::now)
}

impl Connection {
    /// It was accepted.
    #[inline]
    pub(crate) fn trace_accepted(&mut self) {
        if CONNECTION.enabled() {
            self.begin_connection_span();
        }
    }

    #[cold]
    pub(crate) fn begin_connection_span(&mut self) {
        let now = Stamp::now();
        self.threshold.accepted = Some(now);
        let peer = self.peer.to_string();
        emit::async_begin_at(&CONNECTION, self.track(), now, [Value::Text(&peer)]);
    }

    /// Bytes of its next head may be there.
    #[inline]
    pub(crate) fn trace_head(&mut self) {
        if REQUEST.enabled() && self.threshold.head.is_none() && self.mux.buffered() > 0 {
            self.threshold.head = Some(Stamp::now());
        }
    }

    /// It is over.
    #[inline]
    pub(crate) fn trace_closed(&self) {
        if self.threshold.accepted.is_some() {
            let requests = self.client().map(|client| u64::from(client.requests));
            let values = [Value::Absent, requests.into()];
            emit::async_end_with(&CONNECTION, self.track(), values);
        }
    }

    /// The span of the stream that opens on it, if that is traced.
    #[inline]
    pub(crate) fn open_span(&mut self, stream: u64) -> Option<SpanState> {
        let head = self.threshold.head.take();
        REQUEST.enabled().then(|| self.new_span(head, stream))
    }

    #[cold]
    pub(crate) fn new_span(&self, head: Option<Stamp>, stream: u64) -> SpanState {
        let began = head.unwrap_or_else(Stamp::now);
        let downstream = self.downstream();
        let serial = downstream.map_or(0, |downstream| downstream.serial);
        if downstream.is_some_and(|downstream| downstream.requests == 0)
            && let Some(accepted) = self.threshold.accepted
        {
            emit::complete(&ACCEPT, self.track(), accepted, began, []);
        }
        let track = Track::new(STREAM_TRACKS | serial << 24 ^ stream).under(self.track());
        SpanState { track, began, phase: Phase::Parse, since: began }
    }

    pub(crate) fn track(&self) -> Track {
        Track::new(CONNECTION_TRACKS | self.serial())
    }

    /// What is spoken on it is shown where it is itself.
    pub(crate) fn show_mux(&mut self) {
        let (track, serial) = (self.track(), self.serial());
        self.mux.show_on(track, serial);
    }

    fn serial(&self) -> u64 {
        let upstream = || self.upstream().map_or(0, |upstream| upstream.serial);
        self.client().map_or_else(upstream, |client| client.serial)
    }
}

impl SpanState {
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(&mut self, site: &'static Callsite, request: &Head, phase: Phase) {
        let caller =
            request.get(Name::Traceparent).and_then(|value| std::str::from_utf8(value).ok());
        let [method, path] = name_of(request);
        // The caller's trace and span: their digits are where a `traceparent` that can be read has them.
        let caller = caller.and_then(|value| Some((value, TraceContext::parse(value)?)));
        let digits = |at| caller.and_then(|(value, _)| value.get(at)).into();
        let flow = caller.map(|(_, context)| context.flow()).into();
        let none = Value::Absent;
        let ids = [digits(3..35), digits(36..52)];
        let values = [method, path, flow, none, none, none, none, none, ids[0], ids[1]];
        emit::async_begin_at(site, self.track, self.began, values);
        self.enter(phase);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn enter(&mut self, phase: Phase) {
        let now = Stamp::now();
        self.leave(now);
        (self.phase, self.since) = (phase, now);
    }

    pub(crate) fn leave(&self, now: Stamp) {
        let site = &PHASES[self.phase as usize];
        if site.enabled() {
            emit::complete(site, self.track, self.since, now, []);
        }
    }

    pub(crate) fn end(&self, site: &'static Callsite, record: &Record) {
        let upstream = record.upstream_host.as_ref().map(ToString::to_string);
        let values = [
            Value::Absent,
            Value::Absent,
            Value::Absent,
            (record.status != 0).then_some(record.status).into(),
            record.cluster.as_deref().into(),
            upstream.as_deref().into(),
            record.attempts.into(),
            record.details.into(),
        ];
        emit::async_end_with(site, self.track, values);
    }
}

/// Method and path, without a query: that may hold what no file should.
pub(crate) fn name_of(request: &Head) -> [Value<'_>; 2] {
    [request.method_bytes(), without_query(request.path())]
        .map(|bytes| std::str::from_utf8(bytes).ok().into())
}
