//! The side towards servers: calls of all clients out, answers in, each with the number of its call.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Out;
use towpath_proto::bolt::{Command, Decoder, Error, Frame, Kind, Message, Version};

use crate::conn::mux::Liveness;
use crate::conn::mux::reply::Reply;
use crate::conn::mux::slots::{Owner, Slots};
use crate::snapshot::BoltUpstream;
use crate::stats::ClusterBoltStats;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Client {
    config: Arc<BoltUpstream>,
    stats: Arc<ClusterBoltStats>,
    decoder: Decoder,
    slots: Slots,
    /// What the server asked us, to answer.
    replies: Vec<Reply>,
    gone_away: bool,
    /// Calls whose frames are let go when they are sent, each with where it ends among all bytes of the connection.
    unsent: VecDeque<(u32, u64)>,
    signs: Signs,
}

/// Signs of life.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    /// Bytes received when it was last looked at.
    seen: u64,
    /// Our question that is not answered.
    asked: bool,
    /// Questions in a row that were not answered in time.
    missed: u32,
}

impl Client {
    pub(crate) fn new(config: Arc<BoltUpstream>, stats: Arc<ClusterBoltStats>) -> Self {
        let decoder = Decoder::new(config.options.clone());
        Self {
            config,
            stats,
            decoder,
            slots: Slots::default(),
            replies: Vec::new(),
            gone_away: false,
            unsent: VecDeque::new(),
            signs: Signs::default(),
        }
    }

    pub(crate) fn receive(&mut self, chunk: Bytes) {
        self.decoder.receive(chunk);
    }

    /// The next answer that a call waits for, and the call's number.
    pub(crate) fn poll(&mut self) -> Result<Option<(u32, Frame)>, Error> {
        while let Some(frame) = self.decoder.poll()? {
            match (frame.kind(), frame.command()) {
                (Kind::Response, Command::Rpc) => match self.slots.answer(frame.id()) {
                    Owner::Call(number) => return Ok(Some((number, frame))),
                    Owner::Abandoned => self.stats.late_answers.inc(),
                    Owner::Unknown => self.stats.unasked_answers.inc(),
                },
                (Kind::Response, Command::Heartbeat) => {
                    (self.signs.asked, self.signs.missed) = (false, 0);
                }
                (Kind::Request, Command::Heartbeat) => self.replies.push(Reply::to(&frame)),
                // Many clients share the connection: it does not say for which of them the request is.
                (Kind::Request, Command::Rpc) => {
                    self.stats.refused_calls.inc();
                    self.replies.push(Reply::to(&frame));
                }
                (Kind::Oneway, Command::Rpc) => self.stats.refused_calls.inc(),
                (Kind::Request | Kind::Oneway, Command::GoAway) => self.gone_away = true,
                (Kind::Oneway, Command::Heartbeat) | (Kind::Response, Command::GoAway) => {}
            }
        }
        Ok(None)
    }

    /// Writes a call under an identifier of our own.
    pub(crate) fn send_frame(&mut self, number: u32, call: &Frame, out: &mut Out) {
        let Some(id) = self.slots.id(number) else { return };
        call.write_as(id, out);
        if call.kind() == Kind::Oneway {
            // There will be no answer.
            self.slots.answer(id);
        }
    }

    pub(crate) fn take_replies(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.replies)
    }

    /// The frame of a call can go when so many bytes of the connection are sent.
    pub(crate) fn await_sent(&mut self, number: u32, end: u64) {
        if let Some(id) = self.slots.id(number) {
            self.unsent.push_back((id, end));
        }
    }

    /// The next call that is still under way and whose frame is sent.
    pub(crate) fn next_sent(&mut self, sent: u64) -> Option<u32> {
        while let Some((id, _)) = self.unsent.front().copied().filter(|(_, end)| *end <= sent) {
            self.unsent.pop_front();
            if let Owner::Call(number) = self.slots.owner(id) {
                return Some(number);
            }
        }
        None
    }

    /// A number for a call; none if the connection has no room for it.
    pub(crate) fn open(&mut self) -> Option<u32> {
        self.slots.open()
    }

    /// A call is over for us; where it was not answered, its answer is still to come.
    pub(crate) fn release(&mut self, number: u32) {
        self.slots.release(number);
    }

    /// The connection is lost: no answer comes any more.
    pub(crate) fn lose(&mut self) {
        self.gone_away = true;
        self.slots.lose();
    }

    /// Whether no call will begin again: the server wants none, or so many answers are overdue that the connection
    /// should not be used any longer.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.gone_away || self.slots.abandoned() >= EXHAUSTED
    }

    /// How many calls may still begin.
    pub(crate) fn capacity(&self) -> u32 {
        if self.is_exhausted() {
            return 0;
        }
        self.config.max_in_flight.saturating_sub(self.slots.taken())
    }

    /// Looks for a sign of life since the last look, of which `misses` in a row may be missing.
    pub(crate) fn check_liveness(&mut self, received: u64, misses: u32) -> Liveness {
        let signs = &mut self.signs;
        if received > std::mem::replace(&mut signs.seen, received) {
            (signs.asked, signs.missed) = (false, 0);
            return Liveness::Alive;
        }
        let missed = std::mem::replace(&mut signs.asked, true);
        signs.missed += u32::from(missed);
        if signs.missed >= misses { Liveness::Dead } else { Liveness::Ask { missed } }
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(out: &mut Out) {
        // Without parts it is never too long. Version 1 is understood by all.
        let _ = Message::heartbeat(Version::V1, HEARTBEAT_NUMBER).write(out);
    }
}

/// A heartbeat's answer is told by its command: its number means nothing.
const HEARTBEAT_NUMBER: u32 = 0;

/// Calls that were given up and never answered, after which a connection is replaced: half of all numbers.
const EXHAUSTED: u32 = 1 << 15;
