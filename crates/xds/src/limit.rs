//! How many requests may be sent: a bucket that is full at first, and of which each request takes a token.

use std::time::Duration;

use towpath_proto::Instant;

/// A limit on requests. Envoy `RateLimitSettings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What the bucket holds, at least one.
    pub tokens: u32,
    /// How long it takes until there is another.
    pub interval: Duration,
}

/// The bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    limit: Limit,
    /// When it is full again, if nothing is taken.
    full_at: Instant,
}

impl Bucket {
    pub(crate) const fn new(limit: Limit) -> Self {
        Self { limit, full_at: Instant::ZERO }
    }

    pub(crate) fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.limit.interval;
    }

    /// From when on there is a token.
    pub(crate) fn ready_at(&self) -> Instant {
        let Limit { tokens, interval } = self.limit;
        let others = interval.saturating_mul(tokens.saturating_sub(1));
        let before = u64::try_from(others.as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(self.full_at.as_nanos().saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_full_at_first_and_again_after_a_while() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut bucket = Bucket::new(Limit { tokens: 2, interval: Duration::from_millis(100) });
        for now in [at(1000), at(1000)] {
            assert!(bucket.ready_at() <= now);
            bucket.take(now);
        }
        assert_eq!(bucket.ready_at(), at(1100));
        bucket.take(at(1100));
        assert_eq!(bucket.ready_at(), at(1200));
        bucket.take(at(5000));
        assert!(bucket.ready_at() <= at(5000));
    }
}
