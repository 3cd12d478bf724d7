//! One machine's wake-up: everything in, poll until it waits, everything out.

use std::time::Duration;

use towpath_proto::{
    Address, Close, ConnectionId, Failure, Input, Instant, ListenOptions, ListenerId, Output,
    PathFacts, ReadInterest,
};

use super::node::{AnyMachine, Cause};
use super::stream::{EndId, Life, Ours};
use super::{Event, Fault, Listening, World, with_port};

type Running<T> = Box<dyn AnyMachine<T>>;

/// Wishes in one round, and rounds in one wake-up, that no honest machine reaches.
const MAX_OUTPUTS: u32 = 1_000_000;
const MAX_ROUNDS: u32 = 10_000;
const MAX_LATE_WAITS: u32 = 1_000;

impl<T: 'static> World<T> {
    pub(super) fn on_wake(&mut self, index: usize, at: Instant) {
        let node = &mut self.nodes[index];
        if node.wake_at != Some(at) || node.dead {
            return;
        }
        node.wake_at = None;
        if self.now < node.frozen_until {
            let until = node.frozen_until;
            return self.wake_at(index, until);
        }
        let Some(mut machine) = self.nodes[index].machine.take() else {
            return;
        };
        self.take_inbox(index, &mut machine);
        if self.nodes[index].deadline <= self.now {
            self.nodes[index].deadline = Instant::FAR_FUTURE;
            self.tell(index, &mut machine, Input::Timeout);
        }
        for round in 0.. {
            assert!(round < MAX_ROUNDS, "node {index} answers every answer with another wish");
            let answers = self.poll(index, &mut machine);
            if answers.is_empty() {
                break;
            }
            for answer in answers {
                self.tell(index, &mut machine, answer);
            }
        }
        self.nodes[index].machine = Some(machine);
        self.set_alarm(index);
    }

    fn set_alarm(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let deadline = node.deadline;
        if deadline <= self.now {
            node.promises.late_waits += 1;
            let late = node.promises.late_waits;
            assert!(late < MAX_LATE_WAITS, "node {index} waits for a time that has passed");
        } else {
            node.promises.late_waits = 0;
        }
        if !node.inbox.is_empty() {
            self.wake(index);
        }
        if deadline != Instant::FAR_FUTURE {
            // A real timer is never early and always a little late.
            let late = Duration::from_micros(1)..=Duration::from_millis(1);
            let at = deadline.max(self.now) + self.random.duration(&late);
            self.wake_at(index, at);
        }
    }

    /// Hands over what has gathered, in a drawn order; only messages keep theirs.
    fn take_inbox(&mut self, index: usize, machine: &mut Running<T>) {
        let mut inbox = std::mem::take(&mut self.nodes[index].inbox);
        let (messages, mut others): (Vec<_>, Vec<_>) =
            inbox.drain(..).partition(|cause| matches!(cause, Cause::Told(Input::Message(_))));
        self.random.shuffle(&mut others);
        let mut messages = messages.into_iter().peekable();
        let mut others = others.into_iter().peekable();
        loop {
            let turn =
                messages.peek().is_some() && (others.peek().is_none() || self.random.chance(500));
            let next = if turn { messages.next() } else { others.next() };
            let Some(cause) = next else {
                break;
            };
            self.on_cause(index, machine, cause);
        }
    }

    fn on_cause(&mut self, index: usize, machine: &mut Running<T>, cause: Cause<T>) {
        match cause {
            Cause::Told(Input::ConnectFailed { attempt, failure }) => {
                if self.nodes[index].promises.pending.remove(&attempt).is_some() {
                    self.tell(index, machine, Input::ConnectFailed { attempt, failure });
                }
            }
            Cause::Told(input) => self.tell(index, machine, input),
            Cause::Accepted(end) => self.on_accepted(index, machine, end),
            Cause::Connected(attempt, end) => {
                if self.nodes[index].promises.pending.remove(&attempt).is_none() {
                    return self.abort(end);
                }
                let connection = self.bear(index, end);
                let local = self.end(end).address.clone();
                self.tell(index, machine, Input::Connected { attempt, connection, local });
            }
            Cause::Readable(end) => self.read(index, machine, end),
            Cause::Writable(end) => {
                self.end(end).writable_noted = false;
                if self.end(end).life == Life::Alive {
                    self.nodes[index].touched.push(end);
                }
            }
        }
    }

    fn on_accepted(&mut self, index: usize, machine: &mut Running<T>, end: EndId) {
        let listener = self.streams[end.stream].listener;
        let listens =
            |listening: &Listening| (listening.node, listening.listener) == (index, listener);
        if !self.listeners.iter().any(listens) {
            return self.abort(end);
        }
        if let Some(waiting) = self.nodes[index].promises.held.get_mut(&listener) {
            return waiting.push(end);
        }
        let connection = self.bear(index, end);
        let local = self.end(end).address.clone();
        let peer = self.end(end.other()).address.clone();
        self.tell(
            index,
            machine,
            Input::Accepted { listener, connection, local, peer, original: None },
        );
    }

    /// Clients that connect wait, or are told of.
    fn hold(&mut self, index: usize, listener: ListenerId, is_held: bool) {
        let held = &mut self.nodes[index].promises.held;
        if is_held {
            held.entry(listener).or_default();
            return;
        }
        for end in held.remove(&listener).unwrap_or_default() {
            self.cause(index, Cause::Accepted(end));
        }
    }

    /// The machine learns of an end.
    fn bear(&mut self, index: usize, end: EndId) -> ConnectionId {
        let id = self.nodes[index].name(end);
        let this = self.end(end);
        this.id = id;
        this.life = Life::Alive;
        id
    }

    fn read(&mut self, index: usize, machine: &mut Running<T>, end: EndId) {
        self.end(end).readable_noted = false;
        let (life, id, failure) = {
            let this = self.end(end);
            (this.life, this.id, this.failure)
        };
        match life {
            Life::Alive => {}
            Life::Unborn => return self.note_readable(end),
            Life::Closing { .. } | Life::Gone => return,
        }
        if !self.end(end).wanted {
            if let Some(failure) = failure {
                self.closed(index, machine, end, failure);
            }
            return;
        }
        let mut budget = self.end(end).read_limit;
        while budget > 0 {
            let limit = self.random.size(&(1..=self.streams[end.stream].path.read_bytes));
            // As for segments: seams at the start, progress later.
            let limit = limit.max(self.end(end).received_bytes / 16).min(budget);
            let Some(chunk) = self.end(end).read(limit) else {
                break;
            };
            budget = budget.saturating_sub(chunk.len());
            self.tell(index, machine, Input::Received { connection: id, chunk });
        }
        self.transmit(end.other());
        let this = self.end(end);
        if this.received_bytes > 0 {
            return self.note_readable(end);
        }
        if let Some(failure) = failure {
            self.closed(index, machine, end, failure);
        } else if this.fin && !this.ended {
            this.ended = true;
            self.tell(index, machine, Input::Ended { connection: id });
        }
    }

    fn closed(&mut self, index: usize, machine: &mut Running<T>, end: EndId, failure: Failure) {
        let this = self.end(end);
        let (id, unsent) = (this.id, this.unsent_bytes);
        this.life = Life::Gone;
        this.drop_unsent();
        this.drop_received();
        self.nodes[index].unsent_bytes -= unsent;
        self.nodes[index].forget(id);
        self.tell(index, machine, Input::Closed { connection: id, failure });
    }

    /// Polls until the machine waits, then writes each touched connection once; what came of it.
    fn poll(&mut self, index: usize, machine: &mut Running<T>) -> Vec<Input<T>> {
        let mut answers = Vec::new();
        for count in 0.. {
            assert!(count < MAX_OUTPUTS, "node {index} never stops wishing");
            match machine.poll(self.now) {
                Output::Wait(deadline) => {
                    self.nodes[index].deadline = deadline;
                    break;
                }
                Output::Idle => {
                    self.nodes[index].deadline = Instant::FAR_FUTURE;
                    break;
                }
                output @ (Output::Listen { .. }
                | Output::Unlisten { .. }
                | Output::Hold { .. }
                | Output::Connect { .. }
                | Output::CancelConnect { .. }
                | Output::Send { .. }
                | Output::Push { .. }
                | Output::ReadInterest { .. }
                | Output::ReadLimit { .. }
                | Output::Close { .. }
                | Output::Resolve { .. }
                | Output::Inspect { .. }
                | Output::LimitFlow { .. }
                | Output::Message(_)) => self.apply(index, output, &mut answers),
            }
        }
        for end in std::mem::take(&mut self.nodes[index].touched) {
            let bytes = self.flush(end);
            let this = self.end(end);
            if bytes > 0 && this.life == Life::Alive {
                let connection = this.id;
                answers.push(Input::Sent { connection, bytes });
            }
        }
        answers
    }

    fn apply(&mut self, index: usize, output: Output<T>, answers: &mut Vec<Input<T>>) {
        match output {
            Output::Send { connection, chunk } => self.send_chunk(index, connection, chunk),
            Output::ReadInterest { connection, interest } => {
                self.read_interest(index, connection, interest);
            }
            Output::ReadLimit { connection, bytes, .. } => {
                self.note(index, false, "read-limit", subject(connection), bytes as u64);
                if let Some(end) = self.promised(index, connection, "bounds the reads of") {
                    self.end(end).read_limit = bytes.max(1);
                }
            }
            Output::Close { connection, how } => self.close(index, connection, how),
            Output::Listen { listener, address, options } => {
                self.note(index, false, "listen", u64::from(listener.0), 0);
                let outcome = self.listen(index, listener, &address, &options);
                answers.push(Input::Listening { listener, outcome });
            }
            Output::Hold { listener, is_held } => {
                self.note(index, false, "hold", u64::from(listener.0), u64::from(is_held));
                self.hold(index, listener, is_held);
            }
            Output::Unlisten { listener } => {
                self.hold(index, listener, false);
                self.note(index, false, "unlisten", u64::from(listener.0), 0);
                self.nodes[index].promises.listeners.remove(&listener);
                self.listeners.retain(|it| (it.node, it.listener) != (index, listener));
            }
            Output::Connect { attempt, address, options } => {
                self.note(index, false, "connect", attempt.0, 0);
                let promises = &mut self.nodes[index].promises;
                assert!(promises.attempts.insert(attempt), "node {index} uses {attempt:?} twice");
                promises.pending.insert(attempt, ());
                let local = self.local(index, options.source, &address);
                self.dial(index, attempt, address, local);
            }
            Output::CancelConnect { attempt } => {
                self.note(index, false, "cancel", attempt.0, 0);
                let known = self.nodes[index].promises.attempts.contains(&attempt);
                assert!(known, "node {index} cancels {attempt:?}, which it never began");
                self.nodes[index].promises.pending.remove(&attempt);
            }
            Output::Resolve { query, name } => {
                self.note(index, false, "resolve", query.0, name.len() as u64);
                let new = self.nodes[index].promises.queries.insert(query);
                assert!(new, "node {index} uses {query:?} twice");
                let outcome = self.names.get(&name).cloned().ok_or(Fault::NoSuchName);
                let at = self.now + self.random.duration(&self.faults.latency);
                self.schedule(at, Event::Resolved { node: index, query, outcome });
            }
            Output::Inspect { connection } => {
                self.note(index, false, "inspect", subject(connection), 0);
                if let Some(end) = self.promised(index, connection, "inspects") {
                    let facts = Some(self.path_facts(end));
                    answers.push(Input::Inspected { connection, facts });
                }
            }
            Output::Message(message) => {
                self.note(index, false, "message", 0, 0);
                let now = self.now;
                self.nodes[index].messages.push_back((now, message));
            }
            Output::LimitFlow { connection, .. } => {
                // Its streams have no slow start.
                self.note(index, false, "limit", subject(connection), 0);
                let _ = self.promised(index, connection, "limits");
            }
            // Its streams have no packets.
            Output::Push { connection } => {
                self.note(index, false, "push", subject(connection), 0);
                self.promised(index, connection, "pushes");
            }
            Output::Wait(_) | Output::Idle => {}
        }
    }

    /// What the kernel would say of an end's path.
    fn path_facts(&mut self, end: EndId) -> PathFacts {
        let round_trip = self.streams[end.stream].path.latency * 2;
        let now = self.now;
        let this = self.end(end);
        let unacknowledged = u32::try_from(this.in_flight).unwrap_or(u32::MAX);
        PathFacts {
            round_trip,
            unacknowledged,
            since_ack: now - this.acknowledged,
            ..PathFacts::default()
        }
    }

    fn send_chunk(&mut self, index: usize, id: ConnectionId, chunk: bytes::Bytes) {
        self.note(index, false, "send", subject(id), chunk.len() as u64);
        assert!(!chunk.is_empty(), "node {index} sends nothing on {id:?}");
        let Some(end) = self.promised(index, id, "sends on") else {
            return;
        };
        let this = self.end(end);
        assert!(this.ours == Ours::Open, "node {index} sends on {id:?} after it said it would not");
        if this.failure.is_some() {
            return;
        }
        let bytes = chunk.len();
        this.push(chunk);
        let node = &mut self.nodes[index];
        node.unsent_bytes += bytes;
        node.peak_unsent_bytes = node.peak_unsent_bytes.max(node.unsent_bytes);
        if !node.touched.contains(&end) {
            node.touched.push(end);
        }
    }

    fn read_interest(&mut self, index: usize, id: ConnectionId, interest: ReadInterest) {
        self.note(index, false, "interest", subject(id), u64::from(interest == ReadInterest::On));
        let Some(end) = self.promised(index, id, "sets the interest of") else {
            return;
        };
        let this = self.end(end);
        this.wanted = interest == ReadInterest::On;
        if this.has_news() {
            self.note_readable(end);
        }
    }

    fn close(&mut self, index: usize, id: ConnectionId, how: Close) {
        let what = match how {
            Close::Flush => "close",
            Close::Half => "half-close",
            Close::FlushReset => "flush-reset",
            Close::Now => "close-now",
            Close::Abort => "abort",
        };
        self.note(index, false, what, subject(id), 0);
        let Some(end) = self.promised(index, id, "closes") else {
            return;
        };
        let now = self.now;
        let this = self.end(end);
        match how {
            Close::Abort => {
                self.nodes[index].promises.closed.insert(id);
                return self.abort(end);
            }
            // What it has in the kernel is lost with it here, which a real one would deliver.
            Close::Now if this.unsent_bytes > 0 || this.received_bytes > 0 => {
                self.nodes[index].promises.closed.insert(id);
                return self.abort(end);
            }
            Close::Half => {}
            Close::Flush | Close::FlushReset | Close::Now => {
                this.resets = how == Close::FlushReset;
                this.life =
                    if this.failure.is_some() { Life::Gone } else { Life::Closing { since: now } };
                this.drop_received();
                self.nodes[index].promises.closed.insert(id);
                self.nodes[index].forget(id);
                self.transmit(end.other());
            }
        }
        let this = self.end(end);
        if this.ours == Ours::Open {
            this.ours = Ours::Ending;
        }
        if !self.nodes[index].touched.contains(&end) {
            self.nodes[index].touched.push(end);
        }
    }

    /// The end that a machine means. None when it was told that the end is gone; anything else is a broken promise.
    fn promised(&self, index: usize, id: ConnectionId, does: &str) -> Option<EndId> {
        let node = &self.nodes[index];
        let closed = node.promises.closed.contains(&id);
        assert!(!closed, "node {index} {does} {id:?}, which it closed itself");
        assert!(node.knows(id), "node {index} {does} {id:?}, of which it was never told");
        node.end(id)
    }

    fn listen(
        &mut self,
        index: usize,
        listener: ListenerId,
        address: &Address,
        options: &ListenOptions,
    ) -> Result<Address, Failure> {
        let new = self.nodes[index].promises.listeners.insert(listener);
        assert!(new, "node {index} listens on {listener:?} twice");
        let port_wanted = address.ip().is_some_and(|ip| ip.port() == 0);
        let bound = if port_wanted {
            self.next_port += 1;
            with_port(address, self.next_port)
        } else {
            address.clone()
        };
        let shared = options.reuse_port && address.ip().is_some();
        let taken =
            self.listeners.iter().any(|other| other.address == bound && !(shared && other.shared));
        if taken {
            self.nodes[index].promises.listeners.remove(&listener);
            return Err(Failure::AddressInUse);
        }
        self.listeners.push(Listening { node: index, listener, address: bound.clone(), shared });
        Ok(bound)
    }

    fn local(
        &mut self,
        index: usize,
        source: Option<std::net::SocketAddr>,
        target: &Address,
    ) -> Address {
        self.next_port = self.next_port.wrapping_add(1).max(20_000);
        match (target, source) {
            (Address::Unix(_) | Address::Internal(_), _) => {
                Address::Unix(std::sync::Arc::from(std::path::Path::new("")))
            }
            (Address::Ip(_), Some(source)) if source.port() != 0 => Address::Ip(source),
            (Address::Ip(_), source) => {
                let ip = source.map_or(self.nodes[index].address, |source| source.ip());
                Address::Ip((ip, self.next_port).into())
            }
        }
    }

    fn tell(&mut self, index: usize, machine: &mut Running<T>, input: Input<T>) {
        let (what, about, number) = describe(&input);
        self.note(index, true, what, about, number);
        machine.handle(input, self.now);
    }
}

fn describe<T>(input: &Input<T>) -> (&'static str, u64, u64) {
    match input {
        Input::Listening { listener, outcome } => {
            ("listening", u64::from(listener.0), u64::from(outcome.is_ok()))
        }
        Input::Accepted { connection, listener, .. } => {
            ("accepted", subject(*connection), u64::from(listener.0))
        }
        Input::Connected { attempt, connection, .. } => {
            ("connected", subject(*connection), attempt.0)
        }
        Input::ConnectFailed { attempt, .. } => ("no connect", attempt.0, 0),
        Input::Received { connection, chunk } => {
            ("received", subject(*connection), chunk.len() as u64)
        }
        Input::Sent { connection, bytes } => ("sent", subject(*connection), *bytes as u64),
        Input::Ended { connection } => ("ended", subject(*connection), 0),
        Input::Closed { connection, .. } => ("closed", subject(*connection), 0),
        Input::Resolved { query, outcome, .. } => ("resolved", query.0, u64::from(outcome.is_ok())),
        Input::Inspected { connection, facts } => {
            ("inspected", subject(*connection), u64::from(facts.is_some()))
        }
        Input::Message(_) => ("message", 0, 0),
        Input::Timeout => ("timeout", 0, 0),
    }
}

/// An id as the trace shows it: the slot, and in millions the generation.
fn subject(id: ConnectionId) -> u64 {
    id.slot() as u64 + u64::from(id.generation()) * 1_000_000
}
