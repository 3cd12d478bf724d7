//! Random inputs of a worker, in any order, against a model of its driver: clients that open, send, end
//! and reset, hosts that answer or do not, configurations that are replaced, and a drain at the end. Clients and hosts
//! speak HTTP/1, Bolt, opaque bytes, and the toy protocol of many streams. Every fourth worker is an app's: no worker
//! is both, and the two number their clusters alike.
//!
//! What must hold: nothing is said of a connection that is gone, no limit or window is passed, each stream ends once,
//! and nothing is left over.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_engine::local::message::{
    CallId, Command, Event, NetworkChange, Open, Options as RequestOptions, Origin, Outcome,
    Transport,
};
use towpath_engine::message::{Drain, FromWorker, Message, ToWorker};
use towpath_engine::snapshot::bolt::{BoltMatch, BoltProxy, BoltUpstream};
use towpath_engine::snapshot::cluster::{Endpoint, Limits};
use towpath_engine::snapshot::listener::{TcpConnects, TcpLogOptions, TcpProxy, Terminal};
use towpath_engine::snapshot::route::{Action, ClusterChoice, RetryOn};
use towpath_engine::snapshot::{Cluster, ClusterId, Snapshot};
use towpath_engine::stats::{Query, Registry};
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::bolt::{self, Decoder, Kind, Options, Status, Version, write_header};
use towpath_proto::head::Head;
use towpath_proto::{
    Address, AttemptId, Close, ConnectionId, Failure, Input, Instant, ListenerId, Machine, Out,
    Output, PathFacts, ReadInterest,
};
use towpath_sim::{Random, for_each_seed};

mod many;

use many::Stream;

use crate::conn::mux::toy::tests::scene::{self, HTTP, TCP, address, endpoint, origin_address};
use crate::snapshot::http::Codec;

#[test]
fn whatever_is_done_in_whatever_order_nothing_is_left_over() {
    let (mut runs, mut seen) = (0, Seen::default());
    for_each_seed(400, |seed| {
        let mut model = Model::new(seed, seed % 4 == 3);
        for operation in 0..150 {
            model.operate();
            assert_eq!(model.worker.connections(), model.peers.len(), "connections");
            if operation % 10 == 0 {
                model.check();
            }
        }
        model.finish();
        runs += 1;
        seen.toy_answers += model.seen.toy_answers;
        seen.app_answers += model.seen.app_answers;
    });
    // Each way is gone often.
    let enough = |answers: u32| answers >= runs / 4 || runs < 100;
    assert!(enough(seen.toy_answers) && enough(seen.app_answers), "{seen:?} in {runs} runs");
}

/// Whole responses that came to a client of the toy protocol, and to the app.
#[derive(Debug, Default)]
struct Seen {
    toy_answers: u32,
    app_answers: u32,
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
    is_app: bool,
    /// What the app has not heard the end of.
    calls: BTreeMap<CallId, Call>,
    last_call: u64,
    seen: Seen,
}

/// A request of the app.
struct Call {
    /// What it may send of its body; none behind its end.
    room: Option<usize>,
    /// What came of the response and was not used.
    unused: usize,
    answered: bool,
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
    received: BytesMut,
    streams: Vec<Stream>,
    last_id: u16,
}

#[derive(Clone, Copy, PartialEq)]
enum Speaks {
    Http,
    Bolt,
    Tcp,
    Toy,
}

impl Model {
    fn new(seed: u64, is_app: bool) -> Self {
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
            is_app,
            calls: BTreeMap::new(),
            last_call: 0,
            seen: Seen::default(),
        };
        let epoch_unix_ns = 1_700_000_000_000_000_000;
        model.give(Input::Message(Message::To(ToWorker::WallClock { epoch_unix_ns })));
        if !is_app {
            model.configure();
        }
        model
    }

    fn operate(&mut self) {
        if self.is_app {
            return self.operate_app();
        }
        match self.random.below(24) {
            0..3 => self.accept(),
            3..9 => self.client_sends(),
            9..12 => self.connect(),
            12..17 => self.server_sends(),
            17 => self.end(),
            18 => self.reset(),
            19..21 => self.take(),
            21 => self.configure(),
            _ => self.wait_a_while(),
        }
    }

    fn operate_app(&mut self) {
        match self.random.below(24) {
            0..3 => self.open_call(),
            3..9 => self.go_on_with_call(),
            9..12 => self.connect(),
            12..18 => self.server_sends(),
            18 => self.end(),
            19 => self.reset(),
            20..22 => self.take(),
            _ => self.wait_a_while(),
        }
    }

    fn wait_a_while(&mut self) {
        let most = if self.random.chance(100) { 20_000 } else { 300 };
        let time = Duration::from_millis(self.random.below(most));
        self.wait(time);
    }

    fn accept(&mut self) {
        let mut bound: Vec<(ListenerId, Address)> =
            self.listeners.iter().map(|(id, at)| (*id, at.clone())).collect();
        bound.sort_by_key(|(id, _)| id.0);
        let Some((listener, local)) = self.random.pick(&bound).cloned() else { return };
        let speaks = match &local {
            at if *at == address(TCP) => Speaks::Tcp,
            at if *at == address(BOLT) => Speaks::Bolt,
            at if *at == address(TOY) => Speaks::Toy,
            _ => Speaks::Http,
        };
        let connection = self.open(speaks, true);
        let peer = address(([10, 0, 9, 9], 999));
        self.give(Input::Accepted { listener, connection, local, peer, original: None });
    }

    fn client_sends(&mut self) {
        let Some(at) = self.some_peer(|peer| peer.is_client && peer.is_read && !peer.has_ended)
        else {
            return;
        };
        let connection = self.peers[at].id;
        let chunk: Bytes = match (self.peers[at].speaks, self.random.below(12)) {
            (Speaks::Toy, what) => match self.peers[at].begin_or_go_on(what, &mut self.random) {
                chunk if chunk.is_empty() => return,
                chunk => chunk,
            },
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
        let speaks = match to.ip().map(|to| to.port()) {
            Some(BOLT_HOSTS) => Speaks::Bolt,
            Some(TOY_HOSTS) => Speaks::Toy,
            Some(_) | None => Speaks::Http,
        };
        let connection = self.open(speaks, false);
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
            (Speaks::Toy, what) => match peer.answer_or_go_away(what, &mut self.random) {
                chunk if chunk.is_empty() => return,
                chunk => chunk,
            },
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

    fn open_call(&mut self) {
        self.last_call += 1;
        let call = CallId(self.last_call);
        let end = self.random.chance(600);
        let method: &[u8] = if end { b"GET" } else { b"PUT" };
        let host = if self.random.chance(500) { "10.0.3.1" } else { "10.0.3.2" };
        let open = Open {
            call,
            request: Head::request(method, b"http", host.as_bytes(), b"/of/the/app"),
            body: Bytes::new(),
            end,
            origin: Origin { host: host.into(), port: 8080, transport: Transport::Plain },
            options: RequestOptions {
                total: Some(Duration::from_secs(30)),
                hedges: self.random.chance(300),
                waits: self.random.chance(300),
                ..RequestOptions::default()
            },
        };
        let room = (!end).then_some(16 * 1024);
        self.calls.insert(call, Call { room, unused: 0, answered: false });
        self.command(Command::Open(Box::new(open)));
    }

    fn go_on_with_call(&mut self) {
        let calls: Vec<CallId> = self.calls.keys().copied().collect();
        let Some(&call) = self.random.pick(&calls) else { return };
        let Some(state) = self.calls.get_mut(&call) else { return };
        match (self.random.below(20), state.room) {
            (0, _) => self.command(Command::Cancel { call }),
            (1, _) => {
                let change = NetworkChange {
                    label: if self.random.chance(500) { "home" } else { "away" }.into(),
                    kind: Default::default(),
                    online: self.random.chance(700),
                    spares_loopback: true,
                };
                self.command(Command::Network(change));
            }
            (2..5, Some(_)) => {
                state.room = None;
                self.command(Command::End { call });
            }
            (5..12, Some(room)) if room > 0 => {
                let len = 1 + self.random.below(room as u64) as usize;
                state.room = Some(room - len);
                self.command(Command::Data { call, chunk: vec![b'x'; len].into() });
            }
            (_, _) if state.unused > 0 => {
                let bytes = std::mem::take(&mut state.unused);
                self.command(Command::Consumed { call, bytes });
            }
            (_, _) => {}
        }
    }

    fn command(&mut self, command: Command) {
        self.give(Input::Message(Message::To(ToWorker::Local(command))));
    }

    /// What the app hears: nothing of a request that is over, and each thing in its turn.
    fn hear(&mut self, event: Event) {
        match event {
            Event::Head { call, .. } => {
                assert!(!std::mem::replace(&mut self.call(call).answered, true), "one head");
            }
            Event::Data { call, chunk } => {
                let call = self.call(call);
                assert!(call.answered && !chunk.is_empty());
                call.unused += chunk.len();
            }
            Event::Trailers { call, .. } => assert!(self.call(call).answered),
            Event::Room { call, bytes } => {
                if let Some(room) = &mut self.call(call).room {
                    *room += bytes;
                }
            }
            Event::Ended { call, outcome, .. } => {
                let state = self.calls.remove(&call).expect("a request that is under way");
                let is_whole = outcome == Outcome::Complete;
                assert!(state.answered || !is_whole, "a response has a head");
                self.seen.app_answers += u32::from(is_whole);
            }
            Event::Resolve { .. } | Event::Found(_) | Event::Saved(_) => {
                panic!("it was not asked")
            }
        }
    }

    fn call(&mut self, call: CallId) -> &mut Call {
        self.calls.get_mut(&call).expect("a request that is under way")
    }

    fn configure(&mut self) {
        self.configurations += 1;
        let snapshot = Arc::new(snapshot(&mut self.random));
        self.give(Input::Message(Message::To(ToWorker::Snapshot(snapshot))));
    }

    /// Drains, and lets all time pass that anything can wait for.
    fn finish(&mut self) {
        if !self.is_app {
            let drain = Drain::at_once(Some(Duration::from_secs(20)));
            self.give(Input::Message(Message::To(ToWorker::Drain(drain))));
        }
        for _ in 0..60 {
            self.wait(Duration::from_secs(2));
        }
        assert!(self.drained || self.is_app, "a drain ends");
        assert!(self.calls.is_empty(), "each request of the app ends");
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
        for prefix in ["http.in", "http.rpc", "http.many"] {
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
            + number(&text, "cluster.calls.upstream_rq_active")
            + number(&text, "cluster.toys.upstream_rq_active");
        for cluster in ["app", "calls", "toys"] {
            let active = number(&text, &format!("cluster.{cluster}.upstream_rq_active"));
            assert!(active <= u64::from(LIMITS.requests), "{active} requests to {cluster}");
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
            received: BytesMut::new(),
            streams: Vec::new(),
            last_id: 0,
        });
        id
    }

    fn give(&mut self, input: Input<Message>) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            if let Input::Inspected { connection, .. } = input
                && !self.peers.iter().any(|peer| peer.id == connection)
            {
                continue;
            }
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
            Output::Hold { listener, .. } => assert!(self.listeners.contains_key(&listener)),
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
                if peer.speaks == Speaks::Toy {
                    let answers = peer.hear(&chunk);
                    self.seen.toy_answers += answers;
                    return;
                }
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
            Output::Message(Message::From(FromWorker::Local(event))) => self.hear(event),
            Output::Message(_) | Output::Push { .. } => {}
            Output::LimitFlow { connection, .. } => drop(self.peer(connection).id),
            Output::Inspect { connection } => {
                let is_quick = self.random.chance(500);
                let facts = is_quick.then(|| PathFacts {
                    round_trip: Duration::from_millis(30),
                    unacknowledged: self.random.below(2) as u32,
                    since_ack: Duration::from_millis(self.random.below(5000)),
                    ..PathFacts::default()
                });
                self.peer(connection);
                self.inputs.push_back(Input::Inspected { connection, facts });
            }
            other => panic!("nothing here can {other:?}"),
        }
    }

    fn peer(&mut self, id: ConnectionId) -> &mut Peer {
        self.peers.iter_mut().find(|peer| peer.id == id).expect("a connection that is open")
    }
}

/// A configuration with all protocols, of which anything may be different or missing.
fn snapshot(random: &mut Random) -> Snapshot {
    let mut snapshot = Snapshot { generation: random.bits(), ..Snapshot::default() };
    let [app, calls, toys] = ["app", "calls", "toys"].map(|name| snapshot.intern(name));
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
    if random.chance(950) {
        let endpoints = hosts(random, TOY_HOSTS);
        snapshot.clusters[toys.0 as usize] = Some(Arc::new(cluster("toys", endpoints)));
    }
    if random.chance(900) {
        let to = if random.chance(700) { app } else { toys };
        let http = Terminal::Http(Arc::new(scene::http(routes(to, random))));
        snapshot.listeners.push(Arc::new(scene::listener(HTTP, http)));
    }
    if random.chance(900) {
        let to = if random.chance(300) { app } else { toys };
        let http = towpath_engine::snapshot::Http {
            stat_prefix: "many".into(),
            codec: Codec::Toy,
            ..scene::http(routes(to, random))
        };
        let terminal = Terminal::Http(Arc::new(http));
        snapshot.listeners.push(Arc::new(scene::listener(TOY, terminal)));
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
            hash: None,
            max_duration: None,
            duration_jitter: 0.0,
            max_connect_attempts: 2,
            connects: TcpConnects::default(),
            criteria: None,
            tlvs: None,
            tunneling: None,
            access_logs: Vec::new(),
            log_options: TcpLogOptions::default(),
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
const TOY: ([u8; 4], u16) = ([10, 0, 0, 1], 12300);
const TOY_HOSTS: u16 = 9100;
const LIMITS: Limits = Limits {
    connections: 4,
    pending: 6,
    requests: 8,
    retries: 3,
    pools: Limits::NONE,
    retry_budget: None,
    budget_interval: None,
    track_remaining: false,
};
