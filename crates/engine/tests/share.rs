//! What a worker does with the bytes of one round, event by event: a connection has its share, and what else was
//! received waits for the next turn.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;
#[path = "scene/secure.rs"]
mod secure;

use std::sync::Arc;

use bytes::Bytes;
use scene::{HTTP, Plan, address};
use secure::Certificates;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::stats::{Query, Registry};
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::tls::{Clock, ServerName};
use towpath_proto::{
    Close, ConnectionId, Failure, Input, Instant, ListenerId, Machine, Output, ReadInterest,
};

const NOW: Instant = Instant::from_nanos(1_000_000);
const CLIENT: ConnectionId = ConnectionId::new(0, 1);
const ORIGIN: ConnectionId = ConnectionId::new(1, 1);
const COUNT: usize = 10_000;
/// Bytes of one event in a round at most, with room for the head's own.
const SHARE: usize = 1100 * TINY.len();
const TINY: &[u8] = b"1\r\nx\r\n";

#[test]
fn the_smallest_chunks_of_a_body_leave_time_for_others() {
    let mut half = Half::new();
    half.client_says(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".to_vec());
    let head = half.take(ORIGIN).len();
    assert!(head > 0);
    half.client_says([&TINY.repeat(COUNT)[..], b"0\r\n\r\n"].concat());
    let mut all = half.take(ORIGIN);
    assert!(all.len() <= SHARE, "{} bytes of chunks in the first round", all.len());
    let mut rounds = 1;
    while half.goes_on() {
        assert_eq!(half.reading, ReadInterest::Off, "no more is read meanwhile");
        half.give(Input::Timeout);
        let now = half.take(ORIGIN);
        assert!(now.len() <= SHARE, "{} bytes of chunks in a round", now.len());
        all.extend(now);
        rounds += 1;
    }
    assert!(rounds > 8, "{rounds} rounds");
    assert_eq!(half.reading, ReadInterest::On);
    assert_eq!(half.flow_control(), [""; 0]);
    assert!(all == [&TINY.repeat(COUNT)[..], b"0\r\n\r\n"].concat(), "{} bytes", all.len());
}

#[test]
fn what_waits_for_its_turn_comes_before_the_connections_end() {
    let mut half = Half::new();
    half.client_says(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec());
    half.take(ORIGIN);
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = [&head[..], &TINY.repeat(COUNT)[..]].concat();
    half.give(Input::Received { connection: ORIGIN, chunk: answer.into() });
    assert!(half.goes_on());
    half.give(Input::Closed { connection: ORIGIN, failure: Failure::Reset });
    let all = half.take(CLIENT);
    assert!(all.ends_with(&TINY.repeat(COUNT)), "{} bytes", all.len());
    assert_eq!(half.closed, Some(Close::FlushReset), "and the client sees the reset behind them");
}

#[test]
fn handshakes_of_many_clients_have_a_share_of_each_round() {
    const CLIENTS: u32 = 40;
    let certificates = Certificates::new();
    let upstream = certificates.upstream("app.test").template.unwrap();
    let client = upstream.client(&Clock::default());
    let hello = || client.connect(&ServerName::new("app.test").unwrap()).unwrap().take_output();
    let mut plan = Plan::new(1);
    plan.tls = Some(certificates.downstream(&[]));
    let mut half = Half::of(plan);
    let of = |number: u32| ConnectionId::new(number, 1);
    let mut inputs = Vec::new();
    for connection in (10..10 + CLIENTS).map(of) {
        half.accept(connection);
        // In two pieces, which stay in order.
        let mut first = Bytes::from(hello());
        let second = first.split_off(20);
        inputs.extend([first, second].map(|chunk| Input::Received { connection, chunk }));
    }
    // One that does not wait for its answer.
    let gone = of(5 + CLIENTS);
    half.sent.clear();
    half.give_all(inputs);
    let mut answered = half.answered();
    assert_eq!(answered.len(), 4, "of eight pieces");
    half.give(Input::Closed { connection: gone, failure: Failure::Reset });
    let mut rounds = 1;
    while half.goes_on() {
        half.give(Input::Timeout);
        let more = half.answered();
        assert!((1..=8).contains(&more.len()), "{} in a round", more.len());
        answered.extend(more);
        rounds += 1;
    }
    let expected: Vec<_> = (10..10 + CLIENTS).map(of).filter(|it| *it != gone).collect();
    assert_eq!(answered, expected, "in the order in which they came");
    assert!(rounds >= 10, "{rounds} rounds");
    assert_eq!(half.flow_control(), [""; 0]);
}

#[test]
fn a_handshake_that_was_put_off_is_not_overtaken() {
    let certificates = Certificates::new();
    let upstream = certificates.upstream("app.test").template.unwrap();
    let client = upstream.client(&Clock::default());
    let hello = || client.connect(&ServerName::new("app.test").unwrap()).unwrap().take_output();
    let mut plan = Plan::new(1);
    plan.tls = Some(certificates.downstream(&[]));
    let mut half = Half::of(plan);
    let of = |number: u32| ConnectionId::new(number, 1);
    let arrive = |half: &mut Half, numbers: std::ops::Range<u32>| -> Vec<Input<Message>> {
        let connections = numbers.map(of);
        let inputs = connections.map(|connection| {
            half.accept(connection);
            Input::Received { connection, chunk: hello().into() }
        });
        inputs.collect()
    };
    let first = arrive(&mut half, 10..20);
    let mut second = arrive(&mut half, 20..30);
    half.sent.clear();
    half.give_all(first);
    assert_eq!(half.answered(), (10..18).map(of).collect::<Vec<_>>());
    second.push(Input::Timeout);
    half.give_all(second);
    assert_eq!(half.answered(), (18..26).map(of).collect::<Vec<_>>(), "in the order of arrival");
    half.give(Input::Timeout);
    assert_eq!(half.answered(), (26..30).map(of).collect::<Vec<_>>());
    assert!(!half.goes_on());
}

#[test]
fn what_is_expected_and_not_known_is_passed_on() {
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nexpect: ";
    let twice = "100-continue\r\nexpect: 100-continue";
    for (expected, is_promised) in
        [("100-Continue", true), ("foo", false), ("100-continue, foo", false), (twice, false)]
    {
        let mut half = Half::new();
        half.client_says(format!("{post}{expected}\r\n\r\n").into_bytes());
        let said = half.take(CLIENT);
        assert_eq!(said.starts_with(b"HTTP/1.1 100 "), is_promised, "{}", said.escape_ascii());
        assert_eq!(said.is_empty(), !is_promised, "{}", said.escape_ascii());
        let asked = half.take(ORIGIN);
        let passed = format!("expect: {expected}\r\n");
        assert_eq!(asked.windows(passed.len()).any(|it| it == passed.as_bytes()), !is_promised);
    }
}

/// A worker with a client, and one connection to an origin.
struct Half {
    worker: Worker,
    registry: Arc<Registry>,
    sent: Vec<(ConnectionId, Bytes)>,
    /// What the client's connection was last told.
    reading: ReadInterest,
    closed: Option<Close>,
    waits_for: Option<Instant>,
}

impl Half {
    fn new() -> Self {
        let mut half = Self::of(Plan::new(1));
        half.accept(CLIENT);
        half
    }

    fn of(plan: Plan) -> Self {
        let registry = Arc::new(Registry::default());
        let worker = Worker::new(WorkerOptions {
            index: 0,
            workers: 1,
            seed: 7,
            registry: Arc::clone(&registry),
            hostname: "here".into(),
        });
        let (sent, reading, closed, waits_for) = (Vec::new(), ReadInterest::On, None, None);
        let mut half = Self { worker, registry, sent, reading, closed, waits_for };
        let snapshot = plan.snapshot().into();
        half.give(Input::Message(Message::To(ToWorker::Snapshot(snapshot))));
        half
    }

    fn accept(&mut self, connection: ConnectionId) {
        let peer = address(([10, 0, 9, 9], 999));
        let (listener, local) = (ListenerId(0), address(HTTP));
        self.give(Input::Accepted { listener, connection, local, peer, original: None });
    }

    /// The counters of reading that was stopped because something could not go out.
    fn flow_control(&self) -> Vec<String> {
        let text: String = self.registry.read().text(Query::default()).collect();
        let lines = text.lines().filter(|line| line.contains("flow_control"));
        lines.filter(|line| !line.ends_with(": 0")).map(str::to_owned).collect()
    }

    /// Which connections something was sent on.
    fn answered(&mut self) -> Vec<ConnectionId> {
        let mut all: Vec<_> = self.sent.drain(..).map(|(connection, _)| connection).collect();
        all.dedup();
        all
    }

    fn client_says(&mut self, bytes: Vec<u8>) {
        self.give(Input::Received { connection: CLIENT, chunk: bytes.into() });
    }

    /// One round.
    fn give(&mut self, input: Input<Message>) {
        self.give_all(vec![input]);
    }

    /// The same, in which several things happen.
    fn give_all(&mut self, inputs: Vec<Input<Message>>) {
        inputs.into_iter().for_each(|input| self.worker.handle(input, NOW));
        self.waits_for = loop {
            match self.worker.poll(NOW) {
                Output::Wait(deadline) => break Some(deadline),
                Output::Idle => break None,
                Output::Send { connection, chunk } => self.sent.push((connection, chunk)),
                Output::ReadInterest { connection: CLIENT, interest } => self.reading = interest,
                Output::Close { connection: CLIENT, how } => self.closed = Some(how),
                Output::Listen { listener, address, .. } => {
                    self.worker.handle(Input::Listening { listener, outcome: Ok(address) }, NOW);
                }
                Output::Connect { attempt, .. } => {
                    let local = address(([10, 0, 0, 1], 40_000));
                    let connected = Input::Connected { attempt, connection: ORIGIN, local };
                    self.worker.handle(connected, NOW);
                }
                Output::Unlisten { .. }
                | Output::Hold { .. }
                | Output::CancelConnect { .. }
                | Output::Push { .. }
                | Output::ReadInterest { .. }
                | Output::ReadLimit { .. }
                | Output::Close { .. }
                | Output::Resolve { .. }
                | Output::LimitFlow { .. }
                | Output::Inspect { .. }
                | Output::Message(_) => {}
            }
        };
    }

    /// The kernel takes all that was sent on a connection.
    fn take(&mut self, from: ConnectionId) -> Vec<u8> {
        let (taken, rest) = self.sent.drain(..).partition(|&(connection, _)| connection == from);
        let taken: Vec<(ConnectionId, Bytes)> = taken;
        self.sent = rest;
        let bytes: Vec<u8> = taken.iter().flat_map(|(_, chunk)| chunk.to_vec()).collect();
        if !bytes.is_empty() {
            self.worker.handle(Input::Sent { connection: from, bytes: bytes.len() }, NOW);
            let sent = std::mem::take(&mut self.sent);
            self.poll_on();
            self.sent.splice(..0, sent);
        }
        bytes
    }

    /// The round that follows what was sent.
    fn poll_on(&mut self) {
        let connection = ConnectionId::new(99, 1);
        self.give(Input::Sent { connection, bytes: 0 });
    }

    /// Whether the worker wants to go on at once.
    fn goes_on(&self) -> bool {
        self.waits_for == Some(NOW)
    }
}
