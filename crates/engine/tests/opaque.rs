//! Opaque bytes through a worker: TCP streams and upgraded connections, whole in both directions, bounded in memory.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "scene/ends.rs"]
mod ends;
mod scene;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ends::{Shared, callee, caller};
use scene::origin::pattern;
use scene::{
    HTTP, Plan, TCP, add_counted_worker, add_worker, address, drain_and_check, origin_address,
};
use towpath_engine::message::Message;
use towpath_engine::snapshot::http::Upgrade;
use towpath_engine::snapshot::route::PathMatch;
use towpath_engine::stats::Registry;
use towpath_engine::worker::Worker;
use towpath_proto::{Close, Input, ReadInterest};
use towpath_sim::{Faults, Orders, Script, World, for_each_seed};

#[test]
fn both_directions_arrive_whole_and_half_close_passes() {
    for_each_seed(300, |seed| {
        let mut world: World<Message> = World::new(seed);
        world.set_faults(Faults::none());
        let (up, down) = (
            pattern("up", (seed as usize * 997) % 60_000),
            pattern("down", (seed as usize * 1499) % 60_000),
        );
        let (caller_got, callee_got) = (Shared::default(), Shared::default());
        world.add(callee(origin_address(1), down.clone(), Rc::clone(&callee_got)));
        let worker = add_worker(&mut world, seed, Plan::new(1));
        world.run_for(Duration::from_millis(1));
        world.add(caller(address(TCP), up.clone(), Rc::clone(&caller_got)));
        world.run_for(Duration::from_secs(60));
        assert_eq!(callee_got.borrow().bytes, up);
        assert_eq!(caller_got.borrow().bytes, down);
        assert!(callee_got.borrow().ended && caller_got.borrow().ended);
        drain_and_check(&mut world, worker);
    });
}

#[test]
fn a_lossy_day_ends_every_stream_and_never_invents_bytes() {
    let mut arrived = 0;
    for_each_seed(300, |seed| {
        let mut world: World<Message> = World::new(seed);
        world.set_faults(if seed % 2 == 0 { Faults::lively() } else { Faults::harsh() });
        let (up, down) = (pattern("up", 3000), pattern("down", 5000));
        let mut all = Vec::new();
        world.add(callee(origin_address(1), down.clone(), Shared::default()));
        let worker = add_worker(&mut world, seed, Plan::new(1));
        world.run_for(Duration::from_millis(1));
        for _ in 0..5 {
            let got = Shared::default();
            world.add(caller(address(TCP), up.clone(), Rc::clone(&got)));
            all.push(got);
        }
        // Short of the idle timeout, which ends a stream that hangs as if it were over.
        world.run_for(Duration::from_secs(500));
        for got in &all {
            let got = got.borrow();
            assert!(down.starts_with(&got.bytes), "what arrives is what was sent");
            let whole = got.bytes.len() == down.len() || got.bytes.is_empty();
            assert!(whole || !got.ended, "an end comes after everything, or instead of it");
            arrived += u32::from(got.bytes.len() == down.len());
        }
        drain_and_check(&mut world, worker);
    });
    assert!(arrived > 0, "a day is not so bad that nothing arrives");
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer() {
    for_each_seed(50, |seed| {
        let mut world: World<Message> = World::new(seed);
        world.set_faults(Faults { buffer_bytes: 1024..=16_384, ..Faults::none() });
        let much = pattern("much", 1_000_000);
        world.add(Script::new(
            |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
            move |input, orders: &mut Orders<Message>, _now| {
                if let Input::Accepted { connection, .. } = input {
                    orders.send(connection, much.clone());
                    orders.close(connection, Close::Flush);
                }
            },
        ));
        let worker = add_worker(&mut world, seed, Plan::new(1));
        world.run_for(Duration::from_millis(1));
        let got = Shared::default();
        let seen = Rc::clone(&got);
        world.add(Script::new(
            |orders: &mut Orders<Message>| orders.connect(address(TCP)),
            move |input, orders: &mut Orders<Message>, now| match input {
                Input::Connected { connection, .. } => {
                    orders.read(connection, ReadInterest::Off);
                    orders.wake_at(now + Duration::from_secs(20));
                    seen.borrow_mut().closed = false;
                }
                Input::Timeout => {
                    let id = towpath_proto::ConnectionId::new(0, 0);
                    orders.read(id, ReadInterest::On);
                }
                Input::Received { chunk, .. } => seen.borrow_mut().bytes.extend_from_slice(&chunk),
                Input::Ended { connection } => {
                    seen.borrow_mut().ended = true;
                    orders.close(connection, Close::Flush);
                }
                _ => {}
            },
        ));
        let mut most = 0;
        for _ in 0..100 {
            world.run_for(Duration::from_millis(100));
            let (queued, _) = world.unsent_bytes(worker);
            most = most.max(queued);
        }
        // The watermark, one read beyond it, and what the other side had on its way by then.
        assert!(
            (8 * 1024..=16 * 1024 + 2 * 65_536).contains(&most),
            "{most} bytes wait for a reader that does not read"
        );
        world.run_for(Duration::from_secs(100));
        assert_eq!((got.borrow().bytes.len(), got.borrow().ended), (1_000_000, true));
        assert_eq!(world.machine::<Worker>(worker).streams(), 0);
        drain_and_check(&mut world, worker);
    });
}

/// A server that has ended its direction, whose client sends its last bytes and ends too, and then takes nothing until
/// it is asked to, if ever.
fn last_bytes(seed: u64, takes_after: Option<Duration>) -> (World<Message>, Shared, Arc<Registry>) {
    let mut world: World<Message> = World::new(seed);
    world.set_faults(Faults { buffer_bytes: 1024..=4096, ..Faults::none() });
    let (registry, taken) = (Arc::<Registry>::default(), Shared::default());
    let seen = Rc::clone(&taken);
    world.add(Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Accepted { connection, .. } => {
                orders.read(connection, ReadInterest::Off);
                orders.close(connection, Close::Half);
                if let Some(after) = takes_after {
                    orders.wake_at(now + after);
                }
            }
            Input::Timeout => {
                orders.read(towpath_proto::ConnectionId::new(0, 0), ReadInterest::On);
            }
            Input::Received { chunk, .. } => seen.borrow_mut().bytes.extend_from_slice(&chunk),
            Input::Ended { connection } => {
                seen.borrow_mut().ended = true;
                orders.close(connection, Close::Flush);
            }
            Input::Closed { .. } => seen.borrow_mut().closed = true,
            _ => {}
        },
    ));
    add_counted_worker(&mut world, seed, Plan::new(1), &registry);
    world.run_for(Duration::from_millis(1));
    let mut client = None;
    world.add(Script::new(
        |orders: &mut Orders<Message>| orders.connect(address(TCP)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Connected { connection, .. } => client = Some(connection),
            Input::Ended { .. } => {
                if let Some(connection) = client {
                    orders.send(connection, pattern("last", 12_000));
                    orders.close(connection, Close::Flush);
                }
            }
            _ => {}
        },
    ));
    (world, taken, registry)
}

#[test]
fn what_a_client_that_is_gone_has_left_for_its_server_is_sent_and_counted() {
    for_each_seed(100, |seed| {
        let (mut world, taken, registry) = last_bytes(seed, Some(Duration::from_secs(20)));
        let number = |name: &str| registry.read().number(name).unwrap_or_default();
        world.run_for(Duration::from_secs(10));
        assert_eq!(number("tcp.tcp.upstream_flush_total"), 1);
        assert_eq!(number("tcp.tcp.upstream_flush_active"), 1);
        assert_eq!(number("cluster.app.upstream_cx_active"), 1, "it counts until it is gone");
        world.run_for(Duration::from_secs(60));
        assert_eq!(taken.borrow().bytes, pattern("last", 12_000));
        assert!(taken.borrow().ended);
        assert_eq!(number("tcp.tcp.upstream_flush_total"), 1);
        assert_eq!(number("tcp.tcp.upstream_flush_active"), 0);
        assert_eq!(number("cluster.app.upstream_cx_active"), 0);
    });
}

#[test]
fn a_server_that_takes_nothing_is_given_up_when_it_was_idle_for_too_long() {
    for_each_seed(50, |seed| {
        let (mut world, taken, registry) = last_bytes(seed, None);
        let number = |name: &str| registry.read().number(name).unwrap_or_default();
        world.run_for(Duration::from_secs(590));
        assert_eq!(number("tcp.tcp.upstream_flush_active"), 1);
        world.run_for(Duration::from_secs(20));
        assert_eq!(number("tcp.tcp.upstream_flush_active"), 0);
        assert_eq!(number("tcp.tcp.idle_timeout"), 1);
        assert!(taken.borrow().closed && !taken.borrow().ended);
    });
}

#[test]
fn a_websocket_becomes_opaque_after_101() {
    for_each_seed(200, |seed| {
        let mut world: World<Message> = World::new(seed);
        world.set_faults(Faults::none());
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
        let mut asked = Vec::new();
        world.add(Script::new(
            |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
            move |input, orders: &mut Orders<Message>, _now| match input {
                Input::Received { connection, chunk } => {
                    let before = asked.windows(4).any(|four| four == b"\r\n\r\n");
                    asked.extend_from_slice(&chunk);
                    let head =
                        asked.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
                    let Some(head) = head else { return };
                    if !before {
                        let text = String::from_utf8_lossy(&asked[..head]).into_owned();
                        assert!(
                            text.contains("upgrade: websocket\r\n")
                                && text.contains("connection: upgrade\r\n"),
                            "{text}"
                        );
                        orders.send(connection, switch);
                        let early = asked[head..].to_vec();
                        orders.send(connection, early);
                    } else {
                        orders.send(connection, chunk);
                    }
                }
                Input::Ended { connection } => orders.close(connection, Close::Flush),
                _ => {}
            },
        ));
        let mut plan = Plan::new(1);
        plan.adjust_http = |http| {
            http.upgrades = vec![Upgrade {
                kind: "websocket".into(),
                enabled: true,
                connect: None,
                chain: None,
            }]
        };
        let worker = add_worker(&mut world, seed, plan);
        world.run_for(Duration::from_millis(1));
        let ask =
            "GET /chat HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n";
        let frames = pattern("frames", 5000);
        let got = tunnel(&mut world, ask, &frames);
        world.run_for(Duration::from_secs(30));
        let got = got.borrow();
        let text = String::from_utf8_lossy(&got.bytes);
        assert!(text.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{text:.200}");
        assert!(got.bytes.ends_with(&frames) && got.ended, "every frame came back");
        drain_and_check(&mut world, worker);
    });
}

#[test]
fn connect_ends_here_and_the_host_sees_what_is_in_the_tunnel() {
    for_each_seed(200, |seed| {
        let mut world: World<Message> = World::new(seed);
        world.set_faults(Faults::none());
        world.add(Script::new(
            |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
            |input, orders: &mut Orders<Message>, _now| match input {
                Input::Received { connection, chunk } => orders.send(connection, chunk),
                Input::Ended { connection } => orders.close(connection, Close::Flush),
                _ => {}
            },
        ));
        let mut plan = Plan::new(1);
        plan.adjust_forward = |forward| {
            forward.upgrades = vec![Upgrade {
                kind: "connect".into(),
                enabled: true,
                connect: Some(Arc::default()),
                chain: None,
            }];
        };
        plan.path = Some(PathMatch::Connect);
        let worker = add_worker(&mut world, seed, plan);
        world.run_for(Duration::from_millis(1));
        let frames = pattern("frames", 5000);
        let got =
            tunnel(&mut world, "CONNECT c.test:443 HTTP/1.1\r\nhost: c.test:443\r\n\r\n", &frames);
        world.run_for(Duration::from_secs(30));
        let got = got.borrow();
        let text = String::from_utf8_lossy(&got.bytes);
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && !head.contains("-length"), "{head}");
        assert_eq!(got.bytes.len(), head.len() + 4 + frames.len());
        assert!(got.bytes.ends_with(&frames) && got.ended, "every byte came back");
        drain_and_check(&mut world, worker);
    });
}

/// A client that asks for a tunnel, sends `payload` once it has one, and ends.
fn tunnel(world: &mut World<Message>, ask: &'static str, payload: &[u8]) -> Shared {
    let got = Shared::default();
    let mut sent = false;
    let (seen, payload) = (Rc::clone(&got), payload.to_vec());
    world.add(Script::new(
        |orders: &mut Orders<Message>| orders.connect(address(HTTP)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Connected { connection, .. } => orders.send(connection, ask),
            Input::Received { connection, chunk } => {
                seen.borrow_mut().bytes.extend_from_slice(&chunk);
                let switched = seen.borrow().bytes.windows(4).any(|four| four == b"\r\n\r\n");
                if switched && !sent {
                    sent = true;
                    orders.send(connection, payload.clone());
                    orders.close(connection, Close::Half);
                }
            }
            Input::Ended { connection } => {
                seen.borrow_mut().ended = true;
                orders.close(connection, Close::Flush);
            }
            _ => {}
        },
    ));
    got
}
