//! Clients that ask for a tunnel and send through it.

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Code, Connection};
use towpath_proto::{Address, Close, ConnectionId, Event, Input, Instant, Machine, Name, Out};
use towpath_sim::{Orders, Script};

use super::{Asks, Shared, options};

/// What a client does with its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// Sends, and ends its direction.
    Ends,
    /// The same, before it has an answer.
    Ahead,
    /// Sends, and cuts the tunnel once something has come back.
    Cuts,
    /// Sends, and stays.
    Stays,
}

const WEBSOCKET: &str = "GET / HTTP/1.1\r\nhost: app.test\r\nconnection: upgrade\r\n\
    upgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const CONNECT: &str = "CONNECT app.test:443 HTTP/1.1\r\nhost: app.test:443\r\n\r\n";

/// One that speaks HTTP/1.
pub fn http1(
    target: Address,
    asks: Asks,
    plot: Plot,
    up: Bytes,
    got: Shared,
) -> impl Machine<Message = Message> {
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Timeout => orders.connect(target.clone()),
            Input::Connected { connection, .. } => {
                let request = if asks == Asks::Connect { CONNECT } else { WEBSOCKET };
                orders.send(connection, request.as_bytes());
                if plot == Plot::Ahead {
                    orders.send(connection, up.clone());
                }
            }
            Input::Received { connection, chunk } => {
                let mut got = got.borrow_mut();
                let was_open = got.head.ends_with("\r\n\r\n");
                for byte in &chunk {
                    if got.head.ends_with("\r\n\r\n") {
                        got.bytes.push(*byte);
                    } else {
                        got.head.push(char::from(*byte));
                    }
                }
                let opens = got.head.ends_with("\r\n\r\n") && !was_open;
                if opens && [" 101 ", " 200 "].iter().any(|status| got.head.contains(status)) {
                    if plot != Plot::Ahead {
                        orders.send(connection, up.clone());
                    }
                    if matches!(plot, Plot::Ends | Plot::Ahead) {
                        orders.close(connection, Close::Half);
                    }
                }
                if plot == Plot::Cuts && !got.bytes.is_empty() && !got.cut {
                    got.cut = true;
                    orders.close(connection, Close::Abort);
                }
            }
            Input::Ended { connection } => {
                let mut got = got.borrow_mut();
                got.ended = true;
                if !got.cut {
                    orders.close(connection, Close::Flush);
                }
            }
            Input::Closed { .. } => got.borrow_mut().cut = true,
            _ => {}
        },
    )
}

struct Http2 {
    http2: Connection,
    heads: HeadPool,
    up: Bytes,
    plot: Plot,
    /// Its stream, until that is over.
    number: Option<u32>,
    open: bool,
    closed: bool,
    got: Shared,
}

/// One that speaks HTTP/2.
pub fn http2(
    target: Address,
    asks: Asks,
    plot: Plot,
    up: Bytes,
    got: Shared,
) -> impl Machine<Message = Message> {
    let http2 = Connection::client(options());
    let (heads, number) = (HeadPool::default(), None);
    let mut client = Http2 { http2, heads, up, plot, number, open: false, closed: false, got };
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Timeout => orders.connect(target.clone()),
            Input::Connected { connection, .. } => {
                let mut out = Out::new();
                client.ask(asks, &mut out);
                client.flush(connection, orders, out);
            }
            Input::Received { connection, chunk } => {
                client.http2.receive(chunk);
                let polled = |it: &mut Http2| it.http2.poll(&mut it.heads).unwrap();
                while let Some((number, arrival)) = polled(&mut client) {
                    client.on_arrival(number, arrival);
                }
                client.flush(connection, orders, Out::new());
            }
            Input::Sent { .. } => client.http2.sent(0),
            Input::Ended { connection } => {
                client.number = None;
                client.flush(connection, orders, Out::new());
            }
            _ => {}
        },
    )
}

impl Http2 {
    fn ask(&mut self, asks: Asks, out: &mut Out) {
        let head = match asks {
            Asks::Connect => Head::request(b"CONNECT", b"", b"app.test:443", b""),
            Asks::WebSocket => {
                let mut head = Head::request(b"GET", b"http", b"app.test", b"/");
                head.set(Name::Upgrade, b"websocket");
                head
            }
        };
        let number = self.http2.open().unwrap();
        self.number = Some(number);
        self.http2.send_head(number, &head, false, out);
        self.open = self.plot == Plot::Ahead;
    }

    fn on_arrival(&mut self, number: u32, arrival: Arrival) {
        let mut got = self.got.borrow_mut();
        let is_over = match arrival {
            Arrival::Part(Event::Head { head, end }) => {
                got.head = head.status().to_string();
                self.open |= head.status() < 300;
                end
            }
            Arrival::Part(Event::Data(data)) => {
                got.bytes.extend_from_slice(&data);
                self.http2.consumed(number);
                if self.plot == Plot::Cuts {
                    got.cut = true;
                    self.http2.reset(number, Code::CANCEL);
                }
                got.cut
            }
            Arrival::Part(Event::End) => {
                got.ended = true;
                true
            }
            Arrival::Reset(code) => {
                (got.cut, got.code) = (true, Some(code));
                true
            }
            other => panic!("{other:?}"),
        };
        if is_over {
            self.http2.release(number);
            self.number = None;
        }
    }

    fn flush(&mut self, connection: ConnectionId, orders: &mut Orders<Message>, mut out: Out) {
        if let Some(number) = self.number.filter(|_| self.open) {
            let room = self.http2.writable(number).min(self.up.len());
            self.http2.send_data(number, self.up.split_to(room));
            if self.up.is_empty() && matches!(self.plot, Plot::Ends | Plot::Ahead) {
                self.http2.send_end(number);
            }
        }
        self.http2.flush(&mut out);
        out.drain().for_each(|chunk| orders.send(connection, chunk));
        if self.number.is_none() && !std::mem::replace(&mut self.closed, true) {
            orders.close(connection, Close::Flush);
        }
    }
}
