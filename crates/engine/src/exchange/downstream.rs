//! The client's side of a connection: requests in, ends of connections, deadlines.
//!
//! Arrives: request heads from `forward.rs`, the peer's FIN or reset, deadlines. Leaves: an open stream on its way
//! to `router.rs`, or an answer and a closed connection.

use std::rc::Rc;

use towpath_proto::head::{Head, Method, Version};
use towpath_proto::name::Name;
use towpath_proto::tls::Fault;
use towpath_proto::{Close, ConnectionId, Failure, Instant, http1, http2};

use crate::conn::context::{ChainContext, HttpContext};
use crate::conn::mux::{AtEnd, ONLY};
use crate::conn::spans::Phase;
use crate::conn::{Connection, ConnectionTimer, Reading};
use crate::env::{Env, TimerSlot, Work};
use crate::exchange::Exchange;
use crate::exchange::stream::{Pass, Progress, Stream, Streams, UpstreamState};
use crate::exchange::timers::{HttpTimer, StreamTimer as _};
use crate::ids::{Closer, Kind, Leg, StreamIndex};
use crate::record::{CloseType, Flags, Heads, close, details};
use crate::snapshot::overload::ScaledTime;

impl Exchange {
    /// A request begins.
    pub(crate) fn on_request_head(&mut self, leg: Leg, head: Head, end: bool, now: Instant) {
        let waiting = self.conns.waiting_for(leg.connection);
        let Some(connection) = self.conns.table.get_mut(leg.connection) else { return };
        let opened = self.streams.open_on(connection, leg.number, waiting, &mut self.env, now);
        let Some((index, stream)) = opened else { return };
        if head.version() == Version::Http2 {
            stream.recorder.count_framed(Heads::DownstreamReceived, &connection.mux);
        }
        stream.request_end = if end { Progress::Ended } else { Progress::Streaming };
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        let expects = head.get(Name::Expect).is_some();
        let env = &mut self.env;
        if note_request((index, stream), connection, http, head, env, now) {
            self.conns.send_go_away(leg.connection, &mut self.env, now);
        }
        if self.env.overload.is_some() && self.refuse_request(index, &context, now) {
            return;
        }
        if expects {
            self.answer_expectation(index, http);
        }
        self.route_request(index, &context, Pass::First, now);
    }

    /// A request comes again, on another stream.
    #[cold]
    pub(crate) fn request_again(&mut self, index: StreamIndex, head: Head, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let id = stream.downstream.connection;
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        let env = &mut self.env;
        if note_request((index, stream), connection, http, head, env, now) {
            self.conns.send_go_away(id, &mut self.env, now);
        }
        self.route_request(index, &context, Pass::Redirected, now);
    }

    /// A stream on a connection, with what its record knows from the start.
    pub(crate) fn open_stream(
        &mut self,
        leg: Leg,
        now: Instant,
    ) -> Option<(StreamIndex, Rc<ChainContext>)> {
        // A response before it may be encoded and not yet handed to the driver.
        let waiting = self.conns.waiting_for(leg.connection);
        let connection = self.conns.table.get_mut(leg.connection)?;
        let opened = self.streams.open_on(connection, leg.number, waiting, &mut self.env, now);
        opened.map(|(index, stream)| (index, stream.context.clone()))
    }

    /// A stream for a head that was not read, or not accepted: it is counted and logged as any other.
    fn open_unread(&mut self, leg: Leg, head: Head, now: Instant) -> Option<StreamIndex> {
        let is_http2 = self.conns.table.get(leg.connection)?.mux.is_http2();
        let (index, context) = self.open_stream(leg, now)?;
        let stats = &context.http()?.stats;
        stats.downstream_rq_total.inc();
        stats.downstream_rq_active.inc();
        let version = if is_http2 { Version::Http2 } else { Version::Http11 };
        if is_http2 {
            stats.downstream_rq_http2_total.inc();
        } else {
            stats.downstream_rq_http1_total.inc();
        }
        let stream = self.streams.get_mut(index)?;
        stream.request = head.into();
        stream.trace_begin(Phase::Reply);
        stream.recorder.note(|record| record.protocol = Some(version));
        Some(index)
    }

    /// A request over HTTP/2 of which nothing is kept, and whose client was told: it is counted and logged as any
    /// other, with the flag that Envoy gives it.
    pub(crate) fn on_unread(&mut self, id: ConnectionId, why: http2::Unread, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let leg = Leg { connection: id, number: connection.streams.unused() };
        let Some(index) = self.open_unread(leg, Head::unread(), now) else { return };
        if let Some(stream) = self.streams.get_mut(index) {
            stream.flags.set(Flags::DOWNSTREAM_REMOTE_RESET);
            stream.recorder.note(|record| record.details = why.details());
        }
        // Its mux knows of no such stream.
        if let Some(connection) = self.conns.table.get_mut(id) {
            connection.streams.unbind(leg.number);
        }
        self.close_record(index, now);
    }

    /// The client is gone. If that was in the middle of a head, it was a request all the same.
    fn cancel_head(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        if !connection.is_amid_head() {
            return;
        }
        let leg = Leg { connection: id, number: ONLY };
        let Some(index) = self.open_unread(leg, Head::unread(), now) else { return };
        self.streams.mark_gone(index);
        self.weigh(index);
        if let Some(connection) = self.conns.table.get_mut(id) {
            connection.streams.unbind(ONLY);
        }
        self.close_record(index, now);
    }

    /// The whole request is in.
    pub(crate) fn on_request_ended(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if HttpTimer::is_of(stream.kind) {
            stream.clear_timer(HttpTimer::Request);
        }
        if stream.is_complete() {
            self.finish(index, now);
            return;
        }
        self.start_response_timer(index, now);
        if self.streams.get(index).is_some_and(|stream| HttpTimer::is_of(stream.kind)) {
            self.start_try_timers(index, now);
        }
        self.end_collecting(index, now);
        if let Some(downstream) = self.streams.get(index).map(|stream| stream.downstream) {
            self.update_reading(downstream.connection);
        }
    }

    /// What came from the client is not HTTP, or too much of it.
    pub(crate) fn on_request_error(&mut self, id: ConnectionId, error: http1::Error, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let stream = connection.streams.only();
        let refused = connection.mux.refused();
        let Some(downstream) = connection.downstream() else { return };
        // A head that is well-formed and says too little is answered as any other request, except that the connection
        // ends with it.
        let formed = error.is_formed();
        if let Some(http) = downstream.context.http() {
            if error == http1::Error::FragmentInTarget {
                http.stats.downstream_rq_failed_path_normalization.inc();
            }
            if !formed {
                http.stats.downstream_cx_protocol_error.inc();
            }
        }
        // A broken body belongs to the stream under way; a broken head is a stream of its own, so that it is counted
        // and logged.
        let index = match stream {
            Some(index) => index,
            None => {
                let head = refused.unwrap_or_else(Head::unread);
                let leg = Leg { connection: id, number: ONLY };
                let Some(index) = self.open_unread(leg, head, now) else { return };
                if let Some(stream) = self.streams.get_mut(index).filter(|_| formed) {
                    stream.request_end = Progress::Ended;
                }
                index
            }
        };
        self.conns.close_after_response(id);
        if let Some(downstream) =
            self.conns.table.get_mut(id).and_then(|connection| connection.downstream_mut())
        {
            downstream.broken = !formed;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        if !formed {
            stream.flags.set(Flags::DOWNSTREAM_PROTOCOL_ERROR);
        }
        if stream.is_unanswered() {
            let body = if formed { b"" } else { reason(error.status()) };
            self.local_reply(index, error.status(), body, error.details(), now);
        } else {
            self.abandon(index, error.details(), now);
        }
    }

    /// What came from a client of HTTP/1 goes no further, for another reason than what it is: it is answered, and its
    /// connection ends.
    #[cold]
    pub(super) fn answer_broken(
        &mut self,
        id: ConnectionId,
        status: u16,
        details: &'static str,
        now: Instant,
    ) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let leg = Leg { connection: id, number: ONLY };
        let stream = connection.streams.only();
        let Some(index) = stream.or_else(|| self.open_unread(leg, Head::unread(), now)) else {
            return;
        };
        self.conns.close_after_response(id);
        if let Some(downstream) =
            self.conns.table.get_mut(id).and_then(|connection| connection.downstream_mut())
        {
            downstream.broken = true;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.flags.set(Flags::DOWNSTREAM_PROTOCOL_ERROR);
        if stream.is_unanswered() {
            self.local_reply(index, status, reason(status), details, now);
        } else {
            self.abandon(index, details, now);
        }
    }

    /// A connection of HTTP ends with its streams, whatever was said on them.
    #[cold]
    pub(super) fn force_away(&mut self, id: ConnectionId, details: &'static str, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let streams = connection.streams.all();
        let Some(downstream) = connection.downstream_mut() else { return };
        (downstream.closing, downstream.broken) = (true, true);
        if let Some(http) = downstream.context.http().filter(|_| !streams.is_empty()) {
            http.stats.downstream_cx_destroy_active_rq.inc();
        }
        for index in streams {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.recorder.note(|record| record.details = details);
            }
            self.finish(index, now);
        }
        self.close_downstream(id, now);
    }

    /// What came from the client is not HTTP/2: it is told why, and its streams end with the connection.
    pub(crate) fn on_http2_error(&mut self, id: ConnectionId, error: http2::Error, now: Instant) {
        self.open_windows(id);
        while let Some(connection) = self.conns.table.get_mut(id)
            && let Some(why) = connection.mux.take_unread()
        {
            self.on_unread(id, why, now);
        }
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let streams = connection.streams.all();
        let Some(downstream) = connection.downstream_mut() else { return };
        (downstream.closing, downstream.broken) = (true, true);
        if let Some(http) = downstream.context.http() {
            http.stats.downstream_cx_protocol_error.inc();
        }
        for index in streams {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.flags.set(Flags::DOWNSTREAM_PROTOCOL_ERROR);
                stream.recorder.note(|record| record.details = error.details());
                self.finish(index, now);
            }
        }
        self.close_downstream(id, now);
    }

    /// The client sent FIN.
    pub(crate) fn on_downstream_ended(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.mux.ended();
        match connection.mux.at_end() {
            AtEnd::Told if connection.is_busy() || connection.is_answered() => self.pump(id, now),
            AtEnd::Waits if connection.is_busy() => {}
            AtEnd::Told | AtEnd::Waits | AtEnd::Over => {
                for index in connection.streams.all() {
                    self.streams.mark_gone(index);
                    self.abandon(index, details::DOWNSTREAM_REMOTE_DISCONNECT, now);
                }
                self.cancel_head(id, now);
                let closer = Closer::Remote;
                self.listeners.close_client(id, closer, &mut self.conns, &mut self.env, now);
            }
        }
    }

    /// A closing connection is gone.
    pub(crate) fn on_closing_closed(&mut self, id: ConnectionId, now: Instant) {
        self.listeners.count_closing(id, &mut self.conns, &mut self.env, now);
        self.conns.table.remove(id);
        self.listeners.check_drained(&mut self.env);
    }

    /// The client's connection is gone.
    pub(crate) fn on_downstream_closed(
        &mut self,
        id: ConnectionId,
        failure: Failure,
        now: Instant,
    ) {
        self.cancel_head(id, now);
        let client = self.conns.table.get_mut(id).and_then(Connection::downstream_mut);
        let closer = match client {
            Some(client) if failure == Failure::Reset => {
                client.fail_handshake(Fault::Reset);
                // As in Envoy, whose TLS does not say so of a handshake.
                if client.ready { Closer::RemoteReset } else { Closer::Remote }
            }
            Some(_) | None => Closer::Remote,
        };
        self.listeners.count_downstream_close(id, closer, &mut self.conns, &mut self.env, now);
        let waiting = self.conns.waiting_for(id);
        let Some(mut connection) = self.conns.table.remove(id) else { return };
        let streams = std::mem::take(&mut connection.streams);
        let client_failure = connection.told().failure;
        for index in streams.iter() {
            self.streams.note_failure(index, client_failure);
            if let Some(stream) = self.streams.get_mut(index)
                && stream.context.bolt().is_none()
            {
                connection.weigh(stream, waiting);
            }
            if failure == Failure::Reset
                && let Some(stream) = self.streams.get_mut(index)
                && let Kind::Tcp(_) = stream.kind
            {
                stream.recorder.note(|record| record.close_type = CloseType::RemoteReset);
            }
            self.streams.mark_gone(index);
            self.finish(index, now);
        }
        self.listeners.check_drained(&mut self.env);
    }

    pub(crate) fn on_downstream_deadline(
        &mut self,
        id: ConnectionId,
        timer: ConnectionTimer,
        now: Instant,
    ) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        // A client that has begun a request when a drain begins gets its answer: the drain's deadline bounds how long
        // that takes.
        if timer == ConnectionTimer::DelayedClose && connection.is_amid_head() {
            return;
        }
        let (stream, is_http2) = (connection.is_busy().then_some(()), connection.mux.is_http2());
        let Some(downstream) = connection.downstream_mut() else { return };
        let context = downstream.context.clone();
        if timer == ConnectionTimer::RequestHead && !downstream.ready {
            context.stats.downstream_cx_transport_socket_connect_timeout.inc();
            let particulars = downstream.particulars.get_or_insert_default();
            particulars.termination = details::TRANSPORT_SOCKET_TIMEOUT;
            let closer = Closer::Local(close::TRANSPORT_SOCKET_TIMEOUT);
            return self.drop_client(id, Close::Flush, closer, now);
        }
        let Some(http) = context.http() else { return };
        let idle = self.env.idle_of(http.config.idle_timeout);
        if (timer, stream) == (ConnectionTimer::Idle, None)
            && self.conns.settle(id, idle, &mut self.env, now)
        {
            return;
        }
        let Some(downstream) = self.conns.table.get_mut(id).and_then(Connection::downstream_mut)
        else {
            return;
        };
        match (timer, stream) {
            (ConnectionTimer::RequestHead, _) if is_http2 => {
                http.stats.downstream_rq_header_timeout.inc();
                self.end_streams(id, details::REQUEST_HEADER_TIMEOUT, now);
            }
            (ConnectionTimer::Flush, _) => self.flush_or_reset(id, now),
            (ConnectionTimer::Heartbeat, _) => self.on_heartbeat_deadline(id, now),
            (ConnectionTimer::Idle | ConnectionTimer::DelayedClose, None) => {
                http.stats.downstream_cx_idle_timeout.inc();
                self.close_downstream(id, now);
            }
            (ConnectionTimer::RequestHead, None) => {
                downstream.closing = true;
                http.stats.downstream_rq_header_timeout.inc();
                let leg = Leg { connection: id, number: ONLY };
                let Some(index) = self.open_unread(leg, Head::unread(), now) else { return };
                let text = b"request header timeout";
                self.local_reply(index, 408, text, details::REQUEST_HEADER_TIMEOUT, now);
            }
            (ConnectionTimer::MaxDuration, stream) => {
                http.stats.downstream_cx_max_duration_reached.inc();
                downstream.closing = true;
                if stream.is_none() {
                    self.close_downstream(id, now);
                } else {
                    self.conns.send_go_away(id, &mut self.env, now);
                }
            }
            (
                ConnectionTimer::Idle
                | ConnectionTimer::RequestHead
                | ConnectionTimer::DelayedClose,
                Some(_),
            ) => {}
        }
    }

    /// No other frame can come before the end of a header block (RFC 9113 §4.3): with it all streams wait, and end.
    fn end_streams(&mut self, id: ConnectionId, details: &'static str, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        for index in connection.streams.all() {
            self.abandon(index, details, now);
        }
        self.close_downstream(id, now);
    }

    /// Answers that wait for windows are over for us: what they still have to say has a time to leave.
    pub(crate) fn await_windows(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let timer = ConnectionTimer::Flush;
        let left = |whole| self.env.reduced(ScaledTime::StreamFlush, whole);
        let Some(due) = connection.mux.flush_due(left) else { return };
        if connection.deadlines.get(timer as usize).is_none_or(|set| due < set) {
            self.conns.set_connection_timer(id, timer, due, &mut self.env);
        }
    }

    /// Gives up those of these answers that have had their time.
    fn flush_or_reset(&mut self, id: ConnectionId, now: Instant) {
        self.conns.encode_for(id, &mut self.env);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let left = |whole| self.env.reduced(ScaledTime::StreamFlush, whole);
        connection.mux.reset_overdue(left, now, &mut self.conns.out);
        self.await_windows(id);
        self.end_if_through(id, now);
    }

    /// Between two requests of a connection.
    pub(crate) fn rest_downstream(&mut self, id: ConnectionId, now: Instant) {
        let draining = self.env.draining.is_on();
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.rested = now;
        let Some(downstream) = connection.downstream() else { return };
        let Some(http) = downstream.context.http() else { return };
        let idle = self.env.idle_of(http.config.idle_timeout);
        let slot = TimerSlot::of_connection(id);
        if let Some(look) = connection.next_look(idle, now) {
            let idle = ConnectionTimer::Idle as usize;
            connection.deadlines.set(idle, look, slot, &mut self.env.timers);
        }
        if draining {
            connection.deadlines.set(
                ConnectionTimer::DelayedClose as usize,
                now + crate::conn::drain::QUIET,
                slot,
                &mut self.env.timers,
            );
        }
        if connection.mux.is_alone() && connection.mux.buffered() > 0 {
            self.env.work.push_back(Work::Read(id));
        } else if connection.reading != Reading::On || connection.congested {
            self.update_reading(id);
        }
    }
}

/// A request begins; whether its client is to be told that no other is wanted.
#[inline(always)]
fn note_request(
    (index, stream): (StreamIndex, &mut Stream),
    connection: &mut Connection,
    http: &HttpContext,
    head: Head,
    env: &mut Env,
    now: Instant,
) -> bool {
    let config = &http.config;
    let (is_http2, end) = (head.version() == Version::Http2, stream.request_end == Progress::Ended);
    http.stats.downstream_rq_total.inc();
    if is_http2 {
        http.stats.downstream_rq_http2_total.inc();
    } else {
        http.stats.downstream_rq_http1_total.inc();
    }
    http.stats.downstream_rq_active.inc();
    connection.deadlines.clear(ConnectionTimer::Idle as usize);
    connection.deadlines.clear(ConnectionTimer::RequestHead as usize);
    let mut is_last = false;
    if let Some(downstream) = connection.downstream_mut() {
        downstream.requests += 1;
        let limit = config.max_requests_per_connection;
        if limit > 0 && downstream.requests >= limit && !downstream.closing {
            downstream.closing = true;
            http.stats.downstream_cx_max_requests_reached.inc();
        }
        is_last = downstream.closing;
    }
    stream.request = head.into();
    stream.trace_begin(Phase::Filters);
    stream.head_only = stream.request.method() == Method::Head;
    if end {
        stream.times.request_end = Some(now);
    }
    if let Some(idle) = config.stream_idle_timeout {
        let idle = env.reduced(ScaledTime::StreamIdle, idle);
        stream.set_idle(index, Some(idle), now, &mut env.timers);
    }
    let others = [
        (HttpTimer::MaxDuration, config.max_stream_duration),
        (HttpTimer::Request, config.request_timeout.filter(|_| !end)),
        (HttpTimer::LogFlush, config.log_flush_interval),
    ];
    for (timer, after) in others {
        if let Some(after) = after {
            stream.set_timer(index, timer, now + after, &mut env.timers);
        }
    }
    is_http2 && is_last
}

impl Streams {
    /// The TLS of a client has failed: as in Envoy, its requests do not tell.
    pub(crate) fn note_failure(&mut self, index: StreamIndex, failure: &'static str) {
        let Some(stream) = self.get_mut(index) else { return };
        if matches!(stream.kind, Kind::Tcp(_)) {
            stream.recorder.note(|record| record.client.failure = failure);
        }
    }

    pub(crate) fn mark_gone(&mut self, index: StreamIndex) {
        let Some(stream) = self.get_mut(index) else { return };
        if let (Kind::Tcp(_), UpstreamState::Active(_)) = (stream.kind, stream.upstream) {
            // As in Envoy: what a client ends that has its upstream is over, however it ended.
            return;
        }
        stream.flags.set(Flags::DOWNSTREAM_CONNECTION_TERMINATION);
        if stream.recorder.record().details.is_empty() || stream.response_end != Progress::Ended {
            stream.recorder.note(|record| record.details = details::DOWNSTREAM_REMOTE_DISCONNECT);
        }
        if let Some(http) = stream.context.http() {
            http.stats.downstream_cx_destroy_active_rq.inc();
            http.stats.downstream_cx_destroy_remote_active_rq.inc();
        }
    }
}

/// The body of an answer to something that is not HTTP.
pub(crate) const fn reason(status: u16) -> &'static [u8] {
    match status {
        408 => b"Request Timeout",
        500 => b"Internal Server Error",
        426 => b"Upgrade Required",
        431 => b"Request Header Fields Too Large",
        501 => b"Not Implemented",
        505 => b"HTTP Version Not Supported",
        _ => b"Bad Request",
    }
}
