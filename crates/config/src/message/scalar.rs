//! Single values, as protobuf's JSON reader takes them.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost_reflect::{EnumDescriptor, Kind};

use super::{Nanos, Value};
use crate::tree::{Key, Node, Pos, Value as Tree};

/// Reads a scalar of this kind. The error says what is wrong.
pub(super) fn scalar(kind: &Kind, node: &Node) -> Result<Value, String> {
    match kind {
        Kind::Bool => boolean(node).map(Value::Bool),
        Kind::String => match &node.value {
            Tree::String(text) => Ok(Value::String(text.clone())),
            Tree::Null | Tree::Bool(_) | Tree::Number(_) | Tree::List(_) | Tree::Map(_) => {
                Err(format!("must be a string, not {} (quote it)", node.kind()))
            }
        },
        Kind::Bytes => bytes(node).map(Value::Bytes),
        Kind::Double | Kind::Float => float(node).map(Value::Float),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            integer(node, i128::from(i32::MIN), i128::from(i32::MAX)).and_then(signed)
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            integer(node, i128::from(i64::MIN), i128::from(i64::MAX)).and_then(signed)
        }
        Kind::Uint32 | Kind::Fixed32 => integer(node, 0, i128::from(u32::MAX)).and_then(unsigned),
        Kind::Uint64 | Kind::Fixed64 => integer(node, 0, i128::from(u64::MAX)).and_then(unsigned),
        Kind::Enum(descriptor) => enumeration(descriptor, node).map(Value::Enum),
        Kind::Message(_) => Err("must be a map".to_owned()),
    }
}

/// Whether an enum's name is written in another case than the proto has it.
pub(super) fn proper_name(descriptor: &EnumDescriptor, node: &Node) -> Option<String> {
    let text = node.text()?;
    let number = enumeration(descriptor, node).ok()?;
    let exact = descriptor.get_value_by_name(text).is_some() || text.parse::<i32>().is_ok();
    (!exact).then(|| descriptor.get_value(number).map(|value| value.name().to_owned())).flatten()
}

fn signed(number: i128) -> Result<Value, String> {
    i64::try_from(number).map(Value::Int).map_err(|error| error.to_string())
}

fn unsigned(number: i128) -> Result<Value, String> {
    u64::try_from(number).map(Value::Uint).map_err(|error| error.to_string())
}

fn boolean(node: &Node) -> Result<bool, String> {
    match (&node.value, node.text()) {
        (Tree::Bool(bool), _) => Ok(*bool),
        (_, Some("true")) => Ok(true),
        (_, Some("false")) => Ok(false),
        _ => Err(format!("must be true or false, not {}", node.kind())),
    }
}

fn number_text(node: &Node) -> Result<&str, String> {
    match &node.value {
        Tree::Number(text) | Tree::String(text) => Ok(text),
        Tree::Null | Tree::Bool(_) | Tree::List(_) | Tree::Map(_) => {
            Err(format!("must be a number, not {}", node.kind()))
        }
    }
}

fn integer(node: &Node, min: i128, max: i128) -> Result<i128, String> {
    let text = number_text(node)?;
    let number = match text.parse::<i128>() {
        Ok(number) => number,
        Err(_) => integral(text).ok_or_else(|| format!("must be an integer, not `{text}`"))?,
    };
    if number < min || number > max {
        return Err(format!("{text} is out of range; it must be {min} to {max}"));
    }
    Ok(number)
}

/// `1.0` and `1e3` are integers to protobuf.
fn integral(text: &str) -> Option<i128> {
    let float: f64 = text.parse().ok()?;
    (float.is_finite() && float.fract() == 0.0 && float.abs() < 2e19).then_some(float as i128)
}

fn float(node: &Node) -> Result<f64, String> {
    let text = number_text(node)?;
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        _ => match text.parse::<f64>() {
            Ok(float) if float.is_finite() => Ok(float),
            _ => Err(format!("must be a number, not `{text}`")),
        },
    }
}

/// Base64 in either alphabet, padded or not.
fn bytes(node: &Node) -> Result<Vec<u8>, String> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let text = node.text().ok_or_else(|| format!("must be base64 text, not {}", node.kind()))?;
    let alphabet =
        if text.contains(['-', '_']) { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    GeneralPurpose::new(alphabet, LENIENT).decode(text).map_err(|_| "is not base64".to_owned())
}

fn enumeration(descriptor: &EnumDescriptor, node: &Node) -> Result<i32, String> {
    if let Ok(number) = integer(node, i128::from(i32::MIN), i128::from(i32::MAX)) {
        return i32::try_from(number).map_err(|error| error.to_string());
    }
    let text = node
        .text()
        .ok_or_else(|| format!("must be a name of {}, not {}", descriptor.name(), node.kind()))?;
    if let Some(value) = descriptor.get_value_by_name(text) {
        return Ok(value.number());
    }
    let found = descriptor.values().find(|value| value.name().eq_ignore_ascii_case(text));
    found
        .map(|value| value.number())
        .ok_or_else(|| format!("`{text}` is not one of {}", names(descriptor)))
}

fn names(descriptor: &EnumDescriptor) -> String {
    descriptor.values().map(|value| value.name().to_owned()).collect::<Vec<_>>().join(", ")
}

/// A wrapper by the field of its message, which Envoy takes too: `{value: 1}`, or its default when empty.
pub(super) fn wrapped(kind: &Kind, entries: &[(Key, Node)]) -> Result<Value, String> {
    match entries {
        [] => scalar(kind, &Node { pos: Pos::default(), value: default_of(kind) }),
        [(key, node)] if key.name == "value" => scalar(kind, node),
        _ => Err("must be a value, or a map with `value` alone".to_owned()),
    }
}

fn default_of(kind: &Kind) -> Tree {
    match kind {
        Kind::Bool => Tree::Bool(false),
        Kind::String | Kind::Bytes => Tree::String(String::new()),
        _ => Tree::Number("0".to_owned()),
    }
}

/// 10,000 years.
const MAX_SECONDS: i128 = 315_576_000_000;

/// A duration by the fields of its message, which Envoy takes too: `{seconds: 1, nanos: 500000000}`.
fn duration_fields(entries: &[(Key, Node)]) -> Result<Nanos, String> {
    let (mut seconds, mut nanos) = (0, 0);
    for (key, node) in entries {
        match &*key.name {
            "seconds" => seconds = integer(node, -MAX_SECONDS, MAX_SECONDS)?,
            "nanos" => nanos = integer(node, -999_999_999, 999_999_999)?,
            other => return Err(format!("a duration has `seconds` and `nanos`, not `{other}`")),
        }
    }
    if seconds.signum() * nanos.signum() < 0 {
        return Err("`seconds` and `nanos` must have the same sign".to_owned());
    }
    Ok(Nanos(seconds * 1_000_000_000 + nanos))
}

/// `"1.5s"`: seconds with up to nine decimals, at most 10,000 years either way.
pub(super) fn duration(node: &Node) -> Result<Nanos, String> {
    if let Tree::Map(entries) = &node.value {
        return duration_fields(entries);
    }
    let text = node
        .text()
        .ok_or_else(|| format!("must be a duration such as \"1.5s\", not {}", node.kind()))?;
    let malformed = || format!("`{text}` is not a duration such as \"1.5s\"");
    let number = text.strip_suffix('s').ok_or_else(malformed)?;
    let (negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (seconds, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty()
        || !digits(seconds)
        || !digits(fraction)
        || fraction.len() > 9
        || number.ends_with('.')
    {
        return Err(malformed());
    }
    let seconds: i128 = seconds.parse().map_err(|_| malformed())?;
    let nanos: i128 = format!("{fraction:0<9}").parse().map_err(|_| malformed())?;
    if seconds > MAX_SECONDS || (seconds == MAX_SECONDS && nanos > 0) {
        return Err(format!("{text} is out of range; at most {MAX_SECONDS}s"));
    }
    let total = seconds * 1_000_000_000 + nanos;
    Ok(Nanos(if negative { -total } else { total }))
}
