//! Messages of Protobuf that several of the services that are asked have in common, as far as they are read and
//! written, and how gRPC frames one message.

mod writer;

use std::collections::BTreeMap;

pub(crate) use self::writer::Writer;
use crate::record::{Record, metadata_of_connection};
use crate::stream_info::{self, StreamInfo};
use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message;

/// One message, framed (gRPC over HTTP/2, Length-Prefixed-Message).
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(FRAME_START + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // A buffer of bytes grows, so that nothing is too long for it.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// The content of the one frame that these bytes are, if it is not compressed.
pub(crate) fn in_frame(body: &[u8]) -> Option<&[u8]> {
    let Some([0, length @ ..]) = body.get(..FRAME_START) else { return None };
    let length = length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
    body.get(FRAME_START..).filter(|message| message.len() == length)
}

/// A byte of flags and four of length.
const FRAME_START: usize = 5;

/// `config.core.v3.Metadata`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) filter_metadata: BTreeMap<String, Struct>,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) fields: BTreeMap<String, Value>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) kind: Option<Kind>,
}

/// `google.protobuf.ListValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct List {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
}

/// `config.core.v3.HeaderValueOption`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<HeaderValue>,
    #[prost(message, optional, tag = "2")]
    pub(crate) append: Option<BoolValue>,
    #[prost(int32, tag = "3")]
    pub(crate) append_action: i32,
}

/// `google.protobuf.BoolValue`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct BoolValue {
    #[prost(bool, tag = "1")]
    pub(crate) value: bool,
}

/// `config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) raw_value: Vec<u8>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Kind {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Flag(bool),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(List),
}

/// The dynamic metadata of these namespaces: the request's, or else its connection's.
pub(crate) fn metadata(
    info: Option<&StreamInfo>,
    record: &Record,
    namespaces: &[Box<str>],
) -> Metadata {
    let mut filter_metadata = BTreeMap::new();
    let below = if namespaces.is_empty() {
        stream_info::Struct::new()
    } else {
        metadata_of_connection(&record.connection_metadata, record.proxied.as_deref())
    };
    for namespace in namespaces {
        let found = info.and_then(|info| {
            info.read_metadata(namespace, &[], |value| {
                let Some(stream_info::Value::Struct(entries)) = value else { return None };
                Some(Struct::of(entries))
            })
        });
        let found = found.or_else(|| match below.get(namespace) {
            Some(stream_info::Value::Struct(entries)) => Some(Struct::of(entries)),
            _ => None,
        });
        filter_metadata.extend(found.map(|found| (namespace.to_string(), found)));
    }
    Metadata { filter_metadata }
}

impl Struct {
    pub(crate) fn of(entries: &stream_info::Struct) -> Self {
        let fields = entries.iter().map(|(key, value)| (key.to_string(), Value::of(value)));
        Self { fields: fields.collect() }
    }

    pub(crate) fn into_values(self) -> stream_info::Struct {
        self.fields.into_iter().map(|(key, value)| (key.into(), value.into_value())).collect()
    }
}

impl Value {
    pub(crate) fn of(value: &stream_info::Value) -> Self {
        let kind = match value {
            stream_info::Value::Null => Kind::Null(0),
            stream_info::Value::Bool(flag) => Kind::Flag(*flag),
            stream_info::Value::Number(number) => Kind::Number(*number),
            stream_info::Value::String(text) => Kind::Text(text.to_string()),
            stream_info::Value::List(items) => {
                Kind::List(List { values: items.iter().map(Self::of).collect() })
            }
            stream_info::Value::Struct(entries) => Kind::Struct(Struct::of(entries)),
        };
        Self { kind: Some(kind) }
    }

    pub(crate) fn into_value(self) -> stream_info::Value {
        match self.kind {
            None | Some(Kind::Null(_)) => stream_info::Value::Null,
            Some(Kind::Flag(flag)) => stream_info::Value::Bool(flag),
            Some(Kind::Number(number)) => stream_info::Value::Number(number),
            Some(Kind::Text(text)) => stream_info::Value::String(text.into()),
            Some(Kind::List(list)) => {
                stream_info::Value::List(list.values.into_iter().map(Self::into_value).collect())
            }
            Some(Kind::Struct(entries)) => stream_info::Value::Struct(entries.into_values()),
        }
    }
}
