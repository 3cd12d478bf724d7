//! Which filters a request passes that asks for an upgrade, and when it is let through.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::num::NonZeroU8;
use std::sync::Arc;

use scene::bench::Bench;
use scene::route;
use towpath_engine::filter::ChainFilter;
use towpath_engine::filter::header_mutation::{HeaderMutation, Mutations};
use towpath_engine::filter::unrouted::Unrouted;
use towpath_engine::format::Format;
use towpath_engine::header_ops::{HeaderMutation as Mutation, HeaderMutations};
use towpath_engine::snapshot::http::{Http, HttpChain, Router, Upgrade};
use towpath_engine::snapshot::route::{Action, HeaderAction, HeaderOp};
use towpath_proto::HeaderName;

#[test]
fn an_upgrade_with_filters_of_its_own_passes_those_alone() {
    let adjust: fn(&mut Http) = |http| {
        http.chain.filters.push(marks("ordinary"));
        let router = Router { suppress_envoy_headers: true, ..Router::default() };
        http.upgraded.push(HttpChain { filters: vec![marks("own")], router });
        http.upgrades = vec![upgrade("websocket", NonZeroU8::new(1)), upgrade("plain", None)];
    };
    for (wanted, mark, is_told) in
        [("WebSocket", "own", false), ("plain", "ordinary", true), ("", "ordinary", true)]
    {
        let sent = Bench::new(|_| {}, adjust).ask(&request("/", wanted));
        let sent = String::from_utf8_lossy(&sent).into_owned();
        assert_eq!(sent.matches(&format!("x-chain: {mark}\r\n")).count(), 1, "{sent}");
        assert_eq!(sent.matches("x-chain: ").count(), 1, "{sent}");
        assert_eq!(sent.contains("x-envoy-expected-rq-timeout-ms: "), is_told, "{sent}");
    }
}

/// As in Envoy: with the route that a request has before any filter.
#[test]
fn an_upgrade_that_is_not_let_through_is_answered_before_any_filter() {
    let adjust: fn(&mut Http) = |http| {
        http.chain.filters.push(stops());
        let hosts = &mut Arc::get_mut(&mut http.routes).unwrap().hosts;
        let action = Action::Direct { status: 200, body: Arc::default(), format: None };
        hosts[0].routes.insert(0, Arc::new(route("/direct", action)));
    };
    for path in ["/", "/direct"] {
        let answer = Bench::new(|_| {}, adjust).ask(&request(path, "websocket"));
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
}

#[test]
fn without_a_router_a_request_waits_until_its_time_is_over() {
    let adjust: fn(&mut Http) = |http| {
        http.chain.filters.push(stops());
        http.upgrades.push(upgrade("websocket", None));
    };
    for (wanted, status) in [("", "504 Gateway Timeout"), ("websocket", "408 Request Timeout")] {
        let mut bench = Bench::new(|_| {}, adjust);
        assert_eq!(bench.ask(&request("/", wanted)).escape_ascii().to_string(), "");
        assert_eq!(bench.wait(299_000).escape_ascii().to_string(), "");
        let answer = String::from_utf8_lossy(&bench.wait(1_000)).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert_eq!(bench.connects, 0, "it went nowhere");
    }
}

/// Its content is dropped, however much there is.
#[test]
fn without_a_router_content_is_read_on() {
    let mut bench = Bench::new(|_| {}, |http| http.chain.filters.push(stops()));
    bench.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
    for _ in 0..100 {
        assert_eq!(bench.ask(&[b'x'; 50_000]).escape_ascii().to_string(), "");
        assert!(!bench.unread.contains(&bench.client));
    }
}

fn request(path: &str, wanted: &str) -> Vec<u8> {
    let upgrade = match wanted {
        "" => String::new(),
        wanted => format!("Connection: upgrade\r\nUpgrade: {wanted}\r\n"),
    };
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n").into_bytes()
}

fn upgrade(kind: &str, chain: Option<NonZeroU8>) -> Upgrade {
    Upgrade { kind: kind.into(), enabled: true, connect: None, chain }
}

fn marks(chain: &str) -> ChainFilter {
    let add = HeaderOp {
        name: HeaderName::new("x-chain").unwrap(),
        value: Format::parse(chain).unwrap(),
        action: HeaderAction::default(),
        keep_empty: false,
    };
    let (request, response) =
        (HeaderMutations(vec![Mutation::Add(add)]), HeaderMutations::default());
    let own = Mutations { request, query: Vec::new(), response, trailers: None };
    let config = Arc::new(HeaderMutation { own, route_is_last: false });
    ChainFilter { name: chain.into(), disabled: false, config }
}

fn stops() -> ChainFilter {
    ChainFilter { name: "stops".into(), disabled: false, config: Arc::new(Unrouted) }
}
