//! What a handful of runs can and cannot say.
//!
//! The unit is a *pair*: A and B run one after the other under the same conditions, so that what disturbs
//! the machine disturbs both. An effect is a ratio B/A; it is estimated on the logarithms of the pair
//! ratios by the Hodges–Lehmann estimator (the median of all pairwise means, nearly as precise as the mean
//! and deaf to a single bad run), with a bootstrap interval over pairs, bias-corrected and accelerated
//! (Efron 1987), as wide as few pairs demand (Hesterberg 2015), and the signed rank test among the orders in
//! which the pairs could have been run.

mod normal;
mod randomisation;
mod scalability;
pub mod sequential;

use serde::Serialize;

use crate::random::Random;
pub(crate) use randomisation::balanced_order;
pub use randomisation::{holm, signed_rank};
pub use scalability::Scalability;
pub use sequential::{Decision, Sequential, wilson};

/// A and B, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// What A had.
    pub a: f64,
    /// What B had.
    pub b: f64,
    /// Which ran first.
    pub is_b_first: bool,
}

/// An estimate and the interval that covers the truth in 95 of 100 experiments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The best guess.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// How much larger B is than A, from pairs of runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// B/A with its interval.
    pub ratio: Interval,
    /// How many of the orders that could have been drawn make the pairs at least this lopsided when A and B do
    /// not differ.
    pub p: f64,
    /// Pairs that counted.
    pub pairs: usize,
}

/// What an effect says about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// B is smaller by at least what matters.
    Lower,
    /// B is larger by at least what matters.
    Higher,
    /// Whatever difference there is, it is smaller than what matters.
    Same,
    /// These runs cannot tell.
    Inconclusive,
}

/// The middle value; of an even number, the mean of the two; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    let (middle, is_odd) = (values.len() / 2, values.len() % 2 == 1);
    if values.is_empty() {
        return f64::NAN;
    }
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if is_odd {
        return upper;
    }
    let lower = below.iter().copied().max_by(f64::total_cmp).unwrap_or(upper);
    f64::midpoint(lower, upper)
}

/// The median of all pairwise means, each value paired with itself too.
pub fn hodges_lehmann(values: &[f64]) -> f64 {
    let means = values
        .iter()
        .enumerate()
        .flat_map(|(at, a)| values[at..].iter().map(move |b| f64::midpoint(*a, *b)));
    median(&means.collect::<Vec<f64>>())
}

/// How large a share of its mean a sample's standard deviation is.
pub fn variation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance =
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    if mean == 0.0 { 0.0 } else { variance.sqrt() / mean.abs() }
}

/// How many requests are under way in a system with this rate and this mean time in it.
pub fn littles_law(rate_per_s: f64, mean_s: f64) -> f64 {
    rate_per_s * mean_s
}

/// The 95 % bootstrap interval of a statistic, bias-corrected and accelerated.
///
/// Few values resemble each other more than they resemble what else could have come, so the levels are those of
/// Student's distribution, spread by √(n/(n − 1)) (Hesterberg 2015, "expanded percentile interval").
pub fn bootstrap(values: &[f64], statistic: impl Fn(&[f64]) -> f64, seed: u64) -> Interval {
    let estimate = statistic(values);
    if values.len() < 3 {
        return Interval { estimate, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    let mut random = Random::new(seed);
    let mut sample = vec![0.0; values.len()];
    let mut replicas: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            sample.fill_with(|| values[random.below(values.len())]);
            statistic(&sample)
        })
        .collect();
    replicas.sort_unstable_by(f64::total_cmp);
    let (bias, acceleration) = (bias(&replicas, estimate), acceleration(values, &statistic));
    let count = values.len() as f64;
    let reach = (count / (count - 1.0)).sqrt() * normal::student_quantile(0.975, count - 1.0);
    let quantile = |deviate: f64| {
        let z = bias + deviate;
        let slope = 1.0 - acceleration * z;
        let corrected = if slope > 0.0 { bias + z / slope } else { z.signum() * f64::INFINITY };
        let share = normal::cumulative(corrected);
        replicas[((share * RESAMPLES as f64) as usize).min(RESAMPLES - 1)]
    };
    Interval { estimate, low: quantile(-reach), high: quantile(reach) }
}

/// The effect in pairs whose order `balanced_order` drew; those with a value that is not above zero show none.
/// `None` when fewer than three show one.
pub fn paired_effect(pairs: &[Pair], seed: u64) -> Option<Effect> {
    let log = |pair: &Pair| {
        let is_usable = pair.a > 0.0 && pair.b > 0.0 && pair.a.is_finite() && pair.b.is_finite();
        is_usable.then(|| (pair.b / pair.a).ln())
    };
    let logs: Vec<f64> = pairs.iter().filter_map(log).collect();
    if logs.len() < 3 {
        return None;
    }
    let interval = bootstrap(&logs, hodges_lehmann, seed);
    let ratio = Interval {
        estimate: interval.estimate.exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
    };
    let placed: Vec<(f64, bool)> =
        pairs.iter().map(|pair| (log(pair).unwrap_or(0.0), pair.is_b_first)).collect();
    Some(Effect { ratio, p: signed_rank(&placed), pairs: logs.len() })
}

impl Effect {
    /// Judges against the smallest ratio that matters (0.05 is five percent) at the error rate `alpha`.
    ///
    /// A difference needs both a test that excludes chance and an interval that excludes none; sameness needs
    /// the whole interval within what does not matter. Six pairs or fewer can be ordered in too few ways to
    /// exclude chance at 5 %.
    pub fn verdict(&self, matters: f64, alpha: f64) -> Verdict {
        let (floor, ceiling) = (1.0 / (1.0 + matters), 1.0 + matters);
        let Interval { estimate, low, high } = self.ratio;
        let excludes_chance = self.p <= alpha;
        match () {
            () if excludes_chance && low > 1.0 && estimate >= ceiling => Verdict::Higher,
            () if excludes_chance && high < 1.0 && estimate <= floor => Verdict::Lower,
            () if low >= floor && high <= ceiling => Verdict::Same,
            () => Verdict::Inconclusive,
        }
    }
}

/// How far the bootstrap's median is off the estimate, as a normal deviate.
fn bias(replicas: &[f64], estimate: f64) -> f64 {
    let below = replicas.partition_point(|replica| *replica < estimate);
    let not_above = replicas.partition_point(|replica| *replica <= estimate);
    let share = (below + not_above) as f64 / 2.0 / replicas.len() as f64;
    normal::quantile(share.clamp(1e-6, 1.0 - 1e-6))
}

/// How the statistic's spread changes with its value, by leaving one value out at a time.
fn acceleration(values: &[f64], statistic: &impl Fn(&[f64]) -> f64) -> f64 {
    let left_out: Vec<f64> = (0..values.len())
        .map(|out| {
            let others =
                values.iter().enumerate().filter(|(at, _)| *at != out).map(|(_, value)| *value);
            statistic(&others.collect::<Vec<f64>>())
        })
        .collect();
    let mean = left_out.iter().sum::<f64>() / left_out.len() as f64;
    let cubes: f64 = left_out.iter().map(|value| (mean - value).powi(3)).sum();
    let squares: f64 = left_out.iter().map(|value| (mean - value).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { cubes / (6.0 * squares.powf(1.5)) }
}

const RESAMPLES: usize = 4000;

#[cfg(test)]
mod tests;
