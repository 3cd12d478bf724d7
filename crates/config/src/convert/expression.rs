//! Expressions in CEL that a compiler has taken apart. They are written as text again, which the engine reads.

use std::fmt::Write as _;

use towpath_engine::format::cel::Expression;

use super::Converter;
use crate::message::{Field, Message, Value};

impl Converter<'_> {
    /// A `xds.type.v3.CelExpression`.
    pub(super) fn matched_expression(&mut self, expression: &Message) -> Option<Expression> {
        let each = ["cel_expr_checked", "cel_expr_parsed", "parsed_expr", "checked_expr"];
        let known = |name: &&str| expression.descriptor.get_field_by_name(name).is_some();
        let mut each = each.into_iter().filter(known);
        let Some(holder) = each.find_map(|name| expression.message(name)) else {
            self.report.problem(&expression.at, "CEL expression not set.");
            return None;
        };
        let Some(parsed) = holder.message("expr") else {
            self.report.problem(&holder.at, "CEL expression not set.");
            return None;
        };
        self.parsed_expression(parsed)
    }

    /// An `Expr`.
    pub(super) fn parsed_expression(&mut self, expression: &Message) -> Option<Expression> {
        let mut text = String::new();
        if let Err(why) = write(expression, &mut text) {
            match why {
                Why::Wrong(text) => self.report.problem(&expression.at, text),
                Why::Unsupported(text) => self.report.unsupported(&expression.at, text),
            }
            return None;
        }
        self.expression(&text, &expression.at)
    }
}

/// Why an expression cannot be written.
enum Why {
    Wrong(&'static str),
    Unsupported(&'static str),
}

fn write(expression: &Message, out: &mut String) -> Result<(), Why> {
    let Some(field) = expression.oneof("expr_kind") else { return Err(Why::Wrong(EMPTY)) };
    let Value::Message(inner) = &field.value else { return Err(Why::Wrong(EMPTY)) };
    match field.descriptor.name() {
        "const_expr" => constant(inner.oneof("constant_kind"), out),
        "ident_expr" => name(inner.text("name"), out),
        "select_expr" => select(inner, out),
        "call_expr" => call(inner, out),
        "list_expr" => {
            out.push('[');
            all(inner, "elements", out)?;
            out.push(']');
            Ok(())
        }
        "struct_expr" => Err(Why::Unsupported("maps and messages cannot be made")),
        _ => Err(Why::Wrong("there are no comprehensions (all, exists, map, filter)")),
    }
}

/// Expressions with commas between them.
fn all(holder: &Message, field: &str, out: &mut String) -> Result<(), Why> {
    for (place, expression) in holder.messages(field).enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        write(expression, out)?;
    }
    Ok(())
}

fn select(select: &Message, out: &mut String) -> Result<(), Why> {
    let Some(operand) = select.message("operand") else { return Err(Why::Wrong(EMPTY)) };
    let tests = select.flag("test_only");
    if tests {
        out.push_str("has(");
    }
    write(operand, out)?;
    out.push('.');
    name(select.text("field"), out)?;
    if tests {
        out.push(')');
    }
    Ok(())
}

fn call(call: &Message, out: &mut String) -> Result<(), Why> {
    let function = call.text("function");
    let arguments: Vec<&Message> = call.messages("args").collect();
    let target = call.message("target");
    if target.is_none() && operator(function, &arguments, out)? {
        return Ok(());
    }
    if let Some(target) = target {
        write(target, out)?;
        out.push('.');
    }
    for (place, part) in function.split('.').enumerate() {
        if place > 0 {
            out.push('.');
        }
        name(part, out)?;
    }
    out.push('(');
    all(call, "args", out)?;
    out.push(')');
    Ok(())
}

/// Writes an operator with its operands in brackets; false if it is none.
fn operator(function: &str, arguments: &[&Message], out: &mut String) -> Result<bool, Why> {
    let inner = |it: &Message, out: &mut String| write(it, out);
    match (function, arguments) {
        ("!_" | "-_", [only]) => {
            out.push('(');
            out.push_str(&function[..1]);
            inner(only, out)?;
        }
        ("_?_:_", [condition, then, other]) => {
            out.push('(');
            inner(condition, out)?;
            out.push_str(" ? ");
            inner(then, out)?;
            out.push_str(" : ");
            inner(other, out)?;
        }
        ("_[_]", [operand, index]) => {
            inner(operand, out)?;
            out.push('[');
            inner(index, out)?;
            out.push(']');
            return Ok(true);
        }
        (_, [one, other]) => {
            let Some((_, sign)) = BINARY.iter().find(|(name, _)| *name == function) else {
                return Ok(false);
            };
            out.push('(');
            inner(one, out)?;
            out.push(' ');
            out.push_str(sign);
            out.push(' ');
            inner(other, out)?;
        }
        _ => return Ok(false),
    }
    out.push(')');
    Ok(true)
}

/// What is no name could be read as something else.
fn name(text: &str, out: &mut String) -> Result<(), Why> {
    let is_name = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        return Err(Why::Wrong("a name in an expression is none"));
    }
    out.push_str(text);
    Ok(())
}

fn constant(field: Option<&Field>, out: &mut String) -> Result<(), Why> {
    // Writing to a string does not fail.
    let _ = match field.map(|field| &field.value) {
        Some(Value::Bool(flag)) => write!(out, "{flag}"),
        Some(Value::Int(number)) if *number < 0 => write!(out, "({number})"),
        Some(Value::Int(number)) => write!(out, "{number}"),
        Some(Value::Uint(number)) => write!(out, "{number}u"),
        Some(Value::Float(number)) if number.is_finite() => write!(out, "({number:?})"),
        Some(Value::Enum(_)) => write!(out, "null"),
        Some(Value::String(text)) => {
            out.push('"');
            for character in text.chars() {
                quote(character, out);
            }
            out.push('"');
            Ok(())
        }
        Some(Value::Bytes(bytes)) => {
            out.push_str("b\"");
            for byte in bytes {
                let _ = write!(out, "\\x{byte:02x}");
            }
            out.push('"');
            Ok(())
        }
        _ => return Err(Why::Wrong("a constant in an expression has no value")),
    };
    Ok(())
}

fn quote(character: char, out: &mut String) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        plain if plain.is_control() => {
            let _ = write!(out, "\\u{:04x}", u32::from(plain));
        }
        plain => out.push(plain),
    }
}

const EMPTY: &str = "an expression has nothing in it";

const BINARY: [(&str, &str); 16] = [
    ("_&&_", "&&"),
    ("_||_", "||"),
    ("_==_", "=="),
    ("_!=_", "!="),
    ("_<_", "<"),
    ("_<=_", "<="),
    ("_>_", ">"),
    ("_>=_", ">="),
    ("_+_", "+"),
    ("_-_", "-"),
    ("_*_", "*"),
    ("_/_", "/"),
    ("_%_", "%"),
    ("@in", "in"),
    ("_in_", "in"),
    ("in", "in"),
];
