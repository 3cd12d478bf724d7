//! The messages of health discovery, as far as they are written here. `envoy/service/health/v3/hds.proto`.

use std::collections::HashMap;

use bytes::Bytes;

use crate::load_report::message::Address;

/// `HealthCheckRequestOrEndpointHealthResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ToServer {
    #[prost(message, optional, tag = "1")]
    pub(super) health_check_request: Option<HealthCheckRequest>,
    #[prost(message, optional, tag = "2")]
    pub(super) endpoint_health_response: Option<EndpointHealthResponse>,
}

/// `HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthCheckRequest {
    /// A `Node`, encoded.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) node: Bytes,
    #[prost(message, optional, tag = "2")]
    pub(super) capability: Option<Capability>,
}

/// `Capability`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Capability {
    #[prost(enumeration = "Protocol", repeated, tag = "1")]
    pub(super) health_check_protocols: Vec<i32>,
}

/// `Capability.Protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Protocol {
    Http = 0,
    Tcp = 1,
}

/// `EndpointHealthResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EndpointHealthResponse {
    /// The old form: all endpoints in one list.
    #[prost(message, repeated, tag = "1")]
    pub(super) endpoints_health: Vec<EndpointHealth>,
    #[prost(message, repeated, tag = "2")]
    pub(super) cluster_endpoints_health: Vec<ClusterEndpointsHealth>,
}

/// `ClusterEndpointsHealth`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClusterEndpointsHealth {
    #[prost(string, tag = "1")]
    pub(super) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) locality_endpoints_health: Vec<LocalityEndpointsHealth>,
}

/// `LocalityEndpointsHealth`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LocalityEndpointsHealth {
    /// A `Locality`, encoded.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) locality: Option<Bytes>,
    #[prost(message, repeated, tag = "2")]
    pub(super) endpoints_health: Vec<EndpointHealth>,
}

/// `EndpointHealth`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EndpointHealth {
    #[prost(message, optional, tag = "1")]
    pub(super) endpoint: Option<Endpoint>,
    #[prost(enumeration = "HealthStatus", tag = "2")]
    pub(super) health_status: i32,
    #[prost(message, optional, tag = "3")]
    pub(super) health_metadata: Option<Struct>,
}

/// `core.v3.HealthStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum HealthStatus {
    Unknown = 0,
    Healthy = 1,
    Unhealthy = 2,
    Timeout = 4,
}

/// `endpoint.v3.Endpoint`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Endpoint {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
}

/// `google.protobuf.Struct`, of numbers.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Struct {
    #[prost(map = "string, message", tag = "1")]
    pub(super) fields: HashMap<String, Number>,
}

/// `google.protobuf.Value`, a number.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Number {
    #[prost(double, optional, tag = "2")]
    pub(super) number_value: Option<f64>,
}

impl Struct {
    /// What is told of the status that a check was answered with.
    pub(super) fn of_status(status: u16) -> Self {
        let number = Number { number_value: Some(status.into()) };
        Self { fields: HashMap::from([("http_status_code".to_owned(), number)]) }
    }
}
