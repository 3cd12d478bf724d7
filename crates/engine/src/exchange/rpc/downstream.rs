//! Clients that speak Bolt.
//!
//! Arrives: request heads from the forwarding loop, ends of connections. Leaves: an open stream for each request on its
//! way to `router.rs`; answers to heartbeats; connections closed when their last call is over.

use std::time::Duration;

use towpath_proto::bolt::{Error, Frame, Kind};
use towpath_proto::head::Head;
use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::ConnectionTimer;
use crate::conn::drain::QUIET;
use crate::conn::spans::Phase;
use crate::env::Work;
use crate::exchange::Exchange;
use crate::exchange::edge::Origin;
use crate::exchange::stream::{Progress, RouteRef, Stream};
use crate::ids::{Closer, Leg, StreamIndex};
use crate::record::{Flags, details};
use crate::snapshot::route::Action;

impl Exchange {
    /// A request came, whole.
    pub(crate) fn on_call(&mut self, leg: Leg, frame: Frame, now: Instant) {
        let waiting = self.conns.waiting_for(leg.connection);
        let Some(connection) = self.conns.table.get_mut(leg.connection) else { return };
        let opened = self.streams.open_on(connection, leg.number, waiting, &mut self.env, now);
        let Some((index, stream)) = opened else { return };
        let context = stream.context.clone();
        let (Some(http), Some(bolt)) = (context.http(), context.bolt()) else { return };
        http.stats.downstream_rq_total.inc();
        http.stats.downstream_rq_active.inc();
        connection.deadlines.clear(ConnectionTimer::Idle as usize);
        connection.deadlines.clear(ConnectionTimer::DelayedClose as usize);
        if let Some(downstream) = connection.downstream_mut() {
            downstream.requests += 1;
        }
        if is_head_read(stream, self.env.slow_after) {
            let head = frame.head(&mut self.env.heads).unwrap_or_else(|_| Head::unread());
            stream.request.put(head, &mut self.env.heads);
        }
        stream.trace_begin(Phase::Filters);
        stream.recorder.note(|record| record.wire_received = frame.bytes().len() as u64);
        stream.recorder.note(|record| record.bytes_received = frame.content().len() as u64);
        let (is_oneway, codec) = (frame.kind() == Kind::Oneway, frame.codec());
        (stream.is_oneway, stream.codec, stream.frame) = (is_oneway, codec, Some(frame));
        if is_oneway {
            bolt.stats.downstream_rq_oneway.inc();
        }
        stream.request_end = Progress::Ended;
        stream.times.request_end = Some(now);
        self.route_call(index, now);
    }

    /// Finds the route of a call.
    pub(crate) fn route_call(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let (Some(http), Some(bolt)) = (context.http(), context.bolt()) else { return };
        stream.trace_phase(Phase::Route);
        let picked = stream.frame.as_ref().and_then(|frame| bolt.config.pick(frame));
        let route = picked.and_then(|picked| u32::try_from(picked).ok());
        stream.route = route.map(|route| RouteRef::new(0, route));
        let random = self.env.random.next();
        let table = &http.config.routes;
        let route = picked.and_then(|picked| table.hosts.first()?.routes.get(picked));
        match route.map(|route| &route.action) {
            Some(Action::Forward(forward)) => {
                self.begin_forward(index, forward, Origin::Edge, random, now);
            }
            Some(Action::Redirect(_) | Action::Direct { .. }) | None => {
                http.stats.rq_total.inc();
                http.stats.no_route.inc();
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.flags.set(Flags::NO_ROUTE_FOUND);
                }
                self.local_reply(index, 404, b"", details::ROUTE_NOT_FOUND, now);
            }
        }
    }

    /// A call waits for a connection upstream: its client may have only so many of them.
    pub(crate) fn begin_waiting(&mut self, index: StreamIndex) {
        let Some(Leg { connection, number }) = self.streams.get(index).map(|it| it.downstream)
        else {
            return;
        };
        if let Some(connection) = self.conns.table.get_mut(connection) {
            connection.mux.set_waiting(number, true);
        }
    }

    /// A call has its connection, or needs none any more.
    pub(crate) fn end_waiting(&mut self, index: StreamIndex) {
        let Some(Leg { connection: id, number }) = self.streams.get(index).map(|it| it.downstream)
        else {
            return;
        };
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.mux.set_waiting(number, false);
        if connection.mux.may_resume() {
            self.env.work.push_back(Work::Read(id));
        }
    }

    /// A call is over: reads on, rests, or closes the connection.
    pub(crate) fn after_call(&mut self, id: ConnectionId, now: Instant) {
        self.drain_client(id, now);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if connection.mux.may_resume() {
            self.env.work.push_back(Work::Read(id));
        } else if self.conns.is_through(id) {
            self.leave(id, now);
            return;
        }
        self.await_windows(id);
        if self.conns.table.get(id).is_some_and(|connection| !connection.is_busy()) {
            self.rest_downstream(id, now);
        }
    }

    /// What a connection has received is read: one that should end, and has no call, does.
    pub(crate) fn end_if_through(&mut self, id: ConnectionId, now: Instant) {
        if self.conns.is_through(id) {
            self.leave(id, now);
        }
    }

    /// Ends a connection behind the last answer. Whatever the client still sends is read until it has seen that,
    /// because a reset would take answers with it that it has not read.
    pub(crate) fn leave(&mut self, id: ConnectionId, now: Instant) {
        self.listeners.close_within(
            id,
            LINGER,
            Closer::Local(""),
            &mut self.conns,
            &mut self.env,
            now,
        );
    }

    /// Where a drain comes to a client's connection, or no traffic is wanted: it is told, or nothing more is read from
    /// it.
    pub(crate) fn drain_client(&mut self, id: ConnectionId, now: Instant) {
        if !self.env.draining.is_on() && !self.env.draining.health_fails() {
            return;
        }
        let Some(connection) = self.conns.table.get(id) else { return };
        let Some(downstream) = connection.downstream() else { return };
        // By HTTP/2 a response's head decides.
        let context = downstream.context.clone();
        let decides = if connection.mux.is_http2() {
            connection.mux.had_notice(now)
        } else {
            self.env.draining.closes(&context.listener, &mut self.env.random, now)
        };
        if decides {
            self.tell_of_drain(id, now);
        }
    }

    /// Tells a client whose protocol has a word for it; once it has had the time to hear it, no more is read from it.
    pub(crate) fn tell_of_drain(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let Some(downstream) = connection.downstream() else { return };
        if downstream.closing || connection.mux.is_alone() {
            return;
        }
        let context = downstream.context.clone();
        if self.conns.send_go_away(id, &mut self.env, now) {
            if let Some(http) = context.http() {
                http.stats.downstream_cx_drain_close.inc();
            }
            // A client that has heard it and asks no more is closed by us.
            let timer = ConnectionTimer::DelayedClose;
            self.conns.set_connection_timer(id, timer, now + QUIET, &mut self.env);
        }
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if connection.mux.had_notice(now)
            && let Some(downstream) = connection.downstream_mut()
        {
            downstream.closing = true;
            self.update_reading(id);
        }
    }

    /// Cuts off a client that does not read its answers.
    pub(crate) fn check_reader(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        if connection.outstanding + self.conns.out.len() <= connection.mux.max_unread() {
            return;
        }
        if let Some(bolt) = connection.downstream().and_then(|downstream| downstream.context.bolt())
        {
            bolt.stats.downstream_cx_slow_reader.inc();
        }
        self.cut_off(id, details::SLOW_READER, now);
    }

    /// What came from a client is not Bolt: where the next frame begins is not known.
    pub(crate) fn on_frame_error(&mut self, id: ConnectionId, _error: Error, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        if let Some(http) = connection.downstream().and_then(|downstream| downstream.context.http())
        {
            http.stats.downstream_cx_protocol_error.inc();
        }
        self.cut_off(id, details::BOLT_CODEC_ERROR, now);
    }

    /// Ends a connection at once, and its calls with it.
    pub(crate) fn cut_off(&mut self, id: ConnectionId, details: &'static str, now: Instant) {
        self.listeners.count_downstream_close(
            id,
            Closer::Local(""),
            &mut self.conns,
            &mut self.env,
            now,
        );
        let Some(connection) = self.conns.table.get(id) else { return };
        let calls = connection.streams.all();
        // The connection goes first, so that nothing that ends with it is answered or read on.
        self.conns.end_connection(id, Close::Abort, &mut self.env);
        for index in calls {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.flags.set(Flags::DOWNSTREAM_PROTOCOL_ERROR);
                stream.recorder.note(|record| record.details = details);
                self.finish(index, now);
            }
        }
        self.listeners.check_drained(&mut self.env);
    }
}

/// Whether a log or filter reads the heads of a stream: what routes is in its frames, and heads cost more than all the
/// rest.
pub(crate) fn is_head_read(stream: &Stream, slow_after: Duration) -> bool {
    !stream.context.access_logs().is_empty()
        || stream.recorder.span().is_some()
        || slow_after < Duration::MAX
}

/// How long a client has to see the end of its connection; Envoy's `delayed_close_timeout`.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
