//! An origin that checks what it gets and says who asked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http1::Server;
use towpath_proto::{Address, Close, ConnectionId, Input, Instant};
use towpath_proto::{Event, Next, Out};
use towpath_sim::{Orders, Script};

/// How often each request arrived whole, and broken bodies.
#[derive(Debug, Default)]
pub struct Seen {
    pub times: HashMap<String, u32>,
    pub wrong_bodies: u32,
}

pub type Log = Rc<RefCell<Seen>>;

/// Habits of an origin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Closes a connection after so many responses, without announcing it.
    pub close_after: Option<u32>,
    /// Answers every n-th request with 503.
    pub fail_every: Option<u32>,
    /// Answers so many requests with 503 first, with this `retry-after`.
    pub busy: Option<(u32, Option<&'static str>)>,
    /// Has entity tags, and sends ranges of what has one.
    pub ranges: Option<Ranges>,
    /// Does not answer every n-th request, and goes on to listen.
    pub forgets: Option<u32>,
    /// Never answers.
    pub silent: bool,
    /// Closes connections that were idle for so long, without announcing it.
    pub idle_close: Option<Duration>,
}

/// How an origin deals with ranges.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    /// The tag of its n-th answer is this, with n in place of a `#`.
    pub etag: &'static str,
    /// Closes the connection after so many bytes of a body, in its first answers.
    pub cut: (u32, usize),
}

impl Ranges {
    /// The head for a request and the part of the body that follows it.
    fn answer(&self, request: &Head, head: &mut Head, body: &Bytes, number: u32) -> Bytes {
        let etag = self.etag.replace('#', &number.to_string());
        head.set_bytes(b"etag", etag.as_bytes());
        let first = text(request, b"range");
        let first = first.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
        let rest = match first.filter(|_| text(request, b"if-range") == etag) {
            Some(first) => {
                let first: usize = first.parse().unwrap();
                head.set_status(206);
                let (last, all) = (body.len() - 1, body.len());
                let range = format!("bytes {first}-{last}/{all}");
                head.set_bytes(b"content-range", range.as_bytes());
                body.slice(first..)
            }
            None => body.clone(),
        };
        head.set_bytes(b"content-length", rest.len().to_string().as_bytes());
        rest
    }
}

struct Exchange {
    server: Server,
    head: Option<Head>,
    body: usize,
    wrong: bool,
    answered: u32,
    rested: Instant,
}

/// The body of a request or response: each byte follows from the id and its place.
pub fn pattern(id: &str, len: usize) -> Bytes {
    let salt = id.bytes().fold(7u8, |salt, byte| salt.wrapping_mul(31).wrapping_add(byte));
    (0..len).map(|at| salt.wrapping_add((at % 251) as u8)).collect::<Vec<u8>>().into()
}

pub fn text(head: &Head, name: &[u8]) -> String {
    String::from_utf8_lossy(head.get_bytes(name).unwrap_or_default()).into_owned()
}

pub fn origin(
    at: Address,
    log: Log,
    habits: Habits,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut exchanges: HashMap<ConnectionId, Exchange> = HashMap::new();
    let mut heads = HeadPool::default();
    let mut served = 0u32;
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Accepted { connection, .. } => {
                let server = Server::new(std::sync::Arc::default());
                let fresh = Exchange {
                    server,
                    head: None,
                    body: 0,
                    wrong: false,
                    answered: 0,
                    rested: now,
                };
                exchanges.insert(connection, fresh);
                if let Some(idle) = habits.idle_close {
                    orders.wake_at(now + idle);
                }
            }
            Input::Timeout => {
                let Some(idle) = habits.idle_close else { return };
                let idle_ones: Vec<ConnectionId> = exchanges
                    .iter()
                    .filter(|(_, exchange)| {
                        exchange.head.is_none() && now - exchange.rested >= idle
                    })
                    .map(|(id, _)| *id)
                    .collect();
                for connection in idle_ones {
                    exchanges.remove(&connection);
                    orders.close(connection, Close::Flush);
                }
                if !exchanges.is_empty() {
                    orders.wake_at(now + idle);
                }
            }
            Input::Received { connection, chunk } => {
                let Some(exchange) = exchanges.get_mut(&connection) else { return };
                exchange.server.receive(chunk);
                exchange.rested = now;
                let mut out = Out::new();
                let mut close = false;
                loop {
                    let ended =
                        match exchange.server.poll(&mut heads).expect("the proxy speaks HTTP") {
                            None => break,
                            Some(Event::Head { head, end }) => {
                                exchange.head = Some(head);
                                exchange.body = 0;
                                exchange.wrong = false;
                                end
                            }
                            Some(Event::Data(chunk)) => {
                                let id = text(exchange.head.as_ref().unwrap(), b"x-id");
                                let wanted = pattern(&id, exchange.body + chunk.len());
                                exchange.wrong |= wanted[exchange.body..] != chunk;
                                exchange.body += chunk.len();
                                false
                            }
                            Some(Event::Trailers(_) | Event::End) => true,
                            Some(Event::Informational(_)) => unreachable!("a client sends none"),
                        };
                    if !ended {
                        continue;
                    }
                    let request = exchange.head.take().unwrap();
                    let (id, size) = (text(&request, b"x-id"), text(&request, b"x-size"));
                    let promised: usize = text(&request, b"x-body").parse().unwrap();
                    let mut seen = log.borrow_mut();
                    *seen.times.entry(id.clone()).or_default() += 1;
                    seen.wrong_bodies += u32::from(exchange.wrong || promised != exchange.body);
                    if habits.silent {
                        break;
                    }
                    served += 1;
                    if habits.forgets.is_some_and(|every| served.is_multiple_of(every)) {
                        break;
                    }
                    let fails = habits.fail_every.is_some_and(|every| served.is_multiple_of(every));
                    let busy = habits.busy.filter(|(count, _)| served <= *count);
                    let mut head = Head::response(if fails || busy.is_some() { 503 } else { 200 });
                    if let Some((_, Some(wait))) = busy {
                        head.append_bytes(b"retry-after", wait.as_bytes());
                    }
                    head.append_bytes(b"x-id", id.as_bytes());
                    let size: usize = size.parse().unwrap();
                    let chunked = text(&request, b"x-chunked") == "1";
                    if !chunked {
                        head.append_bytes(b"content-length", size.to_string().as_bytes());
                    }
                    let mut body = pattern(&id, size);
                    let mut cut = false;
                    if let Some(ranges) = habits.ranges {
                        body = ranges.answer(&request, &mut head, &body, served);
                        cut = served <= ranges.cut.0 && body.len() > ranges.cut.1;
                    }
                    exchange.server.encode_head(&head, false, &mut out);
                    if cut {
                        let part = habits.ranges.unwrap().cut.1;
                        exchange.server.encode_data(body.slice(..part), &mut out);
                        close = true;
                        break;
                    }
                    if request.method() != towpath_proto::head::Method::Head {
                        for piece in body.chunks(1400) {
                            exchange.server.encode_data(Bytes::copy_from_slice(piece), &mut out);
                        }
                    }
                    exchange.server.encode_end(&mut out);
                    exchange.answered += 1;
                    exchange.rested = now;
                    close = exchange.server.next() == Next::Close
                        || habits.close_after.is_some_and(|after| exchange.answered >= after);
                    if close {
                        break;
                    }
                }
                for chunk in out.drain() {
                    orders.send(connection, chunk);
                }
                if close {
                    exchanges.remove(&connection);
                    orders.close(connection, Close::Flush);
                }
            }
            Input::Ended { connection } => {
                exchanges.remove(&connection);
                orders.close(connection, Close::Flush);
            }
            Input::Closed { connection, .. } => {
                exchanges.remove(&connection);
            }
            Input::Listening { outcome, .. } => assert!(outcome.is_ok()),
            _ => {}
        },
    )
}
