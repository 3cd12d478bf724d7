//! `towpath lab agree`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::units::{parse_rate, parse_seconds};
use crate::address::Target;
use crate::agree::{self, Agreement, Likeness};
use crate::load::{Plan, Protocol, Spacing};
use crate::stats::Verdict;

/// Check that another generator charges a server the same
#[derive(Debug, Args)]
#[command(after_help = "\
Both run the same closed loop, or the same rate, in turns, and send the same request: this generator takes over the
fields that the other sends. What decides is the 95 % interval of how many times as much the server paid for a request:
exits with 0 when all of it is within --within of 1 (they agree), 4 when it leaves out 1 and its middle is farther away
(they do not), 3 when these rounds cannot tell, and then says how many would. Fewer than seven never tell a difference.

Example: towpath lab agree --pid $(pidof nginx) http://127.0.0.1:8080/")]
pub struct Agree {
    /// http://HOST:PORT/PATH
    target: Target,
    /// The server's process; may be repeated
    #[arg(long, required = true)]
    pid: Vec<u32>,
    /// The other generator
    #[arg(long, value_enum, default_value = "wrk")]
    with: Other,
    /// Its executable, unless it is in the search path or below target/peers, where `cargo xtask peers` puts it
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Connections
    #[arg(long, short = 'c', default_value_t = 20)]
    connections: usize,
    /// Speak HTTP/2 with so many streams on each connection (h2load only)
    #[arg(long, value_name = "N")]
    streams: Option<usize>,
    /// Requests per second of both; as fast as the answers come unless given
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// How this generator spaces the requests of --rate: paced, poisson, bunched:N, ticks:1ms, or as-sent: at the
    /// instants at which the other sends, by a recording of it
    #[arg(long, value_name = "SPACING", default_value = "paced", requires = "rate")]
    arrivals: Sending,
    /// Take as much CPU time over a request as the other does
    #[arg(long)]
    as_busy: bool,
    /// How long each run is, in whole seconds
    #[arg(long, short = 'd', default_value = "2s", value_parser = parse_seconds)]
    duration: Duration,
    /// How often each of them runs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(3..1000))]
    rounds: u16,
    /// How far they may be apart, in percent
    #[arg(long, default_value_t = 10.0)]
    within: f64,
    /// Write the result with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// When this generator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Spaced(Spacing),
    AsSent,
}

impl FromStr for Sending {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "as-sent" { Ok(Self::AsSent) } else { text.parse().map(Self::Spaced) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Other {
    /// wrk
    Wrk,
    /// nghttp2's h2load
    H2load,
    /// oha
    Oha,
    /// vegeta
    Vegeta,
}

impl Agree {
    pub(super) fn run(self) -> super::Outcome {
        if self.duration.subsec_nanos() != 0 || self.duration.is_zero() || self.within <= 0.0 {
            return Err(super::usage("--duration is in whole seconds and --within above zero"));
        }
        let other = match self.with {
            Other::Wrk => agree::Other::Wrk,
            Other::H2load => agree::Other::H2load,
            Other::Oha => agree::Other::Oha,
            Other::Vegeta => agree::Other::Vegeta,
        };
        let mut plan = Plan::new(self.target.clone());
        (plan.connections, plan.duration) = (self.connections, self.duration);
        if let Some(streams) = self.streams {
            (plan.protocol, plan.in_flight) = (Protocol::Http2, streams);
        }
        plan.pids.clone_from(&self.pid);
        let spacing = match self.arrivals {
            Sending::Spaced(spacing) => spacing,
            Sending::AsSent => Spacing::Paced,
        };
        if let Some(rate) = self.rate {
            plan.arrivals = spacing.at(rate);
        }
        let likeness = Likeness { arrivals: self.arrivals == Sending::AsSent, work: self.as_busy };
        other.check(&plan).and_then(|()| likeness.check(&plan)).map_err(super::usage)?;
        let name = other.name();
        let program = self.program.clone().or_else(|| crate::replay::peers::find(name)).ok_or_else(|| {
            format!("{name} was not found: `cargo xtask peers {name}` brings it, or give its path with --program")
        })?;
        let rounds = usize::from(self.rounds);
        let agreement = agree::compare(other, &program, &plan, likeness, rounds, &mut |what| {
            super::print_progress(what);
        })?;
        super::print_progress("");
        let verdict = agreement.effect.verdict(self.within / 100.0, ALPHA);
        if let Some(path) = &self.json {
            let rounds_needed = agreement.rounds_needed(self.within / 100.0);
            let value = json!({
                "rounds_needed": (verdict == Verdict::Inconclusive).then_some(rounds_needed),
                "url": plan.url(),
                "with": other.name(),
                "agreement": agreement,
                "verdict": verdict,
            });
            super::write_result(path, "agree", value)?;
        }
        if self.json.as_deref() != Some(Path::new("-")) {
            let within = self.within / 100.0;
            super::print(&summary(&agreement, other.name(), verdict, within));
        }
        Ok(match verdict {
            Verdict::Same => ExitCode::SUCCESS,
            Verdict::Lower | Verdict::Higher => super::REFUTED.into(),
            Verdict::Inconclusive => super::UNDECIDED.into(),
        })
    }
}

fn summary(agreement: &Agreement, other: &str, verdict: Verdict, within: f64) -> String {
    let ratio = agreement.effect.ratio;
    let words = match verdict {
        Verdict::Same => "they agree".to_owned(),
        Verdict::Lower | Verdict::Higher => "they do not agree".to_owned(),
        Verdict::Inconclusive => {
            let rounds = agreement.rounds_needed(within);
            let advice = rounds.map_or_else(
                || "longer runs might".to_owned(),
                |rounds| format!("if they go on to scatter so, --rounds {rounds} would"),
            );
            format!("these rounds cannot tell: {advice}")
        }
    };
    let fields: String =
        agreement.fields.iter().map(|(name, value)| format!("  {name}: {value}\n")).collect();
    let fields = if fields.is_empty() { fields } else { format!("Both sent\n{fields}") };
    let rounds = agreement.rounds.iter().map(|(theirs, ours)| {
        format!(
            "  {:>8.2} µs under {other}, {:>8.2} µs under this generator\n",
            theirs / 1e3,
            ours / 1e3
        )
    });
    let syscalls = agreement.syscalls.map_or_else(String::new, |(theirs, ours)| {
        format!("System calls of the server for a request: {theirs:.2} under {other}, {ours:.2} under this generator\n")
    });
    let recorded = agreement.recorded.map_or_else(String::new, |count| {
        format!("This generator sent at the instants of {count} requests of {other}\n")
    });
    let busy = agreement.busy_ns.map_or_else(String::new, |busy| {
        format!(
            "This generator was busy for another {:.1} µs over each request\n",
            busy as f64 / 1e3
        )
    });
    format!(
        "{fields}{recorded}{busy}{}{syscalls}CPU per request of the server, this generator against {other}: \
         {:.3} ({:.3} to {:.3}), {words}\n",
        rounds.collect::<String>(),
        ratio.estimate,
        ratio.low,
        ratio.high
    )
}

const ALPHA: f64 = 0.05;
