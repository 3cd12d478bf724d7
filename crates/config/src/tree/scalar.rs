//! What a plain scalar is. Envoy reads YAML with yaml-cpp and hands protobuf a JSON value, so these are the rules of
//! yaml-cpp's conversions: many spellings of a boolean, integers in three bases, and all else a string (protobuf takes
//! strings for floating-point fields).

use super::Value;
use crate::source::Format;

/// The value of a plain scalar.
pub(super) fn plain(text: &str, format: Format) -> Value {
    match format {
        Format::Json => json(text),
        Format::Yaml => yaml(text),
    }
}

fn json(text: &str) -> Value {
    match text {
        "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        number => Value::Number(number.to_owned()),
    }
}

fn yaml(text: &str) -> Value {
    if let "" | "~" | "null" | "Null" | "NULL" = text {
        return Value::Null;
    }
    if let Some(bool) = boolean(text) {
        return Value::Bool(bool);
    }
    // Envoy passes larger integers on as strings, in decimal; integer fields take both.
    match integer(text) {
        Some(number) if i32::try_from(number).is_ok() => Value::Number(number.to_string()),
        Some(number) => Value::String(number.to_string()),
        None => Value::String(text.to_owned()),
    }
}

fn boolean(text: &str) -> Option<bool> {
    let flexible = text.bytes().all(|byte| byte.is_ascii_lowercase())
        || text.bytes().all(|byte| byte.is_ascii_uppercase())
        || text.bytes().skip(1).all(|byte| byte.is_ascii_lowercase());
    if !flexible {
        return None;
    }
    match text.to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" | "on" => Some(true),
        "n" | "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| char::from(byte).is_digit(radix)) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_in_all_spellings() {
        for text in ["y", "Yes", "TRUE", "on"] {
            assert_eq!(yaml(text), Value::Bool(true), "{text}");
        }
        for text in ["n", "No", "false", "OFF"] {
            assert_eq!(yaml(text), Value::Bool(false), "{text}");
        }
        assert_eq!(yaml("tRue"), Value::String("tRue".to_owned()));
    }

    #[test]
    fn integers_in_three_bases() {
        for (text, number) in [
            ("0", "0"),
            ("-5", "-5"),
            ("+7", "7"),
            ("0x1F", "31"),
            ("010", "8"),
            ("2147483647", "2147483647"),
        ] {
            assert_eq!(yaml(text), Value::Number(number.to_owned()), "{text}");
        }
        assert_eq!(yaml("2147483648"), Value::String("2147483648".to_owned()));
        for text in ["08", "0x", "1_000", "1.10", "1e3", "99999999999999999999"] {
            assert_eq!(yaml(text), Value::String(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn nulls() {
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(yaml(text), Value::Null);
        }
    }
}
