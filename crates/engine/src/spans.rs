//! Where the time of a stream went, as spans on a track of its own, while somebody records.
//!
//! Arrives: a stream at the moments when it passes from one [`Part`] of its life to the next. Leaves: records in the
//! trace ring of the thread.
//!
//! Whether a stream is traced is decided when it opens; a place on the path of one that is not costs a test of its
//! [`Trail`]. Stamps are read from the processor's counter, never handed to anything that decides: a simulated run
//! is the same with and without.

use towpath_proto::Instant;
use towpath_proto::head::Head;
use towpath_proto::name::Name;
use towpath_proto::tls::{CipherSuite, Layer, Version};
use towpath_trace::{Callsite, Category, Flow, Level, Stamp, Track, Value, callsite, emit};

use crate::connection::Connection;
use crate::env::Env;
use crate::message::{FromWorker, SlowStream};
use crate::record::Record;
use crate::route::path::without_query;
use crate::stream::{Stream, Upgrade};

/// What a stream is doing; each part ends where the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Part {
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
    /// Until the next try.
    BackOff,
    /// Counters and log lines.
    Record,
}

static PARTS: [Callsite; 11] = [
    part("parse"),
    part("filters"),
    part("route"),
    part("pool wait"),
    part("send"),
    part("wait for first byte"),
    part("body"),
    part("tunnel"),
    part("reply"),
    part("back off"),
    part("record"),
];

const fn part(name: &'static str) -> Callsite {
    Callsite::new(name, Category::REQUEST, Level::Info, &[], file!(), line!())
}

// What is known at the begin comes before what is known at the end.
callsite!(
    REQUEST,
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
    details
);
callsite!(
    TCP,
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
callsite!(SLOW, Level::Info, Category::REQUEST, "slow request", method, path, status);
callsite!(CONNECT, Level::Info, Category::REQUEST, "connect", upstream, outcome);
callsite!(HANDSHAKE, Level::Info, Category::REQUEST, "tls handshake", version, cipher);
callsite!(CONNECTION, Level::Info, Category::CONNECTION, "connection", peer, requests);
callsite!(ACCEPT, Level::Info, Category::CONNECTION, "accept");

/// A stream that is traced, and how far it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trail {
    track: Track,
    began: Stamp,
    part: Part,
    since: Stamp,
}

/// What a downstream connection remembers for the trail of its next stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Threshold {
    /// When it was accepted, if it is traced.
    accepted: Option<Stamp>,
    /// When the first bytes of a head were there.
    head: Option<Stamp>,
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
    fn begin_connection_span(&mut self) {
        let now = Stamp::now();
        self.threshold.accepted = Some(now);
        let peer = self.peer.to_string();
        emit::async_begin_at(&CONNECTION, self.track(), now, [Value::Text(&peer)]);
    }

    /// Bytes of its next head may be there.
    #[inline]
    pub(crate) fn trace_head(&mut self) {
        if REQUEST.enabled() && self.threshold.head.is_none() && self.codec.buffered() > 0 {
            self.threshold.head = Some(Stamp::now());
        }
    }

    /// It is over.
    #[inline]
    pub(crate) fn trace_closed(&self) {
        if self.threshold.accepted.is_some() {
            let requests = self.downstream().map(|downstream| u64::from(downstream.requests));
            let values = [Value::Absent, requests.into()];
            emit::async_end_with(&CONNECTION, self.track(), values);
        }
    }

    /// The trail of the stream that opens on it, if that is traced.
    #[inline]
    pub(crate) fn open_trail(&mut self, stream: u64) -> Option<Trail> {
        let head = self.threshold.head.take();
        REQUEST.enabled().then(|| self.new_trail(head, stream))
    }

    #[cold]
    fn new_trail(&self, head: Option<Stamp>, stream: u64) -> Trail {
        let began = head.unwrap_or_else(Stamp::now);
        let downstream = self.downstream();
        let serial = downstream.map_or(0, |downstream| downstream.serial);
        if downstream.is_some_and(|downstream| downstream.requests == 0)
            && let Some(accepted) = self.threshold.accepted
        {
            emit::complete(&ACCEPT, self.track(), accepted, began, []);
        }
        let track = Track::new(STREAM_TRACKS | serial << 24 ^ stream).under(self.track());
        Trail { track, began, part: Part::Parse, since: began }
    }

    fn track(&self) -> Track {
        Track::new(CONNECTION_TRACKS | self.downstream().map_or(0, |downstream| downstream.serial))
    }
}

/// Tracks of connections and of streams are told apart by these bits, and from those of others in the process.
const CONNECTION_TRACKS: u64 = 1 << 61;
const STREAM_TRACKS: u64 = 1 << 62;

impl Stream {
    /// Begins the span of the whole stream; what it does next is `part`.
    #[inline]
    pub(crate) fn trace_begin(&mut self, part: Part) {
        if let Some(trail) = &mut self.trail {
            let site = if self.context.tcp().is_none() { &REQUEST } else { &TCP };
            trail.begin(site, &self.request, part);
        }
    }

    /// From here on it does this.
    #[inline]
    pub(crate) fn trace_part(&mut self, part: Part) {
        if let Some(trail) = &mut self.trail {
            trail.enter(part);
        }
    }

    /// The request is with the driver, whole. If its response has begun already nothing is waited for.
    #[inline]
    pub(crate) fn trace_sent(&mut self) {
        if let Some(trail) = self.trail.as_mut().filter(|trail| trail.part == Part::Send) {
            trail.enter(Part::Wait);
        }
    }

    /// A connect that it waited for is over.
    pub(crate) fn trace_connect(
        &self,
        since: Option<Stamp>,
        upstream: &towpath_proto::Address,
        outcome: &str,
    ) {
        if let (Some(trail), Some(since)) = (&self.trail, since) {
            // It may have been begun for a stream before this one.
            let since = since.later(trail.since);
            let upstream = upstream.to_string();
            let values = [Value::Text(&upstream), Value::Text(outcome)];
            if CONNECT.enabled() {
                emit::complete(&CONNECT, trail.track, since, Stamp::now(), values);
            }
        }
    }

    /// A handshake that it waited for is over.
    pub(crate) fn trace_handshake(&self, since: Option<Stamp>, layer: &Layer) {
        if let (Some(trail), Some(since)) = (&self.trail, since) {
            let since = since.later(trail.since);
            let version = layer.version().map(Version::name);
            let cipher = layer.cipher_suite().map(CipherSuite::name);
            if HANDSHAKE.enabled() {
                let values = [version.into(), cipher.into()];
                emit::complete(&HANDSHAKE, trail.track, since, Stamp::now(), values);
            }
        }
    }

    /// It is over; when that was, if it was as slow as somebody wants to know.
    #[inline]
    pub(crate) fn trace_end(&self, slow: bool) -> Option<(Stamp, Stamp)> {
        self.trail.is_some().then(|| self.end_trail(slow)).flatten()
    }

    #[cold]
    #[inline(never)]
    fn end_trail(&self, slow: bool) -> Option<(Stamp, Stamp)> {
        let trail = self.trail.as_ref()?;
        let now = Stamp::now();
        trail.leave(now);
        if slow && SLOW.enabled() {
            // Stands for the whole in a file whose ring did not keep the begin.
            let [method, path] = name_of(&self.request);
            let values = [method, path, self.record.status.into()];
            emit::complete(&SLOW, trail.track, trail.began, now, values);
        }
        let site = if self.context.tcp().is_none() { &REQUEST } else { &TCP };
        trail.end(site, &self.record);
        slow.then_some((trail.began, now))
    }
}

impl Trail {
    #[cold]
    #[inline(never)]
    fn begin(&mut self, site: &'static Callsite, request: &Head, part: Part) {
        let caller =
            request.get(Name::Traceparent).and_then(|value| std::str::from_utf8(value).ok());
        let [method, path] = name_of(request);
        let values = [method, path, caller.and_then(Flow::from_traceparent).into()];
        emit::async_begin_at(site, self.track, self.began, values);
        self.enter(part);
    }

    #[cold]
    #[inline(never)]
    fn enter(&mut self, part: Part) {
        let now = Stamp::now();
        self.leave(now);
        (self.part, self.since) = (part, now);
    }

    fn leave(&self, now: Stamp) {
        let site = &PARTS[self.part as usize];
        if site.enabled() {
            emit::complete(site, self.track, self.since, now, []);
        }
    }

    fn end(&self, site: &'static Callsite, record: &Record) {
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
fn name_of(request: &Head) -> [Value<'_>; 2] {
    [request.method_bytes(), without_query(request.path())]
        .map(|bytes| std::str::from_utf8(bytes).ok().into())
}

impl Env {
    /// Ends the spans of a stream, and tells of it if it took too long and was traced.
    pub(crate) fn end_spans(&mut self, stream: &Stream, now: Instant) {
        let duration = now.since(stream.record.start);
        let is_request = stream.context.tcp().is_none() && stream.upgrade != Upgrade::Done;
        let slow = is_request && duration >= self.slow_after;
        if let Some((from, until)) = stream.trace_end(slow) {
            self.tell(FromWorker::Slow(SlowStream { duration, from, until }));
        }
    }
}
