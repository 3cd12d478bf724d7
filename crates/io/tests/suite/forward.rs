//! The least a proxy can be: every accepted connection gets one of its own to the upstream, and bytes
//! go both ways with back-pressure.

use std::collections::VecDeque;
use std::sync::Arc;

use towpath_proto::{
    Address, AttemptId, Close, ConnectOptions, ConnectionId, Input, Instant, ListenOptions,
    ListenerId, Machine, Output, ReadInterest,
};

/// The machine. Says its bound address, once.
pub struct Forward {
    listen: Address,
    upstream: Address,
    options: Arc<ConnectOptions>,
    started: bool,
    attempts: u64,
    /// Who waits for an attempt.
    waiting: Vec<(AttemptId, ConnectionId)>,
    /// By slot.
    sides: Vec<Option<Side>>,
    outputs: VecDeque<Output<Address>>,
    /// The most that was ever on its way in one direction.
    pub peak_outstanding: usize,
}

#[derive(Clone)]
struct Side {
    id: ConnectionId,
    /// Where what comes from here goes.
    other: Option<ConnectionId>,
    /// What was sent here and has not left.
    outstanding: usize,
    paused: bool,
    ended: bool,
    finished: bool,
}

/// Above this the other side is not read, below half of it again.
pub const WATERMARK: usize = 256 * 1024;

impl Forward {
    pub fn new(listen: Address, upstream: Address) -> Self {
        Self {
            listen,
            upstream,
            options: Arc::default(),
            started: false,
            attempts: 0,
            waiting: Vec::new(),
            sides: Vec::new(),
            outputs: VecDeque::new(),
            peak_outstanding: 0,
        }
    }

    fn side(&mut self, id: ConnectionId) -> Option<&mut Side> {
        self.sides.get_mut(id.slot())?.as_mut().filter(|side| side.id == id)
    }

    fn other(&mut self, id: ConnectionId) -> Option<&mut Side> {
        let other = self.side(id)?.other?;
        self.side(other)
    }

    fn add(&mut self, id: ConnectionId, other: Option<ConnectionId>) {
        if self.sides.len() <= id.slot() {
            self.sides.resize(id.slot() + 1, None);
        }
        let side = Side { id, other, outstanding: 0, paused: false, ended: false, finished: false };
        self.sides[id.slot()] = Some(side);
    }

    fn interest(&mut self, connection: ConnectionId, interest: ReadInterest) {
        self.outputs.push_back(Output::ReadInterest { connection, interest });
    }

    fn on_received(&mut self, from: ConnectionId, chunk: bytes::Bytes) {
        let Some(to) = self.other(from) else {
            return;
        };
        to.outstanding += chunk.len();
        let (connection, outstanding) = (to.id, to.outstanding);
        self.peak_outstanding = self.peak_outstanding.max(outstanding);
        self.outputs.push_back(Output::Send { connection, chunk });
        if outstanding > WATERMARK
            && let Some(side) = self.side(from)
            && !side.paused
        {
            side.paused = true;
            self.interest(from, ReadInterest::Off);
        }
    }

    fn on_sent(&mut self, to: ConnectionId, bytes: usize) {
        let Some(side) = self.side(to) else {
            return;
        };
        side.outstanding -= bytes;
        if side.outstanding < WATERMARK / 2
            && let Some(from) = self.other(to)
            && from.paused
        {
            from.paused = false;
            let id = from.id;
            self.interest(id, ReadInterest::On);
        }
    }

    fn on_ended(&mut self, from: ConnectionId) {
        if let Some(side) = self.side(from) {
            side.ended = true;
        }
        let Some(to) = self.other(from) else {
            return;
        };
        to.finished = true;
        let (to, both) = (to.id, to.ended);
        if both {
            self.end(to, Close::Flush);
            self.end(from, Close::Flush);
        } else {
            self.outputs.push_back(Output::Close { connection: to, how: Close::Half });
        }
    }

    fn end(&mut self, connection: ConnectionId, how: Close) {
        if self.side(connection).is_some() {
            self.sides[connection.slot()] = None;
            self.outputs.push_back(Output::Close { connection, how });
        }
    }
}

impl Machine for Forward {
    type Message = Address;

    fn handle(&mut self, input: Input<Address>, _now: Instant) {
        match input {
            Input::Received { connection, chunk } => self.on_received(connection, chunk),
            Input::Sent { connection, bytes } => self.on_sent(connection, bytes),
            Input::Accepted { connection, .. } => {
                self.add(connection, None);
                self.interest(connection, ReadInterest::Off);
                let attempt = AttemptId(self.attempts);
                self.attempts += 1;
                self.waiting.push((attempt, connection));
                let (address, options) = (self.upstream.clone(), Arc::clone(&self.options));
                self.outputs.push_back(Output::Connect { attempt, address, options });
            }
            Input::Connected { attempt, connection, .. } => {
                let found = self.waiting.iter().position(|(it, _)| *it == attempt);
                let near = self.waiting.swap_remove(found.expect("begun")).1;
                self.add(connection, Some(near));
                match self.side(near) {
                    Some(side) => {
                        side.other = Some(connection);
                        self.interest(near, ReadInterest::On);
                    }
                    None => self.end(connection, Close::Abort),
                }
            }
            Input::ConnectFailed { attempt, .. } => {
                let found = self.waiting.iter().position(|(it, _)| *it == attempt);
                let near = self.waiting.swap_remove(found.expect("begun")).1;
                self.end(near, Close::Abort);
            }
            Input::Ended { connection } => self.on_ended(connection),
            Input::Closed { connection, .. } => {
                let other = self.side(connection).and_then(|side| side.other);
                if let Some(place) = self.sides.get_mut(connection.slot()) {
                    *place = None;
                }
                if let Some(other) = other {
                    self.end(other, Close::Abort);
                }
            }
            Input::Listening { outcome, .. } => match outcome {
                Ok(bound) => self.outputs.push_back(Output::Message(bound)),
                Err(failure) => panic!("cannot listen on {}: {failure}", self.listen),
            },
            Input::Resolved { .. }
            | Input::Inspected { .. }
            | Input::Message(_)
            | Input::Timeout => {}
        }
    }

    fn poll(&mut self, _now: Instant) -> Output<Address> {
        if !self.started {
            self.started = true;
            return Output::Listen {
                listener: ListenerId(0),
                address: self.listen.clone(),
                options: Arc::new(ListenOptions::default()),
            };
        }
        self.outputs.pop_front().unwrap_or(Output::Idle)
    }
}
