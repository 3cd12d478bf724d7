//! One client of the test server.

use std::borrow::Cow;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::bolt::{self, Frames};
use super::request::{ETAG, Item, Persistence, Reader, Wish};
use super::websocket::{Reply, Session};
use super::{Origin, Protocol};
use crate::poller::Interest;

/// One accepted connection.
#[derive(Debug)]
pub(super) struct Peer {
    socket: OwnedFd,
    pub(super) generation: u32,
    reader: Reader,
    frames: Frames,
    session: Session,
    /// What the socket did not take yet.
    unsent: Vec<u8>,
    sent: usize,
    /// Answers and bytes that are held back.
    held: usize,
    is_closing: bool,
    interest: Interest,
}

/// What is left of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Open,
    Closed,
}

/// Something to send later.
#[derive(Debug)]
pub(super) enum Due {
    Answer(Wish),
    /// The service that was asked did not answer well.
    Failure(Wish),
    Echo(Vec<u8>),
    /// A whole frame of Bolt or WebSocket.
    Frame(Vec<u8>),
}

/// The answers, encoded once.
#[derive(Debug)]
pub(super) struct Answers {
    protocol: Protocol,
    bolt: bolt::Answers,
    stay: Encoded,
    stay_said: Encoded,
    close: Encoded,
    /// Whether what has come already can be left out.
    has_ranges: bool,
}

#[derive(Debug)]
struct Encoded {
    bytes: Vec<u8>,
    head_length: usize,
}

impl Peer {
    pub(super) fn new(socket: OwnedFd, generation: u32) -> Self {
        Self {
            socket,
            generation,
            reader: Reader::new(),
            frames: Frames::default(),
            session: Session::default(),
            unsent: Vec::new(),
            sent: 0,
            held: 0,
            is_closing: false,
            interest: Interest::Read,
        }
    }

    /// Reads once and answers what is complete, at once or through `each`, which also counts.
    pub(super) fn read(
        &mut self,
        scratch: &mut [u8],
        answers: &Answers,
        is_delayed: bool,
        mut each: impl FnMut(Option<Due>),
    ) -> Step {
        let count = match recv(&self.socket, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Step::Closed,
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Step::Open,
            Err(_) => return Step::Closed,
        };
        let bytes = &scratch[..count];
        if answers.protocol == Protocol::Tcp {
            if is_delayed {
                self.held += bytes.len();
                each(Some(Due::Echo(bytes.to_vec())));
                return Step::Open;
            }
            each(None);
            return self.send(bytes);
        }
        if answers.protocol == Protocol::Bolt {
            return self.read_frames(bytes, answers, is_delayed, each);
        }
        if answers.protocol == Protocol::WebSocket {
            return self.read_messages(bytes, is_delayed, each);
        }
        let (unsent, held, is_closing) = (&mut self.unsent, &mut self.held, &mut self.is_closing);
        let mut first = None;
        let result = self.reader.receive(bytes, |item| match item {
            _ if *is_closing => {}
            Item::Continue => unsent.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"),
            Item::Request(wish) if is_delayed => {
                *held += 1;
                each(Some(Due::Answer(wish)));
            }
            Item::Request(wish) => {
                each(None);
                *is_closing |= wish.persistence == Persistence::Close;
                // One answer, the usual case, is sent from where it lies.
                match first {
                    None if unsent.is_empty() => first = Some(wish),
                    None => unsent.extend_from_slice(&answers.bytes(wish)),
                    Some(before) => {
                        if unsent.is_empty() {
                            unsent.extend_from_slice(&answers.bytes(before));
                        }
                        unsent.extend_from_slice(&answers.bytes(wish));
                    }
                }
            }
        });
        if result.is_err() {
            self.unsent.extend_from_slice(BAD_REQUEST);
            self.is_closing = true;
        }
        match first {
            Some(wish) if self.unsent.is_empty() => self.send(&answers.bytes(wish)),
            Some(_) | None => self.flush(),
        }
    }

    /// Answers the frames that are complete, in one write.
    fn read_frames(
        &mut self,
        bytes: &[u8],
        answers: &Answers,
        is_delayed: bool,
        mut each: impl FnMut(Option<Due>),
    ) -> Step {
        let (unsent, held) = (&mut self.unsent, &mut self.held);
        let result = self.frames.receive(bytes, |item| match item {
            bolt::Item::Heartbeat(answer) => unsent.extend_from_slice(&answer),
            bolt::Item::Oneway => each(None),
            bolt::Item::Call(frame) if is_delayed => {
                *held += 1;
                let mut answer = Vec::new();
                answers.bolt.write(&frame, &mut answer);
                each(Some(Due::Frame(answer)));
            }
            bolt::Item::Call(frame) => {
                each(None);
                answers.bolt.write(&frame, unsent);
            }
        });
        if result.is_err() {
            return Step::Closed;
        }
        self.flush()
    }

    /// Gives the messages that are complete back, in one write.
    fn read_messages(
        &mut self,
        bytes: &[u8],
        is_delayed: bool,
        mut each: impl FnMut(Option<Due>),
    ) -> Step {
        let (unsent, held, is_closing) = (&mut self.unsent, &mut self.held, &mut self.is_closing);
        let result = self.session.receive(bytes, |reply| match reply {
            _ if *is_closing => {}
            Reply::Now(bytes) => unsent.extend_from_slice(&bytes),
            Reply::Echo(frame) if is_delayed => {
                *held += 1;
                each(Some(Due::Frame(frame)));
            }
            Reply::Echo(frame) => {
                each(None);
                unsent.extend_from_slice(&frame);
            }
            Reply::Last(bytes) => {
                unsent.extend_from_slice(&bytes);
                *is_closing = true;
            }
        });
        if result.is_err() {
            return Step::Closed;
        }
        self.flush()
    }

    /// Sends something that was held back.
    pub(super) fn answer(&mut self, due: &Due, answers: &Answers) -> Step {
        match due {
            Due::Answer(wish) => {
                self.held -= 1;
                self.is_closing |= wish.persistence == Persistence::Close;
                self.send(&answers.bytes(*wish))
            }
            Due::Failure(wish) => {
                self.held -= 1;
                self.is_closing |= wish.persistence == Persistence::Close;
                self.send(BAD_GATEWAY)
            }
            Due::Echo(bytes) => {
                self.held -= bytes.len();
                self.send(bytes)
            }
            Due::Frame(bytes) => {
                self.held -= 1;
                self.send(bytes)
            }
        }
    }

    /// Sends what the socket did not take before.
    pub(super) fn flush(&mut self) -> Step {
        while self.sent < self.unsent.len() {
            match send(&self.socket, &self.unsent[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Step::Open,
                Err(Errno::INTR) => {}
                Err(_) => return Step::Closed,
            }
        }
        self.unsent.clear();
        self.sent = 0;
        if self.is_closing { Step::Closed } else { Step::Open }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// What to wait for next, when that is not what is waited for already. A client that does not read its
    /// answers is not read from either, so that what it is owed stays bounded.
    pub(super) fn changed_interest(&mut self) -> Option<Interest> {
        let owed = self.unsent.len() - self.sent;
        let interest =
            match (owed > 0, owed > OWED_LIMIT || self.held > HELD_LIMIT || self.is_closing) {
                (true, true) => Interest::Write,
                (true, false) => Interest::ReadWrite,
                (false, true) => Interest::Nothing,
                (false, false) => Interest::Read,
            };
        (interest != self.interest).then(|| {
            self.interest = interest;
            interest
        })
    }

    fn send(&mut self, bytes: &[u8]) -> Step {
        let mut taken = 0;
        while self.unsent.is_empty() && taken < bytes.len() {
            match send(&self.socket, &bytes[taken..], SendFlags::NOSIGNAL) {
                Ok(count) => taken += count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Step::Closed,
            }
        }
        if taken < bytes.len() {
            self.unsent.extend_from_slice(&bytes[taken..]);
            return Step::Open;
        }
        if self.is_closing { Step::Closed } else { Step::Open }
    }
}

impl Due {
    pub(super) fn into_failure(self) -> Self {
        match self {
            Self::Answer(wish) | Self::Failure(wish) => Self::Failure(wish),
            Self::Echo(bytes) => Self::Echo(bytes),
            Self::Frame(bytes) => Self::Frame(bytes),
        }
    }
}

impl Answers {
    pub(super) fn new(origin: &Origin) -> Self {
        let encode = |connection: &str| {
            let (status, size) = (origin.status, origin.size);
            let ranges = if origin.has_ranges { ranges() } else { String::new() };
            let head = format!(
                "HTTP/1.1 {status} {}\r\nContent-Length: {size}\r\n{ranges}{connection}\r\n",
                reason(status)
            );
            let head_length = head.len();
            let mut bytes = head.into_bytes();
            bytes.extend_from_slice(&super::filler(size));
            Encoded { bytes, head_length }
        };
        Self {
            protocol: origin.protocol,
            bolt: bolt::Answers::new(origin),
            stay: encode(""),
            stay_said: encode("Connection: keep-alive\r\n"),
            close: encode("Connection: close\r\n"),
            has_ranges: origin.has_ranges && origin.status == 200,
        }
    }

    fn bytes(&self, wish: Wish) -> Cow<'_, [u8]> {
        let encoded = match wish.persistence {
            Persistence::Stay => &self.stay,
            Persistence::StaySaid => &self.stay_said,
            Persistence::Close => &self.close,
        };
        let (head, body) = encoded.bytes.split_at(encoded.head_length);
        match usize::try_from(wish.from) {
            _ if wish.is_head => head.into(),
            Ok(from @ 1..) if self.has_ranges && from < body.len() => {
                rest(body, from, wish.persistence).into()
            }
            _ => (&*encoded.bytes).into(),
        }
    }
}

/// What tells a client that an answer can go on elsewhere.
fn ranges() -> String {
    format!("Accept-Ranges: bytes\r\nETag: {ETAG}\r\n")
}

/// All that is behind the first `from` bytes.
fn rest(body: &[u8], from: usize, persistence: Persistence) -> Vec<u8> {
    let connection = match persistence {
        Persistence::Stay => "",
        Persistence::StaySaid => "Connection: keep-alive\r\n",
        Persistence::Close => "Connection: close\r\n",
    };
    let (left, last, size) = (body.len() - from, body.len() - 1, body.len());
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {left}\r\nContent-Range: bytes \
         {from}-{last}/{size}\r\n{}{connection}\r\n",
        ranges()
    );
    [head.as_bytes(), &body[from..]].concat()
}

fn reason(status: u16) -> &'static str {
    match status {
        200..=299 => "OK",
        300..=399 => "Elsewhere",
        400..=499 => "Refused",
        _ => "Failed",
    }
}

const BAD_REQUEST: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const BAD_GATEWAY: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";
const OWED_LIMIT: usize = 1 << 20;
/// Answers, or bytes of an echo, that are held back for one client.
const HELD_LIMIT: usize = 1 << 20;
