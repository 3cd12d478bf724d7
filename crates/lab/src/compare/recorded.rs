//! Results that were recorded earlier, by whatever tool: some of A, some of B.
//!
//! Nothing is known of the order in which they were made, so they are not paired: whether they differ is judged by how
//! often chance, dealing them out anew, makes two groups as different (a permutation test of the medians' ratio).

use serde::Serialize;
use serde_json::{Value, json};

use super::ALPHA;
use crate::random::Random;
use crate::results::{self, Figures};
use crate::stats::{Verdict, holm, median};

/// The figures of A and of B.
#[derive(Clone, Debug, Serialize)]
pub struct Recorded {
    /// One for each figure that all of them have.
    pub figures: Vec<Difference>,
    /// Reasons to doubt them.
    pub warnings: Vec<String>,
}

/// How much B's figure differs from A's.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// `rate`, `mean`, `p99`, …; latencies in milliseconds.
    pub figure: String,
    /// The median of A.
    pub a: f64,
    /// The median of B.
    pub b: f64,
    /// B/A.
    pub ratio: f64,
    /// How often chance makes as much, raised for the number of figures; `None` of fewer than four results each.
    pub p: Option<f64>,
    /// What it says.
    pub verdict: Verdict,
}

/// Compares recorded results.
pub fn compare(a: &[Figures], b: &[Figures], matters: f64, seed: u64) -> Recorded {
    let mut found: Vec<(String, Vec<f64>, Vec<f64>)> = Vec::new();
    for (name, read) in readers(a) {
        let of = |all: &[Figures]| all.iter().map(&read).collect::<Option<Vec<f64>>>();
        if let Some((a, b)) = of(a).zip(of(b)).filter(|(a, _)| median(a) > 0.0) {
            found.push((name, a, b));
        }
    }
    let is_enough = a.len() >= ENOUGH && b.len() >= ENOUGH;
    let ps: Vec<f64> = found
        .iter()
        .map(|(_, a, b)| if is_enough { permutation(a, b, seed) } else { 1.0 })
        .collect();
    let corrected = holm(&ps);
    let figures = found.into_iter().zip(corrected).map(|((figure, a, b), p)| {
        let (a, b) = (median(&a), median(&b));
        let ratio = b / a;
        let verdict = match ratio {
            _ if p >= ALPHA || (ratio - 1.0).abs() < matters => Verdict::Inconclusive,
            less if less < 1.0 => Verdict::Lower,
            _ => Verdict::Higher,
        };
        Difference { figure, a, b, ratio, p: is_enough.then_some(p), verdict }
    });
    let figures = figures.collect();
    let warnings = [("A", a), ("B", b)].into_iter().filter_map(|(arm, all)| doubt(arm, all));
    Recorded { figures, warnings: warnings.collect() }
}

/// What a tool guessed of the percentiles of an arm, by its first result that has such.
fn doubt(arm: &str, all: &[Figures]) -> Option<String> {
    let one = all.iter().find(|it| !it.guessed.is_empty())?;
    let guessed: Vec<String> = one.guessed.iter().map(|it| results::show_guessed(*it)).collect();
    let tool = one.tool.name();
    Some(format!(
        "{arm}: {tool} counted no finer than {}, and guessed within; a difference of these percentiles may be its own",
        guessed.join(", ")
    ))
}

impl Recorded {
    /// A line for each figure.
    pub fn to_text(&self) -> String {
        let line = |it: &Difference| {
            let verdict = match (it.p, it.verdict) {
                (None, _) => "too few results to tell".to_owned(),
                (Some(p), Verdict::Inconclusive | Verdict::Same) => {
                    format!("inconclusive (p {p:.3})")
                }
                (Some(p), Verdict::Lower) => format!("lower (p {p:.3})"),
                (Some(p), Verdict::Higher) => format!("higher (p {p:.3})"),
            };
            format!(
                "{:<6} A {:>12.3}  B {:>12.3}  {:+7.1} %  {verdict}\n",
                it.figure,
                it.a,
                it.b,
                (it.ratio - 1.0) * 100.0
            )
        };
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        self.figures.iter().map(line).chain(warnings).collect()
    }

    /// The figures as JSON.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

type Read = Box<dyn Fn(&Figures) -> Option<f64>>;

/// Every figure that the first result of A has.
fn readers(a: &[Figures]) -> Vec<(String, Read)> {
    let mut readers: Vec<(String, Read)> = vec![
        ("rate".to_owned(), Box::new(|it| it.rate)),
        ("mean".to_owned(), Box::new(|it| it.mean_s.map(|s| s * 1e3))),
    ];
    for (share, _) in a.first().map_or(&[][..], |first| &first.percentiles) {
        let share = *share;
        let name = if share == 100.0 { "max".to_owned() } else { format!("p{share}") };
        readers.push((name, Box::new(move |it| it.percentile(share).map(|s| s * 1e3))));
    }
    readers
}

/// The share of deals whose medians differ at least as much as the groups' do.
fn permutation(a: &[f64], b: &[f64], seed: u64) -> f64 {
    let distance = |a: &[f64], b: &[f64]| (median(b) / median(a)).ln().abs();
    let seen = distance(a, b);
    let mut all = [a, b].concat();
    let mut random = Random::new(seed);
    let mut as_much = 1;
    for _ in 0..DEALS {
        for at in (1..all.len()).rev() {
            all.swap(at, random.below(at + 1));
        }
        let (one, other) = all.split_at(a.len());
        as_much += usize::from(distance(one, other) >= seen - 1e-12);
    }
    as_much as f64 / (DEALS + 1) as f64
}

const DEALS: usize = 20_000;
/// Three each can be dealt out in twenty ways, of which two are the most extreme: never below 5 %.
const ENOUGH: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn vegeta(rate: f64, p99_ms: f64) -> Figures {
        let text = format!(
            "{{\"latencies\":{{\"mean\":1000000,\"50th\":900000,\"99th\":{}}},\
             \"requests\":1000,\"throughput\":{rate},\"success\":1}}",
            p99_ms * 1e6
        );
        results::read(&text).unwrap()
    }

    #[test]
    fn a_difference_that_chance_seldom_makes_is_one() {
        let a: Vec<Figures> =
            (0..6).map(|at| vegeta(500.0 + f64::from(at), 5.0 + f64::from(at % 3))).collect();
        let b: Vec<Figures> =
            (0..6).map(|at| vegeta(501.0 + f64::from(at), 9.0 + f64::from(at % 3))).collect();
        let recorded = compare(&a, &b, 0.05, 1);
        let of = |name: &str| recorded.figures.iter().find(|it| it.figure == name).unwrap();
        assert_eq!(
            (of("p99").verdict, of("rate").verdict),
            (Verdict::Higher, Verdict::Inconclusive)
        );
        assert!((of("p99").ratio - 10.0 / 6.0).abs() < 1e-9);
        assert!(recorded.to_text().contains("p99"));
    }

    #[test]
    fn what_a_tool_guessed_is_named() {
        let text = include_str!("../../tests/results/fortio.txt");
        let recorded = compare(&[vegeta(500.0, 5.0)], &[results::read(text).unwrap()], 0.05, 1);
        assert_eq!(recorded.warnings.len(), 1);
        let said = recorded.to_text();
        assert!(
            said.contains("warning: B: fortio counted no finer than p50 (0.027 to 1.000 ms)"),
            "{said}"
        );
        assert_eq!(recorded.to_json()["warnings"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn few_results_are_shown_and_not_judged() {
        let recorded = compare(&[vegeta(500.0, 5.0)], &[vegeta(100.0, 50.0)], 0.05, 1);
        assert!(
            recorded.figures.iter().all(|it| it.p.is_none() && it.verdict == Verdict::Inconclusive)
        );
        assert!(recorded.to_text().contains("too few results to tell"));
    }
}
