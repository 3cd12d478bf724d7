//! Another configuration while requests are under way: none of them fails, and nothing that stays is touched.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "scene/rig.rs"]
mod rig;
mod scene;
#[path = "../../../conformance/h1/wire.rs"]
mod wire;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rig::{Outcome, Rig};
use scene::client::{Ending, Endings, asks, client};
use scene::origin::{Habits, Log, origin};
use scene::{HTTP, Plan, add_worker_for, address, drain_and_check, endpoint, origin_address};
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::cluster::Endpoint;
use towpath_engine::snapshot::listener::{Listener, Terminal};
use towpath_engine::snapshot::route::{Action, PathMatch, Text};
use towpath_engine::snapshot::{BufferLimit, Cluster, FilterChain, Snapshot};
use towpath_engine::stats::{Query, Registry};
use towpath_engine::worker::Worker;
use towpath_sim::{Faults, Random, World, for_each_seed};

#[test]
fn the_next_request_of_a_connection_takes_the_new_routes_and_sockets_stay() {
    let mut rig = Rig::new(Plan::new(1));
    let client = rig.connect();
    assert_eq!(status(&rig.ask(client, b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")), "200");
    rig.configure(only("/b").snapshot());
    assert_eq!(status(&rig.ask(client, b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")), "404");
    assert_eq!(status(&rig.ask(client, b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n")), "200");
    rig.wait(LONG);
    assert_eq!(status(&rig.ask(client, b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n")), "200");
    assert_eq!((rig.listened, rig.unlistened), (2, 0));
}

#[test]
fn a_connection_of_a_chain_that_is_gone_gets_its_answer_and_ends() {
    let mut rig = Rig::new(Plan::new(1));
    let client = rig.connect();
    rig.ask(client, b"GET /begun HTTP/1.1\r\nHo");
    rig.configure(renamed("other"));
    let outcome = rig.ask(client, b"st: a\r\n\r\n");
    assert_eq!(status(&outcome), "200");
    assert!(!outcome.answers(&[]).whole[0].keeps_alive());
}

#[test]
fn a_quiet_connection_of_a_chain_that_is_gone_ends() {
    let mut rig = Rig::new(Plan::new(1));
    rig.connect();
    rig.configure(renamed("other"));
    rig.wait(LONG);
    rig.drain();
    rig.wait(Duration::ZERO);
    assert!(rig.drained, "no client is connected");
}

#[test]
fn a_listener_that_moves_gives_its_socket_up_and_one_that_is_gone_its_connections() {
    let mut rig = Rig::new(Plan::new(1));
    rig.connect();
    let mut moved = Plan::new(1).snapshot();
    listener(&mut moved, 1).addresses = vec![address(([10, 0, 0, 1], 7001))];
    rig.configure(moved);
    assert_eq!((rig.listened, rig.unlistened), (2, 1));
    let mut without = Plan::new(1).snapshot();
    without.listeners.clear();
    rig.configure(without);
    assert_eq!((rig.listened, rig.unlistened), (0, 3));
    rig.wait(LONG);
    rig.drain();
    rig.wait(Duration::ZERO);
    assert!(rig.drained, "no client is connected");
}

/// Closing a listening socket hands over who waits in it.
#[test]
fn who_waits_in_a_socket_that_is_given_up_is_served() {
    let mut moved = Plan::new(1).snapshot();
    listener(&mut moved, 0).addresses = vec![address(([10, 0, 0, 1], 7001))];
    let mut renamed = Plan::new(1).snapshot();
    listener(&mut renamed, 0).name = "renamed".into();
    let mut without = Plan::new(1).snapshot();
    without.listeners.remove(0);
    for (next, stays) in [(moved, true), (renamed, false), (without, false)] {
        let mut rig = Rig::new(Plan::new(1));
        let client = rig.connect_late();
        rig.configure(next);
        let outcome = rig.ask(client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(status(&outcome), "200");
        assert_eq!(outcome.answers(&[]).whole[0].keeps_alive(), stays);
    }
}

#[test]
fn no_request_fails_whatever_is_changed_while_it_is_under_way() {
    for_each_seed(60, |seed| {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut world: World<Message> = World::new(seed);
        let log = Log::default();
        for number in 1..=ORIGINS {
            world.add(origin(origin_address(number), Rc::clone(&log), Habits::default()));
        }
        world.set_faults(Faults::none());
        let registry = Arc::new(Registry::default());
        let mut churn = Churn::new(seed);
        let worker = add_worker_for(&mut world, seed, churn.snapshot(), &registry);
        world.run_for(Duration::from_millis(1));
        let endings = Endings::default();
        for number in 0..CLIENTS {
            let list = asks(&mut random, number, 40, 4_000);
            world.add(client(address(HTTP), list, Rc::clone(&endings)));
        }
        let mut busy = 0;
        for _ in 0..120 {
            churn.change(&mut random);
            busy += u32::from(world.machine::<Worker>(worker).streams() > 0);
            world.send(worker, Message::To(ToWorker::Snapshot(churn.snapshot())));
            world.run_for(Duration::from_millis(random.below(20)));
        }
        world.run_for(Duration::from_secs(60));
        for (id, endings) in &*endings.borrow() {
            assert_eq!(endings, &[Ending::Answered { status: 200, from_origin: true }], "{id}");
        }
        assert_eq!(endings.borrow().len(), CLIENTS * 40);
        assert!(busy > 5, "requests were under way at {busy} changes");
        drain_and_check(&mut world, worker);
        let text: String = registry.read().text(Query::default()).collect();
        for gauge in ["cx_active", "rq_active", "rq_pending_active"] {
            let left = text.lines().filter(|line| line.contains(gauge) && !line.ends_with(": 0"));
            assert_eq!(left.collect::<Vec<_>>(), Vec::<&str>::new());
        }
    });
}

/// A configuration that is changed piece by piece; what is not changed is shared with the one before.
///
/// Either filter chains go or clusters do: what still comes on a connection of a chain that is gone is routed as that
/// has it, and fails where the cluster is gone, too.
struct Churn {
    chains_go: bool,
    used: usize,
    clusters: [Option<Arc<Cluster>>; 3],
    main: Arc<Listener>,
    side: Option<Arc<Listener>>,
    generation: u64,
}

impl Churn {
    fn new(seed: u64) -> Self {
        let cluster = |name: &str| Some(Arc::new(scene::cluster(name, ORIGINS)));
        let clusters = [cluster("c0"), cluster("c1"), None];
        let (chains_go, main) = (seed.is_multiple_of(2), main_listener("main", 0, 0));
        Self { chains_go, used: 0, clusters, main, side: None, generation: 0 }
    }

    fn change(&mut self, random: &mut Random) {
        let at = usize::try_from(random.below(3)).unwrap();
        match random.below(5) {
            // Hosts, timeouts, limits and how connections are made.
            0 => {
                let first = random.below(u64::from(ORIGINS)) + 1;
                let hosts =
                    (1..=ORIGINS).filter(|&host| u64::from(host) == first || random.chance(500));
                let hosts: Vec<Endpoint> =
                    hosts.map(|host| endpoint(origin_address(host))).collect();
                let name = format!("c{at}");
                self.clusters[at] = Some(Arc::new(Cluster {
                    endpoints: hosts.into(),
                    connect_timeout: Duration::from_secs(1 + random.below(3)),
                    buffer_limit: BufferLimit::strict(16 * 1024 + usize::from(random.chance(300))),
                    ..scene::cluster(&name, ORIGINS)
                }));
            }
            // One that no route leads to comes or goes.
            1 if at != self.used && !self.chains_go => {
                let gone = self.clusters[at].take();
                if gone.is_none() {
                    let name = format!("c{at}");
                    self.clusters[at] = Some(Arc::new(scene::cluster(&name, ORIGINS)));
                }
            }
            // Routes lead elsewhere.
            2 | 3 if self.clusters[at].is_some() => {
                let chain = if self.chains_go && random.chance(300) { "other" } else { "main" };
                self.main = main_listener(chain, at, random.below(9));
                self.used = at;
            }
            _ => {
                let port = 9000 + u16::try_from(random.below(3)).unwrap();
                let side = scene::listener(([10, 0, 0, 1], port), http(at, 0));
                self.side =
                    random.chance(600).then(|| Arc::new(Listener { name: "side".into(), ..side }));
            }
        }
    }

    fn snapshot(&mut self) -> Arc<Snapshot> {
        self.generation += 1;
        let mut snapshot = Snapshot { generation: self.generation, ..Snapshot::default() };
        for (at, cluster) in self.clusters.iter().enumerate() {
            let id = snapshot.intern(&format!("c{at}"));
            snapshot.clusters[id.0 as usize].clone_from(cluster);
        }
        snapshot.listeners.push(Arc::clone(&self.main));
        snapshot.listeners.extend(self.side.clone());
        Arc::new(snapshot)
    }
}

/// The listener of all clients.
fn main_listener(chain: &str, to: usize, seconds: u64) -> Arc<Listener> {
    let mut listener = scene::listener(HTTP, http(to, seconds));
    Arc::get_mut(&mut listener.chains[0]).unwrap().name = chain.into();
    Arc::new(listener)
}

fn http(to: usize, seconds: u64) -> Terminal {
    let to = towpath_engine::snapshot::ClusterId(u32::try_from(to).unwrap());
    let mut forward = scene::forward(to);
    forward.timeout = Some(Duration::from_secs(20 + seconds));
    let routes = scene::table(vec![scene::route("/", Action::Forward(Box::new(forward)))]);
    Terminal::Http(Arc::new(scene::http(routes)))
}

fn only(prefix: &str) -> Plan {
    let text = Text { bytes: prefix.as_bytes().into(), case_sensitive: true };
    Plan { path: Some(PathMatch::Prefix(text)), ..Plan::new(1) }
}

fn renamed(name: &str) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    let chain: &mut FilterChain = Arc::get_mut(&mut listener(&mut snapshot, 0).chains[0]).unwrap();
    chain.name = name.into();
    snapshot
}

fn listener(snapshot: &mut Snapshot, at: usize) -> &mut Listener {
    Arc::get_mut(&mut snapshot.listeners[at]).unwrap()
}

fn status(outcome: &Outcome) -> String {
    let text = String::from_utf8_lossy(&outcome.received).into_owned();
    text.split(' ').nth(1).unwrap_or_default().to_owned()
}

const ORIGINS: u8 = 3;
const CLIENTS: usize = 12;
/// More than the second after which a quiet connection is let go.
const LONG: Duration = Duration::from_secs(2);

/// Each connection is read up to its own limit; one that the file sets stays as it is.
#[test]
fn the_driver_is_told_which_read_limits_may_grow() {
    for limit in [BufferLimit::default(), BufferLimit::strict(64 * 1024)] {
        let mut snapshot = Snapshot { generation: 2, ..Plan::new(1).snapshot() };
        Arc::get_mut(&mut snapshot.listeners[0]).unwrap().buffer_limit = limit;
        let cluster = Arc::get_mut(snapshot.clusters[0].as_mut().unwrap()).unwrap();
        cluster.buffer_limit = limit;
        let mut rig = Rig::new(Plan::new(1));
        rig.configure(snapshot);
        let client = rig.connect();
        rig.ask(client, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(rig.read_limits, [limit, limit], "the client's, the origin's");
    }
}
