//! What the network and the two kernels do: connects, segments, FINs, resets.

use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Address, AttemptId, Failure, Instant};

use crate::faults::Faults;

use super::node::Cause;
use super::stream::{End, EndId, Life, Ours, Stream};
use super::{Event, Fault, World, answers};

/// How long a closed end takes in what still comes before it answers with a reset.
const LINGER: Duration = Duration::from_secs(5);

impl<T: 'static> World<T> {
    pub(super) fn dial(
        &mut self,
        node: usize,
        attempt: AttemptId,
        address: Address,
        local: Address,
    ) {
        let faults = self.faults_to(&address);
        let latency = self.random.duration(&faults.latency);
        if self.random.chance(faults.hang_permille) {
            let patience = Duration::from_secs(60)..=Duration::from_secs(130);
            let at = self.now + self.random.duration(&patience);
            let outcome = Err(Fault::TimedOut);
            return self.schedule(at, Event::Answered { node, attempt, outcome });
        }
        if self.random.chance(faults.refuse_permille) {
            let outcome = Err(Fault::Refused);
            let at = self.now + latency * 2;
            return self.schedule(at, Event::Answered { node, attempt, outcome });
        }
        self.schedule(self.now + latency, Event::Dial { node, attempt, address, local });
    }

    pub(super) fn on_dial(
        &mut self,
        node: usize,
        attempt: AttemptId,
        address: &Address,
        local: Address,
    ) {
        if !self.nodes[node].promises.pending.contains_key(&attempt) {
            return;
        }
        let faults = self.faults_to(address);
        let candidates: Vec<usize> = (0..self.listeners.len())
            .filter(|&index| answers(&self.listeners[index].address, address))
            .collect();
        let back = self.now + self.random.duration(&faults.latency);
        let Some(&taker) = self.random.pick(&candidates) else {
            let outcome = Err(Fault::Refused);
            return self.schedule(back, Event::Answered { node, attempt, outcome });
        };
        let path = faults.path(&mut self.random);
        let mut buffers =
            || (self.random.size(&faults.buffer_bytes), self.random.size(&faults.buffer_bytes));
        let (near, far) = (buffers(), buffers());
        let taker = &self.listeners[taker];
        let (far_node, listener) = (taker.node, taker.listener);
        let ends = [End::new(node, local, near), End::new(far_node, address.clone(), far)];
        let stream = self.streams.len();
        self.streams.push(Stream {
            ends,
            path,
            carried: 0,
            moved: self.now,
            vanished: false,
            listener,
        });
        self.cause(far_node, Cause::Accepted(EndId { stream, side: 1 }));
        self.schedule(back, Event::Answered { node, attempt, outcome: Ok(stream) });
    }

    pub(super) fn on_answered(
        &mut self,
        node: usize,
        attempt: AttemptId,
        outcome: Result<usize, Fault>,
    ) {
        match outcome {
            Ok(stream) => {
                let end = EndId { stream, side: 0 };
                self.cause(node, Cause::Connected(attempt, end));
                if self.nodes[node].dead {
                    self.abort(end);
                }
            }
            Err(fault) => {
                let failure = Failure::from(fault);
                let input = towpath_proto::Input::ConnectFailed { attempt, failure };
                self.cause(node, Cause::Told(input));
            }
        }
    }

    /// Brings what the driver holds into the kernel, as far as it fits; how much that was.
    pub(super) fn flush(&mut self, end: EndId) -> usize {
        let partial_permille = self.streams[end.stream].path.partial_permille;
        let this = self.end(end);
        if this.failure.is_some() {
            return 0;
        }
        let whole = this.room().min(this.unsent_bytes);
        let bytes = if whole > 1 && self.random.chance(partial_permille) {
            1 + usize::try_from(self.random.below(whole as u64 - 1)).unwrap_or(0)
        } else {
            whole
        };
        let this = self.end(end);
        this.enter_kernel(bytes);
        let node = this.node;
        self.nodes[node].unsent_bytes -= bytes;
        if bytes < whole {
            let at = self.now + self.random.duration(&self.faults.latency);
            self.schedule(at, Event::Writable { stream: end.stream, side: end.side });
        }
        let this = self.end(end);
        if this.ours == Ours::Ending && this.unsent_bytes == 0 {
            this.ours = Ours::Ended;
        }
        self.transmit(end);
        bytes
    }

    /// Sends what the window lets through, and the FIN after the last byte.
    pub(super) fn transmit(&mut self, end: EndId) {
        loop {
            let stream = &mut self.streams[end.stream];
            let Some(segment) = stream.next_segment(end.side, &mut self.random) else {
                break;
            };
            let carried = stream.carried;
            if stream.path.vanish_after.is_some_and(|bytes| carried > bytes) {
                stream.vanished = true;
            }
            if stream.path.reset_after.is_some_and(|bytes| carried > bytes) {
                stream.path.reset_after = None;
                self.reset_soon(end);
                self.reset_soon(end.other());
            }
            self.depart(end, Some(segment));
        }
        let this = self.end(end);
        // What a reset threw away is not followed by a FIN as if it had been sent.
        let is_reset = this.failure.is_some() || this.life == Life::Gone;
        if this.ours == Ours::Ended && this.kernel_bytes == 0 && !is_reset {
            this.ours = Ours::Left;
            if this.resets {
                return self.abort(end);
            }
            self.depart(end, None);
        }
    }

    pub(super) fn on_arrive(&mut self, end: EndId, segment: Option<Bytes>) {
        if self.streams[end.stream].vanished {
            return;
        }
        let Some(segment) = segment else {
            self.end(end).fin = true;
            return self.note_readable(end);
        };
        let now = self.now;
        let sender = self.end(end.other());
        sender.in_flight -= segment.len();
        sender.acknowledged = now;
        match self.end(end).life {
            Life::Unborn | Life::Alive => {
                if self.end(end).failure.is_none() {
                    let this = self.end(end);
                    this.received_bytes += segment.len();
                    this.received.push_back(segment);
                    self.note_readable(end);
                }
            }
            Life::Closing { since } => {
                if self.now.since(since) > LINGER {
                    self.reset_soon(end.other());
                }
                self.transmit(end.other());
            }
            Life::Gone => self.reset_soon(end.other()),
        }
        self.on_writable(end.other());
    }

    /// The send buffer may have room again.
    pub(super) fn on_writable(&mut self, end: EndId) {
        let this = self.end(end);
        if this.unsent_bytes == 0 || this.room() == 0 {
            return;
        }
        match this.life {
            Life::Alive => {
                if !this.writable_noted {
                    this.writable_noted = true;
                    let node = this.node;
                    self.cause(node, Cause::Writable(end));
                }
            }
            // The machine is told no more; the driver goes on by itself.
            Life::Closing { .. } => {
                self.flush(end);
            }
            Life::Unborn | Life::Gone => {}
        }
    }

    pub(super) fn on_reset(&mut self, end: EndId) {
        if self.streams[end.stream].vanished {
            return;
        }
        let lost = self.random.chance(500);
        let this = self.end(end);
        if this.failure.is_some() || this.life == Life::Gone {
            return;
        }
        this.failure = Some(Failure::Reset);
        let (node, unsent) = (this.node, this.unsent_bytes);
        this.drop_unsent();
        if lost {
            this.drop_received();
        }
        if matches!(this.life, Life::Closing { .. }) {
            this.life = Life::Gone;
        }
        self.nodes[node].unsent_bytes -= unsent;
        self.note_readable(end);
    }

    /// The machine, its process or a fault ends this side at once.
    pub(super) fn abort(&mut self, end: EndId) {
        let this = self.end(end);
        let (node, id, unsent, life) = (this.node, this.id, this.unsent_bytes, this.life);
        this.life = Life::Gone;
        this.drop_unsent();
        this.drop_received();
        self.nodes[node].unsent_bytes -= unsent;
        if life == Life::Alive {
            self.nodes[node].forget(id);
        }
        // Behind what is on its way.
        let at = self.arrival(end);
        let EndId { stream, side } = end.other();
        self.schedule(at, Event::Reset { stream, side });
    }

    fn reset_soon(&mut self, end: EndId) {
        let delay = self.streams[end.stream].path.delay(&mut self.random);
        let EndId { stream, side } = end;
        self.schedule(self.now + delay, Event::Reset { stream, side });
    }

    fn depart(&mut self, end: EndId, segment: Option<Bytes>) {
        let at = self.arrival(end);
        let EndId { stream, side } = end.other();
        self.schedule(at, Event::Arrive { stream, side, segment });
    }

    /// When the next thing that leaves here arrives: never before what left earlier.
    fn arrival(&mut self, end: EndId) -> Instant {
        let now = self.now;
        let stream = &mut self.streams[end.stream];
        let silence = now.since(std::mem::replace(&mut stream.moved, now));
        stream.vanished |= stream.path.forgets_after.is_some_and(|limit| silence >= limit);
        let delay = stream.path.delay(&mut self.random);
        let this = self.end(end);
        this.last_arrival = (now + delay).max(this.last_arrival + Duration::from_nanos(1));
        this.last_arrival
    }

    fn faults_to(&self, address: &Address) -> Faults {
        self.faults_to.get(address).unwrap_or(&self.faults).clone()
    }
}
