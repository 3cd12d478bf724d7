//! One field against its `validate.FieldRules`.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value as Rule};

use crate::message::{At, Field, Nanos, Value};

/// A rule that does not hold.
pub(super) struct Broken {
    /// Where, if it is deeper than the field.
    pub(super) at: Option<At>,
    pub(super) message: String,
}

/// Checks a field, set or not.
pub(super) fn field(
    rules: &DynamicMessage,
    descriptor: &FieldDescriptor,
    set: Option<&Field>,
) -> Option<Broken> {
    let here = |message: String| Broken { at: None, message };
    match set.map(|field| &field.value) {
        None if descriptor.containing_oneof().is_some() => None,
        None if required(rules) => Some(here("is required".to_owned())),
        None if descriptor.is_list() || descriptor.is_map() => list(rules, descriptor, &[]),
        None if descriptor.supports_presence() => None,
        None => value(rules, &zero(&descriptor.kind())).map(here),
        Some(Value::List(items)) => {
            let items: Vec<_> = items.iter().map(|item| (&item.at, &item.value)).collect();
            list(rules, descriptor, &items)
        }
        Some(Value::Map(entries)) => {
            let items: Vec<_> = entries.iter().map(|(_, item)| (&item.at, &item.value)).collect();
            list(rules, descriptor, &items)
        }
        Some(single) => value(rules, single).map(here),
    }
}

fn zero(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => Value::Bool(false),
        Kind::String => Value::String(String::new()),
        Kind::Bytes => Value::Bytes(Vec::new()),
        Kind::Enum(_) => Value::Enum(0),
        Kind::Double | Kind::Float => Value::Float(0.0),
        Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => Value::Uint(0),
        _ => Value::Int(0),
    }
}

/// `message.required`, `duration.required` and so on.
fn required(rules: &DynamicMessage) -> bool {
    rules.fields().any(|(_, rule)| {
        rule.as_message().is_some_and(|rule| {
            let field = rule.descriptor().get_field_by_name("required");
            field.is_some_and(|field| rule.get_field(&field).as_bool() == Some(true))
        })
    })
}

fn list(
    rules: &DynamicMessage,
    descriptor: &FieldDescriptor,
    items: &[(&At, &Value)],
) -> Option<Broken> {
    let rules = part(rules, if descriptor.is_map() { "map" } else { "repeated" })?;
    let ignored = bool(&rules, "ignore_empty") && items.is_empty();
    let at_least =
        number(&rules, "min_items").or_else(|| number(&rules, "min_pairs")).filter(|_| !ignored);
    let at_most = number(&rules, "max_items").or_else(|| number(&rules, "max_pairs"));
    let count = items.len() as f64;
    if let Some(least) = at_least.filter(|least| count < *least) {
        return Some(Broken { at: None, message: format!("needs at least {least} item(s)") });
    }
    if let Some(most) = at_most.filter(|most| count > *most) {
        return Some(Broken { at: None, message: format!("takes at most {most} item(s)") });
    }
    let unique = bool(&rules, "unique");
    for (index, (at, item)) in items.iter().enumerate() {
        if unique
            && items[..index].iter().any(|(_, other)| format!("{other:?}") == format!("{item:?}"))
        {
            return Some(Broken { at: Some((*at).clone()), message: "is there twice".to_owned() });
        }
        let of_items = part(&rules, if descriptor.is_map() { "values" } else { "items" });
        if let Some(message) = of_items.and_then(|rules| value(&rules, item)) {
            return Some(Broken { at: Some((*at).clone()), message });
        }
    }
    None
}

/// A single value against the rules of its kind.
fn value(rules: &DynamicMessage, value: &Value) -> Option<String> {
    let (_, rules) = rules.fields().find(|(field, _)| field.name() != "message")?;
    let rules = rules.as_message()?;
    match value.unwrapped() {
        Value::String(text) | Value::Text(text) => string(rules, text),
        Value::Bytes(bytes) => sized(rules, bytes.len(), "min_len", "max_len", "bytes"),
        Value::Bool(flag) => rule(rules, "const")
            .and_then(|wanted| wanted.as_bool())
            .filter(|wanted| wanted != flag)
            .map(|wanted| format!("must be {wanted}")),
        Value::Int(number) => numeric(rules, *number as f64, &|limit| limit.to_string()),
        Value::Uint(number) => numeric(rules, *number as f64, &|limit| limit.to_string()),
        Value::Float(number) => numeric(rules, *number, &|limit| limit.to_string()),
        Value::Duration(nanos) => {
            numeric(rules, nanos.0 as f64, &|limit| Nanos(limit as i128).to_string())
        }
        Value::Enum(_) => enumeration(rules, value),
        _ => None,
    }
}

fn enumeration(rules: &DynamicMessage, value: &Value) -> Option<String> {
    let Value::Enum(number) = value else { return None };
    let among = |name| {
        rule(rules, name).map(|list| {
            list.as_list()
                .is_some_and(|list| list.iter().any(|item| item.as_i32() == Some(*number)))
        })
    };
    if among("in") == Some(false) || among("not_in") == Some(true) {
        return Some("this value is not allowed here".to_owned());
    }
    if let Some(wanted) =
        rule(rules, "const").and_then(|wanted| wanted.as_i32()).filter(|wanted| wanted != number)
    {
        return Some(format!("must be {wanted}"));
    }
    None
}

fn numeric(rules: &DynamicMessage, value: f64, show: &dyn Fn(f64) -> String) -> Option<String> {
    if bool(rules, "ignore_empty") && value == 0.0 {
        return None;
    }
    let limit = |name, words: &str, holds: fn(&f64, &f64) -> bool| {
        let limit = number(rules, name).filter(|limit| !holds(&value, limit))?;
        Some(format!("must be {words}{}", show(limit)))
    };
    let broken = limit("const", "", f64::eq)
        .or_else(|| limit("gt", "greater than ", f64::gt))
        .or_else(|| limit("gte", "at least ", f64::ge))
        .or_else(|| limit("lt", "less than ", f64::lt))
        .or_else(|| limit("lte", "at most ", f64::le));
    if broken.is_some() {
        return broken;
    }
    let listed = |name| {
        rule(rules, name).map(|list| {
            list.as_list()
                .is_some_and(|list| list.iter().any(|item| as_number(item) == Some(value)))
        })
    };
    if listed("in") == Some(false) || listed("not_in") == Some(true) {
        return Some("this value is not allowed here".to_owned());
    }
    None
}

fn string(rules: &DynamicMessage, text: &str) -> Option<String> {
    if bool(rules, "ignore_empty") && text.is_empty() {
        return None;
    }
    let broken = sized(rules, text.chars().count(), "min_len", "max_len", "characters")
        .or_else(|| sized(rules, text.len(), "min_bytes", "max_bytes", "bytes"));
    if broken.is_some() {
        return broken;
    }
    let words = |name| rule(rules, name).and_then(|rule| rule.as_str().map(str::to_owned));
    if let Some(prefix) = words("prefix").filter(|prefix| !text.starts_with(prefix)) {
        return Some(format!("must begin with `{prefix}`"));
    }
    if let Some(suffix) = words("suffix").filter(|suffix| !text.ends_with(suffix)) {
        return Some(format!("must end with `{suffix}`"));
    }
    if let Some(wanted) = words("const").filter(|wanted| wanted != text) {
        return Some(format!("must be `{wanted}`"));
    }
    if let Some(pattern) = words("pattern")
        && regex::Regex::new(&pattern).is_ok_and(|pattern| !pattern.is_match(text))
    {
        return Some(format!("must match `{pattern}`"));
    }
    let listed = |name| {
        rule(rules, name).map(|list| {
            list.as_list().is_some_and(|list| list.iter().any(|item| item.as_str() == Some(text)))
        })
    };
    if listed("in") == Some(false) || listed("not_in") == Some(true) {
        return Some("this value is not allowed here".to_owned());
    }
    well_known(rules, text)
}

/// `well_known_regex`: a header's name or value.
fn well_known(rules: &DynamicMessage, text: &str) -> Option<String> {
    let strict = rules.descriptor().get_field_by_name("strict").is_none_or(|field| {
        !rules.has_field(&field) || rules.get_field(&field).as_bool() != Some(false)
    });
    let (what, fits): (_, fn(bool, u8) -> bool) = match rule(rules, "well_known_regex")
        .and_then(|rule| rule.as_enum_number())
    {
        Some(1) => ("a header name", |strict, byte| {
            if strict { is_token(byte) || byte == b':' } else { !matches!(byte, 0 | b'\n' | b'\r') }
        }),
        Some(2) => ("a header value", |strict, byte| {
            if strict {
                byte == b'\t' || (byte >= b' ' && byte != 0x7f)
            } else {
                !matches!(byte, 0 | b'\n' | b'\r')
            }
        }),
        _ => return None,
    };
    (!text.bytes().all(|byte| fits(strict, byte))).then(|| format!("{text:?} is not {what}"))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_|~`".contains(&byte)
}

fn sized(
    rules: &DynamicMessage,
    size: usize,
    least: &str,
    most: &str,
    unit: &str,
) -> Option<String> {
    let size = size as f64;
    if let Some(least) = number(rules, least).filter(|least| size < *least) {
        return Some(if size == 0.0 {
            "must not be empty".to_owned()
        } else {
            format!("needs at least {least} {unit}")
        });
    }
    number(rules, most)
        .filter(|most| size > *most)
        .map(|most| format!("takes at most {most} {unit}"))
}

/// A rule that is set.
fn rule(rules: &DynamicMessage, name: &str) -> Option<Rule> {
    let field = rules.descriptor().get_field_by_name(name)?;
    if !rules.has_field(&field) {
        return None;
    }
    Some(rules.get_field(&field).into_owned())
}

fn part(rules: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    rule(rules, name)?.as_message().cloned()
}

fn bool(rules: &DynamicMessage, name: &str) -> bool {
    rule(rules, name).is_some_and(|rule| rule.as_bool() == Some(true))
}

fn number(rules: &DynamicMessage, name: &str) -> Option<f64> {
    as_number(&rule(rules, name)?)
}

/// A number, or a duration in nanoseconds.
fn as_number(rule: &Rule) -> Option<f64> {
    match rule {
        Rule::I32(number) => Some(f64::from(*number)),
        Rule::U32(number) => Some(f64::from(*number)),
        Rule::I64(number) => Some(*number as f64),
        Rule::U64(number) => Some(*number as f64),
        Rule::F32(number) => Some(f64::from(*number)),
        Rule::F64(number) => Some(*number),
        Rule::Message(duration) => {
            let seconds = duration
                .get_field_by_name("seconds")
                .and_then(|seconds| seconds.as_i64())
                .unwrap_or(0);
            let nanos =
                duration.get_field_by_name("nanos").and_then(|nanos| nanos.as_i32()).unwrap_or(0);
            Some(seconds as f64 * 1e9 + f64::from(nanos))
        }
        _ => None,
    }
}
