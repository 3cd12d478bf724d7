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
fn wilcoxon_agrees_with_published_values() {
    // R: wilcox.test(c(1,2,3,4,5), exact=TRUE)$p.value = 0.0625
    assert!((wilcoxon_signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]) - 0.0625).abs() < 1e-12);
    // Smallest sum 3 of 8: P = 2·5/256
    assert!(
        (wilcoxon_signed_rank(&[-3.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0]) - 0.039_062_5).abs()
            < 1e-12
    );
    assert_eq!(wilcoxon_signed_rank(&[0.0, 0.0]), 1.0);
    let tied = [1.0; 40];
    assert!(wilcoxon_signed_rank(&tied) < 1e-6);
}

#[test]
fn holm_raises_and_keeps_the_order() {
    assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
    assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    assert!(holm(&[]).is_empty());
}

/// Noise as measured on a shared machine: each run is off by about 6 %.
fn noisy_pairs(random: &mut Random, count: usize, ratio: f64) -> Vec<(f64, f64)> {
    let mut noise = || {
        let normal = (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
        (0.06 * normal).exp()
    };
    (0..count).map(|_| (100.0 * noise(), 100.0 * ratio * noise())).collect()
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
    let mut random = Random::new(5);
    let covered = (0..300)
        .filter(|seed| {
            let effect = paired_effect(&noisy_pairs(&mut random, 20, 1.1), *seed).unwrap();
            (effect.ratio.low..=effect.ratio.high).contains(&1.1)
        })
        .count();
    assert!((275..=295).contains(&covered), "{covered} of 300");
}

#[test]
fn equal_arms_are_seldom_called_different_and_a_tenth_is_found() {
    let mut random = Random::new(11);
    let mut verdicts = |ratio: f64, count: usize| -> Vec<Verdict> {
        (0..200)
            .map(|seed| {
                paired_effect(&noisy_pairs(&mut random, count, ratio), seed)
                    .unwrap()
                    .verdict(0.02, 0.05)
            })
            .collect()
    };
    let false_claims = verdicts(1.0, 20)
        .iter()
        .filter(|it| matches!(it, Verdict::Higher | Verdict::Lower))
        .count();
    assert!(false_claims <= 16, "{false_claims} of 200, at 5 %");
    let found = verdicts(1.1, 20).iter().filter(|it| **it == Verdict::Higher).count();
    assert!(found >= 190, "{found} of 200");
    let inconclusive = verdicts(1.03, 5).iter().filter(|it| **it == Verdict::Inconclusive).count();
    assert!(inconclusive >= 180, "five noisy pairs cannot tell 3 %: {inconclusive} of 200");
}

#[test]
fn sameness_needs_a_narrow_interval() {
    let interval =
        |low, high| Effect { ratio: Interval { estimate: 1.0, low, high }, p: 0.5, pairs: 20 };
    assert_eq!(interval(0.99, 1.01).verdict(0.02, 0.05), Verdict::Same);
    assert_eq!(interval(0.9, 1.1).verdict(0.02, 0.05), Verdict::Inconclusive);
    assert_eq!(paired_effect(&[(1.0, 1.0), (2.0, 2.0), (0.0, 1.0)], 1), None);
}
