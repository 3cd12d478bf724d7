//! What an idle connection of HTTP/2 and an idle stream hold: measured as anonymous memory, in a process of its own.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a measurement is worth printing"
)]

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Connection, Options};
use towpath_proto::{Event, Name, Out};

const CONNECTIONS: usize = 1000;
const CONNECTION_BYTES: usize = 4 * 1024;
/// A table of 4,096 bytes, as RFC 7541 §4.1 counts them, and the connection itself.
const RESTED_BYTES: usize = 6 * 1024;
const STREAMS: usize = 20_000;
const STREAM_BYTES: usize = 1024;

/// Both in one test: they measure the same process.
#[test]
fn an_idle_connection_and_an_idle_stream_hold_little() {
    let options = Arc::new(Options {
        max_concurrent_streams: 1 << 20,
        max_outbound_frames: 1 << 20,
        ..Options::default()
    });
    let reads = requests(20);
    let idle = || {
        let mut server = Box::new(Connection::server(Arc::clone(&options)));
        reads.iter().for_each(|read| serve(&mut server, read));
        assert_eq!(server.streams(), 0);
        server
    };
    // What is allocated once is there before.
    drop((0..50).map(|_| idle()).collect::<Vec<_>>());
    let mut all = Vec::with_capacity(CONNECTIONS);
    let before = anonymous_bytes();
    all.extend((0..CONNECTIONS).map(|_| idle()));
    let each = (anonymous_bytes() - before) / CONNECTIONS;
    println!("{each} bytes for each of {CONNECTIONS} idle connections");
    assert!(each <= CONNECTION_BYTES, "{each}");

    // Both tables were full, of which the peer's has to stay. What was counted before is still there, so that no memory
    // is used again.
    let reads = filling(60);
    let rested = || {
        let mut server = Box::new(Connection::server(Arc::clone(&options)));
        reads.iter().for_each(|read| serve(&mut server, read));
        server.rest();
        server
    };
    drop((0..50).map(|_| rested()).collect::<Vec<_>>());
    let mut resting = Vec::with_capacity(CONNECTIONS);
    let before = anonymous_bytes();
    resting.extend((0..CONNECTIONS).map(|_| rested()));
    let each = (anonymous_bytes() - before) / CONNECTIONS;
    println!("{each} bytes for each of {CONNECTIONS} connections that rest with a full table");
    assert!(each <= RESTED_BYTES, "{each}");

    let mut client = Connection::client(Arc::clone(&options));
    let mut server = Box::new(Connection::server(options));
    let (mut heads, mut out) = (HeadPool::default(), Out::new());
    server.flush(&mut out);
    client.receive(all_of(&mut out));
    assert!(client.poll(&mut heads).unwrap().is_none());
    let opened: Vec<Bytes> = (0..STREAMS)
        .map(|_| {
            let number = client.open().unwrap();
            client.send_head(number, &request(0), false, &mut out);
            client.flush(&mut out);
            client.sent(0);
            all_of(&mut out)
        })
        .collect();
    let before = anonymous_bytes();
    for read in opened {
        server.receive(read);
        let (_, arrival) = server.poll(&mut heads).unwrap().unwrap();
        let Arrival::Part(Event::Head { head, .. }) = arrival else { panic!() };
        heads.give(head);
        assert!(server.poll(&mut heads).unwrap().is_none());
    }
    let each = (anonymous_bytes() - before) / STREAMS;
    println!("{each} bytes for each of {STREAMS} idle streams");
    assert_eq!(server.streams(), STREAMS);
    assert!(each <= STREAM_BYTES, "{each}");
}

/// What a client sends for so many requests one after the other. Each ends as gRPC's do: by a frame without content.
fn requests(count: usize) -> Vec<Vec<u8>> {
    sent(count, request)
}

/// The same for requests each of which has a field of its own, by which the tables become full.
fn filling(count: usize) -> Vec<Vec<u8>> {
    sent(count, |at| {
        let mut head = request(at);
        head.append_bytes(format!("x-field-{at}").as_bytes(), &[b'v'; 100]);
        head
    })
}

fn sent(count: usize, request: impl Fn(usize) -> Head) -> Vec<Vec<u8>> {
    let mut client = Connection::client(Arc::default());
    let mut out = Out::new();
    (0..count)
        .map(|at| {
            let number = client.open().unwrap();
            client.send_head(number, &request(at), false, &mut out);
            client.send_end(number);
            client.flush(&mut out);
            all_of(&mut out).to_vec()
        })
        .collect()
}

/// One of 12 fields, two of which change.
fn request(at: usize) -> Head {
    let path = format!("/api/v1/items/{at}?q={}", at * 7);
    let mut head =
        Head::request(b"GET", b"https", b"service-7.namespace.svc:8080", path.as_bytes());
    head.append(Name::UserAgent, b"Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101");
    head.append(Name::Accept, b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    head.append(Name::AcceptEncoding, b"gzip, deflate, br, zstd");
    head.append(Name::AcceptLanguage, b"en-US,en;q=0.5");
    head.append(Name::Cookie, b"session=0123456789abcdef0123456789abcdef; theme=dark");
    head.append(Name::Referer, b"https://service-7.namespace.svc:8080/index.html");
    head.append_bytes(b"x-trace", format!("{at:032x}").as_bytes());
    head.append_bytes(b"priority", b"u=0, i");
    head
}

/// Reads into a buffer as a driver does, and answers what comes.
fn serve(server: &mut Connection, read: &[u8]) {
    let (mut heads, mut out) = (HeadPool::default(), Out::new());
    let mut room = BytesMut::zeroed(64 * 1024);
    room.clear();
    room.extend_from_slice(read);
    server.receive(room.split().freeze());
    while let Some((number, arrival)) = server.poll(&mut heads).unwrap() {
        match arrival {
            Arrival::Part(Event::End) => {}
            Arrival::Part(Event::Head { end: false, .. }) => continue,
            other @ (Arrival::Part(_) | Arrival::Reset(_) | Arrival::Refused) => {
                panic!("{other:?}")
            }
        }
        let mut head = Head::response(200);
        head.append(Name::Server, b"origin");
        head.append(Name::Date, b"Fri, 20 Nov 2026 11:28:39 GMT");
        head.append(Name::ContentType, b"application/octet-stream");
        head.append(Name::ContentLength, b"1024");
        server.send_head(number, &head, false, &mut out);
        server.send_data(number, Bytes::from_static(&[b'x'; 1024]));
        server.send_end(number);
        server.release(number);
    }
    server.flush(&mut out);
    server.sent(0);
}

fn all_of(out: &mut Out) -> Bytes {
    let chunks: Vec<Bytes> = out.drain().collect();
    chunks.concat().into()
}

fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() * 1024
}
