//! Values of scripts as dynamic metadata has them, and the other way round; and heads as tables.

use mlua::{Lua, LuaString, Table, Value};
use towpath_proto::Head;
use towpath_proto::head::HeaderName;

use super::handle::wrong;
use crate::stream_info::{Struct, Value as Held};

pub(super) fn to_lua(lua: &Lua, value: &Held) -> mlua::Result<Value> {
    Ok(match value {
        Held::Null => Value::Nil,
        Held::Bool(flag) => Value::Boolean(*flag),
        Held::Number(number) if number.fract() == 0.0 && number.abs() < WHOLE => {
            Value::Integer(*number as i64)
        }
        Held::Number(number) => Value::Number(*number),
        Held::String(text) => Value::String(lua.create_string(&**text)?),
        Held::List(items) => {
            let table = lua.create_table()?;
            for item in items {
                table.push(to_lua(lua, item)?)?;
            }
            Value::Table(table)
        }
        Held::Struct(entries) => {
            let table = lua.create_table()?;
            for (key, value) in entries {
                table.set(&**key, to_lua(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}

/// A table with a first element is a list.
pub(super) fn of_lua(value: &Value, depth: usize) -> mlua::Result<Held> {
    Ok(match value {
        Value::Nil => Held::Null,
        Value::Boolean(flag) => Held::Bool(*flag),
        Value::Integer(number) => Held::Number(*number as f64),
        Value::Number(number) => Held::Number(*number),
        Value::String(text) => Held::String(text.to_string_lossy().into()),
        Value::Table(_) if depth >= MOST_DEPTH => return Err(wrong("too deep a table")),
        Value::Table(table) if table.raw_len() > 0 => {
            let items = table.sequence_values::<Value>();
            Held::List(items.map(|item| of_lua(&item?, depth + 1)).collect::<mlua::Result<_>>()?)
        }
        Value::Table(table) => {
            let mut entries = Struct::new();
            for pair in table.pairs::<LuaString, Value>() {
                let (key, value) = pair?;
                entries.insert(key.to_string_lossy().into(), of_lua(&value, depth + 1)?);
            }
            Held::Struct(entries)
        }
        _ => return Err(wrong("unexpected type")),
    })
}

/// What HTTP/2 has before the fields.
pub(super) type Pseudo = Vec<(String, Vec<u8>)>;

/// Fields of a table, each with one value or several; those of HTTP/2 apart.
pub(super) fn fields(table: &Table) -> mlua::Result<(Head, Pseudo)> {
    let (mut head, mut pseudo) = (Head::default(), Vec::new());
    for pair in table.pairs::<LuaString, Value>() {
        let (name, value) = pair?;
        let name = name.to_string_lossy().to_ascii_lowercase();
        let values: Vec<LuaString> = match value {
            Value::Table(list) => list.sequence_values().collect::<mlua::Result<_>>()?,
            value => vec![text(&value)?],
        };
        for value in values {
            let value = super::handle::field_value(&value)?;
            if name.starts_with(':') || name == "host" {
                let name = if name == "host" { ":authority".to_owned() } else { name.clone() };
                pseudo.push((name, value));
                continue;
            }
            let field = HeaderName::new(&name);
            let field =
                field.map_err(|_| wrong(&format!("`{name}` is not the name of a header")))?;
            head.append_named(&field, &value);
        }
    }
    Ok((head, pseudo))
}

/// A string, or a number as one.
pub(super) fn text(value: &Value) -> mlua::Result<LuaString> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(&format!("string expected, got {}", other.type_name()))),
    }
}

/// 2^63: whole numbers below it are integers to Lua.
const WHOLE: f64 = 9_223_372_036_854_775_808.0;
const MOST_DEPTH: usize = 32;
