//! How HTTP/2 is spoken, towards clients or towards the hosts of a cluster.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::http2;

/// Envoy `core.v3.Http2ProtocolOptions`, and when they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Options of the codec.
    pub options: Arc<http2::Options>,
    /// On which connections it is spoken.
    pub choice: Choice,
    /// `connection_keepalive`.
    pub keepalive: Option<Http2Keepalive>,
}

/// On which connections HTTP/2 is spoken, and on the others HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// On all. Clients: `codec_type: HTTP2`; clusters: `explicit_http_config.http2_protocol_options`.
    Always,
    /// Where ALPN says `h2`; without TLS a client may choose by its first bytes. Clusters: `auto_config`.
    Negotiated,
    /// Clusters: where the request came in so, each host having a pool for either. `use_downstream_protocol_config`.
    AsDownstream,
}

/// Envoy `core.v3.KeepaliveSettings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Keepalive {
    /// `interval`: how long a connection is quiet before a PING is sent. At least 1 ms.
    pub interval: Duration,
    /// `timeout`: how long its answer may take. At least 1 ms.
    pub timeout: Duration,
}
