//! Many streams on one connection, towards clients and towards origins: slow readers, closed windows, resets, origins
//! that take fewer streams or go away, and protocols that a handshake agrees on.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_engine::message::Message;
use towpath_proto::{Address, Close, ConnectionId, Input, Instant};
use towpath_sim::{Orders, Random, Script, World, for_each_seed};

use super::{Kind, STREAMS, WINDOW, frame, take_frame};
use crate::snapshot::http::Codec;

mod origin;
#[path = "../../../../tests/scene/mod.rs"]
pub(crate) mod scene;
#[path = "../../../../tests/scene/secure.rs"]
mod secure;

use scene::client::{Ask, asks};
use scene::origin::{Habits, Log, origin, pattern};
use scene::{HTTP, Plan, add_worker, address, drain_and_check, origin_address};
use secure::{Certificates, CloseNotify};

/// What a client saw of its requests.
#[derive(Debug, Default)]
struct Seen {
    answered: Vec<String>,
    reset: u32,
    given_up: u32,
    most_at_once: usize,
}

/// One stream, as the client sees it.
struct Call {
    ask: Ask,
    body: Bytes,
    window: usize,
    /// What the worker may send.
    granted: usize,
    /// What it has sent and we have not taken.
    untaken: usize,
    received: usize,
    answered: bool,
    ended: bool,
    /// Given up after so many bytes of its answer.
    gives_up: Option<usize>,
}

struct Client {
    asks: VecDeque<Ask>,
    calls: BTreeMap<u16, Call>,
    last: u16,
    connection: Option<ConnectionId>,
    received: BytesMut,
    random: Random,
    /// How often in a thousand ticks a stream's bytes are taken.
    eager: u32,
    resets: u32,
    seen: Rc<RefCell<Seen>>,
}

const TICK: Duration = Duration::from_millis(3);

impl Client {
    fn act(&mut self, input: Input<Message>, orders: &mut Orders<Message>, now: Instant) {
        match input {
            Input::Timeout if self.connection.is_none() => {
                orders.connect(address(HTTP));
            }
            Input::Connected { connection, .. } => {
                self.connection = Some(connection);
                self.tick(orders);
                orders.wake_at(now + TICK);
            }
            Input::Timeout => {
                self.tick(orders);
                if self.connection.is_some() {
                    orders.wake_at(now + TICK);
                }
            }
            Input::Received { chunk, .. } => {
                self.received.extend_from_slice(&chunk);
                while let Some((kind, number, payload)) = take_frame(&mut self.received).unwrap() {
                    self.on_frame(kind, number, &payload, orders);
                }
            }
            Input::Ended { connection } => {
                orders.close(connection, Close::Flush);
                self.connection = None;
            }
            Input::Closed { .. } => self.connection = None,
            _ => {}
        }
    }

    fn on_frame(&mut self, kind: Kind, number: u16, payload: &Bytes, orders: &mut Orders<Message>) {
        let connection = self.connection.unwrap();
        let Some(call) = self.calls.get_mut(&number) else {
            assert_ne!(kind, Kind::Head, "a stream that is not there is not answered");
            return;
        };
        match kind {
            Kind::Head => {
                let text = std::str::from_utf8(payload).unwrap();
                assert!(text.starts_with("200\n"), "{text}");
                assert!(text.contains(&format!("x-id:{}", call.ask.id)), "its own answer: {text}");
                call.answered = true;
            }
            Kind::Data => {
                let end = call.received + payload.len();
                let wanted = pattern(&call.ask.id, end);
                assert_eq!(wanted[call.received..], payload[..], "its own bytes");
                call.received = end;
                call.granted = call.granted.checked_sub(payload.len()).expect("in the window");
                call.untaken += payload.len();
                if call.gives_up.is_some_and(|limit| end >= limit) {
                    orders.send(connection, frame(Kind::Reset, number, &[]));
                    self.seen.borrow_mut().given_up += 1;
                    self.calls.remove(&number);
                }
            }
            Kind::End => {
                assert!(call.answered && call.received == call.ask.answer, "a whole answer");
                call.ended = true;
                self.seen.borrow_mut().answered.push(call.ask.id.clone());
            }
            Kind::Reset => {
                self.seen.borrow_mut().reset += u32::from(!call.ended);
                self.calls.remove(&number);
            }
            Kind::Window => {
                call.window += usize::from(u16::from_be_bytes(payload[..].try_into().unwrap()));
            }
            Kind::Capacity | Kind::GoAway => unreachable!("of a server on its way out"),
        }
    }

    /// Begins streams, sends what windows take, takes what some have received.
    fn tick(&mut self, orders: &mut Orders<Message>) {
        let Some(connection) = self.connection else { return };
        for _ in self.calls.len()..STREAMS {
            if self.random.chance(300)
                && let Some(ask) = self.asks.pop_front()
            {
                self.begin(ask, connection, orders);
            }
        }
        for (&number, call) in &mut self.calls {
            if !call.body.is_empty() && call.window > 0 {
                let piece = call.body.split_to(call.body.len().min(call.window).min(700));
                call.window -= piece.len();
                orders.send(connection, frame(Kind::Data, number, &piece));
                if call.body.is_empty() {
                    orders.send(connection, frame(Kind::End, number, &[]));
                }
            }
            if call.untaken > 0 && self.random.chance(self.eager) {
                let more = u16::try_from(call.untaken).unwrap();
                call.granted += call.untaken;
                call.untaken = 0;
                orders.send(connection, frame(Kind::Window, number, &more.to_be_bytes()));
            }
        }
        self.calls.retain(|_, call| !(call.ended && call.body.is_empty()));
        let open = self.calls.len();
        let mut seen = self.seen.borrow_mut();
        seen.most_at_once = seen.most_at_once.max(open);
        if open == 0 && self.asks.is_empty() {
            orders.close(connection, Close::Flush);
            self.connection = None;
        }
    }

    fn begin(&mut self, ask: Ask, connection: ConnectionId, orders: &mut Orders<Message>) {
        self.last += 1;
        let head = format!(
            "{} /thing\nx-id:{}\nx-size:{}\nx-body:{}\nx-chunked:{}",
            ask.method,
            ask.id,
            ask.answer,
            ask.body,
            u8::from(ask.answer_chunked)
        );
        orders.send(connection, frame(Kind::Head, self.last, head.as_bytes()));
        let body = pattern(&ask.id, ask.body);
        if body.is_empty() {
            orders.send(connection, frame(Kind::End, self.last, &[]));
        }
        let gives_up = self.random.chance(self.resets).then_some(ask.answer / 2);
        let call = Call {
            ask,
            body,
            window: WINDOW,
            granted: WINDOW,
            untaken: 0,
            received: 0,
            answered: false,
            ended: false,
            gives_up,
        };
        self.calls.insert(self.last, call);
    }
}

static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();

/// What became of so many requests on one connection.
fn run(seed: u64, count: usize, largest: usize, eager: u32, resets: u32) -> Rc<RefCell<Seen>> {
    let mut world: World<Message> = World::new(seed);
    let log = Log::default();
    let at: Address = origin_address(1);
    world.add(origin(at, Rc::clone(&log), Habits::default()));
    let mut plan = Plan::new(1);
    // Its codec is configured, or what the handshake comes to.
    let certificates = CERTIFICATES.get_or_init(Certificates::new);
    let negotiates = seed.is_multiple_of(4);
    if negotiates {
        plan.tls = Some(certificates.downstream(&[b"http/1.1", b"toy"]));
    } else {
        plan.adjust_http = |http| http.codec = Codec::Toy;
    }
    // A client may take its time.
    plan.adjust_forward = |forward| forward.timeout = None;
    let worker = add_worker(&mut world, seed, plan);
    world.run_for(Duration::from_millis(1));
    let mut random = Random::new(seed);
    let mut asks = asks(&mut random, 0, count, largest);
    asks.iter_mut().for_each(|ask| {
        if ask.method == "HEAD" {
            ask.method = "GET";
        }
    });
    let seen = Rc::new(RefCell::new(Seen::default()));
    let mut client = Client {
        asks: asks.into(),
        calls: BTreeMap::new(),
        last: 0,
        connection: None,
        received: BytesMut::new(),
        random,
        eager,
        resets,
        seen: Rc::clone(&seen),
    };
    let script = Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| client.act(input, orders, now),
    );
    if negotiates {
        world.add(certificates.speaking(b"toy").around(script, CloseNotify::Sent));
    } else {
        world.add(script);
    }
    world.run_for(Duration::from_secs(600));
    assert_eq!(log.borrow().wrong_bodies, 0, "no body is another's");
    drain_and_check(&mut world, worker);
    seen
}

#[test]
fn many_streams_on_one_connection_are_each_answered_whole() {
    let mut most = 0;
    for_each_seed(60, |seed| {
        let seen = run(seed, 40, 20_000, 500, 0);
        let seen = seen.borrow();
        assert_eq!((seen.answered.len(), seen.reset), (40, 0), "{seen:?}");
        most = most.max(seen.most_at_once);
    });
    assert!(most > STREAMS / 2, "{most} at once");
}

#[test]
fn streams_that_are_read_slowly_or_given_up_hold_up_no_other() {
    let mut given_up = 0;
    for_each_seed(60, |seed| {
        let seen = run(seed, 40, 20_000, 20, 250);
        let seen = seen.borrow();
        given_up += seen.given_up;
        assert_eq!(seen.answered.len() + seen.given_up as usize, 40, "{seen:?}");
        assert_eq!(seen.reset, 0);
    });
    assert!(given_up > 100, "{given_up} were given up");
}
