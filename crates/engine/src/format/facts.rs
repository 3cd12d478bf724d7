//! What a format string may ask for.

use std::sync::Arc;

use towpath_proto::{Head, Instant};

use crate::grpc;
use crate::mesh::{MeshCluster, StreamMesh, Workload};
use crate::record::Record;
use crate::stream_info::{StreamInfo, Struct};

/// Envoy's `AccessLogType` of a line that is written for no reason of its own: a listener's.
pub(crate) const NOT_SET: &str = "NotSet";

/// The facts of one stream and of the process, for the length of one line or header.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What became of the stream.
    pub record: &'a Record,
    /// What filters have left of it, where it is recorded.
    pub info: Option<&'a StreamInfo>,
    /// The request's head, if there is one.
    pub request: Option<&'a Head>,
    /// The response's head, if there is one.
    pub response: Option<&'a Head>,
    /// The response's trailers, if there are some.
    pub trailers: Option<&'a Head>,
    /// The name of the cluster; empty means none.
    pub cluster: &'a str,
    /// The name in statistics: `alt_stat_name`, where it has one.
    pub cluster_stat_name: &'a str,
    /// What a mesh says of the cluster.
    pub mesh: Option<&'a MeshCluster>,
    /// The same of the host.
    pub endpoint: Option<&'a Workload>,
    /// What the parts of the configuration that took the stream say of themselves.
    pub told: Told<'a>,
    /// The stream's trace and its own span, where it is traced.
    pub trace: Option<(u128, u64)>,
    /// What is found out of its place in a mesh, where the stream is recorded.
    pub found: Option<&'a StreamMesh>,
    /// The text of the record's upstream host's address, where it is kept.
    pub upstream_address: &'a [u8],
    /// The name of the upstream host; empty means that it has none.
    pub upstream_hostname: &'a str,
    /// The name of the route; empty means none.
    pub route: &'a str,
    /// The name of the virtual host; empty means none.
    pub virtual_host: &'a str,
    /// The name of the virtual cluster; empty means none.
    pub virtual_cluster: &'a str,
    /// The name of the listener; empty means none.
    pub listener: &'a str,
    /// The name of the filter chain; empty means none.
    pub filter_chain: &'a str,
    /// Why a line is written: `DownstreamEnd`, `TcpConnectionEnd`, …
    pub log_type: &'static str,
    /// The body that a local reply has before it is formatted.
    pub local_reply_body: &'a [u8],
    /// The response is an answer of our own.
    pub is_local_reply: bool,
    /// Nanoseconds since 1970 at [`Instant::ZERO`](towpath_proto::Instant::ZERO).
    pub epoch_unix_ns: u64,
    /// The machine's name.
    pub hostname: &'a str,
    /// When the line is written.
    pub now: Instant,
}

/// `metadata` of the parts of the configuration that took a stream.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The listener's.
    pub listener: Option<&'a Struct>,
    /// The filter chain's.
    pub chain: Option<&'a Struct>,
    /// The virtual host's.
    pub virtual_host: Option<&'a Arc<Struct>>,
    /// The route's.
    pub route: Option<&'a Arc<Struct>>,
    /// The cluster's.
    pub cluster: Option<&'a Struct>,
    /// The upstream host's.
    pub endpoint: Option<&'a Struct>,
}

impl Told<'_> {
    const NOTHING: Self = Self {
        listener: None,
        chain: None,
        virtual_host: None,
        route: None,
        cluster: None,
        endpoint: None,
    };
}

impl<'a> Facts<'a> {
    /// The facts of a stream of which nothing but its record is known.
    #[must_use]
    pub const fn new(record: &'a Record, now: Instant) -> Self {
        Self {
            record,
            info: None,
            request: None,
            response: None,
            trailers: None,
            cluster: "",
            cluster_stat_name: "",
            mesh: None,
            endpoint: None,
            told: Told::NOTHING,
            trace: None,
            found: None,
            upstream_address: b"",
            upstream_hostname: "",
            route: "",
            virtual_host: "",
            virtual_cluster: "",
            listener: "",
            filter_chain: "",
            log_type: NOT_SET,
            local_reply_body: b"",
            is_local_reply: false,
            epoch_unix_ns: 0,
            hostname: "",
            now,
        }
    }

    /// The number of `log_type`: Envoy `AccessLogType`.
    #[must_use]
    pub fn log_type_number(&self) -> u8 {
        const NUMBERS: &[(&str, u8)] = &[
            ("TcpUpstreamConnected", 1),
            ("TcpPeriodic", 2),
            ("TcpConnectionEnd", 3),
            ("DownstreamStart", 4),
            ("DownstreamPeriodic", 5),
            ("DownstreamEnd", 6),
            ("DownstreamTunnelSuccessfullyEstablished", 10),
            ("TcpConnectionStart", 14),
        ];
        NUMBERS.iter().find(|(name, _)| *name == self.log_type).map_or(0, |(_, number)| *number)
    }

    /// The status of a stream that speaks gRPC.
    #[must_use]
    pub fn grpc_status(&self) -> Option<i64> {
        grpc::status(self.trailers, self.response, self.record.status)
    }
}
