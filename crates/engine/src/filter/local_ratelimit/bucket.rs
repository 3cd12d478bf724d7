//! A token bucket that many threads take from.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Tokens;

/// When the bucket was empty, in nanoseconds of any clock that goes forward: what has come since is in it.
///
/// One number, changed by compare-and-swap: a thread that loses looks again.
#[derive(Debug)]
pub(super) struct Bucket {
    empty_at: AtomicU64,
    /// How long one token takes to come.
    per_token: u64,
    /// How long the bucket takes to fill.
    whole: u64,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(tokens: Tokens) -> Self {
        let interval = u64::try_from(tokens.interval.as_nanos()).unwrap_or(u64::MAX);
        let per_token = (interval / u64::from(tokens.per_fill).max(1)).max(1);
        let whole = per_token.saturating_mul(tokens.max.into());
        Self { empty_at: AtomicU64::new(0), per_token, whole }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&self, now: u64) -> bool {
        let taken = |empty_at: u64| {
            let after = empty_at.max(now.saturating_sub(self.whole)).saturating_add(self.per_token);
            (after <= now).then_some(after)
        };
        self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: u64 = 1_700_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn bucket(max: u32, per_fill: u32) -> Bucket {
        Bucket::new(Tokens { max, per_fill, interval: Duration::from_secs(1) })
    }

    fn takes(bucket: &Bucket, now: u64) -> usize {
        (0..1000).take_while(|_| bucket.take(now)).count()
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
    fn threads_together_take_no_more_than_there_are() {
        let bucket = bucket(100, 1);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| takes(&bucket, START))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 100);
    }
}
