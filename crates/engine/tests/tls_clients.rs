//! Clients under TLS, in virtual time: everything ends once, nothing is left over, and no end is believed without a
//! close_notify where bytes have no other.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "scene/ends.rs"]
mod ends;
mod scene;
#[path = "scene/secure.rs"]
mod secure;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ends::{Shared, callee, caller};
use scene::client::{Ask, Ending, Endings, asks, client};
use scene::origin::{Habits, Log, origin, pattern};
use scene::{
    HANDSHAKE_TIME, HTTP, Plan, TCP, add_counted_worker, add_worker_for, address, drain_and_check,
    http, origin_address, route, table,
};
use secure::{Certificates, CloseNotify};
use towpath_engine::message::Message;
use towpath_engine::snapshot::FilterChain;
use towpath_engine::snapshot::listener::{
    ChainMatch, ListenerFilterConfig, ListenerFilters, NetworkFilters, Terminal, Transport,
};
use towpath_engine::snapshot::route::{Action, RequireTls};
use towpath_engine::snapshot::tls_inspector::TlsInspector;
use towpath_engine::stats::Registry;
use towpath_proto::{Close, Input, Instant};
use towpath_sim::{Faults, Orders, Random, Script, World, for_each_seed};

const ANSWERED: Ending = Ending::Answered { status: 200, from_origin: true };

struct Outcome {
    endings: BTreeMap<String, Vec<Ending>>,
    asked: Vec<Ask>,
    log: Log,
    registry: Arc<Registry>,
}

impl Outcome {
    fn number(&self, name: &str) -> u64 {
        self.registry.read().number(name).unwrap_or(0)
    }
}

/// Clients under TLS against two origins, in plain text or under TLS as well.
fn run(seed: u64, faults: Faults, habits: Habits, certificates: &Certificates) -> Outcome {
    let mut plan = Plan::new(2);
    plan.tls = Some(certificates.downstream(&[]));
    let both = seed.is_multiple_of(3);
    if both {
        plan.cluster.tls = Some(certificates.upstream("app.test"));
    }
    let mut random = Random::new(seed ^ 0x5eed);
    let mut world: World<Message> = World::new(seed);
    world.set_faults(faults);
    let log = Log::default();
    for number in 1..=2 {
        let origin = origin(origin_address(number), Rc::clone(&log), habits);
        if both {
            world.add(certificates.around(origin, CloseNotify::Sent));
        } else {
            world.add(origin);
        }
    }
    let registry = Arc::new(Registry::default());
    let worker = add_counted_worker(&mut world, seed, plan, &registry);
    world.run_for(Duration::from_millis(1));
    let endings = Endings::default();
    let mut asked = Vec::new();
    for number in 0..3 {
        let largest = if seed.is_multiple_of(8) { 60_000 } else { 2_000 };
        let list = asks(&mut random, number, 5, largest);
        asked.extend(list.clone());
        let close_notify =
            if random.chance(500) { CloseNotify::Sent } else { CloseNotify::Missing };
        world.add(
            certificates.around(client(address(HTTP), list, Rc::clone(&endings)), close_notify),
        );
    }
    world.run_for(Duration::from_secs(3000));
    drain_and_check(&mut world, worker);
    let endings = endings.borrow().clone();
    for ask in &asked {
        assert_eq!(endings.get(&ask.id).map_or(0, Vec::len), 1, "{} ends once", ask.id);
    }
    assert_eq!(log.borrow().wrong_bodies, 0, "origins get what was sent");
    let outcome = Outcome { endings, asked, log, registry };
    assert_eq!(outcome.number("listener.in.downstream_cx_active"), 0);
    assert_eq!(outcome.number("http.in.downstream_cx_http1_active"), 0);
    assert_eq!(outcome.number("http.in.downstream_rq_active"), 0);
    outcome
}

#[test]
fn everything_is_answered_when_nothing_breaks() {
    let certificates = Certificates::new();
    for_each_seed(40, |seed| {
        let outcome = run(seed, Faults::none(), Habits::default(), &certificates);
        for ask in &outcome.asked {
            assert_eq!(outcome.endings[&ask.id][0], ANSWERED, "{ask:?}");
            assert_eq!(outcome.log.borrow().times[&ask.id], 1);
        }
        let handshakes = outcome.number("listener.in.ssl.handshake");
        assert_eq!(handshakes, outcome.number("listener.in.downstream_cx_total"));
        for total in ["downstream_cx_http1_total", "downstream_cx_ssl_total"] {
            assert_eq!(handshakes, outcome.number(&format!("http.in.{total}")), "{total}");
        }
        assert_eq!(outcome.number("http.in.downstream_cx_ssl_active"), 0);
        assert_eq!(outcome.number("listener.in.ssl.connection_error"), 0);
    });
}

#[test]
fn nothing_is_lost_twice_or_left_when_the_network_breaks() {
    let certificates = Certificates::new();
    for_each_seed(60, |seed| {
        let habits = Habits { close_after: (seed % 3 == 0).then_some(2), ..Habits::default() };
        let faults = if seed % 2 == 0 { Faults::lively() } else { Faults::harsh() };
        let outcome = run(seed, faults, habits, &certificates);
        for ask in &outcome.asked {
            let times = outcome.log.borrow().times.get(&ask.id).copied().unwrap_or(0);
            assert!(times <= 2, "{} {} arrived {times} times", ask.method, ask.id);
        }
    });
}

/// A client that breaks the handshake, or what follows it, in its own way.
fn breaker(
    says: &'static [u8],
    closes: Option<Close>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant) + use<>> {
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, _| match input {
            Input::Timeout => orders.connect(address(HTTP)),
            Input::Connected { connection, .. } => {
                if !says.is_empty() {
                    orders.send(connection, says);
                }
                if let Some(how) = closes {
                    orders.close(connection, how);
                }
            }
            Input::Ended { connection } => orders.close(connection, Close::Flush),
            _ => {}
        },
    )
}

#[test]
fn whatever_breaks_a_handshake_ends_the_connection() {
    let certificates = Certificates::new();
    let (ssl, late) = ("ssl.connection_error", "downstream_cx_transport_socket_connect_timeout");
    let half_a_record = &[22, 3, 1, 2, 0, 1, 0];
    let cases: [(&[u8], Option<Close>, &str, bool); 6] = [
        (b"", None, late, true),
        (half_a_record, None, late, true),
        (b"GET / HTTP/1.1\r\nhost: app.test\r\n\r\n", None, ssl, false),
        (&[21, 3, 3, 0, 2, 2, 40], None, ssl, false),
        (half_a_record, Some(Close::Half), "downstream_cx_destroy", false),
        (half_a_record, Some(Close::Abort), "downstream_cx_destroy", false),
    ];
    for (seed, (says, closes, counter, slow)) in (0..).zip(cases) {
        let mut world: World<Message> = World::new(seed);
        let mut plan = Plan::new(1);
        plan.tls = Some(certificates.downstream(&[]));
        let registry = Arc::new(Registry::default());
        let worker = add_counted_worker(&mut world, seed, plan, &registry);
        world.run_for(Duration::from_millis(1));
        world.add(breaker(says, closes));
        let number = |name: &str| registry.read().number(name).unwrap_or(0);
        world.run_for(HANDSHAKE_TIME.mul_f32(0.9));
        assert_eq!(number("listener.in.downstream_cx_active"), u64::from(slow), "case {seed}");
        world.run_for(HANDSHAKE_TIME.mul_f32(0.2));
        assert_eq!(number("listener.in.downstream_cx_active"), 0, "case {seed}");
        assert_eq!(number(&format!("listener.in.{counter}")), 1, "case {seed}: {counter}");
        assert_eq!(number("http.in.downstream_rq_total"), 0);
        assert_eq!(number("listener.in.ssl.handshake"), 0);
        drain_and_check(&mut world, worker);
    }
}

#[test]
fn opaque_bytes_arrive_whole_and_a_cut_does_not_pass_for_an_end() {
    let certificates = Certificates::new();
    for_each_seed(40, |seed| {
        let close_notify = if seed % 2 == 0 { CloseNotify::Sent } else { CloseNotify::Missing };
        let mut world: World<Message> = World::new(seed);
        world.set_faults(Faults::none());
        let size = |factor: usize| (seed as usize * factor) % 60_000;
        let (up, down) = (pattern("up", size(997)), pattern("down", size(1499)));
        let (caller_got, callee_got) = (Shared::default(), Shared::default());
        world.add(callee(origin_address(1), down.clone(), Rc::clone(&callee_got)));
        let mut plan = Plan::new(1);
        plan.tls = Some(certificates.downstream(&[]));
        let worker = add_counted_worker(&mut world, seed, plan, &Arc::default());
        world.run_for(Duration::from_millis(1));
        let caller = caller(address(TCP), up.clone(), Rc::clone(&caller_got));
        world.add(certificates.around(caller, close_notify));
        world.run_for(Duration::from_secs(60));
        let (caller, callee) = (caller_got.borrow(), callee_got.borrow());
        match close_notify {
            CloseNotify::Sent => {
                assert_eq!((&callee.bytes[..], &caller.bytes[..]), (&up[..], &down[..]));
                assert!(callee.ended && caller.ended && !caller.closed);
            }
            CloseNotify::Missing => {
                assert!(up.starts_with(&callee.bytes));
                assert!(!callee.ended && caller.bytes.is_empty(), "a reset, not an end");
            }
        }
        drop((caller, callee));
        drain_and_check(&mut world, worker);
    });
}

/// Sends a request and keeps what comes.
fn asker(
    request: &'static [u8],
    got: Shared,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant) + use<>> {
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, _| match input {
            Input::Timeout => orders.connect(address(HTTP)),
            Input::Connected { connection, .. } => orders.send(connection, request),
            Input::Received { chunk, .. } => got.borrow_mut().bytes.extend_from_slice(&chunk),
            Input::Ended { connection } => orders.close(connection, Close::Flush),
            _ => {}
        },
    )
}

#[test]
fn a_host_that_wants_tls_has_it() {
    let certificates = Certificates::new();
    for (tls, expected) in [(true, "HTTP/1.1 200 OK"), (false, "HTTP/1.1 301 Moved Permanently")] {
        let mut world: World<Message> = World::new(3);
        world.add(origin(origin_address(1), Log::default(), Habits::default()));
        let mut plan = Plan::new(1);
        plan.adjust_http = |http| {
            let routes = Arc::get_mut(&mut http.routes).unwrap();
            routes.hosts[0].require_tls = RequireTls::All;
        };
        plan.tls = tls.then(|| certificates.downstream(&[]));
        let worker = add_counted_worker(&mut world, 3, plan, &Arc::default());
        world.run_for(Duration::from_millis(1));
        let got = Shared::default();
        let request =
            "GET /x HTTP/1.1\r\nhost: app.test\r\nx-id: one\r\nx-size: 4\r\nx-body: 0\r\n\r\n";
        let asks = asker(request.as_bytes(), Rc::clone(&got));
        if tls {
            world.add(certificates.around(asks, CloseNotify::Sent));
        } else {
            world.add(asks);
        }
        world.run_for(Duration::from_secs(30));
        let text = String::from_utf8_lossy(&got.borrow().bytes).into_owned();
        assert!(text.starts_with(expected), "{tls}: {text}");
        drain_and_check(&mut world, worker);
    }
}

/// A chain under TLS, or in plain text, that answers with its name.
fn chain(name: &str, certificates: &Certificates, matches: ChainMatch) -> Arc<FilterChain> {
    let answer = Action::Direct { status: 200, body: name.as_bytes().into(), format: None };
    let routes = table(vec![route("/", answer)]);
    let tls =
        (matches.transport != Some(Transport::RawBuffer)).then(|| certificates.downstream(&[]));
    Arc::new(FilterChain {
        name: "".into(),
        matches,
        filters: NetworkFilters::default(),
        terminal: Terminal::Http(Arc::new(http(routes))),
        tls,
        transport_timeout: None,
        filter_metadata: None,
    })
}

#[test]
fn the_inspector_finds_the_chain_for_a_name_a_protocol_and_plain_text() {
    let certificates = Certificates::new();
    let of_name = |name: &str| ChainMatch {
        server_names: vec![name.into()],
        transport: Some(Transport::Tls),
        ..ChainMatch::default()
    };
    let all = || {
        let plain = ChainMatch { transport: Some(Transport::RawBuffer), ..ChainMatch::default() };
        let protocol = ChainMatch { protocols: vec![b"toy"[..].into()], ..ChainMatch::default() };
        vec![
            chain("plain", &certificates, plain),
            chain("other", &certificates, of_name("other.test")),
            chain("wild", &certificates, of_name(".test")),
            chain("protocol", &certificates, protocol),
            chain("exact", &certificates, of_name("app.test")),
        ]
    };
    // So many of the chains there are; the client's protocol; what it gets.
    let cases: [(usize, Option<&[u8]>, &str); 5] = [
        (5, Some(b""), "exact"),
        (4, Some(b""), "wild"),
        (5, Some(b"toy"), "exact"),
        (5, None, "plain"),
        (2, Some(b""), ""),
    ];
    for (count, alpn, expected) in cases {
        let mut world: World<Message> = World::new(5);
        let mut snapshot = Plan::new(1).snapshot();
        let mut chains = all();
        chains.truncate(count);
        let list: Vec<Arc<dyn ListenerFilterConfig>> = vec![Arc::new(TlsInspector::default())];
        let filters = ListenerFilters { list, ..ListenerFilters::default() };
        let first = Arc::get_mut(&mut snapshot.listeners[0]).unwrap();
        (first.chains, first.filters) = (chains, filters);
        let registry = Arc::default();
        let worker = add_worker_for(&mut world, 5, Arc::new(snapshot), &registry);
        world.run_for(Duration::from_millis(1));
        let got = Shared::default();
        let asks = asker(b"GET /x HTTP/1.1\r\nhost: app.test\r\n\r\n", Rc::clone(&got));
        match alpn {
            None => world.add(asks),
            Some(b"") => world.add(certificates.around(asks, CloseNotify::Sent)),
            Some(alpn) => world.add(certificates.speaking(alpn).around(asks, CloseNotify::Sent)),
        };
        world.run_for(Duration::from_secs(30));
        let text = String::from_utf8_lossy(&got.borrow().bytes).into_owned();
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        assert_eq!(body, expected, "{count} chains, {alpn:?}: {text}");
        let refused = registry.read().number("listener.in.no_filter_chain_match").unwrap_or(0);
        assert_eq!(refused, u64::from(expected.is_empty()));
        drain_and_check(&mut world, worker);
    }
}
