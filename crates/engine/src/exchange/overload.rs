//! What the process's load asks for: requests that are refused, connections that end with their response, listening
//! sockets that are left alone.

use towpath_proto::{ConnectionId, Instant, Output};

use crate::conn::context::ChainContext;
use crate::conn::{ConnectionTimer, Connections};
use crate::downstream::listener::ListenerPhase;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::edge::wanted_upgrade;
use crate::exchange::stream::Progress;
use crate::exchange::timers::{HttpTimer, StreamTimer as _};
use crate::ids::{Kind, StreamIndex};
use crate::record::details;
use crate::snapshot::overload::{Action, Levels, ScaledTime};

impl Exchange {
    /// A snapshot is there, with an overload manager or without one.
    pub(crate) fn take_overload(&mut self) {
        let held = self.env.overload.as_ref().is_some_and(|overload| overload.is_holding);
        self.env.take_overload(self.snapshot.overload.as_ref());
        if held || self.env.overload.is_some() {
            // Sockets that are new are not held yet.
            self.hold_listeners(held);
        }
    }

    /// The load has changed.
    pub(crate) fn set_levels(&mut self, levels: Levels, now: Instant) {
        let held = self.env.overload.as_ref().is_some_and(|overload| overload.is_holding);
        let reduction = self.env.reduction();
        let resets = self.env.set_levels(levels);
        if (self.env.reduction() - reduction).abs() > 0.0 {
            self.reduce_idle(now);
            self.reduce_connections(reduction, now);
            self.reduce_streams(reduction, now);
        }
        self.look_at_memory(resets, now);
        let holds = self.env.overload.as_ref().map(|it| it.is_full(Action::StopConnections));
        if holds.is_some_and(|holds| holds != held) {
            self.hold_listeners(held);
        }
    }

    /// Idle connections of clients end at another time.
    #[cold]
    fn reduce_idle(&mut self, now: Instant) {
        for id in self.conns.table.ids() {
            let Some(connection) = self.conns.table.get_mut(id) else { continue };
            let Some(downstream) = connection.downstream().filter(|it| it.ready) else { continue };
            let Some(http) = downstream.context.http() else { continue };
            let idle = self.env.idle_of(http.config.idle_timeout);
            if connection.is_busy() {
                continue;
            }
            if let Some(look) = connection.next_look(idle, connection.rested) {
                let timer = ConnectionTimer::Idle;
                self.conns.set_connection_timer(id, timer, look.max(now), &mut self.env);
            }
        }
    }

    /// Handshakes of clients, their connections of HTTP, and answers that wait on these end at another time.
    #[cold]
    fn reduce_connections(&mut self, before: f64, now: Instant) {
        for id in self.conns.table.ids() {
            // A later one is set when the one that is set is over.
            self.await_windows(id);
            let Some(connection) = self.conns.table.get(id) else { continue };
            let Some(downstream) = connection.downstream() else { continue };
            let context = &downstream.context;
            let (time, timer, whole) = match (downstream.ready, context.http()) {
                (false, _) => (
                    ScaledTime::Handshake,
                    ConnectionTimer::RequestHead,
                    context.chain.transport_timeout,
                ),
                (true, Some(http)) => (
                    ScaledTime::ConnectionMax,
                    ConnectionTimer::MaxDuration,
                    http.config.max_connection_duration,
                ),
                (true, None) => continue,
            };
            let moved = whole.and_then(|whole| self.env.moved(time, whole, before));
            let due = connection.deadlines.get(timer as usize);
            if let (Some(moved), Some(due)) = (moved, due) {
                let at = moved.deadline(due, now);
                self.conns.set_connection_timer(id, timer, at, &mut self.env);
            }
        }
    }

    /// Idle requests end at another time.
    #[cold]
    fn reduce_streams(&mut self, before: f64, now: Instant) {
        let indices: Vec<_> = self.streams.indices().collect();
        for index in indices {
            let Some(stream) = self.streams.get_mut(index) else { continue };
            let due = stream.deadlines.get(HttpTimer::Idle.place());
            let (Kind::Http(_), Some(due)) = (stream.kind, due) else { continue };
            let of_route = stream.routed().and_then(|routed| routed.forward()?.idle_timeout);
            let of_listener = stream.context.http().map(|http| http.config.stream_idle_timeout);
            let whole = of_route.or(of_listener).flatten();
            let moved =
                whole.and_then(|whole| self.env.moved(ScaledTime::StreamIdle, whole, before));
            if let Some(moved) = moved {
                stream.idle_ns = u64::try_from(moved.now().as_nanos()).unwrap_or(u64::MAX);
                let at = moved.deadline(due, now);
                stream.set_timer(index, HttpTimer::Idle, at, &mut self.env.timers);
            }
        }
    }

    /// Has listening sockets hold clients that connect, or take them again, if they were `held`.
    fn hold_listeners(&mut self, held: bool) {
        let overload = self.env.overload.as_mut();
        let holds = overload.is_some_and(|overload| {
            overload.is_holding = overload.is_full(Action::StopConnections);
            overload.is_holding
        });
        if !holds && !held {
            return;
        }
        for state in &self.listeners.slots {
            if state.state != ListenerPhase::Open {
                continue;
            }
            let is_held = holds && !state.config.bypasses_overload;
            for &(listener, _) in &state.sockets {
                self.conns.push(Output::Hold { listener, is_held }, &mut self.env);
            }
        }
    }

    /// Answers a request that comes at a bad time; whether it did.
    #[cold]
    pub(crate) fn refuse_request(
        &mut self,
        index: StreamIndex,
        context: &ChainContext,
        now: Instant,
    ) -> bool {
        let Some(http) = context.http() else { return false };
        if !self.env.refuses_request(&context.listener) {
            return false;
        }
        http.stats.downstream_rq_overload_close.inc();
        if let Some(stream) = self.streams.get_mut(index) {
            stream.recorder.note(|record| record.protocol = Some(stream.request.version()));
            if wanted_upgrade(&stream.request).is_some() {
                // What follows may be meant for the other protocol: it is not read as requests.
                stream.request_end = Progress::Streaming;
            }
        }
        let mut head = self.env.heads.take();
        head.set_status(503);
        if http.config.tells_overload {
            head.append_bytes(b"x-envoy-local-overloaded", b"true");
        }
        self.answer(index, head, b"envoy overloaded".to_vec(), details::OVERLOAD, now);
        true
    }

    /// Answers a request whose host is known, at a bad time; whether it did.
    #[cold]
    pub(crate) fn refuse_at_host(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        if stream.attempts > 1 || !matches!(stream.kind, Kind::Http(_)) {
            return false;
        }
        let context = stream.context.clone();
        let Some(http) = context.http() else { return false };
        if !self.env.refuses_at_host(&context.listener) {
            return false;
        }
        http.stats.rq_overload_local_reply.inc();
        if let Some(stream) = self.streams.get_mut(index) {
            stream.recorder.note(|record| record.upstream_host = None);
        }
        self.local_reply(index, 503, b"envoy overloaded", details::OVERLOAD, now);
        true
    }

    /// Whether a client's connection that would go on ends with the response at hand.
    #[cold]
    pub(crate) fn ends_keep_alive(id: ConnectionId, conns: &Connections, env: &mut Env) -> bool {
        let Some(downstream) = conns.table.get(id).and_then(|it| it.downstream()) else {
            return false;
        };
        if downstream.closing || !env.ends_keep_alive(&downstream.context.listener) {
            return false;
        }
        if let Some(http) = downstream.context.http() {
            http.stats.downstream_cx_overload_disable_keepalive.inc();
        }
        true
    }
}
