//! Nanoseconds in an HdrHistogram with three significant digits, up to one hour.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

/// Durations in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Packed", into = "Packed")]
pub struct Nanoseconds(Histogram<u64>);

/// A histogram as text: base64 of HdrHistogram's V2 encoding, which keeps every count.
#[derive(Clone, Debug)]
pub(crate) struct Packed(pub(crate) Histogram<u64>);

/// The percentiles that every report prints, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The mean.
    pub mean: u64,
    /// Half were faster.
    pub p50: u64,
    /// 90 % were faster.
    pub p90: u64,
    /// 95 % were faster.
    pub p95: u64,
    /// 99 % were faster.
    pub p99: u64,
    /// 99.9 % were faster.
    pub p999: u64,
    /// The slowest.
    pub max: u64,
}

impl Nanoseconds {
    /// An empty histogram.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, HOUR_NS, 3).expect("constant bounds are valid"))
    }

    /// Counts one value; what is above an hour counts as an hour.
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds.max(1));
    }

    /// Adds another histogram's counts. This, not averaging, is how percentiles of runs are joined.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The mean, 0 when empty.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// The value below which the share `quantile` (0 to 1) lies, 0 when empty.
    pub fn quantile(&self, quantile: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_quantile(quantile).min(self.0.max()) }
    }

    /// The percentiles that every report prints.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            mean: self.mean() as u64,
            p50: self.quantile(0.50),
            p90: self.quantile(0.90),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: if self.0.is_empty() { 0 } else { self.0.max() },
        }
    }

    /// The same, where anything was counted: a percentile of nothing is not 0.
    pub fn some_percentiles(&self) -> Option<Percentiles> {
        (self.count() > 0).then(|| self.percentiles())
    }

    /// The histogram itself, for logs and merging elsewhere.
    pub fn as_histogram(&self) -> &Histogram<u64> {
        &self.0
    }
}

impl From<Nanoseconds> for Packed {
    fn from(it: Nanoseconds) -> Self {
        Self(it.0)
    }
}

impl TryFrom<Packed> for Nanoseconds {
    type Error = &'static str;

    fn try_from(Packed(it): Packed) -> Result<Self, Self::Error> {
        let is_alike = have_same_bounds(&it, &Self::new().0);
        is_alike.then_some(Self(it)).ok_or("a histogram has other bounds")
    }
}

/// Whether one can be added to the other.
pub(crate) fn have_same_bounds(one: &Histogram<u64>, other: &Histogram<u64>) -> bool {
    let bounds = |it: &Histogram<u64>| (it.low(), it.high(), it.sigfig());
    bounds(one) == bounds(other)
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).map_err(ser::Error::custom)?;
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes =
            STANDARD.decode(String::deserialize(deserializer)?).map_err(de::Error::custom)?;
        let histogram =
            hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice());
        histogram.map(Self).map_err(de::Error::custom)
    }
}

impl Default for Nanoseconds {
    fn default() -> Self {
        Self::new()
    }
}

const HOUR_NS: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_keep_three_digits_and_never_exceed_the_maximum() {
        let mut histogram = Nanoseconds::new();
        assert_eq!(histogram.percentiles(), Percentiles::default());
        for value in 1..=1000 {
            histogram.record(value * 1_000_000);
        }
        let percentiles = histogram.percentiles();
        assert!((percentiles.p50 as f64 / 500e6 - 1.0).abs() < 0.002);
        assert!((percentiles.p99 as f64 / 990e6 - 1.0).abs() < 0.002);
        assert!(percentiles.p999 <= percentiles.max);
        histogram.record(u64::MAX);
        histogram.record(0);
        assert_eq!(histogram.count(), 1002);
    }

    #[test]
    fn what_is_sent_elsewhere_arrives_with_every_count() {
        let mut sent = Nanoseconds::new();
        for value in [0, 1, 999, 1_000_000, 1_234_567_890, u64::MAX] {
            sent.record(value);
        }
        let text = serde_json::to_string(&sent).unwrap();
        let arrived: Nanoseconds = serde_json::from_str(&text).unwrap();
        assert_eq!(arrived.0, sent.0);
        let mut sum = Nanoseconds::new();
        sum.merge(&arrived);
        assert_eq!(sum.percentiles(), sent.percentiles());
        let other = Packed(Histogram::new_with_bounds(1, 1000, 2).unwrap());
        let other = serde_json::to_string(&other).unwrap();
        for wrong in [other.as_str(), "\"\"", "\"AAAA\"", "\"not base64\"", "7"] {
            assert!(serde_json::from_str::<Nanoseconds>(wrong).is_err(), "{wrong}");
        }
    }
}
