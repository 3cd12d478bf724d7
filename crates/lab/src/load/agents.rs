//! One plan on several machines: an agent runs on each and carries out its part when it is told to.
//!
//! Connections and arrivals are divided as among threads, so that the schedule is that of one generator. The agents'
//! clocks are compared with this machine's before the start and after the end, and all start at one instant. Counts are
//! added up and histograms merged, so that percentiles are those of all requests.

mod serve;
mod wire;

use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use serde::Serialize;

pub use self::serve::{Agent, serve};
use self::wire::{Order, Reply, Wire, write};
use super::account::{Account, Tally};
use super::outcome::{Noise, Outcome, Progress};
use super::{LoadError, Plan, Share};

/// What one machine did of a plan.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AgentOutcome {
    /// Where it listens.
    pub address: String,
    /// Its processors and kernel.
    pub machine: String,
    /// Answers within the measured time, right or not.
    pub answered: u64,
    /// Requests that came to nothing.
    pub errors: u64,
    /// The share of one CPU that its busiest thread used.
    pub cpu_fraction: f64,
    /// How late it sent at the 99.9th percentile, although a connection was free.
    pub late_p999_ns: u64,
    /// How well its clock is known: half the shortest round trip.
    pub clock_error_ns: u64,
    /// How much its clock ran ahead of this machine's from the start to the end.
    pub clock_drift_ns: i64,
    /// What else its machine was doing.
    pub noise: Noise,
}

impl AgentOutcome {
    /// Why its part may not have been in time with the others.
    pub(super) fn doubt(&self) -> Option<String> {
        let off = self.clock_error_ns.max(self.clock_drift_ns.unsigned_abs());
        (off > CLOCK_LIMIT_NS).then(|| {
            let ms = off as f64 / 1e6;
            format!(
                "the clock of agent {} is only known to {ms:.1} ms: its part may be that early or \
                late",
                self.address
            )
        })
    }
}

/// Carries out a plan on these agents (HOST:PORT). The processes of `plan.pids` are this machine's.
///
/// # Errors
/// When the plan makes no sense, or when an agent cannot be reached, refuses, or fails; the others stop then.
pub fn run(
    plan: &Plan,
    agents: &[String],
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    plan.check()?;
    if plan.count_syscalls {
        return Err(LoadError::Plan("system calls are counted without agents"));
    }
    if !(1..=AGENT_LIMIT).contains(&agents.len()) || agents.len() * plan.threads > plan.connections
    {
        return Err(LoadError::Plan(
            "there are between 1 and 1,000 agents, and a connection for each of their threads",
        ));
    }
    let clock = Instant::now();
    let mut lines: Vec<Line> =
        agents.iter().map(|address| Line::open(address)).collect::<Result<_, _>>()?;
    for (index, line) in lines.iter_mut().enumerate() {
        line.say(&Order::Prepare(Box::new(part(plan, index, agents.len()))))?;
    }
    for line in &mut lines {
        line.await_ready(plan.timeout + PATIENCE)?;
    }
    for line in &mut lines {
        line.reading = line.compare(clock)?;
    }
    // Late enough for the farthest to have heard of it.
    let farthest = lines.iter().map(|line| line.reading.error_ns * 2).max().unwrap_or(0);
    let epoch = clock.elapsed() + Duration::from_nanos(farthest * 2) + NOTICE;
    for line in &mut lines {
        line.start(epoch.as_nanos() as u64)?;
    }
    let (events, heard) = mpsc::channel();
    for (index, line) in lines.iter_mut().enumerate() {
        line.listen(index, &events)?;
    }
    let mut outcome = follow(plan, clock, epoch, &mut lines, &heard, observer)?;
    outcome.judge(plan);
    Ok(outcome)
}

/// What one of so many machines has to do.
fn part(plan: &Plan, index: usize, of: usize) -> Plan {
    let mut share = Share::new(index, of);
    share.all_connections = Some(plan.connections);
    Plan {
        connections: share.part_of(plan.connections),
        share,
        pids: Vec::new(),
        payers: Vec::new(),
        ..plan.clone()
    }
}

/// Watches this machine's processes while the agents work, and adds up what they tell.
fn follow(
    plan: &Plan,
    clock: Instant,
    epoch: Duration,
    lines: &mut [Line],
    heard: &Receiver<(usize, Event)>,
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    let mut room = Room { lines, observer };
    let mut account = Account::new(plan);
    let begin = clock + epoch + plan.warmup;
    let end = begin + plan.duration;
    room.hear(heard, begin, false)?;
    account.begin()?;
    room.hear(heard, end, false)?;
    account.end(0, 0);
    room.hear(heard, end + super::run::DRAIN_AT_MOST + PATIENCE, true)?;
    let mut sum = account.finish(Tally::new(plan));
    sum.connections_wanted = 0;
    for line in lines {
        let own = line.done.take().ok_or_else(|| line.failed("did not report"))?;
        let told = line.told(&own, clock)?;
        sum.agents.push(told);
        sum.join(&own);
    }
    sum.intended_rps = plan.intended_rps();
    Ok(sum)
}

/// The agents at work, and what shows their progress.
struct Room<'l, 'o> {
    lines: &'l mut [Line],
    observer: Option<&'o mut dyn FnMut(&Progress)>,
}

impl Room<'_, '_> {
    /// Takes what agents say until then, or until all have reported.
    fn hear(
        &mut self,
        heard: &Receiver<(usize, Event)>,
        until: Instant,
        is_over: bool,
    ) -> Result<(), LoadError> {
        while !is_over || self.lines.iter().any(|line| line.done.is_none()) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((index, event)) = heard.recv_timeout(left) else { return Ok(()) };
            let line = &mut self.lines[index];
            match event {
                Event::Progress(progress) => {
                    line.progress = Some(progress);
                    self.show(index);
                }
                Event::Done(done, wire) => (line.done, line.wire) = (Some(done), Some(wire)),
                Event::Failed(why) => return Err(line.failed(why)),
            }
        }
        Ok(())
    }

    /// Rates and errors of all, and the latencies of the slowest, each time that the first tells.
    fn show(&mut self, index: usize) {
        let Some(observer) = self.observer.as_mut().filter(|_| index == 0) else { return };
        let all = || self.lines.iter().filter_map(|line| line.progress);
        let Some(slowest) = all().max_by_key(|it| it.latency.p99) else { return };
        let sum = Progress {
            rps: all().map(|it| it.rps).sum(),
            errors: all().map(|it| it.errors).sum(),
            ..slowest
        };
        observer(&sum);
    }
}

/// What an agent said while it was at work.
enum Event {
    Progress(Progress),
    Done(Box<Outcome>, Wire),
    Failed(String),
}

/// The connection with one agent; when it is dropped, the agent stops.
struct Line {
    address: String,
    machine: String,
    stream: TcpStream,
    /// Not here while a thread listens.
    wire: Option<Wire>,
    reading: Reading,
    progress: Option<Progress>,
    done: Option<Box<Outcome>>,
}

/// How an agent's clock compares with this machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    /// What it says more than this one.
    ahead_ns: i64,
    error_ns: u64,
}

impl Line {
    fn open(address: &str) -> Result<Self, LoadError> {
        let failed = |error: io::Error| LoadError::Agent {
            address: address.to_owned(),
            why: error.to_string(),
        };
        let mut found = address.to_socket_addrs().map_err(failed)?;
        let socket = found.next().ok_or_else(|| failed(io::Error::other("has no address")))?;
        let stream = TcpStream::connect_timeout(&socket, CONNECT).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let wire = Wire::new(stream.try_clone().map_err(failed)?);
        let mut line = Self {
            address: address.to_owned(),
            machine: String::new(),
            stream,
            wire: Some(wire),
            reading: Reading::default(),
            progress: None,
            done: None,
        };
        let reply = line.hear(CONNECT).map_err(|error| {
            let why =
                if let LoadError::Agent { why, .. } = error { why } else { error.to_string() };
            line.failed(format!("no `towpath lab agent` answers there ({why})"))
        })?;
        let Reply::Hello { version, machine } = reply else { return Err(line.unexpected(&reply)) };
        if version != serve::VERSION {
            return Err(line.failed(format!("is version {version}, this is {}", serve::VERSION)));
        }
        line.machine = machine;
        Ok(line)
    }

    fn say(&self, order: &Order) -> Result<(), LoadError> {
        write(&self.stream, order).map_err(|error| self.failed(error))
    }

    fn hear(&mut self, patience: Duration) -> Result<Reply, LoadError> {
        let heard = self.wire.as_mut().map_or(Ok(None), |wire| wire.read(Some(patience)));
        let why = |error: io::Error| {
            let is_late =
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            let silent = format!("said nothing for {} s", patience.as_secs());
            self.failed(if is_late { silent } else { error.to_string() })
        };
        heard.map_err(why)?.ok_or_else(|| self.failed("hung up"))
    }

    fn await_ready(&mut self, patience: Duration) -> Result<(), LoadError> {
        let reply = self.hear(patience)?;
        if matches!(reply, Reply::Ready) { Ok(()) } else { Err(self.unexpected(&reply)) }
    }

    /// The shortest of some round trips says most about the other clock.
    fn compare(&mut self, clock: Instant) -> Result<Reading, LoadError> {
        let mut best: Option<Reading> = None;
        for _ in 0..READINGS {
            let asked = clock.elapsed().as_nanos() as u64;
            self.say(&Order::Clock)?;
            let reply = self.hear(PATIENCE)?;
            let Reply::Clock { now_ns } = reply else { return Err(self.unexpected(&reply)) };
            let reading = Reading::of(asked, now_ns, clock.elapsed().as_nanos() as u64);
            best = best.filter(|best| best.error_ns <= reading.error_ns).or(Some(reading));
        }
        best.ok_or_else(|| self.failed("has no clock"))
    }

    fn start(&self, at_ns: u64) -> Result<(), LoadError> {
        let at_ns = at_ns.saturating_add_signed(self.reading.ahead_ns);
        self.say(&Order::Start { at_ns })
    }

    /// Hears what it says on a thread of its own, until it has reported.
    fn listen(&mut self, index: usize, events: &Sender<(usize, Event)>) -> Result<(), LoadError> {
        let Some(mut wire) = self.wire.take() else { return Err(self.failed("hung up")) };
        let events = events.clone();
        std::thread::spawn(move || {
            loop {
                let event = match wire.read(None) {
                    Ok(Some(Reply::Progress(progress))) => Event::Progress(progress),
                    Ok(Some(Reply::Done(done))) => {
                        let _ = events.send((index, Event::Done(done, wire)));
                        return;
                    }
                    Ok(Some(Reply::Failed(why))) => Event::Failed(why),
                    Ok(Some(Reply::Hello { .. } | Reply::Ready | Reply::Clock { .. })) => {
                        Event::Failed("said what it was not asked".to_owned())
                    }
                    Ok(None) => Event::Failed("hung up".to_owned()),
                    Err(error) => Event::Failed(error.to_string()),
                };
                let is_last = matches!(event, Event::Failed(_));
                if events.send((index, event)).is_err() || is_last {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Compares clocks once more, and tells what the agent did.
    fn told(&mut self, done: &Outcome, clock: Instant) -> Result<AgentOutcome, LoadError> {
        let before = self.reading;
        let after = self.compare(clock)?;
        Ok(AgentOutcome {
            address: self.address.clone(),
            machine: self.machine.clone(),
            answered: done.answered,
            errors: done.errors.total(),
            cpu_fraction: done.generator.cpu_fraction,
            late_p999_ns: done.generator.send_lateness.quantile(0.999),
            clock_error_ns: before.error_ns,
            clock_drift_ns: after.ahead_ns - before.ahead_ns,
            noise: done.noise,
        })
    }

    fn failed(&self, why: impl ToString) -> LoadError {
        LoadError::Agent { address: self.address.clone(), why: why.to_string() }
    }

    fn unexpected(&self, reply: &Reply) -> LoadError {
        if let Reply::Failed(why) = reply {
            return self.failed(why);
        }
        self.failed("said what it was not asked")
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Reading {
    /// From when the other clock was asked for and its answer came, by this one.
    fn of(asked_ns: u64, theirs_ns: u64, came_ns: u64) -> Self {
        let error_ns = came_ns.saturating_sub(asked_ns).div_ceil(2);
        Self { ahead_ns: theirs_ns.wrapping_sub(asked_ns + error_ns).cast_signed(), error_ns }
    }
}

const AGENT_LIMIT: usize = 1000;
/// Round trips by which a clock is read.
const READINGS: usize = 32;
/// The time between the word to start and the start, beyond what it takes to say it.
const NOTICE: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(5);
/// How long a word of an agent is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Beyond this a reading of a clock is told as a reason for doubt.
const CLOCK_LIMIT_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_known_to_half_a_round_trip() {
        let reading = |asked, theirs, came| Reading::of(asked, theirs, came);
        assert_eq!(reading(100, 1150, 200), Reading { ahead_ns: 1000, error_ns: 50 });
        assert_eq!(reading(1000, 60, 1020), Reading { ahead_ns: -950, error_ns: 10 });
        assert_eq!(reading(5, 5, 5), Reading { ahead_ns: 0, error_ns: 0 });
    }

    #[test]
    fn parts_of_a_plan_are_the_plan() {
        let mut plan = Plan::new("http://127.0.0.1:1/".parse().unwrap());
        (plan.connections, plan.pids) = (10, vec![1]);
        let parts: Vec<Plan> = (0..3).map(|index| part(&plan, index, 3)).collect();
        assert_eq!(parts.iter().map(|it| it.connections).collect::<Vec<_>>(), [4, 3, 3]);
        assert!(parts.iter().all(|it| it.pids.is_empty() && it.check().is_ok()));
        let sent = serde_json::to_string(&parts[1]).unwrap();
        let arrived: Plan = serde_json::from_str(&sent).unwrap();
        assert_eq!(format!("{arrived:?}"), format!("{:?}", parts[1]));
    }

    #[test]
    fn a_clock_that_is_not_known_well_is_a_reason_for_doubt() {
        let told = |clock_error_ns, clock_drift_ns| {
            AgentOutcome { clock_error_ns, clock_drift_ns, ..AgentOutcome::default() }.doubt()
        };
        assert_eq!(told(900_000, -900_000), None);
        assert!(told(0, -2_000_000).unwrap().contains("2.0 ms"));
        assert!(told(1_500_000, 0).unwrap().contains("1.5 ms"));
    }
}
