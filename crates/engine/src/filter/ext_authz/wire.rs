//! The answer of `envoy/service/auth/v3/external_auth.proto` and what it is made of, as far as it is read.

use crate::protobuf::{HeaderValueOption, Status, Struct};

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
