//! The side towards servers: calls of all clients out, answers in, each with the stream that it belongs to.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Event;
use towpath_proto::bolt::{Command, Decoder, Error, Frame, Kind, Status};
use towpath_proto::head::HeadPool;

use crate::conn::mux::reply::Reply;
use crate::conn::mux::slots::{Owner, Slots};
use crate::ids::StreamIndex;
use crate::snapshot::BoltUpstream;
use crate::stats::ClusterBoltStats;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) config: Arc<BoltUpstream>,
    pub(crate) stats: Arc<ClusterBoltStats>,
    pub(crate) decoder: Decoder,
    pub(crate) slots: Slots,
    /// The stream of the answer that was just reported, and the answer.
    pub(crate) answered: Option<(StreamIndex, Frame)>,
    /// What the server asked us, to answer.
    pub(crate) replies: Vec<Reply>,
    pub(crate) gone_away: bool,
    /// Calls whose frames are let go when they are sent, each with where it ends among all bytes of the connection.
    pub(crate) unsent: VecDeque<(u32, u64)>,
    pub(crate) pulse: Pulse,
}

/// Signs of life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pulse {
    /// Bytes received when it was last looked at.
    pub(crate) seen: u64,
    /// Our question that is not answered.
    pub(crate) asked: bool,
    /// Questions in a row that were not answered in time.
    pub(crate) missed: u32,
}

impl Client {
    pub(crate) fn new(config: Arc<BoltUpstream>, stats: Arc<ClusterBoltStats>) -> Self {
        let decoder = Decoder::new(config.options.clone());
        Self {
            config,
            stats,
            decoder,
            slots: Slots::default(),
            answered: None,
            replies: Vec::new(),
            gone_away: false,
            unsent: VecDeque::new(),
            pulse: Pulse::default(),
        }
    }

    pub(crate) fn receive(&mut self, chunk: Bytes) {
        self.decoder.receive(chunk);
    }

    /// The next answer that somebody waits for.
    pub(crate) fn poll(&mut self, heads: &mut HeadPool) -> Result<Option<Event>, Error> {
        while let Some(frame) = self.decoder.poll()? {
            match (frame.kind(), frame.command()) {
                (Kind::Response, Command::Rpc) => match self.slots.close(frame.id()) {
                    Owner::Stream(stream) => {
                        // Whoever reads more of it fills it from the frame.
                        let mut head = heads.take();
                        head.set_status(frame.status().unwrap_or(Status::UNKNOWN).to_http());
                        self.answered = Some((stream, frame));
                        return Ok(Some(Event::Head { head, end: true }));
                    }
                    Owner::Nobody => self.stats.late_answers.inc(),
                    Owner::Unknown => self.stats.unasked_answers.inc(),
                },
                (Kind::Response, Command::Heartbeat) => {
                    self.pulse.asked = false;
                    self.pulse.missed = 0;
                }
                (Kind::Request, Command::Heartbeat) => self.replies.push(Reply::to(&frame)),
                // Many clients share the connection: nobody knows for whom it is.
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

    /// The stream of the answer that was just reported.
    pub(crate) fn current(&self) -> Option<StreamIndex> {
        self.answered.as_ref().map(|(stream, _)| *stream)
    }

    /// The answer that was just reported.
    pub(crate) fn take_answer(&mut self) -> Option<Frame> {
        self.answered.take().map(|(_, frame)| frame)
    }

    pub(crate) fn take_replies(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.replies)
    }

    /// The frame of a call can go when so many bytes of the connection are sent.
    pub(crate) fn await_sent(&mut self, number: u32, end: u64) {
        self.unsent.push_back((number, end));
    }

    /// The next call whose frame is sent, and whose it is.
    pub(crate) fn next_sent(&mut self, sent: u64) -> Option<(u32, Owner)> {
        let (number, _) = self.unsent.front().copied().filter(|(_, end)| *end <= sent)?;
        self.unsent.pop_front();
        Some((number, self.slots.owner(number)))
    }

    /// A number for a stream's call.
    pub(crate) fn open(&mut self, stream: StreamIndex) -> Option<u32> {
        self.slots.open(stream)
    }

    /// There will be no answer to a call.
    pub(crate) fn close(&mut self, number: u32) {
        self.slots.close(number);
    }

    /// The answer to a call is not wanted any more.
    pub(crate) fn abandon(&mut self, number: u32) {
        self.slots.abandon(number);
    }

    pub(crate) fn take_all(&mut self) -> Vec<StreamIndex> {
        self.slots.take_all()
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        self.slots.taken()
    }

    /// Whether another call may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.slots.taken() < self.config.max_in_flight
    }

    /// Whether so many answers are overdue that the connection should not be used any longer.
    pub(crate) const fn is_worn(&self) -> bool {
        self.slots.abandoned() >= WORN
    }

    /// The server wants no further call on this connection.
    pub(crate) const fn goes_away(&self) -> bool {
        self.gone_away
    }
}

/// Calls that were given up and never answered, after which a connection is replaced: half of all numbers.
pub(crate) const WORN: u32 = 1 << 15;
