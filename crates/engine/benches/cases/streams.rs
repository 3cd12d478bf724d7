//! One request and its response over HTTP/2 on both sides, on connections that have carried the like before.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::Http2;
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::worker::Worker;
use towpath_proto::head::HeadPool;
use towpath_proto::http2::{Arrival, Connection, Options};
use towpath_proto::{ConnectionId, Event, Head, Input, Instant, Machine, Name, Out, Output};

use super::scene;

pub(crate) struct Streams {
    kind: Kind,
    worker: Worker,
    now: Instant,
    client: ConnectionId,
    origin: ConnectionId,
    /// The frames of the last request and of the last response, which the next ones repeat.
    request: Vec<u8>,
    response: Vec<u8>,
    next: u32,
    /// Where a driver would read to.
    room: BytesMut,
    sent: Vec<u8>,
    /// What was sent to the side that was not waited for: SETTINGS, and windows that open.
    aside: Vec<u8>,
}

/// What is asked and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// GET, and 1 KB.
    Get,
    /// A unary call of gRPC: messages of 100 bytes both ways, and trailers.
    Grpc,
}

/// The codecs of both peers, until all that comes again is in the tables.
struct Peers {
    client: Connection,
    origin: Connection,
    heads: HeadPool,
}

/// After so many requests the next ones have the same bytes, but for the stream's number.
const BEFORE: u32 = 4;

impl Streams {
    /// A worker with a client and a connection to the origin.
    pub(crate) fn new(kind: Kind) -> Self {
        let mut streams = Self {
            kind,
            worker: super::worker(),
            now: Instant::from_nanos(1_000_000),
            client: ConnectionId::new(0, 1),
            origin: ConnectionId::new(1, 1),
            request: Vec::new(),
            response: Vec::new(),
            next: 2 * BEFORE + 1,
            room: BytesMut::new(),
            sent: Vec::new(),
            aside: Vec::new(),
        };
        let mut plan = scene::Plan::new(1);
        plan.cluster.http2 = Some(spoken());
        plan.adjust_http = |http| http.http2 = Some(spoken());
        streams.give(Input::Message(Message::To(ToWorker::Snapshot(Arc::new(plan.snapshot())))));
        let listener = super::listen(&mut streams.worker, streams.now);
        let (local, peer) = (scene::address(scene::HTTP), scene::address(([10, 0, 9, 9], 999)));
        let connection = streams.client;
        streams.give(Input::Accepted { listener, connection, local, peer, original: None });
        // Neither peer's window ever closes.
        let wide = (1 << 31) - 1;
        let options =
            Options { stream_window: wide, connection_window: wide, ..Options::default() };
        let mut peers = Peers {
            client: Connection::client(Arc::new(options.clone())),
            origin: Connection::server(Arc::new(options)),
            heads: HeadPool::default(),
        };
        (0..BEFORE).for_each(|number| streams.ask(&mut peers, number == 0));
        streams
    }

    /// One request and its response.
    pub(crate) fn exchange(&mut self) {
        self.now += Duration::from_micros(10);
        let id = self.next;
        self.next += 2;
        number(&mut self.request, id);
        self.room.reserve(64 * 1024);
        self.room.extend_from_slice(&self.request);
        let chunk = self.room.split().freeze();
        self.give(Input::Received { connection: self.client, chunk });
        self.take(self.origin);
        number(&mut self.response, id);
        self.room.extend_from_slice(&self.response);
        let chunk = self.room.split().freeze();
        self.give(Input::Received { connection: self.origin, chunk });
        self.take(self.client);
    }

    /// The same by the peers' codecs, which are not what is measured.
    fn ask(&mut self, peers: &mut Peers, is_first: bool) {
        let number = peers.client.open().unwrap();
        let mut out = Out::new();
        let is_call = self.kind == Kind::Grpc;
        peers.client.send_head(number, &request(self.kind), !is_call, &mut out);
        if is_call {
            peers.client.send_data(number, Bytes::from_static(&MESSAGE));
            peers.client.send_end(number);
        }
        peers.client.flush(&mut out);
        self.request = all(out);
        let chunk = Bytes::copy_from_slice(&self.request);
        self.give(Input::Received { connection: self.client, chunk });
        if is_first {
            super::connect(&mut self.worker, self.origin, self.now);
        }
        self.take(self.origin);
        peers.client.receive(Bytes::copy_from_slice(&self.aside));
        peers.origin.receive(Bytes::copy_from_slice(&self.sent));
        let mut out = Out::new();
        while let Some((number, arrival)) = peers.origin.poll(&mut peers.heads).unwrap() {
            let ends = matches!(arrival, Arrival::Part(Event::Head { end: true, .. } | Event::End));
            if !ends {
                assert!(is_call);
                continue;
            }
            peers.origin.send_head(number, &response(self.kind), false, &mut out);
            if is_call {
                peers.origin.send_data(number, Bytes::from_static(&MESSAGE));
                let mut trailers = Head::default();
                trailers.append(Name::GrpcStatus, b"0");
                trailers.append(Name::GrpcMessage, b"");
                peers.origin.send_trailers(number, &trailers);
            } else {
                peers.origin.send_data(number, Bytes::from_static(&[b'x'; 1024]));
                peers.origin.send_end(number);
            }
            peers.origin.release(number);
        }
        peers.origin.flush(&mut out);
        self.response = all(out);
        let chunk = Bytes::copy_from_slice(&self.response);
        self.give(Input::Received { connection: self.origin, chunk });
        self.take(self.client);
        peers.origin.receive(Bytes::copy_from_slice(&self.aside));
        peers.client.receive(Bytes::copy_from_slice(&self.sent));
        while let Some((number, arrival)) = peers.client.poll(&mut peers.heads).unwrap() {
            match arrival {
                Arrival::Part(Event::Head { head, .. }) => assert_eq!(head.status(), 200),
                Arrival::Part(Event::Data(_)) => {}
                Arrival::Part(Event::End | Event::Trailers(_)) => peers.client.release(number),
                other => panic!("{other:?}"),
            }
        }
    }

    fn give(&mut self, input: Input<Message>) {
        self.worker.handle(input, self.now);
    }

    /// Takes what the worker sends to one side, as a kernel would that is never full.
    fn take(&mut self, to: ConnectionId) {
        self.sent.clear();
        self.aside.clear();
        loop {
            match self.worker.poll(self.now) {
                Output::Wait(_) | Output::Idle => break,
                Output::Send { connection, chunk } if connection == to => {
                    self.sent.extend_from_slice(black_box(&chunk));
                }
                Output::Send { connection, chunk } => {
                    self.aside.extend_from_slice(&chunk);
                    self.worker.handle(Input::Sent { connection, bytes: chunk.len() }, self.now);
                }
                _ => {}
            }
        }
        assert!(!self.sent.is_empty() && self.aside.len() < 200, "it is passed on");
        self.give(Input::Sent { connection: to, bytes: self.sent.len() });
    }
}

fn request(kind: Kind) -> Head {
    let (method, path): (&[u8], &[u8]) = match kind {
        Kind::Get => (b"GET", b"/api/v1/items/42?q=1"),
        Kind::Grpc => (b"POST", b"/api.v1.Items/Find"),
    };
    let mut head = Head::request(method, b"http", b"service-7.namespace.svc:8080", path);
    match kind {
        Kind::Get => {
            head.append(Name::UserAgent, b"curl/8.5.0");
            head.append(Name::Accept, b"*/*");
        }
        Kind::Grpc => {
            head.append(Name::UserAgent, b"grpc-go/1.68.0");
            head.append(Name::ContentType, b"application/grpc");
            head.append(Name::Te, b"trailers");
        }
    }
    head
}

fn response(kind: Kind) -> Head {
    let mut head = Head::response(200);
    match kind {
        Kind::Get => {
            head.append(Name::Server, b"origin");
            head.append(Name::Date, b"Fri, 20 Nov 2026 11:28:39 GMT");
            head.append(Name::ContentType, b"application/octet-stream");
            head.append(Name::ContentLength, b"1024");
        }
        Kind::Grpc => {
            head.append(Name::ContentType, b"application/grpc");
        }
    }
    head
}

/// A message of 100 bytes behind its prefix.
const MESSAGE: [u8; 105] = {
    let mut message = [b'x'; 105];
    (message[0], message[1], message[2], message[3], message[4]) = (0, 0, 0, 0, 100);
    message
};

fn all(mut out: Out) -> Vec<u8> {
    let chunks: Vec<Bytes> = out.drain().collect();
    chunks.concat()
}

/// Gives frames the number of a stream.
fn number(mut frames: &mut [u8], id: u32) {
    while let [0, high, low, _, _, _, _, _, _, ..] = frames {
        let whole = 9 + (usize::from(*high) << 8 | usize::from(*low));
        frames[5..9].copy_from_slice(&id.to_be_bytes());
        frames = &mut frames[whole..];
    }
}

/// HTTP/2 by prior knowledge.
fn spoken() -> Arc<Http2> {
    let options = Arc::new(Options::default());
    Arc::new(Http2 { options, choice: Choice::Always, keepalive: None })
}
