//! The bootstrap itself: node, admin, statistics and what holds the listeners and clusters.

use std::sync::Arc;

use prost_reflect::Kind;
use serde_json::Value as Json;
use towpath_engine::format::Format;
use towpath_engine::matcher::StringMatcher;
use towpath_engine::snapshot::log::Sink;
use towpath_engine::snapshot::{self, AccessLog};
use towpath_engine::stats::{Keep, Rules};

use super::Converter;
use super::discovery::{Discovery, Part};
use super::extension::{BOOTSTRAP_EXTENSION, REGEX_ENGINE};
use super::facts::{Admin, Bootstrap, Locality, Node, Stats, StatsTag};
use super::istio::MeshNode;
use crate::dynamic::encoded_node;
use crate::error::Rank;
use crate::message::{Message, Value, tree_to_json};

impl<'a> Converter<'a> {
    /// Converts all of it. The snapshot is left in `self.snapshot`.
    pub(crate) fn bootstrap(&mut self, message: &'a Message) -> Bootstrap {
        self.accept(message);
        let (node, discovery) = self.begin(message);
        let resources = message.message("static_resources");
        let own = |name| resources.into_iter().flat_map(move |all| all.messages(name));
        let clusters: Vec<_> =
            own("clusters").map(Part::New).chain(self.discovered.clusters.clone()).collect();
        let listeners: Vec<_> = own("listeners").chain(self.discovered.listeners.clone()).collect();
        self.name_clusters(&clusters);
        self.common_tracing(message);
        match self.discovered.made_listeners {
            Some(made) => self.take_listeners(made),
            None => self.listeners(&listeners),
        }
        self.clusters(message, &clusters);
        self.snapshot.outlier_log = self.outlier_log(message);
        self.check_protocols();
        self.overload(message);
        let admin = message.message("admin").map(|admin| self.admin(admin));
        let stats = message.message("stats_config").map(|stats| self.stats(stats));
        let push = self.push(message);
        self.check_runtime(message);
        let load_reports = self.load_reports(message);
        let health_discovery = self.health_discovery(message);
        let asks = self.needs.values().any(|needs| !needs.is_empty());
        let discovery = discovery.or_else(|| asks.then(Discovery::default));
        Bootstrap {
            node,
            admin,
            discovery,
            load_reports,
            health_discovery,
            stats: stats.unwrap_or_else(default_stats),
            push,
            runtime: self.runtime.clone(),
        }
    }

    /// Converts clusters that were discovered, and nothing else. They are left in `self.snapshot`.
    pub(crate) fn clusters_alone(&mut self, message: &'a Message) {
        self.begin(message);
        let clusters = self.discovered.clusters.clone();
        self.name_clusters(&clusters);
        self.clusters(message, &clusters);
    }

    /// Reads what clusters and listeners have in common.
    fn begin(&mut self, message: &'a Message) -> (Node, Option<Discovery>) {
        let node = self.node(message);
        self.snapshot.node = snapshot::Node {
            id: node.id.clone(),
            cluster: node.cluster.clone(),
            zone: node.locality.zone.clone(),
            address: self.options.node_address,
        };
        self.mesh_node = Arc::new(MeshNode::of(&node));
        let field = message.descriptor.get_field_by_name("node").map(|field| field.kind());
        if let Some(Kind::Message(kind)) = field {
            self.node_bytes = encoded_node(message.message("node"), kind, self.options);
        }
        if let Some(engine) = message.message("default_regex_engine") {
            self.extension(engine, REGEX_ENGINE, &[RE2]);
        }
        self.bootstrap_extensions(message);
        let discovery = self.discovery_of(message);
        self.read_runtime(message);
        self.check_local_cluster(message);
        self.check_secrets();
        let prints = self.named_secrets.iter().map(|secret| self.print(secret));
        self.secrets = prints.fold(0, u64::wrapping_add);
        (node, discovery)
    }

    fn bootstrap_extensions(&mut self, bootstrap: &Message) {
        let extensions: Vec<_> = bootstrap.messages("bootstrap_extensions").collect();
        for extension in extensions {
            let known = [INTERNAL_LISTENER, SOCKET_INTERFACE];
            if let Some((found, _)) = self.extension(extension, BOOTSTRAP_EXTENSION, &known) {
                self.has_internal_listeners |= found.descriptor.full_name() == INTERNAL_LISTENER;
            }
        }
        let interface = bootstrap.text("default_socket_interface");
        if !interface.is_empty() && interface != DEFAULT_SOCKET_INTERFACE {
            let text = format!("sockets are the kernel's: write `{DEFAULT_SOCKET_INTERFACE}`");
            self.report.unsupported(bootstrap.at("default_socket_interface"), text);
        }
    }

    /// The node of the file, with what the command line says before it.
    pub(super) fn node(&self, message: &Message) -> Node {
        let mut node = message.message("node").map(node).unwrap_or_default();
        let flag = |field: &mut String, flag: &Option<String>| {
            if let Some(flag) = flag {
                field.clone_from(flag);
            }
        };
        flag(&mut node.id, &self.options.node_id);
        flag(&mut node.cluster, &self.options.node_cluster);
        flag(&mut node.locality.zone, &self.options.node_zone);
        node
    }

    fn admin(&mut self, admin: &Message) -> Admin {
        let address = admin.message("address").and_then(|address| self.address(address));
        let mut access_logs = self.access_logs(admin, "access_log");
        if access_logs.iter().any(|log| log.sink().is_none()) {
            let text = "what the admin endpoint is asked goes to files alone";
            self.report.unsupported(admin.at("access_log"), text);
        }
        let path = admin.text("access_log_path");
        if !path.is_empty() {
            let sink = self.sink(Sink::File(path.into()));
            access_logs.push(AccessLog::lines(Format::default_access_log(), sink));
        }
        Admin { address, access_logs }
    }

    fn stats(&mut self, stats: &Message) -> Stats {
        let tags: Vec<_> = stats.messages("stats_tags").collect();
        let buckets: Vec<_> = stats.messages("histogram_bucket_settings").collect();
        for tag in tags.iter().filter(|tag| tag.text("fixed_value").is_empty()) {
            let reason = "checked and not applied: statistics keep their default names and labels";
            self.report.finding(&tag.at, Rank::Harmless, reason);
        }
        Stats {
            default_tags: stats.wrapped_flag("use_all_default_tags").unwrap_or(true),
            tags: tags.into_iter().filter_map(|tag| self.stats_tag(tag)).collect(),
            rules: Rules {
                keep: stats
                    .message("stats_matcher")
                    .map(|matcher| self.stats_matcher(matcher))
                    .unwrap_or_default(),
                buckets: buckets.into_iter().filter_map(|setting| self.buckets(setting)).collect(),
            },
        }
    }

    fn stats_tag(&mut self, tag: &Message) -> Option<StatsTag> {
        let mut result =
            StatsTag { name: Arc::from(tag.text("tag_name")), regex: None, fixed: None };
        let Some(field) = tag.oneof("tag_value") else { return Some(result) };
        match (field.descriptor.name(), &field.value) {
            ("regex", Value::String(text)) => match regex::Regex::new(&without_look_ahead(text)) {
                Ok(regex) => result.regex = Some(regex).filter(|regex| regex.as_str() == text),
                Err(error) => {
                    self.report.problem(
                        &field.at,
                        format!("invalid regular expression '{text}': {error}"),
                    );
                    return None;
                }
            },
            (_, Value::String(text)) => result.fixed = Some(Arc::from(text.as_str())),
            _ => {}
        }
        Some(result)
    }

    fn stats_matcher(&mut self, matcher: &Message) -> Keep {
        let Some(field) = matcher.oneof("stats_matcher") else { return Keep::All };
        match (field.descriptor.name(), &field.value) {
            (_, Value::Bool(true)) => Keep::None,
            ("inclusion_list", Value::Message(list)) => Keep::Only(self.patterns(list)),
            ("exclusion_list", Value::Message(list)) => Keep::Except(self.patterns(list)),
            _ => Keep::All,
        }
    }

    fn patterns(&mut self, list: &Message) -> Vec<StringMatcher> {
        let patterns: Vec<_> = list.messages("patterns").collect();
        patterns.into_iter().filter_map(|pattern| self.string_matcher(pattern)).collect()
    }

    fn buckets(&mut self, setting: &Message) -> Option<(StringMatcher, Vec<f64>)> {
        let matcher = self.string_matcher(setting.message("match")?)?;
        let buckets = setting.items("buckets").iter().filter_map(|item| match item.value {
            Value::Float(bound) => Some(bound),
            _ => None,
        });
        let mut buckets: Vec<f64> = buckets.collect();
        buckets.sort_by(f64::total_cmp);
        Some((matcher, buckets))
    }
}

/// Envoy reads the expressions of tags as ECMAScript has them, which may look ahead; all else of them can be checked.
fn without_look_ahead(regex: &str) -> String {
    regex.replace("(?=", "(?:").replace("(?!", "(?:")
}

fn node(message: &Message) -> Node {
    let metadata = match message.get("metadata").map(|field| &field.value) {
        Some(Value::Json(node)) => tree_to_json(node),
        _ => Json::Object(serde_json::Map::new()),
    };
    Node {
        id: message.text("id").to_owned(),
        cluster: message.text("cluster").to_owned(),
        locality: message.message("locality").map_or_else(Locality::default, |locality| Locality {
            region: locality.text("region").to_owned(),
            zone: locality.text("zone").to_owned(),
            sub_zone: locality.text("sub_zone").to_owned(),
        }),
        metadata,
    }
}

fn default_stats() -> Stats {
    Stats { default_tags: true, ..Stats::default() }
}

const SOCKET_INTERFACE: &str =
    "envoy.extensions.network.socket_interface.v3.DefaultSocketInterface";
const DEFAULT_SOCKET_INTERFACE: &str =
    "envoy.extensions.network.socket_interface.default_socket_interface";
const INTERNAL_LISTENER: &str = "envoy.extensions.bootstrap.internal_listener.v3.InternalListener";
const RE2: &str = "envoy.extensions.regex_engines.v3.GoogleRE2";
