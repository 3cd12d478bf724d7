//! A link in virtual time: packets in, verdicts and delivery times out.
//!
//! Each direction is a [`Path`] of stages in this order: outage → loss → rate with a bounded and perhaps managed
//! queue → delay with jitter → reordering, duplication. A path reads no clock and moves no bytes: it is told a size and
//! an instant and says what becomes of the packet, so the same stages serve a simulation and a live
//! emulator.
//!
//! Every random decision is drawn from (seed, direction, packet number), never from a running generator:
//! two programs that are compared meet the same losses by packet number, whatever they do in between.

mod aqm;
mod draw;
mod profile;
mod rate;
mod timeline;
mod trace;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::time::Instant;

pub use aqm::Aqm;
use aqm::{Candidate, Decision, Manager};
use draw::{Draw, Purpose};
pub use profile::{PROFILES, Profile};
use rate::Serialiser;
pub use timeline::{Change, Timeline};
pub use trace::{Trace, TraceError};

/// Which way a packet goes, seen from the near end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the near end to the far end.
    Up,
    /// From the far end to the near end.
    Down,
}

/// What a path does to packets. The default does nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Which packets are lost.
    pub loss: Loss,
    /// How fast packets leave.
    pub rate: Rate,
    /// Bytes that may wait for a limited rate; more are dropped at the tail.
    pub queue_bytes: Option<u64>,
    /// How that queue is managed before it is full.
    pub aqm: Aqm,
    /// Whether that management marks packets of senders that understand it (RFC 3168), instead of dropping them.
    pub ecn: bool,
    /// How long each packet travels.
    pub delay: Duration,
    /// Up to how much longer, drawn evenly.
    pub jitter: Duration,
    /// Whether that lets packets overtake each other. Otherwise each waits for the slowest before it, so that packets
    /// closer together than the jitter travel longer on average.
    pub jitter_reorders: bool,
    /// The share of packets that are held back so that later ones overtake them.
    pub reorder: f64,
    /// The share of packets that arrive twice.
    pub duplicate: f64,
}

/// Which packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with this probability, independently.
    Bernoulli(f64),
    /// A good and a bad state, as Gilbert and Elliott have it.
    GilbertElliott {
        /// Probability to turn bad after a packet.
        to_bad: f64,
        /// Probability to turn good after a packet.
        to_good: f64,
        /// Loss in the good state.
        good_loss: f64,
        /// Loss in the bad state.
        bad_loss: f64,
    },
}

/// How fast packets leave.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Rate {
    /// At once.
    #[default]
    Unlimited,
    /// At this many bits per second.
    BitsPerSecond(f64),
    /// At recorded opportunities of 1500 bytes each, repeated for ever.
    Trace(Arc<Trace>),
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives then, and once more if it was duplicated.
    Deliver {
        /// When.
        at: Instant,
        /// When its double arrives.
        again: Option<Instant>,
        /// Whether it met congestion and is to carry the mark (RFC 3168, CE).
        is_marked: bool,
    },
    /// The air ate it.
    Lost,
    /// The queue was full.
    QueueFull,
    /// The queue's management dropped it.
    Managed,
    /// There was no link.
    Outage,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Path {
    conditions: Conditions,
    timeline: Timeline,
    next_change: usize,
    direction: Direction,
    seed: u64,
    number: u64,
    is_bad: bool,
    serialiser: Serialiser,
    manager: Manager,
    /// When each waiting packet leaves, and its size.
    queue: VecDeque<(Instant, u64)>,
    queued_bytes: u64,
    last_arrival: Instant,
}

impl Path {
    /// A path under `conditions`, changed as `timeline` has it; instants count from [`Instant::ZERO`].
    pub fn new(
        conditions: Conditions,
        timeline: Timeline,
        direction: Direction,
        seed: u64,
    ) -> Self {
        Self {
            serialiser: Serialiser::new(conditions.rate.clone()),
            manager: Manager::new(conditions.aqm),
            conditions,
            timeline,
            next_change: 0,
            direction,
            seed,
            number: 0,
            is_bad: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            last_arrival: Instant::ZERO,
        }
    }

    /// Sends a packet of `size` bytes that is not to be marked. Instants may not go backwards.
    pub fn send(&mut self, size: u64, now: Instant) -> Verdict {
        self.send_packet(size, false, now)
    }

    /// Sends a packet of `size` bytes, whose sender may understand marks (RFC 3168, ECT). Instants may not go
    /// backwards.
    pub fn send_packet(&mut self, size: u64, is_ect: bool, now: Instant) -> Verdict {
        self.follow_timeline(now);
        let draw = Draw::new(self.seed, self.direction, self.number);
        self.number += 1;
        // The loss chain moves on during an outage too, so that an outage shifts no later decision.
        let is_lost = self.is_lost(&draw);
        if self.timeline.is_out(now) {
            return Verdict::Outage;
        }
        if is_lost {
            return Verdict::Lost;
        }
        let (left, is_marked) = match self.leave(size, is_ect, &draw, now) {
            Ok(left) => left,
            Err(verdict) => return verdict,
        };
        let jitter = self.conditions.jitter.mul_f64(draw.share(Purpose::Jitter));
        let mut at = left + self.conditions.delay + jitter;
        if !self.conditions.jitter_reorders {
            at = at.max(self.last_arrival);
        }
        if draw.share(Purpose::Reorder) < self.conditions.reorder {
            // Held back without holding up those behind it.
            at += self.conditions.delay.div_f64(4.0).max(self.conditions.jitter).max(HOLD_BACK);
        } else {
            self.last_arrival = at.max(self.last_arrival);
        }
        let is_double = draw.share(Purpose::Duplicate) < self.conditions.duplicate;
        Verdict::Deliver { at, again: is_double.then(|| at + HOLD_BACK), is_marked }
    }

    /// From now on other conditions; what is on its way stays so.
    pub fn change(&mut self, conditions: Conditions) {
        if conditions.rate != self.conditions.rate {
            self.serialiser = Serialiser::new(conditions.rate.clone());
        }
        if conditions.aqm != self.conditions.aqm {
            self.manager = Manager::new(conditions.aqm);
        }
        self.conditions = conditions;
    }

    /// No link from `start` on for `length`.
    pub fn break_off(&mut self, start: Instant, length: Duration) {
        let timeline = std::mem::take(&mut self.timeline);
        self.timeline = timeline.with_outage(start.since(Instant::ZERO), length);
    }

    /// What it does to packets at present.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Bytes that wait for their turn at `now`.
    pub fn queued_bytes(&mut self, now: Instant) -> u64 {
        while let Some((leaves, size)) =
            self.queue.front().copied().filter(|(leaves, _)| *leaves <= now)
        {
            debug_assert!(leaves <= now);
            self.queued_bytes -= size;
            self.queue.pop_front();
        }
        self.queued_bytes
    }

    /// Packets sent so far, delivered or not.
    pub fn sent(&self) -> u64 {
        self.number
    }

    fn follow_timeline(&mut self, now: Instant) {
        while let Some(change) =
            self.timeline.change(self.next_change).filter(|change| change.at <= now)
        {
            let conditions = change.conditions(self.direction).clone();
            self.change(conditions);
            self.next_change += 1;
        }
    }

    fn is_lost(&mut self, draw: &Draw) -> bool {
        match self.conditions.loss {
            Loss::None => false,
            Loss::Bernoulli(loss) => draw.share(Purpose::Loss) < loss,
            Loss::GilbertElliott { to_bad, to_good, good_loss, bad_loss } => {
                let is_lost =
                    draw.share(Purpose::Loss) < if self.is_bad { bad_loss } else { good_loss };
                let turn = draw.share(Purpose::State);
                self.is_bad = if self.is_bad { turn >= to_good } else { turn < to_bad };
                is_lost
            }
        }
    }

    /// When the packet has left the queue and whether it was marked there, or why it has not.
    fn leave(
        &mut self,
        size: u64,
        is_ect: bool,
        draw: &Draw,
        now: Instant,
    ) -> Result<(Instant, bool), Verdict> {
        if self.conditions.rate == Rate::Unlimited {
            return Ok((now, false));
        }
        let limit = self.conditions.queue_limit();
        // What is being sent occupies no queue: the first packet fits whatever the limit.
        if self.queued_bytes(now) > 0 && self.queued_bytes + size > limit {
            return Err(Verdict::QueueFull);
        }
        let candidate = Candidate {
            now,
            leaves: self.serialiser.turn(now),
            backlog: self.queued_bytes + size,
            chance: draw.share(Purpose::Aqm),
        };
        let is_marked = match self.manager.decide(&candidate) {
            Decision::Pass => false,
            Decision::Signal if self.conditions.ecn && is_ect => true,
            Decision::Signal | Decision::Drop => return Err(Verdict::Managed),
        };
        let leaves = self.serialiser.leave(size, now);
        self.queue.push_back((leaves, size));
        self.queued_bytes += size;
        Ok((leaves, is_marked))
    }
}

impl Conditions {
    /// The queue's limit in bytes: what was asked for, or a quarter of a second at the mean rate, at least
    /// twenty full packets.
    pub fn queue_limit(&self) -> u64 {
        self.queue_bytes.unwrap_or_else(|| match &self.rate {
            Rate::Unlimited => 0,
            Rate::BitsPerSecond(rate) => ((rate / 8.0 / 4.0) as u64).max(20 * FULL_PACKET),
            Rate::Trace(trace) => {
                ((trace.mean_bits_per_second() / 8.0 / 4.0) as u64).max(20 * FULL_PACKET)
            }
        })
    }
}

impl Loss {
    /// Losses that come in bursts of `burst` packets on average, with the overall share `share`.
    pub fn bursts(share: f64, burst: f64) -> Self {
        if share <= 0.0 {
            return Self::None;
        }
        let to_good = 1.0 / burst.max(1.0);
        let to_bad = (share * to_good / (1.0 - share).max(f64::EPSILON)).min(1.0);
        Self::GilbertElliott { to_bad, to_good, good_loss: 0.0, bad_loss: 1.0 }
    }

    /// The share of packets lost in the long run.
    pub fn share(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Bernoulli(share) => share,
            Self::GilbertElliott { to_bad, to_good, good_loss, bad_loss } => {
                let moves = to_bad + to_good;
                if moves == 0.0 {
                    good_loss
                } else {
                    (to_good * good_loss + to_bad * bad_loss) / moves
                }
            }
        }
    }
}

/// How far a packet is held back at least, so that the next one overtakes it; also how far a double follows.
const HOLD_BACK: Duration = Duration::from_millis(1);
const FULL_PACKET: u64 = 1500;

#[cfg(test)]
mod tests;
