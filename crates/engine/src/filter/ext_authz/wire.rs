//! The messages of `envoy/service/auth/v3/external_auth.proto` and of what they are made of, as far as they are read
//! and written.

use std::collections::BTreeMap;

use crate::protobuf::{
    Address, HeaderValue, HeaderValueOption, Metadata, Status, Struct, Timestamp,
};

/// `CheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) attributes: Option<Attributes>,
}

/// `AttributeContext`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Attributes {
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<Peer>,
    #[prost(message, optional, tag = "2")]
    pub(super) destination: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(super) request: Option<Request>,
    #[prost(btree_map = "string, string", tag = "10")]
    pub(super) context_extensions: BTreeMap<String, String>,
    #[prost(message, optional, tag = "11")]
    pub(super) metadata_context: Option<Metadata>,
    #[prost(message, optional, tag = "12")]
    pub(super) tls_session: Option<TlsSession>,
    #[prost(message, optional, tag = "13")]
    pub(super) route_metadata_context: Option<Metadata>,
}

/// `AttributeContext.Peer`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
    #[prost(string, tag = "2")]
    pub(super) service: String,
    #[prost(string, tag = "4")]
    pub(super) principal: String,
    #[prost(string, tag = "5")]
    pub(super) certificate: String,
}

/// `AttributeContext.Request`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    #[prost(message, optional, tag = "1")]
    pub(super) time: Option<Timestamp>,
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<HttpRequest>,
}

/// `AttributeContext.HttpRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpRequest {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(super) headers: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    pub(super) path: String,
    #[prost(string, tag = "5")]
    pub(super) host: String,
    #[prost(string, tag = "6")]
    pub(super) scheme: String,
    #[prost(int64, tag = "9")]
    pub(super) size: i64,
    #[prost(string, tag = "10")]
    pub(super) protocol: String,
    #[prost(string, tag = "11")]
    pub(super) body: String,
    #[prost(bytes = "vec", tag = "12")]
    pub(super) raw_body: Vec<u8>,
    /// In place of `headers`.
    #[prost(message, optional, tag = "13")]
    pub(super) header_map: Option<HeaderMap>,
}

/// `config.core.v3.HeaderMap`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(super) headers: Vec<HeaderValue>,
}

/// `AttributeContext.TLSSession`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TlsSession {
    #[prost(string, tag = "1")]
    pub(super) sni: String,
}

/// `CheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(message, optional, tag = "2")]
    pub(super) denied: Option<Denied>,
    #[prost(message, optional, tag = "3")]
    pub(super) ok: Option<Allowed>,
    #[prost(message, optional, tag = "4")]
    pub(super) dynamic_metadata: Option<Struct>,
    /// `error_response`.
    #[prost(message, optional, tag = "5")]
    pub(super) error: Option<Denied>,
}

/// `DeniedHttpResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Denied {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderValueOption>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
}

/// `type.v3.HttpStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

/// `OkHttpResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Allowed {
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderValueOption>,
    /// In place of that of the whole response.
    #[prost(message, optional, tag = "3")]
    pub(super) dynamic_metadata: Option<Struct>,
    #[prost(string, repeated, tag = "5")]
    pub(super) headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<HeaderValueOption>,
    #[prost(message, repeated, tag = "7")]
    pub(super) query_parameters_to_set: Vec<QueryParameter>,
    #[prost(string, repeated, tag = "8")]
    pub(super) query_parameters_to_remove: Vec<String>,
}

/// `config.core.v3.QueryParameter`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct QueryParameter {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}
