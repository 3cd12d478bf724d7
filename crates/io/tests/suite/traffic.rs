//! Bytes: whole, in order, fairly, and in bounded memory.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_proto::{
    Address, FlowLimit, Input, ListenOptions, ListenerId, Machine, Output, ReadInterest,
};

use super::forward::{Forward, WATERMARK};
use super::scene::{
    PATIENCE, Scene, connect, connect_unix, echo, loopback, pattern, say, socket_path,
};
use super::{Runner, Settings};

pub fn an_echo_returns_what_was_sent<R: Runner>() {
    let (_running, bound) = echo::<R>(loopback(0), Settings::default());
    let mut stream = connect(bound.ip().unwrap());
    for length in [1, 100, 4095, 4096, 16_384, 16_385, 100_000] {
        say(&mut stream, &pattern(length));
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

pub fn an_echo_over_ipv6<R: Runner>() {
    let any = Address::Ip((std::net::Ipv6Addr::LOCALHOST, 0).into());
    let (_running, bound) = echo::<R>(any, Settings::default());
    say(&mut connect(bound.ip().unwrap()), b"over six");
}

pub fn an_echo_over_a_unix_socket<R: Runner>() {
    let path = socket_path("echo");
    let address = Address::Unix(Arc::from(&*path));
    let (running, bound) = echo::<R>(address.clone(), Settings::default());
    assert_eq!(bound, address);
    say(&mut connect_unix(&path), &pattern(1_000_000)[..200_000]);
    drop(running);
    assert!(!path.exists());
}

pub fn an_echo_in_the_abstract_namespace<R: Runner>() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    let name = format!("towpath-{}-abstract", std::process::id());
    let address = Address::Unix(Arc::from(std::path::Path::new(&format!("@{name}"))));
    let (_running, bound) = echo::<R>(address.clone(), Settings::default());
    assert_eq!(bound, address);
    let there = SocketAddr::from_abstract_name(name).unwrap();
    say(&mut UnixStream::connect_addr(&there).unwrap(), b"no file anywhere");
}

pub fn many_connections_at_once<R: Runner>() {
    let (running, bound) = echo::<R>(loopback(0), Settings::default());
    let mut streams: Vec<TcpStream> = (0..600).map(|_| connect(bound.ip().unwrap())).collect();
    for round in 0..5_u8 {
        for stream in &mut streams {
            stream.write_all(&[round; 300]).unwrap();
        }
        for stream in &mut streams {
            let mut back = [0; 300];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, [round; 300]);
        }
    }
    assert_eq!(running.handle.counters().accepts.value(), 600);
    drop(streams);
    let end = Instant::now() + PATIENCE;
    while running.handle.counters().closes.value() < 600 {
        assert!(Instant::now() < end);
        thread::yield_now();
    }
}

/// Answers each thing received with many chunks.
struct Burst {
    outputs: VecDeque<Output<Address>>,
    chunks: u32,
    /// Each chunk is pushed.
    pushes: bool,
}

impl Machine for Burst {
    type Message = Address;

    fn handle(&mut self, input: Input<Address>, _now: towpath_proto::Instant) {
        match input {
            Input::Listening { outcome, .. } => {
                self.outputs.push_back(Output::Message(outcome.unwrap()));
            }
            Input::Received { connection, .. } => {
                for n in 0..self.chunks {
                    let chunk = Bytes::copy_from_slice(&n.to_be_bytes());
                    self.outputs.push_back(Output::Send { connection, chunk });
                    if self.pushes {
                        self.outputs.push_back(Output::Push { connection });
                    }
                }
            }
            _ => {}
        }
    }

    fn poll(&mut self, _now: towpath_proto::Instant) -> Output<Address> {
        self.outputs.pop_front().unwrap_or(Output::Idle)
    }
}

pub fn many_chunks_leave_in_few_writes<R: Runner>() {
    let writes = writes_for::<R>(1000, false);
    assert!(writes <= 1000_u64.div_ceil(64), "{writes} writes for 1000 chunks");
}

pub fn what_is_pushed_leaves_by_itself<R: Runner>() {
    assert_eq!(writes_for::<R>(10, true), 10);
}

/// How many writes a number of chunks took; they arrive in order.
fn writes_for<R: Runner>(chunks: u32, pushes: bool) -> u64 {
    let (sender, receiver) = channel();
    let listen = Output::Listen {
        listener: ListenerId(0),
        address: loopback(0),
        options: Arc::new(ListenOptions::default()),
    };
    let burst = move || Burst { outputs: VecDeque::from([listen]), chunks, pushes };
    let running = R::start(burst, Settings::default(), move |bound| sender.send(bound).unwrap());
    let bound = receiver.recv_timeout(PATIENCE).unwrap();
    let mut stream = connect(bound.ip().unwrap());
    stream.write_all(b"go").unwrap();
    let expected: Vec<u8> = (0..chunks).flat_map(u32::to_be_bytes).collect();
    let mut all = vec![0; expected.len()];
    stream.read_exact(&mut all).unwrap();
    assert!(all == expected);
    running.handle.counters().writes.value()
}

pub fn what_is_not_read_stays_with_the_peer<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    scene.read(connection, ReadInterest::Off);
    scene.quiet();
    stream.set_nonblocking(true).unwrap();
    let words = pattern(64 * 1024 * 1024);
    let mut taken = 0;
    let mut stuck = Instant::now();
    while stuck.elapsed() < Duration::from_millis(300) {
        match stream.write(&words[taken..]) {
            Ok(bytes) => {
                taken += bytes;
                stuck = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(taken < words.len(), "the window never closed");
    }
    scene.quiet();
    scene.read(connection, ReadInterest::On);
    stream.set_nonblocking(false).unwrap();
    scene.expect_bytes(connection, &words[..taken]);
    stream.write_all(b"and on").unwrap();
    scene.expect_bytes(connection, b"and on");
}

pub fn what_arrived_while_not_read_comes_when_it_is<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    for _ in 0..20 {
        scene.stop_reading(connection);
        stream.write_all(b"once").unwrap();
        thread::sleep(Duration::from_millis(2));
        scene.read(connection, ReadInterest::On);
        scene.expect_bytes(connection, b"once");
    }
    scene.stop_reading(connection);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    scene.quiet();
    scene.read(connection, ReadInterest::On);
    scene.expect_ended(connection);
}

pub fn sent_counts_every_byte_the_kernel_took<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    let words = Bytes::from(pattern(32 * 1024 * 1024));
    scene.send(connection, words.clone());
    let mut sent = 0;
    while let Some(told) = scene.strings.told_within(Duration::from_millis(300)) {
        match told {
            Input::Sent { bytes, .. } => sent += bytes,
            other => panic!("{other:?}"),
        }
    }
    assert!(sent > 0 && sent < words.len(), "{sent} went to a peer that does not read");
    let reader = thread::spawn(move || {
        let mut all = vec![0; 32 * 1024 * 1024];
        stream.read_exact(&mut all).unwrap();
        all
    });
    while sent < words.len() {
        match scene.told() {
            Input::Sent { bytes, .. } => sent += bytes,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sent, words.len());
    assert!(reader.join().unwrap() == words);
}

/// Bounds what it reads at once, and tells how much came between two polls.
struct Sipping {
    outputs: VecDeque<Output<Sip>>,
    limit: usize,
    unpolled: usize,
}

#[derive(Debug)]
enum Sip {
    Bound(Address),
    Took(usize),
}

impl Machine for Sipping {
    type Message = Sip;

    fn handle(&mut self, input: Input<Sip>, _now: towpath_proto::Instant) {
        match input {
            Input::Listening { outcome, .. } => {
                self.outputs.push_back(Output::Message(Sip::Bound(outcome.unwrap())));
            }
            Input::Accepted { connection, .. } => {
                let (bytes, grows) = (self.limit, false);
                self.outputs.push_back(Output::ReadLimit { connection, bytes, grows });
            }
            Input::Received { chunk, .. } => self.unpolled += chunk.len(),
            _ => {}
        }
    }

    fn poll(&mut self, _now: towpath_proto::Instant) -> Output<Sip> {
        if self.unpolled > 0 {
            return Output::Message(Sip::Took(std::mem::take(&mut self.unpolled)));
        }
        self.outputs.pop_front().unwrap_or(Output::Idle)
    }
}

pub fn no_more_than_the_read_limit_comes_between_two_polls<R: Runner>() {
    const ALL: usize = 1 << 20;
    for (limit, most) in [(1, 4096), (5000, 5000), (16_384, 16_384), (100_000, 100_000)] {
        let (sender, receiver) = channel();
        let listen = Output::Listen {
            listener: ListenerId(0),
            address: loopback(0),
            options: Arc::new(ListenOptions::default()),
        };
        let make = move || Sipping { outputs: VecDeque::from([listen]), limit, unpolled: 0 };
        let _running = R::start(make, Settings::default(), move |said| sender.send(said).unwrap());
        let said = || receiver.recv_timeout(PATIENCE).unwrap();
        let Sip::Bound(bound) = said() else { panic!("not bound") };
        let mut stream = connect(bound.ip().unwrap());
        stream.write_all(b"first").unwrap();
        assert!(matches!(said(), Sip::Took(5)));
        let writing = thread::spawn(move || {
            stream.write_all(&pattern(ALL)).unwrap();
            stream
        });
        let (mut total, mut largest) = (0, 0);
        while total < ALL {
            let Sip::Took(bytes) = said() else { panic!("bound twice") };
            total += bytes;
            largest = largest.max(bytes);
        }
        assert!(largest <= most, "{largest} bytes at once with a limit of {limit}");
        drop(writing.join().unwrap());
    }
}

const GIGABYTE: usize = 1 << 30;

/// Eight bytes at a time that say where they belong.
fn block(number: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|n| (number << 32 | n).to_le_bytes()).collect()
}

const BLOCK: usize = 128 * 1024;

#[cfg(linux)]
pub fn a_bound_on_what_comes_is_kept_and_taken_back<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    let taken = |limit: Option<FlowLimit>| {
        let (mut stream, connection) = scene.accept(address);
        if let Some(limit) = limit {
            scene.order(Output::LimitFlow { connection, limit });
        }
        scene.stop_reading(connection);
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, 4096).unwrap();
        let bytes = push_until_stuck(&mut stream);
        (stream, connection, bytes)
    };
    let (_free, _, usual) = taken(None);
    let (mut stream, connection, bounded) = taken(Some(FlowLimit::Receive(Some(4096))));
    assert!(bounded * 2 < usual, "{bounded} of {usual}");
    scene.order(Output::LimitFlow { connection, limit: FlowLimit::Receive(None) });
    scene.read(connection, ReadInterest::On);
    scene.expect_bytes(connection, &vec![7; bounded]);
    scene.stop_reading(connection);
    let bytes = push_until_stuck(&mut stream);
    assert!(bytes * 3 > usual * 2, "{bytes} of {usual}");
}

/// What a peer takes that reads nothing.
#[cfg(linux)]
fn push_until_stuck(stream: &mut TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (mut bytes, mut tries) = (0, 0);
    while tries < 30 {
        match stream.write(&[7; 1024]) {
            Ok(count) => (bytes, tries) = (bytes + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(10));
                tries += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    bytes
}

/// Linux does not pace the first ten segments, and loopback's are of 64 KiB.
#[cfg(linux)]
pub fn a_bound_on_what_goes_is_kept_and_taken_back<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    let all = vec![7; 3 << 20];
    let mut read = vec![0; all.len()];
    scene.order(Output::LimitFlow { connection, limit: FlowLimit::Send(Some(8 << 20)) });
    let began = Instant::now();
    scene.send(connection, all.clone());
    stream.read_exact(&mut read).unwrap();
    assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
    for rate in [Some(64 << 10), None] {
        scene.order(Output::LimitFlow { connection, limit: FlowLimit::Send(rate) });
    }
    // At that rate it would take four times as long as the test waits.
    let began = Instant::now();
    scene.send(connection, all);
    stream.read_exact(&mut read).unwrap();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

pub fn a_gigabyte_streams_through_in_bounded_memory<R: Runner>() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = Address::Ip(origin.local_addr().unwrap());
    let source = thread::spawn(move || {
        let (mut stream, _) = origin.accept().unwrap();
        // One block, stamped anew each time: cheap to make and to check.
        let mut bytes = block(0);
        for number in 0..GIGABYTE / BLOCK {
            bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
            stream.write_all(&bytes).unwrap();
        }
    });
    let (sender, receiver) = channel();
    let forward = move || Forward::new(loopback(0), upstream);
    let _running = R::start(forward, Settings::default(), move |bound| sender.send(bound).unwrap());
    let bound = receiver.recv_timeout(PATIENCE).unwrap();
    let mut stream = connect(bound.ip().unwrap());
    let mut expected = block(0);
    let mut bytes = vec![0; BLOCK];
    for number in 0..GIGABYTE / BLOCK {
        stream.read_exact(&mut bytes).unwrap();
        expected[..8].copy_from_slice(&(number as u64).to_le_bytes());
        assert!(bytes == expected, "block {number}");
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    source.join().unwrap();
    // The driver may read one budget beyond the watermark before the machine can say stop.
    let resident = resident_bytes();
    assert!(resident < 300 * 1024 * 1024, "{resident} bytes resident, watermark {WATERMARK}");
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

pub fn a_loud_connection_does_not_drown_a_quiet_one<R: Runner>() {
    let (_running, bound) = echo::<R>(loopback(0), Settings::default());
    let address = bound.ip().unwrap();
    let loud = connect(address);
    let mut writer = loud.try_clone().unwrap();
    let shouting = thread::spawn(move || {
        let noise = vec![7; 1 << 20];
        for _ in 0..256 {
            writer.write_all(&noise).unwrap();
        }
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut reader = loud;
    let listening = thread::spawn(move || {
        let mut bytes = vec![0; 1 << 20];
        let mut total = 0;
        loop {
            match reader.read(&mut bytes).unwrap() {
                0 => return total,
                n => total += n,
            }
        }
    });
    let mut quiet = connect(address);
    let mut answers = 0;
    while !shouting.is_finished() {
        say(&mut quiet, b"psst");
        answers += 1;
    }
    shouting.join().unwrap();
    assert_eq!(listening.join().unwrap(), 256 << 20);
    assert!(answers > 4, "{answers} answers while 256 MiB went by");
}
