//! JSON becomes values, as protobuf reads it: a name counts once, and nothing nests without end.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{Struct, Value};

/// The object that a JSON text is; `None` if it is none, has a name twice, or nests deeper than 100.
#[must_use]
pub fn read_json(text: &[u8]) -> Option<Struct> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Depth(DEEPEST).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    match value {
        Value::Struct(entries) => Some(entries),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::List(_) => None,
    }
}

/// How much deeper it may go.
#[derive(Clone, Copy)]
struct Depth(usize);

impl Depth {
    fn below<E: Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom("nests too deeply"))
    }
}

impl<'de> DeserializeSeed<'de> for Depth {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Depth {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value of JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(below)? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut entries = Struct::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(below)?;
            if entries.insert(name.into(), value).is_some() {
                return Err(A::Error::custom("has a name twice"));
            }
        }
        Ok(Value::Struct(entries))
    }
}

/// As in protobuf.
const DEEPEST: usize = 100;

#[cfg(test)]
mod tests {
    use super::super::{JsonStyle, write_struct};
    use super::*;

    #[test]
    fn what_is_read_is_written_alike() {
        let text = r#"{"a":[1,-2.5,null,true,{"b":"\u00e4\n"}],"c":{},"d":18446744073709552000}"#;
        let mut out = Vec::new();
        write_struct(&mut out, &read_json(text.as_bytes()).unwrap(), JsonStyle::Plain);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            r#"{"a":[1,-2.5,null,true,{"b":"ä\n"}],"c":{},"d":1.8446744073709552e+19}"#
        );
    }

    #[test]
    fn what_two_readers_could_take_for_different_things_is_refused() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":1} x"#,
            r#"{"a":1}{}"#,
            r#"{"a":1,}"#,
            r#"{'a':1}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":1e400}"#,
            r#"{"a":NaN}"#,
            "{\"a\":\"\n\"}",
            "[1]",
            "1",
            "",
        ] {
            assert_eq!(read_json(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read_json(b"{\"a\":\"\xff\"}"), None);
    }

    #[test]
    fn depth_has_a_limit() {
        let nested = |depth| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(read_json(nested(99).as_bytes()).is_some());
        assert!(read_json(nested(100).as_bytes()).is_none());
        assert!(read_json(nested(100_000).as_bytes()).is_none());
    }
}
