//! A worker between a client and an origin, driven by hand: what it sends is taken at once, and time passes only where
//! the test says so.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::message::{FromWorker, Message, ToWorker};
use towpath_engine::snapshot::http::Http;
use towpath_engine::snapshot::route::Forward;
use towpath_engine::snapshot::{Snapshot, cluster::Endpoint};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::{
    Address, AttemptId, Close, ConnectionId, Failure, Input, Instant, ListenerId, Machine, Output,
    ReadInterest,
};

use super::{HTTP, Plan, address, endpoint, origin_address};

pub struct Bench {
    worker: Worker,
    registry: Arc<Registry>,
    now: Instant,
    listeners: HashMap<Address, ListenerId>,
    pub client: ConnectionId,
    /// The last connection to the origin.
    pub origin: Option<ConnectionId>,
    /// Connections of either side.
    connections: u32,
    /// Connections to the origin.
    pub connects: u32,
    /// Connects are refused.
    pub refuses: bool,
    /// Connects to these are not answered.
    pub silent: Vec<Address>,
    /// Where connects went, and those of them that were given up.
    pub asked: Vec<(AttemptId, Address)>,
    pub cancelled: Vec<AttemptId>,
    /// Connections that the worker has closed.
    pub closed: Vec<ConnectionId>,
    /// Those of them that were reset.
    pub reset: Vec<ConnectionId>,
    /// Connections that are not read.
    pub unread: HashSet<ConnectionId>,
    /// Access-log lines.
    pub lines: Vec<String>,
    /// Other messages.
    pub told: Vec<FromWorker>,
}

impl Bench {
    /// With one origin, whose name is `its.own.name`.
    pub fn new(adjust_forward: fn(&mut Forward), adjust_http: fn(&mut Http)) -> Self {
        let mut plan = Plan::new(1);
        let hostname = "its.own.name".into();
        plan.cluster.endpoints = [Endpoint { hostname, ..endpoint(origin_address(1)) }].into();
        plan.adjust_forward = adjust_forward;
        plan.adjust_http = adjust_http;
        Self::of(plan.snapshot())
    }

    /// With a client that has just connected for HTTP.
    pub fn of(snapshot: Snapshot) -> Self {
        let (registry, hostname) = (Arc::<Registry>::default(), "here".into());
        let counted = Arc::clone(&registry);
        let options = WorkerOptions { index: 0, workers: 1, seed: 7, registry, hostname };
        let mut bench = Self {
            worker: Worker::new(options),
            registry: counted,
            now: Instant::from_nanos(1_000_000),
            listeners: HashMap::new(),
            client: ConnectionId::new(0, 1),
            origin: None,
            connections: 0,
            connects: 0,
            refuses: false,
            silent: Vec::new(),
            asked: Vec::new(),
            cancelled: Vec::new(),
            closed: Vec::new(),
            reset: Vec::new(),
            unread: HashSet::new(),
            lines: Vec::new(),
            told: Vec::new(),
        };
        let epoch_unix_ns = 1_700_000_000_000_000_000;
        bench.give(Input::Message(Message::To(ToWorker::WallClock { epoch_unix_ns })));
        bench.give(Input::Message(Message::To(ToWorker::Snapshot(snapshot.into()))));
        bench.sent();
        bench.accept(HTTP);
        bench
    }

    pub fn give(&mut self, input: Input<Message>) {
        self.worker.handle(input, self.now);
    }

    /// A counter or gauge.
    pub fn number(&self, name: &str) -> u64 {
        self.registry.read().number(name).unwrap_or_default()
    }

    /// Another client connects to this address.
    pub fn accept(&mut self, at: ([u8; 4], u16)) {
        let (local, peer) = (address(at), address(([10, 0, 9, 9], 999)));
        self.client = self.connection();
        let (listener, connection) = (self.listeners[&local], self.client);
        self.give(Input::Accepted { listener, connection, local, peer, original: None });
        self.sent();
    }

    fn connection(&mut self) -> ConnectionId {
        self.connections += 1;
        ConnectionId::new(self.connections, 1)
    }

    /// Time passes; what is due is done.
    pub fn wait(&mut self, ms: u64) -> Vec<u8> {
        self.now += Duration::from_millis(ms);
        self.give(Input::Timeout);
        self.sent()
    }

    /// Time passes, and what comes next is heard before what is due.
    pub fn oversleep(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// What the worker sends, on whatever connection, when the client has sent something.
    pub fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.receive(self.client, bytes)
    }

    /// The same when the origin has.
    pub fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.receive(self.origin.unwrap(), bytes)
    }

    fn receive(&mut self, connection: ConnectionId, bytes: &[u8]) -> Vec<u8> {
        self.give(Input::Received { connection, chunk: Bytes::copy_from_slice(bytes) });
        self.sent()
    }

    /// What the origin and the client get.
    pub fn exchange(&mut self, request: &[u8], response: &[u8]) -> (Vec<u8>, Vec<u8>) {
        self.now += Duration::from_micros(10);
        (self.ask(request), self.answer(response))
    }

    /// Takes what the worker sends; connects succeed.
    pub fn sent(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            match self.worker.poll(self.now) {
                Output::Wait(_) | Output::Idle => return bytes,
                Output::Listen { listener, address, .. } => {
                    self.listeners.insert(address.clone(), listener);
                    self.give(Input::Listening { listener, outcome: Ok(address) });
                }
                Output::Connect { attempt, ref address, .. } if self.silent.contains(address) => {
                    self.asked.push((attempt, address.clone()));
                }
                Output::CancelConnect { attempt } => self.cancelled.push(attempt),
                Output::Connect { attempt, .. } if self.refuses => {
                    self.give(Input::ConnectFailed { attempt, failure: Failure::Refused });
                }
                Output::Connect { attempt, address: to, .. } => {
                    self.asked.push((attempt, to));
                    let connection = self.connection();
                    self.connects += 1;
                    self.origin = Some(connection);
                    let local = address(([10, 0, 0, 1], 40_000));
                    self.give(Input::Connected { attempt, connection, local });
                }
                Output::Send { connection, chunk } => {
                    bytes.extend_from_slice(&chunk);
                    self.give(Input::Sent { connection, bytes: chunk.len() });
                }
                Output::Close { connection, how } => {
                    self.closed.push(connection);
                    if matches!(how, Close::FlushReset | Close::Abort) {
                        self.reset.push(connection);
                    }
                }
                Output::ReadInterest { connection, interest: ReadInterest::Off } => {
                    self.unread.insert(connection);
                }
                Output::ReadInterest { connection, interest: ReadInterest::On } => {
                    self.unread.remove(&connection);
                }
                Output::Message(Message::From(FromWorker::Log { lines, .. })) => {
                    let lines = std::str::from_utf8(&lines).unwrap();
                    self.lines.extend(lines.lines().map(str::to_owned));
                }
                Output::Message(Message::From(message)) => self.told.push(message),
                _ => {}
            }
        }
    }
}
