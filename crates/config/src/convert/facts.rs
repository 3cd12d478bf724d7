//! What a bootstrap says to the program rather than to a worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use towpath_engine::snapshot::AccessLog;
use towpath_engine::snapshot::export::Exporter;
use towpath_engine::stats::{Rules, push};
use towpath_proto::Address;

use super::{Discovery, Grpc, Runtime};

/// The facts of a bootstrap that are not in a snapshot.
#[derive(Debug, Default)]
pub struct Bootstrap {
    /// `node`.
    pub node: Node,
    /// `admin`; without an address there is no admin endpoint.
    pub admin: Option<Admin>,
    /// `dynamic_resources`; there is one, too, where static clusters or listeners ask for what they need.
    pub discovery: Option<Discovery>,
    /// `cluster_manager.load_stats_config`: who is told of the load of clusters.
    pub load_reports: Option<Arc<Grpc>>,
    /// `hds_config`: who says which hosts are to be checked, and is told how they are.
    pub health_discovery: Option<Arc<Grpc>>,
    /// `stats_config`.
    pub stats: Stats,
    /// `stats_sinks`, and when they are told.
    pub push: Push,
    /// `layered_runtime`.
    pub runtime: Runtime,
}

/// Envoy `config.core.v3.Node`.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `id`.
    pub id: String,
    /// `cluster`.
    pub cluster: String,
    /// `locality`.
    pub locality: Locality,
    /// `metadata`, an object.
    pub metadata: Json,
}

/// Envoy `config.core.v3.Locality`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// `region`.
    pub region: String,
    /// `zone`.
    pub zone: String,
    /// `sub_zone`.
    pub sub_zone: String,
}

/// Envoy `config.bootstrap.v3.Admin`.
#[derive(Debug)]
pub struct Admin {
    /// `address`.
    pub address: Option<Address>,
    /// `access_log`. Sinks are those of the snapshot.
    pub access_logs: Vec<AccessLog>,
}

/// Envoy `config.metrics.v3.StatsConfig`.
#[derive(Debug, Default)]
pub struct Stats {
    /// `use_all_default_tags`.
    pub default_tags: bool,
    /// `stats_tags`.
    pub tags: Vec<StatsTag>,
    /// `stats_matcher` and `histogram_bucket_settings`.
    pub rules: Rules,
}

/// To whom statistics are sent.
#[derive(Clone, Debug, Default)]
pub struct Push {
    /// `stats_sinks`.
    pub sinks: Vec<(PushTarget, push::Sink)>,
    /// `stats_flush_interval`, which is also that of histograms; `None` with `stats_flush_on_admin`.
    pub interval: Option<Duration>,
}

/// Where they are sent.
#[derive(Clone, Debug)]
pub enum PushTarget {
    /// Datagrams by UDP.
    Udp(SocketAddr),
    /// A server is told by a worker.
    Server(Arc<Exporter>),
}

/// Envoy `config.metrics.v3.TagSpecifier`.
#[derive(Clone, Debug)]
pub struct StatsTag {
    /// `tag_name`.
    pub name: Arc<str>,
    /// `regex`: the first group is cut from the name, the second is the value. `None` also where it looks ahead.
    pub regex: Option<regex::Regex>,
    /// `fixed_value`.
    pub fixed: Option<Arc<str>>,
}
