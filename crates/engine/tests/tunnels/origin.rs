//! Origins that open tunnels and send back what comes, or refuse.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_proto::head::{Head, HeadPool, Method};
use towpath_proto::http2::{Arrival, Code, Connection, Options};
use towpath_proto::{Address, Close, ConnectionId, Event, Input, Instant, Machine, Name, Out};
use towpath_sim::{Orders, Script};

use super::{Shared, Speaks, options};

/// What an origin does with a request for a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Opens it and sends back what comes.
    Echoes,
    /// Refuses it, when all that came with it has arrived.
    Refuses,
    /// Opens it, and cuts it when something has come.
    Cuts,
    /// Of HTTP/2: as the first, and says what it takes only after [`LATE`].
    EchoesLate,
    /// Of HTTP/2: takes no extended CONNECT, and says so only after [`LATE`].
    TakesNoneLate,
    /// Of HTTP/2: never says a word.
    IsSilent,
    /// Closes every connection at once.
    Closes,
}

/// When SETTINGS come that come late.
pub const LATE: Duration = Duration::from_millis(700);

/// One that speaks HTTP/1, or nothing of it.
pub fn http1(
    at: Address,
    speaks: Speaks,
    answer: Answer,
    got: Shared,
) -> impl Machine<Message = Message> {
    let mut origin = Http1 { speaks, answer, got, closed: false };
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, _: Instant| origin.act(input, orders),
    )
}

/// One that speaks HTTP/2.
pub fn http2(at: Address, answer: Answer, got: Shared) -> impl Machine<Message = Message> {
    let allow_connect = answer != Answer::TakesNoneLate;
    let http2 = Connection::server(Arc::new(Options { allow_connect, ..(*options()).clone() }));
    let heads = HeadPool::default();
    let mut origin = Http2 { http2, heads, answer, got, number: None, late: None };
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, now: Instant| origin.act(input, orders, now),
    )
}

/// One that speaks HTTP/1 until the tunnel is open, or nothing of it.
struct Http1 {
    speaks: Speaks,
    answer: Answer,
    got: Shared,
    closed: bool,
}

impl Http1 {
    fn act(&mut self, input: Input<Message>, orders: &mut Orders<Message>) {
        let mut got = self.got.borrow_mut();
        match input {
            Input::Received { .. } | Input::Ended { .. } if self.closed => {}
            Input::Received { connection, chunk } => {
                let is_open = |head: &str| self.speaks == Speaks::Raw || head.ends_with("\r\n\r\n");
                let was_open = is_open(&got.head);
                let mut content = Vec::new();
                for byte in &chunk {
                    if is_open(&got.head) {
                        content.push(*byte);
                    } else {
                        got.head.push(char::from(*byte));
                    }
                }
                if is_open(&got.head) && !was_open {
                    assert!(content.is_empty(), "nothing stands behind a request for a tunnel");
                    let text = match self.answer {
                        Answer::Refuses => "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno",
                        _ if got.head.starts_with("CONNECT ") => "HTTP/1.1 200 OK\r\n\r\n",
                        _ => {
                            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                            upgrade: websocket\r\n\r\n"
                        }
                    };
                    orders.send(connection, text.as_bytes());
                }
                got.bytes.extend_from_slice(&content);
                match self.answer {
                    Answer::Cuts if !content.is_empty() => {
                        self.closed = true;
                        orders.close(connection, Close::Abort);
                    }
                    _ => orders.send(connection, content),
                }
            }
            Input::Ended { connection } => {
                got.ended = true;
                orders.close(connection, Close::Flush);
            }
            Input::Closed { .. } => got.cut = true,
            _ => {}
        }
    }
}

struct Http2 {
    http2: Connection,
    heads: HeadPool,
    answer: Answer,
    got: Shared,
    number: Option<u32>,
    /// The connection that has not heard of its SETTINGS.
    late: Option<ConnectionId>,
}

impl Http2 {
    fn act(&mut self, input: Input<Message>, orders: &mut Orders<Message>, now: Instant) {
        let connection = match input {
            Input::Accepted { connection, .. } => match self.answer {
                Answer::Closes => return orders.close(connection, Close::Abort),
                Answer::EchoesLate | Answer::TakesNoneLate | Answer::IsSilent => {
                    self.late = Some(connection);
                    return orders.wake_at(now + LATE);
                }
                Answer::Echoes | Answer::Refuses | Answer::Cuts => connection,
            },
            Input::Timeout if self.answer != Answer::IsSilent => match self.late.take() {
                Some(connection) => connection,
                None => return,
            },
            Input::Sent { .. } => return self.http2.sent(0),
            // Nothing but its own SETTINGS may come before ours.
            Input::Received { chunk, .. } if self.late.is_some() => {
                self.http2.receive(chunk);
                assert!(self.http2.poll(&mut self.heads).unwrap().is_none());
                return;
            }
            Input::Received { connection, chunk } => {
                self.http2.receive(chunk);
                let mut out = Out::new();
                while let Some((number, arrival)) = self.http2.poll(&mut self.heads).unwrap() {
                    self.on_arrival(number, arrival, &mut out);
                }
                out.drain().for_each(|chunk| orders.send(connection, chunk));
                connection
            }
            Input::Ended { connection } => return orders.close(connection, Close::Flush),
            _ => return,
        };
        self.flush(connection, orders);
    }

    fn on_arrival(&mut self, number: u32, arrival: Arrival, out: &mut Out) {
        let mut got = self.got.borrow_mut();
        match arrival {
            Arrival::Part(Event::Head { head, end }) => {
                assert!(!end, "a tunnel is the content of its stream");
                self.number = Some(number);
                got.head = String::from_utf8_lossy(head.method_bytes()).into_owned();
                if self.answer == Answer::Refuses {
                    let mut head = Head::response(403);
                    head.set(Name::ContentLength, b"2");
                    self.http2.send_head(number, &head, false, out);
                    self.http2.send_data(number, Bytes::from_static(b"no"));
                    self.http2.send_end(number);
                    return;
                }
                let is_connect = head.method() == Method::Connect;
                let wanted = head.get(Name::Upgrade);
                assert_eq!(wanted, (!is_connect).then_some(&b"websocket"[..]));
                let status = if is_connect { 200 } else { 101 };
                self.http2.send_head(number, &Head::response(status), false, out);
            }
            Arrival::Part(Event::Data(data)) => {
                got.bytes.extend_from_slice(&data);
                self.http2.consumed(number);
                if self.answer == Answer::Cuts {
                    self.http2.reset(number, Code::CONNECT_ERROR);
                    self.http2.release(number);
                } else {
                    self.http2.send_data(number, data);
                }
            }
            Arrival::Part(Event::End) => {
                got.ended = true;
                self.http2.send_end(number);
                self.http2.release(number);
            }
            Arrival::Reset(_) => {
                got.cut = true;
                self.http2.release(number);
            }
            other => panic!("{other:?}"),
        }
    }

    fn flush(&mut self, connection: ConnectionId, orders: &mut Orders<Message>) {
        let mut out = Out::new();
        self.http2.flush(&mut out);
        out.drain().for_each(|chunk| orders.send(connection, chunk));
    }
}
