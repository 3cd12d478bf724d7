//! Origins that speak HTTP/2 alone, check what they get and say who asked.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_proto::head::{Head, HeadPool, Method};
use towpath_proto::http2::{Arrival, Code, Connection, Options};
use towpath_proto::{Address, Close, ConnectionId, Event, Input, Instant, Out};
use towpath_sim::{Orders, Random, Script};

use super::scene::origin::{pattern, text};

/// What an origin does beside answering; in a thousand of its ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Goes away: answers the streams that it has, and no more.
    pub goes_away: u32,
    /// Gives a stream up.
    pub resets: u32,
}

#[derive(Debug, Default)]
pub struct Seen {
    pub times: HashMap<String, u32>,
    pub wrong_bodies: u32,
    pub most_at_once: usize,
    pub connections: u64,
    pub went_away: u32,
    pub resets: u32,
}

struct Open {
    http2: Connection,
    streams: BTreeMap<u32, Stream>,
    goes_away: bool,
}

struct Stream {
    id: String,
    head: Head,
    /// What the body is to be.
    wanted: Bytes,
    received: usize,
    wrong: bool,
    ended: bool,
    /// What is still to be sent of the answer, once its head is.
    answer: Option<Bytes>,
}

struct Origin {
    connections: BTreeMap<ConnectionId, Open>,
    heads: HeadPool,
    random: Random,
    habits: Habits,
    seen: Rc<RefCell<Seen>>,
}

const TICK: Duration = Duration::from_millis(2);

pub fn origin(
    at: Address,
    seed: u64,
    habits: Habits,
    seen: Rc<RefCell<Seen>>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let random = Random::new(seed ^ 0x42);
    let (connections, heads) = (BTreeMap::new(), HeadPool::default());
    let mut origin = Origin { connections, heads, random, habits, seen };
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, now| origin.act(input, orders, now),
    )
}

impl Origin {
    fn act(&mut self, input: Input<Message>, orders: &mut Orders<Message>, now: Instant) {
        match input {
            Input::Accepted { connection, .. } => {
                let options = Options {
                    stream_window: 65_535,
                    connection_window: 80_000,
                    max_concurrent_streams: 6,
                    max_window_updates: 1000,
                    ..Options::default()
                };
                let http2 = Connection::server(Arc::new(options));
                let open = Open { http2, streams: BTreeMap::new(), goes_away: false };
                self.connections.insert(connection, open);
                self.seen.borrow_mut().connections += 1;
            }
            Input::Received { connection, chunk } => {
                if let Some(open) = self.connections.get_mut(&connection) {
                    open.receive(chunk, &mut self.heads, &self.seen);
                    open.flush(connection, orders);
                    orders.wake_at(now + TICK);
                }
            }
            Input::Sent { connection, .. } => {
                if let Some(open) = self.connections.get_mut(&connection) {
                    open.http2.sent(0);
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
        for (&id, open) in &mut self.connections {
            let mut out = Out::new();
            open.tick(self.habits, &mut self.random, &self.seen, &mut out);
            open.http2.flush(&mut out);
            out.drain().for_each(|chunk| orders.send(id, chunk));
            if open.is_through() {
                orders.close(id, Close::Flush);
            }
        }
        self.connections.retain(|_, open| !open.is_through());
        if self.connections.values().any(|open| open.http2.streams() > 0) {
            orders.wake_at(now + TICK);
        }
    }
}

impl Open {
    fn is_through(&self) -> bool {
        self.goes_away && self.http2.streams() == 0
    }

    fn receive(&mut self, chunk: Bytes, heads: &mut HeadPool, seen: &RefCell<Seen>) {
        self.http2.receive(chunk);
        while let Some((number, arrival)) =
            self.http2.poll(heads).expect("the worker speaks HTTP/2")
        {
            match arrival {
                Arrival::Part(Event::Head { head, end }) => {
                    let id = text(&head, b"x-id");
                    let wanted = pattern(&id, text(&head, b"x-body").parse().unwrap());
                    let (received, wrong, ended, answer) = (0, false, false, None);
                    let stream = Stream { id, head, wanted, received, wrong, ended, answer };
                    assert!(self.streams.insert(number, stream).is_none(), "a number of its own");
                    if end {
                        self.end(number, seen);
                    }
                }
                Arrival::Part(Event::Data(data)) => {
                    let stream = self.streams.get_mut(&number).unwrap();
                    let end = stream.received + data.len();
                    stream.wrong |= stream.wanted.get(stream.received..end) != Some(&data[..]);
                    stream.received = end;
                    self.http2.consumed(number);
                }
                Arrival::Part(Event::Trailers(_) | Event::End) => self.end(number, seen),
                Arrival::Reset(_) => {
                    self.streams.remove(&number);
                    self.http2.release(number);
                }
                other => panic!("a client sends no {other:?}"),
            }
            let mut seen = seen.borrow_mut();
            seen.most_at_once = seen.most_at_once.max(self.streams.len());
        }
    }

    fn end(&mut self, number: u32, seen: &RefCell<Seen>) {
        let stream = self.streams.get_mut(&number).unwrap();
        stream.ended = true;
        let mut seen = seen.borrow_mut();
        *seen.times.entry(stream.id.clone()).or_default() += 1;
        let whole = stream.received == stream.wanted.len() && !stream.wrong;
        seen.wrong_bodies += u32::from(!whole);
    }

    fn tick(&mut self, habits: Habits, random: &mut Random, seen: &RefCell<Seen>, out: &mut Out) {
        if !self.goes_away && random.chance(habits.goes_away) {
            self.http2.go_away(Code::NO_ERROR);
            self.goes_away = true;
            seen.borrow_mut().went_away += 1;
        }
        let http2 = &mut self.http2;
        self.streams.retain(|&number, stream| {
            if random.chance(habits.resets) {
                http2.reset(number, Code::INTERNAL_ERROR);
                http2.release(number);
                seen.borrow_mut().resets += 1;
                return false;
            }
            stream.ended.then(|| stream.answer(number, http2, out)).is_none_or(|goes_on| goes_on)
        });
    }

    fn flush(&mut self, id: ConnectionId, orders: &mut Orders<Message>) {
        let mut out = Out::new();
        self.http2.flush(&mut out);
        out.drain().for_each(|chunk| orders.send(id, chunk));
    }
}

impl Stream {
    /// Sends what the window takes; false when that was all.
    fn answer(&mut self, number: u32, http2: &mut Connection, out: &mut Out) -> bool {
        let size: usize = text(&self.head, b"x-size").parse().unwrap();
        let trailers = text(&self.head, b"x-chunked") == "1";
        let is_head = self.head.method() == Method::Head;
        let answer = self.answer.get_or_insert_with(|| {
            let mut head = Head::response(200);
            head.append_bytes(b"x-id", self.id.as_bytes());
            if !trailers {
                head.append_bytes(b"content-length", size.to_string().as_bytes());
            }
            http2.send_head(number, &head, false, out);
            if is_head { Bytes::new() } else { pattern(&self.id, size) }
        });
        let room = http2.writable(number).min(answer.len()).min(7000);
        if room > 0 {
            http2.send_data(number, answer.split_to(room));
        }
        if !answer.is_empty() {
            return true;
        }
        if trailers && !is_head {
            let mut trailers = Head::default();
            trailers.append_bytes(b"x-checked", b"1");
            http2.send_trailers(number, &trailers);
        } else {
            http2.send_end(number);
        }
        http2.release(number);
        false
    }
}
