//! The messages of a specifier, and those of the clusters that it comes to, as far as they are looked at here. What is
//! not stays encoded. `envoy/service/health/v3/hds.proto`, `envoy/config/cluster/v3/cluster.proto`,
//! `envoy/config/endpoint/v3/endpoint_components.proto`, `envoy/config/core/v3/health_check.proto`.

use bytes::{BufMut, Bytes, BytesMut};
use prost::{DecodeError, Message as _};
use towpath_xds::wire::Duration;

/// `HealthCheckSpecifier`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckSpecifier {
    #[prost(message, repeated, tag = "1")]
    pub(super) cluster_health_checks: Vec<ClusterHealthCheck>,
    #[prost(message, optional, tag = "2")]
    pub(super) interval: Option<Duration>,
}

/// `ClusterHealthCheck`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClusterHealthCheck {
    #[prost(string, tag = "1")]
    pub(super) cluster_name: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) health_checks: Vec<Bytes>,
    #[prost(message, repeated, tag = "3")]
    pub(super) locality_endpoints: Vec<LocalityEndpoints>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) transport_socket_matches: Vec<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub(super) upstream_bind_config: Option<Bytes>,
}

/// `LocalityEndpoints`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LocalityEndpoints {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) locality: Option<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) endpoints: Vec<Bytes>,
}

/// `Endpoint`, as it is looked at.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CheckedEndpoint {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Place>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) health_check_config: Option<Bytes>,
}

/// `Endpoint.HealthCheckConfig`, as it is looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct EndpointCheck {
    #[prost(bool, tag = "4")]
    disable_active_health_check: bool,
}

impl CheckedEndpoint {
    /// It is not to be checked, nor reported.
    pub(super) fn is_left_alone(&self) -> bool {
        let config = self.health_check_config.clone().map(EndpointCheck::decode);
        matches!(config, Some(Ok(EndpointCheck { disable_active_health_check: true })))
    }
}

/// `core.v3.Address`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Place {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
    #[prost(message, optional, tag = "2")]
    pub(super) pipe: Option<Pipe>,
}

/// `core.v3.SocketAddress`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
    #[prost(uint32, optional, tag = "3")]
    pub(super) port_value: Option<u32>,
}

/// `core.v3.Pipe`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Pipe {
    #[prost(string, tag = "1")]
    pub(super) path: String,
}

/// `core.v3.HealthCheck`, as it is looked at.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheck {
    #[prost(message, optional, tag = "8")]
    http_health_check: Option<HttpHealthCheck>,
    #[prost(message, optional, tag = "11")]
    pub(super) grpc_health_check: Option<GrpcHealthCheck>,
    #[prost(string, tag = "17")]
    event_log_path: String,
    #[prost(bytes = "bytes", repeated, tag = "25")]
    event_logger: Vec<Bytes>,
}

/// `core.v3.HealthCheck.HttpHealthCheck`, as it is looked at.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpHealthCheck {
    #[prost(string, tag = "1")]
    host: String,
}

/// `core.v3.HealthCheck.GrpcHealthCheck`, as it is looked at.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GrpcHealthCheck {
    #[prost(string, tag = "2")]
    authority: String,
}

impl HealthCheck {
    /// Whether files are to be written.
    pub(super) fn logs(&self) -> bool {
        !self.event_log_path.is_empty() || !self.event_logger.is_empty()
    }

    /// The check `encoded`, which asks in this name where it says none. What stands twice in a message is merged.
    pub(super) fn naming(&self, name: &str, encoded: &Bytes) -> Bytes {
        let http = self.http_health_check.as_ref().filter(|http| http.host.is_empty());
        let grpc = self.grpc_health_check.as_ref().filter(|grpc| grpc.authority.is_empty());
        let more = Self {
            http_health_check: http.map(|_| HttpHealthCheck { host: name.to_owned() }),
            grpc_health_check: grpc.map(|_| GrpcHealthCheck { authority: name.to_owned() }),
            ..Self::default()
        };
        let mut whole = BytesMut::from(&encoded[..]);
        whole.put_slice(&more.encode_to_vec());
        whole.freeze()
    }
}

/// `Cluster`, as it is written.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Cluster {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "4")]
    connect_timeout: Option<Duration>,
    #[prost(message, optional, tag = "5")]
    per_connection_buffer_limit_bytes: Option<u32>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub(super) health_checks: Vec<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "14")]
    pub(super) http2_protocol_options: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "21")]
    upstream_bind_config: Option<Bytes>,
    #[prost(string, tag = "28")]
    pub(super) alt_stat_name: String,
    #[prost(message, optional, tag = "33")]
    load_assignment: Option<LoadAssignment>,
    #[prost(bytes = "bytes", repeated, tag = "43")]
    transport_socket_matches: Vec<Bytes>,
}

/// `ClusterLoadAssignment`.
#[derive(Clone, PartialEq, prost::Message)]
struct LoadAssignment {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LocalityLbEndpoints>,
}

/// `LocalityLbEndpoints`.
#[derive(Clone, PartialEq, prost::Message)]
struct LocalityLbEndpoints {
    #[prost(bytes = "bytes", optional, tag = "1")]
    locality: Option<Bytes>,
    #[prost(message, repeated, tag = "2")]
    lb_endpoints: Vec<LbEndpoint>,
}

/// `LbEndpoint`.
#[derive(Clone, PartialEq, prost::Message)]
struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    endpoint: Option<Endpoint>,
}

/// `Endpoint`, as it is written.
#[derive(Clone, PartialEq, prost::Message)]
struct Endpoint {
    #[prost(bytes = "bytes", optional, tag = "1")]
    address: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    health_check_config: Option<Bytes>,
}

impl Cluster {
    /// One with the endpoints of a cluster that are to be checked, and how they are spoken to.
    pub(super) fn of(check: &ClusterHealthCheck) -> Result<Self, DecodeError> {
        let mut endpoints = Vec::new();
        for group in &check.locality_endpoints {
            let mut lb_endpoints = Vec::new();
            for endpoint in &group.endpoints {
                if CheckedEndpoint::decode(endpoint.clone())?.is_left_alone() {
                    continue;
                }
                let endpoint = Some(Endpoint::decode(endpoint.clone())?);
                lb_endpoints.push(LbEndpoint { endpoint });
            }
            endpoints.push(LocalityLbEndpoints { locality: group.locality.clone(), lb_endpoints });
        }
        let cluster_name = "hds".to_owned();
        Ok(Self {
            connect_timeout: Some(CONNECT_TIMEOUT),
            per_connection_buffer_limit_bytes: Some(BUFFER_BYTES),
            upstream_bind_config: check.upstream_bind_config.clone(),
            load_assignment: Some(LoadAssignment { cluster_name, endpoints }),
            transport_socket_matches: check.transport_socket_matches.clone(),
            ..Self::default()
        })
    }
}

/// Envoy's `ClusterTimeoutSeconds`.
const CONNECT_TIMEOUT: Duration = Duration { seconds: 1, nanos: 0 };
/// Envoy's `ClusterConnectionBufferLimitBytes`.
const BUFFER_BYTES: u32 = 32_768;
