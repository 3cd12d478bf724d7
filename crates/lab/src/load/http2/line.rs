//! One HTTP/2 connection: which streams wait for an answer, and what came of each.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};
use towpath_proto::http2::{Arrival, Code, Connection, Options};
use towpath_proto::{Event as Part, Head, HeadPool, Out};

use super::{Message, Template, is_grpc, reasons};
use crate::address::Address;
use crate::load::connection::{Failure, InFlight};
use crate::load::multiplex::{self, Event, Verdict};
use crate::load::tls::Secure;

/// A connection.
pub(in crate::load) struct Line {
    socket: Option<OwnedFd>,
    generation: u32,
    stage: Stage,
    secure: Option<Box<Secure>>,
    codec: Connection,
    heads: HeadPool,
    out: Out,
    /// What the socket has not taken yet, and how much of it it has.
    unsent: BytesMut,
    sent: usize,
    has_unsent: bool,
    /// By the codec's number of the stream.
    streams: Vec<Option<Asked>>,
    in_flight: usize,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// TCP is connected, TLS is not.
    Handshake,
    /// The server's SETTINGS have not come.
    Opening,
    Ready,
}

/// A request that waits for the end of its answer, and what of the answer counts.
#[derive(Clone, Debug)]
struct Asked {
    request: InFlight,
    status: u16,
    grpc: Option<u32>,
    /// As much of the content as is looked at, where it is.
    body: Option<Vec<u8>>,
}

impl multiplex::Line for Line {
    type Template = Template;

    fn new(_: u32) -> Self {
        Self {
            socket: None,
            generation: 0,
            stage: Stage::Connecting,
            secure: None,
            codec: Connection::client(Arc::new(Options::default())),
            heads: HeadPool::new(64),
            out: Out::new(),
            unsent: BytesMut::new(),
            sent: 0,
            has_unsent: false,
            streams: Vec::new(),
            in_flight: 0,
        }
    }

    fn open(&mut self, address: &Address, template: &Template) -> Result<(), Failure> {
        self.generation = self.generation.wrapping_add(1);
        self.stage = Stage::Connecting;
        self.codec = Connection::client(Arc::clone(&template.options));
        self.secure = match &template.tls {
            Some(dialler) => Some(Box::new(dialler.begin().ok_or(Failure::Tls(None))?)),
            None => None,
        };
        self.socket = Some(address.connect().map_err(Failure::Connect)?);
        Ok(())
    }

    fn close(&mut self) -> Vec<InFlight> {
        self.socket = None;
        self.stage = Stage::Connecting;
        self.secure = None;
        self.generation = self.generation.wrapping_add(1);
        (self.out, self.sent, self.has_unsent) = (Out::new(), 0, false);
        self.unsent.clear();
        self.abandon()
    }

    fn abandon(&mut self) -> Vec<InFlight> {
        self.in_flight = 0;
        self.streams.drain(..).flatten().map(|asked| asked.request).collect()
    }

    fn expire(&mut self, limit_ns: u64) -> Vec<InFlight> {
        let mut expired = Vec::new();
        for number in 0..self.streams.len() {
            let is_late = |asked: &mut Asked| asked.request.started_ns < limit_ns;
            if let Some(asked) = self.streams[number].take_if(is_late) {
                self.codec.reset(number as u32, Code::CANCEL);
                self.codec.release(number as u32);
                self.has_unsent = true;
                self.in_flight -= 1;
                expired.push(asked.request);
            }
        }
        expired
    }

    fn start(&mut self, request: InFlight, template: &mut Template) {
        let Some(number) = self.codec.open() else { return };
        let at = number as usize;
        if self.streams.len() <= at {
            self.streams.resize(at + 1, None);
        }
        let (entry, message) = template.messages.next();
        let Message { head, body, .. } = message;
        self.codec.send_head(number, head, body.is_empty(), &mut self.out);
        if !body.is_empty() {
            self.codec.send_data(number, body.clone());
            self.codec.send_end(number);
        }
        let request = InFlight { entry, ..request };
        let body = template.messages.check(entry).contains.as_ref().map(|_| Vec::new());
        self.streams[at] = Some(Asked { request, status: 0, grpc: None, body });
        self.in_flight += 1;
        self.has_unsent = true;
    }

    fn flush(&mut self) -> Event {
        self.has_unsent = false;
        if matches!(self.stage, Stage::Opening | Stage::Ready) {
            self.codec.flush(&mut self.out);
        }
        for part in self.out.drain() {
            match &mut self.secure {
                None => self.unsent.extend_from_slice(&part),
                Some(secure) => {
                    if let Err(broken) = secure.seal_into(&part, &mut self.unsent) {
                        return Event::Failed(Failure::Tls(Some(broken.0)));
                    }
                }
            }
        }
        self.write()
    }

    fn on_writable(&mut self) -> Event {
        let Some(socket) = &self.socket else { return Event::Fine };
        if self.stage == Stage::Connecting {
            match sockopt::socket_error(socket) {
                Ok(Ok(())) => {}
                Ok(Err(error)) | Err(error) => return Event::Failed(Failure::Connect(error)),
            }
            self.stage = Stage::Opening;
            if let Some(secure) = &mut self.secure {
                self.stage = Stage::Handshake;
                self.unsent.extend_from_slice(&secure.output());
            }
        }
        self.flush()
    }

    fn on_readable(
        &mut self,
        scratch: &mut [u8],
        template: &Template,
        verdicts: &mut Vec<Verdict>,
    ) -> Event {
        let Some(socket) = &self.socket else { return Event::Fine };
        let chunk = match net::recv(socket, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Event::Failed(self.why_ended(Failure::Closed)),
            Ok((count, _)) => &scratch[..count],
            Err(Errno::AGAIN | Errno::INTR) => return Event::Fine,
            Err(_) => return Event::Failed(self.why_ended(Failure::Reset)),
        };
        match self.decrypt(chunk) {
            Ok(plain) => self.codec.receive(plain),
            Err(failure) => return Event::Failed(failure),
        }
        if self.stage == Stage::Handshake {
            return self.flush();
        }
        if let Err(failure) = self.take_all(template, verdicts) {
            return Event::Failed(failure);
        }
        self.has_unsent |= self.codec.has_output();
        if self.stage == Stage::Opening {
            if self.codec.is_open() {
                self.stage = Stage::Ready;
            }
            return self.flush();
        }
        if self.codec.is_exhausted() && self.in_flight == 0 { Event::Over } else { Event::Fine }
    }

    fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    fn generation(&self) -> u32 {
        self.generation
    }

    fn is_connected(&self) -> bool {
        self.stage == Stage::Ready
    }

    fn capacity(&self) -> usize {
        self.codec.capacity() as usize
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Line {
    /// Writes as much as the socket takes.
    fn write(&mut self) -> Event {
        let Some(socket) = &self.socket else { return Event::Fine };
        let event = loop {
            if self.sent == self.unsent.len() {
                break Event::Fine;
            }
            match net::send(socket, &self.unsent[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => break Event::Blocked,
                Err(Errno::INTR) => {}
                Err(_) => return Event::Failed(Failure::Reset),
            }
        };
        if event == Event::Fine {
            self.unsent.clear();
            self.sent = 0;
        }
        self.codec.sent(self.unsent.len() - self.sent);
        event
    }

    /// What bytes from the socket say; with the end of TLS's handshake it shows whether HTTP/2 will be spoken.
    fn decrypt(&mut self, chunk: &[u8]) -> Result<Bytes, Failure> {
        let Some(secure) = &mut self.secure else { return Ok(Bytes::copy_from_slice(chunk)) };
        let (plain, out) = secure.receive(chunk).map_err(|broken| Failure::Tls(Some(broken.0)))?;
        self.unsent.extend_from_slice(&out);
        self.has_unsent |= !out.is_empty();
        if self.stage == Stage::Handshake && secure.is_established() {
            if secure.alpn() != Some(b"h2") {
                return Err(Failure::Alpn);
            }
            self.stage = Stage::Opening;
        }
        Ok(plain.freeze())
    }

    /// Takes all that has come.
    fn take_all(
        &mut self,
        template: &Template,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<(), Failure> {
        loop {
            let arrived = self.codec.poll(&mut self.heads).map_err(|_| Failure::Malformed)?;
            let Some((number, arrival)) = arrived else { return Ok(()) };
            match arrival {
                Arrival::Part(Part::Informational(head)) => self.heads.give(head),
                Arrival::Part(Part::Head { head, end }) => {
                    self.on_head(number, head, template);
                    if end {
                        verdicts.extend(self.judge(number, template));
                    }
                }
                Arrival::Part(Part::Data(content)) => {
                    self.on_content(number, &content);
                    self.codec.consumed(number);
                }
                Arrival::Part(Part::Trailers(head)) => {
                    self.on_trailers(number, head);
                    verdicts.extend(self.judge(number, template));
                }
                Arrival::Part(Part::End) => verdicts.extend(self.judge(number, template)),
                Arrival::Reset(code) => verdicts.extend(self.lose(number, reasons::reset(code))),
                Arrival::Refused => {
                    let code = self.codec.peer_left();
                    let refused = || reasons::reset(Code::REFUSED_STREAM);
                    let word = code.map_or_else(refused, reasons::go_away);
                    verdicts.extend(self.lose(number, word));
                }
            }
        }
    }

    fn on_head(&mut self, number: u32, head: Head, template: &Template) {
        if let Some(Some(asked)) = self.streams.get_mut(number as usize) {
            asked.status = head.status();
            if template.messages.latest(asked.request.entry).is_grpc && is_grpc(&head) {
                asked.grpc = grpc_status(&head);
            }
        }
        self.heads.give(head);
    }

    fn on_content(&mut self, number: u32, content: &[u8]) {
        let Some(Some(Asked { body: Some(body), .. })) = self.streams.get_mut(number as usize)
        else {
            return;
        };
        let more = content.len().min(BODY_LIMIT - body.len());
        body.extend_from_slice(&content[..more]);
    }

    fn on_trailers(&mut self, number: u32, head: Head) {
        if let Some(Some(asked)) = self.streams.get_mut(number as usize) {
            asked.grpc = grpc_status(&head);
        }
        self.heads.give(head);
    }

    /// A stream has its whole answer.
    fn judge(&mut self, number: u32, template: &Template) -> Option<Verdict> {
        let Asked { request, status, grpc, body } = self.end(number)?;
        let messages = &template.messages;
        let problem = messages.check(request.entry).problem(status, &body.unwrap_or_default());
        Some(match (problem, grpc) {
            (Some(word), _) => Verdict::Wrong(word, request),
            (None, Some(0)) => Verdict::Right(request),
            (None, status) if messages.latest(request.entry).is_grpc => {
                Verdict::Wrong(reasons::grpc(status), request)
            }
            (None, _) => Verdict::Right(request),
        })
    }

    fn lose(&mut self, number: u32, why: &'static str) -> Option<Verdict> {
        Some(Verdict::Lost(why, self.end(number)?.request))
    }

    fn end(&mut self, number: u32) -> Option<Asked> {
        self.codec.release(number);
        let asked = self.streams.get_mut(number as usize)?.take()?;
        self.in_flight -= 1;
        Some(asked)
    }

    /// The server ended the connection in this way, or said why before.
    fn why_ended(&self, how: Failure) -> Failure {
        match self.codec.peer_left() {
            Some(code) if code != Code::NO_ERROR => Failure::GoneAway(code),
            _ if self.stage == Stage::Handshake => Failure::Tls(None),
            Some(_) | None => how,
        }
    }
}

/// How much of a content is looked at.
const BODY_LIMIT: usize = 1 << 20;

fn grpc_status(head: &Head) -> Option<u32> {
    std::str::from_utf8(head.get_bytes(b"grpc-status")?).ok()?.parse().ok()
}
