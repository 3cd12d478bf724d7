//! The side towards clients: frames in, one call each out.
//!
//! Heartbeats never leave this file: their answers are written after what else one wake-up brought. Responses that a
//! client sends are passed over, because nothing here asks clients.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::bolt::{Command, Decoder, Error, Frame, Kind, Message, Version};
use towpath_proto::head::HeadPool;
use towpath_proto::{Event, Instant};

use crate::conn::mux::reply::Reply;
use crate::ids::StreamIndex;
use crate::snapshot::BoltProxy;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) config: Arc<BoltProxy>,
    pub(crate) decoder: Decoder,
    /// The request that was just reported.
    pub(crate) frame: Option<Frame>,
    /// Heartbeats to answer.
    pub(crate) beats: Vec<Reply>,
    /// Calls that are not answered, in no order.
    pub(crate) calls: Vec<StreamIndex>,
    /// How many of them wait for a place upstream.
    pub(crate) waiting: u32,
    /// Bytes of the calls that are not answered.
    pub(crate) asked: usize,
    /// Bytes of the bodies that are collected for them.
    pub(crate) collected: usize,
    /// Input was left unread because of the calls that there are.
    pub(crate) held_back: bool,
    /// What the client speaks, by its last frame.
    pub(crate) version: Version,
    /// When it was told that it should go elsewhere.
    pub(crate) told: Option<Instant>,
}

impl Server {
    pub(crate) fn new(config: Arc<BoltProxy>) -> Self {
        let decoder = Decoder::new(config.options.clone());
        Self {
            config,
            decoder,
            frame: None,
            beats: Vec::new(),
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

    /// The next request.
    pub(crate) fn poll(&mut self, heads: &mut HeadPool) -> Result<Option<Event>, Error> {
        while let Some(frame) = self.decoder.poll()? {
            self.version = frame.version();
            match (frame.kind(), frame.command()) {
                (Kind::Request, Command::Heartbeat) => self.beats.push(Reply::to(&frame)),
                (Kind::Request | Kind::Oneway, Command::Rpc) => {
                    self.frame = Some(frame);
                    // Whoever reads it fills it from the frame.
                    return Ok(Some(Event::Head { head: heads.take(), end: true }));
                }
                (Kind::Response, _)
                | (Kind::Oneway, Command::Heartbeat)
                | (Kind::Request | Kind::Oneway, Command::GoAway) => {}
            }
        }
        Ok(None)
    }

    /// The frame behind the head that was just reported.
    pub(crate) fn take_frame(&mut self) -> Option<Frame> {
        self.frame.take()
    }

    pub(crate) fn take_beats(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.beats)
    }

    /// Adds a call of so many bytes; answers its position.
    pub(crate) fn add(&mut self, index: StreamIndex, asked: usize) -> u32 {
        self.asked += asked;
        self.calls.push(index);
        u32::try_from(self.calls.len() - 1).unwrap_or(u32::MAX)
    }

    /// Takes out a call; answers the one that stands in its position now.
    pub(crate) fn remove(
        &mut self,
        position: u32,
        asked: usize,
        collected: usize,
    ) -> Option<StreamIndex> {
        self.asked = self.asked.saturating_sub(asked);
        self.collected = self.collected.saturating_sub(collected);
        let position = position as usize;
        if position >= self.calls.len() {
            return None;
        }
        self.calls.swap_remove(position);
        self.calls.get(position).copied()
    }

    /// All calls, by a copy.
    pub(crate) fn calls(&self) -> Vec<StreamIndex> {
        self.calls.clone()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// One more call waits for a place, or one less.
    pub(crate) fn waits(&mut self, more: bool) {
        self.waiting = if more { self.waiting + 1 } else { self.waiting.saturating_sub(1) };
    }

    /// Counts a part of a body that is collected; false if that is more than may be held.
    pub(crate) fn collect(&mut self, len: usize) -> bool {
        let fits = self.collected + len <= self.config.max_held;
        if fits {
            self.collected += len;
        }
        fits
    }

    /// Whether no further request is to be taken now. That a client has few calls in queues is what shares a full
    /// upstream fairly: queues are first come, first served, and nobody stands in them more than so often.
    pub(crate) fn is_full(&self) -> bool {
        self.calls.len() >= self.config.max_in_flight as usize
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

    /// What tells the client that it should go elsewhere, if it understands that and has not been told.
    pub(crate) fn farewell(&mut self, now: Instant) -> Option<Message> {
        if !self.config.go_away || self.told.is_some() {
            return None;
        }
        self.told = Some(now);
        Some(Message { command: Command::GoAway, ..Message::request(self.version, GO_AWAY_NUMBER) })
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
pub(crate) const GO_AWAY_NUMBER: u32 = 0;

/// How long a client that was told has for the calls that it sent before it knew.
pub(crate) const NOTICE: Duration = Duration::from_secs(1);

/// Calls of one client that may wait for a place upstream.
pub(crate) const WAITING_AT_MOST: u32 = 16;
