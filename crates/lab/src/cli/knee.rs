//! `towpath lab knee`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::load::{Protocol, check_in_flight};
use super::secure::Secure;
use super::units::{parse_milliseconds, parse_rate, parse_seconds, parse_size};
use crate::address::Target;
use crate::knee::{self, Search};
use crate::load::{Arrivals, Plan, Request};

/// Find the highest rate that meets a latency objective
#[derive(Debug, Args)]
#[command(after_help = "\
Exits with 4 when not even the lowest rate meets the objective.

Example: towpath lab knee --objective 5ms --percentile 99 --pid $(pidof envoy) http://127.0.0.1:8080/")]
pub struct Knee {
    /// http://HOST:PORT/PATH, https://, ws:// or wss://, HOST:PORT or unix:PATH
    target: Target,
    #[command(flatten)]
    secure: Secure,
    /// What to speak [default: ws for ws:// and wss://, else h1]
    #[arg(long, value_enum)]
    protocol: Option<Protocol>,
    /// Requests that each connection has in flight at most: streams of HTTP/2, calls of Bolt
    #[arg(long, visible_aliases = ["streams", "pipeline"], value_name = "N", default_value_t = 1)]
    in_flight: usize,
    /// What the percentile must stay below, in ms unless a unit is given
    #[arg(long, value_parser = parse_milliseconds)]
    objective: Duration,
    /// Which percentile
    #[arg(long, default_value_t = 99.0)]
    percentile: f64,
    /// Lowest rate
    #[arg(long, default_value = "250", value_parser = parse_rate)]
    from: f64,
    /// Highest rate
    #[arg(long, default_value = "1000k", value_parser = parse_rate)]
    to: f64,
    /// How close the answer must be, in percent
    #[arg(long, default_value_t = 5.0)]
    precision: f64,
    /// Connections
    #[arg(long, short = 'c', default_value_t = 32)]
    connections: usize,
    /// Space requests evenly rather than at random
    #[arg(long)]
    paced: bool,
    /// How long each run is
    #[arg(long, short = 'd', default_value = "1s", value_parser = parse_seconds)]
    duration: Duration,
    /// Send a body of this many bytes
    #[arg(long, default_value = "0", value_parser = parse_size)]
    size: usize,
    /// Account this process and its descendants; may be repeated
    #[arg(long)]
    pid: Vec<u32>,
    /// Write a page
    #[arg(long, visible_alias = "html", value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write the result with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn summary(sentence: &str, warnings: &[String]) -> String {
    let warnings = warnings.iter().map(|warning| format!("  warning    {warning}\n"));
    std::iter::once(format!("{sentence}\n")).chain(warnings).collect()
}

impl Knee {
    pub(super) fn run(self) -> super::Outcome {
        if !(0.0..100.0).contains(&self.percentile)
            || !(0.1..100.0).contains(&self.precision)
            || self.from > self.to
        {
            return Err(super::usage(
                "the percentile is below 100, the precision between 0.1 and 100, and --from not above --to",
            ));
        }
        let protocol = Protocol::of(self.protocol, &self.target);
        let tls = self.secure.tls(&self.target, protocol)?;
        let mut plan = Plan::new(self.target);
        (plan.protocol, plan.tls, plan.in_flight) = (protocol, tls, self.in_flight);
        check_in_flight(&plan)?;
        plan.connections = self.connections;
        plan.request = Request::with_body(self.size);
        plan.duration = self.duration;
        plan.warmup = self.duration / 5;
        plan.pids = self.pid;
        plan.arrivals = if self.paced {
            Arrivals::Paced { rate: self.from }
        } else {
            Arrivals::Poisson { rate: self.from }
        };
        let search = Search {
            plan,
            percentile: self.percentile / 100.0,
            objective: self.objective,
            from: self.from,
            to: self.to,
            precision: self.precision / 100.0,
        };
        let found = knee::search(&search, &mut |what| super::print_progress(what))?;
        super::print_progress("");
        if let Some(path) = &self.report {
            super::write_text(path, &found.to_page(&search, &super::command_line()).to_html())?;
        }
        if let Some(path) = &self.json {
            let mut value = found.to_json();
            value["url"] = search.plan.url().into();
            super::write_result(path, "knee", value)?;
        }
        if self.json.as_deref() != Some(std::path::Path::new("-")) {
            super::terminal::tell_in_lines(&summary(&found.sentence(&search), &found.warnings));
        }
        Ok(if found.rate.is_some() { ExitCode::SUCCESS } else { super::REFUTED.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_fits_a_terminal_of_eighty_columns() {
        let sentence =
            "p99 ≤ 20 ms holds up to 261 requests/s and breaks at 273; the limit was the machine";
        let warning = "at the last rate that held, the generator waited for a CPU 17 % of the time";
        let text = super::super::terminal::wrapped(&summary(sentence, &[warning.to_owned()]), 80);
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>().join(" "),
            format!("{sentence} warning {warning}")
        );
    }
}
