//! What a server is told of a stream beside its parts: expressions over Envoy's attributes.

use crate::format::Facts;
use crate::format::cel::{self, Expression};
use crate::protobuf::{Kind, Struct, Value};

/// Expressions with their values; those that have none for this stream are left out.
pub(super) fn told(wanted: &[Expression], facts: &Facts<'_>) -> Struct {
    let fields = wanted.iter().filter_map(|expression| {
        let kind = Some(kind(&expression.value(facts)?));
        Some((expression.text().to_owned(), Value { kind }))
    });
    Struct { fields: fields.collect() }
}

/// Flags and whole numbers as they are, all else as text, as Envoy has it.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever there is can be printed")]
fn kind(value: &cel::Value<'_>) -> Kind {
    match value {
        cel::Value::Bool(flag) => Kind::Flag(*flag),
        cel::Value::Int(number) => Kind::Number(*number as f64),
        cel::Value::Uint(number) => Kind::Number(*number as f64),
        other => {
            let mut text = Vec::new();
            other.print(&mut text);
            Kind::Text(String::from_utf8_lossy(&text).into_owned())
        }
    }
}
