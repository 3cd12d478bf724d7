//! Any number of machines, the network between them, and time.
//!
//! A [`World`] does what drivers and kernels do: it wakes a machine when something has arrived, hands
//! over everything at once, polls it until it waits, and carries its bytes. What may happen in any
//! order is put into a drawn order; what a kernel may split, join or delay is split, joined and
//! delayed. It also holds each machine to its side of the contract (see
//! [`towpath_proto::machine`]), and panics where one breaks it.
//!
//! When the thread panics while a world exists, the world prints its latest events.

mod network;
mod node;
mod round;
mod stream;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Address, AttemptId, Failure, Input, Instant, ListenerId, Machine, QueryId};

use crate::faults::Faults;
use crate::random::Random;
use crate::seeds::reproduction;
use crate::trace::{Note, Trace};

use node::{Cause, Node};
use stream::{EndId, Life, Stream};

/// Machines in virtual time. `T` is the message type that all of them share.
pub struct World<T> {
    seed: u64,
    random: Random,
    now: Instant,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    events: u64,
    nodes: Vec<Node<T>>,
    streams: Vec<Stream>,
    listeners: Vec<Listening>,
    faults: Faults,
    faults_to: BTreeMap<Address, Faults>,
    names: BTreeMap<String, Vec<IpAddr>>,
    next_port: u16,
    trace: Trace,
}

/// A machine in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

struct Listening {
    node: usize,
    listener: ListenerId,
    address: Address,
    shared: bool,
}

/// Ordered by time, then by a drawn number: what happens at the same moment happens in any order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled {
    at: Instant,
    draw: u64,
    number: u64,
    event: Event,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    /// A connect reaches the other side.
    Dial {
        node: usize,
        attempt: AttemptId,
        address: Address,
        local: Address,
    },
    /// The answer to a connect comes back.
    Answered {
        node: usize,
        attempt: AttemptId,
        outcome: Result<usize, Fault>,
    },
    Arrive {
        stream: usize,
        side: usize,
        segment: Option<Bytes>,
    },
    Reset {
        stream: usize,
        side: usize,
    },
    Writable {
        stream: usize,
        side: usize,
    },
    Resolved {
        node: usize,
        query: QueryId,
        outcome: Result<Vec<IpAddr>, Fault>,
    },
}

/// The failures that the network itself makes; ordered, as [`Failure`] is not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Refused,
    TimedOut,
    NoSuchName,
}

/// More events than any honest scene needs: something turns in circles.
const MAX_EVENTS: u64 = 50_000_000;

impl<T: 'static> World<T> {
    /// An empty world that will always be the same for the same seed and calls.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            random: Random::new(seed),
            now: Instant::ZERO,
            queue: BinaryHeap::new(),
            scheduled: 0,
            events: 0,
            nodes: Vec::new(),
            streams: Vec::new(),
            listeners: Vec::new(),
            faults: Faults::none(),
            faults_to: BTreeMap::new(),
            names: BTreeMap::new(),
            next_port: 20_000,
            trace: Trace::new(),
        }
    }

    /// The habits of the paths that are opened from here on. [`Faults::none`] at first.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The habits of paths to one address, as it is dialled.
    pub fn set_faults_to(&mut self, address: impl Into<Address>, faults: Faults) {
        self.faults_to.insert(address.into(), faults);
    }

    /// What a name resolves to. Unknown names do not exist.
    pub fn set_name(&mut self, name: &str, addresses: &[IpAddr]) {
        self.names.insert(name.to_owned(), addresses.to_vec());
    }

    /// Adds a machine. It is polled as soon as the world runs, so that a machine that is added at the same time
    /// finds its listeners: even the fastest connect takes longer.
    pub fn add(&mut self, machine: impl Machine<Message = T> + 'static) -> NodeId {
        let index = self.nodes.len();
        let [high, low] = u16::try_from(index + 1).unwrap_or(u16::MAX).to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(10, 1, high, low));
        self.nodes.push(Node::new(Box::new(machine), address));
        self.wake_at(index, self.now);
        NodeId(index)
    }

    /// Hands a message to a machine, as another thread would. Messages to one machine keep their order.
    pub fn send(&mut self, node: NodeId, message: T) {
        self.cause(node.0, Cause::Told(Input::Message(message)));
    }

    /// Ends a machine as if its process were killed: its peers are reset.
    pub fn kill(&mut self, node: NodeId) {
        self.note(node.0, false, "killed", 0, 0);
        self.nodes[node.0].dead = true;
        self.listeners.retain(|listening| listening.node != node.0);
        for stream in 0..self.streams.len() {
            for side in 0..2 {
                let end = &self.streams[stream].ends[side];
                if end.node == node.0 && end.life != Life::Gone {
                    self.abort(EndId { stream, side });
                }
            }
        }
    }

    /// From here on nothing arrives any more on the connections that are open, and neither side is told.
    pub fn vanish_connections(&mut self) {
        for stream in &mut self.streams {
            stream.vanished = true;
        }
    }

    /// Stops a machine for a while; the kernel under it goes on.
    pub fn freeze(&mut self, node: NodeId, time: Duration) {
        self.note(node.0, false, "frozen", 0, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.nodes[node.0].frozen_until = self.now + time;
    }

    /// Runs until nothing is on its way and no machine waits for a time any more, or `limit` has passed;
    /// says whether it became quiet.
    pub fn run_until_quiet(&mut self, limit: Duration) -> bool {
        let end = self.now + limit;
        while self.next_at().is_some_and(|at| at <= end) {
            self.step();
        }
        if self.next_at().is_some() {
            self.now = end;
            return false;
        }
        true
    }

    /// Runs for that long.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.next_at().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Runs until `condition` holds, or `limit` has passed; says whether it holds.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut condition: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let end = self.now + limit;
        loop {
            if condition(self) {
                return true;
            }
            if self.next_at().is_none_or(|at| at > end) {
                self.now = self.now.max(end);
                return condition(self);
            }
            self.step();
        }
    }

    /// The messages that a machine has sent to other threads since the last call, and when.
    pub fn take_messages(&mut self, node: NodeId) -> Vec<(Instant, T)> {
        self.nodes[node.0].messages.drain(..).collect()
    }

    /// The machine itself, for a look inside or a call that no driver makes. Call [`World::nudge`] when the call
    /// made it want something.
    ///
    /// # Panics
    /// When it is not an `M`.
    pub fn machine_mut<M: Machine<Message = T> + 'static>(&mut self, node: NodeId) -> &mut M {
        self.nodes[node.0]
            .machine
            .as_mut()
            .and_then(|machine| machine.as_any_mut().downcast_mut())
            .expect("the node's machine is of the type asked for")
    }

    /// Polls a machine soon, though nothing arrived for it.
    pub fn nudge(&mut self, node: NodeId) {
        self.wake(node.0);
    }

    /// The machine itself.
    ///
    /// # Panics
    /// When it is not an `M`.
    #[must_use]
    pub fn machine<M: Machine<Message = T> + 'static>(&self, node: NodeId) -> &M {
        self.nodes[node.0]
            .machine
            .as_ref()
            .and_then(|machine| machine.as_any().downcast_ref())
            .expect("the node's machine is of the type asked for")
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The seed.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The world's dice, for scenes that draw their own numbers.
    pub const fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Bytes that a machine has sent and its driver has not brought into the kernel: at present, and at most so far.
    #[must_use]
    pub fn unsent_bytes(&self, node: NodeId) -> (usize, usize) {
        let node = &self.nodes[node.0];
        (node.unsent_bytes, node.peak_unsent_bytes)
    }

    /// Connections that are open from a machine's point of view.
    #[must_use]
    pub fn connections(&self, node: NodeId) -> usize {
        self.nodes[node.0].connections().count()
    }

    /// Where a machine's connections come from.
    #[must_use]
    pub fn address(&self, node: NodeId) -> IpAddr {
        self.nodes[node.0].address
    }

    /// A number that stands for all that has happened: equal for equal runs.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.trace.fingerprint()
    }

    fn next_at(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse(next)| next.at)
    }

    fn step(&mut self) {
        let Some(Reverse(next)) = self.queue.pop() else {
            return;
        };
        self.events += 1;
        assert!(self.events < MAX_EVENTS, "the world turns in circles");
        self.now = self.now.max(next.at);
        match next.event {
            Event::Wake(node) => self.on_wake(node, next.at),
            Event::Dial { node, attempt, address, local } => {
                self.on_dial(node, attempt, &address, local);
            }
            Event::Answered { node, attempt, outcome } => self.on_answered(node, attempt, outcome),
            Event::Arrive { stream, side, segment } => {
                self.on_arrive(EndId { stream, side }, segment);
            }
            Event::Reset { stream, side } => self.on_reset(EndId { stream, side }),
            Event::Writable { stream, side } => self.on_writable(EndId { stream, side }),
            Event::Resolved { node, query, outcome } => {
                let outcome = outcome.map_err(Failure::from);
                self.cause(node, Cause::Told(Input::Resolved { query, outcome, lifetime: None }));
            }
        }
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.scheduled += 1;
        let draw = self.random.bits();
        self.queue.push(Reverse(Scheduled { at, draw, number: self.scheduled, event }));
    }

    /// Adds a reason to wake, and wakes.
    fn cause(&mut self, node: usize, cause: Cause<T>) {
        if !self.nodes[node].dead {
            self.nodes[node].inbox.push(cause);
            self.wake(node);
        }
    }

    fn wake(&mut self, node: usize) {
        let delay = self.random.duration(&self.faults.wake);
        self.wake_at(node, self.now + delay);
    }

    fn wake_at(&mut self, index: usize, at: Instant) {
        let node = &mut self.nodes[index];
        let at = at.max(node.frozen_until);
        if !node.dead && node.wake_at.is_none_or(|earlier| at < earlier) {
            node.wake_at = Some(at);
            self.schedule(at, Event::Wake(index));
        }
    }

    fn end(&mut self, end: EndId) -> &mut stream::End {
        &mut self.streams[end.stream].ends[end.side]
    }

    fn note_readable(&mut self, end: EndId) {
        let this = self.end(end);
        if this.readable_noted || !matches!(this.life, Life::Alive | Life::Unborn) {
            return;
        }
        this.readable_noted = true;
        let node = this.node;
        self.cause(node, Cause::Readable(end));
    }

    fn note(&mut self, node: usize, told: bool, what: &'static str, subject: u64, number: u64) {
        self.trace.note(Note { at: self.now, node, told, what, subject, number });
    }
}

impl<T> Drop for World<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the world of seed {}; its latest events:\n{}", self.seed, self.trace);
            eprintln!(
                "to repeat it, if the seed came from for_each_seed:\n  {}",
                reproduction(self.seed)
            );
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused => Self::Refused,
            Fault::TimedOut => Self::TimedOut,
            Fault::NoSuchName => Self::NoSuchName,
        }
    }
}

/// Whether a listener on `bound` answers for `dialled`.
fn answers(bound: &Address, dialled: &Address) -> bool {
    match (bound, dialled) {
        (Address::Ip(bound), Address::Ip(dialled)) => {
            bound.port() == dialled.port()
                && (bound.ip() == dialled.ip() || bound.ip().is_unspecified())
        }
        (bound, dialled) => {
            bound == dialled
                || (bound.internal().is_some() && bound.internal() == dialled.internal())
        }
    }
}

fn with_port(address: &Address, port: u16) -> Address {
    match address {
        Address::Ip(ip) => Address::Ip(SocketAddr::new(ip.ip(), port)),
        Address::Unix(_) | Address::Internal(_) => address.clone(),
    }
}

#[cfg(test)]
mod tests;
