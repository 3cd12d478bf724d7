//! The operations that the benchmark and the instruction counter share: picking a route, and one request and its
//! response through a whole worker, in memory.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "as in the tests whose scene this is: what cannot go on has failed, and a script answers to what it cares \
        about"
)]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use towpath_engine::format::{Facts, Format};
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::record::Record;
use towpath_engine::route::HostIndex;
use towpath_engine::snapshot::route::{Action, RouteTable, VirtualHost};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::{
    ConnectionId, Head, Input, Instant, ListenerId, Machine, Name, Output, Version,
};

mod reload;
mod rpc;
#[path = "../../tests/scene/mod.rs"]
mod scene;
mod streams;

const REQUEST: &[u8] = b"GET /api/v1/items/42?q=1 HTTP/1.1\r\n\
    Host: service-7.namespace.svc:8080\r\n\
    User-Agent: curl/8.5.0\r\n\
    Accept: */*\r\n\r\n";

/// A head and 1 KB of content.
fn response() -> Bytes {
    let head = b"HTTP/1.1 200 OK\r\n\
        Server: origin\r\n\
        Date: Fri, 20 Nov 2026 11:28:39 GMT\r\n\
        Content-Type: application/octet-stream\r\n\
        Content-Length: 1024\r\n\r\n";
    [&head[..], &[b'x'; 1024][..]].concat().into()
}

/// The request as routing sees it.
pub(crate) fn request_head() -> Head {
    let mut head =
        Head::request(b"GET", b"http", b"service-7.namespace.svc:8080", b"/api/v1/items/42?q=1");
    head.append(Name::UserAgent, b"curl/8.5.0");
    head.append(Name::XRequestId, b"7d85eb1c-3970-4393-ac6b-689741a075f5");
    head.append(Name::XForwardedFor, b"10.1.2.3");
    head
}

/// What became of it.
fn record() -> Record {
    Record {
        status: 200,
        protocol: Some(Version::Http11),
        bytes_sent: 1024,
        upstream_host: Some(scene::address(([10, 0, 0, 1], 8080))),
        ..Record::default()
    }
}

/// So many virtual hosts `service-N` with so many routes each; the last one takes `/api`.
pub(crate) fn table(hosts: usize, routes: usize) -> RouteTable {
    let domains: Vec<String> =
        (0..hosts).map(|number| format!("service-{number}.namespace.svc:8080")).collect();
    let refuse = || Action::Direct { status: 200, body: (*b"").into() };
    let host = |domain: &String| {
        let mut prefixes: Vec<String> =
            (1..routes).map(|number| format!("/other/{number}")).collect();
        prefixes.push("/api".to_owned());
        let routes =
            prefixes.iter().map(|prefix| Arc::new(scene::route(prefix, refuse()))).collect();
        VirtualHost {
            name: domain.as_str().into(),
            domains: vec![domain.as_str().into()],
            routes,
            ..scene::everything(Vec::new())
        }
    };
    let index = HostIndex::new(domains.iter().map(String::as_str).zip(0..));
    RouteTable {
        hosts: domains.iter().map(host).collect(),
        index: index.expect("no domain is there twice"),
        ..RouteTable::default()
    }
}

/// What the operations need between two runs.
pub(crate) struct Bench {
    worker: Worker,
    now: Instant,
    client: ConnectionId,
    origin: ConnectionId,
    request: Bytes,
    response: Bytes,
    mesh: RouteTable,
    head: Head,
    log: (Format, Record, Vec<u8>),
    rpc: Option<rpc::Rpc>,
    reload: Option<reload::Reload>,
    streams: Option<streams::Streams>,
}

pub(crate) type Operation = fn(&mut Bench);

/// What can be measured, by name.
pub(crate) const CASES: &[(&str, Operation)] = &[
    ("route-50-hosts-10-routes", |bench| {
        black_box(bench.mesh.pick(black_box(&bench.head), 7));
    }),
    ("exchange", Bench::exchange),
    ("h2-exchange", |bench| bench.streams.get_or_insert_with(streams::Streams::new).exchange()),
    ("log-line", Bench::log_line),
    ("bolt-16-calls", |bench| bench.rpc.get_or_insert_with(rpc::Rpc::new).batch()),
    ("reload-1-of-5000-clusters", |bench| {
        bench.reload.get_or_insert_with(reload::Reload::new).replace();
    }),
];

/// A worker that knows what time it is.
fn worker() -> Worker {
    let registry = Arc::new(Registry::default());
    let options =
        WorkerOptions { index: 0, workers: 1, seed: 7, registry, hostname: "here".into() };
    let mut worker = Worker::new(options);
    let clock = ToWorker::WallClock { epoch_unix_ns: 1_700_000_000_000_000_000 };
    worker.handle(Input::Message(Message::To(clock)), Instant::from_nanos(1_000_000));
    worker
}

/// Answers a worker's wish for its listeners; the first of them.
fn listen(worker: &mut Worker, now: Instant) -> ListenerId {
    let mut first = None;
    loop {
        match worker.poll(now) {
            Output::Wait(_) | Output::Idle => break,
            Output::Listen { listener, address, .. } => {
                first.get_or_insert(listener);
                worker.handle(Input::Listening { listener, outcome: Ok(address) }, now);
            }
            _ => {}
        }
    }
    first.expect("the snapshot has a listener")
}

/// Answers a worker's wish for a connection to the origin.
fn connect(worker: &mut Worker, origin: ConnectionId, now: Instant) {
    let attempt = loop {
        match worker.poll(now) {
            Output::Connect { attempt, .. } => break attempt,
            Output::Wait(_) | Output::Idle => panic!("no client connects to the origin"),
            _ => {}
        }
    };
    let local = scene::address(([10, 0, 0, 1], 40_000));
    worker.handle(Input::Connected { attempt, connection: origin, local }, now);
}

impl Bench {
    /// A worker with a listener, a client and, after a first exchange, a connection to the origin.
    pub(crate) fn new() -> Self {
        let mut bench = Self {
            worker: worker(),
            now: Instant::from_nanos(1_000_000),
            client: ConnectionId::new(0, 1),
            origin: ConnectionId::new(1, 1),
            request: Bytes::from_static(REQUEST),
            response: response(),
            mesh: table(50, 10),
            head: request_head(),
            log: (Format::default_access_log(), record(), Vec::new()),
            rpc: None,
            reload: None,
            streams: None,
        };
        let snapshot = Arc::new(scene::Plan::new(1).snapshot());
        bench.give(Input::Message(Message::To(ToWorker::Snapshot(snapshot))));
        let listener = listen(&mut bench.worker, bench.now);
        let peer = scene::address(([10, 0, 9, 9], 999));
        let local = scene::address(scene::HTTP);
        bench.give(Input::Accepted {
            listener,
            connection: bench.client,
            local,
            peer,
            original: None,
        });
        bench.connect();
        bench
    }

    fn give(&mut self, input: Input<Message>) {
        self.worker.handle(input, self.now);
    }

    /// The first request opens the connection to the origin.
    fn connect(&mut self) {
        self.give(Input::Received { connection: self.client, chunk: self.request.clone() });
        connect(&mut self.worker, self.origin, self.now);
        self.pass_on(self.origin);
        self.answer();
    }

    /// One request and its response.
    fn exchange(&mut self) {
        self.now += std::time::Duration::from_micros(10);
        self.give(Input::Received { connection: self.client, chunk: self.request.clone() });
        self.pass_on(self.origin);
        self.answer();
    }

    /// A line of the access log in the default format, behind the one before it.
    fn log_line(&mut self) {
        self.now += std::time::Duration::from_micros(10);
        let (format, record, lines) = &mut self.log;
        if lines.len() > 64 * 1024 {
            lines.clear();
        }
        record.start = self.now;
        let request = Some(&self.head);
        let facts = Facts { request, response: request, ..Facts::new(record, self.now) };
        format.write(lines, &facts);
        black_box(lines.as_slice());
    }

    fn answer(&mut self) {
        self.give(Input::Received { connection: self.origin, chunk: self.response.clone() });
        self.pass_on(self.client);
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
