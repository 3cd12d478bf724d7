//! HTTP/2 towards clients and towards origins, beside HTTP/1: every pair, streams under flow control, resets, and ends
//! that are said before they come.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    clippy::wildcard_enum_match_arm,
    reason = "these are tests, and a script answers to what it cares about"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::message::{Drain, Message, ToWorker};
use towpath_engine::snapshot::Http2;
use towpath_engine::snapshot::http2::{Choice, Http2Keepalive};
use towpath_engine::stats::Registry;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Connection, Options};
use towpath_proto::{Event, Input, Out};
use towpath_sim::{Orders, Random, Script, World, for_each_seed};

#[path = "http2/either.rs"]
mod either;
#[path = "http2/client.rs"]
mod many;
#[path = "http2/origin.rs"]
mod multi;
#[path = "http2/raw.rs"]
mod raw;
mod scene;
#[path = "scene/secure.rs"]
mod secure;

use either::Either;
use many::{Manner, Seen};
use multi::Habits;
use raw::{opening, request_of, request_with, sends};
use scene::client::{Ending, Endings, asks, client};
use scene::origin::{Habits as PlainHabits, Log, origin as plain_origin, pattern};
use scene::{HTTP, Plan, add_counted_worker, address, drain_and_check, origin_address};
use secure::{Certificates, CloseNotify};

/// What speaks HTTP/2 on a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Http1,
    Http2,
}

fn http2(choice: Choice, options: Options) -> Option<Arc<Http2>> {
    Some(Arc::new(Http2 { options: Arc::new(options), choice, keepalive: None }))
}

/// Small windows, so that they matter.
fn small() -> Options {
    Options {
        stream_window: 65_535,
        connection_window: 100_000,
        max_concurrent_streams: 8,
        ..Options::default()
    }
}

struct Outcome {
    endings: BTreeMap<String, Vec<Ending>>,
    clients: Vec<Seen>,
    origins: multi::Seen,
    registry: Arc<Registry>,
    /// Counters live as long as it does.
    _world: World<Message>,
}

impl Outcome {
    fn number(&self, name: &str) -> u64 {
        self.registry.read().number(name).unwrap_or_default()
    }

    fn answered(&self) -> usize {
        let answered = Ending::Answered { status: 200, from_origin: true };
        self.endings.values().filter(|endings| ***endings == [answered]).count()
    }
}

const CLIENTS: usize = 4;
const REQUESTS: usize = 15;
const ALL: usize = CLIENTS * REQUESTS;

struct Case {
    clients: Speaks,
    origins: Speaks,
    manner: Manner,
    habits: Habits,
    largest: usize,
    adjust: fn(&mut Plan),
    /// When the worker is told what, before all is done.
    order: Option<(Duration, fn() -> ToWorker)>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            clients: Speaks::Http2,
            origins: Speaks::Http2,
            manner: Manner::default(),
            habits: Habits::default(),
            largest: 20_000,
            adjust: |_| {},
            order: None,
        }
    }
}

impl Case {
    fn run(&self, seed: u64) -> Outcome {
        let mut world: World<Message> = World::new(seed);
        let (origins, plain) = (Rc::default(), Log::default());
        for number in 1..=2 {
            let at = origin_address(number);
            if self.origins == Speaks::Http2 {
                world.add(multi::origin(at, seed, self.habits, Rc::clone(&origins)));
            } else {
                world.add(plain_origin(at, Rc::clone(&plain), PlainHabits::default()));
            }
        }
        let mut plan = Plan::new(2);
        if self.origins == Speaks::Http2 {
            plan.cluster.http2 = http2(Choice::Always, small());
        }
        // Clients of either kind come to the same listener.
        plan.adjust_http = |http| http.http2 = http2(Choice::Negotiated, small());
        plan.adjust_forward = |forward| forward.timeout = None;
        (self.adjust)(&mut plan);
        let registry = Arc::new(Registry::default());
        let worker = add_counted_worker(&mut world, seed, plan, &registry);
        world.run_for(Duration::from_millis(1));
        let (mut random, endings) = (Random::new(seed), Endings::default());
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let asks = asks(&mut random, number, REQUESTS, self.largest);
            let endings = Rc::clone(&endings);
            if self.clients == Speaks::Http2 {
                let seen = Rc::default();
                clients.push(Rc::clone(&seen));
                let seed = seed ^ number as u64;
                let target = address(HTTP);
                world.add(many::client(target, asks, self.manner, seed, endings, seen));
            } else {
                world.add(client(address(HTTP), asks, endings));
            }
        }
        if let Some((after, order)) = self.order {
            world.run_for(after);
            world.send(worker, Message::To(order()));
        }
        world.run_for(Duration::from_secs(600));
        drain_and_check(&mut world, worker);
        let wrong = origins.borrow().wrong_bodies + plain.borrow().wrong_bodies;
        assert_eq!(wrong, 0, "no body is another's");
        let clients = clients.iter().map(|seen| std::mem::take(&mut *seen.borrow_mut())).collect();
        let (endings, origins) = (endings.borrow().clone(), origins.take());
        let outcome = Outcome { endings, clients, origins, registry, _world: world };
        for gauge in ["upstream_cx_active", "upstream_rq_active", "upstream_rq_pending_active"] {
            assert_eq!(outcome.number(&format!("cluster.app.{gauge}")), 0, "{gauge}");
        }
        for gauge in ["downstream_cx_active", "downstream_cx_http2_active", "downstream_rq_active"]
        {
            assert_eq!(outcome.number(&format!("http.in.{gauge}")), 0, "{gauge}");
        }
        assert_eq!(outcome.number("http2.streams_active"), 0);
        outcome
    }
}

#[test]
fn every_pair_of_protocols_carries_requests_and_answers_whole() {
    for clients in [Speaks::Http1, Speaks::Http2] {
        for origins in [Speaks::Http1, Speaks::Http2] {
            let mut trailers = 0;
            for_each_seed(8, |seed| {
                let outcome = Case { clients, origins, ..Case::default() }.run(seed);
                assert_eq!(outcome.answered(), ALL, "{:?}", outcome.endings);
                let multiplexed = clients == Speaks::Http2;
                let requests = if multiplexed { ALL as u64 } else { 0 };
                assert_eq!(outcome.number("http.in.downstream_rq_http2_total"), requests);
                let connections = if multiplexed { CLIENTS as u64 } else { 0 };
                assert_eq!(outcome.number("http.in.downstream_cx_http2_total"), connections);
                let upstream = outcome.number("cluster.app.upstream_cx_http2_total");
                assert_eq!(upstream > 0, origins == Speaks::Http2);
                assert_eq!(upstream, outcome.origins.connections);
                trailers += outcome.clients.iter().map(|seen| seen.trailers).sum::<u32>();
            });
            let both = (clients, origins) == (Speaks::Http2, Speaks::Http2);
            assert!(!both || trailers > 50, "{trailers} trailers");
        }
    }
}

#[test]
fn requests_go_on_in_the_protocol_in_which_they_came() {
    for_each_seed(12, |seed| {
        let mut world: World<Message> = World::new(seed);
        let (many, plain) = (Rc::default(), Log::default());
        for number in 1..=2 {
            let at = origin_address(number);
            let http1 = plain_origin(at.clone(), Rc::clone(&plain), PlainHabits::default());
            let http2 = multi::origin(at, seed, Habits::default(), Rc::clone(&many));
            world.add(Either::new(http1, http2));
        }
        let mut plan = Plan::new(2);
        plan.cluster.http2 = http2(Choice::AsDownstream, small());
        plan.adjust_http = |http| http.http2 = http2(Choice::Negotiated, small());
        let registry = Arc::new(Registry::default());
        let worker = add_counted_worker(&mut world, seed, plan, &registry);
        world.run_for(Duration::from_millis(1));
        let (mut random, endings) = (Random::new(seed), Endings::default());
        for number in 0..CLIENTS {
            let asks = asks(&mut random, number, REQUESTS, 10_000);
            let (target, endings) = (address(HTTP), Rc::clone(&endings));
            if number % 2 == 0 {
                let (manner, seen) = (Manner::default(), Rc::default());
                world.add(many::client(target, asks, manner, seed, endings, seen));
            } else {
                world.add(client(target, asks, endings));
            }
        }
        world.run_for(Duration::from_secs(600));
        drain_and_check(&mut world, worker);
        let answered = [Ending::Answered { status: 200, from_origin: true }];
        let endings = endings.borrow();
        assert_eq!(endings.len(), ALL);
        assert!(endings.values().all(|endings| **endings == answered), "{endings:?}");
        let came_by_http2 = |id: &str| id.starts_with("c0") || id.starts_with("c2");
        assert!(many.borrow().times.keys().all(|id| came_by_http2(id)));
        assert!(!plain.borrow().times.keys().any(|id| came_by_http2(id)));
        assert_eq!(many.borrow().times.len() + plain.borrow().times.len(), ALL);
        let number = |name: &str| registry.read().number(name).unwrap_or_default();
        assert_eq!(number("cluster.app.upstream_cx_http2_total"), many.borrow().connections);
        assert!(number("cluster.app.upstream_cx_http1_total") >= 2, "either host has both");
    });
}

#[test]
fn streams_of_many_clients_share_few_connections() {
    let mut most = 0;
    for_each_seed(12, |seed| {
        let adjust = |plan: &mut Plan| plan.cluster.limits.connections = 1;
        let case = Case { clients: Speaks::Http1, adjust, ..Case::default() };
        let outcome = case.run(seed);
        assert_eq!(outcome.answered(), ALL, "{:?}", outcome.endings);
        assert!(outcome.origins.connections <= 2, "one for each host");
        most = most.max(outcome.origins.most_at_once);
    });
    assert!(most > 1, "{most} at once");
}

#[test]
fn slow_readers_and_streams_that_are_given_up_hold_up_no_other() {
    let mut given_up = 0;
    for origins in [Speaks::Http1, Speaks::Http2] {
        for_each_seed(6, |seed| {
            let manner = Manner { eager: 30, gives_up: 200 };
            let case = Case { origins, manner, largest: 100_000, ..Case::default() };
            let outcome = case.run(seed);
            let left: u32 = outcome.clients.iter().map(|seen| seen.given_up).sum();
            assert_eq!(outcome.answered() + left as usize, ALL, "{:?}", outcome.endings);
            given_up += left;
        });
    }
    assert!(given_up > 20, "{given_up} were given up");
}

#[test]
fn an_origin_that_goes_away_loses_no_request() {
    let mut went_away = 0;
    for_each_seed(20, |seed| {
        let habits = Habits { goes_away: 60, ..Habits::default() };
        let outcome = Case { habits, ..Case::default() }.run(seed);
        // Refused twice in a row is the one way to a 503.
        let refused = Ending::Answered { status: 503, from_origin: false };
        let twice = outcome.endings.values().filter(|endings| ***endings == [refused]).count();
        assert_eq!(outcome.answered() + twice, ALL, "{:?}", outcome.endings);
        assert!(twice <= 2, "{twice} were refused twice");
        assert!(outcome.origins.times.values().all(|times| *times == 1), "none is done twice");
        went_away += outcome.origins.went_away;
    });
    assert!(went_away > 12, "{went_away} went away");
}

#[test]
fn a_stream_that_is_reset_takes_no_other_with_it() {
    let mut resets = 0;
    for clients in [Speaks::Http1, Speaks::Http2] {
        for_each_seed(10, |seed| {
            let habits = Habits { resets: 30, ..Habits::default() };
            let outcome = Case { clients, habits, ..Case::default() }.run(seed);
            let count = outcome.origins.resets as usize;
            let failed = ALL - outcome.answered();
            assert!(failed <= count, "{failed} of {count}: {:?}", outcome.endings);
            resets += count;
        });
    }
    assert!(resets > 30, "{resets} resets");
}

#[test]
fn a_drain_tells_clients_and_ends_no_stream() {
    let mut cut_short = 0;
    for_each_seed(20, |seed| {
        let drain = || ToWorker::Drain(Drain::at_once(Some(Duration::from_secs(900))));
        let order = Some((Duration::from_millis(20 + seed % 60), drain as fn() -> ToWorker));
        let outcome = Case { order, ..Case::default() }.run(seed);
        let asked: usize = outcome.clients.iter().map(|seen| seen.asked).sum();
        let refused: usize = outcome.clients.iter().map(|seen| seen.refused).sum();
        assert_eq!(outcome.answered() + refused, asked, "{:?}", outcome.endings);
        let told = |seen: &Seen| seen.told || [0, REQUESTS].contains(&seen.asked);
        assert!(outcome.clients.iter().all(told), "all that are not through were told");
        cut_short += usize::from(asked < ALL);
    });
    assert!(cut_short > 5, "{cut_short} drains came in the middle");
}

/// As by `/healthcheck/fail`: nothing is ended, and a client is told with its next answer.
#[test]
fn who_is_answered_while_no_traffic_is_wanted_is_told_and_loses_no_stream() {
    let mut cut_short = 0;
    for_each_seed(20, |seed| {
        let fail = || ToWorker::FailHealth(true);
        let order = Some((Duration::from_millis(20 + seed % 60), fail as fn() -> ToWorker));
        let outcome = Case { order, ..Case::default() }.run(seed);
        let asked: usize = outcome.clients.iter().map(|seen| seen.asked).sum();
        let refused: usize = outcome.clients.iter().map(|seen| seen.refused).sum();
        assert_eq!(outcome.answered() + refused, asked, "{:?}", outcome.endings);
        let through = |seen: &Seen| seen.told || seen.asked == REQUESTS;
        assert!(outcome.clients.iter().all(through), "all that were not through were told");
        let told = outcome.clients.iter().filter(|seen| seen.told).count() as u64;
        assert_eq!(outcome.number("http.in.downstream_cx_drain_close"), told);
        cut_short += usize::from(asked < ALL);
    });
    assert!(cut_short > 5, "{cut_short} came in the middle");
}

#[test]
fn connections_end_in_good_order_after_so_many_requests() {
    for_each_seed(10, |seed| {
        let adjust = |plan: &mut Plan| {
            plan.cluster.max_requests_per_connection = 4;
            plan.adjust_http = |http| {
                http.http2 = http2(Choice::Always, small());
                http.max_requests_per_connection = 5;
            };
        };
        let outcome = Case { adjust, ..Case::default() }.run(seed);
        let asked: usize = outcome.clients.iter().map(|seen| seen.asked).sum();
        let refused: usize = outcome.clients.iter().map(|seen| seen.refused).sum();
        assert_eq!(outcome.answered() + refused, asked, "{:?}", outcome.endings);
        assert!(outcome.clients.iter().all(|seen| seen.told), "all were told");
        assert!(outcome.origins.connections as usize >= asked / 4 / 2);
        let reached = outcome.number("http.in.downstream_cx_max_requests_reached");
        assert_eq!(reached, CLIENTS as u64);
    });
}

#[test]
fn a_handshake_chooses_http2_on_both_sides() {
    let certificates = Certificates::new();
    for_each_seed(6, |seed| {
        let mut world: World<Message> = World::new(seed);
        let (origins, plain) = (Rc::default(), Log::default());
        let first = multi::origin(origin_address(1), seed, Habits::default(), Rc::clone(&origins));
        world.add(certificates.speaking(b"h2").around(first, CloseNotify::Sent));
        let second = plain_origin(origin_address(2), Rc::clone(&plain), PlainHabits::default());
        world.add(certificates.speaking(b"http/1.1").around(second, CloseNotify::Sent));
        let mut plan = Plan::new(2);
        // No more at once than the origin takes: what is sent before it says so may be refused twice.
        let few = Options { max_concurrent_streams: 6, ..small() };
        plan.cluster.http2 = http2(Choice::Negotiated, few);
        plan.cluster.tls = Some(certificates.upstream_offering("app.test", &[b"h2", b"http/1.1"]));
        plan.tls = Some(certificates.downstream(&[b"h2", b"http/1.1"]));
        plan.adjust_http = |http| http.http2 = http2(Choice::Negotiated, small());
        let registry = Arc::new(Registry::default());
        let worker = add_counted_worker(&mut world, seed, plan, &registry);
        world.run_for(Duration::from_millis(1));
        let (mut random, endings) = (Random::new(seed), Endings::default());
        for number in 0..CLIENTS {
            let asks = asks(&mut random, number, REQUESTS, 10_000);
            let (target, endings) = (address(HTTP), Rc::clone(&endings));
            if number % 2 == 0 {
                let manner = Manner::default();
                let script = many::client(target, asks, manner, seed, endings, Rc::default());
                world.add(certificates.speaking(b"h2").around(script, CloseNotify::Sent));
            } else {
                let script = client(target, asks, endings);
                world.add(certificates.speaking(b"http/1.1").around(script, CloseNotify::Sent));
            }
        }
        world.run_for(Duration::from_secs(600));
        drain_and_check(&mut world, worker);
        let answered = [Ending::Answered { status: 200, from_origin: true }];
        let endings = endings.borrow();
        assert_eq!(endings.len(), ALL);
        assert!(endings.values().all(|endings| **endings == answered), "{endings:?}");
        let number = |name: &str| registry.read().number(name).unwrap_or_default();
        assert_eq!(number("http.in.downstream_cx_http2_total"), CLIENTS as u64 / 2);
        assert!(!origins.borrow().times.is_empty() && !plain.borrow().times.is_empty());
    });
}

#[test]
fn a_connection_that_does_not_answer_a_ping_ends() {
    for answers in [true, false] {
        let mut world: World<Message> = World::new(1);
        let mut plan = Plan::new(1);
        plan.adjust_http = |http| {
            let keepalive = Http2Keepalive {
                interval: Some(Duration::from_secs(5)),
                jitter_percent: 15,
                timeout: Duration::from_secs(2),
                idle: None,
            };
            let options = Arc::new(Options::default());
            http.http2 = Some(Arc::new(Http2 {
                options,
                choice: Choice::Always,
                keepalive: Some(keepalive),
            }));
        };
        let registry = Arc::new(Registry::default());
        add_counted_worker(&mut world, 1, plan, &registry);
        world.run_for(Duration::from_millis(1));
        let mut http2 = Connection::client(Arc::new(Options::default()));
        let mut heads = HeadPool::default();
        world.add(Script::new(
            |orders: &mut Orders<Message>| orders.connect(address(HTTP)),
            move |input, orders: &mut Orders<Message>, _| {
                let connection = match input {
                    Input::Connected { connection, .. } => connection,
                    Input::Received { connection, chunk } if answers => {
                        http2.receive(chunk);
                        assert!(http2.poll(&mut heads).unwrap().is_none());
                        connection
                    }
                    _ => return,
                };
                let mut out = Out::new();
                http2.flush(&mut out);
                out.drain().for_each(|chunk| orders.send(connection, chunk));
            },
        ));
        let number = |name: &str| registry.read().number(name).unwrap_or_default();
        world.run_for(Duration::from_secs(4));
        assert_eq!(number("http.in.downstream_cx_http2_active"), 1);
        world.run_for(Duration::from_secs(60));
        assert_eq!(number("http.in.downstream_cx_http2_active"), u64::from(answers));
        assert_eq!(number("http2.keepalive_timeout"), u64::from(!answers));
    }
}

/// An origin that answers at once until so many milliseconds have passed, and nothing after that: what came.
fn answers_until(world: &mut World<Message>, until: u64) -> Rc<RefCell<Vec<u8>>> {
    let came = Rc::new(RefCell::new(Vec::new()));
    let (seen, mut heads) = (Rc::clone(&came), HeadPool::default());
    let (mut http2, mut since) = (None, None);
    world.add(Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Accepted { .. } => {
                http2 = Some(Connection::server(Arc::new(Options::default())));
                since.get_or_insert(now);
            }
            Input::Received { connection, chunk } => {
                seen.borrow_mut().extend_from_slice(&chunk);
                let Some(http2) = http2.as_mut() else { return };
                if since.is_some_and(|since| now - since >= Duration::from_millis(until)) {
                    return;
                }
                http2.receive(chunk);
                let mut out = Out::new();
                while let Some((number, _)) = http2.poll(&mut heads).unwrap() {
                    http2.send_head(number, &Head::response(204), true, &mut out);
                    http2.release(number);
                }
                http2.flush(&mut out);
                out.drain().for_each(|chunk| orders.send(connection, chunk));
            }
            _ => {}
        },
    ));
    came
}

/// The kinds of the frames behind a preface.
fn kinds(bytes: &[u8]) -> Vec<u8> {
    let (mut kinds, mut left) = (Vec::new(), &bytes[towpath_proto::http2::PREFACE.len()..]);
    while let [_, high, low, kind, ..] = *left {
        kinds.push(kind);
        left = &left[9 + usize::from(u16::from_be_bytes([high, low]))..];
    }
    kinds
}

#[test]
fn a_server_that_was_quiet_is_asked_ahead_of_a_stream() {
    const FOREVER: u64 = u64::MAX;
    for (later, until, asks) in [(4000, FOREVER, 0), (6000, FOREVER, 1), (6000, 5500, 1)] {
        let mut world: World<Message> = World::new(1);
        let mut plan = Plan::new(1);
        plan.adjust_http = |http| http.http2 = http2(Choice::Always, Options::default());
        let keepalive = Http2Keepalive {
            interval: None,
            jitter_percent: 15,
            timeout: Duration::from_secs(2),
            idle: Some(Duration::from_secs(5)),
        };
        plan.cluster.http2 = Some(Arc::new(Http2 {
            options: Arc::new(Options::default()),
            choice: Choice::Always,
            keepalive: Some(keepalive),
        }));
        let came = answers_until(&mut world, until);
        let registry = Arc::new(Registry::default());
        add_counted_worker(&mut world, 1, plan, &registry);
        world.run_for(Duration::from_millis(1));
        let (opening, request) = opening(65_535);
        let mut second = request.clone();
        second[8] = 3;
        sends(&mut world, vec![(0, [opening, request].concat()), (later, second)]);
        world.run_for(Duration::from_millis(later + 1500));
        let number = |name: &str| registry.read().number(name).unwrap_or_default();
        let kinds = kinds(&came.borrow());
        let (headers, ping) = (1, 6);
        assert_eq!(kinds.iter().filter(|kind| **kind == headers).count(), 2, "{kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| **kind == ping).count(), asks, "{kinds:?}");
        let stands_before = kinds.windows(2).any(|pair| pair == [ping, headers]);
        assert_eq!(stands_before, asks == 1, "{kinds:?}");
        assert_eq!(number("cluster.app.http2.keepalive_timeout"), 0);
        world.run_for(Duration::from_secs(2));
        let is_silent = u64::from(until != FOREVER);
        assert_eq!(number("cluster.app.http2.keepalive_timeout"), is_silent);
        assert_eq!(number("cluster.app.upstream_cx_destroy_local_with_active_rq"), is_silent);
    }
}

#[test]
fn a_client_that_expects_it_is_told_to_continue() {
    let mut world: World<Message> = World::new(1);
    world.add(plain_origin(origin_address(1), Log::default(), PlainHabits::default()));
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| http.http2 = http2(Choice::Always, Options::default());
    add_counted_worker(&mut world, 1, plan, &Arc::default());
    world.run_for(Duration::from_millis(1));
    let mut client = Connection::client(Arc::new(Options::default()));
    let (mut heads, statuses) = (HeadPool::default(), Rc::new(RefCell::new(Vec::new())));
    let seen = Rc::clone(&statuses);
    world.add(Script::new(
        |orders: &mut Orders<Message>| orders.connect(address(HTTP)),
        move |input, orders: &mut Orders<Message>, _| {
            let mut out = Out::new();
            let connection = match input {
                Input::Connected { connection, .. } => {
                    let mut head = Head::request(b"POST", b"http", b"app.test", b"/");
                    for (name, value) in [
                        ("expect", "100-continue"),
                        ("x-id", "one"),
                        ("x-size", "3"),
                        ("x-body", "2"),
                        ("x-chunked", "0"),
                    ] {
                        head.append_bytes(name.as_bytes(), value.as_bytes());
                    }
                    let number = client.open().unwrap();
                    client.send_head(number, &head, false, &mut out);
                    connection
                }
                Input::Received { connection, chunk } => {
                    client.receive(chunk);
                    while let Some((number, arrival)) = client.poll(&mut heads).unwrap() {
                        match arrival {
                            Arrival::Part(Event::Informational(head)) => {
                                seen.borrow_mut().push(head.status());
                                client.send_data(number, pattern("one", 2));
                                client.send_end(number);
                            }
                            Arrival::Part(Event::Head { head, .. }) => {
                                seen.borrow_mut().push(head.status());
                            }
                            _ => {}
                        }
                    }
                    connection
                }
                _ => return,
            };
            client.flush(&mut out);
            out.drain().for_each(|chunk| orders.send(connection, chunk));
        },
    ));
    world.run_for(Duration::from_secs(5));
    assert_eq!(*statuses.borrow(), [100, 200]);
}

#[test]
fn a_head_that_does_not_get_whole_ends_its_connection() {
    let (opening, request) = opening(65_535);
    let halves = |at: u64| {
        let (first, second) = request.split_at(14);
        vec![(0, [&opening[..], first].concat()), (at, second.to_vec())]
    };
    // The same without its end, so that CONTINUATION would have to come.
    let mut unended = request.clone();
    unended[4] = 1;
    for (pieces, lasts) in [
        (halves(4000), true),
        (halves(50_000), false),
        (vec![(0, [&opening[..], &unended[..]].concat())], false),
    ] {
        let mut world: World<Message> = World::new(1);
        let mut plan = Plan::new(1);
        plan.adjust_http = |http| {
            http.http2 = http2(Choice::Always, Options::default());
            http.request_headers_timeout = Some(Duration::from_secs(5));
            http.routes = Arc::default();
        };
        let registry = Arc::new(Registry::default());
        add_counted_worker(&mut world, 1, plan, &registry);
        world.run_for(Duration::from_millis(1));
        sends(&mut world, pieces);
        world.run_for(Duration::from_secs(20));
        let number = |name: &str| registry.read().number(name).unwrap_or_default();
        assert_eq!(number("http.in.downstream_rq_header_timeout"), u64::from(!lasts));
        assert_eq!(number("http.in.downstream_cx_http2_active"), u64::from(lasts));
        assert_eq!(number("http.in.downstream_rq_4xx"), u64::from(lasts), "no route has it");
    }
}

#[test]
fn a_request_that_is_refused_while_its_head_is_read_is_counted_as_any_other() {
    for ends_connection in [false, true] {
        let mut world: World<Message> = World::new(1);
        let mut plan = Plan::new(1);
        plan.adjust_http = |http| {
            let options = Options { max_head_bytes: 250, ..Options::default() };
            http.http2 = http2(Choice::Always, options);
            http.routes = Arc::default();
        };
        if !ends_connection {
            plan.adjust_http = |http| {
                let options = Options {
                    max_head_bytes: 250,
                    stream_error_on_malformed: true,
                    ..Options::default()
                };
                http.http2 = http2(Choice::Always, options);
                http.routes = Arc::default();
            };
        }
        let registry = Arc::new(Registry::default());
        add_counted_worker(&mut world, 1, plan, &registry);
        world.run_for(Duration::from_millis(1));
        let (opening, fine) = opening(65_535);
        let large = request_with(3, "x-long", &"a".repeat(100));
        let malformed = request_with(5, "X-Capital", "1");
        let again = request_with(7, "x-short", "1");
        let got = sends(&mut world, vec![(0, [opening, fine, large, malformed, again].concat())]);
        world.run_for(Duration::from_secs(1));
        let number = |name: &str| registry.read().number(name).unwrap_or_default();
        let whole = if ends_connection { 1 } else { 2 };
        assert_eq!(number("http.in.downstream_rq_4xx"), whole, "no route has them");
        for total in ["downstream_rq_total", "downstream_rq_http2_total"] {
            assert_eq!(number(&format!("http.in.{total}")), whole + 2, "{total}");
        }
        assert_eq!(number("http.in.downstream_rq_rx_reset"), 2);
        assert_eq!(number("http.in.downstream_rq_active"), 0);
        assert_eq!(number("http2.header_list_size_too_large"), 1);
        assert_eq!(number("http2.header_overflow"), 0);
        assert_eq!(number("http.in.downstream_cx_http2_active"), u64::from(!ends_connection));
        let reset = |id| [0, 0, 4, 3, 0, 0, 0, 0, id];
        let resets = |id| got.borrow().windows(9).filter(|frame| *frame == reset(id)).count();
        assert_eq!((resets(3), resets(5)), (1, usize::from(!ends_connection)));
    }
}

/// What is forgotten of HPACK's table is told: the first block behind it begins with its sizes (RFC 7541 §4.2).
#[test]
fn a_connection_that_rests_gives_its_tables_back() {
    let (opening, request) = opening(65_535);
    let mut later = request.clone();
    later[8] = 3;
    let mut world: World<Message> = World::new(1);
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| {
        http.http2 = http2(Choice::Always, Options::default());
        http.idle_timeout = Some(Duration::from_secs(20));
        http.routes = Arc::default();
    };
    let registry = Arc::new(Registry::default());
    add_counted_worker(&mut world, 1, plan, &registry);
    world.run_for(Duration::from_millis(1));
    let got = sends(&mut world, vec![(0, [opening, request].concat()), (10_000, later)]);
    world.run_for(Duration::from_secs(11));
    let number = |name: &str| registry.read().number(name).unwrap_or_default();
    assert_eq!(number("http.in.downstream_rq_4xx"), 2);
    let begins = [1, 5, 0, 0, 0, 3, 0x20, 0x3f, 0xe1, 0x1f];
    assert!(got.borrow().windows(begins.len()).any(|piece| piece == begins), "{:?}", got.borrow());
    assert_eq!(number("http.in.downstream_cx_http2_active"), 1);
    world.run_for(Duration::from_secs(18));
    assert_eq!(number("http.in.downstream_cx_http2_active"), 1, "it is idle since its last stream");
    world.run_for(Duration::from_secs(3));
    assert_eq!(number("http.in.downstream_cx_http2_active"), 0);
    assert_eq!(number("http.in.downstream_cx_idle_timeout"), 1);
}

#[test]
fn an_answer_that_waits_for_a_closed_window_is_given_up() {
    let (opening, request) = opening(0);
    let mut world: World<Message> = World::new(1);
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| {
        http.http2 = http2(Choice::Always, Options::default());
        http.stream_idle_timeout = Some(Duration::from_secs(10));
        let direct = towpath_engine::snapshot::route::Action::Direct {
            status: 200,
            body: b"content".as_slice().into(),
            format: None,
        };
        http.routes = Arc::new(scene::table(vec![scene::route("/", direct)]));
    };
    let registry = Arc::new(Registry::default());
    add_counted_worker(&mut world, 1, plan, &registry);
    world.run_for(Duration::from_millis(1));
    // Another stream, whose window is opened in time.
    let mut second = request.clone();
    second[8] = 3;
    let update = vec![0, 0, 4, 8, 0, 0, 0, 0, 3, 0, 0, 0, 100];
    let got =
        sends(&mut world, vec![(0, [&opening[..], &request, &second].concat()), (9000, update)]);
    world.run_for(Duration::from_secs(9));
    let number = |name: &str| registry.read().number(name).unwrap_or_default();
    assert_eq!(number("http2.tx_flush_timeout"), 0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(number("http2.tx_flush_timeout"), 1);
    assert_eq!(number("http.in.downstream_cx_http2_active"), 1, "the connection goes on");
    let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1];
    assert_eq!(got.borrow().windows(9).filter(|frame| *frame == reset).count(), 1);
    let content = b"content";
    assert_eq!(got.borrow().windows(7).filter(|piece| *piece == content).count(), 1);
}

/// A head needs no window (RFC 9113 §5.2.1): one that a client's SETTINGS have closed, while its request is on its way
/// over a connection that was there, does not keep the origin from being read.
#[test]
fn heads_reach_a_client_whose_windows_are_closed() {
    let mut world: World<Message> = World::new(1);
    world.add(plain_origin(origin_address(1), Log::default(), PlainHabits::default()));
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| http.http2 = http2(Choice::Always, Options::default());
    let registry = Arc::new(Registry::default());
    add_counted_worker(&mut world, 1, plan, &registry);
    world.run_for(Duration::from_millis(1));
    for _ in 0..3 {
        let (opening, _) = opening(0);
        let asks = request_of(1, &[("x-id", "a"), ("x-size", "0"), ("x-body", "0")]);
        let got = sends(&mut world, vec![(0, [opening, asks].concat())]);
        world.run_for(Duration::from_secs(2));
        let begins = [1, 5, 0, 0, 0, 1];
        assert!(got.borrow().windows(6).any(|piece| piece == begins), "{:?}", got.borrow());
    }
    let number = |name: &str| registry.read().number(name).unwrap_or_default();
    assert_eq!(number("cluster.app.upstream_cx_total"), 1, "the origin's connection is kept");
}
