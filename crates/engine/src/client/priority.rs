//! Which of the requests that wait for a connection gets the next one.
//!
//! Arrives: a request's level, and when it began. Leaves: its turn, a moment by which those that wait are sorted.
//!
//! A lower level is a handicap in time: a request of [`Priority::Low`] that has waited for 20 s is on a par with one of
//! [`Priority::High`] that begins now, so that no request waits for ever. Within a level who began first is first.

use std::time::Duration;

use towpath_proto::Instant;

/// How urgent a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// A user looks at the screen and waits.
    High,
    /// The usual.
    #[default]
    Normal,
    /// Whenever there is room: prefetching, uploads of logs.
    Low,
}

impl Priority {
    /// In one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// The turn of a request that began at `since`: the earliest is next.
    #[must_use]
    pub fn turn(self, since: Instant) -> Instant {
        since + self.handicap()
    }

    const fn handicap(self) -> Duration {
        match self {
            Self::High => Duration::ZERO,
            Self::Normal => Duration::from_secs(5),
            Self::Low => Duration::from_secs(20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_higher_level_goes_first_and_the_earlier_one_within_it() {
        assert!(Priority::High.turn(at(3)) < Priority::Normal.turn(at(0)));
        assert!(Priority::Normal.turn(at(3)) < Priority::Low.turn(at(0)));
        assert!(Priority::Low.turn(at(0)) < Priority::Low.turn(at(1)));
    }

    #[test]
    fn who_waits_long_enough_is_next() {
        assert!(Priority::Low.turn(at(0)) < Priority::High.turn(at(21)));
        assert!(Priority::Low.turn(at(0)) < Priority::Normal.turn(at(16)));
        assert!(Priority::Normal.turn(at(0)) < Priority::High.turn(at(6)));
    }
}
