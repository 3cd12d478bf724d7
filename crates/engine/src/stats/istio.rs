//! Istio's standard metrics: each a family of its own, and one set for each combination of labels.

use std::sync::Arc;

use super::{Counter, Gauge, Histogram, Stat, StatSet};

/// Names and values, in the order in which they are told.
pub type Labels = Arc<[(&'static str, Arc<str>)]>;

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

/// A set of one statistic, whose name is its scope's.
macro_rules! alone {
    ($(#[$about:meta])* $name:ident, $kind:ident) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $name(pub $kind);

        impl StatSet for $name {
            fn names(&self) -> &'static [&'static str] {
                &[""]
            }

            fn value(&self, _: usize) -> Stat<'_> {
                Stat::$kind(&self.0)
            }
        }
    };
}

alone! {
    /// One counter of Istio's.
    IstioCounter, Counter
}
alone! {
    /// One gauge.
    IstioGauge, Gauge
}
alone! {
    /// One distribution.
    IstioHistogram, Histogram
}
