//! Functions and operators.

use std::cmp::Ordering;

use super::Value;
use super::compile::{CelError, Node, error, wrong};
use crate::expression::Regex;

/// What is called with values.
#[derive(Debug)]
pub(super) enum Function {
    Equal,
    NotEqual,
    /// `<`, `<=`, `>` or `>=`.
    Order(fn(Ordering) -> bool),
    In,
    Arithmetic(Arithmetic),
    Negate,
    StartsWith,
    EndsWith,
    Contains,
    Matches(Regex),
    /// `re.extract(text, expression, rewrite)`.
    Extract(Regex),
    /// `re.capture(text, expression)`.
    Capture(Regex),
    Size,
    ToInt,
    ToUint,
    ToDouble,
    /// Its text was read when the expression was.
    Known(Value<'static>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Function {
    /// By its name; whether it is called as a member (`text.startsWith(…)`).
    pub(super) fn of(name: &str, is_member: bool, arguments: &[Node]) -> Result<Self, CelError> {
        let function = match name {
            "_==_" => Self::Equal,
            "_!=_" => Self::NotEqual,
            "_<_" => Self::Order(Ordering::is_lt),
            "_<=_" => Self::Order(Ordering::is_le),
            "_>_" => Self::Order(Ordering::is_gt),
            "_>=_" => Self::Order(Ordering::is_ge),
            "@in" => Self::In,
            "_+_" => Self::Arithmetic(Arithmetic::Add),
            "_-_" => Self::Arithmetic(Arithmetic::Subtract),
            "_*_" => Self::Arithmetic(Arithmetic::Multiply),
            "_/_" => Self::Arithmetic(Arithmetic::Divide),
            "_%_" => Self::Arithmetic(Arithmetic::Modulo),
            "-_" => Self::Negate,
            "startsWith" if is_member => Self::StartsWith,
            "endsWith" if is_member => Self::EndsWith,
            "contains" if is_member => Self::Contains,
            "matches" => Self::Matches(expression(arguments.get(1))?),
            "re.extract" => Self::Extract(expression(arguments.get(1))?),
            "re.capture" => Self::Capture(whole_text(arguments.get(1))?),
            "size" => Self::Size,
            "int" if !is_member => Self::ToInt,
            "uint" if !is_member => Self::ToUint,
            "double" if !is_member => Self::ToDouble,
            "duration" if !is_member => Self::Known(Value::Duration(read(arguments, duration)?)),
            _ => return error(format!("there is no function {name}")),
        };
        let wanted = match &function {
            Self::Negate
            | Self::Size
            | Self::ToInt
            | Self::ToUint
            | Self::ToDouble
            | Self::Known(_) => 1,
            Self::Extract(_) => 3,
            _ => 2,
        };
        if arguments.len() != wanted {
            return error(format!("{name} takes {wanted} values"));
        }
        Ok(function)
    }

    /// What it makes of values; none where it makes nothing of such.
    pub(super) fn call<'a>(&self, values: Vec<Value<'a>>) -> Option<Value<'a>> {
        let mut values = values.into_iter();
        let first = values.next()?;
        let mut second = || values.next();
        Some(match self {
            Self::Equal => Value::Bool(first.equals(&second()?)),
            Self::NotEqual => Value::Bool(!first.equals(&second()?)),
            Self::Order(holds) => {
                let second = second()?;
                // A double that is not a number has no order, and is no error either.
                let is_nan =
                    [&first, &second].iter().any(|it| it.double().is_some_and(f64::is_nan));
                match first.compare(&second) {
                    Some(order) => Value::Bool(holds(order)),
                    None if is_nan => Value::Bool(false),
                    None => return None,
                }
            }
            Self::In => match second()? {
                Value::List(list) => Value::Bool(list.iter().any(|it| it.equals(&first))),
                map => Value::Bool(map.has(&bytes(first)?)?),
            },
            Self::Arithmetic(operator) => arithmetic(*operator, first, second()?)?,
            Self::Negate => match first {
                Value::Int(number) => Value::Int(number.checked_neg()?),
                Value::Double(number) => Value::Double(-number),
                _ => return None,
            },
            Self::StartsWith => Value::Bool(bytes(first)?.starts_with(&bytes(second()?)?)),
            Self::EndsWith => Value::Bool(bytes(first)?.ends_with(&bytes(second()?)?)),
            Self::Contains => {
                let (text, part) = (bytes(first)?, bytes(second()?)?);
                let found = part.is_empty() || text.windows(part.len()).any(|it| *it == *part);
                Value::Bool(found)
            }
            Self::Matches(regex) => Value::Bool(regex.is_match(&bytes(first)?)),
            Self::Extract(regex) => {
                let rewrite = values.nth(1)?;
                extract(regex, &bytes(first)?, &bytes(rewrite)?)?
            }
            Self::Capture(regex) => capture(regex, &bytes(first)?)?,
            Self::Size => Value::Int(i64::try_from(first.size()?).ok()?),
            Self::ToInt => Value::Int(match first {
                Value::Int(number) => number,
                Value::Uint(number) => i64::try_from(number).ok()?,
                Value::Double(number) => whole(number)?,
                Value::Time(nanos) => i64::try_from(nanos / 1_000_000_000).ok()?,
                Value::Text(text) => std::str::from_utf8(&text).ok()?.parse().ok()?,
                _ => return None,
            }),
            Self::ToUint => Value::Uint(match first {
                Value::Int(number) => u64::try_from(number).ok()?,
                Value::Uint(number) => number,
                Value::Double(number) => u64::try_from(whole(number)?).ok()?,
                Value::Text(text) => std::str::from_utf8(&text).ok()?.parse().ok()?,
                _ => return None,
            }),
            Self::ToDouble => Value::Double(match first {
                Value::Text(text) => std::str::from_utf8(&text).ok()?.parse().ok()?,
                number => number.double()?,
            }),
            Self::Known(value) => value.clone(),
        })
    }
}

fn bytes(value: Value<'_>) -> Option<std::borrow::Cow<'_, [u8]>> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The whole part of a number, where an `int` has room for it.
fn whole(number: f64) -> Option<i64> {
    // 2^63, which is the first that has none.
    let limit = 9_223_372_036_854_775_808.0;
    (number > -limit && number < limit).then_some(number as i64)
}

fn arithmetic<'a>(operator: Arithmetic, a: Value<'a>, b: Value<'a>) -> Option<Value<'a>> {
    use Arithmetic::{Add, Divide, Modulo, Multiply, Subtract};
    Some(match (a, b) {
        (Value::Int(a), Value::Int(b)) => Value::Int(match operator {
            Add => a.checked_add(b)?,
            Subtract => a.checked_sub(b)?,
            Multiply => a.checked_mul(b)?,
            Divide => a.checked_div(b)?,
            Modulo => a.checked_rem(b)?,
        }),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(match operator {
            Add => a.checked_add(b)?,
            Subtract => a.checked_sub(b)?,
            Multiply => a.checked_mul(b)?,
            Divide => a.checked_div(b)?,
            Modulo => a.checked_rem(b)?,
        }),
        (Value::Double(a), Value::Double(b)) => Value::Double(match operator {
            Add => a + b,
            Subtract => a - b,
            Multiply => a * b,
            Divide => a / b,
            Modulo => return None,
        }),
        (Value::Duration(a), Value::Duration(b)) => Value::Duration(match operator {
            Add => a.checked_add(b)?,
            Subtract => a.checked_sub(b)?,
            _ => return None,
        }),
        (Value::Time(a), Value::Duration(b)) => Value::Time(match operator {
            Add => a.checked_add_signed(b)?,
            Subtract => a.checked_add_signed(b.checked_neg()?)?,
            _ => return None,
        }),
        (Value::Time(a), Value::Time(b)) if operator == Subtract => {
            Value::Duration(i64::try_from(i128::from(a) - i128::from(b)).ok()?)
        }
        _ => return None,
    })
}

/// A regular expression, which must stand in the expression itself.
fn expression(argument: Option<&Node>) -> Result<Regex, CelError> {
    regex(argument, |text| text)
}

/// One that matches all of a text or not at all.
fn whole_text(argument: Option<&Node>) -> Result<Regex, CelError> {
    regex(argument, |text| format!("^(?:{text})$"))
}

fn regex(
    argument: Option<&Node>,
    change: impl FnOnce(String) -> String,
) -> Result<Regex, CelError> {
    let Some(Node::Literal(Value::Text(text))) = argument else {
        return error("a regular expression is a string in the expression");
    };
    let text = String::from_utf8_lossy(text).into_owned();
    Regex::new(&change(text.clone()))
        .map_err(|_| wrong(format!("'{text}' is not a regular expression")))
}

/// What the groups of a match make of `rewrite`, in which `\1` is the first.
fn extract<'a>(regex: &Regex, text: &[u8], rewrite: &[u8]) -> Option<Value<'a>> {
    let groups = regex.captures(text)?;
    let (mut out, mut rest) = (Vec::new(), rewrite.iter());
    while let Some(&byte) = rest.next() {
        match (byte, byte == b'\\') {
            (_, false) => out.push(byte),
            (_, true) => match rest.next()? {
                b'\\' => out.push(b'\\'),
                digit @ b'0'..=b'9' => {
                    let number = usize::from(digit - b'0');
                    if number >= groups.len() {
                        return None;
                    }
                    let group = groups.get(number).map_or(&b""[..], |group| group.as_bytes());
                    out.extend_from_slice(group);
                }
                _ => return None,
            },
        }
    }
    Some(Value::Text(out.into()))
}

/// The first group where the expression matches all of the text.
fn capture<'a>(regex: &Regex, text: &[u8]) -> Option<Value<'a>> {
    let groups = regex.captures(text)?;
    let group = groups.get(1)?;
    Some(Value::Text(group.as_bytes().to_vec().into()))
}

fn read<T>(arguments: &[Node], read: fn(&str) -> Option<T>) -> Result<T, CelError> {
    let Some(Node::Literal(Value::Text(text))) = arguments.first() else {
        return error("a duration is a string in the expression");
    };
    let text = String::from_utf8_lossy(text);
    read(&text).ok_or_else(|| wrong(format!("'{text}' is not a duration")))
}

/// `1h30m`, `1.5s`, `-2ms`, as Go and Abseil write them; in nanoseconds.
fn duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut all = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "h" => 3600e9,
            "m" => 60e9,
            "s" => 1e9,
            "ms" => 1e6,
            "us" => 1e3,
            "ns" => 1.0,
            _ => return None,
        };
        rest = &rest[end..];
        all += number * unit;
    }
    (!text.is_empty()).then_some(())?;
    whole(sign * all)
}
