//! A run in other people's formats, and as a page.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use serde_json::{Value, json};

use super::{Outcome, Plan};
use crate::cli::units::{show_bytes, show_count, show_ns};
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
            data.push(json!({"Start": start, "End": end, "Percent": seen as f64 / count * 100.0, "Count": step.count_since_last_iteration()}));
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
            "ActualQPS": self.achieved_rps(),
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

    /// The run as a page.
    pub fn to_page(&self, plan: &Plan, command: &str) -> Page {
        let percentiles = self.latency.percentiles();
        let verdict = format!(
            "{} requests/s, {} of them in {} or less from their intended start, {} errors",
            show_count(self.achieved_rps() as u64),
            "99 %",
            show_ns(percentiles.p99 as f64),
            show_count(self.errors.total())
        );
        let mut page = Page::new(format!("Load on {}", plan.target), verdict);
        for warning in &self.warnings {
            page.text(format!("Warning: {warning}."));
        }
        page.heading("Latency");
        page.curves(
            "Latency counts from the intended start, service time from the actual one; every request is in it, up to the slowest.",
            &Curves {
                x: Axis::new("share of requests", Scale::Nines),
                y: Axis::new("milliseconds", Scale::Log),
                series: vec![percentile_curve("latency", &self.latency), percentile_curve("service time", &self.service)],
                marks: Vec::new(),
            },
        );
        let mut table = Table::new(&["", "p50", "p90", "p95", "p99", "p99.9", "max"]);
        for (name, histogram) in [
            ("latency", &self.latency),
            ("service time", &self.service),
            ("sent late by", &self.generator.send_lateness),
        ] {
            let it = histogram.percentiles();
            let values = [it.p50, it.p90, it.p95, it.p99, it.p999, it.max]
                .map(|value| show_ns(value as f64));
            table.row(std::iter::once(name.to_owned()).chain(values));
        }
        page.table(table);
        page.heading("Cost per request");
        page.bars("CPU time for each answer, by who spent it.", &self.cost_bars());
        if let Some(target) = &self.target {
            page.text(format!(
                "Memory of the target: {} resident, {} proportional, {} at the peak. {:.2} context switches per request.",
                show_bytes(target.cost.rss_bytes),
                show_bytes(target.cost.pss_bytes),
                show_bytes(target.cost.peak_bytes),
                (target.cost.voluntary_switches + target.cost.involuntary_switches) as f64 / target.answered.max(1) as f64
            ));
        }
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
        table.row(["steal", &format!("{:.1} %", self.noise.steal * 100.0)]);
        table.row(["CPU pressure", &format!("{:.0} %", self.noise.psi_cpu * 100.0)]);
        table.row(["load average", &format!("{:.2}", self.noise.load)]);
        page.table(table);
        page.text(machine());
        page.heading("Again");
        page.code(command);
        page
    }

    fn cost_bars(&self) -> Bars {
        let answered = self.answered.max(1) as f64;
        let per_request = |ns: u64| ns as f64 / answered / 1e3;
        let own = &self.generator;
        let mut bars = vec![(
            "load generator".to_owned(),
            vec![per_request(own.user_ns), per_request(own.system_ns)],
        )];
        let payers = self.payers.iter().map(|(name, cost)| (name.clone(), *cost));
        let target = self.target.map(|target| ("target".to_owned(), target.cost));
        for (name, cost) in target.into_iter().chain(payers) {
            bars.push((name, vec![per_request(cost.user_ns), per_request(cost.system_ns)]));
        }
        Bars {
            unit: "µs".to_owned(),
            parts: vec!["user".to_owned(), "kernel".to_owned()],
            bars,
            ..Bars::default()
        }
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

/// The machine, in a sentence.
pub(crate) fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown CPU", |rest| rest.trim_start_matches(['\t', ' ', ':']));
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let system = rustix::system::uname();
    let setting = |path: &str| {
        std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let governor = setting("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let mut text =
        format!("Machine: {count} × {model}, Linux {}", system.release().to_string_lossy());
    if !governor.is_empty() {
        let _ = write!(text, ", governor {governor}");
    }
    let _ = write!(
        text,
        ", congestion control {}.",
        setting("/proc/sys/net/ipv4/tcp_congestion_control")
    );
    text
}

/// Days since 1970 to a date, by the civil calendar.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_over_leap_years() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_177_319, "2026-11-20T12:21:59Z"),
        ] {
            assert_eq!(rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }
}
