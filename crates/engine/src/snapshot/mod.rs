//! What a worker obeys: compiled, checked, immutable configuration with a generation number.
//!
//! Built by `towpath-config` (or by hand, in tests), shared by all workers behind an `Arc`, replaced whole. A
//! stream ends with the generation that it began with. Live facts (health, load, pools) are not here: a
//! worker keeps them, keyed by [`ClusterId`].

pub mod bolt;
pub mod buffer;
pub mod client;
pub mod cluster;
pub mod connection_rate;
pub mod dns;
pub mod export;
#[cfg(feature = "serving")]
pub(crate) mod expressions;
#[cfg(not(feature = "serving"))]
#[path = "expressions/absent.rs"]
pub(crate) mod expressions;
pub mod happy_eyeballs;
pub mod health;
mod host_index;
pub mod http;
pub mod http2;
pub mod http_inspector;
mod limits;
pub mod listener;
pub mod log;
pub mod names;
pub mod original_src;
pub mod overload;
pub mod override_host;
pub mod passing;
pub(crate) mod plain;
pub mod proxy_header;
pub mod proxy_protocol;
pub mod route;
pub mod socket_choice;
pub mod sockets;
pub mod specifier;
pub mod subset;
pub mod tls;
#[cfg(feature = "serving")]
pub mod tls_inspector;
pub mod tracing;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

pub use bolt::{BoltProxy, BoltUpstream};
pub use buffer::BufferLimit;
pub use cluster::Cluster;
pub use host_index::{DuplicateDomain, HostIndex};
pub use http::Http;
pub use http2::Http2;
pub use listener::{FilterChain, Listener, TcpProxy};
pub use log::{AccessLog, SinkId};
pub use route::{Route, RouteTable, VirtualHost};
pub use tls::{DownstreamTls, UpstreamTls};

use crate::total::Total;

/// One generation of configuration.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Counts up with each accepted change.
    pub generation: u64,
    /// Who this proxy says it is. Envoy `Bootstrap.node`.
    pub node: Node,
    /// Every listener.
    pub listeners: Vec<Arc<Listener>>,
    /// Clusters by [`ClusterId`]; `None` where a name is known but no cluster has it.
    pub clusters: Vec<Option<Arc<Cluster>>>,
    /// The ids of all names that were ever seen.
    pub cluster_ids: Arc<HashMap<Arc<str>, ClusterId>>,
    /// The addresses of names that requests choose.
    pub dns_caches: Vec<Arc<names::DnsCache>>,
    /// Where access logs go, by [`SinkId`].
    pub sinks: Vec<log::Sink>,
    /// Formats ask what is shown on connections to clusters under TLS.
    pub shows_upstream_tls: bool,
    /// Formats ask how long routes are looked for.
    pub times_routes: bool,
    /// Where it is told which hosts are left out. Envoy `ClusterManager.outlier_detection.event_log_path`.
    pub outlier_log: Option<SinkId>,
    /// Downstream connections that the process may have. Envoy's `overload_manager` downstream-connections monitor and
    /// `overload.global_downstream_max_connections`.
    pub max_connections: Option<u64>,
    /// Envoy `Bootstrap.overload_manager`.
    pub overload: Option<Arc<overload::Overload>>,
    /// Those that all workers have.
    pub open: Arc<Total>,
}

impl Snapshot {
    /// The cluster with this id, if there is one.
    #[must_use]
    pub fn cluster(&self, id: ClusterId) -> Option<&Arc<Cluster>> {
        self.clusters.get(id.0 as usize)?.as_ref()
    }

    /// The clusters that are shown: those that files and control planes name.
    pub fn shown_clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.clusters.iter().flatten().filter(|cluster| cluster.google_prefix().is_none())
    }

    /// The id of a cluster name.
    #[must_use]
    pub fn cluster_id(&self, name: &str) -> Option<ClusterId> {
        self.cluster_ids.get(name).copied()
    }

    /// Whether there is a cluster of this name, and not only its name.
    #[must_use]
    pub(crate) fn has_cluster(&self, name: &str) -> bool {
        let cluster = self.cluster_id(name).and_then(|id| self.clusters.get(id.0 as usize));
        cluster.is_some_and(Option::is_some)
    }

    /// The id of a name, new if need be.
    pub fn intern(&mut self, name: &str) -> ClusterId {
        if let Some(id) = self.cluster_ids.get(name) {
            return *id;
        }
        let id = ClusterId(u32::try_from(self.clusters.len()).unwrap_or(u32::MAX));
        self.clusters.push(None);
        Arc::make_mut(&mut self.cluster_ids).insert(Arc::from(name), id);
        id
    }
}

/// A cluster name as a small number, the same in every generation of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId(pub u32);

impl ClusterId {
    /// The id of a cluster that requests had made, by a number that no other had.
    #[must_use]
    pub const fn of_sub(number: u32) -> Self {
        Self(Self::FIRST_SUB | number)
    }

    /// Whether no snapshot has it.
    #[must_use]
    pub const fn is_sub(self) -> bool {
        self.0 >= Self::FIRST_SUB
    }

    const FIRST_SUB: u32 = 1 << 31;
}

/// Who this proxy is. Envoy `core.v3.Node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `--service-node` or `node.id`.
    pub id: String,
    /// `--service-cluster` or `node.cluster`.
    pub cluster: String,
    /// `--service-zone` or `node.locality.zone`.
    pub zone: String,
    /// What `x-forwarded-for` says of clients on this machine, and of requests of this proxy's own.
    pub address: Option<IpAddr>,
}
