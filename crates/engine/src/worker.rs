//! One worker: everything between the sockets, as a [`Machine`].
//!
//! Arrives: [`Input`]s of one driver. Leaves: [`Output`]s, in the order in which they must happen.
//!
//! Workers share nothing but the snapshot (read only) and the counters (each has its own). This file only
//! hands on: each event goes to the file that is named for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Out;
use towpath_proto::head::HeadPool;
use towpath_proto::tls::Fault;
use towpath_proto::{Close, ConnectionId, Failure, Input, Instant, Machine, Output, Timers};

use crate::cluster::Clusters;
use crate::connect::Attempts;
use crate::connection::{Codec, ConnectionTimer, Connections, Role};
use crate::drain::Draining;
use crate::forward::Congestion;
use crate::header_ops::Scratch;
use crate::ids::StreamIndex;
use crate::listener::Listeners;
use crate::local::Local;
use crate::log::Logs;
use crate::message::{FromWorker, Message, ToWorker};
use crate::random::Random;
use crate::secure::Handshakes;
use crate::serving::SERVES;
use crate::snapshot::{ClusterId, Snapshot};
use crate::stats::Registry;
use crate::stream::{StreamTimer, Streams};
use crate::wall_clock::WallClock;

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
    pub(crate) index: u32,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) listeners: Listeners,
    pub(crate) connections: Connections,
    pub(crate) streams: Streams,
    pub(crate) attempts: Attempts,
    pub(crate) handshakes: Handshakes,
    pub(crate) clusters: Clusters,
    pub(crate) timers: Timers,
    pub(crate) heads: HeadPool,
    pub(crate) random: Random,
    pub(crate) logs: Logs,
    pub(crate) clock: WallClock,
    pub(crate) draining: Draining,
    pub(crate) outputs: VecDeque<Output<Message>>,
    /// What is being encoded, and for whom: one connection's pieces become one chunk.
    pub(crate) out: Out,
    pub(crate) out_for: Option<ConnectionId>,
    /// What is still to be done for the input at hand.
    pub(crate) work: VecDeque<Work>,
    pub(crate) serial: Serial,
    /// Requests that take this long are reported.
    pub(crate) slow_after: Duration,
    /// Lends its capacity to whoever needs a few bytes for a moment.
    pub(crate) scratch: Scratch,
    /// Requests of the app in this process.
    pub(crate) local: Box<Local>,
}

/// What one part of the worker leaves for another to do, where a call could come back to the caller: a stream that ends
/// frees a connection, which takes another stream, which may end at once. How often that goes on is up to peers, so it must
/// not go on in calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A connection's parsed input was held back and may go on.
    Read(ConnectionId),
    /// A connection can carry another stream.
    Offer(ConnectionId),
    /// More waits to leave a connection than its watermark.
    BackedUp(ConnectionId),
}

/// Numbers that name connections and streams in logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serial {
    connection: u64,
    stream: u64,
    /// How many workers count in step, so that no two name a connection alike.
    step: u64,
}

impl Serial {
    pub(crate) const fn next_connection(&mut self) -> u64 {
        self.connection += self.step;
        self.connection
    }

    pub(crate) const fn next_stream(&mut self) -> u64 {
        self.stream += 1;
        self.stream
    }
}

/// A slot of the worker's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerSlot {
    Connection(u32),
    Stream(u32),
    Attempt(u32),
    /// Log lines wait to be handed over.
    Logs,
    /// The next step of a drain.
    Drain,
    /// The next attempt or question of an origin.
    Origin(u32),
}

impl TimerSlot {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Connection(slot) => slot * 4,
            Self::Stream(slot) => slot * 4 + 1,
            Self::Attempt(slot) => slot * 4 + 2,
            Self::Logs => 3,
            Self::Drain => 7,
            Self::Origin(slot) => slot * 4 + 11,
        }
    }

    const fn from_number(number: u32) -> Self {
        match (number % 4, number / 4) {
            (0, slot) => Self::Connection(slot),
            (1, slot) => Self::Stream(slot),
            (2, slot) => Self::Attempt(slot),
            (_, 0) => Self::Logs,
            (_, 1) => Self::Drain,
            (_, slot) => Self::Origin(slot - 2),
        }
    }
}

impl Machine for Worker {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        match input {
            Input::Received { connection, chunk } => {
                let Some(state) = self.connections.get_mut(connection) else {
                    return self.on_handshake_received(connection, &chunk, now);
                };
                if state.tls.is_some() {
                    self.on_sealed(connection, &chunk, now);
                } else {
                    state.bytes_received += chunk.len() as u64;
                    if matches!(state.role, Role::Closing(_)) {
                        return;
                    }
                    state.codec.receive(chunk);
                    self.pump(connection, now);
                }
            }
            Input::Sent { connection, bytes } => self.on_sent(connection, bytes, now),
            Input::Accepted { .. } | Input::Listening { .. } if !SERVES => {}
            Input::Accepted { listener, connection, local, peer } => {
                self.on_accepted(listener, connection, local, peer, now);
            }
            Input::Connected { attempt, connection, local } => {
                self.on_connected(attempt, connection, local, now)
            }
            Input::ConnectFailed { attempt, failure } => {
                self.on_connect_failed(attempt, failure, now)
            }
            Input::Ended { connection } => self.on_ended(connection, now),
            Input::Closed { connection, failure } => self.on_closed(connection, failure, now),
            Input::Listening { listener, outcome } => self.on_listening(listener, outcome),
            Input::Message(message) => self.on_message(message, now),
            Input::Timeout => self.on_timeout(now),
            Input::Resolved { query, outcome } => self.on_resolved(query, outcome, now),
            Input::Inspected { connection, facts } => self.on_inspected(connection, facts, now),
        }
        self.do_work(now);
    }

    fn poll(&mut self, now: Instant) -> Output<Message> {
        if self.out_for.is_some() {
            self.flush_out();
            self.end_broken(now);
            self.do_work(now);
        }
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        if self.local.is_used() && self.streams.len() == 0 {
            // An app's engine sleeps until something is due.
            self.timers.prune();
        }
        self.timers.next().map_or(Output::Idle, Output::Wait)
    }
}

impl Worker {
    /// A worker that waits for its first snapshot.
    #[must_use]
    pub fn new(options: WorkerOptions) -> Self {
        Self {
            index: options.index,
            snapshot: Arc::default(),
            registry: Arc::clone(&options.registry),
            listeners: Listeners::default(),
            connections: Connections::default(),
            streams: Streams::default(),
            attempts: Attempts::default(),
            handshakes: Handshakes::default(),
            clusters: Clusters::default(),
            timers: Timers::new(),
            heads: HeadPool::default(),
            random: Random::new(
                options.seed ^ u64::from(options.index).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ),
            logs: Logs::default(),
            clock: WallClock::new(options.hostname),
            draining: Draining::default(),
            outputs: VecDeque::new(),
            out: Out::new(),
            out_for: None,
            work: VecDeque::new(),
            scratch: Scratch::default(),
            local: Box::default(),
            slow_after: Duration::MAX,
            serial: Serial {
                connection: options.index.into(),
                stream: 0,
                step: options.workers.max(1).into(),
            },
        }
    }

    /// Connections that are open, of both sides.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Streams that are open.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Does what was left for later, and what that leaves.
    fn do_work(&mut self, now: Instant) {
        while let Some(work) = self.work.pop_front() {
            match work {
                Work::Read(connection) => self.pump(connection, now),
                Work::Offer(connection) => self.offer(connection, now),
                Work::BackedUp(connection) => self.on_backed_up(connection),
            }
        }
    }

    /// Queues an output behind everything that was encoded so far.
    pub(crate) fn push(&mut self, output: Output<Message>) {
        if self.out_for.is_some() {
            self.flush_out();
        }
        self.outputs.push_back(output);
    }

    /// Tells the control thread.
    pub(crate) fn tell(&mut self, message: FromWorker) {
        self.push(Output::Message(Message::From(message)));
    }

    pub(crate) fn connection_timer_slot(id: ConnectionId) -> u32 {
        TimerSlot::Connection(u32::try_from(id.slot()).unwrap_or(u32::MAX)).number()
    }

    pub(crate) fn set_connection_timer(
        &mut self,
        id: ConnectionId,
        timer: ConnectionTimer,
        at: Instant,
    ) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.deadlines.set(
                timer as usize,
                at,
                Self::connection_timer_slot(id),
                &mut self.timers,
            );
        }
    }

    pub(crate) fn set_stream_timer(&mut self, index: StreamIndex, timer: StreamTimer, at: Instant) {
        if let Some(stream) = self.streams.get_mut(index) {
            let slot = TimerSlot::Stream(index.0).number();
            stream.deadlines.set(timer as usize, at, slot, &mut self.timers);
        }
    }

    fn on_message(&mut self, message: Message, now: Instant) {
        match message {
            Message::To(message) if !SERVES => self.on_message_of_app(message, now),
            Message::To(ToWorker::Snapshot(snapshot)) => {
                self.snapshot = snapshot;
                self.logs.resize(self.snapshot.sinks.len());
                self.update_clusters(now);
                self.update_listeners(now);
            }
            Message::To(ToWorker::Hosts { cluster, endpoints }) => {
                self.update_hosts(cluster, &endpoints, now)
            }
            Message::To(ToWorker::Health { cluster, hosts }) => {
                self.update_health(cluster, hosts, now)
            }
            Message::To(ToWorker::Drain(drain)) => self.begin_drain(drain, now),
            Message::To(ToWorker::FailHealth(fails)) => self.draining.set_health_fails(fails),
            Message::To(ToWorker::Terminate) => self.terminate(now),
            Message::To(ToWorker::Describe { token }) => {
                let clusters = self.clusters.describe();
                self.tell(FromWorker::Description { token, clusters });
            }
            Message::To(ToWorker::WallClock { epoch_unix_ns }) => self.clock.set(epoch_unix_ns),
            Message::To(ToWorker::ReportSlow { after }) => self.slow_after = after,
            Message::To(ToWorker::Local(command)) => self.on_command(command, now),
            Message::From(_) | Message::ToMonitor(_) | Message::FromMonitor(_) => {}
        }
    }

    /// What an engine inside an app is told; the rest is for one that serves.
    fn on_message_of_app(&mut self, message: ToWorker, now: Instant) {
        match message {
            ToWorker::WallClock { epoch_unix_ns } => self.clock.set(epoch_unix_ns),
            ToWorker::Local(command) => self.on_command(command, now),
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
        while let Some(number) = self.timers.expired(now) {
            match TimerSlot::from_number(number) {
                TimerSlot::Logs | TimerSlot::Drain if !SERVES => {}
                TimerSlot::Connection(slot) => self.on_connection_timer(slot, number, now),
                TimerSlot::Stream(slot) => self.on_stream_timer(StreamIndex(slot), number, now),
                TimerSlot::Attempt(slot) => self.on_connect_timeout(slot, now),
                TimerSlot::Logs => self.hand_over_logs(),
                TimerSlot::Drain => self.on_drain_timer(now),
                TimerSlot::Origin(slot) => self.advance_origin(ClusterId(slot), now),
            }
        }
    }

    fn on_connection_timer(&mut self, slot: u32, number: u32, now: Instant) {
        let Some(id) = self.connections.in_slot(slot as usize).map(|connection| connection.id)
        else {
            return;
        };
        let Some(connection) = self.connections.get_mut(id) else { return };
        let expired = connection.deadlines.take_expired(now, number, &mut self.timers);
        for timer in ConnectionTimer::ALL {
            if expired[timer as usize] && self.connections.get(id).is_some() {
                self.on_connection_deadline(id, timer, now);
            }
        }
    }

    fn on_connection_deadline(&mut self, id: ConnectionId, timer: ConnectionTimer, now: Instant) {
        let Some(connection) = self.connections.get(id) else { return };
        match (&connection.role, timer) {
            (Role::Closing(context), _) => {
                if let Some(http) = context.http() {
                    http.stats.downstream_cx_delayed_close_timeout.inc();
                }
                self.end_connection(id, Close::Flush);
            }
            (Role::Downstream(_), timer) => self.on_downstream_deadline(id, timer, now),
            (Role::Upstream(_), timer) => self.on_upstream_deadline(id, timer, now),
        }
    }

    fn on_stream_timer(&mut self, index: StreamIndex, number: u32, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let serial = stream.record.stream;
        let expired = stream.deadlines.take_expired(now, number, &mut self.timers);
        for timer in StreamTimer::ALL {
            let alive =
                self.streams.get(index).is_some_and(|stream| stream.record.stream == serial);
            if expired[timer as usize] && alive {
                self.on_stream_deadline(index, timer, now);
            }
        }
    }

    pub(crate) fn on_sent(&mut self, id: ConnectionId, bytes: usize, now: Instant) {
        let Some(connection) = self.connections.get_mut(id) else {
            return self.on_handshake_sent(id, bytes);
        };
        connection.bytes_sent += bytes as u64;
        connection.outstanding = connection.outstanding.saturating_sub(bytes);
        let carries_calls = matches!(connection.codec, Codec::BoltClient(_));
        if connection.congested && connection.outstanding <= connection.high_watermark / 2 {
            connection.congested = false;
            self.count_congestion(id, Congestion::Drained);
            self.on_room(id, now);
        }
        if carries_calls {
            self.let_frames_go(id);
        }
    }

    pub(crate) fn on_ended(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.get_mut(id) else {
            return self.on_handshake_ended(id, Fault::Ended, now);
        };
        connection.ended = true;
        match &connection.role {
            Role::Closing(_) => self.end_connection(id, Close::Flush),
            Role::Downstream(_) => self.on_downstream_ended(id, now),
            Role::Upstream(_) => self.on_upstream_ended(id, now),
        }
    }

    fn on_closed(&mut self, id: ConnectionId, failure: Failure, now: Instant) {
        if self.out_for == Some(id) {
            self.flush_out();
        }
        let Some(connection) = self.connections.get(id) else {
            let reset = failure == Failure::Reset;
            let fault = if reset { Fault::Reset } else { Fault::Ended };
            return self.on_handshake_ended(id, fault, now);
        };
        match &connection.role {
            Role::Closing(_) => drop(self.connections.remove(id)),
            Role::Downstream(_) => self.on_downstream_closed(id, failure, now),
            Role::Upstream(_) => self.on_upstream_closed(id, failure, now),
        }
        self.timers.clear(Self::connection_timer_slot(id));
    }

    /// Drops a connection that nothing hangs on any more.
    pub(crate) fn end_connection(&mut self, id: ConnectionId, how: Close) {
        // What was encoded for it stands before the close; once it is removed, nothing goes to it.
        if self.out_for == Some(id) {
            self.flush_out();
        }
        if self.connections.remove(id).is_some() {
            self.timers.clear(Self::connection_timer_slot(id));
            self.push(Output::Close { connection: id, how });
        }
    }
}

/// How long log lines wait for company.
pub(crate) const LOG_DELAY: Duration = Duration::from_millis(100);
