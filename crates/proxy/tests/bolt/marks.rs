//! Each answer carries the mark of its own call, while the server behind the proxy is restarted again and again.
//!
//! `cargo xtask marks CALLS` runs it with so many calls; without, it is short.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_proto::Out;
use towpath_proto::bolt::{Decoder, Message, Options, Status, Version};

use crate::common::{PATIENCE, Proxy};

const CLIENTS: u32 = 8;
/// Calls of one client in flight.
const WINDOW: u64 = 64;
const SHORT: u64 = 40_000;

#[test]
fn no_answer_is_lost_or_crossed_while_the_server_is_restarted() {
    let calls = std::env::var("TOWPATH_CALLS").map_or(SHORT, |calls| calls.parse().unwrap());
    let origin = Origin::start();
    let proxy = Proxy::start(&crate::bootstrap(origin.address), &["--concurrency", "1"]);
    let entry: SocketAddr = proxy.listener("ingress").parse().unwrap();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| std::thread::spawn(move || ask(entry, client, calls / u64::from(CLIENTS))))
        .collect();
    let mut tally = HashMap::<Status, u64>::new();
    for client in clients {
        for (status, count) in client.join().unwrap() {
            *tally.entry(status).or_default() += count;
        }
    }
    let restarts = origin.stop();
    let answered: u64 = tally.values().sum();
    println!("{answered} calls over loopback, {restarts} restarts: {tally:?}; 0 lost, 0 crossed");
    assert_eq!(answered, calls / u64::from(CLIENTS) * u64::from(CLIENTS));
    assert!(restarts > 0);
    assert!(tally[&Status::SUCCESS] > 0);
    assert_eq!(proxy.stat("cluster.server.bolt.unasked_answers"), Some(0));
}

/// Makes calls on one connection and reads an answer to each of them.
fn ask(entry: SocketAddr, client: u32, calls: u64) -> HashMap<Status, u64> {
    let mut stream = TcpStream::connect(entry).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut decoder, mut buffer) = (Decoder::new(Options::default()), vec![0; 64 * 1024]);
    let mut tally = HashMap::new();
    let mut waiting = HashMap::new();
    // Numbers begin again soon, and are those of all clients.
    let (mut number, mut sent) = (u32::MAX - 1000, 0);
    while sent < calls {
        let mut out = Out::new();
        for _ in 0..WINDOW.min(calls - sent) {
            let message = Message {
                content: mark(client, sent).into(),
                checksum: true,
                ..Message::request(Version::V2 { checksums: sent % 2 == 0 }, number)
            };
            message.write(&mut out).unwrap();
            assert!(waiting.insert(number, sent).is_none());
            (number, sent) = (number.wrapping_add(1), sent + 1);
        }
        for piece in out.drain() {
            stream.write_all(&piece).unwrap();
        }
        while !waiting.is_empty() {
            let count = stream.read(&mut buffer).expect("an answer, in time");
            assert!(count > 0, "the proxy ended the connection: {} are lost", waiting.len());
            decoder.receive(buffer[..count].to_vec().into());
            while let Some(frame) = decoder.poll().unwrap() {
                let call = waiting.remove(&frame.id()).expect("an answer to a call, once");
                let status = frame.status().unwrap();
                if status == Status::SUCCESS {
                    assert_eq!(frame.content()[..], mark(client, call), "crossed");
                }
                *tally.entry(status).or_default() += 1;
            }
        }
    }
    tally
}

/// No other call has the same.
fn mark(client: u32, call: u64) -> Vec<u8> {
    let filler = usize::try_from(call * 31 % 200).unwrap();
    let mut mark = format!("{client}/{call}|").into_bytes();
    mark.extend(std::iter::repeat_n(b'x', filler));
    mark
}

/// A server that gives back what it is given, and ends every now and then with all its connections.
struct Origin {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Origin {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let (mut listener, mut restarts) = (Some(listener), 0);
            while !over.load(Ordering::Relaxed) {
                let listener = listener.take().unwrap_or_else(|| bind(address));
                live(&listener);
                restarts += 1;
            }
            restarts
        });
        Self { address, is_over, thread }
    }

    /// How often it was restarted.
    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn bind(address: SocketAddr) -> TcpListener {
    loop {
        if let Ok(listener) = TcpListener::bind(address) {
            return listener;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One life: accepts for a while, then cuts everything off in the middle.
fn live(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    let streams = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..LIFE_MS {
            if let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(false).unwrap();
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                scope.spawn(move || serve(stream));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for stream in streams.lock().unwrap().drain(..) {
            // It may be gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
}

/// Answers each call with its own content, the last of a read first.
fn serve(mut stream: TcpStream) {
    let (mut decoder, mut buffer) = (Decoder::new(Options::default()), vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        decoder.receive(buffer[..count].to_vec().into());
        let mut frames = Vec::new();
        while let Some(frame) = decoder.poll().unwrap() {
            frames.push(frame);
        }
        let mut out = Out::new();
        for frame in frames.iter().rev() {
            let message = Message {
                content: frame.content(),
                command: frame.command(),
                checksum: frame.has_checksum(),
                ..Message::response(frame.version(), frame.id(), Status::SUCCESS)
            };
            message.write(&mut out).unwrap();
        }
        if out.drain().any(|piece| stream.write_all(&piece).is_err()) {
            return;
        }
    }
}

const LIFE_MS: u32 = 200;
