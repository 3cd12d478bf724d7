//! Log-linear histograms with two significant decimal digits, as Envoy's.
//!
//! A decade holds 90 bins (1.0 to 9.9 of its power of ten) and takes memory once a value falls into it, so an
//! untouched histogram is two words and a busy one a few decades of 720 bytes.

use std::fmt;
use std::sync::OnceLock;

use super::Counter;

/// Values that one worker records and any thread reads.
#[derive(Default)]
pub struct Histogram {
    cells: OnceLock<Box<Cells>>,
}

#[derive(Default)]
struct Cells {
    zero: Counter,
    decades: [OnceLock<Box<[Counter]>>; DECADES],
}

impl Histogram {
    /// Records a value. What is beyond the last decade (10¹³) counts as its last bin.
    pub fn record(&self, value: u64) {
        self.count(value, 1);
    }

    #[inline(always)]
    fn count(&self, value: u64, times: u64) {
        let cells = self.cells.get_or_init(Box::default);
        match Bin::of(value) {
            None => cells.zero.add(times),
            Some(bin) => {
                let decade = &cells.decades[bin.decade];
                decade.get_or_init(|| (0..90).map(|_| Counter::default()).collect())[bin.digits]
                    .add(times);
            }
        }
    }

    /// Records `value` in place of `before`, which was recorded by the same writer.
    pub fn replace(&self, before: u64, value: u64) {
        self.count(before, u64::MAX);
        self.count(value, 1);
    }

    /// Whether a value was ever recorded.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.cells.get().is_some()
    }

    /// Adds what is recorded to `bins`.
    pub fn merge_into(&self, bins: &mut Bins) {
        let Some(cells) = self.cells.get() else { return };
        bins.add(0, cells.zero.value());
        for (decade, digits) in (0..).zip(&cells.decades) {
            let digits = digits.get().map_or(&[][..], |digits| digits);
            for (place, count) in (0..).zip(digits) {
                bins.add(1 + decade * 90 + place, count.value());
            }
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bins = Bins::default();
        self.merge_into(&mut bins);
        bins.fmt(f)
    }
}

/// Where a value falls.
struct Bin {
    decade: usize,
    /// 0 stands for 1.0, 89 for 9.9.
    digits: usize,
}

impl Bin {
    fn of(value: u64) -> Option<Self> {
        let decade = value.checked_ilog10()? as usize;
        if decade >= DECADES {
            return Some(Self { decade: DECADES - 1, digits: 89 });
        }
        let unit = 10u64.pow(decade as u32);
        Some(Self { decade, digits: (value * 10 / unit - 10) as usize })
    }
}

/// Merged counts, in the order of their values; only bins that have some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bins {
    /// Bin number and count. Bin 0 is zero, bin 1 + 90 d + k starts at (10 + k)·10^(d−1).
    counts: Vec<(u16, u64)>,
}

impl Bins {
    fn add(&mut self, bin: u16, count: u64) {
        if count == 0 {
            return;
        }
        match self.counts.binary_search_by_key(&bin, |(bin, _)| *bin) {
            Ok(at) => self.counts[at].1 += count,
            Err(at) => self.counts.insert(at, (bin, count)),
        }
    }

    /// What was recorded since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut rest = Self::default();
        for (bin, count) in &self.counts {
            let before = earlier.counts.binary_search_by_key(bin, |(bin, _)| *bin);
            let before = before.map_or(0, |at| earlier.counts[at].1);
            rest.add(*bin, count.saturating_sub(before));
        }
        rest
    }

    /// Each value that two digits tell apart, and how often it came; of a wide bin its middle.
    pub(super) fn values(&self) -> impl Iterator<Item = (f64, u64)> {
        let value = |bin| match limits(bin) {
            (low, high) if high - low > 1.0 => f64::midpoint(low, high),
            (low, _) => low,
        };
        self.counts.iter().map(move |(bin, count)| (value(*bin), *count))
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The sum of the values, as well as two digits tell.
    #[must_use]
    pub fn sum(&self) -> f64 {
        let middle = |bin| match limits(bin) {
            (_, 0.0) => 0.0,
            (low, high) => 2.0 * low * high / (low + high),
        };
        let values = self.counts.iter().map(|(bin, count)| middle(*bin) * *count as f64);
        values.fold(0.0, |sum, value| sum + value)
    }

    /// The value that the share `q` (0 to 1) does not exceed; nothing when there is none. The values of one
    /// bin count as spread evenly over it.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let total = self.count();
        let wanted = ((q * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut before = 0;
        for (bin, count) in &self.counts {
            if before + count >= wanted {
                let (low, high) = limits(*bin);
                // A tenth is not what 7.1 and 7.0 differ by.
                let width = if high < 10.5 { high.min(0.1) } else { high - low };
                let place = (wanted - before) as f64 / (count + 1) as f64;
                return Some(low + width * place);
            }
            before += count;
        }
        None
    }

    /// How many values are in bins that start at or below `limit`.
    #[must_use]
    pub fn up_to(&self, limit: f64) -> u64 {
        self.counts.iter().filter(|(bin, _)| limits(*bin).0 <= limit).map(|(_, count)| count).sum()
    }
}

/// Where a bin starts and ends.
fn limits(bin: u16) -> (f64, f64) {
    let Some(place) = bin.checked_sub(1) else { return (0.0, 0.0) };
    let (decade, digits) = (i32::from(place / 90), f64::from(10 + place % 90));
    // Divided, not multiplied by 0.1, so that 1.1 is the number nearest to it.
    match decade {
        0 => (digits / 10.0, (digits + 1.0) / 10.0),
        _ => {
            let unit = 10f64.powi(decade - 1);
            (digits * unit, (digits + 1.0) * unit)
        }
    }
}

/// Enough for milliseconds of three hundred years.
const DECADES: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(values: &[u64]) -> Bins {
        let histogram = Histogram::default();
        for value in values {
            histogram.record(*value);
        }
        let mut bins = Bins::default();
        histogram.merge_into(&mut bins);
        bins
    }

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-9)
    }

    /// What Envoy 1.40 printed for these recordings.
    #[test]
    fn quantiles_are_envoys() {
        let three = bins(&[7, 7, 7]);
        assert!(close(three.quantile(0.0), 7.025));
        assert!(close(three.quantile(0.5), 7.05));
        assert!(close(three.quantile(1.0), 7.075));
        let mixed = bins(&[0, 0, 0, 1, 305, 309]);
        assert!(close(mixed.quantile(0.5), 0.0));
        assert!(close(mixed.quantile(0.75), 303.333_333_333_333_3));
        assert!(close(mixed.quantile(0.9), 306.666_666_666_666_7));
        let accepted = bins(&[1, 1, 1, 1, 2]);
        assert!(close(accepted.quantile(0.25), 1.04));
        assert!(close(accepted.quantile(0.9), 2.05));
        assert!(close(bins(&[16]).quantile(0.3), 16.5));
        assert_eq!(bins(&[7, 7, 7]).quantile(1.0), Some(7.075));
        assert_eq!(bins(&[10, 10, 10]).quantile(1.0), Some(10.75));
    }

    #[test]
    fn sums_and_buckets_are_envoys() {
        assert!(close(Some(bins(&[305]).sum()), 304.918_032_786_885_25));
        let accepted = bins(&[1, 1, 1, 1, 2]);
        assert!(close(Some(accepted.sum()), 6.239_256_678_281_068));
        assert_eq!([0.5, 1.0, 5.0].map(|limit| accepted.up_to(limit)), [0, 4, 5]);
    }

    #[test]
    fn every_value_falls_into_the_bin_around_it() {
        for value in (0..2000).chain([99_999, 100_000, 123_456_789, 9_999_999_999_999]) {
            let bins = bins(&[value]);
            let (low, high) = limits(bins.counts[0].0);
            assert!(low <= value as f64 && (value as f64) < high.max(1.0), "{value} {low} {high}");
            assert!(high - low <= (value as f64 / 10.0).max(0.1) + 1e-9, "{value}");
        }
        assert_eq!(bins(&[u64::MAX]).count(), 1);
    }

    #[test]
    fn a_value_stands_in_for_another() {
        let histogram = Histogram::default();
        histogram.record(1);
        histogram.record(1);
        histogram.replace(1, 2);
        histogram.replace(2, 30);
        let mut bins = Bins::default();
        histogram.merge_into(&mut bins);
        assert_eq!(bins.values().collect::<Vec<_>>(), [(1.0, 1), (30.0, 1)]);
    }

    #[test]
    fn nothing_recorded_says_nothing() {
        let empty = bins(&[]);
        assert_eq!((empty.count(), empty.quantile(0.5)), (0, None));
        assert!(!Histogram::default().is_used());
        let (one, two) = (bins(&[5]), bins(&[5, 5, 7]));
        assert_eq!(two.since(&one), bins(&[5, 7]));
        assert_eq!(two.since(&two), empty);
    }
}
