//! One connection of the generator: writes the request, reads the answer.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};

use super::response::{Answer, Expect, Reader};
use crate::address::Address;

/// A connection and the request it carries.
pub(crate) struct Connection {
    socket: Option<OwnedFd>,
    /// Distinguishes this socket's events from those of an earlier one in the same place.
    pub(crate) generation: u32,
    connected: bool,
    written: usize,
    pub(crate) request: Option<InFlight>,
    reader: Reader,
    /// When it last became free.
    pub(crate) freed_ns: u64,
}

/// A request that has started and is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) intended_ns: u64,
    pub(crate) started_ns: u64,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Connect(Errno),
    Reset,
    Closed,
    Malformed,
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
            connected: false,
            written: 0,
            request: None,
            reader: Reader::new(expect),
            freed_ns: 0,
        }
    }

    /// Starts to connect; the socket becomes writable when it is done.
    pub(crate) fn open(&mut self, address: &Address) -> Result<&OwnedFd, Failure> {
        self.generation = self.generation.wrapping_add(1);
        self.connected = false;
        self.reader.reset();
        let socket = address.connect().map_err(Failure::Connect)?;
        Ok(self.socket.insert(socket))
    }

    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.connected = false;
    }

    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn start(&mut self, request: InFlight) {
        self.request = Some(request);
        self.written = 0;
    }

    /// Writes as much of the request as the socket takes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Event {
        let Some(socket) = &self.socket else { return Event::Nothing };
        if self.request.is_none() {
            return Event::Nothing;
        }
        while self.written < bytes.len() {
            match net::send(socket, &bytes[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return Event::Blocked,
                Err(Errno::INTR) => {}
                Err(_) => return Event::Failed(Failure::Reset),
            }
        }
        Event::Nothing
    }

    /// The socket became writable: finishes connecting, then writes.
    pub(crate) fn on_writable(&mut self, bytes: &[u8]) -> Event {
        let Some(socket) = &self.socket else { return Event::Nothing };
        if !self.connected {
            match sockopt::socket_error(socket) {
                Ok(Ok(())) => self.connected = true,
                Ok(Err(error)) | Err(error) => return Event::Failed(Failure::Connect(error)),
            }
        }
        self.write(bytes)
    }

    /// The socket became readable.
    pub(crate) fn on_readable(&mut self, scratch: &mut [u8]) -> Event {
        let Some(socket) = &self.socket else { return Event::Nothing };
        loop {
            match net::recv(socket, &mut *scratch, RecvFlags::empty()) {
                Ok((0, _)) => return self.on_closed(),
                Ok((count, _)) => {
                    if self.request.is_none() {
                        return Event::Failed(Failure::Malformed);
                    }
                    match self.reader.receive(&scratch[..count]) {
                        Ok(Some(answer)) => return Event::Answered(answer),
                        Ok(None) if count < scratch.len() => return Event::Nothing,
                        Ok(None) => {}
                        Err(_) => return Event::Failed(Failure::Malformed),
                    }
                }
                Err(Errno::AGAIN) => return Event::Nothing,
                Err(Errno::INTR) => {}
                Err(_) if self.request.is_none() => return Event::ClosedIdle,
                Err(_) => return Event::Failed(Failure::Reset),
            }
        }
    }

    fn on_closed(&mut self) -> Event {
        match (self.request, self.reader.close()) {
            (None, _) => Event::ClosedIdle,
            (Some(_), Some(answer)) => Event::Answered(answer),
            (Some(_), None) => Event::Failed(Failure::Closed),
        }
    }
}
