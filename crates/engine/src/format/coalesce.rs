//! `COALESCE`: what the first of several commands says that says anything.

use super::append::Literal;
use super::parse::Spelt;
use super::{Facts, FormatOptions, FormatReason, Part};
#[cfg(feature = "serving")]
use crate::stream_info::read_json;
use crate::stream_info::{Struct, Value};

/// Compiles `{"operators": ["NAME", {"command": "NAME", "param": "…", "max_length": 1}]}`.
pub(super) fn operators(
    text: &str,
    options: &FormatOptions<'_>,
) -> Result<Box<[Part]>, FormatReason> {
    let wrong = |why: &str| FormatReason::Parameter(why.to_owned());
    let config = read(text).ok_or_else(|| wrong("is no object of JSON"))?;
    let Some(Value::List(operators)) = config.get("operators") else {
        return Err(wrong("has no list `operators`"));
    };
    if operators.is_empty() {
        return Err(wrong("`operators` is empty"));
    }
    operators.iter().map(|it| operator(it, options)).collect()
}

#[cfg(feature = "serving")]
fn read(text: &str) -> Option<Struct> {
    read_json(text.as_bytes())
}

/// Without what serves, no text of JSON is read.
#[cfg(not(feature = "serving"))]
fn read(_: &str) -> Option<Struct> {
    None
}

fn operator(value: &Value, options: &FormatOptions<'_>) -> Result<Part, FormatReason> {
    let wrong = |why: &str| FormatReason::Parameter(why.to_owned());
    let nothing = Struct::default();
    let (name, fields) = match value {
        Value::String(name) => (&**name, &nothing),
        Value::Struct(fields) => match fields.get("command") {
            Some(Value::String(name)) => (&**name, fields),
            Some(_) | None => return Err(wrong("an operator has no string `command`")),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) => {
            return Err(wrong("an operator is neither a command's name nor an object"));
        }
    };
    let parameter = match fields.get("param") {
        None => None,
        Some(Value::String(parameter)) => Some(&**parameter).filter(|text| !text.is_empty()),
        Some(_) => return Err(wrong("`param` is no string")),
    };
    let max_length = match fields.get("max_length") {
        None => None,
        Some(Value::Number(length)) if *length >= 1.0 && length.fract() == 0.0 => {
            Some(length.min(f64::from(u32::MAX)) as usize)
        }
        Some(_) => return Err(wrong("`max_length` is no whole number above 0")),
    };
    Spelt { name, parameter, max_length, rest: "" }.compile(options).map_err(
        |reason| match reason {
            FormatReason::Unknown => wrong(&format!("unknown command '{name}'")),
            FormatReason::Unsupported => wrong(&format!("command '{name}' is not supported")),
            other @ (FormatReason::Syntax
            | FormatReason::MissingParameter
            | FormatReason::UnexpectedParameter
            | FormatReason::Parameter(_)
            | FormatReason::UnexpectedLength
            | FormatReason::LineEnd) => other,
        },
    )
}

impl Part {
    /// Appends what it says; false, and nothing appended, if that is nothing.
    pub(super) fn write_some(&self, out: &mut Vec<u8>, facts: &Facts<'_>) -> bool {
        let start = out.len();
        match self {
            Self::Literal(literal) => literal.append_to(out),
            Self::Command { command, max_length, .. } => {
                if !command.write(out, facts) {
                    out.truncate(start);
                }
                if let Some(length) = max_length {
                    out.truncate(start + length);
                }
            }
        }
        out.len() > start
    }

    /// The same, with so much of it at most.
    pub(super) fn shortened(self, most: Option<usize>) -> Self {
        let Some(most) = most else { return self };
        match self {
            Self::Literal(literal) => {
                let text = literal.as_bytes();
                Self::Literal(Literal::new(&text[..most.min(text.len())]))
            }
            Self::Command { before, command, max_length } => {
                let max_length = Some(max_length.map_or(most, |own| own.min(most)));
                Self::Command { before, command, max_length }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_proto::Instant;

    use crate::format::{Facts, Format, FormatError, FormatOptions, FormatReason, JsonTemplate};
    use crate::record::Record;

    fn written(format: &Format) -> String {
        let (record, mut out) = (Record { status: 204, ..Record::default() }, Vec::new());
        format.write(&mut out, &Facts::new(&record, Instant::ZERO));
        String::from_utf8(out).unwrap()
    }

    fn text(format: &str) -> Result<String, FormatError> {
        Format::parse(format).map(|format| written(&format))
    }

    #[test]
    fn the_first_that_says_anything_counts() {
        let first =
            r#"%COALESCE({"operators": [{"command": "REQ", "param": ":path"}, "RESPONSE_CODE"]})%"#;
        assert_eq!(text(first).unwrap(), "204");
        let none = r#"a %COALESCE({"operators": [{"command": "REQ", "param": ":path"}]})% b"#;
        assert_eq!(text(none).unwrap(), "a - b");
        let unset = r#"%COALESCE({"operators": [{"command": "ENVIRONMENT", "param": "A", "max_length": 1e300}]})%"#;
        assert_eq!(text(unset).unwrap(), "-", "what Envoy says of what is not set is something");
        let short = r#"%COALESCE({"operators": ["RESPONSE_CODE"]}):2%"#;
        assert_eq!(text(short).unwrap(), "20");
    }

    #[test]
    fn json_has_the_type_of_what_counts() {
        let operators =
            r#"%COALESCE({"operators": [{"command": "REQ", "param": "a"}, "RESPONSE_CODE"]}):1%"#;
        let template =
            JsonTemplate::Object(vec![("x".into(), JsonTemplate::Text(operators.into()))]);
        let format = Format::json(&template, &FormatOptions::default()).unwrap();
        assert_eq!(written(&format), "{\"x\":204}\n");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("%COALESCE({)%", "is no object of JSON"),
            (r#"%COALESCE({"operators": 1})%"#, "has no list `operators`"),
            (r#"%COALESCE({"operators": []})%"#, "`operators` is empty"),
            (
                r#"%COALESCE({"operators": [1]})%"#,
                "an operator is neither a command's name nor an object",
            ),
            (r#"%COALESCE({"operators": [{}]})%"#, "an operator has no string `command`"),
            (r#"%COALESCE({"operators": ["NOT"]})%"#, "unknown command 'NOT'"),
            (
                r#"%COALESCE({"operators": [{"command": "REQ", "param": 1}]})%"#,
                "`param` is no string",
            ),
            (
                r#"%COALESCE({"operators": [{"command": "REQ", "param": "a", "max_length": 0}]})%"#,
                "`max_length` is no whole number above 0",
            ),
        ];
        for (format, why) in cases {
            let reason = text(format).unwrap_err().reason;
            assert_eq!(reason, FormatReason::Parameter(why.to_owned()), "{format}");
        }
        assert_eq!(text("%COALESCE%").unwrap_err().reason, FormatReason::MissingParameter);
    }
}
