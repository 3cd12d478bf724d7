//! The labels of a scope in Prometheus' format.

use std::sync::Arc;

use super::Scope;

impl Scope {
    /// Its labels, in Envoy's order.
    #[must_use]
    pub fn labels(&self) -> Vec<(&'static str, String)> {
        let label = |name, value: &Arc<str>| (name, value.to_string());
        let both = |first, name, prefix: &Arc<str>| {
            let second = (!prefix.is_empty()).then(|| label(name, prefix));
            std::iter::once(first).chain(second).collect()
        };
        match self {
            Self::Bolt(prefix) => vec![label("towpath_bolt_prefix", prefix)],
            Self::Cluster(name)
            | Self::ClusterBolt(name)
            | Self::ClusterProxyHeader(name)
            | Self::ClusterBreakers(name)
            | Self::ClusterHealthCheck(name)
            | Self::ClusterHttp2(name)
            | Self::ClusterMaglev(name)
            | Self::ClusterOutliers(name)
            | Self::ClusterRing(name)
            | Self::ClusterSubsets(name)
            | Self::ClusterZones(name)
            | Self::ClusterTls(name)
            | Self::ClusterTlsContext(name) => vec![label("envoy_cluster_name", name)],
            Self::ClusterPart { cluster, .. } => vec![label("envoy_cluster_name", cluster)],
            Self::ClusterExtAuthz { cluster, prefix } => {
                both(label("envoy_cluster_name", cluster), "envoy_ext_authz_prefix", prefix)
            }
            Self::ClusterRateLimit { cluster, prefix } => {
                both(label("envoy_cluster_name", cluster), "towpath_ratelimit_prefix", prefix)
            }
            Self::HttpExtAuthz { http, prefix } => {
                let mut labels = vec![label("envoy_http_conn_manager_prefix", http)];
                if !prefix.is_empty() {
                    labels.insert(0, label("envoy_ext_authz_prefix", prefix));
                }
                labels
            }
            Self::HttpExtProc { http, prefix } => {
                let mut labels = vec![label("envoy_http_conn_manager_prefix", http)];
                if !prefix.is_empty() {
                    labels.insert(0, label("towpath_ext_proc_prefix", prefix));
                }
                labels
            }
            Self::ClusterCertificate { cluster, name } => {
                vec![label("envoy_cluster_name", cluster), label("envoy_tls_certificate", name)]
            }
            Self::ListenerCertificate { listener, name } => {
                vec![
                    label("envoy_listener_address", listener),
                    label("envoy_tls_certificate", name),
                ]
            }
            Self::FaultCluster { http, cluster } => vec![
                label("envoy_fault_downstream_cluster", cluster),
                label("envoy_http_conn_manager_prefix", http),
            ],
            Self::JwtAuthn { http, prefix } => both(
                label("envoy_http_conn_manager_prefix", http),
                "envoy_jwt_authn_prefix",
                prefix,
            ),
            Self::OAuth2 { http, prefix } => {
                let manager = http.iter();
                let mut labels: Vec<_> =
                    manager.map(|http| label("envoy_http_conn_manager_prefix", http)).collect();
                if !prefix.is_empty() {
                    labels.push(label("towpath_oauth2_prefix", prefix));
                }
                labels
            }
            Self::StatefulSession { http, prefix } => vec![
                label("envoy_http_conn_manager_prefix", http),
                label("towpath_stateful_session_prefix", prefix),
            ],
            Self::ClusterGrpc { cluster, method, .. } => {
                let mut labels = vec![label("envoy_cluster_name", cluster)];
                if let Some((service, method)) = method {
                    labels.push(label("envoy_grpc_bridge_method", method));
                    labels.push(label("envoy_grpc_bridge_service", service));
                }
                labels
            }
            Self::GoogleGrpc(prefix) => vec![label("envoy_google_grpc_client_prefix", prefix)],
            Self::ConnectionLimit(prefix) => vec![label("envoy_connection_limit_prefix", prefix)],
            Self::DnsCache(name) | Self::DnsCacheBreakers(name) => {
                vec![label("envoy_dns_cache_prefix", name)]
            }
            Self::HeaderToMetadata(prefix) => {
                vec![label("towpath_header_to_metadata_prefix", prefix)]
            }
            Self::HttpFilter { prefix, family } if family.starts_with("cluster_") => {
                vec![label("envoy_cluster_name", prefix)]
            }
            Self::Http(prefix) | Self::HttpTranscoder(prefix) | Self::HttpFilter { prefix, .. } => {
                vec![label("envoy_http_conn_manager_prefix", prefix)]
            }
            Self::HttpCompression { http, part, .. } => vec![
                label("envoy_http_conn_manager_prefix", http),
                label("towpath_compression_library", part),
            ],
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
            Self::ConnectionRate(prefix) => {
                vec![label("envoy_local_listener_ratelimit_prefix", prefix)]
            }
            Self::ChainRate(prefix) => vec![label("envoy_local_network_ratelimit_prefix", prefix)],
            Self::LocalRateLimit(prefix) => {
                vec![label("envoy_local_http_ratelimit_prefix", prefix)]
            }
            Self::BandwidthLimit(prefix) => {
                vec![label("envoy_http_bandwidth_limit_prefix", prefix)]
            }
            Self::LogService(prefix) if prefix.is_empty() => Vec::new(),
            Self::LogService(prefix) => vec![label("towpath_log_prefix", prefix)],
            Self::Lua { http, prefix } => {
                both(label("envoy_http_conn_manager_prefix", http), "towpath_lua_prefix", prefix)
            }
            // Envoy has these in the metric's name.
            Self::Extension { family, name } | Self::ExtensionUse { family, name } => {
                vec![label("towpath_extends", family), label("towpath_extension", name)]
            }
            Self::NetworkRbac { prefix, rules, .. } => {
                both(label("envoy_rbac_prefix", prefix), "towpath_rbac_rules_prefix", rules)
            }
            Self::HttpRbac { http, rules, .. } => {
                both(label("envoy_http_conn_manager_prefix", http), "envoy_rbac_http_prefix", rules)
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
