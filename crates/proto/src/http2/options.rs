//! Limits and leniencies, as Envoy's `Http2ProtocolOptions` names them.

use crate::http1::Underscores;

/// How one side of HTTP/2 behaves. The defaults are Envoy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes that the peer's encoder may keep in its dynamic table (SETTINGS_HEADER_TABLE_SIZE), and at most as many in
    /// ours. Envoy `hpack_table_size`.
    pub header_table_size: u32,
    /// Streams that the peer may have at once; towards a server, how many we have at once whatever it allows. 1 to
    /// 2³¹ - 1. Envoy `max_concurrent_streams`.
    pub max_concurrent_streams: u32,
    /// Bytes of a stream that may come before they have a place. 65,535 to 2³¹ - 1. Envoy
    /// `initial_stream_window_size`.
    pub stream_window: u32,
    /// The same of all streams together. 65,535 to 2³¹ - 1. Envoy `initial_connection_window_size`.
    pub connection_window: u32,
    /// Bytes of a frame that may come. 16,384 to 2²⁴ - 1 (RFC 9113 §6.5.2).
    pub max_frame_size: u32,
    /// Bytes of a head or a trailer section, counted as RFC 9113 §6.5.2 has it: names, values, and 32 for each field.
    /// Envoy `max_request_headers_kb`, `max_response_headers_kb`.
    pub max_head_bytes: u32,
    /// Fields of a head or a trailer section. Envoy `max_headers_count`.
    pub max_fields: u32,
    /// Whether extended CONNECT is offered (RFC 8441 §3). Envoy `allow_connect`.
    pub allow_connect: bool,
    /// Frames that may wait to be sent, as Envoy's field `max_outbound_frames` is described: what the socket takes at
    /// once does not wait.
    pub max_outbound_frames: u32,
    /// Frames among them that answer something: SETTINGS, PING, RST_STREAM. Envoy `max_outbound_control_frames`.
    pub max_outbound_control_frames: u32,
    /// HEADERS, CONTINUATION and DATA without content that end nothing and may come one after the other. Envoy
    /// `max_consecutive_inbound_frames_with_empty_payload`.
    pub max_empty_frames: u32,
    /// PRIORITY frames for each stream so far, and for one more. Envoy `max_inbound_priority_frames_per_stream`.
    pub max_priority_frames: u32,
    /// WINDOW_UPDATE frames for each DATA frame that was sent, beside one for each stream. Envoy
    /// `max_inbound_window_update_frames_per_data_frame_sent`.
    pub max_window_updates: u32,
    /// Streams that may end before their answer begins, or because of an error of the peer's, beyond those that end
    /// well.
    pub max_early_resets: u32,
    /// Whether a malformed message ends its stream alone, else the connection. Envoy
    /// `override_stream_error_on_invalid_http_message`.
    pub stream_error_on_malformed: bool,
    /// What to do with names that have an underscore. Envoy `headers_with_underscores_action`.
    pub underscores: Underscores,
    /// Whether a message is malformed that has bytes above 0x7f in a field's value (`obs-text`, RFC 9110 §5.5). Envoy
    /// `disallow_obs_text`, which its codec oghttp2 alone reads.
    pub ascii_values: bool,
    /// Parameters of SETTINGS that are sent before those that follow from the options above, with their values; of two
    /// with one identifier the peer goes by the later. ENABLE_PUSH is not repeated towards a server. At most 1,000.
    /// Envoy `custom_settings_parameters`.
    pub custom_settings: Box<[(u16, u32)]>,
    /// Whether a fragment is cut from a path, as [`http1::Options::cut_fragment`](crate::http1::Options).
    pub cut_fragment: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            header_table_size: 4096,
            max_concurrent_streams: 1024,
            stream_window: 16 << 20,
            connection_window: 24 << 20,
            max_frame_size: 16_384,
            max_head_bytes: 60 * 1024,
            max_fields: 100,
            allow_connect: false,
            max_outbound_frames: 10_000,
            max_outbound_control_frames: 1000,
            max_empty_frames: 1,
            max_priority_frames: 100,
            max_window_updates: 10,
            max_early_resets: 500,
            stream_error_on_malformed: false,
            underscores: Underscores::Allow,
            ascii_values: false,
            custom_settings: Box::default(),
            cut_fragment: false,
        }
    }
}
