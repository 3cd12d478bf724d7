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

use towpath_engine::format::{Facts, Format};
use towpath_engine::matcher::Known;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::record::Record;
use towpath_engine::snapshot::HostIndex;
use towpath_engine::snapshot::route::{Action, RouteTable, VirtualHost};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::{
    ConnectionId, Head, Input, Instant, ListenerId, Machine, Name, Output, Version,
};

mod app;
mod filters;
mod reload;
mod requests;
mod rpc;
#[path = "../../tests/scene/mod.rs"]
mod scene;
mod streams;

use requests::Requests;
use streams::{Kind, Streams};

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
    let refuse = || Action::Direct { status: 200, body: (*b"").into(), format: None };
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
            matcher: None,
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
    requests: Requests,
    logged: Option<Requests>,
    now: Instant,
    mesh: RouteTable,
    head: Head,
    log: (Format, Record, Vec<u8>),
    rpc: Option<rpc::Rpc>,
    reload: Option<reload::Reload>,
    streams: Option<Streams>,
    calls: Option<Streams>,
    apps: [Option<app::App>; 2],
    filtered: [Option<Requests>; 3],
    alone: Option<filters::Alone>,
}

impl Bench {
    fn filtered(&mut self, place: usize, of: fn() -> Requests) -> &mut Requests {
        self.filtered[place].get_or_insert_with(of)
    }

    fn alone(&mut self) -> &filters::Alone {
        self.alone.get_or_insert_with(filters::Alone::new)
    }
}

pub(crate) type Operation = fn(&mut Bench);

/// What can be measured, by name.
pub(crate) const CASES: &[(&str, Operation)] = &[
    ("route-50-hosts-10-routes", |bench| {
        black_box(bench.mesh.pick(black_box(&bench.head), Known::default(), 7));
    }),
    ("exchange", |bench| bench.requests.exchange()),
    ("exchange-logged", |bench| bench.logged.get_or_insert_with(Requests::logged).exchange()),
    ("h2-exchange", |bench| {
        bench.streams.get_or_insert_with(|| Streams::new(Kind::Get)).exchange();
    }),
    ("h2-grpc", |bench| bench.calls.get_or_insert_with(|| Streams::new(Kind::Grpc)).exchange()),
    ("app-http1", |bench| bench.apps[0].get_or_insert_with(app::App::http1).exchange()),
    ("app-http2", |bench| bench.apps[1].get_or_insert_with(app::App::http2).exchange()),
    ("exchange-jwt", |bench| bench.filtered(0, filters::jwt).exchange()),
    ("exchange-gzip-16k", |bench| bench.filtered(1, filters::gzip).exchange()),
    ("exchange-brotli-16k", |bench| bench.filtered(2, filters::brotli).exchange()),
    ("alone-signature", |bench| bench.alone().signature()),
    ("alone-gzip-16k", |bench| bench.alone().gzip()),
    ("alone-brotli-16k", |bench| bench.alone().brotli()),
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
    pub(crate) fn new() -> Self {
        Self {
            requests: Requests::new(|_| {}),
            logged: None,
            now: Instant::from_nanos(1_000_000),
            mesh: table(50, 10),
            head: request_head(),
            log: (Format::default_access_log(), record(), Vec::new()),
            rpc: None,
            reload: None,
            streams: None,
            calls: None,
            apps: [None, None],
            filtered: [None, None, None],
            alone: None,
        }
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
}
