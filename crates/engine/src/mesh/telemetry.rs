//! What is told of a mesh's traffic.

use std::sync::Arc;
use std::time::Duration;

use super::workload::Workload;
use crate::stats::IstioMetric;

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
