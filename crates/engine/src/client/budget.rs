//! What repetition may cost: tokens that ordinary requests earn, and a rate for probes.
//!
//! Arrives: each request, each wish to repeat one. Leaves: yes or no. Retries, hedges and redone requests of an engine
//! share one [`Budget`], so that a network that fails is not loaded with a multiple of what it cannot carry.

use std::time::Duration;

use towpath_proto::Instant;

/// A balance of tokens: each request earns a part of one, each repetition spends one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    thousandths: u32,
    earn: u32,
    most: u32,
}

impl Budget {
    /// A balance that begins full: `most` tokens (1 to 1,000,000), of which a request earns `percent` hundredths.
    #[must_use]
    pub const fn new(percent: u32, most: u32) -> Self {
        let most = if most > 1_000_000 { 1_000_000 } else { most } * 1000;
        let earn = if percent > 10_000 { 10_000 } else { percent } * 10;
        Self { thousandths: most, earn, most }
    }

    /// A request was made.
    pub fn earn(&mut self) {
        self.thousandths = (self.thousandths + self.earn).min(self.most);
    }

    /// Takes a token, if there is one.
    pub const fn spend(&mut self) -> bool {
        let enough = self.thousandths >= 1000;
        if enough {
            self.thousandths -= 1000;
        }
        enough
    }

    /// Whole tokens that are left.
    #[must_use]
    pub const fn left(&self) -> u32 {
        self.thousandths / 1000
    }
}

impl Default for Budget {
    /// Ten tokens, and one for each five requests.
    fn default() -> Self {
        Self::new(20, 10)
    }
}

/// So many a second, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    interval: Duration,
    burst: u32,
    /// When the bucket is full again.
    full_at: Instant,
}

impl Rate {
    /// `per_second` (1 to 1,000,000), and `burst` (at least 1) at once.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        let per_second = if per_second == 0 { 1 } else { per_second };
        let interval = Duration::from_nanos(1_000_000_000 / per_second as u64);
        Self { interval, burst: if burst == 0 { 1 } else { burst }, full_at: Instant::ZERO }
    }

    /// Takes one, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        if now < self.next(now) {
            return false;
        }
        self.full_at = self.full_at.max(now) + self.interval;
        true
    }

    /// When there is one, `now` at the earliest.
    #[must_use]
    pub fn next(&self, now: Instant) -> Instant {
        let room = self.interval * (self.burst - 1);
        let lack = self.full_at.since(now).saturating_sub(room);
        now + lack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_begins_full_and_is_earned_back_slowly() {
        let mut budget = Budget::new(20, 3);
        assert!((0..3).all(|_| budget.spend()));
        assert!(!budget.spend());
        (0..4).for_each(|_| budget.earn());
        assert!(!budget.spend(), "four requests earn less than a token");
        budget.earn();
        assert!(budget.spend());
        (0..1000).for_each(|_| budget.earn());
        assert_eq!(budget.left(), 3);
    }

    #[test]
    fn a_budget_of_nothing_gives_nothing() {
        let mut budget = Budget::new(100, 0);
        budget.earn();
        assert!(!budget.spend());
    }

    #[test]
    fn a_rate_allows_its_burst_and_then_its_pace() {
        let mut rate = Rate::new(10, 3);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!((0..5).filter(|_| rate.take(at(0))).count(), 3);
        assert_eq!(rate.next(at(0)), at(100));
        assert!(!rate.take(at(99)));
        assert!(rate.take(at(100)));
        assert!(!rate.take(at(100)));
        let taken = (100..10_100).filter(|&ms| rate.take(at(ms))).count();
        assert!((99..=101).contains(&taken), "{taken}");
    }
}
