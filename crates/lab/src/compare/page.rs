//! A comparison as a page and in words.

use super::{Comparison, Conclusion, Experiment, MetricEffect, Wire, dots};
use crate::link::Circumstances;
use crate::link::page::{add_energy, add_wire};
use crate::load::Outcome;
use crate::load::export::percentile_curve;
use crate::report::{Axis, Bars, Curves, Page, Scale, Table};
use crate::stats::Verdict;

impl Comparison {
    /// The conclusion in a sentence.
    pub fn sentence(&self, experiment: &Experiment) -> String {
        let Some(primary) = self.effects.first() else {
            return "Nothing could be compared: the metric was not measured".to_owned();
        };
        let (a, b, metric) = (&experiment.a.name, &experiment.b.name, primary.metric.words().0);
        let effect = change(primary);
        let matters = experiment.matters * 100.0;
        match primary.verdict {
            Verdict::Higher | Verdict::Lower => format!("{metric} of {b} against {a}: {effect}"),
            Verdict::Same => format!(
                "{b} and {a} do not differ in {metric} by {matters:.0} % or more ({effect})"
            ),
            Verdict::Inconclusive => format!(
                "Inconclusive: {metric} of {b} against {a} is {effect}, which {} pairs cannot tell from none",
                primary.effect.pairs
            ),
        }
    }

    /// The comparison as a page.
    pub fn to_page(&self, experiment: &Experiment, command: &str) -> Page {
        let conclusion = match self.conclusion {
            Conclusion::Supported => "The hypothesis holds",
            Conclusion::Refuted => "The hypothesis does not hold",
            Conclusion::Inconclusive => "The hypothesis is undecided",
        };
        let title = if experiment.title.is_empty() { "Comparison" } else { &experiment.title };
        let mut page = Page::new(title, format!("{conclusion}. {}.", self.sentence(experiment)));
        page.heading("Effects");
        page.table(self.effect_table());
        page.text("Ratios B/A with 95 % intervals over pairs (Hodges–Lehmann, BCa bootstrap, widened for few pairs); p \
            of Wilcoxon's signed rank statistic among the orders that could have been drawn, Holm-corrected for all \
            but the hypothesis's metric.");
        page.heading("Cost per request, by who paid");
        page.bars("CPU time for each answer.", &self.cost_bars(experiment));
        page.heading("Latency");
        let (a, b) = &self.merged;
        page.curves(
            "From the intended start, all runs of each arm merged.",
            &Curves {
                x: Axis::new("share of requests", Scale::Nines),
                y: Axis::new("milliseconds", Scale::Log),
                series: vec![
                    percentile_curve(&experiment.a.name, &a.latency),
                    percentile_curve(&experiment.b.name, &b.latency),
                ],
                marks: Vec::new(),
            },
        );
        if let Some((a, b)) = &self.wires {
            add_network(&mut page, a, b, experiment);
        }
        page.heading("Noise");
        let [steal, pressure, load] = a.noise.words();
        match &self.noise {
            Some(noise) => page.text(format!(
                "A against itself: ratio {:.3} ({:.3} to {:.3}) over {} pairs. A difference smaller than this band \
                 cannot be seen here. Steal {}, CPU \
                 pressure {}, load {}.",
                noise.ratio.estimate,
                noise.ratio.low,
                noise.ratio.high,
                noise.pairs,
                steal,
                pressure,
                load
            )),
            None => page.text("A was not run against itself often enough to show the noise."),
        }
        page.curves("Each run in the order made.", &self.run_chart(experiment));
        page.heading("Runs");
        page.table(self.run_table());
        page.heading("Conditions");
        page.text(format!(
            "{} arrivals, {} connections. A: {}. B: {}. Seed {}.",
            a.arrivals,
            a.connections_wanted,
            experiment.a.chain.join(" → "),
            experiment.b.chain.join(" → "),
            experiment.seed
        ));
        page.text(crate::about::Machine::here().sentence());
        page.code(command);
        page
    }

    fn effect_table(&self) -> Table {
        let mut table = Table::new(&["metric", "B/A", "95 % interval", "p", "verdict"]);
        for it in &self.effects {
            let ratio = it.effect.ratio;
            let verdict = match it.verdict {
                Verdict::Lower => "lower",
                Verdict::Higher => "higher",
                Verdict::Same => "same",
                Verdict::Inconclusive => "inconclusive",
            };
            table.row([
                it.metric.words().0.to_owned(),
                format!("{:.3}", ratio.estimate),
                format!("{:.3} – {:.3}", ratio.low, ratio.high),
                format!("{:.4}", it.p_corrected),
                verdict.to_owned(),
            ]);
        }
        table
    }

    fn cost_bars(&self, experiment: &Experiment) -> Bars {
        let (a, b) = &self.merged;
        let mut parts: Vec<String> = vec!["client".to_owned()];
        let payers = || a.payers.iter().chain(&b.payers);
        let is_split = |role: &str| {
            payers().filter(|(name, _)| name == role).all(|(_, cost)| cost.split().is_some())
        };
        for (role, _) in payers() {
            let split = vec![format!("{role}, user"), format!("{role}, kernel")];
            for part in
                if is_split(role) { split } else { vec![format!("{role}, user and kernel")] }
            {
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
        let bar = |outcome: &Outcome| {
            let per_request = |ns: u64| ns as f64 / outcome.answered.max(1) as f64 / 1e3;
            let cost = |part: &String| {
                let (role, share) = part.split_once(", ").unwrap_or((part, ""));
                let cost = outcome
                    .payers
                    .iter()
                    .find(|(name, _)| name == role)
                    .map(|(_, cost)| *cost)
                    .unwrap_or_default();
                match share {
                    "user" => per_request(cost.user_ns),
                    "kernel" => per_request(cost.system_ns),
                    "user and kernel" => per_request(cost.cpu_ns),
                    _ => per_request(outcome.generator.cpu_ns),
                }
            };
            parts.iter().map(cost).collect::<Vec<f64>>()
        };
        let bars = vec![(experiment.a.name.clone(), bar(a)), (experiment.b.name.clone(), bar(b))];
        Bars { unit: "µs".to_owned(), parts, bars, ..Bars::default() }
    }

    fn run_chart(&self, experiment: &Experiment) -> Curves {
        let (metric, unit) = experiment.metric.words();
        let series = |name: &str, arms: &[&str]| {
            dots(name, arms, self.runs.iter().map(|run| (run.arm, run.value(experiment.metric))))
        };
        Curves {
            x: Axis::new("run", Scale::Linear),
            y: Axis::new(&format!("{metric}, {unit}"), Scale::Linear),
            series: vec![
                series(&experiment.a.name, &["a", "a'"]),
                series(&experiment.b.name, &["b"]),
            ],
            marks: Vec::new(),
        }
    }

    fn run_table(&self) -> Table {
        let mut header = vec!["pair", "arm"];
        let names: Vec<String> = super::Metric::ALL
            .map(|metric| format!("{} ({})", metric.words().0, metric.words().1))
            .into();
        header.extend(names.iter().map(String::as_str));
        header.push("errors");
        let mut table = Table::new(&header);
        for run in &self.runs {
            let values = run.values.iter().map(|(_, value)| {
                if value.is_finite() { format!("{value:.3}") } else { String::new() }
            });
            table.row(
                [(run.pair + 1).to_string(), run.arm.to_owned()]
                    .into_iter()
                    .chain(values)
                    .chain([run.errors.to_string()]),
            );
        }
        table
    }
}

/// The first pair's packets: when, how many lost, and what a radio would have spent.
fn add_network(page: &mut Page, a: &Wire, b: &Wire, experiment: &Experiment) {
    let circumstances = Circumstances {
        duration: a.duration.max(b.duration),
        spans: experiment.outages(),
        ..Circumstances::default()
    };
    let arms = [("A", a.packets.as_slice()), ("B", b.packets.as_slice())];
    page.heading("Wire, first pair");
    add_wire(page, &arms, &circumstances);
    page.heading("Radio energy, modelled, first pair");
    add_energy(page, &arms, circumstances.duration);
}

/// "+12.0 % (+10.1 to +13.2 %)"
fn change(it: &MetricEffect) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let ratio = it.effect.ratio;
    format!(
        "{:+.1} % ({:+.1} to {:+.1} %)",
        percent(ratio.estimate),
        percent(ratio.low),
        percent(ratio.high)
    )
}
