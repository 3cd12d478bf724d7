//! What Istio says of a mesh: in the node, in the metadata of clusters and endpoints, and to network filters.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::mesh::{
    Greetings, IstioMetric, MeshCluster, Reporter, Service, Telemetry, Workload,
};
use towpath_engine::snapshot::listener::Direction;
use towpath_engine::stream_info::{Struct, Value as Held, read_json};

use super::Converter;
use super::extension::UPSTREAM_FILTER;
use super::facts::Node;
use crate::message::{Message, Value};
use crate::support::Entry;
use crate::tree::{Node as Written, Value as Tree};

/// Who this proxy is in a mesh, by its node.
#[derive(Debug, Default)]
pub(crate) struct MeshNode {
    pub(crate) id: String,
    pub(crate) own: Arc<Workload>,
    /// The namespace of HTTP's headers knows the locality, that of opaque bytes does not.
    pub(crate) located: Arc<Workload>,
    version: Arc<str>,
    /// All that the node says of itself.
    metadata: Struct,
}

impl MeshNode {
    pub(super) fn of(node: &Node) -> Self {
        // It was read as JSON, so that it can be read as such again.
        let metadata = read_json(node.metadata.to_string().as_bytes()).unwrap_or_default();
        let own = Workload::of(&metadata);
        let mut located = own.clone();
        for (known, told) in
            [(&mut located.region, &node.locality.region), (&mut located.zone, &node.locality.zone)]
        {
            if known.is_empty() {
                *known = told.as_str().into();
            }
        }
        let version = match metadata.get("ISTIO_VERSION") {
            Some(Held::String(version)) => Arc::from(&**version),
            _ => Arc::from(""),
        };
        let (own, located) = (Arc::new(own), Arc::new(located));
        Self { id: node.id.clone(), own, located, version, metadata }
    }

    /// What stands below a name in the metadata; what is no text there is empty, as Envoy reads it.
    pub(super) fn labels(&self, name: &str) -> Vec<(Box<str>, Box<str>)> {
        let Some(Held::Struct(labels)) = self.metadata.get(name) else { return Vec::new() };
        let text = |value: &Held| match value {
            Held::String(text) => text.clone(),
            Held::Null | Held::Bool(_) | Held::Number(_) | Held::Struct(_) | Held::List(_) => {
                "".into()
            }
        };
        labels.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

impl Converter<'_> {
    /// `stats.PluginConfig`.
    pub(super) fn istio_telemetry(&mut self, config: &Message) -> Option<Telemetry> {
        let reporter = match (config.choice("reporter").as_str(), self.direction) {
            ("SERVER_GATEWAY", _) => Reporter::Gateway,
            (_, Direction::Inbound) => Reporter::Server,
            (_, Direction::Outbound | Direction::Unspecified) => Reporter::Client,
        };
        let (mut dropped, mut removed) = (Vec::new(), Vec::new());
        for metric in config.messages("metrics") {
            let name = metric.text("name");
            let known = IstioMetric::STANDARD
                .into_iter()
                .find(|it| it.name().strip_prefix("istio_") == Some(name));
            if known.is_none() && !name.is_empty() {
                let text = format!("there is no metric `{name}`; it changes nothing");
                self.report.note(metric.at("name"), text);
                continue;
            }
            if metric.flag("drop") {
                dropped.extend(known);
                continue;
            }
            let tags = metric.texts("tags_to_remove");
            removed.extend(tags.map(|(tag, _)| (known, Box::from(tag))));
        }
        Some(Telemetry {
            reporter,
            own: Arc::clone(&self.mesh_node.own),
            version: Arc::clone(&self.mesh_node.version),
            falls_back_to_host: !config.flag("disable_host_header_fallback"),
            interval: config.duration("tcp_reporting_duration").unwrap_or(DEFAULT_INTERVAL),
            dropped,
            removed,
        })
    }

    /// `MetadataExchange`.
    pub(super) fn istio_greetings(&mut self, config: &Message) -> Greetings {
        Greetings {
            protocol: config.text("protocol").into(),
            own: self.mesh_node.own.greeting(&self.mesh_node.id).into(),
        }
    }

    /// The upstream network filters of a cluster: there is one.
    pub(super) fn upstream_filters(&mut self, cluster: &Message) -> Option<Arc<Greetings>> {
        let mut greetings = None;
        for filter in cluster.messages("filters") {
            let found = self.extension(filter, UPSTREAM_FILTER, &[EXCHANGE]);
            let Some((config, _)) = found else { continue };
            if greetings.replace(Arc::new(self.istio_greetings(config))).is_some() {
                self.report.problem(&filter.at, "sidecars greet each other once");
            }
        }
        greetings
    }
}

/// What the metadata of a cluster says to a mesh.
pub(super) fn mesh_cluster(cluster: &Message) -> Option<Arc<MeshCluster>> {
    let told = of_mesh(cluster)?;
    let text = |name: &str| text_of(told.get(name));
    let flag = |name: &str| told.get(name).is_some_and(|it| matches!(it.value, Tree::Bool(true)));
    let first = match told.get("services").map(|services| &services.value) {
        Some(Tree::List(services)) => services.first(),
        _ => None,
    };
    Some(Arc::new(MeshCluster {
        service: first.map(service),
        keeps_alpn: text("alpn_override") == "false",
        external: flag("external"),
        keeps_quiet: flag("disable_mx"),
    }))
}

fn service(written: &Written) -> Service {
    let text = |name: &str| text_of(written.get(name));
    let host = text("host");
    let first = || host.split('.').next().unwrap_or_default();
    let name = written.get("name").map_or_else(first, |name| text_of(Some(name)));
    Service { host: host.into(), name: name.into(), namespace: text("namespace").into() }
}

/// Who the metadata of an endpoint says that it is.
pub(super) fn workload(endpoint: &Message) -> Option<Arc<Workload>> {
    let told = of_mesh(endpoint)?;
    Workload::of_endpoint(text_of(told.get("workload"))).map(Arc::new)
}

/// The metadata that a mesh reads.
pub(super) fn of_mesh(holder: &Message) -> Option<&Written> {
    let entries = holder.message("metadata")?.entries("filter_metadata");
    let (_, told) = entries.iter().find(|(name, _)| name == "istio")?;
    match &told.value {
        Value::Json(told) => Some(told),
        _ => None,
    }
}

fn text_of(written: Option<&Written>) -> &str {
    match written.map(|written| &written.value) {
        Some(Tree::String(text)) => text,
        _ => "",
    }
}

pub(super) const EXCHANGE: &str = "envoy.tcp.metadataexchange.config.MetadataExchange";
pub(super) const STATS: &str = "stats.PluginConfig";
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) const SUPPORT: &[Entry] = &[
    Entry {
        message: STATS,
        honoured: &[
            "disable_host_header_fallback",
            "tcp_reporting_duration",
            "metrics",
            "reporter",
        ],
        harmless: &[
            ("debug", "no version of the filter reads it any more"),
            ("max_peer_cache_size", "no version of the filter reads it any more"),
            ("stat_prefix", "no version of the filter reads it any more"),
            ("field_separator", "no version of the filter reads it any more"),
            ("value_separator", "no version of the filter reads it any more"),
            ("rotation_interval", "metrics stay"),
            ("graceful_deletion_interval", "metrics stay"),
        ],
        changes: &[("definitions", "metrics of expressions are not there")],
    },
    Entry {
        message: "stats.MetricConfig",
        honoured: &["name", "tags_to_remove", "drop"],
        harmless: &[("match", "no version of the filter reads it any more")],
        changes: &[("dimensions", "labels of expressions are not there")],
    },
    Entry {
        message: EXCHANGE,
        honoured: &["protocol"],
        harmless: &[("enable_discovery", "a control plane's list of workloads is not there")],
        changes: &[("additional_labels", "only the standard labels are told")],
    },
];
