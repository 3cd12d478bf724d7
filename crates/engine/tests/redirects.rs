//! Which redirects of a server are followed here, and which its client is given.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use scene::bench::Bench;
use towpath_engine::snapshot::http::{Http, Upgrade};
use towpath_engine::snapshot::route::{Forward, InternalRedirects};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Follows two redirects with status 302, and none to another scheme.
fn follows(forward: &mut Forward) {
    forward.internal_redirects = Some(Box::new(InternalRedirects {
        most: 2,
        statuses: vec![302],
        predicates: Vec::new(),
        crosses_schemes: false,
        copied: Vec::new(),
    }));
}

/// Behind it the server ends its connection, so that what follows it is the next one's.
fn redirect(status: u16, location: &str) -> Vec<u8> {
    let rest = "Connection: close\r\nContent-Length: 0\r\n\r\n";
    format!("HTTP/1.1 {status} There\r\nLocation: {location}\r\n{rest}").into()
}

/// Redirects that were followed, and those that were not.
fn counts(bench: &Bench) -> [u64; 2] {
    ["succeeded", "failed"]
        .map(|it| bench.number(&format!("cluster.app.upstream_internal_redirect_{it}_total")))
}

#[test]
fn so_many_redirects_are_followed_and_no_more() {
    let mut bench = Bench::new(follows, |_| {});
    bench.ask(GET);
    for place in ["one", "two"] {
        let sent = bench.answer(&redirect(302, &format!("http://b/{place}")));
        let sent = sent.escape_ascii().to_string();
        assert!(sent.starts_with(&format!("GET /{place} HTTP/1.1")), "{place}: {sent}");
    }
    let sent = bench.answer(&redirect(302, "http://b/three"));
    assert!(sent.starts_with(b"HTTP/1.1 302 "), "{}", sent.escape_ascii());
    assert_eq!(counts(&bench), [2, 1]);
    let name = "http.in.passthrough_internal_redirect_too_many_redirects";
    assert_eq!(bench.number(name), 1);
}

/// Another status is the client's, and no redirect that was not followed.
#[test]
fn redirects_of_another_status_or_to_another_scheme_are_the_clients() {
    for (status, location, failed) in [(301, "http://b/", 0), (302, "https://b/", 1)] {
        let mut bench = Bench::new(follows, |_| {});
        bench.ask(GET);
        let sent = bench.answer(&redirect(status, location)).escape_ascii().to_string();
        assert!(sent.starts_with(&format!("HTTP/1.1 {status} ")), "{sent}");
        assert_eq!(counts(&bench), [0, failed]);
    }
}

/// What asks for a tunnel is not sent elsewhere, and its redirect is none that was not followed.
#[test]
fn the_redirect_of_a_websocket_is_the_clients() {
    let websockets: fn(&mut Http) = |http| {
        let kind = "websocket".into();
        http.upgrades.push(Upgrade { kind, enabled: true, connect: None, chain: None });
    };
    let mut bench = Bench::new(follows, websockets);
    let ask = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert!(bench.ask(ask).starts_with(b"GET / "));
    let sent = bench.answer(&redirect(302, "http://b/"));
    assert!(sent.starts_with(b"HTTP/1.1 302 "), "{}", sent.escape_ascii());
    assert_eq!(counts(&bench), [0, 0]);
}
