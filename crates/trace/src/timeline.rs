//! From stamps to time: every record lies between two readings of the clocks, and on the line through them.

use crate::clock::Reading;

/// Readings in the order they were taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    readings: Vec<Reading>,
}

/// Readings closer than this give a line too coarse to be worth having.
pub(crate) const APART_NS: u64 = 2_000_000;
/// Readings kept; beyond that the oldest go.
const MOST: usize = 4096;

impl Timeline {
    /// Begins with one reading; nothing can be placed before a second one.
    pub(crate) fn starting(first: Reading) -> Self {
        Self { readings: vec![first] }
    }

    /// Adds a reading taken after all others; one too close to the last is not added.
    pub(crate) fn add(&mut self, reading: Reading) -> bool {
        let apart = self.readings.last().is_none_or(|last| {
            reading.boot_ns >= last.boot_ns.saturating_add(APART_NS) && reading.ticks > last.ticks
        });
        if apart {
            if self.readings.len() >= MOST {
                self.readings.remove(0);
            }
            self.readings.push(reading);
        }
        apart
    }

    /// Adds a reading of this moment, waiting until it is far enough from the last.
    pub(crate) fn add_now(&mut self) {
        while !self.add(Reading::take()) {
            std::thread::sleep(std::time::Duration::from_nanos(APART_NS / 2));
        }
    }

    /// Stamps up to here can be placed.
    pub(crate) fn until(&self) -> u64 {
        self.readings.last().map_or(0, |last| last.ticks)
    }

    pub(crate) fn first(&self) -> Reading {
        self.readings.first().copied().unwrap_or_default()
    }

    pub(crate) fn last(&self) -> Reading {
        self.readings.last().copied().unwrap_or_default()
    }

    /// Boot time of a stamp, in nanoseconds.
    pub(crate) fn place(&self, ticks: u64) -> u64 {
        // Nearly every record is younger than the reading before last.
        let count = self.readings.len();
        if count < 2 {
            return self.first().boot_ns;
        }
        let at = match self.readings.get(count - 2) {
            Some(reading) if reading.ticks <= ticks => count - 2,
            _ => {
                self.readings.partition_point(|reading| reading.ticks <= ticks).clamp(1, count - 1)
                    - 1
            }
        };
        line(&self.readings[at], &self.readings[at + 1], ticks)
    }

    /// Boot time of a moment of `CLOCK_MONOTONIC`: the two differ by the time spent suspended.
    pub(crate) fn place_monotonic(&self, ns: u64) -> u64 {
        self.last().monotonic_to_boot(ns)
    }

    /// Nanoseconds of a tick, for the account.
    pub(crate) fn ns_per_tick(&self) -> f64 {
        let (first, last) = (self.first(), self.last());
        let ticks = last.ticks.saturating_sub(first.ticks).max(1);
        last.boot_ns.saturating_sub(first.boot_ns) as f64 / ticks as f64
    }
}

/// The line through `a` and `b`, at `ticks`, which may lie outside them.
fn line(a: &Reading, b: &Reading, ticks: u64) -> u64 {
    let slope = (b.boot_ns - a.boot_ns) as f64 / (b.ticks - a.ticks) as f64;
    // Exact to the nanosecond for three weeks between two readings.
    if ticks >= a.ticks {
        a.boot_ns.saturating_add(((ticks - a.ticks) as f64 * slope) as u64)
    } else {
        a.boot_ns.saturating_sub(((a.ticks - ticks) as f64 * slope) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ticks: u64, boot_ns: u64) -> Reading {
        Reading { ticks, boot_ns, monotonic_ns: boot_ns - 1_000, real_ns: boot_ns }
    }

    #[test]
    fn records_lie_on_the_line_between_readings() {
        let mut line = Timeline::starting(reading(1_000, 1_000_000_000));
        assert!(line.add(reading(1_001_000, 1_010_000_000)));
        assert!(line.add(reading(2_001_000, 1_030_000_000)));
        assert_eq!(line.place(1_000), 1_000_000_000);
        assert_eq!(line.place(501_000), 1_005_000_000);
        assert_eq!(line.place(1_501_000), 1_020_000_000);
        assert_eq!(line.place(0), 999_990_000, "before the first reading the first line goes on");
        assert_eq!(line.place_monotonic(5_000), 6_000);
    }

    #[test]
    fn order_is_kept_across_readings() {
        let mut line = Timeline::starting(reading(0, 5_000_000_000));
        line.add(reading(10_000_000, 5_004_000_123));
        line.add(reading(20_000_000, 5_008_000_017));
        let placed: Vec<u64> =
            (0..20_100_000).step_by(997).map(|ticks| line.place(ticks)).collect();
        assert!(placed.is_sorted());
    }

    #[test]
    fn a_reading_too_close_or_backwards_is_refused() {
        let mut line = Timeline::starting(reading(1_000, 1_000_000_000));
        assert!(!line.add(reading(2_000, 1_000_000_000 + APART_NS - 1)));
        assert!(!line.add(reading(1_000, 1_000_000_000 + APART_NS)));
        assert!(line.add(reading(1_001, 1_000_000_000 + APART_NS)));
        for step in 1..10_000 {
            line.add(reading(1_001 + step, 1_000_000_000 + APART_NS * (step + 1)));
        }
        assert_eq!(line.readings.len(), MOST);
    }

    #[test]
    fn one_reading_alone_places_everything_at_itself() {
        assert_eq!(Timeline::starting(reading(7, 9_000)).place(100), 9_000);
    }
}
