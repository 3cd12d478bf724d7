//! Scripts that call what a stream's handle has, in any order and with any arguments: nothing panics, a script ends,
//! and what it leaves of a request is a head that can be sent.
#![no_main]

use std::fmt::Write as _;

use bytes::Bytes;
use towpath_engine::filter::lua::{LuaConfig, Script, SharedLua};
use towpath_fuzz::filters::Watched;
use towpath_proto::Head;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [choice, data @ ..] = data else { return };
    let text = if choice & 1 == 0 {
        calls(data)
    } else {
        let Ok(text) = std::str::from_utf8(data) else { return };
        text.to_owned()
    };
    let Ok(script) = Script::new(&text, "script") else { return };
    let config = SharedLua(std::sync::Arc::new(LuaConfig {
        script: Some(std::sync::Arc::new(script)),
        named: Vec::new(),
        stat_prefix: "".into(),
        clears_route: true,
    }));
    let mut head = Head::request(b"POST", b"http", b"a.test", b"/a?b=c");
    head.append_bytes(b"x-a", b"1");
    let (watched, _) = Watched::ask(&config, &mut head);
    for field in head.iter() {
        let fits = |byte: &u8| !matches!(byte, b'\r' | b'\n' | 0);
        assert!(field.name_bytes.iter().chain(field.value).all(fits), "{head:?}");
    }
    if let Some(mut watched) = watched {
        let pieces = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        let _ = watched.request(&pieces);
        let mut answer = Head::response(200);
        let _ = watched.response(&mut answer, &pieces);
    }
});

/// Two functions of calls: each byte chooses one, the bytes behind it are its arguments.
fn calls(data: &[u8]) -> String {
    let mut text = String::from("function envoy_on_request(h)\n");
    let half = data.len() / 2;
    body(&mut text, &data[..half]);
    text += "end\nfunction envoy_on_response(h)\n";
    body(&mut text, &data[half..]);
    text += "end\n";
    text
}

fn body(text: &mut String, data: &[u8]) {
    for part in data.chunks(8).take(40) {
        let [which, rest @ ..] = part else { return };
        let call = CALLS[usize::from(*which) % CALLS.len()];
        let (first, second) = rest.split_at(rest.len() / 2);
        // One that fails does not end the script.
        let (first, second) = (quoted(first), quoted(second));
        let _ = writeln!(text, "pcall(function() local a, b = {first}, {second}; {call} end)");
    }
}

fn quoted(bytes: &[u8]) -> String {
    let escaped: String = bytes.iter().map(|byte| format!("\\{byte:03}")).collect();
    format!("\"{escaped}\"")
}

const CALLS: &[&str] = &[
    "h:headers():add(a, b)",
    "h:headers():replace(a, b)",
    "h:headers():remove(a)",
    "h:headers():get(a)",
    "h:headers():getAtIndex(a, #b)",
    "h:headers():getNumValues(a)",
    "h:headers():replace(':path', b)",
    "h:headers():replace(':authority', b)",
    "h:headers():replace(':method', b)",
    "h:headers():replace(':status', b)",
    "for k, v in pairs(h:headers()) do h:headers():remove(k) end",
    "h:headers():setHttp1ReasonPhrase(a)",
    "local c = h:body(); if c then c:setBytes(a .. b) end",
    "local c = h:body(); if c then c:getBytes(#a, #b) end",
    "for c in h:bodyChunks() do c:length() end",
    "local t = h:trailers(); if t then t:add(a, b) end",
    "h:respond({[':status'] = a, [b] = a}, b)",
    "h:respond({[':status'] = '200', [a] = b}, a)",
    "h:httpCall('c', {[':method'] = 'GET', [':path'] = a, [':authority'] = b}, a, 1000)",
    "h:httpCall('c', {[':method'] = 'GET', [':path'] = '/', [':authority'] = b}, a, 1000, true)",
    "h:streamInfo():dynamicMetadata():set(a, b, {a, b, {a}})",
    "h:streamInfo():dynamicMetadata():get(a)",
    "for k, v in pairs(h:streamInfo():dynamicMetadata()) do h:logInfo(k) end",
    "h:streamInfo():filterState():get(a)",
    "h:metadata():get(a)",
    "h:filterContext()",
    "h:setUpstreamOverrideHost(a, true)",
    "h:importPublicKey(a, #a)",
    "h:verifySignature(a, nil, b, #b, a, #a)",
    "h:base64Escape(a)",
    "h:logErr(a)",
    "h:timestamp(); h:timestampString()",
    "h:clearRouteCache()",
    "h:connection():ssl()",
    "string.rep(a, 1000000)",
    "local t = {}; for i = 1, 100000 do t[i] = a .. i end",
    "while true do end",
    "error(a)",
    "coroutine.yield(a)",
    "h = nil",
];
