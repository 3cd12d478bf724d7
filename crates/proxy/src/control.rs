//! What the control thread knows and does: the state that admin requests, signals, workers and timers share.
//!
//! All of it lives on one thread, so cells suffice. Workers are told, never asked and waited for: an answer that
//! they owe (`/clusters`) arrives as one of their events.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, getrlimit};
use tokio::sync::{Notify, mpsc, oneshot};
use towpath_config::Prints;
use towpath_engine::health::Monitor;
use towpath_engine::message::{ClusterDescription, Drain, ToMonitor, ToWorker};
use towpath_engine::names::SubQuestion;
use towpath_engine::snapshot::cluster::Endpoint;
use towpath_engine::snapshot::{ClusterId, Listener, Snapshot};
use towpath_engine::stats::{Reading, Registry};
use towpath_io::memory::{self, Bursts};
use towpath_proto::{Address, Failure};

use crate::access_log::LogSender;
use crate::discovery::{Dump, Override};
use crate::dns::names::Names;
use crate::dns::{DnsCluster, Watcher};
use crate::flags::{DrainStrategy, Flags};
use crate::loading::{Boot, Overrides};
use crate::logger::limit::Limit;
use crate::monitor::{MonitorThread, News};
use crate::overload::Manager;
use crate::reload::{Remains, Wish};
use crate::secret_files::SecretFiles;
use crate::server_stats::ProcessStats;
use crate::stats_sinks::StatsSinks;
use crate::sub_clusters::{Asked, Gone, SubClusters};
use crate::tracing::Tracing;
use crate::workers::Workers;

/// The control thread's state.
pub(crate) struct Control {
    pub(crate) flags: Flags,
    pub(crate) boot: RefCell<Boot>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) stats: ProcessStats,
    /// To whom they are sent.
    stats_sinks: RefCell<StatsSinks>,
    /// What workers obey; empty until they are given it.
    pub(crate) snapshot: RefCell<Arc<Snapshot>>,
    /// Where a control plane is in charge and nothing serves yet: what the bootstrap alone comes to.
    pub(crate) planned: RefCell<Option<Snapshot>>,
    /// A control plane is in charge.
    pub(crate) is_driven: bool,
    /// What it is told of the admin layer of the runtime.
    pub(crate) to_discovery: RefCell<Option<mpsc::UnboundedSender<Override>>>,
    /// The admin layer of the runtime.
    pub(crate) overrides: RefCell<Overrides>,
    /// What is shown of its resources.
    pub(crate) shown: RefCell<Dump>,
    /// What its parts were made from.
    pub(crate) prints: RefCell<Prints>,
    /// The files with certificates, keys and values of the runtime that it was made from.
    pub(crate) secrets: RefCell<SecretFiles>,
    /// What earlier ones left behind.
    pub(crate) remains: RefCell<Vec<Remains>>,
    /// Ids of clusters that may be used again.
    pub(crate) free: RefCell<Vec<ClusterId>>,
    /// Log files that are open.
    pub(crate) sinks: RefCell<HashSet<usize>>,
    /// For a new configuration.
    pub(crate) reload: mpsc::UnboundedSender<Wish>,
    /// What a monitor of hosts tells.
    pub(crate) news: mpsc::UnboundedSender<News>,
    pub(crate) workers: RefCell<Workers>,
    pub(crate) logs: LogSender,
    pub(crate) dns: Watcher,
    /// Names that requests choose.
    pub(crate) names: Names,
    /// Clusters that they have made.
    pub(crate) subs: RefCell<SubClusters>,
    /// Only where a cluster's hosts are watched.
    pub(crate) monitor: RefCell<Option<MonitorThread>>,
    pub(crate) listeners: RefCell<Listeners>,
    /// Which generation of the configuration each worker has.
    pub(crate) taken: Taken,
    /// The last configuration that was not taken: when, and why.
    pub(crate) refused: RefCell<Option<(SystemTime, String)>>,
    pub(crate) tracing: Tracing,
    /// Ends the process.
    pub(crate) quit: mpsc::UnboundedSender<()>,
    pub(crate) started: Instant,
    phase: Cell<Phase>,
    phase_news: Notify,
    health_failed: Cell<bool>,
    bursts: RefCell<Bursts>,
    overload: RefCell<Option<Manager>>,
    /// Accepts that failed for want of descriptors, as far as they were told of.
    exhausted: Cell<u64>,
    exhausted_log: RefCell<Limit>,
    wall_clock: Cell<u64>,
    questions: RefCell<Questions>,
}

/// How far the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Names are being resolved.
    PreInitializing,
    /// Listeners are being opened.
    Initializing,
    /// Serving.
    Live,
    /// On its way out.
    Draining,
}

impl Phase {
    /// Envoy's word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PreInitializing => "PRE_INITIALIZING",
            Self::Initializing => "INITIALIZING",
            Self::Live => "LIVE",
            Self::Draining => "DRAINING",
        }
    }

    /// The value of `server.state`: Envoy's `ServerInfo.State`.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Live => 0,
            Self::Draining => 1,
            Self::PreInitializing => 2,
            Self::Initializing => 3,
        }
    }
}

/// What a [`Control`] is made of.
pub(crate) struct Parts {
    pub(crate) flags: Flags,
    pub(crate) boot: Boot,
    pub(crate) is_driven: bool,
    pub(crate) prints: Prints,
    pub(crate) registry: Arc<Registry>,
    pub(crate) stats_sinks: StatsSinks,
    pub(crate) workers: Workers,
    pub(crate) logs: LogSender,
    /// Log files that are open.
    pub(crate) sinks: HashSet<usize>,
    pub(crate) reload: mpsc::UnboundedSender<Wish>,
    pub(crate) news: mpsc::UnboundedSender<News>,
    pub(crate) dns: Watcher,
    pub(crate) names: Names,
    pub(crate) tracing: Tracing,
    pub(crate) quit: mpsc::UnboundedSender<()>,
    pub(crate) started: Instant,
}

impl Control {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { flags, boot, prints, registry, workers, logs, sinks, reload, news, .. } = parts;
        let (dns, tracing, quit, started) = (parts.dns, parts.tracing, parts.quit, parts.started);
        let stats = ProcessStats::new(&registry, workers.count());
        stats.begin(&flags, &boot);
        Self {
            flags,
            secrets: RefCell::new(SecretFiles::of(&prints, &boot.runtime)),
            boot: RefCell::new(boot),
            registry,
            stats,
            stats_sinks: RefCell::new(parts.stats_sinks),
            snapshot: RefCell::default(),
            planned: RefCell::default(),
            is_driven: parts.is_driven,
            to_discovery: RefCell::default(),
            overrides: RefCell::default(),
            shown: RefCell::default(),
            prints: RefCell::new(prints),
            remains: RefCell::default(),
            free: RefCell::default(),
            sinks: RefCell::new(sinks),
            reload,
            news,
            workers: RefCell::new(workers),
            logs,
            dns,
            names: parts.names,
            subs: RefCell::default(),
            monitor: RefCell::default(),
            tracing,
            listeners: RefCell::default(),
            taken: Taken::default(),
            refused: RefCell::default(),
            quit,
            started,
            phase: Cell::new(Phase::PreInitializing),
            phase_news: Notify::new(),
            health_failed: Cell::new(false),
            bursts: RefCell::default(),
            overload: RefCell::default(),
            exhausted: Cell::new(0),
            exhausted_log: RefCell::default(),
            wall_clock: Cell::new(0),
            questions: RefCell::default(),
        }
    }

    /// Tells every worker.
    pub(crate) fn tell(&self, message: &ToWorker) {
        self.workers.borrow().tell(message);
        if let ToWorker::Snapshot(snapshot) = message {
            self.names.update(&snapshot.dns_caches);
            let gone = self.subs.borrow_mut().follow(snapshot, tokio::time::Instant::now());
            self.end_subs(gone);
        }
    }

    /// A worker wants a cluster for a name.
    pub(crate) fn ask_sub(&self, question: &SubQuestion) {
        let asked = self.subs.borrow_mut().ask(question, unix_ms());
        match asked {
            Asked::Nothing => {}
            Asked::New(followed) => {
                self.stats.sub_cluster_added();
                self.dns.follow(followed, &self.registry);
            }
            Asked::Full(news) => self.tell(&ToWorker::Sub(news)),
        }
    }

    /// A cluster's hosts are others.
    pub(crate) fn on_hosts(&self, cluster: ClusterId, endpoints: Arc<[Endpoint]>) {
        let ready = self.subs.borrow_mut().resolved(cluster, &endpoints);
        if let Some(ready) = ready {
            self.show_clusters();
            return self.tell(&ToWorker::Sub(ready));
        }
        self.tell_monitor(ToMonitor::Hosts { cluster, endpoints: endpoints.clone() });
        self.tell(&ToWorker::Hosts { cluster, endpoints });
    }

    /// Ends clusters that no request was for.
    pub(crate) fn expire_subs(&self) {
        let gone = self.subs.borrow_mut().expire(tokio::time::Instant::now(), unix_ms());
        self.stats.sub_clusters_removed(gone.len());
        self.end_subs(gone);
    }

    fn end_subs(&self, gone: Vec<Gone>) {
        for (id, news) in gone {
            self.dns.forget(id);
            self.tell(&ToWorker::Sub(news));
        }
        self.show_clusters();
    }

    /// Shows how many clusters there are, with those that requests have made.
    fn show_clusters(&self) {
        let configured = self.snapshot.borrow().shown_clusters().count();
        self.stats.show_clusters(configured + self.subs.borrow().ready().count());
    }

    /// The phase as the outside shall see it: a failed health check looks like a drain.
    pub(crate) fn phase(&self) -> Phase {
        let phase = self.phase.get();
        if phase == Phase::Live && self.health_failed.get() { Phase::Draining } else { phase }
    }

    /// Tells the monitor of hosts, if there is one.
    pub(crate) fn tell_monitor(&self, message: ToMonitor) {
        if let Some(monitor) = &*self.monitor.borrow() {
            monitor.tell(message);
        }
    }

    /// Takes the monitor of hosts.
    pub(crate) fn set_monitor(&self, monitor: MonitorThread) {
        self.workers.borrow().report_to(monitor.handle());
        self.monitor.replace(Some(monitor));
    }

    /// Starts the monitor of hosts where clusters want one and there is none.
    pub(crate) fn start_monitor_for(&self, snapshot: &Snapshot) -> Result<(), String> {
        if Monitor::is_wanted(snapshot) && self.monitor.borrow().is_none() {
            let (registry, news) = (self.registry.clone(), self.news.clone());
            let monitor = MonitorThread::start(registry, self.started, news)
                .map_err(|error| format!("cannot start the monitor of hosts: {error}"))?;
            self.set_monitor(monitor);
            self.tell_monitor_time();
        }
        Ok(())
    }

    /// Gives workers what to obey; they open their listeners.
    pub(crate) fn begin(&self, snapshot: Arc<Snapshot>) {
        self.phase.set(Phase::Initializing);
        self.check_wall_clock();
        self.stats.loaded(&snapshot, &self.registry);
        self.snapshot.replace(snapshot.clone());
        if let Some((after, _)) = self.tracing.slow() {
            self.tell(&ToWorker::ReportSlow { after });
        }
        self.tell(&ToWorker::Snapshot(snapshot));
    }

    /// All listeners are open, but for those `without` which the program can start.
    pub(crate) fn live(&self, without: u64) {
        if self.phase.get() == Phase::Initializing {
            self.phase.set(Phase::Live);
            self.phase_news.notify_waiters();
        }
        self.planned.take();
        self.stats.started(without, self.uptime());
    }

    /// The start is so far.
    pub(crate) fn reached(&self, phase: Phase) {
        if self.phase.get() == Phase::PreInitializing {
            self.phase.set(phase);
        }
    }

    /// Waits until a configuration serves, or the process is on its way out.
    pub(crate) async fn is_live(&self) {
        while matches!(self.phase.get(), Phase::PreInitializing | Phase::Initializing) {
            self.phase_news.notified().await;
        }
    }

    /// The process is on its way out.
    pub(crate) fn is_ending(&self) -> bool {
        self.phase.get() == Phase::Draining
    }

    /// A worker opened a listener of a later configuration, or could not.
    pub(crate) fn on_late_listening(
        &self,
        listener: &str,
        address: &Address,
        outcome: Result<&Address, Failure>,
    ) {
        let Err(failure) = outcome else {
            return self.stats.listeners.listener_create_success.inc();
        };
        self.stats.listeners.listener_create_failure.inc();
        let snapshot = self.snapshot.borrow();
        let why =
            crate::listen_failure::describe(find(&snapshot, listener), listener, address, failure);
        crate::log!(Config, Error, "{why}; going on without it");
        self.taken.without(why);
    }

    /// What is to be done every few seconds.
    pub(crate) fn on_tick(&self) {
        self.check_wall_clock();
        crate::reload::tidy(self);
        self.give_memory_back();
        self.report_exhaustion();
    }

    /// Between two looks at how loaded the process is, if it has an overload manager. Follows what is configured.
    pub(crate) fn overload_interval(&self) -> Option<Duration> {
        let snapshot = self.snapshot.borrow();
        let mut manager = self.overload.borrow_mut();
        let Some(config) = &snapshot.overload else {
            *manager = None;
            return None;
        };
        if !manager.as_ref().is_some_and(|manager| manager.is_of(config)) {
            // Statistics of the one before end first.
            *manager = None;
            *manager = Some(Manager::new(Arc::clone(config), &self.registry, Instant::now()));
        }
        manager.as_ref().map(Manager::interval)
    }

    /// Looks how loaded the process is, and tells workers.
    pub(crate) fn refresh_overload(&self) {
        let open = self.snapshot.borrow().open.value();
        let mut manager = self.overload.borrow_mut();
        let news = manager.as_mut().and_then(|manager| manager.refresh(open, Instant::now()));
        if let Some(levels) = news {
            self.tell(&ToWorker::Overload(levels));
        }
    }

    /// Says that connections could not be accepted, and what helps.
    fn report_exhaustion(&self) {
        let workers = self.workers.borrow();
        let count = workers.counters().map(|counters| counters.accepts_exhausted.value()).sum();
        let new = count - self.exhausted.replace(count);
        if let Some(failures) = self.exhausted_log.borrow_mut().count(new, Instant::now()) {
            let limit = getrlimit(Resource::Nofile).current;
            let limit = limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
            crate::log!(
                Main,
                Error,
                "no file descriptors or memory for new connections: {failures} accepts failed; raise `ulimit -n` \
                 (LimitNOFILE= in systemd), which is {limit}, or limit connections below it"
            );
        }
    }

    /// What a burst took goes back to the system when it is over.
    fn give_memory_back(&self) {
        let workers = self.workers.borrow();
        let connections = workers.counters().map(|counters| counters.open.value()).sum();
        let mut bursts = self.bursts.borrow_mut();
        if bursts.is_over(connections, memory::resident_bytes()) {
            memory::trim();
            bursts.settled(connections, memory::resident_bytes());
        }
    }

    /// Ends an interval of the statistics, and sends them to whom the configuration says.
    pub(crate) fn flush_stats(&self) {
        self.registry.flush();
        let mut sinks = self.stats_sinks.borrow_mut();
        if !sinks.is_empty() {
            sinks.tell(&self.read_stats(), &self.workers.borrow());
        }
    }

    /// An admin request asks for statistics, which may be what flushes them.
    pub(crate) fn asked_for_stats(&self) {
        if self.stats_interval().is_none() {
            self.flush_stats();
        }
    }

    /// Between two flushes of the statistics.
    pub(crate) fn stats_interval(&self) -> Option<Duration> {
        self.stats_sinks.borrow().interval
    }

    /// All statistics, those of others copied in.
    pub(crate) fn read_stats(&self) -> Reading {
        self.refresh_stats();
        self.registry.read()
    }

    /// `/reset_counters`.
    pub(crate) fn reset_counters(&self) {
        self.refresh_stats();
        self.registry.reset_counters();
    }

    fn refresh_stats(&self) {
        self.stats.refresh(
            self.phase(),
            self.uptime(),
            self.logs.counts(),
            self.workers.borrow().counters(),
        );
        if let Some((_, slow)) = self.tracing.slow() {
            self.stats.refresh_traces(slow.counts());
        }
    }

    /// `/healthcheck/fail` and `/healthcheck/ok`.
    pub(crate) fn fail_health(&self, failed: bool) {
        self.health_failed.set(failed);
        self.tell(&ToWorker::FailHealth(failed));
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Tells workers the wall clock if it was set since they were told last.
    pub(crate) fn check_wall_clock(&self) {
        let since_1970 =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let epoch = since_1970.saturating_sub(self.started.elapsed());
        let epoch_unix_ns = u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX);
        if epoch_unix_ns.abs_diff(self.wall_clock.get()) > CLOCK_TOLERANCE_NS {
            self.wall_clock.set(epoch_unix_ns);
            self.tell(&ToWorker::WallClock { epoch_unix_ns });
            self.tell_monitor(ToMonitor::WallClock { epoch_unix_ns });
        }
    }

    /// When the workers' clock began, in nanoseconds since 1970, as they were told last.
    pub(crate) fn epoch_unix_ns(&self) -> u64 {
        self.wall_clock.get()
    }

    /// Tells a monitor that was started late the wall clock.
    pub(crate) fn tell_monitor_time(&self) {
        self.tell_monitor(ToMonitor::WallClock { epoch_unix_ns: self.wall_clock.get() });
    }

    /// Follows the names of these clusters, and of those that requests have made, and no others.
    pub(crate) fn follow_names(&self, mut clusters: Vec<DnsCluster>) {
        clusters.extend(self.subs.borrow().followed());
        self.dns.update(clusters, &self.registry);
    }

    /// `/drain_listeners`.
    pub(crate) fn drain_listeners(&self, inbound_only: bool, graceful: bool, skip_exit: bool) {
        let close_listeners_after = match (skip_exit, graceful) {
            (true, _) => Duration::MAX,
            (false, true) => self.flags.drain_time(),
            (false, false) => Duration::ZERO,
        };
        self.tell(&ToWorker::Drain(Drain {
            inbound_only,
            stop_accepting: !graceful && !skip_exit,
            close_listeners_after,
            deadline: None,
            immediate: self.flags.drain_strategy == DrainStrategy::Immediate,
        }));
    }

    /// The last drain: after the delay no new connections, and the old ones end within the drain time.
    pub(crate) fn drain_and_end(&self) {
        self.phase.set(Phase::Draining);
        let delay = self.flags.drain_delay();
        let drain = Drain::at_once(Some(delay + self.flags.drain_time()));
        let listens = !delay.is_zero();
        self.tell(&ToWorker::Drain(Drain {
            stop_accepting: !listens,
            close_listeners_after: delay,
            ..drain
        }));
    }

    /// Opens all log files anew.
    pub(crate) fn reopen_logs(&self) {
        self.logs.reopen();
        if let Err(error) = crate::logger::reopen() {
            crate::log!(Main, Error, "cannot reopen the log: {error}");
        }
    }

    /// Asks every worker for its clusters; gives up after a while, so that a worker that hangs does not hide the
    /// others.
    pub(crate) async fn describe(&self) -> Vec<Vec<ClusterDescription>> {
        let workers = self.workers.borrow().count();
        let (token, answers) = self.questions.borrow_mut().ask(workers);
        self.tell(&ToWorker::Describe { token });
        match tokio::time::timeout(ANSWER_TIME, answers).await {
            Ok(answers) => answers.unwrap_or_default(),
            Err(_) => self.questions.borrow_mut().give_up(token),
        }
    }

    /// A worker's answer to [`Control::describe`].
    pub(crate) fn on_description(&self, token: u64, clusters: Vec<ClusterDescription>) {
        self.questions.borrow_mut().answer(token, clusters);
    }
}

fn unix_ms() -> u64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How far the wall clock may be from what workers think.
const CLOCK_TOLERANCE_NS: u64 = 500_000;
/// How long workers may take to describe their clusters.
const ANSWER_TIME: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Questions {
    next: u64,
    open: HashMap<u64, Question>,
}

struct Question {
    missing: usize,
    answers: Vec<Vec<ClusterDescription>>,
    asker: oneshot::Sender<Vec<Vec<ClusterDescription>>>,
}

impl Questions {
    fn ask(&mut self, workers: usize) -> (u64, oneshot::Receiver<Vec<Vec<ClusterDescription>>>) {
        let (asker, answers) = oneshot::channel();
        self.next += 1;
        self.open.insert(self.next, Question { missing: workers, answers: Vec::new(), asker });
        (self.next, answers)
    }

    fn answer(&mut self, token: u64, clusters: Vec<ClusterDescription>) {
        let Some(question) = self.open.get_mut(&token) else { return };
        question.answers.push(clusters);
        question.missing = question.missing.saturating_sub(1);
        if question.missing == 0
            && let Some(question) = self.open.remove(&token)
        {
            // The client that asked may have hung up.
            let _ = question.asker.send(question.answers);
        }
    }

    fn give_up(&mut self, token: u64) -> Vec<Vec<ClusterDescription>> {
        self.open.remove(&token).map(|question| question.answers).unwrap_or_default()
    }
}

/// What became of the listeners' addresses.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Listening>);

/// An address of a listener.
#[derive(Debug, PartialEq, Eq)]
struct Listening {
    listener: Arc<str>,
    /// As the configuration has it.
    wanted: Address,
    outcome: Result<Address, Failure>,
}

impl Listeners {
    /// A worker bound an address, or could not.
    pub(crate) fn on_listening(
        &mut self,
        listener: Arc<str>,
        wanted: Address,
        outcome: Result<Address, Failure>,
    ) {
        let listening = Listening { listener, wanted, outcome };
        if !self.0.contains(&listening) {
            self.0.push(listening);
        }
    }

    /// Forgets addresses whose sockets are gone, and failures of those that are tried anew.
    pub(crate) fn keep(&mut self, before: &Snapshot, after: &Snapshot) {
        self.0.retain(|Listening { listener, wanted, .. }| {
            find(after, listener).is_some_and(|after| keeps(before, after, wanted))
        });
    }

    /// The bound addresses of a listener.
    pub(crate) fn of<'a>(&'a self, listener: &'a str) -> impl Iterator<Item = &'a Address> {
        let all = self.0.iter().filter(move |listening| *listening.listener == *listener);
        all.filter_map(|listening| listening.outcome.as_ref().ok())
    }

    /// What could not be bound.
    pub(crate) fn failed(&self) -> impl Iterator<Item = (&str, &Address, Failure)> {
        self.0.iter().filter_map(|Listening { listener, wanted, outcome }| {
            outcome.as_ref().err().map(|failure| (&**listener, wanted, *failure))
        })
    }
}

/// A configuration's listener of this name.
pub(crate) fn find<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Arc<Listener>> {
    snapshot.listeners.iter().find(|listener| *listener.name == *name)
}

/// Whether a listener goes on with the socket that it has for an address.
pub(crate) fn keeps(before: &Snapshot, after: &Listener, address: &Address) -> bool {
    find(before, &after.name).is_some_and(|before| {
        let both = [before, after];
        before.options_of(address) == after.options_of(address)
            && both.iter().all(|listener| listener.bind && listener.addresses.contains(address))
    })
}

/// Which generation of the configuration each worker has.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    workers: RefCell<HashMap<usize, u64>>,
    without: RefCell<Vec<String>>,
    news: Notify,
}

impl Taken {
    /// A worker has one, and its listeners have answered.
    pub(crate) fn by(&self, worker: usize, generation: u64) {
        self.workers.borrow_mut().insert(worker, generation);
        self.news.notify_waiters();
    }

    /// A listener could not be opened.
    fn without(&self, why: String) {
        let mut all = self.without.borrow_mut();
        // Each worker says so.
        if !all.contains(&why) {
            all.push(why);
        }
    }

    /// How many workers do not have one yet.
    fn missing(&self, generation: u64, workers: usize) -> usize {
        let taken = self.workers.borrow();
        workers - taken.values().filter(|&&taken| taken >= generation).count()
    }

    /// Waits until all have it, but not for ever: how many do not, and why which listeners are not open.
    pub(crate) async fn by_all(&self, generation: u64, workers: usize) -> (usize, Vec<String>) {
        let all = async {
            while self.missing(generation, workers) > 0 {
                self.news.notified().await;
            }
        };
        // The answer says who is late.
        let _ = tokio::time::timeout(TAKE_TIME, all).await;
        (self.missing(generation, workers), self.without.take())
    }
}

/// How long workers may take to obey a configuration before the answer does not wait for them.
const TAKE_TIME: Duration = Duration::from_secs(5);
