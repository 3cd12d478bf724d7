//! A puppet on a driver, with what most stories begin with.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{
    Address, AttemptId, Close, ConnectOptions, ConnectionId, Failure, Input, ListenOptions,
    ListenerId, Machine, Output, ReadInterest,
};

use super::puppet::{Puppet, Strings, Wire};
use super::{Runner, Running, Settings};

/// The puppet and its strings.
pub struct Scene {
    pub strings: Strings,
    pub running: Running<Wire>,
}

pub const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough for what must not happen to have happened.
pub const QUIET: Duration = Duration::from_millis(150);

impl Scene {
    pub fn new<R: Runner>() -> Self {
        Self::with::<R>(Settings::default())
    }

    pub fn with<R: Runner>(settings: Settings) -> Self {
        let (mailbox, told) = Strings::mailbox();
        let running = R::start(Puppet::default, settings, mailbox);
        Self { strings: Strings::new(running.handle.clone(), told), running }
    }

    pub fn order(&self, output: Output<()>) {
        self.strings.order(output);
    }

    pub fn told(&self) -> Input<()> {
        self.strings.told()
    }

    /// Nothing is told for a while.
    pub fn quiet(&self) {
        let told = self.strings.told_within(QUIET);
        assert!(told.is_none(), "{told:?}");
    }

    /// The next thing told that is not `Sent`.
    pub fn told_beside_sent(&self) -> Input<()> {
        loop {
            match self.told() {
                Input::Sent { .. } => {}
                other => return other,
            }
        }
    }

    pub fn listen_as(
        &self,
        listener: u32,
        address: Address,
        options: ListenOptions,
    ) -> Result<Address, Failure> {
        let listener = ListenerId(listener);
        self.order(Output::Listen { listener, address, options: Arc::new(options) });
        match self.told() {
            Input::Listening { listener: of, outcome } if of == listener => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// Listens on a port of the loopback address.
    pub fn listen(&self) -> SocketAddr {
        let bound = self.listen_as(0, loopback(0), ListenOptions::default()).unwrap();
        bound.ip().unwrap()
    }

    /// A connection to the puppet: our end, and its id for its own.
    pub fn accept(&self, address: SocketAddr) -> (TcpStream, ConnectionId) {
        let stream = connect(address);
        match self.told() {
            Input::Accepted { connection, peer, .. } => {
                assert_eq!(peer.ip(), Some(stream.local_addr().unwrap()));
                (stream, connection)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn pair(&self) -> (TcpStream, ConnectionId) {
        self.accept(self.listen())
    }

    pub fn send(&self, connection: ConnectionId, bytes: impl Into<Bytes>) {
        self.order(Output::Send { connection, chunk: bytes.into() });
    }

    pub fn close(&self, connection: ConnectionId, how: Close) {
        self.order(Output::Close { connection, how });
    }

    pub fn read(&self, connection: ConnectionId, interest: ReadInterest) {
        self.order(Output::ReadInterest { connection, interest });
    }

    /// Returns when the driver knows.
    pub fn stop_reading(&self, connection: ConnectionId) {
        self.read(connection, ReadInterest::Off);
        self.order(Output::Wait(towpath_proto::Instant::ZERO));
        assert!(matches!(self.told_beside_sent(), Input::Timeout));
    }

    pub fn connect(&self, attempt: u64, address: Address, options: ConnectOptions) {
        let attempt = AttemptId(attempt);
        self.order(Output::Connect { attempt, address, options: Arc::new(options) });
    }

    pub fn cancel(&self, attempt: u64) {
        self.order(Output::CancelConnect { attempt: AttemptId(attempt) });
    }

    /// Exactly these bytes are received, in however many pieces.
    pub fn expect_bytes(&self, from: ConnectionId, expected: &[u8]) {
        let mut received = Vec::new();
        while received.len() < expected.len() {
            match self.told_beside_sent() {
                Input::Received { connection, chunk } if connection == from => {
                    received.extend_from_slice(&chunk);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(received == expected, "the bytes differ");
    }

    pub fn expect_ended(&self, of: ConnectionId) {
        match self.told_beside_sent() {
            Input::Ended { connection } => assert_eq!(connection, of),
            other => panic!("{other:?}"),
        }
    }

    pub fn expect_closed(&self, of: ConnectionId) -> Failure {
        match self.told_beside_sent() {
            Input::Closed { connection, failure } => {
                assert_eq!(connection, of);
                failure
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Sends everything back and closes after the peer.
pub struct Echo {
    address: Address,
    options: Arc<ListenOptions>,
    outputs: std::collections::VecDeque<Output<Address>>,
    started: bool,
}

impl Echo {
    pub fn new(address: Address) -> Self {
        let options = Arc::default();
        Self { address, options, outputs: std::collections::VecDeque::new(), started: false }
    }
}

impl Machine for Echo {
    type Message = Address;

    fn handle(&mut self, input: Input<Address>, _now: towpath_proto::Instant) {
        let output = match input {
            Input::Listening { outcome, .. } => Output::Message(outcome.unwrap()),
            Input::Received { connection, chunk } => Output::Send { connection, chunk },
            Input::Ended { connection } => Output::Close { connection, how: Close::Flush },
            _ => return,
        };
        self.outputs.push_back(output);
    }

    fn poll(&mut self, _now: towpath_proto::Instant) -> Output<Address> {
        if !self.started {
            self.started = true;
            let (address, options) = (self.address.clone(), Arc::clone(&self.options));
            return Output::Listen { listener: ListenerId(0), address, options };
        }
        self.outputs.pop_front().unwrap_or(Output::Idle)
    }
}

/// A running echo and where it listens.
pub fn echo<R: Runner>(address: Address, settings: Settings) -> (Running<Address>, Address) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let running = R::start(
        move || Echo::new(address),
        settings,
        move |bound| {
            let _ = sender.send(bound);
        },
    );
    let bound = receiver.recv_timeout(PATIENCE).unwrap();
    (running, bound)
}

pub fn loopback(port: u16) -> Address {
    Address::Ip(([127, 0, 0, 1], port).into())
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn connect_unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Says something and hears it back.
pub fn say(stream: &mut (impl Read + Write), words: &[u8]) {
    stream.write_all(words).unwrap();
    let mut back = vec![0; words.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == words, "the echo differs");
}

pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A path for a socket, with nothing there.
pub fn socket_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("towpath-{}-{name}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}
