//! The highest rate that still meets a latency objective.
//!
//! One run at one rate is a coin with noise on it. Each rate is tried in short runs until enough of them
//! agree; the search first doubles, then bisects. Separate closed-loop runs with growing concurrency feed
//! the Universal Scalability Law, which says where more concurrency stops helping, and what was scarce at
//! the knee is named.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::load::{Arrivals, LoadError, Outcome, Plan, run};
use crate::report::{Axis, Curves, Page, Scale, Series, Table};
use crate::stats::Scalability;

/// What to look for.
#[derive(Clone, Debug)]
pub struct Search {
    /// The load, whose rate is replaced.
    pub plan: Plan,
    /// The percentile that must hold, as a share: 0.99.
    pub percentile: f64,
    /// What it must stay below.
    pub objective: Duration,
    /// Where to begin.
    pub from: f64,
    /// Where to stop.
    pub to: f64,
    /// How close the answer must be, as a share.
    pub precision: f64,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Knee {
    /// The highest rate that met the objective; `None` when the lowest already did not.
    pub rate: Option<f64>,
    /// The lowest rate above it that did not; `None` when the highest still did.
    pub broken: Option<f64>,
    /// Every rate tried, in order.
    pub steps: Vec<Step>,
    /// The fitted law, when concurrency was swept.
    pub law: Option<Scalability>,
    /// Concurrency and throughput of each closed-loop run.
    pub sweep: Vec<(f64, f64)>,
    /// What was scarce at the first rate that failed.
    pub limiter: String,
}

/// One rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Requests per second intended.
    pub rate: f64,
    /// Requests per second achieved, over all runs.
    pub achieved: f64,
    /// The percentile in nanoseconds, over all runs.
    pub latency_ns: u64,
    /// Runs that met the objective.
    pub passed: u32,
    /// Runs that did not.
    pub failed: u32,
}

/// Searches; `progress` is told what is being done.
pub fn search(search: &Search, progress: &mut dyn FnMut(&str)) -> Result<Knee, LoadError> {
    let mut steps = Vec::new();
    let mut worst = None;
    let mut good = None;
    let mut bad = None;
    let mut rate = search.from;
    while rate <= search.to * 1.000_001 {
        if try_rate(search, rate, &mut steps, &mut worst, progress)? {
            good = Some(rate);
        } else {
            bad = Some(rate);
            break;
        }
        rate *= 2.0;
    }
    while let (Some(low), Some(high)) = (good, bad) {
        if high / low <= 1.0 + search.precision {
            break;
        }
        let middle = (low * high).sqrt();
        if try_rate(search, middle, &mut steps, &mut worst, progress)? {
            good = Some(middle)
        } else {
            bad = Some(middle)
        }
    }
    let sweep = sweep(search, progress)?;
    let limiter = worst
        .as_ref()
        .map_or_else(|| "nothing: the highest rate tried met the objective".to_owned(), limiter);
    Ok(Knee { rate: good, broken: bad, steps, law: Scalability::fit(&sweep), sweep, limiter })
}

/// Runs one rate until it has passed or failed two times more than the other, at most five times.
fn try_rate(
    search: &Search,
    rate: f64,
    steps: &mut Vec<Step>,
    worst: &mut Option<Outcome>,
    progress: &mut dyn FnMut(&str),
) -> Result<bool, LoadError> {
    let (mut passed, mut failed) = (0u32, 0u32);
    let mut all: Option<Outcome> = None;
    while passed + failed < 5 && passed.abs_diff(failed) < 2 {
        progress(&format!("{rate:.0} requests/s, run {}", passed + failed + 1));
        let mut plan = search.plan.clone();
        plan.arrivals = match plan.arrivals {
            Arrivals::Poisson { .. } => Arrivals::Poisson { rate },
            Arrivals::Closed
            | Arrivals::ClosedCapped { .. }
            | Arrivals::PerConnection { .. }
            | Arrivals::Paced { .. }
            | Arrivals::Recorded { .. } => Arrivals::Paced { rate },
        };
        plan.seed += u64::from(passed + failed);
        let outcome = run(&plan)?;
        if meets(search, &outcome) {
            passed += 1
        } else {
            failed += 1
        }
        match &mut all {
            Some(all) => all.merge(&outcome),
            None => all = Some(outcome),
        }
    }
    let is_good = passed > failed;
    if let Some(all) = all {
        steps.push(Step {
            rate,
            achieved: all.achieved_rps(),
            latency_ns: all.latency.quantile(search.percentile),
            passed,
            failed,
        });
        if !is_good {
            *worst = Some(all);
        }
    }
    Ok(is_good)
}

/// Unsent and failed requests break the objective as slow ones do.
fn meets(search: &Search, outcome: &Outcome) -> bool {
    let tolerated = (1.0 - search.percentile) * outcome.sent.max(1) as f64;
    let slowest_allowed = search.objective.as_nanos() as u64;
    outcome.latency.count() > 0
        && (outcome.errors.total() as f64) <= tolerated
        && outcome.latency.quantile(search.percentile) <= slowest_allowed
}

fn sweep(search: &Search, progress: &mut dyn FnMut(&str)) -> Result<Vec<(f64, f64)>, LoadError> {
    let mut points = Vec::new();
    for connections in [1, 2, 4, 8, 16, 32, 64, 128]
        .into_iter()
        .filter(|count| *count <= search.plan.connections.max(8))
    {
        progress(&format!("closed loop, {connections} connections"));
        let plan = Plan { arrivals: Arrivals::Closed, connections, ..search.plan.clone() };
        points.push((connections as f64, run(&plan)?.achieved_rps()));
    }
    Ok(points)
}

/// Names what was scarce, from what was spent.
fn limiter(outcome: &Outcome) -> String {
    let seconds = outcome.duration.as_nanos() as f64;
    let of_cpu = |ns: u64| ns as f64 / seconds;
    let wait = of_cpu(outcome.generator.run_queue_wait_ns);
    if outcome.generator.cpu_fraction > 0.85 {
        return format!(
            "the load generator, which used {:.0} % of a CPU",
            outcome.generator.cpu_fraction * 100.0
        );
    }
    if let Some(target) = outcome.target {
        let (busy, starved) = (of_cpu(target.cost.cpu_ns), of_cpu(target.cost.run_queue_wait_ns));
        if starved > 0.3 {
            return format!(
                "the machine: the target was ready to run but had no CPU {:.0} % of the time",
                starved * 100.0
            );
        }
        if busy > 0.85 {
            return format!("the target's CPU: it used {busy:.2} CPUs");
        }
    }
    if wait > 0.2 {
        return format!(
            "the machine: the load generator waited for a CPU {:.0} % of the time",
            wait * 100.0
        );
    }
    if outcome.waited_for_connection * 10 > outcome.sent {
        let share = outcome.waited_for_connection as f64 / outcome.sent.max(1) as f64 * 100.0;
        return format!("connections: {share:.0} % of arrivals found none free");
    }
    "not the CPU of what was watched: look at what the target waits for".to_owned()
}

impl Knee {
    /// The finding in a sentence.
    pub fn sentence(&self, search: &Search) -> String {
        let objective = format!("p{} ≤ {:?}", search.percentile * 100.0, search.objective);
        match (self.rate, self.broken) {
            (Some(rate), Some(broken)) => {
                format!(
                    "{objective} holds up to {rate:.0} requests/s and breaks at {broken:.0}; the limit was {}",
                    self.limiter
                )
            }
            (Some(rate), None) => {
                format!("{objective} still held at {rate:.0} requests/s, the highest rate tried")
            }
            (None, Some(broken)) => format!(
                "{objective} did not hold at {broken:.0} requests/s, the lowest rate tried; the limit was {}",
                self.limiter
            ),
            (None, None) => "no rate was tried".to_owned(),
        }
    }

    /// The finding with schema 1.
    pub fn to_json(&self) -> Value {
        json!({
            "schema": 1,
            "rate": self.rate,
            "broken": self.broken,
            "steps": self.steps,
            "sweep": self.sweep,
            "law": self.law,
            "peak_concurrency": self.law.map(|law| law.peak()).filter(|peak| peak.is_finite()),
            "limiter": self.limiter,
        })
    }

    /// The finding as a page.
    pub fn to_page(&self, search: &Search, command: &str) -> Page {
        let mut page = Page::new(
            format!("Knee of {}", search.plan.target),
            format!("{}.", self.sentence(search)),
        );
        page.heading("Rate and latency");
        let mut points: Vec<(f64, f64)> =
            self.steps.iter().map(|step| (step.rate, step.latency_ns as f64 / 1e6)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line = vec![
            (search.from, search.objective.as_secs_f64() * 1e3),
            (self.broken.or(self.rate).unwrap_or(search.to), search.objective.as_secs_f64() * 1e3),
        ];
        page.curves(
            "The percentile at each rate tried, from the intended start, and the objective.",
            &Curves {
                x: Axis::new("requests per second intended", Scale::Log),
                y: Axis::new("milliseconds", Scale::Log),
                series: vec![
                    Series {
                        name: format!("p{}", search.percentile * 100.0),
                        points,
                        is_dotted: false,
                    },
                    Series { name: "objective".to_owned(), points: line, is_dotted: false },
                ],
                marks: self.rate.map(|rate| (rate, "knee".to_owned())).into_iter().collect(),
            },
        );
        let mut table = Table::new(&[
            "rate",
            "achieved",
            "latency (ms)",
            "runs that met it",
            "runs that did not",
        ]);
        for step in &self.steps {
            table.row([
                format!("{:.0}", step.rate),
                format!("{:.0}", step.achieved),
                format!("{:.3}", step.latency_ns as f64 / 1e6),
                step.passed.to_string(),
                step.failed.to_string(),
            ]);
        }
        page.table(table);
        page.heading("Scalability");
        if let Some(law) = self.law {
            let fitted = self.sweep.iter().map(|(n, _)| (*n, law.throughput(*n))).collect();
            page.curves(
                format!(
                    "Closed-loop throughput by concurrency, and the Universal Scalability Law: λ = {:.0}/s, σ = {:.4}, κ = {:.6}.",
                    law.lambda, law.sigma, law.kappa
                ),
                &Curves {
                    x: Axis::new("connections", Scale::Linear),
                    y: Axis::new("requests per second", Scale::Linear),
                    series: vec![
                        Series { name: "measured".to_owned(), points: self.sweep.clone(), is_dotted: true },
                        Series { name: "law".to_owned(), points: fitted, is_dotted: false },
                    ],
                    marks: Vec::new(),
                },
            );
        }
        page.text(crate::load::export::machine());
        page.code(command);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::{Origin, spawn};

    #[test]
    fn a_server_that_holds_answers_back_is_limited_by_its_connections() {
        // Ten connections and 20 ms each: 500 requests per second and no more.
        let server = spawn(&Origin {
            delay: Duration::from_millis(20),
            ..Origin::http("127.0.0.1:0".parse().unwrap(), 10)
        })
        .unwrap();
        let mut plan = Plan::new(server.address().clone().into());
        plan.duration = Duration::from_millis(400);
        let it = Search {
            plan,
            percentile: 0.9,
            objective: Duration::from_millis(30),
            from: 100.0,
            to: 3200.0,
            precision: 0.1,
        };
        let knee = search(&it, &mut |_| ()).unwrap();
        let (rate, broken) = (knee.rate.unwrap(), knee.broken.unwrap());
        assert!(
            (350.0..=520.0).contains(&rate) && broken > rate,
            "{rate} {broken}: {:?}",
            knee.steps
        );
        assert!(knee.limiter.starts_with("connections"), "{}", knee.limiter);
        let law = knee.law.unwrap();
        assert!((40.0..=52.0).contains(&law.lambda), "{law:?}");
        assert!(knee.to_page(&it, "again").to_html().contains("knee"));
    }
}
