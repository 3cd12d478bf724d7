//! How long to wait before the next connect: exponential with full jitter, as Envoy's
//! `JitteredExponentialBackOffStrategy`.

use std::time::Duration;

/// The waits between attempts.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
    random: u64,
}

impl Backoff {
    /// Waits of at most `base`, twice that, and so on up to `max`. The seed decides where below.
    #[must_use]
    pub const fn new(base: Duration, max: Duration, seed: u64) -> Self {
        Self { base, max, failures: 0, random: seed }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let longest = self.base.saturating_mul(1 << self.failures.min(20)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        let most = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(self.random() % most)
    }

    /// The next failure is the first.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_maximum_and_begin_anew() {
        let (base, max) = (Duration::from_millis(500), Duration::from_secs(30));
        let mut backoff = Backoff::new(base, max, 7);
        for failures in 0..100u32 {
            let longest = base.saturating_mul(1 << failures.min(20)).min(max);
            assert!(backoff.next_wait() < longest);
        }
        let longest = (0..100).map(|_| backoff.next_wait()).max().unwrap_or_default();
        assert!(longest > max / 2, "{longest:?}");
        backoff.reset();
        assert!(backoff.next_wait() < base);
    }
}
