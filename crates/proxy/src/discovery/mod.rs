//! A control plane in charge: what it sends becomes the configuration that serves (xDS).
//!
//! One thread, which there is only where `dynamic_resources` are configured. Arrives: messages of the control plane,
//! and what the control thread answers. Leaves: snapshots for the control thread to hand on ([`Ask`]), and what is
//! shown of resources. The protocol is `towpath-xds`, what resources come to is `towpath-config`; here are the order
//! of things and the counters.
//!
//! The start waits as Envoy's does: for the runtime, for clusters and their endpoints, then for listeners and their
//! route tables, and for the secrets of either.

mod asks;
mod channels;
mod endpoints;
mod files;
pub(crate) mod grpc;
mod record;
mod secrets;
mod shown;
mod stats;
mod tls;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use towpath_config::{
    Base, Build, ConfigSource, Discovery, From, Given, Kind, Need, Options, Resources, Sources,
};
use towpath_engine::stats::Registry;
use towpath_io::memory;
use towpath_xds::{Output, Rejected, Type, Update, Wanted};

use crate::bulk;
use crate::control::Phase;
use crate::loading::Overrides;
use crate::log;
use crate::secret_files::{LOOK, SecretFiles};
use crate::serve::dns_clusters;
use channels::Channel;
use files::Files;
use grpc::News;
use secrets::Secrets;
use stats::Stats;

pub(crate) use asks::Reach;
pub(crate) use asks::{Ask, Built, Refused, answer};
pub(crate) use record::{Recorder, Step};
pub(crate) use shown::{Dump, Shown, State};

/// What the thread begins with.
pub(crate) struct Setup {
    pub(crate) sources: Sources,
    pub(crate) options: Options,
    pub(crate) discovery: Discovery,
    pub(crate) registry: Arc<Registry>,
    pub(crate) asks: mpsc::UnboundedSender<Ask>,
    pub(crate) overrides: mpsc::UnboundedReceiver<Override>,
    /// Who writes down what comes.
    pub(crate) recorder: Option<Recorder>,
}

/// What `/runtime_modify` was told, all of it; and the caller that is to be told when it serves.
#[derive(Debug)]
pub(crate) struct Override {
    pub(crate) values: Overrides,
    pub(crate) teller: oneshot::Sender<()>,
}

/// The thread, which ends with this.
pub(crate) struct DiscoveryThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl DiscoveryThread {
    pub(crate) fn start(setup: Setup) -> Result<Self, String> {
        let failed =
            |error: std::io::Error| format!("cannot start the thread of discovery: {error}");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let serve = async {
                tokio::select! {
                    () = serve(setup) => {}
                    // Either way the process ends.
                    _ = stopped => {}
                }
            };
            LocalSet::new().block_on(&runtime, serve);
        };
        let thread =
            std::thread::Builder::new().name("discovery".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for DiscoveryThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

pub(crate) async fn serve(setup: Setup) {
    let Setup { sources, options, discovery, registry, asks, overrides, recorder } = setup;
    // It was read before, and a file that changed since is told of like any other that is bad.
    let resources = match Resources::new(sources, options) {
        Ok(resources) => resources,
        Err(error) => return log!(Config, Critical, "no discovery: {error}"),
    };
    let mut server = Server {
        began: Instant::now(),
        node: resources.node("towpath", env!("CARGO_PKG_VERSION")),
        channels: Vec::new(),
        files: Files::default(),
        secret_files: SecretFiles::default(),
        secrets: Secrets::default(),
        resources,
        base: Base::default(),
        needs: Vec::new(),
        warming: HashSet::new(),
        stage: Stage::Runtime,
        discovery,
        shown: BTreeMap::new(),
        unsettled: BTreeSet::new(),
        told: (false, Vec::new()),
        stats: Stats::new(registry),
        asks,
        overrides,
        recorder,
        taken: 0,
        trim_at: None,
    };
    server.run().await;
}

struct Server {
    began: Instant,
    node: Bytes,
    /// Without one, everything comes from files.
    channels: Vec<Channel>,
    files: Files,
    /// Those with certificates and keys that what serves was made from, but for what control planes give.
    secret_files: SecretFiles,
    secrets: Secrets,
    resources: Resources,
    /// Before anything serves, what was built last.
    base: Base,
    needs: Vec<Need>,
    /// Clusters and listeners that wait for what they need.
    warming: HashSet<(Kind, String)>,
    stage: Stage,
    discovery: Discovery,
    shown: BTreeMap<(Kind, String), Arc<Shown>>,
    /// Those of them of which a version waits.
    unsettled: BTreeSet<(Kind, String)>,
    /// What control planes were told is needed, and whether listeners were asked for.
    told: (bool, Vec<Need>),
    stats: Stats,
    asks: mpsc::UnboundedSender<Ask>,
    overrides: mpsc::UnboundedReceiver<Override>,
    recorder: Option<Recorder>,
    /// Bytes of resources that were taken since memory was last given back, and when it will be.
    taken: usize,
    trim_at: Option<Instant>,
}

/// How far the start is.
enum Stage {
    /// Until the runtime is known.
    Runtime,
    /// Until clusters, and what they need, are `known`.
    Clusters {
        known: bool,
    },
    /// Until the names of clusters were looked up.
    Names(oneshot::Receiver<()>),
    /// Until listeners, and what they need, are `known`.
    Listeners {
        known: bool,
    },
    Serving,
}

enum Wake {
    News(usize, News),
    Override(Override),
    NamesKnown,
    Deadline,
}

impl Server {
    async fn run(&mut self) {
        self.ask(Ask::Printer(self.resources.printer()));
        self.open_ads(self.discovery.ads.clone());
        let build = self.resources.rebuild(&self.base);
        self.take_build(build);
        self.advance().await;
        loop {
            self.look().await;
            self.rotate().await;
            let deadline = self.obey().await;
            self.drop_unneeded();
            self.count_held_up();
            self.resources.rest();
            let wait =
                Duration::from_nanos(deadline.as_nanos().saturating_sub(self.now().as_nanos()));
            let has_files =
                !self.files.is_empty() || !self.secret_files.is_empty() || self.secrets.has_files();
            let longest = if has_files { LOOK } else { LONGEST_WAIT };
            let longest = self.give_back().map_or(longest, |until| longest.min(until));
            let names = match &mut self.stage {
                Stage::Names(names) => Some(names),
                Stage::Runtime
                | Stage::Clusters { .. }
                | Stage::Listeners { .. }
                | Stage::Serving => None,
            };
            let wake = tokio::select! {
                (index, news) = channels::hear(&mut self.channels) => Wake::News(index, news),
                Some(it) = self.overrides.recv() => Wake::Override(it),
                () = known(names) => Wake::NamesKnown,
                () = tokio::time::sleep(wait.min(longest)) => Wake::Deadline,
            };
            match wake {
                Wake::News(index, news) => self.hear(index, news),
                Wake::Override(Override { values, teller }) => {
                    self.resources.override_runtime(values);
                    self.again(Kind::Runtime).await;
                    // The caller may have gone.
                    let _ = teller.send(());
                }
                Wake::NamesKnown => {
                    self.stage = Stage::Listeners { known: self.discovery.listeners.is_none() };
                    self.ask(Ask::State(Phase::Initializing));
                    let collection = self.discovery.listener_collection.clone();
                    self.want_all(Kind::Listener, self.discovery.listeners.clone(), collection);
                    self.want_what_is_needed();
                    self.advance().await;
                }
                Wake::Deadline => {}
            }
            if self.secret_files.have_changed() {
                self.resources.read_files_again();
                self.again(Kind::Listener).await;
            }
        }
    }

    /// Gives memory back some time after much was taken: reading and converting it takes many times what stays. Says
    /// until when it is to be called again.
    fn give_back(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.taken >= MUCH {
            let at = *self.trim_at.get_or_insert(now + SETTLED);
            if at > now {
                return Some(at - now);
            }
            memory::trim();
            (self.taken, self.trim_at) = (0, None);
        }
        None
    }

    /// Asks for all there is of a kind, or of its collection.
    fn want_all(&mut self, kind: Kind, source: Option<ConfigSource>, collection: Option<Arc<str>>) {
        let Some(ConfigSource { from, timeout }) = source else { return };
        self.stats.attempt(kind);
        let wanted = match collection {
            Some(name) => Wanted::Collection(name.as_ref().to_owned(), timeout),
            None => Wanted::All(timeout),
        };
        self.want(&from, kind, wanted);
    }

    /// Does what the streams wish; says until when they wish nothing.
    async fn obey(&mut self) -> towpath_proto::Instant {
        loop {
            let mut earliest = towpath_proto::Instant::FAR_FUTURE;
            let (mut index, mut is_done) = (0, true);
            // What one brings may make others.
            while index < self.channels.len() {
                let now = self.now();
                match self.channels[index].stream.poll(now) {
                    Output::Wait(deadline) => {
                        earliest = earliest.min(deadline);
                        index += 1;
                        continue;
                    }
                    Output::Connect => self.connect(index).await,
                    Output::Send(message) => self.channels[index].send(message),
                    Output::Update(update) => self.update(index, update).await,
                    Output::TimedOut { kind, names } => self.timed_out(kind, names).await,
                    Output::Expired { kind, names } => self.gone(kind, names).await,
                }
                is_done = false;
            }
            if is_done {
                return earliest;
            }
        }
    }

    /// Resources came from the control plane.
    async fn update(&mut self, index: usize, update: Update) {
        let kind = update.kind;
        let rejected = self.judge(kind, update).await;
        self.channels[index].stream.answer(kind, &rejected);
        self.advance().await;
    }

    /// Takes what is good of an update. Says which of its resources are not.
    async fn judge(&mut self, of: Kind, update: Update) -> Vec<Rejected> {
        let step = self.recorder.is_some().then(|| self.step(of, &update));
        if self.take_endpoints(of, &update).await {
            self.record(step, &[]);
            return Vec::new();
        }
        let Update { kind, version, resources, removed, rejected } = update;
        self.taken += resources.iter().map(|it| it.body.len()).sum::<usize>();
        let versions: HashMap<String, String> =
            resources.iter().map(|it| (it.name.clone(), it.version.clone())).collect();
        let before: Vec<Given> =
            resources.iter().filter_map(|it| self.resources.given(of, &it.name)).collect();
        let new: Vec<String> = {
            let known: HashMap<&str, &Bytes> =
                before.iter().map(|known| (&*known.name, &known.body)).collect();
            let is_new = |it: &&towpath_xds::Resource| known.get(&*it.name) != Some(&&it.body);
            resources.iter().filter(is_new).map(|it| it.name.clone()).collect()
        };
        let given = resources
            .into_iter()
            .map(|it| Given { name: it.name, body: it.body })
            .collect::<Vec<_>>();
        let gone = self.removed(of, &removed);
        let base = self.base().await;
        let (build, mut bad) = self.resources.offer(of, given, gone, &base);
        for line in &build.ignored {
            log!(Config, Info, "{line}");
        }
        self.note_known(of);
        bad.extend(self.take_and_serve(build, of, before).await);
        for bad in &bad {
            if of.is_asked_for_by_name() && !self.resources.has(of, &bad.name) {
                // It is not waited for; what needs it does without.
                self.resources.give_up(of, &bad.name);
            }
        }
        let names: Vec<&str> = versions.keys().chain(&removed).map(String::as_str).collect();
        let all_bad: Vec<Rejected> = rejected
            .into_iter()
            .map(|it| (it.name, it.reason))
            .chain(bad.into_iter().map(|it| (it.name, it.reason)))
            .map(|(name, reason)| Rejected { name, reason })
            .collect();
        self.stats.update(of, &names, &all_bad, &self.needs, &version);
        let is_good = {
            let bad: HashSet<&str> = all_bad.iter().map(|it| &*it.name).collect();
            move |name: &&String| !bad.contains(name.as_str())
        };
        if of == Kind::Secret {
            for name in new.iter().filter(&is_good) {
                self.stats.secret_changed(name, &self.secrets.uses);
            }
        }
        if of == Kind::Extension {
            for name in new.iter().filter(&is_good).chain(&removed) {
                self.stats.extension_changed(name, &self.needs);
            }
        }
        self.report(kind, &version, &all_bad);
        self.record(step, &all_bad);
        self.show(of, &versions, &removed, &all_bad, &version);
        let own = all_bad
            .iter()
            .filter(|it| versions.contains_key(&it.name))
            .cloned()
            .collect::<Vec<_>>();
        if !all_bad.is_empty() {
            let base = self.base().await;
            let build = self.resources.rebuild(&base);
            self.take_and_serve(build, of, Vec::new()).await;
        }
        self.want_what_is_needed();
        own
    }

    /// Nothing came in time: what needs it does without.
    async fn timed_out(&mut self, kind: Kind, names: Vec<String>) {
        log!(Config, Warning, "{} did not come in time: {}", kind.message(), names.join(", "));
        self.stats.timed_out(kind, &names, &self.needs);
        self.note_known(kind);
        names.iter().for_each(|name| self.resources.give_up(kind, name));
        self.again(kind).await;
    }

    /// The time of resources is over.
    async fn gone(&mut self, kind: Kind, names: Vec<String>) {
        log!(Config, Info, "{}: the time of these is over: {}", kind.message(), names.join(", "));
        let gone = self.removed(kind, &names).to_vec();
        let base = self.base().await;
        let (build, _) = self.resources.offer(kind, Vec::new(), &gone, &base);
        self.take_and_serve(build, kind, Vec::new()).await;
        if kind == Kind::Extension {
            names.iter().for_each(|name| self.stats.extension_changed(name, &self.needs));
        }
        self.show(kind, &HashMap::new(), &names, &[], "");
        self.want_what_is_needed();
        self.advance().await;
    }

    async fn again(&mut self, of: Kind) {
        let base = self.base().await;
        let build = self.resources.rebuild(&base);
        self.take_and_serve(build, of, Vec::new()).await;
        self.want_what_is_needed();
        self.advance().await;
    }

    /// Which of these are to be forgotten. What is asked for by name and in use stays, as in Envoy, but for layers of
    /// the runtime and extensions; what never came is not waited for.
    fn removed<'a>(&mut self, of: Kind, names: &'a [String]) -> &'a [String] {
        if matches!(of, Kind::Runtime | Kind::Extension) {
            return names;
        }
        if of.is_asked_for_by_name() {
            names.iter().for_each(|name| self.resources.give_up(of, name));
            return &[];
        }
        names
    }

    fn note_known(&mut self, of: Kind) {
        match (&mut self.stage, of) {
            (Stage::Clusters { known }, Kind::Cluster)
            | (Stage::Listeners { known }, Kind::Listener) => *known = true,
            (
                Stage::Runtime
                | Stage::Clusters { .. }
                | Stage::Listeners { .. }
                | Stage::Names(_)
                | Stage::Serving,
                _,
            ) => {}
        }
    }

    /// Takes a build, and lets it serve if anything does. Says which listeners cannot be opened.
    async fn take_and_serve(
        &mut self,
        build: Build,
        of: Kind,
        mut before: Vec<Given>,
    ) -> Vec<towpath_config::Rejected> {
        let mut rejected = Vec::new();
        let mut build = build;
        loop {
            let is_of_listeners = of == Kind::Listener;
            let mut refused =
                if is_of_listeners { self.try_to_open(&build).await } else { Vec::new() };
            if refused.is_empty() {
                if !matches!(self.stage, Stage::Serving) {
                    self.take_build(build);
                    return rejected;
                }
                let built = self.note(build);
                refused = self.offer_to_workers(built).await;
            }
            if refused.is_empty() {
                self.forget_what_is_not_needed();
                return rejected;
            }
            for Refused { listener, reason } in refused {
                let at = before.iter().position(|given| given.name == listener);
                if of == Kind::Listener {
                    let before = at.map(|at| before.swap_remove(at));
                    self.resources.withdraw(Kind::Listener, &listener, before);
                } else {
                    log!(Config, Error, "{reason}");
                    self.resources.hold(Kind::Listener, &listener);
                }
                rejected.push(towpath_config::Rejected { name: listener, reason });
            }
            let base = self.base().await;
            build = self.resources.rebuild(&base);
        }
    }

    /// Which listeners of a control plane cannot be opened, of those that do not serve at once.
    async fn try_to_open(&mut self, build: &Build) -> Vec<Refused> {
        let mut listeners = build.warming_listeners.clone();
        if !matches!(self.stage, Stage::Serving) {
            listeners.extend(build.snapshot.listeners.iter().cloned());
        }
        listeners.retain(|listener| self.resources.has(Kind::Listener, &listener.name));
        let (teller, told) = oneshot::channel();
        self.ask(Ask::TryToOpen { listeners, teller });
        told.await.unwrap_or_default()
    }

    /// While nothing serves, the next build carries on from the last.
    fn take_build(&mut self, build: Build) {
        let Built { snapshot, prints, .. } = self.note(build);
        self.base = Base { snapshot: Arc::new(snapshot), prints, free: Vec::new() };
        self.forget_what_is_not_needed();
        self.want_what_is_needed();
    }

    /// Keeps what a build says beside what serves.
    fn note(&mut self, build: Build) -> Built {
        let Build { snapshot, prints, needs, warming, uses, files, runtime, conflicts, .. } = build;
        self.stats.conflicts(conflicts);
        (self.needs, self.warming) = (needs, warming.into_iter().collect());
        self.secrets.take(uses, files);
        Built { snapshot, prints, runtime, statics: None }
    }

    async fn offer_to_workers(&mut self, built: Built) -> Vec<Refused> {
        self.secret_files = SecretFiles::of(&built.prints, &built.runtime);
        let (teller, told) = oneshot::channel();
        self.ask(Ask::Serve { built: Box::new(built), teller });
        told.await.unwrap_or_default()
    }

    /// Goes on with the start as far as that is possible.
    async fn advance(&mut self) {
        self.settle();
        let is_warming = |kind| self.warming.iter().any(|(of, _)| *of == kind);
        if matches!(self.stage, Stage::Runtime) && !is_warming(Kind::Runtime) {
            self.stage = Stage::Clusters { known: self.discovery.clusters.is_none() };
            let collection = self.discovery.cluster_collection.clone();
            self.want_all(Kind::Cluster, self.discovery.clusters.clone(), collection);
        }
        let is_warming = |kind| self.warming.iter().any(|(of, _)| *of == kind);
        match self.stage {
            Stage::Clusters { known: true } if !is_warming(Kind::Cluster) => {
                let (teller, told) = oneshot::channel();
                self.ask(Ask::Follow { clusters: dns_clusters(&self.base.snapshot), teller });
                self.stage = Stage::Names(told);
            }
            Stage::Listeners { known: true } if !is_warming(Kind::Listener) => self.begin().await,
            Stage::Runtime
            | Stage::Clusters { .. }
            | Stage::Names(_)
            | Stage::Listeners { .. }
            | Stage::Serving => {}
        }
    }

    /// Lets the first configuration serve.
    async fn begin(&mut self) {
        loop {
            let build = self.resources.rebuild(&self.base);
            let mut built = self.note(build);
            let statics = built
                .snapshot
                .listeners
                .iter()
                .filter(|listener| !self.resources.has(Kind::Listener, &listener.name))
                .map(|listener| listener.name.to_string());
            built.statics = Some(statics.collect());
            let refused = self.offer_to_workers(built).await;
            if refused.is_empty() {
                break;
            }
            for Refused { listener, reason } in refused {
                log!(Config, Error, "{reason}; starting without it");
                self.resources.withdraw(Kind::Listener, &listener, None);
                self.show_failure(&listener, &reason);
            }
        }
        // What serves is the control thread's from here on.
        self.base = Base::default();
        self.stage = Stage::Serving;
        // The start waits for this thread, requests from here on do not.
        bulk::give_way();
    }

    async fn base(&mut self) -> Base {
        if !matches!(self.stage, Stage::Serving) {
            let Base { snapshot, prints, free } = &self.base;
            return Base { snapshot: snapshot.clone(), prints: prints.clone(), free: free.clone() };
        }
        let (teller, told) = oneshot::channel();
        self.ask(Ask::Base(teller));
        told.await.unwrap_or_default()
    }

    /// Tells control planes which resources are wanted that clusters and listeners ask for.
    fn want_what_is_needed(&mut self) {
        let mut kinds = vec![Kind::Runtime, Kind::Endpoints, Kind::Secret];
        let asks_for_listeners = matches!(self.stage, Stage::Listeners { .. } | Stage::Serving);
        if self.told.0 == asks_for_listeners && self.told.1 == self.needs {
            return;
        }
        self.told = (asks_for_listeners, self.needs.clone());
        self.stats.keep(&self.needs, &self.secrets.uses);
        self.unshow_unneeded();
        if asks_for_listeners {
            kinds.extend([Kind::Routes, Kind::Extension]);
        }
        for kind in kinds {
            let mut wanted: BTreeMap<From, BTreeMap<String, Option<Duration>>> =
                self.known_sources(kind).map(|from| (from, BTreeMap::new())).collect();
            for need in self.needs.iter().filter(|need| need.kind == kind) {
                let names = wanted.entry(need.source.from.clone()).or_default();
                names.insert(need.name.to_string(), need.source.timeout);
            }
            self.stats.wanted(self.needs.iter().filter(|need| need.kind == kind));
            for (from, names) in wanted {
                self.want(&from, kind, Wanted::Names(names));
            }
        }
        self.show_awaited();
    }

    fn forget_what_is_not_needed(&mut self) {
        let gone = self.resources.keep_needed(&self.needs);
        for key in gone {
            self.unshow(key);
        }
    }

    fn report(&self, kind: Type, version: &str, rejected: &[Rejected]) {
        if rejected.is_empty() {
            return log!(Config, Debug, "{}: version '{version}' was taken", kind.message());
        }
        for Rejected { name, reason } in rejected {
            for line in reason.lines() {
                log!(Config, Warning, "{} '{name}' was not taken: {line}", kind.message());
            }
        }
    }

    fn ask(&self, ask: Ask) {
        // The receiver is gone only when the process ends.
        let _ = self.asks.send(ask);
    }

    fn now(&self) -> towpath_proto::Instant {
        towpath_proto::Instant::ZERO + self.began.elapsed()
    }
}

async fn known(names: Option<&mut oneshot::Receiver<()>>) {
    match names {
        // Its sender is gone only when the process ends.
        Some(names) => drop(names.await),
        None => std::future::pending().await,
    }
}

/// So many bytes of resources leave much behind.
const MUCH: usize = 128 * 1024;
/// How long after that memory is given back.
const SETTLED: Duration = Duration::from_millis(250);
/// No timer takes more.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
