//! Puts packets on the wire one after the other.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::time::Instant;

use super::{FULL_PACKET, Rate, Trace};

/// When the wire is free.
#[derive(Clone, Debug)]
pub(super) enum Serialiser {
    Unlimited,
    Constant {
        bits_per_second: f64,
        free_at: Instant,
    },
    /// Which opportunity is in use and how much of it is left.
    Trace {
        trace: Arc<Trace>,
        opportunity: u64,
        left: u64,
    },
}

impl Serialiser {
    pub(super) fn new(rate: Rate) -> Self {
        match rate {
            Rate::Unlimited => Self::Unlimited,
            Rate::BitsPerSecond(bits_per_second) => {
                Self::Constant { bits_per_second, free_at: Instant::ZERO }
            }
            Rate::Trace(trace) => Self::Trace { trace, opportunity: 0, left: FULL_PACKET },
        }
    }

    /// When the turn of a packet that arrives at `now` comes.
    pub(super) fn turn(&self, now: Instant) -> Instant {
        match self {
            Self::Unlimited => now,
            Self::Constant { free_at, .. } => (*free_at).max(now),
            Self::Trace { trace, opportunity, left } => {
                let next = if *left == 0 { opportunity + 1 } else { *opportunity };
                trace.instant(next).max(now)
            }
        }
    }

    /// When a packet that arrives at `now` has left.
    pub(super) fn leave(&mut self, size: u64, now: Instant) -> Instant {
        match self {
            Self::Unlimited => now,
            Self::Constant { bits_per_second, free_at } => {
                let takes =
                    Duration::from_secs_f64((size as f64 * 8.0 / *bits_per_second).min(NEVER_S));
                *free_at = (*free_at).max(now) + takes;
                *free_at
            }
            Self::Trace { trace, opportunity, left } => {
                if trace.instant(*opportunity) < now {
                    *opportunity = trace.first_at(now);
                    *left = FULL_PACKET;
                }
                let mut size = size;
                while size > *left {
                    size -= *left;
                    *opportunity += 1;
                    *left = FULL_PACKET;
                }
                *left -= size;
                trace.instant(*opportunity)
            }
        }
    }
}

/// A year: a rate this low delivers nothing within an experiment.
const NEVER_S: f64 = 3.2e7;
