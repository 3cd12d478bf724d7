//! Another generator beside this one: do both charge a server the same?
//!
//! A server costs less per request when requests come in bunches, and every generator bunches them in its
//! own way, so two rulers agree only as far as their arrivals do. Here both run the same closed loop, or the same
//! rate, against the same processes, in turns, and both send the same request: a field more costs a server time.

mod apart;
mod bunching;
mod ghz;
mod recording;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

pub use bunching::{Bunching, LARGEST, Quartiles};
use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;
use towpath_proto::http2::{Arrival, Code, Connection};
use towpath_proto::{Event, Head, HeadPool, Out};

use crate::head::HEAD_LIMIT;
use crate::load::{Arrivals, Plan, Protocol, run};
use crate::meter::{Cost, Meter, SyscallMeter};
use crate::random::Random;
use crate::results;
use crate::stats::{Effect, Interval, Pair, balanced_order, paired_effect};

/// A generator that others trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// `wrk`.
    Wrk,
    /// nghttp2's `h2load`: of these the only one that is compared over HTTP/2, but for gRPC.
    H2load,
    /// `oha`.
    Oha,
    /// `vegeta`.
    Vegeta,
    /// `ghz`: the only one that calls gRPC.
    Ghz,
}

/// How this generator is made like the other, beside sending the same request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Likeness {
    /// It sends when the other sends, by a recording of it at a listener in the server's place.
    pub arrivals: bool,
    /// It takes as much CPU time over each request.
    pub work: bool,
    /// Both are kept off the server's processor, which is one alone.
    pub place: bool,
}

/// What both found.
#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// Each round: CPU nanoseconds of the server for a request of the other generator, and of this one.
    pub rounds: Vec<(f64, f64)>,
    /// This generator's figure against the other's.
    pub effect: Effect,
    /// What the other generator sends of its own with each request, and this one sent as well: names and values.
    pub fields: Vec<(String, String)>,
    /// System calls of the server for a request, in the same order, where they may be counted. The more
    /// requests come in one bunch, the fewer: this shows how alike the arrivals are, whatever the machine is doing.
    pub syscalls: Option<(f64, f64)>,
    /// How often the server went to sleep for a request, in the same order and in the rounds themselves: it sleeps
    /// once for each bunch that finds nothing left to do.
    pub sleeps: (f64, f64),
    /// How the requests came, in the same order, to a listener in the server's place; of HTTP/1.1 at a rate.
    pub bunching: Option<(Bunching, Bunching)>,
    /// Requests in the recording that this generator sent by, if it did.
    pub recorded: Option<usize>,
    /// Whether both were kept off the server's processor.
    pub apart: bool,
    /// How long this generator was busy over each request to be like the other, if it was, in nanoseconds.
    pub busy_ns: Option<u64>,
}

/// Runs `plan`, a closed loop or a common rate, and the other generator in turns.
pub fn compare(
    other: Other,
    program: &Path,
    plan: &Plan,
    likeness: Likeness,
    rounds: usize,
    progress: &mut dyn FnMut(&str),
) -> io::Result<Agreement> {
    other.check(plan).and_then(|()| likeness.check(plan)).map_err(io::Error::other)?;
    let _apart = if likeness.place { Some(apart::Apart::put(&plan.pids)?) } else { None };
    progress(&format!("the fields of {}", other.name()));
    let fields = own_fields(other, program, plan)?;
    let mut like = plan.clone();
    like.request.headers.clone_from(&fields);
    let rate = rate_of(plan).filter(|_| plan.protocol == Protocol::Http1);
    let starts = match rate {
        Some(_) => {
            progress(&format!("when {} sends", other.name()));
            let run = |probe: &Plan| {
                other.run(program, probe).map(|_| ()).map_err(|error| cannot_run(other, &error))
            };
            Some(record(plan, run)?)
        }
        None => None,
    };
    let mut recorded = None;
    if let Some(starts) = starts.clone().filter(|_| likeness.arrivals) {
        recorded = Some(starts.len());
        like.arrivals = Arrivals::Recorded { starts };
        like.awake = AWAKE;
    }
    let mut busy_ns = None;
    if likeness.work {
        progress(&format!("how long {} takes over a request", other.name()));
        let busy = more_work(other, program, plan, &like)?;
        busy_ns = Some(busy);
        like.busy = Duration::from_nanos(busy);
    }
    let bunching = match (rate, starts) {
        (Some(rate), Some(theirs)) => {
            progress("when this generator sends");
            let ours = record(&like, |probe| run(probe).map(|_| ()).map_err(io::Error::other))?;
            Bunching::of(&theirs, rate).zip(Bunching::of(&ours, rate))
        }
        (_, _) => None,
    };
    let (mut pairs, mut sleeps) = (Vec::new(), (0.0, 0.0));
    for (round, is_ours_first) in
        balanced_order(rounds, &mut Random::fresh()).into_iter().enumerate()
    {
        progress(&format!("round {} of {rounds}", round + 1));
        let early = if is_ours_first { Some(ours(&like)?) } else { None };
        let theirs = theirs_cost(other, program, plan)?;
        let ours = early.map_or_else(|| ours(&like), Ok)?;
        pairs.push(Pair { a: theirs.cpu_ns, b: ours.cpu_ns, is_b_first: is_ours_first });
        sleeps.0 += theirs.sleeps / rounds as f64;
        sleeps.1 += ours.sleeps / rounds as f64;
    }
    let effect = paired_effect(&pairs, plan.seed)
        .ok_or_else(|| io::Error::other("three rounds at least are needed"))?;
    progress("system calls");
    let syscalls = count_syscalls(other, program, plan, &like).ok();
    let rounds = pairs.into_iter().map(|pair| (pair.a, pair.b)).collect();
    let apart = likeness.place;
    Ok(Agreement { rounds, effect, fields, syscalls, sleeps, bunching, recorded, apart, busy_ns })
}

impl Likeness {
    /// Whether this generator can be made so like another one that does as the plan says.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(self, plan: &Plan) -> Result<(), String> {
        if self.arrivals && (plan.protocol != Protocol::Http1 || !plan.arrivals.is_open()) {
            return Err(
                "another generator's sending is recorded over HTTP/1.1, at a rate".to_owned()
            );
        }
        Ok(())
    }
}

/// When a generator that carries out the plan sends its requests, from the first on.
fn record(
    plan: &Plan,
    generate: impl FnOnce(&Plan) -> io::Result<()>,
) -> io::Result<Vec<Duration>> {
    let server =
        plan.pids.first().ok_or_else(|| io::Error::other("there is no process to charge"))?;
    let recorder = recording::Recorder::launch(*server)?;
    let mut probe = plan.clone();
    probe.pids.clear();
    probe.target = format!("http://{}/", recorder.address).parse().map_err(io::Error::other)?;
    let ran = generate(&probe);
    let starts = recorder.finish()?;
    ran?;
    match starts.last() {
        Some(last) if *last > plan.duration / 2 => Ok(starts),
        Some(_) | None => {
            Err(io::Error::other("too little was sent to a listener of this program's"))
        }
    }
}

/// How much more CPU time the other generator takes over a request than this one, in nanoseconds.
fn more_work(other: Other, program: &Path, plan: &Plan, like: &Plan) -> io::Result<u64> {
    let spent = || -> io::Result<i64> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        Ok(usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds())
    };
    let before = spent()?;
    let count = theirs(other, program, plan)?;
    let theirs = (spent()? - before) as f64 / count as f64;
    let outcome = run(like).map_err(io::Error::other)?;
    let ours = outcome.generator.cpu_ns as f64 / outcome.answered.max(1) as f64;
    Ok((theirs - ours).max(0.0) as u64)
}

impl Agreement {
    /// How many rounds would tell whether both are within `within` (0.1 is ten percent) of each other, if they
    /// scatter as these did; `None` when the estimate lies on the boundary.
    pub fn rounds_needed(&self, within: f64) -> Option<usize> {
        let Interval { estimate, low, high } = self.effect.ratio;
        let (off, limit) = (estimate.ln().abs(), (1.0 + within).ln());
        let reach = (high / low).ln() / 2.0;
        // Agreement needs the interval within the limit, disagreement needs it to leave out 1.
        let room = if off < limit { limit - off } else { off };
        let rounds = (self.effect.pairs as f64 * (reach / room).powi(2)).ceil();
        (rounds <= MOST_ROUNDS).then_some((rounds as usize).max(FEWEST_ROUNDS))
    }
}

/// The others are awake for a whole bunch: between its requests they work.
const AWAKE: Duration = Duration::from_micros(150);
/// More would take hours.
const MOST_ROUNDS: f64 = 1000.0;
/// How often the other generator is asked for a request.
const MOST_PROBES: usize = 3;
/// Fewer pairs can be ordered in too few ways to exclude chance at 5 %.
const FEWEST_ROUNDS: usize = 7;

/// The fields of a request that the other generator sends to a listener of ours, but for those that each makes itself.
/// On a busy machine a run may be over before it has sent anything.
fn own_fields(other: Other, program: &Path, plan: &Plan) -> io::Result<Vec<(String, String)>> {
    for _ in 1..MOST_PROBES {
        let fields = probe_fields(other, program, plan)?;
        if !fields.is_empty() {
            return Ok(fields);
        }
    }
    probe_fields(other, program, plan)
}

fn probe_fields(other: Other, program: &Path, plan: &Plan) -> io::Result<Vec<(String, String)>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut probe = plan.clone();
    probe.target = format!("http://{address}/").parse().map_err(io::Error::other)?;
    if plan.request.is_grpc() {
        probe.target.path.clone_from(&plan.target.path);
    }
    (probe.connections, probe.duration) = (1, Duration::from_secs(1));
    if !matches!(probe.arrivals, Arrivals::Closed) {
        // ghz waits for one interval before its first call: it must be well within the run.
        probe.arrivals = Arrivals::Paced { rate: 10.0 };
    }
    let is_http2 = plan.protocol == Protocol::Http2;
    let head = std::thread::spawn(move || {
        if is_http2 {
            first_stream(&listener)
        } else {
            first_head(&listener).map(|head| fields_of(&head))
        }
    });
    let ran = other.run(program, &probe);
    // Where nothing was sent the listener still waits.
    let _ = TcpStream::connect(address);
    let head = head.join().map_err(|_| io::Error::other("the listener ended early"))?;
    ran.map_err(|error| cannot_run(other, &error))?;
    head
}

/// The fields of the first request that comes over HTTP/2, but for those that each generator makes itself.
fn first_stream(listener: &TcpListener) -> io::Result<Vec<(String, String)>> {
    let mut stream = listener.accept()?.0;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut codec = Connection::server(Arc::default());
    let (mut heads, mut out, mut chunk) = (HeadPool::new(1), Out::new(), [0; 4096]);
    let mut fields = Vec::new();
    loop {
        codec.flush(&mut out);
        for part in out.drain() {
            stream.write_all(&part)?;
        }
        if !fields.is_empty() {
            return Ok(fields);
        }
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Ok(fields);
        }
        codec.receive(Bytes::copy_from_slice(&chunk[..length]));
        while let Some((number, arrival)) = codec.poll(&mut heads).map_err(io::Error::other)? {
            if let Arrival::Part(Event::Head { head, .. }) = arrival {
                fields = own_of(head.iter().map(|field| (field.name_bytes, field.value)));
                codec.send_head(number, &Head::response(200), true, &mut out);
                codec.release(number);
                codec.go_away(Code::NO_ERROR);
            }
        }
    }
}

fn own_of<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.map(|(name, value)| (text(name), text(value))).filter(|(name, _)| is_own(name)).collect()
}

/// The head of the first request that comes.
fn first_head(listener: &TcpListener) -> io::Result<String> {
    let mut stream = listener.accept()?.0;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_LIMIT && stream.read(&mut byte)? > 0 {
        head.extend(byte);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn fields_of(head: &str) -> Vec<(String, String)> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let fields = fields.filter(|(name, _)| is_own(name));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn is_own(name: &str) -> bool {
    ["host", "content-length"].iter().all(|of_each| !name.eq_ignore_ascii_case(of_each))
}

fn cannot_run(other: Other, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot run {}: {error}", other.name()))
}

impl Other {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::H2load => "h2load",
            Self::Oha => "oha",
            Self::Vegeta => "vegeta",
            Self::Ghz => "ghz",
        }
    }

    /// Whether it can do as the plan says.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(self, plan: &Plan) -> Result<(), String> {
        self.arguments(plan).map(|_| ())
    }

    /// What makes it do as the plan says.
    fn arguments(self, plan: &Plan) -> Result<Vec<String>, String> {
        let (seconds, count) = (plan.duration.as_secs().max(1), plan.connections);
        let rate = rate_of(plan);
        if rate.is_none() && plan.arrivals != Arrivals::Closed {
            return Err("other generators have a closed loop or a common rate".to_owned());
        }
        if self != Self::Ghz && plan.request.is_grpc() {
            return Err("calls of gRPC are compared with ghz".to_owned());
        }
        if !matches!(self, Self::H2load | Self::Ghz) && plan.protocol == Protocol::Http2 {
            return Err("HTTP/2 is compared with h2load".to_owned());
        }
        let protocol = match plan.protocol {
            Protocol::Http2 => format!("-m{}", plan.in_flight),
            Protocol::Http1 | Protocol::Tcp | Protocol::WebSocket | Protocol::Bolt => {
                "--h1".to_owned()
            }
        };
        let words = match (self, rate) {
            (Self::Wrk, None) => format!("-t1 -c{count} -d{seconds}s"),
            (Self::Wrk, Some(_)) => return Err("wrk has no rate".to_owned()),
            (Self::H2load, None) => format!("{protocol} -t1 -c{count} -D{seconds}"),
            (Self::H2load, Some(rate)) => {
                let each = rate / count as f64;
                if each.fract() != 0.0 {
                    return Err("h2load has a whole rate for each connection".to_owned());
                }
                format!("{protocol} -t1 -c{count} -D{seconds} --rps {each}")
            }
            (Self::Oha, None) => format!("--no-tui -c {count} -z {seconds}s"),
            (Self::Oha, Some(rate)) => format!("--no-tui -c {count} -z {seconds}s -q {rate}"),
            // Rate 0 is as fast as the workers get answers.
            (Self::Vegeta, rate) => format!(
                "attack -duration {seconds}s -rate {} -workers {count} -max-workers {count} -connections {count}",
                rate.unwrap_or(0.0)
            ),
            (Self::Ghz, _) => return ghz::arguments(plan),
        };
        let url = (self != Self::Vegeta).then(|| plan.url());
        Ok(words.split(' ').map(str::to_owned).chain(url).collect())
    }

    /// Runs it once and gives what it prints.
    fn run(self, program: &Path, plan: &Plan) -> io::Result<Output> {
        let mut command = Command::new(program);
        command.args(self.arguments(plan).map_err(io::Error::other)?);
        if self == Self::Ghz {
            let description = ghz::Description::write(plan)?;
            return command.arg("--proto").arg(description.file()).output();
        }
        if self != Self::Vegeta {
            return command.output();
        }
        // Targets come on its input, and a second run of it reads what the first wrote.
        let mut attack = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        if let Some(mut targets) = attack.stdin.take() {
            writeln!(targets, "GET {}", plan.url())?;
        }
        let Some(results) = attack.stdout.take() else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let report =
            Command::new(program).args(["report", "-type", "json"]).stdin(results).output();
        attack.wait()?;
        report
    }
}

/// What the server did for a request.
struct PerRequest {
    cpu_ns: f64,
    sleeps: f64,
}

impl PerRequest {
    fn of(cost: &Cost, count: u64) -> Self {
        let each = |sum: u64| sum as f64 / count as f64;
        Self { cpu_ns: each(cost.cpu_ns), sleeps: each(cost.voluntary_switches) }
    }
}

/// The rate that all connections have in common.
fn rate_of(plan: &Plan) -> Option<f64> {
    match &plan.arrivals {
        Arrivals::Paced { rate }
        | Arrivals::Poisson { rate }
        | Arrivals::Bunched { rate, .. }
        | Arrivals::Ticked { rate, .. } => Some(*rate),
        Arrivals::Closed
        | Arrivals::ClosedCapped { .. }
        | Arrivals::PerConnection { .. }
        | Arrivals::Recorded { .. } => None,
    }
}

fn ours(plan: &Plan) -> io::Result<PerRequest> {
    let outcome = run(plan).map_err(io::Error::other)?;
    let target = outcome.target.filter(|target| target.answered > 0);
    let target = target.ok_or_else(|| io::Error::other("the server answered nothing"))?;
    Ok(PerRequest::of(&target.cost, target.answered))
}

fn theirs_cost(other: Other, program: &Path, plan: &Plan) -> io::Result<PerRequest> {
    let meter = Meter::begin(&plan.pids).map_err(io::Error::other)?;
    let count = theirs(other, program, plan)?;
    Ok(PerRequest::of(&meter.cost(), count))
}

/// Runs the other generator once and gives the number of its requests.
fn theirs(other: Other, program: &Path, plan: &Plan) -> io::Result<u64> {
    let name = other.name();
    let output = other.run(program, plan).map_err(|error| cannot_run(other, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = results::read(&text);
    let failed = figures.as_ref().and_then(|figures| figures.errors).unwrap_or(0.0);
    let said: String = text.trim().chars().take(MOST_SAID).collect();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if other == Other::Ghz && failed > 0.0 {
        return Err(io::Error::other(format!("calls of {name} failed: {said} {}", stderr.trim())));
    }
    match figures.and_then(|figures| figures.requests).map(|count| count as u64) {
        Some(count @ 1..) => Ok(count),
        Some(0) | None => {
            Err(io::Error::other(format!("{name} made no request: {said} {}", stderr.trim())))
        }
    }
}

/// ghz names every call that it made behind what they come to.
const MOST_SAID: usize = 2000;

/// A run of each in which only system calls are counted, because counting slows the server down.
fn count_syscalls(
    other: Other,
    program: &Path,
    plan: &Plan,
    like: &Plan,
) -> io::Result<(f64, f64)> {
    let family = Meter::begin(&plan.pids).map_err(io::Error::other)?.family();
    let mut meter = SyscallMeter::begin(&family)?;
    let count = theirs(other, program, plan)?;
    let theirs = meter.count()? as f64 / count as f64;
    let mut meter = SyscallMeter::begin(&family)?;
    let outcome = run(like).map_err(io::Error::other)?;
    Ok((theirs, meter.count()? as f64 / outcome.answered.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Spacing;

    #[test]
    fn the_fields_of_a_head_are_those_that_are_its_senders_own() {
        let head = "GET / HTTP/1.1\r\nHost: a:1\r\nuser-agent: b/2: c\r\ncontent-length: 0\r\naccept: */*\r\n\r\n";
        let fields = fields_of(head);
        let wanted = [("user-agent", "b/2: c"), ("accept", "*/*")];
        assert_eq!(fields, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(fields_of("").is_empty());
    }

    #[test]
    fn the_fields_of_a_stream_are_heard_as_well() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = std::thread::spawn(move || first_stream(&listener));
        let mut plan = Plan::new(format!("http://{address}/").parse().unwrap());
        (plan.protocol, plan.connections) = (Protocol::Http2, 1);
        plan.duration = Duration::from_millis(100);
        plan.request.headers.push(("User-Agent".to_owned(), "us".to_owned()));
        plan.request.body = b"body".to_vec();
        // The listener serves one connection alone.
        let _ = run(&plan).unwrap();
        assert_eq!(heard.join().unwrap().unwrap(), [("user-agent".to_owned(), "us".to_owned())]);
    }

    #[test]
    fn rounds_that_cannot_tell_say_how_many_would() {
        let of = |low: f64, high: f64| Agreement {
            rounds: Vec::new(),
            effect: Effect {
                ratio: Interval { estimate: (low * high).sqrt(), low, high },
                p: 0.5,
                pairs: 10,
            },
            fields: Vec::new(),
            syscalls: None,
            sleeps: (0.5, 0.5),
            bunching: None,
            recorded: None,
            apart: false,
            busy_ns: None,
        };
        let limit = 1.1_f64.ln();
        // Twice as wide as it may be: four times as many.
        let wide = (2.0 * limit).exp();
        assert_eq!(of(1.0 / wide, wide).rounds_needed(0.1), Some(40));
        // Half as wide is more than enough, and fewer than seven never are.
        assert_eq!(of(0.98, 1.02).rounds_needed(0.1), Some(7));
        // Some 20 % apart, and an interval that reaches below 1.
        assert!(of(0.97, 1.48).rounds_needed(0.1).is_some_and(|rounds| (11..20).contains(&rounds)));
        assert_eq!(of(1.0, 1.1_f64.powi(2)).rounds_needed(0.1), Some(10));
        assert_eq!(of(0.1, 10.0).rounds_needed(0.001), None);
    }

    #[test]
    fn sending_is_recorded_at_a_rate_over_http_1() {
        let mut plan = Plan::new("http://127.0.0.1:80/x".parse().unwrap());
        let likeness = Likeness { arrivals: true, work: true, place: false };
        assert!(likeness.check(&plan).is_err());
        assert!(Likeness { arrivals: false, ..likeness }.check(&plan).is_ok());
        plan.arrivals = "ticks:1.17ms".parse::<Spacing>().unwrap().at(2000.0);
        let tick = Duration::from_micros(1170);
        assert_eq!(plan.arrivals, Arrivals::Ticked { rate: 2000.0, tick });
        assert!(likeness.check(&plan).is_ok());
        plan.protocol = Protocol::Http2;
        assert!(likeness.check(&plan).is_err());
        for text in ["ticks:0", "ticks:2s", "ticks", "ticks:x", "tick:1ms"] {
            assert!(text.parse::<Spacing>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_others_are_asked_for_the_same() {
        let mut plan = Plan::new("http://127.0.0.1:80/x".parse().unwrap());
        plan.connections = 20;
        let words = |other: Other, plan: &Plan| other.arguments(plan).map(|words| words.join(" "));
        assert_eq!(words(Other::Wrk, &plan).unwrap(), "-t1 -c20 -d10s http://127.0.0.1:80/x");
        assert_eq!(
            words(Other::Oha, &plan).unwrap(),
            "--no-tui -c 20 -z 10s http://127.0.0.1:80/x"
        );
        plan.arrivals = Arrivals::Bunched { rate: 2000.0, size: 20 };
        assert_eq!(
            words(Other::H2load, &plan).unwrap(),
            "--h1 -t1 -c20 -D10 --rps 100 http://127.0.0.1:80/x"
        );
        (plan.protocol, plan.in_flight) = (Protocol::Http2, 32);
        assert_eq!(
            words(Other::H2load, &plan).unwrap(),
            "-m32 -t1 -c20 -D10 --rps 100 http://127.0.0.1:80/x"
        );
        assert!(words(Other::Oha, &plan).is_err());
        assert!(words(Other::Ghz, &plan).is_err());
        let mut call = plan.clone();
        call.request.make_grpc();
        let why = words(Other::H2load, &call).unwrap_err();
        assert_eq!(why, "calls of gRPC are compared with ghz");
        plan.protocol = Protocol::Http1;
        assert!(words(Other::Oha, &plan).unwrap().contains("-q 2000"));
        assert!(
            words(Other::Vegeta, &plan).unwrap().contains("-rate 2000 -workers 20 -max-workers 20")
        );
        assert_eq!(words(Other::Wrk, &plan).unwrap_err(), "wrk has no rate");
        plan.arrivals = Arrivals::Paced { rate: 2010.0 };
        assert!(words(Other::H2load, &plan).is_err());
    }
}
