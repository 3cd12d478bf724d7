//! Streams between JSON and gRPC: who is slow holds the other up, and nothing is held without a limit.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::filters::add_filter;
use scene::{HTTP, Plan, add_worker_for, address, drain_and_check, origin_address};
use towpath_engine::filter::grpc_json_transcoder::{
    Delimiter, Field, Kind, Known, MessageType, Method, Paths, Printing, Rule, Schema,
    SharedTranscoder, Transcoder,
};
use towpath_engine::message::Message;
use towpath_engine::snapshot::Snapshot;
use towpath_engine::stats::Registry;
use towpath_engine::worker::Worker;
use towpath_proto::{Input, Instant, ReadInterest};
use towpath_sim::{Orders, Script, World, for_each_seed};

/// `/chat` takes and gives streams of messages, `/one` one each.
fn transcoder() -> Transcoder {
    let mut schema = Schema::default();
    let text = Field {
        name: "text".into(),
        json_name: "text".into(),
        number: 1,
        kind: Kind::String,
        is_repeated: false,
        is_required: false,
        is_map: false,
        has_presence: false,
        oneof: None,
    };
    let message = schema.add_message(MessageType {
        name: "t.M".into(),
        fields: vec![text],
        oneofs: Vec::new(),
        is_proto3: true,
        known: Known::No,
    });
    let method = |path: &str, streams| Method {
        path: path.into(),
        input: message,
        output: message,
        client_streams: streams,
        server_streams: streams,
        request_field: Vec::new(),
        request_is_body: false,
        response_field: Vec::new(),
        response_is_body: false,
    };
    let mut paths = Paths::default();
    paths.add("POST", "/chat", 0).unwrap();
    paths.add("POST", "/one", 1).unwrap();
    Transcoder {
        schema,
        methods: vec![method("/t.S/Chat", true), method("/t.S/One", false)],
        rules: vec![Rule { method: 0, body: "*".into() }, Rule { method: 1, body: "*".into() }],
        paths,
        ignored: Vec::new(),
        printing: Printing::default(),
        delimiter: Delimiter::Array,
        keeps_route: true,
        ignores_unknown: false,
        captures_unknown: false,
        status: None,
        rejects_methods: false,
        rejects_queries: false,
        rejects_collisions: false,
        in_any_case: false,
        most_request: None,
        most_response: None,
    }
}

fn snapshot() -> Snapshot {
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| http.stream_idle_timeout = Some(Duration::from_secs(100));
    let mut snapshot = plan.snapshot();
    add_filter(&mut snapshot, "json", SharedTranscoder(Some(Arc::new(transcoder()))));
    snapshot
}

/// A server that sends this as soon as a client is there, and reads or does not.
fn server(
    sends: Vec<Bytes>,
    reads: bool,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Accepted { connection, .. } if !reads => {
                orders.read(connection, ReadInterest::Off);
            }
            Input::Received { connection, .. } => {
                sends.iter().for_each(|bytes| orders.send(connection, bytes.clone()));
            }
            _ => {}
        },
    )
}

/// A client that sends this, reads or does not, and tells how much it has read.
fn client(
    sends: Vec<Bytes>,
    reads: bool,
    read: Rc<RefCell<Vec<u8>>>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut is_there = false;
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Timeout if !is_there => {
                is_there = true;
                orders.connect(address(HTTP));
            }
            Input::Connected { connection, .. } => {
                if !reads {
                    orders.read(connection, ReadInterest::Off);
                }
                sends.iter().for_each(|bytes| orders.send(connection, bytes.clone()));
            }
            Input::Received { chunk, .. } => read.borrow_mut().extend_from_slice(&chunk),
            _ => {}
        },
    )
}

fn head(path: &str, length: usize) -> Bytes {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n").into()
}

/// What has been read of the client and of the server, and what the client has read, after half a minute.
fn run(
    seed: u64,
    (asks, client_reads): (Vec<Bytes>, bool),
    (answers, server_reads): (Vec<Bytes>, bool),
) -> (u64, u64, Vec<u8>) {
    let mut world: World<Message> = World::new(seed);
    world.add(server(answers, server_reads));
    let registry = Arc::new(Registry::default());
    let worker = add_worker_for(&mut world, seed, Arc::new(snapshot()), &registry);
    world.run_for(Duration::from_millis(1));
    let read = Rc::default();
    let client = world.add(client(asks, client_reads, Rc::clone(&read)));
    world.run_for(Duration::from_secs(30));
    let number = |name: &str| registry.read().number(name).unwrap_or(0);
    let given = number("cluster.app.upstream_cx_rx_bytes_total");
    let held = number("http.in.transcoder_request_buffer_bytes")
        + number("http.in.transcoder_response_buffer_bytes");
    assert!(held <= 32_768, "{held} bytes are held");
    world.kill(client);
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.machine::<Worker>(worker).streams(), 0, "its client has left");
    // They count with its connection's end.
    let taken = number("http.in.downstream_cx_rx_bytes_total");
    assert_eq!(number("http.in.transcoder_request_buffer_bytes"), 0);
    assert_eq!(number("http.in.transcoder_response_buffer_bytes"), 0);
    drain_and_check(&mut world, worker);
    let read = read.borrow().clone();
    (taken, given, read)
}

/// So many messages as a client sends them.
fn items(count: usize) -> Vec<Bytes> {
    let item = format!("{{\"text\":\"{}\"}},", "x".repeat(987));
    let mut all = vec![head("/chat", item.len() * count + 4), Bytes::from_static(b"[")];
    all.extend((0..count).map(|_| Bytes::from(item.clone())));
    all.push(Bytes::from_static(b"{}]"));
    all
}

#[test]
fn a_client_is_not_read_while_its_server_reads_nothing() {
    for_each_seed(2, |seed| {
        let (taken, _, _) = run(seed, (items(4000), true), (Vec::new(), false));
        assert!((16_000..400_000).contains(&taken), "{taken} bytes were taken");
    });
}

#[test]
fn a_server_is_not_read_while_its_client_reads_nothing() {
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";
    let message = [&b"\0\0\0\x03\xeb\x0a\xe8\x07"[..], &[b'x'; 1000]].concat();
    let chunk = [format!("{:x}\r\n", message.len()).as_bytes(), &message, b"\r\n"].concat();
    let mut answers = vec![Bytes::from(HEAD)];
    answers.extend((0..4000).map(|_| Bytes::from(chunk.clone())));
    for_each_seed(2, |seed| {
        let (_, given, _) = run(seed, (items(0), false), (answers.clone(), true));
        assert!((16_000..400_000).contains(&given), "{given} bytes were taken");
    });
}

#[test]
fn what_is_collected_has_a_limit() {
    for_each_seed(2, |seed| {
        let mut asks = vec![head("/one", 4_000_000)];
        asks.extend((0..4000).map(|_| Bytes::from(vec![b' '; 1000])));
        // What comes after the answer is read, and dropped.
        let (_, _, read) = run(seed, (asks, true), (Vec::new(), true));
        assert!(read.starts_with(b"HTTP/1.1 413 "), "{}", read.escape_ascii());
    });
}
