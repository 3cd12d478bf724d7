//! `google.protobuf.Struct` on the wire.

use std::collections::BTreeMap;

use super::{Struct as Values, Value as Held};

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, prost::Message)]
struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    kind: Option<Kind>,
}

/// `google.protobuf.ListValue`.
#[derive(Clone, PartialEq, prost::Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
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

impl Struct {
    pub(crate) fn of(entries: &Values) -> Self {
        let fields = entries.iter().map(|(key, value)| (key.to_string(), Value::of(value)));
        Self { fields: fields.collect() }
    }

    pub(crate) fn into_values(self) -> Values {
        self.fields.into_iter().map(|(key, value)| (key.into(), value.into_value())).collect()
    }
}

impl Value {
    fn of(value: &Held) -> Self {
        let kind = match value {
            Held::Null => Kind::Null(0),
            Held::Bool(flag) => Kind::Flag(*flag),
            Held::Number(number) => Kind::Number(*number),
            Held::String(text) => Kind::Text(text.to_string()),
            Held::List(items) => Kind::List(List { values: items.iter().map(Self::of).collect() }),
            Held::Struct(entries) => Kind::Struct(Struct::of(entries)),
        };
        Self { kind: Some(kind) }
    }

    fn into_value(self) -> Held {
        match self.kind {
            None | Some(Kind::Null(_)) => Held::Null,
            Some(Kind::Flag(flag)) => Held::Bool(flag),
            Some(Kind::Number(number)) => Held::Number(number),
            Some(Kind::Text(text)) => Held::String(text.into()),
            Some(Kind::List(list)) => {
                Held::List(list.values.into_iter().map(Self::into_value).collect())
            }
            Some(Kind::Struct(entries)) => Held::Struct(entries.into_values()),
        }
    }
}
