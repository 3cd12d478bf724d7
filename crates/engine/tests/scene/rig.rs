//! A worker between one client at a time and an origin, driven by hand: each byte arrives when the test says so.

#![allow(dead_code, unreachable_pub, reason = "a part of one test")]

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::message::{Drain, FromWorker, Message, ToWorker};
use towpath_engine::snapshot::{BufferLimit, Snapshot};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::{
    Address, Close, ConnectionId, Input, Instant, ListenerId, Machine, Output, ReadInterest,
};

use super::scene::{Plan, address};
use super::wire::{self, Answers};

/// What the origin answers a request for `/case` with, in place of its own answer.
pub struct Script {
    pub pieces: Vec<Vec<u8>>,
    pub close: bool,
}

/// What came of one client's connection.
#[derive(Clone, Default)]
pub struct Outcome {
    /// Method and target of each whole request at the origin.
    pub requests: Vec<(String, String)>,
    pub received: Vec<u8>,
    /// The worker ended the connection.
    pub ended: bool,
    /// What the origin could not read.
    pub problem: Option<String>,
}

impl Outcome {
    pub fn answers(&self, methods: &[&str]) -> Answers {
        wire::answers(&self.received, methods, true)
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = &self.received[..self.received.len().min(600)];
        write!(f, "{:?}, ended: {}, \"{}\"", self.requests, self.ended, start.escape_ascii())
    }
}

pub struct Rig {
    worker: Worker,
    now: Instant,
    listener: Option<ListenerId>,
    generation: u32,
    client: Option<ConnectionId>,
    unread: HashSet<ConnectionId>,
    /// A client that the kernel has and the worker has not been told of.
    waiting: Option<Input<Message>>,
    /// What the origin has of each connection to it.
    upstream: HashMap<ConnectionId, Vec<u8>>,
    inputs: VecDeque<Input<Message>>,
    outcome: Outcome,
    /// The worker has said that it is drained.
    pub drained: bool,
    pub script: Option<Script>,
    /// What was said of the connections, in their order.
    pub read_limits: Vec<BufferLimit>,
    /// Sockets that are bound, and how often one was given up.
    pub listened: u32,
    pub unlistened: u32,
    /// Clients that connect wait.
    pub is_held: bool,
}

impl Rig {
    pub fn new(plan: Plan) -> Self {
        let options = WorkerOptions {
            index: 0,
            workers: 1,
            seed: 7,
            registry: std::sync::Arc::new(Registry::default()),
            hostname: "here".into(),
        };
        let mut rig = Self {
            worker: Worker::new(options),
            now: Instant::from_nanos(1_000_000),
            listener: None,
            generation: 0,
            client: None,
            unread: HashSet::new(),
            waiting: None,
            upstream: HashMap::new(),
            inputs: VecDeque::new(),
            outcome: Outcome::default(),
            drained: false,
            script: None,
            read_limits: Vec::new(),
            listened: 0,
            unlistened: 0,
            is_held: false,
        };
        let epoch_unix_ns = 1_700_000_000_000_000_000;
        rig.give(Input::Message(Message::To(ToWorker::WallClock { epoch_unix_ns })));
        rig.give(Input::Message(Message::To(ToWorker::Snapshot(plan.snapshot().into()))));
        rig
    }

    /// A client that sends these pieces, and its FIN behind them if `half` says that there is no more.
    pub fn run(&mut self, pieces: &[Vec<u8>], half: bool) -> Outcome {
        self.outcome = Outcome::default();
        let connection = self.connect();
        for piece in pieces {
            if self.client.is_none() {
                break;
            }
            assert!(
                !self.unread.contains(&connection),
                "nothing here is long enough to be held back"
            );
            self.give(Input::Received { connection, chunk: Bytes::copy_from_slice(piece) });
        }
        if half && self.client.is_some() {
            self.give(Input::Ended { connection });
        }
        // A client that is still there is left alone until every deadline that a connection has is over.
        for _ in 0..3 {
            self.wait(Duration::from_secs(2));
        }
        if self.client.take().is_some() {
            let failure = towpath_proto::Failure::Reset;
            self.give(Input::Closed { connection, failure });
        }
        std::mem::take(&mut self.outcome)
    }

    /// Asks something harmless and wants its own answer.
    pub fn canary(&mut self, number: usize) -> Result<(), String> {
        self.script = None;
        let target = format!("/canary/{number}");
        let ask = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let outcome = self.run(&[ask.into_bytes()], false);
        let answers = outcome.answers(&[]);
        match &answers.whole[..] {
            [one] if one.field("x-target") == Some(&target) && answers.rest.is_none() => Ok(()),
            _ => Err(format!("the next client got {outcome:?}")),
        }
    }

    /// A client that has connected and not asked yet.
    pub fn connect(&mut self) -> ConnectionId {
        let (connection, accepted) = self.arrive();
        self.give(accepted);
        connection
    }

    /// A client that has connected when the listener is closed.
    pub fn connect_late(&mut self) -> ConnectionId {
        let (connection, accepted) = self.arrive();
        self.waiting = Some(accepted);
        connection
    }

    fn arrive(&mut self) -> (ConnectionId, Input<Message>) {
        let connection = self.connection();
        self.client = Some(connection);
        let peer = address(([10, 0, 9, 9], 999));
        let (listener, local) = (self.listener.unwrap(), address(super::scene::HTTP));
        (connection, Input::Accepted { listener, connection, local, peer, original: None })
    }

    /// Another configuration.
    pub fn configure(&mut self, snapshot: Snapshot) {
        self.give(Input::Message(Message::To(ToWorker::Snapshot(snapshot.into()))));
    }

    pub fn tell(&mut self, message: ToWorker) {
        self.give(Input::Message(Message::To(message)));
    }

    pub fn drain(&mut self) {
        self.drain_within(None);
    }

    pub fn drain_within(&mut self, deadline: Option<Duration>) {
        let drain = Drain::at_once(deadline);
        self.give(Input::Message(Message::To(ToWorker::Drain(drain))));
        self.give(Input::Timeout);
    }

    pub fn ask(&mut self, connection: ConnectionId, bytes: &'static [u8]) -> Outcome {
        self.give(Input::Received { connection, chunk: Bytes::from_static(bytes) });
        std::mem::take(&mut self.outcome)
    }

    /// What has come of it since that was last asked.
    pub fn take(&mut self) -> Outcome {
        std::mem::take(&mut self.outcome)
    }

    /// Nothing comes for so long.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        self.give(Input::Timeout);
    }

    pub fn end(&mut self, connection: ConnectionId) {
        self.give(Input::Ended { connection });
    }

    fn connection(&mut self) -> ConnectionId {
        self.generation += 1;
        let taken = |slot: u32| {
            let of = |id: &ConnectionId| id.slot() == slot as usize;
            self.client.iter().any(of) || self.upstream.keys().any(of)
        };
        let slot = (0..).find(|&slot| !taken(slot)).unwrap();
        ConnectionId::new(slot, self.generation)
    }

    /// Hands something to the worker, and everything that follows from it.
    fn give(&mut self, input: Input<Message>) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            self.worker.handle(input, self.now);
            loop {
                match self.worker.poll(self.now) {
                    Output::Wait(_) | Output::Idle => break,
                    output => self.obey(output),
                }
            }
        }
    }

    fn obey(&mut self, output: Output<Message>) {
        match output {
            Output::Listen { listener, address, .. } => {
                self.listener.get_or_insert(listener);
                self.listened += 1;
                self.inputs.push_back(Input::Listening { listener, outcome: Ok(address) });
            }
            Output::Connect { attempt, .. } => {
                let connection = self.connection();
                self.upstream.insert(connection, Vec::new());
                let local: Address = address(([10, 0, 0, 1], 40_000));
                self.inputs.push_back(Input::Connected { attempt, connection, local });
            }
            Output::Send { connection, chunk } => self.send(connection, &chunk),
            Output::ReadInterest { connection, interest } => match interest {
                ReadInterest::On => drop(self.unread.remove(&connection)),
                ReadInterest::Off => drop(self.unread.insert(connection)),
            },
            Output::ReadLimit { bytes, grows, .. } => {
                self.read_limits.push(BufferLimit { bytes, grows });
            }
            Output::Close { connection, how } => self.close(connection, how),
            Output::Message(Message::From(FromWorker::Drained)) => self.drained = true,
            Output::Message(_) => {}
            Output::Hold { is_held, .. } => self.is_held = is_held,
            Output::Unlisten { .. } => {
                self.listened -= 1;
                self.unlistened += 1;
                // Who waited in the socket comes after all that was said in the same breath.
                if let Some(input) = self.waiting.take() {
                    self.inputs.push_back(input);
                }
            }
            other => panic!("no machine here can {other:?}"),
        }
    }

    fn send(&mut self, connection: ConnectionId, chunk: &Bytes) {
        self.inputs.push_back(Input::Sent { connection, bytes: chunk.len() });
        if self.client == Some(connection) {
            assert!(!self.outcome.ended, "nothing is sent behind the end");
            return self.outcome.received.extend_from_slice(chunk);
        }
        let Some(bytes) = self.upstream.get_mut(&connection) else {
            return;
        };
        bytes.extend_from_slice(chunk);
        self.serve(connection);
    }

    fn close(&mut self, connection: ConnectionId, how: Close) {
        if self.client == Some(connection) {
            self.outcome.ended = true;
            match how {
                // A client that sees the end ends too.
                Close::Half => self.inputs.push_back(Input::Ended { connection }),
                Close::Flush | Close::FlushReset | Close::Now | Close::Abort => self.client = None,
            }
        } else if how != Close::Half {
            self.upstream.remove(&connection);
        }
    }

    /// The origin: answers each whole request on a connection.
    fn serve(&mut self, connection: ConnectionId) {
        let bytes = std::mem::take(self.upstream.get_mut(&connection).unwrap());
        let mut rest = &bytes[..];
        loop {
            match wire::request(rest) {
                Ok(Some((request, behind))) => {
                    rest = behind;
                    self.answer(connection, &request);
                }
                Ok(None) => break,
                Err(problem) => {
                    self.outcome.problem =
                        Some(format!("{problem} in \"{}\"", rest.escape_ascii()));
                    break;
                }
            }
        }
        let rest = rest.to_vec();
        if let Some(bytes) = self.upstream.get_mut(&connection) {
            *bytes = rest;
        }
    }

    fn answer(&mut self, connection: ConnectionId, request: &wire::Request) {
        self.outcome.requests.push((request.method.clone(), request.target.clone()));
        let mut receive = |piece: &[u8]| {
            let chunk = Bytes::copy_from_slice(piece);
            if !chunk.is_empty() {
                self.inputs.push_back(Input::Received { connection, chunk });
            }
        };
        if request.target == "/case"
            && let Some(script) = self.script.take()
        {
            script.pieces.iter().for_each(|piece| receive(piece));
            if script.close {
                self.inputs.push_back(Input::Ended { connection });
            }
            return;
        }
        let body = if request.method == "HEAD" { "" } else { "ok" };
        let target = &request.target;
        receive(
            format!("HTTP/1.1 200 OK\r\nX-Target: {target}\r\nContent-Length: 2\r\n\r\n{body}")
                .as_bytes(),
        );
    }
}
