//! One client of the test server.

use std::borrow::Cow;
use std::os::fd::OwnedFd;

use bytes::{Buf, BytesMut};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use towpath_proto::http2::PREFACE;
use towpath_proto::tls::Layer;

use super::bolt::{self, Frames};
use super::http2;
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
    spoken: Spoken,
    secure: Option<Box<Secure>>,
    /// What the socket did not take yet; under TLS, what was not encrypted yet.
    unsent: Vec<u8>,
    sent: usize,
    /// Answers and bytes that are held back.
    held: usize,
    is_closing: bool,
    interest: Interest,
}

/// Which HTTP a client speaks shows its first bytes (RFC 9113 §3.4).
#[derive(Debug)]
enum Spoken {
    /// These are the first bytes of HTTP/2's preface and too few of them.
    Undecided(Vec<u8>),
    /// HTTP/1.1, or what is no HTTP.
    Http1,
    Http2(Box<http2::Session>),
}

/// TLS of a connection.
#[derive(Debug)]
struct Secure {
    layer: Layer,
    plain: BytesMut,
    /// Records that the socket did not take yet.
    records: BytesMut,
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
    /// A stream of HTTP/2.
    Stream(http2::Asked),
}

/// The answers, encoded once.
#[derive(Debug)]
pub(super) struct Answers {
    protocol: Protocol,
    bolt: bolt::Answers,
    http2: http2::Answers,
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
    pub(super) fn new(socket: OwnedFd, generation: u32, layer: Option<Layer>) -> Self {
        let secure = |layer| Secure { layer, plain: BytesMut::new(), records: BytesMut::new() };
        Self {
            spoken: Spoken::Undecided(Vec::new()),
            secure: layer.map(|layer| Box::new(secure(layer))),
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
        each: impl FnMut(Option<Due>),
    ) -> Step {
        let count = match recv(&self.socket, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Step::Closed,
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Step::Open,
            Err(_) => return Step::Closed,
        };
        let bytes = &scratch[..count];
        let Some(secure) = &mut self.secure else {
            return self.take(bytes, answers, is_delayed, each);
        };
        let is_broken = secure.layer.receive(bytes, &mut secure.plain).is_err();
        let out = secure.layer.take_output();
        secure.records.extend_from_slice(&out);
        let plain = secure.plain.split();
        if is_broken {
            // An alert says why.
            self.flush();
            return Step::Closed;
        }
        match plain.is_empty() {
            true => self.flush(),
            false => self.take(&plain, answers, is_delayed, each),
        }
    }

    /// Answers what is complete of what a client says.
    fn take(
        &mut self,
        bytes: &[u8],
        answers: &Answers,
        is_delayed: bool,
        mut each: impl FnMut(Option<Due>),
    ) -> Step {
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
        let started;
        let bytes = match &mut self.spoken {
            Spoken::Http1 => bytes,
            Spoken::Http2(_) => return self.read_streams(bytes, answers, is_delayed, each),
            Spoken::Undecided(before) => {
                before.extend_from_slice(bytes);
                started = std::mem::take(before);
                let compared = started.len().min(PREFACE.len());
                if started[..compared] != PREFACE[..compared] {
                    self.spoken = Spoken::Http1;
                    &started
                } else if compared == PREFACE.len() {
                    self.spoken = Spoken::Http2(Box::new(http2::Session::new(&answers.http2)));
                    return self.read_streams(&started, answers, is_delayed, each);
                } else {
                    self.spoken = Spoken::Undecided(started);
                    return Step::Open;
                }
            }
        };
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

    /// Answers the streams whose requests are whole, in one write.
    fn read_streams(
        &mut self,
        bytes: &[u8],
        answers: &Answers,
        is_delayed: bool,
        mut each: impl FnMut(Option<Due>),
    ) -> Step {
        let Spoken::Http2(session) = &mut self.spoken else { return Step::Closed };
        let held = &mut self.held;
        let mut whole = Vec::new();
        let result = session.receive(bytes, |asked| {
            if is_delayed {
                *held += 1;
                each(Some(Due::Stream(asked)));
            } else {
                each(None);
                whole.push(asked);
            }
        });
        for asked in whole {
            session.answer(asked, &answers.http2);
        }
        self.is_closing |= result.is_err();
        self.write_streams(answers)
    }

    /// Sends what streams have to say, as far as the socket takes it.
    pub(super) fn write_streams(&mut self, answers: &Answers) -> Step {
        loop {
            let Spoken::Http2(session) = &mut self.spoken else { return self.flush() };
            session.write(&mut self.unsent, &answers.http2);
            let step = self.flush();
            let owed = self.owed();
            let Spoken::Http2(session) = &mut self.spoken else { return step };
            session.sent(owed);
            if step == Step::Closed || owed > 0 || !session.has_more() {
                return step;
            }
        }
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
            Due::Stream(asked) => {
                self.held -= 1;
                if let Spoken::Http2(session) = &mut self.spoken {
                    session.answer(*asked, &answers.http2);
                }
                self.write_streams(answers)
            }
        }
    }

    /// Sends what the socket did not take before.
    fn flush(&mut self) -> Step {
        if let Some(secure) = &mut self.secure {
            let is_sealed = self.unsent.is_empty()
                || secure.layer.seal(&self.unsent, &mut secure.records).is_ok();
            self.unsent.clear();
            let sent = if is_sealed { secure.send(&self.socket) } else { Step::Closed };
            let is_done = secure.records.is_empty() && self.is_closing;
            return if is_done { Step::Closed } else { sent };
        }
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
        let owed = self.owed();
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

    /// Bytes that the socket did not take yet.
    fn owed(&self) -> usize {
        let records = self.secure.as_ref().map_or(0, |secure| secure.records.len());
        self.unsent.len() - self.sent + records
    }

    fn send(&mut self, bytes: &[u8]) -> Step {
        if self.secure.is_some() {
            self.unsent.extend_from_slice(bytes);
            return self.flush();
        }
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

impl Secure {
    fn send(&mut self, socket: &OwnedFd) -> Step {
        while !self.records.is_empty() {
            match send(socket, &self.records, SendFlags::NOSIGNAL) {
                Ok(count) => self.records.advance(count),
                Err(Errno::AGAIN) => return Step::Open,
                Err(Errno::INTR) => {}
                Err(_) => return Step::Closed,
            }
        }
        Step::Open
    }
}

impl Due {
    pub(super) fn into_failure(self) -> Self {
        match self {
            Self::Answer(wish) | Self::Failure(wish) => Self::Failure(wish),
            Self::Echo(bytes) => Self::Echo(bytes),
            Self::Frame(bytes) => Self::Frame(bytes),
            Self::Stream(asked) => Self::Stream(asked.into_failure()),
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
            http2: http2::Answers::new(origin),
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
