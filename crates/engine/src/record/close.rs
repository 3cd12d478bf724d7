//! Why this proxy has ended a connection, in Envoy's words: its `%DOWNSTREAM_LOCAL_CLOSE_REASON%`.

/// All that was on it is answered, and nothing more is taken.
pub const DRAINED: &str = "deferred_close_on_drained_connection";

/// Its peer did not end it within `delayed_close_timeout`.
pub const LATE: &str = "triggered_delayed_close_timeout";

/// What came is not HTTP. Envoy says its parser's reason behind it.
pub const CODEC_ERROR: &str = "codec_error";

/// A handshake took longer than `transport_socket_connect_timeout`.
pub const TRANSPORT_SOCKET_TIMEOUT: &str = "transport_socket_timeout";

/// The limit of the filter `connection_limit`.
pub const CONNECTION_LIMIT: &str = "over_connection_limit";

/// The limit of the network filter `local_ratelimit`.
pub const OVER_RATE: &str = "local_ratelimit_close_over_limit";

/// The network filter `rbac`.
pub const RBAC: &str = "rbac_deny_close";
