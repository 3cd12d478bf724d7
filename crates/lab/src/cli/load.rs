//! `towpath lab load`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use towpath_proto::bolt::Version;

use super::conditions::{self, Condition};
use super::live::Live;
use super::secure::Secure;
use super::terminal::{stdout_width, tell_in_lines};
use super::units::{
    parse_milliseconds, parse_rate, parse_seconds, parse_size, show_bytes, show_count, show_ns,
    show_number_of, show_quantile,
};
use crate::address::Target;
use crate::histogram::Nanoseconds;
use crate::load::{self, Outcome, Plan, Progress, Request, Spacing};

/// Generate load and account for what it costs
#[derive(Debug, Args)]
#[command(after_help = "\
Without --rate, --per-connection-rate or --arrivals-file the loop is closed: each connection sends its next
request when the previous one is answered. --per-connection-rate alone keeps a schedule per connection and
charges what comes late; with --closed it is a cap, as hey -q has it.

Exits with 1 when no request was answered rightly, 2 when the arguments make no sense, 4 when a --fail-if is true.

Example: towpath lab load --rate 2000 --arrivals poisson --duration 10s --pid $(pidof envoy) http://127.0.0.1:8080/")]
pub struct Load {
    /// http://HOST:PORT/PATH, https://, ws:// or wss://, HOST:PORT or unix:PATH
    target: Target,
    /// Requests per second, on any free connection, whatever the answers do
    #[arg(long, value_parser = parse_rate, conflicts_with_all = ["closed", "per_connection_rate"])]
    rate: Option<f64>,
    /// As fast as the answers come
    #[arg(long)]
    closed: bool,
    /// Connections
    #[arg(long, short = 'c', default_value_t = 10)]
    connections: usize,
    /// Threads that generate the load, each with its share of connections and arrivals
    #[arg(long, short = 't', default_value_t = 1)]
    threads: usize,
    /// Let these machines generate the load, on each of which `towpath lab agent` runs: HOST:PORT, several with commas.
    /// Connections and arrivals are divided among them; --threads are those of each, --pid is of this machine
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', conflicts_with = "syscalls")]
    agents: Vec<String>,
    /// Send the requests of FILE: `[[request]]` tables with name, weight, method, path, headers, body or body_file,
    /// lines, expect = { status, contains }; {number}, {random:A-B} and {line} are filled in
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["method", "size", "data", "header"])]
    requests: Option<PathBuf>,
    #[command(flatten)]
    secure: Secure,
    /// Requests per second on each connection
    #[arg(long, value_name = "R", value_parser = parse_rate)]
    per_connection_rate: Option<f64>,
    /// How the requests of --rate are spaced: paced (evenly), poisson (at random, as independent users do), bunched:N
    /// (N at once, as h2load's N connections send, whose timers are started together; 2 comes near oha and vegeta), or
    /// ticks:1ms (every millisecond what is due by then, as generators whose timers count milliseconds). That is when
    /// they send: `lab agree` shows how alike, and what the server pays
    #[arg(long, value_name = "SPACING", default_value = "paced")]
    arrivals: Spacing,
    /// Start requests at the instants in FILE: seconds from the start, one per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["closed", "rate", "per_connection_rate"])]
    arrivals_file: Option<PathBuf>,
    /// What to speak [default: ws for ws:// and wss://, else h1]
    #[arg(long, value_enum)]
    protocol: Option<Protocol>,
    /// Requests that each connection has in flight: streams of HTTP/2, calls of Bolt
    #[arg(long, visible_aliases = ["streams", "pipeline"], value_name = "N", default_value_t = 1)]
    in_flight: usize,
    /// Call this method of gRPC over HTTP/2, with the message in --body-file (an empty one unless given) and a status
    /// that must be 0
    #[arg(long, value_name = "SERVICE/METHOD", conflicts_with_all = ["method", "requests"])]
    grpc: Option<String>,
    /// Version of the Bolt frames
    #[arg(long, value_enum, default_value = "1")]
    bolt_version: BoltVersion,
    /// Class that Bolt frames name [default: towpath.Bytes]
    #[arg(long, value_name = "NAME")]
    bolt_class: Option<String>,
    /// How long to measure [default: 10s; until the last of --arrivals-file]
    #[arg(long, short = 'd', value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// How long to run before that [default: 1s; with --arrivals-file 0]
    #[arg(long, value_parser = parse_seconds)]
    warmup: Option<Duration>,
    /// Let the rate climb from zero over this time, which should be part of the warm-up
    #[arg(long, default_value = "0", value_parser = parse_seconds)]
    ramp: Duration,
    /// Open the connections over this time rather than before the start
    #[arg(long, default_value = "0", value_parser = parse_seconds)]
    connection_ramp: Duration,
    /// When to give a request up
    #[arg(long, default_value = "10s", value_parser = parse_seconds)]
    timeout: Duration,
    /// Close the connection after each request
    #[arg(long)]
    no_keep_alive: bool,
    /// Request method; GET, or POST when there is a body, unless given
    #[arg(long, short = 'X')]
    method: Option<String>,
    /// Send a body of this many bytes (for TCP and WebSocket: to be echoed, 64 unless given)
    #[arg(long, value_name = "N", value_parser = parse_size, conflicts_with = "data")]
    size: Option<usize>,
    /// Send this body
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    data: Option<String>,
    /// Send the bytes of FILE as the body; as one message, with --grpc
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    body_file: Option<PathBuf>,
    /// Send this header ("Name: value"); may be repeated
    #[arg(long, short = 'H', value_name = "HEADER", value_parser = parse_header)]
    header: Vec<(String, String)>,
    /// Account this process and its descendants; may be repeated
    #[arg(long)]
    pid: Vec<u32>,
    /// Also count the system calls of --pid, in a second short run
    #[arg(long, requires = "pid")]
    syscalls: bool,
    /// Be busy for so long over each request, half of it while the server has it and half after its answer: a generator
    /// that takes longer finds a server asleep more often, and is less often asleep when an answer comes
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_milliseconds)]
    busy: Duration,
    /// Seed of random arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the result with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page
    #[arg(long, visible_alias = "html", value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Exit with 4 when this is true of the run, as in 'p99>5ms', 'errors>0' or 'rate<1000'; may be repeated
    #[arg(long, value_name = "CONDITION", value_parser = conditions::parse)]
    fail_if: Vec<Condition>,
    /// Write rate, errors and latency of each second as CSV; - is standard output
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the histograms as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Write the result in Fortio's format
    #[arg(long, value_name = "FILE")]
    fortio: Option<PathBuf>,
}

/// What to speak.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Protocol {
    /// HTTP/1.1
    H1,
    /// HTTP/2, by ALPN over https:// and by prior knowledge over http://
    H2,
    /// Bytes that are echoed
    Tcp,
    /// WebSocket: each message is answered by the next that comes; headers of -H go into the handshake
    Ws,
    /// Bolt: headers of -H go into the frame's block, and each answer must have its request's content
    Bolt,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BoltVersion {
    /// Version 1
    #[value(name = "1")]
    One,
    /// Version 2 without checksums
    #[value(name = "2")]
    Two,
    /// Version 2 with checksums
    #[value(name = "2-crc")]
    TwoWithChecksums,
}

impl Load {
    pub(super) fn run(self) -> super::Outcome {
        let plan = self.plan()?;
        let outcome = self.run_watched(&plan)?;
        let breaches = conditions::breaches(&self.fail_if, &outcome);
        if let Some(path) = &self.json {
            let mut value = outcome.to_json();
            value["url"] = plan.url().into();
            value["failed_if"] = breaches.iter().map(conditions::Breach::to_json).collect();
            super::write_result(path, "load", value)?;
        }
        if let Some(path) = &self.fortio {
            super::write_json(path, &outcome.to_fortio(&plan))?;
        }
        if let Some(path) = &self.hdr {
            super::write_text(path, &outcome.to_histogram_log())?;
        }
        if let Some(path) = &self.csv {
            super::write_text(path, &outcome.to_csv())?;
        }
        if let Some(path) = &self.report {
            super::write_text(path, &outcome.to_page(&plan, &super::command_line()).to_html())?;
        }
        let is_dash = |path: &Option<PathBuf>| path.as_deref() == Some(std::path::Path::new("-"));
        if !is_dash(&self.json) && !is_dash(&self.csv) {
            tell_in_lines(&summary(&plan, &outcome, stdout_width()));
        }
        for breach in &breaches {
            eprintln!("towpath: failed: {}", breach.sentence());
        }
        Ok(match (outcome.latency.count(), breaches.len()) {
            // Something was measured, even if not everything succeeded; without a right answer nothing was.
            (0, _) => super::FAILURE.into(),
            (_, 0) => ExitCode::SUCCESS,
            (_, _) => super::REFUTED.into(),
        })
    }

    fn plan(&self) -> Result<Plan, Box<dyn std::error::Error>> {
        let mut plan = Plan::new(self.target.clone());
        plan.protocol = match self.protocol {
            None if self.grpc.is_some() => load::Protocol::Http2,
            protocol => Protocol::of(protocol, &self.target),
        };
        plan.bolt.version = match self.bolt_version {
            BoltVersion::One => Version::V1,
            BoltVersion::Two => Version::V2 { checksums: false },
            BoltVersion::TwoWithChecksums => Version::V2 { checksums: true },
        };
        plan.in_flight = self.in_flight;
        if let Some(class) = &self.bolt_class {
            plan.bolt.class.clone_from(class);
        }
        check_in_flight(&plan)?;
        let default_size = match plan.protocol {
            load::Protocol::Tcp | load::Protocol::WebSocket => 64,
            load::Protocol::Http1 | load::Protocol::Http2 | load::Protocol::Bolt => 0,
        };
        plan.request = match (&self.data, &self.body_file) {
            (Some(text), _) => Request { body: text.clone().into_bytes(), ..Request::default() },
            (None, Some(path)) => Request {
                body: std::fs::read(path)
                    .map_err(|error| super::usage(format!("{}: {error}", path.display())))?,
                ..Request::default()
            },
            (None, None) => Request::with_body(self.size.unwrap_or(default_size)),
        };
        if let Some(path) = &self.requests {
            plan.mix = load::Entry::read_all(path).map_err(super::usage)?;
        }
        plan.threads = self.threads;
        plan.tls = self.secure.tls(&self.target, plan.protocol)?;
        plan.request.method.clone_from(&self.method);
        plan.request.headers.clone_from(&self.header);
        if let Some(name) = &self.grpc {
            call_of(name, &mut plan)?;
        }
        plan.arrivals = self.arrivals()?;
        plan.connections = self.connections;
        plan.keep_alive = !self.no_keep_alive;
        let mut last = None;
        if let load::Arrivals::Recorded { starts } = &plan.arrivals {
            last = starts.iter().max().copied();
        }
        let warmup = if last.is_some() { Duration::ZERO } else { WARMUP };
        plan.warmup = self.warmup.unwrap_or(warmup);
        let left = last.map_or(DURATION, |last| last.saturating_sub(plan.warmup) + AFTER_THE_LAST);
        plan.duration = self.duration.unwrap_or(left);
        plan.rate_ramp = self.ramp;
        plan.connection_ramp = self.connection_ramp;
        plan.timeout = self.timeout;
        plan.pids.clone_from(&self.pid);
        plan.count_syscalls = self.syscalls;
        plan.seed = self.seed;
        plan.busy = self.busy;
        Ok(plan)
    }

    /// Runs with a view on the terminal, where there is one.
    fn run_watched(&self, plan: &Plan) -> Result<Outcome, load::LoadError> {
        let run = |observer: Option<&mut dyn FnMut(&Progress)>| match self.agents.as_slice() {
            [] => load::run_observed(plan, observer),
            agents => load::agents::run(plan, agents, observer),
        };
        let Some(mut live) = Live::of(plan) else { return run(None) };
        let outcome = run(Some(&mut |progress: &Progress| live.show(progress)));
        live.clear();
        outcome
    }

    fn arrivals(&self) -> Result<load::Arrivals, Box<dyn std::error::Error>> {
        if let Some(path) = &self.arrivals_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| super::usage(format!("{}: {error}", path.display())))?;
            let starts = parse_starts(&text).map_err(super::usage)?;
            return Ok(load::Arrivals::Recorded { starts });
        }
        Ok(match (self.rate, self.per_connection_rate, self.closed) {
            (Some(rate), _, _) => self.arrivals.at(rate),
            (None, Some(per_connection_rate), true) => {
                load::Arrivals::ClosedCapped { per_connection_rate }
            }
            (None, Some(per_connection_rate), false) => {
                load::Arrivals::PerConnection { per_connection_rate }
            }
            (None, None, _) => load::Arrivals::Closed,
        })
    }
}

const WARMUP: Duration = Duration::from_secs(1);
const DURATION: Duration = Duration::from_secs(10);
/// A request counts when it was to begin before the end.
const AFTER_THE_LAST: Duration = Duration::from_millis(1);

fn parse_starts(text: &str) -> Result<Vec<Duration>, String> {
    let lines = text
        .lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(at, line)| parse_seconds(line).map_err(|error| format!("line {}: {error}", at + 1)))
        .collect()
}

impl Protocol {
    /// What is spoken to a target, if nothing else is asked for.
    pub(super) fn of(asked: Option<Self>, target: &Target) -> load::Protocol {
        match asked {
            None if target.is_websocket => load::Protocol::WebSocket,
            None | Some(Self::H1) => load::Protocol::Http1,
            Some(Self::H2) => load::Protocol::Http2,
            Some(Self::Tcp) => load::Protocol::Tcp,
            Some(Self::Ws) => load::Protocol::WebSocket,
            Some(Self::Bolt) => load::Protocol::Bolt,
        }
    }
}

/// Whether connections can have as many requests in flight as a plan wants.
pub(super) fn check_in_flight(plan: &Plan) -> Result<(), Box<dyn std::error::Error>> {
    let has_streams = matches!(plan.protocol, load::Protocol::Http2 | load::Protocol::Bolt);
    if plan.in_flight != 1 && !has_streams {
        let why = "only HTTP/2 and Bolt have several requests in flight on a connection";
        return Err(super::usage(why));
    }
    Ok(())
}

/// Makes each request a call of a method of gRPC.
pub(super) fn call_of(name: &str, plan: &mut Plan) -> Result<(), Box<dyn std::error::Error>> {
    let name = name.strip_prefix('/').unwrap_or(name);
    if !is_grpc_method(name) {
        return Err(super::usage(format!("'{name}' is no SERVICE/METHOD")));
    }
    if plan.protocol != load::Protocol::Http2 {
        return Err(super::usage("gRPC is called over HTTP/2 (--protocol h2)"));
    }
    if !matches!(plan.target.path.as_str(), "" | "/") {
        let path = &plan.target.path;
        return Err(super::usage(format!("the path of a call is its method: {path} has no place")));
    }
    plan.target.path = format!("/{name}");
    plan.request.make_grpc();
    Ok(())
}

/// As in `helloworld.Greeter/SayHello`.
fn is_grpc_method(name: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
    name.split_once('/').is_some_and(|(service, method)| {
        is_word(service) && is_word(method) && !method.contains('/')
    })
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header looks like \"Name: value\"")?;
    let is_line = !text.contains(['\r', '\n']) && !name.trim().is_empty();
    is_line
        .then(|| (name.trim().to_owned(), value.trim().to_owned()))
        .ok_or_else(|| "not a header".to_owned())
}

fn summary(plan: &Plan, outcome: &Outcome, width: usize) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_summary(&mut text, plan, outcome, width);
    text
}

fn write_summary(
    text: &mut String,
    plan: &Plan,
    outcome: &Outcome,
    width: usize,
) -> std::fmt::Result {
    let seconds = outcome.duration.as_secs_f64();
    writeln!(
        text,
        "{}: {} arrivals, {}, {seconds:.1} s",
        plan.target,
        outcome.arrivals,
        connections(plan, outcome)
    )?;
    let rate = outcome.achieved_rps();
    match outcome.intended_rps {
        Some(intended) => writeln!(
            text,
            "  requests   {rate:.1}/s of {intended:.1}/s intended, {} sent",
            show_count(outcome.sent)
        )?,
        None => writeln!(text, "  requests   {rate:.1}/s, {} sent", show_count(outcome.sent))?,
    }
    for (kind, count) in outcome.errors.iter() {
        writeln!(text, "  error      {kind}: {}", show_count(count))?;
    }
    write_percentiles(
        text,
        &[("latency", &outcome.latency), ("service", &outcome.service)],
        width,
    )?;
    for entry in &outcome.entries {
        writeln!(
            text,
            "  {:<24} {} answered, {} wrong, p50 {}, p99 {}",
            entry.name,
            show_count(entry.latency.count()),
            show_count(entry.errors),
            show_quantile(&entry.latency, 0.5),
            show_quantile(&entry.latency, 0.99)
        )?;
    }
    if let Some(target) = &outcome.target {
        let per_request = target.cpu_ns_per_request().unwrap_or(0.0);
        let cost = &target.cost;
        let answered = target.answered.max(1) as f64;
        let split = cost.split().map_or_else(
            || "too little to tell user from system".to_owned(),
            |(user, system)| {
                format!(
                    "{} user, {} system",
                    show_ns(user as f64 / answered),
                    show_ns(system as f64 / answered)
                )
            },
        );
        writeln!(
            text,
            "  target     {} CPU per request ({split}), {:.2} context switches per request",
            show_ns(per_request),
            (cost.voluntary_switches + cost.involuntary_switches) as f64 / answered
        )?;
        if let Some(count) = target.syscalls_per_request {
            writeln!(text, "             {count:.2} system calls per request")?;
        }
        writeln!(
            text,
            "  memory     {} resident, {} proportional, {} peak",
            show_bytes(cost.rss_bytes),
            show_bytes(cost.pss_bytes),
            show_bytes(cost.peak_bytes)
        )?;
    }
    let generator = &outcome.generator;
    let per_cpu_second = outcome.answered as f64 / (generator.cpu_ns.max(1) as f64 / 1e9);
    writeln!(
        text,
        "  generator  {:.0} % of a CPU, {} requests per CPU-second, sends late by {} (p99.9)",
        generator.cpu_fraction * 100.0,
        show_count(per_cpu_second as u64),
        show_ns(generator.send_lateness.quantile(0.999) as f64)
    )?;
    for agent in &outcome.agents {
        writeln!(
            text,
            "  agent      {}: {} answered, {:.0} % of a CPU, sends late by {} (p99.9), clock known to {}",
            agent.address,
            show_count(agent.answered),
            agent.cpu_fraction * 100.0,
            show_ns(agent.late_p999_ns as f64),
            show_ns(agent.clock_error_ns as f64)
        )?;
    }
    let [steal, pressure, load] = outcome.noise.words();
    writeln!(text, "  machine    steal {steal}, CPU pressure {pressure}, load {load}")?;
    for warning in &outcome.warnings {
        writeln!(text, "  warning    {warning}")?;
    }
    Ok(())
}

/// How many connections there were; without keep-alive none is open between requests.
fn connections(plan: &Plan, outcome: &Outcome) -> String {
    match (outcome.connections, plan.connections) {
        (_, wanted) if !plan.keep_alive => {
            format!("{wanted} at a time, a connection for each request")
        }
        (open, wanted) if open == wanted => show_number_of(wanted as u64, "connection"),
        (_, wanted) if outcome.reconnects * 2 > outcome.sent => {
            format!("{wanted} connections at a time, {} reopened", show_count(outcome.reconnects))
        }
        (open, wanted) => format!("{open} of {wanted} connections open at the end"),
    }
}

/// A line for each latency, or on a narrow terminal a column.
fn write_percentiles(
    text: &mut String,
    latencies: &[(&str, &Nanoseconds)],
    width: usize,
) -> std::fmt::Result {
    let shares = PERCENTILES.map(|(_, share)| share);
    if WIDTH_OF_PERCENTILES < width {
        let names = PERCENTILES.map(|(name, _)| format!(" {name:>10}")).concat();
        writeln!(text, "            {names}")?;
        for (name, histogram) in latencies {
            let row = shares.map(|share| format!(" {:>10}", show_quantile(histogram, share)));
            writeln!(text, "  {name:<10}{}", row.concat())?;
        }
        return Ok(());
    }
    let names: String = latencies.iter().map(|(name, _)| format!(" {name:>10}")).collect();
    writeln!(text, "            {names}")?;
    for (percentile, share) in PERCENTILES {
        let cells = latencies.iter().map(|(_, it)| format!(" {:>10}", show_quantile(it, share)));
        writeln!(text, "  {percentile:<10}{}", cells.collect::<String>())?;
    }
    Ok(())
}

const PERCENTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
/// Of a line for each latency.
const WIDTH_OF_PERCENTILES: usize = 12 + 11 * PERCENTILES.len();

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::terminal::wrapped;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        load: Load,
    }

    fn times(words: &[&str]) -> (Duration, Duration) {
        let words = ["load", "http://127.0.0.1:1/"].iter().chain(words);
        let plan = Words::parse_from(words).load.plan().unwrap();
        (plan.warmup, plan.duration)
    }

    #[test]
    fn a_summary_fits_its_terminal() {
        let origin = crate::origin::Origin::http("127.0.0.1:0".parse().unwrap(), 10);
        let server = crate::origin::spawn(&origin).unwrap();
        let mut plan = Plan::new(server.address().clone().into());
        plan.arrivals = Spacing::Paced.at(200.0);
        (plan.duration, plan.pids) = (Duration::from_millis(100), vec![std::process::id()]);
        let mut outcome = load::run(&plan).unwrap();
        outcome.warnings.push("a reason to doubt these figures, at some length ".repeat(3));
        for width in [40, 60, 80] {
            let text = wrapped(&summary(&plan, &outcome, width), width);
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest < Some(width), "{width}: {text}");
            // No figure stands apart from its unit or from the percentile's name.
            let has_row =
                |line: &str| line.starts_with("  p99.9") || line.contains("p99.9        max");
            assert!(text.lines().any(has_row), "{width}: {text}");
        }
    }

    #[test]
    fn a_call_of_grpc_has_its_method_for_a_path_and_http_2() {
        let plan = |target: &str, words: &[&str]| {
            let words = [&["load", target], words].concat();
            Words::parse_from(words).load.plan().map_err(|error| error.to_string())
        };
        let here = "http://127.0.0.1:1";
        for words in [&["--grpc", "a.B/C"][..], &["--grpc", "/a.B/C", "--protocol", "h2"]] {
            let plan = plan(here, words).unwrap();
            assert_eq!(
                (plan.protocol, plan.url().as_str()),
                (load::Protocol::Http2, "http://127.0.0.1:1/a.B/C")
            );
        }
        let no = |target: &str, words: &[&str]| plan(target, words).unwrap_err();
        assert!(no(here, &["--grpc", "a.B"]).contains("'a.B' is no SERVICE/METHOD"));
        assert!(no(here, &["--grpc", "a/b", "--protocol", "h1"]).contains("over HTTP/2"));
        assert!(no("http://127.0.0.1:1/x", &["--grpc", "a/b"]).contains("/x has no place"));
    }

    #[test]
    fn a_recording_is_measured_from_its_first_request_to_its_last() {
        let path = std::env::temp_dir().join(format!("towpath-arrivals-{}", std::process::id()));
        std::fs::write(&path, "0.1\n0.9\n0.2\n").unwrap();
        let file = ["--arrivals-file", path.to_str().unwrap()];
        let ms = Duration::from_millis;
        assert_eq!(times(&file), (Duration::ZERO, ms(901)));
        assert_eq!(times(&[file[0], file[1], "--warmup", "500ms"]), (ms(500), ms(401)));
        assert_eq!(times(&[file[0], file[1], "-d", "3s"]), (Duration::ZERO, ms(3000)));
        assert_eq!(times(&["--rate", "5"]), (ms(1000), ms(10_000)));
        std::fs::remove_file(path).unwrap();
    }
}
