//! Resources of a control plane together with the bootstrap that names it: what they come to, and what is wrong with
//! each.
//!
//! Arrives: encoded resources by kind and name. Leaves: a [`Build`], made of the newest resources that are good. One
//! that is bad is [`Rejected`] by name, and what it would have replaced stays. Of a cluster or listener that waits for
//! what it asks for, that which serves stays.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage, Value};
use serde_json::Value as Json;
use towpath_engine::snapshot::{Cluster, ClusterId, Listener, Snapshot};

use crate::base::{Base, Print, Prints, carry};
use crate::convert::discovery::{BOOTSTRAP_TEXTS, Discovered, Part};
use crate::convert::{Need, Needs, Runtime};
use crate::error::{Error, Location, Rank};
use crate::load::{Converted, Options, converter, read};
use crate::message::{Message, Seen, UnknownFields, decode_binary, digest, encode, to_json};
use crate::report::Report;
use crate::rules::Rules;
use crate::schema::Schema;
use crate::source::Sources;
use entries::{Entries, Entry, Known};
use listeners::MadeListeners;

mod endpoints;
pub(crate) mod entries;
pub(crate) mod listeners;
mod printer;
mod reading;

pub use endpoints::Patch;
pub use printer::Printer;
/// A kind of resource.
pub use towpath_xds::Type as Kind;

/// A resource as it came.
#[derive(Clone, Debug)]
pub struct Given {
    /// Its name.
    pub name: String,
    /// Its message, encoded.
    pub body: Bytes,
}

/// A resource that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its name.
    pub name: String,
    /// All that is wrong with it, a line each.
    pub reason: String,
}

/// What resources come to.
#[derive(Debug)]
pub struct Build {
    /// For the workers.
    pub snapshot: Snapshot,
    /// What its parts were made from.
    pub prints: Prints,
    /// What clusters and listeners ask for, each once.
    pub needs: Vec<Need>,
    /// Clusters and listeners that wait for what they ask for.
    pub warming: Vec<(Kind, String)>,
    /// The listeners among them, as they are to serve.
    pub warming_listeners: Vec<Arc<Listener>>,
    /// Fields of what is new that are ignored without harm, a line each.
    pub ignored: Vec<String>,
    /// Who makes use of which secret.
    pub uses: Vec<Use>,
    /// The files that secrets name, each with the secrets that do.
    pub files: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// How many clusters were converted; what others come to was known.
    pub converted: usize,
    /// What the runtime comes to.
    pub runtime: Runtime,
    /// Secrets of which a file cannot be made use of.
    pub spoiled: Vec<Rejected>,
    /// Extensions that are good, and not for a listener that asks for them: which, and the listener.
    pub conflicts: BTreeSet<Conflict>,
}

/// An extension's [`Need::stat_name`] and name, and the listener that it is not for.
pub type Conflict = (Arc<str>, Arc<str>, Arc<str>);

/// A TLS context with a secret of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The secret's name.
    pub secret: Arc<str>,
    /// Whether a cluster or a listener has it.
    pub by: Kind,
    /// What that is called in statistics.
    pub stat_name: Arc<str>,
}

/// The resources that were taken. Not to be sent to another thread.
#[derive(Debug)]
pub struct Resources {
    sources: Sources,
    options: Options,
    /// Types beside those that the bootstrap names.
    types: Vec<String>,
    schema: Schema,
    printer: Printer,
    /// Those of the schema, once something was converted.
    rules: Option<Rules>,
    bootstrap: Message,
    entries: Entries,
    /// Resources by the number of their text; the bootstrap's and those that are free have none.
    texts: Vec<Option<Key>>,
    /// What the texts are called, by their number. Each report has all of them.
    text_names: Arc<Vec<Arc<str>>>,
    /// Those that are.
    free_texts: Vec<usize>,
    /// What is not waited for any longer.
    missing: HashSet<Key>,
    /// What cannot serve although nothing is wrong with it, until there is another one of its name.
    held: HashSet<Key>,
    unknown_fields: u64,
    /// Counts what was taken.
    revision: u64,
    /// What clusters came to last.
    made: HashMap<String, Made>,
    /// What listeners came to last.
    made_listeners: Option<MadeListeners>,
    /// What the runtime came to last, until its directories are to be read again.
    made_runtime: Option<Runtime>,
    /// Counts changes of anything but endpoints.
    others: u64,
    /// Stands behind what was read on another thread: the C library gives back what is free, but not at the end of
    /// such a thread's heap.
    cork: Box<[u8]>,
}

/// What a cluster came to, and of what.
#[derive(Debug)]
pub(crate) struct Made {
    /// The number of the cluster itself.
    revision: u64,
    /// What it asks for.
    pub(crate) needs: Vec<Need>,
    /// The numbers of that.
    revisions: Vec<Option<u64>>,
    /// Its print.
    pub(crate) print: Print,
}

impl Made {
    /// The cluster that serves, if that is what it came to.
    pub(crate) fn serving<'a>(
        &self,
        name: &str,
        base: &'a Base,
    ) -> Option<(ClusterId, &'a Arc<Cluster>)> {
        if base.prints.clusters.get(name) != Some(&self.print) {
            return None;
        }
        let id = base.snapshot.cluster_id(name)?;
        Some((id, base.snapshot.cluster(id)?))
    }
}

/// A resource by its kind and name.
type Key = (Kind, String);

impl Resources {
    /// Reads the bootstrap, which is to be one that can be loaded.
    ///
    /// # Errors
    /// As [`load`](crate::load()).
    pub fn new(sources: Sources, options: Options) -> Result<Self, Error> {
        let mut report = Report::default();
        // Those that not every bootstrap knows.
        let types = vec![Kind::Runtime.message().to_owned(), Kind::Extension.message().to_owned()];
        let (bootstrap, schema) = read(&sources, &options, &types, &mut report)?;
        report.invalid()?;
        Ok(Self {
            sources,
            options,
            types,
            printer: Printer::new(&schema),
            schema,
            rules: None,
            bootstrap,
            entries: Entries::default(),
            texts: vec![None; BOOTSTRAP_TEXTS],
            text_names: Arc::new(vec![Arc::from("bootstrap"); BOOTSTRAP_TEXTS]),
            free_texts: Vec::new(),
            missing: HashSet::new(),
            held: HashSet::new(),
            unknown_fields: 0,
            revision: 0,
            made: HashMap::new(),
            made_listeners: None,
            made_runtime: None,
            others: 0,
            cork: Box::default(),
        })
    }

    /// Takes what is good of these in, forgets those that were removed, and makes of all what is to follow what serves.
    pub fn offer(
        &mut self,
        kind: Kind,
        given: Vec<Given>,
        removed: &[String],
        base: &Base,
    ) -> (Build, Vec<Rejected>) {
        let mut rejected = Vec::new();
        let mut before = HashMap::new();
        if kind == Kind::Runtime {
            // Each may read it.
            self.made.clear();
        }
        for name in removed {
            self.forget(kind, name);
            if kind == Kind::Extension {
                // What asks for it does without, at once.
                self.give_up(kind, name);
            }
        }
        for (Given { name, body }, read) in self.read_ahead(kind, given) {
            let known = self.entries.get(kind, &name);
            if known.is_some_and(|known| known.body == body) {
                continue;
            }
            match read.map_or_else(|| self.decode(kind, &name, &body), Ok) {
                Ok(message) => {
                    let key = (kind, name);
                    self.touch(kind);
                    let entry = self.entry(body, message);
                    let old = self.entries.insert(key.clone(), entry);
                    self.held.remove(&key);
                    before.insert(key, old);
                }
                Err(reason) => rejected.push(Rejected { name, reason }),
            }
        }
        // Each round rejects at least one of those that are judged.
        let build = loop {
            let (build, wrong) = self.build(base, &before.keys().cloned().collect());
            if wrong.is_empty() {
                break build;
            }
            for (key, reason) in wrong {
                self.restore(&key, before.remove(&key).flatten());
                rejected.push(Rejected { name: key.1, reason });
            }
        };
        (build, rejected)
    }

    /// What `/runtime_modify` says is another now.
    pub fn override_runtime(&mut self, overrides: BTreeMap<String, String>) {
        self.options.runtime_overrides = overrides;
        self.read_files_again();
    }

    /// The directories with layers of the runtime, and other files that are named, are others now.
    pub fn read_files_again(&mut self) {
        self.made_runtime = None;
        self.made.clear();
        self.touch(Kind::Runtime);
    }

    /// Makes of all what is to follow what serves.
    pub fn rebuild(&mut self, base: &Base) -> Build {
        self.build(base, &BTreeSet::new()).0
    }

    /// A resource that was taken turns out to be none that can serve: what was there before, if anything, stays.
    pub fn withdraw(&mut self, kind: Kind, name: &str, before: Option<Given>) {
        let key = (kind, name.to_owned());
        let old = before.and_then(|before| {
            let message = self.decode(kind, name, &before.body).ok()?;
            Some(self.entry(before.body, message))
        });
        self.restore(&key, old);
    }

    /// A resource that was taken turns out to be none that can serve; what serves stays until there is another.
    pub fn hold(&mut self, kind: Kind, name: &str) {
        self.touch(kind);
        self.held.insert((kind, name.to_owned()));
    }

    /// Forgets what is asked for by name and not needed; says which.
    pub fn keep_needed(&mut self, needs: &[Need]) -> Vec<Key> {
        let needed: HashSet<(Kind, &str)> =
            needs.iter().map(|need| (need.kind, &*need.name)).collect();
        let is_free =
            |kind: Kind, name: &str| kind.is_asked_for_by_name() && !needed.contains(&(kind, name));
        self.missing.retain(|(kind, name)| !is_free(*kind, name));
        let all = self.entries.iter();
        let gone = all.filter(|(kind, name, _)| is_free(*kind, name));
        let gone: Vec<Key> = gone.map(|(kind, name, _)| (kind, name.to_owned())).collect();
        gone.iter().for_each(|(kind, name)| self.forget(*kind, name));
        gone
    }

    /// What was taken of this name.
    #[must_use]
    pub fn given(&self, kind: Kind, name: &str) -> Option<Given> {
        let entry = self.entries.get(kind, name)?;
        Some(Given { name: name.to_owned(), body: entry.body.clone() })
    }

    /// Whether there is a resource of this name.
    #[must_use]
    pub fn has(&self, kind: Kind, name: &str) -> bool {
        self.entries.has(kind, name)
    }

    /// A resource that others ask for is not waited for any longer.
    pub fn give_up(&mut self, kind: Kind, name: &str) {
        self.touch(kind);
        self.missing.insert((kind, name.to_owned()));
    }

    /// The bootstrap's `Node`, encoded, with what the command line says before it and the program's name and version.
    #[must_use]
    pub fn node(&self, agent: &str, version: &str) -> Bytes {
        let Some(descriptor) = self.schema.message("envoy.config.core.v3.Node") else {
            return Bytes::new();
        };
        encoded_node_as(self.bootstrap.message("node"), descriptor, &self.options, (agent, version))
    }

    /// A resource as protobuf's JSON, taken or not, with what is secret left out: keys and passwords. Fields that
    /// cannot be read are left out as well.
    ///
    /// # Errors
    /// When it is no message of its kind.
    pub fn describe(&mut self, kind: Kind, body: &Bytes) -> Result<Json, String> {
        loop {
            let (mut report, mut seen) = (self.report(), Seen::default());
            let (schema, unknown) = (&self.schema, UnknownFields::Note);
            let message =
                decode_binary(schema, &mut report, unknown, kind.message(), body, 0, &mut seen)?;
            if seen.types.is_empty() {
                return message
                    .map(|message| to_json(&message))
                    .ok_or_else(|| "cannot be read".to_owned());
            }
            self.learn(seen.types).map_err(|error| error.to_string())?;
        }
    }

    /// What makes JSON of resources that were taken.
    #[must_use]
    pub fn printer(&self) -> Printer {
        self.printer.clone()
    }

    /// Lets go of what is only needed while something is converted. To be called when that serves, which it would keep
    /// waiting.
    pub fn rest(&mut self) {
        self.entries.forget_messages();
    }

    /// The bootstrap as protobuf's JSON, with what is secret left out.
    #[must_use]
    pub fn bootstrap(&self) -> Json {
        to_json(&self.bootstrap)
    }

    /// How many fields of resources no message has.
    #[must_use]
    pub const fn unknown_fields(&self) -> u64 {
        self.unknown_fields
    }

    fn entry(&mut self, body: Bytes, message: Message) -> Entry {
        self.revision += 1;
        let print = digest(&message);
        Entry::new(body, message, self.revision, print)
    }

    const fn known(&self) -> Known<'_> {
        Known { entries: &self.entries, schema: &self.schema }
    }

    fn revision(&self, kind: Kind, name: &str) -> Option<u64> {
        self.entries.get(kind, name).map(|entry| entry.revision)
    }

    /// Whether what a cluster came to is what it would come to.
    fn is_same(&self, cluster: &Entry, made: &Made) -> bool {
        made.revision == cluster.revision
            && made
                .needs
                .iter()
                .zip(&made.revisions)
                .all(|(need, revision)| self.revision(need.kind, &need.name) == *revision)
    }

    /// Keeps what clusters came to that were converted.
    fn keep_made(&mut self, converted: &Converted, broken: &HashSet<usize>) {
        let mut made = Vec::new();
        for name in converted.repeatable.iter().filter_map(|name| name.as_deref()) {
            let key = (Kind::Cluster, Arc::from(name));
            let entry = self.entries.get(Kind::Cluster, name);
            let (Some(entry), Some(needs), Some(print)) =
                (entry, converted.needs.get(&key), converted.prints.clusters.get(name))
            else {
                continue;
            };
            if broken.contains(&entry.text) {
                continue;
            }
            let revisions = needs.iter().map(|need| self.revision(need.kind, &need.name));
            let revisions = revisions.collect();
            let (revision, needs, print) = (entry.revision, needs.clone(), *print);
            made.push((name.to_owned(), Made { revision, needs, revisions, print }));
        }
        self.made.extend(made);
    }

    fn forget(&mut self, kind: Kind, name: &str) {
        let key = (kind, name.to_owned());
        self.restore(&key, None);
        self.missing.remove(&key);
        self.held.remove(&key);
        if kind == Kind::Cluster {
            self.made.remove(name);
        }
    }

    fn touch(&mut self, kind: Kind) {
        if kind != Kind::Endpoints {
            self.others += 1;
        }
    }

    fn restore(&mut self, key: &Key, before: Option<Entry>) {
        self.touch(key.0);
        if let Some(before) = before {
            self.entries.insert(key.clone(), before);
        } else if let Some(gone) = self.entries.remove(key.0, &key.1) {
            self.free_text(gone.text);
        }
    }

    /// Makes the schema anew, with more types. What was read by the old one is read again when it is asked for.
    fn learn(&mut self, types: BTreeSet<String>) -> Result<(), Error> {
        self.types.extend(types);
        let mut report = Report::default();
        (self.bootstrap, self.schema) =
            read(&self.sources, &self.options, &self.types, &mut report)?;
        self.printer.learn(&self.schema);
        self.rules = None;
        self.entries.forget_messages();
        Ok(())
    }

    /// The number of a resource's text: the one that it has, or one that is free.
    fn text(&mut self, kind: Kind, name: &str) -> usize {
        if let Some(entry) = self.entries.get(kind, name) {
            return entry.text;
        }
        let names = Arc::make_mut(&mut self.text_names);
        let text = self.free_texts.pop().unwrap_or_else(|| {
            self.texts.push(None);
            names.push(Arc::default());
            self.texts.len() - 1
        });
        self.texts[text] = Some((kind, name.to_owned()));
        names[text] = Arc::from(name);
        text
    }

    fn free_text(&mut self, text: usize) {
        self.texts[text] = None;
        self.free_texts.push(text);
    }

    fn report(&self) -> Report {
        Report::of(Arc::clone(&self.text_names))
    }

    /// One conversion; and what is wrong with those that are judged.
    fn build(&mut self, base: &Base, judged: &BTreeSet<Key>) -> (Build, Vec<(Key, String)>) {
        let rules = self.rules.take();
        let new: BTreeSet<&str> = judged
            .iter()
            .filter(|(kind, _)| *kind == Kind::Cluster)
            .map(|(_, name)| &**name)
            .collect();
        let known = self.known();
        let made_listeners = self.made_listeners(base, judged);
        let of = |wanted: Kind| {
            let all = self.entries.of(wanted).iter();
            let is_new = |name: &String| judged.contains(&(wanted, name.clone()));
            let (new, old): (Vec<_>, Vec<_>) = all.partition(|(name, _)| is_new(name));
            old.into_iter().chain(new).filter_map(move |(_, entry)| known.message(wanted, entry))
        };
        let (mut clusters, mut new_clusters) = (Vec::new(), Vec::new());
        for (name, entry) in self.entries.of(Kind::Cluster) {
            let same = self.made.get(name).filter(|made| self.is_same(entry, made));
            let serving = same.and_then(|same| Some((same, same.serving(name, base)?)));
            if let Some((made, (id, cluster))) = serving {
                clusters.push(Part::Made { made, id, cluster, text: entry.text });
            } else if let Some(message) = known.message(Kind::Cluster, entry) {
                let of = if new.contains(&**name) { &mut new_clusters } else { &mut clusters };
                of.push(Part::New(message));
            }
        }
        clusters.append(&mut new_clusters);
        let discovered = Discovered {
            made_listeners,
            clusters,
            listeners: match made_listeners {
                Some(_) => Vec::new(),
                None => of(Kind::Listener).collect(),
            },
            known: Some(known),
            runtime: self.made_runtime.as_ref(),
            secret_texts: self.entries.of(Kind::Secret).values().map(|it| it.text).collect(),
            judged: judged
                .iter()
                .filter_map(|(kind, name)| self.entries.get(*kind, name))
                .map(|entry| entry.text)
                .collect(),
        };
        let mut report = self.report();
        let mut converted =
            converter(&self.bootstrap, &self.options, base, &discovered, rules, &mut report)
                .convert();
        let broken = report.broken_texts();
        let mut wrong = Vec::new();
        for key in judged {
            let text = self.entries.get(key.0, &key.1).map(|entry| entry.text);
            if let Some(text) = text.filter(|text| broken.contains(text)) {
                wrong.push((key.clone(), reason(&report, text)));
            }
        }
        let harmless = report.findings.iter().filter(|it| {
            it.rank == Rank::Harmless && discovered.judged.contains(&it.location.text)
        });
        let ignored = harmless.map(ToString::to_string).collect();
        let uses = uses(&converted);
        let count = converted.repeatable.len();
        self.keep_made(&converted, &broken);
        let Overlaid { warming, warming_listeners, is_whole } =
            self.overlay(&mut converted, base, &broken);
        self.keep_listeners(&converted, is_whole && broken.is_empty());
        let Converted {
            snapshot, prints, needs, secret_files, bootstrap, conflicts, rules, ..
        } = converted;
        self.rules = Some(rules);
        self.made_runtime = Some(bootstrap.runtime.clone());
        let needs = distinct(needs);
        let (mut files, mut spoiled) = (BTreeMap::new(), BTreeMap::new());
        for (text, file) in secret_files {
            let Some(Some((_, name))) = self.texts.get(text) else { continue };
            let names: &mut BTreeSet<String> = files.entry(file).or_default();
            names.insert(name.clone());
            if broken.contains(&text) {
                spoiled.insert(name.clone(), reason(&report, text));
            }
        }
        let spoiled = spoiled.into_iter().map(|(name, reason)| Rejected { name, reason }).collect();
        let build = Build {
            snapshot,
            prints,
            needs,
            warming,
            warming_listeners,
            ignored,
            uses,
            files,
            converted: count,
            runtime: bootstrap.runtime,
            spoiled,
            conflicts,
        };
        (build, wrong)
    }

    /// Puts that which serves in the place of what is broken or not complete yet.
    fn overlay(&self, converted: &mut Converted, base: &Base, broken: &HashSet<usize>) -> Overlaid {
        let is_broken = |kind, name: &str| match self.entries.get(kind, name) {
            Some(entry) => broken.contains(&entry.text),
            // Of the bootstrap, which was good: a file that it names is not.
            None => (0..BOOTSTRAP_TEXTS).any(|text| broken.contains(&text)),
        };
        let is_there = |need: &Need| {
            !need.is_awaited
                || self.entries.has(need.kind, &need.name)
                || self.missing.contains(&(need.kind, need.name.to_string()))
        };
        let mut warming = Vec::new();
        let mut awaited = HashSet::new();
        let mut kept = Vec::new();
        for ((kind, name), needs) in &converted.needs {
            let is_complete = needs.iter().all(is_there);
            if !is_complete {
                warming.push((*kind, name.to_string()));
            }
            let is_whole = !is_broken(*kind, name)
                && needs.iter().all(|need| !is_broken(need.kind, &need.name));
            let is_held = !self.held.is_empty() && self.held.contains(&(*kind, name.to_string()));
            if !is_complete && is_whole && !is_held && *kind == Kind::Listener {
                awaited.insert(&**name);
            }
            if !is_complete || !is_whole || is_held {
                kept.push((*kind, Arc::clone(name)));
            }
        }
        let listeners = converted.snapshot.listeners.iter();
        let warming_listeners =
            listeners.filter(|listener| awaited.contains(&*listener.name)).cloned().collect();
        // What could not be converted at all.
        let known: HashSet<(Kind, &str)> =
            converted.needs.keys().map(|(kind, name)| (*kind, &**name)).collect();
        for kind in [Kind::Cluster, Kind::Listener] {
            let all = self.entries.of(kind).keys();
            let unknown = all.filter(|name| !known.contains(&(kind, &***name)));
            kept.extend(unknown.map(|name| (kind, Arc::from(&**name))));
        }
        let is_whole = kept.iter().all(|(kind, _)| *kind != Kind::Listener);
        for (kind, name) in kept {
            match kind {
                Kind::Cluster => keep_cluster(converted, base, &name),
                Kind::Listener => keep_listener(converted, base, &name),
                Kind::Endpoints | Kind::Routes | Kind::Secret | Kind::Runtime | Kind::Extension => {
                }
            }
        }
        warming.sort();
        Overlaid { warming, warming_listeners, is_whole }
    }
}

/// What was left out of a build.
struct Overlaid {
    /// Clusters and listeners that are not complete.
    warming: Vec<Key>,
    /// The listeners among them, as they are to serve.
    warming_listeners: Vec<Arc<Listener>>,
    /// Whether all listeners are as they are to be.
    is_whole: bool,
}

fn keep_cluster(converted: &mut Converted, base: &Base, name: &Arc<str>) {
    let before = base.snapshot.cluster_id(name).and_then(|id| base.snapshot.cluster(id)).cloned();
    let id = converted.snapshot.cluster_id(name);
    let slot = id.and_then(|id| converted.snapshot.clusters.get_mut(id.0 as usize));
    if let Some(slot) = slot {
        *slot = before;
    }
    carry(&mut converted.snapshot, &mut converted.prints, base, (Kind::Cluster, name));
    match base.prints.clusters.get(name) {
        Some(print) => drop(converted.prints.clusters.insert(Arc::clone(name), *print)),
        None => drop(converted.prints.clusters.remove(name)),
    }
}

fn keep_listener(converted: &mut Converted, base: &Base, name: &Arc<str>) {
    let is_it = |listener: &&Arc<Listener>| listener.name == *name;
    let listeners = &mut converted.snapshot.listeners;
    listeners.retain(|listener| !is_it(&listener));
    listeners.extend(base.snapshot.listeners.iter().find(is_it).cloned());
    carry(&mut converted.snapshot, &mut converted.prints, base, (Kind::Listener, name));
    match base.prints.listeners.get(name) {
        Some(print) => drop(converted.prints.listeners.insert(Arc::clone(name), *print)),
        None => drop(converted.prints.listeners.remove(name)),
    }
}

/// Which secrets are in which contexts.
fn uses(converted: &Converted) -> Vec<Use> {
    let Converted { snapshot, needs, .. } = converted;
    let mut uses = Vec::new();
    for ((by, owner), needs) in needs {
        let mut secrets = needs.iter().filter(|need| need.kind == Kind::Secret).peekable();
        if secrets.peek().is_none() {
            continue;
        }
        let stat_name = match by {
            Kind::Cluster => {
                let id = snapshot.cluster_id(owner);
                let cluster = id.and_then(|id| snapshot.cluster(id));
                cluster.map(|cluster| Arc::clone(&cluster.stat_name))
            }
            _ => {
                let mut listeners = snapshot.listeners.iter();
                let listener = listeners.find(|listener| listener.name == *owner);
                listener.map(|listener| Arc::clone(&listener.stat_prefix))
            }
        };
        let Some(stat_name) = stat_name else { continue };
        uses.extend(secrets.map(|need| Use {
            secret: Arc::clone(&need.name),
            by: *by,
            stat_name: Arc::clone(&stat_name),
        }));
    }
    uses
}

/// What is asked for, each once.
fn distinct(needs: Needs) -> Vec<Need> {
    let mut all: Vec<Need> = needs.into_values().flatten().collect();
    all.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    all.dedup_by(|one, other| (one.kind, &one.name) == (other.kind, &other.name));
    all
}

/// All that is wrong with a text, a line each.
fn reason(report: &Report, text: usize) -> String {
    let problems = report.problems.iter().map(|it| (&it.location, &it.message));
    let findings = report.findings.iter().filter(|it| it.rank == Rank::ChangesBehaviour);
    let findings = findings.map(|it| (&it.location, &it.reason));
    said(problems.chain(findings).filter(|(location, _)| location.text == text))
}

fn said<'a>(items: impl Iterator<Item = (&'a Location, &'a String)>) -> String {
    let lines = items.map(|(location, message)| match &*location.path {
        "" => message.clone(),
        path => format!("{path}: {message}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A `Node`, encoded, as this program says it of itself.
pub(crate) fn encoded_node(
    node: Option<&Message>,
    descriptor: MessageDescriptor,
    options: &Options,
) -> Bytes {
    encoded_node_as(node, descriptor, options, ("towpath", env!("CARGO_PKG_VERSION")))
}

/// A `Node`, encoded, with what the command line says before it and a program's name and version.
fn encoded_node_as(
    node: Option<&Message>,
    descriptor: MessageDescriptor,
    options: &Options,
    (agent, version): (&str, &str),
) -> Bytes {
    let mut node = node.map(encode).unwrap_or_else(|| DynamicMessage::new(descriptor));
    let mut set = |name: &str, text: &str| {
        // These are strings.
        let _ = node.try_set_field_by_name(name, Value::String(text.to_owned()));
    };
    let Options { node_id, node_cluster, .. } = options;
    node_id.iter().for_each(|id| set("id", id));
    node_cluster.iter().for_each(|cluster| set("cluster", cluster));
    set("user_agent_name", agent);
    set("user_agent_version", version);
    if let Some(zone) = &options.node_zone
        && let Some(field) = node.descriptor().get_field_by_name("locality")
        && let Some(locality) = node.get_field_mut(&field).as_message_mut()
    {
        let _ = locality.try_set_field_by_name("zone", Value::String(zone.clone()));
    }
    node.encode_to_vec().into()
}

#[cfg(test)]
mod tests;
