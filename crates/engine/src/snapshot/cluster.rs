//! Where requests go. Envoy's `Cluster`, compiled.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Address, ConnectOptions, http1};

use super::dns::DnsOptions;
use super::happy_eyeballs::HappyEyeballs;
use super::health::{EndpointCheck, HealthCheck, OutlierDetection};
use super::http2::Http2;
pub use super::limits::{InUse, Limits};
use super::override_host::{HostSource, MetadataPath, OverrideHosts};
use super::passing::Passing;
use super::proxy_header::ProxyHeaders;
use super::route::{HashPolicy, Mirror};
use super::socket_choice::SocketChoice;
use super::subset::Subsets;
use super::tls::UpstreamTls;
use super::{BoltUpstream, BufferLimit, ClusterId};
use crate::field::Field;
use crate::filter::ChainFilter;
use crate::load_report::LoadReports;
use crate::mesh::{Greetings, MeshCluster, Workload};
use crate::proxied::Tlv;
use crate::retry_policy::RetryPolicy;
pub use crate::stats::GOOGLE_GRPC;
use crate::stream_info::FilterMetadata;
use crate::tally::{Tallies, Tally};
use crate::total::{HostTotals, Total};

/// Envoy `config.cluster.v3.Cluster`.
#[derive(Debug)]
pub struct Cluster {
    /// Its name.
    pub name: Arc<str>,
    /// `alt_stat_name`, or the name: `cluster.<stat_name>.…`.
    pub stat_name: Arc<str>,
    /// Where its endpoints come from.
    pub discovery: Discovery,
    /// Endpoints of a static cluster, and what a DNS cluster starts with.
    pub endpoints: Arc<[Endpoint]>,
    /// Its gauge `max_host_weight` is kept, as in Envoy of `EDS` and `STRICT_DNS` alone.
    pub shows_weights: bool,
    /// How a host is chosen.
    pub balancing: Balancing,
    /// `node.locality.zone`: requests are counted from there to the zones of hosts.
    pub own_zone: Option<Arc<str>>,
    /// `track_cluster_stats`: what is counted beside.
    pub tracks: Tracks,
    /// `zone_aware_lb_config`: which requests stay in this proxy's locality, where the bootstrap has a
    /// `local_cluster_name`.
    pub zones: Option<Arc<Zones>>,
    /// `lb_subset_config`: among which hosts, by what requests ask for.
    pub subsets: Option<Arc<Subsets>>,
    /// Which connections end when hosts change.
    pub ends: Ends,
    /// `envoy.load_balancing_policies.client_side_weighted_round_robin`: hosts weigh what they say of their load.
    pub load_reports: Option<Arc<LoadReports>>,
    /// `envoy.load_balancing_policies.override_host`: where requests name hosts, before any is chosen.
    pub override_hosts: Option<Arc<OverrideHosts>>,
    /// `connect_timeout`: default 5 s.
    pub connect_timeout: Duration,
    /// How to connect.
    pub connect: Arc<ConnectOptions>,
    /// `transport_socket`: TLS; plain text without.
    pub tls: Option<Box<UpstreamTls>>,
    /// `transport_socket_matches`: TLS, or plain text, of the endpoints that have one ([`Endpoint::socket`]).
    pub sockets: Vec<Option<Box<UpstreamTls>>>,
    /// `transport_socket_matcher`: what chooses among them, in place of the `match` of each.
    pub socket_choice: Option<Arc<SocketChoice>>,
    /// Which of them a host is spoken to by of which nothing is said.
    pub bare_socket: Option<u16>,
    /// The headers of the PROXY protocol with which connections begin, where some do.
    pub proxy_headers: Option<Box<ProxyHeaders>>,
    /// `internal_upstream`: what connections to listeners of this process take along, where some do.
    pub passing: Option<Box<Passing>>,
    /// `connection_pool_per_downstream_connection`: requests of different clients' connections share none.
    pub pool_per_client: bool,
    /// What these are called.
    pub socket_names: Vec<Arc<str>>,
    /// `per_connection_buffer_limit_bytes`.
    pub buffer_limit: BufferLimit,
    /// Circuit breakers of the default priority.
    pub limits: Limits,
    /// Circuit breakers of the high priority.
    pub high_limits: Limits,
    /// What is in use of both, by all workers.
    pub in_use: [InUse; 2],
    /// `per_host_thresholds`: how many connections there may be to a host, of the default and of the high priority.
    pub host_connections: [Option<u32>; 2],
    /// How many there are, by all workers, where that is limited.
    pub host_totals: HostTotals,
    /// `HttpProtocolOptions.common_http_protocol_options.idle_timeout`: default 1 h.
    pub idle_timeout: Option<Duration>,
    /// `max_connection_duration`.
    pub max_connection_duration: Option<Duration>,
    /// `max_stream_duration`: how long one attempt of a request may take, with its response.
    pub max_stream_duration: Option<Duration>,
    /// `preconnect_policy.per_upstream_preconnect_ratio` in thousandths, 1000 to 3000: for how many streams a healthy
    /// host has connections, for each thousand that are under way or wait.
    pub preconnect_milli: u32,
    /// `max_requests_per_connection`: 0 means no limit.
    pub max_requests_per_connection: u32,
    /// Options of the HTTP/1 codec.
    pub http1: Arc<http1::Options>,
    /// Whether and how its hosts are spoken to in HTTP/2.
    pub http2: Option<Arc<Http2>>,
    /// Bolt is spoken in place of HTTP.
    pub bolt: Option<Arc<BoltUpstream>>,
    /// `health_checks`: whether and how each host is asked how it is.
    pub health_check: Option<Arc<HealthCheck>>,
    /// `outlier_detection`: whether and when a host is left out for its answers.
    pub outliers: Option<Box<OutlierDetection>>,
    /// What outlier detection compares hosts by.
    pub tallies: Tallies,
    /// What a mesh says of it.
    pub mesh: Option<Arc<MeshCluster>>,
    /// `metadata.filter_metadata`, for `%METADATA%`.
    pub filter_metadata: FilterMetadata,
    /// `filters`: sidecars greet each other on connections of opaque bytes.
    pub greetings: Option<Arc<Greetings>>,
    /// `load_assignment.policy.drop_overloads`: which share of its requests is not served.
    pub drops: Option<Box<DropOverload>>,
    /// `upstream_http_protocol_options`: names that requests choose, of servers that are spoken to under TLS.
    pub asked_names: Option<AskedNames>,
    /// `HttpProtocolOptions.http_filters`: what each attempt of a request passes before its host, in order.
    pub filters: Vec<ChainFilter>,
    /// `HttpProtocolOptions.hash_policy`: what a request's hash is made of, in place of what its route says.
    pub hash: Vec<HashPolicy>,
    /// `HttpProtocolOptions.retry_policy`, in place of its route's, but for the times of one attempt.
    pub retry: Option<Arc<RetryPolicy>>,
    /// `HttpProtocolOptions.request_mirror_policies`, in place of its route's.
    pub mirrors: Option<Arc<[Mirror]>>,
}

impl Cluster {
    /// One of these hosts of which nothing else is said: Envoy's defaults, and no connection is limited.
    #[must_use]
    pub fn new(name: Arc<str>, endpoints: Arc<[Endpoint]>) -> Self {
        Self {
            stat_name: Arc::clone(&name),
            name,
            discovery: Discovery::Static,
            endpoints,
            shows_weights: false,
            balancing: Balancing::new(Balancer::RoundRobin),
            connect_timeout: Duration::from_secs(5),
            connect: Arc::default(),
            tls: None,
            sockets: Vec::new(),
            socket_names: Vec::new(),
            socket_choice: None,
            bare_socket: None,
            proxy_headers: None,
            passing: None,
            pool_per_client: false,
            buffer_limit: BufferLimit::strict(1 << 20),
            limits: Limits::default(),
            high_limits: Limits::default(),
            in_use: Default::default(),
            host_connections: [None; 2],
            host_totals: Default::default(),
            idle_timeout: Some(Duration::from_secs(3600)),
            max_connection_duration: None,
            max_stream_duration: None,
            preconnect_milli: 1000,
            max_requests_per_connection: 0,
            http1: Arc::default(),
            http2: None,
            bolt: None,
            health_check: None,
            outliers: None,
            subsets: None,
            override_hosts: None,
            load_reports: None,
            ends: Default::default(),
            own_zone: None,
            tracks: Tracks::default(),
            zones: None,
            tallies: Default::default(),
            mesh: None,
            filter_metadata: None,
            greetings: None,
            asked_names: None,
            filters: Vec::new(),
            hash: Vec::new(),
            retry: None,
            mirrors: None,
            drops: None,
        }
    }

    /// Of a cluster that carries calls of a `google_grpc`, which is not shown: the `stat_prefix` of their counters.
    #[must_use]
    pub fn google_prefix(&self) -> Option<&str> {
        self.stat_name.strip_prefix(GOOGLE_GRPC)
    }
}

/// Envoy `TrackClusterStats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracks {
    /// `timeout_budgets`: which part of their time requests took.
    pub timeout_budgets: bool,
    /// `request_response_sizes`: how large they and their answers were.
    pub sizes: bool,
    /// `per_endpoint_stats`: what each host has.
    pub endpoints: bool,
}

/// Which connections end when hosts change, beside those to hosts that are gone or not well any more: of these none is
/// used for another stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// `close_connections_on_host_health_failure`: opaque bytes to a host that is not well any more are cut.
    pub on_failure: bool,
    /// `close_connections_on_host_set_change`: when any host comes, goes or changes its health, no connection of the
    /// cluster is used for another stream.
    pub on_change: bool,
}

/// Envoy `ClusterLoadAssignment.Policy.DropOverload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropOverload {
    /// `drop_percentage`: so many of [`DropOverload::ALL`] requests.
    pub parts: u32,
    /// `category`: what load reports call them.
    pub category: Arc<str>,
}

impl DropOverload {
    /// All requests.
    pub const ALL: u32 = 1_000_000;
}

/// Envoy `UpstreamHttpProtocolOptions`: what a request's host is to the TLS of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedNames {
    /// `auto_sni`: the server is asked for by it, unless it is an address.
    pub sni: bool,
    /// `auto_san_validation`: the server's certificate must have it.
    pub certified: bool,
    /// `override_auto_sni_header`: the field that has it, where a request has one; else `:authority`.
    pub field: Option<Field>,
}

impl Cluster {
    /// Whether the choice of its hosts asks for what is only known of recorded streams.
    #[must_use]
    pub(crate) fn reads_records(&self) -> bool {
        let of_metadata = |source: &HostSource| matches!(source, HostSource::Metadata(_));
        matches!(&self.discovery, Discovery::OriginalDestination(it) if it.metadata.is_some())
            || self.hash.iter().any(HashPolicy::reads_record)
            || self.override_hosts.as_ref().is_some_and(|it| it.sources.iter().any(of_metadata))
            || self.chooses_by_state().is_some()
    }

    /// What chooses the socket of each connection, where the filter state of its stream has a say.
    pub(crate) fn chooses_by_state(&self) -> Option<&SocketChoice> {
        self.socket_choice.as_deref().filter(|choice| choice.reads_state())
    }

    /// Whether hosts of it are spoken to under TLS.
    #[must_use]
    pub fn is_under_tls(&self) -> bool {
        self.tls.is_some() || self.sockets.iter().any(Option::is_some)
    }

    /// Whether connections are made and spoken on as for another configuration. Secrets of a control plane are not
    /// compared.
    pub(crate) fn connects_like(&self, other: &Self) -> bool {
        let are_alike =
            |(one, other): (&Option<Box<UpstreamTls>>, &Option<Box<UpstreamTls>>)| match (
                one, other,
            ) {
                (None, None) => true,
                (Some(one), Some(other)) => one.is_like(other),
                (None, Some(_)) | (Some(_), None) => false,
            };
        are_alike((&self.tls, &other.tls))
            && self.sockets.len() == other.sockets.len()
            && self.sockets.iter().zip(&other.sockets).all(are_alike)
            && self.chooses_by_state().is_none()
            && other.chooses_by_state().is_none()
            && self.proxy_headers == other.proxy_headers
            && self.passing == other.passing
            && self.connect == other.connect
            && self.buffer_limit == other.buffer_limit
            && self.http1 == other.http1
            && self.http2 == other.http2
            && self.bolt == other.bolt
            && self.greetings == other.greetings
    }

    /// Whether the same statistics of hosts are kept for both.
    pub(crate) fn shows_like(&self, other: &Self) -> bool {
        let table = |it: &Self| std::mem::discriminant(&it.balancing.policy);
        self.stat_name == other.stat_name
            && self.socket_names == other.socket_names
            && table(self) == table(other)
    }

    /// Where all workers count their connections to a host, if these are limited.
    pub(crate) fn connections_of(&self, host: &Address) -> Option<Arc<Total>> {
        let is_limited = self.host_connections.iter().any(Option::is_some);
        is_limited.then(|| self.host_totals.open(host))
    }

    /// Whether its pools are limited.
    pub(crate) fn limits_pools(&self) -> bool {
        [&self.limits, &self.high_limits].iter().any(|limits| limits.pools != Limits::NONE)
    }

    /// Where a worker counts its attempts on a host, if hosts are compared.
    pub(crate) fn tally_of(&self, host: &Address) -> Option<Arc<Tally>> {
        self.outliers.as_ref().map(|_| self.tallies.open(host))
    }

    /// How many connections a worker has to each host, where that is not left to the number of streams.
    pub(crate) fn connections_per_host(&self) -> Option<u32> {
        self.bolt.as_ref().map(|bolt| bolt.connections_per_host)
    }
}

impl Cluster {
    /// The cluster of one name, of a cluster that has such: as that is configured, with all addresses of the name.
    #[must_use]
    pub fn sub_cluster(&self, name: &Arc<str>, host: &str, port: u16) -> Option<Self> {
        let Discovery::SubClusters(subs) = &self.discovery else { return None };
        let nowhere = Address::Ip(SocketAddr::from(([0; 4], 0)));
        let socket = self.bare_socket;
        let template = Endpoint { hostname: Arc::from(host), socket, ..Endpoint::new(nowhere) };
        let names = vec![DnsName { name: Arc::from(host), port, template }];
        let stat_name = subs.stat_name.clone();
        Some(Self {
            name: Arc::clone(name),
            stat_name: stat_name.unwrap_or_else(|| Arc::from(name.replace(':', "_"))),
            discovery: Discovery::Dns(Box::new(Dns { names, ..subs.dns.clone() })),
            endpoints: Arc::from([]),
            shows_weights: !subs.dns.logical,
            balancing: subs.balancing,
            own_zone: self.own_zone.clone(),
            tracks: self.tracks,
            zones: None,
            subsets: None,
            ends: self.ends,
            load_reports: None,
            override_hosts: None,
            connect_timeout: self.connect_timeout,
            connect: Arc::clone(&self.connect),
            tls: self.tls.clone(),
            sockets: self.sockets.clone(),
            socket_choice: self.socket_choice.clone(),
            bare_socket: self.bare_socket,
            proxy_headers: self.proxy_headers.clone(),
            passing: self.passing.clone(),
            pool_per_client: self.pool_per_client,
            socket_names: self.socket_names.clone(),
            buffer_limit: self.buffer_limit,
            limits: self.limits,
            high_limits: self.high_limits,
            in_use: Default::default(),
            host_connections: self.host_connections,
            host_totals: HostTotals::default(),
            idle_timeout: self.idle_timeout,
            max_connection_duration: self.max_connection_duration,
            max_stream_duration: self.max_stream_duration,
            preconnect_milli: self.preconnect_milli,
            max_requests_per_connection: self.max_requests_per_connection,
            http1: Arc::clone(&self.http1),
            http2: self.http2.clone(),
            bolt: self.bolt.clone(),
            health_check: self.health_check.clone(),
            outliers: self.outliers.clone(),
            tallies: Tallies::default(),
            mesh: self.mesh.clone(),
            filter_metadata: self.filter_metadata.clone(),
            greetings: self.greetings.clone(),
            drops: None,
            asked_names: self.asked_names.clone(),
            filters: self.filters.clone(),
            hash: self.hash.clone(),
            retry: self.retry.clone(),
            mirrors: self.mirrors.clone(),
        })
    }
}

/// Where endpoints come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Discovery {
    /// `STATIC`: from the file.
    Static,
    /// `STRICT_DNS`: every address of every name is a host. `LOGICAL_DNS`: the first address for new connections.
    Dns(Box<Dns>),
    /// `ORIGINAL_DST`: every address that a client wanted to go to is a host.
    OriginalDestination(OriginalDestination),
    /// `envoy.clusters.dynamic_forward_proxy`: every name that a request wants to go to is a host. The name of the DNS
    /// cache that knows their addresses.
    Named(Arc<str>),
    /// The same with `sub_clusters_config`: each of them is a cluster of its own, made when a request wants it.
    SubClusters(Box<SubClusters>),
    /// `envoy.clusters.aggregate`: the hosts of these, each behind those before it.
    Aggregate(Vec<ClusterId>),
}

/// Envoy `extensions.clusters.dynamic_forward_proxy.v3.SubClustersConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct SubClusters {
    /// `max_sub_clusters`: how many there may be at once, at least 1. Default 1024.
    pub most: u32,
    /// `sub_cluster_ttl`: one that no request was for goes after this. Default 5 min.
    pub ttl: Duration,
    /// `lb_policy`: how each chooses among the addresses of its name.
    pub balancing: Balancing,
    /// How names are resolved, but for the name itself.
    pub dns: Dns,
    /// What they are called in statistics, where the cluster's `alt_stat_name` says it.
    pub stat_name: Option<Arc<str>>,
}

/// How a request's host is known without a choice. Envoy `Cluster.OriginalDstLbConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalDestination {
    /// `metadata_key`: a request's `ADDRESS:PORT` in its dynamic metadata, before all else.
    pub metadata: Option<MetadataPath>,
    /// `http_header_name`, where `use_http_header` is on: a request's `ADDRESS:PORT`, before where its client went.
    pub header: Option<Field>,
    /// `upstream_port_override`.
    pub port: Option<u16>,
    /// `cleanup_interval`: how long a host stays that nothing asks for and nothing is connected to. Default 5 s.
    pub cleanup_interval: Duration,
}

/// How a DNS cluster resolves.
#[derive(Clone, Debug, PartialEq)]
pub struct Dns {
    /// `LOGICAL_DNS`.
    pub logical: bool,
    /// The names, with what an endpoint takes from the file.
    pub names: Vec<DnsName>,
    /// `dns_refresh_rate`: default 5 s.
    pub refresh: Duration,
    /// `dns_failure_refresh_rate`: base and maximum interval; the refresh rate where not set.
    pub failure_refresh: Option<(Duration, Duration)>,
    /// `respect_dns_ttl`.
    pub respect_ttl: bool,
    /// `dns_jitter`.
    pub jitter: Duration,
    /// `dns_lookup_family`.
    pub family: Family,
    /// `happy_eyeballs_config`: in which order the addresses of a logical host are connected to.
    pub eyeballs: HappyEyeballs,
    /// `dns_min_refresh_rate`: what holds for a shorter time is asked for after this.
    pub least_refresh: Duration,
    /// `dns_resolvers` or the resolver config.
    pub resolver: DnsOptions,
}

/// A name of a DNS cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsName {
    /// The name.
    pub name: Arc<str>,
    /// The port.
    pub port: u16,
    /// What its endpoints inherit.
    pub template: Endpoint,
}

/// `dns_lookup_family`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv6, else IPv4.
    #[default]
    Auto,
    /// IPv4 only.
    V4Only,
    /// IPv6 only.
    V6Only,
    /// IPv4, else IPv6.
    V4Preferred,
    /// Both.
    All,
}

/// An address that requests can go to. Envoy `LbEndpoint` in its locality.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Where.
    pub address: Address,
    /// That and its `additional_addresses`, or all addresses of a logical host, in the order in which they are
    /// connected to, where it has several.
    pub addresses: Option<Arc<[Address]>>,
    /// `hostname`, or the DNS name; for `auto_host_rewrite`.
    pub hostname: Arc<str>,
    /// `load_balancing_weight`: 1 to 2^32−1, default 1.
    pub weight: u32,
    /// The locality's priority, 0 first.
    pub priority: u32,
    /// `health_status` in the file.
    pub health: Health,
    /// The same as it is written there, which the session of a client may be about.
    pub status: HealthStatus,
    /// The locality's name as `region/zone/sub_zone`.
    pub locality: Arc<str>,
    /// `LocalityLbEndpoints.load_balancing_weight`; 0 when not set: then it has no traffic where others have a weight.
    pub locality_weight: u32,
    /// Which of the cluster's `sockets` it is spoken to by, in place of its `tls`.
    pub socket: Option<u16>,
    /// Its locality's metadata, where the sockets of its connections are chosen by it.
    pub locality_metadata: FilterMetadata,
    /// `health_check_config`: what is different when it is checked.
    pub check: Option<Arc<EndpointCheck>>,
    /// Who a mesh says that it is.
    pub workload: Option<Arc<Workload>>,
    /// `metadata.filter_metadata`, for `%METADATA%`.
    pub filter_metadata: FilterMetadata,
    /// What is added to the headers of the PROXY protocol with which connections to it begin. Envoy `PerHostConfig`.
    pub tlvs: Option<Arc<[Tlv]>>,
}

impl Endpoint {
    /// An endpoint at an address, with all else as Envoy has it when nothing is said.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self {
            address,
            addresses: None,
            hostname: Arc::from(""),
            weight: 1,
            priority: 0,
            health: Health::Healthy,
            status: HealthStatus::Unknown,
            locality: Arc::from(""),
            locality_weight: 0,
            socket: None,
            locality_metadata: None,
            check: None,
            workload: None,
            filter_metadata: None,
            tlvs: None,
        }
    }

    /// Whether it is left out of active checks.
    #[must_use]
    pub fn is_unchecked(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.disabled)
    }
}

/// Envoy `core.v3.HealthStatus`, as the file or a control plane says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Picked. `UNKNOWN` or `HEALTHY`.
    #[default]
    Healthy,
    /// Picked when too few healthy hosts are left. `DEGRADED`.
    Degraded,
    /// Not picked. `UNHEALTHY`, `DRAINING`, `TIMEOUT`.
    Unhealthy,
}

/// Envoy `HealthStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HealthStatus {
    /// `UNKNOWN`: as good as `HEALTHY`.
    #[default]
    Unknown,
    /// `HEALTHY`.
    Healthy,
    /// `UNHEALTHY`.
    Unhealthy,
    /// `DRAINING`: it takes no more traffic.
    Draining,
    /// `TIMEOUT`: its check was not answered.
    Timeout,
    /// `DEGRADED`.
    Degraded,
}

/// A set of [`HealthStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthStatuses(u8);

impl HealthStatuses {
    /// What Envoy takes where nothing is said: `UNKNOWN`, `HEALTHY` and `DEGRADED`.
    pub const USABLE: Self = Self(
        1 << HealthStatus::Unknown as u8
            | 1 << HealthStatus::Healthy as u8
            | 1 << HealthStatus::Degraded as u8,
    );

    /// Whether a status is one of them.
    #[must_use]
    pub const fn has(self, status: HealthStatus) -> bool {
        self.0 & (1 << status as u8) != 0
    }
}

impl FromIterator<HealthStatus> for HealthStatuses {
    fn from_iter<I: IntoIterator<Item = HealthStatus>>(statuses: I) -> Self {
        Self(statuses.into_iter().fold(0, |set, status| set | 1 << status as u8))
    }
}

/// How a host is chosen among those of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balancing {
    /// Among those that are eligible.
    pub policy: Balancer,
    /// `common_lb_config.healthy_panic_threshold` in percent; 0 never panics.
    pub panic_threshold: u8,
    /// `fail_traffic_on_panic`: in panic no host is chosen, not any.
    pub fails_in_panic: bool,
    /// `overprovisioning_factor` in percent, at least 1: a priority, or a locality, counts as whole until fewer than
    /// 100 in so many of its hosts are healthy. Default 140.
    pub overprovisioning: u32,
    /// `weighted_priority_health`: hosts count by their weights for how healthy a priority is.
    pub weighs_health: bool,
    /// `locality_weighted_lb_config`: a locality is chosen first, by its weight, then a host of it.
    pub weighs_localities: bool,
    /// `override_host_status`: which hosts a request may have that asks for one by its address.
    pub overridable: HealthStatuses,
    /// `slow_start_config`, of round robin and least request.
    pub slow_start: Option<SlowStart>,
}

/// Envoy `ZoneAwareLbConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// `local_cluster_name`: the cluster of the proxies that share their hosts.
    pub local: ClusterId,
    /// `node.locality`, as endpoints have it.
    pub locality: Option<Arc<str>>,
    /// `routing_enabled`: percent of the requests for which localities count. Default 100.
    pub enabled_percent: u8,
    /// `min_cluster_size`: with fewer healthy hosts localities do not count. Default 6.
    pub least_hosts: u64,
    /// `force_local_zone`: all requests stay where there are so many healthy hosts.
    pub forced: Option<u32>,
    /// `locality_basis`: hosts count by their weights.
    pub by_weight: bool,
}

/// Envoy `SlowStartConfig`: how the weight of a host grows that has just become healthy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowStart {
    /// `slow_start_window`: how long until it has all of it, more than 0, in whole milliseconds.
    pub window: Duration,
    /// `aggression`: more than 0. Default 1: it grows in proportion to time; above that faster at first.
    pub aggression: f64,
    /// `min_weight_percent`: the part that it has at least, 0 to 1. Default 0.1.
    pub least: f64,
}

impl Balancing {
    /// By a policy, with all else as Envoy has it when nothing is said.
    #[must_use]
    pub const fn new(policy: Balancer) -> Self {
        Self {
            policy,
            panic_threshold: 50,
            fails_in_panic: false,
            overprovisioning: 140,
            weighs_health: false,
            weighs_localities: false,
            overridable: HealthStatuses::USABLE,
            slow_start: None,
        }
    }
}

/// Envoy `Cluster.LbPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// `ROUND_ROBIN`, by weight.
    RoundRobin,
    /// `LEAST_REQUEST`: the less loaded of `choices` random hosts; with weights, round robin by weight over load.
    LeastRequest {
        /// `choice_count`: at least 2; 0 looks at all of them (`selection_method: FULL_SCAN`).
        choices: u32,
        /// `active_request_bias` in thousandths: default 1000.
        bias_milli: u32,
    },
    /// `RANDOM`, by weight.
    Random,
    /// `RING_HASH`: by a request's hash, on a ring.
    RingHash {
        /// `minimum_ring_size`: how many points there are at least. Default 1024.
        least: u64,
        /// `maximum_ring_size`: default 8 Mi.
        most: u64,
        /// `hash_function`, which places hosts.
        function: HashFunction,
        /// `use_hostname_for_hashing`.
        by_hostname: bool,
        /// `hash_balance_factor`: 100 or more, or 0 for no bound. A host has at most so many percent of its share of
        /// the requests under way.
        bound_percent: u32,
    },
    /// `MAGLEV`: by a request's hash, in a table.
    Maglev {
        /// `table_size`: a prime number. Default 65,537.
        size: u64,
        /// `use_hostname_for_hashing`.
        by_hostname: bool,
        /// `hash_balance_factor`, as for a ring.
        bound_percent: u32,
    },
}

impl Balancer {
    /// Whether hosts are hashed by their names.
    #[must_use]
    pub const fn is_by_hostname(self) -> bool {
        match self {
            Self::RingHash { by_hostname, .. } | Self::Maglev { by_hostname, .. } => by_hostname,
            Self::RoundRobin | Self::LeastRequest { .. } | Self::Random => false,
        }
    }

    /// What a host may have of its share of the requests under way, where a request's hash decides; 0 for all.
    #[must_use]
    pub const fn bound_percent(self) -> u32 {
        match self {
            Self::RingHash { bound_percent, .. } | Self::Maglev { bound_percent, .. } => {
                bound_percent
            }
            Self::RoundRobin | Self::LeastRequest { .. } | Self::Random => 0,
        }
    }

    /// Whether a request's hash decides.
    #[must_use]
    pub const fn is_hashed(self) -> bool {
        matches!(self, Self::RingHash { .. } | Self::Maglev { .. })
    }
}

/// Envoy `Cluster.RingHashLbConfig.HashFunction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashFunction {
    /// `XX_HASH`.
    #[default]
    XxHash,
    /// `MURMUR_HASH_2`.
    MurmurHash2,
}
