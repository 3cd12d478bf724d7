//! Serving: from a loaded configuration to the last drained connection.
//!
//! The main thread becomes the control thread. In order: bind the admin endpoint, start workers without a
//! configuration, resolve the names of DNS clusters, give workers their snapshot, and be ready once all of them
//! have opened their listeners.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::LocalSet;
use towpath_engine::filter::notes::{Note, NoteLevel};
use towpath_engine::health::Monitor;
use towpath_engine::message::{FromMonitor, FromWorker, ToMonitor, ToWorker};
use towpath_engine::names::NameNews;
use towpath_engine::snapshot::cluster::Discovery;
use towpath_engine::snapshot::{ClusterId, Snapshot};
use towpath_engine::stats::Registry;

use crate::access_log::{AccessLogs, Flush, Target};
use crate::admin;
use crate::admin::server::AdminSocket;
use crate::admin::thread::AdminThread;
use crate::control::{Control, Parts, find};
use crate::discovery::{self, Ask, DiscoveryThread};
use crate::dns::names::Names;
use crate::dns::{DnsCluster, Update, Watcher};
use crate::flags::{Flags, Mode};
use crate::health_discovery;
use crate::listen_failure;
use crate::load_report;
use crate::loading::{Configuration, Driven, targets};
use crate::log;
use crate::monitor::{MonitorThread, News};
use crate::reload::{self, Wish};
use crate::secret_files;
use crate::stats_sinks::StatsSinks;
use crate::tracing::Tracing;
use crate::workers::{Event, Setup, What, Workers};

/// Serves until told to end.
///
/// # Errors
/// Says in one line why it cannot start or go on.
pub(crate) fn serve(flags: Flags, configuration: Configuration) -> Result<(), String> {
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .map_err(|error| format!("cannot start the control thread: {error}"))?;
    LocalSet::new().block_on(&runtime, run(flags, configuration, started))
}

async fn run(flags: Flags, configuration: Configuration, started: Instant) -> Result<(), String> {
    let Configuration { snapshot, prints, boot, admin, labels, rules, push, .. } = configuration;
    let Configuration { load_reports, health_discovery, driven, .. } = configuration;
    let stats_sinks = StatsSinks::open(push)?;
    raise_descriptor_limit();
    let signals = Signals::new().map_err(|error| format!("cannot handle signals: {error}"))?;
    let socket = match &admin.address {
        Some(address) => Some(
            AdminSocket::bind(address)
                .map_err(|error| format!("cannot bind the admin endpoint to {address}: {error}"))?,
        ),
        None => None,
    };
    if let (Some(path), Some(socket)) = (&flags.admin_address_path, &socket) {
        write_file(path, &socket.address())?;
    }
    if let Some(path) = &flags.base_id_path {
        write_file(path, &flags.base_id.to_string())?;
    }

    let tracing = Tracing::start(&flags)?;
    let (logs, admin_targets) = open_logs(&flags, &snapshot, admin.logs)?;
    let registry = Arc::new(Registry::configured(labels, rules));
    let (event_sender, events) = mpsc::unbounded_channel();
    let setup = Setup {
        workers: flags.workers(),
        pin: flags.pin_workers,
        gather: Duration::from_micros(flags.gather_us.into()),
        registry: registry.clone(),
        logs: logs.sender(),
        epoch: started,
        slow: tracing.slow().map(|(_, sender)| sender),
    };
    let workers = Workers::start(&setup, &event_sender)
        .map_err(|error| format!("cannot start workers: {error}"))?;
    drop(setup);
    let (update_sender, updates) = mpsc::unbounded_channel();
    let dns = Watcher::start(dns_clusters(&snapshot), &registry, &update_sender);
    let (name_sender, named) = mpsc::unbounded_channel();
    let names = Names::new(registry.clone(), name_sender);
    let (news_sender, news) = mpsc::unbounded_channel();
    let monitor = Monitor::is_wanted(&snapshot)
        .then(|| MonitorThread::start(registry.clone(), started, news_sender.clone()))
        .transpose()
        .map_err(|error| format!("cannot start the monitor of hosts: {error}"))?;
    let (quit, quits) = mpsc::unbounded_channel();
    let (reload, wishes) = mpsc::unbounded_channel();
    let parts = Parts {
        flags,
        boot,
        is_driven: driven.is_some(),
        prints,
        registry: registry.clone(),
        stats_sinks,
        workers,
        logs: logs.sender(),
        // The admin endpoint's are never closed.
        sinks: (0..snapshot.sinks.len()).filter(|sink| !admin_targets.contains(sink)).collect(),
        reload,
        news: news_sender,
        dns,
        names,
        tracing,
        quit,
        started,
    };
    let control = Rc::new(Control::new(parts));
    if let Some(monitor) = monitor {
        control.set_monitor(monitor);
    }
    let mut admin_thread = None;
    if let Some(socket) = socket {
        log!(Admin, Info, "admin address: {}", socket.address());
        let (thread, asked) = AdminThread::start(socket, &registry, logs.sender(), admin_targets)
            .map_err(|error| {
            format!("cannot start the thread of the admin endpoint: {error}")
        })?;
        tokio::task::spawn_local(admin::answer_all(control.clone(), asked));
        admin_thread = Some(thread);
    }
    tokio::task::spawn_local(reload::serve(control.clone(), wishes));
    if !control.is_driven {
        tokio::task::spawn_local(secret_files::watch(control.clone()));
    }
    if let Some(reports) = load_reports {
        tokio::task::spawn_local(load_report::run(control.clone(), reports));
    }
    if let Some(discovery) = health_discovery {
        tokio::task::spawn_local(health_discovery::run(control.clone(), discovery));
    }
    let (start, starts) = mpsc::unbounded_channel();
    let (asks, asked) = mpsc::unbounded_channel();
    tokio::task::spawn_local(discovery::answer(control.clone(), asked, start));
    let mut server = Server {
        control: control.clone(),
        signals,
        events,
        updates,
        named,
        news,
        quits,
        starts,
        driven: driven.map(|driven| (driven, registry, asks)),
        discovery: None,
        ready: 0,
        drained: 0,
    };
    let outcome = server.run(snapshot).await;
    control.tell(&ToWorker::Terminate);
    control.flush_stats();
    if outcome.is_ok() {
        server.hand_over().await;
    }
    drop(server);
    control.monitor.take();
    control.workers.borrow_mut().stop();
    control.tracing.finish();
    drop(admin_thread);
    drop(logs);
    outcome
}

/// The control thread's loop.
struct Server {
    control: Rc<Control>,
    signals: Signals,
    events: UnboundedReceiver<Event>,
    updates: UnboundedReceiver<Update>,
    named: UnboundedReceiver<NameNews>,
    news: UnboundedReceiver<News>,
    quits: UnboundedReceiver<()>,
    /// The first configuration of a control plane.
    starts: UnboundedReceiver<Snapshot>,
    /// What the thread of discovery is made of, until the names of the bootstrap's clusters are known.
    driven: Option<(Driven, Arc<Registry>, UnboundedSender<Ask>)>,
    discovery: Option<DiscoveryThread>,
    /// Workers that have opened their listeners.
    ready: usize,
    /// Workers that have nothing left to do.
    drained: usize,
}

/// What ended a wait.
enum Wake {
    Event(Event),
    Update(Update),
    Named(NameNews),
    /// Clusters that requests have made may have had their time.
    Expire,
    News(News),
    Signal(Sign),
    Quit,
    Start(Snapshot),
    Warmed(bool),
    ChecksOverdue,
    Tick,
    /// It is time to look how loaded the process is.
    Refresh,
    /// The statistics' interval is over.
    Flush,
    DrainOver,
}

impl Server {
    async fn run(&mut self, snapshot: Snapshot) -> Result<(), String> {
        let control = self.control.clone();
        let mut waiting = Some(snapshot);
        let mut checking: Option<Arc<Snapshot>> = None;
        let mut checked_by = tokio::time::Instant::now();
        let mut drain_over: Option<tokio::time::Instant> = None;
        let mut tick = tokio::time::interval(TICK);
        let mut flush = control.stats_interval().map(tokio::time::interval);
        let mut refresh_at: Option<tokio::time::Instant> = None;
        loop {
            refresh_at = control.overload_interval().map(|interval| {
                refresh_at.unwrap_or_else(|| tokio::time::Instant::now() + interval)
            });
            let expire_at = control.subs.borrow().next();
            let wake = tokio::select! {
                Some(event) = self.events.recv() => Wake::Event(event),
                Some(update) = self.updates.recv() => Wake::Update(update),
                Some(news) = self.named.recv() => Wake::Named(news),
                Some(news) = self.news.recv() => Wake::News(news),
                () = tokio::time::sleep_until(checked_by), if checking.is_some() => Wake::ChecksOverdue,
                sign = self.signals.next() => Wake::Signal(sign),
                Some(()) = self.quits.recv() => Wake::Quit,
                Some(snapshot) = self.starts.recv() => Wake::Start(snapshot),
                in_time = control.dns.warmed(WARM_BOUND), if waiting.is_some() => Wake::Warmed(in_time),
                () = sleep_until(drain_over), if drain_over.is_some() => Wake::DrainOver,
                () = sleep_until(expire_at), if expire_at.is_some() => Wake::Expire,
                () = sleep_until(refresh_at), if refresh_at.is_some() => Wake::Refresh,
                _ = tick.tick() => Wake::Tick,
                () = next(&mut flush), if flush.is_some() => Wake::Flush,
            };
            match wake {
                Wake::Event(event) => self.on_event(event)?,
                Wake::Update(Update { cluster, endpoints }) => control.on_hosts(cluster, endpoints),
                Wake::Expire => control.expire_subs(),
                Wake::Named(news) => control.tell(&ToWorker::Name(news)),
                Wake::News(News::Said(FromMonitor::Health { cluster, hosts, .. })) => {
                    control.tell(&ToWorker::Health { cluster, hosts });
                }
                Wake::News(News::Said(FromMonitor::Log { sink, lines })) => {
                    control.logs.write(sink.0 as usize, lines);
                }
                Wake::News(News::Said(FromMonitor::Warm)) => {
                    if let Some(snapshot) = checking.take() {
                        self.begin(snapshot);
                    }
                }
                Wake::News(News::Ended(outcome)) => {
                    let why = outcome
                        .err()
                        .map_or_else(|| "unasked".to_owned(), |error| error.to_string());
                    return Err(format!("the monitor of hosts ended: {why}"));
                }
                Wake::ChecksOverdue => {
                    if let Some(snapshot) = checking.take() {
                        log!(
                            Upstream,
                            Warning,
                            "not all hosts were checked in {WARM_BOUND:?}; starting all the same"
                        );
                        self.begin(snapshot);
                    }
                }
                Wake::Warmed(in_time) => {
                    if let Some(snapshot) = waiting.take() {
                        if !in_time {
                            log!(
                                Upstream,
                                Warning,
                                "not all names were resolved in {WARM_BOUND:?}; starting all the same"
                            );
                        }
                        if control.flags.mode == Mode::InitOnly {
                            return Ok(());
                        }
                        if let Some((driven, registry, asks)) = self.driven.take() {
                            control.planned.replace(Some(snapshot));
                            let Driven { sources, options, discovery } = driven;
                            let (to_discovery, overrides) = mpsc::unbounded_channel();
                            control.to_discovery.replace(Some(to_discovery));
                            let setup = discovery::Setup {
                                sources,
                                options,
                                discovery,
                                registry,
                                asks,
                                overrides,
                                recorder: None,
                            };
                            self.discovery = Some(DiscoveryThread::start(setup)?);
                            continue;
                        }
                        let snapshot = self.resolved(snapshot);
                        control.start_monitor_for(&snapshot)?;
                        if control.monitor.borrow().is_some() {
                            control.check_wall_clock();
                            control.tell_monitor(ToMonitor::Snapshot(snapshot.clone()));
                            checked_by = tokio::time::Instant::now() + WARM_BOUND;
                            checking = Some(snapshot);
                        } else {
                            self.begin(snapshot);
                        }
                    }
                }
                // What it waits for now was looked up before, but for names that answered late.
                Wake::Start(snapshot) => waiting = Some(snapshot),
                Wake::Signal(Sign::Reopen) => control.reopen_logs(),
                Wake::Signal(Sign::HangUp) => {
                    log!(Main, Info, "caught SIGHUP");
                    // The receiver lives as long as the process.
                    let _ = control.reload.send(Wish::Configuration(None));
                }
                Wake::Signal(Sign::End(_)) if drain_over.is_some() => {
                    log!(Main, Warning, "ending at once");
                    return Ok(());
                }
                Wake::Signal(Sign::End(name)) => {
                    log!(
                        Main,
                        Warning,
                        "caught {name}; draining for at most {:?}",
                        control.flags.drain_delay() + control.flags.drain_time()
                    );
                    let is_planned = control.planned.borrow().is_some();
                    if waiting.is_some() || checking.is_some() || is_planned {
                        return Ok(());
                    }
                    control.drain_and_end();
                    drain_over = Some(
                        tokio::time::Instant::now()
                            + control.flags.drain_delay()
                            + control.flags.drain_time()
                            + DRAIN_GRACE,
                    );
                }
                Wake::Quit => return Ok(()),
                Wake::DrainOver => {
                    log!(Main, Warning, "the drain time is over");
                    return Ok(());
                }
                Wake::Refresh => {
                    control.refresh_overload();
                    refresh_at = None;
                }
                Wake::Tick => control.on_tick(),
                Wake::Flush => control.flush_stats(),
            }
            if drain_over.is_some() && self.drained >= control.workers.borrow().count() {
                return Ok(());
            }
        }
    }

    /// Has workers send what waits for servers, and waits for them, but not long.
    async fn hand_over(&mut self) {
        self.control.tell(&ToWorker::HandOver { within: HAND_OVER_TIME });
        let count = self.control.workers.borrow().count();
        let until = tokio::time::Instant::now() + HAND_OVER_TIME + HAND_OVER_TIME / 4;
        let mut handed = 0;
        while handed < count {
            let event = tokio::time::timeout_at(until, self.events.recv());
            let Ok(Some(event)) = event.await else { return };
            match event.what {
                What::Said(FromWorker::HandedOver) => handed += 1,
                // It says nothing more.
                What::Ended(_) => return,
                What::Said(_) => {}
            }
        }
    }

    /// A configuration with what its names resolve to.
    fn resolved(&self, mut snapshot: Snapshot) -> Arc<Snapshot> {
        resolve(&self.control.dns, &mut snapshot);
        Arc::new(snapshot)
    }

    /// Gives workers their configuration.
    fn begin(&self, snapshot: Arc<Snapshot>) {
        log!(Config, Info, "all dependencies initialized. starting workers");
        self.control.begin(snapshot.clone());
        // What was resolved while hosts were checked.
        for (id, cluster) in (0..).map(ClusterId).zip(&snapshot.clusters) {
            if let (Some(endpoints), Some(cluster)) = (self.control.dns.endpoints(id), cluster)
                && *endpoints != *cluster.endpoints
            {
                self.control.tell(&ToWorker::Hosts { cluster: id, endpoints });
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), String> {
        let worker = event.worker;
        match event.what {
            What::Said(FromWorker::Listening { listener, address, outcome }) => {
                if self.is_started() {
                    let outcome = outcome.as_ref().map_err(|failure| *failure);
                    self.control.on_late_listening(&listener, &address, outcome);
                }
                self.control.listeners.borrow_mut().on_listening(listener, address, outcome);
            }
            What::Said(FromWorker::Taken { generation }) => {
                self.control.taken.by(worker, generation);
                if !self.is_started() {
                    self.ready += 1;
                    if self.is_started() {
                        self.started()?;
                    }
                }
            }
            What::Said(FromWorker::Drained) => self.drained += 1,
            // It is waited for elsewhere.
            What::Said(FromWorker::HandedOver) => {}
            What::Said(FromWorker::Traffic { cluster }) => {
                self.control.tell_monitor(ToMonitor::Traffic { cluster });
            }
            What::Said(FromWorker::Description { token, clusters }) => {
                self.control.on_description(token, clusters)
            }
            What::Said(FromWorker::Log { sink, lines }) => {
                self.control.logs.write(sink.0 as usize, lines)
            }
            What::Said(FromWorker::Name(question)) => self.control.names.ask(question),
            What::Said(FromWorker::Sub(question)) => self.control.ask_sub(&question),
            What::Said(FromWorker::Heard) => self.control.tell(&ToWorker::Heard),
            What::Said(FromWorker::Note(note)) => tell_note(&note),
            // Told on the worker's thread; and no app is in this process.
            What::Said(
                FromWorker::ErrorStreak { .. }
                | FromWorker::Degraded { .. }
                | FromWorker::Slow(_)
                | FromWorker::Local(_),
            ) => {}
            What::Ended(Ok(())) => return Err(format!("worker {worker} ended unasked")),
            What::Ended(Err(error)) => return Err(format!("worker {worker} failed: {error}")),
        }
        Ok(())
    }

    fn is_started(&self) -> bool {
        self.ready == self.control.workers.borrow().count()
    }

    fn started(&self) -> Result<(), String> {
        let snapshot = self.control.snapshot.borrow();
        let (mut fatal, mut without) = (Vec::new(), 0);
        for (name, address, failure) in self.control.listeners.borrow().failed() {
            let failed = listen_failure::describe(find(&snapshot, name), name, address, failure);
            if listen_failure::is_fatal(&snapshot, name, failure) {
                fatal.push(failed);
            } else {
                log!(Config, Error, "{failed}; starting without it");
                without += 1;
            }
        }
        drop(snapshot);
        if !fatal.is_empty() {
            return Err(fatal.join("\n"));
        }
        self.control.live(without);
        // Reading the configuration took several times what serving it takes.
        towpath_io::memory::give_back();
        log!(Main, Info, "ready; {} workers", self.ready);
        Ok(())
    }
}

/// How long the start may wait for names, and then for the first health checks. Envoy waits for ever; a dead name
/// server must not keep every other cluster from serving.
pub(crate) const WARM_BOUND: Duration = Duration::from_secs(15);
/// How long servers may take, at the end, for what waits for them: spans, entries of logs, statistics.
const HAND_OVER_TIME: Duration = Duration::from_secs(1);
/// How often the wall clock is compared and the like.
const TICK: Duration = Duration::from_secs(5);
/// Workers close what is left at the end of the drain time; this is for them to say so.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Waits for the next tick of a clock, if there is one.
async fn next(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

/// Waits for a time, if there is one.
pub(crate) async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    reopen: Signal,
}

enum Sign {
    End(&'static str),
    HangUp,
    Reopen,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) -> Sign {
        tokio::select! {
            _ = self.terminate.recv() => Sign::End("SIGTERM"),
            _ = self.interrupt.recv() => Sign::End("SIGINT"),
            _ = self.hang_up.recv() => Sign::HangUp,
            _ = self.reopen.recv() => Sign::Reopen,
        }
    }
}

/// Opens all log files: those of the snapshot by their ids, then the admin endpoint's.
fn open_logs(
    flags: &Flags,
    snapshot: &Snapshot,
    admin: Vec<Target>,
) -> Result<(AccessLogs, Vec<usize>), String> {
    let mut all = targets(snapshot);
    let mut indices = Vec::new();
    for target in admin {
        let index = all.iter().position(|known| *known == target).unwrap_or(all.len());
        if index == all.len() {
            all.push(target);
        }
        indices.push(index);
    }
    let flush = Flush { interval: flags.flush_interval(), size: flags.flush_size() };
    let logs = AccessLogs::start(&all, flush).map_err(|error| error.to_string())?;
    Ok((logs, indices))
}

/// Gives clusters what their names resolve to, but for those that workers have already.
pub(crate) fn resolve(dns: &Watcher, snapshot: &mut Snapshot) {
    for (id, cluster) in (0..).map(ClusterId).zip(&mut snapshot.clusters) {
        if let Some(cluster) = cluster.as_mut().and_then(Arc::get_mut)
            && let Some(endpoints) = dns.endpoints(id)
        {
            cluster.endpoints = endpoints;
        }
    }
}

pub(crate) fn dns_clusters(snapshot: &Snapshot) -> Vec<DnsCluster> {
    let clusters = snapshot.clusters.iter().enumerate();
    clusters
        .filter_map(|(index, cluster)| {
            let cluster = cluster.as_ref()?;
            let Discovery::Dns(dns) = &cluster.discovery else { return None };
            Some(DnsCluster {
                id: ClusterId(u32::try_from(index).ok()?),
                name: cluster.name.clone(),
                stat_name: cluster.stat_name.clone(),
                dns: (**dns).clone(),
            })
        })
        .collect()
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// A proxy holds two descriptors for each connection; the usual soft limit of 1024 is far below what it may have.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log!(Main, Warning, "cannot raise the limit of open files: {error}");
    }
}

/// Writes a line of a script to the program's log.
fn tell_note(note: &Note) {
    let text = &note.text;
    match note.level {
        NoteLevel::Trace => log!(Lua, Trace, "{text}"),
        NoteLevel::Debug => log!(Lua, Debug, "{text}"),
        NoteLevel::Info => log!(Lua, Info, "{text}"),
        NoteLevel::Warn => log!(Lua, Warning, "{text}"),
        NoteLevel::Error => log!(Lua, Error, "{text}"),
        NoteLevel::Critical => log!(Lua, Critical, "{text}"),
    }
}
