//! A client that has many requests on one connection of HTTP/2 at once, and writes down how each one ended.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Code, Connection, Options};
use towpath_proto::{Address, Close, ConnectionId, Event, Input, Instant, Out};
use towpath_sim::{Orders, Random, Script};

use super::scene::client::{Ask, Ending, Endings};
use super::scene::origin::{pattern, text};

/// How it treats its streams, in a thousand of its ticks.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Takes what has come.
    pub eager: u32,
    /// Of its requests it gives up so many in the middle of the answer.
    pub gives_up: u32,
}

impl Default for Manner {
    fn default() -> Self {
        Self { eager: 500, gives_up: 0 }
    }
}

#[derive(Debug, Default)]
pub struct Seen {
    pub asked: usize,
    pub refused: usize,
    pub given_up: u32,
    pub trailers: u32,
    /// GOAWAY came before the end.
    pub told: bool,
}

struct Call {
    ask: Ask,
    body: Bytes,
    head: Option<Head>,
    /// What the answer is to be.
    wanted: Bytes,
    received: usize,
    gives_up: bool,
    ended: bool,
}

struct Client {
    target: Address,
    asks: std::vec::IntoIter<Ask>,
    calls: BTreeMap<u32, Call>,
    started: bool,
    connection: Option<ConnectionId>,
    http2: Connection,
    heads: HeadPool,
    manner: Manner,
    random: Random,
    endings: Endings,
    seen: Rc<RefCell<Seen>>,
}

const TICK: Duration = Duration::from_millis(3);

pub fn client(
    target: Address,
    asks: Vec<Ask>,
    manner: Manner,
    seed: u64,
    endings: Endings,
    seen: Rc<RefCell<Seen>>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let options = Options {
        stream_window: 65_535,
        connection_window: 120_000,
        max_window_updates: 1000,
        ..Options::default()
    };
    let mut client = Client {
        target,
        asks: asks.into_iter(),
        calls: BTreeMap::new(),
        started: false,
        connection: None,
        http2: Connection::client(Arc::new(options)),
        heads: HeadPool::default(),
        manner,
        random: Random::new(seed),
        endings,
        seen,
    };
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| client.act(input, orders, now),
    )
}

impl Client {
    fn act(&mut self, input: Input<Message>, orders: &mut Orders<Message>, now: Instant) {
        match input {
            Input::Timeout if !std::mem::replace(&mut self.started, true) => {
                orders.connect(self.target.clone());
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
                self.http2.receive(chunk);
                while let Some((number, arrival)) =
                    self.http2.poll(&mut self.heads).expect("the worker speaks HTTP/2")
                {
                    self.on_arrival(number, arrival);
                }
                self.flush(orders);
            }
            Input::Sent { .. } => self.http2.sent(0),
            Input::Ended { connection } => {
                self.lose();
                orders.close(connection, Close::Flush);
            }
            Input::Closed { .. } => self.lose(),
            _ => {}
        }
    }

    /// The connection is over: what was not answered never will be.
    fn lose(&mut self) {
        self.connection = None;
        self.seen.borrow_mut().told |= self.http2.is_exhausted();
        for (_, call) in std::mem::take(&mut self.calls) {
            if !call.ended {
                self.endings.borrow_mut().entry(call.ask.id).or_default().push(Ending::Broken);
            }
        }
    }

    fn on_arrival(&mut self, number: u32, arrival: Arrival) {
        let call = self.calls.get_mut(&number).expect("a stream of ours");
        match arrival {
            Arrival::Part(Event::Head { head, end }) => {
                call.head = Some(head);
                if end {
                    self.end(number);
                }
            }
            Arrival::Part(Event::Data(data)) => {
                let end = call.received + data.len();
                if call.head.as_ref().is_some_and(|head| !text(head, b"x-id").is_empty()) {
                    assert_eq!(
                        call.wanted.get(call.received..end),
                        Some(&data[..]),
                        "its own bytes"
                    );
                }
                call.received = end;
                if call.gives_up && end * 2 > call.ask.answer {
                    self.http2.reset(number, Code::CANCEL);
                    self.http2.release(number);
                    self.calls.remove(&number);
                    self.seen.borrow_mut().given_up += 1;
                }
            }
            Arrival::Part(Event::Trailers(_)) => {
                self.seen.borrow_mut().trailers += 1;
                self.end(number);
            }
            Arrival::Part(Event::End) => self.end(number),
            Arrival::Part(Event::Informational(_)) => {}
            Arrival::Reset(_) => {
                let call = self.calls.remove(&number).unwrap();
                self.http2.release(number);
                self.endings.borrow_mut().entry(call.ask.id).or_default().push(Ending::Broken);
            }
            Arrival::Refused => {
                self.calls.remove(&number);
                self.http2.release(number);
                self.seen.borrow_mut().refused += 1;
            }
        }
    }

    fn end(&mut self, number: u32) {
        let call = self.calls.get_mut(&number).unwrap();
        call.ended = true;
        let head = call.head.as_ref().expect("an answer has a head");
        let id = text(head, b"x-id");
        if !id.is_empty() {
            assert_eq!(id, call.ask.id, "an answer goes to the call that asked");
            let whole = if call.ask.method == "HEAD" { 0 } else { call.ask.answer };
            assert_eq!(call.received, whole, "the answer to {} is whole", call.ask.id);
        }
        let ending = Ending::Answered { status: head.status(), from_origin: !id.is_empty() };
        self.endings.borrow_mut().entry(call.ask.id.clone()).or_default().push(ending);
        if call.body.is_empty() {
            self.http2.release(number);
            self.calls.remove(&number);
        }
    }

    /// Begins streams, sends what windows take, takes what some have received.
    fn tick(&mut self, orders: &mut Orders<Message>) {
        let Some(connection) = self.connection else { return };
        let mut out = Out::new();
        while self.random.chance(600)
            && !self.http2.is_exhausted()
            && self.http2.capacity() > 0
            && self.calls.len() < 8
            && let Some(ask) = self.asks.next()
        {
            self.begin(ask, &mut out);
        }
        out.drain().for_each(|chunk| orders.send(connection, chunk));
        let mut through = Vec::new();
        for (&number, call) in &mut self.calls {
            let room = self.http2.writable(number).min(call.body.len()).min(5000);
            if room > 0 {
                self.http2.send_data(number, call.body.split_to(room));
                if call.body.is_empty() {
                    self.http2.send_end(number);
                    if call.ended {
                        through.push(number);
                    }
                }
            }
            if self.random.chance(self.manner.eager) {
                self.http2.consumed(number);
            }
        }
        self.flush(orders);
        for number in through {
            self.http2.release(number);
            self.calls.remove(&number);
        }
        let done = self.asks.len() == 0 || self.http2.is_exhausted();
        if self.calls.is_empty() && done {
            self.lose();
            orders.close(connection, Close::Flush);
        }
    }

    fn begin(&mut self, ask: Ask, out: &mut Out) {
        let Some(number) = self.http2.open() else { return };
        self.seen.borrow_mut().asked += 1;
        let mut head = Head::request(ask.method.as_bytes(), b"http", b"app.test", b"/thing");
        for (name, value) in [
            ("x-id", ask.id.clone()),
            ("x-size", ask.answer.to_string()),
            ("x-body", ask.body.to_string()),
            ("x-chunked", u8::from(ask.answer_chunked).to_string()),
        ] {
            head.append_bytes(name.as_bytes(), value.as_bytes());
        }
        let body = pattern(&ask.id, ask.body);
        if !body.is_empty() && !ask.chunked {
            head.append_bytes(b"content-length", ask.body.to_string().as_bytes());
        }
        self.http2.send_head(number, &head, body.is_empty(), out);
        let gives_up = ask.answer > 1000 && self.random.chance(self.manner.gives_up);
        let gives_up = gives_up && ask.method != "HEAD";
        let wanted = pattern(&ask.id, ask.answer);
        let call = Call { ask, body, head: None, wanted, received: 0, gives_up, ended: false };
        self.calls.insert(number, call);
    }

    fn flush(&mut self, orders: &mut Orders<Message>) {
        let Some(connection) = self.connection else { return };
        let mut out = Out::new();
        self.http2.flush(&mut out);
        out.drain().for_each(|chunk| orders.send(connection, chunk));
    }
}
