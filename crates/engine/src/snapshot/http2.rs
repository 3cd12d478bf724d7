//! How HTTP/2 is spoken, towards clients or towards the hosts of a cluster.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::http2;

/// Envoy `core.v3.Http2ProtocolOptions`, and when they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Options of the codec.
    pub options: Arc<http2::Options>,
    /// Whether it is spoken on every connection. If not, HTTP/1 is spoken where ALPN does not say `h2`; without TLS a
    /// client may choose by its first bytes. A client: `codec_type: HTTP2`. A cluster:
    /// `explicit_http_config.http2_protocol_options`, else `auto_config`.
    pub always: bool,
    /// `connection_keepalive`.
    pub keepalive: Option<Http2Keepalive>,
}

/// Envoy `core.v3.KeepaliveSettings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Keepalive {
    /// `interval`: how long a connection is quiet before a PING is sent. At least 1 ms.
    pub interval: Duration,
    /// `timeout`: how long its answer may take. At least 1 ms.
    pub timeout: Duration,
}
