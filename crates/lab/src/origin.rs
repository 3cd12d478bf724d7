//! A test server that is cheap and does as it is told.
//!
//! HTTP/1.1 (and 1.0 with keep-alive, as `ab` speaks it): bodies of requests are consumed, pipelined
//! requests are answered in order and in one write, every answer is the same. HTTP/2, on the same port by its preface:
//! each stream has that answer, and one of gRPC a message of as many bytes and its status. TCP: what comes goes back.
//! WebSocket: the same, message by message. Bolt: each request is answered with its own content, cut or filled to the
//! size that is asked for (0: as it is); heartbeats are answered at once. A delay holds each answer back without
//! holding up any other.

mod bolt;
mod http2;
mod onward;
mod peer;
mod request;
mod websocket;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use towpath_proto::tls;

use crate::address::{Address, Target};
use crate::poller::{Interest, Poller, Ready};
use onward::{Next, ONWARD};
use peer::{Due, Peer, Step};

/// What to serve.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Where; port 0 lets the kernel choose.
    pub listen: Address,
    /// In which protocol.
    pub protocol: Protocol,
    /// Bytes in the body of each HTTP answer, or in the content of each Bolt answer, where 0 is as many as in its
    /// request.
    pub size: usize,
    /// How long each answer is held back.
    pub delay: Duration,
    /// How long the processor is kept busy for each request.
    pub work: Duration,
    /// The status of each HTTP answer; Bolt has one of its own that stands for it.
    pub status: u16,
    /// The status of each answer of gRPC: 0 comes behind a message, any other alone.
    pub grpc_status: u8,
    /// Whether answers of status 200 have an entity tag and can be had from any byte on (`Range: bytes=N-`).
    pub has_ranges: bool,
    /// Whom to ask, over HTTP, before each answer: a service in a chain. With several, each client's
    /// questions go to one of them in turn.
    pub next: Vec<Target>,
    /// TLS, if any: a certificate with those that lead to its root, and its key (PEM). ALPN chooses `h2` before
    /// `http/1.1`.
    pub tls: Option<(Vec<u8>, Vec<u8>)>,
}

/// The protocol served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 answers, or HTTP/2 to a client that begins with it.
    Http,
    /// Echo.
    Tcp,
    /// WebSocket: echo of messages.
    WebSocket,
    /// Bolt.
    Bolt,
}

/// A server on a thread of its own; it ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    address: Address,
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    freeze_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Origin {
    /// HTTP with `size` bytes, at once.
    pub fn http(listen: Address, size: usize) -> Self {
        Self {
            listen,
            protocol: Protocol::Http,
            size,
            delay: Duration::ZERO,
            work: Duration::ZERO,
            status: 200,
            grpc_status: 0,
            has_ranges: false,
            next: Vec::new(),
            tls: None,
        }
    }

    /// Bolt with `size` bytes of content, at once.
    pub fn bolt(listen: Address, size: usize) -> Self {
        Self { protocol: Protocol::Bolt, ..Self::http(listen, size) }
    }

    /// Echo of WebSocket messages, at once.
    pub fn websocket(listen: Address) -> Self {
        Self { protocol: Protocol::WebSocket, ..Self::http(listen, 0) }
    }

    /// TCP echo, at once.
    pub fn tcp(listen: Address) -> Self {
        Self { protocol: Protocol::Tcp, ..Self::http(listen, 0) }
    }
}

/// Serves on a thread of its own; when this returns, the address accepts connections.
pub fn spawn(origin: &Origin) -> io::Result<Running> {
    let listener = origin.listen.listen()?;
    let address = origin.listen.of_listener(&listener);
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicU64::new(0));
    let freeze_ns = Arc::new(AtomicU64::new(0));
    let wires = Wires {
        stop: Arc::clone(&stop),
        served: Arc::clone(&served),
        freeze_ns: Arc::clone(&freeze_ns),
    };
    let origin = origin.clone();
    let serve = move || Server::new(&origin, listener, wires)?.run();
    let thread = std::thread::Builder::new().name("origin".to_owned()).spawn(serve)?;
    Ok(Running { address, stop, served, freeze_ns, thread: Some(thread) })
}

/// Serves on the calling thread, for ever; `ready` learns the address.
pub fn serve(origin: &Origin, ready: impl FnOnce(&Address)) -> io::Result<()> {
    let listener = origin.listen.listen()?;
    ready(&origin.listen.of_listener(&listener));
    Server::new(origin, listener, Wires::default())?.run()
}

/// `size` printable bytes.
pub fn filler(size: usize) -> Vec<u8> {
    (0..size).map(|at| b'a' + (at % 26) as u8).collect()
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Requests answered so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Stops the whole server for a while, as a garbage collection or a hypervisor does.
    pub fn freeze(&self, duration: Duration) {
        self.freeze_ns.store(duration.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: OwnedFd,
    is_tcp: bool,
    answers: peer::Answers,
    delay: Duration,
    work: Duration,
    poller: Poller,
    peers: Vec<Option<Peer>>,
    vacant: Vec<u32>,
    generation: u32,
    /// Answers held back; in order, because the delay is the same for all.
    held: VecDeque<Held>,
    scratch: Vec<u8>,
    wires: Wires,
    next: Option<Next>,
    tls: Option<tls::Server>,
}

/// What the server and its owner tell each other.
#[derive(Default)]
struct Wires {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    freeze_ns: Arc<AtomicU64>,
}

struct Held {
    due: Instant,
    index: u32,
    generation: u32,
    answer: Due,
}

impl Server {
    fn new(origin: &Origin, listener: OwnedFd, wires: Wires) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        Ok(Self {
            is_tcp: matches!(origin.listen, Address::Tcp(_)),
            listener,
            answers: peer::Answers::new(origin),
            delay: origin.delay,
            work: origin.work,
            poller,
            peers: Vec::new(),
            vacant: Vec::new(),
            generation: 0,
            held: VecDeque::new(),
            scratch: vec![0; SCRATCH],
            wires,
            next: Next::new(origin),
            tls: origin.tls.as_ref().map(accept_tls).transpose()?,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        while !self.wires.stop.load(Ordering::Relaxed) {
            if self.wires.freeze_ns.load(Ordering::Relaxed) > 0 {
                std::thread::sleep(Duration::from_nanos(
                    self.wires.freeze_ns.swap(0, Ordering::Relaxed),
                ));
            }
            let until_due =
                self.held.front().map(|held| held.due.saturating_duration_since(Instant::now()));
            self.poller.wait(Some(until_due.map_or(LOOK_UP, |due| due.min(LOOK_UP))))?;
            let mut at = 0;
            while let Some(ready) = self.poller.event(at) {
                at += 1;
                if ready.number == LISTENER { self.accept()? } else { self.handle(ready) }
            }
            self.release();
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        // A bounded number, so that those already here are not starved.
        for _ in 0..256 {
            let socket =
                match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    Ok(socket) => socket,
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(Errno::INTR | Errno::CONNABORTED) => continue,
                    Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                        eprintln!("origin: cannot accept: {error}");
                        std::thread::sleep(Duration::from_millis(10));
                        return Ok(());
                    }
                    Err(error) => return Err(error.into()),
                };
            if self.is_tcp {
                let _ = sockopt::set_tcp_nodelay(&socket, true);
            }
            let index = self.vacant.pop().unwrap_or(self.peers.len() as u32);
            self.generation = self.generation.wrapping_add(1) & 0x7fff_ffff;
            self.poller.add(&socket, number(index, self.generation), Interest::Read)?;
            let layer = self.tls.as_ref().map(tls::Server::accept);
            let peer = Peer::new(socket, self.generation, layer);
            if let Some(next) = &mut self.next {
                next.begin(index);
            }
            match self.peers.get_mut(index as usize) {
                Some(place) => *place = Some(peer),
                None => self.peers.push(Some(peer)),
            }
        }
        Ok(())
    }

    fn handle(&mut self, ready: Ready) {
        let index = ready.number as u32;
        if index & ONWARD != 0 {
            return self.handle_onward(index & !ONWARD, ready);
        }
        let Some(Some(peer)) = self.peers.get_mut(index as usize) else { return };
        if u64::from(peer.generation) != ready.number >> 32 {
            return;
        }
        let mut step = Step::Open;
        if ready.writable {
            step = peer.write_streams(&self.answers);
        }
        if ready.readable && step == Step::Open {
            let (held, delay, work) = (&mut self.held, self.delay, self.work);
            let generation = peer.generation;
            let asks = self.next.is_some();
            let served = &self.wires.served;
            let mut questions = Vec::new();
            step =
                peer.read(&mut self.scratch, &self.answers, asks || !delay.is_zero(), |answer| {
                    // Before the answer is sent: who has it finds it counted.
                    served.fetch_add(1, Ordering::Relaxed);
                    keep_busy(work);
                    match answer {
                        Some(answer) if asks => questions.push(answer),
                        Some(answer) => held.push_back(Held {
                            due: Instant::now() + delay,
                            index,
                            generation,
                            answer,
                        }),
                        None => {}
                    }
                });
            self.settle(index, step);
            for question in questions {
                self.ask(index, question);
            }
            return;
        }
        self.settle(index, step);
    }

    /// Sends what has been held back long enough.
    fn release(&mut self) {
        let now = Instant::now();
        while self.held.front().is_some_and(|held| held.due <= now) {
            let Some(held) = self.held.pop_front() else { return };
            let Some(Some(peer)) = self.peers.get_mut(held.index as usize) else { continue };
            if peer.generation == held.generation {
                let step = peer.answer(&held.answer, &self.answers);
                self.settle(held.index, step);
            }
        }
    }

    fn settle(&mut self, index: u32, step: Step) {
        let Some(place) = self.peers.get_mut(index as usize) else { return };
        let Some(peer) = place else { return };
        if step == Step::Closed {
            *place = None;
            self.vacant.push(index);
            return;
        }
        if let Some(interest) = peer.changed_interest()
            && self.poller.modify(peer.socket(), number(index, peer.generation), interest).is_err()
        {
            *place = None;
            self.vacant.push(index);
        }
    }
}

fn accept_tls((chain, key): &(Vec<u8>, Vec<u8>)) -> io::Result<tls::Server> {
    let identity = tls::Identity::from_pem(chain, key).map_err(io::Error::other)?;
    let settings = tls::ServerSettings {
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        identities: vec![identity],
        ..tls::ServerSettings::default()
    };
    let clock = tls::Clock::default();
    clock.set(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO));
    Ok(settings.build().map_err(io::Error::other)?.server(&clock))
}

fn keep_busy(work: Duration) {
    if work.is_zero() {
        return;
    }
    let begin = Instant::now();
    while begin.elapsed() < work {
        std::hint::spin_loop();
    }
}

fn number(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

const LISTENER: u64 = u64::MAX;
const SCRATCH: usize = 64 * 1024;
/// How often the server looks whether it shall stop.
const LOOK_UP: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
