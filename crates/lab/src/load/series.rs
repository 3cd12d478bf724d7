//! A run over time: what each stretch of the measured time brought.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::histogram::{Packed, have_same_bounds};
use crate::results::SERIES_HEADER;

/// Stretches of a run, each a second long unless there would be too many.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Sent", into = "Sent")]
pub struct Series {
    length_ns: u64,
    stretches: Vec<Stretch>,
}

#[derive(Clone, Debug)]
struct Stretch {
    /// From the intended start, in nanoseconds with two digits: hundreds of stretches are kept at once.
    latency: Histogram<u64>,
    errors: u64,
}

/// Stretches on their way to another machine: histograms and errors.
#[derive(Serialize, Deserialize)]
struct Sent {
    length_ns: u64,
    stretches: Vec<(Packed, u64)>,
}

impl From<Series> for Sent {
    fn from(Series { length_ns, stretches }: Series) -> Self {
        let stretches = stretches.into_iter().map(|it| (Packed(it.latency), it.errors)).collect();
        Self { length_ns, stretches }
    }
}

impl TryFrom<Sent> for Series {
    type Error = &'static str;

    fn try_from(Sent { length_ns, stretches }: Sent) -> Result<Self, Self::Error> {
        let bounds = empty();
        if stretches.len() > LIMIT || !stretches.iter().all(|it| have_same_bounds(&it.0.0, &bounds))
        {
            return Err("there are too many stretches, or their histograms have other bounds");
        }
        let stretch = |(Packed(latency), errors)| Stretch { latency, errors };
        Ok(Self { length_ns, stretches: stretches.into_iter().map(stretch).collect() })
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_max(HOUR_NS, 2).expect("constant bounds are valid")
}

/// One stretch, to be drawn or written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Seconds from the beginning of the measured time to that of the stretch.
    pub from_s: f64,
    /// Its length in seconds; the last may be shorter.
    pub length_s: f64,
    /// Successful answers that came in it.
    pub answered: u64,
    /// Failures that were noticed in it.
    pub errors: u64,
    /// Median latency of those answers in nanoseconds, if there were any.
    pub p50_ns: Option<u64>,
    /// Their 99th percentile.
    pub p99_ns: Option<u64>,
    /// The slowest.
    pub max_ns: Option<u64>,
}

impl Series {
    /// No stretches yet of a run that is measured for `duration`.
    pub(super) fn new(duration: Duration) -> Self {
        let whole = duration.as_secs().div_ceil(MOST).max(1);
        Self { length_ns: whole * 1_000_000_000, stretches: Vec::new() }
    }

    /// A right answer came `at`, counted from the beginning of the measured time.
    pub(super) fn record(&mut self, at: u64, latency_ns: u64) {
        if let Some(stretch) = self.stretch(at) {
            stretch.latency.saturating_record(latency_ns.max(1));
        }
    }

    pub(super) fn count_error(&mut self, at: u64) {
        if let Some(stretch) = self.stretch(at) {
            stretch.errors += 1;
        }
    }

    /// Adds what another generator counted over the same time.
    pub(super) fn merge(&mut self, other: &Self) {
        self.length_ns = self.length_ns.max(other.length_ns);
        for (at, theirs) in other.stretches.iter().enumerate() {
            if at == self.stretches.len() {
                self.stretches.push(theirs.clone());
                continue;
            }
            let mine = &mut self.stretches[at];
            mine.errors += theirs.errors;
            mine.latency.add(&theirs.latency).expect("both have the same bounds");
        }
    }

    /// Adds what was measured afterwards.
    pub(super) fn append(&mut self, other: &Self) {
        self.length_ns = self.length_ns.max(other.length_ns);
        self.stretches.extend(other.stretches.iter().cloned());
    }

    /// The stretches of a run of this length, in order.
    pub fn points(&self, duration: Duration) -> Vec<Point> {
        let (total_s, length_s) = (duration.as_secs_f64(), self.length_ns as f64 / 1e9);
        let silent = Stretch { latency: empty(), errors: 0 };
        let point = |at: usize| {
            let it = self.stretches.get(at).unwrap_or(&silent);
            let from_s = at as f64 * length_s;
            let quantile =
                |share| (!it.latency.is_empty()).then(|| it.latency.value_at_quantile(share));
            Point {
                from_s,
                length_s: length_s.min(total_s - from_s).max(0.0),
                answered: it.latency.len(),
                errors: it.errors,
                p50_ns: quantile(0.5),
                p99_ns: quantile(0.99),
                max_ns: (!it.latency.is_empty()).then(|| it.latency.max()),
            }
        };
        // A target that has stopped answering is seen by the stretches without an answer, to the end.
        let of_run = match self.length_ns {
            0 => 0,
            length => duration.as_nanos().div_ceil(length.into()).min(LIMIT as u128) as usize,
        };
        (0..of_run.max(self.stretches.len())).map(point).collect()
    }

    fn stretch(&mut self, at: u64) -> Option<&mut Stretch> {
        let index = usize::try_from(at.checked_div(self.length_ns)?).ok()?;
        if index >= LIMIT {
            return None;
        }
        while self.stretches.len() <= index {
            self.stretches.push(Stretch { latency: empty(), errors: 0 });
        }
        self.stretches.get_mut(index)
    }
}

impl Point {
    /// Answers per second.
    pub fn rate(&self) -> f64 {
        if self.length_s > 0.0 { self.answered as f64 / self.length_s } else { 0.0 }
    }
}

/// Points as JSON.
pub(super) fn to_json(points: &[Point]) -> Value {
    let point = |it: &Point| {
        json!({
            "from_s": it.from_s,
            "length_s": it.length_s,
            "rps": it.rate(),
            "errors": it.errors,
            "latency_ns": { "p50": it.p50_ns, "p99": it.p99_ns, "max": it.max_ns },
        })
    };
    points.iter().map(point).collect()
}

/// Points as CSV, one stretch a line.
pub(super) fn to_csv(points: &[Point]) -> String {
    let mut text = format!("{SERIES_HEADER}\n");
    for it in points {
        let ms =
            |ns: Option<u64>| ns.map_or_else(String::new, |ns| format!("{:.4}", ns as f64 / 1e6));
        let _ = writeln!(
            text,
            "{:.3},{:.3},{:.1},{},{},{},{}",
            it.from_s,
            it.length_s,
            it.rate(),
            it.errors,
            ms(it.p50_ns),
            ms(it.p99_ns),
            ms(it.max_ns)
        );
    }
    text
}

/// What is within the measured time, counted from its beginning.
pub(super) fn within(measured: &Range<u64>, now: u64) -> Option<u64> {
    measured.contains(&now).then(|| now - measured.start)
}

/// A longer run has longer stretches.
const MOST: u64 = 600;
/// Stretches kept, of merged runs too.
const LIMIT: usize = 10_000;
const HOUR_NS: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_own_figures() {
        let mut series = Series::new(Duration::from_millis(2500));
        for (at, latency) in
            [(0, 1000), (999_999_999, 3000), (1_000_000_000, 9000), (2_400_000_000, 5000)]
        {
            series.record(at, latency);
        }
        series.count_error(2_000_000_000);
        let points = series.points(Duration::from_millis(2500));
        let counts: Vec<(u64, u64)> = points.iter().map(|it| (it.answered, it.errors)).collect();
        assert_eq!(counts, [(2, 0), (1, 0), (1, 1)]);
        assert_eq!(points[2].rate(), 2.0, "the last is half a second");
        assert!(points[1].p99_ns.is_some_and(|ns| (8900..9100).contains(&ns)), "{:?}", points[1]);
        assert_eq!(to_csv(&points).lines().count(), 4);
    }

    #[test]
    fn a_second_without_an_answer_is_there_and_has_no_latency() {
        let mut series = Series::new(Duration::from_secs(4));
        series.record(0, 1000);
        series.record(2_000_000_000, 1000);
        let points = series.points(Duration::from_secs(4));
        let rates: Vec<f64> = points.iter().map(Point::rate).collect();
        assert_eq!(rates, [1.0, 0.0, 1.0, 0.0], "to the end of the run");
        assert_eq!((points[1].p50_ns, points[3].max_ns), (None, None));
        assert_eq!(to_csv(&points).lines().last(), Some("3.000,1.000,0.0,0,,,"));
        assert_eq!(to_json(&points)[3]["latency_ns"]["p50"], Value::Null);
    }

    #[test]
    fn generators_side_by_side_add_up_and_long_runs_have_longer_stretches() {
        let mut one = Series::new(Duration::from_secs(1));
        one.record(0, 1000);
        let mut other = Series::new(Duration::from_secs(1));
        other.record(1, 2000);
        other.record(1_000_000_001, 2000);
        one.merge(&other);
        let counts: Vec<u64> =
            one.points(Duration::from_secs(2)).iter().map(|it| it.answered).collect();
        assert_eq!(counts, [2, 1]);
        let sent = serde_json::to_string(&one).unwrap();
        let arrived: Series = serde_json::from_str(&sent).unwrap();
        assert_eq!(arrived.points(Duration::from_secs(2)), one.points(Duration::from_secs(2)));
        let mut long = Series::new(Duration::from_secs(3600));
        long.record(3_599_000_000_000, 1);
        assert_eq!(long.points(Duration::from_secs(3600)).len(), 600);
        long.record(u64::MAX, 1);
        assert_eq!(long.points(Duration::from_secs(3600)).len(), 600);
    }
}
