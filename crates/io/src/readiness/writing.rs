//! From wishes to system calls: polls the machine, then writes what it left.

use bytes::Bytes;
use towpath_proto::{
    Close, ConnectionId, Failure, FlowLimit, Input, Instant, Machine, Output, QueryId, ReadInterest,
};

use crate::buffers::Size;
use crate::{socket, sys};

use super::connection::{Ours, Phase};
use super::{Driver, RESET_PAUSE};

/// Fewer bytes in one read are not worth the call.
const LEAST_READ_BYTES: u32 = 4 * 1024;

impl<M: Machine> Driver<M>
where
    M::Message: Send + 'static,
{
    pub(super) fn poll(&mut self, now: Instant) {
        self.unpolled = false;
        loop {
            match self.machine.poll(now) {
                Output::Send { connection, chunk } => self.send(connection, chunk),
                Output::Push { connection } => self.push(connection, now),
                Output::Wait(deadline) => {
                    self.deadline = deadline;
                    return;
                }
                Output::Idle => {
                    self.deadline = Instant::FAR_FUTURE;
                    return;
                }
                Output::ReadInterest { connection, interest } => {
                    self.read_interest(connection, interest);
                }
                Output::ReadLimit { connection, bytes, grows } => {
                    self.read_limit(connection, bytes, grows);
                }
                Output::Close { connection, how } => self.close(connection, how, now),
                Output::Connect { attempt, address, options } => {
                    self.connect(attempt, &address, &options);
                }
                Output::CancelConnect { attempt } => self.cancel_connect(attempt),
                Output::Listen { listener, address, options } => {
                    let outcome = self.listen(listener, &address, &options);
                    self.answers.push(Input::Listening { listener, outcome });
                }
                Output::Unlisten { listener } => self.unlisten(listener),
                Output::Hold { listener, is_held } => self.hold(listener, is_held),
                Output::Resolve { query, name } => self.resolve(query, name),
                Output::Inspect { connection } => self.inspect(connection),
                Output::LimitFlow { connection, limit } => self.limit_flow(connection, limit),
                Output::Message(message) => (self.mailbox)(message),
            }
        }
    }

    pub(super) fn write(&mut self, now: Instant) {
        if self.writes.is_empty() {
            return;
        }
        let mut slots = std::mem::take(&mut self.slots);
        std::mem::swap(&mut self.writes, &mut slots);
        for slot in slots.drain(..) {
            self.write_to(slot, now);
        }
        self.slots = slots;
    }

    pub(super) fn write_to(&mut self, slot: usize, now: Instant) {
        let Some((id, connection)) = self.connections.at(slot) else {
            return;
        };
        connection.in_writes = false;
        if matches!(connection.phase, Phase::Connecting(_)) {
            return;
        }
        let written = connection.write(&self.shared.counters);
        let closing = connection.phase != Phase::Open;
        if written.bytes > 0 {
            connection.progressed = closing;
            if !closing {
                self.answers.push(Input::Sent { connection: id, bytes: written.bytes });
            }
        }
        if let Some(failure) = written.failure {
            return self.write_failed(id, failure);
        }
        if !connection.queue.is_empty() {
            return;
        }
        if closing && connection.ended && connection.ours != Ours::Resetting {
            return self.remove(id);
        }
        match connection.ours {
            Ours::Ending => connection.end(),
            Ours::Resetting => self.reset_delivered(id, now),
            Ours::Open | Ours::Ended => {}
        }
    }

    /// Resets a connection if the peer's kernel has all that was written, or looks again in a moment.
    pub(super) fn reset_delivered(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.find(id) else {
            return;
        };
        if sys::unacknowledged(&connection.socket) == 0 {
            return self.remove(id);
        }
        self.resetting.push(id);
        self.reset_again = self.reset_again.min(now + RESET_PAUSE);
    }

    pub(super) fn write_failed(&mut self, id: ConnectionId, failure: Failure) {
        let Some(connection) = self.connections.find(id) else {
            return;
        };
        if connection.phase != Phase::Open {
            return self.remove(id);
        }
        connection.queue.clear();
        if !connection.reads() {
            self.remove(id);
            self.answers.push(Input::Closed { connection: id, failure });
            return;
        }
        connection.failure = Some(failure);
        connection.readable = true;
        connection.hung_up = true;
        if !connection.in_reads {
            connection.in_reads = true;
            self.reads.push(id.slot());
        }
    }

    pub(super) fn send(&mut self, id: ConnectionId, chunk: Bytes) {
        let Some(connection) = self.connections.open(id) else {
            return;
        };
        if chunk.is_empty() || connection.ours != Ours::Open || connection.failure.is_some() {
            return;
        }
        connection.push(chunk);
        if connection.writable && !connection.in_writes {
            connection.in_writes = true;
            self.writes.push(id.slot());
        }
    }

    /// Writes what is queued without waiting for the end of the round.
    pub(super) fn push(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.open(id) else {
            return;
        };
        let in_writes = connection.in_writes;
        if connection.queue.is_empty() || !connection.writable {
            return;
        }
        self.write_to(id.slot(), now);
        // Its place in this round's list stays taken.
        if let Some(connection) = self.connections.find(id) {
            connection.in_writes = in_writes;
        }
    }

    pub(super) fn read_interest(&mut self, id: ConnectionId, interest: ReadInterest) {
        let Some(connection) = self.connections.open(id) else {
            return;
        };
        connection.wanted = interest == ReadInterest::On;
        if !connection.wanted {
            connection.paused_in = self.turn;
        } else if connection.paused_in != self.turn {
            connection.shrink();
        }
        if let (Some(failure), false) = (connection.failure, connection.wanted) {
            self.remove(id);
            self.answers.push(Input::Closed { connection: id, failure });
            return;
        }
        if connection.reads() && connection.readable && !connection.in_reads {
            connection.in_reads = true;
            self.reads.push(id.slot());
        }
    }

    pub(super) fn read_limit(&mut self, id: ConnectionId, bytes: usize, grows: bool) {
        if let Some(connection) = self.connections.open(id) {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            connection.read_limit = bytes.max(LEAST_READ_BYTES);
            connection.growth = grows.then_some(0);
            connection.size = Size::Page;
        }
    }

    pub(super) fn close(&mut self, id: ConnectionId, how: Close, now: Instant) {
        let Some(connection) = self.connections.open(id) else {
            return;
        };
        match how {
            Close::Abort => {
                connection.ours = Ours::Resetting;
                return self.remove(id);
            }
            Close::Half => {
                if connection.ours == Ours::Open {
                    connection.ours = Ours::Ending;
                }
            }
            Close::Now => return self.cut(id),
            Close::Flush | Close::FlushReset => {
                let resets = how == Close::FlushReset;
                if resets {
                    connection.ours = Ours::Resetting;
                } else if connection.ours == Ours::Open {
                    connection.ours = Ours::Ending;
                }
                let done = connection.ended && connection.queue.is_empty() && !resets;
                if connection.failure.is_some() || done {
                    return self.remove(id);
                }
                connection.phase = Phase::Closing { begun: now };
                if connection.readable && !connection.in_reads {
                    connection.in_reads = true;
                    self.reads.push(id.slot());
                }
                self.closing.push_back((now + self.options.linger, id));
                if self.closing.len() > self.options.max_closing
                    && let Some((_, oldest)) = self.closing.pop_front()
                {
                    self.cut(oldest);
                }
            }
        }
        let Some(connection) = self.connections.find(id) else {
            return;
        };
        if !connection.in_writes {
            connection.in_writes = true;
            self.writes.push(id.slot());
        }
    }

    pub(super) fn inspect(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.open(id) {
            let facts = sys::path_facts(&connection.socket);
            self.answers.push(Input::Inspected { connection: id, facts });
        }
    }

    pub(super) fn limit_flow(&mut self, id: ConnectionId, limit: FlowLimit) {
        if let Some(connection) = self.connections.open(id) {
            socket::limit_flow(&connection.socket, limit);
        }
    }

    pub(super) fn resolve(&mut self, query: QueryId, name: String) {
        if let Err(failure) = self.resolver.ask(query, name, &self.shared) {
            let outcome = Err(failure);
            self.answers.push(Input::Resolved { query, outcome, lifetime: None });
        }
    }
}
