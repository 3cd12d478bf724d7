//! A client and a server, joined by pipes that cut as they like, under random operations: what one sends the other
//! gets, in order and whole, or is told that it does not.

use std::collections::HashMap;

use super::*;

/// A small generator, so that a seed is enough to do it all again.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// One message, as its sender remembers it and as its receiver has it so far.
#[derive(Debug, Default, Clone)]
struct Message {
    sent: Vec<u8>,
    got: Vec<u8>,
    head: bool,
    ended: bool,
    trailers: bool,
    got_end: bool,
    got_trailers: bool,
}

#[derive(Debug, Default)]
struct Exchange {
    request: Message,
    response: Message,
    client: Option<u32>,
    server: Option<u32>,
    given_up: bool,
    done: bool,
}

struct Pair {
    client: Connection,
    server: Connection,
    heads: HeadPool,
    /// Towards the server, towards the client.
    wires: [BytesMut; 2],
    exchanges: Vec<Exchange>,
    of_client: HashMap<u32, usize>,
    of_server: HashMap<u32, usize>,
    random: Random,
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (seed * 31 + at * 7) as u8).collect()
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut options = || Options {
            header_table_size: [0, 100, 4096, 10_000][random.below(4)],
            max_concurrent_streams: [1, 3, 100][random.below(3)],
            stream_window: [65_535, 100_000][random.below(2)],
            connection_window: [65_535, 200_000][random.below(2)],
            max_window_updates: 1000,
            max_early_resets: 1 << 20,
            ..Options::default()
        };
        let (client, server) = (Arc::new(options()), Arc::new(options()));
        Self {
            client: Connection::client(client),
            server: Connection::server(server),
            heads: HeadPool::default(),
            wires: Default::default(),
            exchanges: Vec::new(),
            of_client: HashMap::new(),
            of_server: HashMap::new(),
            random,
        }
    }

    fn flush(&mut self) {
        for (at, connection) in [&mut self.client, &mut self.server].into_iter().enumerate() {
            let mut out = Out::new();
            connection.flush(&mut out);
            out.drain().for_each(|piece| self.wires[at].extend_from_slice(&piece));
        }
    }

    /// Some of what is on its way to one end arrives.
    fn carry(&mut self, to_server: bool, all: bool) {
        let wire = &mut self.wires[usize::from(!to_server)];
        let length = if all { wire.len() } else { self.random.below(wire.len() + 1) };
        let piece = wire.split_to(length).freeze();
        let left = self.wires[usize::from(!to_server)].len();
        if piece.is_empty() {
            return;
        }
        let (to, from) = if to_server {
            (&mut self.server, &mut self.client)
        } else {
            (&mut self.client, &mut self.server)
        };
        from.sent(left);
        to.receive(piece);
        loop {
            let connection = if to_server { &mut self.server } else { &mut self.client };
            let polled = connection.poll(&mut self.heads).expect("both keep to the protocol");
            let Some((number, arrival)) = polled else { break };
            if to_server {
                self.on_server(number, arrival)
            } else {
                self.on_client(number, arrival)
            }
        }
    }

    fn on_server(&mut self, number: u32, arrival: Arrival) {
        if let Arrival::Part(Event::Head { head, end }) = &arrival {
            let at: usize =
                std::str::from_utf8(head.get_bytes(b"x-id").unwrap()).unwrap().parse().unwrap();
            assert!(self.of_server.insert(number, at).is_none(), "a number of its own");
            let exchange = &mut self.exchanges[at];
            exchange.server = Some(number);
            exchange.request.got_end = *end;
            return;
        }
        let at = self.of_server[&number];
        let exchange = &mut self.exchanges[at];
        if take(&mut exchange.request, arrival) {
            assert!(exchange.given_up, "{exchange:?}");
            self.leave_server(at);
        } else if self.random.below(3) > 0 {
            self.server.consumed(number);
        }
    }

    fn on_client(&mut self, number: u32, arrival: Arrival) {
        let at = self.of_client[&number];
        let exchange = &mut self.exchanges[at];
        match &arrival {
            Arrival::Part(Event::Head { head, end }) => {
                assert_eq!(head.status(), 200);
                let id = head.get_bytes(b"x-id").unwrap();
                assert_eq!(id, at.to_string().as_bytes(), "its own answer");
                exchange.response.got_end = *end;
                return self.check_client(at);
            }
            Arrival::Refused => {
                // Asked again, as what was not looked at may be.
                assert!(exchange.server.is_none(), "{exchange:?}");
                exchange.done = true;
                return self.leave_client(at);
            }
            Arrival::Part(_) | Arrival::Reset(_) => {}
        }
        if take(&mut exchange.response, arrival) {
            assert!(exchange.given_up, "{exchange:?}");
            exchange.done = true;
            return self.leave_client(at);
        }
        if self.random.below(3) > 0 {
            self.client.consumed(number);
        }
        self.check_client(at);
    }

    fn check_client(&mut self, at: usize) {
        let exchange = &self.exchanges[at];
        if exchange.response.got_end {
            assert_eq!(exchange.response.got, exchange.response.sent);
            assert_eq!(exchange.response.got_trailers, exchange.response.trailers);
            self.exchanges[at].done = true;
            self.leave_client(at);
        }
    }

    fn leave_client(&mut self, at: usize) {
        if let Some(number) = self.exchanges[at].client.take() {
            // What is not all sent is given up by leaving.
            self.exchanges[at].given_up |= !self.exchanges[at].request.ended;
            self.exchanges[at].given_up |= !self.exchanges[at].request.got_end;
            self.client.release(number);
            self.of_client.remove(&number);
        }
    }

    fn leave_server(&mut self, at: usize) {
        if let Some(number) = self.exchanges[at].server.take() {
            self.server.release(number);
            self.of_server.remove(&number);
        }
    }

    fn ask(&mut self) {
        let Some(number) = self.client.open() else { return };
        let at = self.exchanges.len();
        let mut exchange = Exchange { client: Some(number), ..Exchange::default() };
        let mut head = Head::request(b"POST", b"http", b"a.test", b"/");
        head.append_bytes(b"x-id", at.to_string().as_bytes());
        head.append_bytes(b"x-filler", &pattern(at, at % 50).escape_ascii().collect::<Vec<u8>>());
        let end = self.random.below(3) == 0;
        exchange.request.head = true;
        exchange.request.ended = end;
        let mut out = Out::new();
        self.client.send_head(number, &head, end, &mut out);
        out.drain().for_each(|piece| self.wires[0].extend_from_slice(&piece));
        self.of_client.insert(number, at);
        self.exchanges.push(exchange);
    }

    /// Something is done for an exchange, by either end.
    fn advance(&mut self, at: usize, last: bool) {
        let by_client = self.random.below(2) == 0;
        let (size, choice) = (self.random.below(30_000), self.random.below(12));
        let exchange = &mut self.exchanges[at];
        let (connection, message, number, wire) = if by_client {
            (&mut self.client, &mut exchange.request, exchange.client, 0)
        } else {
            (&mut self.server, &mut exchange.response, exchange.server, 1)
        };
        let Some(number) = number else { return };
        let mut out = Out::new();
        if !by_client && !message.head {
            let mut head = Head::response(200);
            head.append_bytes(b"x-id", at.to_string().as_bytes());
            message.head = true;
            message.ended = choice == 0;
            connection.send_head(number, &head, message.ended, &mut out);
        } else if message.ended || last || choice == 0 {
            if !message.ended {
                message.trailers = choice % 2 == 0;
                message.ended = true;
                if message.trailers {
                    let mut trailers = Head::default();
                    trailers.append_bytes(b"x-end", b"1");
                    if at.is_multiple_of(2) {
                        connection.send_trailers(number, &trailers);
                    } else {
                        connection.write_trailers(number, &trailers, &mut out);
                    }
                } else {
                    connection.send_end(number);
                }
            }
        } else if choice == 1 && !last {
            connection.reset(number, Code::CANCEL);
            exchange.given_up = true;
            if by_client {
                self.leave_client(at)
            } else {
                self.leave_server(at)
            }
            return;
        } else if connection.writable(number) > 0 {
            let data = pattern(at + message.sent.len(), size);
            message.sent.extend_from_slice(&data);
            connection.send_data(number, data.into());
        }
        out.drain().for_each(|piece| self.wires[wire].extend_from_slice(&piece));
        if !by_client && self.exchanges[at].response.ended {
            // A server may leave before the request is whole.
            let whole = self.exchanges[at].request.got_end;
            if whole || last || choice == 2 {
                self.exchanges[at].given_up |= !whole;
                self.leave_server(at);
            }
        }
    }

    fn open(&mut self) {
        let numbers = |of: &HashMap<u32, usize>| of.keys().copied().collect::<Vec<u32>>();
        for number in numbers(&self.of_client) {
            self.client.consumed(number);
        }
        for number in numbers(&self.of_server) {
            self.server.consumed(number);
        }
    }
}

/// Takes a part of a message; true if there will be no more of it.
fn take(message: &mut Message, arrival: Arrival) -> bool {
    match arrival {
        Arrival::Part(Event::Data(data)) => message.got.extend_from_slice(&data),
        Arrival::Part(Event::Trailers(_)) => {
            (message.got_trailers, message.got_end) = (true, true);
        }
        Arrival::Part(Event::End) => message.got_end = true,
        Arrival::Reset(_) | Arrival::Refused => return true,
        Arrival::Part(Event::Head { .. } | Event::Informational(_)) => panic!("out of place"),
    }
    assert!(message.sent.starts_with(&message.got), "what was sent, in its order");
    if message.got_end {
        assert_eq!(message.got.len(), message.sent.len(), "the whole of it");
        assert_eq!(message.got_trailers, message.trailers);
    }
    false
}

fn run(seed: u64) -> (usize, usize) {
    let mut pair = Pair::new(seed);
    for _ in 0..300 {
        match pair.random.below(8) {
            0 => pair.ask(),
            1 => pair.flush(),
            2 => pair.carry(true, false),
            3 => pair.carry(false, false),
            4 => pair.open(),
            _ if pair.exchanges.is_empty() => {}
            _ => {
                let newest = pair.exchanges.len();
                let at = newest - 1 - pair.random.below(newest.min(8));
                pair.advance(at, false);
            }
        }
    }
    // Everything is brought to its end: no window holds up anything for good.
    for _ in 0..400 {
        for at in 0..pair.exchanges.len() {
            pair.advance(at, true);
        }
        pair.open();
        pair.flush();
        pair.carry(true, true);
        pair.carry(false, true);
    }
    let unfinished: Vec<&Exchange> =
        pair.exchanges.iter().filter(|it| !it.done && !it.given_up).collect();
    assert!(unfinished.is_empty(), "seed {seed}: {unfinished:?}");
    assert_eq!((pair.client.streams(), pair.server.streams()), (0, 0), "seed {seed}");
    let whole = pair.exchanges.iter().filter(|it| it.response.got_end).count();
    (pair.exchanges.len(), whole)
}

#[test]
fn what_one_end_sends_the_other_gets() {
    let (mut all, mut whole) = (0, 0);
    for seed in 0..4000 {
        let (asked, answered) = run(seed);
        all += asked;
        whole += answered;
    }
    assert!(all > 30_000 && whole > all / 3, "{whole} of {all}");
}
