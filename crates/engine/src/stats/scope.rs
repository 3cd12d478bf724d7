//! What a set of statistics is about, as Envoy names it: a dotted prefix, or a metric's name and labels.

mod labels;
mod names;

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

pub use self::names::FilterNames;
use super::istio::Labels;
use crate::mesh::IstioMetric;

/// What a set of statistics is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// `towpath.access_log`.
    AccessLogs,
    /// `bolt.<stat prefix>`.
    Bolt(Arc<str>),
    /// `cluster.<name>`; `alt_stat_name` counts as the name.
    Cluster(Arc<str>),
    /// `cluster.<name>.bolt`.
    ClusterBolt(Arc<str>),
    /// `cluster.<name>.upstream.proxyprotocol`.
    ClusterProxyHeader(Arc<str>),
    /// `cluster.<name>.internal_upstream`
    ClusterPassing(Arc<str>),
    /// `cluster.<name>.circuit_breakers`.
    ClusterBreakers(Arc<str>),
    /// Of a cluster with `track_cluster_stats.timeout_budgets`.
    ClusterBudgets(Arc<str>),
    /// `cluster.<name>.endpoint.<address>`.
    ClusterEndpoint {
        /// The cluster.
        cluster: Arc<str>,
        /// The host's address, as access logs have it.
        address: Arc<str>,
    },
    /// `cluster.<name>.grpc.<service>.<method>`, and without the latter two.
    ClusterGrpc {
        /// The cluster.
        cluster: Arc<str>,
        /// What the client speaks.
        protocol: GrpcProtocol,
        /// Service and method.
        method: Option<(Arc<str>, Arc<str>)>,
    },
    /// `cluster.<name>.http2`.
    ClusterHttp2(Arc<str>),
    /// Of a cluster with `track_cluster_stats.request_response_sizes`.
    ClusterSizes(Arc<str>),
    /// Of a cluster whose requests are kept in zones.
    ClusterZones(Arc<str>),
    /// Of a cluster that has subsets.
    ClusterSubsets(Arc<str>),
    /// `cluster.<name>.health_check`.
    ClusterHealthCheck(Arc<str>),
    /// `cluster_manager.cds`.
    ClusterDiscovery,
    /// `cluster_manager`.
    ClusterManager,
    /// `cluster.<name>.maglev_lb`.
    ClusterMaglev(Arc<str>),
    /// `cluster.<name>.outlier_detection`.
    ClusterOutliers(Arc<str>),
    /// `cluster.<name>.ring_hash_lb`.
    ClusterRing(Arc<str>),
    /// `cluster.<name>.<name of a transport socket match>`, `cluster.<name>.zone.<one>.<other>`.
    ClusterPart {
        /// The cluster.
        cluster: Arc<str>,
        /// The match (`default` is the cluster's own socket), or both zones.
        name: Arc<str>,
    },
    /// `cluster.<name>.<another name>`, which requests say.
    ClusterAlt {
        /// The cluster.
        cluster: Arc<str>,
        /// The other name.
        name: Arc<str>,
    },
    /// `cluster.<name>.ssl`.
    ClusterTls(Arc<str>),
    /// `cluster.<name>.client_ssl_socket_factory`.
    ClusterTlsContext(Arc<str>),
    /// `cluster.<name>.ssl.certificate.<name>`.
    ClusterCertificate {
        /// The cluster.
        cluster: Arc<str>,
        /// The certificate.
        name: Arc<str>,
    },
    /// `towpath.config`.
    Config,
    /// `access_logs.grpc_access_log`.
    EntryLogs,
    /// `towpath.stats_sinks`.
    Exports,
    /// `control_plane`.
    ControlPlane,
    /// `towpath.worker_<n>`: a worker's driver.
    Driver(u32),
    /// `extension_config_discovery.<what is extended>.<name>`.
    Extension {
        /// `http_filter` and others.
        family: Arc<str>,
        /// The extension.
        name: Arc<str>,
    },
    /// The same, of what it is made use of.
    ExtensionUse {
        /// `http_filter` and others.
        family: Arc<str>,
        /// The extension.
        name: Arc<str>,
    },
    /// `filesystem`.
    Filesystem,
    /// What a filter counts, as the filter has named it.
    Filter {
        /// Its names.
        names: FilterNames,
        /// The type of the set: sets of two types may have one prefix.
        of: TypeId,
    },
    /// `grpc.<stat prefix>`: of a `google_grpc`.
    GoogleGrpc(Arc<str>),
    /// `overload`, and the name of a resource monitor, an action or a load shed point; it may be empty.
    Overload(Arc<str>),
    /// `envoy.overload_actions.reset_high_memory_stream`: of workers.
    HighMemory,
    /// `http.<stat prefix>`.
    Http(Arc<str>),
    /// `dns_cache.<name>`.
    DnsCache(Arc<str>),
    /// `dns_cache.<name>.circuit_breakers`.
    DnsCacheBreakers(Arc<str>),
    /// `http1`.
    Http1,
    /// `http2`.
    Http2,
    /// `istiocustom.<metric>`, and its labels: all of the statistic's name.
    Istio {
        /// The metric.
        metric: IstioMetric,
        /// Its labels.
        labels: Labels,
    },
    /// `listener.<address>`.
    Listener(Arc<str>),
    /// `listener.<address>.ssl`.
    ListenerTls(Arc<str>),
    /// `listener.<address>.server_ssl_socket_factory`.
    ListenerTlsContext(Arc<str>),
    /// `listener.<address>.http.<stat prefix>`.
    ListenerHttp {
        /// The listener's stat prefix.
        listener: Arc<str>,
        /// The connection manager's.
        prefix: Arc<str>,
    },
    /// `listener.<address>.ssl.certificate.<name>`.
    ListenerCertificate {
        /// The listener.
        listener: Arc<str>,
        /// The certificate.
        name: Arc<str>,
    },
    /// `listener_manager.lds`.
    ListenerDiscovery,
    /// `listener_manager`.
    ListenerManager,
    /// `listener.<address>.worker_<n>`.
    ListenerWorker {
        /// The listener's stat prefix.
        listener: Arc<str>,
        /// Which worker.
        worker: u32,
    },
    /// `hds_delegate`.
    HealthDiscovery,
    /// `load_reporter`.
    LoadReporter,
    /// `access_logs.open_telemetry_access_log.<stat prefix>`.
    LogService(Arc<str>),
    /// `metadata_exchange`.
    MetadataExchange,
    /// `proxy_proto.<stat prefix>`; the prefix may be empty.
    ProxyProtocol(Arc<str>),
    /// `proxy_proto.<stat prefix>.versions.v<version>`.
    ProxyProtocolVersion {
        /// The filter's; it may be empty.
        prefix: Arc<str>,
        /// 1 or 2.
        version: u8,
    },
    /// `downstream_cx_proxy_proto_error`.
    ProxyProtocolErrors,
    /// `tls_inspector`.
    TlsInspector,
    /// `http_inspector`.
    HttpInspector,
    /// `http.<stat prefix>.rds.<route table>`.
    RouteDiscovery {
        /// The connection manager's stat prefix.
        prefix: Arc<str>,
        /// The route table.
        table: Arc<str>,
    },
    /// `vhost.<virtual host>.route.<stat prefix>`.
    Route {
        /// The virtual host.
        host: Arc<str>,
        /// The route's stat prefix.
        name: Arc<str>,
    },
    /// `runtime`.
    Runtime,
    /// `runtime`, of what a control plane says of it.
    RuntimeDiscovery,
    /// `sds.<secret>`.
    Secret(Arc<str>),
    /// The same, of the files that a secret names.
    SecretFiles(Arc<str>),
    /// `server`.
    Server,
    /// `tcp.<stat prefix>`.
    Tcp(Arc<str>),
    /// `towpath.trace`.
    Traces,
    /// `vhost.<virtual host>.vcluster.<name>`.
    VirtualCluster {
        /// The virtual host.
        host: Arc<str>,
        /// The virtual cluster.
        name: Arc<str>,
    },
    /// `tracing.opentelemetry`.
    OpenTelemetry,
    /// `tracing.zipkin`.
    Zipkin,
}

/// How a call by gRPC comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GrpcProtocol {
    /// `grpc`.
    Grpc,
    /// `grpc-web`.
    GrpcWeb,
}

impl GrpcProtocol {
    const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::GrpcWeb => "grpc-web",
        }
    }

    const fn family(self) -> &'static str {
        match self {
            Self::Grpc => "cluster_grpc",
            Self::GrpcWeb => "cluster_grpc_web",
        }
    }
}

/// How the names of clusters begin that carry calls of a `google_grpc`, also those in statistics, where no name of a
/// file has a colon.
pub const GOOGLE_GRPC: &str = "google_grpc:";

impl Scope {
    /// Whether it is about a cluster that carries calls of a `google_grpc`, which is not shown.
    pub(super) fn is_hidden(&self) -> bool {
        let (Self::Cluster(name)
        | Self::ClusterBreakers(name)
        | Self::ClusterHttp2(name)
        | Self::ClusterTls(name)
        | Self::ClusterTlsContext(name)
        | Self::ClusterZones(name)
        | Self::ClusterAlt { cluster: name, .. }
        | Self::ClusterEndpoint { cluster: name, .. }
        | Self::ClusterPart { cluster: name, .. }
        | Self::ClusterCertificate { cluster: name, .. }) = self
        else {
            return false;
        };
        name.starts_with(GOOGLE_GRPC)
    }
}

impl fmt::Display for Scope {
    /// The dotted prefix, without a dot at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bolt(prefix) => write!(f, "bolt.{prefix}"),
            Self::Cluster(name)
            | Self::ClusterBudgets(name)
            | Self::ClusterSizes(name)
            | Self::ClusterSubsets(name)
            | Self::ClusterZones(name) => write!(f, "cluster.{name}"),
            Self::ClusterTls(name) => write!(f, "cluster.{name}.ssl"),
            Self::ClusterTlsContext(name) => write!(f, "cluster.{name}.client_ssl_socket_factory"),
            Self::ClusterCertificate { cluster, name } => {
                write!(f, "cluster.{cluster}.ssl.certificate.{name}")
            }
            Self::ListenerCertificate { listener, name } => {
                write!(f, "listener.{listener}.ssl.certificate.{name}")
            }
            Self::ClusterEndpoint { cluster, address } => {
                write!(f, "cluster.{cluster}.endpoint.{}", address.replace(':', "_"))
            }
            Self::ClusterGrpc { cluster, protocol, method: None } => {
                write!(f, "cluster.{cluster}.{}", protocol.name())
            }
            Self::ClusterGrpc { cluster, protocol, method: Some((service, method)) } => {
                write!(f, "cluster.{cluster}.{}.{service}.{method}", protocol.name())
            }
            Self::ClusterHttp2(name) => write!(f, "cluster.{name}.http2"),
            Self::ClusterBolt(name) => write!(f, "cluster.{name}.bolt"),
            Self::ClusterProxyHeader(name) => write!(f, "cluster.{name}.upstream.proxyprotocol"),
            Self::ClusterPassing(name) => write!(f, "cluster.{name}.internal_upstream"),
            Self::ClusterBreakers(name) => write!(f, "cluster.{name}.circuit_breakers"),
            Self::ClusterHealthCheck(name) => write!(f, "cluster.{name}.health_check"),
            Self::ClusterMaglev(name) => write!(f, "cluster.{name}.maglev_lb"),
            Self::ClusterOutliers(name) => write!(f, "cluster.{name}.outlier_detection"),
            Self::ClusterRing(name) => write!(f, "cluster.{name}.ring_hash_lb"),
            Self::ClusterAlt { cluster, name } | Self::ClusterPart { cluster, name } => {
                write!(f, "cluster.{cluster}.{name}")
            }
            Self::Extension { family, name } | Self::ExtensionUse { family, name } => {
                write!(f, "extension_config_discovery.{family}.{name}")
            }
            Self::Filter { names, .. } => f.write_str(&names.prefix),
            Self::GoogleGrpc(prefix) => write!(f, "grpc.{prefix}"),
            Self::HighMemory => f.write_str("envoy.overload_actions.reset_high_memory_stream"),
            Self::Overload(name) if name.is_empty() => f.write_str("overload"),
            Self::Overload(name) => write!(f, "overload.{name}"),
            Self::DnsCache(name) if name.is_empty() => f.write_str("dns_cache"),
            Self::DnsCache(name) => write!(f, "dns_cache.{name}"),
            Self::DnsCacheBreakers(name) => write!(f, "dns_cache.{name}.circuit_breakers"),
            Self::Http(prefix) => write!(f, "http.{prefix}"),
            Self::Istio { metric, labels } => {
                write!(f, "{ISTIO}.{}", metric.name())?;
                labels.iter().try_for_each(|(name, value)| write!(f, ".{name}.{value}"))
            }
            Self::Listener(address) => write!(f, "listener.{address}"),
            Self::ListenerTls(address) => write!(f, "listener.{address}.ssl"),
            Self::ListenerTlsContext(address) => {
                write!(f, "listener.{address}.server_ssl_socket_factory")
            }
            Self::ListenerHttp { listener, prefix } => {
                write!(f, "listener.{listener}.http.{prefix}")
            }
            Self::ListenerWorker { listener, worker } => {
                write!(f, "listener.{listener}.worker_{worker}")
            }
            Self::LogService(prefix) if prefix.is_empty() => {
                f.write_str("access_logs.open_telemetry_access_log")
            }
            Self::LogService(prefix) => {
                write!(f, "access_logs.open_telemetry_access_log.{}", prefix.trim_end_matches('.'))
            }
            Self::ProxyProtocol(prefix) if prefix.is_empty() => f.write_str("proxy_proto"),
            Self::ProxyProtocol(prefix) => write!(f, "proxy_proto.{prefix}"),
            Self::ProxyProtocolVersion { prefix, version } if prefix.is_empty() => {
                write!(f, "proxy_proto.versions.v{version}")
            }
            Self::ProxyProtocolVersion { prefix, version } => {
                write!(f, "proxy_proto.{prefix}.versions.v{version}")
            }
            Self::RouteDiscovery { prefix, table } => write!(f, "http.{prefix}.rds.{table}"),
            Self::Route { host, name } => write!(f, "vhost.{host}.route.{name}"),
            Self::Secret(name) | Self::SecretFiles(name) => write!(f, "sds.{name}"),
            Self::Tcp(prefix) => write!(f, "tcp.{prefix}"),
            Self::VirtualCluster { host, name } => write!(f, "vhost.{host}.vcluster.{name}"),
            Self::Driver(worker) => write!(f, "towpath.worker_{worker}"),
            Self::AccessLogs => f.write_str("towpath.access_log"),
            Self::EntryLogs => f.write_str("access_logs.grpc_access_log"),
            Self::Exports => f.write_str("towpath.stats_sinks"),
            Self::Traces => f.write_str("towpath.trace"),
            Self::OpenTelemetry => f.write_str("tracing.opentelemetry"),
            Self::Zipkin => f.write_str("tracing.zipkin"),
            Self::Config => f.write_str("towpath.config"),
            Self::ClusterDiscovery => f.write_str("cluster_manager.cds"),
            Self::ListenerDiscovery => f.write_str("listener_manager.lds"),
            Self::ClusterManager
            | Self::ControlPlane
            | Self::Filesystem
            | Self::HealthDiscovery
            | Self::Http1
            | Self::Http2
            | Self::ListenerManager
            | Self::LoadReporter
            | Self::HttpInspector
            | Self::MetadataExchange
            | Self::ProxyProtocolErrors
            | Self::Runtime
            | Self::RuntimeDiscovery
            | Self::Server
            | Self::TlsInspector => f.write_str(self.family()),
        }
    }
}

/// The name of a statistic behind its scope's; either may have none.
pub(super) fn joined(scope: &str, name: &str) -> String {
    match (scope, name) {
        (scope, "") => scope.to_owned(),
        ("", name) => name.to_owned(),
        (scope, name) => format!("{scope}.{name}"),
    }
}

/// What stands before the names of metrics that are not Envoy's own; Prometheus does not see it.
const ISTIO: &str = "istiocustom";

impl Scope {
    /// The whole name of one of its statistics.
    pub(super) fn full(&self, name: &str) -> String {
        joined(&self.to_string(), name)
    }

    /// The name of a metric of Prometheus.
    pub(super) fn metric(&self, name: &str) -> String {
        if let Self::Istio { metric, .. } = self {
            return metric.name().to_owned();
        }
        let part = if let Self::ClusterAlt { name: part, .. }
        | Self::ClusterPart { name: part, .. }
        | Self::Overload(part) = self
        {
            &**part
        } else {
            ""
        };
        if part.is_empty() {
            return format!("envoy_{}_{name}", self.family());
        }
        let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let part = part.replace(|it| !is_plain(it), "_");
        format!("envoy_{}_{part}_{name}", self.family())
    }

    /// The same without what labels say, where that is not to be found by looking.
    pub(super) fn without_labels(&self) -> Option<String> {
        if let Self::ClusterEndpoint { .. } = self {
            return Some("cluster.endpoint.".to_owned());
        }
        let Self::Istio { metric, .. } = self else { return None };
        Some(format!("{ISTIO}.{}", metric.name()))
    }

    /// What the names of its metrics begin with, after `envoy_`.
    #[must_use]
    pub const fn family(&self) -> &'static str {
        match self {
            Self::Bolt(_) => "bolt",
            Self::Cluster(_) => "cluster",
            Self::ClusterBolt(_) => "cluster_bolt",
            Self::ClusterProxyHeader(_) => "cluster_upstream_proxyprotocol",
            Self::ClusterPassing(_) => "cluster_internal_upstream",
            Self::ClusterBreakers(_) => "cluster_circuit_breakers",
            Self::ClusterHealthCheck(_) => "cluster_health_check",
            Self::ClusterEndpoint { .. } => "cluster_endpoint",
            Self::ClusterGrpc { protocol, .. } => protocol.family(),
            Self::ClusterHttp2(_) => "cluster_http2",
            Self::ClusterDiscovery => "cluster_manager_cds",
            Self::ClusterManager => "cluster_manager",
            Self::ControlPlane => "control_plane",
            Self::ClusterMaglev(_) => "cluster_maglev_lb",
            Self::ClusterOutliers(_) => "cluster_outlier_detection",
            Self::ClusterRing(_) => "cluster_ring_hash_lb",
            Self::ClusterAlt { .. }
            | Self::ClusterPart { .. }
            | Self::ClusterBudgets(_)
            | Self::ClusterSizes(_)
            | Self::ClusterSubsets(_)
            | Self::ClusterZones(_) => "cluster",
            Self::ClusterTls(_) => "cluster_ssl",
            Self::ClusterTlsContext(_) => "cluster_client_ssl_socket_factory",
            Self::ClusterCertificate { .. } => "cluster_ssl_certificate",
            Self::ListenerCertificate { .. } => "listener_ssl_certificate",
            Self::GoogleGrpc(_) => "grpc",
            Self::AccessLogs => "towpath_access_log",
            Self::EntryLogs => "access_logs_grpc_access_log",
            Self::Exports => "towpath_stats_sinks",
            Self::Config => "towpath_config",
            Self::Driver(_) => "towpath_worker",
            Self::Filesystem => "filesystem",
            Self::Filter { names, .. } => names.family,
            Self::HighMemory => "envoy_overload_actions_reset_high_memory_stream",
            Self::Overload(_) => "overload",
            Self::Http(_) => "http",
            Self::DnsCache(_) => "dns_cache",
            Self::DnsCacheBreakers(_) => "dns_cache_circuit_breakers",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Istio { metric, .. } => metric.name(),
            Self::Listener(_) => "listener",
            Self::ListenerHttp { .. } => "listener_http",
            Self::ListenerTls(_) => "listener_ssl",
            Self::ListenerTlsContext(_) => "listener_server_ssl_socket_factory",
            Self::ListenerDiscovery => "listener_manager_lds",
            Self::ListenerManager => "listener_manager",
            Self::ListenerWorker { .. } => "listener_worker",
            Self::HealthDiscovery => "hds_delegate",
            Self::LoadReporter => "load_reporter",
            Self::LogService(_) => "access_logs_open_telemetry_access_log",
            Self::MetadataExchange => "metadata_exchange",
            Self::ProxyProtocol(_) | Self::ProxyProtocolVersion { .. } => "proxy_proto",
            Self::ProxyProtocolErrors => "downstream_cx_proxy_proto_error",
            Self::TlsInspector => "tls_inspector",
            Self::HttpInspector => "http_inspector",
            Self::RouteDiscovery { .. } => "http_rds",
            Self::Route { .. } => "vhost_route",
            Self::Runtime | Self::RuntimeDiscovery => "runtime",
            Self::Secret(_) | Self::SecretFiles(_) => "sds",
            Self::Extension { .. } | Self::ExtensionUse { .. } => "extension_config_discovery",
            Self::Server => "server",
            Self::Tcp(_) => "tcp",
            Self::Traces => "towpath_trace",
            Self::VirtualCluster { .. } => "vhost_vcluster",
            Self::OpenTelemetry => "tracing_opentelemetry",
            Self::Zipkin => "tracing_zipkin",
        }
    }
}
