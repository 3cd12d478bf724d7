//! The messages of load reports, as far as they are written and read here. `envoy/service/load_stats/v3/lrs.proto`,
//! `envoy/config/endpoint/v3/load_report.proto`.

use bytes::Bytes;
use towpath_proto::Address as Place;
use towpath_xds::wire::Duration;

/// `LoadStatsRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LoadStatsRequest {
    /// A `Node`, encoded.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) node: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub(super) cluster_stats: Vec<ClusterStats>,
}

/// `LoadStatsResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LoadStatsResponse {
    #[prost(string, repeated, tag = "1")]
    pub(super) clusters: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) load_reporting_interval: Option<Duration>,
    #[prost(bool, tag = "3")]
    pub(super) report_endpoint_granularity: bool,
    #[prost(bool, tag = "4")]
    pub(super) send_all_clusters: bool,
}

/// `ClusterStats`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClusterStats {
    #[prost(string, tag = "1")]
    pub(super) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) upstream_locality_stats: Vec<LocalityStats>,
    #[prost(uint64, tag = "3")]
    pub(super) total_dropped_requests: u64,
    #[prost(message, optional, tag = "4")]
    pub(super) load_report_interval: Option<Duration>,
    #[prost(message, repeated, tag = "5")]
    pub(super) dropped_requests: Vec<DroppedRequests>,
    #[prost(string, tag = "6")]
    pub(super) cluster_service_name: String,
}

/// `ClusterStats.DroppedRequests`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DroppedRequests {
    #[prost(string, tag = "1")]
    pub(super) category: String,
    #[prost(uint64, tag = "2")]
    pub(super) dropped_count: u64,
}

/// `UpstreamLocalityStats`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LocalityStats {
    #[prost(message, optional, tag = "1")]
    pub(super) locality: Option<Locality>,
    #[prost(uint64, tag = "2")]
    pub(super) total_successful_requests: u64,
    #[prost(uint64, tag = "3")]
    pub(super) total_requests_in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub(super) total_error_requests: u64,
    #[prost(uint32, tag = "6")]
    pub(super) priority: u32,
    #[prost(message, repeated, tag = "7")]
    pub(super) upstream_endpoint_stats: Vec<EndpointStats>,
    #[prost(uint64, tag = "8")]
    pub(super) total_issued_requests: u64,
}

/// `UpstreamEndpointStats`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EndpointStats {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
    #[prost(uint64, tag = "2")]
    pub(super) total_successful_requests: u64,
    #[prost(uint64, tag = "3")]
    pub(super) total_requests_in_progress: u64,
    #[prost(uint64, tag = "4")]
    pub(super) total_error_requests: u64,
    #[prost(uint64, tag = "7")]
    pub(super) total_issued_requests: u64,
}

/// `core.v3.Locality`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Locality {
    #[prost(string, tag = "1")]
    pub(super) region: String,
    #[prost(string, tag = "2")]
    pub(super) zone: String,
    #[prost(string, tag = "3")]
    pub(super) sub_zone: String,
}

/// `core.v3.Address`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(crate) socket_address: Option<SocketAddress>,
    #[prost(message, optional, tag = "2")]
    pub(crate) pipe: Option<Pipe>,
    #[prost(message, optional, tag = "3")]
    pub(crate) envoy_internal_address: Option<InternalAddress>,
}

/// `core.v3.SocketAddress`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    #[prost(uint32, tag = "3")]
    pub(crate) port_value: u32,
}

/// `core.v3.Pipe`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Pipe {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
}

/// `core.v3.EnvoyInternalAddress`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct InternalAddress {
    #[prost(string, tag = "1")]
    pub(crate) server_listener_name: String,
}

impl Locality {
    /// From `region/zone/sub_zone`.
    pub(super) fn of(text: &str) -> Self {
        let mut parts = text.splitn(3, '/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Self { region: next(), zone: next(), sub_zone: next() }
    }
}

impl Address {
    pub(crate) fn of(place: &Place) -> Self {
        match place {
            Place::Ip(ip) => {
                let (address, port_value) = (ip.ip().to_string(), ip.port().into());
                let socket_address = Some(SocketAddress { address, port_value });
                Self { socket_address, ..Self::default() }
            }
            Place::Unix(path) => {
                let path = path.display().to_string();
                Self { pipe: Some(Pipe { path }), ..Self::default() }
            }
            Place::Internal(name) => {
                let internal = InternalAddress { server_listener_name: name.to_string() };
                Self { envoy_internal_address: Some(internal), ..Self::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_listener_of_our_own_is_no_pipe() {
        let told = Address::of(&Place::Internal("inner".into())).encode_to_vec();
        assert_eq!(told, [&[3 << 3 | 2, 7, 1 << 3 | 2, 5][..], b"inner"].concat());
    }
}
