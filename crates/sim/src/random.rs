//! The one source of chance: a small seeded generator, the same on every machine.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): one addition and three multiplications, any seed is good.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A seeded stream of numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream that belongs to `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; zero when the limit is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.bits()) * u128::from(limit);
        (wide >> 64) as u64
    }

    /// A number in the range, both ends included.
    pub fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let width = range.end().saturating_sub(*range.start());
        let offset =
            if width == u64::MAX { self.bits() } else { self.below(width.saturating_add(1)) };
        range.start().saturating_add(offset)
    }

    /// A size in the range, both ends included; small ones as likely as large ones in order of magnitude.
    pub fn size(&mut self, range: &RangeInclusive<usize>) -> usize {
        let low = (*range.start() as u64).max(1);
        let high = (*range.end() as u64).max(low);
        let magnitudes = u64::from(low.leading_zeros() - high.leading_zeros());
        let magnitude = self.below(magnitudes + 1);
        let top = (low << magnitude).saturating_mul(2).min(high);
        usize::try_from(self.within(&(low..=top.max(low)))).unwrap_or(usize::MAX)
    }

    /// A duration in the range, both ends included.
    pub fn duration(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let ns = |duration: &Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.within(&(ns(range.start())..=ns(range.end()))))
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        permille != 0 && self.below(1000) < u64::from(permille)
    }

    /// One of the items; `None` when there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(usize::try_from(self.below(items.len() as u64)).unwrap_or(0))
    }

    /// Puts the items into another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, usize::try_from(self.below(last as u64 + 1)).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_the_published_ones() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn ranges_hold_and_their_ends_are_reached() {
        let mut random = Random::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| random.within(&(3..=5))).collect();
        assert_eq!(drawn.iter().min(), Some(&3));
        assert_eq!(drawn.iter().max(), Some(&5));
        let sizes: Vec<usize> = (0..10_000).map(|_| random.size(&(1..=100_000))).collect();
        assert!(sizes.iter().all(|size| (1..=100_000).contains(size)));
        assert!(sizes.contains(&1), "small sizes come up");
        assert!(sizes.iter().any(|&size| size > 60_000), "large sizes come up");
        assert_eq!(random.size(&(0..=0)), 1);
        assert_eq!(random.below(0), 0);
        let _ = random.within(&(0..=u64::MAX));
    }

    #[test]
    fn chance_knows_never_and_always() {
        let mut random = Random::new(7);
        assert!((0..1000).all(|_| !random.chance(0)));
        assert!((0..1000).all(|_| random.chance(1000)));
        assert_eq!(random.pick::<u8>(&[]), None);
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut items: Vec<u32> = (0..50).collect();
        Random::new(3).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
