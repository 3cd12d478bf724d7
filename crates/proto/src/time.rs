//! Time as the machines see it: nanoseconds since an epoch that the driver chose.
//!
//! A driver's epoch is its start; a simulation's is zero. Only differences mean anything.

use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time: 64-bit nanoseconds since the driver's epoch (584 years of range).
///
/// What is kept is one more, so that no instant is zero and an `Option` of one is no larger: a stream has a dozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZeroU64);

impl Instant {
    /// The epoch itself.
    pub const ZERO: Self = Self(NonZeroU64::MIN);
    /// Later than every deadline: "never".
    pub const FAR_FUTURE: Self = Self(NonZeroU64::MAX);

    /// The instant `ns` nanoseconds after the epoch, at most [`Instant::FAR_FUTURE`].
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(ns))
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// How long ago `earlier` was; zero when it is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// Whole milliseconds since `earlier`; 0 when it is in the future.
    #[must_use]
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get()) / 1_000_000
    }

    /// This instant moved by `by`, clamped to [`Instant::FAR_FUTURE`].
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

impl Default for Instant {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        self.after(by)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, by: Duration) {
        *self = self.after(by);
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_may_be_missing_is_as_small_as_one_that_is_there() {
        assert_eq!(size_of::<Option<Instant>>(), 8);
        assert_eq!((Instant::default(), Instant::ZERO.as_nanos()), (Instant::from_nanos(0), 0));
        for ns in [0, 1, 1 << 40, u64::MAX - 1] {
            assert_eq!(Instant::from_nanos(ns).as_nanos(), ns);
        }
        assert_eq!(Instant::from_nanos(u64::MAX), Instant::FAR_FUTURE);
        assert!(Instant::ZERO < Instant::from_nanos(1));
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let start = Instant::from_nanos(5);
        assert_eq!(start - Instant::from_nanos(9), Duration::ZERO);
        assert_eq!(start + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!((start + Duration::from_nanos(7)) - start, Duration::from_nanos(7));
    }
}
