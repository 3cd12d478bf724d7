//! Active queue management: packets are dropped, or marked, before the queue is full.
//!
//! A path decides about a packet when it is sent, and knows then when it will leave, because what left before it is
//! decided already. CoDel's law is applied at that instant; only its question whether more than one packet waits is
//! answered with what waits when the packet comes.

use std::time::Duration;

use towpath_proto::time::Instant;

use super::FULL_PACKET;

/// Which queue management a limited rate has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Aqm {
    /// None: what does not fit is dropped at the tail.
    #[default]
    TailDrop,
    /// CoDel (RFC 8289): drops when packets have waited longer than `target` for a whole `interval`.
    CoDel {
        /// How long packets may wait; 5 ms in the RFC.
        target: Duration,
        /// For how long they may wait longer; 100 ms in the RFC.
        interval: Duration,
    },
    /// PIE (RFC 8033): drops with a probability that keeps the waiting time near `target`.
    Pie {
        /// The waiting time aimed at; 15 ms in the RFC.
        target: Duration,
    },
}

impl Aqm {
    /// CoDel with the RFC's values.
    pub const CODEL: Self =
        Self::CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) };
    /// PIE with the RFC's values.
    pub const PIE: Self = Self::Pie { target: Duration::from_millis(15) };
}

/// What a queue's management decides about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Pass,
    /// Congestion: drop it, or mark it if its sender understands marks.
    Signal,
    /// Too much of it: drop it even if it could be marked.
    Drop,
}

/// The state of one queue's management.
#[derive(Clone, Debug)]
pub(super) enum Manager {
    TailDrop,
    CoDel(CoDel),
    Pie(Pie),
}

/// A packet that wants to enter the queue.
pub(super) struct Candidate {
    /// When it comes.
    pub(super) now: Instant,
    /// When its turn to leave comes.
    pub(super) leaves: Instant,
    /// Bytes that wait, its own included.
    pub(super) backlog: u64,
    /// Even in [0, 1), its own.
    pub(super) chance: f64,
}

impl Manager {
    pub(super) fn new(aqm: Aqm) -> Self {
        match aqm {
            Aqm::TailDrop => Self::TailDrop,
            Aqm::CoDel { target, interval } => Self::CoDel(CoDel::new(target, interval)),
            Aqm::Pie { target } => Self::Pie(Pie::new(target)),
        }
    }

    pub(super) fn decide(&mut self, packet: &Candidate) -> Decision {
        match self {
            Self::TailDrop => Decision::Pass,
            Self::CoDel(codel) => codel.decide(packet),
            Self::Pie(pie) => pie.decide(packet),
        }
    }
}

/// RFC 8289 §5, in its words.
#[derive(Clone, Debug)]
pub(super) struct CoDel {
    target: Duration,
    interval: Duration,
    first_above_time: Option<Instant>,
    drop_next: Instant,
    count: u32,
    lastcount: u32,
    dropping: bool,
    /// The packet before was dropped while dropping: the next drop is due by the law from then.
    is_law_due: bool,
}

impl CoDel {
    fn new(target: Duration, interval: Duration) -> Self {
        Self {
            target,
            interval,
            first_above_time: None,
            drop_next: Instant::ZERO,
            count: 0,
            lastcount: 0,
            dropping: false,
            is_law_due: false,
        }
    }

    fn decide(&mut self, packet: &Candidate) -> Decision {
        let (now, sojourn) = (packet.leaves, packet.leaves.since(packet.now));
        let ok_to_drop = self.is_ok_to_drop(sojourn, packet.backlog, now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
                return Decision::Pass;
            }
            if std::mem::take(&mut self.is_law_due) {
                self.drop_next = self.control_law(self.drop_next);
            }
            if now < self.drop_next {
                return Decision::Pass;
            }
            self.count += 1;
            self.is_law_due = true;
            return Decision::Signal;
        }
        if !ok_to_drop {
            return Decision::Pass;
        }
        self.dropping = true;
        self.is_law_due = false;
        // Soon after the last time it goes on from the rate that controlled the queue then (§4.2).
        let delta = self.count - self.lastcount;
        let is_recent = now.since(self.drop_next) < self.interval * 16;
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.lastcount = self.count;
        Decision::Signal
    }

    /// §5.6: above the target for an interval, with more than one packet waiting.
    fn is_ok_to_drop(&mut self, sojourn: Duration, backlog: u64, now: Instant) -> bool {
        if sojourn < self.target || backlog <= FULL_PACKET {
            self.first_above_time = None;
            return false;
        }
        match self.first_above_time {
            None => {
                self.first_above_time = Some(now + self.interval);
                false
            }
            Some(first) => now >= first,
        }
    }

    fn control_law(&self, time: Instant) -> Instant {
        time + self.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

/// RFC 8033 §4 and §5: probability, safeguards, burst allowance, derandomisation.
#[derive(Clone, Debug)]
pub(super) struct Pie {
    target_s: f64,
    probability: f64,
    accumulated: f64,
    delay_s: f64,
    burst_s: f64,
    next_update: Instant,
    /// When what was sent so far has left.
    busy_until: Instant,
}

impl Pie {
    fn new(target: Duration) -> Self {
        Self {
            target_s: target.as_secs_f64(),
            probability: 0.0,
            accumulated: 0.0,
            delay_s: 0.0,
            burst_s: MAX_BURST_S,
            next_update: Instant::ZERO + T_UPDATE,
            busy_until: Instant::ZERO,
        }
    }

    fn decide(&mut self, packet: &Candidate) -> Decision {
        self.catch_up(packet.now);
        self.busy_until = packet.leaves;
        if self.burst_s > 0.0 {
            return Decision::Pass;
        }
        if self.probability == 0.0 {
            self.accumulated = 0.0;
        }
        let is_calm = self.delay_s < self.target_s / 2.0 && self.probability < 0.2;
        if is_calm || packet.backlog <= 2 * FULL_PACKET {
            return Decision::Pass;
        }
        self.accumulated += self.probability;
        if self.accumulated < 0.85 {
            return Decision::Pass;
        }
        if self.accumulated < 8.5 && packet.chance >= self.probability {
            return Decision::Pass;
        }
        self.accumulated = 0.0;
        // §5.1: above a tenth, marks alone do not help.
        if self.probability <= MARK_AT_MOST { Decision::Signal } else { Decision::Drop }
    }

    /// Every update up to `now`; a long silence ends in the state of an empty queue.
    fn catch_up(&mut self, now: Instant) {
        let mut rounds = 0;
        while self.next_update <= now && rounds < UPDATES_AT_ONCE {
            self.update(self.busy_until.since(self.next_update).as_secs_f64());
            self.next_update += T_UPDATE;
            rounds += 1;
        }
        if self.next_update <= now {
            *self = Self {
                next_update: now + T_UPDATE,
                ..Self::new(Duration::from_secs_f64(self.target_s))
            };
        }
    }

    /// §4.2 and §5.3.
    fn update(&mut self, delay_s: f64) {
        let step = ALPHA * (delay_s - self.target_s) + BETA * (delay_s - self.delay_s);
        let scale = match self.probability {
            low if low < 0.000_001 => 2048.0,
            low if low < 0.000_01 => 512.0,
            low if low < 0.000_1 => 128.0,
            low if low < 0.001 => 32.0,
            low if low < 0.01 => 8.0,
            low if low < 0.1 => 2.0,
            _ => 1.0,
        };
        let step = step / scale;
        let step = if self.probability >= 0.1 { step.min(0.02) } else { step };
        self.probability += step;
        if delay_s == 0.0 && self.delay_s == 0.0 {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_s = (self.burst_s - T_UPDATE.as_secs_f64()).max(0.0);
        let half = self.target_s / 2.0;
        if self.probability == 0.0 && delay_s < half && self.delay_s < half {
            self.burst_s = MAX_BURST_S;
        }
        self.delay_s = delay_s;
    }
}

const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
const T_UPDATE: Duration = Duration::from_millis(15);
const MAX_BURST_S: f64 = 0.150;
const MARK_AT_MOST: f64 = 0.1;
/// A minute of updates: after that the probability has long decayed.
const UPDATES_AT_ONCE: u32 = 4000;
