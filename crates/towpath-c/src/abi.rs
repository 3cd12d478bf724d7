//! The header's structures and numbers, in its order. `bindings/c/towpath.h` tells what they mean.
//!
//! A structure grows by fields behind its last byte, padding included: what an older caller has in its padding is not
//! known.

use std::ffi::{c_char, c_void};

use crate::engine::Question;
use crate::link::Push;
use crate::queue::Queue;
use crate::request::Request;

/// `TOWPATH_ABI_VERSION`.
pub const VERSION: u32 = (1 << 16) | 11;

/// `towpath_bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The first.
    pub data: *const c_char,
    /// How many.
    pub length: usize,
}

/// `towpath_error`: the numbers of the header.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header has the words")]
pub enum Code {
    Ok = 0,
    Argument = 1,
    Url = 2,
    Token = 3,
    Body = 4,
    State = 5,
    Absent = 6,
    TlsSetup = 20,
    Resource = 21,
    Stopped = 22,
    Internal = 23,
    Cancelled = 40,
    Offline = 41,
    Resolve = 42,
    Connect = 43,
    Tls = 44,
    FirstByteTimeout = 45,
    GapTimeout = 46,
    AttemptTimeout = 47,
    TotalTimeout = 48,
    Disconnected = 49,
    Protocol = 50,
    Overflow = 51,
    Other = 52,
    Resting = 53,
    IdenticalLimit = 54,
    FlowLimit = 55,
    NotConnected = 56,
    Decoding = 57,
    Proxy = 58,
    WebSocket = 59,
    Events = 60,
}

/// `towpath_engine_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct EngineOptions {
    pub size: usize,
    pub memory_path: *const c_char,
    pub roots_pem: *const c_char,
    pub pins: *const u8,
    pub pin_count: usize,
    pub identity_chain_pem: *const c_char,
    pub identity_key_pem: *const c_char,
    pub window_bytes: usize,
    pub replay_bytes: usize,
    pub max_requests: u32,
    pub max_connections: u32,
    pub idle_timeout_ms: u32,
    pub max_rest_ms: u32,
    pub max_flow_bytes: u64,
    pub flow_window_ms: u32,
    pub max_identical: u32,
    pub identical_window_ms: u32,
    pub on_question: Option<OnQuestion>,
    pub question_user: *mut c_void,
    pub watch_network: u32,
    pub dns_servers: *const c_char,
    pub system_resolver: u32,
    pub reserved: u32,
    pub cookies_path: *const c_char,
    pub hsts_path: *const c_char,
    pub cache_path: *const c_char,
    pub cache_bytes: u64,
    pub cache_stale_s: u32,
    pub proxy_from_environment: u32,
    pub proxy: *const c_char,
    pub no_proxy: *const c_char,
    pub no_coalescing: u32,
    pub max_requests_per_origin: u32,
    pub doh_url: *const c_char,
    pub doh_addresses: *const c_char,
    pub doh_timeout_ms: u32,
    pub doh_or_system: u32,
    pub on_challenge: Option<OnChallenge>,
    pub challenge_user: *mut c_void,
    pub max_requests_under_way: u32,
    pub doh_by_get: u32,
}

/// `towpath_engine_options.on_question`.
pub type OnQuestion = extern "C" fn(*mut Question, *mut c_void);

/// `towpath_challenge`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct Challenge {
    pub size: usize,
    pub user: *mut c_void,
    pub host: *const c_char,
    pub own: *const crate::auth::Challenge,
    pub port: u32,
    pub is_of_proxy: u32,
    pub is_secure: u32,
    pub attempt: u32,
}

/// `towpath_engine_options.on_challenge`.
pub type OnChallenge = extern "C" fn(*const Challenge);

/// `towpath_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct Event {
    pub size: usize,
    pub kind: u32,
    pub error: i32,
    pub request: *const Request,
    pub user: *mut c_void,
    pub chunk: *mut towpath::Chunk,
    pub data: *const u8,
    pub length: usize,
    pub text: *const c_char,
}

/// `TOWPATH_EVENT_…`
pub mod event {
    #![expect(missing_docs, reason = "the header has the words")]
    pub const HEAD: u32 = 1;
    pub const DATA: u32 = 2;
    pub const TRAILERS: u32 = 3;
    pub const ROOM: u32 = 4;
    pub const END: u32 = 5;
}

/// `towpath_field`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct Field {
    pub name: *const c_char,
    pub value: *const c_char,
}

/// `TOWPATH_LENGTH_UNKNOWN`.
pub const LENGTH_UNKNOWN: u64 = u64::MAX;
/// `TOWPATH_NONE`.
pub const NONE: u32 = u32::MAX;

/// `towpath_request_options.on_event`.
pub type OnEvent = extern "C" fn(*const Event);

/// `towpath_request_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct RequestOptions {
    pub size: usize,
    pub url: *const c_char,
    pub method: *const c_char,
    pub fields: *const Field,
    pub field_count: usize,
    pub on_event: Option<OnEvent>,
    pub queue: *const Queue,
    pub user: *mut c_void,
    pub body: *const u8,
    pub body_length: usize,
    pub body_follows: u32,
    pub repeat: u32,
    pub content_length: u64,
    pub idempotency_key: *const c_char,
    pub timeout_ms: u32,
    pub first_byte_timeout_ms: u32,
    pub gap_timeout_ms: u32,
    pub retries: u32,
    pub wait_for_network: u32,
    pub fail_at_rest: u32,
    pub unlimited: u32,
    pub priority: u32,
    pub no_resume: u32,
    pub hedge: u32,
    pub attempt_timeout_ms: u32,
    pub answer_timeout_ms: u32,
    pub redirects: u32,
    pub decode: u32,
    pub auth_user: *const c_char,
    pub auth_password: *const c_char,
    pub http_versions: u32,
    pub reserved: u32,
}

/// `towpath_outbox_end`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct OutboxEnd {
    pub size: usize,
    pub entry: u64,
    pub user: *mut c_void,
    pub key: *const c_char,
    pub body: *const u8,
    pub body_length: usize,
    pub outcome: u32,
    pub status: u32,
    pub whole: u32,
}

/// `TOWPATH_OUTCOME_…`
pub mod outcome {
    #![expect(missing_docs, reason = "the header has the words")]
    pub const ANSWERED: u32 = 1;
    pub const EXPIRED: u32 = 2;
}

/// `towpath_outbox_options.on_end`.
pub type OnEnd = extern "C" fn(*const OutboxEnd);

/// `towpath_outbox_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct OutboxOptions {
    pub size: usize,
    pub path: *const c_char,
    pub on_end: Option<OnEnd>,
    pub user: *mut c_void,
    pub max_bytes: u64,
    pub max_entries: u32,
    pub parallel: u32,
    pub expires_after_s: u32,
    pub first_pause_ms: u32,
    pub longest_pause_ms: u32,
    pub response_bytes: u32,
}

/// `towpath_link_options.on_push`.
pub type OnPush = extern "C" fn(*mut Push, *mut c_void);

/// `towpath_link_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct LinkOptions {
    pub size: usize,
    pub url: *const c_char,
    pub on_push: Option<OnPush>,
    pub user: *mut c_void,
    pub beat_timeout_ms: u32,
    pub connect_timeout_ms: u32,
    pub first_pause_ms: u32,
    pub longest_pause_ms: u32,
    pub max_asks: u32,
    pub max_bytes: u32,
    pub max_frame: u32,
    pub shortest_silence_s: u32,
    pub first_silence_s: u32,
    pub longest_silence_s: u32,
}

/// `towpath_answer`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct Answer {
    pub size: usize,
    pub user: *mut c_void,
    pub class_name: Bytes,
    pub content: *const u8,
    pub length: usize,
    pub text: *const c_char,
    pub own: *const towpath::link::Answer,
    pub error: i32,
    pub status: u32,
}

/// `towpath_ask_options.on_answer`.
pub type OnAnswer = extern "C" fn(*const Answer);

/// `towpath_ask_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct AskOptions {
    pub size: usize,
    pub content: *const u8,
    pub length: usize,
    pub class_name: *const c_char,
    pub headers: *const Field,
    pub header_count: usize,
    pub on_answer: Option<OnAnswer>,
    pub user: *mut c_void,
    pub timeout_ms: u32,
    pub waits: u32,
    pub codec: u32,
    pub reserved: u32,
}

/// `towpath_link_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct LinkState {
    pub size: usize,
    pub connections: u64,
    pub heartbeats: u64,
    pub wakeups: u64,
    pub interval_ms: u64,
    pub connected: u32,
    pub failure: i32,
}

/// `towpath_socket_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct SocketEvent {
    pub size: usize,
    pub user: *mut c_void,
    pub data: *const u8,
    pub length: usize,
    pub text: *const c_char,
    pub kind: u32,
    pub error: i32,
    pub is_text: u32,
    pub close_code: u32,
    pub status: u32,
}

/// `TOWPATH_SOCKET_…`
pub mod socket_event {
    #![expect(missing_docs, reason = "the header has the words")]
    pub const OPEN: u32 = 1;
    pub const MESSAGE: u32 = 2;
    pub const ROOM: u32 = 3;
    pub const END: u32 = 4;
}

/// `towpath_socket_options.on_event`.
pub type OnSocketEvent = extern "C" fn(*const SocketEvent);

/// `towpath_socket_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct SocketOptions {
    pub size: usize,
    pub on_event: Option<OnSocketEvent>,
    pub user: *mut c_void,
    pub subprotocols: *const c_char,
    pub max_message_bytes: u64,
    pub ping_interval_ms: u32,
    pub pong_timeout_ms: u32,
    pub close_timeout_ms: u32,
    pub no_compression: u32,
}

/// `towpath_stream_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct StreamEvent {
    pub size: usize,
    pub user: *mut c_void,
    pub name: Bytes,
    pub data: Bytes,
    pub id: Bytes,
    pub text: *const c_char,
    pub kind: u32,
    pub error: i32,
    pub status: u32,
    pub reserved: u32,
}

/// `TOWPATH_STREAM_…`
pub mod stream_event {
    #![expect(missing_docs, reason = "the header has the words")]
    pub const OPEN: u32 = 1;
    pub const EVENT: u32 = 2;
    pub const BREAK: u32 = 3;
    pub const END: u32 = 4;
}

/// `towpath_stream_options.on_event`.
pub type OnStreamEvent = extern "C" fn(*const StreamEvent);

/// `towpath_stream_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header has the words")]
pub struct StreamOptions {
    pub size: usize,
    pub on_event: Option<OnStreamEvent>,
    pub user: *mut c_void,
    pub last_event_id: *const c_char,
    pub max_event_bytes: u64,
}
