//! One request and its response over HTTP/1.1 on both sides, on connections that have carried the like before.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::format::Format;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::log::Sink;
use towpath_engine::snapshot::{AccessLog, Http, SinkId, Snapshot};
use towpath_engine::worker::Worker;
use towpath_proto::{ConnectionId, Input, Instant, Machine, Output};

use super::scene;

const REQUEST: &[u8] = b"GET /api/v1/items/42?q=1 HTTP/1.1\r\n\
    Host: service-7.namespace.svc:8080\r\n\
    User-Agent: curl/8.5.0\r\n\
    Accept: */*\r\n\r\n";

/// A head and 1 KB of content.
pub(super) fn response() -> Bytes {
    let head = b"HTTP/1.1 200 OK\r\n\
        Server: origin\r\n\
        Date: Fri, 20 Nov 2026 11:28:39 GMT\r\n\
        Content-Type: application/octet-stream\r\n\
        Content-Length: 1024\r\n\r\n";
    [&head[..], &[b'x'; 1024][..]].concat().into()
}

/// A worker with a client and a connection to the origin.
pub(crate) struct Requests {
    worker: Worker,
    now: Instant,
    client: ConnectionId,
    origin: ConnectionId,
    request: Bytes,
    response: Bytes,
}

impl Requests {
    /// A worker that has carried one exchange.
    pub(crate) fn new(adjust_http: fn(&mut Http)) -> Self {
        let mut plan = scene::Plan::new(1);
        plan.adjust_http = adjust_http;
        let mut snapshot = plan.snapshot();
        snapshot.sinks.push(Sink::Stdout);
        Self::of(snapshot, Bytes::from_static(REQUEST), response())
    }

    /// The same of any request and response.
    pub(super) fn of(snapshot: Snapshot, request: Bytes, response: Bytes) -> Self {
        let mut requests = Self {
            worker: super::worker(),
            now: Instant::from_nanos(1_000_000),
            client: ConnectionId::new(0, 1),
            origin: ConnectionId::new(1, 1),
            request,
            response,
        };
        requests.give(Input::Message(Message::To(ToWorker::Snapshot(Arc::new(snapshot)))));
        let listener = super::listen(&mut requests.worker, requests.now);
        let (local, peer) = (scene::address(scene::HTTP), scene::address(([10, 0, 9, 9], 999)));
        let connection = requests.client;
        requests.give(Input::Accepted { listener, connection, local, peer, original: None });
        requests.connect();
        requests
    }

    /// The same, and each request is logged in the default format.
    pub(crate) fn logged() -> Self {
        Self::new(|http| {
            let format = Format::default_access_log();
            http.access_logs.push(AccessLog::lines(format, SinkId(0)));
        })
    }

    /// One request and its response.
    pub(crate) fn exchange(&mut self) {
        self.now += Duration::from_micros(10);
        self.give(Input::Received { connection: self.client, chunk: self.request.clone() });
        self.pass_on(self.origin);
        self.answer();
    }

    /// The first request opens the connection to the origin.
    fn connect(&mut self) {
        self.give(Input::Received { connection: self.client, chunk: self.request.clone() });
        super::connect(&mut self.worker, self.origin, self.now);
        self.pass_on(self.origin);
        self.answer();
    }

    fn answer(&mut self) {
        self.give(Input::Received { connection: self.origin, chunk: self.response.clone() });
        self.pass_on(self.client);
    }

    fn give(&mut self, input: Input<Message>) {
        self.worker.handle(input, self.now);
    }

    /// Takes what the worker sends to one side, as a kernel would that is never full.
    fn pass_on(&mut self, to: ConnectionId) {
        let mut sent = 0;
        loop {
            match self.worker.poll(self.now) {
                Output::Wait(_) | Output::Idle => break,
                Output::Send { connection, chunk } => {
                    assert_eq!(connection, to, "it goes to the other side");
                    sent += black_box(chunk).len();
                }
                _ => {}
            }
        }
        assert!(sent > 0, "something is passed on");
        self.give(Input::Sent { connection: to, bytes: sent });
    }
}
