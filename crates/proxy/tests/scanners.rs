//! What scanners of TLS servers find: two versions, the suites that are documented, and no weakness that they know.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that cannot go on has failed")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use common::{Proxy, Scratch, bootstrap, secured};
use serde_json::Value;

/// A program that `cargo xtask peers` has installed.
fn peer(name: &str) -> Command {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers, and TOWPATH_PEERS");
    Command::new(Path::new(&folder).join(name))
}

fn start() -> (Proxy, String) {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let scratch = Scratch::new();
    let proxy = Proxy::start(&secured(&bootstrap(nobody), &scratch), &[]);
    let address = proxy.listener("ingress");
    (proxy, address)
}

#[test]
#[ignore = "needs sslscan"]
fn sslscan_finds_what_is_documented() {
    let (_proxy, address) = start();
    let said = peer("sslscan").args(["--no-colour", "--show-sigs", &address]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let words: Vec<Vec<&str>> =
        said.lines().map(|line| line.split_whitespace().collect()).collect();
    for (version, state) in [
        ("SSLv2", "disabled"),
        ("SSLv3", "disabled"),
        ("TLSv1.0", "disabled"),
        ("TLSv1.1", "disabled"),
        ("TLSv1.2", "enabled"),
        ("TLSv1.3", "enabled"),
    ] {
        assert!(words.contains(&vec![version, state]), "{version} {state}: {said}");
    }
    assert!(said.contains("Session renegotiation not supported"), "{said}");
    assert_eq!(said.matches("not vulnerable to heartbleed").count(), 2, "{said}");
    let suites = |version: &str| -> Vec<&str> {
        let of = |line: &&Vec<&str>| line.get(1) == Some(&version) && line.get(3) == Some(&"bits");
        words.iter().filter(of).filter(|line| line.len() > 4).map(|line| line[4]).collect()
    };
    assert_eq!(
        suites("TLSv1.3"),
        ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]
    );
    assert_eq!(
        suites("TLSv1.2"),
        [
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "ECDHE-ECDSA-AES256-GCM-SHA384"
        ]
    );
}

/// Its vulnerabilities, forward secrecy, standard categories of ciphers, and protocols with ALPN.
#[test]
#[ignore = "needs testssl.sh"]
fn testssl_finds_no_weakness() {
    let (proxy, address) = start();
    let report = proxy.scratch.path("report.json");
    let said = peer("testssl")
        .args(["--quiet", "--color", "0", "--warnings", "off", "--nodns", "none"])
        .args(["--ip", "127.0.0.1", "--jsonfile", &report.display().to_string()])
        .args(["--protocols", "--vulnerable", "--std", "--pfs", &address])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let text = std::fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {said}"));
    let findings: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{said}"));
    let of = |id: &str, what: &str| {
        let found = findings.iter().find(|finding| finding["id"] == *id);
        found.unwrap_or_else(|| panic!("no {id}: {said}"))[what].as_str().unwrap().to_owned()
    };
    for id in [
        "SSLv2",
        "SSLv3",
        "TLS1_2",
        "TLS1_3",
        "PFS",
        "heartbleed",
        "CCS",
        "ticketbleed",
        "ROBOT",
        "secure_renego",
        "secure_client_renego",
        "CRIME_TLS",
        "POODLE_SSL",
        "SWEET32",
        "FREAK",
        "DROWN",
        "LOGJAM",
        "BEAST",
        "LUCKY13",
        "RC4",
    ] {
        assert_eq!(of(id, "severity"), "OK", "{id}: {said}");
    }
    for id in ["TLS1", "TLS1_1"] {
        assert_eq!(of(id, "finding"), "not offered");
    }
    let weak: Vec<_> = findings
        .iter()
        .filter(|finding| {
            // The machine's OpenSSL, which the scanner calls, lacks engines.
            finding["id"] != "engine_problem"
                && !["OK", "INFO"].contains(&finding["severity"].as_str().unwrap())
        })
        .collect();
    assert!(weak.is_empty(), "{weak:?}");
}
