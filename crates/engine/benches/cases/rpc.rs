//! Calls of Bolt through a worker: as many as one read brings of a busy client, and as many answers.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use towpath_engine::matcher::StringMatcher;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::bolt::{BoltMatch, BoltProxy, BoltUpstream};
use towpath_engine::snapshot::http::{Http, HttpChain, Router};
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::route::Action;
use towpath_engine::snapshot::{BufferLimit, Cluster, Snapshot};
use towpath_engine::worker::Worker;
use towpath_proto::Out;
use towpath_proto::bolt::{self, Options, Status, Version, write_header};
use towpath_proto::{ConnectionId, Input, Instant, Machine, Output};

use super::scene;

/// Calls in one read.
const BATCH: u32 = 16;
/// Where the number stands in a frame of version 1.
const NUMBER: usize = 5;
const AT: ([u8; 4], u16) = ([10, 0, 0, 1], 12200);

pub(crate) struct Rpc {
    worker: Worker,
    now: Instant,
    client: ConnectionId,
    origin: ConnectionId,
    calls: Bytes,
    /// How long one call is.
    call: usize,
    answers: Vec<u8>,
    answer: usize,
    sent: Vec<u8>,
}

impl Rpc {
    /// A worker with a client and, after a first batch, a connection to the origin.
    pub(crate) fn new() -> Self {
        let (call, answer) = (call(1), answer(1));
        let mut rpc = Self {
            worker: super::worker(),
            now: Instant::from_nanos(1_000_000),
            client: ConnectionId::new(0, 1),
            origin: ConnectionId::new(1, 1),
            call: call.len(),
            answer: answer.len(),
            calls: (1..=BATCH).flat_map(self::call).collect(),
            answers: (1..=BATCH).flat_map(self::answer).collect(),
            sent: Vec::new(),
        };
        rpc.give(Input::Message(Message::To(ToWorker::Snapshot(Arc::new(snapshot())))));
        let listener = super::listen(&mut rpc.worker, rpc.now);
        let (local, peer) = (scene::address(AT), scene::address(([10, 0, 9, 9], 999)));
        rpc.give(Input::Accepted { listener, connection: rpc.client, local, peer, original: None });
        rpc.connect();
        rpc
    }

    /// A batch of calls and their answers.
    pub(crate) fn batch(&mut self) {
        self.now += Duration::from_micros(10);
        self.give(Input::Received { connection: self.client, chunk: self.calls.clone() });
        self.answer();
    }

    fn connect(&mut self) {
        self.give(Input::Received { connection: self.client, chunk: self.calls.clone() });
        super::connect(&mut self.worker, self.origin, self.now);
        self.answer();
    }

    fn answer(&mut self) {
        self.take(self.origin);
        assert_eq!(self.sent.len(), self.calls.len());
        let numbers = self.sent.chunks(self.call).map(|call| &call[NUMBER..NUMBER + 4]);
        for (answer, number) in self.answers.chunks_mut(self.answer).zip(numbers) {
            answer[NUMBER..NUMBER + 4].copy_from_slice(number);
        }
        let chunk = Bytes::copy_from_slice(&self.answers);
        self.give(Input::Received { connection: self.origin, chunk });
        self.take(self.client);
        assert_eq!(self.sent.len(), self.answers.len());
    }

    fn give(&mut self, input: Input<Message>) {
        self.worker.handle(input, self.now);
    }

    /// Takes what the worker sends to one side, as a kernel would that is never full.
    fn take(&mut self, to: ConnectionId) {
        self.sent.clear();
        loop {
            match self.worker.poll(self.now) {
                Output::Wait(_) | Output::Idle => break,
                Output::Send { connection, chunk } => {
                    assert_eq!(connection, to, "it goes to the other side");
                    self.sent.extend_from_slice(&black_box(chunk));
                }
                _ => {}
            }
        }
        self.give(Input::Sent { connection: to, bytes: self.sent.len() });
    }
}

fn call(number: u32) -> Vec<u8> {
    let mut block = BytesMut::new();
    for (key, value) in [
        (&b"service"[..], &b"com.example.Orders:1.0"[..]),
        (b"sofa_head_target_service", b"com.example.Orders:1.0"),
        (b"sofa_head_method_name", b"list"),
    ] {
        write_header(&mut block, key, value);
    }
    written(&bolt::Message {
        class: Bytes::from_static(b"com.alipay.sofa.rpc.core.request.SofaRequest"),
        headers: block.freeze(),
        ..filled(bolt::Message::request(Version::V1, number))
    })
}

fn answer(number: u32) -> Vec<u8> {
    written(&filled(bolt::Message::response(Version::V1, number, Status::SUCCESS)))
}

fn filled(message: bolt::Message) -> bolt::Message {
    let mut content = BytesMut::new();
    content.put_bytes(b'x', 1024);
    bolt::Message { content: content.freeze(), ..message }
}

fn written(message: &bolt::Message) -> Vec<u8> {
    let mut out = Out::new();
    message.write(&mut out).unwrap();
    out.drain().collect::<Vec<_>>().concat()
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot { generation: 1, ..Snapshot::default() };
    let id = snapshot.intern("app");
    let bolt = BoltUpstream {
        connections_per_host: 1,
        max_in_flight: 4096,
        options: Options::default(),
        heartbeat: None,
    };
    let cluster = Cluster {
        bolt: Some(Arc::new(bolt)),
        buffer_limit: BufferLimit::strict(1 << 20),
        ..scene::cluster("app", 1)
    };
    snapshot.clusters[id.0 as usize] = Some(Arc::new(cluster));
    let action = Action::Forward(Box::new(scene::forward(id)));
    let http = Http {
        stat_prefix: "rpc".into(),
        stream_idle_timeout: None,
        stream_flush_timeout: None,
        chain: HttpChain {
            filters: Vec::new(),
            router: Router { suppress_envoy_headers: true, ..Router::default() },
        },
        ..scene::http(scene::table(vec![scene::route("/", action)]))
    };
    let service = StringMatcher::prefix("com.example.", false).unwrap();
    let proxy = BoltProxy {
        http: Arc::new(http),
        matches: vec![BoltMatch { service: Some(service), ..BoltMatch::default() }],
        options: Options::default(),
        max_in_flight: 1024,
        max_unread: 16 << 20,
        max_held: 16 << 20,
        go_away: false,
    };
    snapshot.listeners.push(Arc::new(scene::listener(AT, Terminal::Bolt(Arc::new(proxy)))));
    snapshot
}
