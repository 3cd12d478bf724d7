//! A client that sends a list of requests one after the other and writes down how each one ended.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_proto::head::{Head, HeadPool, Method};
use towpath_proto::http1::Client;
use towpath_proto::{Address, Close, ConnectionId, Input, Instant};
use towpath_proto::{Event, Out};
use towpath_sim::{Orders, Random, Script, World};

use super::origin::{pattern, text};
use super::{HTTP, address};

/// One request.
#[derive(Clone, Debug)]
pub struct Ask {
    pub id: String,
    pub method: &'static str,
    pub body: usize,
    pub chunked: bool,
    pub answer: usize,
    pub answer_chunked: bool,
    pub pause: Duration,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A whole answer with this status; from the origin if it carried our id.
    Answered { status: u16, from_origin: bool },
    /// The connection ended before a whole answer was there.
    Broken,
}

pub type Endings = Rc<RefCell<BTreeMap<String, Vec<Ending>>>>;

/// Adds so many clients, each with so many requests of up to `largest` bytes of content, and tells how those end.
pub fn add_clients(
    world: &mut World<Message>,
    seed: u64,
    (clients, requests): (usize, usize),
    largest: usize,
) -> Endings {
    let (endings, mut random) = (Endings::default(), Random::new(seed));
    for number in 0..clients {
        let asks = asks(&mut random, number, requests, largest);
        world.add(client(address(HTTP), asks, endings.clone()));
    }
    endings
}

/// Requests drawn from a seed.
pub fn asks(random: &mut Random, client: usize, count: usize, largest: usize) -> Vec<Ask> {
    let method = |random: &mut Random| match random.below(8) {
        0 => "HEAD",
        1 | 2 => "POST",
        3 => "PUT",
        4 => "DELETE",
        _ => "GET",
    };
    (0..count)
        .map(|number| {
            let method = method(random);
            let has_body = matches!(method, "POST" | "PUT");
            Ask {
                id: format!("c{client}r{number}"),
                method,
                body: if has_body { random.size(&(0..=largest)) } else { 0 },
                chunked: has_body && random.chance(500),
                answer: random.size(&(0..=largest)),
                answer_chunked: random.chance(500),
                pause: Duration::from_millis(random.below(40)),
            }
        })
        .collect()
}

struct State {
    target: Address,
    asks: std::vec::IntoIter<Ask>,
    current: Option<Ask>,
    connection: Option<ConnectionId>,
    client: Client,
    heads: HeadPool,
    head: Option<Head>,
    body: usize,
    connecting: bool,
    /// When a request is taken for lost: only a path that swallows everything makes it come to that.
    give_up: Instant,
    endings: Endings,
}

const PATIENCE: Duration = Duration::from_secs(500);

pub fn client(
    target: Address,
    asks: Vec<Ask>,
    endings: Endings,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut state = State {
        target,
        asks: asks.into_iter(),
        current: None,
        connection: None,
        client: Client::new(Arc::default()),
        heads: HeadPool::default(),
        head: None,
        body: 0,
        connecting: false,
        give_up: Instant::FAR_FUTURE,
        endings,
    };
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| state.act(input, orders, now),
    )
}

impl State {
    fn act(&mut self, input: Input<Message>, orders: &mut Orders<Message>, now: Instant) {
        match input {
            Input::Timeout
                if self.current.is_some() && (self.connecting || self.connection.is_some()) =>
            {
                if now < self.give_up {
                    orders.wake_at(self.give_up);
                } else if !self.connecting {
                    self.end(Ending::Broken, orders, now);
                }
            }
            Input::Timeout => {
                if self.current.is_none() {
                    self.current = self.asks.next();
                }
                self.go(orders, now);
            }
            Input::Connected { connection, .. } => {
                self.connecting = false;
                self.connection = Some(connection);
                self.client = Client::new(Arc::default());
                self.ask(orders, now);
            }
            Input::ConnectFailed { .. } => {
                self.connecting = false;
                self.end(Ending::Broken, orders, now);
            }
            Input::Received { connection, chunk } if self.connection == Some(connection) => {
                self.client.receive(chunk);
                self.read(orders, now);
            }
            Input::Ended { connection } if self.connection == Some(connection) => {
                orders.close(connection, Close::Flush);
                self.connection = None;
                if self.current.is_some() {
                    self.client.ended();
                    self.read(orders, now);
                    if self.current.is_some() && self.head.is_none() {
                        self.end(Ending::Broken, orders, now);
                    }
                }
            }
            Input::Closed { connection, .. } if self.connection == Some(connection) => {
                self.connection = None;
                if self.current.is_some() {
                    self.end(Ending::Broken, orders, now);
                }
            }
            _ => {}
        }
    }

    fn go(&mut self, orders: &mut Orders<Message>, now: Instant) {
        if self.current.is_none() {
            if let Some(connection) = self.connection.take() {
                orders.close(connection, Close::Flush);
            }
        } else if self.connection.is_some() {
            self.ask(orders, now);
        } else if !self.connecting {
            self.connecting = true;
            orders.connect(self.target.clone());
        }
    }

    fn ask(&mut self, orders: &mut Orders<Message>, now: Instant) {
        self.give_up = now + PATIENCE;
        orders.wake_at(self.give_up);
        let (Some(ask), Some(connection)) = (&self.current, self.connection) else { return };
        let mut head = Head::request(ask.method.as_bytes(), b"http", b"app.test", b"/thing");
        for (name, value) in [
            ("x-id", ask.id.clone()),
            ("x-size", ask.answer.to_string()),
            ("x-body", ask.body.to_string()),
            ("x-chunked", u8::from(ask.answer_chunked).to_string()),
        ] {
            head.append_bytes(name.as_bytes(), value.as_bytes());
        }
        let bodiless = ask.body == 0 && !ask.chunked;
        if !bodiless && !ask.chunked {
            head.append_bytes(b"content-length", ask.body.to_string().as_bytes());
        }
        let mut out = Out::new();
        self.client.encode_head(&head, bodiless, &mut out);
        if !bodiless {
            for piece in pattern(&ask.id, ask.body).chunks(1000) {
                self.client.encode_data(Bytes::copy_from_slice(piece), &mut out);
            }
            self.client.encode_end(&mut out);
        }
        for chunk in out.drain() {
            orders.send(connection, chunk);
        }
    }

    fn read(&mut self, orders: &mut Orders<Message>, now: Instant) {
        loop {
            let Some(ask) = self.current.clone() else { return };
            let ended = match self.client.poll(&mut self.heads) {
                Ok(None) => return,
                Err(_) => {
                    if let Some(connection) = self.connection.take() {
                        orders.close(connection, Close::Abort);
                    }
                    self.end(Ending::Broken, orders, now);
                    return;
                }
                Ok(Some(Event::Head { head, end })) => {
                    self.head = Some(head);
                    self.body = 0;
                    end
                }
                Ok(Some(Event::Data(chunk))) => {
                    if text(self.head.as_ref().unwrap(), b"x-id") == ask.id {
                        let wanted = pattern(&ask.id, self.body + chunk.len());
                        assert_eq!(wanted[self.body..], chunk, "the body of {} is its own", ask.id);
                    }
                    self.body += chunk.len();
                    false
                }
                Ok(Some(Event::Trailers(_) | Event::End)) => true,
                Ok(Some(Event::Informational(_))) => false,
            };
            if !ended {
                continue;
            }
            let head = self.head.take().unwrap();
            let id = text(&head, b"x-id");
            let from_origin = !id.is_empty();
            if from_origin {
                assert_eq!(id, ask.id, "an answer goes to the call that asked");
                let whole = if ask.method == "HEAD" { 0 } else { ask.answer };
                assert_eq!(self.body, whole, "the answer to {} is whole", ask.id);
            }
            assert!(Method::from_bytes(ask.method.as_bytes()) != Method::Other);
            let reusable = self.client.reusable();
            self.end(Ending::Answered { status: head.status(), from_origin }, orders, now);
            if !reusable && let Some(connection) = self.connection.take() {
                orders.close(connection, Close::Flush);
            }
        }
    }

    fn end(&mut self, ending: Ending, orders: &mut Orders<Message>, now: Instant) {
        let Some(ask) = self.current.take() else { return };
        self.head = None;
        if ending == Ending::Broken
            && let Some(connection) = self.connection.take()
        {
            orders.close(connection, Close::Abort);
        }
        self.endings.borrow_mut().entry(ask.id).or_default().push(ending);
        orders.wake_at(now + ask.pause + Duration::from_micros(1));
    }
}
