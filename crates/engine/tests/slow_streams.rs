//! What a stream holds whose answer has begun and goes on for long: measured as anonymous memory, in a process of its
//! own.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test that cannot go on has failed; a measurement is worth printing"
)]

mod scene;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::{HTTP, Plan, add_counted_worker, address, origin_address};
use towpath_engine::message::Message;
use towpath_engine::snapshot::Http2;
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::stats::Registry;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Connection, Options};
use towpath_proto::{ConnectionId, Event, Input, Out};
use towpath_sim::{Orders, Script, World};

const STREAMS: u32 = 5000;
/// What both ends hold of a stream is in it, some 220 bytes each.
const STREAM_BYTES: usize = 1400;

#[test]
fn a_stream_whose_answer_has_begun_holds_neither_head() {
    let mut world: World<Message> = World::new(1);
    let mut plan = Plan::new(1);
    plan.cluster.http2 = spoken();
    plan.cluster.limits.requests = 2 * STREAMS;
    plan.adjust_http = |http| http.http2 = spoken();
    plan.adjust_forward = |forward| forward.timeout = None;
    let registry = Arc::new(Registry::default());
    add_counted_worker(&mut world, 1, plan, &registry);
    add_origin(&mut world);
    world.run_for(Duration::from_millis(1));
    let (wanted, answered) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    add_client(&mut world, Rc::clone(&wanted), Rc::clone(&answered));
    let mut run_to = |count: u32| {
        wanted.set(count);
        world.run_for(Duration::from_secs(10));
        assert_eq!(answered.get(), count);
        anonymous_bytes()
    };
    // What is allocated once is there before.
    let before = run_to(100);
    let each = (run_to(100 + STREAMS) - before) / STREAMS as usize;
    println!("{each} bytes for each of {STREAMS} streams");
    let active = registry.read().number("http.in.downstream_rq_active");
    assert_eq!(active, Some(u64::from(STREAMS + 100)));
    assert!(each <= STREAM_BYTES, "{each}");
}

fn spoken() -> Option<Arc<Http2>> {
    Some(Arc::new(Http2 { options: options(), choice: Choice::Always, keepalive: None }))
}

fn options() -> Arc<Options> {
    Arc::new(Options {
        max_concurrent_streams: 1 << 20,
        connection_window: 1 << 24,
        ..Options::default()
    })
}

/// Begins each answer, with one byte of it.
fn add_origin(world: &mut World<Message>) {
    let (mut http2, mut heads) = (Connection::server(options()), HeadPool::default());
    world.add(Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
        move |input, orders: &mut Orders<Message>, _| match input {
            Input::Received { connection, chunk } => {
                http2.receive(chunk);
                let mut out = Out::new();
                while let Some((number, arrival)) = http2.poll(&mut heads).unwrap() {
                    assert!(matches!(arrival, Arrival::Part(Event::Head { end: true, .. })));
                    let mut head = Head::response(200);
                    head.append_bytes(b"content-type", b"text/event-stream");
                    head.append_bytes(b"cache-control", b"no-cache");
                    http2.send_head(number, &head, false, &mut out);
                    http2.send_data(number, Bytes::from_static(b"x"));
                }
                flush(&mut http2, out, connection, orders);
            }
            Input::Sent { .. } => http2.sent(0),
            _ => {}
        },
    ));
}

/// Asks for one after the other, as many as are wanted.
fn add_client(world: &mut World<Message>, wanted: Rc<Cell<u32>>, answered: Rc<Cell<u32>>) {
    let (mut http2, mut heads) = (Connection::client(options()), HeadPool::default());
    let (mut asked, mut open) = (0, None);
    world.add(Script::new(
        |orders: &mut Orders<Message>| orders.connect(address(HTTP)),
        move |input, orders: &mut Orders<Message>, now| {
            match input {
                Input::Connected { connection, .. } => open = Some(connection),
                Input::Received { chunk, .. } => {
                    http2.receive(chunk);
                    while let Some((number, arrival)) = http2.poll(&mut heads).unwrap() {
                        if let Arrival::Part(Event::Data(_)) = arrival {
                            http2.consumed(number);
                            answered.set(answered.get() + 1);
                        }
                    }
                }
                Input::Sent { .. } => http2.sent(0),
                _ => {}
            }
            let Some(connection) = open else { return };
            let mut out = Out::new();
            if http2.is_open() && asked == answered.get() && asked < wanted.get() {
                let path = format!("/events/of/{asked}");
                let mut head = Head::request(b"GET", b"http", b"app.test", path.as_bytes());
                head.append_bytes(b"user-agent", b"someone/1.0 (a system; of some kind)");
                head.append_bytes(b"accept", b"text/event-stream");
                head.append_bytes(b"accept-language", b"en-GB,en;q=0.5");
                let number = http2.open().unwrap();
                http2.send_head(number, &head, true, &mut out);
                asked += 1;
            }
            flush(&mut http2, out, connection, orders);
            orders.wake_at(now + Duration::from_millis(100));
        },
    ));
}

fn flush(
    http2: &mut Connection,
    mut out: Out,
    connection: ConnectionId,
    orders: &mut Orders<Message>,
) {
    http2.flush(&mut out);
    out.drain().for_each(|chunk| orders.send(connection, chunk));
}

fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() * 1024
}
