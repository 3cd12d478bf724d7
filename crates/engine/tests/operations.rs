//! Random operations at the worker's door, in any order, against a model of its driver: clients that open, send, end
//! and reset, hosts that answer or do not, configurations that are replaced, and a drain at the end.
//!
//! What must hold: nothing is said of a connection that is gone, no limit is passed, each stream ends once, and nothing
//! is left over.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use scene::{HTTP, TCP, address, endpoint, origin_address};
use towpath_engine::message::{Drain, FromWorker, Message, ToWorker};
use towpath_engine::snapshot::bolt::{BoltMatch, BoltProxy, BoltUpstream};
use towpath_engine::snapshot::cluster::{Endpoint, Limits};
use towpath_engine::snapshot::listener::{TcpProxy, Terminal};
use towpath_engine::snapshot::route::{Action, ClusterChoice, RetryOn};
use towpath_engine::snapshot::{Cluster, ClusterId, Snapshot};
use towpath_engine::stats::{Query, Registry};
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::bolt::{self, Decoder, Kind, Options, Status, Version, write_header};
use towpath_proto::{
    Address, AttemptId, Close, ConnectionId, Failure, Input, Instant, ListenerId, Machine, Out,
    Output, ReadInterest,
};
use towpath_sim::{Random, for_each_seed};

#[test]
fn whatever_is_done_in_whatever_order_nothing_is_left_over() {
    for_each_seed(1000, |seed| {
        let mut model = Model::new(seed);
        for operation in 0..150 {
            model.operate();
            assert_eq!(model.worker.connections(), model.peers.len(), "connections");
            if operation % 10 == 0 {
                model.check();
            }
        }
        model.finish();
    });
}

/// A driver, and what it knows must be so.
struct Model {
    worker: Worker,
    registry: Arc<Registry>,
    random: Random,
    now: Instant,
    listeners: HashMap<ListenerId, Address>,
    attempts: Vec<(AttemptId, Address)>,
    peers: Vec<Peer>,
    inputs: VecDeque<Input<Message>>,
    generation: u32,
    configurations: u64,
    drained: bool,
}

/// The other end of a connection.
struct Peer {
    id: ConnectionId,
    speaks: Speaks,
    is_client: bool,
    /// Bytes that were sent to it and that the kernel has not taken.
    outstanding: usize,
    is_read: bool,
    has_ended: bool,
    /// The worker has sent its FIN.
    is_half: bool,
    calls: Decoder,
    asked: Vec<(Version, u32)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Speaks {
    Http,
    Bolt,
    Tcp,
}

impl Model {
    fn new(seed: u64) -> Self {
        let registry = Arc::new(Registry::default());
        let worker = Worker::new(WorkerOptions {
            index: 0,
            workers: 1,
            seed,
            registry: Arc::clone(&registry),
            hostname: "here".into(),
        });
        let mut model = Self {
            worker,
            registry,
            random: Random::new(seed ^ 0x0b5e_55ed),
            now: Instant::from_nanos(1_000_000),
            listeners: HashMap::new(),
            attempts: Vec::new(),
            peers: Vec::new(),
            inputs: VecDeque::new(),
            generation: 0,
            configurations: 0,
            drained: false,
        };
        let epoch_unix_ns = 1_700_000_000_000_000_000;
        model.give(Input::Message(Message::To(ToWorker::WallClock { epoch_unix_ns })));
        model.configure();
        model
    }

    fn operate(&mut self) {
        match self.random.below(24) {
            0..3 => self.accept(),
            3..9 => self.client_sends(),
            9..12 => self.connect(),
            12..17 => self.server_sends(),
            17 => self.end(),
            18 => self.reset(),
            19..21 => self.take(),
            21 => self.configure(),
            _ => {
                let most = if self.random.chance(100) { 20_000 } else { 300 };
                let time = Duration::from_millis(self.random.below(most));
                self.wait(time);
            }
        }
    }

    fn accept(&mut self) {
        let mut bound: Vec<(ListenerId, Address)> =
            self.listeners.iter().map(|(id, at)| (*id, at.clone())).collect();
        bound.sort_by_key(|(id, _)| id.0);
        let Some((listener, local)) = self.random.pick(&bound).cloned() else { return };
        let speaks = match &local {
            at if *at == address(TCP) => Speaks::Tcp,
            at if *at == address(BOLT) => Speaks::Bolt,
            _ => Speaks::Http,
        };
        let connection = self.open(speaks, true);
        let peer = address(([10, 0, 9, 9], 999));
        self.give(Input::Accepted { listener, connection, local, peer });
    }

    fn client_sends(&mut self) {
        let Some(at) = self.some_peer(|peer| peer.is_client && peer.is_read && !peer.has_ended)
        else {
            return;
        };
        let connection = self.peers[at].id;
        let chunk: Bytes = match (self.peers[at].speaks, self.random.below(12)) {
            (_, 0) => Bytes::from_static(b"\x00 nonsense\r\n\r\n"),
            (Speaks::Http, 1) => Bytes::from_static(b"GET /part HTTP/1.1\r\nHo"),
            (Speaks::Http, 2) => Bytes::from_static(b"st: a\r\n\r\n"),
            (Speaks::Http, 3) => Bytes::from_static(b"GET /none HTTP/1.1\r\n\r\n"),
            (Speaks::Http, 4) => {
                Bytes::from_static(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
            }
            (Speaks::Http, 5) => Bytes::from_static(b" more"),
            (Speaks::Http, 6) => b"GET /many HTTP/1.1\r\nHost: a\r\n\r\n"
                .repeat(1 + self.random.below(5) as usize)
                .into(),
            (Speaks::Http, 7) => {
                Bytes::from_static(b"GET /up HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            }
            (Speaks::Http, _) => Bytes::from_static(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n"),
            (Speaks::Bolt, what) => {
                let oneway = what < 4;
                let (count, number) = (1 + self.random.below(6), self.random.bits() as u32);
                let calls = (0..count).map(|at| call(oneway, number.wrapping_add(at as u32)));
                calls.collect::<Vec<_>>().concat().into()
            }
            (Speaks::Tcp, _) => vec![b'x'; 1 + self.random.below(30_000) as usize].into(),
        };
        self.give(Input::Received { connection, chunk });
    }

    fn connect(&mut self) {
        if self.attempts.is_empty() {
            return;
        }
        let at = self.random.below(self.attempts.len() as u64) as usize;
        let (attempt, to) = self.attempts.swap_remove(at);
        if self.random.chance(250) {
            let failure =
                if self.random.chance(500) { Failure::Refused } else { Failure::TimedOut };
            return self.give(Input::ConnectFailed { attempt, failure });
        }
        let is_bolt = to.ip().is_some_and(|to| to.port() == BOLT_HOSTS);
        let connection = self.open(if is_bolt { Speaks::Bolt } else { Speaks::Http }, false);
        let local = address(([10, 0, 0, 1], 40_000));
        self.give(Input::Connected { attempt, connection, local });
    }

    fn server_sends(&mut self) {
        let Some(at) = self.some_peer(|peer| !peer.is_client && peer.is_read && !peer.has_ended)
        else {
            return;
        };
        let peer = &mut self.peers[at];
        let connection = peer.id;
        let chunk: Bytes = match (peer.speaks, self.random.below(14)) {
            (_, 0) => Bytes::from_static(b"\x07 nonsense\r\n\r\n"),
            (Speaks::Bolt, 1) => {
                written(&bolt::Message::response(Version::V1, 77, Status::SUCCESS))
            }
            (Speaks::Bolt, _) => {
                let Some((version, number)) = peer.asked.pop() else { return };
                written(&bolt::Message::response(version, number, Status::SUCCESS))
            }
            (_, 1) => Bytes::from_static(b"HTTP/1.1 503 no\r\nContent-Length: 0\r\n\r\n"),
            (_, 2) => Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
            (_, 3) => Bytes::from_static(b" more"),
            (_, 4) => Bytes::from_static(b"HTTP/1.1 103 Early Hints\r\n\r\n"),
            (_, 5) => Bytes::from_static(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"),
            (_, 6) => {
                let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n".to_vec();
                answer.resize(answer.len() + 50_000, b'x');
                answer.into()
            }
            (_, 7) => Bytes::from_static(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
            ),
            _ => Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        };
        self.give(Input::Received { connection, chunk });
    }

    fn end(&mut self) {
        let Some(at) = self.some_peer(|peer| !peer.has_ended) else { return };
        self.peers[at].has_ended = true;
        self.give(Input::Ended { connection: self.peers[at].id });
    }

    fn reset(&mut self) {
        let Some(at) = self.some_peer(|_| true) else { return };
        let connection = self.peers.swap_remove(at).id;
        self.give(Input::Closed { connection, failure: Failure::Reset });
    }

    /// The kernel takes some of what was sent.
    fn take(&mut self) {
        let Some(at) = self.some_peer(|peer| peer.outstanding > 0) else { return };
        let all = self.peers[at].outstanding;
        let bytes =
            if self.random.chance(500) { all } else { 1 + self.random.below(all as u64) as usize };
        self.peers[at].outstanding -= bytes;
        self.give(Input::Sent { connection: self.peers[at].id, bytes });
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.give(Input::Timeout);
    }

    fn configure(&mut self) {
        self.configurations += 1;
        let snapshot = Arc::new(snapshot(&mut self.random));
        self.give(Input::Message(Message::To(ToWorker::Snapshot(snapshot))));
    }

    /// Drains, and lets all time pass that anything can wait for.
    fn finish(&mut self) {
        let drain = Drain::at_once(Some(Duration::from_secs(20)));
        self.give(Input::Message(Message::To(ToWorker::Drain(drain))));
        for _ in 0..60 {
            self.wait(Duration::from_secs(2));
        }
        assert!(self.drained, "a drain ends");
        assert_eq!(self.worker.streams(), 0, "streams");
        assert_eq!(self.worker.connections(), 0, "connections");
        assert!(self.peers.is_empty() && self.attempts.is_empty() && self.listeners.is_empty());
        let text = self.text();
        for gauge in ["cx_active:", "rq_active:", "pending_active:", "active_connections:"] {
            let left: Vec<&str> = text
                .lines()
                .filter(|line| line.contains(gauge) && !line.ends_with(": 0"))
                .collect();
            assert_eq!(left, Vec::<&str>::new());
        }
        for prefix in ["http.in", "http.rpc"] {
            let count = |name: &str| number(&text, &format!("{prefix}.downstream_rq_{name}"));
            // Interim responses are counted among the others, as in Envoy.
            let (began, ended) = (count("total"), count("completed") - count("1xx"));
            assert!(ended <= began, "{prefix}: {ended} of {began} ended");
            let cut = count("rx_reset");
            assert!(began - ended <= cut, "{prefix}: {ended} of {began} ended, {cut} were cut off");
        }
    }

    /// What must be so between any two operations.
    fn check(&self) {
        let text = self.text();
        let active = number(&text, "cluster.app.upstream_rq_active")
            + number(&text, "cluster.calls.upstream_rq_active");
        assert!(number(&text, "cluster.app.upstream_rq_active") <= u64::from(LIMITS.requests));
        assert!(number(&text, "cluster.calls.upstream_rq_active") <= u64::from(LIMITS.requests));
        for cluster in ["app", "calls"] {
            let pending = number(&text, &format!("cluster.{cluster}.upstream_rq_pending_active"));
            assert!(pending <= u64::from(LIMITS.pending), "{pending} wait for {cluster}");
            // The first connection to a host is always allowed, and with each configuration any host may be new.
            let open = number(&text, &format!("cluster.{cluster}.upstream_cx_active"));
            let most = u64::from(LIMITS.connections) + 3 * self.configurations;
            assert!(open <= most, "{open} connections to {cluster}");
        }
        assert!(active as usize <= self.worker.streams(), "each request belongs to a stream");
    }

    fn text(&self) -> String {
        self.registry.read().text(Query::default()).collect()
    }

    fn some_peer(&mut self, wanted: impl Fn(&Peer) -> bool) -> Option<usize> {
        let found: Vec<usize> =
            (0..self.peers.len()).filter(|&at| wanted(&self.peers[at])).collect();
        self.random.pick(&found).copied()
    }

    fn open(&mut self, speaks: Speaks, is_client: bool) -> ConnectionId {
        self.generation += 1;
        let taken = |slot: u32| self.peers.iter().any(|peer| peer.id.slot() == slot as usize);
        let slot = (0..).find(|&slot| !taken(slot)).unwrap();
        let id = ConnectionId::new(slot, self.generation);
        self.peers.push(Peer {
            id,
            speaks,
            is_client,
            outstanding: 0,
            is_read: true,
            has_ended: false,
            is_half: false,
            calls: Decoder::new(Options::default()),
            asked: Vec::new(),
        });
        id
    }

    fn give(&mut self, input: Input<Message>) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            self.worker.handle(input, self.now);
            loop {
                match self.worker.poll(self.now) {
                    Output::Wait(_) | Output::Idle => break,
                    output => self.obey(output),
                }
            }
        }
    }

    fn obey(&mut self, output: Output<Message>) {
        match output {
            Output::Listen { listener, address, .. } => {
                assert!(self.listeners.insert(listener, address.clone()).is_none());
                self.inputs.push_back(Input::Listening { listener, outcome: Ok(address) });
            }
            Output::Unlisten { listener } => assert!(self.listeners.remove(&listener).is_some()),
            Output::Connect { attempt, address, .. } => self.attempts.push((attempt, address)),
            Output::CancelConnect { attempt } => {
                let at = self.attempts.iter().position(|(other, _)| *other == attempt);
                self.attempts.swap_remove(at.expect("a connect that is under way"));
            }
            Output::Send { connection, chunk } => {
                assert!(!chunk.is_empty());
                let peer = self.peer(connection);
                let (is_client, start) = (peer.is_client, &chunk[..chunk.len().min(40)]);
                let what = start.escape_ascii();
                assert!(!peer.is_half, "sent behind a FIN, client {is_client}: {what}");
                peer.outstanding += chunk.len();
                if !peer.is_client && peer.speaks == Speaks::Bolt {
                    peer.calls.receive(chunk);
                    while let Ok(Some(frame)) = peer.calls.poll() {
                        if frame.kind() == Kind::Request {
                            peer.asked.push((frame.version(), frame.id()));
                        }
                    }
                }
            }
            Output::ReadInterest { connection, interest } => {
                self.peer(connection).is_read = interest == ReadInterest::On;
            }
            Output::ReadLimit { connection, .. } => drop(self.peer(connection).id),
            Output::Close { connection, how: Close::Half } => self.peer(connection).is_half = true,
            Output::Close { connection, .. } => {
                let at = self.peers.iter().position(|peer| peer.id == connection);
                self.peers.swap_remove(at.expect("a connection that is open"));
            }
            Output::Message(Message::From(FromWorker::Drained)) => self.drained = true,
            Output::Message(_) | Output::Push { .. } => {}
            other => panic!("nothing here can {other:?}"),
        }
    }

    fn peer(&mut self, id: ConnectionId) -> &mut Peer {
        self.peers.iter_mut().find(|peer| peer.id == id).expect("a connection that is open")
    }
}

/// A configuration with all three protocols, of which anything may be different or missing.
fn snapshot(random: &mut Random) -> Snapshot {
    let mut snapshot = Snapshot { generation: random.bits(), ..Snapshot::default() };
    let (app, calls) = (snapshot.intern("app"), snapshot.intern("calls"));
    let hosts = |random: &mut Random, port: u16| -> Vec<Endpoint> {
        let any = (1..=3).filter(|_| random.chance(600));
        any.map(
            |host| if port == 0 { origin_address(host) } else { address(([10, 0, 2, host], port)) },
        )
        .map(endpoint)
        .collect()
    };
    let cluster = |name: &str, endpoints: Vec<Endpoint>| Cluster {
        endpoints: endpoints.into(),
        limits: LIMITS,
        ..scene::cluster(name, 0)
    };
    if random.chance(950) {
        let endpoints = hosts(random, 0);
        snapshot.clusters[app.0 as usize] = Some(Arc::new(cluster("app", endpoints)));
    }
    if random.chance(950) {
        let bolt = BoltUpstream {
            connections_per_host: 1,
            max_in_flight: 4,
            options: Options::default(),
            heartbeat: None,
        };
        let endpoints = hosts(random, BOLT_HOSTS);
        let cluster = Cluster { bolt: Some(Arc::new(bolt)), ..cluster("calls", endpoints) };
        snapshot.clusters[calls.0 as usize] = Some(Arc::new(cluster));
    }
    if random.chance(900) {
        let http = Terminal::Http(Arc::new(scene::http(routes(app, random))));
        snapshot.listeners.push(Arc::new(scene::listener(HTTP, http)));
    }
    if random.chance(900) {
        let http = towpath_engine::snapshot::Http {
            stat_prefix: "rpc".into(),
            ..scene::http(routes(calls, random))
        };
        let bolt = Terminal::Bolt(Arc::new(BoltProxy {
            http: Arc::new(http),
            matches: vec![BoltMatch::default()],
            options: Options::default(),
            max_in_flight: 8,
            max_unread: 1 << 20,
            max_held: 1 << 20,
            go_away: random.chance(500),
        }));
        snapshot.listeners.push(Arc::new(scene::listener(BOLT, bolt)));
    }
    if random.chance(900) {
        let tcp = TcpProxy {
            stat_prefix: "tcp".into(),
            cluster: ClusterChoice::One(app),
            idle_timeout: Some(Duration::from_secs(600)),
            max_duration: None,
            max_connect_attempts: 2,
            access_logs: Vec::new(),
        };
        snapshot.listeners.push(Arc::new(scene::listener(TCP, Terminal::Tcp(Arc::new(tcp)))));
    }
    snapshot
}

fn routes(to: ClusterId, random: &mut Random) -> towpath_engine::snapshot::RouteTable {
    let mut forward = scene::forward(to);
    if random.chance(300) {
        forward.retry = Some(scene::retries(RetryOn::STATUS_5XX, 2).into());
    }
    scene::table(vec![scene::route("/", Action::Forward(Box::new(forward)))])
}

fn call(oneway: bool, number: u32) -> Bytes {
    let mut block = BytesMut::new();
    write_header(&mut block, b"service", b"com.example.Orders:1.0");
    let kind = if oneway { Kind::Oneway } else { Kind::Request };
    let headers = block.freeze();
    written(&bolt::Message { kind, headers, ..bolt::Message::request(Version::V1, number) })
}

fn written(message: &bolt::Message) -> Bytes {
    let mut out = Out::new();
    message.write(&mut out).unwrap();
    out.drain().collect::<Vec<_>>().concat().into()
}

fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.map_or(0, |number| number.parse().unwrap())
}

const BOLT: ([u8; 4], u16) = ([10, 0, 0, 1], 12200);
const BOLT_HOSTS: u16 = 9000;
const LIMITS: Limits = Limits {
    connections: 4,
    pending: 6,
    requests: 8,
    retries: 3,
    retry_budget: None,
    track_remaining: false,
};
