//! The messages of `envoy/service/ext_proc/v3/external_processor.proto`, as far as they are read and written.

use std::collections::BTreeMap;

use crate::protobuf::{HeaderValue, HeaderValueOption, Metadata, Struct};

/// `ProcessingRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessingRequest {
    #[prost(oneof = "Part", tags = "2, 3, 4, 5, 6, 7")]
    pub(super) part: Option<Part>,
    #[prost(message, optional, tag = "8")]
    pub(super) metadata_context: Option<Metadata>,
    #[prost(btree_map = "string, message", tag = "9")]
    pub(super) attributes: BTreeMap<String, Struct>,
    #[prost(bool, tag = "10")]
    pub(super) observability_mode: bool,
    #[prost(message, optional, tag = "11")]
    pub(super) protocol_config: Option<ProtocolConfiguration>,
}

/// What a request for processing is about.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Part {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

/// `ProtocolConfiguration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct ProtocolConfiguration {
    #[prost(int32, tag = "1")]
    pub(super) request_body_mode: i32,
    #[prost(int32, tag = "2")]
    pub(super) response_body_mode: i32,
    #[prost(bool, tag = "3")]
    pub(super) send_body_without_waiting_for_header_response: bool,
}

/// `HttpHeaders`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub(super) headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub(super) end_of_stream: bool,
}

/// `config.core.v3.HeaderMap`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(super) headers: Vec<HeaderValue>,
}

/// `HttpBody`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct HttpBody {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) body: bytes::Bytes,
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

/// `HttpTrailers`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpTrailers {
    #[prost(message, optional, tag = "1")]
    pub(super) trailers: Option<HeaderMap>,
}

/// `ProcessingResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessingResponse {
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) answer: Option<Answer>,
    #[prost(message, optional, tag = "8")]
    pub(super) dynamic_metadata: Option<Struct>,
    #[prost(message, optional, tag = "9")]
    pub(super) mode_override: Option<ProcessingMode>,
    #[prost(message, optional, tag = "10")]
    pub(super) override_message_timeout: Option<Duration>,
}

/// What a processor says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Answer {
    #[prost(message, tag = "1")]
    RequestHeaders(Changed),
    #[prost(message, tag = "2")]
    ResponseHeaders(Changed),
    #[prost(message, tag = "3")]
    RequestBody(Changed),
    #[prost(message, tag = "4")]
    ResponseBody(Changed),
    #[prost(message, tag = "5")]
    RequestTrailers(TrailersResponse),
    #[prost(message, tag = "6")]
    ResponseTrailers(TrailersResponse),
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// `HeadersResponse` and `BodyResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Changed {
    #[prost(message, optional, tag = "1")]
    pub(super) response: Option<CommonResponse>,
}

/// `CommonResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CommonResponse {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub(super) body_mutation: Option<BodyMutation>,
    #[prost(bool, tag = "5")]
    pub(super) clear_route_cache: bool,
}

impl CommonResponse {
    /// `CONTINUE_AND_REPLACE`.
    pub(super) const fn replaces(&self) -> bool {
        self.status == 1
    }
}

/// `TrailersResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrailersResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header_mutation: Option<HeaderMutation>,
}

/// `HeaderMutation`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub(super) set_headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "2")]
    pub(super) remove_headers: Vec<String>,
}

/// `BodyMutation`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct BodyMutation {
    #[prost(oneof = "Mutation", tags = "1, 2, 3")]
    pub(super) mutation: Option<Mutation>,
}

/// How a body changes.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub(super) enum Mutation {
    #[prost(bytes = "bytes", tag = "1")]
    Body(bytes::Bytes),
    #[prost(bool, tag = "2")]
    ClearBody(bool),
    #[prost(message, tag = "3")]
    Streamed(StreamedBodyResponse),
}

/// `StreamedBodyResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct StreamedBodyResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) body: bytes::Bytes,
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

/// `ImmediateResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub(super) headers: Option<HeaderMutation>,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) body: Vec<u8>,
    #[prost(message, optional, tag = "4")]
    pub(super) grpc_status: Option<GrpcStatus>,
    #[prost(string, tag = "5")]
    pub(super) details: String,
}

/// `type.v3.HttpStatus`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

/// `GrpcStatus`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct GrpcStatus {
    #[prost(uint32, tag = "1")]
    pub(super) status: u32,
}

/// `ProcessingMode`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct ProcessingMode {
    #[prost(int32, tag = "1")]
    pub(super) request_header_mode: i32,
    #[prost(int32, tag = "2")]
    pub(super) response_header_mode: i32,
    #[prost(int32, tag = "3")]
    pub(super) request_body_mode: i32,
    #[prost(int32, tag = "4")]
    pub(super) response_body_mode: i32,
    #[prost(int32, tag = "5")]
    pub(super) request_trailer_mode: i32,
    #[prost(int32, tag = "6")]
    pub(super) response_trailer_mode: i32,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct Duration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}
