//! How requests come: one by one, or several at once, and how far apart.

use std::time::Duration;

use serde::Serialize;

/// How a generator's requests came to a listener in the server's place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bunching {
    /// How many there were.
    pub requests: usize,
    /// How many bunches there were of one request, of two, and so on; a bunch that is larger than there are places for
    /// is in the last.
    pub bunches: Vec<usize>,
    /// From the beginning of one bunch to that of the next.
    pub between_ns: Quartiles,
    /// From one request to the next of the same bunch; null where there is no second one.
    pub within_ns: Option<Quartiles>,
    /// What is no farther behind the request before it belongs to the same bunch.
    pub near_ns: u64,
}

/// The middle of some figures, and between what half of them lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quartiles {
    /// A quarter is below.
    pub p25: u64,
    /// Half is below.
    pub p50: u64,
    /// Three quarters are below.
    pub p75: u64,
}

impl Bunching {
    /// Of requests at these instants, meant to come at so many a second; `None` of fewer than two bunches.
    pub fn of(instants: &[Duration], rate: f64) -> Option<Self> {
        let near = NEAR.min(Duration::from_secs_f64(0.5 / rate));
        let mut sorted = instants.to_vec();
        sorted.sort_unstable();
        let bunches: Vec<&[Duration]> = sorted.chunk_by(|a, b| *b - *a <= near).collect();
        let mut counts = vec![0; LARGEST];
        for bunch in &bunches {
            counts[bunch.len().min(LARGEST) - 1] += 1;
        }
        let gap = |a: Duration, b: Duration| (b - a).as_nanos() as u64;
        let between = bunches.windows(2).map(|pair| gap(pair[0][0], pair[1][0]));
        let within = bunches.iter().flat_map(|it| it.windows(2).map(|pair| gap(pair[0], pair[1])));
        Some(Self {
            requests: sorted.len(),
            bunches: counts,
            between_ns: Quartiles::of(between)?,
            within_ns: Quartiles::of(within),
            near_ns: near.as_nanos() as u64,
        })
    }

    /// The share of all requests that came in bunches of this size, or of the largest that is counted, or larger.
    pub fn share(&self, size: usize) -> f64 {
        let count = size.checked_sub(1).and_then(|at| self.bunches.get(at)).copied().unwrap_or(0);
        let all: usize = self.bunches.iter().enumerate().map(|(at, count)| (at + 1) * count).sum();
        (size * count) as f64 / all.max(1) as f64
    }

    /// How much of the requests came in bunches of about the same size in both, ordered by size: 1 when all did, 0 when
    /// none. Nineteen at once and twenty are about the same, one and two are not.
    pub fn overlap(&self, other: &Self) -> f64 {
        const STEPS: usize = 1000;
        let sizes = (0..STEPS).map(|step| {
            let share = (step as f64 + 0.5) / STEPS as f64;
            (self.size_at(share) as f64, other.size_at(share) as f64)
        });
        let alike = sizes.filter(|(a, b)| a.max(*b) <= a.min(*b) * ABOUT).count();
        alike as f64 / STEPS as f64
    }

    /// The size of the bunch of which the request is that has this share of all in smaller ones.
    fn size_at(&self, share: f64) -> usize {
        let mut sum = 0.0;
        let reaches = |size: &usize| {
            sum += self.share(*size);
            sum >= share
        };
        (1..LARGEST).find(reaches).unwrap_or(LARGEST)
    }
}

impl Quartiles {
    fn of(figures: impl Iterator<Item = u64>) -> Option<Self> {
        let mut sorted: Vec<u64> = figures.collect();
        sorted.sort_unstable();
        let at =
            |share: usize| sorted.get((sorted.len() * share / 4).min(sorted.len() - 1)).copied();
        (!sorted.is_empty()).then(|| Some(Self { p25: at(1)?, p50: at(2)?, p75: at(3)? })).flatten()
    }
}

/// A server that is busy with one request finds the next that comes so soon after it without sleeping between.
const NEAR: Duration = Duration::from_micros(100);
/// How much larger a bunch of about the same size may be.
const ABOUT: f64 = 1.25;
/// Bunches are told apart up to this size.
pub const LARGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bunches of these sizes every 10 ms, whose requests are 20 µs apart.
    fn instants(sizes: &[usize]) -> Vec<Duration> {
        let of = |(number, size): (usize, &usize)| {
            let begin = Duration::from_millis(10) * number as u32;
            (0..*size as u32).map(move |at| begin + Duration::from_micros(20) * at)
        };
        sizes.iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn bunches_are_counted_by_their_size() {
        let it = Bunching::of(&instants(&[1, 2, 2, 3]), 200.0).unwrap();
        assert_eq!((it.requests, it.near_ns), (8, 100_000));
        assert_eq!(it.bunches[..4], [1, 2, 1, 0]);
        assert_eq!([1, 2, 3, 4].map(|size| it.share(size)), [0.125, 0.5, 0.375, 0.0]);
        assert_eq!((it.between_ns.p50, it.within_ns.unwrap().p50), (10_000_000, 20_000));
        // All of them are in some bunch, however large.
        let it = Bunching::of(&instants(&[100, 100]), 1000.0).unwrap();
        assert_eq!((it.bunches[LARGEST - 1], it.share(LARGEST)), (2, 1.0));
    }

    #[test]
    fn what_is_near_depends_on_the_rate() {
        // 20 µs apart are bunches at 10,000/s, whose even gap is 100 µs, and none at 50,000/s, where it is 20 µs.
        let all = instants(&[2; 20]);
        assert_eq!(Bunching::of(&all, 10_000.0).unwrap().bunches[..2], [0, 20]);
        assert_eq!(Bunching::of(&all, 50_000.0).unwrap().bunches[..2], [40, 0]);
    }

    #[test]
    fn the_overlap_is_of_requests() {
        let of = |sizes: &[usize]| Bunching::of(&instants(sizes), 200.0).unwrap();
        let (twos, ones) = (of(&[2; 10]), of(&[1; 10]));
        assert_eq!((twos.overlap(&twos), twos.overlap(&ones)), (1.0, 0.0));
        // Half of the requests are in twos.
        assert_eq!(twos.overlap(&of(&[2, 1, 1])), 0.5);
        // One that was torn off leaves the others alike.
        assert!(of(&[20; 10]).overlap(&of(&[19, 1, 19, 1, 20, 20, 18, 1, 1])) > 0.9);
        assert_eq!(twos.within_ns.is_some(), ones.within_ns.is_none());
    }

    #[test]
    fn a_single_bunch_says_nothing() {
        assert_eq!(Bunching::of(&[], 100.0), None);
        assert_eq!(Bunching::of(&instants(&[3]), 100.0), None);
    }
}
