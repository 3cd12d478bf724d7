//! Where a configuration asks for more: `dynamic_resources`, and the config sources of clusters and listeners.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::{Cluster, ClusterId};

use super::collections::{CLUSTERS, LISTENERS};
use super::{Converter, Runtime};
use crate::dynamic::entries::Known;
use crate::dynamic::listeners::MadeListeners;
use crate::dynamic::{Kind, Made};
use crate::error::Rank;
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
    /// `cds_resources_locator`: of all clusters only these.
    pub cluster_collection: Option<Arc<str>>,
    /// `lds_resources_locator`.
    pub listener_collection: Option<Arc<str>>,
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
    /// `rate_limit_settings`.
    pub limit: Option<RequestLimit>,
    /// `retry_back_off` of `envoy_grpc`: a stream is opened again after a wait below the first, doubled each time up to
    /// the second.
    pub waits: Option<(Duration, Duration)>,
}

/// After what waits a stream is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Its `retry_policy` says so.
    Told,
    /// Always the same.
    Fixed,
}

/// A cluster, what it is called, and after what waits its streams are opened again.
type EnvoyService = (Arc<str>, Arc<str>, Option<(Duration, Duration)>);

/// Envoy `config.core.v3.RateLimitSettings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestLimit {
    /// `max_tokens`: how many requests may be sent at once.
    pub burst: u32,
    /// `fill_rate`: how many in 1,000 seconds after that.
    pub per_1000_seconds: u32,
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
    /// A stream of its own for each kind: `api_config_source`.
    Grpc(Arc<Grpc>),
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
    /// cluster's statistics. Of a secret: its own. Of an extension: what is extended, as its counters call it.
    pub stat_name: Arc<str>,
    /// Whether what asks for it serves only when it is there.
    pub is_awaited: bool,
}

/// What was discovered so far, for a conversion to make use of.
#[derive(Default)]
pub(crate) struct Discovered<'a> {
    /// Clusters, those last that are being judged.
    pub(crate) clusters: Vec<Part<'a>>,
    /// The same of listeners.
    pub(crate) listeners: Vec<&'a Message>,
    /// What others ask for by name.
    pub(crate) known: Option<Known<'a>>,
    /// What the runtime came to last: its directories are not read again.
    pub(crate) runtime: Option<&'a Runtime>,
    /// What listeners came to, where they would come to the same.
    pub(crate) made_listeners: Option<&'a MadeListeners>,
    /// The texts of these.
    pub(crate) secret_texts: HashSet<usize>,
    /// The texts that are being judged: names of clusters in them must exist.
    pub(crate) judged: Vec<usize>,
}

/// A cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a> {
    /// To be converted.
    New(&'a Message),
    /// It would come to what serves.
    Made { made: &'a Made, id: ClusterId, cluster: &'a Arc<Cluster>, text: usize },
}

impl<'a> Part<'a> {
    pub(super) fn name(self) -> &'a str {
        match self {
            Self::New(message) => message.text("name"),
            Self::Made { cluster, .. } => &cluster.name,
        }
    }

    /// Where its name was written.
    pub(super) fn name_at(self) -> At {
        match self {
            Self::New(message) => message.at("name").clone(),
            Self::Made { text, .. } => At::root(text),
        }
    }
}

impl<'a> Discovered<'a> {
    /// A resource that others ask for.
    pub(super) fn resource(&self, kind: Kind, name: &str) -> Option<&'a Message> {
        self.known?.get(kind, name)
    }

    /// The digest of a resource by its text; the bootstrap has none.
    pub(crate) fn print(&self, text: usize) -> Option<u64> {
        self.known?.print(text)
    }

    /// Whether a text is the bootstrap's or is being judged.
    pub(crate) fn is_judged(&self, at: &At) -> bool {
        at.text < BOOTSTRAP_TEXTS || self.judged.contains(&at.text)
    }
}

/// The texts of a bootstrap have the first numbers.
pub(crate) const BOOTSTRAP_TEXTS: usize = 2;

impl<'a> Converter<'a> {
    /// `dynamic_resources`, and what they lead to.
    pub(super) fn discovery_of(&mut self, bootstrap: &'a Message) -> Option<Discovery> {
        let statics = bootstrap.message("static_resources").into_iter();
        let statics = statics.flat_map(|all| all.messages("clusters"));
        let fixed = statics.filter(|it| it.has("cluster_type") || it.choice("type") != "EDS");
        self.control_planes = fixed.map(|cluster| cluster.text("name")).collect();
        let resources = bootstrap.message("dynamic_resources")?;
        self.has_ads = resources.has("ads_config");
        let ads = resources.message("ads_config");
        let ads = ads.and_then(|config| self.api(config, Waits::Told)).map(Arc::new);
        let clusters = resources.message("cds_config").and_then(|source| self.source(source));
        let listeners = resources.message("lds_config").and_then(|source| self.source(source));
        let found = Discovery {
            ads,
            cluster_collection: self.collection(bootstrap, CLUSTERS, clusters.as_ref()),
            listener_collection: self.collection(bootstrap, LISTENERS, listeners.as_ref()),
            clusters,
            listeners,
        };
        (found != Discovery::default()).then_some(found)
    }

    /// `load_stats_config`.
    pub(super) fn load_reports(&mut self, bootstrap: &Message) -> Option<Arc<Grpc>> {
        let config = bootstrap.message("cluster_manager")?.message("load_stats_config")?;
        self.api(config, Waits::Fixed).map(Arc::new)
    }

    /// `hds_config`.
    pub(super) fn health_discovery(&mut self, bootstrap: &Message) -> Option<Arc<Grpc>> {
        self.api(bootstrap.message("hds_config")?, Waits::Fixed).map(Arc::new)
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
            "api_config_source" => {
                let source = message.message("api_config_source")?;
                From::Grpc(Arc::new(self.api(source, Waits::Told)?))
            }
            // Reported by the table of support.
            _ => return None,
        };
        Some(ConfigSource { from, timeout })
    }

    /// Notes that the cluster or listener at hand asks for a resource. One resource has one source.
    pub(super) fn need(
        &mut self,
        kind: Kind,
        name: &str,
        source: &Message,
        stat_name: &str,
    ) -> Option<()> {
        let at = &source.at;
        let source = self.source(source)?;
        let known = self.sources.entry((kind, Arc::from(name)));
        if *known.or_insert_with(|| source.from.clone()) != source.from {
            let text =
                format!("`{name}` is asked of another source elsewhere; give it another name");
            self.report.unsupported(at, text);
            return None;
        }
        self.needs_of_one.push(Need {
            kind,
            name: Arc::from(name),
            source,
            stat_name: Arc::from(stat_name),
            is_awaited: true,
        });
        Some(())
    }

    /// The server that is asked is told which proxy asks.
    pub(super) fn node_is_known(&mut self, at: &At) -> Option<()> {
        let node = &self.snapshot.node;
        if (node.id.is_empty() || node.cluster.is_empty()) && !self.options.is_node_left_open {
            self.report.problem(at, NO_NODE);
            return None;
        }
        Some(())
    }

    /// An `ApiConfigSource`.
    fn api(&mut self, message: &Message, waits: Waits) -> Option<Grpc> {
        let delta = match message.choice("api_type").as_str() {
            "GRPC" => false,
            "DELTA_GRPC" => true,
            other => {
                let text = format!("{other} is not spoken, only GRPC and DELTA_GRPC");
                self.report.unsupported(message.at("api_type"), text);
                return None;
            }
        };
        if message.choice("transport_api_version") == "V2" {
            let text = "the v2 API has been removed; write V3";
            self.report.problem(message.at("transport_api_version"), text);
        }
        let services: Vec<_> = message.messages("grpc_services").collect();
        let [service] = services[..] else {
            let text = "needs exactly one of `grpc_services`";
            self.report.problem(message.at("grpc_services"), text);
            return None;
        };
        let mut metadata: Vec<(String, String)> = service
            .messages("initial_metadata")
            .map(|header| (header.text("key").to_owned(), header.text("value").to_owned()))
            .collect();
        let (cluster, authority, waits) = match service.message("google_grpc") {
            Some(google) => {
                if service.has("retry_policy") {
                    let text = "Envoy does not read it beside `google_grpc`";
                    self.report.finding(service.at("retry_policy"), Rank::Harmless, text);
                }
                let google = self.google_grpc(google)?;
                let token = google.authorization.map(|token| ("authorization".to_owned(), token));
                metadata.extend(token);
                (google.cluster, google.authority, None)
            }
            None => self.envoy_service(service, waits)?,
        };
        let limit = message.message("rate_limit_settings").map(|limit| RequestLimit {
            burst: limit.number32("max_tokens").unwrap_or(DEFAULT_BURST),
            per_1000_seconds: limit.float("fill_rate").map_or(DEFAULT_RATE, per_1000_seconds),
        });
        Some(Grpc {
            cluster,
            authority,
            delta,
            node_once: message.flag("set_node_on_first_message_only"),
            metadata,
            limit,
            waits,
        })
    }

    /// The cluster, the authority and the waits of an `EnvoyGrpc`.
    fn envoy_service(&mut self, service: &Message, waits: Waits) -> Option<EnvoyService> {
        if service.has("retry_policy") {
            let text = "a stream is opened again after the waits of `envoy_grpc.retry_policy`";
            self.report.unsupported(service.at("retry_policy"), text);
        }
        let envoy = service.message("envoy_grpc")?;
        let cluster = envoy.text("cluster_name");
        if !self.control_planes.contains(&cluster) {
            let text = format!(
                "Unknown gRPC client cluster '{cluster}': it is none of the static clusters that know their hosts"
            );
            self.report.problem(envoy.at("cluster_name"), text);
        }
        let waits = match waits {
            Waits::Told => self.waits(envoy),
            Waits::Fixed => {
                self.unread_policy(envoy, "such a stream is opened again after the same waits");
                None
            }
        };
        Some((Arc::from(cluster), Arc::from(envoy.text("authority")), waits))
    }

    /// What `retry_policy` of an `EnvoyGrpc` says of waits; that is all that Envoy reads of it.
    fn waits(&mut self, envoy: &Message) -> Option<(Duration, Duration)> {
        let policy = envoy.message("retry_policy")?;
        for unread in ["num_retries", "retry_on", "retry_priority", "retry_host_predicate"] {
            if policy.has(unread) {
                let text = "Envoy reads `retry_back_off` alone of such a policy";
                self.report.finding(policy.at(unread), Rank::Harmless, text);
            }
        }
        policy.has("retry_back_off").then(|| self.core_back_off(policy))
    }

    /// A `retry_policy` of an `EnvoyGrpc` that Envoy does not read, and why.
    pub(super) fn unread_policy(&mut self, envoy: &Message, why: &str) {
        if envoy.has("retry_policy") {
            let text = format!("Envoy does not read it here: {why}");
            self.report.finding(envoy.at("retry_policy"), Rank::Harmless, text);
        }
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
        let name = match config.text("service_name") {
            "" => cluster.text("name"),
            name => name,
        };
        self.need(Kind::Endpoints, name, source, stat_name)?;
        let found = self.discovered.resource(Kind::Endpoints, name)?;
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
        self.need(Kind::Routes, name, rds.message("config_source")?, stat_prefix)?;
        let found = self.discovered.resource(Kind::Routes, name)?;
        self.files = self.files.rotate_left(1) ^ self.print(found);
        Some(found)
    }

    /// The secret that a TLS context asks for: `None` while it is not known.
    pub(super) fn discovered_secret(
        &mut self,
        named: &Message,
        source: &Message,
        kind: &str,
    ) -> Option<&'a Message> {
        let name = named.text("name");
        self.node_is_known(&named.at)?;
        self.need(Kind::Secret, name, source, name)?;
        let Some(secret) = self.discovered.resource(Kind::Secret, name) else {
            self.awaits_secret = true;
            return None;
        };
        self.accept(secret);
        self.rotating = self.rotating.rotate_left(1) ^ self.print(secret);
        let found = secret.message(kind);
        if found.is_none() {
            self.report.problem(&secret.at, format!("is asked for as a `{kind}`, and holds none"));
        }
        found
    }
}

/// Envoy fills a bucket in no case slower than once in a year.
fn per_1000_seconds(rate: f64) -> u32 {
    (rate * 1000.0).round().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// Envoy's words.
const NO_SOURCE: &str = "Missing config source specifier in envoy::config::core::v3::ConfigSource";
/// Envoy's words.
const NO_NODE: &str = "node 'id' and 'cluster' are required. Set it either in 'node' config or via \
    --service-node and --service-cluster options.";
/// Envoy's.
const DEFAULT_FETCH_TIMEOUT: Duration = Duration::from_secs(15);
/// Envoy's.
const DEFAULT_BURST: u32 = 100;
/// Envoy's: 10 a second.
const DEFAULT_RATE: u32 = 10_000;
