//! The receipt: what the sidecar adds, with how sure one can be of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use towpath_lab::histogram::Nanoseconds;
use towpath_lab::meter::Cost;
use towpath_lab::stats::{Interval, bootstrap, median};

use super::{Error, Slice, machine};

/// What was done, and the slices of both sides.
pub(super) struct Run {
    pub(super) rate: u32,
    pub(super) connections: u32,
    pub(super) workers: u32,
    pub(super) body: usize,
    pub(super) slice: Duration,
    pub(super) idle_memory: Cost,
    pub(super) straight: Vec<Slice>,
    pub(super) through: Vec<Slice>,
}

/// The figures.
pub(super) struct Receipt {
    pub(super) run: Run,
    pub(super) machine: String,
    pub(super) straight: Totals,
    pub(super) through: Totals,
    /// What is added at [`QUANTILES`], in nanoseconds: the median over pairs.
    pub(super) added: [Interval; QUANTILES.len()],
    /// Sidecar CPU per request over slices, in nanoseconds.
    pub(super) sidecar_cpu: Interval,
}

/// One side, all slices together.
pub(super) struct Totals {
    pub(super) latency: Nanoseconds,
    pub(super) answered: u64,
    pub(super) errors: u64,
    pub(super) client_cpu_ns: u64,
    pub(super) origin_cpu_ns: u64,
    pub(super) sidecar_cpu_ns: u64,
    pub(super) sidecar_rss: u64,
    pub(super) seconds: f64,
}

/// The percentiles on the receipt.
pub(super) const QUANTILES: [(&str, f64); 3] = [("p50", 0.50), ("p95", 0.95), ("p99", 0.99)];

impl Receipt {
    /// Adds it up.
    pub(super) fn new(run: Run) -> Self {
        let (straight, through) = (Totals::of(&run.straight), Totals::of(&run.through));
        let added = QUANTILES.map(|(_, quantile)| {
            let pairs = run.straight.iter().zip(&run.through);
            let differences: Vec<f64> = pairs
                .map(|(a, b)| {
                    b.outcome.latency.quantile(quantile) as f64
                        - a.outcome.latency.quantile(quantile) as f64
                })
                .collect();
            bootstrap(&differences, median, 1)
        });
        let per_request: Vec<f64> = run
            .through
            .iter()
            .map(|slice| per(slice.sidecar.cpu_ns, slice.outcome.answered))
            .collect();
        let sidecar_cpu = bootstrap(&per_request, median, 1);
        Self { machine: machine::describe(), straight, through, added, sidecar_cpu, run }
    }

    /// What the sidecar uses at the demo's rate, as a share of a CPU.
    pub(super) fn vcpu(&self) -> f64 {
        self.through.sidecar_cpu_ns as f64 / 1e9 / self.through.seconds
    }

    /// The rate that was reached through the sidecar.
    pub(super) fn achieved(&self) -> f64 {
        self.through.answered as f64 / self.through.seconds
    }

    /// That, for 1,000 requests per second.
    pub(super) fn vcpu_at_1000(&self) -> f64 {
        self.vcpu() * 1000.0 / self.achieved()
    }

    /// For a terminal.
    pub(super) fn text(&self) -> String {
        let Self { run, straight, through, .. } = self;
        let mut text = String::new();
        let _ = writeln!(text, "\n  {}\n", self.title());
        let _ = writeln!(
            text,
            "  {:<22}{:>12}{:>12}{:>12}   95 % interval",
            "", "straight", "sidecar", "added"
        );
        for ((name, quantile), added) in QUANTILES.iter().zip(&self.added) {
            let _ = writeln!(
                text,
                "  {:<22}{:>9.0} µs{:>9.0} µs{:>9.0} µs   {}",
                format!("latency {name}"),
                micros(straight.latency.quantile(*quantile) as f64),
                micros(through.latency.quantile(*quantile) as f64),
                micros(added.estimate),
                spread(added),
            );
        }
        for (name, cost) in
            [("CPU client", Totals::client as fn(&Totals) -> f64), ("CPU origin", Totals::origin)]
        {
            let (a, b) = (cost(straight), cost(through));
            let _ = writeln!(
                text,
                "  {name:<22}{a:>9.1} µs{b:>9.1} µs{:>9.1} µs   for each request",
                b - a
            );
        }
        let _ = writeln!(
            text,
            "  {:<22}{:>12}{:>9.1} µs{:>12}   {}",
            "CPU sidecar",
            "",
            micros(per(through.sidecar_cpu_ns, through.answered)),
            "",
            spread(&self.sidecar_cpu),
        );
        let _ = writeln!(
            text,
            "  {:<22}{:>12}{:>9.1} MB{:>12}   {:.1} MB before the first request",
            "memory sidecar",
            "",
            megabytes(through.sidecar_rss),
            "",
            megabytes(run.idle_memory.rss_bytes),
        );
        let _ = writeln!(
            text,
            "\n  At 1,000 requests/s this sidecar takes {:.3} vCPU and adds {:.0} µs at the median.\n",
            self.vcpu_at_1000(),
            micros(self.added[0].estimate),
        );
        for line in self.conditions() {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    /// What was compared.
    pub(super) fn title(&self) -> String {
        format!(
            "examples/sidecar.yaml, {} requests/s, straight to the origin and through the sidecar",
            self.run.rate
        )
    }

    /// How it was measured: all that one needs to doubt or repeat it.
    pub(super) fn conditions(&self) -> Vec<String> {
        let Self { run, straight, through, .. } = self;
        let slices = run.straight.len();
        let mut lines = vec![
            format!(
                "Arrivals: Poisson, open loop, latency from the intended start; {} keep-alive connections; {} byte \
                 answers.",
                run.connections, run.body
            ),
            format!(
                "Slices: {slices} × {} s for each side, in turns, opening of connections included; sidecar with {} \
                 workers.",
                run.slice.as_secs(),
                run.workers
            ),
            format!(
                "Answers: {} straight, {} through the sidecar ({:.0}/s); errors: {} and {}.",
                straight.answered,
                through.answered,
                self.achieved(),
                straight.errors,
                through.errors
            ),
            format!("Machine: {}; client, sidecar and origin share it.", self.machine),
        ];
        let steal = run.through.iter().chain(&run.straight);
        let steal = steal.filter_map(|slice| slice.outcome.noise.steal);
        let steal = steal.fold(0.0, f64::max);
        if steal > 0.01 {
            lines.push(format!(
                "Doubt: the hypervisor took up to {:.0} % of the CPU away.",
                steal * 100.0
            ));
        }
        let slices = run.straight.iter().chain(&run.through);
        let warnings = slices.flat_map(|slice| &slice.outcome.warnings);
        let all = run.straight.len() + run.through.len();
        lines.extend(doubts(warnings.map(String::as_str), all));
        lines
    }
}

/// Each kind of warning once, with its largest figure and in how many slices it came up.
fn doubts<'a>(warnings: impl Iterator<Item = &'a str>, slices: usize) -> Vec<String> {
    let is_figure = |c: char| c.is_ascii_digit() || c == '.';
    let figure = |warning: &str| {
        let from = warning.find(is_figure).unwrap_or(warning.len());
        let digits = warning[from..].split(|c| !is_figure(c)).next();
        digits.and_then(|digits| digits.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let mut kinds: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for warning in warnings {
        let (worst, count) = kinds.entry(warning.replace(is_figure, "")).or_insert((warning, 0));
        *count += 1;
        if figure(warning) > figure(worst) {
            *worst = warning;
        }
    }
    let line =
        |&(worst, count): &(&str, usize)| format!("Doubt, in {count} of {slices} slices: {worst}.");
    kinds.values().map(line).collect()
}

impl Totals {
    pub(super) fn of(slices: &[Slice]) -> Self {
        let mut totals = Self {
            latency: Nanoseconds::new(),
            answered: 0,
            errors: 0,
            client_cpu_ns: 0,
            origin_cpu_ns: 0,
            sidecar_cpu_ns: 0,
            sidecar_rss: 0,
            seconds: 0.0,
        };
        for Slice { outcome, origin, sidecar } in slices {
            totals.latency.merge(&outcome.latency);
            totals.answered += outcome.answered;
            totals.errors += outcome.errors.total();
            totals.client_cpu_ns += outcome.generator.cpu_ns;
            totals.origin_cpu_ns += origin.cpu_ns;
            totals.sidecar_cpu_ns += sidecar.cpu_ns;
            totals.sidecar_rss = totals.sidecar_rss.max(sidecar.rss_bytes);
            totals.seconds += outcome.duration.as_secs_f64();
        }
        totals
    }

    /// Client CPU per request in microseconds.
    pub(super) fn client(&self) -> f64 {
        micros(per(self.client_cpu_ns, self.answered))
    }

    /// Origin CPU per request in microseconds.
    pub(super) fn origin(&self) -> f64 {
        micros(per(self.origin_cpu_ns, self.answered))
    }
}

/// Writes to standard output; a reader that has gone away is not an error.
pub(super) fn print(text: &str) -> Result<(), Error> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

pub(super) fn micros(ns: f64) -> f64 {
    ns / 1000.0
}

pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// An interval of nanoseconds in microseconds.
pub(super) fn spread(interval: &Interval) -> String {
    if interval.low.is_finite() && interval.high.is_finite() {
        format!("{:.1} to {:.1} µs", micros(interval.low), micros(interval.high))
    } else {
        "too few slices to say".into()
    }
}

fn per(total: u64, count: u64) -> f64 {
    total as f64 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::doubts;

    #[test]
    fn a_doubt_is_told_once_with_its_largest_figure() {
        let late = |ms: &str| format!("requests were sent up to {ms} ms late (p99.9)");
        let warnings = [late("7.5"), "the disk is slow".to_owned(), late("39.8"), late("8.0")];
        let told = doubts(warnings.iter().map(String::as_str), 12);
        let wanted = [
            format!("Doubt, in 3 of 12 slices: {}.", late("39.8")),
            "Doubt, in 1 of 12 slices: the disk is slow.".to_owned(),
        ];
        assert_eq!(told, wanted);
    }
}
