//! Any text as a token, and as a set of keys: nothing panics, and no token is believed but one that a key has signed.
#![no_main]

use std::sync::{Arc, OnceLock};

use towpath_engine::filter::jwt_authn::Keys;
use towpath_engine::filter::{FilterConfig, OnRequest};
use towpath_fuzz::filters::{Watched, of_chain};
use towpath_proto::{Head, Name};

/// What is signed of each token among the seeds: all before its last dot.
const SIGNED: &str = include_str!("../src/signed.txt");

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [choice, data @ ..] = data else { return };
    if choice & 1 != 0 {
        // A set of keys, or a word about what is wrong with it.
        let _ = Keys::parse(data);
        return;
    }
    // What cannot stand in a header never comes here.
    let Ok(token) = std::str::from_utf8(data) else { return };
    if token.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return;
    }
    let mut head = Head::request(b"GET", b"http", b"a.test", b"/");
    head.append(Name::Authorization, [b"Bearer ", token.as_bytes()].concat().as_slice());
    let (goes_on, outcome) = Watched::ask(&*config(), &mut head);
    if goes_on.is_none() && matches!(outcome, OnRequest::Answer(_)) {
        return;
    }
    let signed = token.trim_matches(' ').rsplit_once('.').map_or("", |(signed, _)| signed);
    assert!(SIGNED.lines().any(|line| line == signed), "{token} is believed: {outcome:?}");
});

fn config() -> Arc<dyn FilterConfig> {
    static CONFIG: OnceLock<Arc<dyn FilterConfig>> = OnceLock::new();
    Arc::clone(CONFIG.get_or_init(|| of_chain(FIELDS).expect("the configuration is loaded")))
}

const FIELDS: &str = include_str!("../src/jwt.yaml");
