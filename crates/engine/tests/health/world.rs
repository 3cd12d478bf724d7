//! Hosts with behaviour, a monitor that watches them, a worker that hears of it, and a client that asks the worker.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::health::Monitor;
use towpath_engine::message::{FromMonitor, FromWorker, Message, ToMonitor, ToWorker};
use towpath_engine::snapshot::health::{
    ClusterHealth, HealthCheck, HealthFlags, OutlierDetection, Pauses, Probe,
};
use towpath_engine::snapshot::{BoltUpstream, ClusterId};
use towpath_engine::stats::Registry;
use towpath_proto::Out;
use towpath_proto::bolt::{self, Command, Decoder, Kind, Status};
use towpath_proto::{Close, ConnectionId, Input, Machine, http1};
use towpath_sim::{Faults, NodeId, Orders, Script, World};

use crate::scene::{HTTP, Plan, add_worker_for, address, endpoint, origin_address};
use crate::secure::{Certificates, CloseNotify};

/// What a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Well,
    /// 503, or a status that is no success.
    Failing,
    /// The same for checks only.
    Unlisted,
    /// It answers nothing.
    Silent,
    /// It ends connections when it is asked.
    Closing,
    /// It ends connections when they are opened.
    Refusing,
}

/// What is known of a host by itself.
#[derive(Debug)]
struct TestHost {
    behaviour: Behaviour,
    connections: u64,
    checks: u64,
}

type TestHosts = Rc<RefCell<BTreeMap<u8, TestHost>>>;

/// What the client saw.
#[derive(Debug, Default)]
struct Answers {
    asking: bool,
    served: BTreeSet<u8>,
    refused: u64,
}

pub struct HealthWorld {
    world: World<Message>,
    monitor: NodeId,
    worker: NodeId,
    hosts: Vec<NodeId>,
    registry: Arc<Registry>,
    test_hosts: TestHosts,
    answers: Rc<RefCell<Answers>>,
    health: Arc<ClusterHealth>,
    ever_well: BTreeSet<u8>,
}

impl HealthWorld {
    pub fn new(seed: u64, hosts: u8, check: HealthCheck, faults: Faults) -> Self {
        Self::build(seed, plan(hosts, check), hosts, faults, http_host)
    }

    pub fn without_panic(seed: u64, hosts: u8, check: HealthCheck) -> Self {
        let mut plan = plan(hosts, check);
        plan.cluster.balancing.panic_threshold = 0;
        Self::build(seed, plan, hosts, Faults::none(), http_host)
    }

    pub fn with_outliers(seed: u64, hosts: u8, outliers: OutlierDetection) -> Self {
        let mut plan = Plan::new(hosts);
        plan.cluster.outliers = Some(Box::new(outliers));
        Self::build(seed, plan, hosts, Faults::none(), http_host)
    }

    pub fn with_both(seed: u64, hosts: u8, check: HealthCheck, outliers: OutlierDetection) -> Self {
        let mut plan = plan(hosts, check);
        plan.cluster.outliers = Some(Box::new(outliers));
        Self::build(seed, plan, hosts, Faults::none(), http_host)
    }

    pub fn speaking_bolt(seed: u64, hosts: u8, check: HealthCheck) -> Self {
        let mut plan = plan(hosts, check);
        plan.cluster.bolt = Some(Arc::new(BoltUpstream {
            connections_per_host: 1,
            max_in_flight: 10,
            options: bolt::Options::default(),
            heartbeat: None,
        }));
        Self::build(seed, plan, hosts, Faults::none(), bolt_host)
    }

    pub fn under_tls(
        seed: u64,
        hosts: u8,
        check: HealthCheck,
        (certificates, name, close_notify): (&Certificates, &str, CloseNotify),
    ) -> Self {
        let mut plan = plan(hosts, check);
        plan.cluster.tls = Some(certificates.upstream(name));
        // What is asked says its scheme.
        plan.cluster.http1 =
            Arc::new(http1::Options { absolute_form: true, ..http1::Options::default() });
        Self::build(seed, plan, hosts, Faults::none(), |test_host, test_hosts| {
            certificates.around(http_host(test_host, test_hosts), close_notify)
        })
    }

    fn build<M: Machine<Message = Message> + 'static>(
        seed: u64,
        plan: Plan,
        hosts: u8,
        faults: Faults,
        host: impl Fn(u8, TestHosts) -> M,
    ) -> Self {
        let mut world = World::new(seed);
        let (test_hosts, mut nodes) = (TestHosts::default(), Vec::new());
        for number in 1..=hosts {
            let test_host = TestHost { behaviour: Behaviour::Well, connections: 0, checks: 0 };
            test_hosts.borrow_mut().insert(number, test_host);
            world.set_faults_to(origin_address(number), faults.clone());
            nodes.push(world.add(host(number, Rc::clone(&test_hosts))));
        }
        let registry = Arc::new(Registry::new());
        let snapshot = Arc::new(plan.snapshot());
        let monitor = world.add(Monitor::new(9, seed, Arc::clone(&registry)));
        let epoch_unix_ns = 1_700_000_000_000_000_000;
        world.send(monitor, Message::ToMonitor(ToMonitor::WallClock { epoch_unix_ns }));
        world.send(monitor, Message::ToMonitor(ToMonitor::Snapshot(Arc::clone(&snapshot))));
        world.send(monitor, Message::ToMonitor(ToMonitor::Traffic { cluster: ClusterId(0) }));
        let worker = add_worker_for(&mut world, seed, snapshot, &registry);
        let answers = Rc::new(RefCell::new(Answers::default()));
        world.add(client(Rc::clone(&answers)));
        let (health, ever_well) = (Arc::default(), BTreeSet::new());
        let hosts = nodes;
        Self { world, monitor, worker, hosts, registry, test_hosts, answers, health, ever_well }
    }

    /// Lets time pass; what the monitor says reaches the worker as the control thread would hand it on.
    pub fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.world.run_for(milliseconds(5));
            self.relay();
        }
    }

    /// How long it takes until something holds.
    pub fn until(&mut self, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let start = self.world.now();
        while !holds(self) {
            self.run(milliseconds(5));
            assert!(self.world.now() - start < Duration::from_secs(60), "waited in vain");
        }
        self.world.now() - start
    }

    /// Asks the worker for that long, and writes down who served.
    pub fn ask_for(&mut self, time: Duration) {
        *self.answers.borrow_mut() = Answers { asking: true, ..Answers::default() };
        self.run(time);
        self.answers.borrow_mut().asking = false;
        self.run(milliseconds(300));
    }

    fn relay(&mut self) {
        for (_, message) in self.world.take_messages(self.monitor) {
            if let Message::FromMonitor(FromMonitor::Health { cluster, hosts, .. }) = message {
                self.health = Arc::clone(&hosts);
                for number in 1..=9 {
                    if self
                        .health_flags(number)
                        .is_some_and(|health_flags| !health_flags.failed_check)
                    {
                        self.ever_well.insert(number);
                    }
                }
                self.world.send(self.worker, Message::To(ToWorker::Health { cluster, hosts }));
            }
        }
        for (_, message) in self.world.take_messages(self.worker) {
            let told = match message {
                Message::From(FromWorker::Traffic { cluster }) => ToMonitor::Traffic { cluster },
                Message::From(FromWorker::ErrorStreak { cluster, host, run }) => {
                    ToMonitor::ErrorStreak { cluster, host, run }
                }
                Message::From(FromWorker::Degraded { cluster, host }) => {
                    ToMonitor::Degraded { cluster, host }
                }
                _ => continue,
            };
            self.world.send(self.monitor, Message::ToMonitor(told));
        }
    }

    pub fn set_behaviour(&mut self, host: u8, behaviour: Behaviour) {
        self.test_hosts.borrow_mut().get_mut(&host).unwrap().behaviour = behaviour;
    }

    /// Ends a host's process: nothing listens there any more.
    pub fn kill(&mut self, host: u8) {
        self.world.kill(self.hosts[usize::from(host) - 1]);
    }

    /// As DNS does.
    pub fn set_hosts(&mut self, hosts: &[u8]) {
        let endpoints: Arc<[_]> =
            hosts.iter().map(|number| endpoint(origin_address(*number))).collect();
        let cluster = ClusterId(0);
        let message = ToMonitor::Hosts { cluster, endpoints: Arc::clone(&endpoints) };
        self.world.send(self.monitor, Message::ToMonitor(message));
        self.world.send(self.worker, Message::To(ToWorker::Hosts { cluster, endpoints }));
    }

    pub fn health_flags(&self, host: u8) -> Option<HealthFlags> {
        self.health.get(&origin_address(host)).copied()
    }

    pub fn known(&self) -> BTreeSet<u8> {
        (1..=9).filter(|number| self.health_flags(*number).is_some()).collect()
    }

    /// Whether each host passes its checks.
    pub fn well(&self) -> Vec<bool> {
        let test_hosts = self.test_hosts.borrow();
        test_hosts
            .keys()
            .map(|number| {
                self.health_flags(*number).is_some_and(|health_flags| !health_flags.failed_check)
            })
            .collect()
    }

    pub fn ever_well(&self, host: u8) -> bool {
        self.ever_well.contains(&host)
    }

    pub fn served(&self) -> BTreeSet<u8> {
        self.answers.borrow().served.clone()
    }

    pub fn refused(&self) -> u64 {
        self.answers.borrow().refused
    }

    pub fn connections_to(&self, host: u8) -> u64 {
        self.test_hosts.borrow()[&host].connections
    }

    pub fn asked(&self, host: u8) -> u64 {
        self.test_hosts.borrow()[&host].checks
    }

    pub fn attempts(&self) -> u64 {
        self.stat("health_check.attempt")
    }

    fn stat(&self, name: &str) -> u64 {
        self.registry.read().number(&format!("cluster.app.{name}")).unwrap()
    }

    /// Each check ends once, and gauges say what hosts are.
    pub fn counters_add_up(&self) {
        let ended = self.stat("health_check.success") + self.stat("health_check.failure");
        let hosts = self.test_hosts.borrow().len() as u64;
        let attempts = self.attempts();
        assert!(attempts >= ended && attempts - ended <= hosts, "{attempts} {ended}");
        assert!(self.stat("health_check.network_failure") <= self.stat("health_check.failure"));
        let well = self.well().into_iter().filter(|is_well| *is_well).count() as u64;
        assert_eq!(self.stat("health_check.healthy"), well);
        let open = self.world.connections(self.monitor) as u64;
        assert!(open <= hosts, "{open} connections");
    }
}

/// A check every 50 to 60 ms.
pub fn check(probe: Probe) -> HealthCheck {
    let pause = milliseconds(50);
    HealthCheck {
        probe,
        timeout: milliseconds(40),
        initial_jitter: milliseconds(10),
        jitter: milliseconds(10),
        jitter_percent: 0,
        unhealthy_threshold: 3,
        healthy_threshold: 2,
        reuse_connection: true,
        ignores_new: false,
        pauses: Pauses {
            healthy: pause,
            healthy_edge: pause,
            unhealthy: pause,
            unhealthy_edge: pause,
            no_traffic: pause,
            no_traffic_healthy: pause,
        },
        alpn: Vec::new(),
        log: None,
    }
}

pub const fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn plan(hosts: u8, check: HealthCheck) -> Plan {
    let mut plan = Plan::new(hosts);
    plan.cluster.health_check = Some(Arc::new(check));
    plan
}

/// Answers requests that have no body.
fn http_host(number: u8, test_hosts: TestHosts) -> impl Machine<Message = Message> + 'static {
    let mut unread: HashMap<ConnectionId, Vec<u8>> = HashMap::new();
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(origin_address(number)),
        move |input, orders: &mut Orders<Message>, _| {
            let mut test_hosts = test_hosts.borrow_mut();
            let test_host = test_hosts.get_mut(&number).unwrap();
            match input {
                Input::Accepted { connection, .. } => {
                    test_host.connections += 1;
                    if test_host.behaviour == Behaviour::Refusing {
                        orders.close(connection, Close::Abort);
                    } else {
                        unread.insert(connection, Vec::new());
                    }
                }
                Input::Received { connection, chunk } => {
                    let Some(bytes) = unread.get_mut(&connection) else { return };
                    bytes.extend_from_slice(&chunk);
                    while let Some(end) = find_end(bytes) {
                        let head: Vec<u8> = bytes.drain(..end).collect();
                        let checks: [&[u8]; 2] = [b"GET /check ", b"GET https://app/check "];
                        let is_check = checks.iter().any(|check| head.starts_with(check));
                        test_host.checks += u64::from(is_check);
                        let status = match test_host.behaviour {
                            Behaviour::Well => "200 OK",
                            Behaviour::Unlisted if !is_check => "200 OK",
                            Behaviour::Failing | Behaviour::Unlisted => "503 Unwell",
                            Behaviour::Silent => return,
                            Behaviour::Closing | Behaviour::Refusing => {
                                unread.remove(&connection);
                                return orders.close(connection, Close::Flush);
                            }
                        };
                        let answer = format!(
                            "HTTP/1.1 {status}\r\nx-host: {number}\r\ncontent-length: 2\r\n\r\nok"
                        );
                        orders.send(connection, answer.into_bytes());
                    }
                }
                Input::Ended { connection } if unread.remove(&connection).is_some() => {
                    orders.close(connection, Close::Flush);
                }
                Input::Closed { connection, .. } => {
                    unread.remove(&connection);
                }
                _ => {}
            }
        },
    )
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Answers heartbeats.
fn bolt_host(number: u8, test_hosts: TestHosts) -> impl Machine<Message = Message> + 'static {
    let mut decoders: HashMap<ConnectionId, Decoder> = HashMap::new();
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(origin_address(number)),
        move |input, orders: &mut Orders<Message>, _| {
            let behaviour = test_hosts.borrow()[&number].behaviour;
            match input {
                Input::Accepted { connection, .. } if behaviour == Behaviour::Refusing => {
                    orders.close(connection, Close::Abort);
                }
                Input::Accepted { connection, .. } => {
                    decoders.insert(connection, Decoder::new(bolt::Options::default()));
                }
                Input::Received { connection, chunk } => {
                    let Some(decoder) = decoders.get_mut(&connection) else { return };
                    decoder.receive(chunk);
                    while let Some(frame) = decoder.poll().unwrap() {
                        assert_eq!(
                            (frame.kind(), frame.command()),
                            (Kind::Request, Command::Heartbeat)
                        );
                        let mut answer =
                            bolt::Message::heartbeat_answer(frame.version(), frame.id());
                        match behaviour {
                            Behaviour::Well => {}
                            Behaviour::Failing | Behaviour::Unlisted => {
                                answer.status = Status::ERROR
                            }
                            Behaviour::Silent => return,
                            Behaviour::Closing | Behaviour::Refusing => {
                                decoders.remove(&connection);
                                return orders.close(connection, Close::Flush);
                            }
                        }
                        let mut out = Out::new();
                        answer.write(&mut out).unwrap();
                        out.drain().for_each(|chunk| orders.send(connection, chunk));
                    }
                }
                Input::Ended { connection } if decoders.remove(&connection).is_some() => {
                    orders.close(connection, Close::Flush);
                }
                Input::Closed { connection, .. } => {
                    decoders.remove(&connection);
                }
                _ => {}
            }
        },
    )
}

/// Asks the worker again and again while it is wanted.
fn client(answers: Rc<RefCell<Answers>>) -> impl Machine<Message = Message> + 'static {
    let mut connection = None;
    let mut received = Vec::new();
    Script::new(
        |orders: &mut Orders<Message>| {
            orders.wake_at(towpath_proto::Instant::from_nanos(5_000_000))
        },
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Timeout => {
                orders.wake_at(now + milliseconds(10));
                match connection {
                    None => orders.connect(address(HTTP)),
                    Some(connection) if answers.borrow().asking => {
                        orders.send(connection, &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..]);
                    }
                    Some(_) => {}
                }
            }
            Input::Connected { connection: made, .. } => connection = Some(made),
            Input::Received { chunk, .. } => {
                received.extend_from_slice(&chunk);
                while let Some(end) = find_end(&received) {
                    let head: Vec<u8> = received.drain(..end).collect();
                    let head = String::from_utf8(head).unwrap();
                    let mut answers = answers.borrow_mut();
                    let host = head.lines().find_map(|line| line.strip_prefix("x-host: "));
                    match host {
                        Some(host) => _ = answers.served.insert(host.parse().unwrap()),
                        None => answers.refused += u64::from(head.contains(" 503 ")),
                    }
                }
            }
            Input::Ended { connection: ended } | Input::Closed { connection: ended, .. }
                if connection.take() == Some(ended) =>
            {
                received.clear();
                orders.close(ended, Close::Flush);
            }
            _ => {}
        },
    )
}
