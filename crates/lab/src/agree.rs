//! Another generator beside this one: do both charge a server the same?
//!
//! A server costs less per request when requests come in bunches, and every generator bunches them in its
//! own way, so two rulers agree only as far as their arrivals do. Here both run the same closed loop against
//! the same processes, in turns.

use std::io;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::load::{Arrivals, Plan, run};
use crate::meter::{Meter, SyscallMeter};
use crate::random::Random;
use crate::stats::{Effect, Pair, balanced_order, paired_effect};

/// A generator that others trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// `wrk`.
    Wrk,
    /// nghttp2's `h2load`, speaking HTTP/1.1.
    H2load,
}

/// What both found.
#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// Each round: CPU nanoseconds of the server for a request of the other generator, and of this one.
    pub rounds: Vec<(f64, f64)>,
    /// This generator's figure against the other's.
    pub effect: Effect,
    /// System calls of the server for a request, in the same order, where they may be counted. The more
    /// requests come in one bunch, the fewer: this shows how alike the arrivals are, whatever the machine is doing.
    pub syscalls: Option<(f64, f64)>,
}

/// Runs `plan` in a closed loop and the other generator in turns.
pub fn compare(
    other: Other,
    program: &Path,
    plan: &Plan,
    rounds: usize,
    progress: &mut dyn FnMut(&str),
) -> io::Result<Agreement> {
    let plan = Plan { arrivals: Arrivals::Closed, ..plan.clone() };
    let mut pairs = Vec::new();
    for (round, is_ours_first) in
        balanced_order(rounds, &mut Random::fresh()).into_iter().enumerate()
    {
        progress(&format!("round {} of {rounds}", round + 1));
        let early = if is_ours_first { Some(ours(&plan)?) } else { None };
        let theirs = theirs_cost(other, program, &plan)?;
        let ours = early.map_or_else(|| ours(&plan), Ok)?;
        pairs.push(Pair { a: theirs, b: ours, is_b_first: is_ours_first });
    }
    let effect = paired_effect(&pairs, plan.seed)
        .ok_or_else(|| io::Error::other("three rounds at least are needed"))?;
    progress("system calls");
    let syscalls = count_syscalls(other, program, &plan).ok();
    let rounds = pairs.into_iter().map(|pair| (pair.a, pair.b)).collect();
    Ok(Agreement { rounds, effect, syscalls })
}

impl Other {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::H2load => "h2load",
        }
    }

    fn arguments(self, plan: &Plan) -> Vec<String> {
        let seconds = plan.duration.as_secs().max(1);
        let words = match self {
            Self::Wrk => format!("-t1 -c{} -d{seconds}s", plan.connections),
            Self::H2load => format!("--h1 -t1 -c{} -D{seconds}", plan.connections),
        };
        let url = format!("http://{}", plan.target);
        words.split(' ').map(str::to_owned).chain([url]).collect()
    }

    /// How many requests it says it made.
    fn requests(self, text: &str) -> Option<u64> {
        let words = match self {
            Self::Wrk => " requests in",
            Self::H2load => " done,",
        };
        let end = text.find(words)?;
        let start = text[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        text[start..end].parse().ok()
    }
}

fn ours(plan: &Plan) -> io::Result<f64> {
    let outcome = run(plan).map_err(io::Error::other)?;
    let cost = outcome.target.and_then(|target| target.cpu_ns_per_request());
    cost.ok_or_else(|| io::Error::other("the server answered nothing"))
}

fn theirs_cost(other: Other, program: &Path, plan: &Plan) -> io::Result<f64> {
    let meter = Meter::begin(&plan.pids).map_err(io::Error::other)?;
    let count = theirs(other, program, plan)?;
    Ok(meter.cost().cpu_ns as f64 / count as f64)
}

/// Runs the other generator once and gives the number of its requests.
fn theirs(other: Other, program: &Path, plan: &Plan) -> io::Result<u64> {
    let name = other.name();
    let output = Command::new(program)
        .args(other.arguments(plan))
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run {name}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match other.requests(&text) {
        Some(count @ 1..) => Ok(count),
        Some(0) | None => Err(io::Error::other(format!(
            "{name} made no request: {} {}",
            text.trim(),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// A run of each in which only system calls are counted, because counting slows the server down.
fn count_syscalls(other: Other, program: &Path, plan: &Plan) -> io::Result<(f64, f64)> {
    let family = Meter::begin(&plan.pids).map_err(io::Error::other)?.family();
    let mut meter = SyscallMeter::begin(&family)?;
    let count = theirs(other, program, plan)?;
    let theirs = meter.count()? as f64 / count as f64;
    let mut meter = SyscallMeter::begin(&family)?;
    let outcome = run(plan).map_err(io::Error::other)?;
    Ok((theirs, meter.count()? as f64 / outcome.answered.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_are_asked_for_the_same_and_understood() {
        let mut plan = Plan::new("http://127.0.0.1:80/x".parse().unwrap());
        plan.connections = 20;
        assert_eq!(Other::Wrk.arguments(&plan), ["-t1", "-c20", "-d10s", "http://127.0.0.1:80/x"]);
        assert_eq!(Other::Wrk.requests("  35574 requests in 2.00s, 8.1MB read"), Some(35_574));
        let line = "requests: 2000 total, 2010 started, 1990 done, 1990 succeeded, 0 failed";
        assert_eq!(Other::H2load.requests(line), Some(1990));
        assert_eq!(Other::H2load.requests("nothing"), None);
    }
}
