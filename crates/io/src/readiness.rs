//! The readiness driver: one machine, one thread, edge-triggered events.
//!
//! One **turn**:
//!
//! 1. wait until something is ready, a message comes or a deadline passes; read the clock;
//! 2. read every ready socket until it is short or its budget is used up, and hand over what came;
//! 3. finish connects, say when the machine's deadline has passed, accept, take messages;
//! 4. poll the machine until it waits, then write each touched connection once; what was sent is
//!    reported, and if anything was, the machine is polled once more.
//!
//! What it costs on the steady path: one wait for a turn, one `recv` for each ready connection, one
//! `send` or `sendmsg` for each touched one. Descriptors are registered once, for both directions;
//! everything that is switched on and off later is remembered here and costs no call. Nothing is
//! allocated, and an idle connection owns no buffer (see `buffers.rs`).
//!
//! How connections end:
//!
//! - [`Close::Flush`](towpath_proto::Close::Flush) writes the queue, sends FIN, and then reads and drops what still
//!   comes until the peer's FIN, but no longer than [`Options::linger`]: closing a socket with unread bytes makes the
//!   kernel send a reset, which destroys what the peer has not read yet. What the peer sends is no progress.
//! - [`Close::FlushReset`](towpath_proto::Close::FlushReset) writes the queue, waits until the kernel has it
//!   acknowledged, and sends RST. [`Close::Now`](towpath_proto::Close::Now) waits for nothing.
//! - [`Close::Half`](towpath_proto::Close::Half) writes the queue and sends FIN.
//! - [`Close::Abort`](towpath_proto::Close::Abort) sends RST (`SO_LINGER` 0).
//! - When writing fails, what the peer sent before it went is read first and `Closed` comes after it.
//! - A connection that ended in both directions is still the machine's, until it closes it.

mod connecting;
mod connection;
mod gathering;
mod listening;
mod poller;
mod reading;
mod writing;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{self, Duration};

use towpath_proto::{AttemptId, ConnectionId, Failure, Input, Instant, ListenerId, Machine};

use crate::balance::{Busy, Group};
use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::counters::Counters;
use crate::handle::{Command, Handle, Shared};
use crate::listeners::{Listeners, Shard};
use crate::resolver::{Names, Resolver};
use crate::sys;

use connection::{Connections, Ours};
use gathering::Gathering;
use listening::Listener;
use poller::{Poller, Readiness};

/// How a driver runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which shard this is, from 0.
    pub shard: usize,
    /// How many shards share the listeners.
    pub shards: usize,
    /// The sockets that the shards share: clones of one registry.
    pub listeners: Listeners,
    /// Where `Instant::ZERO` is; the same for all shards.
    pub epoch: time::Instant,
    /// Time in which the machine was suspended counts (Linux: `CLOCK_BOOTTIME`).
    pub counts_suspend: bool,
    /// The buffer that connections with a lot to say are read into.
    pub read_bytes: usize,
    /// Bytes read from one connection in one turn, if its read limit is not less; the rest waits for the next.
    pub read_budget_bytes: usize,
    /// Bytes read in one turn before they are sent on, give or take one connection's share: what a turn can hold.
    pub turn_bytes: usize,
    /// Connections accepted from one listener in one turn, if the listener does not say less.
    pub max_accepts: u32,
    /// Messages that may wait; `Handle::send` refuses more.
    pub max_messages: usize,
    /// How long accepting pauses after it failed for want of descriptors or memory.
    pub accept_pause: Duration,
    /// How long a closing connection may write nothing before it is cut.
    pub linger: Duration,
    /// How long a closing connection may take in all.
    pub max_flush: Duration,
    /// How long a busy driver pauses before it asks for events, so that it takes several in one turn; zero: never.
    /// Requests take up to twice as much longer then.
    pub gather: Duration,
    /// Busy are those to whom so many different sockets had something for each millisecond of late.
    pub gather_from: u32,
    /// Connections that may be closing at once; the one that began first is cut for one more.
    pub max_closing: usize,
    /// Whom to ask for the addresses of names.
    pub names: Names,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shard: 0,
            shards: 1,
            listeners: Listeners::new(),
            epoch: time::Instant::now(),
            counts_suspend: false,
            read_bytes: 512 * 1024,
            read_budget_bytes: 512 * 1024,
            turn_bytes: 1024 * 1024,
            max_accepts: 256,
            max_messages: 65_536,
            accept_pause: Duration::from_millis(50),
            linger: Duration::from_secs(5),
            max_flush: Duration::from_secs(300),
            gather: Duration::ZERO,
            gather_from: 32,
            max_closing: 16_384,
            names: Names::default(),
        }
    }
}

/// Runs one machine on one thread.
pub struct Driver<M: Machine> {
    machine: M,
    mailbox: Box<dyn FnMut(M::Message)>,
    options: Options,
    clock: Clock,
    poller: Poller,
    shared: Arc<Shared<M::Message>>,
    resolver: Resolver,
    buffers: Buffers,
    connections: Connections,
    attempts: HashMap<AttemptId, ConnectionId>,
    listeners: Vec<Option<Listener>>,
    /// Listeners inside the process, by their names.
    internal: HashMap<String, ListenerId>,
    /// The connections within the process, each with its other end.
    pairs: HashMap<ConnectionId, ConnectionId>,
    /// Connections that are counted where they are balanced, by their slots.
    balanced: HashMap<usize, Arc<Group>>,
    busy: Busy,
    /// Slots to read, each at most once.
    reads: Vec<usize>,
    /// Slots to write, each at most once.
    writes: Vec<usize>,
    /// Listeners to accept from.
    accepts: Vec<usize>,
    /// Listeners that wait for `accept_again`.
    paused: Vec<usize>,
    accept_again: Instant,
    /// Closing connections in the order of their time limits.
    closing: VecDeque<(Instant, ConnectionId)>,
    /// Connections whose peers have not acknowledged all that is to arrive before a reset.
    resetting: Vec<ConnectionId>,
    /// When they are looked at again.
    reset_again: Instant,
    /// What the machine is told once its round is over.
    answers: Vec<Input<M::Message>>,
    commands: VecDeque<Command<M::Message>>,
    deadline: Instant,
    gathering: Gathering,
    /// Which turn this is, modulo 2³².
    turn: u32,
    /// The machine has not been polled since it was last told something.
    unpolled: bool,
    // Kept for their capacity.
    ready: Vec<Readiness>,
    slots: Vec<usize>,
    told: Vec<Input<M::Message>>,
}

const WAKER: usize = usize::MAX;
const FIRST_LISTENER: usize = 1 << 31;
/// Rounds in one turn before other connections are looked at again.
const MAX_ROUNDS: usize = 8;
/// So late for a deadline is no thread that ran all the time.
const OVERSLEPT: Duration = Duration::from_millis(50);
/// Messages taken in one turn.
const MAX_MESSAGES: usize = 1024;
/// How often acknowledgements are looked for that a reset waits for; no event tells of them.
const RESET_PAUSE: Duration = Duration::from_millis(5);

impl<M: Machine> Driver<M>
where
    M::Message: Send + 'static,
{
    /// A driver for `machine`. What the machine says to other threads goes to `mailbox`, on the
    /// driver's thread: it must not block.
    ///
    /// # Errors
    /// When the kernel gives no descriptors for waiting and waking.
    pub fn new(
        machine: M,
        options: Options,
        mailbox: impl FnMut(M::Message) + 'static,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let waker = poller.waker(WAKER)?;
        Ok(Self {
            machine,
            mailbox: Box::new(mailbox),
            clock: Clock::new(options.epoch, options.counts_suspend),
            poller,
            shared: Arc::new(Shared::new(waker, options.max_messages)),
            resolver: Resolver::new(options.names.clone()),
            buffers: Buffers::new(options.read_bytes),
            connections: Connections::default(),
            attempts: HashMap::new(),
            listeners: Vec::new(),
            internal: HashMap::new(),
            pairs: HashMap::new(),
            balanced: HashMap::new(),
            busy: Busy::default(),
            reads: Vec::new(),
            writes: Vec::new(),
            accepts: Vec::new(),
            paused: Vec::new(),
            accept_again: Instant::FAR_FUTURE,
            closing: VecDeque::new(),
            resetting: Vec::new(),
            reset_again: Instant::FAR_FUTURE,
            answers: Vec::new(),
            commands: VecDeque::new(),
            deadline: Instant::FAR_FUTURE,
            gathering: Gathering::new(options.gather, options.gather_from),
            turn: 0,
            unpolled: true,
            ready: Vec::new(),
            slots: Vec::new(),
            told: Vec::new(),
            options,
        })
    }

    /// Turns until [`Handle::stop`].
    ///
    /// # Errors
    /// When waiting fails, which it does not for reasons of the outside world.
    pub fn run(&mut self) -> io::Result<()> {
        if !self.options.gather.is_zero() {
            sys::wake_on_time();
        }
        while !self.shared.stopping() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// One turn, for a thread that has other things to do: waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub fn turn(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let mut timeout = self.timeout(limit);
        if let Some(pause) = self.gathering.pause(timeout) {
            std::thread::sleep(pause);
            timeout = timeout.map(|timeout| timeout.saturating_sub(pause));
        }
        let mut ready = std::mem::take(&mut self.ready);
        let mut waited = self.poller.wait(timeout, &mut ready);
        let now = self.clock.now();
        self.shared.counters.wakeups.add(1);
        self.gathering.turn(now);
        self.turn = self.turn.wrapping_add(1);
        self.buffers.rewind();
        for &event in &ready {
            self.on_ready(event, now);
        }
        if waited.is_ok() && self.deadline.after(OVERSLEPT) <= now {
            // The process was stopped, frozen or suspended, and the wait ended by a signal: what came meanwhile is
            // heard before time is up.
            waited = self.poller.wait(Some(Duration::ZERO), &mut ready);
            for &event in &ready {
                self.on_ready(event, now);
            }
        }
        self.ready = ready;
        waited?;
        self.receive(now);
        // Before messages: what has been idle for too long is not given to a new request.
        self.on_time(now);
        self.accept(now);
        self.take_commands(now);
        self.rounds(now);
        self.say_busy(now);
        self.shared.counters.open.set(self.connections.len() as u64);
        Ok(())
    }

    /// A remote control for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle<M::Message> {
        Handle::new(Arc::clone(&self.shared))
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    fn timeout(&self, limit: Option<Duration>) -> Option<Duration> {
        let busy = self.unpolled
            || !self.reads.is_empty()
            || !self.accepts.is_empty()
            || !self.commands.is_empty();
        if busy {
            return Some(Duration::ZERO);
        }
        let closing = self.closing.front().map_or(Instant::FAR_FUTURE, |&(at, _)| at);
        let next = self.deadline.min(closing).min(self.accept_again).min(self.reset_again);
        if next == Instant::FAR_FUTURE {
            return limit;
        }
        // The turn took time since its clock was read, and a deadline counts from the true now.
        let rest = next.since(self.clock.now());
        Some(limit.map_or(rest, |limit| limit.min(rest)))
    }

    /// Polls, writes and answers until the machine has nothing to add.
    fn rounds(&mut self, now: Instant) {
        for _ in 0..MAX_ROUNDS {
            if self.unpolled {
                self.poll(now);
            }
            self.write(now);
            if !self.answer(now) {
                return;
            }
        }
    }

    /// Tells the machine what its round led to; false when there was nothing to tell.
    fn answer(&mut self, now: Instant) -> bool {
        if self.answers.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.answers, &mut self.told);
        for input in self.told.drain(..) {
            self.machine.handle(input, now);
        }
        self.unpolled = true;
        true
    }

    fn tell(&mut self, input: Input<M::Message>, now: Instant) {
        self.machine.handle(input, now);
        self.unpolled = true;
    }

    fn closed(&mut self, id: ConnectionId, failure: Failure, now: Instant) {
        let machines = self.connections.open(id).is_some();
        self.remove(id);
        if machines {
            self.tell(Input::Closed { connection: id, failure }, now);
        }
    }

    fn remove(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.find(id) {
            if connection.ours == Ours::Resetting {
                connection.abort();
                // A pair of sockets within the process carries no reset.
                let far = self.pairs.get(&id).and_then(|far| self.connections.find(*far));
                if let Some(far) = far {
                    far.failure = Some(Failure::Reset);
                }
            }
            self.forget(id);
            self.shared.counters.closes.add(1);
        }
    }

    fn forget(&mut self, id: ConnectionId) {
        self.connections.remove(id.slot());
        if !self.pairs.is_empty() {
            self.pairs.remove(&id);
        }
        if !self.balanced.is_empty()
            && let Some(group) = self.balanced.remove(&id.slot())
        {
            group.ended(self.options.shard);
        }
    }

    /// Tells how busy this shard is, where connections are balanced.
    fn say_busy(&mut self, begun: Instant) {
        if self.listeners.iter().flatten().all(|listener| listener.group.is_none()) {
            return;
        }
        let now = self.clock.now();
        let Some(thousandths) = self.busy.note(begun, now) else { return };
        for listener in self.listeners.iter().flatten() {
            if let Some(group) = &listener.group {
                group.say_busy(self.options.shard, thousandths, now);
            }
        }
    }

    const fn shard(&self) -> Shard {
        Shard { index: self.options.shard, of: self.options.shards }
    }

    /// The counters, for the owner of the driver itself.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

impl<M: Machine> Drop for Driver<M> {
    fn drop(&mut self) {
        self.shared.close();
        let shard = Shard { index: self.options.shard, of: self.options.shards };
        for listener in self.listeners.drain(..).flatten() {
            let _ = self.poller.deregister(&listener.socket);
            if let Some(group) = &listener.group {
                group.leave(shard.index);
            }
            self.options.listeners.release(shard, listener.id, &listener.asked);
        }
    }
}
