//! Messages to what the engine obeys. What arrives: a merged bootstrap. What leaves: a
//! [`Snapshot`] and [`Bootstrap`] facts.
//!
//! Conversion goes on after an error, so that one run reports all of them; what it then builds is thrown away.

mod access_log;
mod address;
mod aggregate;
mod balancer;
mod bolt;
mod bootstrap;
mod bridge;
mod client;
mod cluster;
mod collections;
mod data;
pub(crate) mod discovery;
mod dns;
mod downstream_tls;
mod endpoint;
mod expression;
mod extension;
mod extension_discovery;
mod facts;
pub(crate) mod filter;
mod filter_chain;
mod forward_proxy;
mod google_grpc;
mod grpc_service;
mod hash_policy;
mod header_ops;
mod health;
mod http;
mod http2;
mod http_filter;
mod internal_redirect;
mod internal_upstream;
pub(crate) mod istio;
mod key_log;
mod listener;
mod load_report;
pub(crate) mod log_entry;
pub(crate) mod log_service;
mod matcher;
mod matcher_tree;
mod metadata;
mod nearest;
pub(crate) mod network_filter;
mod original_dst;
mod outlier;
mod overload;
mod override_host;
mod path_template;
mod proxy_protocol;
mod rbac;
mod retry;
mod route;
mod route_action;
mod route_table;
mod runtime;
mod secret;
mod socket_match;
mod specifier;
pub(crate) mod stats_sink;
mod subset;
mod tcp_proxy;
mod tls;
mod tls_parameters;
mod tracing;
mod upstream;
mod zone;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use towpath_engine::network_filter::local_ratelimit::ConnectionRate;
use towpath_engine::snapshot::listener::Direction;
use towpath_engine::snapshot::log::Sink;
use towpath_engine::snapshot::tls::Certificates;
use towpath_engine::snapshot::tracing::Provider;
use towpath_engine::snapshot::{ClusterId, SinkId, Snapshot};

use discovery::Discovered;
pub use discovery::{ConfigSource, Discovery, From, Grpc, Need, RequestLimit};
pub use facts::{Admin, Bootstrap, Locality, Node, Push, PushTarget, Stats, StatsTag};
use istio::MeshNode;
pub use runtime::{Disks, LayerKind, Runtime, RuntimeLayer};

use crate::base::{Base, Prints};
use crate::dynamic::{Conflict, Kind};
use crate::load::Options;
use crate::message::{At, Message};
use crate::report::Report;
use crate::rules::Rules;
use crate::support;

/// Makes a snapshot. Everything that conversion needs is in here; every part of it is a method in its own file.
pub(crate) struct Converter<'a> {
    /// The bootstrap.
    pub(crate) message: &'a Message,
    pub(crate) report: &'a mut Report,
    pub(crate) rules: Rules,
    pub(crate) options: &'a Options,
    pub(crate) snapshot: Snapshot,
    pub(crate) runtime: Runtime,
    /// What serves meanwhile.
    pub(crate) base: &'a Base,
    /// Ids that new names may take.
    pub(crate) free: Vec<ClusterId>,
    pub(crate) prints: Prints,
    /// A digest of what files and other sources held for the cluster or listener at hand.
    pub(crate) files: u64,
    /// The same of secrets that a control plane gave.
    pub(crate) rotating: u64,
    /// The files that those name, by the text of the secret.
    pub(crate) secret_files: BTreeSet<(usize, Arc<str>)>,
    /// The cluster at hand has something of such a file.
    pub(crate) has_secret_file: bool,
    /// For each cluster that was converted its name, if it would come to the same again.
    pub(crate) repeatable: Vec<Option<Arc<str>>>,
    /// The certificates of the TLS context at hand.
    pub(crate) certificates: Certificates,
    /// Those that contexts share.
    pub(crate) shared_certificates: HashSet<Arc<[u8]>>,
    /// What clusters share.
    pub(crate) shared: cluster::Shared,
    /// A secret of the TLS context at hand is not there yet.
    pub(crate) awaits_secret: bool,
    /// What a control plane has given.
    pub(crate) discovered: &'a Discovered<'a>,
    /// The bootstrap has an `ads_config`.
    pub(crate) has_ads: bool,
    /// Clusters of the bootstrap that may be control planes.
    pub(crate) control_planes: HashSet<&'a str>,
    /// Whom each resource is asked of.
    pub(crate) sources: HashMap<(Kind, Arc<str>), From>,
    /// What the cluster or listener at hand asks for.
    pub(crate) needs_of_one: Vec<Need>,
    /// What clusters and listeners ask for, by their kind and name.
    pub(crate) needs: Needs,
    /// Clusters that the cluster or listener at hand calls and that no file names.
    pub(crate) own_clusters: BTreeSet<Arc<str>>,
    /// Secrets that all may name.
    pub(crate) named_secrets: Vec<&'a Message>,
    /// A digest of them.
    pub(crate) secrets: u64,
    /// Clusters that Bolt is sent to, and who says so.
    pub(crate) bolt_clusters: Vec<(ClusterId, At)>,
    /// Clusters that HTTP is sent to, and who says so.
    pub(crate) http_clusters: Vec<(ClusterId, At)>,
    /// The tracer of connection managers that name none, and a digest of it.
    pub(crate) common_provider: Option<(Arc<Provider>, u64)>,
    /// Buckets for connections that filters share.
    pub(crate) shared_rates: Vec<ConnectionRate>,
    /// There is a bootstrap extension for them.
    pub(crate) has_internal_listeners: bool,
    /// `traffic_direction` of the listener at hand.
    pub(crate) direction: Direction,
    /// The node as servers are told of it, encoded.
    pub(crate) node_bytes: Bytes,
    /// Who this proxy is in a mesh.
    pub(crate) mesh_node: Arc<MeshNode>,
    /// The name of the listener at hand.
    pub(crate) listener: Arc<str>,
    /// Extensions of a control plane that are not for a listener that asks for them.
    pub(crate) conflicts: BTreeSet<Conflict>,
}

/// What clusters and listeners ask for, by their kind and name. Those that ask for nothing are in it too.
pub(crate) type Needs = HashMap<(Kind, Arc<str>), Vec<Need>>;

impl Converter<'_> {
    /// Applies the protos' rules and the table of support to a message that is about to be converted.
    fn accept(&mut self, message: &Message) {
        self.rules.check(message, self.report);
        support::check(message, self.report);
    }

    /// The number of a destination of log lines.
    fn sink(&mut self, sink: Sink) -> SinkId {
        let sinks = &mut self.snapshot.sinks;
        let index = sinks.iter().position(|known| *known == sink).unwrap_or_else(|| {
            sinks.push(sink);
            sinks.len() - 1
        });
        SinkId(u32::try_from(index).unwrap_or(u32::MAX))
    }
}
