use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use towpath_proto::{Head, Instant};

use super::entries::Configured;
use super::handle::Shown;
use super::machine::{Machine, Script};
use super::side::{Has, Outcome, Side};
use super::{Host, LuaConfig, values};
use crate::format::Facts;
use crate::record::Record;
use crate::stream_info::{StreamInfo, Struct, Value as Held};

#[test]
fn values_go_both_ways() {
    let lua = mlua::Lua::new();
    let mut entries = Struct::new();
    entries.insert("flag".into(), Held::Bool(true));
    entries.insert("half".into(), Held::Number(0.5));
    entries.insert("nanoseconds".into(), Held::Number(1e18));
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

fn host() -> Rc<Host> {
    let config =
        LuaConfig { script: None, named: Vec::new(), stat_prefix: "".into(), clears_route: true };
    Rc::new(Host {
        config: Arc::new(config),
        stats: Arc::default(),
        notes: Rc::default(),
        machines: RefCell::default(),
        name: OnceCell::from(Arc::from("lua")),
    })
}

/// What a script adds to a response as `x-said`.
fn said(body: &str, prepare: impl FnOnce(&mlua::Lua), configured: Configured) -> String {
    let source = format!("function envoy_on_response(handle) {body} end");
    let machine = Rc::new(Machine::new(&Script::new(&source, "test").unwrap()).unwrap());
    prepare(machine.lua());
    let (host, function) = (host(), machine.on_response.clone().unwrap());
    let shown = Shown::new(true, configured);
    let (mut side, values) = Side::begin(&host, &machine, &function, shown).unwrap();
    let (record, info) = (Record::new(), StreamInfo::default());
    let mut facts = Facts::new(&record, Instant::ZERO);
    facts.info = Some(&info);
    let mut head = Head::response(200);
    let has = Has { ends: true, waits: false, asks: false };
    let outcome = side.run_response(&host, &machine, values, has, (&mut head, None), &facts);
    assert!(matches!(outcome, Outcome::Done), "{:?}", host.notes.take().0);
    let said = head.iter().find(|field| field.name_bytes == b"x-said");
    said.map(|field| String::from_utf8_lossy(field.value).into_owned()).unwrap_or_default()
}

#[test]
fn a_stream_asks_other_servers_so_often_and_no_more() {
    let body = "local first, last
        for i = 1, 1001 do
            local _, error = pcall(handle.httpCall, handle, 'none', {}, nil, 1, true)
            first, last = first or error, error
        end
        handle:headers():add('x-said', first .. '; ' .. last)";
    let both = said(body, |_| {}, Configured::default());
    assert!(
        both.contains("cluster invalid") && both.ends_with("too many calls of one stream"),
        "{both}"
    );
}

#[test]
fn a_stream_has_so_many_keys_and_no_more() {
    let keys = |lua: &mlua::Lua| {
        let keys = (0..17).map(|_| {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
            lua.create_string(pair.public_key().as_der().unwrap().as_ref()).unwrap()
        });
        lua.globals().set("keys", lua.create_sequence_from(keys).unwrap()).unwrap();
    };
    let body = "for _, key in ipairs(keys) do
            local is_one, error = pcall(handle.importPublicKey, handle, key, #key)
            handle:importPublicKey(keys[1], #keys[1])
            if not is_one then handle:headers():add('x-said', _ .. error) end
        end";
    assert!(said(body, keys, Configured::default()).starts_with("17too many keys"));
}

#[test]
fn keys_take_a_script_s_time() {
    let body = "local n = 0
        local key = string.rep('x', 100)
        while pcall(handle.importPublicKey, handle, key, #key) do
            n = n + 1
            if n > 200 then handle:headers():add('x-said', 'too many') return end
        end";
    assert_eq!(said(body, |_| {}, Configured::default()), "");
}

#[test]
fn entries_are_gone_through_in_order_while_others_are_set() {
    let entries: Struct =
        [("a", 1.0), ("b", 2.0)].map(|(key, it)| (key.into(), Held::Number(it))).into();
    let configured = Configured { context: Some(Arc::new(entries)), ..Configured::default() };
    let body = "local all = {}
        for key, value in pairs(handle:filterContext()) do all[#all + 1] = key .. value end
        local metadata = handle:streamInfo():dynamicMetadata()
        metadata:set('a', 'x', 1)
        for name in pairs(metadata) do
            all[#all + 1] = name
            if name < 'd' then metadata:set(string.char(name:byte() + 1), 'x', 1) end
        end
        handle:headers():add('x-said', table.concat(all, ','))";
    assert_eq!(said(body, |_| {}, configured), "a1,b2,a,b,c,d");
}

#[test]
fn what_a_script_keeps_shows_nothing_of_a_stream_that_is_over() {
    let body = "kept = handle
        handle:streamInfo():dynamicMetadata():set('a', 'x', 1)
        handle:headers():add('x-said', handle:streamInfo():dynamicMetadata():get('a').x)";
    let source = format!("function envoy_on_response(handle) {body} end");
    let machine = Rc::new(Machine::new(&Script::new(&source, "test").unwrap()).unwrap());
    let (host, function) = (host(), machine.on_response.clone().unwrap());
    let shown = Shown::new(true, Configured::default());
    let (mut side, values) = Side::begin(&host, &machine, &function, shown).unwrap();
    let (record, info) = (Record::new(), StreamInfo::default());
    let mut facts = Facts::new(&record, Instant::ZERO);
    facts.info = Some(&info);
    let mut head = Head::response(200);
    let has = Has { ends: true, waits: false, asks: false };
    side.run_response(&host, &machine, values, has, (&mut head, None), &facts);
    assert_eq!(head.iter().count(), 1);
    info.read_metadata("a", &["x".into()], |value| assert_eq!(value, Some(&Held::Number(1.0))));
    let after: mlua::Value =
        machine.lua().load("return kept:streamInfo():dynamicMetadata():get('a')").eval().unwrap();
    assert!(after.is_nil());
}

/// What a script keeps of a stream's handle lies in its state, which the filter has.
#[test]
fn a_filter_that_is_gone_takes_its_states_along() {
    let source = "function envoy_on_response(handle) kept = handle end";
    let script = Arc::new(Script::new(source, "test").unwrap());
    let machine = Rc::new(Machine::new(&script).unwrap());
    let host = host();
    host.machines.borrow_mut().push((script, Rc::clone(&machine)));
    let function = machine.on_response.clone().unwrap();
    let begun = Side::begin(&host, &machine, &function, Shown::new(true, Configured::default()));
    assert!(begun.is_some());
    let gone = Rc::downgrade(&machine);
    drop((begun, function, machine, host));
    assert!(gone.upgrade().is_none());
}
