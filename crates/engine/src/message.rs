//! What passes between a worker and the control thread. No worker ever waits for an answer.

pub mod app;
pub mod report;

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Address, Failure};
use towpath_trace::Stamp;

use crate::filter::notes::Note;
use crate::names::{NameNews, NameQuestion, SubNews, SubQuestion};
use crate::snapshot::cluster::Endpoint;
use crate::snapshot::export::Exporter;
use crate::snapshot::health::{CheckAnswers, ClusterHealth, HealthFlags, Run};
use crate::snapshot::overload::Levels;
use crate::snapshot::{ClusterId, SinkId, Snapshot};

/// What a machine and its control thread say to each other.
#[derive(Clone, Debug)]
pub enum Message {
    /// To the worker.
    To(ToWorker),
    /// From the worker.
    From(FromWorker),
    /// To the monitor of hosts.
    ToMonitor(ToMonitor),
    /// From the monitor of hosts.
    FromMonitor(FromMonitor),
}

/// To a [`Monitor`](crate::health::Monitor).
#[derive(Clone, Debug)]
pub enum ToMonitor {
    /// Watch these clusters from here on.
    Snapshot(Arc<Snapshot>),
    /// What a DNS cluster resolved to.
    Hosts {
        /// Which cluster.
        cluster: ClusterId,
        /// All its endpoints.
        endpoints: Arc<[Endpoint]>,
    },
    /// A worker saw a host's errors in a row reach a threshold.
    ErrorStreak {
        /// Its cluster.
        cluster: ClusterId,
        /// The host.
        host: Address,
        /// Which errors.
        run: Run,
    },
    /// An answer of a host said that others would serve better.
    Degraded {
        /// Its cluster.
        cluster: ClusterId,
        /// The host.
        host: Address,
    },
    /// A worker has connected to a cluster for the first time.
    Traffic {
        /// Which cluster.
        cluster: ClusterId,
    },
    /// The wall clock: nanoseconds since 1970 at the driver's epoch.
    WallClock {
        /// Nanoseconds since 1970 at [`Instant::ZERO`](towpath_proto::Instant::ZERO).
        epoch_unix_ns: u64,
    },
}

/// From a [`Monitor`](crate::health::Monitor).
#[derive(Clone, Debug)]
pub enum FromMonitor {
    /// What was found out about a cluster's hosts, for every worker.
    Health {
        /// Which cluster.
        cluster: ClusterId,
        /// All its hosts.
        hosts: Arc<ClusterHealth>,
        /// By which status they answered, where that is asked for
        /// ([`Monitor::telling_answers`](crate::health::Monitor::telling_answers)).
        answers: Option<Arc<CheckAnswers>>,
    },
    /// Lines about hosts that are left out, whole ones.
    Log {
        /// Where to.
        sink: SinkId,
        /// The lines.
        lines: Bytes,
    },
    /// Every host of the first snapshot was checked once.
    Warm,
}

/// To a worker.
#[derive(Clone, Debug)]
pub enum ToWorker {
    /// Obey this from here on. The first one opens the listeners.
    Snapshot(Arc<Snapshot>),
    /// What a DNS cluster resolved to.
    Hosts {
        /// Which cluster.
        cluster: ClusterId,
        /// All its endpoints; those that are not in the list are drained.
        endpoints: Arc<[Endpoint]>,
    },
    /// What became of a name that requests chose.
    Name(NameNews),
    /// What became of a cluster that requests had made.
    Sub(SubNews),
    /// What was found out about a cluster's hosts.
    Health {
        /// Which cluster; one that is not known yet may come with the next snapshot.
        cluster: ClusterId,
        /// Its hosts. Of a host that is not there nothing was found out yet.
        hosts: Arc<ClusterHealth>,
    },
    /// Close listening sockets and let connections finish.
    Drain(Drain),
    /// End what is left at once.
    Terminate,
    /// Send what waits for servers (entries of logs, spans), and answer with [`FromWorker::HandedOver`] when they have
    /// it: the process ends.
    HandOver {
        /// How long that may take.
        within: Duration,
    },
    /// How loaded the process is, where its configuration has an overload manager.
    Overload(Levels),
    /// Say that no traffic is wanted (`/healthcheck/fail`), or that it is again.
    FailHealth(bool),
    /// Answer with [`FromWorker::Description`].
    Describe {
        /// Comes back with the answer.
        token: u64,
    },
    /// The wall clock: nanoseconds since 1970 at the driver's epoch. Sent at the start and when it was set.
    WallClock {
        /// Nanoseconds since 1970 at [`Instant::ZERO`](towpath_proto::Instant::ZERO).
        epoch_unix_ns: u64,
    },
    /// Tell a server something for the control thread, as far as it takes it.
    Export {
        /// The call. What belongs to one call is told by the same.
        to: Arc<Exporter>,
        /// A message, without what frames it.
        message: Bytes,
    },
    /// What [`FromWorker::Heard`] says, by another worker.
    Heard,
    /// What an app in this process wants.
    Local(app::Command),
    /// Answer with [`FromWorker::Slow`] for each request that takes this long and is traced.
    ReportSlow {
        /// From its first byte to its end.
        after: Duration,
    },
}

/// How to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Leave listeners alone that are not inbound.
    pub inbound_only: bool,
    /// Close listening sockets at once. Otherwise go on accepting until `close_listeners_after`.
    pub stop_accepting: bool,
    /// Go on accepting, with `Connection: close` on every response, for this long (`--drain-time-s`).
    pub close_listeners_after: Duration,
    /// Connections that are still there after this are closed; `None` waits for them.
    pub deadline: Option<Duration>,
    /// Tell the peer at once on every response, instead of with a probability that grows over the
    /// drain time (`--drain-strategy`).
    pub immediate: bool,
}

impl Drain {
    /// All listening sockets are closed at once, and every response tells its peer to go.
    #[must_use]
    pub const fn at_once(deadline: Option<Duration>) -> Self {
        Self {
            inbound_only: false,
            stop_accepting: true,
            close_listeners_after: Duration::ZERO,
            deadline,
            immediate: true,
        }
    }
}

/// From a worker.
#[derive(Clone, Debug)]
pub enum FromWorker {
    /// A listener's address is bound, or is not.
    Listening {
        /// Which listener.
        listener: Arc<str>,
        /// As the configuration has it.
        address: Address,
        /// The bound address, or why not.
        outcome: Result<Address, Failure>,
    },
    /// A snapshot is obeyed, and all its listeners have answered.
    Taken {
        /// Which one.
        generation: u64,
    },
    /// A host's errors in a row have reached a threshold.
    ErrorStreak {
        /// Its cluster.
        cluster: ClusterId,
        /// The host.
        host: Address,
        /// Which errors.
        run: Run,
    },
    /// An answer of a host that is not known to be degraded said that others would serve better.
    Degraded {
        /// Its cluster.
        cluster: ClusterId,
        /// The host.
        host: Address,
    },
    /// It has connected to a cluster whose hosts are checked, for the first time.
    Traffic {
        /// Which cluster.
        cluster: ClusterId,
    },
    /// Lines for an access log, whole ones.
    Log {
        /// Where to.
        sink: SinkId,
        /// The lines.
        lines: Bytes,
    },
    /// A request wants to go to a name that it does not know.
    Name(NameQuestion),
    /// A request wants to go to a name whose cluster it does not know.
    Sub(SubQuestion),
    /// Something that listeners wait for was asked of a server: all workers are told with [`ToWorker::Heard`].
    Heard,
    /// A line of a script, for the program's own log.
    Note(Note),
    /// Nothing is left to drain.
    Drained,
    /// The answer to [`ToWorker::HandOver`].
    HandedOver,
    /// The answer to [`ToWorker::Describe`].
    Description {
        /// Of the question.
        token: u64,
        /// Live facts of each cluster.
        clusters: Vec<ClusterDescription>,
    },
    /// What becomes of it.
    Local(app::Event),
    /// A request took longer than [`ToWorker::ReportSlow`] allows.
    Slow(SlowStream),
}

/// A request that took long, and when that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStream {
    /// How long it took.
    pub duration: Duration,
    /// Its first byte.
    pub from: Stamp,
    /// Its end.
    pub until: Stamp,
}

/// A cluster as one worker sees it.
#[derive(Clone, Debug)]
pub struct ClusterDescription {
    /// Its name.
    pub name: Arc<str>,
    /// Its hosts.
    pub hosts: Vec<HostDescription>,
    /// How many requests were dropped by share.
    pub dropped: u64,
}

/// A host as one worker sees it.
#[derive(Clone, Debug)]
pub struct HostDescription {
    /// What the file or a control plane says of it.
    pub endpoint: Endpoint,
    /// What was found out about it.
    pub health_flags: HealthFlags,
    /// This worker's share.
    pub counts: HostCounts,
}

/// What `/clusters` counts of a host. Those of several pools or workers add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// `cx_active`.
    pub connections_active: u64,
    /// `cx_total`.
    pub connections_total: u64,
    /// `cx_connect_fail`.
    pub connect_failures: u64,
    /// `rq_active`.
    pub requests_active: u64,
    /// `rq_total`.
    pub requests_total: u64,
    /// `rq_success`.
    pub requests_success: u64,
    /// `rq_error`.
    pub requests_error: u64,
    /// `rq_timeout`.
    pub requests_timeout: u64,
    /// `rq_pending_active`.
    pub requests_pending: u64,
}

impl AddAssign for HostCounts {
    fn add_assign(&mut self, other: Self) {
        self.connections_active += other.connections_active;
        self.connections_total += other.connections_total;
        self.connect_failures += other.connect_failures;
        self.requests_active += other.requests_active;
        self.requests_total += other.requests_total;
        self.requests_success += other.requests_success;
        self.requests_error += other.requests_error;
        self.requests_timeout += other.requests_timeout;
        self.requests_pending += other.requests_pending;
    }
}
