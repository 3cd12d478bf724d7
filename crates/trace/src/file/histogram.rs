//! Durations of the spans of one name, in little memory: exact while they are few, to one part in 64 when they are
//! many.

use std::collections::BTreeMap;

/// How many there were, how long all took, and how they spread.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    few: Vec<u64>,
    /// By the position of the highest bit and the six below it.
    many: BTreeMap<u16, u64>,
    pub(super) count: u64,
    pub(super) total: u64,
    pub(super) most: u64,
}

/// Durations that are kept as they are.
const FEW: usize = 64;
/// Bits below the highest that tell two durations apart.
const BITS: u32 = 6;

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        self.count += 1;
        self.total = self.total.saturating_add(value);
        self.most = self.most.max(value);
        if self.many.is_empty() {
            self.few.push(value);
            if self.few.len() > FEW {
                std::mem::take(&mut self.few).into_iter().for_each(|value| self.sort_in(value));
            }
        } else {
            self.sort_in(value);
        }
    }

    fn sort_in(&mut self, value: u64) {
        *self.many.entry(bucket(value)).or_default() += 1;
    }

    /// The smallest value that so many in a hundred do not exceed.
    pub(super) fn percentile(&self, percent: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1) as u64;
        if self.many.is_empty() {
            let mut few = self.few.clone();
            few.sort_unstable();
            return few.get(rank as usize - 1).copied().unwrap_or(0);
        }
        let mut seen = 0;
        let reached = self.many.iter().find(|&(_, count)| {
            seen += count;
            seen >= rank
        });
        reached.map_or(self.most, |(&bucket, _)| upper(bucket).min(self.most))
    }
}

fn bucket(value: u64) -> u16 {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    (shift << BITS) as u16 + (value >> shift) as u16
}

/// The largest value of a bucket.
fn upper(bucket: u16) -> u64 {
    let shift = u32::from(bucket >> BITS).saturating_sub(1);
    let steps = u64::from(bucket) - (u64::from(shift) << BITS);
    ((u128::from(steps + 1) << shift) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_its_bucket() {
        let mut last = 0;
        for bits in 0..64 {
            for value in [(1u64 << bits) - 1, 1 << bits, (1 << bits) + (1 << bits >> 1)] {
                let (bucket, upper) = (bucket(value), upper(bucket(value)));
                assert!(upper >= value && upper - value <= value / 64, "{value} {bucket} {upper}");
                assert!(upper == u64::MAX || self::bucket(upper + 1) == bucket + 1, "{value}");
                last = last.max(bucket);
            }
        }
        assert_eq!(upper(bucket(u64::MAX)), u64::MAX);
        assert!(last < 4096);
    }

    #[test]
    fn percentiles_of_few_are_exact_and_of_many_close() {
        for count in [1, 2, FEW as u64, FEW as u64 + 1, 10_000] {
            let mut histogram = Histogram::default();
            (1..=count).rev().for_each(|value| histogram.add(value * 1000));
            for percent in [50, 99, 100] {
                let exact = (count * percent).div_ceil(100) * 1000;
                let found = histogram.percentile(percent);
                let close = if count > FEW as u64 { exact / 64 } else { 0 };
                assert!(found >= exact && found <= exact + close, "{count} {percent}: {found}");
            }
            assert_eq!((histogram.count, histogram.most), (count, count * 1000));
        }
        assert_eq!(Histogram::default().percentile(50), 0);
    }
}
