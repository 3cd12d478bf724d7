//! Bolt through the worker, many clients on few upstream connections, over a simulated network that delays, stalls and
//! cuts.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "bolt/bridge.rs"]
mod bridge;
#[path = "bolt/depth.rs"]
mod depth;
#[path = "bolt/drain.rs"]
mod drain;
#[path = "bolt/held.rs"]
mod held;
#[path = "bolt/marks.rs"]
mod marks;
#[path = "bolt/outlier.rs"]
mod outlier;
mod scene;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use scene::{address, origin_address, retries};
use towpath_engine::matcher::StringMatcher;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::bolt::{BoltMatch, BoltProxy, BoltUpstream, Heartbeat};
use towpath_engine::snapshot::http::{Http, HttpChain, Router};
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::route::{Action, Forward, RetryOn, RetryPolicy};
use towpath_engine::snapshot::{Cluster, Snapshot};
use towpath_engine::stats::{Query, Registry};
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::Out;
use towpath_proto::bolt::{self, Command, Decoder, Kind, Options, Status, Version, write_header};
use towpath_proto::{Address, Close, ConnectionId, Input, Instant};
use towpath_sim::{Faults, NodeId, Orders, Random, Script, World, for_each_seed};

const BOLT: ([u8; 4], u16) = ([10, 0, 0, 1], 12200);
const PATIENCE: Duration = Duration::from_secs(500);

#[test]
fn each_call_gets_its_own_answer_whatever_the_network_does() {
    for_each_seed(40, |seed| {
        let mut story = Story::new(seed, Setting { hosts: 2, ..Setting::default() });
        story.world.set_faults(Faults::lively());
        let origins = story.origins(2, Habits { shuffle: true, ..Habits::default() });
        let endings = story.clients(6, 60);
        story.run(Duration::from_secs(300));
        story.check(&endings, &origins, 6 * 60);
    });
}

#[test]
fn cuts_stalls_and_restarts_lose_and_cross_nothing() {
    for_each_seed(40, |seed| {
        let mut story =
            Story::new(seed, Setting { timeout_ms: 400, hosts: 3, ..Setting::default() });
        story.world.set_faults(Faults::harsh());
        let habits = Habits { shuffle: true, drop_every: 17, cut_every: 41, ..Habits::default() };
        let origins = story.origins(3, habits);
        let endings = story.clients(5, 60);
        story.run(Duration::from_secs(2000));
        story.check(&endings, &origins, 5 * 60);
    });
}

#[test]
fn a_quiet_network_answers_everything_with_success_over_one_connection() {
    let mut story = Story::new(1, Setting::default());
    let origins = story.origins(1, Habits { shuffle: true, ..Habits::default() });
    let endings = story.clients(20, 50);
    story.run(Duration::from_secs(60));
    story.check(&endings, &origins, 1000);
    let endings = endings.borrow();
    assert!(endings.values().all(|ending| *ending == Ending::Answered(Status::SUCCESS)));
    assert_eq!(story.number("cluster.app.upstream_cx_total"), 1);
    assert_eq!(story.number("http.rpc.downstream_rq_2xx"), 1000);
}

#[test]
fn a_call_without_route_or_host_is_answered_and_a_oneway_call_is_not() {
    let mut story = Story::new(1, Setting::default());
    // Nothing listens there.
    let endings = story.clients(1, 3);
    let strange = story.client(vec![Ask { service: "unknown", ..Ask::new("strange", 0) }]);
    let silent = story.client(vec![Ask { kind: Kind::Oneway, ..Ask::new("silent", 0) }]);
    story.run(Duration::from_secs(100));
    let of = |endings: &Endings, id: &str| endings.borrow().get(id).copied();
    assert_eq!(of(&endings, "c0r0"), Some(Ending::Answered(Status::COMMUNICATION_ERROR)));
    assert_eq!(of(&strange, "strange"), Some(Ending::Answered(Status::NO_PROCESSOR)));
    assert_eq!(of(&silent, "silent"), Some(Ending::Sent));
}

#[test]
fn the_frames_timeout_comes_before_the_routes_and_the_late_answer_is_dropped() {
    let setting = Setting { timeout_ms: 100, ..Setting::default() };
    let mut story = Story::new(1, setting);
    story.origins(1, Habits { delay: Duration::from_millis(300), ..Habits::default() });
    let endings = story.client(vec![Ask::new("late", 10), Ask::new("later", 10)]);
    story.run(Duration::from_secs(10));
    for id in ["late", "later"] {
        assert_eq!(endings.borrow()[id], Ending::Answered(Status::TIMEOUT), "{id}");
    }
    assert_eq!(story.number("cluster.app.bolt.late_answers"), 2);
    assert_eq!(story.number("cluster.app.upstream_rq_active"), 0);
    assert_eq!(story.number("cluster.app.upstream_cx_active"), 1, "it is used on");
}

#[test]
fn a_lost_upstream_is_told_to_each_pending_call_and_another_host_takes_the_next() {
    let mut story = Story::new(1, Setting::default());
    let slow = Habits { delay: Duration::from_secs(2), ..Habits::default() };
    let origins = story.origins(1, slow);
    let endings = story.clients(4, 4);
    story.run(Duration::from_secs(1));
    story.world.kill(origins.nodes[0]);
    story.run(Duration::from_secs(20));
    let endings = endings.borrow();
    assert_eq!(endings.len(), 16);
    assert!(endings.values().all(|ending| *ending == Ending::Answered(Status::CONNECTION_CLOSED)));
}

#[test]
fn a_busy_server_is_asked_again_where_the_policy_says_so() {
    let mut story = Story::new(
        1,
        Setting {
            adjust: |forward| {
                forward.retry = Some(Arc::new(RetryPolicy {
                    statuses: vec![503],
                    ..retries(RetryOn::STATUS_CODES, 3)
                }));
            },
            ..Setting::default()
        },
    );
    story.origins(1, Habits { busy_every: 2, ..Habits::default() });
    let endings =
        story.client(vec![Ask::new("one", 10), Ask::new("two", 10), Ask::new("three", 10)]);
    story.run(Duration::from_secs(10));
    for id in ["one", "two", "three"] {
        assert_eq!(endings.borrow()[id], Ending::Answered(Status::SUCCESS), "{id}");
    }
    assert!(story.number("cluster.app.upstream_rq_retry") >= 1);
}

#[test]
fn heartbeats_are_answered_here_and_sent_where_it_is_quiet() {
    let heartbeat =
        Heartbeat { interval: Duration::from_secs(5), timeout: Duration::from_secs(1), misses: 3 };
    let mut story = Story::new(1, Setting { heartbeat: Some(heartbeat), ..Setting::default() });
    let origins = story.origins(1, Habits::default());
    let endings = story.client(vec![
        Ask { command: Command::Heartbeat, ..Ask::new("beat", 0) },
        Ask::new("call", 5),
    ]);
    story.run(Duration::from_secs(30));
    assert_eq!(endings.borrow()["beat"], Ending::Answered(Status::SUCCESS));
    assert_eq!(endings.borrow()["call"], Ending::Answered(Status::SUCCESS));
    assert_eq!(story.number("bolt.rpc.downstream_heartbeats"), 1);
    let beats = origins.seen.borrow().heartbeats;
    assert!((2..=5).contains(&beats), "{beats}");
    assert_eq!(story.number("cluster.app.upstream_cx_active"), 1);
    // A server that does not answer is given up after the third question.
    story.world.freeze(origins.nodes[0], Duration::from_secs(1000));
    story.run(Duration::from_secs(20));
    assert_eq!(story.number("cluster.app.upstream_cx_active"), 0);
    assert_eq!(story.number("cluster.app.bolt.heartbeat_failures"), 3);
}

#[test]
fn a_greedy_client_does_not_starve_another() {
    let setting = Setting { upstream_in_flight: 8, ..Setting::default() };
    let mut story = Story::new(1, setting);
    story.origins(1, Habits { delay: Duration::from_millis(10), ..Habits::default() });
    let greedy = story.client((0..2000).map(|at| Ask::new(&format!("greedy{at}"), 10)).collect());
    story.run(Duration::from_millis(200));
    let modest = story.client(vec![Ask::new("modest", 10)]);
    story.run(Duration::from_millis(200));
    assert_eq!(modest.borrow()["modest"], Ending::Answered(Status::SUCCESS));
    assert!(greedy.borrow().len() < 1000, "the other had not finished");
    story.run(Duration::from_secs(30));
    assert_eq!(greedy.borrow().len(), 2000);
    assert!(greedy.borrow().values().all(|ending| *ending == Ending::Answered(Status::SUCCESS)));
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_others_go_on() {
    let setting = Setting { max_unread: 100_000, ..Setting::default() };
    let mut story = Story::new(1, setting);
    story.origins(1, Habits { delay: Duration::from_millis(200), ..Habits::default() });
    let deaf = (0..200).map(|at| Ask::new(&format!("deaf{at}"), 8000)).collect();
    let deaf = story.client_that(deaf, true);
    let endings = story.clients(2, 20);
    story.run(Duration::from_secs(30));
    assert_eq!(endings.borrow().len(), 40);
    assert!(endings.borrow().values().all(|ending| *ending == Ending::Answered(Status::SUCCESS)));
    assert!(deaf.borrow().values().all(|ending| *ending == Ending::Lost));
    assert!(story.number("bolt.rpc.downstream_cx_slow_reader") >= 1);
}

#[test]
fn what_is_not_bolt_ends_its_connection_and_no_other() {
    let mut story = Story::new(1, Setting::default());
    let origins =
        story.origins(1, Habits { delay: Duration::from_millis(50), ..Habits::default() });
    let endings = story.clients(2, 5);
    let wrong = story.client(vec![
        Ask::new("before", 10),
        Ask { raw: Some(Bytes::from_static(b"\x03nonsense")), ..Ask::new("wrong", 0) },
    ]);
    story.run(Duration::from_secs(5));
    story.check(&endings, &origins, 10);
    assert_eq!(wrong.borrow().get("before"), Some(&Ending::Lost));
    assert_eq!(story.number("http.rpc.downstream_cx_protocol_error"), 1);
}

#[test]
fn a_malformed_frame_costs_its_sender_the_connection_and_no_other_client() {
    for (frame, what) in malformed() {
        let mut story = Story::new(1, Setting::default());
        let origins = story.origins(1, Habits::default());
        let endings = story.clients(1, 3);
        let wrong = story
            .client(vec![Ask { raw: Some(frame), ..Ask::new("wrong", 0) }, Ask::new("behind", 10)]);
        story.run(Duration::from_secs(5));
        story.check(&endings, &origins, 3);
        let answered = wrong.borrow().get("behind") == Some(&Ending::Answered(Status::SUCCESS));
        let errors = story.number("http.rpc.downstream_cx_protocol_error");
        assert_eq!(errors, 1, "{what}");
        // On the next connection, if it was not lost with the first.
        assert!(answered || wrong.borrow().get("behind") == Some(&Ending::Lost), "{what}");
    }
}

#[test]
fn a_malformed_answer_is_told_to_each_pending_call() {
    for (frame, what) in malformed() {
        let mut story = Story::new(1, Setting::default());
        story.garbage = Some(frame);
        story.origins(1, Habits::default());
        let endings = story.clients(2, 2);
        story.run(Duration::from_secs(5));
        assert_eq!(endings.borrow().len(), 4, "{what}");
        for ending in endings.borrow().values() {
            assert_eq!(*ending, Ending::Answered(Status::CODEC_EXCEPTION), "{what}");
        }
        assert!(story.number("cluster.app.upstream_cx_protocol_error") >= 1, "{what}");
    }
}

#[test]
fn a_servers_own_call_is_refused_and_never_taken_for_an_answer() {
    let mut story = Story::new(1, Setting::default());
    let replies = Rc::new(RefCell::new(Vec::new()));
    let (seen, mut decoder) = (Rc::clone(&replies), Decoder::new(Options::default()));
    story.world.add(Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
        move |input, orders: &mut Orders<Message>, _| {
            let Input::Received { connection, chunk } = input else { return };
            decoder.receive(chunk);
            while let Some(frame) = decoder.poll().unwrap() {
                if frame.kind() == Kind::Response {
                    seen.borrow_mut().push((frame.id(), frame.status().unwrap()));
                    continue;
                }
                // Its own call has the number of the call that it answers next.
                let content = Bytes::from_static(b"not for you");
                let call = bolt::Message::request(frame.version(), frame.id());
                let oneway = bolt::Message { kind: Kind::Oneway, ..call.clone() };
                let answer = bolt::Message {
                    content: frame.content(),
                    ..bolt::Message::response(frame.version(), frame.id(), Status::SUCCESS)
                };
                for message in [bolt::Message { content, ..call }, oneway, answer] {
                    orders.send(connection, written(&message));
                }
            }
        },
    ));
    let endings = story.clients(3, 10);
    story.run(Duration::from_secs(10));
    assert_eq!(endings.borrow().len(), 30);
    assert!(endings.borrow().values().all(|ending| *ending == Ending::Answered(Status::SUCCESS)));
    let replies = replies.borrow();
    assert_eq!(replies.len(), 30);
    assert!(replies.iter().all(|(_, status)| *status == Status::NO_PROCESSOR));
    let numbers: HashSet<u32> = replies.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers.len(), 30, "each reply has the number of its call");
    assert_eq!(story.number("cluster.app.bolt.refused_calls"), 60);
}

/// Frames of the corpus, and what is wrong with them.
fn malformed() -> Vec<(Bytes, String)> {
    let text = include_str!("../../../conformance/bolt/malformed.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let cases = lines.map(|line| {
        let (bytes, what) = line.split_once("  ").unwrap();
        let byte = |byte: &str| u8::from_str_radix(byte, 16).unwrap();
        (bytes.split(' ').map(byte).collect(), what.trim().to_owned())
    });
    cases.collect()
}

/// What a test sets.
struct Setting {
    timeout_ms: u64,
    heartbeat: Option<Heartbeat>,
    upstream_in_flight: u32,
    max_unread: usize,
    max_held: usize,
    hosts: u8,
    speaks_http: bool,
    go_away: bool,
    client_in_flight: u32,
    outliers: Option<towpath_engine::snapshot::health::OutlierDetection>,
    adjust: fn(&mut Forward),
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            timeout_ms: 0,
            heartbeat: None,
            upstream_in_flight: 4096,
            max_unread: 16 << 20,
            max_held: 16 << 20,
            hosts: 1,
            speaks_http: false,
            go_away: false,
            client_in_flight: 1024,
            outliers: None,
            adjust: |_| {},
        }
    }
}

struct Story {
    world: World<Message>,
    worker: NodeId,
    registry: Arc<Registry>,
    random: Random,
    timeout_ms: u64,
    /// What origins answer in place of a frame.
    garbage: Option<Bytes>,
}

struct Origins {
    nodes: Vec<NodeId>,
    seen: Rc<RefCell<Seen>>,
}

#[derive(Default)]
struct Seen {
    times: HashMap<String, u32>,
    heartbeats: u32,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Answered(Status),
    /// It wanted no answer.
    Sent,
    /// Its connection ended first.
    Lost,
}

type Endings = Rc<RefCell<HashMap<String, Ending>>>;

#[derive(Clone, Debug)]
struct Ask {
    id: String,
    service: &'static str,
    kind: Kind,
    command: Command,
    version: Version,
    content: usize,
    raw: Option<Bytes>,
}

impl Ask {
    fn new(id: &str, content: usize) -> Self {
        Self {
            id: id.to_owned(),
            service: "com.example.Orders:1.0",
            kind: Kind::Request,
            command: Command::Rpc,
            version: Version::V1,
            content,
            raw: None,
        }
    }
}

/// What an origin does besides answering.
#[derive(Clone, Copy, Debug, Default)]
struct Habits {
    /// Answers what one chunk brought in another order.
    shuffle: bool,
    /// Never answers each n-th call.
    drop_every: u32,
    /// Resets the connection at each n-th call.
    cut_every: u32,
    /// Says at each n-th call that it is busy.
    busy_every: u32,
    delay: Duration,
}

impl Story {
    fn new(seed: u64, setting: Setting) -> Self {
        let mut world = World::new(seed);
        let registry = Arc::new(Registry::default());
        let worker = world.add(Worker::new(WorkerOptions {
            index: 0,
            workers: 1,
            seed,
            registry: Arc::clone(&registry),
            hostname: "here".into(),
        }));
        let timeout_ms = setting.timeout_ms;
        let epoch_unix_ns = 1_700_000_000_000_000_000;
        world.send(worker, Message::To(ToWorker::WallClock { epoch_unix_ns }));
        world.send(worker, Message::To(ToWorker::Snapshot(Arc::new(snapshot(&setting)))));
        let random = Random::new(seed);
        Self { world, worker, registry, random, timeout_ms, garbage: None }
    }

    fn origins(&mut self, count: u8, habits: Habits) -> Origins {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let nodes = (1..=count).map(|number| {
            let seed = self.random.bits();
            let (seen, garbage) = (Rc::clone(&seen), self.garbage.clone());
            self.world.add(origin(origin_address(number), seen, garbage, habits, seed))
        });
        let nodes = nodes.collect();
        Origins { nodes, seen }
    }

    /// Clients with mixed calls.
    fn clients(&mut self, count: usize, calls: usize) -> Endings {
        let endings = Endings::default();
        for client in 0..count {
            let asks = (0..calls).map(|call| {
                let version = match self.random.below(3) {
                    0 => Version::V1,
                    1 => Version::V2 { checksums: false },
                    _ => Version::V2 { checksums: true },
                };
                let content = self.random.size(&(0..=4000));
                Ask { version, ..Ask::new(&format!("c{client}r{call}"), content) }
            });
            let asks = asks.collect();
            self.add_client(asks, false, &endings);
        }
        endings
    }

    fn client(&mut self, asks: Vec<Ask>) -> Endings {
        self.client_that(asks, false)
    }

    fn client_that(&mut self, asks: Vec<Ask>, is_deaf: bool) -> Endings {
        let endings = Endings::default();
        self.add_client(asks, is_deaf, &endings);
        endings
    }

    fn add_client(&mut self, asks: Vec<Ask>, is_deaf: bool, endings: &Endings) {
        let seed = self.random.bits();
        self.world.add(client(asks, is_deaf, self.timeout_ms, Rc::clone(endings), seed));
    }

    fn run(&mut self, time: Duration) {
        self.world.run_for(time);
    }

    /// Every call has ended, none was answered twice (the clients look after crossed answers), and nothing is left
    /// over.
    fn check(&mut self, endings: &Endings, origins: &Origins, count: usize) {
        assert_eq!(endings.borrow().len(), count, "each call has one end");
        let twice = origins.seen.borrow().times.values().filter(|times| **times > 1).count();
        assert_eq!(twice, 0, "no call is sent twice without a policy");
        assert_eq!(self.number("http.rpc.downstream_rq_active"), 0);
        assert_eq!(self.number("cluster.app.upstream_rq_active"), 0);
        assert_eq!(self.number("cluster.app.upstream_rq_pending_active"), 0);
        assert_eq!(self.world.machine::<Worker>(self.worker).streams(), 0);
    }

    fn number(&self, name: &str) -> u64 {
        counter(&self.registry, name)
    }
}

fn counter(registry: &Registry, name: &str) -> u64 {
    let text: String = registry.read().text(Query::default()).collect();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.map_or(0, |number| number.parse().unwrap())
}

fn snapshot(setting: &Setting) -> Snapshot {
    let mut snapshot = Snapshot { generation: 1, ..Snapshot::default() };
    let id = snapshot.intern("app");
    let limits = towpath_engine::snapshot::cluster::Limits {
        pending: 10_000,
        requests: 10_000,
        ..Default::default()
    };
    let cluster = Cluster {
        limits,
        outliers: setting.outliers.map(Box::new),
        bolt: (!setting.speaks_http).then(|| {
            Arc::new(BoltUpstream {
                connections_per_host: 1,
                max_in_flight: setting.upstream_in_flight,
                options: Options::default(),
                heartbeat: setting.heartbeat,
            })
        }),
        ..scene::cluster("app", setting.hosts)
    };
    snapshot.clusters[id.0 as usize] = Some(Arc::new(cluster));
    let mut action = scene::forward(id);
    (setting.adjust)(&mut action);
    let http = Http {
        stat_prefix: "rpc".into(),
        stream_idle_timeout: None,
        stream_flush_timeout: None,
        chain: HttpChain {
            filters: Vec::new(),
            router: Router { suppress_envoy_headers: true, ..Router::default() },
        },
        ..scene::http(scene::table(vec![scene::route("/", Action::Forward(Box::new(action)))]))
    };
    let proxy = BoltProxy {
        http: Arc::new(http),
        matches: vec![BoltMatch {
            service: Some(StringMatcher::prefix("com.example.", false).unwrap()),
            ..BoltMatch::default()
        }],
        options: Options::default(),
        max_in_flight: setting.client_in_flight,
        max_unread: setting.max_unread,
        max_held: setting.max_held,
        go_away: setting.go_away,
    };
    snapshot.listeners.push(Arc::new(scene::listener(BOLT, Terminal::Bolt(Arc::new(proxy)))));
    snapshot
}

fn written(message: &bolt::Message) -> Bytes {
    let mut out = Out::new();
    message.write(&mut out).unwrap();
    out.drain().collect::<Vec<_>>().concat().into()
}

/// What a call's content is, and its answer's: no other call's is the same.
fn content(id: &str, len: usize) -> Bytes {
    let mut content = BytesMut::from(id.as_bytes());
    content.extend_from_slice(b"|");
    content.extend_from_slice(&scene::origin::pattern(id, len));
    content.freeze()
}

fn origin(
    at: Address,
    seen: Rc<RefCell<Seen>>,
    garbage: Option<Bytes>,
    habits: Habits,
    seed: u64,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut decoders: HashMap<ConnectionId, Decoder> = HashMap::new();
    let mut held: VecDeque<(Instant, ConnectionId, Bytes)> = VecDeque::new();
    let (mut served, mut random) = (0u32, Random::new(seed));
    let nth = |every: u32, served: u32| every > 0 && served.is_multiple_of(every);
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Accepted { connection, .. } => {
                decoders.insert(connection, Decoder::new(Options::default()));
            }
            Input::Timeout => {
                while held.front().is_some_and(|(due, _, _)| *due <= now) {
                    let (_, connection, answer) = held.pop_front().unwrap();
                    if decoders.contains_key(&connection) {
                        orders.send(connection, answer);
                    }
                }
                if let Some((due, _, _)) = held.front() {
                    orders.wake_at(*due);
                }
            }
            Input::Received { connection, chunk } => {
                let Some(decoder) = decoders.get_mut(&connection) else { return };
                decoder.receive(chunk);
                let (mut answers, mut cut) = (Vec::new(), false);
                while let Some(frame) = decoder.poll().expect("the proxy speaks Bolt") {
                    if frame.command() == Command::Heartbeat {
                        seen.borrow_mut().heartbeats += 1;
                        let answer = bolt::Message::heartbeat_answer(frame.version(), frame.id());
                        answers.push(written(&answer));
                        continue;
                    }
                    let id =
                        String::from_utf8(frame.headers().unwrap().get(b"id").unwrap().to_vec())
                            .unwrap();
                    served += 1;
                    let busy = nth(habits.busy_every, served);
                    if !busy {
                        *seen.borrow_mut().times.entry(id).or_default() += 1;
                    }
                    cut |= nth(habits.cut_every, served);
                    if nth(habits.drop_every, served) || frame.kind() == Kind::Oneway {
                        continue;
                    }
                    if let Some(garbage) = &garbage {
                        answers.push(garbage.clone());
                        continue;
                    }
                    let status = if busy { Status::SERVER_BUSY } else { Status::SUCCESS };
                    answers.push(written(&bolt::Message {
                        content: frame.content(),
                        checksum: frame.has_checksum(),
                        ..bolt::Message::response(frame.version(), frame.id(), status)
                    }));
                }
                if habits.shuffle {
                    random.shuffle(&mut answers);
                }
                for answer in answers {
                    if habits.delay.is_zero() {
                        orders.send(connection, answer);
                    } else {
                        held.push_back((now + habits.delay, connection, answer));
                        orders.wake_at(held[0].0);
                    }
                }
                if cut {
                    decoders.remove(&connection);
                    orders.close(connection, Close::Abort);
                }
            }
            // It may have been cut in the same turn.
            Input::Ended { connection } if decoders.remove(&connection).is_some() => {
                orders.close(connection, Close::Flush);
            }
            Input::Closed { connection, .. } => {
                decoders.remove(&connection);
            }
            _ => {}
        },
    )
}

/// A client that sends all its calls in bursts on one connection; its numbers are those of other clients too.
fn client(
    asks: Vec<Ask>,
    is_deaf: bool,
    timeout_ms: u64,
    endings: Endings,
    seed: u64,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut asks: VecDeque<Ask> = asks.into();
    let (mut waiting, mut answered) = (HashMap::<u32, Ask>::new(), HashSet::new());
    let (mut decoder, mut connection) = (Decoder::new(Options::default()), None);
    let (mut number, mut random) = (u32::MAX - 5, Random::new(seed));
    let (mut is_connecting, mut moved) = (false, Instant::from_nanos(0));
    let mut act = move |input, orders: &mut Orders<Message>, now: Instant| {
        match input {
            Input::Timeout if connection.is_none() => {
                if !asks.is_empty() && !is_connecting {
                    is_connecting = true;
                    orders.connect(address(BOLT));
                }
                return;
            }
            // Only a path that swallows everything makes it come to this.
            Input::Timeout if asks.is_empty() && now >= moved + PATIENCE => {
                orders.close(connection.take().unwrap(), Close::Abort);
                for (_, ask) in waiting.drain() {
                    endings.borrow_mut().insert(ask.id, Ending::Lost);
                }
                return;
            }
            Input::Timeout => {}
            Input::Connected { connection: id, .. } => {
                (connection, is_connecting) = (Some(id), false);
                decoder = Decoder::new(Options::default());
                if is_deaf {
                    orders.read(id, towpath_proto::ReadInterest::Off);
                }
            }
            Input::ConnectFailed { .. } => {
                is_connecting = false;
                orders.wake_at(now + Duration::from_millis(10));
                return;
            }
            Input::Received { connection: id, chunk } if connection == Some(id) => {
                decoder.receive(chunk);
                while let Some(frame) = decoder.poll().expect("the proxy speaks Bolt") {
                    let ask = waiting.remove(&frame.id()).expect("an answer to a call, once");
                    assert_eq!(frame.version().protocol(), ask.version.protocol());
                    let status = frame.status().unwrap();
                    if status == Status::SUCCESS && ask.command == Command::Rpc {
                        assert_eq!(frame.content(), content(&ask.id, ask.content), "crossed");
                    }
                    assert!(answered.insert(ask.id.clone()), "{} was answered twice", ask.id);
                    endings.borrow_mut().insert(ask.id, Ending::Answered(status));
                }
                return;
            }
            Input::Ended { connection: id } | Input::Closed { connection: id, .. }
                if connection == Some(id) =>
            {
                orders.close(id, Close::Abort);
                connection = None;
                for (_, ask) in waiting.drain() {
                    endings.borrow_mut().insert(ask.id, Ending::Lost);
                }
                orders.wake_at(now + Duration::from_millis(10));
                return;
            }
            _ => return,
        }
        let Some(id) = connection else { return };
        for _ in 0..=random.below(40) {
            let Some(ask) = asks.pop_front() else { break };
            moved = now;
            if let Some(raw) = ask.raw.clone() {
                orders.send(id, raw);
                continue;
            }
            number = number.wrapping_add(1);
            let mut headers = BytesMut::new();
            write_header(&mut headers, b"service", ask.service.as_bytes());
            write_header(&mut headers, b"id", ask.id.as_bytes());
            let is_call = ask.command == Command::Rpc;
            let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
            let message = bolt::Message {
                kind: ask.kind,
                command: ask.command,
                timeout,
                headers: if is_call { headers.freeze() } else { Bytes::new() },
                content: if is_call { content(&ask.id, ask.content) } else { Bytes::new() },
                checksum: true,
                ..bolt::Message::request(ask.version, number)
            };
            orders.send(id, written(&message));
            if ask.kind == Kind::Oneway {
                endings.borrow_mut().insert(ask.id, Ending::Sent);
            } else {
                waiting.insert(number, ask);
            }
        }
        if asks.is_empty() {
            orders.wake_at(moved + PATIENCE);
        } else {
            orders.wake_at(now + Duration::from_millis(1 + random.below(20)));
        }
    };
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| act(input, orders, now),
    )
}

/// A client that sends bytes and keeps what comes.
fn sender(
    to: ([u8; 4], u16),
    bytes: Bytes,
    received: &Rc<RefCell<Vec<u8>>>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant) + use<>> {
    let received = Rc::clone(received);
    Script::new(
        move |orders: &mut Orders<Message>| orders.connect(address(to)),
        move |input, orders: &mut Orders<Message>, _| match input {
            Input::Connected { connection, .. } => orders.send(connection, bytes.clone()),
            Input::Received { chunk, .. } => received.borrow_mut().extend_from_slice(&chunk),
            Input::Ended { connection } => orders.close(connection, Close::Flush),
            _ => {}
        },
    )
}

/// The frames in what was received.
fn frames(received: &Rc<RefCell<Vec<u8>>>) -> Vec<bolt::Frame> {
    let mut decoder = Decoder::new(Options::default());
    decoder.receive(received.borrow().clone().into());
    std::iter::from_fn(|| decoder.poll().unwrap()).collect()
}
