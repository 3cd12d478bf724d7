//! Statistics of the process as a whole: written by the control thread, by Envoy's names where Envoy has one.
//!
//! Numbers that others keep (files, drivers, the kernel) are copied in when they are looked at.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use towpath_config::Runtime;
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::tls::Certificates;
use towpath_engine::stats::{
    CertificateStats, ClientTlsContextStats, ClusterManagerStats, ConfigStats, Counter,
    FilesystemStats, Gauge, ListenerManagerStats, Registry, RuntimeStats, Scope, ServerStats,
    ServerTlsContextStats, Stat, StatSet,
};
use towpath_io::Counters;
use towpath_proto::tls::Certificate;

use crate::access_log::FileCounts;
use crate::control::{Phase, find};
use crate::flags::{COMMIT, Flags};
use crate::loading::{Boot, Kind};
use crate::log;
use crate::memory::Memory;
use crate::reload::{Applied, Outcome};
use crate::tracing::SlowCounts;

/// The owner under which the control thread registers its sets; workers count from 0.
pub(crate) const CONTROL: u32 = u32::MAX;

/// The sets.
#[derive(Debug)]
pub(crate) struct ProcessStats {
    pub(crate) server: Arc<ServerStats>,
    pub(crate) listeners: Arc<ListenerManagerStats>,
    pub(crate) clusters: Arc<ClusterManagerStats>,
    pub(crate) runtime: Arc<RuntimeStats>,
    config: Arc<ConfigStats>,
    files: Arc<FilesystemStats>,
    logs: Arc<LogStats>,
    traces: Arc<TraceStats>,
    drivers: Vec<Arc<DriverStats>>,
    contexts: RefCell<TlsContexts>,
}

/// What is shown of TLS contexts, by the stat prefix of their listener and by their cluster.
#[derive(Debug, Default)]
struct TlsContexts {
    servers: HashMap<Arc<str>, Arc<ServerTlsContextStats>>,
    clients: HashMap<Arc<str>, Arc<ClientTlsContextStats>>,
    certificates: Vec<Arc<CertificateStats>>,
    /// When the first certificate of all is no longer valid, in seconds since 1970.
    first_end: Option<i64>,
}

impl ProcessStats {
    pub(crate) fn new(registry: &Registry, workers: usize) -> Self {
        let drivers = (0..workers)
            .map(|worker| {
                registry.set(CONTROL, Scope::Driver(u32::try_from(worker).unwrap_or(u32::MAX)))
            })
            .collect();
        Self {
            server: registry.set(CONTROL, Scope::Server),
            listeners: registry.set(CONTROL, Scope::ListenerManager),
            clusters: registry.set(CONTROL, Scope::ClusterManager),
            runtime: registry.set(CONTROL, Scope::Runtime),
            config: registry.set(CONTROL, Scope::Config),
            files: registry.set(CONTROL, Scope::Filesystem),
            logs: registry.set(CONTROL, Scope::AccessLogs),
            traces: registry.set(CONTROL, Scope::Traces),
            drivers,
            contexts: RefCell::default(),
        }
    }

    /// What is known before anything is served.
    pub(crate) fn begin(&self, flags: &Flags, boot: &Boot) {
        self.server.concurrency.set(flags.workers() as u64);
        self.server.static_unknown_fields.add(boot.unknown_fields);
        self.server.version.set(u64::from_str_radix(&COMMIT[..6], 16).unwrap_or(0));
        self.config.version.set(1);
        self.runtime_loaded(&boot.runtime);
    }

    /// Values of the runtime are there, or are others.
    pub(crate) fn runtime_loaded(&self, runtime: &Runtime) {
        let disks = runtime.disks();
        for why in disks.failures() {
            log!(Config, Warning, "{why}");
        }
        match disks.failures() {
            [] => self.runtime.load_success.inc(),
            [..] => self.runtime.load_error.inc(),
        }
        // One directory is not among those that override, as in Envoy.
        match disks.read() {
            0 | 1 => self.runtime.override_dir_not_exists.inc(),
            _ => self.runtime.override_dir_exists.inc(),
        }
        self.runtime.num_layers.set(runtime.layers().len() as u64);
        self.runtime.num_keys.set(runtime.count() as u64);
        let is_overridden = runtime.admin_layer().is_some_and(|layer| !layer.values.is_empty());
        self.runtime.admin_overrides_active.set(u64::from(is_overridden));
    }

    /// Workers were given this.
    pub(crate) fn loaded(&self, snapshot: &Snapshot, registry: &Registry) {
        self.keep_contexts(snapshot, registry);
        let clusters = snapshot.shown_clusters().count() as u64;
        self.clusters.cluster_added.add(clusters);
        self.clusters.active_clusters.set(clusters);
        self.listeners.listener_added.add(snapshot.listeners.len() as u64);
        self.listeners.total_listeners_warming.set(snapshot.listeners.len() as u64);
    }

    /// Shows the TLS contexts of a snapshot.
    fn keep_contexts(&self, snapshot: &Snapshot, registry: &Registry) {
        let servers = snapshot.listeners.iter().filter(|listener| listener.is_under_tls());
        let clients = snapshot.shown_clusters().filter(|cluster| cluster.is_under_tls());
        let servers = servers.map(|listener| {
            let prefix = &listener.stat_prefix;
            (prefix.clone(), registry.set(CONTROL, Scope::ListenerTlsContext(prefix.clone())))
        });
        let clients = clients.map(|cluster| {
            let name = &cluster.stat_name;
            (name.clone(), registry.set(CONTROL, Scope::ClusterTlsContext(name.clone())))
        });
        let mut contexts = TlsContexts {
            servers: servers.collect(),
            clients: clients.collect(),
            ..TlsContexts::default()
        };
        for (scope, end) in certificates(snapshot) {
            let stats: Arc<CertificateStats> = registry.set(CONTROL, scope);
            stats.expiration_unix_time_seconds.set(u64::try_from(end).unwrap_or(0));
            contexts.certificates.push(stats);
            contexts.first_end = Some(contexts.first_end.map_or(end, |first| first.min(end)));
        }
        // Those before are dropped last: what stays keeps its counts.
        self.contexts.replace(contexts);
    }

    /// Says in how many days the first certificate ends, by this time.
    fn note_days_left(&self, now: SystemTime) {
        let days = self.contexts.borrow().first_end.map_or(NO_CERTIFICATE, |end| {
            let end = UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or(0));
            end.duration_since(now).map_or(0, |left| left.as_secs() / DAY)
        });
        self.server.days_until_first_cert_expiring.set(days);
    }

    /// The files with certificates of a cluster or listener may be others.
    pub(crate) fn rotated(&self, snapshot: &Snapshot, kind: Kind, name: &str) {
        let contexts = self.contexts.borrow();
        let updates = match kind {
            Kind::Listener => find(snapshot, name)
                .and_then(|listener| contexts.servers.get(&listener.stat_prefix))
                .map(|stats| &stats.ssl_context_update_by_sds),
            Kind::Cluster => snapshot
                .cluster_id(name)
                .and_then(|id| snapshot.cluster(id))
                .and_then(|cluster| contexts.clients.get(&cluster.stat_name))
                .map(|stats| &stats.ssl_context_update_by_sds),
        };
        if let Some(updates) = updates {
            updates.inc();
        }
    }

    /// Workers were given this in place of another.
    pub(crate) fn replaced(&self, snapshot: &Snapshot, registry: &Registry, applied: &Applied) {
        self.keep_contexts(snapshot, registry);
        let (clusters, listeners) = (&applied.clusters, &applied.listeners);
        self.clusters.cluster_added.add(clusters.added);
        self.clusters.cluster_modified.add(clusters.modified);
        self.clusters.cluster_removed.add(clusters.removed);
        self.clusters.active_clusters.set(snapshot.shown_clusters().count() as u64);
        self.listeners.listener_added.add(listeners.added);
        self.listeners.listener_modified.add(listeners.modified);
        self.listeners.listener_removed.add(listeners.removed);
        self.listeners.total_listeners_active.set(snapshot.listeners.len() as u64);
    }

    /// A request has had a cluster made.
    pub(crate) fn sub_cluster_added(&self) {
        self.clusters.cluster_added.inc();
    }

    /// No request was for so many of them.
    pub(crate) fn sub_clusters_removed(&self, count: usize) {
        self.clusters.cluster_removed.add(count as u64);
    }

    /// How many clusters there are.
    pub(crate) fn show_clusters(&self, count: usize) {
        self.clusters.active_clusters.set(count as u64);
    }

    /// A new configuration was taken, or not.
    pub(crate) fn reloaded(&self, outcome: &Outcome, took: Duration) {
        self.config.update_attempt.inc();
        self.config.update_time.set(unix_ms(SystemTime::now()));
        self.config.update_duration.record(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        match outcome {
            Ok(applied) => {
                self.config.update_success.inc();
                self.config.version.set(applied.version);
            }
            Err(_) => self.config.update_rejected.inc(),
        }
    }

    /// All workers have opened all listeners, but for those that failed.
    pub(crate) fn started(&self, failed: u64, after: Duration) {
        let warming = &self.listeners.total_listeners_warming;
        let active = warming.value().saturating_sub(failed);
        self.listeners.total_listeners_active.set(active);
        let created = active.saturating_mul(self.drivers.len() as u64);
        self.listeners.listener_create_success.add(created);
        self.listeners.listener_create_failure.add(failed);
        warming.set(0);
        self.listeners.workers_started.set(1);
        self.server
            .initialization_time_ms
            .record(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    }

    /// Copies in what others count.
    pub(crate) fn refresh<'a>(
        &self,
        phase: Phase,
        uptime: Duration,
        files: &FileCounts,
        drivers: impl Iterator<Item = &'a Counters>,
    ) {
        self.server.state.set(phase.number());
        self.server.live.set(u64::from(phase == Phase::Live));
        self.server.uptime.set(uptime.as_secs());
        self.note_days_left(SystemTime::now());

        let Memory { resident, anonymous, size } = Memory::read();
        self.server.memory_allocated.set(anonymous);
        self.server.memory_heap_size.set(size);
        self.server.memory_physical_size.set(resident);

        raise(&self.files.write_buffered, files.buffered.load(Ordering::Relaxed));
        raise(&self.files.write_completed, files.completed.load(Ordering::Relaxed));
        raise(&self.files.write_failed, files.failed.load(Ordering::Relaxed));
        raise(&self.files.flushed_by_timer, files.flushed_by_timer.load(Ordering::Relaxed));
        raise(&self.files.reopen_failed, files.reopen_failed.load(Ordering::Relaxed));
        self.files.write_total_buffered.set(files.waiting() as u64);
        raise(&self.logs.dropped, files.dropped.load(Ordering::Relaxed));

        let mut open = 0;
        for (stats, counters) in self.drivers.iter().zip(drivers) {
            stats.copy(counters);
            open += stats.open();
        }
        self.server.total_connections.set(open);
    }

    /// Copies in what became of slow requests.
    pub(crate) fn refresh_traces(&self, slow: &SlowCounts) {
        let totals = [&slow.failed, &slow.requests, &slow.suppressed, &slow.written];
        for (counter, total) in self.traces.slow.iter().zip(totals) {
            raise(counter, total.load(Ordering::Relaxed));
        }
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Brings a counter up to a total that is kept elsewhere.
fn raise(counter: &Counter, total: u64) {
    counter.add(total.saturating_sub(counter.value()));
}

/// `towpath.trace.…`: what became of the requests that `--trace-slow` is about.
#[derive(Debug, Default)]
pub(crate) struct TraceStats {
    slow: [Counter; TRACE_COUNTERS.len()],
}

impl StatSet for TraceStats {
    fn names(&self) -> &'static [&'static str] {
        &TRACE_COUNTERS
    }

    fn value(&self, index: usize) -> Stat<'_> {
        Stat::Counter(&self.slow[index])
    }
}

const TRACE_COUNTERS: [&str; 4] =
    ["slow_failed", "slow_requests", "slow_suppressed", "slow_written"];

/// `towpath.access_log.…`
#[derive(Debug, Default)]
pub(crate) struct LogStats {
    /// Chunks of lines that were dropped because the disk did not keep up.
    dropped: Counter,
}

impl StatSet for LogStats {
    fn names(&self) -> &'static [&'static str] {
        &["dropped"]
    }

    fn value(&self, _: usize) -> Stat<'_> {
        Stat::Counter(&self.dropped)
    }
}

/// `towpath.worker_<n>.…`: what a worker's driver asked of the kernel.
#[derive(Debug, Default)]
pub(crate) struct DriverStats {
    counters: [Counter; DRIVER_COUNTERS.len()],
    open: Gauge,
}

impl DriverStats {
    fn copy(&self, from: &Counters) {
        for (counter, (_, read)) in self.counters.iter().zip(DRIVER_COUNTERS) {
            raise(counter, read(from));
        }
        let begun = from.accepts.value() + from.connects.value();
        self.open.set(begun.saturating_sub(from.closes.value()));
    }

    fn open(&self) -> u64 {
        self.open.value()
    }
}

impl StatSet for DriverStats {
    fn names(&self) -> &'static [&'static str] {
        const NAMES: [&str; DRIVER_COUNTERS.len()] = {
            let mut names = [""; DRIVER_COUNTERS.len()];
            let mut index = 0;
            while index < names.len() {
                names[index] = DRIVER_COUNTERS[index].0;
                index += 1;
            }
            names
        };
        &NAMES
    }

    fn value(&self, index: usize) -> Stat<'_> {
        Stat::Counter(&self.counters[index])
    }
}

type Read = fn(&Counters) -> u64;

const DRIVER_COUNTERS: [(&str, Read); 12] = [
    ("accepts", |from| from.accepts.value()),
    ("accepts_exhausted", |from| from.accepts_exhausted.value()),
    ("blocked_writes", |from| from.blocked_writes.value()),
    ("bytes_read", |from| from.bytes_read.value()),
    ("bytes_written", |from| from.bytes_written.value()),
    ("closes", |from| from.closes.value()),
    ("connects", |from| from.connects.value()),
    ("flushes_cut", |from| from.flushes_cut.value()),
    ("messages", |from| from.messages.value()),
    ("reads", |from| from.reads.value()),
    ("wakeups", |from| from.wakeups.value()),
    ("writes", |from| from.writes.value()),
];

/// The certificates of all TLS contexts, and when each is no longer valid, in seconds since 1970.
fn certificates(snapshot: &Snapshot) -> Vec<(Scope, i64)> {
    let mut all = Vec::new();
    // Thousands of clusters may share one: it is read once.
    let mut ends: HashMap<*const u8, Option<i64>> = HashMap::new();
    let mut add = |certificates: &Certificates, scope: &dyn Fn(Arc<str>) -> Scope| {
        for (name, shown) in certificates.named() {
            let end = *ends
                .entry(shown.der.as_ptr())
                .or_insert_with(|| Certificate::parse(&shown.der).map(|it| it.validity().1));
            all.extend(end.map(|end| (scope(Arc::clone(name)), end)));
        }
    };
    for listener in &snapshot.listeners {
        let chains = listener.chains.iter().chain(&listener.default_chain);
        for tls in chains.filter_map(|chain| chain.tls.as_ref()) {
            let listener = || Arc::clone(&listener.stat_prefix);
            add(&tls.certificates, &|name| Scope::ListenerCertificate {
                listener: listener(),
                name,
            });
        }
    }
    for cluster in snapshot.shown_clusters() {
        for tls in cluster.sockets.iter().chain([&cluster.tls]).flatten() {
            let cluster = || Arc::clone(&cluster.stat_name);
            add(&tls.certificates, &|name| Scope::ClusterCertificate { cluster: cluster(), name });
        }
    }
    all
}

const DAY: u64 = 24 * 60 * 60;
/// What Envoy says where there is none.
const NO_CERTIFICATE: u64 = u32::MAX as u64;
