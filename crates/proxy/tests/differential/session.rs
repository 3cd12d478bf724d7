//! Addresses of upstreams in base64, as cookies and headers of sessions have them.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::{Captures, Regex};

use crate::case::Case;

/// A case with the addresses that one proxy's upstreams have: `${address NAME}` is one as it is, `${port NAME}` its
/// port, `${plain NAME}` in base64, `${session NAME}` a
/// message with it, and `${session NAME SECONDS}` one that says when it expires, in seconds from now.
pub(crate) fn filled(case: &Case, ports: &BTreeMap<u16, String>) -> Case {
    static WANTED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\$\{(address|plain|port|session) (\w+)(?: (-?\d+))?\}").unwrap()
    });
    let fill = |text: &String| {
        let fill = |found: &Captures<'_>| {
            let port = ports.iter().find(|(_, name)| **name == found[2]);
            let address = format!("127.0.0.1:{}", port.expect("no such upstream").0);
            match &found[1] {
                "address" => return address,
                "port" => return port.expect("no such upstream").0.to_string(),
                _ => {}
            }
            if &found[1] == "plain" {
                return STANDARD.encode(address);
            }
            let mut bytes = vec![10, u8::try_from(address.len()).unwrap()];
            bytes.extend(address.as_bytes());
            if let Some(seconds) = found.get(3) {
                let seconds: i64 = seconds.as_str().parse().unwrap();
                bytes.push(16);
                bytes.extend(varint(now().saturating_add_signed(seconds)));
            }
            STANDARD.encode(bytes)
        };
        WANTED.replace_all(text, fill).into_owned()
    };
    let mut case = case.clone();
    case.ask = case.ask.as_ref().map(fill);
    case.talk = case.talk.iter().map(fill).collect();
    case
}

/// A line with the addresses in it readable: `<127.0.0.1:80>`, and in how many seconds it expires.
pub(crate) fn shown(line: &str) -> std::borrow::Cow<'_, str> {
    static CODED: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/]{16,}={0,2}").unwrap());
    CODED.replace_all(line, |found: &Captures<'_>| {
        readable(&found[0]).unwrap_or_else(|| found[0].to_owned())
    })
}

fn readable(text: &str) -> Option<String> {
    let bytes = STANDARD.decode(text).ok()?;
    if bytes.starts_with(b"127.0.0.1:") {
        return Some(format!("<plain {}>", String::from_utf8(bytes).ok()?));
    }
    let length = usize::from(*bytes.strip_prefix(b"\n")?.first()?);
    let address = bytes.get(2..2 + length).filter(|it| it.starts_with(b"127.0.0.1:"))?;
    let address = String::from_utf8(address.to_vec()).ok()?;
    let Some((16, rest)) = bytes[2 + length..].split_first() else {
        return Some(format!("<{address}>"));
    };
    let expires = rest.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    // The two are asked at once, but clocks go on.
    let left = expires.cast_signed() - now().cast_signed();
    Some(format!("<{address} for {} s>", (left + 5).div_euclid(10) * 10))
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
