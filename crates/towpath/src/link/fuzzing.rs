//! A link whose server says and does anything: each request ends once, whatever comes is answered within bounds, and
//! time goes on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::client::timeouts::Network;
use towpath_engine::local::message::NetworkChange;
use towpath_proto::bolt::{Kind, Message, Status, Version};
use towpath_proto::{Address, AttemptId, ConnectionId, Failure, Input, Instant, Machine, Output};

use super::Settings;
use super::wire::{Event, LinkMessage, Order, Wire};

/// One step a byte, its kind in the lower three bits.
pub(crate) fn check(mut bytes: &[u8]) {
    let mut scene = Scene::new();
    while let Some((&step, rest)) = bytes.split_first() {
        bytes = rest;
        let count = usize::from(step >> 3);
        match step & 7 {
            0 => scene.ask(count),
            1 => scene.pass(Duration::from_millis(125) * (1 << (count / 2))),
            2 => scene.tell_connection(|connection| Input::Ended { connection }),
            3 => scene.take(),
            4 => scene.tell_connection(|connection| Input::Closed {
                connection,
                failure: Failure::Reset,
            }),
            _ => {
                let (said, left) = bytes.split_at(bytes.len().min(count + 1));
                bytes = left;
                let chunk = Bytes::copy_from_slice(said);
                scene.tell_connection(|connection| Input::Received { connection, chunk });
            }
        }
    }
    scene.end();
}

struct Scene {
    wire: Wire,
    now: Instant,
    connection: Option<ConnectionId>,
    connections: u32,
    /// Bytes that the server has not taken.
    unsent: usize,
    /// Whether each request has ended.
    calls: BTreeMap<u64, bool>,
    inputs: VecDeque<Input<LinkMessage>>,
}

impl Scene {
    fn new() -> Self {
        let settings = Settings { max_bytes: MOST_BYTES, max_frame: 1024, ..Settings::default() };
        let wire = Wire::new(("10.9.9.9".into(), 7000), None, settings, 1);
        let mut scene = Self {
            wire: wire.knowing(Vec::new(), Some(&network(true))),
            now: Instant::ZERO,
            connection: None,
            connections: 0,
            unsent: 0,
            calls: BTreeMap::new(),
            inputs: VecDeque::new(),
        };
        scene.turn();
        scene
    }

    fn ask(&mut self, size: usize) {
        let id = self.calls.len() as u64;
        self.calls.insert(id, false);
        let kind = if size == 0 { Kind::Oneway } else { Kind::Request };
        let content = vec![0; size].into();
        let message = Message { kind, content, ..Message::request(Version::V1, 0) };
        self.order(Order::Call { id, message, timeout: Duration::from_secs(15), waits: true });
    }

    fn order(&mut self, order: Order) {
        self.tell(Input::Message(LinkMessage::Order(order)));
    }

    fn tell_connection(&mut self, input: impl FnOnce(ConnectionId) -> Input<LinkMessage>) {
        if let Some(connection) = self.connection {
            let input = input(connection);
            if let Input::Closed { .. } = input {
                self.connection = None;
            }
            self.tell(input);
        }
    }

    /// The server takes all that was sent.
    fn take(&mut self) {
        let bytes = std::mem::take(&mut self.unsent);
        self.tell_connection(|connection| Input::Sent { connection, bytes });
    }

    fn tell(&mut self, input: Input<LinkMessage>) {
        self.wire.handle(input, self.now);
        self.turn();
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.turn().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.wire.handle(Input::Timeout, self.now);
        }
        self.now = until;
    }

    /// Until it waits; for what.
    fn turn(&mut self) -> Option<Instant> {
        for _ in 0..MOST_OUTPUTS {
            match self.wire.poll(self.now) {
                Output::Idle => return None,
                Output::Wait(at) => {
                    assert!(at > self.now, "it waits for what has passed");
                    return Some(at);
                }
                output => self.on_output(output),
            }
            while let Some(input) = self.inputs.pop_front() {
                self.wire.handle(input, self.now);
            }
        }
        panic!("it never waits");
    }

    fn on_output(&mut self, output: Output<LinkMessage>) {
        match output {
            Output::Connect { attempt, .. } => self.connect(attempt),
            Output::Send { connection, chunk } if self.connection == Some(connection) => {
                self.unsent += chunk.len();
                assert!(self.unsent <= 3 * MOST_BYTES, "{} bytes wait", self.unsent);
            }
            Output::Close { connection, .. } if self.connection == Some(connection) => {
                self.connection = None;
            }
            Output::Message(LinkMessage::Event(event)) => self.on_event(event),
            // Of connections that are gone; and nothing else is asked for.
            _ => {}
        }
    }

    fn connect(&mut self, attempt: AttemptId) {
        self.connections += 1;
        let connection = ConnectionId::new(self.connections, 0);
        (self.connection, self.unsent) = (Some(connection), 0);
        let local = Address::unspecified();
        self.inputs.push_back(Input::Connected { attempt, connection, local });
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Ended { id, result: _ } => {
                let before = self.calls.insert(id, true);
                assert_eq!(before, Some(false), "a request ends once");
            }
            Event::Pushed { connection, frame } => {
                let _ = (frame.class(), frame.headers().map(Iterator::count), frame.content());
                let message = Message::response(frame.version(), frame.id(), Status::SUCCESS);
                let order = Order::Answer { connection, message };
                self.inputs.push_back(Input::Message(LinkMessage::Order(order)));
            }
            Event::Changed(_)
            | Event::Find { .. }
            | Event::Learned(_)
            | Event::Attempted { .. } => {}
        }
    }

    /// Without a network every request has ended after its time.
    fn end(mut self) {
        self.order(Order::Network(network(false)));
        self.pass(Duration::from_secs(60));
        assert!(self.calls.values().all(|ended| *ended), "a request never ends");
        assert_eq!(self.turn(), None, "it wakes up without a network");
    }
}

fn network(online: bool) -> NetworkChange {
    let label = if online { "home" } else { "none" };
    NetworkChange { label: label.into(), kind: Network::Fixed, online, spares_loopback: false }
}

const MOST_BYTES: usize = 1024;
const MOST_OUTPUTS: usize = 10_000;
