//! What a run showed, and its JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};

use super::Plan;
use super::agents::AgentOutcome;
use super::http2::reasons;
use super::series::{self, Series};
use crate::cli::units::show_number_of;
use crate::histogram::{Nanoseconds, Percentiles};
use crate::meter::Cost;
pub use crate::meter::Noise;

/// What a run showed. Serialized it is what an agent counted of its part: what the machine that asked knows by itself
/// is left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Requests per second that the arrivals intended, for loops that have such a rate.
    #[serde(skip)]
    pub intended_rps: Option<f64>,
    /// The measured time.
    #[serde(skip)]
    pub duration: Duration,
    /// Requests meant for the measured time that were sent.
    pub sent: u64,
    /// Answers within the measured time, successful or not.
    pub answered: u64,
    /// Requests that came to nothing, by kind.
    pub errors: Errors,
    /// Connections established at the end of the measured time.
    pub connections: usize,
    /// Connections asked for.
    pub connections_wanted: usize,
    /// Connections opened after the first, because the server or an error closed one.
    pub reconnects: u64,
    /// Arrivals that found no free connection and had to wait.
    pub waited_for_connection: u64,
    /// The arrival process.
    #[serde(skip)]
    pub arrivals: &'static str,
    /// What came when.
    pub series: Series,
    /// From the intended start to the last byte of the answer.
    pub latency: Nanoseconds,
    /// From the actual start.
    pub service: Nanoseconds,
    /// What the target spent, when asked for.
    #[serde(skip)]
    pub target: Option<TargetCost>,
    /// What other groups of processes spent, by name.
    #[serde(skip)]
    pub payers: Vec<(String, Cost)>,
    /// What the generator spent.
    pub generator: GeneratorCost,
    /// What else the machine was doing.
    pub noise: Noise,
    /// What each of several requests got, in the plan's order.
    pub entries: Vec<EntryOutcome>,
    /// The machines that generated the load, where they were others.
    #[serde(skip)]
    pub agents: Vec<AgentOutcome>,
    /// Reasons to doubt the figures.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// What one of several requests got.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EntryOutcome {
    /// Its name.
    pub name: String,
    /// Answers that were not right.
    pub errors: u64,
    /// From the intended start to the end of a right answer.
    pub latency: Nanoseconds,
}

/// Failed requests by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Errors(BTreeMap<&'static str, u64>);

/// What the target spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct TargetCost {
    /// In the measured time.
    pub cost: Cost,
    /// The answers it gave for that.
    pub answered: u64,
    /// System calls per request, where they could be counted.
    pub syscalls_per_request: Option<f64>,
}

/// What the generator spent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GeneratorCost {
    /// CPU time in the measured time.
    pub cpu_ns: u64,
    /// Of that, in user mode, by the kernel's samples.
    pub user_ns: u64,
    /// Of that, in the kernel.
    pub system_ns: u64,
    /// The share of one CPU that the busiest thread used.
    pub cpu_fraction: f64,
    /// Time it was runnable but had no CPU.
    pub run_queue_wait_ns: u64,
    /// How late requests were sent although a connection was free.
    pub send_lateness: Nanoseconds,
}

/// A glimpse at a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Since the start, warm-up included.
    pub elapsed: Duration,
    /// How much of that is warm-up.
    pub warmup: Duration,
    /// Of how much.
    pub total: Duration,
    /// Answers per second since the last glimpse.
    pub rps: f64,
    /// Latencies since the last glimpse.
    pub latency: Percentiles,
    /// Errors so far.
    pub errors: u64,
}

impl<'de> Deserialize<'de> for Errors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut errors = Self::default();
        for (name, count) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            let known = Self::KINDS.into_iter().chain(reasons::all()).find(|kind| *kind == name);
            let unknown = || de::Error::custom(format!("there is no error of kind '{name}'"));
            errors.add(known.ok_or_else(unknown)?, count);
        }
        Ok(errors)
    }
}

impl Errors {
    /// Kinds of every protocol. Those of HTTP/2 are besides `reset` or `goaway` with the name of a code (RFC 9113 §7),
    /// as in `reset REFUSED_STREAM`, and those of gRPC `grpc` with the name of a status.
    pub const KINDS: [&'static str; 13] = [
        "connect",
        "timeout",
        "reset",
        "closed",
        "malformed",
        "status",
        "unsent",
        "crossed",
        "unasked",
        "check",
        "tls",
        "upgrade",
        "alpn",
    ];

    /// Counts one.
    pub fn add(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(kind).or_insert(0) += count;
        }
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// How many of one kind, as [`Errors::KINDS`] says.
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Kinds and counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }
}

impl EntryOutcome {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "answered": self.latency.count(),
            "errors": self.errors,
            "latency_ns": self.latency.some_percentiles(),
        })
    }
}

impl GeneratorCost {
    /// CPU time in user mode and in the kernel; `None` where there was too little of it to tell.
    pub fn split(&self) -> Option<(u64, u64)> {
        crate::meter::told(self.cpu_ns, self.user_ns, self.system_ns)
    }
}

impl TargetCost {
    /// CPU nanoseconds per answer; `None` without answers.
    pub fn cpu_ns_per_request(&self) -> Option<f64> {
        (self.answered > 0).then(|| self.cost.cpu_ns as f64 / self.answered as f64)
    }
}

impl Outcome {
    /// Answers per second in the measured time.
    pub fn achieved_rps(&self) -> f64 {
        self.answered as f64 / self.duration.as_secs_f64()
    }

    /// Adds another slice of the same plan: counts add up, histograms are merged, never averaged.
    pub fn merge(&mut self, other: &Self) {
        let (mine, theirs) = (self.duration.as_secs_f64(), other.duration.as_secs_f64());
        let weigh = |a: f64, b: f64| (a * mine + b * theirs) / (mine + theirs);
        self.intended_rps = self.intended_rps.zip(other.intended_rps).map(|(a, b)| weigh(a, b));
        self.generator.cpu_fraction =
            weigh(self.generator.cpu_fraction, other.generator.cpu_fraction);
        self.noise.merge(mine, &other.noise, theirs);
        self.duration += other.duration;
        self.sent += other.sent;
        self.answered += other.answered;
        for (kind, count) in other.errors.iter() {
            self.errors.add(kind, count);
        }
        self.connections = self.connections.min(other.connections);
        self.reconnects += other.reconnects;
        self.waited_for_connection += other.waited_for_connection;
        self.series.append(&other.series);
        self.join_entries(other);
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.target = match (self.target, other.target) {
            (Some(mut mine), Some(theirs)) => {
                mine.cost.merge(&theirs.cost);
                mine.answered += theirs.answered;
                mine.syscalls_per_request =
                    mine.syscalls_per_request.or(theirs.syscalls_per_request);
                Some(mine)
            }
            (mine, theirs) => mine.or(theirs),
        };
        for (name, cost) in &other.payers {
            match self.payers.iter_mut().find(|(mine, _)| mine == name) {
                Some((_, mine)) => mine.merge(cost),
                None => self.payers.push((name.clone(), *cost)),
            }
        }
        self.generator.cpu_ns += other.generator.cpu_ns;
        self.generator.user_ns += other.generator.user_ns;
        self.generator.system_ns += other.generator.system_ns;
        self.generator.run_queue_wait_ns += other.generator.run_queue_wait_ns;
        self.generator.send_lateness.merge(&other.generator.send_lateness);
        for warning in &other.warnings {
            if !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
    }

    /// Adds what another generator did of the same plan at the same time: counts add up, histograms are merged.
    pub(super) fn join(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        for (kind, count) in other.errors.iter() {
            self.errors.add(kind, count);
        }
        self.connections += other.connections;
        self.connections_wanted += other.connections_wanted;
        self.reconnects += other.reconnects;
        self.waited_for_connection += other.waited_for_connection;
        self.series.merge(&other.series);
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        if let Some(target) = &mut self.target {
            target.answered += other.answered;
        }
        let (mine, theirs) = (&mut self.generator, &other.generator);
        mine.cpu_ns += theirs.cpu_ns;
        mine.user_ns += theirs.user_ns;
        mine.system_ns += theirs.system_ns;
        mine.cpu_fraction = mine.cpu_fraction.max(theirs.cpu_fraction);
        mine.run_queue_wait_ns = mine.run_queue_wait_ns.max(theirs.run_queue_wait_ns);
        mine.send_lateness.merge(&theirs.send_lateness);
        self.join_entries(other);
    }

    fn join_entries(&mut self, other: &Self) {
        for (mine, theirs) in self.entries.iter_mut().zip(&other.entries) {
            mine.errors += theirs.errors;
            mine.latency.merge(&theirs.latency);
        }
    }

    /// The report with schema 1.
    pub fn to_json(&self) -> Value {
        let target = self.target.map(|target| {
            json!({
                "cpu_ns_per_request": target.cpu_ns_per_request(),
                "cpu_ns": target.cost.cpu_ns,
                "user_ns": target.cost.split().map(|it| it.0),
                "system_ns": target.cost.split().map(|it| it.1),
                "busiest_thread_ns": target.cost.busiest_thread_ns,
                "run_queue_wait_ns": target.cost.run_queue_wait_ns,
                "context_switches": target.cost.voluntary_switches + target.cost.involuntary_switches,
                "rss_bytes": target.cost.rss_bytes,
                "pss_bytes": target.cost.pss_bytes,
                "peak_bytes": target.cost.peak_bytes,
                "syscalls_per_request": target.syscalls_per_request,
                "processes": target.cost.processes,
            })
        });
        json!({
            "schema": 1,
            "intended_rps": self.intended_rps,
            "sent": self.sent,
            "answered": self.answered,
            "achieved_rps": self.achieved_rps(),
            "duration_ns": self.duration.as_nanos() as u64,
            "errors": self.errors,
            "connections": self.connections,
            "connections_wanted": self.connections_wanted,
            "reconnects": self.reconnects,
            "waited_for_connection": self.waited_for_connection,
            "arrivals": self.arrivals,
            "latency_ns": self.latency.some_percentiles(),
            "service_ns": self.service.some_percentiles(),
            "requests": self.entries.iter().map(EntryOutcome::to_json).collect::<Value>(),
            "series": series::to_json(&self.series.points(self.duration)),
            "target": target,
            "payers": self.payers.iter().map(|(name, cost)| (name.clone(), cost.to_json())).collect::<Value>(),
            "generator": {
                "cpu_ns": self.generator.cpu_ns,
                "user_ns": self.generator.split().map(|it| it.0),
                "system_ns": self.generator.split().map(|it| it.1),
                "cpu_fraction": self.generator.cpu_fraction,
                "run_queue_wait_ns": self.generator.run_queue_wait_ns,
                "send_lateness_ns": self.generator.send_lateness.some_percentiles(),
            },
            "noise": self.noise,
            "agents": self.agents,
            "warnings": self.warnings,
        })
    }

    /// Looks for reasons to doubt the figures.
    pub(super) fn judge(&mut self, plan: &Plan) {
        let mut warn = |text: String| self.warnings.push(text);
        if self.sent == 0 {
            warn("no request was to begin while it was measured".to_owned());
        }
        let errors = self.errors.total();
        if errors > 0 {
            warn(format!("{} failed", show_number_of(errors, "request")));
        }
        if plan.keep_alive && self.reconnects * 2 > self.sent {
            warn(format!(
                "connections were opened again {} times: the server closes them, and connecting is part of the cost",
                self.reconnects
            ));
        } else if self.connections < plan.connections && plan.keep_alive {
            warn(format!(
                "only {} of {} connections were open at the end",
                self.connections, plan.connections
            ));
        }
        if self.generator.cpu_fraction > 0.7 {
            let percent = self.generator.cpu_fraction * 100.0;
            warn(format!(
                "the generator used {percent:.0} % of a CPU: it may be what limits the rate"
            ));
        }
        let wait = self.generator.run_queue_wait_ns as f64 / self.duration.as_nanos() as f64;
        if wait > 0.1 {
            warn(format!(
                "the generator waited for a CPU {:.0} % of the time: the machine is oversubscribed",
                wait * 100.0
            ));
        }
        let lateness = self.generator.send_lateness.quantile(0.999);
        if plan.arrivals.is_open() && lateness > 5_000_000 {
            warn(format!(
                "requests were sent up to {:.1} ms late (p99.9): the timer is not to be trusted",
                lateness as f64 / 1e6
            ));
        }
        let intended = self.intended_rps.unwrap_or(0.0) * self.duration.as_secs_f64();
        if intended > 0.0
            && (self.sent as f64) < 0.999 * intended - 1.0
            && plan.arrivals.name() != "poisson"
        {
            let percent = 100.0 - self.sent as f64 / intended * 100.0;
            warn(format!("{percent:.1} % of the intended requests were not sent"));
        }
        self.warnings.extend(self.agents.iter().filter_map(AgentOutcome::doubt));
        self.check_littles_law(plan);
    }

    /// N = X · R: in a closed loop the mean latency, the rate and the number of connections belong together.
    fn check_littles_law(&mut self, plan: &Plan) {
        let is_closed = matches!(plan.arrivals, super::Arrivals::Closed);
        if !is_closed || !plan.keep_alive || self.errors.total() > 0 || self.answered < 1000 {
            return;
        }
        let busy = self.achieved_rps() * self.service.mean() / 1e9;
        let ratio = busy / plan.concurrency() as f64;
        if ratio > 1.03 {
            self.warnings.push(format!(
                "Little's law: rate times mean service time is {busy:.1}, but at most {} requests were under way",
                plan.concurrency()
            ));
        } else if ratio < 0.95 {
            self.warnings.push(format!(
                "Little's law: of {} connections {busy:.1} had a request under way on average; the others waited for \
                 the generator",
                plan.concurrency()
            ));
        }
    }
}
