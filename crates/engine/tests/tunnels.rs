//! Tunnels by either protocol on either side: WebSocket and CONNECT, whole in both directions, refused, and cut.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    clippy::wildcard_enum_match_arm,
    reason = "these are tests, and a script answers to what it cares about"
)]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::message::Message;
use towpath_engine::snapshot::Http2;
use towpath_engine::snapshot::http::Upgrade;
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::snapshot::route::PathMatch;
use towpath_engine::stats::Registry;
use towpath_proto::http2::{Code, Options};
use towpath_sim::{World, for_each_seed};

#[path = "tunnels/client.rs"]
mod client;
#[path = "tunnels/origin.rs"]
mod origin;
mod scene;

use client::Plot;
use origin::Answer;
use scene::origin::pattern;
use scene::{HTTP, Plan, add_counted_worker, address, drain_and_check, origin_address};

/// What is spoken on a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http1,
    Http2,
    /// Origins: what is in the tunnel.
    Raw,
}

/// What the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    WebSocket,
    Connect,
}

/// What one end saw.
#[derive(Debug, Default)]
pub(crate) struct Got {
    /// Of the head, in HTTP/1's words.
    pub(crate) head: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) ended: bool,
    /// The connection is gone, or the stream is reset.
    pub(crate) cut: bool,
    pub(crate) code: Option<Code>,
}

pub(crate) type Shared = Rc<RefCell<Got>>;

struct Case {
    client: Speaks,
    origin: Speaks,
    asks: Asks,
    plot: Plot,
    answer: Answer,
    up: usize,
}

struct Outcome {
    client: Got,
    origin: Got,
    registry: Arc<Registry>,
    /// Counters live as long as it does.
    _world: World<Message>,
}

impl Outcome {
    fn number(&self, name: &str) -> u64 {
        self.registry.read().number(name).unwrap_or_default()
    }
}

fn options() -> Arc<Options> {
    Arc::new(Options {
        stream_window: 65_535,
        connection_window: 100_000,
        allow_connect: true,
        max_window_updates: 1000,
        ..Options::default()
    })
}

fn spoken(choice: Choice) -> Option<Arc<Http2>> {
    Some(Arc::new(Http2 { options: options(), choice, keepalive: None }))
}

fn upgrade(kind: &str, ends_connect: bool) -> Upgrade {
    let connect = ends_connect.then(Arc::default);
    Upgrade { kind: kind.into(), enabled: true, connect, chain: None }
}

impl Case {
    fn new(client: Speaks, origin: Speaks, asks: Asks) -> Self {
        Self { client, origin, asks, plot: Plot::Ends, answer: Answer::Echoes, up: 200_000 }
    }

    fn run(&self, seed: u64) -> Outcome {
        let mut world: World<Message> = World::new(seed);
        let (of_client, of_origin) = (Shared::default(), Shared::default());
        let mut plan = Plan::new(1);
        plan.adjust_http = |http| {
            http.http2 = spoken(Choice::Negotiated);
            http.upgrades = vec![upgrade("websocket", false), upgrade("connect", false)];
        };
        if self.asks == Asks::Connect {
            plan.path = Some(PathMatch::Connect);
        }
        if self.origin == Speaks::Http2 {
            plan.cluster.http2 = spoken(Choice::Always);
        }
        if self.origin == Speaks::Raw {
            plan.adjust_forward = |forward| forward.upgrades = vec![upgrade("connect", true)];
        }
        let registry = Arc::new(Registry::default());
        let worker = add_counted_worker(&mut world, seed, plan, &registry);
        let at = origin_address(1);
        let seen = Rc::clone(&of_origin);
        match self.origin {
            Speaks::Http2 => world.add(origin::http2(at, self.answer, seen)),
            speaks => world.add(origin::http1(at, speaks, self.answer, seen)),
        };
        world.run_for(Duration::from_millis(1));
        let up = pattern("up", self.up);
        let target = address(HTTP);
        let seen = Rc::clone(&of_client);
        match self.client {
            Speaks::Http1 => world.add(client::http1(target, self.asks, self.plot, up, seen)),
            _ => world.add(client::http2(target, self.asks, self.plot, up, seen)),
        };
        world.run_for(Duration::from_secs(100));
        drain_and_check(&mut world, worker);
        let (client, origin) = (of_client.take(), of_origin.take());
        let outcome = Outcome { client, origin, registry, _world: world };
        for gauge in ["downstream_cx_upgrades_active", "downstream_rq_active"] {
            assert_eq!(outcome.number(&format!("http.in.{gauge}")), 0, "{gauge}");
        }
        assert_eq!(outcome.number("cluster.app.upstream_rq_active"), 0);
        outcome
    }
}

const BOTH: [Speaks; 2] = [Speaks::Http1, Speaks::Http2];

fn every_pair(mut each: impl FnMut(Speaks, Speaks, Asks)) {
    for client in BOTH {
        for asks in [Asks::WebSocket, Asks::Connect] {
            BOTH.into_iter().for_each(|origin| each(client, origin, asks));
        }
        each(client, Speaks::Raw, Asks::Connect);
    }
}

#[test]
fn every_pair_of_protocols_carries_tunnels_whole_in_both_directions() {
    every_pair(|client, origin, asks| {
        for_each_seed(4, |seed| {
            let outcome = Case::new(client, origin, asks).run(seed);
            let of = format!("{client:?} {origin:?} {asks:?}: {:?}", outcome.client.head);
            let status = if asks == Asks::Connect { "200" } else { "101" };
            assert!(outcome.client.head.contains(status), "{of}");
            let sent = pattern("up", 200_000);
            assert_eq!(outcome.origin.bytes.len(), sent.len(), "{of}");
            assert!(outcome.origin.bytes == sent && outcome.client.bytes == sent, "{of}");
            assert!(outcome.client.ended && outcome.origin.ended, "{of}");
            assert_eq!(outcome.number("http.in.downstream_cx_upgrades_total"), 1);
        });
    });
}

/// RFC 6455 §4, where a side speaks HTTP/1: HTTP/2 has neither a key nor what is said to it.
#[test]
fn websockets_handshake_is_completed_where_http2_leaves_it_out() {
    let down = Case::new(Speaks::Http2, Speaks::Http1, Asks::WebSocket).run(1);
    let asked = down.origin.head.to_ascii_lowercase();
    assert!(asked.contains("connection: upgrade\r\n"), "{asked}");
    assert!(asked.contains("upgrade: websocket\r\n"), "{asked}");
    assert!(asked.starts_with("get / http/1.1\r\n"), "{asked}");
    let key = asked.split("sec-websocket-key: ").nth(1).unwrap();
    assert_eq!(key.find("\r\n"), Some(24), "{asked}");
    let up = Case::new(Speaks::Http1, Speaks::Http2, Asks::WebSocket).run(1);
    let answer = up.client.head.to_ascii_lowercase();
    assert!(answer.contains("upgrade: websocket\r\n"), "{answer}");
    assert!(answer.contains("connection: upgrade\r\n"), "{answer}");
    let accept = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_ascii_lowercase();
    assert!(answer.contains(&accept), "{answer}");
}

/// A server that refuses would take them for its next request.
#[test]
fn bytes_that_are_sent_ahead_wait_until_the_tunnel_is_open() {
    every_pair(|client, origin, asks| {
        let case = Case { plot: Plot::Ahead, ..Case::new(client, origin, asks) };
        let outcome = case.run(3);
        assert!(outcome.client.bytes == pattern("up", 200_000), "{client:?} {origin:?} {asks:?}");
        if origin == Speaks::Raw {
            return;
        }
        let refuses = Case { answer: Answer::Refuses, up: 3000, ..case };
        let outcome = refuses.run(3);
        assert!(outcome.client.head.contains("403"), "{:?}", outcome.client.head);
        assert_eq!(outcome.client.bytes, b"no");
        assert!(outcome.origin.bytes.is_empty(), "{:?}", outcome.origin.bytes.len());
        assert_eq!(outcome.number("http.in.downstream_cx_upgrades_total"), 0);
    });
}

/// RFC 8441 §3: a client asks only once it knows that it may.
#[test]
fn what_a_server_of_http2_takes_is_waited_for() {
    for client in BOTH {
        let case = Case::new(client, Speaks::Http2, Asks::WebSocket);
        let late = Case { answer: Answer::EchoesLate, ..case }.run(2);
        assert!(late.client.bytes == pattern("up", 200_000), "{client:?}: {}", late.client.head);
        let status_of = |answer| {
            let case = Case::new(client, Speaks::Http2, Asks::WebSocket);
            let outcome = Case { answer, ..case }.run(2);
            assert_eq!(outcome.origin.head, "", "{client:?} {answer:?}");
            assert_eq!(outcome.number("cluster.app.upstream_rq_pending_active"), 0);
            let connects = outcome.number("cluster.app.upstream_cx_total");
            assert_eq!(connects, 1, "{client:?} {answer:?}");
            outcome.client.head
        };
        assert!(status_of(Answer::TakesNoneLate).contains("501"));
        assert!(status_of(Answer::IsSilent).contains("503"));
        assert!(status_of(Answer::Closes).contains("503"));
    }
}

#[test]
fn a_tunnel_that_is_cut_on_one_side_is_cut_on_the_other() {
    every_pair(|client, origin, asks| {
        let case = Case { plot: Plot::Cuts, ..Case::new(client, origin, asks) };
        let outcome = case.run(5);
        assert!(outcome.origin.cut, "{client:?} {origin:?} {asks:?}");
        let case = Case { answer: Answer::Cuts, plot: Plot::Stays, ..case };
        let outcome = case.run(5);
        assert!(outcome.client.cut, "{client:?} {origin:?} {asks:?}");
        // RFC 9113 §8.5.
        let code = (client == Speaks::Http2).then_some(Code::CONNECT_ERROR);
        assert_eq!(outcome.client.code, code, "{client:?} {origin:?} {asks:?}");
    });
}

#[test]
fn a_quiet_tunnel_ends_after_the_idle_timeout_of_its_stream() {
    every_pair(|client, origin, asks| {
        let case = Case { plot: Plot::Stays, ..Case::new(client, origin, asks) };
        let outcome = case.run(7);
        assert!(outcome.client.cut || outcome.client.ended, "{client:?} {origin:?} {asks:?}");
        let timeouts = outcome.number("http.in.downstream_rq_idle_timeout");
        assert_eq!(timeouts, 1, "{client:?} {origin:?} {asks:?}");
    });
}
