//! One worker: everything between the sockets, as a [`Machine`].
//!
//! Arrives: [`Input`]s of one driver. Leaves: [`Output`]s, in the order in which they must happen.
//!
//! Workers share nothing but the snapshot (read only) and the counters (each has its own). This file only
//! hands on: each event goes to the file that is named for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::tls::Fault;
use towpath_proto::{Close, ConnectionId, Failure, Input, Instant, Machine, Output};

use crate::connection::Connections;
use crate::connection::{Codec, ConnectionTimer, Role};
use crate::env::Env;
use crate::env::TimerSlot;
use crate::env::Work;
use crate::exchange::Exchange;
use crate::forward::Congestion;
use crate::ids::StreamIndex;
use crate::message::{FromWorker, Message, ToWorker};
use crate::serving::SERVES;
use crate::snapshot::ClusterId;
use crate::stats::Registry;
use crate::stream::{StreamTimer, Streams};

/// How to make a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Which of the workers this is, from 0.
    pub index: u32,
    /// How many there are.
    pub workers: u32,
    /// What its random numbers (balancing, request ids, back-off) start from. Take it from the
    /// operating system, or from a simulation's seed.
    pub seed: u64,
    /// Where its counters are registered.
    pub registry: Arc<Registry>,
    /// The machine's name, for logs (`%HOSTNAME%`).
    pub hostname: Arc<str>,
}

/// The engine's machine.
#[derive(Debug)]
pub struct Worker {
    exchange: Exchange,
}

impl Machine for Worker {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        match input {
            Input::Received { connection, chunk } => {
                self.on_received(connection, chunk, now);
            }
            Input::Sent { connection, bytes } => self.exchange.on_sent(connection, bytes, now),
            Input::Accepted { .. } | Input::Listening { .. } if !SERVES => {}
            Input::Accepted { listener, connection, local, peer } => {
                self.exchange.on_accepted(listener, connection, local, peer, now);
            }
            Input::Connected { attempt, connection, local } => {
                self.exchange.on_connected(attempt, connection, local, now)
            }
            Input::ConnectFailed { attempt, failure } => {
                self.exchange.on_connect_failed(attempt, failure, now)
            }
            Input::Ended { connection } => self.exchange.on_ended(connection, now),
            Input::Closed { connection, failure } => self.on_closed(connection, failure, now),
            Input::Listening { listener, outcome } => {
                self.exchange.listeners.on_listening(listener, outcome, &mut self.exchange.env)
            }
            Input::Message(message) => self.on_message(message, now),
            Input::Timeout => self.on_timeout(now),
            Input::Resolved { query, outcome } => self.exchange.on_resolved(query, outcome, now),
            Input::Inspected { connection, facts } => {
                self.exchange.on_inspected(connection, facts, now)
            }
        }
        self.do_work(now);
    }

    fn poll(&mut self, now: Instant) -> Output<Message> {
        if self.exchange.conns.out_for.is_some() {
            let first = self.exchange.conns.take_out(&mut self.exchange.env);
            if first.is_none() {
                self.exchange.conns.flush_out(&mut self.exchange.env);
            }
            self.exchange.end_broken(now);
            self.do_work(now);
            if let Some(output) = first {
                return output;
            }
        }
        if let Some(output) = self.exchange.env.outputs.pop_front() {
            return output;
        }
        if self.exchange.upstreams.app.is_used() && self.exchange.streams.len() == 0 {
            // An app's engine sleeps until something is due.
            self.exchange.env.timers.prune();
        }
        self.exchange.env.timers.next().map_or(Output::Idle, Output::Wait)
    }
}

impl Worker {
    /// A worker that waits for its first snapshot.
    #[must_use]
    pub fn new(options: WorkerOptions) -> Self {
        Self { exchange: Exchange::new(Env::new(options)) }
    }

    /// Connections that are open, of both sides.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.exchange.conns.table.len()
    }

    /// Streams that are open.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.exchange.streams.len()
    }

    /// Does what was left for later, and what that leaves.
    fn do_work(&mut self, now: Instant) {
        while let Some(work) = self.exchange.env.work.pop_front() {
            match work {
                Work::Read(connection) => self.exchange.pump(connection, now),
                Work::Offer(connection) => self.exchange.offer(connection, now),
                Work::BackedUp(connection) => self.exchange.on_backed_up(connection),
            }
        }
    }

    fn on_message(&mut self, message: Message, now: Instant) {
        match message {
            Message::To(message) if !SERVES => self.on_message_of_app(message, now),
            Message::To(ToWorker::Snapshot(snapshot)) => {
                self.exchange.snapshot = snapshot;
                self.exchange.env.logs.resize(self.exchange.snapshot.sinks.len());
                self.exchange.update_clusters(now);
                self.exchange.update_listeners(now);
            }
            Message::To(ToWorker::Hosts { cluster, endpoints }) => {
                self.exchange.update_hosts(cluster, &endpoints, now)
            }
            Message::To(ToWorker::Health { cluster, hosts }) => {
                self.exchange.upstreams.update_health(
                    cluster,
                    hosts,
                    &mut self.exchange.conns,
                    &mut self.exchange.env,
                    now,
                )
            }
            Message::To(ToWorker::Drain(drain)) => self.exchange.listeners.begin_drain(
                drain,
                &mut self.exchange.conns,
                &mut self.exchange.env,
                now,
            ),
            Message::To(ToWorker::FailHealth(fails)) => {
                self.exchange.env.draining.set_health_fails(fails)
            }
            Message::To(ToWorker::Terminate) => self.exchange.terminate(now),
            Message::To(ToWorker::Describe { token }) => {
                let clusters = self.exchange.upstreams.clusters.describe();
                self.exchange.env.tell(FromWorker::Description { token, clusters });
            }
            Message::To(ToWorker::WallClock { epoch_unix_ns }) => {
                self.exchange.env.clock.set(epoch_unix_ns)
            }
            Message::To(ToWorker::ReportSlow { after }) => self.exchange.env.slow_after = after,
            Message::To(ToWorker::Local(command)) => self.exchange.on_command(command, now),
            Message::From(_) | Message::ToMonitor(_) | Message::FromMonitor(_) => {}
        }
    }

    /// What an engine inside an app is told; the rest is for one that serves.
    fn on_message_of_app(&mut self, message: ToWorker, now: Instant) {
        match message {
            ToWorker::WallClock { epoch_unix_ns } => self.exchange.env.clock.set(epoch_unix_ns),
            ToWorker::Local(command) => self.exchange.on_command(command, now),
            ToWorker::Snapshot(_)
            | ToWorker::Hosts { .. }
            | ToWorker::Health { .. }
            | ToWorker::Drain(_)
            | ToWorker::FailHealth(_)
            | ToWorker::Terminate
            | ToWorker::Describe { .. }
            | ToWorker::ReportSlow { .. } => {}
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        while let Some(number) = self.exchange.env.timers.expired(now) {
            match TimerSlot::from_number(number) {
                TimerSlot::Logs | TimerSlot::Drain if !SERVES => {}
                TimerSlot::Connection(slot) => self.on_connection_timer(slot, number, now),
                TimerSlot::Stream(slot) => self.on_stream_timer(StreamIndex(slot), number, now),
                TimerSlot::Attempt(slot) => self.exchange.on_connect_timeout(slot, now),
                TimerSlot::Logs => self.exchange.env.hand_over_logs(),
                TimerSlot::Drain => self.exchange.on_drain_timer(now),
                TimerSlot::Origin(slot) => self.exchange.upstreams.advance_origin(
                    ClusterId(slot),
                    &mut self.exchange.conns,
                    &mut self.exchange.env,
                    now,
                ),
            }
        }
    }

    fn on_connection_timer(&mut self, slot: u32, number: u32, now: Instant) {
        let Some(id) =
            self.exchange.conns.table.in_slot(slot as usize).map(|connection| connection.id)
        else {
            return;
        };
        let Some(connection) = self.exchange.conns.table.get_mut(id) else { return };
        let expired = connection.deadlines.take_expired(now, number, &mut self.exchange.env.timers);
        for timer in ConnectionTimer::ALL {
            if expired[timer as usize] && self.exchange.conns.table.get(id).is_some() {
                self.exchange.on_connection_deadline(id, timer, now);
            }
        }
    }

    fn on_stream_timer(&mut self, index: StreamIndex, number: u32, now: Instant) {
        let Some(stream) = self.exchange.streams.get_mut(index) else { return };
        let serial = stream.record.stream;
        let expired = stream.deadlines.take_expired(now, number, &mut self.exchange.env.timers);
        for timer in StreamTimer::ALL {
            let alive = self
                .exchange
                .streams
                .get(index)
                .is_some_and(|stream| stream.record.stream == serial);
            if expired[timer as usize] && alive {
                self.exchange.on_stream_deadline(index, timer, now);
            }
        }
    }

    fn on_received(&mut self, id: ConnectionId, chunk: Bytes, now: Instant) {
        let Some(connection) = self.exchange.conns.table.get_mut(id) else {
            return self.exchange.on_handshake_received(id, &chunk, now);
        };
        if connection.tls.is_some() {
            return self.exchange.on_sealed(id, &chunk, now);
        }
        connection.bytes_received += chunk.len() as u64;
        if !matches!(connection.role, Role::Closing(_)) {
            connection.codec.receive(chunk);
            self.exchange.pump(id, now);
        }
    }

    fn on_closed(&mut self, id: ConnectionId, failure: Failure, now: Instant) {
        if self.exchange.conns.out_for == Some(id) {
            self.exchange.conns.flush_out(&mut self.exchange.env);
        }
        let Some(connection) = self.exchange.conns.table.get(id) else {
            let reset = failure == Failure::Reset;
            let fault = if reset { Fault::Reset } else { Fault::Ended };
            return self.exchange.on_handshake_ended(id, fault, now);
        };
        match &connection.role {
            Role::Closing(_) => drop(self.exchange.conns.table.remove(id)),
            Role::Downstream(_) => self.exchange.on_downstream_closed(id, failure, now),
            Role::Upstream(_) => self.exchange.on_upstream_closed(id, failure, now),
        }
        self.exchange.env.timers.clear(TimerSlot::of_connection(id));
    }
}

impl Exchange {
    fn on_connection_deadline(&mut self, id: ConnectionId, timer: ConnectionTimer, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        match (&connection.role, timer) {
            (Role::Closing(context), _) => {
                if let Some(http) = context.http() {
                    http.stats.downstream_cx_delayed_close_timeout.inc();
                }
                self.conns.end_connection(id, Close::Flush, &mut self.env);
            }
            (Role::Downstream(_), timer) => self.on_downstream_deadline(id, timer, now),
            (Role::Upstream(_), timer) => self.on_upstream_deadline(id, timer, now),
        }
    }

    pub(crate) fn on_sent(&mut self, id: ConnectionId, bytes: usize, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else {
            return self.conns.on_handshake_sent(id, bytes);
        };
        connection.bytes_sent += bytes as u64;
        connection.outstanding = connection.outstanding.saturating_sub(bytes);
        let carries_calls = matches!(connection.codec, Codec::BoltClient(_));
        if connection.congested && connection.outstanding <= connection.high_watermark / 2 {
            connection.congested = false;
            self.upstreams.count_congestion(id, Congestion::Drained, &mut self.conns);
            self.on_room(id, now);
        }
        if carries_calls {
            self.let_frames_go(id);
        }
    }

    pub(crate) fn on_ended(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else {
            return self.on_handshake_ended(id, Fault::Ended, now);
        };
        connection.ended = true;
        match &connection.role {
            Role::Closing(_) => self.conns.end_connection(id, Close::Flush, &mut self.env),
            Role::Downstream(_) => self.on_downstream_ended(id, now),
            Role::Upstream(_) => self.on_upstream_ended(id, now),
        }
    }
}

impl Streams {
    pub(crate) fn set_stream_timer(
        &mut self,
        index: StreamIndex,
        timer: StreamTimer,
        at: Instant,
        env: &mut Env,
    ) {
        if let Some(stream) = self.get_mut(index) {
            let slot = TimerSlot::Stream(index.0).number();
            stream.deadlines.set(timer as usize, at, slot, &mut env.timers);
        }
    }
}

impl Connections {
    /// Queues an output behind everything that was encoded so far.
    pub(crate) fn push(&mut self, output: Output<Message>, env: &mut Env) {
        if self.out_for.is_some() {
            self.flush_out(env);
        }
        env.outputs.push_back(output);
    }

    pub(crate) fn set_connection_timer(
        &mut self,
        id: ConnectionId,
        timer: ConnectionTimer,
        at: Instant,
        env: &mut Env,
    ) {
        if let Some(connection) = self.table.get_mut(id) {
            connection.deadlines.set(
                timer as usize,
                at,
                TimerSlot::of_connection(id),
                &mut env.timers,
            );
        }
    }

    /// Drops a connection that nothing hangs on any more.
    pub(crate) fn end_connection(&mut self, id: ConnectionId, how: Close, env: &mut Env) {
        // What was encoded for it stands before the close; once it is removed, nothing goes to it.
        if self.out_for == Some(id) {
            self.flush_out(env);
        }
        if self.table.remove(id).is_some() {
            env.timers.clear(TimerSlot::of_connection(id));
            self.push(Output::Close { connection: id, how }, env);
        }
    }
}

impl Env {
    /// Tells the control thread.
    pub(crate) fn tell(&mut self, message: FromWorker) {
        self.outputs.push_back(Output::Message(Message::From(message)));
    }
}

/// How long log lines wait for company.
pub(crate) const LOG_DELAY: Duration = Duration::from_millis(100);
