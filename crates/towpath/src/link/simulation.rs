//! The link in virtual time over thousands of seeds: against translators that forget, and on networks on which all goes
//! wrong.
//!
//! What has to hold: the interval that is learned lies below the translator's timeout, and no further below than the
//! settings allow; a link is never dead for longer than an interval and a heartbeat's time without being found so; and
//! each request ends once. `TOWPATH_SIM_SEEDS=5000` in the environment tries more seeds than a usual run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::client::timeouts::Network;
use towpath_engine::local::message::NetworkChange;
use towpath_proto::bolt::{Command, Decoder, Kind, Message, Options, Status, Version};
use towpath_proto::{Close, ConnectionId, Input, Instant};
use towpath_sim::{Faults, NodeId, Orders, Random, Script, World, for_each_seed};

use super::wire::{Event, LinkMessage, Order, Wire};
use super::{Error, Settings, State};

#[test]
fn what_is_learned_is_below_the_timeout_and_close_to_it() {
    for_each_seed(200, |seed| {
        let mut random = Random::new(seed);
        let timeout = random.duration(&(settings().heartbeat.shortest + SECOND..=HOUR));
        let mut scene = Scene::new(seed, behind(timeout), Server::default());
        scene.learn();
        let (found, lost) = (scene.state.interval, scene.state.connections);
        scene.is_close_below(timeout);
        assert!(
            scene.state.heartbeats <= 16,
            "{} heartbeats for {timeout:?}",
            scene.state.heartbeats
        );
        // From here on nothing is lost.
        scene.run(3 * HOUR);
        assert_eq!(scene.state.connections, lost, "{found:?} of {timeout:?} does not hold");
        assert_eq!(scene.state.failure, None);
    });
}

#[test]
fn a_timeout_that_changes_is_followed() {
    for_each_seed(50, |seed| {
        let mut random = Random::new(seed ^ 0xbeef);
        let heartbeat = settings().heartbeat;
        let mut draw = || random.duration(&(heartbeat.shortest + SECOND..=heartbeat.longest));
        let (before, after) = (draw(), draw());
        let mut scene = Scene::new(seed, behind(before), Server::default());
        scene.learn();
        scene.world.set_faults(behind(after));
        scene.cut_everything();
        // What has become better is found out when it is questioned, what has become worse at once.
        scene.run(heartbeat.relearn + 12 * HOUR);
        scene.is_close_below(after);
    });
}

#[test]
fn a_dead_link_is_found_within_an_interval_and_a_beat() {
    for_each_seed(200, |seed| {
        let mut random = Random::new(seed ^ 0xdead);
        let timeout = random.duration(&(settings().heartbeat.shortest..=HOUR));
        let mut scene = Scene::new(seed, behind(timeout), Server::default());
        let age = random.duration(&(SECOND..=2 * HOUR));
        scene.run(age);
        let (interval, before) = (scene.state.interval, scene.state.connections);
        scene.world.vanish_connections();
        let bound = interval + settings().beat_timeout + SECOND;
        let again = scene.run_until(bound, |state| state.connections > before);
        assert!(again, "dead for {bound:?} after {age:?}, and {:?}", scene.state);
    });
}

#[test]
fn whatever_happens_each_request_ends_once_and_nothing_is_sent_twice() {
    let (mut seeds, mut answered) = (0, 0);
    for_each_seed(200, |seed| {
        let mut random = Random::new(seed ^ 0xa5c);
        let kinds = [Faults::none(), Faults::lively(), Faults::harsh()];
        let faults = random.pick(&kinds).unwrap().clone();
        let faults = Faults { forgets_after: Some(random.duration(&(SECOND..=HOUR))), ..faults };
        let server = Server { silent: random.below(300), closes: random.below(200) };
        let mut scene = Scene::new(seed, faults, server);
        for _ in 0..60 {
            scene.act(&mut random);
            let pause = random.duration(&(Duration::ZERO..=SECOND * 30));
            scene.run(pause);
        }
        // The longest that a request may take.
        scene.run(MINUTE * 3);
        for (id, ends) in &scene.ends {
            assert_eq!(ends.len(), 1, "request {id}: {ends:?}");
        }
        (seeds, answered) = (seeds + 1, answered + scene.answered());
        // When all is well again, so is the link.
        scene.world.set_faults(Faults::none());
        scene.order(Order::Network(network("calm", true)));
        let up = scene.run_until(settings().connect_timeout, |state| state.connected);
        assert!(up, "{:?}", scene.state);
    });
    assert!(seeds < 100 || answered > 5 * seeds, "only {answered} answers in {seeds} seeds");
}

/// A link, a server, and what is between them.
struct Scene {
    world: World<LinkMessage>,
    link: NodeId,
    state: State,
    /// Requests, and how each ended.
    ends: BTreeMap<u64, Vec<End>>,
    /// When anything was last told of a connection that is up.
    told: Option<Instant>,
    /// The search has ended.
    settled: bool,
}

#[derive(Debug)]
enum End {
    Answered,
    Failed,
    GivenUp,
}

/// What the server does instead of answering, in a thousand requests.
#[derive(Clone, Copy, Default)]
struct Server {
    silent: u64,
    closes: u64,
}

impl Scene {
    fn new(seed: u64, faults: Faults, server: Server) -> Self {
        let mut world = World::new(seed);
        world.set_faults(faults);
        world.add(server.machine(seed));
        let address = ("10.9.9.9".into(), 7000);
        let wire = Wire::new(address, None, settings(), seed);
        let link = world.add(wire.knowing(Vec::new(), Some(&network("home", true))));
        let state = State::default();
        let ends = BTreeMap::new();
        Self { world, link, state, ends, told: None, settled: false }
    }

    /// Until the search has ended, by whatever it takes.
    fn learn(&mut self) {
        let most = self.world.now() + 24 * HOUR;
        while !self.settled {
            self.run(MINUTE);
            assert!(self.world.now() < most, "it does not end: {:?}", self.state);
        }
    }

    /// What was learned is below the timeout, and no further than it may be.
    fn is_close_below(&self, timeout: Duration) {
        let (found, heartbeat) = (self.state.interval, settings().heartbeat);
        assert!(found < timeout, "{found:?} is above {timeout:?}");
        let reach = timeout.min(heartbeat.longest);
        let close = (heartbeat.margin + heartbeat.resolution).min(reach / 4 + SECOND);
        assert!(reach - found <= close, "{found:?} is far below {timeout:?}");
    }

    fn run(&mut self, time: Duration) {
        self.world.run_for(time);
        self.hear();
    }

    fn run_until(&mut self, limit: Duration, is_so: impl Fn(State) -> bool) -> bool {
        let end = self.world.now() + limit;
        while !is_so(self.state) && self.world.now() < end {
            self.run(SECOND / 2);
        }
        is_so(self.state)
    }

    fn cut_everything(&mut self) {
        self.world.vanish_connections();
    }

    fn order(&mut self, order: Order) {
        self.world.send(self.link, LinkMessage::Order(order));
    }

    /// What the link has told since the last look.
    fn hear(&mut self) {
        for (at, message) in self.world.take_messages(self.link) {
            let LinkMessage::Event(event) = message else { continue };
            match event {
                Event::Changed(state) => self.changed(state, at),
                Event::Ended { id, result } => self.ended(id, result),
                Event::Pushed { frame, connection } => {
                    let number = frame.content();
                    assert!(!number.is_empty() && connection <= self.state.connections);
                }
                Event::Find { .. } => panic!("its server has an address"),
                Event::Learned(saved) => self.settled = saved.settled.is_some(),
                Event::Attempted { .. } => {}
            }
        }
    }

    /// While it is connected it is told of at least once in an interval and a heartbeat's time, or it is found dead.
    fn changed(&mut self, state: State, at: Instant) {
        if let Some(told) = self.told {
            let most = settings().heartbeat.longest + settings().beat_timeout + SECOND;
            assert!(at - told <= most, "nothing for {:?}: {state:?}", at - told);
        }
        self.told = state.connected.then_some(at);
        self.state = state;
    }

    fn ended(&mut self, id: u64, result: Result<super::Answer, Error>) {
        let end = match result {
            Ok(answer) => {
                let oneway = answer.content().is_empty();
                assert!(oneway || answer.content() == id.to_string().as_bytes(), "another's");
                End::Answered
            }
            Err(_) => End::Failed,
        };
        let ends = self.ends.entry(id).or_default();
        // It may be on its way already when it is given up; who waits has heard of that before.
        if !matches!(ends[..], [End::GivenUp]) {
            ends.push(end);
        }
    }

    fn answered(&self) -> usize {
        self.ends.values().filter(|ends| matches!(ends[..], [End::Answered])).count()
    }

    /// Something that an app or the world may do.
    fn act(&mut self, random: &mut Random) {
        match random.below(20) {
            0 => self.world.vanish_connections(),
            1 => self.order(Order::Network(network("other", true))),
            2 => self.order(Order::Network(network("none", false))),
            3 => self.order(Order::Network(network("home", true))),
            4 => self.order(Order::Foreground(random.chance(500))),
            5 => {
                self.hear();
                let open = self.ends.iter_mut().find(|(_, ends)| ends.is_empty());
                if let Some((&id, ends)) = open {
                    ends.push(End::GivenUp);
                    self.order(Order::GiveUp(id));
                }
            }
            _ => self.ask(random),
        }
    }

    fn ask(&mut self, random: &mut Random) {
        let id = self.ends.len() as u64;
        self.ends.insert(id, Vec::new());
        let kind = if random.chance(100) { Kind::Oneway } else { Kind::Request };
        let content = Bytes::from(id.to_string());
        let message = Message { kind, content, ..Message::request(Version::V1, 0) };
        let timeout = random.duration(&(Duration::ZERO..=MINUTE));
        let waits = random.chance(500);
        self.order(Order::Call { id, message, timeout, waits });
    }
}

impl Server {
    fn machine(
        self,
        seed: u64,
    ) -> Script<LinkMessage, impl FnMut(Input<LinkMessage>, &mut Orders<LinkMessage>, Instant)>
    {
        let mut random = Random::new(seed ^ 0x5e);
        let mut decoders: HashMap<ConnectionId, Decoder> = HashMap::new();
        let (mut seen, mut closed) = (HashSet::new(), HashSet::new());
        Script::new(
            |orders| orders.listen(std::net::SocketAddr::from(([10, 9, 9, 9], 7000))),
            move |input, orders, _now| match input {
                Input::Received { connection, .. } if closed.contains(&connection) => {}
                Input::Received { connection, chunk } => {
                    let decoder = decoders
                        .entry(connection)
                        .or_insert_with(|| Decoder::new(Options::default()));
                    decoder.receive(chunk);
                    while let Some(frame) = decoder.poll().unwrap() {
                        if frame.command() == Command::Heartbeat {
                            let answer = Message::heartbeat_answer(Version::V1, frame.id());
                            orders.send(connection, answer.frame().unwrap().bytes().clone());
                            continue;
                        }
                        assert!(seen.insert(frame.content()), "sent twice");
                        if frame.kind() == Kind::Oneway || random.below(1000) < self.silent {
                            continue;
                        }
                        if random.below(1000) < self.closes {
                            orders.close(connection, Close::Flush);
                            closed.insert(connection);
                            break;
                        }
                        let content = frame.content();
                        let answer = Message::response(Version::V1, frame.id(), Status::SUCCESS);
                        let answer = Message { content, ..answer };
                        orders.send(connection, answer.frame().unwrap().bytes().clone());
                    }
                }
                Input::Ended { connection } if closed.insert(connection) => {
                    orders.close(connection, Close::Flush);
                }
                Input::Closed { connection, .. } => drop(decoders.remove(&connection)),
                Input::Ended { .. }
                | Input::Accepted { .. }
                | Input::Listening { .. }
                | Input::Sent { .. }
                | Input::Connected { .. }
                | Input::ConnectFailed { .. }
                | Input::Resolved { .. }
                | Input::Inspected { .. }
                | Input::Message(_)
                | Input::Timeout => {}
            },
        )
    }
}

/// The defaults, but that what was learned is questioned after hours, not days.
fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.heartbeat.relearn = 12 * HOUR;
    settings
}

/// A quiet path through a translator.
fn behind(timeout: Duration) -> Faults {
    Faults { forgets_after: Some(timeout), ..Faults::none() }
}

fn network(label: &str, online: bool) -> NetworkChange {
    NetworkChange { label: label.into(), kind: Network::Fixed, online, spares_loopback: false }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
