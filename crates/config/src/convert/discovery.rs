//! Where a configuration asks for more: `dynamic_resources`, and the config sources of clusters and listeners.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Converter;
use crate::dynamic::Kind;
use crate::message::{At, Message};

/// `dynamic_resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// `ads_config`.
    pub ads: Option<Arc<Grpc>>,
    /// `cds_config`.
    pub clusters: Option<ConfigSource>,
    /// `lds_config`.
    pub listeners: Option<ConfigSource>,
}

/// A control plane that is spoken to by gRPC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grpc {
    /// The cluster of the bootstrap that it is.
    pub cluster: Arc<str>,
    /// `authority`; empty for the cluster's name.
    pub authority: Arc<str>,
    /// `DELTA_GRPC`.
    pub delta: bool,
    /// `set_node_on_first_message_only`.
    pub node_once: bool,
    /// `initial_metadata`.
    pub metadata: Vec<(String, String)>,
}

/// Envoy `config.core.v3.ConfigSource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSource {
    /// Whom to ask.
    pub from: From,
    /// How long to wait for the first answer; `None` for ever.
    pub timeout: Option<Duration>,
}

/// Whom to ask for a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum From {
    /// The stream of `ads_config`.
    Ads,
    /// A file with a `DiscoveryResponse`: `path_config_source`.
    File(Arc<str>),
}

/// A resource that a cluster or a listener cannot do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: Arc<str>,
    /// Whom to ask for it.
    pub source: ConfigSource,
    /// Of a route table: the `stat_prefix` of the connection manager that it is for. Of endpoints: the name of the
    /// cluster's statistics.
    pub stat_name: Arc<str>,
}

/// What was discovered so far, for a conversion to make use of.
#[derive(Default)]
pub(crate) struct Discovered<'a> {
    /// Clusters, those last that are being judged.
    pub(crate) clusters: Vec<&'a Message>,
    /// The same of listeners.
    pub(crate) listeners: Vec<&'a Message>,
    pub(crate) endpoints: HashMap<&'a str, &'a Message>,
    pub(crate) routes: HashMap<&'a str, &'a Message>,
    /// The texts that are being judged: names of clusters in them must exist.
    pub(crate) judged: Vec<usize>,
}

impl Discovered<'_> {
    /// Whether a text is the bootstrap's or is being judged.
    pub(crate) fn is_judged(&self, at: &At) -> bool {
        at.text < BOOTSTRAP_TEXTS || self.judged.contains(&at.text)
    }
}

/// The texts of a bootstrap have the first numbers.
pub(crate) const BOOTSTRAP_TEXTS: usize = 2;

impl<'a> Converter<'a> {
    /// `dynamic_resources`, and what they lead to.
    pub(super) fn discovery_of(&mut self, bootstrap: &Message) -> Option<Discovery> {
        let resources = bootstrap.message("dynamic_resources")?;
        let statics: Vec<&str> = bootstrap
            .message("static_resources")
            .map(|all| all.messages("clusters").map(|cluster| cluster.text("name")).collect())
            .unwrap_or_default();
        self.has_ads = resources.has("ads_config");
        let ads = resources.message("ads_config");
        let found = Discovery {
            ads: ads.and_then(|config| self.api(config, &statics)).map(Arc::new),
            clusters: resources.message("cds_config").and_then(|source| self.source(source)),
            listeners: resources.message("lds_config").and_then(|source| self.source(source)),
        };
        (found != Discovery::default()).then_some(found)
    }

    /// A `ConfigSource`.
    pub(super) fn source(&mut self, message: &Message) -> Option<ConfigSource> {
        let timeout = message.duration("initial_fetch_timeout").unwrap_or(DEFAULT_FETCH_TIMEOUT);
        let timeout = (!timeout.is_zero()).then_some(timeout);
        let Some(specifier) = message.oneof("config_source_specifier") else {
            self.report.problem(&message.at, NO_SOURCE);
            return None;
        };
        let from = match specifier.descriptor.name() {
            "ads" if self.has_ads => From::Ads,
            "ads" => {
                let text = "asks the control plane of `ads_config`, and there is none";
                self.report.problem(&specifier.at, text);
                return None;
            }
            "self" => {
                self.report.problem(&specifier.at, NO_SOURCE);
                return None;
            }
            "path" => From::File(Arc::from(message.text("path"))),
            "path_config_source" => {
                let file = message.message("path_config_source")?;
                if let Some(directory) = file.message("watched_directory")
                    && directory.text("path").is_empty()
                {
                    self.report.problem(&directory.at, "needs a `path`");
                }
                From::File(Arc::from(file.text("path")))
            }
            // Reported by the table of support.
            _ => return None,
        };
        Some(ConfigSource { from, timeout })
    }

    /// An `ApiConfigSource`.
    fn api(&mut self, message: &Message, statics: &[&str]) -> Option<Grpc> {
        let delta = match message.choice("api_type").as_str() {
            "GRPC" => false,
            "DELTA_GRPC" => true,
            other => {
                let text = format!("{other} is not spoken, only GRPC and DELTA_GRPC");
                self.report.unsupported(message.at("api_type"), text);
                return None;
            }
        };
        if message.choice("transport_api_version") != "V3" {
            let text = "only V3 of the transport API is spoken: write `transport_api_version: V3`";
            self.report.problem(message.at("transport_api_version"), text);
        }
        let services: Vec<_> = message.messages("grpc_services").collect();
        let [service] = services[..] else {
            let text = "needs exactly one of `grpc_services`";
            self.report.problem(message.at("grpc_services"), text);
            return None;
        };
        let envoy = service.message("envoy_grpc")?;
        let cluster = envoy.text("cluster_name");
        if !statics.contains(&cluster) {
            let text = format!(
                "Unknown gRPC client cluster '{cluster}': it is none of the static clusters"
            );
            self.report.problem(envoy.at("cluster_name"), text);
        }
        let metadata = service.messages("initial_metadata");
        Some(Grpc {
            cluster: Arc::from(cluster),
            authority: Arc::from(envoy.text("authority")),
            delta,
            node_once: message.flag("set_node_on_first_message_only"),
            metadata: metadata
                .map(|header| (header.text("key").to_owned(), header.text("value").to_owned()))
                .collect(),
        })
    }

    /// The endpoints of a cluster that asks for them, as far as they are known.
    pub(super) fn discovered_endpoints(
        &mut self,
        cluster: &Message,
        stat_name: &str,
    ) -> Option<&'a Message> {
        let Some(config) = cluster.message("eds_cluster_config") else {
            self.report.problem(&cluster.at, "an EDS cluster needs an `eds_cluster_config`");
            return None;
        };
        let Some(source) = config.message("eds_config") else {
            self.report.problem(&config.at, NO_SOURCE);
            return None;
        };
        let source = self.source(source)?;
        let name = match config.text("service_name") {
            "" => cluster.text("name"),
            name => name,
        };
        self.needs_of_one.push(Need {
            kind: Kind::Endpoints,
            name: Arc::from(name),
            source,
            stat_name: Arc::from(stat_name),
        });
        let found = self.discovered.endpoints.get(name).copied()?;
        self.files = self.files.rotate_left(1) ^ self.print(found);
        Some(found)
    }

    /// The route table that a connection manager asks for: `None` while it is not known.
    pub(super) fn discovered_routes(
        &mut self,
        rds: &Message,
        stat_prefix: &str,
    ) -> Option<&'a Message> {
        let name = rds.text("route_config_name");
        let source = self.source(rds.message("config_source")?)?;
        self.needs_of_one.push(Need {
            kind: Kind::Routes,
            name: Arc::from(name),
            source,
            stat_name: Arc::from(stat_prefix),
        });
        let found = self.discovered.routes.get(name).copied()?;
        self.files = self.files.rotate_left(1) ^ self.print(found);
        Some(found)
    }
}

/// Envoy's words.
const NO_SOURCE: &str = "Missing config source specifier in envoy::config::core::v3::ConfigSource";
/// Envoy's.
const DEFAULT_FETCH_TIMEOUT: Duration = Duration::from_secs(15);
