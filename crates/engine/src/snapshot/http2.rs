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

/// Envoy `core.v3.KeepaliveSettings`. All times are at least 1 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Keepalive {
    /// `interval`: how long a connection is quiet before a PING is sent; none by itself where there is none.
    pub interval: Option<Duration>,
    /// `interval_jitter`: up to so many hundredths of the interval are added to it each time. 0 to 100; Envoy's default
    /// is 15.
    pub jitter_percent: u32,
    /// `timeout`: how long its answer may take.
    pub timeout: Duration,
    /// `connection_idle_interval`: where nothing has come from a server for longer, a PING is sent ahead of the next
    /// stream. Of no effect towards clients.
    pub idle: Option<Duration>,
}
