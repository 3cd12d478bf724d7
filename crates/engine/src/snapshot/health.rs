//! How a cluster's hosts are watched: active checks, and conclusions from the traffic.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Address;
use towpath_proto::bolt::Version;

use super::SinkId;
use super::proxy_header::ProxyHeader;
use super::route::HeaderOps;
use crate::matcher::StringMatcher;

/// Envoy `core.v3.HealthCheck`: each host is asked on its own whether it is well.
#[derive(Debug)]
pub struct HealthCheck {
    /// What is asked.
    pub probe: Probe,
    /// `timeout`: how long an answer may take, the connect included.
    pub timeout: Duration,
    /// `initial_jitter`: the first check waits for up to this.
    pub initial_jitter: Duration,
    /// `interval_jitter`: up to this is added to each pause.
    pub jitter: Duration,
    /// `interval_jitter_percent` of the pause is added at most.
    pub jitter_percent: u32,
    /// `unhealthy_threshold`: failures in a row that make a host unhealthy. 0 counts as 1.
    pub unhealthy_threshold: u32,
    /// `healthy_threshold`: successes in a row that make it healthy again. 0 counts as 1.
    pub healthy_threshold: u32,
    /// `reuse_connection`: default true.
    pub reuse_connection: bool,
    /// `common_lb_config.ignore_new_hosts_until_first_hc`: a host that was not asked yet counts for nothing, not even
    /// as one that is not well.
    pub ignores_new: bool,
    /// The pauses between checks.
    pub pauses: Pauses,
    /// `tls_options.alpn_protocols`: what is offered by ALPN, whatever the cluster offers; nothing changes when empty.
    pub alpn: Vec<Box<[u8]>>,
    /// Where it is told what checks come to.
    pub log: Option<HealthLog>,
}

/// The log of a cluster's health checks: a line where a host becomes healthy, unhealthy, degraded or is so no more, and
/// where its first check fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthLog {
    /// `event_logger` and `event_log_path`.
    pub sinks: Vec<SinkId>,
    /// `always_log_health_check_failures`: every failure is told.
    pub failures: bool,
    /// `always_log_health_check_success`: every success is told.
    pub successes: bool,
}

/// The pauses between the end of a check and the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// `interval`, after a success.
    pub healthy: Duration,
    /// `healthy_edge_interval`: after a success that does not make the host healthy yet. Default: `interval`.
    pub healthy_edge: Duration,
    /// `unhealthy_interval`: after a failure. Default: `interval`.
    pub unhealthy: Duration,
    /// `unhealthy_edge_interval`: after a failure that does not make the host unhealthy yet. Default:
    /// `unhealthy_interval`.
    pub unhealthy_edge: Duration,
    /// `no_traffic_interval`: while the cluster was never connected to. Default 60 s.
    pub no_traffic: Duration,
    /// `no_traffic_healthy_interval`: the same after a success. Default: `no_traffic_interval`.
    pub no_traffic_healthy: Duration,
}

/// What a host is asked.
#[derive(Debug)]
pub enum Probe {
    /// `http_health_check`: a request over HTTP/1.1.
    Http(HttpProbe),
    /// `tcp_health_check`: a connection, and bytes to and fro.
    Tcp(TcpProbe),
    /// `towpath.health_checkers.bolt`: a heartbeat.
    Bolt(BoltProbe),
    /// `grpc_health_check`: a call over HTTP/2.
    Grpc(GrpcProbe),
}

/// Envoy `HealthCheck.HttpHealthCheck`.
#[derive(Debug)]
pub struct HttpProbe {
    /// `method`: default GET.
    pub method: Arc<str>,
    /// `host`: without it the cluster's name is sent; an endpoint's own name for checks comes before both.
    pub host: Arc<str>,
    /// `path`.
    pub path: Arc<str>,
    /// `request_headers_to_add` and `_to_remove`.
    pub headers: HeaderOps,
    /// `expected_statuses`: default 200 alone.
    pub expected: Vec<Range<u16>>,
    /// `retriable_statuses`: failures that count towards the threshold. Any other makes a host unhealthy at once.
    pub retriable: Vec<Range<u16>>,
    /// `send`: the content of the request; it has none when empty.
    pub send: Arc<[u8]>,
    /// `receive`: all of them must stand in the answer's content, in this order.
    pub receive: Vec<Arc<[u8]>>,
    /// `service_name_matcher`: whose the host must say that it is, in `x-envoy-upstream-healthchecked-cluster`.
    pub service: Option<StringMatcher>,
    /// `codec_client_type` is `HTTP2`: over HTTP/2 from the first byte.
    pub is_http2: bool,
    /// `response_buffer_size`: how much of the content is looked at, in bytes; all of it when 0. Default 1024.
    pub looked_at: u64,
}

/// Envoy `HealthCheck.GrpcHealthCheck`.
#[derive(Debug)]
pub struct GrpcProbe {
    /// `service_name`: which service is asked for; empty is the server as a whole.
    pub service: Arc<str>,
    /// `authority`: without it the cluster's name is sent; an endpoint's own name for checks comes before both.
    pub authority: Arc<str>,
    /// `initial_metadata`.
    pub metadata: HeaderOps,
}

/// Envoy `HealthCheck.TcpHealthCheck`.
#[derive(Debug, Default)]
pub struct TcpProbe {
    /// `send`: nothing is sent when empty.
    pub send: Arc<[u8]>,
    /// `receive`: all of them must come, in this order. A connection is enough when there is none.
    pub receive: Vec<Arc<[u8]>>,
    /// `proxy_protocol_config`: the header that each check begins with. It names no client, and has no TLVs.
    pub header: Option<ProxyHeader>,
}

/// `towpath.extensions.bolt.v1.BoltHealthCheck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoltProbe {
    /// `version`: which version the heartbeat is of.
    pub version: Version,
}

/// Envoy `Cluster.OutlierDetection`: hosts that answer with errors are left out for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlierDetection {
    /// `consecutive_5xx`.
    pub errors: Rule,
    /// `consecutive_gateway_failure`: 502, 503 and 504.
    pub gateway: Rule,
    /// `consecutive_local_origin_failure`, read with `split` only.
    pub local: Rule,
    /// `split_external_local_origin_errors`: failures that no server answered for do not count as answers.
    pub split: bool,
    /// `interval` between the looks at which hosts may come back. Default 10 s.
    pub interval: Duration,
    /// `base_ejection_time`, times how often the host was left out. Default 30 s.
    pub base_time: Duration,
    /// `max_ejection_time`: default 300 s, or the base time where that is longer.
    pub max_time: Duration,
    /// `max_ejection_time_jitter`: up to this is added. Default none.
    pub jitter: Duration,
    /// `max_ejection_percent` of the hosts: default 10.
    pub max_percent: u32,
    /// `always_eject_one_host`, whatever the percentage.
    pub always_one: bool,
    /// `successful_active_health_check_uneject_host`: default true.
    pub returns_when_checked: bool,
    /// `detect_degraded_hosts`: a host whose answers say `x-envoy-degraded` counts as degraded for a while.
    pub detects_degraded: bool,
    /// How hosts are compared with each other.
    pub comparison: Comparison,
}

/// How hosts are compared with each other by the attempts of an interval. Arrays are by
/// [`Origin`](crate::tally::Origin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// `success_rate_minimum_hosts` that must have had enough attempts: default 5.
    pub success_hosts: u32,
    /// `success_rate_request_volume`: how many attempts are enough: default 100.
    pub success_volume: u32,
    /// `success_rate_stdev_factor`, in thousandths: how many standard deviations below the mean a host may be. Default
    /// 1900.
    pub stdev_factor: u32,
    /// `enforcing_success_rate` (default 100) and `enforcing_local_origin_success_rate` (100), in percent.
    pub enforcing_success: [u32; 2],
    /// `failure_percentage_minimum_hosts` that must have had enough attempts: default 5.
    pub failure_hosts: u32,
    /// `failure_percentage_request_volume`: how many attempts are enough: default 50.
    pub failure_volume: u32,
    /// `failure_percentage_threshold`: default 85.
    pub failure_percent: u32,
    /// `enforcing_failure_percentage` (default 0) and `enforcing_failure_percentage_local_origin` (0), in percent.
    pub enforcing_failure: [u32; 2],
}

impl Default for Comparison {
    fn default() -> Self {
        Self {
            success_hosts: 5,
            success_volume: 100,
            stdev_factor: 1900,
            enforcing_success: [100, 100],
            failure_hosts: 5,
            failure_volume: 50,
            failure_percent: 85,
            enforcing_failure: [0, 0],
        }
    }
}

/// So many errors in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How many; 0 never. Default 5.
    pub threshold: u32,
    /// `enforcing_…`: percent of the cases in which the host is really left out.
    pub enforcing: u32,
}

/// A run of errors that can reach a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Answers of 500 and above.
    Errors,
    /// Answers of 502, 503 and 504.
    Gateway,
    /// Connections that could not be made or were lost, and answers that did not come.
    Local,
}

/// Envoy `Endpoint.HealthCheckConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointCheck {
    /// `disable_active_health_check`: it is never asked and counts as well.
    pub disabled: bool,
    /// `address`: where it is asked, in place of the endpoint's address.
    pub address: Option<Address>,
    /// `port_value`: the same, in place of either's port.
    pub port: Option<u16>,
    /// `transport_socket_match_criteria` of the check: by which of the cluster's sockets it is asked, in place of the
    /// endpoint's own.
    pub socket: Option<Option<u16>>,
    /// `hostname`: what HTTP checks name as their host, before all others.
    pub hostname: Arc<str>,
}

/// What was found out about a host. Envoy's `health_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthFlags {
    /// `failed_active_hc`: its checks fail, or none succeeded yet.
    pub failed_check: bool,
    /// `failed_outlier_check`: it is left out for its answers.
    pub ejected: bool,
    /// `degraded_active_hc`: its last check succeeded with `x-envoy-degraded`.
    pub degraded: bool,
    /// `degraded_outlier_detection`: an answer of it said `x-envoy-degraded`, not long ago.
    pub degraded_by_answers: bool,
    /// `active_hc_timeout`: its last check had no answer in time.
    pub timed_out: bool,
    /// `pending_active_hc`: no check of it has ended yet, and until then it counts for nothing.
    pub pending: bool,
}

impl HealthFlags {
    /// Nothing is wrong.
    pub const WELL: Self = Self {
        failed_check: false,
        ejected: false,
        degraded: false,
        degraded_by_answers: false,
        timed_out: false,
        pending: false,
    };

    /// Whether others would serve better.
    #[must_use]
    pub const fn is_degraded(self) -> bool {
        self.degraded || self.degraded_by_answers
    }

    /// Of a host that is checked and was not yet; where `ignored` it counts for nothing until then.
    #[must_use]
    pub const fn unchecked(ignored: bool) -> Self {
        Self { failed_check: true, pending: ignored, ..Self::WELL }
    }
}

/// What was found out about the hosts of a cluster, by address.
pub type ClusterHealth = HashMap<Address, HealthFlags>;

/// The HTTP statuses that hosts answered their last checks with, by address; not of those that did not answer.
pub type CheckAnswers = HashMap<Address, u16>;
