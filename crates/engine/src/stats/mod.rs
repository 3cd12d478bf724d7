//! Counters, gauges and histograms under Envoy's names: written by workers, read by any thread.
//!
//! Each worker owns one set per scope ([`ClusterStats`] of each cluster, [`HttpStats`] of each stat prefix, …) and
//! writes it without locks. The [`Registry`] knows all sets; reading merges those of one scope over the workers
//! and streams the result as text, JSON or Prometheus exposition, a chunk at a time.

mod breakers;
mod counter;
mod filter_sets;
mod google_sets;
mod histogram;
mod host_sets;
mod http_sets;
mod istio;
mod json;
pub mod metrics_service;
mod names;
pub mod otlp;
mod overload_sets;
mod prometheus;
pub mod push;
mod registry;
mod rules;
mod samples;
mod scope;
mod sets;
mod sorted;
pub mod statsd;
mod text;

use std::any::Any;
use std::fmt;

pub use breakers::{BreakerStats, Breakers};
pub use counter::{Codes, Counter, Gauge, Tracked};
pub use filter_sets::{
    GreetingStats, HttpInspectorStats, PassingStats, ProxyHeaderStats, ProxyProtocolErrors,
    ProxyProtocolStats, ProxyProtocolVersionStats, RbacStats, ShadowRbacStats, SubsetStats,
    TlsInspectorStats, ZoneStats,
};
pub use google_sets::GoogleGrpcStats;
pub use histogram::{Bins, Histogram};
pub use host_sets::{
    AltStats, BudgetStats, EndpointStats, MaglevStats, PartStats, RingStats, SizeStats,
    SocketMatchStats,
};
pub use http_sets::{AsyncClientStats, HttpStats};
pub use istio::{IstioCounter, IstioGauge, IstioHistogram, Labels};
pub use json::Json;
pub use names::{DnsCacheBreakerStats, DnsCacheStats};
pub use overload_sets::{
    HighMemoryStats, LoadShedStats, OverloadActionStats, OverloadStats, ProactiveResourceStats,
    ResourceStats, ShrinkStats,
};
pub use prometheus::Prometheus;
pub use push::Push;
pub use registry::{Reading, Registry};
pub use rules::{Keep, Rules};
pub use scope::{FilterNames, GOOGLE_GRPC, GrpcProtocol, Scope};
pub(crate) use sets::stats;
pub use sets::{
    AdminHttpStats, AdminListenerStats, BoltStats, CertificateStats, ClientTlsContextStats,
    ClusterBoltStats, ClusterManagerStats, ClusterStats, ConfigStats, ControlPlaneStats,
    DiscoveryStats, EntryStats, ExportStats, ExtensionStats, FilesystemStats, GrpcStats,
    HealthCheckStats, HealthDiscoveryStats, Http1Stats, Http2Stats, ListenerHttpStats,
    ListenerManagerStats, ListenerStats, ListenerWorkerStats, LoadReporterStats, LogServiceStats,
    OpenTelemetryStats, OutlierStats, RequestStats, RotationStats, RuntimeStats, ServerStats,
    ServerTlsContextStats, TcpStats, TlsStats, TracingStats, ZipkinStats,
};
pub use sorted::{Kind, Query, Shape};
pub use text::Text;

/// The statistics of one scope, as one worker has them.
pub trait StatSet: Any + Send + Sync + fmt::Debug {
    /// The names after the scope's prefix, in the order of [`StatSet::value`]'s index.
    fn names(&self) -> &'static [&'static str];

    /// The statistic with this index; index is below the number of names.
    fn value(&self, index: usize) -> Stat<'_>;
}

/// One statistic.
#[derive(Clone, Copy, Debug)]
pub enum Stat<'a> {
    /// Counts up.
    Counter(&'a Counter),
    /// Goes up and down.
    Gauge(&'a Gauge),
    /// The same, not listed before it was set.
    Tracked(&'a Tracked),
    /// A distribution.
    Histogram(&'a Histogram),
    /// `<name>_200`, `<name>_2xx` and `<name>_completed`, once they are counted.
    Codes(&'a Codes),
}

#[cfg(test)]
mod tests;
