//! The floor: the least that a forwarder on epoll can cost. What Towpath adds is measured from here.
//!
//! `cargo bench -p towpath-io --bench floor -- http|tcp LISTEN UPSTREAM` serves until killed. One thread,
//! edge-triggered, one `recv` and one `send` for each message and direction, one upstream connection for each accepted
//! one. `http` parses every head and follows Content-Length, as little as a proxy may do; `tcp` looks at nothing. No
//! timers, no limits, no errors worth the name: it is a ruler, not a proxy.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags};

struct Connection {
    socket: OwnedFd,
    other: usize,
    /// Bytes until the next head.
    body: usize,
    hung_up: bool,
    /// What the kernel did not take; the other side is not read until it has.
    unsent: Vec<u8>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [kind, listen, upstream] = &words[..] else {
        // `cargo test --benches` and the like: nothing to serve.
        return;
    };
    let upstream: SocketAddr = upstream.parse().expect("UPSTREAM is an address");
    serve(kind == "http", listen, upstream).expect("the ruler does not break");
}

fn serve(http: bool, listen: &str, upstream: SocketAddr) -> std::io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(u64::MAX), EventFlags::IN)?;
    let both = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let token = event.data.u64();
            if token != u64::MAX {
                forward(http, token as usize, event.flags, &mut connections, &mut buffer);
                continue;
            }
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(upstream)?;
                let ends = [near.as_raw_fd() as usize, far.as_raw_fd() as usize];
                connections.resize_with(connections.len().max(ends[0].max(ends[1]) + 1), || None);
                for (socket, at) in [(near, 0), (far, 1)] {
                    socket.set_nonblocking(true)?;
                    socket.set_nodelay(true)?;
                    epoll::add(&epoll, &socket, EventData::new_u64(ends[at] as u64), both)?;
                    connections[ends[at]] = Some(Connection {
                        socket: socket.into(),
                        other: ends[1 - at],
                        body: 0,
                        hung_up: false,
                        unsent: Vec::new(),
                    });
                }
            }
        }
    }
}

/// One event: what was blocked here leaves first, and then both directions may go on.
fn forward(
    http: bool,
    at: usize,
    flags: EventFlags,
    connections: &mut [Option<Connection>],
    buffer: &mut [u8],
) {
    let Some(connection) = &mut connections[at] else { return };
    connection.hung_up |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    if !connection.unsent.is_empty() {
        let unsent = &connection.unsent;
        let sent = rustix::net::send(&connection.socket, unsent, SendFlags::NOSIGNAL).unwrap_or(0);
        connection.unsent.drain(..sent);
        let other = connection.other;
        pump(http, other, connections, buffer);
    }
    pump(http, at, connections, buffer);
}

/// Moves bytes from one side to the other while the other takes them.
fn pump(http: bool, at: usize, connections: &mut [Option<Connection>], buffer: &mut [u8]) {
    loop {
        let Some(other) = connections[at].as_ref().map(|connection| connection.other) else {
            return;
        };
        if connections[other].as_ref().is_none_or(|other| !other.unsent.is_empty()) {
            return;
        }
        let Some(connection) = &mut connections[at] else { return };
        let got = rustix::net::recv(&connection.socket, &mut *buffer, RecvFlags::empty());
        let bytes = match got {
            Ok((bytes, _)) if bytes > 0 => bytes,
            Err(rustix::io::Errno::AGAIN) => return,
            Ok(_) | Err(_) => {
                connections[at] = None;
                connections[other] = None;
                return;
            }
        };
        if http {
            follow(connection, &buffer[..bytes]);
        }
        let short = bytes < buffer.len() && !connection.hung_up;
        let Some(other) = &mut connections[other] else { return };
        let sent = rustix::net::send(&other.socket, &buffer[..bytes], SendFlags::NOSIGNAL);
        other.unsent.extend_from_slice(&buffer[sent.unwrap_or(0)..bytes]);
        if short {
            return;
        }
    }
}

/// Walks over what came: heads are parsed, bodies are skipped by their length.
fn follow(connection: &mut Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let skipped = connection.body.min(bytes.len());
        connection.body -= skipped;
        bytes = &bytes[skipped..];
        if bytes.is_empty() {
            return;
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let parsed = if bytes.starts_with(b"HTTP/") {
            httparse::Response::new(&mut headers).parse(bytes)
        } else {
            httparse::Request::new(&mut headers).parse(bytes)
        };
        let Ok(httparse::Status::Complete(head)) = parsed else { return };
        let length =
            headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
        connection.body = length.unwrap_or(0);
        bytes = &bytes[head..];
    }
}
