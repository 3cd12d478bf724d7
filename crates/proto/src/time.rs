//! Time as the machines see it: nanoseconds since an epoch that the driver chose.
//!
//! A driver's epoch is its start; a simulation's is zero. Only differences mean anything.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time: 64-bit nanoseconds since the driver's epoch (584 years of range).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// Later than every deadline: "never".
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The instant `ns` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero when it is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This instant moved by `by`, clamped to [`Instant::FAR_FUTURE`].
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
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
    fn arithmetic_saturates_at_both_ends() {
        let start = Instant::from_nanos(5);
        assert_eq!(start - Instant::from_nanos(9), Duration::ZERO);
        assert_eq!(start + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!((start + Duration::from_nanos(7)) - start, Duration::from_nanos(7));
    }
}
