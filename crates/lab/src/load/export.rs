//! A run in other people's formats, and as a page.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use serde_json::{Value, json};

use super::{Outcome, Plan, Point, series};
use crate::about::{Machine, rfc3339};
use crate::cli::units::{show_bytes, show_count, show_ns, show_quantile};
use crate::histogram::Nanoseconds;
use crate::report::{Axis, Bars, Curves, Page, Scale, Series, Table};

impl Outcome {
    /// Fortio's result format, which its viewers read.
    pub fn to_fortio(&self, plan: &Plan) -> Value {
        let seconds = |ns: f64| ns / 1e9;
        let histogram = self.latency.as_histogram();
        let count = self.latency.count().max(1) as f64;
        let mut seen = 0;
        let mut data = Vec::new();
        let mut start =
            seconds(if self.latency.count() == 0 { 0.0 } else { histogram.min() as f64 });
        for step in histogram.iter_log(100_000, 1.3) {
            if step.count_since_last_iteration() == 0 {
                continue;
            }
            seen += step.count_since_last_iteration();
            let end = seconds(step.value_iterated_to().min(histogram.max()) as f64);
            let (percent, step) = (seen as f64 / count * 100.0, step.count_since_last_iteration());
            data.push(json!({"Start": start, "End": end, "Percent": percent, "Count": step}));
            start = end;
        }
        let percentiles: Vec<Value> = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9]
            .map(|share| json!({"Percentile": share, "Value": seconds(self.latency.quantile(share / 100.0) as f64)}))
            .into();
        json!({
            "RunType": "HTTP",
            "Labels": plan.target.to_string(),
            "StartTime": rfc3339(SystemTime::now()),
            "RequestedQPS": self.intended_rps.map_or_else(|| "max".to_owned(), |rate| rate.to_string()),
            "RequestedDuration": format!("{}s", self.duration.as_secs_f64()),
            // Fortio's count and rate are of the same calls, so answers to requests of the warm-up are in neither.
            "ActualQPS": (self.latency.count() + self.errors.total()) as f64 / self.duration.as_secs_f64(),
            "ActualDuration": self.duration.as_nanos() as u64,
            "NumThreads": self.connections,
            "DurationHistogram": {
                "Count": self.latency.count(),
                "Min": seconds(if self.latency.count() == 0 { 0.0 } else { histogram.min() as f64 }),
                "Max": seconds(histogram.max() as f64),
                "Sum": seconds(self.latency.mean()) * self.latency.count() as f64,
                "Avg": seconds(self.latency.mean()),
                "StdDev": seconds(histogram.stdev()),
                "Data": data,
                "Percentiles": percentiles,
            },
            "RetCodes": {"200": self.latency.count(), "-1": self.errors.total()},
            "URL": plan.target.to_string(),
        })
    }

    /// An HdrHistogram interval log with the latencies and the service times, in nanoseconds.
    pub fn to_histogram_log(&self) -> String {
        let mut bytes = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let now = SystemTime::now();
        let written = IntervalLogWriterBuilder::new()
            .add_comment("nanoseconds; 'latency' counts from the intended start, 'service' from the actual one")
            .with_start_time(now)
            .begin_log_with(&mut bytes, &mut serializer)
            .map(|mut log| {
                for (name, histogram) in [("latency", &self.latency), ("service", &self.service)] {
                    let tag = hdrhistogram::serialization::interval_log::Tag::new(name);
                    let _ = log.write_histogram(histogram.as_histogram(), Duration::ZERO, self.duration, tag);
                }
            });
        // Writing to memory does not fail.
        debug_assert!(written.is_ok());
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Rate, errors and latency of each second, as CSV.
    pub fn to_csv(&self) -> String {
        series::to_csv(&self.series.points(self.duration))
    }

    /// The run as a page.
    pub fn to_page(&self, plan: &Plan, command: &str) -> Page {
        let verdict = format!(
            "{} requests/s, {} of them in {} or less from their intended start, {} errors",
            show_count(self.achieved_rps() as u64),
            "99 %",
            show_quantile(&self.latency, 0.99),
            show_count(self.errors.total())
        );
        let mut page = Page::new(format!("Load on {}", plan.target), verdict);
        for warning in &self.warnings {
            page.text(format!("Warning: {warning}."));
        }
        page.heading("Latency");
        page.curves(
            "Latency counts from the intended start, service time from the actual one; every request is in it, up to \
             the slowest.",
            &Curves {
                x: Axis::new("share of requests", Scale::Nines),
                y: Axis::new("milliseconds", Scale::Log),
                series: vec![percentile_curve("latency", &self.latency), percentile_curve("service \
                    time", &self.service)],
                marks: Vec::new(),
            },
        );
        let mut table = Table::new(&["", "p50", "p90", "p95", "p99", "p99.9", "max"]);
        for (name, histogram) in [
            ("latency", &self.latency),
            ("service time", &self.service),
            ("sent late by", &self.generator.send_lateness),
        ] {
            let values = [0.5, 0.9, 0.95, 0.99, 0.999, 1.0].map(|it| show_quantile(histogram, it));
            table.row(std::iter::once(name.to_owned()).chain(values));
        }
        page.table(table);
        self.add_requests(&mut page);
        self.add_series(&mut page);
        page.heading("Cost per request");
        page.bars("CPU time for each answer, by who spent it.", &self.cost_bars());
        if let Some(target) = &self.target {
            page.text(format!(
                "Memory of the target: {} resident, {} proportional, {} at the peak. {:.2} context switches per \
                 request.",
                show_bytes(target.cost.rss_bytes),
                show_bytes(target.cost.pss_bytes),
                show_bytes(target.cost.peak_bytes),
                (target.cost.voluntary_switches + target.cost.involuntary_switches) as f64
                    / target.answered.max(1) as f64
            ));
        }
        self.add_agents(&mut page);
        page.heading("Conditions");
        let mut table = Table::new(&["what", "value"]);
        table.row(["arrivals", self.arrivals]);
        table.row([
            "intended rate",
            &self
                .intended_rps
                .map_or_else(|| "none, closed loop".to_owned(), |rate| format!("{rate:.1}/s")),
        ]);
        table.row(["sent", &show_count(self.sent)]);
        table.row(["connections", &format!("{} of {}", self.connections, self.connections_wanted)]);
        for (kind, count) in self.errors.iter() {
            table.row([format!("errors: {kind}"), show_count(count)]);
        }
        table.row(["generator", &format!("{:.0} % of a CPU", self.generator.cpu_fraction * 100.0)]);
        for (name, words) in
            ["steal", "CPU pressure", "load average"].into_iter().zip(self.noise.words())
        {
            table.row([name.to_owned(), words]);
        }
        page.table(table);
        page.text(Machine::here().sentence());
        page.heading("Again");
        page.code(command);
        page
    }

    /// Rate and latency over time; a run of one second has nothing to draw.
    fn add_series(&self, page: &mut Page) {
        let points = self.series.points(self.duration);
        if points.len() < 2 {
            return;
        }
        let middle = |it: &Point| it.from_s + it.length_s / 2.0;
        let curve = |name: &str, value: fn(&Point) -> f64| Series {
            name: name.to_owned(),
            points: points.iter().map(|it| (middle(it), value(it))).collect(),
            is_dotted: false,
        };
        let mut rates = vec![curve("successful answers", Point::rate)];
        if points.iter().any(|it| it.errors > 0) {
            rates.push(curve("errors", |it| it.errors as f64 / it.length_s.max(1e-9)));
        }
        page.heading("Over time");
        let x = || Axis::seconds(self.duration.as_secs_f64());
        page.curves(
            "What each second brought.",
            &Curves {
                x: x(),
                y: Axis::new("per second", Scale::Linear),
                series: rates,
                marks: Vec::new(),
            },
        );
        let latency = vec![
            curve("p50", |it| milliseconds(it.p50_ns)),
            curve("p99", |it| milliseconds(it.p99_ns)),
            curve("slowest", |it| milliseconds(it.max_ns)),
        ];
        page.curves(
            "Latency of each second's answers, from their intended starts.",
            &Curves {
                x: x(),
                y: Axis::new("milliseconds", Scale::Log),
                series: latency,
                marks: Vec::new(),
            },
        );
    }

    /// Of several requests, what each got.
    fn add_requests(&self, page: &mut Page) {
        if self.entries.is_empty() {
            return;
        }
        let mut table = Table::new(&["request", "answered", "wrong", "p50", "p99", "max"]);
        for it in &self.entries {
            let latency = [0.5, 0.99, 1.0].map(|share| show_quantile(&it.latency, share));
            let counts = [show_count(it.latency.count()), show_count(it.errors)];
            table.row([it.name.clone()].into_iter().chain(counts).chain(latency));
        }
        page.heading("Requests");
        page.table(table);
    }

    fn add_agents(&self, page: &mut Page) {
        if self.agents.is_empty() {
            return;
        }
        page.heading("Agents");
        let columns = [
            "agent",
            "answered",
            "errors",
            "CPU",
            "late (p99.9)",
            "clock known to",
            "drift",
            "machine",
        ];
        let mut table = Table::new(&columns);
        for it in &self.agents {
            table.row([
                it.address.clone(),
                show_count(it.answered),
                show_count(it.errors),
                format!("{:.0} %", it.cpu_fraction * 100.0),
                show_ns(it.late_p999_ns as f64),
                show_ns(it.clock_error_ns as f64),
                format!("{:.1} µs", it.clock_drift_ns as f64 / 1e3),
                it.machine.clone(),
            ]);
        }
        page.table(table);
    }

    fn cost_bars(&self) -> Bars {
        let answered = self.answered.max(1) as f64;
        let per_request = |ns: u64| ns as f64 / answered / 1e3;
        let own = &self.generator;
        let parts = |cpu_ns, split: Option<(u64, u64)>| match split {
            Some((user_ns, system_ns)) => vec![per_request(user_ns), per_request(system_ns), 0.0],
            None => vec![0.0, 0.0, per_request(cpu_ns)],
        };
        let mut bars = vec![("load generator".to_owned(), parts(own.cpu_ns, own.split()))];
        let payers = self.payers.iter().map(|(name, cost)| (name.clone(), *cost));
        let target = self.target.map(|target| ("target".to_owned(), target.cost));
        for (name, cost) in target.into_iter().chain(payers) {
            bars.push((name, parts(cost.cpu_ns, cost.split())));
        }
        let names = ["user", "kernel", "user and kernel"];
        let used: Vec<usize> =
            (0..names.len()).filter(|&at| bars.iter().any(|(_, parts)| parts[at] > 0.0)).collect();
        for (_, parts) in &mut bars {
            *parts = used.iter().map(|&at| parts[at]).collect();
        }
        let parts = used.iter().map(|&at| names[at].to_owned()).collect();
        Bars { unit: "µs".to_owned(), parts, bars, ..Bars::default() }
    }
}

/// A curve from the median to the slowest request, in milliseconds.
pub(crate) fn percentile_curve(name: &str, histogram: &Nanoseconds) -> Series {
    let shares = (0..=60).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 10.0));
    let enough = |share: &f64| (1.0 - share) * histogram.count() as f64 >= 0.5;
    let points = shares
        .filter(enough)
        .map(|share| (share, histogram.quantile(share) as f64 / 1e6))
        .collect();
    Series { name: name.to_owned(), points, is_dotted: false }
}

/// Not a number where there is none: a curve has no point there.
fn milliseconds(ns: Option<u64>) -> f64 {
    ns.map_or(f64::NAN, |ns| ns as f64 / 1e6)
}
