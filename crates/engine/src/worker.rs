//! One worker: everything between the sockets, as a [`Machine`].
//!
//! Arrives: [`Input`]s of one driver. Leaves: [`Output`]s, in the order in which they must happen.
//!
//! Workers share nothing but the snapshot (read only) and the counters (each has its own). This file only
//! hands on: each event goes to the file that is named for it.

use std::sync::Arc;

use towpath_proto::tls::Fault;
use towpath_proto::{ConnectionId, Failure, Input, Instant, Machine, Output};

use crate::conn::{ConnectionTimer, Role};
pub use crate::env::WorkerOptions;
use crate::env::{Env, TimerSlot, Work};
use crate::exchange::Exchange;
use crate::ids::StreamIndex;
use crate::local::report::Answerer;
use crate::message::{FromWorker, Message, ToWorker};
use crate::serving::SERVES;
use crate::snapshot::ClusterId;
use crate::snapshot::listener::Arrival;

/// The engine's machine.
#[derive(Debug)]
pub struct Worker {
    pub(crate) exchange: Exchange,
}

impl Machine for Worker {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        match input {
            Input::Received { connection, chunk } => {
                self.exchange.on_received(connection, chunk, now);
            }
            Input::Sent { connection, bytes } => {
                // It owns nothing. Without this the compiler asks at run time which kind of input is to be dropped.
                std::mem::forget(input);
                self.exchange.on_sent(connection, bytes, now);
            }
            input @ (Input::Listening { .. }
            | Input::Accepted { .. }
            | Input::Connected { .. }
            | Input::ConnectFailed { .. }
            | Input::Ended { .. }
            | Input::Closed { .. }
            | Input::Message(_)
            | Input::Timeout
            | Input::Resolved { .. }
            | Input::Inspected { .. }) => self.handle_other(input, now),
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
            if let Some((connection, chunk)) = first {
                return Output::Send { connection, chunk };
            }
        }
        if SERVES && self.exchange.env.notes.are_waiting() && self.exchange.tell_notes(now) {
            // What they leave to be done is done in the next turn.
            return Output::Wait(now);
        }
        if let Some(output) = self.exchange.env.outputs.pop_front() {
            return output;
        }
        self.exchange.env.round = self.exchange.env.round.wrapping_add(1);
        if !self.exchange.env.put_off.is_empty() || self.exchange.conns.handshakes.are_late() {
            return Output::Wait(now);
        }
        if self.exchange.upstreams.app.is_used && self.exchange.streams.len() == 0 {
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

    /// All that is not an ordinary exchange's.
    #[inline(never)]
    fn handle_other(&mut self, input: Input<Message>, now: Instant) {
        match input {
            Input::Received { .. } | Input::Sent { .. } => {}
            Input::Accepted { .. } | Input::Listening { .. } if !SERVES => {}
            Input::Accepted { listener, connection, local, peer, original } => {
                let arrival = Arrival { original, ..Arrival::new(local, peer) };
                self.exchange.on_accepted(listener, connection, arrival, now);
            }
            Input::Connected { attempt, connection, local } => {
                self.exchange.on_connected(attempt, connection, local, now)
            }
            Input::ConnectFailed { attempt, failure } => {
                self.exchange.on_connect_failed(attempt, failure, now)
            }
            Input::Ended { connection } => {
                self.catch_up(connection, now);
                self.exchange.on_ended(connection, now);
            }
            Input::Closed { connection, failure } => self.on_closed(connection, failure, now),
            Input::Listening { listener, outcome } => {
                self.exchange.listeners.on_listening(listener, outcome, &mut self.exchange.env)
            }
            Input::Message(message) => self.on_message(message, now),
            Input::Timeout => self.on_timeout(now),
            Input::Resolved { query, outcome, lifetime } => {
                self.exchange.on_resolved(query, outcome, lifetime, Answerer::System, now)
            }
            Input::Inspected { connection, facts } => {
                self.exchange.on_inspected(connection, facts, now)
            }
        }
    }

    /// Does what was left for later, and what that leaves.
    #[inline(always)]
    pub(crate) fn do_work(&mut self, now: Instant) {
        if !self.exchange.env.work.is_empty() {
            self.do_all_work(now);
        }
    }

    fn do_all_work(&mut self, now: Instant) {
        while let Some(work) = self.exchange.env.work.pop_front() {
            match work {
                Work::Read(connection) => self.exchange.pump(connection, now),
                Work::Offer(connection) => self.exchange.offer(connection, now),
                Work::BackedUp(connection) => self.exchange.on_backed_up(connection),
                Work::Answer(serial) => self.exchange.answer_callout(serial, now),
                Work::Told(serial) => self.exchange.tell_messages(serial, now),
                Work::Report(at) => self.exchange.send_report(at, false, now),
                Work::TellLog(at) => self.exchange.tell_log(at, now),
                Work::TellEntries(at) => self.exchange.tell_entries(at, now),
            }
        }
    }

    pub(crate) fn on_message(&mut self, message: Message, now: Instant) {
        match message {
            Message::To(message) if !SERVES => self.on_message_of_app(message, now),
            Message::To(ToWorker::Snapshot(snapshot)) => {
                let before = std::mem::replace(&mut self.exchange.snapshot, snapshot);
                self.exchange.env.logs.resize(self.exchange.snapshot.sinks.len());
                let snapshot = Arc::clone(&self.exchange.snapshot);
                self.exchange.env.notes.see_clusters(move |name| snapshot.has_cluster(name));
                self.exchange.take_dns_caches();
                self.exchange.update_clusters(&before, now);
                self.exchange.ask_ahead(now);
                self.exchange.update_listeners(now);
                self.exchange.take_overload();
                self.exchange.end_lost_calls(now);
            }
            Message::To(ToWorker::Hosts { cluster, endpoints }) => {
                self.exchange.update_hosts(cluster, &endpoints, now)
            }
            Message::To(ToWorker::Name(news)) => self.exchange.on_name(&news, now),
            Message::To(ToWorker::Sub(news)) => self.exchange.on_sub(&news, now),
            Message::To(ToWorker::Health { cluster, hosts }) => {
                self.exchange.update_health(cluster, hosts, now)
            }
            Message::To(ToWorker::Drain(drain)) => self.exchange.listeners.begin_drain(
                drain,
                &mut self.exchange.conns,
                &mut self.exchange.env,
                now,
            ),
            Message::To(ToWorker::Overload(levels)) => self.exchange.set_levels(levels, now),
            Message::To(ToWorker::FailHealth(fails)) => {
                self.exchange.env.draining.set_health_fails(fails)
            }
            Message::To(ToWorker::Terminate) => self.exchange.terminate(now),
            Message::To(ToWorker::HandOver { within }) => {
                self.exchange.hand_over_reports(within, now)
            }
            Message::To(ToWorker::Describe { token }) => {
                let clusters = self.exchange.upstreams.clusters.describe();
                self.exchange.env.tell(FromWorker::Description { token, clusters });
            }
            Message::To(ToWorker::WallClock { epoch_unix_ns }) => {
                self.exchange.env.clock.set(epoch_unix_ns)
            }
            Message::To(ToWorker::ReportSlow { after }) => self.exchange.env.slow_after = after,
            Message::To(ToWorker::Heard) => self.exchange.open_waiting(now),
            Message::To(ToWorker::Export { to, message }) => {
                self.exchange.export(&to, &message, now)
            }
            Message::To(ToWorker::Local(command)) => self.exchange.on_command(command, now),
            Message::From(_) | Message::ToMonitor(_) | Message::FromMonitor(_) => {}
        }
    }

    /// What an engine inside an app is told; the rest is for one that serves.
    pub(crate) fn on_message_of_app(&mut self, message: ToWorker, now: Instant) {
        match message {
            ToWorker::WallClock { epoch_unix_ns } => self.exchange.env.clock.set(epoch_unix_ns),
            ToWorker::Local(command) => self.exchange.on_command(command, now),
            ToWorker::Snapshot(_)
            | ToWorker::Hosts { .. }
            | ToWorker::Name(_)
            | ToWorker::Sub(_)
            | ToWorker::Health { .. }
            | ToWorker::Drain(_)
            | ToWorker::Overload(_)
            | ToWorker::FailHealth(_)
            | ToWorker::Terminate
            | ToWorker::HandOver { .. }
            | ToWorker::Describe { .. }
            | ToWorker::Export { .. }
            | ToWorker::Heard
            | ToWorker::ReportSlow { .. } => {}
        }
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.exchange.go_on(now);
        while let Some(number) = self.exchange.env.timers.expired(now) {
            match TimerSlot::from_number(number) {
                TimerSlot::Logs
                | TimerSlot::Drain
                | TimerSlot::Reports
                | TimerSlot::Loggers
                | TimerSlot::Ahead
                    if !SERVES => {}
                TimerSlot::Connection(slot) => self.on_connection_timer(slot, number, now),
                TimerSlot::Stream(slot) => {
                    self.exchange.on_stream_slot(StreamIndex(slot), number, now);
                }
                TimerSlot::Attempt(slot) => self.exchange.on_connect_timeout(slot, now),
                TimerSlot::Logs => self.exchange.env.hand_over_logs(),
                TimerSlot::Drain => self.exchange.on_drain_timer(now),
                TimerSlot::Reports => self.exchange.on_report_timer(now),
                TimerSlot::Loggers => self.exchange.on_logger_timer(now),
                TimerSlot::Ahead => self.exchange.on_ahead_timer(now),
                TimerSlot::Pace(slot) => self.exchange.on_pace(StreamIndex(slot), now),
                TimerSlot::Cluster(slot) => self.on_cluster_timer(ClusterId(slot), now),
            }
        }
    }

    fn on_cluster_timer(&mut self, id: ClusterId, now: Instant) {
        let Exchange { upstreams, conns, env, .. } = &mut self.exchange;
        if !upstreams.sweep_destinations(id, env, now) {
            upstreams.advance_origin(id, conns, env, now);
        }
    }

    pub(crate) fn on_connection_timer(&mut self, slot: u32, number: u32, now: Instant) {
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

    /// Parses all that was received from a connection: its end comes behind it.
    fn catch_up(&mut self, id: ConnectionId, now: Instant) {
        while let Some(connection) = self.exchange.conns.table.get_mut(id)
            && connection.put_off
        {
            connection.put_off = false;
            connection.events = 0;
            match self.exchange.conns.handshakes.take_late(id) {
                Some(late) => self.exchange.take_late(id, &late, now),
                None => self.exchange.pump(id, now),
            }
            self.do_work(now);
        }
    }

    pub(crate) fn on_closed(&mut self, id: ConnectionId, failure: Failure, now: Instant) {
        // Its client has gone: its handshake is not looked at.
        if self.exchange.conns.handshakes.take_late(id).is_some()
            && let Some(connection) = self.exchange.conns.table.get_mut(id)
        {
            connection.put_off = false;
        }
        self.catch_up(id, now);
        if self.exchange.conns.out_for == Some(id) {
            self.exchange.conns.flush_out(&mut self.exchange.env);
        }
        let Some(connection) = self.exchange.conns.table.get(id) else {
            let reset = failure == Failure::Reset;
            let fault = if reset { Fault::Reset } else { Fault::Ended };
            return self.exchange.on_handshake_ended(id, fault, now);
        };
        match &connection.role {
            Role::Arriving(_) => self.exchange.on_arriving_closed(id, now),
            Role::Closing(_) => self.exchange.on_closing_closed(id, now),
            Role::Downstream(_) => self.exchange.on_downstream_closed(id, failure, now),
            Role::Upstream(_) => self.exchange.on_upstream_closed(id, failure, now),
        }
        self.exchange.env.timers.clear(TimerSlot::of_connection(id));
    }
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, reason = "a script answers to what it cares about")]
mod operations;
