//! The labels of a scope in Prometheus' format.

use std::sync::Arc;

use super::Scope;

impl Scope {
    /// Its labels, in Envoy's order.
    #[must_use]
    pub fn labels(&self) -> Vec<(&'static str, String)> {
        let label = |name, value: &Arc<str>| (name, value.to_string());
        match self {
            Self::Bolt(prefix) => vec![label("towpath_bolt_prefix", prefix)],
            Self::Cluster(name)
            | Self::ClusterBolt(name)
            | Self::ClusterProxyHeader(name)
            | Self::ClusterPassing(name)
            | Self::ClusterBreakers(name)
            | Self::ClusterBudgets(name)
            | Self::ClusterHealthCheck(name)
            | Self::ClusterHttp2(name)
            | Self::ClusterMaglev(name)
            | Self::ClusterOutliers(name)
            | Self::ClusterRing(name)
            | Self::ClusterSizes(name)
            | Self::ClusterSubsets(name)
            | Self::ClusterZones(name)
            | Self::ClusterTls(name)
            | Self::ClusterTlsContext(name) => vec![label("envoy_cluster_name", name)],
            Self::ClusterAlt { cluster, .. } | Self::ClusterPart { cluster, .. } => {
                vec![label("envoy_cluster_name", cluster)]
            }
            Self::Filter { names, .. } => {
                names.labels.iter().map(|(name, value)| label(name, value)).collect()
            }
            Self::ClusterCertificate { cluster, name } => {
                vec![label("envoy_cluster_name", cluster), label("envoy_tls_certificate", name)]
            }
            Self::ClusterEndpoint { cluster, address } => {
                vec![label("envoy_cluster_name", cluster), label("envoy_endpoint_address", address)]
            }
            Self::ListenerCertificate { listener, name } => {
                vec![
                    label("envoy_listener_address", listener),
                    label("envoy_tls_certificate", name),
                ]
            }
            Self::ClusterGrpc { cluster, method, .. } => {
                let mut labels = vec![label("envoy_cluster_name", cluster)];
                if let Some((service, method)) = method {
                    labels.push(label("envoy_grpc_bridge_method", method));
                    labels.push(label("envoy_grpc_bridge_service", service));
                }
                labels
            }
            Self::GoogleGrpc(prefix) => vec![label("envoy_google_grpc_client_prefix", prefix)],
            Self::DnsCache(name) | Self::DnsCacheBreakers(name) => {
                vec![label("envoy_dns_cache_prefix", name)]
            }
            Self::Http(prefix) => vec![label("envoy_http_conn_manager_prefix", prefix)],
            Self::Istio { labels, .. } => {
                labels.iter().map(|(name, value)| (*name, value.to_string())).collect()
            }
            Self::Listener(address)
            | Self::ListenerTls(address)
            | Self::ListenerTlsContext(address) => {
                vec![label("envoy_listener_address", address)]
            }
            Self::ListenerHttp { listener, prefix } => vec![
                label("envoy_http_conn_manager_prefix", prefix),
                label("envoy_listener_address", listener),
            ],
            Self::ListenerWorker { listener, worker } => {
                vec![
                    ("envoy_worker_id", worker.to_string()),
                    label("envoy_listener_address", listener),
                ]
            }
            Self::LogService(prefix) if prefix.is_empty() => Vec::new(),
            Self::LogService(prefix) => vec![label("towpath_log_prefix", prefix)],
            // Envoy has these in the metric's name.
            Self::Extension { family, name } | Self::ExtensionUse { family, name } => {
                vec![label("towpath_extends", family), label("towpath_extension", name)]
            }
            Self::ProxyProtocol(prefix) if prefix.is_empty() => Vec::new(),
            Self::ProxyProtocol(prefix) => vec![label("envoy_proxy_protocol_prefix", prefix)],
            Self::ProxyProtocolVersion { prefix, version } => {
                let mut labels = vec![("envoy_proxy_protocol_version", version.to_string())];
                if !prefix.is_empty() {
                    labels.insert(0, label("envoy_proxy_protocol_prefix", prefix));
                }
                labels
            }
            Self::Route { host, name } => {
                vec![label("envoy_virtual_host", host), label("envoy_route", name)]
            }
            Self::Secret(name) | Self::SecretFiles(name) => {
                vec![label("envoy_xds_resource_name", name)]
            }
            Self::Tcp(prefix) => vec![label("envoy_tcp_prefix", prefix)],
            Self::VirtualCluster { host, name } => {
                vec![label("envoy_virtual_cluster", name), label("envoy_virtual_host", host)]
            }
            Self::RouteDiscovery { prefix, table } => vec![
                label("envoy_http_conn_manager_prefix", prefix),
                label("envoy_rds_route_config", table),
            ],
            Self::Driver(worker) => vec![("envoy_worker_id", worker.to_string())],
            Self::AccessLogs
            | Self::EntryLogs
            | Self::Exports
            | Self::ClusterDiscovery
            | Self::ClusterManager
            | Self::ControlPlane
            | Self::ListenerDiscovery
            | Self::Config
            | Self::Filesystem
            | Self::HealthDiscovery
            | Self::Http1
            | Self::Http2
            | Self::HttpInspector
            | Self::ListenerManager
            | Self::LoadReporter
            | Self::MetadataExchange
            | Self::HighMemory
            | Self::Overload(_)
            | Self::ProxyProtocolErrors
            | Self::Runtime
            | Self::RuntimeDiscovery
            | Self::Server
            | Self::TlsInspector
            | Self::Traces
            | Self::OpenTelemetry
            | Self::Zipkin => Vec::new(),
        }
    }
}
