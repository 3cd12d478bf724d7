//! Any text as JSON, any bytes as a message, any path: none of it panics, and what JSON is written of is written of its
//! message too.
#![no_main]

use bytes::Bytes;
use towpath_engine::filter::grpc_json_transcoder::{
    EnumType, Field, Kind, Known, MessageId, MessageType, Paths, Printing, Schema, to_json,
    to_message,
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [choice, data @ ..] = data else { return };
    let (schema, id) = schema();
    let how = Printing {
        whitespace: choice & 1 != 0,
        defaults: choice & 2 != 0,
        enums_as_numbers: choice & 4 != 0,
        proto_names: choice & 8 != 0,
    };
    let shown = |message: Vec<u8>| to_json(&schema, id, &Bytes::from(message), how);
    if let Ok(text) = shown(data.to_vec()) {
        again(&schema, id, &text, shown);
    }
    if let Ok(message) = to_message(&schema, id, data)
        && let Ok(text) = shown(message)
    {
        again(&schema, id, &text, shown);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let mut paths = Paths::default();
        let templates = text.lines().filter(|line| paths.add("GET", line, 0).is_ok()).count();
        assert!(templates <= text.lines().count());
    }
});

fn again(schema: &Schema, id: MessageId, text: &str, shown: impl Fn(Vec<u8>) -> Result<String, String>) {
    // Of a path in a field mask JSON cannot tell all.
    if text.contains("\"mask\"") {
        return;
    }
    // As in Envoy, `-0` is read as a whole number, which has no such sign.
    let is_number = |at: usize| matches!(text.as_bytes().get(at), Some(b'.' | b'e' | b'0'..=b'9'));
    if text.match_indices("-0").any(|(at, _)| !is_number(at + 2)) {
        return;
    }
    // A packed field of no bytes is written as a list of nothing, as in Envoy, and read as no field.
    if text.contains("[]") {
        return;
    }
    // A map may have a key twice.
    let Ok(message) = to_message(schema, id, text.as_bytes()) else { return };
    assert_eq!(shown(message).as_deref(), Ok(text));
}

fn schema() -> (Schema, MessageId) {
    let mut schema = Schema::default();
    let color = schema.add_enum(EnumType {
        name: "t.Color".into(),
        values: vec![("NONE".into(), 0), ("RED".into(), 1)],
    });
    let null = schema.add_enum(EnumType {
        name: "google.protobuf.NullValue".into(),
        values: vec![("NULL_VALUE".into(), 0)],
    });
    // Each in the place that its id says.
    let [own, entry, structure, member, value, list, time, span, mask, any, wrapper] =
        std::array::from_fn(|at| MessageId(u32::try_from(at).unwrap_or(0)));
    let times = || vec![field("seconds", 1, Kind::Int64), field("nanos", 2, Kind::Int32)];
    let pair = |kind| vec![field("key", 1, Kind::String), field("value", 2, kind)];
    let map = |name, number, id| Field { is_map: true, ..several(field(name, number, Kind::Message(id))) };
    let fields = vec![
        field("text", 1, Kind::String),
        field("bytes", 2, Kind::Bytes),
        field("double", 3, Kind::Double),
        field("float", 4, Kind::Float),
        field("int", 5, Kind::Int32),
        field("long", 6, Kind::Int64),
        field("uint", 7, Kind::Uint32),
        field("ulong", 8, Kind::Uint64),
        several(field("sint", 9, Kind::Sint32)),
        several(field("slong", 10, Kind::Sint64)),
        several(field("fixed", 11, Kind::Fixed32)),
        field("sfixed", 12, Kind::Sfixed64),
        field("flag", 13, Kind::Bool),
        several(field("color", 14, Kind::Enum(color))),
        field("inner", 15, Kind::Message(own)),
        several(field("inners", 16, Kind::Message(own))),
        map("map", 17, entry),
        field("structure", 18, Kind::Message(structure)),
        several(field("values", 19, Kind::Message(value))),
        field("list", 20, Kind::Message(list)),
        field("time", 21, Kind::Message(time)),
        field("span", 22, Kind::Message(span)),
        field("mask", 23, Kind::Message(mask)),
        field("any", 24, Kind::Message(any)),
        field("wrapper", 25, Kind::Message(wrapper)),
        field("null", 26, Kind::Enum(null)),
    ];
    let types = [
        ("t.M", fields),
        ("t.M.Entry", pair(Kind::Int32)),
        ("google.protobuf.Struct", vec![map("fields", 1, member)]),
        ("google.protobuf.Struct.Entry", pair(Kind::Message(value))),
        (
            "google.protobuf.Value",
            vec![
                field("null_value", 1, Kind::Enum(null)),
                field("number_value", 2, Kind::Double),
                field("string_value", 3, Kind::String),
                field("bool_value", 4, Kind::Bool),
                field("struct_value", 5, Kind::Message(structure)),
                field("list_value", 6, Kind::Message(list)),
            ],
        ),
        ("google.protobuf.ListValue", vec![several(field("values", 1, Kind::Message(value)))]),
        ("google.protobuf.Timestamp", times()),
        ("google.protobuf.Duration", times()),
        ("google.protobuf.FieldMask", vec![several(field("paths", 1, Kind::String))]),
        (
            "google.protobuf.Any",
            vec![field("type_url", 1, Kind::String), field("value", 2, Kind::Bytes)],
        ),
        ("google.protobuf.BytesValue", vec![field("value", 1, Kind::Bytes)]),
    ];
    for (name, fields) in types {
        schema.add_message(MessageType {
            name: name.into(),
            fields,
            oneofs: Vec::new(),
            is_proto3: true,
            known: Known::No,
        });
    }
    (schema, own)
}

fn field(name: &str, number: u32, kind: Kind) -> Field {
    Field {
        name: name.into(),
        json_name: name.into(),
        number,
        kind,
        is_repeated: false,
        is_required: false,
        is_map: false,
        has_presence: matches!(kind, Kind::Message(_)),
        oneof: None,
    }
}

fn several(field: Field) -> Field {
    Field { is_repeated: true, ..field }
}
