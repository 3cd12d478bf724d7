//! Numbers that one worker writes and any thread reads.
//!
//! A write is a load and a store, without a locked instruction: only the owning worker may write. Readers see
//! each number as it was at some moment, which is all that a scrape needs.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts up.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

/// Goes up and down. One that was never touched is not *used*, even when it says 0.
pub struct Gauge(AtomicU64);

impl Gauge {
    const UNUSED: u64 = u64::MAX;

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes one away.
    #[inline]
    pub fn dec(&self) {
        self.sub(1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.set(self.value().wrapping_add(n));
    }

    /// Takes `n` away.
    #[inline]
    pub fn sub(&self, n: u64) {
        debug_assert!(n <= self.value(), "a gauge never goes below zero");
        self.set(self.value().saturating_sub(n));
    }

    /// Sets it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    #[inline]
    pub fn value(&self) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            Self::UNUSED => 0,
            value => value,
        }
    }

    /// Whether it was ever set.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::UNUSED
    }
}

/// A gauge of something that is only followed on demand: it is not there before it was set.
#[derive(Debug, Default)]
pub struct Tracked(Gauge);

impl std::ops::Deref for Tracked {
    type Target = Gauge;

    fn deref(&self) -> &Gauge {
        &self.0
    }
}

impl Default for Gauge {
    fn default() -> Self {
        Self(AtomicU64::new(Self::UNUSED))
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

/// Counts by response status; what was never seen takes no memory.
#[derive(Default)]
pub struct Codes {
    classes: OnceLock<Box<Classes>>,
}

/// Codes by their class.
type Classes = [OnceLock<Box<[Counter]>>; 5];

impl Codes {
    /// Counts a status; one outside 100 to 599 is not counted.
    #[inline]
    pub fn count(&self, status: u16) {
        let (class, code) = (usize::from(status / 100), usize::from(status % 100));
        let classes = self.classes.get_or_init(Box::default);
        let Some(class) = class.checked_sub(1).and_then(|class| classes.get(class)) else {
            return;
        };
        class.get_or_init(|| (0..100).map(|_| Counter::default()).collect())[code].inc();
    }

    /// Every status that was counted, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let classes = self.classes.get().map_or(&[][..], |classes| &classes[..]);
        (1u16..).zip(classes).flat_map(|(class, codes)| {
            let codes = codes.get().map_or(&[][..], |codes| codes);
            (class * 100..).zip(codes.iter().map(Counter::value)).filter(|(_, count)| *count > 0)
        })
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_used_once_it_was_set() {
        let gauge = Gauge::default();
        assert_eq!((gauge.value(), gauge.is_used()), (0, false));
        gauge.inc();
        gauge.dec();
        assert_eq!((gauge.value(), gauge.is_used()), (0, true));
    }

    #[test]
    fn codes_are_counted_from_100_to_599() {
        let codes = Codes::default();
        for status in [0, 99, 100, 200, 200, 404, 599, 600, u16::MAX] {
            codes.count(status);
        }
        assert_eq!(codes.iter().collect::<Vec<_>>(), [(100, 1), (200, 2), (404, 1), (599, 1)]);
    }
}
