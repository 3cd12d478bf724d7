//! How long each layer of a request may take: connect, first byte, gap, attempt, total.
//!
//! Arrives: how much is sent, on what kind of network, how busy it is, and how long earlier requests took. Leaves: a
//! [`Duration`] for each layer.
//!
//! Without history the bounds are those of Mars (`mars/stn/src/task_profile.cc`, `config.h`): a base and the time
//! that the bytes take at the rate that a poor network of this kind has. Measured first-byte times of the same host and
//! size class tighten them, never loosen them.

use std::time::Duration;

/// What kind of network it is, as far as timeouts care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Wi-Fi or cable.
    #[default]
    Fixed,
    /// A mobile network.
    Mobile,
}

/// Constants of one kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Constants {
    first_base: Duration,
    first_most: Duration,
    bytes_per_s: u64,
    each_in_flight: Duration,
    gap: Duration,
}

/// The layers of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// One connection attempt.
    pub connect: Duration,
    /// From the request's last byte to the response's first.
    pub first_byte: Duration,
    /// Between two pieces of the response.
    pub gap: Duration,
    /// One attempt, from the first byte sent to the last received.
    pub attempt: Duration,
    /// Everything, with all repetitions.
    pub total: Duration,
}

/// What is known of a request beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the request's body.
    pub bytes: u64,
    /// Requests that are under way already.
    pub in_flight: u32,
    /// How often it may be repeated.
    pub retries: u32,
}

impl Network {
    const fn constants(self) -> Constants {
        match self {
            Self::Fixed => Constants {
                first_base: Duration::from_secs(12),
                first_most: Duration::from_secs(22),
                bytes_per_s: 12 * 1024,
                each_in_flight: Duration::from_millis(1500),
                gap: Duration::from_secs(8),
            },
            Self::Mobile => Constants {
                first_base: Duration::from_secs(15),
                first_most: Duration::from_secs(30),
                bytes_per_s: 4 * 1024,
                each_in_flight: Duration::from_secs(3),
                gap: Duration::from_secs(12),
            },
        }
    }
}

impl Layers {
    /// The layers by Mars's formula, tightened by what was measured.
    #[must_use]
    pub fn new(network: Network, size: Size, measured: Option<&Quantiles>) -> Self {
        let constants = network.constants();
        let carried = Duration::from_millis(
            size.bytes.saturating_mul(1000).checked_div(constants.bytes_per_s).unwrap_or(u64::MAX),
        );
        let load = constants.each_in_flight * size.in_flight.min(5);
        let first = constants.first_base.saturating_add(carried).min(constants.first_most);
        let bound = first.saturating_add(load);
        let first_byte = measured.and_then(Quantiles::bound).map_or(bound, |measured| {
            bound.min(measured.saturating_add(carried).saturating_add(load))
        });
        let attempt =
            bound.saturating_add(Duration::from_millis(64 * 1024 * 1000 / constants.bytes_per_s));
        Self {
            connect: CONNECT,
            first_byte,
            gap: constants.gap,
            attempt,
            total: TOTAL.saturating_mul(size.retries.saturating_add(1)),
        }
    }
}

/// Times of one kind of request to one host: a histogram whose old entries fade.
///
/// 4 buckets for each doubling from 1 ms to about a minute: a quantile is at most 19 % too high.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles {
    buckets: [f32; BUCKETS],
    total: f32,
}

const BUCKETS: usize = 64;

impl Quantiles {
    /// Nothing measured.
    #[must_use]
    pub const fn new() -> Self {
        Self { buckets: [0.0; BUCKETS], total: 0.0 }
    }

    /// Adds a measurement.
    pub fn record(&mut self, time: Duration) {
        for bucket in &mut self.buckets {
            *bucket *= FADE;
        }
        self.buckets[bucket(time)] += 1.0;
        self.total = self.total * FADE + 1.0;
    }

    /// The time within which a share (0 to 1) of the requests had their answer, if enough were measured.
    #[must_use]
    pub fn at(&self, share: f32) -> Option<Duration> {
        if self.total < ENOUGH {
            return None;
        }
        let mut left = self.buckets.iter().sum::<f32>() * share;
        let found = self.buckets.iter().position(|count| {
            left -= count;
            left <= 1e-3
        });
        Some(top(found.unwrap_or(BUCKETS - 1)))
    }

    /// When to stop hoping for a first byte: four times the 99th percentile, and at least two seconds.
    #[must_use]
    pub fn bound(&self) -> Option<Duration> {
        self.at(0.99).map(|time| (time * 4).max(SHORTEST_FIRST_BYTE))
    }

    /// When another attempt is worth a token: the 95th percentile, and at least 50 ms.
    #[must_use]
    pub fn hedge(&self) -> Option<Duration> {
        self.at(0.95).map(|time| time.max(SHORTEST_HEDGE))
    }
}

impl Default for Quantiles {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the number of buckets"
)]
fn bucket(time: Duration) -> usize {
    let place = (time.as_secs_f64() * 1e3).max(1e-9).log2() * 4.0;
    (place.ceil().max(0.0) as usize).min(BUCKETS - 1)
}

/// The longest time of a bucket.
#[expect(clippy::cast_precision_loss, reason = "bucket numbers are small")]
fn top(bucket: usize) -> Duration {
    Duration::from_secs_f64((bucket as f64 / 4.0).exp2() / 1e3)
}

/// Size classes of Mars (`dynamic_timeout.cc`): up to 3, 10, 30 KiB, and larger.
#[must_use]
pub const fn size_class(bytes: u64) -> usize {
    match bytes {
        0..=3072 => 0,
        3073..=10_240 => 1,
        10_241..=30_720 => 2,
        _ => 3,
    }
}

/// How many classes [`size_class`] knows.
pub const SIZE_CLASSES: usize = 4;

/// Mars's `kConnTimeout`.
const CONNECT: Duration = Duration::from_secs(10);
/// Longer than Mars's 20 s for each attempt: a request that may wait outlives an outage of half a minute.
const TOTAL: Duration = Duration::from_secs(60);
const SHORTEST_FIRST_BYTE: Duration = Duration::from_secs(2);
const SHORTEST_HEDGE: Duration = Duration::from_millis(50);
/// A measurement counts for half after about 70 further ones.
const FADE: f32 = 0.99;
/// Measurements below which nothing is concluded.
const ENOUGH: f32 = 15.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn without_history_the_bounds_are_mars_s() {
        let plain = Layers::new(Network::Fixed, Size::default(), None);
        assert_eq!(plain.first_byte, s(12));
        assert_eq!(plain.gap, s(8));
        assert_eq!(plain.attempt.as_millis(), 12_000 + 5_333);
        let mobile = Layers::new(Network::Mobile, Size::default(), None);
        assert_eq!(mobile.first_byte, s(15));
        assert_eq!(mobile.attempt, s(31));
        assert_eq!(mobile.gap, s(12));
    }

    #[test]
    fn bytes_and_load_add_to_the_first_byte_up_to_their_limits() {
        let large = Size { bytes: 60 * 1024, ..Size::default() };
        assert_eq!(Layers::new(Network::Fixed, large, None).first_byte, s(17));
        let huge = Size { bytes: u64::MAX, in_flight: 100, retries: u32::MAX };
        assert_eq!(Layers::new(Network::Fixed, huge, None).first_byte, s(22) + s(15) / 2);
        assert_eq!(Layers::new(Network::Mobile, huge, None).first_byte, s(30) + s(15));
    }

    #[test]
    fn measurements_tighten_and_never_loosen() {
        let mut quick = Quantiles::new();
        (0..100).for_each(|_| quick.record(Duration::from_millis(80)));
        let tight = Layers::new(Network::Fixed, Size::default(), Some(&quick));
        assert_eq!(tight.first_byte, s(2));
        let mut slow = Quantiles::new();
        (0..100).for_each(|_| slow.record(s(30)));
        let loose = Layers::new(Network::Fixed, Size::default(), Some(&slow));
        assert_eq!(loose.first_byte, s(12));
    }

    #[test]
    fn little_history_concludes_nothing() {
        let mut few = Quantiles::new();
        (0..10).for_each(|_| few.record(Duration::from_millis(80)));
        assert_eq!((few.bound(), few.hedge()), (None, None));
    }

    #[test]
    fn quantiles_are_close_from_above_and_follow_a_change() {
        let mut quantiles = Quantiles::new();
        for number in 1..=1000u64 {
            quantiles.record(Duration::from_millis(number % 100 + 1));
        }
        let median = quantiles.at(0.5).unwrap().as_secs_f64() * 1e3;
        assert!((45.0..=66.0).contains(&median), "{median}");
        let high = quantiles.at(0.95).unwrap().as_secs_f64() * 1e3;
        assert!((90.0..=120.0).contains(&high), "{high}");
        (0..400).for_each(|_| quantiles.record(Duration::from_millis(500)));
        let median = quantiles.at(0.5).unwrap().as_secs_f64() * 1e3;
        assert!((450.0..=600.0).contains(&median), "{median}");
    }

    #[test]
    fn any_time_has_a_bucket() {
        let mut quantiles = Quantiles::new();
        (0..30).for_each(|_| quantiles.record(Duration::ZERO));
        assert!(quantiles.at(1.0).unwrap() <= Duration::from_millis(1));
        (0..2000).for_each(|_| quantiles.record(Duration::MAX));
        assert!(quantiles.at(0.5).unwrap() > s(50));
    }

    #[test]
    fn classes_have_mars_s_limits() {
        assert_eq!([0, 3072, 3073, 10_240, 30_720, 30_721].map(size_class), [0, 0, 1, 1, 2, 3]);
    }
}
