use std::time::Duration;

use super::values;
use crate::stream_info::{Struct, Value as Held};

#[test]
fn values_go_both_ways() {
    let lua = mlua::Lua::new();
    let mut entries = Struct::new();
    entries.insert("flag".into(), Held::Bool(true));
    entries.insert("half".into(), Held::Number(0.5));
    entries.insert("list".into(), Held::List(vec![Held::Number(1.0), Held::text(b"x")]));
    entries.insert("text".into(), Held::text("é".as_bytes()));
    let whole = Held::Struct(entries);
    let there = values::to_lua(&lua, &whole).unwrap();
    assert_eq!(values::of_lua(&there, 0).unwrap(), whole);
}

#[test]
fn a_table_in_itself_is_refused() {
    let lua = mlua::Lua::new();
    let table: mlua::Value = lua.load("local t = {} t.t = t return t").eval().unwrap();
    let start = std::time::Instant::now();
    assert!(values::of_lua(&table, 0).is_err());
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn heads_of_tables_have_no_line_ends() {
    let lua = mlua::Lua::new();
    let fields = |text: &str| {
        let table: mlua::Table = lua.load(format!("return {text}")).eval().unwrap();
        values::fields(&table).map(|(head, pseudo)| (head.len(), pseudo.len()))
    };
    assert_eq!(fields("{ a = '1', b = { '2', '3' }, [':path'] = '/' }").unwrap(), (3, 1));
    for wrong in ["{ a = 'x\\r\\ny' }", "{ ['a b'] = 'x' }", "{ a = true }", "{ a = {{}} }"] {
        assert!(fields(wrong).is_err(), "{wrong}");
    }
}
