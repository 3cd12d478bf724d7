//! Runtime keys. Everything that names a key is compiled with its value; another value makes it be compiled anew.

mod disk;
mod features;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use towpath_engine::snapshot::route::Fraction;

use super::Converter;
use crate::dynamic::Kind;
use crate::error::Rank;
use crate::message::{At, Message, Value, tree_to_json};
use crate::source::Source;
use crate::tree::{self, Node, Value as Tree};
pub use disk::Disks;

/// The layers, and what they come to: later layers override.
#[derive(Clone, Debug, Default)]
pub struct Runtime {
    layers: Vec<RuntimeLayer>,
    values: BTreeMap<String, Json>,
    disks: Disks,
    asked: RefCell<BTreeSet<String>>,
    /// A digest of what the part at hand was told.
    told: Cell<u64>,
}

/// Envoy `config.bootstrap.v3.RuntimeLayer`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeLayer {
    /// `name`.
    pub name: String,
    /// Who fills it.
    pub from: LayerKind,
    /// Its keys.
    pub values: BTreeMap<String, Json>,
    /// Their values as they were written, where they were a text.
    pub texts: BTreeMap<String, String>,
}

impl RuntimeLayer {
    /// The value of a key as an operator reads it.
    #[must_use]
    pub fn shown(&self, key: &str) -> String {
        match (self.texts.get(key), self.values.get(key)) {
            (Some(text), _) | (None, Some(Json::String(text))) => text.clone(),
            (None, Some(value)) => value.to_string(),
            (None, None) => String::new(),
        }
    }
}

/// Who fills a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerKind {
    /// `static_layer`: the file.
    #[default]
    Static,
    /// `disk_layer`: files.
    Disk,
    /// `admin_layer`: `/runtime_modify`.
    Admin,
    /// `rtds_layer`: a control plane.
    Discovered,
}

impl Runtime {
    /// The value of a key, for what is compiled with it.
    fn get(&self, key: &str) -> Option<&Json> {
        self.asked.borrow_mut().insert(key.to_owned());
        let value = self.values.get(key);
        if let Some(value) = value {
            let mut hasher = DefaultHasher::new();
            (self.told.get(), key, value.to_string()).hash(&mut hasher);
            self.told.set(hasher.finish());
        }
        value
    }

    /// Another part begins to be converted.
    pub(super) fn begin_part(&self) {
        self.told.set(0);
    }

    /// All keys that were asked for.
    pub(crate) fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }

    /// These were asked for, too.
    pub(crate) fn note_asked(&self, keys: &BTreeSet<String>) {
        self.asked.borrow_mut().extend(keys.iter().cloned());
    }

    /// A digest of all values that the part at hand was told.
    pub(crate) fn told(&self) -> u64 {
        self.told.get()
    }

    /// The layers, in order.
    #[must_use]
    pub fn layers(&self) -> &[RuntimeLayer] {
        &self.layers
    }

    /// What directories of layers came to.
    #[must_use]
    pub fn disks(&self) -> &Disks {
        &self.disks
    }

    /// The layer that `/runtime_modify` fills.
    #[must_use]
    pub fn admin_layer(&self) -> Option<&RuntimeLayer> {
        self.layers.iter().find(|layer| layer.from == LayerKind::Admin)
    }

    /// How many keys have a value.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The value of a key that is a number, without what is behind its point.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        whole_of(self.get(key)?)
    }

    fn float(&self, key: &str) -> Option<f64> {
        float_of(self.get(key)?)
    }

    /// The value of a feature that is on or off.
    pub(super) fn feature(&self, key: &str, default: bool) -> bool {
        match self.get(key) {
            Some(Json::Bool(flag)) => *flag,
            _ => default,
        }
    }
}

/// A `Struct` of a control plane has floating point numbers alone.
fn whole(value: Json) -> Json {
    let float = value.as_f64().filter(|float| value.is_f64() && float.fract() == 0.0);
    match float {
        Some(float) if (0.0..9e15).contains(&float) => Json::from(float as u64),
        Some(_) | None => value,
    }
}

/// A number, which may be written as a text.
fn float_of(value: &Json) -> Option<f64> {
    match value {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The part of a number before its point, of one that is not below 0.
fn whole_of(value: &Json) -> Option<u64> {
    let exact = value.as_u64();
    exact.or_else(|| {
        float_of(value).filter(|float| (0.0..1.8e19).contains(float)).map(|float| float as u64)
    })
}

/// A value as it is written in a query.
fn value_of(text: &str) -> Json {
    parsed(text).unwrap_or_else(|_| Json::String(text.to_owned()))
}

/// A value as it is written in a text: a number, a flag, a fraction, or else the text.
fn parsed(text: &str) -> Result<Json, String> {
    let read = tree::parse(&Source::yaml("value", text)).map_err(|error| error.message)?;
    Ok(match tree_to_json(&read.root) {
        value @ (Json::Number(_) | Json::Bool(_)) => value,
        Json::Object(object) if object.iter().all(is_of_a_fraction) => Json::Object(object),
        _ => Json::String(text.to_owned()),
    })
}

fn is_of_a_fraction((name, value): (&String, &Json)) -> bool {
    match (&**name, value) {
        ("numerator", _) => true,
        ("denominator", Json::String(name)) => {
            ["HUNDRED", "TEN_THOUSAND", "MILLION"].contains(&&**name)
        }
        (_, _) => false,
    }
}

impl Converter<'_> {
    /// Reads `layered_runtime`.
    pub(super) fn read_runtime(&mut self, bootstrap: &Message) {
        let Some(runtime) = bootstrap.message("layered_runtime") else { return };
        let mut names = BTreeSet::new();
        let layers: Vec<_> = runtime.messages("layers").collect();
        for message in layers {
            let name = message.text("name");
            if !names.insert(name.to_owned()) {
                self.report.problem(message.at("name"), format!("duplicate layer name: {name}"));
            }
            let mut layer = RuntimeLayer { name: name.to_owned(), ..RuntimeLayer::default() };
            match message.oneof("layer_specifier").map(|field| field.descriptor.name()) {
                Some("static_layer") => self.struct_of(message, "static_layer", &mut layer.values),
                Some("admin_layer") => {
                    if self.runtime.admin_layer().is_some() {
                        let text = "Too many admin layers specified in LayeredRuntime, at most one may be specified";
                        self.report.problem(&message.at, text);
                    }
                    layer.from = LayerKind::Admin;
                    layer.texts.clone_from(&self.options.runtime_overrides);
                    let modified = layer.texts.iter();
                    layer.values =
                        modified.map(|(key, text)| (key.clone(), value_of(text))).collect();
                }
                Some("disk_layer") => {
                    layer.from = LayerKind::Disk;
                    if !self.disk_layer(message, &mut layer) {
                        continue;
                    }
                }
                Some("rtds_layer") => {
                    layer.from = LayerKind::Discovered;
                    self.discovered_layer(message, &mut layer.values);
                }
                // Reported by the table of support, or by the rules.
                _ => {}
            }
            let values = layer.values.iter().map(|(key, value)| (key.clone(), value.clone()));
            self.runtime.values.extend(values);
            self.runtime.layers.push(layer);
        }
    }

    /// A layer in a directory; says whether it is there.
    fn disk_layer(&mut self, message: &Message, layer: &mut RuntimeLayer) -> bool {
        let Some(disk) = message.message("disk_layer") else { return false };
        if let Some(before) = self.discovered.runtime {
            self.runtime.disks.clone_from(&before.disks);
            let found = before.layers.iter().find(|it| it.name == layer.name);
            if let Some(found) = found {
                layer.clone_from(found);
            }
            return found.is_some();
        }
        let root = disk.text("symlink_root");
        // It is watched from the directory that it is in.
        let folder = match root.rsplit_once('/') {
            None => return self.bad_root(disk, "needs a directory before its name"),
            Some(("", _)) => "/",
            Some((folder, _)) => folder,
        };
        if !Path::new(folder).is_dir() {
            return self.bad_root(disk, &format!("there is no directory `{folder}`"));
        }
        let mut path = format!("{root}/{}", disk.text("subdirectory"));
        if disk.flag("append_service_cluster") {
            path = format!("{path}/{}", self.snapshot.node.cluster);
        }
        self.runtime.disks.fill(layer, root, &path)
    }

    fn bad_root(&mut self, disk: &Message, why: &str) -> bool {
        self.report.problem(disk.at("symlink_root"), why);
        false
    }

    /// A layer that a control plane fills, as far as it is known.
    fn discovered_layer(&mut self, layer: &Message, values: &mut BTreeMap<String, Json>) {
        let Some(rtds) = layer.message("rtds_layer") else { return };
        let name = rtds.text("name");
        let Some(source) = rtds.message("rtds_config") else { return };
        if self.need(Kind::Runtime, name, source, name).is_none() {
            return;
        }
        let needs = std::mem::take(&mut self.needs_of_one);
        self.needs.insert((Kind::Runtime, Arc::from(name)), needs);
        if let Some(found) = self.discovered.resource(Kind::Runtime, name) {
            self.accept(found);
            self.struct_of(found, "layer", values);
        }
    }

    fn struct_of(&mut self, holder: &Message, field: &str, values: &mut BTreeMap<String, Json>) {
        if let Some(field) = holder.get(field)
            && let Value::Json(node) = &field.value
        {
            self.flatten("", node, &field.at, values);
        }
    }

    /// Nested maps are keys with dots, unless they say a fraction.
    fn flatten(&mut self, prefix: &str, node: &Node, at: &At, values: &mut BTreeMap<String, Json>) {
        let Tree::Map(entries) = &node.value else { return };
        for (name, node) in entries {
            let key = if prefix.is_empty() {
                name.name.clone()
            } else {
                format!("{prefix}.{}", name.name)
            };
            let at = at.clone().moved_to(name.pos);
            match &node.value {
                Tree::Map(_)
                    if node.get("numerator").is_none() && node.get("denominator").is_none() =>
                {
                    self.flatten(&key, node, &at, values);
                }
                Tree::List(_) | Tree::Null => {
                    self.report.problem(&at, format!("invalid runtime entry value for {key}"));
                }
                Tree::Map(_) | Tree::Bool(_) | Tree::Number(_) | Tree::String(_) => {
                    values.insert(key, whole(tree_to_json(node)));
                }
            }
        }
    }

    /// Reports keys that nothing read although Envoy would. Comes after all conversion.
    pub(super) fn check_runtime(&mut self, bootstrap: &Message) {
        let Some(layers) = bootstrap.get("layered_runtime") else { return };
        let asked = self.runtime.asked.borrow().clone();
        let fixed = self.runtime.layers.iter().filter(|layer| layer.from == LayerKind::Static);
        let keys: BTreeSet<String> = fixed.flat_map(|layer| layer.values.keys()).cloned().collect();
        for key in keys.difference(&asked) {
            if let Some(reason) = harmless(key) {
                let text = format!("runtime key `{key}` {reason}");
                self.report.finding(&layers.at, Rank::Harmless, text);
            } else if READ_BY_ENVOY.iter().any(|prefix| key.starts_with(prefix)) {
                self.report.unsupported(&layers.at, format!("runtime key `{key}` is not read"));
            } else {
                self.report.finding(
                    &layers.at,
                    Rank::Harmless,
                    format!("nothing reads runtime key `{key}`"),
                );
            }
        }
    }

    /// A `RuntimeFractionalPercent` with the key's value, if it has one.
    pub(super) fn runtime_fraction(&mut self, message: &Message) -> Option<Fraction> {
        let default = message.message("default_value").map(fraction);
        let key = message.text("runtime_key");
        self.fraction_of_key(key).or(default)
    }

    /// A fraction in the runtime: a percentage, or numerator and denominator.
    pub(super) fn fraction_of_key(&self, key: &str) -> Option<Fraction> {
        match self.runtime.get(key)? {
            Json::Object(object) => {
                let numerator = object.get("numerator").and_then(whole_of).unwrap_or(0);
                let denominator =
                    object.get("denominator").and_then(Json::as_str).unwrap_or("HUNDRED");
                Some(Fraction {
                    numerator: u32::try_from(numerator).ok()?,
                    denominator: denominator_of(denominator),
                })
            }
            value => Some(Fraction {
                numerator: u32::try_from(whole_of(value)?.min(100)).ok()?,
                denominator: 100,
            }),
        }
    }

    /// A `RuntimeUInt32`.
    pub(super) fn runtime_number(&mut self, message: &Message) -> u32 {
        let key = message.text("runtime_key");
        let default = message.number32("default_value").unwrap_or(0);
        self.runtime.number(key).and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    }

    /// A `RuntimeDouble`.
    pub(super) fn runtime_float(&mut self, message: &Message) -> f64 {
        let key = message.text("runtime_key");
        self.runtime.float(key).unwrap_or_else(|| message.float("default_value").unwrap_or(0.0))
    }

    /// A `RuntimeFeatureFlag`.
    pub(super) fn runtime_flag(&mut self, message: &Message) -> bool {
        let key = message.text("runtime_key");
        self.runtime.feature(key, message.flag("default_value"))
    }
}

/// Why a key that nothing read is not missed.
fn harmless(key: &str) -> Option<&'static str> {
    if HARMLESS.iter().any(|harmless| key.starts_with(harmless)) {
        return Some("has no meaning here");
    }
    if READ_HERE.iter().any(|read| key.starts_with(read)) {
        return Some("is not read by anything that is configured so far");
    }
    let name = FEATURES.iter().find_map(|prefix| key.strip_prefix(prefix))?;
    (!features::is_known(name)).then_some("names no feature of Envoy 1.40")
}

/// A `FractionalPercent`.
pub(super) fn fraction(message: &Message) -> Fraction {
    Fraction {
        numerator: message.number32("numerator").unwrap_or(0),
        denominator: denominator_of(&message.choice("denominator")),
    }
}

fn denominator_of(name: &str) -> u32 {
    match name {
        "TEN_THOUSAND" => 10_000,
        "MILLION" => 1_000_000,
        _ => 100,
    }
}

/// Keys that tune what is not here or what has no limit here, and limits of listeners that do not exist.
const HARMLESS: &[&str] = &[
    "envoy.resource_limits.listener.",
    "re2.max_program_size.",
    "envoy.deprecated_features",
    "envoy.features.",
    // What traces has read its own.
    "tracing.",
    // How much of a connection is read at once has limits of our own.
    "http.max_requests_per_io_cycle",
    // How memory is measured for a monitor that is not there.
    "envoy.reloadable_features.fixed_heap_use_allocated",
    // How often hosts are weighed, not which are chosen.
    "envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update",
    // There is no HTTP/3.
    "envoy.reloadable_features.quic_",
    "envoy.reloadable_features.http3_",
];

/// Beginnings of the keys that switch something on or off for a few versions of Envoy.
const FEATURES: &[&str] = &["envoy.reloadable_features.", "envoy.restart_features."];

/// Beginnings of the keys that are read where what they are for is configured.
const READ_HERE: &[&str] = &[
    "circuit_breakers.",
    "overload.global_downstream_max_connections",
    "upstream.healthy_panic_threshold",
    PHASE_SPANS,
    REJECT_FRAGMENT,
];
/// Whether the phases of traced requests have spans. Of this proxy's own: Envoy has none.
pub(super) const PHASE_SPANS: &str = "towpath.tracing.phase_spans";
/// Whether a request whose target has a fragment is refused, else the fragment is cut.
pub(super) const REJECT_FRAGMENT: &str = "envoy.reloadable_features.http_reject_path_with_fragment";

/// Beginnings of the keys that Envoy itself reads, beside those that a configuration names.
const READ_BY_ENVOY: &[&str] = &[
    "envoy.",
    "overload.",
    "upstream.",
    "circuit_breakers.",
    "health_check.",
    "outlier_detection.",
    "http.",
    "http_connection_manager.",
    "conn_pool_on_high_watermark",
    "redis.",
    "ssl.",
    "fault.",
    "ext_authz.",
    "ratelimit.",
];
