//! The side towards clients: frames in, one call each out.
//!
//! Heartbeats never leave this file: their answers are written after what else one wake-up brought. Responses that a
//! client sends are passed over, because nothing here asks clients.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::bolt::{Command, Decoder, Error, Frame, Kind, Message, Status, Version};
use towpath_proto::{Instant, Out};

use crate::conn::mux::numbers::Numbers;
use crate::conn::mux::reply::Reply;
use crate::snapshot::BoltProxy;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Server {
    config: Arc<BoltProxy>,
    decoder: Decoder,
    /// Heartbeats to answer.
    heartbeats: Vec<Reply>,
    numbers: Numbers,
    /// What its calls' answers need, by number.
    calls: Vec<Asked>,
    /// How many of them wait for a connection upstream.
    waiting: u32,
    /// Bytes of the calls that are not answered.
    asked: usize,
    /// Bytes of the bodies that are collected for them.
    collected: usize,
    /// Input was left unread because of the calls that there are.
    held_back: bool,
    /// What the client speaks, by its last frame.
    version: Version,
    /// When it was told that it should go elsewhere.
    told: Option<Instant>,
}

/// What is kept of a call when its frame is let go.
#[derive(Clone, Copy, Debug)]
struct Asked {
    version: Version,
    checksum: bool,
    /// It stands in a pool's queue.
    waits: bool,
    /// Under which its client knows it.
    id: u32,
    /// Length of its frame.
    len: u32,
    /// Bytes of a body that are collected for it.
    collected: usize,
}

impl Server {
    pub(crate) fn new(config: Arc<BoltProxy>) -> Self {
        let decoder = Decoder::new(config.options.clone());
        Self {
            config,
            decoder,
            heartbeats: Vec::new(),
            numbers: Numbers::default(),
            calls: Vec::new(),
            waiting: 0,
            asked: 0,
            collected: 0,
            held_back: false,
            version: Version::V1,
            told: None,
        }
    }

    pub(crate) fn receive(&mut self, chunk: Bytes) {
        self.decoder.receive(chunk);
    }

    /// The next request, and the number that it has from here on.
    pub(crate) fn poll(&mut self) -> Result<Option<(u32, Frame)>, Error> {
        while let Some(frame) = self.decoder.poll()? {
            self.version = frame.version();
            match (frame.kind(), frame.command()) {
                (Kind::Request, Command::Heartbeat) => self.heartbeats.push(Reply::to(&frame)),
                (Kind::Request | Kind::Oneway, Command::Rpc) => {
                    return Ok(Some((self.begin(&frame), frame)));
                }
                (Kind::Response, _)
                | (Kind::Oneway, Command::Heartbeat)
                | (Kind::Request | Kind::Oneway, Command::GoAway) => {}
            }
        }
        Ok(None)
    }

    fn begin(&mut self, frame: &Frame) -> u32 {
        let asked = Asked {
            version: frame.version(),
            checksum: frame.has_checksum(),
            waits: false,
            id: frame.id(),
            len: u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX),
            collected: 0,
        };
        self.asked += asked.len as usize;
        let number = self.numbers.take();
        match self.calls.get_mut(number as usize) {
            Some(call) => *call = asked,
            None => self.calls.push(asked),
        }
        number
    }

    /// A call is over, answered or not.
    pub(crate) fn release(&mut self, number: u32) {
        self.set_waiting(number, false);
        let Some(call) = self.calls.get(number as usize) else { return };
        self.asked -= call.len as usize;
        self.collected -= call.collected;
        self.numbers.give(number);
    }

    /// Writes an answer that came under the number, and in the version, of its call.
    pub(crate) fn send_frame(&self, number: u32, answer: &Frame, out: &mut Out) {
        let Some(asked) = self.calls.get(number as usize) else { return };
        if answer.version() == asked.version {
            answer.write_as(asked.id, out);
            return;
        }
        let message = Message {
            command: answer.command(),
            codec: answer.codec(),
            class: Bytes::copy_from_slice(answer.class()),
            headers: answer.header_block(),
            content: answer.content(),
            ..Message::response(asked.version, asked.id, answer.status().unwrap_or(Status::UNKNOWN))
        };
        // All lengths are those of a frame that came.
        let _ = self.send_message(number, message, out);
    }

    /// Writes an answer of our own.
    ///
    /// # Errors
    /// When a part of it is too long.
    pub(crate) fn send_message(
        &self,
        number: u32,
        message: Message,
        out: &mut Out,
    ) -> Result<(), Error> {
        let Some(&Asked { version, checksum, id, .. }) = self.calls.get(number as usize) else {
            return Ok(());
        };
        Message { version, id, checksum, ..message }.write(out)
    }

    pub(crate) fn take_beats(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.heartbeats)
    }

    /// A call begins to wait for a connection upstream, or ceases to.
    pub(crate) fn set_waiting(&mut self, number: u32, waits: bool) {
        let Some(call) = self.calls.get_mut(number as usize) else { return };
        match (std::mem::replace(&mut call.waits, waits), waits) {
            (false, true) => self.waiting += 1,
            (true, false) => self.waiting -= 1,
            (true, true) | (false, false) => {}
        }
    }

    /// Counts a part of a body that is collected for a call; false if that is more than may be held.
    pub(crate) fn collect(&mut self, number: u32, len: usize) -> bool {
        let fits = self.collected + len <= self.config.max_held;
        if let Some(call) = self.calls.get_mut(number as usize).filter(|_| fits) {
            call.collected += len;
            self.collected += len;
        }
        fits
    }

    /// Whether no further request is to be taken now. That a client has few calls in queues is what shares a full
    /// upstream fairly: queues are first come, first served, and no client stands in them more than so often.
    pub(crate) fn is_full(&self) -> bool {
        self.numbers.taken() >= self.config.max_in_flight as usize
            || self.waiting >= WAITING_AT_MOST
            || self.asked >= self.config.max_held
    }

    pub(crate) fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// Whether input that was left unread can be read now; asked once.
    pub(crate) fn may_resume(&mut self) -> bool {
        let may = self.held_back && !self.is_full();
        if may {
            self.held_back = false;
        }
        may
    }

    /// Tells the client that it should go elsewhere, if it understands that and has not been told; whether it is.
    pub(crate) fn go_away(&mut self, now: Instant, out: &mut Out) -> bool {
        if !self.config.go_away || self.told.is_some() {
            return false;
        }
        self.told = Some(now);
        let message =
            Message { command: Command::GoAway, ..Message::request(self.version, GO_AWAY_NUMBER) };
        // Without parts it is never too long.
        message.write(out).is_ok()
    }

    /// Whether it has had the time to go elsewhere by itself, where it can know that it should.
    pub(crate) fn had_notice(&self, now: Instant) -> bool {
        !self.config.go_away || self.told.is_some_and(|told| now >= told + NOTICE)
    }

    pub(crate) fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    pub(crate) fn max_unread(&self) -> usize {
        self.config.max_unread
    }
}

/// Nothing is answered to it: its number means nothing.
const GO_AWAY_NUMBER: u32 = 0;

/// How long a client that was told has for the calls that it sent before it knew.
const NOTICE: Duration = Duration::from_secs(1);

/// Calls of one client that may wait for a connection upstream.
const WAITING_AT_MOST: u32 = 16;
