//! Requests and opaque bytes through a worker to origins under TLS, in virtual time: everything ends once, nothing is
//! left over, and no end is believed without a close_notify.
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

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ends::{Shared, callee, caller};
use scene::client::{Ask, Ending, Endings, asks, client};
use scene::origin::{Habits, Log, origin, pattern};
use scene::{
    HTTP, Plan, TCP, add_counted_worker, address, drain_and_check, endpoint, origin_address,
};
use secure::{Certificates, CloseNotify};
use towpath_engine::message::Message;
use towpath_engine::stats::{Reading, Registry};
use towpath_proto::{Address, Close, Input, Instant};
use towpath_sim::{Faults, Orders, Random, Script, World, for_each_seed};

struct Outcome {
    endings: BTreeMap<String, Vec<Ending>>,
    asked: Vec<Ask>,
    log: Log,
    reading: Reading,
}

impl Outcome {
    fn number(&self, name: &str) -> u64 {
        self.reading.number(&format!("cluster.app.{name}")).unwrap()
    }
}

/// Runs clients against origins under TLS and drains the worker.
fn run(
    seed: u64,
    faults: Faults,
    habits: Habits,
    close_notify: CloseNotify,
    certificates: &Certificates,
    adjust: fn(&mut Plan),
) -> Outcome {
    let mut plan = Plan::new(2);
    plan.cluster.tls = Some(certificates.upstream("app.test"));
    adjust(&mut plan);
    let mut random = Random::new(seed ^ 0x5eed);
    let mut world: World<Message> = World::new(seed);
    let log = Log::default();
    for number in 1..=2 {
        let at = origin_address(number);
        world.set_faults_to(at.clone(), faults.clone());
        world.add(certificates.around(origin(at, Rc::clone(&log), habits), close_notify));
    }
    world.set_faults(faults);
    let registry = Arc::new(Registry::default());
    let worker = add_counted_worker(&mut world, seed, plan, &registry);
    world.run_for(Duration::from_millis(1));
    let endings = Endings::default();
    let mut asked = Vec::new();
    for number in 0..3 {
        let largest = if seed.is_multiple_of(8) { 60_000 } else { 2_000 };
        let list = asks(&mut random, number, 5, largest);
        asked.extend(list.clone());
        world.add(client(address(HTTP), list, Rc::clone(&endings)));
    }
    world.run_for(Duration::from_secs(3000));
    drain_and_check(&mut world, worker);
    let endings = endings.borrow().clone();
    let outcome = Outcome { endings, asked, log, reading: registry.read() };
    for ask in &outcome.asked {
        assert_eq!(outcome.endings.get(&ask.id).map_or(0, Vec::len), 1, "{} ends once", ask.id);
    }
    assert_eq!(outcome.log.borrow().wrong_bodies, 0, "origins get what was sent");
    outcome
}

const ANSWERED: Ending = Ending::Answered { status: 200, from_origin: true };

#[test]
fn everything_is_answered_when_nothing_breaks() {
    let certificates = Certificates::new();
    for_each_seed(40, |seed| {
        // A whole answer needs no close_notify.
        let close_notify = if seed % 2 == 0 { CloseNotify::Sent } else { CloseNotify::Missing };
        let outcome =
            run(seed, Faults::none(), Habits::default(), close_notify, &certificates, |_| {});
        for ask in &outcome.asked {
            assert_eq!(outcome.endings[&ask.id][0], ANSWERED, "{ask:?}");
            assert_eq!(outcome.log.borrow().times[&ask.id], 1);
        }
        assert_eq!(outcome.number("ssl.handshake"), outcome.number("upstream_cx_total"));
        assert_eq!(outcome.number("ssl.versions.TLSv1.3"), outcome.number("ssl.handshake"));
        assert_eq!(outcome.number("ssl.connection_error"), 0);
    });
}

#[test]
fn a_second_connection_resumes() {
    let certificates = Certificates::new();
    for_each_seed(20, |seed| {
        let habits = Habits { close_after: Some(1), ..Habits::default() };
        let outcome = run(seed, Faults::none(), habits, CloseNotify::Sent, &certificates, |plan| {
            plan.cluster.limits.connections = 1;
        });
        let (all, resumed) =
            (outcome.number("ssl.handshake"), outcome.number("ssl.session_reused"));
        // The first of all has nothing to resume, nor has one that began beside it.
        assert!(resumed > 0 && resumed + 2 >= all, "{resumed} of {all}");
    });
}

#[test]
fn nothing_is_lost_twice_or_left_when_the_network_breaks() {
    let certificates = Certificates::new();
    for_each_seed(60, |seed| {
        let habits = Habits {
            close_after: (seed % 3 == 0).then_some(2),
            idle_close: (seed % 5 == 0).then_some(Duration::from_millis(30)),
            ..Habits::default()
        };
        let faults = if seed % 2 == 0 { Faults::lively() } else { Faults::harsh() };
        let close_notify = if seed % 4 < 2 { CloseNotify::Sent } else { CloseNotify::Missing };
        let outcome = run(seed, faults, habits, close_notify, &certificates, |_| {});
        for ask in &outcome.asked {
            let times = outcome.log.borrow().times.get(&ask.id).copied().unwrap_or(0);
            let most = if ask.method == "POST" { 1 } else { 2 };
            assert!(times <= most, "{} {} arrived {times} times", ask.method, ask.id);
        }
    });
}

#[test]
fn a_server_with_another_name_gets_no_request() {
    let certificates = Certificates::new();
    for_each_seed(10, |seed| {
        let mut world: World<Message> = World::new(seed);
        let log = Log::default();
        let at = origin_address(1);
        world.add(
            certificates.around(origin(at, Rc::clone(&log), Habits::default()), CloseNotify::Sent),
        );
        let mut plan = Plan::new(1);
        plan.cluster.tls = Some(certificates.upstream("other.test"));
        let registry = Arc::new(Registry::default());
        let worker = add_counted_worker(&mut world, seed, plan, &registry);
        world.run_for(Duration::from_millis(1));
        let endings = Endings::default();
        let list = asks(&mut Random::new(seed), 0, 2, 100);
        world.add(client(address(HTTP), list.clone(), Rc::clone(&endings)));
        world.run_for(Duration::from_secs(100));
        for ask in &list {
            let refused = Ending::Answered { status: 503, from_origin: false };
            assert_eq!(endings.borrow()[&ask.id], [refused]);
        }
        assert!(log.borrow().times.is_empty());
        let number = |name: &str| registry.read().number(name);
        assert_eq!(number("cluster.app.ssl.fail_verify_san"), Some(2));
        assert_eq!(number("cluster.app.upstream_cx_connect_fail"), Some(2));
        drain_and_check(&mut world, worker);
    });
}

/// A peer that breaks the handshake in its own way.
#[derive(Clone, Copy, Debug)]
enum Breaker {
    /// Accepts and says nothing.
    Stalls,
    /// Ends as soon as it is greeted.
    Ends,
    /// Resets.
    Resets,
    /// Answers in plain text.
    Garbage,
    /// Sends the alert `handshake_failure`.
    Alerts,
    /// Begins a record and says no more.
    Halts,
}

fn breaker(
    at: Address,
    how: Breaker,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut greeted = HashSet::new();
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Received { connection, .. } if greeted.insert(connection) => match how {
                Breaker::Stalls => {}
                Breaker::Ends => orders.close(connection, Close::Flush),
                Breaker::Resets => orders.close(connection, Close::Abort),
                Breaker::Garbage => orders.send(connection, &b"HTTP/1.1 400 Bad\r\n\r\n"[..]),
                Breaker::Alerts => orders.send(connection, &[21, 3, 3, 0, 2, 2, 40][..]),
                Breaker::Halts => orders.send(connection, &[22, 3, 3, 0, 100, 2, 0][..]),
            },
            Input::Ended { connection } if !matches!(how, Breaker::Ends | Breaker::Resets) => {
                orders.close(connection, Close::Flush);
            }
            _ => {}
        },
    )
}

#[test]
fn whatever_breaks_a_handshake_ends_the_connect() {
    let certificates = Certificates::new();
    let cases = [
        (Breaker::Stalls, "upstream_cx_connect_timeout", true),
        (Breaker::Halts, "upstream_cx_connect_timeout", true),
        (Breaker::Ends, "upstream_cx_destroy_remote", false),
        (Breaker::Resets, "upstream_cx_destroy_remote", false),
        (Breaker::Garbage, "ssl.connection_error", false),
        (Breaker::Alerts, "ssl.connection_error", false),
    ];
    for (how, counter, slow) in cases {
        for_each_seed(10, |seed| {
            let mut world: World<Message> = World::new(seed);
            world.set_faults(Faults::none());
            world.add(breaker(origin_address(1), how));
            let mut plan = Plan::new(1);
            plan.cluster.tls = Some(certificates.upstream("app.test"));
            let registry = Arc::new(Registry::default());
            let worker = add_counted_worker(&mut world, seed, plan, &registry);
            world.run_for(Duration::from_millis(1));
            let endings = Endings::default();
            let list = asks(&mut Random::new(seed), 0, 1, 100);
            world.add(client(address(HTTP), list.clone(), Rc::clone(&endings)));
            world.run_for(Duration::from_millis(1900));
            let refused = Ending::Answered { status: 503, from_origin: false };
            let early = endings.borrow().get(&list[0].id).cloned();
            assert_eq!(early.is_none(), slow, "{how:?}: connect_timeout is 2 s");
            world.run_for(Duration::from_millis(200));
            assert_eq!(endings.borrow()[&list[0].id], [refused], "{how:?}");
            let number = |name: &str| registry.read().number(&format!("cluster.app.{name}"));
            assert_eq!(number(counter), Some(1), "{how:?}: {counter}");
            assert_eq!(number("upstream_cx_connect_fail"), Some(1), "{how:?}");
            assert_eq!(number("upstream_cx_active"), Some(0), "{how:?}");
            drain_and_check(&mut world, worker);
        });
    }
}

#[test]
fn opaque_bytes_arrive_whole_and_a_cut_does_not_pass_for_an_end() {
    let certificates = Certificates::new();
    for_each_seed(60, |seed| {
        let close_notify = if seed % 2 == 0 { CloseNotify::Sent } else { CloseNotify::Missing };
        let mut world: World<Message> = World::new(seed);
        world.set_faults(Faults::none());
        let size = |factor: usize| (seed as usize * factor) % 60_000;
        let (up, down) = (pattern("up", size(997)), pattern("down", size(1499)));
        let (caller_got, callee_got) = (Shared::default(), Shared::default());
        let at = origin_address(1);
        let inner = callee(at, down.clone(), Rc::clone(&callee_got));
        world.add(certificates.around(inner, close_notify));
        let mut plan = Plan::new(1);
        plan.cluster.tls = Some(certificates.upstream("app.test"));
        let worker = add_counted_worker(&mut world, seed, plan, &Arc::default());
        world.run_for(Duration::from_millis(1));
        world.add(caller(address(TCP), up.clone(), Rc::clone(&caller_got)));
        world.run_for(Duration::from_secs(60));
        assert_eq!(callee_got.borrow().bytes, up);
        assert!(callee_got.borrow().ended, "our half-close passes");
        let got = caller_got.borrow();
        match close_notify {
            CloseNotify::Sent => {
                assert_eq!(got.bytes, down);
                assert!(got.ended && !got.closed);
            }
            CloseNotify::Missing => {
                assert!(down.starts_with(&got.bytes));
                assert!(got.closed && !got.ended, "a reset, not an end");
            }
        }
        drop(got);
        drain_and_check(&mut world, worker);
    });
}

/// A server whose answers end with their connection.
fn until_close(
    at: Address,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut greeted = HashSet::new();
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Received { connection, .. } if greeted.insert(connection) => {
                orders.send(connection, &b"HTTP/1.1 200 OK\r\n\r\nbody"[..]);
                orders.close(connection, Close::Flush);
            }
            _ => {}
        },
    )
}

#[test]
fn an_answer_that_only_its_end_ends_is_whole_only_if_the_server_says_goodbye() {
    let certificates = Certificates::new();
    for (close_notify, expected) in [(CloseNotify::Sent, true), (CloseNotify::Missing, false)] {
        for_each_seed(30, |seed| {
            let mut world: World<Message> = World::new(seed);
            world.set_faults(Faults::none());
            world.add(certificates.around(until_close(origin_address(1)), close_notify));
            let mut plan = Plan::new(1);
            plan.cluster.tls = Some(certificates.upstream("app.test"));
            plan.cluster.endpoints = vec![endpoint(origin_address(1))].into();
            let worker = add_counted_worker(&mut world, seed, plan, &Arc::default());
            world.run_for(Duration::from_millis(1));
            let got = Shared::default();
            world.add(asker(Rc::clone(&got)));
            world.run_for(Duration::from_secs(30));
            let text = String::from_utf8_lossy(&got.borrow().bytes).into_owned();
            // The proxy frames it anew in chunks: whole means that the last one has come.
            assert_eq!(
                text.ends_with("4\r\nbody\r\n0\r\n\r\n"),
                expected,
                "{close_notify:?}: {text}"
            );
            drain_and_check(&mut world, worker);
        });
    }
}

/// Asks once over HTTP and keeps what comes.
fn asker(
    got: Shared,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Timeout => orders.connect(address(HTTP)),
            Input::Connected { connection, .. } => {
                orders.send(connection, &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..]);
            }
            Input::Received { chunk, .. } => got.borrow_mut().bytes.extend_from_slice(&chunk),
            Input::Ended { connection } => orders.close(connection, Close::Flush),
            _ => {}
        },
    )
}
