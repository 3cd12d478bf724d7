//! What is told of a mesh's traffic.

use std::sync::Arc;
use std::time::Duration;

use super::workload::Workload;

/// Istio `stats.PluginConfig`.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// Who tells.
    pub reporter: Reporter,
    /// Who this proxy is: the metadata of its node.
    pub own: Arc<Workload>,
    /// `ISTIO_VERSION` of its node.
    pub version: Arc<str>,
    /// Without `disable_host_header_fallback`: what a request calls its host stands for a service that has no name.
    pub falls_back_to_host: bool,
    /// `tcp_reporting_duration`: how often connections are told that go on; none are when it is zero. Default 5 s.
    pub interval: Duration,
    /// `metrics` with `drop`.
    pub dropped: Vec<IstioMetric>,
    /// `tags_to_remove`: of one metric, or of all.
    pub removed: Vec<(Option<IstioMetric>, Box<str>)>,
}

/// Which end of a connection tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporter {
    /// The client's sidecar.
    Client,
    /// The server's.
    Server,
    /// A gateway before several servers: `SERVER_GATEWAY`.
    Gateway,
}

/// A metric of Istio's `stats` filter, or what tells its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IstioMetric {
    /// `istio_build`: 1, with the version as a label.
    Build,
    /// `istio_requests_total`.
    Requests,
    /// `istio_request_duration_milliseconds`.
    RequestDuration,
    /// `istio_request_bytes`: of whole requests on the wire.
    RequestBytes,
    /// `istio_response_bytes`.
    ResponseBytes,
    /// `istio_request_messages_total`: of gRPC.
    RequestMessages,
    /// `istio_response_messages_total`.
    ResponseMessages,
    /// `istio_tcp_connections_opened_total`.
    ConnectionsOpened,
    /// `istio_tcp_connections_closed_total`.
    ConnectionsClosed,
    /// `istio_tcp_sent_bytes_total`: to clients.
    SentBytes,
    /// `istio_tcp_received_bytes_total`: from clients.
    ReceivedBytes,
    /// `istio_uncounted_total`: combinations of labels for which there was no room. Envoy has no such limit.
    Uncounted,
}

impl IstioMetric {
    /// Those that can be left out or told with fewer labels.
    pub const STANDARD: [Self; 10] = [
        Self::Requests,
        Self::RequestDuration,
        Self::RequestBytes,
        Self::ResponseBytes,
        Self::RequestMessages,
        Self::ResponseMessages,
        Self::ConnectionsOpened,
        Self::ConnectionsClosed,
        Self::SentBytes,
        Self::ReceivedBytes,
    ];

    /// Its whole name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "istio_build",
            Self::Requests => "istio_requests_total",
            Self::RequestDuration => "istio_request_duration_milliseconds",
            Self::RequestBytes => "istio_request_bytes",
            Self::ResponseBytes => "istio_response_bytes",
            Self::RequestMessages => "istio_request_messages_total",
            Self::ResponseMessages => "istio_response_messages_total",
            Self::ConnectionsOpened => "istio_tcp_connections_opened_total",
            Self::ConnectionsClosed => "istio_tcp_connections_closed_total",
            Self::SentBytes => "istio_tcp_sent_bytes_total",
            Self::ReceivedBytes => "istio_tcp_received_bytes_total",
            Self::Uncounted => "istio_uncounted_total",
        }
    }
}
