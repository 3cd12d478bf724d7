//! The messages of `envoy/service/auth/v3/external_auth.proto` and of what they are made of, as far as they are read
//! and written.

use std::collections::BTreeMap;

use towpath_proto::Address as EngineAddress;

use crate::stream_info::wire::Struct;
use crate::stream_info::{self, StreamInfo};

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

/// `config.core.v3.Address`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    socket: Option<SocketAddress>,
    #[prost(message, optional, tag = "2")]
    pipe: Option<Pipe>,
}

/// `config.core.v3.SocketAddress`.
#[derive(Clone, PartialEq, prost::Message)]
struct SocketAddress {
    #[prost(string, tag = "2")]
    address: String,
    #[prost(uint32, tag = "3")]
    port: u32,
}

/// `config.core.v3.Pipe`.
#[derive(Clone, PartialEq, prost::Message)]
struct Pipe {
    #[prost(string, tag = "1")]
    path: String,
}

/// `AttributeContext.Request`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    #[prost(message, optional, tag = "1")]
    pub(super) time: Option<Timestamp>,
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<HttpRequest>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
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
}

/// `AttributeContext.TLSSession`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TlsSession {
    #[prost(string, tag = "1")]
    pub(super) sni: String,
}

/// `config.core.v3.Metadata`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, Struct>,
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
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
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
    #[prost(string, repeated, tag = "5")]
    pub(super) headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<HeaderValueOption>,
}

/// `config.core.v3.HeaderValueOption`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<HeaderValue>,
    #[prost(message, optional, tag = "2")]
    pub(super) append: Option<BoolValue>,
    #[prost(int32, tag = "3")]
    pub(super) append_action: i32,
}

/// `google.protobuf.BoolValue`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct BoolValue {
    #[prost(bool, tag = "1")]
    pub(super) value: bool,
}

/// `config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) raw_value: Vec<u8>,
}

impl Address {
    pub(super) fn of(address: &EngineAddress) -> Self {
        match address {
            EngineAddress::Ip(ip) => {
                let (address, port) = (ip.ip().to_string(), u32::from(ip.port()));
                Self { socket: Some(SocketAddress { address, port }), pipe: None }
            }
            EngineAddress::Unix(path) => {
                let path = path.to_string_lossy().into_owned();
                Self { socket: None, pipe: Some(Pipe { path }) }
            }
            EngineAddress::Internal(_) => Self { socket: None, pipe: None },
        }
    }
}

impl Timestamp {
    /// So many nanoseconds after 1970.
    pub(super) fn of(nanoseconds: u64) -> Self {
        let (seconds, nanos) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
        Self {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: i32::try_from(nanos).unwrap_or(0),
        }
    }
}

/// The dynamic metadata of these namespaces.
pub(super) fn metadata(info: Option<&StreamInfo>, namespaces: &[Box<str>]) -> Metadata {
    let mut filter_metadata = BTreeMap::new();
    for namespace in namespaces {
        let found = info.and_then(|info| {
            info.read_metadata(namespace, &[], |value| {
                let Some(stream_info::Value::Struct(entries)) = value else { return None };
                Some(Struct::of(entries))
            })
        });
        filter_metadata.extend(found.map(|found| (namespace.to_string(), found)));
    }
    Metadata { filter_metadata }
}
