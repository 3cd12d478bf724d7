//! Limits and leniencies, as Envoy's `Http1ProtocolOptions` and its connection manager name them.

use bytes::Bytes;

/// How one side of HTTP/1 behaves. The defaults are Envoy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a head or of a trailer section, from the first byte of its first line to the end of
    /// its empty line; one more is answered 431. Envoy `max_request_headers_kb`. At most 2³⁰ count.
    pub max_head_bytes: u32,
    /// Fields of a head or of a trailer section; one more is answered 431. Envoy `max_headers_count`.
    pub max_fields: u32,
    /// Bytes of all chunk extensions of one message together.
    pub max_chunk_extension_bytes: u32,
    /// Whether requests of HTTP/1.0 are served. Envoy `accept_http_10`.
    pub accept_http10: bool,
    /// The authority of HTTP/1.0 requests that name none. Envoy `default_host_for_http_10`.
    pub default_host_http10: Option<Bytes>,
    /// Whether a target may be a whole URL. Envoy `allow_absolute_url`.
    pub allow_absolute_url: bool,
    /// Whether trailers pass. If not they are read, checked and dropped. Envoy `enable_trailers`.
    pub enable_trailers: bool,
    /// Whether Content-Length beside `chunked` is removed (and the connection closed afterwards, RFC 9112
    /// §6.1) where it otherwise is refused. Envoy `allow_chunked_length`.
    pub allow_chunked_length: bool,
    /// What to do with names that have an underscore. Envoy `headers_with_underscores_action`.
    pub underscores: Underscores,
    /// How names are written. Envoy `header_key_format`.
    pub name_case: NameCase,
    /// What of a received head is written as it came, whatever side it leaves on. Envoy's `preserve_case`.
    pub keeps: Option<Kept>,
    /// Whether methods pass that are neither in RFC 9110 or 5789 nor WebDAV's and their kin. Envoy
    /// `allow_custom_methods`.
    pub allow_custom_methods: bool,
    /// Whether a fragment is cut from a target where it otherwise is refused. Envoy's runtime key
    /// `envoy.reloadable_features.http_reject_path_with_fragment`, turned round.
    pub cut_fragment: bool,
    /// Whether requests are sent in absolute form, as to a proxy (RFC 9112 §3.2.2). Envoy `send_fully_qualified_url`.
    pub absolute_form: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_head_bytes: 60 * 1024,
            max_fields: 100,
            max_chunk_extension_bytes: 4096,
            accept_http10: false,
            default_host_http10: None,
            allow_absolute_url: true,
            enable_trailers: false,
            allow_chunked_length: false,
            underscores: Underscores::Allow,
            name_case: NameCase::Lower,
            keeps: None,
            allow_custom_methods: false,
            cut_fragment: false,
            absolute_form: false,
        }
    }
}

impl Options {
    /// The head limit as the parser uses it: below what a range can express.
    pub(super) fn head_limit(&self) -> usize {
        self.max_head_bytes.min(1 << 30) as usize
    }
}

/// What to do with a field whose name has an underscore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// It is a field as any other.
    #[default]
    Allow,
    /// The message is refused.
    Reject,
    /// The field is left out.
    Drop,
}

/// How names are written on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameCase {
    /// `content-type`
    #[default]
    Lower,
    /// `Content-Type`
    Proper,
}

/// What of a received head is written as it came: names have the case in which they first stood in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// How names are written that did not stand there. Envoy `formatter_type_on_envoy_headers`.
    pub others: NameCase,
    /// Whether the reason phrase of a response is kept. Envoy `forward_reason_phrase`.
    pub reason: bool,
}
