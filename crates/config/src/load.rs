//! Entry points: [`load`] makes a snapshot or says why not, [`check`] says what is not honoured.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use prost::Message as _;
use serde_json::Value as Json;
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::listener::Direction;
use towpath_engine::snapshot::tls::Certificates;

use crate::base::{Base, Prints};
use crate::convert::discovery::Discovered;
use crate::convert::{Bootstrap, Converter, Needs, Runtime};
use crate::dynamic::{Conflict, Given, Kind};
use crate::error::{Error, Finding, Note, Problem, Rank};
use crate::message::{
    At, Message, UnknownFields, Value, decode, encode, merge, to_json, types_for,
};
use crate::report::Report;
use crate::rules::Rules;
use crate::schema::{BOOTSTRAP, Schema};
use crate::source::{Source, Sources};
use crate::tree::{self, Node, Parsed, SyntaxError, Value as Tree};

/// How to load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--allow-unknown-static-fields`: fields that no message has are noted and left out.
    pub allow_unknown_static_fields: bool,
    /// `--reject-unknown-dynamic-fields`: a resource of a control plane with fields that no message has is not taken.
    pub reject_unknown_dynamic_fields: bool,
    /// `--service-node`: the node's id, before that of the file.
    pub node_id: Option<String>,
    /// `--service-cluster`: the node's cluster, before that of the file.
    pub node_cluster: Option<String>,
    /// `--service-zone`: the node's zone, before that of the file.
    pub node_zone: Option<String>,
    /// The machine's own address, for `x-forwarded-for` of clients that are on it.
    pub node_address: Option<IpAddr>,
    /// What `/runtime_modify` was told: keys and values of the admin layer.
    pub runtime_overrides: BTreeMap<String, String>,
    /// The program's flags are not known: a file may leave the node to them.
    pub is_node_left_open: bool,
}

/// A configuration that is valid and honoured.
#[derive(Debug)]
pub struct Loaded {
    /// For the workers.
    pub snapshot: Snapshot,
    /// What its parts were made from.
    pub prints: Prints,
    /// For the program.
    pub bootstrap: Bootstrap,
    /// Old forms that should be written differently.
    pub notes: Vec<Note>,
    /// Fields that are set and ignored without harm.
    pub ignored: Vec<Finding>,
    /// The merged bootstrap as protobuf's JSON with the proto's field names, for `/config_dump`.
    pub json: Json,
}

/// What [`check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// What makes it invalid, for Envoy too. While there is any, the file is not loaded.
    pub problems: Vec<Problem>,
    /// Every field that is set and not honoured.
    pub findings: Vec<Finding>,
    /// Old forms that should be written differently.
    pub notes: Vec<Note>,
    /// How many more there were than the 5,000 of a kind that are listed.
    pub left_out: usize,
}

/// Makes a snapshot.
///
/// # Errors
/// When the configuration is invalid, or sets something that is not honoured and would be missed.
pub fn load(sources: &Sources, options: &Options) -> Result<Loaded, Error> {
    reload(sources, options, &Base::default())
}

/// Makes the snapshot that follows the one that serves.
///
/// # Errors
/// As [`load`].
pub fn reload(sources: &Sources, options: &Options, base: &Base) -> Result<Loaded, Error> {
    let convert = |message: &Message, mut report: Report| {
        let Converted { snapshot, prints, bootstrap, .. } =
            converter(message, options, base, &Discovered::default(), None, &mut report).convert();
        report.outcome()?;
        Ok(Loaded {
            snapshot,
            prints,
            bootstrap,
            json: to_json(message),
            notes: report.notes,
            ignored: report.findings,
        })
    };
    // On threads of their own, which have parts of the heap of their own: what reading takes for a moment is many times
    // what stays. The one that read it frees it, so that nothing of its part is left.
    thread::scope(|scope| {
        let read = || {
            let mut report = Report::default();
            let message = read(sources, options, &[], &mut report)?.0;
            report.invalid()?;
            let (loaded, _message) =
                join(scope.spawn(move || (convert(&message, report), message)));
            loaded
        };
        join(scope.spawn(read))
    })
}

/// What a thread came to, or its panic.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Lists what is wrong with a configuration and what it sets and is not honoured.
///
/// # Errors
/// When it cannot be read as YAML or JSON, so that nothing is known of its fields.
pub fn check(sources: &Sources, options: &Options) -> Result<Checked, Error> {
    let mut report = Report::default();
    let message = read(sources, options, &[], &mut report)?.0;
    let misread = std::mem::take(&mut report.problems);
    converter(&message, options, &Base::default(), &Discovered::default(), None, &mut report)
        .convert();
    if !misread.is_empty() {
        // Fields that could not be read are missing now, and the check that wants them would complain: the cause says
        // it better.
        report.problems = misread;
    }
    report.sort();
    let Report { problems, findings, notes, left_out, .. } = report;
    Ok(Checked { problems, findings, notes, left_out })
}

/// A text as an encoded message of this type: what a control plane would send of it.
///
/// # Errors
/// When it is no such message.
pub fn encoded(source: &Source, type_name: &str) -> Result<Bytes, Error> {
    Encoder::default().encoded(source, type_name)
}

/// Encodes many texts, and makes what it needs to know of their types once.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Types that texts mention.
    types: BTreeSet<String>,
    schema: Option<Schema>,
}

impl Encoder {
    /// As [`encoded`].
    ///
    /// # Errors
    /// When it is no such message.
    pub fn encoded(&mut self, source: &Source, type_name: &str) -> Result<Bytes, Error> {
        let (message, _) = message(source, type_name, self)?;
        Ok(encode(&message).encode_to_vec().into())
    }

    /// A schema that has these types, as far as they exist.
    fn schema_with<'a>(&mut self, types: impl Iterator<Item = &'a str>) -> &Schema {
        for name in types {
            if !self.types.contains(name) && Schema::has(name) {
                self.types.insert(name.to_owned());
                self.schema = None;
            }
        }
        let types = &self.types;
        self.schema.get_or_insert_with(|| Schema::with(types.iter().map(String::as_str)))
    }
}

/// A text as a message of this type.
fn message(
    source: &Source,
    type_name: &str,
    encoder: &mut Encoder,
) -> Result<(Message, Report), Error> {
    let mut report = Report::default();
    let text = report.text(&source.name);
    let root = match tree::parse(source) {
        Ok(parsed) => Some(parsed.root),
        Err(SyntaxError { pos, message }) => {
            report.problem(&At::root(text).moved_to(pos), message);
            None
        }
    };
    let message = root.and_then(|root| {
        let schema = encoder.schema_with(mentioned_types(&root).into_iter().chain([type_name]));
        decode(schema, &mut report, UnknownFields::Refuse, type_name, &root, text)
    });
    report.invalid()?;
    let missing =
        || Error::Read { file: source.name.to_string(), reason: format!("is no {type_name}") };
    Ok((message.ok_or_else(missing)?, report))
}

/// The resources in a file: what a control plane would have sent.
///
/// # Errors
/// When it is no `DiscoveryResponse`.
pub fn response(source: &Source) -> Result<Response, Error> {
    let (message, mut report) = message(source, RESPONSE, &mut Encoder::default())?;
    let mut found =
        Response { version: message.text("version_info").to_owned(), ..Response::default() };
    for item in message.items("resources") {
        let Value::Any(any) = &item.value else { continue };
        let inner = any.message.as_ref().filter(|_| any.name == WRAPPED);
        let (any, at) =
            inner.and_then(|wrapped| wrapped.any("resource")).unwrap_or((any, &item.at));
        let kind = Kind::ALL.into_iter().find(|kind| kind.message() == any.name);
        let (Some(kind), Some(resource)) = (kind, &any.message) else {
            report.problem(at, format!("a resource of type `{}` is not asked for", any.name));
            continue;
        };
        let name = resource.text(kind.name_field()).to_owned();
        let body = encode(resource).encode_to_vec().into();
        found.resources.push((kind, Given { name, body }));
    }
    report.invalid()?;
    Ok(found)
}

/// The resources in a file.
#[derive(Debug, Default)]
pub struct Response {
    /// `version_info`.
    pub version: String,
    /// Each with its kind.
    pub resources: Vec<(Kind, Given)>,
}

const RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
const WRAPPED: &str = "envoy.service.discovery.v3.Resource";

/// The bootstrap after its conversion, whatever is wrong with it, to see what was read of it.
#[cfg(test)]
pub(crate) fn converted(sources: &Sources, options: &Options) -> Option<Message> {
    let mut report = Report::default();
    let message = read(sources, options, &[], &mut report).ok()?.0;
    converter(&message, options, &Base::default(), &Discovered::default(), None, &mut report)
        .convert();
    Some(message)
}

/// The texts as one bootstrap, without the fields that are problems now.
///
/// The schema has `more` types, too.
pub(crate) fn read(
    sources: &Sources,
    options: &Options,
    more: &[String],
    report: &mut Report,
) -> Result<(Message, Schema), Error> {
    let texts: Vec<&Source> = sources.file.iter().chain(&sources.yaml).collect();
    if texts.is_empty() {
        return Err(Error::Read {
            file: "configuration".to_owned(),
            reason: "neither --config-path nor --config-yaml was given".to_owned(),
        });
    }
    let mut trees = Vec::new();
    for source in texts {
        let text = report.text(&source.name);
        match tree::parse(source) {
            Ok(Parsed { root: Node { value: Tree::Null, .. }, .. }) => {
                report.problem(&At::root(text), "there is nothing in it")
            }
            Ok(Parsed { root, repeated }) => {
                for (key, line) in repeated {
                    let at = At::root(text).moved_to(key.pos);
                    let reason = format!(
                        "`{}` stands here again: that of line {line} is left out",
                        key.name
                    );
                    report.finding(&at, Rank::Harmless, reason);
                }
                trees.push((text, root));
            }
            Err(SyntaxError { pos, message }) => {
                report.problem(&At::root(text).moved_to(pos), message)
            }
        }
    }
    report.invalid()?;
    let mentioned = trees.iter().flat_map(|(_, tree)| mentioned_types(tree));
    let schema = Schema::with(mentioned.chain(more.iter().map(String::as_str)));
    let unknown = if options.allow_unknown_static_fields {
        UnknownFields::Note
    } else {
        UnknownFields::Refuse
    };
    let mut merged: Option<Message> = None;
    for (text, tree) in &trees {
        let Some(message) = decode(&schema, report, unknown, BOOTSTRAP, tree, *text) else {
            continue;
        };
        match &mut merged {
            None => merged = Some(message),
            Some(base) => merge(base, message),
        }
    }
    if merged.is_none() {
        report.invalid()?;
    }
    let merged = merged.ok_or_else(|| Error::Read {
        file: "configuration".to_owned(),
        reason: "the bootstrap's type is not there".to_owned(),
    })?;
    Ok((merged, schema))
}

/// What a conversion leaves.
pub(crate) struct Converted {
    /// For the next one of the same schema.
    pub(crate) rules: Rules,
    /// The files that secrets of a control plane name, by the text of the secret.
    pub(crate) secret_files: BTreeSet<(usize, Arc<str>)>,
    /// For each cluster that was converted its name, if it would come to the same again.
    pub(crate) repeatable: Vec<Option<Arc<str>>>,
    pub(crate) snapshot: Snapshot,
    pub(crate) prints: Prints,
    pub(crate) bootstrap: Bootstrap,
    pub(crate) needs: Needs,
    pub(crate) conflicts: BTreeSet<Conflict>,
}

impl Converter<'_> {
    /// All of the bootstrap, and what was discovered.
    pub(crate) fn convert(mut self) -> Converted {
        let bootstrap = self.bootstrap(self.message);
        Converted::of(self, bootstrap)
    }

    /// The clusters that were discovered, and nothing else.
    pub(crate) fn convert_clusters(mut self) -> Converted {
        self.clusters_alone(self.message);
        Converted::of(self, Bootstrap::default())
    }
}

impl Converted {
    fn of(converter: Converter<'_>, bootstrap: Bootstrap) -> Self {
        let Converter {
            base,
            rules,
            mut snapshot,
            prints,
            needs,
            secret_files,
            repeatable,
            conflicts,
            ..
        } = converter;
        if snapshot.cluster_ids == base.snapshot.cluster_ids {
            snapshot.cluster_ids = Arc::clone(&base.snapshot.cluster_ids);
        }
        Self { rules, snapshot, prints, bootstrap, needs, secret_files, repeatable, conflicts }
    }
}

/// What makes a snapshot of a bootstrap.
pub(crate) fn converter<'a>(
    message: &'a Message,
    options: &'a Options,
    base: &'a Base,
    discovered: &'a Discovered<'a>,
    rules: Option<Rules>,
    report: &'a mut Report,
) -> Converter<'a> {
    let rules = rules.unwrap_or_else(|| Rules::new(message.descriptor.parent_pool()));
    let before = &base.snapshot;
    let snapshot = Snapshot {
        generation: before.generation + 1,
        // Ids are the same in every generation.
        clusters: vec![None; before.clusters.len()],
        sinks: before.sinks.clone(),
        open: Arc::clone(&before.open),
        // What is taken over from it may ask for that.
        shows_upstream_tls: before.shows_upstream_tls,
        times_routes: before.times_routes,
        ..Snapshot::default()
    };
    Converter {
        message,
        report,
        rules,
        options,
        snapshot,
        runtime: Runtime::default(),
        base,
        free: base.free.clone(),
        prints: Prints::default(),
        files: 0,
        rotating: 0,
        secret_files: BTreeSet::new(),
        has_secret_file: false,
        repeatable: Vec::new(),
        awaits_secret: false,
        certificates: Certificates::default(),
        shared_certificates: HashSet::new(),
        shared: Default::default(),
        discovered,
        has_ads: false,
        control_planes: HashSet::new(),
        node_bytes: Bytes::new(),
        sources: HashMap::new(),
        needs_of_one: Vec::new(),
        own_clusters: BTreeSet::new(),
        needs: Needs::default(),
        named_secrets: message
            .message("static_resources")
            .map(|resources| resources.messages("secrets").collect())
            .unwrap_or_default(),
        secrets: 0,
        bolt_clusters: Vec::new(),
        http_clusters: Vec::new(),
        common_provider: None,
        shared_rates: Vec::new(),
        has_internal_listeners: false,
        direction: Direction::Unspecified,
        mesh_node: Arc::default(),
        listener: Arc::from(""),
        conflicts: BTreeSet::new(),
    }
}

/// Type names and old extension names in a text, as far as they look like ones.
fn mentioned_types(tree: &Node) -> Vec<&str> {
    let mut types = Vec::new();
    tree.strings(&mut |text| {
        let name = text.rsplit_once('/').map_or(text, |(_, name)| name);
        if name.contains('.') && name.len() < 256 {
            types.push(types_for(name).unwrap_or(name));
        }
    });
    types
}

impl Loaded {
    /// What `/config_dump` shows of a bootstrap: its own dump, and those of its listeners, clusters and routes.
    /// `updated` is when it was loaded, in RFC 3339.
    #[must_use]
    pub fn config_dump(&self, updated: &str) -> Json {
        crate::dump::config_dump(&self.json, updated)
    }
}
