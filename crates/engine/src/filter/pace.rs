//! Content that goes on no faster than a rate: what `bandwidth_limit` and `fault` have in common.
//!
//! Arrives: pieces of one direction of a stream, and its end. Leaves: as much of it as there are tokens for, at once
//! and then again after each interval. What is held is bounded by not reading who sends it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Head, Instant};

use super::{Direction, Step};

/// Bytes that may go on, of one second at most; many threads take from it.
#[derive(Debug)]
pub struct Allowance {
    /// When it was empty, in nanoseconds: what has come since is in it.
    empty_at: AtomicU64,
    per_second: u64,
}

impl Allowance {
    /// A full one, of so many KiB in a second.
    #[must_use]
    pub const fn new(kib_per_second: u64) -> Self {
        let per_second = kib_per_second.saturating_mul(1024);
        Self { empty_at: AtomicU64::new(0), per_second }
    }

    /// One that has what comes in so long.
    #[must_use]
    pub fn with(kib_per_second: u64, filled: Duration, now: Instant) -> Self {
        let empty = Self::new(kib_per_second);
        let filled = u64::try_from(filled.as_nanos()).unwrap_or(u64::MAX);
        let now = now.as_nanos().saturating_add(SECOND);
        empty.empty_at.store(now.saturating_sub(filled), Ordering::Relaxed);
        empty
    }

    /// Takes so many bytes, or as many as there are.
    fn take(&self, wanted: u64, now: Instant) -> u64 {
        // A clock that begins at 0 has its first second too.
        let now = now.as_nanos().saturating_add(SECOND);
        let mut taken = 0;
        let updated = self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |empty| {
            let empty = empty.max(now.saturating_sub(SECOND));
            let filled = u128::from(now.saturating_sub(empty));
            let there = filled * u128::from(self.per_second) / u128::from(SECOND);
            taken = wanted.min(u64::try_from(there).unwrap_or(u64::MAX));
            if taken == 0 {
                return None;
            }
            let cost = (u128::from(taken) * u128::from(SECOND)).div_ceil(self.per_second.into());
            Some(empty.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX)).min(now))
        });
        if updated.is_ok() { taken } else { 0 }
    }
}

const SECOND: u64 = 1_000_000_000;

/// One direction of a stream.
#[derive(Debug)]
pub(super) struct Pace {
    way: Direction,
    interval: Duration,
    held: VecDeque<Bytes>,
    length: usize,
    end: End,
    /// It goes on after its interval.
    waits: bool,
}

/// The end of what is held.
#[derive(Debug)]
enum End {
    NotHere,
    Held(Option<Head>),
    Passed,
}

/// What went on at once, and whether something is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) bytes: u64,
    pub(super) waits: bool,
    /// It is the end.
    pub(super) ends: bool,
}

impl Pace {
    pub(super) const fn new(way: Direction, interval: Duration) -> Self {
        Self { way, interval, held: VecDeque::new(), length: 0, end: End::NotHere, waits: false }
    }

    /// Takes a piece.
    pub(super) fn push(&mut self, data: &mut Bytes) {
        self.length += data.len();
        self.held.push_back(std::mem::take(data));
    }

    /// Keeps the end, if something is held before it.
    pub(super) fn keep_end(&mut self, trailers: Option<&mut Head>) -> bool {
        if self.length == 0 {
            return false;
        }
        self.end = End::Held(trailers.map(std::mem::take));
        true
    }

    /// The end that is held, for what is added to it.
    #[cfg(feature = "serving")]
    pub(super) fn trailers_mut(&mut self) -> Option<&mut Option<Head>> {
        match &mut self.end {
            End::Held(trailers) => Some(trailers),
            End::NotHere | End::Passed => None,
        }
    }

    pub(super) const fn held(&self) -> usize {
        self.length
    }

    /// Whether nothing can be done before the interval has passed.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }

    /// The interval has passed.
    pub(super) const fn wake(&mut self) {
        self.waits = false;
    }

    /// Lets go on what may.
    pub(super) fn flow(
        &mut self,
        allowance: &Allowance,
        steps: &mut VecDeque<Step>,
        now: Instant,
    ) -> Gone {
        let bytes = allowance.take(self.length as u64, now);
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        while left > 0
            && let Some(mut first) = self.held.pop_front()
        {
            let piece = first.split_to(left.min(first.len()));
            left -= piece.len();
            self.length -= piece.len();
            steps.push_back(Step::Pass(self.way, piece));
            if !first.is_empty() {
                self.held.push_front(first);
            }
        }
        self.waits = self.length > 0;
        if self.waits {
            steps.push_back(Step::Time(self.way, Some(self.interval)));
        }
        Gone { bytes, waits: self.waits, ends: !self.waits && matches!(self.end, End::Held(_)) }
    }

    /// Lets the end go on.
    pub(super) fn pass_end(&mut self, steps: &mut VecDeque<Step>) {
        if let End::Held(trailers) = std::mem::replace(&mut self.end, End::Passed) {
            steps.push_back(Step::End(self.way, trailers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn an_allowance_fills_to_a_second() {
        let allowance = Allowance::new(1);
        assert_eq!(allowance.take(2000, at(0)), 1024);
        assert_eq!(allowance.take(1, at(0)), 0);
        assert_eq!(allowance.take(2000, at(500)), 512);
        assert_eq!(allowance.take(100, at(10_000)), 100);
        assert_eq!(allowance.take(2000, at(10_000)), 924);
        // A clock that goes back gives nothing.
        assert_eq!(allowance.take(1, at(0)), 0);
        let part = Allowance::with(1, Duration::from_millis(50), at(0));
        assert_eq!(part.take(2000, at(0)), 51);
        assert_eq!(Allowance::new(0).take(1, at(5000)), 0);
        assert_eq!(Allowance::new(u64::MAX).take(u64::MAX, at(5000)), u64::MAX);
    }

    #[test]
    fn what_is_held_goes_on_in_its_order() {
        let allowance = Allowance::new(1);
        let mut pace = Pace::new(Direction::Request, Duration::from_millis(50));
        let mut steps = VecDeque::new();
        for piece in [vec![b'a'; 1000], vec![b'b'; 100]] {
            pace.push(&mut piece.into());
        }
        assert!(pace.keep_end(None));
        let gone = pace.flow(&allowance, &mut steps, at(0));
        assert_eq!(gone, Gone { bytes: 1024, waits: true, ends: false });
        assert_eq!((pace.held(), pace.waits(), steps.len()), (76, true, 3));
        pace.wake();
        let gone = pace.flow(&allowance, &mut steps, at(1000));
        assert_eq!(gone, Gone { bytes: 76, waits: false, ends: true });
        pace.pass_end(&mut steps);
        assert!(matches!(steps.back(), Some(Step::End(Direction::Request, None))));
        assert!(!Pace::new(Direction::Request, Duration::ZERO).keep_end(None), "nothing is held");
    }
}
