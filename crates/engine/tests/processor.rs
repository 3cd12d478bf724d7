//! Streams that another server sees and may change while they go on: whatever it does, they stay whole or end, what is
//! held of them is bounded, and nothing is left.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::client::{Ending, add_clients};
use scene::filters::{add_asked_cluster, add_filter};
use scene::origin::{Habits, Log, origin};
use scene::{HTTP, Plan, add_worker_for, address, drain_and_check, origin_address};
use towpath_engine::filter::ext_proc::{
    BodyMode, ExtProc, GrpcService, HeaderMode, MutationRules, ProcessingMode, SharedExtProc,
};
use towpath_engine::message::Message;
use towpath_engine::snapshot::Snapshot;
use towpath_engine::stats::Registry;
use towpath_engine::worker::Worker;
use towpath_proto::head::HeadPool;
use towpath_proto::http1::Server;
use towpath_proto::{Close, ConnectionId, Event, Input, Instant, ReadInterest};
use towpath_sim::{Orders, Random, Script, World, for_each_seed};

fn processor(body: BodyMode) -> ExtProc {
    ExtProc {
        mode: ProcessingMode {
            request_body: body,
            response_body: body,
            request_trailers: HeaderMode::Send,
            response_trailers: HeaderMode::Send,
            ..ProcessingMode::default()
        },
        message_timeout: Duration::from_secs(20),
        allow_mode_override: true,
        ..ExtProc::new(GrpcService::new("processor"))
    }
}

/// Filters that talk with the server at `origin_address(9)`, before a route to that at `origin_address(1)`.
fn snapshot(configs: Vec<ExtProc>) -> Snapshot {
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| http.stream_idle_timeout = Some(Duration::from_secs(100));
    let mut snapshot = plan.snapshot();
    add_asked_cluster(&mut snapshot, "processor");
    for (number, config) in configs.into_iter().enumerate() {
        let config = SharedExtProc(Arc::new(config));
        add_filter(&mut snapshot, &format!("processor {number}"), config);
    }
    snapshot
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    /// It lets all go on as it is.
    Faithful,
    /// It says nothing of content.
    SilentOnContent,
    /// It says anything.
    Liar,
}

/// A server that speaks gRPC by HTTP/1.1.
fn server(
    manners: Manners,
    duplex: bool,
    seed: u64,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut calls: HashMap<ConnectionId, (Server, Vec<u8>)> = HashMap::new();
    let (mut heads, mut random) = (HeadPool::default(), Random::new(seed));
    Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(9)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Accepted { connection, .. } => {
                calls.insert(connection, (Server::new(Arc::default()), Vec::new()));
            }
            Input::Received { connection, chunk } => {
                let Some((server, body)) = calls.get_mut(&connection) else { return };
                if read(server, chunk, body, &mut heads) {
                    orders.send(connection, HEAD);
                }
                while let Some(message) = next_message(body) {
                    for answer in answers(&message, manners, duplex, &mut random) {
                        let Some(answer) = answer else {
                            orders.close(connection, Close::Abort);
                            calls.remove(&connection);
                            return;
                        };
                        orders.send(connection, chunked(&answer));
                    }
                }
            }
            Input::Ended { connection } | Input::Closed { connection, .. } => {
                let call = calls.remove(&connection);
                if call.is_some() {
                    orders.close(connection, Close::Abort);
                }
            }
            _ => {}
        },
    )
}

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";

fn next_message(body: &mut Vec<u8>) -> Option<Vec<u8>> {
    let [0, length @ ..] = *body.first_chunk::<5>()? else { panic!("a frame of the proxy's") };
    let length = u32::from_be_bytes(length) as usize;
    if body.len() < 5 + length {
        return None;
    }
    let message = body[5..5 + length].to_vec();
    body.drain(..5 + length);
    Some(message)
}

fn chunked(frame: &[u8]) -> Bytes {
    [format!("{:x}\r\n", frame.len()).as_bytes(), frame, b"\r\n"].concat().into()
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// The answers to a message; none is the end of the connection.
fn answers(
    message: &[u8],
    manners: Manners,
    duplex: bool,
    random: &mut Random,
) -> Vec<Option<Vec<u8>>> {
    let shown = message[0] >> 3;
    let is_content = matches!(shown, 4 | 5);
    match manners {
        Manners::SilentOnContent if is_content => Vec::new(),
        Manners::Faithful | Manners::SilentOnContent if is_content && duplex => {
            let (length, at) = varint(&message[1..]);
            let content = &message[1 + at..][..length];
            let body = [&[0x1a][..], &prefixed(content)].concat();
            let common = [&[0x1a][..], &prefixed(&body)].concat();
            let part = [&[0x0a][..], &prefixed(&common)].concat();
            vec![Some(framed(&[&[(shown - 1) << 3 | 2][..], &prefixed(&part)].concat()))]
        }
        Manners::Faithful | Manners::SilentOnContent => {
            vec![Some(framed(&[(shown - 1) << 3 | 2, 0]))]
        }
        Manners::Liar => (0..random.below(4)).map(|_| lie(shown, random)).collect(),
    }
}

/// Anything: what was asked for, something else, and what means nothing.
fn lie(shown: u8, random: &mut Random) -> Option<Vec<u8>> {
    const MUTATIONS: [&[u8]; 5] = [
        // `content-length: 3`.
        b"\x12\x19\x0a\x17\x0a\x15\x0a\x0econtent-length\x1a\x033",
        // `a: b CR LF c: d`.
        b"\x12\x0f\x0a\x0d\x0a\x0b\x0a\x01a\x1a\x06b\r\nc:d",
        // `:method: A B`.
        b"\x12\x12\x0a\x10\x0a\x0e\x0a\x07:method\x1a\x03A B",
        // Other content.
        b"\x1a\x07\x0a\x05other",
        // Another message.
        b"\x08\x01\x1a\x07\x0a\x05other",
    ];
    let part = if random.chance(700) { shown - 1 } else { u8::try_from(random.below(12)).unwrap() };
    Some(match random.below(10) {
        0 => return None,
        1 => framed(&[part << 3 | 2, 3, 1]),
        2 => vec![0, 0xff, 0xff, 0xff, 0xff, 1],
        3 => framed(&(0..random.below(40)).map(|_| random.below(256) as u8).collect::<Vec<_>>()),
        4 => framed(&[part << 3 | 2, 0, 0x4a, 4, 0x18, 1, 0x20, 3]),
        5 | 6 => framed(&[part << 3 | 2, 0]),
        _ => {
            let common = *random.pick(&MUTATIONS).unwrap();
            let changed = [&[0x0a][..], &prefixed(common)].concat();
            framed(&[&[part << 3 | 2][..], &prefixed(&changed)].concat())
        }
    })
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

/// A number, and how long it is.
fn varint(bytes: &[u8]) -> (usize, usize) {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return (value, at + 1);
        }
    }
    panic!("a number without an end")
}

struct Outcome {
    endings: Vec<(String, Vec<Ending>)>,
    served: usize,
    wrong_bodies: u32,
    failed: u64,
}

const CLIENTS: usize = 3;
const REQUESTS: usize = 6;
const ALL: usize = CLIENTS * REQUESTS;

fn run(seed: u64, configs: Vec<ExtProc>, manners: Manners, largest: usize) -> Outcome {
    let duplex = configs[0].mode.request_body == BodyMode::FullDuplex;
    let mut world: World<Message> = World::new(seed);
    let served = Log::default();
    world.add(origin(origin_address(1), served.clone(), Habits::default()));
    world.add(server(manners, duplex, seed));
    let registry = Arc::new(Registry::default());
    let worker = add_worker_for(&mut world, seed, Arc::new(snapshot(configs)), &registry);
    world.run_for(Duration::from_millis(1));
    let endings = add_clients(&mut world, seed, (CLIENTS, REQUESTS), largest);
    world.run_for(Duration::from_secs(2500));
    let number = |name: &str| registry.read().number(name).unwrap_or(0);
    assert_eq!(number("cluster.processor.upstream_rq_active"), 0, "a call is left");
    let failed = number("http.in.ext_proc.streams_failed");
    drain_and_check(&mut world, worker);
    Outcome {
        endings: endings.borrow().clone().into_iter().collect(),
        served: served.borrow().times.len(),
        wrong_bodies: served.borrow().wrong_bodies,
        failed,
    }
}

const SERVED: [Ending; 1] = [Ending::Answered { status: 200, from_origin: true }];

#[test]
fn what_a_server_only_looks_at_stays_whole() {
    for (body, largest) in [
        (BodyMode::None, 60_000),
        (BodyMode::Streamed, 60_000),
        (BodyMode::FullDuplex, 60_000),
        (BodyMode::BufferedPartial, 60_000),
        (BodyMode::Buffered, 15_000),
    ] {
        for_each_seed(4, |seed| {
            let outcome = run(seed, vec![processor(body)], Manners::Faithful, largest);
            for (id, endings) in &outcome.endings {
                assert_eq!(endings[..], SERVED, "{id} {body:?}");
            }
            assert_eq!((outcome.endings.len(), outcome.served), (ALL, ALL), "{body:?}");
            assert_eq!((outcome.wrong_bodies, outcome.failed), (0, 0), "{body:?}");
        });
    }
}

#[test]
fn several_servers_see_one_stream() {
    for_each_seed(4, |seed| {
        let modes = [BodyMode::Streamed, BodyMode::None, BodyMode::BufferedPartial];
        let configs = modes.map(processor).into();
        let outcome = run(seed, configs, Manners::Faithful, 60_000);
        for (id, endings) in &outcome.endings {
            assert_eq!(endings[..], SERVED, "{id}");
        }
        assert_eq!((outcome.served, outcome.wrong_bodies), (ALL, 0));
    });
}

#[test]
fn a_server_that_lies_ends_streams_and_leaves_nothing() {
    for body in [
        BodyMode::None,
        BodyMode::Streamed,
        BodyMode::FullDuplex,
        BodyMode::BufferedPartial,
        BodyMode::Buffered,
    ] {
        for lenient in [false, true] {
            for_each_seed(3, |seed| {
                let config = ExtProc {
                    failure_mode_allow: lenient,
                    message_timeout: Duration::from_secs(1),
                    rules: MutationRules { allow_all_routing: true, ..MutationRules::default() },
                    ..processor(body)
                };
                let outcome = run(seed, vec![config], Manners::Liar, 15_000);
                assert_eq!(outcome.endings.len(), ALL, "every request has an end");
            });
        }
    }
}

/// Sends a request's head, and content for as long as it is taken.
fn uploader(
    leaves: Option<Duration>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut connection = None;
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Timeout if connection.is_none() => orders.connect(address(HTTP)),
            Input::Connected { connection: id, .. } => {
                connection = Some(id);
                let head = "POST /x HTTP/1.1\r\nhost: a\r\nx-id: a\r\nx-size: 0\r\n\
                            x-body: 4000000\r\ncontent-length: 4000000\r\n\r\n";
                orders.send(id, head);
                for _ in 0..4000 {
                    orders.send(id, vec![b'x'; 1000]);
                }
                if let Some(after) = leaves {
                    orders.wake_at(now + after);
                }
            }
            Input::Timeout => orders.close(connection.unwrap(), Close::Abort),
            _ => {}
        },
    )
}

#[test]
fn a_client_is_not_read_while_its_content_waits_for_a_server() {
    for (body, sends_body_early) in [
        (BodyMode::None, false),
        (BodyMode::Streamed, false),
        (BodyMode::Streamed, true),
        (BodyMode::BufferedPartial, false),
    ] {
        for_each_seed(2, |seed| {
            let mut world: World<Message> = World::new(seed);
            world.add(origin(origin_address(1), Log::default(), Habits::default()));
            let manners = match body {
                BodyMode::None => Manners::Liar,
                _ => Manners::SilentOnContent,
            };
            if manners == Manners::SilentOnContent {
                world.add(server(manners, false, seed));
            } else {
                // One that takes calls and says nothing at all.
                world.add(origin(
                    origin_address(9),
                    Log::default(),
                    Habits { silent: true, ..Habits::default() },
                ));
            }
            let registry = Arc::new(Registry::default());
            let config = ExtProc {
                message_timeout: Duration::from_secs(1000),
                sends_body_early,
                ..processor(body)
            };
            let snapshot = Arc::new(snapshot(vec![config]));
            let worker = add_worker_for(&mut world, seed, snapshot, &registry);
            world.run_for(Duration::from_millis(1));
            world.add(uploader(Some(Duration::from_secs(60))));
            world.run_for(Duration::from_secs(30));
            assert_eq!(world.machine::<Worker>(worker).streams(), 2, "a request and its call");
            world.run_for(Duration::from_secs(60));
            assert_eq!(world.machine::<Worker>(worker).streams(), 0, "its client has left");
            let taken = registry.read().number("http.in.downstream_cx_rx_bytes_total").unwrap();
            // The buffer limit, and a read beyond it.
            assert!((16_000..160_000).contains(&taken), "{body:?}: {taken} bytes were held");
            drain_and_check(&mut world, worker);
        });
    }
}

/// How much a server says in place of an answer's content, and in what pieces.
const FLOOD: usize = 4_000_000;
const PIECE: usize = 10_000;
/// What it consists of, which stands in no head.
const FILLING: u8 = 7;

/// Reads on in a call, its content into `body`; whether its head was among what came.
fn read(server: &mut Server, chunk: Bytes, body: &mut Vec<u8>, heads: &mut HeadPool) -> bool {
    let mut has_head = false;
    server.receive(chunk);
    while let Ok(Some(event)) = server.poll(heads) {
        match event {
            Event::Head { .. } => has_head = true,
            Event::Data(data) => body.extend_from_slice(&data),
            _ => {}
        }
    }
    has_head
}

/// A server that says that much as soon as it is shown content of an answer, whether it is read or not.
fn flooding() -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut calls: HashMap<ConnectionId, (Server, Vec<u8>, bool)> = HashMap::new();
    let mut heads = HeadPool::default();
    Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(9)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Accepted { connection, .. } => {
                calls.insert(connection, (Server::new(Arc::default()), Vec::new(), false));
            }
            Input::Received { connection, chunk } => {
                let Some((server, body, floods)) = calls.get_mut(&connection) else { return };
                if read(server, chunk, body, &mut heads) {
                    orders.send(connection, HEAD);
                }
                while let Some(message) = next_message(body) {
                    let shown = message[0] >> 3;
                    if shown != 5 {
                        orders.send(connection, chunked(&framed(&[(shown - 1) << 3 | 2, 0])));
                    } else if !std::mem::replace(floods, true) {
                        for piece in (1..=FLOOD / PIECE).rev() {
                            let content = vec![FILLING; PIECE];
                            let content = [&[0x0a][..], &prefixed(&content)].concat();
                            let end: &[u8] = if piece == 1 { &[0x10, 1] } else { &[] };
                            let frame = streamed(4, &[&content[..], end].concat());
                            orders.send(connection, chunked(&frame));
                        }
                    }
                }
            }
            Input::Ended { connection } | Input::Closed { connection, .. }
                if calls.remove(&connection).is_some() =>
            {
                orders.close(connection, Close::Abort);
            }
            _ => {}
        },
    )
}

/// Content in place of what was shown, as a part of an answer to `FULL_DUPLEX_STREAMED`.
fn streamed(part: u8, content: &[u8]) -> Vec<u8> {
    let body = [&[0x1a][..], &prefixed(content)].concat();
    let common = [&[0x1a][..], &prefixed(&body)].concat();
    let response = [&[0x0a][..], &prefixed(&common)].concat();
    framed(&[&[part << 3 | 2][..], &prefixed(&response)].concat())
}

/// Asks, reads the first bytes of the answer, and the others only after a while; tells how many there were.
fn slow_reader(
    after: Duration,
    read: Rc<Cell<usize>>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let (mut connection, mut has_paused) = (None, false);
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Timeout if connection.is_none() => orders.connect(address(HTTP)),
            Input::Timeout => orders.read(connection.unwrap(), ReadInterest::On),
            Input::Connected { connection: id, .. } => {
                connection = Some(id);
                let head = "GET /x HTTP/1.1\r\nhost: a\r\nx-id: a\r\nx-size: 10\r\nx-body: 0\r\n\
                            x-chunked: 1\r\n\r\n";
                orders.send(id, head);
            }
            Input::Received { connection, chunk } => {
                if !std::mem::replace(&mut has_paused, true) {
                    orders.read(connection, ReadInterest::Off);
                    orders.wake_at(now + after);
                }
                read.set(read.get() + chunk.iter().filter(|byte| **byte == FILLING).count());
            }
            _ => {}
        },
    )
}

#[test]
fn a_server_that_floods_is_not_read_while_its_client_does_not_read() {
    for_each_seed(3, |seed| {
        let mut world: World<Message> = World::new(seed);
        world.add(origin(origin_address(1), Log::default(), Habits::default()));
        world.add(flooding());
        let registry = Arc::new(Registry::default());
        let config = ExtProc {
            message_timeout: Duration::from_secs(1000),
            ..processor(BodyMode::FullDuplex)
        };
        let snapshot = Arc::new(snapshot(vec![config]));
        let worker = add_worker_for(&mut world, seed, snapshot, &registry);
        world.run_for(Duration::from_millis(1));
        let read = Rc::new(Cell::new(0));
        world.add(slow_reader(Duration::from_secs(60), Rc::clone(&read)));
        world.run_for(Duration::from_secs(30));
        let number = |name: &str| registry.read().number(name).unwrap();
        let taken = number("cluster.processor.upstream_cx_rx_bytes_total");
        let sent = number("http.in.downstream_cx_tx_bytes_total");
        // What is on its way to the client is in the system's buffers.
        let held = taken - sent;
        assert!(held < 160_000, "{held} bytes of {taken} were held");
        assert!(taken < FLOOD as u64 / 2, "{taken} bytes were read");
        world.run_for(Duration::from_secs(600));
        assert_eq!(read.get(), FLOOD, "all of it comes once it is read");
        assert_eq!(number("http.in.ext_proc.streams_failed"), 0);
        assert_eq!(world.machine::<Worker>(worker).streams(), 0);
        drain_and_check(&mut world, worker);
    });
}
