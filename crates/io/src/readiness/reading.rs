//! From readiness to inputs: what a turn takes from the kernel, the other threads and the clock.

use std::os::fd::AsFd;

use rustix::io::Errno;
use towpath_proto::{ConnectionId, Input, Instant, Machine};

use crate::failure;
use crate::handle::Command;
use crate::resolver::Told;

use super::connection::{Ours, Phase};
use super::poller::Readiness;
use super::{Driver, FIRST_LISTENER, MAX_MESSAGES, WAKER};

impl<M: Machine> Driver<M>
where
    M::Message: Send + 'static,
{
    pub(super) fn on_ready(&mut self, event: Readiness, now: Instant) {
        if event.token == WAKER {
            return self.shared.take(&mut self.commands);
        }
        if event.token >= FIRST_LISTENER {
            return self.on_listener_ready(event.token - FIRST_LISTENER);
        }
        let slot = event.token;
        let Some((id, connection)) = self.connections.at(slot) else {
            return;
        };
        self.gathering.count(&mut connection.seen_in);
        if let Phase::Connecting(attempt) = connection.phase {
            return self.on_connect_ready(attempt, id, event, now);
        }
        if event.readable || event.hung_up {
            connection.readable = true;
            connection.hung_up |= event.hung_up;
            if connection.reads() && !connection.in_reads {
                connection.in_reads = true;
                self.reads.push(slot);
            }
        }
        if event.writable && !connection.writable {
            connection.writable = true;
            if !connection.queue.is_empty() && !connection.in_writes {
                connection.in_writes = true;
                self.writes.push(slot);
            }
        }
        // It is not read, so that would go unnoticed.
        if event.failed
            && !connection.reads()
            && let Some(failure) = connection.take_error()
        {
            self.closed(id, failure, now);
        }
    }

    /// Reads the ready connections in their order, each up to its share, until the turn's share is used up; the others
    /// come first in the next turn.
    pub(super) fn receive(&mut self, now: Instant) {
        std::mem::swap(&mut self.reads, &mut self.slots);
        let mut slots = std::mem::take(&mut self.slots);
        let mut left = self.options.turn_bytes;
        let mut done = 0;
        while done < slots.len() && left > 0 {
            left = left.saturating_sub(self.receive_from(slots[done], now));
            done += 1;
        }
        self.reads.splice(..0, slots.drain(done..));
        slots.clear();
        self.slots = slots;
    }

    /// How many bytes came.
    pub(super) fn receive_from(&mut self, slot: usize, now: Instant) -> usize {
        let Some((id, connection)) = self.connections.at(slot) else {
            return 0;
        };
        connection.in_reads = false;
        if connection.phase != Phase::Open {
            self.discard_from(id);
            return 0;
        }
        let limit = self.options.read_budget_bytes.min(connection.read_limit());
        let mut budget = limit;
        while connection.readable && connection.reads() {
            self.shared.counters.reads.add(1);
            let socket = connection.socket.as_fd();
            match self.buffers.receive(socket, connection.size, budget, limit) {
                Ok(Some(chunk)) => {
                    connection.size = chunk.next;
                    connection.readable = chunk.filled || connection.hung_up;
                    budget -= chunk.bytes.len();
                    self.shared.counters.bytes_read.add(chunk.bytes.len() as u64);
                    let input = Input::Received { connection: id, chunk: chunk.bytes };
                    self.machine.handle(input, now);
                    self.unpolled = true;
                }
                Ok(None) => {
                    connection.readable = false;
                    connection.ended = true;
                    match connection.failure {
                        Some(failure) => self.closed(id, failure, now),
                        None => self.tell(Input::Ended { connection: id }, now),
                    }
                    break;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    connection.readable = false;
                    if let Some(failure) = connection.failure {
                        self.closed(id, failure, now);
                        break;
                    }
                }
                Err(error) => {
                    let failure = failure::of_code(error.raw_os_error());
                    self.closed(id, failure, now);
                    break;
                }
            }
            if budget == 0 {
                connection.used_up();
                if connection.readable {
                    connection.in_reads = true;
                    self.reads.push(slot);
                }
                break;
            }
        }
        limit - budget
    }

    /// Reads what is not wanted, so that closing does not turn into a reset.
    pub(super) fn discard_from(&mut self, id: ConnectionId) {
        let mut budget = self.options.read_budget_bytes;
        let Some(connection) = self.connections.find(id) else {
            return;
        };
        while budget > 0 {
            self.shared.counters.reads.add(1);
            match self.buffers.discard(connection.socket.as_fd()) {
                Ok(0) => {
                    connection.ended = true;
                    if connection.queue.is_empty() && connection.ours != Ours::Resetting {
                        self.remove(id);
                    }
                    return;
                }
                Ok(bytes) => {
                    budget = budget.saturating_sub(bytes);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    connection.readable = false;
                    return;
                }
                Err(_) => return self.remove(id),
            }
        }
        connection.in_reads = true;
        self.reads.push(id.slot());
    }

    pub(super) fn take_commands(&mut self, now: Instant) {
        for _ in 0..MAX_MESSAGES {
            match self.commands.pop_front() {
                Some(Command::Message(message)) => {
                    self.shared.counters.messages.add(1);
                    self.tell(Input::Message(message), now);
                }
                Some(Command::Resolve { query, name }) => self.resolve(query, name),
                Some(Command::Resolved { query, told: Told { outcome, lifetime } }) => {
                    self.tell(Input::Resolved { query, outcome, lifetime }, now);
                }
                Some(Command::Accepted(accepted)) => self.begin(*accepted, now),
                None => return,
            }
        }
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        if self.accept_again <= now {
            self.accept_again = Instant::FAR_FUTURE;
            for index in std::mem::take(&mut self.paused) {
                self.on_listener_ready(index);
            }
        }
        if self.reset_again <= now {
            self.reset_again = Instant::FAR_FUTURE;
            for id in std::mem::take(&mut self.resetting) {
                self.reset_delivered(id, now);
            }
        }
        while let Some(&(at, id)) = self.closing.front() {
            if at > now {
                break;
            }
            self.closing.pop_front();
            self.on_closing_late(id, now);
        }
        if self.deadline <= now {
            self.deadline = Instant::FAR_FUTURE;
            self.tell(Input::Timeout, now);
        }
    }

    pub(super) fn on_closing_late(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.find(id) else {
            return;
        };
        let Phase::Closing { begun } = connection.phase else {
            return;
        };
        // A reset is not put off for as long as a slow peer takes.
        let progressed =
            std::mem::take(&mut connection.progressed) && connection.ours != Ours::Resetting;
        if !progressed || now.since(begun) >= self.options.max_flush {
            self.cut(id);
        } else {
            self.closing.push_back((now + self.options.linger, id));
        }
    }

    /// Ends a connection at once, whatever still waits to be written.
    pub(super) fn cut(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.find(id) else {
            return;
        };
        if !connection.queue.is_empty() {
            self.shared.counters.flushes_cut.add(1);
            connection.ours = Ours::Resetting;
        }
        self.remove(id);
    }
}
