//! The experiment file.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath_sim::link::{Conditions, Loss, Profile, Rate, Timeline};

use crate::address::Address;
use crate::cli::units::{parse_seconds, parse_size};
use crate::experiment::{Program, free_addresses};
use crate::link::{FAR, Link, Tuning};
use crate::load::{Arrivals, Outcome, Plan, Request, Spacing};

/// An experiment, checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it is called.
    pub title: String,
    /// The base.
    pub a: Arm,
    /// What is compared with it.
    pub b: Arm,
    /// Pairs of A and B.
    pub pairs: usize,
    /// Pairs of A with itself.
    pub equal_pairs: usize,
    /// Makes arrivals and losses repeatable. Which arm runs first in a pair is drawn anew each time.
    pub seed: u64,
    /// What the hypothesis is about.
    pub metric: Metric,
    /// What it says.
    pub expect: Expect,
    /// The smallest share that matters.
    pub matters: f64,
    programs: BTreeMap<String, Template>,
    load: LoadFile,
    link: Option<LinkFile>,
}

/// One arm.
#[derive(Clone, Debug)]
pub struct Arm {
    /// What it is called.
    pub name: String,
    /// Its programs, from the one the client meets.
    pub chain: Vec<String>,
}

/// What can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// CPU time of all programs for each answer.
    CpuPerRequest,
    /// Answers per second.
    Rate,
    /// Median latency.
    P50,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// Peak resident memory of all programs.
    Memory,
}

/// What a hypothesis says about B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// Less than A.
    Lower,
    /// More than A.
    Higher,
    /// Not different enough to matter.
    Same,
}

/// Why a file is no experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The file cannot be understood.
    #[error("{0}")]
    Syntax(String),
    /// A value makes no sense.
    #[error("{0}")]
    Value(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    title: String,
    #[serde(default = "ten")]
    pairs: usize,
    equal_pairs: Option<usize>,
    #[serde(default = "one")]
    seed: u64,
    hypothesis: HypothesisFile,
    load: LoadFile,
    link: Option<LinkFile>,
    programs: BTreeMap<String, Template>,
    a: ArmFile,
    b: ArmFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HypothesisFile {
    metric: Metric,
    expect: Expect,
    #[serde(default = "five_percent")]
    matters: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadFile {
    #[serde(default = "ten")]
    connections: usize,
    rate: Option<f64>,
    per_connection_rate: Option<f64>,
    #[serde(default)]
    closed: bool,
    #[serde(default)]
    arrivals: Spacing,
    #[serde(default = "two_seconds")]
    duration: String,
    #[serde(default = "half_a_second")]
    warmup: String,
    #[serde(default)]
    protocol: LoadProtocol,
    /// Bytes of the request's body.
    size: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LoadProtocol {
    #[default]
    H1,
    Tcp,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    profile: Option<String>,
    /// Percent, each way.
    #[serde(default)]
    loss: f64,
    /// Milliseconds, each way.
    #[serde(default)]
    delay: f64,
    /// Bits per second, each way.
    rate: Option<f64>,
    /// Bytes.
    queue: Option<u64>,
    /// `[start, length]` in seconds.
    #[serde(default)]
    outages: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    command: String,
    config: Option<String>,
    #[serde(default = "service")]
    role: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmFile {
    name: Option<String>,
    chain: String,
}

impl Experiment {
    /// Reads an experiment file.
    pub fn parse(text: &str) -> Result<Self, ExperimentError> {
        let file: File =
            toml::from_str(text).map_err(|error| ExperimentError::Syntax(error.to_string()))?;
        let value = |text: &str| ExperimentError::Value(text.to_owned());
        let arm = |arm: ArmFile, letter: &str| {
            let chain: Vec<String> =
                arm.chain.split(['>', '→']).map(|hop| hop.trim().to_owned()).collect();
            let name = arm.name.unwrap_or_else(|| format!("{letter}: {}", arm.chain));
            match chain.iter().find(|hop| !file.programs.contains_key(*hop)) {
                Some(hop) => Err(ExperimentError::Value(format!(
                    "chain {letter} names '{hop}', which is no program"
                ))),
                None => Ok(Arm { name, chain }),
            }
        };
        let (a, b) = (arm(file.a, "A")?, arm(file.b, "B")?);
        if file.pairs < 3 || file.pairs > 1000 {
            return Err(value("pairs must be between 3 and 1000"));
        }
        if !(file.hypothesis.matters > 0.0 && file.hypothesis.matters < 10.0) {
            return Err(value("matters is a share above zero, as 0.05 for five percent"));
        }
        let experiment = Self {
            title: file.title,
            a,
            b,
            pairs: file.pairs,
            equal_pairs: file.equal_pairs.unwrap_or_else(|| file.pairs.div_ceil(2).max(3)),
            seed: file.seed,
            metric: file.hypothesis.metric,
            expect: file.hypothesis.expect,
            matters: file.hypothesis.matters,
            programs: file.programs,
            load: file.load,
            link: file.link,
        };
        experiment.check().map(|()| experiment)
    }

    /// Whether network namespaces are needed.
    pub fn needs_link(&self) -> bool {
        self.link.is_some()
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let of_time = |text: &str| parse_seconds(text).map_err(ExperimentError::Value).map(|_| ());
        of_time(&self.load.duration)?;
        of_time(&self.load.warmup)?;
        if let Some(size) = &self.load.size {
            parse_size(size).map_err(ExperimentError::Value)?;
        }
        if self.load.closed && self.load.rate.is_some() {
            return Err(ExperimentError::Value(
                "a closed loop has no rate; it may have a per_connection_rate".to_owned(),
            ));
        }
        let Some(link) = &self.link else { return Ok(()) };
        if let Some(name) = &link.profile
            && Profile::find(name).is_none()
        {
            return Err(ExperimentError::Value(format!("there is no profile '{name}'")));
        }
        let is_sound = (0.0..=100.0).contains(&link.loss)
            && (0.0..1e6).contains(&link.delay)
            && link.rate.is_none_or(|rate| rate > 0.0);
        let has_sound_outages = link
            .outages
            .iter()
            .all(|(start, length)| (0.0..1e6).contains(start) && (0.0..1e6).contains(length));
        if is_sound && has_sound_outages {
            Ok(())
        } else {
            Err(ExperimentError::Value("the link's values make no sense".to_owned()))
        }
    }

    pub(super) fn open_link(&self) -> io::Result<Option<Link>> {
        self.link.as_ref().map(|_| Link::open(&Tuning::default())).transpose()
    }

    pub(super) fn conditions(&self) -> (Conditions, Conditions) {
        let Some(link) = &self.link else { return Default::default() };
        let profile = link.profile.as_deref().and_then(Profile::find);
        let (mut down, mut up) =
            profile.map_or_else(Default::default, |profile| (profile.down(), profile.up()));
        for conditions in [&mut down, &mut up] {
            if link.loss > 0.0 {
                conditions.loss = Loss::Bernoulli(link.loss / 100.0);
            }
            if link.delay > 0.0 {
                conditions.delay = Duration::from_secs_f64(link.delay / 1e3);
            }
            if let Some(rate) = link.rate {
                conditions.rate = Rate::BitsPerSecond(rate);
            }
            conditions.queue_bytes = link.queue.or(conditions.queue_bytes);
        }
        (down, up)
    }

    pub(super) fn timeline(&self) -> Timeline {
        let outages = self.link.iter().flat_map(|link| link.outages.iter());
        outages.fold(Timeline::default(), |timeline, (start, length)| {
            timeline.with_outage(Duration::from_secs_f64(*start), Duration::from_secs_f64(*length))
        })
    }

    /// Outages as spans of a chart.
    pub(super) fn outages(&self) -> Vec<(Duration, Duration, String)> {
        let outages = self.link.iter().flat_map(|link| link.outages.iter());
        let span = |(start, length): &(f64, f64)| {
            let start = Duration::from_secs_f64(*start);
            (start, start + Duration::from_secs_f64(*length), "outage".to_owned())
        };
        outages.map(span).collect()
    }

    /// The programs of an arm, last of the chain first, and where the client goes.
    pub(super) fn programs(&self, arm: &Arm) -> io::Result<(Vec<Program>, SocketAddr)> {
        let host = if self.link.is_some() { FAR } else { "127.0.0.1" };
        let addresses = free_addresses(host, arm.chain.len())?;
        let towpath = std::env::current_exe()?.display().to_string();
        let program = |(at, hop): (usize, &String)| {
            let template = self.programs.get(hop)?;
            let listen = addresses[at];
            let next = addresses.get(at + 1);
            let fill = |text: &str| fill(text, listen, next.copied(), &towpath);
            Some(Program {
                name: hop.clone(),
                role: template.role.clone(),
                command: template.command.split_whitespace().map(fill).collect(),
                config: template.config.as_deref().map(fill),
                listens: vec![listen],
            })
        };
        let mut programs: Vec<Program> = arm.chain.iter().enumerate().filter_map(program).collect();
        programs.reverse();
        let entry =
            addresses.first().copied().ok_or_else(|| io::Error::other("the chain is empty"))?;
        Ok((programs, entry))
    }

    pub(super) fn plan(&self, entry: SocketAddr, seed: u64) -> Plan {
        let load = &self.load;
        let mut plan = Plan::new(Address::Tcp(entry).into());
        plan.protocol = match load.protocol {
            LoadProtocol::H1 => crate::load::Protocol::Http1,
            LoadProtocol::Tcp => crate::load::Protocol::Tcp,
        };
        let size = load.size.as_deref().and_then(|size| parse_size(size).ok());
        let default_size = if plan.protocol == crate::load::Protocol::Tcp { 64 } else { 0 };
        plan.request = Request::with_body(size.unwrap_or(default_size));
        plan.connections = load.connections;
        plan.arrivals = match (load.rate, load.per_connection_rate, load.closed) {
            (Some(rate), _, _) => load.arrivals.at(rate),
            (None, Some(per_connection_rate), true) => {
                Arrivals::ClosedCapped { per_connection_rate }
            }
            (None, Some(per_connection_rate), false) => {
                Arrivals::PerConnection { per_connection_rate }
            }
            (None, None, _) => Arrivals::Closed,
        };
        plan.duration = parse_seconds(&load.duration).unwrap_or(Duration::from_secs(2));
        plan.warmup = parse_seconds(&load.warmup).unwrap_or_default();
        plan.seed = seed;
        plan
    }
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 6] =
        [Self::CpuPerRequest, Self::Rate, Self::P50, Self::P95, Self::P99, Self::Memory];

    /// Its value in a run; NaN where it was not measured.
    pub fn of(self, outcome: &Outcome) -> f64 {
        let target = outcome.target;
        match self {
            Self::CpuPerRequest => {
                target.and_then(|target| target.cpu_ns_per_request()).unwrap_or(f64::NAN) / 1e3
            }
            Self::Rate => outcome.achieved_rps(),
            Self::P50 => outcome.latency.quantile(0.50) as f64 / 1e6,
            Self::P95 => outcome.latency.quantile(0.95) as f64 / 1e6,
            Self::P99 => outcome.latency.quantile(0.99) as f64 / 1e6,
            Self::Memory => {
                target.map_or(f64::NAN, |target| target.cost.peak_bytes as f64 / 1_048_576.0)
            }
        }
    }

    /// Its name and unit.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::CpuPerRequest => ("CPU per request", "µs"),
            Self::Rate => ("rate", "requests/s"),
            Self::P50 => ("p50", "ms"),
            Self::P95 => ("p95", "ms"),
            Self::P99 => ("p99", "ms"),
            Self::Memory => ("peak memory", "MiB"),
        }
    }
}

/// Puts addresses into a command or a configuration. Without a next program, words that need one vanish.
fn fill(text: &str, listen: SocketAddr, next: Option<SocketAddr>, towpath: &str) -> String {
    let mut text = text
        .replace("{listen}", &listen.to_string())
        .replace("{listen_host}", &listen.ip().to_string())
        .replace("{listen_port}", &listen.port().to_string())
        .replace("{towpath}", towpath);
    if let Some(next) = next {
        text = text
            .replace("{next}", &next.to_string())
            .replace("{next_host}", &next.ip().to_string())
            .replace("{next_port}", &next.port().to_string());
    }
    text
}

fn ten() -> usize {
    10
}

fn one() -> u64 {
    1
}

pub(super) fn five_percent() -> f64 {
    0.05
}

fn two_seconds() -> String {
    "2s".to_owned()
}

fn half_a_second() -> String {
    "500ms".to_owned()
}

fn service() -> String {
    "service".to_owned()
}
