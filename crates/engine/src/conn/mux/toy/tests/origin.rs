//! Origins that speak the toy protocol, and what becomes of HTTP/1 clients' requests to them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_engine::stats::Registry;
use towpath_proto::head::{Head, Method};
use towpath_proto::{Address, Close, ConnectionId, Event, Input, Instant, Out};
use towpath_sim::{Orders, Random, Script, World, for_each_seed};

use super::super::{Arrival, STREAMS, Toy};
use super::CERTIFICATES;
use super::scene::client::{Ending, Endings, asks, client};
use super::scene::origin::{Habits as PlainHabits, Log, origin as plain_origin, pattern, text};
use super::scene::{HTTP, Plan, add_counted_worker, address, drain_and_check, origin_address};
use super::secure::{Certificates, CloseNotify};

/// What an origin does beside answering; in a thousand of its ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Habits {
    /// Takes another number of streams at once.
    changes_capacity: u32,
    /// Goes away: answers the streams that it has, and no more.
    goes_away: u32,
    /// Gives a stream up.
    resets: u32,
}

#[derive(Debug, Default)]
struct Seen {
    times: HashMap<String, u32>,
    wrong_bodies: u32,
    most_at_once: usize,
    connections: u32,
    capacities: u32,
    went_away: u32,
    resets: u32,
}

struct Connection {
    toy: Toy,
    streams: BTreeMap<u32, Stream>,
    goes_away: bool,
}

struct Stream {
    id: String,
    /// Of the request: promised, and what came.
    body: usize,
    received: usize,
    wrong: bool,
    ended: bool,
    /// What is still to be sent of the answer, once its head is.
    answer: Option<Bytes>,
    head: Head,
}

struct Origin {
    connections: BTreeMap<ConnectionId, Connection>,
    random: Random,
    habits: Habits,
    seen: Rc<RefCell<Seen>>,
}

const TICK: Duration = Duration::from_millis(2);

impl Origin {
    fn act(&mut self, input: Input<Message>, orders: &mut Orders<Message>, now: Instant) {
        match input {
            Input::Accepted { connection, .. } => {
                let (toy, streams) = (Toy::server(), BTreeMap::new());
                self.connections.insert(connection, Connection { toy, streams, goes_away: false });
                self.seen.borrow_mut().connections += 1;
            }
            Input::Received { connection, chunk } => {
                if let Some(open) = self.connections.get_mut(&connection) {
                    open.receive(&chunk, &self.seen);
                    open.flush(connection, orders);
                    orders.wake_at(now + TICK);
                }
            }
            Input::Timeout => self.tick(orders, now),
            Input::Ended { connection } if self.connections.remove(&connection).is_some() => {
                orders.close(connection, Close::Flush);
            }
            Input::Closed { connection, .. } => {
                self.connections.remove(&connection);
            }
            _ => {}
        }
    }

    fn tick(&mut self, orders: &mut Orders<Message>, now: Instant) {
        for (&id, connection) in &mut self.connections {
            connection.tick(self.habits, &mut self.random, &self.seen);
            connection.flush(id, orders);
            if connection.goes_away && connection.streams.is_empty() {
                orders.close(id, Close::Flush);
            }
        }
        self.connections.retain(|_, it| !(it.goes_away && it.streams.is_empty()));
        if self.connections.values().any(|connection| !connection.streams.is_empty()) {
            orders.wake_at(now + TICK);
        }
    }
}

impl Connection {
    fn receive(&mut self, chunk: &Bytes, seen: &RefCell<Seen>) {
        self.toy.receive(chunk);
        while let Some((number, arrival)) = self.toy.poll().expect("the worker speaks the protocol")
        {
            match arrival {
                Arrival::Part(Event::Head { head, .. }) => {
                    let body = text(&head, b"x-body").parse().unwrap();
                    let id = text(&head, b"x-id");
                    let (received, wrong, ended) = (0, false, false);
                    let stream = Stream { id, body, received, wrong, ended, answer: None, head };
                    assert!(self.streams.insert(number, stream).is_none(), "a number of its own");
                }
                Arrival::Part(Event::Data(data)) => {
                    let stream = self.streams.get_mut(&number).unwrap();
                    let wanted = pattern(&stream.id, stream.received + data.len());
                    stream.wrong |= wanted[stream.received..] != data;
                    stream.received += data.len();
                    self.toy.consumed(number);
                }
                Arrival::Part(Event::End) => {
                    let stream = self.streams.get_mut(&number).unwrap();
                    stream.ended = true;
                    let mut seen = seen.borrow_mut();
                    *seen.times.entry(stream.id.clone()).or_default() += 1;
                    let whole = stream.received == stream.body && !stream.wrong;
                    seen.wrong_bodies += u32::from(!whole);
                }
                Arrival::Reset { .. } => {
                    self.streams.remove(&number);
                    self.toy.release(number);
                }
                other => panic!("a client sends no {other:?}"),
            }
            let mut seen = seen.borrow_mut();
            seen.most_at_once = seen.most_at_once.max(self.streams.len());
        }
    }

    fn tick(&mut self, habits: Habits, random: &mut Random, seen: &RefCell<Seen>) {
        if random.chance(habits.changes_capacity) {
            self.toy.send_capacity(u8::try_from(random.below(STREAMS as u64 + 1)).unwrap().max(1));
            seen.borrow_mut().capacities += 1;
        }
        if !self.goes_away && random.chance(habits.goes_away) {
            self.toy.send_go_away();
            self.goes_away = true;
            seen.borrow_mut().went_away += 1;
        }
        let toy = &mut self.toy;
        self.streams.retain(|&number, stream| {
            if random.chance(habits.resets) {
                toy.reset(number);
                seen.borrow_mut().resets += 1;
                return false;
            }
            stream.ended.then(|| stream.answer(number, toy)).is_none_or(|goes_on| goes_on)
        });
    }

    fn flush(&mut self, id: ConnectionId, orders: &mut Orders<Message>) {
        let mut out = Out::new();
        self.toy.flush(&mut out);
        out.drain().for_each(|chunk| orders.send(id, chunk));
    }
}

impl Stream {
    /// Sends what the window takes; false when that was all.
    fn answer(&mut self, number: u32, toy: &mut Toy) -> bool {
        let size: usize = text(&self.head, b"x-size").parse().unwrap();
        let answer = self.answer.get_or_insert_with(|| {
            let mut head = Head::response(200);
            head.append_bytes(b"x-id", self.id.as_bytes());
            if text(&self.head, b"x-chunked") != "1" {
                head.append_bytes(b"content-length", size.to_string().as_bytes());
            }
            toy.send_head(number, &head);
            let has_body = self.head.method() != Method::Head;
            if has_body { pattern(&self.id, size) } else { Bytes::new() }
        });
        let room = toy.writable(number).min(700).min(answer.len());
        if room > 0 {
            toy.send_data(number, answer.split_to(room));
        }
        if !answer.is_empty() {
            return true;
        }
        toy.send_end(number);
        toy.release(number);
        false
    }
}

fn origin(
    at: Address,
    seed: u64,
    habits: Habits,
    seen: Rc<RefCell<Seen>>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let random = Random::new(seed ^ 0x70e);
    let mut origin = Origin { connections: BTreeMap::new(), random, habits, seen };
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, now| origin.act(input, orders, now),
    )
}

struct Outcome {
    endings: BTreeMap<String, Vec<Ending>>,
    seen: Rc<RefCell<Seen>>,
    plain: Log,
    registry: Arc<Registry>,
}

impl Outcome {
    fn number(&self, name: &str) -> u64 {
        self.registry.read().number(&format!("cluster.app.{name}")).unwrap()
    }

    fn answered(&self) -> usize {
        let answered = Ending::Answered { status: 200, from_origin: true };
        self.endings.values().filter(|endings| ***endings == [answered]).count()
    }
}

/// Twelve HTTP/1 clients with six requests each, to origins of which the first `toys` agree on the toy protocol.
fn run(seed: u64, habits: Habits, origins: u8, toys: u8, adjust: fn(&mut Plan)) -> Outcome {
    let mut world: World<Message> = World::new(seed);
    let certificates = CERTIFICATES.get_or_init(Certificates::new);
    let (seen, plain) = (Rc::<RefCell<Seen>>::default(), Log::default());
    for number in 1..=origins {
        let at = origin_address(number);
        if number <= toys {
            let script = origin(at, seed, habits, Rc::clone(&seen));
            world.add(certificates.speaking(b"toy").around(script, CloseNotify::Sent));
        } else {
            let script = plain_origin(at, Rc::clone(&plain), PlainHabits::default());
            world.add(certificates.speaking(b"http/1.1").around(script, CloseNotify::Sent));
        }
    }
    let mut plan = Plan::new(origins);
    plan.cluster.tls = Some(certificates.upstream_offering("app.test", &[b"toy", b"http/1.1"]));
    adjust(&mut plan);
    let registry = Arc::new(Registry::default());
    let worker = add_counted_worker(&mut world, seed, plan, &registry);
    world.run_for(Duration::from_millis(1));
    let (mut random, endings) = (Random::new(seed), Endings::default());
    for number in 0..CLIENTS {
        let asks = asks(&mut random, number, REQUESTS, 20_000);
        world.add(client(address(HTTP), asks, Rc::clone(&endings)));
    }
    world.run_for(Duration::from_secs(600));
    drain_and_check(&mut world, worker);
    let endings = endings.borrow().clone();
    assert_eq!(endings.len(), CLIENTS * REQUESTS, "each request ends");
    assert!(endings.values().all(|endings| endings.len() == 1), "and ends once");
    assert_eq!(seen.borrow().wrong_bodies + plain.borrow().wrong_bodies, 0, "no body is another's");
    let outcome = Outcome { endings, seen, plain, registry };
    for gauge in ["upstream_cx_active", "upstream_rq_active", "upstream_rq_pending_active"] {
        assert_eq!(outcome.number(gauge), 0, "{gauge}");
    }
    outcome
}

const CLIENTS: usize = 12;
const REQUESTS: usize = 6;
const ALL: usize = CLIENTS * REQUESTS;

#[test]
fn one_connection_carries_the_streams_of_many_clients() {
    let mut most = 0;
    for_each_seed(10, |seed| {
        let outcome =
            run(seed, Habits::default(), 1, 1, |plan| plan.cluster.limits.connections = 1);
        assert_eq!(outcome.answered(), ALL, "{:?}", outcome.endings);
        let seen = outcome.seen.borrow();
        assert!(seen.most_at_once <= STREAMS && seen.times.values().all(|times| *times == 1));
        most = most.max(seen.most_at_once);
        assert_eq!(seen.connections, 1);
    });
    assert!(most > STREAMS / 2, "{most} at once");
}

#[test]
fn a_handshake_says_what_is_spoken_for_each_connection() {
    for_each_seed(10, |seed| {
        let outcome = run(seed, Habits::default(), 2, 1, |_| {});
        assert_eq!(outcome.answered(), ALL, "{:?}", outcome.endings);
        let (toy, plain) = (outcome.seen.borrow(), outcome.plain.borrow());
        assert!(toy.times.len() > ALL / 4 && plain.times.len() > ALL / 4, "{toy:?} {plain:?}");
        assert_eq!(toy.times.len() + plain.times.len(), ALL);
    });
}

#[test]
fn an_origin_takes_as_many_streams_as_it_says() {
    let mut capacities = 0;
    for_each_seed(10, |seed| {
        let habits = Habits { changes_capacity: 100, ..Habits::default() };
        let outcome = run(seed, habits, 1, 1, |plan| plan.cluster.limits.connections = 2);
        assert_eq!(outcome.answered(), ALL, "{:?}", outcome.endings);
        let seen = outcome.seen.borrow();
        assert!(seen.connections <= 2, "{} connections", seen.connections);
        capacities += seen.capacities;
    });
    assert!(capacities > 50, "{capacities} changes");
}

#[test]
fn an_origin_that_goes_away_loses_no_request() {
    let mut went_away = 0;
    for_each_seed(20, |seed| {
        let habits = Habits { goes_away: 20, ..Habits::default() };
        let outcome = run(seed, habits, 2, 2, |_| {});
        let seen = outcome.seen.borrow();
        // Refused twice in a row is the one way to a 503.
        let refused = Ending::Answered { status: 503, from_origin: false };
        let twice = outcome.endings.values().filter(|endings| ***endings == [refused]).count();
        assert_eq!(outcome.answered() + twice, ALL, "{:?}", outcome.endings);
        assert!(twice <= 2, "{twice} were refused twice");
        assert!(seen.times.values().all(|times| *times == 1), "what was refused was not seen");
        went_away += seen.went_away;
    });
    assert!(went_away > 40, "{went_away} went away");
}

#[test]
fn a_stream_that_is_reset_takes_no_other_with_it() {
    let mut resets = 0;
    for_each_seed(10, |seed| {
        let habits = Habits { resets: 30, ..Habits::default() };
        let outcome = run(seed, habits, 1, 1, |plan| plan.cluster.limits.connections = 1);
        let (count, connections) =
            (outcome.seen.borrow().resets as usize, outcome.seen.borrow().connections);
        assert_eq!(ALL - outcome.answered(), count, "{:?}", outcome.endings);
        assert_eq!(connections, 1, "it goes on");
        resets += count;
    });
    assert!(resets > 30, "{resets} resets");
}
