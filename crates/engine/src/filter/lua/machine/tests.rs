use super::*;

fn machine(source: &str) -> Machine {
    Machine::new(&Script { source: source.into(), name: "test".into() }).unwrap()
}

/// Runs a function without a stream.
fn run(machine: &Machine, name: &str) -> mlua::Result<Asked> {
    let function: Function = machine.lua.globals().get(name)?;
    let thread = machine.lua.create_thread(function)?;
    machine.resume(&thread, ())
}

#[track_caller]
fn takes_too_long(body: &str) {
    let machine = machine(&format!("function f() {body} end"));
    let error = run(&machine, "f").unwrap_err();
    assert!(error.to_string().contains(TOO_LONG), "{body}: {error}");
    // The next one has all of its time again.
    machine.lua.load("function g() for i = 1, 1000 do end end").exec().unwrap();
    assert!(matches!(run(&machine, "g"), Ok(Asked::Done)));
}

#[test]
fn a_script_that_loops_is_ended() {
    takes_too_long("while true do end");
    takes_too_long("while true do pcall(function() while true do end end) end");
    takes_too_long("while true do xpcall(function() while true do end end, function() end) end");
    takes_too_long("coroutine.wrap(function() while true do end end)()");
    takes_too_long(
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    );
    takes_too_long(
        "local t = setmetatable({}, { __index = function(t, k) return t[k + 1] end }) \
                    while true do pcall(function() return t[1] end) end",
    );
}

#[test]
fn a_script_that_allocates_is_ended_and_the_state_lives() {
    for body in [
        "local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end",
        "return ('x'):rep(1000000000)",
        "local s = 'x' while true do s = s .. s end",
    ] {
        let machine = machine(&format!("function f() {body} end function g() end"));
        let error = run(&machine, "f").unwrap_err();
        assert!(error.to_string().contains("not enough memory"), "{body}: {error}");
        assert!(matches!(run(&machine, "g"), Ok(Asked::Done)));
        assert!(!machine.is_full(), "{body}");
    }
}

#[test]
fn a_state_that_is_filled_for_good_is_seen() {
    let machine = machine(
        "all = {} function f() while true do all[#all + 1] = ('x'):rep(100000) .. #all end end",
    );
    assert!(run(&machine, "f").is_err());
    assert!(machine.is_full());
}

#[test]
fn what_ends_or_holds_up_the_process_is_not_there() {
    let machine = machine("");
    for gone in [
        "os.exit",
        "os.execute",
        "os.remove",
        "io",
        "require",
        "package",
        "debug",
        "dofile",
        "loadfile",
        "collectgarbage",
        "string.dump",
    ] {
        let value: Value = machine.lua.load(format!("return {gone}")).eval().unwrap();
        assert!(value.is_nil(), "{gone}");
    }
    let finalizer = "return pcall(setmetatable, {}, { __gc = function() end })";
    assert!(!machine.lua.load(finalizer).eval::<bool>().unwrap());
    assert!(machine.lua.load("return load('\\27Lua')").eval::<Value>().unwrap().is_nil());
}

#[test]
fn scripts_for_lua_5_1_find_what_they_call() {
    let machine = machine("");
    for (expression, value) in [
        ("bit.band(0xff, 0x0f)", 15),
        ("bit.bor(1, 2, 4)", 7),
        ("bit.bxor(0xffffffff, 1)", -2),
        ("bit.lshift(1, 31)", -2_147_483_648),
        ("bit.rshift(-1, 28)", 15),
        ("bit.arshift(-16, 2)", -4),
        ("bit.bnot(0)", -1),
        ("select('#', unpack({ 1, 2, 3 }))", 3),
        ("loadstring('return 7')()", 7),
        ("#tostring(10 / 2)", 1),
        ("#tostring(0.5)", 3),
        ("select('#', pcall(tostring))", 2),
    ] {
        let found: i64 = machine.lua.load(format!("return {expression}")).eval().unwrap();
        assert_eq!(found, value, "{expression}");
    }
}

#[test]
fn what_is_caught_is_a_text() {
    let machine = machine("");
    let failing = machine.lua.create_function(|_, ()| Err::<(), _>(mlua::Error::runtime("why")));
    machine.lua.globals().set("failing", failing.unwrap()).unwrap();
    for (caught, text) in [
        ("select(2, pcall(failing)) .. '!'", "why!"),
        ("select(2, pcall(error, 'other')) .. '!'", "other!"),
        ("select(2, coroutine.resume(coroutine.create(failing))) .. '!'", "why!"),
        ("type(select(2, pcall(error, {})))", "table"),
        ("select('#', pcall(error))", "2"),
        ("select('#', pcall(function() return 1, nil end))", "3"),
    ] {
        let found: String = machine.lua.load(format!("return {caught}")).eval().unwrap();
        assert_eq!(found, text, "{caught}");
    }
}

#[test]
fn a_script_is_loaded_before_it_serves() {
    assert!(matches!(Script::new("function", "s"), Err(ScriptError::Syntax(_))));
    let failed = Script::new("local json = require('cjson')", "s");
    assert!(matches!(failed, Err(ScriptError::Run(text)) if text.contains("require")));
    let endless = Script::new("while true do end", "s");
    assert!(matches!(endless, Err(ScriptError::Run(text)) if text.contains(TOO_LONG)));
    assert!(Script::new("coroutine.yield()", "s").is_err());
    assert!(Script::new("function envoy_on_request(handle) end", "s").is_ok());
}
