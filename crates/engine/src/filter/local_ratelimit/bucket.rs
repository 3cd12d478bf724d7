//! A token bucket that many threads take from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Tokens;

/// When the bucket was empty, in nanoseconds of any clock that goes forward: what has come since is in it.
///
/// One number, changed by compare-and-swap: a thread that loses looks again.
#[derive(Debug)]
pub(crate) struct Bucket {
    empty_at: AtomicU64,
    /// How long one token takes to come.
    per_token: u64,
    /// How long the bucket takes to fill.
    whole: u64,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(tokens: Tokens) -> Self {
        let interval = u64::try_from(tokens.interval.as_nanos()).unwrap_or(u64::MAX);
        let per_token = (interval / u64::from(tokens.per_fill).max(1)).max(1);
        let whole = per_token.saturating_mul(tokens.max.into());
        Self { empty_at: AtomicU64::new(0), per_token, whole }
    }

    /// Takes so many tokens, if there are as many. None are never there, as in Envoy.
    pub(crate) fn take(&self, now: u64, tokens: u64) -> bool {
        let taken = |empty_at: u64| {
            let needed = self.per_token.saturating_mul(tokens);
            let after = empty_at.max(now.saturating_sub(self.whole)).saturating_add(needed);
            (tokens > 0 && after <= now).then_some(after)
        };
        self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Puts so many tokens back, as far as there is room.
    pub(super) fn give(&self, now: u64, tokens: u64) {
        let given = |empty_at: u64| {
            let full = now.saturating_sub(self.whole);
            let after = empty_at.max(full).saturating_sub(self.per_token.saturating_mul(tokens));
            Some(after.max(full))
        };
        // It always answers something.
        let _ = self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, given);
    }

    /// What is left in it.
    pub(super) fn left(&self, now: u64) -> Left {
        let empty_at = self.empty_at.load(Ordering::Relaxed).max(now.saturating_sub(self.whole));
        let filled = now.saturating_sub(empty_at);
        let wait = self.per_token.saturating_sub(filled);
        Left {
            most: self.whole / self.per_token,
            tokens: filled / self.per_token,
            // Envoy knows it to the millisecond, and tells whole seconds, rounded up.
            next: Duration::from_secs((wait / 1_000_000).div_ceil(1000)),
        }
    }

    /// How long one token takes to come, in nanoseconds.
    pub(super) const fn per_token(&self) -> u64 {
        self.per_token
    }
}

/// What is left in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// How much it holds.
    pub(super) most: u64,
    /// How much is in it.
    pub(super) tokens: u64,
    /// When there is a token, in whole seconds; 0 where there is one.
    pub(super) next: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn bucket(max: u32, per_fill: u32) -> Bucket {
        Bucket::new(Tokens { max, per_fill, interval: Duration::from_secs(1) })
    }

    fn takes(bucket: &Bucket, now: u64) -> usize {
        (0..1000).take_while(|_| bucket.take(now, 1)).count()
    }

    #[test]
    fn it_is_full_at_the_start_and_never_fuller() {
        let bucket = bucket(5, 10);
        assert_eq!(takes(&bucket, START), 5);
        assert_eq!(takes(&bucket, START + SECOND / 10 - 1), 0);
        assert_eq!(takes(&bucket, START + SECOND / 10), 1);
        assert_eq!(takes(&bucket, START + 60 * SECOND), 5);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let bucket = bucket(2, 2);
        assert_eq!(takes(&bucket, START), 2);
        assert_eq!(takes(&bucket, START - 5 * SECOND), 0);
        assert_eq!(takes(&bucket, START + SECOND / 2), 1);
    }

    #[test]
    fn tokens_are_taken_and_given_together() {
        let bucket = bucket(5, 1);
        assert!(!bucket.take(START, 6));
        assert!(!bucket.take(START, 0));
        assert!(bucket.take(START, 4));
        assert!(!bucket.take(START, 2));
        bucket.give(START, 3);
        assert_eq!(bucket.left(START).tokens, 4);
        bucket.give(START, u64::MAX);
        assert_eq!(takes(&bucket, START), 5);
    }

    #[test]
    fn what_is_left_is_told() {
        let bucket = bucket(2, 1);
        let left = |tokens, next| Left { most: 2, tokens, next: Duration::from_secs(next) };
        assert_eq!(bucket.left(START), left(2, 0));
        assert_eq!(takes(&bucket, START), 2);
        assert_eq!(bucket.left(START), left(0, 1));
        assert_eq!(bucket.left(START + SECOND), left(1, 0));
    }

    #[test]
    fn threads_together_take_no_more_than_there_are() {
        let bucket = bucket(100, 1);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| takes(&bucket, START))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 100);
    }
}
