//! The tools that every owner of a worker may use: time, chance, memory to write into, and what leaves.
//!
//! Nothing here knows of connections or streams, but for the work that is left to be done for them.

pub(crate) mod draining;
pub(crate) mod log;
pub(crate) mod overload;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::head::HeadPool;
use towpath_proto::{ConnectionId, Name, Output, Timers};

use crate::env::draining::Draining;
use crate::env::log::Logs;
use crate::env::overload::Overload;
use crate::filter::notes::Notes;
use crate::header_ops::Scratch;
use crate::message::{FromWorker, Message};
use crate::names::{Names, Subs};
use crate::number::UsualNumber;
use crate::random::Random;
use crate::stats::Registry;
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

/// What every owner may use.
#[derive(Debug)]
pub(crate) struct Env {
    pub(crate) index: u32,
    pub(crate) workers: u32,
    pub(crate) registry: Arc<Registry>,
    pub(crate) timers: Timers,
    pub(crate) heads: HeadPool,
    pub(crate) random: Random,
    pub(crate) logs: Logs,
    pub(crate) clock: WallClock,
    pub(crate) draining: Draining,
    pub(crate) outputs: VecDeque<Output<Message>>,
    /// What is still to be done for the input at hand.
    pub(crate) work: VecDeque<Work>,
    /// Which round of polling this is.
    pub(crate) round: u32,
    /// Connections that go on in the next turn.
    pub(crate) put_off: Vec<ConnectionId>,
    pub(crate) serial: Serial,
    /// Requests that take this long are reported.
    pub(crate) slow_after: Duration,
    pub(crate) attempt_count: UsualNumber,
    pub(crate) expected_timeout: UsualNumber,
    /// Lends its capacity to whatever needs a few bytes for a moment.
    pub(crate) scratch: Scratch,
    /// What scripts have to say.
    pub(crate) notes: Rc<Notes>,
    /// Addresses of names that requests choose.
    pub(crate) names: Rc<Names>,
    /// Clusters that requests have made.
    pub(crate) subs: Rc<Subs>,
    /// What the process's load asks for, where the configuration has an overload manager.
    pub(crate) overload: Option<Box<Overload>>,
    /// The choice of some cluster's hosts has asked for what is only known of recorded streams.
    pub(crate) reads_records: bool,
}

impl Env {
    pub(crate) fn new(options: WorkerOptions) -> Self {
        Self {
            index: options.index,
            workers: options.workers,
            registry: options.registry,
            timers: Timers::new(),
            heads: HeadPool::default(),
            random: Random::new(
                options.seed ^ u64::from(options.index).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ),
            logs: Logs::default(),
            clock: WallClock::new(options.hostname),
            draining: Draining::default(),
            outputs: VecDeque::new(),
            work: VecDeque::new(),
            round: 0,
            put_off: Vec::new(),
            serial: Serial {
                connection: options.index.into(),
                stream: 0,
                step: options.workers.max(1).into(),
            },
            slow_after: Duration::MAX,
            attempt_count: UsualNumber::new(Name::XEnvoyAttemptCount, 1),
            expected_timeout: UsualNumber::new(Name::XEnvoyExpectedRqTimeoutMs, 15_000),
            scratch: Scratch::default(),
            notes: Rc::default(),
            names: Rc::default(),
            subs: Rc::default(),
            overload: None,
            reads_records: false,
        }
    }
}

/// What one part of the worker leaves for another to do, where a call could come back to the caller: a stream that ends
/// frees a connection, which takes another stream, which may end at once. How often that goes on is up to peers, so it
/// must not go on in calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A connection's parsed input was held back and may go on.
    Read(ConnectionId),
    /// A connection can carry another stream.
    Offer(ConnectionId),
    /// More waits to leave a connection than its watermark.
    BackedUp(ConnectionId),
    /// A callout is over: its serial number.
    Answer(u64),
    /// A call of a filter that talks has brought something: its serial number.
    Told(u64),
    /// Spans leave: the place of what sends them.
    Report(usize),
    /// Entries of a log leave: the place of what sends them.
    TellLog(usize),
    /// The same of entries for Envoy's access-log service.
    TellEntries(usize),
}

/// Numbers that name connections and streams in logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serial {
    pub(crate) connection: u64,
    pub(crate) stream: u64,
    /// How many workers count in step, so that no two name a connection alike.
    pub(crate) step: u64,
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
    /// Spans wait to be sent.
    Reports,
    /// Entries of logs wait to be sent.
    Loggers,
    /// A server is to be asked again before requests need it.
    Ahead,
    /// The next attempt or question of an origin, or the next look at where a cluster's clients want to go.
    Cluster(u32),
    /// A filter holds up a stream.
    Pace(u32),
}

impl TimerSlot {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Connection(slot) => slot * 4,
            Self::Stream(slot) => slot * 4 + 1,
            Self::Attempt(slot) => slot * 4 + 2,
            Self::Logs => 3,
            Self::Drain => 7,
            Self::Reports => 11,
            Self::Loggers => 15,
            Self::Ahead => 19,
            Self::Cluster(slot) => slot * 8 + 23,
            Self::Pace(slot) => slot * 8 + 27,
        }
    }

    pub(crate) fn of_connection(id: ConnectionId) -> u32 {
        Self::Connection(u32::try_from(id.slot()).unwrap_or(u32::MAX)).number()
    }

    pub(crate) const fn from_number(number: u32) -> Self {
        match (number % 4, number / 4) {
            (0, slot) => Self::Connection(slot),
            (1, slot) => Self::Stream(slot),
            (2, slot) => Self::Attempt(slot),
            (_, 0) => Self::Logs,
            (_, 1) => Self::Drain,
            (_, 2) => Self::Reports,
            (_, 3) => Self::Loggers,
            (_, 4) => Self::Ahead,
            (_, slot) if slot % 2 == 1 => Self::Cluster((slot - 5) / 2),
            (_, slot) => Self::Pace((slot - 6) / 2),
        }
    }
}

impl Env {
    /// A connection can carry another stream. Many may leave it one after the other; one look at what waits is enough.
    pub(crate) fn offer_soon(&mut self, id: ConnectionId) {
        let offer = Work::Offer(id);
        if self.work.back() != Some(&offer) {
            self.work.push_back(offer);
        }
    }

    /// Tells the control thread.
    pub(crate) fn tell(&mut self, message: FromWorker) {
        self.outputs.push_back(Output::Message(Message::From(message)));
    }
}
