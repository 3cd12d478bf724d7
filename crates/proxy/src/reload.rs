//! Another configuration while it serves: on SIGHUP and `POST /config/reload`, and when a certificate or key changes.
//!
//! Arrives: a wish for it. Leaves: a snapshot for workers and the monitor, or the reasons why the one that serves
//! stays. The file is read and compiled on a thread of its own, so that the control thread only compares and hands on.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, oneshot};
use towpath_config::{Base, Patch, Prints, Runtime};
use towpath_engine::message::{ToMonitor, ToWorker};
use towpath_engine::snapshot::{ClusterId, Listener, SinkId, Snapshot};
use towpath_io::listeners::Prepared;

use crate::control::{Control, Phase, find, keeps};
use crate::discovery::{Built, Refused};
use crate::listen_failure::describe;
use crate::loading::{self, Boot, Configuration, Kind, targets};
use crate::secret_files::SecretFiles;
use crate::serve::{WARM_BOUND, dns_clusters, resolve};
use crate::{access_log, bulk, log};

/// Why a new configuration was not taken, or what it changed.
pub(crate) type Outcome = Result<Applied, String>;

/// A wish for a new configuration.
#[derive(Debug)]
pub(crate) enum Wish {
    /// The file and all that it names are read again; the sender, if there is one, is told what came of it.
    Configuration(Option<oneshot::Sender<Outcome>>),
    /// What serves stays, but for what files with certificates, keys and values of the runtime say.
    Files,
    /// What serves stays, but for what the runtime says. The sender is told what came of it.
    Runtime(oneshot::Sender<Outcome>),
}

/// What a new configuration changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) version: u64,
    pub(crate) clusters: Changes,
    pub(crate) listeners: Changes,
    /// CPU time of the control thread.
    pub(crate) control: Duration,
    /// Workers that have not obeyed it yet.
    pub(crate) missing: usize,
    /// Listeners that are not open, and why.
    pub(crate) without: Vec<String>,
}

/// How many parts of a kind are different.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) added: u64,
    pub(crate) modified: u64,
    pub(crate) removed: u64,
}

impl std::fmt::Display for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, clusters, listeners, control, missing, without } = self;
        write!(f, "version {version}: ")?;
        for (kind, Changes { added, modified, removed }) in
            [("clusters", clusters), ("listeners", listeners)]
        {
            write!(f, "{kind} {added} added, {modified} modified, {removed} removed; ")?;
        }
        write!(f, "{} us of the control thread", control.as_micros())?;
        if *missing > 0 {
            write!(f, "; {missing} workers have not taken it yet")?;
        }
        without.iter().try_for_each(|why| write!(f, "; {why}; going on without it"))
    }
}

/// What a configuration leaves behind: kept until no worker and no request knows it.
#[derive(Debug)]
pub(crate) struct Remains {
    /// Dropped here and not by a worker, which must not spend its time on that.
    snapshot: Option<Arc<Snapshot>>,
    /// Listeners that are gone, but for connections.
    listeners: Vec<Weak<Listener>>,
    /// Their numbers may be used again then.
    clusters: Vec<ClusterId>,
    /// Log files that nothing writes to then.
    sinks: Vec<SinkId>,
}

/// Takes one new configuration after the other. Wishes that come while one is read are granted by the next.
pub(crate) async fn serve(control: Rc<Control>, mut wishes: mpsc::UnboundedReceiver<Wish>) {
    while let Some(first) = wishes.recv().await {
        let mut all = vec![first];
        while let Ok(another) = wishes.try_recv() {
            all.push(another);
        }
        let file_stays = all.iter().all(|wish| !matches!(wish, Wish::Configuration(_)));
        let began = Instant::now();
        let outcome = reload(&control, file_stays).await;
        match &outcome {
            Ok(applied) => log!(Config, Info, "configuration replaced: {applied}"),
            Err(why) => {
                for line in why.lines() {
                    log!(Config, Error, "configuration not replaced: {line}");
                }
            }
        }
        control.refused.replace(outcome.clone().err().map(|why| (SystemTime::now(), why)));
        control.stats.reloaded(&outcome, began.elapsed());
        for wish in all {
            if let Wish::Configuration(Some(asker)) | Wish::Runtime(asker) = wish {
                // A client of the admin endpoint may have gone.
                let _ = asker.send(outcome.clone());
            }
        }
    }
}

async fn reload(control: &Rc<Control>, file_stays: bool) -> Outcome {
    if control.phase() != Phase::Live {
        return Err(format!("the state is {}; it must be LIVE", control.phase().name()));
    }
    if control.is_driven {
        let why = "a control plane is in charge (dynamic_resources), and the file is read at the start only";
        return Err(why.to_owned());
    }
    let cpu = CpuTime::now();
    let base = control.base();
    let (flags, boot) = (control.flags.clone(), control.boot.borrow().clone());
    let overrides = control.overrides.borrow().clone();
    let (teller, told) = oneshot::channel();
    std::thread::Builder::new()
        .name("reload".to_owned())
        .spawn(move || {
            bulk::give_way();
            let read = if file_stays { loading::load_again } else { loading::reload };
            let outcome = read(&flags, &base, &boot, &overrides);
            // Here and not on the control thread: it may hold the last hold on many names.
            drop((base, boot));
            let _ = teller.send(outcome);
        })
        .map_err(|error| format!("cannot start a thread to read it: {error}"))?;
    let spent = cpu.spent();
    let configuration = told.await.map_err(|_| "reading it ended unasked".to_owned())??;
    let cpu = CpuTime::now();
    let bound = bind(control, &configuration.snapshot.listeners).map_err(|refused| {
        refused.into_iter().map(|it| it.reason).collect::<Vec<_>>().join("\n")
    })?;
    open_logs(control, &configuration.snapshot)?;
    control.follow_names(dns_clusters(&configuration.snapshot));
    let spent = spent + cpu.spent();
    if !control.dns.warmed(WARM_BOUND).await {
        log!(
            Upstream,
            Warning,
            "not all names were resolved in {WARM_BOUND:?}; going on all the same"
        );
    }
    let cpu = CpuTime::now();
    let Configuration { snapshot, prints, boot, .. } = configuration;
    let mut applied = apply(control, snapshot, prints, boot, bound)?;
    applied.control = spent + cpu.spent();
    let workers = control.workers.borrow().count();
    (applied.missing, applied.without) = control.taken.by_all(applied.version, workers).await;
    if applied.missing == 0 {
        // Workers that drain have not asked for them.
        control.workers.borrow().listeners.offer(Vec::new());
    }
    Ok(applied)
}

/// Which of these listeners cannot be opened. Their addresses are free again after that.
pub(crate) fn try_to_open(control: &Control, listeners: &[Arc<Listener>]) -> Vec<Refused> {
    bind(control, listeners).err().unwrap_or_default()
}

/// Binds the addresses that are new, before anything else is done.
fn bind<'a>(
    control: &Control,
    listeners: impl IntoIterator<Item = &'a Arc<Listener>>,
) -> Result<Vec<Prepared>, Vec<Refused>> {
    let (before, workers) = (control.snapshot.borrow(), control.workers.borrow());
    let (mut bound, mut refused) = (Vec::new(), Vec::new());
    for listener in listeners.into_iter().filter(|listener| listener.bind) {
        // One inside the process has no socket.
        let outer = listener.addresses.iter().filter(|address| address.internal().is_none());
        for address in outer.filter(|address| !keeps(&before, listener, address)) {
            match workers.listeners.prepare(address, listener.options_of(address)) {
                Ok(prepared) => bound.push(prepared),
                Err(failure) => {
                    control.stats.listeners.listener_create_failure.inc();
                    let reason = describe(Some(listener), &listener.name, address, failure);
                    refused.push(Refused { listener: listener.name.to_string(), reason });
                }
            }
        }
    }
    if refused.is_empty() { Ok(bound) } else { Err(refused) }
}

/// Lets the first configuration of a control plane serve, or says which of its listeners cannot be opened. Those of the
/// bootstrap are opened by the workers, and the program does not start without them.
pub(crate) fn start_discovered(
    control: &Control,
    built: Built,
    starts: &mpsc::UnboundedSender<Snapshot>,
) -> Vec<Refused> {
    let Built { snapshot, prints, statics, runtime } = built;
    take_runtime(control, runtime);
    let statics = statics.unwrap_or_default();
    let mut given = snapshot.listeners.iter().filter(|it| !statics.contains(&*it.name));
    let bound = match bind(control, &mut given) {
        Ok(bound) => bound,
        Err(refused) => return refused,
    };
    if let Err(why) = open_logs(control, &snapshot) {
        log!(Config, Error, "{why}");
    }
    control.follow_names(dns_clusters(&snapshot));
    control.prints.replace(prints);
    control.workers.borrow().listeners.offer(bound);
    // The receiver is gone only when the process ends.
    let _ = starts.send(snapshot);
    Vec::new()
}

/// Lets what a control plane sent serve, or says which listeners cannot be opened.
pub(crate) fn replace_discovered(control: &Rc<Control>, built: Built) -> Vec<Refused> {
    let Built { snapshot, prints, runtime, .. } = built;
    take_runtime(control, runtime);
    if is_same(&control.snapshot.borrow(), &snapshot) {
        control.prints.replace(prints);
        return Vec::new();
    }
    let bound = match bind(control, &snapshot.listeners) {
        Ok(bound) => bound,
        Err(refused) => return refused,
    };
    if let Err(why) = open_logs(control, &snapshot) {
        log!(Config, Error, "{why}");
    }
    // What is new of them has no hosts until its names were looked up.
    control.follow_names(dns_clusters(&snapshot));
    let boot = control.boot.borrow().clone();
    match apply(control, snapshot, prints, boot, bound) {
        Ok(applied) => log!(Config, Debug, "configuration replaced: {applied}"),
        Err(why) => log!(Config, Error, "configuration not replaced: {why}"),
    }
    if control.remains.borrow().len() > MOST_REMAINS {
        tidy(control);
    }
    Vec::new()
}

/// Lets clusters serve of which nothing but the endpoints of a control plane is new. No name of them is resolved.
pub(crate) fn replace_clusters(control: &Rc<Control>, patch: Patch) {
    let now = SystemTime::now();
    let changed = patch.clusters.iter().map(|it| ((Kind::Cluster, it.name.to_string()), now));
    control.boot.borrow_mut().changed.extend(changed);
    let before = control.snapshot.borrow().clone();
    let after = Arc::new(patch.apply(&before, &mut control.prints.borrow_mut()));
    control.snapshot.replace(after.clone());
    control.tell_monitor(ToMonitor::Snapshot(after.clone()));
    control.tell(&ToWorker::Snapshot(after));
    let snapshot = Some(before);
    let (listeners, clusters, sinks) = (Vec::new(), Vec::new(), Vec::new());
    control.remains.borrow_mut().push(Remains { snapshot, listeners, clusters, sinks });
    if control.remains.borrow().len() > MOST_REMAINS {
        tidy(control);
    }
}

/// Shows what the runtime says now.
fn take_runtime(control: &Control, runtime: Runtime) {
    let mut boot = control.boot.borrow_mut();
    if boot.runtime.layers() != runtime.layers() || boot.runtime.disks() != runtime.disks() {
        control.stats.runtime_loaded(&runtime);
        boot.runtime = runtime;
    }
}

/// Whether nothing of it is new to workers.
fn is_same(before: &Snapshot, after: &Snapshot) -> bool {
    let same_clusters = before.clusters.len() == after.clusters.len()
        && before.clusters.iter().zip(&after.clusters).all(|both| match both {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        });
    let (one, other) = (&before.listeners, &after.listeners);
    same_clusters
        && before.cluster_ids == after.cluster_ids
        && one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Snapshots that were replaced and may not be known any more, before they are looked at out of turn.
const MOST_REMAINS: usize = 16;

/// Opens log files that are new.
fn open_logs(control: &Control, snapshot: &Snapshot) -> Result<(), String> {
    let mut open = control.sinks.borrow_mut();
    let wanted = used_sinks(snapshot);
    for (index, target) in targets(snapshot).iter().enumerate() {
        if wanted.contains(&index) && !open.contains(&index) {
            let logs: &access_log::LogSender = &control.logs;
            logs.open(index, target).map_err(|error| error.to_string())?;
            open.insert(index);
        }
    }
    Ok(())
}

/// Which log files a configuration writes to.
pub(crate) fn used_sinks(snapshot: &Snapshot) -> HashSet<usize> {
    use towpath_engine::snapshot::AccessLog;
    use towpath_engine::snapshot::listener::Terminal;
    let chains = snapshot.listeners.iter().flat_map(|listener| {
        let logs = listener.chains.iter().chain(&listener.default_chain).flat_map(|chain| {
            match &chain.terminal {
                Terminal::Http(http) => &http.access_logs[..],
                Terminal::Tcp(tcp) => &tcp.access_logs,
                Terminal::Bolt(bolt) => &bolt.http.access_logs,
                Terminal::Answer(_) => &[],
            }
        });
        logs.chain(&listener.access_logs)
    });
    let checks = snapshot.clusters.iter().flatten().filter_map(|it| it.health_check.as_ref());
    let checked = checks.flat_map(|check| &check.log).flat_map(|log| log.sinks.iter().copied());
    let sinks = chains.filter_map(AccessLog::sink).chain(snapshot.outlier_log).chain(checked);
    sinks.map(|sink| sink.0 as usize).collect()
}

fn apply(
    control: &Rc<Control>,
    mut snapshot: Snapshot,
    prints: Prints,
    boot: Boot,
    bound: Vec<Prepared>,
) -> Outcome {
    resolve(&control.dns, &mut snapshot);
    let after = Arc::new(snapshot);
    control.start_monitor_for(&after)?;
    let before = control.snapshot.replace(after.clone());
    let rotated = control.prints.borrow().secrets().ne(prints.secrets());
    control.secrets.replace(SecretFiles::of(&prints, &boot.runtime));
    let former = control.prints.replace(prints);
    let (mut applied, mut changed) =
        (Applied { version: after.generation, ..Applied::default() }, Vec::new());
    applied.clusters = cluster_changes(&before, &after, &mut changed);
    applied.listeners = listener_changes(&before, &after, &mut changed);
    if control.is_driven {
        // What came of EDS, RDS and others is not counted as a change of what asks for it.
        let prints = control.prints.borrow();
        let is_another = |kind: Kind, name: &str| match kind {
            Kind::Cluster => prints.is_another_cluster(&former, name),
            Kind::Listener => prints.is_another_listener(&former, name),
        };
        let is_it = |of: Kind| {
            let own = changed.iter().filter(|(kind, name)| *kind == of && is_another(of, name));
            own.count() as u64
        };
        let (clusters, listeners) = (is_it(Kind::Cluster), is_it(Kind::Listener));
        applied.clusters.modified = clusters.saturating_sub(applied.clusters.added);
        applied.listeners.modified = listeners.saturating_sub(applied.listeners.added);
    }
    control.stats.replaced(&after, &control.registry, &applied);
    for (kind, name) in changed.iter().filter(|_| rotated) {
        control.stats.rotated(&after, *kind, name);
    }
    if !control.is_driven {
        // Else it was taken with what the control plane sent.
        control.stats.runtime_loaded(&boot.runtime);
    }
    take_boot(control, boot, changed);
    control.listeners.borrow_mut().keep(&before, &after);
    control.tell_monitor(ToMonitor::Snapshot(after.clone()));
    control.workers.borrow().listeners.offer(bound);
    control.tell(&ToWorker::Snapshot(after.clone()));
    control.remains.borrow_mut().push(remains(&control.sinks.borrow(), before, &after));
    Ok(applied)
}

fn cluster_changes(
    before: &Snapshot,
    after: &Snapshot,
    changed: &mut Vec<(Kind, String)>,
) -> Changes {
    let mut changes = Changes::default();
    for index in 0..before.clusters.len().max(after.clusters.len()) {
        let id = ClusterId(u32::try_from(index).unwrap_or(u32::MAX));
        let count = match (before.cluster(id), after.cluster(id)) {
            (Some(before), Some(after)) if Arc::ptr_eq(before, after) => continue,
            (None, None) => continue,
            (_, Some(after)) if after.google_prefix().is_some() => continue,
            (Some(before), None) if before.google_prefix().is_some() => continue,
            (None, Some(_)) => &mut changes.added,
            (Some(_), Some(_)) => &mut changes.modified,
            (Some(_), None) => &mut changes.removed,
        };
        *count += 1;
        changed.extend(after.cluster(id).map(|it| (Kind::Cluster, it.name.to_string())));
    }
    changes
}

fn listener_changes(
    before: &Snapshot,
    after: &Snapshot,
    changed: &mut Vec<(Kind, String)>,
) -> Changes {
    let mut changes = Changes::default();
    for listener in &after.listeners {
        match find(before, &listener.name) {
            Some(before) if Arc::ptr_eq(before, listener) => continue,
            Some(_) => changes.modified += 1,
            None => changes.added += 1,
        }
        changed.push((Kind::Listener, listener.name.to_string()));
    }
    let gone = before.listeners.iter().filter(|listener| find(after, &listener.name).is_none());
    changes.removed = gone.count() as u64;
    changes
}

/// What admin requests show of it from here on.
fn take_boot(control: &Control, mut boot: Boot, changed: Vec<(Kind, String)>) {
    let mut live = control.boot.borrow_mut();
    boot.changed = std::mem::take(&mut live.changed);
    let now = SystemTime::now();
    boot.changed.extend(changed.into_iter().map(|key| (key, now)));
    // What was there at the start keeps its time.
    boot.started = live.started;
    *live = boot;
}

fn remains(open: &HashSet<usize>, before: Arc<Snapshot>, after: &Snapshot) -> Remains {
    let kept = |old: &&Arc<Listener>| after.listeners.iter().any(|new| Arc::ptr_eq(old, new));
    let listeners = before.listeners.iter().filter(|old| !kept(old)).map(Arc::downgrade).collect();
    let names = before.cluster_ids.iter();
    let clusters = names.filter(|(name, _)| after.cluster_id(name).is_none()).map(|(_, id)| *id);
    let (clusters, used) = (clusters.collect(), used_sinks(after));
    let sinks = open.iter().filter(|index| !used.contains(index));
    let sinks = sinks.filter_map(|index| u32::try_from(*index).ok()).map(SinkId).collect();
    Remains { listeners, clusters, sinks, snapshot: Some(before) }
}

/// Lets go of what nothing knows any more. To be called every few seconds.
pub(crate) fn tidy(control: &Control) {
    let mut remains = control.remains.borrow_mut();
    remains.retain_mut(|left| {
        left.snapshot = left.snapshot.take().filter(|snapshot| Arc::strong_count(snapshot) > 1);
        let known = left.listeners.iter().any(|listener| listener.strong_count() > 0);
        if left.snapshot.is_some() || known {
            return true;
        }
        let used = used_sinks(&control.snapshot.borrow());
        for sink in left.sinks.iter().map(|sink| sink.0 as usize) {
            if !used.contains(&sink) && control.sinks.borrow_mut().remove(&sink) {
                control.logs.close(sink);
            }
        }
        control.free.borrow_mut().append(&mut left.clusters);
        false
    });
}

impl Control {
    /// What serves, for a configuration that shall follow it.
    pub(crate) fn base(&self) -> Base {
        let snapshot = self.snapshot.borrow().clone();
        // Names that came back since have their old ids.
        let used: HashSet<ClusterId> = snapshot.cluster_ids.values().copied().collect();
        let mut free = self.free.borrow_mut();
        free.sort_unstable();
        free.dedup();
        free.retain(|id| !used.contains(id));
        Base { snapshot, prints: self.prints.borrow().clone(), free: free.clone() }
    }
}

/// CPU time of this thread.
struct CpuTime(Duration);

impl CpuTime {
    fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        Self(seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0)))
    }

    fn spent(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}
