//! A against B, from a file: topology, network, load, hypothesis; a verdict that may be "inconclusive".
//!
//! Each pair runs both arms as fresh processes, B first in half of them, which the system's chance picks anew for
//! each experiment. Pairs of A with itself show how large a difference this machine makes out of nothing; a
//! hypothesis is judged by an interval over pairs and a test, and sameness has to be shown as much as a difference.

pub mod commands;
mod page;
mod plan;
pub mod recorded;
mod self_test;

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

pub use plan::{Arm, Expect, Experiment, ExperimentError, Metric};
pub use self_test::{Findings, SelfTest};

use crate::experiment::Running;
use crate::link::{Link, Record};
use crate::load::{self, Outcome};
use crate::random::Random;
use crate::stats::{Effect, Pair, Verdict, balanced_order, holm, paired_effect};

/// What an experiment showed.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Whether the hypothesis holds.
    pub conclusion: Conclusion,
    /// The effect on each metric, B against A; the hypothesis's metric first.
    pub effects: Vec<MetricEffect>,
    /// A against itself, on the hypothesis's metric: the noise floor.
    pub noise: Option<Effect>,
    /// The verdict on A against itself, which should not be a difference.
    pub noise_verdict: Option<Verdict>,
    /// Every run in the order made.
    pub runs: Vec<Run>,
    /// Histograms of both arms over all runs, and their costs.
    pub merged: (Outcome, Outcome),
    /// The packets of the first pair, when there was a link.
    pub wires: Option<(Wire, Wire)>,
}

/// What went over the link in one run.
#[derive(Clone, Debug)]
pub struct Wire {
    /// In the order sent.
    pub packets: Vec<Record>,
    /// How long the link was watched.
    pub duration: Duration,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Which pair.
    pub pair: usize,
    /// `a`, `b`, or `a'` for the second of two equal arms.
    pub arm: &'static str,
    /// Each metric's value.
    pub values: Vec<(Metric, f64)>,
    /// Failed requests.
    pub errors: u64,
    /// Reasons to doubt the run.
    pub warnings: Vec<String>,
}

/// The effect on one metric.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MetricEffect {
    /// Which.
    pub metric: Metric,
    /// How much.
    pub effect: Effect,
    /// The test's p, raised for the number of metrics asked about.
    pub p_corrected: f64,
    /// What it says.
    pub verdict: Verdict,
}

/// Whether a hypothesis holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Conclusion {
    /// It does.
    Supported,
    /// It does not.
    Refuted,
    /// These runs cannot tell.
    Inconclusive,
}

/// Carries an experiment out; `progress` is told what is being done.
pub fn run(experiment: &Experiment, progress: &mut dyn FnMut(&str)) -> io::Result<Comparison> {
    let link = experiment.open_link()?;
    // Never the seed's: an order that is the same each time makes the same mistake each time.
    let mut random = Random::fresh();
    let mut runs = Vec::new();
    let mut merged: [Option<Outcome>; 2] = [None, None];
    let mut wires: [Option<Wire>; 2] = [None, None];
    let order = plan_pairs(experiment.pairs, experiment.equal_pairs, &mut random);
    for (at, planned) in order.iter().enumerate() {
        for is_other in [planned.is_other_first, !planned.is_other_first] {
            let (arm, name) = match (is_other, planned.is_equal) {
                (false, _) => (&experiment.a, "a"),
                (true, true) => (&experiment.a, "a'"),
                (true, false) => (&experiment.b, "b"),
            };
            progress(&format!("pair {} of {}, {}", at + 1, order.len(), arm.name));
            let is_logged = !planned.is_equal && planned.number == 0;
            // The same seed for both: they meet the same arrivals and the same losses.
            let seed = experiment.seed + planned.number as u64;
            let (outcome, wire) = measure(experiment, arm, link.as_ref(), seed, is_logged)?;
            runs.push(Run::new(at, name, &outcome));
            if planned.is_equal {
                continue;
            }
            let is_b = is_other;
            if wire.is_some() {
                wires[usize::from(is_b)] = wire;
            }
            match &mut merged[usize::from(is_b)] {
                Some(all) => all.merge(&outcome),
                none => *none = Some(outcome),
            }
        }
    }
    let [Some(a), Some(b)] = merged else { return Err(io::Error::other("no pair was run")) };
    let effects = effects(experiment, &runs);
    let noise = paired_effect(&pairs_of(&runs, experiment.metric, "a'"), experiment.seed);
    let primary = effects.first().map(|it| it.verdict);
    Ok(Comparison {
        conclusion: experiment.expect.judge(primary.unwrap_or(Verdict::Inconclusive)),
        effects,
        noise,
        noise_verdict: noise.map(|effect| effect.verdict(experiment.matters, ALPHA)),
        runs,
        merged: (a, b),
        wires: {
            let [a, b] = wires;
            a.zip(b)
        },
    })
}

impl Run {
    fn new(pair: usize, arm: &'static str, outcome: &Outcome) -> Self {
        Self {
            pair,
            arm,
            values: Metric::ALL.map(|metric| (metric, metric.of(outcome))).into(),
            errors: outcome.errors.total(),
            warnings: outcome.warnings.clone(),
        }
    }

    fn value(&self, metric: Metric) -> f64 {
        self.values.iter().find(|(other, _)| *other == metric).map_or(f64::NAN, |(_, value)| *value)
    }
}

impl Expect {
    /// What a verdict means for the hypothesis.
    fn judge(self, verdict: Verdict) -> Conclusion {
        match (self, verdict) {
            (_, Verdict::Inconclusive) => Conclusion::Inconclusive,
            (Self::Lower, Verdict::Lower)
            | (Self::Higher, Verdict::Higher)
            | (Self::Same, Verdict::Same) => Conclusion::Supported,
            (Self::Lower, Verdict::Higher | Verdict::Same)
            | (Self::Higher, Verdict::Lower | Verdict::Same)
            | (Self::Same, Verdict::Lower | Verdict::Higher) => Conclusion::Refuted,
        }
    }
}

impl Comparison {
    /// The comparison with schema 1.
    pub fn to_json(&self) -> Value {
        json!({
            "schema": 1,
            "conclusion": self.conclusion,
            "effects": self.effects,
            "noise": self.noise,
            "noise_verdict": self.noise_verdict,
            "runs": self.runs,
            "a": self.merged.0.to_json(),
            "b": self.merged.1.to_json(),
        })
    }
}

/// A pair to be run.
struct Planned {
    /// A with itself, to show the noise, rather than with B.
    is_equal: bool,
    /// Which of its kind.
    number: usize,
    is_other_first: bool,
}

/// Pairs of A with itself lie among those with B, so that both meet the same hours of the machine.
fn plan_pairs(pairs: usize, equal_pairs: usize, random: &mut Random) -> Vec<Planned> {
    let mut all = Vec::new();
    for (is_equal, count) in [(true, equal_pairs), (false, pairs)] {
        let order = balanced_order(count, random).into_iter().enumerate();
        // Spread evenly over the whole, each somewhere in its own part of it.
        all.extend(order.map(|(number, is_other_first)| {
            let place = (number as f64 + random.uniform()) / count as f64;
            (place, Planned { is_equal, number, is_other_first })
        }));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, planned)| planned).collect()
}

fn measure(
    experiment: &Experiment,
    arm: &Arm,
    link: Option<&Link>,
    seed: u64,
    is_logged: bool,
) -> io::Result<(Outcome, Option<Wire>)> {
    let (programs, entry) = experiment.programs(arm)?;
    let running = Running::launch(&programs, link.map(Link::far))
        .map_err(|error| io::Error::other(format!("{}: {error}", arm.name)))?;
    let mut plan = experiment.plan(entry, seed);
    plan.payers = running.payers();
    plan.pids = plan.payers.iter().flat_map(|(_, pids)| pids.iter().copied()).collect();
    let Some(link) = link else {
        return load::run(&plan).map_err(io::Error::other).map(|outcome| (outcome, None));
    };
    let (down, up) = experiment.conditions();
    link.follow(&down, &up, &experiment.timeline(), seed, is_logged);
    let started = Instant::now();
    // What was in flight in the emulator is gone: let connections of the launch settle.
    std::thread::sleep(Duration::from_millis(20));
    let outcome = link.near().run(move || load::run(&plan)).map_err(io::Error::other)?;
    let duration = started.elapsed();
    let wire = is_logged.then(|| Wire { packets: link.report().packets(), duration });
    Ok((outcome, wire))
}

fn effects(experiment: &Experiment, runs: &[Run]) -> Vec<MetricEffect> {
    let metrics = std::iter::once(experiment.metric)
        .chain(Metric::ALL.into_iter().filter(|it| *it != experiment.metric));
    let found: Vec<(Metric, Effect)> = metrics
        .filter_map(|metric| {
            Some((metric, paired_effect(&pairs_of(runs, metric, "b"), experiment.seed)?))
        })
        .collect();
    // The hypothesis was named beforehand and is asked alone; the others are a search and pay for it.
    let others: Vec<f64> = found.iter().skip(1).map(|(_, effect)| effect.p).collect();
    let corrected = found.first().map(|(_, effect)| effect.p).into_iter().chain(holm(&others));
    found
        .iter()
        .zip(corrected)
        .map(|((metric, effect), p_corrected)| MetricEffect {
            metric: *metric,
            effect: *effect,
            p_corrected,
            verdict: Effect { p: p_corrected, ..*effect }.verdict(experiment.matters, ALPHA),
        })
        .collect()
}

/// The pairs of A with `other`.
fn pairs_of(runs: &[Run], metric: Metric, other: &str) -> Vec<Pair> {
    paired(runs.iter().map(|run| (run.pair, run.arm, run.value(metric))), other)
}

/// The pairs of A with `other` among figures in the order made: which pair, which arm, and the figure.
fn paired(runs: impl Iterator<Item = (usize, &'static str, f64)>, other: &str) -> Vec<Pair> {
    let runs: Vec<(usize, &str, f64)> = runs.collect();
    let pair = |both: &[(usize, &str, f64)]| {
        let [first, second] = both else { return None };
        let is_b_first = first.1 == other;
        let (a, b) = if is_b_first { (second, first) } else { (first, second) };
        (a.1 == "a" && b.1 == other).then_some(Pair { a: a.2, b: b.2, is_b_first })
    };
    runs.chunk_by(|one, next| one.0 == next.0).filter_map(pair).collect()
}

/// The figures of some arms by the number of their run, to be drawn.
fn dots(
    name: &str,
    arms: &[&str],
    runs: impl Iterator<Item = (&'static str, f64)>,
) -> crate::report::Series {
    let points = runs
        .enumerate()
        .filter(|(_, (arm, _))| arms.contains(arm))
        .map(|(at, (_, value))| (at as f64 + 1.0, value));
    crate::report::Series { name: name.to_owned(), points: points.collect(), is_dotted: true }
}

/// The rate of false claims that is accepted.
const ALPHA: f64 = 0.05;

#[cfg(test)]
mod tests;
