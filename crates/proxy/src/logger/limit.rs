//! One line for a failure that repeats itself: a line for each would fill the disk whose lack of room it reports.

use std::time::{Duration, Instant};

/// How long a failure that goes on is not repeated in the log.
pub(crate) const QUIET: Duration = Duration::from_secs(60);

/// Lets a message through once in [`QUIET`].
#[derive(Debug, Default)]
pub(crate) struct Limit {
    last: Option<Instant>,
    /// Since the last message.
    failures: u64,
}

impl Limit {
    /// Counts failures. If a message is due, how many there were since the one before.
    pub(crate) fn count(&mut self, failures: u64, now: Instant) -> Option<u64> {
        self.failures += failures;
        let quiet = self.last.is_some_and(|last| now.duration_since(last) < QUIET);
        if quiet || self.failures == 0 {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told_and_then_one_a_minute_with_their_number() {
        let (mut limit, start) = (Limit::default(), Instant::now());
        assert_eq!(limit.count(0, start), None);
        assert_eq!(limit.count(2, start), Some(2));
        for second in 1..60 {
            assert_eq!(limit.count(1, start + Duration::from_secs(second)), None);
        }
        assert_eq!(limit.count(0, start + QUIET), Some(59));
        assert_eq!(limit.count(0, start + 3 * QUIET), None, "nothing has failed since");
        assert_eq!(limit.count(1, start + 3 * QUIET), Some(1));
    }
}
