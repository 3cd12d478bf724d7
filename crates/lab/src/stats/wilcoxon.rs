//! Wilcoxon's signed rank test, and Holm's correction for asking several questions at once.

use super::normal;

/// Two-sided p for differences whose true median is zero. Exact up to 30 differences without ties, by the
/// normal approximation with tie correction beyond.
pub fn wilcoxon_signed_rank(differences: &[f64]) -> f64 {
    let mut values: Vec<f64> = differences.iter().copied().filter(|value| *value != 0.0).collect();
    let count = values.len();
    if count == 0 {
        return 1.0;
    }
    values.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let (ranks, ties) = ranks(&values);
    let positive: f64 =
        values.iter().zip(&ranks).filter(|(value, _)| **value > 0.0).map(|(_, rank)| rank).sum();
    let total = (count * (count + 1)) as f64 / 2.0;
    let smaller = positive.min(total - positive);
    if ties == 0.0 && count <= EXACT_UP_TO {
        return exact(count, smaller as usize);
    }
    let variance = (count * (count + 1) * (2 * count + 1)) as f64 / 24.0 - ties / 48.0;
    let z = (smaller - total / 2.0 + 0.5) / variance.sqrt();
    (2.0 * normal::cumulative(z)).min(1.0)
}

/// Raises p values so that the chance of any false claim among them stays what it is for one.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_unstable_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut raised = vec![1.0; p_values.len()];
    let mut least: f64 = 0.0;
    for (position, index) in order.into_iter().enumerate() {
        least = least.max(p_values[index] * (p_values.len() - position) as f64).min(1.0);
        raised[index] = least;
    }
    raised
}

/// Ranks of values sorted by magnitude, ties sharing their mean rank, and the sum of t³ − t over ties.
fn ranks(sorted: &[f64]) -> (Vec<f64>, f64) {
    let mut ranks = Vec::with_capacity(sorted.len());
    let mut ties = 0.0;
    let mut start = 0;
    while start < sorted.len() {
        let same =
            sorted[start..].iter().take_while(|value| value.abs() == sorted[start].abs()).count();
        let mean_rank = start as f64 + (same + 1) as f64 / 2.0;
        ranks.extend(std::iter::repeat_n(mean_rank, same));
        ties += (same.pow(3) - same) as f64;
        start += same;
    }
    (ranks, ties)
}

/// The share of the 2ⁿ sign patterns whose smaller rank sum is at most `smaller`.
fn exact(count: usize, smaller: usize) -> f64 {
    let total = count * (count + 1) / 2;
    let mut ways = vec![0.0; total + 1];
    ways[0] = 1.0;
    for rank in 1..=count {
        for sum in (rank..=total).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let at_most: f64 = ways[..=smaller].iter().sum();
    (2.0 * at_most / 2f64.powi(count as i32)).min(1.0)
}

const EXACT_UP_TO: usize = 30;
