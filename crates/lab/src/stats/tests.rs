use super::*;

#[test]
fn medians_and_hodges_lehmann_shrug_off_one_bad_value() {
    assert!(median(&[]).is_nan());
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert_eq!(hodges_lehmann(&[1.0]), 1.0);
    assert!((hodges_lehmann(&[1.0, 1.1, 0.9, 1.05, 100.0]) - 1.0).abs() < 0.11);
}

#[test]
fn few_pairs_are_judged_by_counting_their_orders() {
    let pairs = |differences: &[f64]| -> Vec<(f64, bool)> {
        differences.iter().enumerate().map(|(at, it)| (*it, at % 2 == 0)).collect()
    };
    // Of the 70 orders of eight pairs, two put all differences on one side.
    let all_up = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    assert!((signed_rank(&pairs(&all_up)) - 2.0 / 70.0).abs() < 1e-12);
    // Six pairs can be ordered in 20 ways, seven in 35 and 35.
    assert!((signed_rank(&pairs(&all_up[..6])) - 0.1).abs() < 1e-12);
    assert!((signed_rank(&pairs(&all_up[..7])) - 2.0 / 70.0).abs() < 1e-12);
    assert_eq!(signed_rank(&pairs(&[0.0, 0.0])), 1.0);
    assert_eq!(signed_rank(&[]), 1.0);
    // The second of each pair is slower by as much: nothing is said of the arms.
    let second =
        [(0.2, false), (-0.2, true), (-0.2, true), (0.2, false), (0.2, false), (-0.2, true)];
    assert!(signed_rank(&second) > 0.5);
}

#[test]
fn many_pairs_are_judged_as_if_their_orders_were_counted() {
    let mut random = Random::new(3);
    for pairs in [29, 30] {
        let order = balanced_order(pairs, &mut random);
        let mut two = |shift: f64| {
            let mut placed: Vec<(f64, bool)> =
                order.iter().map(|first| (random.uniform() - 0.5 + shift, *first)).collect();
            let counted = signed_rank(&placed);
            // Zeros say nothing but make the pairs too many to be counted.
            placed.extend([(0.0, true), (0.0, false)].repeat(2));
            (counted, signed_rank(&placed))
        };
        for shift in [0.05, 0.1] {
            let (counted, approximated) = two(shift);
            assert!((counted - approximated).abs() < 0.01, "{counted} or {approximated}");
        }
    }
}

#[test]
fn an_order_is_balanced_and_any_is_as_likely() {
    let mut random = Random::new(1);
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..6000 {
        *seen.entry(balanced_order(4, &mut random)).or_insert(0) += 1;
    }
    assert!(seen.len() == 6 && seen.values().all(|count| (880..1120).contains(count)), "{seen:?}");
    let first = |order: Vec<bool>| order.into_iter().filter(|it| *it).count();
    let odd: Vec<usize> = (0..1000).map(|_| first(balanced_order(7, &mut random))).collect();
    let threes = odd.iter().filter(|count| **count == 3).count();
    assert!(odd.iter().all(|count| [3, 4].contains(count)) && (400..600).contains(&threes));
}

/// What disturbs runs: all as shares of what a run costs.
#[derive(Clone, Copy, Default)]
struct Disturbance {
    /// Tails as heavy as Student's with two degrees of freedom.
    is_heavy: bool,
    /// What being second costs.
    second: f64,
    /// What the machine loses from the first run to the last.
    drift: f64,
    /// How much of one run's noise is still there in the next.
    memory: f64,
    /// How often a burst of a neighbour's work begins; it lasts for three runs or so.
    bursts: f64,
}

const DISTURBANCES: [Disturbance; 6] = {
    let none = Disturbance { is_heavy: false, second: 0.0, drift: 0.0, memory: 0.0, bursts: 0.0 };
    [
        Disturbance { is_heavy: true, ..none },
        Disturbance { drift: 0.5, ..none },
        Disturbance { second: 0.03, ..none },
        Disturbance { second: 0.2, ..none },
        Disturbance { memory: 0.7, ..none },
        Disturbance { is_heavy: true, second: 0.03, drift: 0.3, memory: 0.5, bursts: 0.1 },
    ]
};

impl Disturbance {
    /// The logarithms of what pairs of equal runs cost, first and second.
    fn pairs(self, count: usize, random: &mut Random) -> Vec<(f64, f64)> {
        let (mut noise, mut in_burst, mut made) = (0.0, false, 0);
        let mut run = |is_second: bool| {
            let fresh = if self.is_heavy {
                0.03 * normal(random) / random.exponential().sqrt()
            } else {
                0.06 * normal(random)
            };
            noise = self.memory * noise + fresh;
            in_burst = random.uniform() < if in_burst { 0.7 } else { self.bursts };
            let burst = if in_burst { 0.3 * random.uniform() } else { 0.0 };
            made += 1;
            let drift = self.drift * f64::from(made) / (2.0 * count as f64);
            noise + burst + drift + if is_second { self.second } else { 0.0 }
        };
        (0..count).map(|_| (run(false), run(true))).collect()
    }

    /// The p of an experiment in which B costs `ratio` of A.
    fn p(self, count: usize, ratio: f64, random: &mut Random) -> f64 {
        let order = balanced_order(count, random);
        let placed =
            self.pairs(count, random).into_iter().zip(order).map(|((first, second), b)| {
                (ratio.ln() + if b { first - second } else { second - first }, b)
            });
        signed_rank(&placed.collect::<Vec<_>>())
    }
}

fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0
}

/// The proof: whatever the figures are, of all orders that could have been drawn no more than the stated share claims.
#[test]
fn no_figures_make_more_false_claims_than_stated() {
    let mut random = Random::new(2);
    for disturbance in DISTURBANCES {
        let figures = disturbance.pairs(10, &mut random);
        let orders = (0u32..1 << 10).filter(|order| order.count_ones() == 5);
        let p_of = |order: u32| {
            let placed = figures.iter().enumerate().map(|(at, (first, second))| {
                let b = order >> at & 1 == 1;
                (if b { first - second } else { second - first }, b)
            });
            signed_rank(&placed.collect::<Vec<_>>())
        };
        let all: Vec<f64> = orders.map(p_of).collect();
        assert_eq!(all.len(), 252);
        for alpha in [0.01, 0.05, 0.1, 0.5] {
            let claims = all.iter().filter(|p| **p <= alpha).count();
            assert!(claims as f64 <= alpha * 252.0, "{claims} of 252 at {alpha}");
        }
    }
}

#[test]
fn equal_arms_are_called_different_as_seldom_as_stated_under_any_noise() {
    const TIMES: usize = 1500;
    let mut random = Random::new(4);
    for (count, found_in) in [(8, None), (10, None), (40, Some(0.95))] {
        for disturbance in DISTURBANCES {
            let mut share = |ratio: f64, times: usize| {
                let claims =
                    (0..times).filter(|_| disturbance.p(count, ratio, &mut random) <= 0.05);
                claims.count() as f64 / times as f64
            };
            let times = if count > 20 { TIMES / 5 } else { TIMES };
            // Three standard errors above.
            let most = 0.05 + 3.0 * (0.05 * 0.95 / times as f64).sqrt();
            let claimed = share(1.0, times);
            assert!(claimed <= most, "{claimed} of {count} pairs");
            if let Some(found_in) = found_in {
                let found = share(1.1, times / 3);
                assert!(found >= found_in, "a planted tenth was found in {found}");
            }
        }
    }
}

#[test]
fn holm_raises_and_keeps_the_order() {
    assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
    assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    assert!(holm(&[]).is_empty());
}

/// Noise as measured on a shared machine: each run is off by about 6 %.
fn noisy_pairs(random: &mut Random, count: usize, ratio: f64) -> Vec<Pair> {
    let pair = |is_b_first: bool| {
        let mut noise = || (0.06 * normal(random)).exp();
        Pair { a: 100.0 * noise(), b: 100.0 * ratio * noise(), is_b_first }
    };
    balanced_order(count, &mut Random::new(count as u64)).into_iter().map(pair).collect()
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
    let mut random = Random::new(5);
    for (count, times) in [(8, 150), (20, 60)] {
        let covered = (0..times)
            .filter(|seed| {
                let effect = paired_effect(&noisy_pairs(&mut random, count, 1.1), *seed).unwrap();
                (effect.ratio.low..=effect.ratio.high).contains(&1.1)
            })
            .count();
        let share = covered as f64 / times as f64;
        assert!((0.92..=0.99).contains(&share), "{share} with {count} pairs");
    }
}

#[test]
fn twenty_pairs_find_a_tenth_and_five_cannot_tell_three_percent() {
    let mut random = Random::new(11);
    let mut verdicts = |ratio: f64, count: usize, wanted: Verdict| {
        let effects =
            (0..50).map(|seed| paired_effect(&noisy_pairs(&mut random, count, ratio), seed));
        effects.flatten().filter(|effect| effect.verdict(0.02, 0.05) == wanted).count()
    };
    let found = verdicts(1.1, 20, Verdict::Higher);
    assert!(found >= 47, "{found} of 50");
    let inconclusive = verdicts(1.03, 5, Verdict::Inconclusive);
    assert!(inconclusive >= 45, "{inconclusive} of 50");
}

#[test]
fn sameness_needs_a_narrow_interval() {
    let interval =
        |low, high| Effect { ratio: Interval { estimate: 1.0, low, high }, p: 0.5, pairs: 20 };
    assert_eq!(interval(0.99, 1.01).verdict(0.02, 0.05), Verdict::Same);
    assert_eq!(interval(0.9, 1.1).verdict(0.02, 0.05), Verdict::Inconclusive);
    let pair = |a, b| Pair { a, b, is_b_first: true };
    assert_eq!(paired_effect(&[pair(1.0, 1.0), pair(2.0, 2.0), pair(0.0, 1.0)], 1), None);
}
