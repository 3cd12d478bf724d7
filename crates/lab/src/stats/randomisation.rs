//! Orders drawn by lot, the test that rests on nothing else, and Holm's correction for asking several questions.
//!
//! The second run of a pair may be slower, noise may come in bursts that last for several runs and have tails as
//! heavy as they like: when A and B do not differ, the same figures would have come in the same places had the lot
//! fallen otherwise, and only the labels would have been exchanged. So the figures are held fixed and the labels
//! dealt anew in every way that the lot allows; p is the share of these that are at least as lopsided
//! (Fisher 1935, chapter II). That share is at most what is stated under any noise whatever.

use super::normal;
use crate::random::Random;

/// In which pairs B runs first: in half of them, every such order being as likely as another. Of an odd number the
/// larger half is drawn too. What being second costs is thus charged to both alike.
pub(crate) fn balanced_order(pairs: usize, random: &mut Random) -> Vec<bool> {
    let is_more_often = random.below(2) == 1;
    let mut order: Vec<bool> = (0..pairs).map(|at| (at % 2 == 0) == is_more_often).collect();
    for at in (1..pairs).rev() {
        order.swap(at, random.below(at + 1));
    }
    order
}

/// Two-sided p of Wilcoxon's signed rank statistic among all orders that `balanced_order` could have drawn.
///
/// Each pair has its difference, B less A, and whether B ran first. A difference of zero says nothing, but its place
/// in the order counts. Exact up to 30 pairs, by the normal approximation with the order's variance beyond.
pub fn signed_rank(pairs: &[(f64, bool)]) -> f64 {
    let places = places(pairs);
    let total: usize = places.iter().map(|place| place.rank).sum();
    let positive: usize =
        places.iter().filter(|place| place.is_positive).map(|place| place.rank).sum();
    let smaller = positive.min(total - positive);
    if 2 * smaller >= total {
        return 1.0;
    }
    if places.len() <= EXACT_UP_TO {
        exact(&places, smaller, total)
    } else {
        approximate(&places, smaller, total)
    }
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

/// What stays when labels are dealt anew, and the sign that they gave it.
struct Place {
    /// Twice the rank among magnitudes, ties sharing their mean rank; zero for a difference of zero.
    rank: usize,
    /// Whether the difference is positive when B runs first. It is the other way round when A does.
    is_positive_if_b_first: bool,
    is_positive: bool,
}

fn places(pairs: &[(f64, bool)]) -> Vec<Place> {
    let mut sorted = pairs.to_vec();
    sorted.sort_unstable_by(|(a, _), (b, _)| a.abs().total_cmp(&b.abs()));
    let zeros = sorted.iter().take_while(|(difference, _)| *difference == 0.0).count();
    let of_magnitude = |difference: f64| {
        let below = sorted.partition_point(|(other, _)| other.abs() < difference.abs());
        let up_to = sorted.partition_point(|(other, _)| other.abs() <= difference.abs());
        // The mean of the ranks below + 1 … up_to, twice.
        (below + up_to + 1).saturating_sub(2 * zeros)
    };
    let place = |&(difference, is_b_first): &(f64, bool)| Place {
        rank: if difference == 0.0 { 0 } else { of_magnitude(difference) },
        is_positive_if_b_first: (difference > 0.0) == is_b_first,
        is_positive: difference > 0.0,
    };
    sorted.iter().map(place).collect()
}

/// The share of orders whose positive ranks sum up to at most `smaller`, or to as much on the other side.
fn exact(places: &[Place], smaller: usize, total: usize) -> f64 {
    // Orders of the places so far, by how often B is first and by the sum.
    let mut ways = vec![vec![0.0; total + 1]; places.len() + 1];
    ways[0][0] = 1.0;
    for (done, place) in places.iter().enumerate() {
        let mut next = vec![vec![0.0; total + 1]; places.len() + 1];
        let (if_first, if_second) =
            if place.is_positive_if_b_first { (place.rank, 0) } else { (0, place.rank) };
        for first in 0..=done {
            for sum in 0..=total {
                let so_far = ways[first][sum];
                if so_far > 0.0 {
                    next[first + 1][sum + if_first] += so_far;
                    next[first][sum + if_second] += so_far;
                }
            }
        }
        ways = next;
    }
    let half = places.len() / 2;
    let drawn = &ways[half..=places.len() - half];
    let lopsided = |sums: &Vec<f64>| {
        sums[..=smaller].iter().sum::<f64>() + sums[total - smaller..].iter().sum::<f64>()
    };
    let all: f64 = drawn.iter().flatten().sum();
    (drawn.iter().map(lopsided).sum::<f64>() / all).min(1.0)
}

fn approximate(places: &[Place], smaller: usize, total: usize) -> f64 {
    let count = places.len() as f64;
    // That B is first here makes it rarer elsewhere: the correlation of any two places.
    let correlation =
        if places.len().is_multiple_of(2) { -1.0 / (count - 1.0) } else { -1.0 / count };
    let squares: f64 = places.iter().map(|place| (place.rank as f64).powi(2)).sum();
    let signed = |place: &Place| {
        if place.is_positive_if_b_first { place.rank as f64 } else { -(place.rank as f64) }
    };
    let sum: f64 = places.iter().map(signed).sum();
    let variance = (squares + correlation * (sum * sum - squares)) / 4.0;
    // Ranks are doubled, and so is the half of the correction for continuity.
    let z = (smaller as f64 - total as f64 / 2.0 + 1.0) / variance.max(f64::MIN_POSITIVE).sqrt();
    (2.0 * normal::cumulative(z)).min(1.0)
}

const EXACT_UP_TO: usize = 30;
