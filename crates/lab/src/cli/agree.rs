//! `towpath lab agree`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::units::{parse_rate, parse_seconds, show_ns};
use crate::address::Target;
use crate::agree::{self, Agreement, Bunching, LARGEST, Likeness, Quartiles};
use crate::load::{Plan, Protocol, Spacing};
use crate::stats::Verdict;

/// Check that another generator charges a server the same
#[derive(Debug, Args)]
#[command(after_help = "\
Both run the same closed loop, or the same rate, in turns, and send the same request: this generator takes over the
fields that the other sends. What decides is the 95 % interval of how many times as much the server paid for a request:
exits with 0 when all of it is within --within of 1 (they agree), 4 when it leaves out 1 and its middle is farther away
(they do not), 3 when these rounds cannot tell, and then says how many would. Fewer than seven never tell a difference.

At a rate over HTTP/1.1 both are also sent to a listener in the server's place, which prints how many of the requests of
each come in bunches of one, of two and so on, and how far apart. bunched:N, ticks:D and as-sent reproduce when the
other sends. What it costs to wake the server depends on where the generators run as well: with a rate, --apart, so that
both are off the server's processor.

Example: towpath lab agree --with ghz --grpc helloworld.Greeter/SayHello --pid $(pidof greeter) http://127.0.0.1:50051
Example: towpath lab agree --apart --with oha --rate 2000 --arrivals as-sent --pid $(pidof nginx) \
http://127.0.0.1:8080/")]
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
    /// Speak HTTP/2 with so many streams on each connection (h2load and ghz only)
    #[arg(long, value_name = "N")]
    streams: Option<usize>,
    /// Call this method of gRPC with an empty message, one call at a time on each connection unless --streams says more
    /// (ghz only)
    #[arg(long, value_name = "SERVICE/METHOD")]
    grpc: Option<String>,
    /// Requests per second of both; as fast as the answers come unless given
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// How this generator spaces the requests of --rate: paced, poisson, bunched:N (h2load -c N), ticks:1.17ms (oha,
    /// vegeta), or as-sent: at the instants at which the other sends, by a recording of it
    #[arg(long, value_name = "SPACING", default_value = "paced", requires = "rate")]
    arrivals: Sending,
    /// Keep the server on one processor, the first that it may use, and both generators on the others, until this ends:
    /// anywhere else a generator of several threads comes to run beside the server, and one of a single thread seldom
    #[arg(long)]
    apart: bool,
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
    /// ghz, which calls gRPC
    Ghz,
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
            Other::Ghz => agree::Other::Ghz,
        };
        let mut plan = Plan::new(self.target.clone());
        (plan.connections, plan.duration) = (self.connections, self.duration);
        if let Some(streams) = self.streams {
            (plan.protocol, plan.in_flight) = (Protocol::Http2, streams);
        }
        if let Some(method) = &self.grpc {
            plan.protocol = Protocol::Http2;
            super::load::call_of(method, &mut plan)?;
        }
        plan.pids.clone_from(&self.pid);
        let spacing = match self.arrivals {
            Sending::Spaced(spacing) => spacing,
            Sending::AsSent => Spacing::Paced,
        };
        if let Some(rate) = self.rate {
            plan.arrivals = spacing.at(rate);
        }
        let likeness = Likeness {
            arrivals: self.arrivals == Sending::AsSent,
            work: self.as_busy,
            place: self.apart,
        };
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
            super::terminal::tell(&summary(&agreement, other.name(), verdict, within));
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
    let of_both = |what: &str, (theirs, ours): (f64, f64)| {
        format!(
            "{what} of the server for a request: {theirs:.2} under {other}, {ours:.2} under this generator\n"
        )
    };
    let syscalls = agreement.syscalls.map(|both| of_both("System calls", both)).unwrap_or_default();
    let sleeps = of_both("Sleeps", agreement.sleeps);
    let recorded = agreement.recorded.map_or_else(String::new, |count| {
        format!("This generator sent at the instants of {count} requests of {other}\n")
    });
    let busy = agreement.busy_ns.map_or_else(String::new, |busy| {
        format!(
            "This generator was busy for another {:.1} µs over each request\n",
            busy as f64 / 1e3
        )
    });
    let came = agreement.bunching.as_ref().map_or_else(String::new, |it| came(other, &it.0, &it.1));
    format!(
        "{fields}{recorded}{busy}{}{came}{syscalls}{sleeps}CPU per request of the server, this generator against \
         {other}: {:.3} ({:.3} to {:.3}), {words}\n{}",
        rounds.collect::<String>(),
        ratio.estimate,
        ratio.low,
        ratio.high,
        meaning(agreement, other, verdict)
    )
}

/// How the requests came, beside each other.
fn came(other: &str, theirs: &Bunching, ours: &Bunching) -> String {
    let near = show_ns(theirs.near_ns as f64);
    let mut text = format!(
        "How requests came to a listener in the server's place; those within {near} of the one before are of one \
         bunch\n"
    );
    let mut line = |name: &str, theirs: &str, ours: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<24} {theirs:>14} {ours:>14}");
    };
    line("", other, "this generator");
    let share = |size: usize| theirs.share(size).max(ours.share(size));
    let mut sizes: Vec<usize> = (1..=LARGEST).filter(|size| share(*size) > 0.0).collect();
    sizes.sort_by(|a, b| share(*b).total_cmp(&share(*a)));
    let mut shown: Vec<usize> = sizes.iter().copied().take(SIZES_SHOWN).collect();
    shown.sort_unstable();
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    for size in shown {
        let or_more = if size == LARGEST { " or more" } else { "" };
        let name = format!("in bunches of {size}{or_more}");
        line(&name, &percent(theirs.share(size)), &percent(ours.share(size)));
    }
    if let Some(rest) = sizes.get(SIZES_SHOWN..).filter(|rest| !rest.is_empty()) {
        let of = |it: &Bunching| percent(rest.iter().map(|size| it.share(*size)).sum());
        line("in other bunches", &of(theirs), &of(ours));
    }
    let middle =
        |it: Option<Quartiles>| it.map_or_else(|| "–".to_owned(), |it| show_ns(it.p50 as f64));
    let (between, within) = ("from bunch to bunch", "within a bunch");
    line(between, &middle(Some(theirs.between_ns)), &middle(Some(ours.between_ns)));
    line(within, &middle(theirs.within_ns), &middle(ours.within_ns));
    let same = percent(theirs.overlap(ours));
    let _ = writeln!(text, "  {same} of the requests came in bunches of about the same size");
    text
}

/// What a difference is of, where the requests tell.
fn meaning(agreement: &Agreement, other: &str, verdict: Verdict) -> String {
    let Some((theirs, ours)) = &agreement.bunching else { return String::new() };
    let differs = matches!(verdict, Verdict::Lower | Verdict::Higher);
    match (theirs.overlap(ours) >= ALIKE, agreement.apart) {
        (true, false) if differs => "\
            The server was asked alike: what differs is where the generators ran, beside the server or not, or what it \
            costs to wake idle processors. --apart keeps both off the server's.\n"
            .to_owned(),
        (true, true) if differs => "\
            The server was asked alike, and both generators ran on other processors: what differs is what it costs to \
            wake processors that idle between bunches, which depends on what else keeps them awake and is not \
            reproduced. A closed loop has no such part.\n"
            .to_owned(),
        (false, _) if agreement.recorded.is_none() => format!(
            "The server was not asked alike, which is a difference by itself: --arrivals as-sent sends when {other} \
             does.\n"
        ),
        (false, _) => {
            "The server was not asked alike although the instants were: something held a generator up.\n".to_owned()
        }
        (true, _) => String::new(),
    }
}

/// The share of requests in bunches of the same size from which two generators ask alike.
const ALIKE: f64 = 0.8;
/// How many sizes of bunches are shown.
const SIZES_SHOWN: usize = 6;
const ALPHA: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Effect, Interval};

    fn bunching(sizes: &[(usize, usize)]) -> Bunching {
        let mut bunches = vec![0; LARGEST];
        for (size, count) in sizes {
            bunches[size - 1] = *count;
        }
        let middle = Quartiles { p25: 900_000, p50: 1_000_000, p75: 1_100_000 };
        let requests = sizes.iter().map(|(size, count)| size * count).sum();
        let within_ns = Some(Quartiles { p25: 30_000, p50: 35_000, p75: 40_000 });
        Bunching { requests, bunches, between_ns: middle, within_ns, near_ns: 100_000 }
    }

    fn agreement(ratio: f64, theirs: Bunching, ours: Bunching) -> Agreement {
        let ratio = Interval { estimate: ratio, low: ratio * 0.97, high: ratio * 1.03 };
        Agreement {
            rounds: vec![(30_000.0, 20_000.0)],
            effect: Effect { ratio, p: 0.01, pairs: 10 },
            fields: Vec::new(),
            syscalls: Some((2.65, 2.62)),
            sleeps: (0.45, 0.47),
            bunching: Some((theirs, ours)),
            recorded: None,
            apart: true,
            busy_ns: None,
        }
    }

    #[test]
    fn how_both_bunch_stands_beside_what_they_cost() {
        let theirs = bunching(&[(1, 10), (2, 80), (3, 10)]);
        let like = agreement(0.7, theirs.clone(), bunching(&[(2, 100)]));
        let text = summary(&like, "oha", Verdict::Lower, 0.1);
        for line in [
            "  in bunches of 1                     5 %            0 %\n",
            "  in bunches of 2                    80 %          100 %\n",
            "  in bunches of 3                    15 %            0 %\n",
            "  from bunch to bunch             1.00 ms        1.00 ms\n",
            "  within a bunch                  35.0 µs        35.0 µs\n",
            "  80 % of the requests came in bunches of about the same size\n",
            "Sleeps of the server for a request: 0.45 under oha, 0.47 under this generator\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(
            text.contains("The server was asked alike") && text.contains("not reproduced"),
            "{text}"
        );
        let together = Agreement { apart: false, ..like };
        let text = summary(&together, "oha", Verdict::Lower, 0.1);
        assert!(text.contains("--apart keeps both off"), "{text}");
        let unlike = agreement(1.5, theirs, bunching(&[(1, 200)]));
        let text = summary(&unlike, "oha", Verdict::Higher, 0.1);
        assert!(text.contains("--arrivals as-sent sends when oha does"), "{text}");
    }

    #[test]
    fn many_sizes_are_summed_up() {
        let many: Vec<(usize, usize)> = (1..=12).map(|size| (size, 100 - size)).collect();
        let text = summary(
            &agreement(1.0, bunching(&many), bunching(&[(20, 10), (LARGEST, 1)])),
            "h2load",
            Verdict::Same,
            0.1,
        );
        assert_eq!(text.matches("  in bunches of ").count(), SIZES_SHOWN, "{text}");
        assert!(
            text.contains("  in other bunches ") && text.contains("in bunches of 20 "),
            "{text}"
        );
        assert!(text.contains("in bunches of 64 or more"), "{text}");
    }
}
