//! One connection of the generator: writes the request, reads the answer.

use std::borrow::Cow;
use std::os::fd::OwnedFd;

use bytes::{Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};
use towpath_proto::http2::Code;
use towpath_proto::tls::Fault;

use super::response::{Answer, Expect, Reader};
use super::tls::{Dialler, Secure};
use super::websocket::Web;
use crate::address::Address;

/// A connection and the request it carries.
pub(crate) struct Connection {
    socket: Option<OwnedFd>,
    /// Distinguishes this socket's events from those of an earlier one in the same place.
    pub(crate) generation: u32,
    stage: Stage,
    secure: Option<Box<Secure>>,
    web: Option<Box<Web>>,
    /// What is being sent, and how much of it was.
    outgoing: Bytes,
    written: usize,
    pub(crate) request: Option<InFlight>,
    reader: Reader,
    /// When it last became free.
    pub(crate) freed_ns: u64,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// TCP is connected, TLS is not.
    Handshake,
    /// The server has not switched to WebSocket yet.
    Upgrading,
    Ready,
}

/// A request that has started and is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) intended_ns: u64,
    pub(crate) started_ns: u64,
    /// Which of the plan's requests it is.
    pub(crate) entry: usize,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Connect(Errno),
    Reset,
    Closed,
    Malformed,
    /// The handshake or a record of TLS; why, if TLS told.
    Tls(Option<Fault>),
    /// The server does not switch to WebSocket; the status it gave, 0 for none.
    Upgrade(u16),
    /// The server speaks TLS, and does not choose HTTP/2 there.
    Alpn,
    /// The server ended an HTTP/2 connection for this reason.
    GoneAway(Code),
}

/// What came of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Nothing,
    /// The request could not be written whole: wait until the socket is writable.
    Blocked,
    Answered(Answer),
    /// Closed by the server between requests.
    ClosedIdle,
    Failed(Failure),
}

impl Connection {
    pub(crate) fn new(expect: Expect) -> Self {
        Self {
            socket: None,
            generation: 0,
            stage: Stage::Connecting,
            secure: None,
            web: None,
            outgoing: Bytes::new(),
            written: 0,
            request: None,
            reader: Reader::new(expect),
            freed_ns: 0,
        }
    }

    /// Starts to connect; the socket becomes writable when it is done.
    pub(crate) fn open(
        &mut self,
        address: &Address,
        tls: Option<&Dialler>,
        web: Option<Web>,
    ) -> Result<(), Failure> {
        self.generation = self.generation.wrapping_add(1);
        self.stage = Stage::Connecting;
        self.reader.reset();
        let request = std::mem::take(&mut self.outgoing);
        self.written = 0;
        self.secure = match tls {
            Some(dialler) => Some(Box::new(dialler.begin().ok_or(Failure::Tls(None))?)),
            None => None,
        };
        self.socket = Some(address.connect().map_err(Failure::Connect)?);
        self.web = web.map(Box::new);
        match &mut self.web {
            Some(web) => {
                web.waiting = request;
                let asked = web.request.clone();
                self.put(asked)
            }
            None if self.request.is_some() => self.put(request),
            None => Ok(()),
        }
    }

    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.secure = None;
        self.web = None;
        self.stage = Stage::Connecting;
    }

    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    /// Whether requests can be sent.
    pub(crate) fn is_connected(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Begins a request, whose bytes are sent by [`Connection::write`] when the connection is ready.
    pub(crate) fn start(
        &mut self,
        request: InFlight,
        bytes: Bytes,
        expect: Expect,
        is_body_wanted: bool,
    ) -> Event {
        self.request = Some(request);
        self.reader.expect(expect, is_body_wanted);
        let result = if let Some(web) = self.web.as_mut().filter(|web| !web.is_open) {
            web.waiting = bytes;
            Ok(())
        } else if self.socket.is_some() {
            self.put(bytes)
        } else {
            // It waits in the clear for the connection that is opened next.
            (self.outgoing, self.written) = (bytes, 0);
            Ok(())
        };
        result.map_or_else(Event::Failed, |()| Event::Nothing)
    }

    /// The body of the last answer, if it was wanted.
    pub(crate) fn body(&self) -> Cow<'_, [u8]> {
        self.reader.body()
    }

    fn put(&mut self, bytes: Bytes) -> Result<(), Failure> {
        match &mut self.secure {
            None if self.written < self.outgoing.len() => self.append(&bytes),
            None => (self.outgoing, self.written) = (bytes, 0),
            Some(secure) => {
                let sealed = secure.seal(bytes).map_err(|broken| Failure::Tls(Some(broken.0)))?;
                self.append(&sealed);
            }
        }
        Ok(())
    }

    /// Adds to what is still to be sent: the handshake's records come before the request's.
    fn append(&mut self, bytes: &[u8]) {
        let mut rest = BytesMut::from(&self.outgoing[self.written..]);
        rest.extend_from_slice(bytes);
        (self.outgoing, self.written) = (rest.freeze(), 0);
    }

    /// Writes as much as the socket takes.
    pub(crate) fn write(&mut self) -> Event {
        let Some(socket) = &self.socket else { return Event::Nothing };
        while self.written < self.outgoing.len() {
            match net::send(socket, &self.outgoing[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return Event::Blocked,
                Err(Errno::INTR) => {}
                Err(_) => return Event::Failed(Failure::Reset),
            }
        }
        Event::Nothing
    }

    /// The socket became writable: finishes connecting, then writes.
    pub(crate) fn on_writable(&mut self) -> Event {
        let Some(socket) = &self.socket else { return Event::Nothing };
        if self.stage == Stage::Connecting {
            match sockopt::socket_error(socket) {
                Ok(Ok(())) => {}
                Ok(Err(error)) | Err(error) => return Event::Failed(Failure::Connect(error)),
            }
            self.stage = self.talking();
            if let Some(secure) = &mut self.secure {
                self.stage = Stage::Handshake;
                (self.outgoing, self.written) = (secure.output().into(), 0);
            }
        }
        self.write()
    }

    /// The socket became readable.
    pub(crate) fn on_readable(&mut self, scratch: &mut [u8]) -> Event {
        loop {
            let Some(socket) = &self.socket else { return Event::Nothing };
            if self.stage == Stage::Connecting {
                return Event::Nothing;
            }
            let count = match net::recv(socket, &mut *scratch, RecvFlags::empty()) {
                Ok((0, _)) => return self.on_closed(),
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return Event::Nothing,
                Err(Errno::INTR) => continue,
                Err(_) if self.request.is_none() => return Event::ClosedIdle,
                Err(_) => return Event::Failed(Failure::Reset),
            };
            let event = match self.secure {
                Some(_) => self.on_records(&scratch[..count]),
                None => self.on_plain(&scratch[..count]),
            };
            if event != Event::Nothing || count < scratch.len() {
                return event;
            }
        }
    }

    /// TCP and TLS stand.
    fn talking(&self) -> Stage {
        let is_open = self.web.as_ref().is_none_or(|web| web.is_open);
        if is_open { Stage::Ready } else { Stage::Upgrading }
    }

    fn on_plain(&mut self, bytes: &[u8]) -> Event {
        if self.web.is_some() {
            return self.on_web(bytes).unwrap_or_else(Event::Failed);
        }
        if self.request.is_none() {
            return Event::Failed(Failure::Malformed);
        }
        match self.reader.receive(bytes) {
            Ok(Some(answer)) => Event::Answered(answer),
            Ok(None) => Event::Nothing,
            Err(_) => Event::Failed(Failure::Malformed),
        }
    }

    /// The end of the handshake lets the message that waits go; frames may bring its answer.
    fn on_web(&mut self, mut bytes: &[u8]) -> Result<Event, Failure> {
        let Some(web) = &mut self.web else { return Ok(Event::Nothing) };
        let mut to_send = Vec::new();
        if !web.is_open {
            let opened = web.open(bytes).map_err(|refused| Failure::Upgrade(refused.0))?;
            let Some(rest) = opened else { return Ok(Event::Nothing) };
            self.stage = Stage::Ready;
            (bytes, to_send) = (rest, std::mem::take(&mut web.waiting).to_vec());
        }
        let brought = web.receive(bytes).map_err(|_| Failure::Malformed)?;
        to_send.extend(brought.pongs);
        let mut written = Event::Nothing;
        if !to_send.is_empty() {
            self.put(to_send.into())?;
            written = self.write();
        }
        Ok(match (self.request, brought.is_closed) {
            (Some(_), is_closed) if brought.is_answered => {
                Event::Answered(Answer { status: 200, reusable: !is_closed })
            }
            (Some(_), true) => Event::Failed(Failure::Closed),
            (None, true) => Event::ClosedIdle,
            (_, false) => written,
        })
    }

    /// What TLS wants to say is sent, and what it says is read.
    fn on_records(&mut self, records: &[u8]) -> Event {
        let Some(secure) = &mut self.secure else { return Event::Nothing };
        let (plain, out) = match secure.receive(records) {
            Ok(received) => received,
            Err(broken) => return Event::Failed(Failure::Tls(Some(broken.0))),
        };
        if secure.is_established() {
            self.stage = self.talking();
        }
        let mut written = Event::Nothing;
        if !out.is_empty() {
            self.append(&out);
            written = self.write();
        }
        // Tickets and other talk of TLS alone bring no bytes.
        let read = if plain.is_empty() { Event::Nothing } else { self.on_plain(&plain) };
        if read == Event::Nothing { written } else { read }
    }

    fn on_closed(&mut self) -> Event {
        match (self.request, self.reader.close()) {
            (None, _) if self.stage == Stage::Handshake => {
                Event::Failed(Failure::Tls(Some(Fault::Ended)))
            }
            (None, _) if self.stage == Stage::Upgrading => Event::Failed(Failure::Upgrade(0)),
            (None, _) => Event::ClosedIdle,
            (Some(_), Some(answer)) => Event::Answered(answer),
            (Some(_), None) => Event::Failed(Failure::Closed),
        }
    }
}
