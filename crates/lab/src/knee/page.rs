//! A search as a page.

use super::{Knee, Search};
use crate::report::{Axis, Curves, Page, Scale, Series, Table};
use crate::stats::{Decision, sequential};

impl Knee {
    /// The finding as a page.
    pub fn to_page(&self, search: &Search, command: &str) -> Page {
        let mut page = Page::new(
            format!("Knee of {}", search.plan.target),
            format!("{}.", self.sentence(search)),
        );
        for warning in &self.warnings {
            page.text(format!("Warning: {warning}."));
        }
        page.heading("Rate and latency");
        let mut points: Vec<(f64, f64)> =
            self.steps.iter().map(|step| (step.rate, step.latency_ns as f64 / 1e6)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line = objective(search, points.last().map_or(search.to, |&(rate, _)| rate));
        page.curves(
            "The percentile at each rate tried, from the intended start, and the objective.",
            &Curves {
                x: Axis::new("requests per second intended", Scale::Log),
                y: Axis::new("milliseconds", Scale::Log),
                series: vec![
                    Series {
                        name: format!("p{}", search.percentile * 100.0),
                        points,
                        // A rate may have been tried twice.
                        is_dotted: true,
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
            "windows that met it",
            "share, 95 %",
            "so it",
        ]);
        for step in &self.steps {
            table.row([
                format!("{:.0}", step.rate),
                format!("{:.0}", step.achieved),
                format!("{:.3}", step.latency_ns as f64 / 1e6),
                format!("{} of {}", step.met, step.met + step.missed),
                format!("{:.2} – {:.2}", step.share.low, step.share.high),
                match step.decision {
                    Decision::Holds => "holds",
                    Decision::Breaks => "breaks",
                    Decision::Undecided => "is undecided",
                }
                .to_owned(),
            ]);
        }
        page.table(table);
        page.text(format!(
            "A rate is tried in windows until a sequential probability ratio test has seen enough: it holds when {:.0} \
             % of windows or more meet the \
             objective, it breaks when {:.0} % or fewer do, and each is taken for the other in at most {:.0} % of \
             cases. What is undecided after {} windows \
             counts as not shown to hold. The answer was tried a second time.",
            sequential::HOLDS * 100.0,
            sequential::BREAKS * 100.0,
            sequential::ERROR * 100.0,
            sequential::WINDOWS
        ));
        page.heading("Scalability");
        if let Some(law) = self.law {
            let last = self.sweep.iter().fold(1.0_f64, |last, (n, _)| last.max(*n));
            let at = |step: i32| 1.0 + (last - 1.0) * f64::from(step) / 60.0;
            let fitted = (0..=60).map(|step| (at(step), law.throughput(at(step)))).collect();
            page.curves(
                format!(
                    "Closed-loop throughput by concurrency, and the Universal Scalability Law: λ = {:.0}/s, σ = {:.4}, \
                     κ = {:.6}.",
                    law.lambda, law.sigma, law.kappa
                ),
                &Curves {
                    x: Axis::new("requests in flight", Scale::Linear),
                    y: Axis::new("requests per second", Scale::Linear),
                    series: vec![
                        Series { name: "measured".to_owned(), points: self.sweep.clone(), is_dotted: true },
                        Series { name: "law".to_owned(), points: fitted, is_dotted: false },
                    ],
                    marks: Vec::new(),
                },
            );
        }
        page.text(crate::about::Machine::here().sentence());
        page.code(command);
        page
    }
}

/// The objective across the rates tried; where one alone was tried, up to twice that, for a point is no line.
pub(super) fn objective(search: &Search, reached: f64) -> Vec<(f64, f64)> {
    let limit = search.objective.as_secs_f64() * 1e3;
    let until = if reached > search.from { reached } else { search.from * 2.0 };
    vec![(search.from, limit), (until, limit)]
}
