//! Messages there and back.

use bytes::Bytes;

use super::json::{self, Json};
use super::schema::{EnumType, Field, Kind, Known, MessageId, MessageType, Schema};
use super::weave::Weave;
use super::{Printing, to_json, to_message};

fn field(name: &str, number: u32, kind: Kind) -> Field {
    let has_presence = matches!(kind, Kind::Message(_));
    Field {
        name: name.into(),
        json_name: name.replace("_n", "N").into(),
        number,
        kind,
        is_repeated: false,
        is_required: false,
        is_map: false,
        has_presence,
        oneof: None,
    }
}

fn repeated(field: Field) -> Field {
    Field { is_repeated: true, ..field }
}

fn message(schema: &mut Schema, name: &str, fields: Vec<Field>) -> MessageId {
    schema.add_message(MessageType {
        name: name.into(),
        fields,
        oneofs: vec!["choice".into()],
        is_proto3: true,
        known: Known::No,
    })
}

/// A message with a field of each kind, and itself in it.
fn schema() -> (Schema, MessageId) {
    let mut schema = Schema::default();
    let color = schema.add_enum(EnumType {
        name: "t.Color".into(),
        values: vec![("NONE".into(), 0), ("RED".into(), 1)],
    });
    let entry = message(
        &mut schema,
        "t.M.Entry",
        vec![field("key", 1, Kind::String), field("value", 2, Kind::Int32)],
    );
    let time = message(
        &mut schema,
        "google.protobuf.Timestamp",
        vec![field("seconds", 1, Kind::Int64), field("nanos", 2, Kind::Int32)],
    );
    let any = message(
        &mut schema,
        "google.protobuf.Any",
        vec![field("type_url", 1, Kind::String), field("value", 2, Kind::Bytes)],
    );
    let own = MessageId(3);
    let one = |name, number| Field { oneof: Some(0), ..field(name, number, Kind::Int32) };
    let fields = vec![
        field("text", 1, Kind::String),
        field("a_number", 2, Kind::Int32),
        repeated(field("longs", 3, Kind::Int64)),
        field("color", 4, Kind::Enum(color)),
        field("inner", 5, Kind::Message(own)),
        repeated(field("inners", 6, Kind::Message(own))),
        Field { is_map: true, ..repeated(field("map", 7, Kind::Message(entry))) },
        field("time", 8, Kind::Message(time)),
        field("any", 9, Kind::Message(any)),
        one("one", 10),
        one("other", 11),
        field("double", 12, Kind::Double),
        field("bytes", 13, Kind::Bytes),
        field("sint", 14, Kind::Sint32),
    ];
    assert_eq!(message(&mut schema, "t.M", fields), own);
    (schema, own)
}

fn encoded(text: &str) -> Result<Vec<u8>, String> {
    let (schema, id) = schema();
    to_message(&schema, id, text.as_bytes())
}

fn printed(message: &[u8], how: Printing) -> Result<String, String> {
    let (schema, id) = schema();
    to_json(&schema, id, &Bytes::copy_from_slice(message), how)
}

#[test]
fn a_message_is_the_same_there_and_back() {
    let texts = [
        "{}",
        r#"{"text":"a\"\u003c\u2028é","aNumber":-1,"longs":["1","-9223372036854775808"]}"#,
        r#"{"color":"RED","inner":{"inner":{}},"inners":[{},{"text":"x"}]}"#,
        r#"{"map":{"b":1,"a":2},"time":"2024-02-29T00:00:00.000000001Z","double":1e+300}"#,
        r#"{"any":{"@type":"type.googleapis.com/t.M","text":"in"},"one":1,"bytes":"AP8=","sint":-5}"#,
        r#"{"any":{"@type":"type.googleapis.com/google.protobuf.Timestamp","value":"1970-01-01T00:00:00Z"}}"#,
    ];
    for text in texts {
        let message = encoded(text).unwrap();
        assert_eq!(printed(&message, Printing::default()).as_deref(), Ok(text));
    }
}

#[test]
fn members_are_written_in_their_order() {
    let message = encoded(r#"{"a_number":1,"text":"","x":{"y":[1]},"aNumber":2,"inner":null}"#);
    assert_eq!(message.unwrap(), b"\x10\x01\x0a\x00\x10\x02");
    assert_eq!(
        encoded(r#"{"longs":[1,[2,"3"],null],"longs":4}"#).unwrap(),
        b"\x18\x01\x18\x02\x18\x03\x18\x04"
    );
}

#[test]
fn errors_have_their_place() {
    let wrong = [
        ("[]", ": Root element must be a message."),
        (r#"{"a_number":"x"}"#, "a_number: invalid value \"x\" for type TYPE_INT32"),
        (r#"{"text":1}"#, "text: invalid value 1 for type TYPE_STRING"),
        (
            r#"{"color":"BLUE"}"#,
            "color: invalid value \"BLUE\" for type type.googleapis.com/t.Color",
        ),
        (
            r#"{"inners":[{},{"inner":{"a_number":true}}]}"#,
            "inners[1].inner.a_number: invalid value true for type TYPE_INT32",
        ),
        (r#"{"text":[1]}"#, ": Proto field is not repeating, cannot start list."),
        (
            r#"{"map":[1]}"#,
            ": invalid value Cannot bind a list to map for field 'map'. for type Map",
        ),
        (r#"{"map":{"a":1,"a":2}}"#, "map[0]: Repeated map key: 'a' is already set."),
        (
            r#"{"one":1,"other":2}"#,
            ": invalid value oneof field 'choice' is already set. Cannot set 'other' for type oneof",
        ),
        (r#"{"text":{}}"#, ": invalid value Starting an object on a scalar field for type text"),
        (r#"{"inner":1}"#, "inner: invalid value 1 for type type.googleapis.com/t.M"),
        (
            r#"{"any":{"a":1}}"#,
            "any: invalid value Missing @type for any field in t.M for type Any",
        ),
    ];
    for (text, told) in wrong {
        assert_eq!(encoded(text), Err(told.into()), "{text}");
    }
}

#[test]
fn what_is_not_set_is_shown_where_that_is_wanted() {
    let how =
        Printing { defaults: true, enums_as_numbers: true, proto_names: true, whitespace: false };
    let shown = printed(b"\x20\x01", how).unwrap();
    let wanted = concat!(
        r#"{"text":"","a_number":0,"longs":[],"color":1,"inners":[],"map":{},"one":0,"other":0,"#,
        r#""double":0,"bytes":"","sint":0}"#
    );
    assert_eq!(shown, wanted);
    let how = Printing { whitespace: true, ..Printing::default() };
    let message = encoded(r#"{"longs":[1],"inner":{},"map":{"a":1}}"#).unwrap();
    let wanted =
        "{\n \"longs\": [\n  \"1\"\n ],\n \"inner\": {},\n \"map\": {\n  \"a\": 1\n }\n}\n";
    assert_eq!(printed(&message, how).unwrap(), wanted);
}

#[test]
fn what_is_no_message_is_refused() {
    let nested = |depth: usize| {
        let mut message = Vec::new();
        for _ in 0..depth {
            let inner = std::mem::take(&mut message);
            super::wire::put_bytes(5, &inner, &mut message);
        }
        message
    };
    assert!(printed(&nested(90), Printing::default()).is_ok());
    assert!(printed(&nested(101), Printing::default()).is_err());
    for wrong in [
        &b"\x0a"[..],
        b"\x0a\x05a",
        b"\x61\0",
        b"\x00",
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x1b",
        b"\x0b\x14",
    ] {
        assert!(printed(wrong, Printing::default()).is_err(), "{wrong:?}");
    }
    // Unknown fields, groups among them, are passed over; packed numbers are taken.
    assert_eq!(
        printed(b"\xa3\x06\x08\x01\xa4\x06\x1a\x02\x01\x02", Printing::default()).unwrap(),
        r#"{"longs":["1","2"]}"#
    );
}

#[test]
fn path_and_query_stand_behind_the_content() {
    let (schema, id) = schema();
    let woven = |text: &str, bindings: &[(&[&str], &str)], is_strict| {
        let mut weave = Weave::default();
        for (names, value) in bindings {
            weave.bind(&schema.resolve(id, names).unwrap(), (*value).into());
        }
        let mut value = json::parse(text.as_bytes(), 100).unwrap();
        weave.weave(&mut value, is_strict).map(|()| value)
    };
    let members = |value: Json| {
        let Json::Object(members) = value else { panic!("{value:?}") };
        members.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let both: &[(&[&str], &str)] =
        &[(&["text"], "a"), (&["inner", "text"], "b"), (&["longs"], "1")];
    assert_eq!(members(woven("{}", both, true).unwrap()), ["text", "longs", "inner"]);
    let value = woven(r#"{"inner":{"x":1},"text":"c"}"#, both, false).unwrap();
    assert_eq!(members(value), ["inner", "text", "longs"]);
    let told = "The binding value \"a\" of the field text is conflicting with the value \"c\" in the body.";
    assert_eq!(woven(r#"{"text":"c"}"#, both, true).unwrap_err(), told);
    assert!(woven(r#"{"text":"a"}"#, both, true).is_ok());
    let unknown = schema.resolve(id, &["inner", "nothing"]).unwrap_err();
    assert_eq!(unknown, "Could not find field \"nothing\" in the type \"t.M\".");
    assert!(schema.resolve(id, &["text", "x"]).unwrap_err().contains("non-leaf"));
    assert!(schema.resolve(id, &["tex%74"]).is_ok());
}

#[test]
fn whatever_comes_is_written_as_it_is_read_or_refused() {
    let seeds: [&[u8]; 3] = [
        br#"{"text":"a\u0000","aNumber":-1,"longs":["1",2],"color":"RED",
            "inner":{"inners":[{},{"map":{"a":1,"b":2}}]}}"#,
        br#"{"time":"2024-02-29T00:00:00.5Z","double":1.5e-300,
            "any":{"@type":"type.googleapis.com/t.M","sint":-5},"bytes":"AP8="}"#,
        b"\x0a\x01a\x10\x01\x1a\x02\x01\x02\x20\x01\x2a\x03\x0a\x01b\x3a\x05\x0a\x01k\x10\x07\
          \x42\x02\x08\x05\x61\0\0\0\0\0\0\xf0?",
    ];
    let (schema, id) = schema();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % limit.max(1)
    };
    let mut read = 0;
    for round in 0..60_000 {
        let mut input = seeds[round % seeds.len()].to_vec();
        for _ in 0..random(4).min(input.len()) {
            let at = random(input.len());
            match random(4) {
                0 => input[at] = u8::try_from(random(256)).unwrap(),
                1 if input.len() > 1 => drop(input.remove(at)),
                1 | 2 => input.insert(at, b"{}[]\",:0-e\\u\x80\xff"[random(14)]),
                _ => input.truncate(at.max(1)),
            }
        }
        let shown = |message: Vec<u8>| to_json(&schema, id, &message.into(), Printing::default());
        let texts = [shown(input.clone()), to_message(&schema, id, &input).and_then(&shown)];
        for text in texts.into_iter().flatten() {
            // A map may have a key twice.
            if let Ok(message) = to_message(&schema, id, text.as_bytes()) {
                assert_eq!(shown(message), Ok(text));
                read += 1;
            }
        }
    }
    assert!(read > 10_000, "only {read} were anything");
}
