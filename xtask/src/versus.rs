//! The comparison: the same job for every proxy, in one run, taking turns.
//!
//! The proxy under load is pinned to core 0; origin and client share core 1. Contenders run side by side
//! but only one is given work at a time, round by round, so that what disturbs the machine disturbs
//! all. The figure to look at is CPU time per request: it repeats within a few percent where requests per
//! second swing by twenty.

mod clusters;
mod configs;
mod contender;
mod count;
mod filters;
mod h2;
#[path = "../../conformance/h2/abuse.rs"]
mod h2_abuse;
#[path = "../../conformance/h2/wire.rs"]
mod h2_wire;
mod jobs;
mod load;
mod process;
mod report;
mod tls;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers;
use crate::shell::{Result, cargo, output, root, run as run_command, target};

use contender::Contender;
pub(crate) use contender::free_port;
use report::Report;

/// What to run, and how thoroughly.
pub(crate) struct Plan {
    pub(crate) jobs: Vec<String>,
    pub(crate) contenders: Vec<String>,
    pub(crate) connections: Vec<usize>,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) stream_bytes: u64,
    pub(crate) idle_connections: usize,
    pub(crate) json: Option<PathBuf>,
    /// Take the release programs as they are.
    pub(crate) no_build: bool,
    /// `towpath-proxy` of another build, to be measured beside this one.
    pub(crate) before: Option<PathBuf>,
}

const JOBS: &[&str] = &[
    "http",
    "tcp",
    "stream",
    "open",
    "idle",
    "tls",
    "tls-new",
    "tls-idle",
    "h2-to-h1",
    "h2-to-h2",
    "tls-h2-to-h1",
    "h2-1",
    "h2-large",
    "grpc",
    "h2-held",
    "h2-abuse",
    "ext-authz",
    "clusters",
];

const HELP: &str = "\
cargo xtask versus [--quick] [--jobs http,tcp,stream,open,idle,tls,tls-new,tls-idle,h2-to-h1,h2-to-h2,
                   tls-h2-to-h1,h2-1,h2-large,grpc,h2-held,h2-abuse,ext-authz,clusters]
                   [--only floor,towpath,nginx,haproxy,envoy,nghttpx]
                   [--connections 16,64,256] [--rounds N] [--seconds S] [--json FILE] [--no-build]
                   [--before TOWPATH-PROXY: one of another build, beside the others]
cargo xtask versus --count [--jobs plain,edge,log,fields,large,tcp,routes,access,jwt,json,ext-authz,spans-1,
                   spans-100] [--only towpath,nginx,haproxy,envoy] [--no-build]
                   [--before TOWPATH-PROXY]
                   user instructions of the whole process for one request, by callgrind";

impl Plan {
    fn full() -> Self {
        Self {
            jobs: owned(JOBS),
            contenders: contender::NAMES.iter().map(|&name| name.to_owned()).collect(),
            connections: vec![16, 64, 256],
            rounds: 5,
            seconds: 4,
            stream_bytes: 1 << 30,
            idle_connections: 10_000,
            json: None,
            no_build: false,
            before: None,
        }
    }

    fn quick() -> Self {
        Self { connections: vec![64], rounds: 2, seconds: 1, ..Self::full() }
    }

    fn parse(words: &[String]) -> Result<Self> {
        let quick = words.iter().any(|word| word == "--quick");
        let mut plan = if quick { Self::quick() } else { Self::full() };
        plan.no_build = words.iter().any(|word| word == "--no-build");
        let mut words =
            words.iter().filter(|word| !["--quick", "--no-build"].contains(&word.as_str()));
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} wants a value\n{HELP}"))?;
            let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
            match word.as_str() {
                "--jobs" => plan.jobs = among(list(), JOBS)?,
                "--only" => plan.contenders = among(list(), contender::NAMES)?,
                "--connections" => {
                    plan.connections = list()
                        .iter()
                        .map(|it| it.parse())
                        .collect::<std::result::Result<_, _>>()?;
                }
                "--rounds" => plan.rounds = value.parse::<usize>()?.max(1),
                "--seconds" => plan.seconds = value.parse::<u64>()?.max(1),
                "--before" => plan.before = Some(value.into()),
                "--json" => plan.json = Some(value.into()),
                _ => return Err(format!("no option '{word}'\n{HELP}").into()),
            }
        }
        Ok(plan)
    }
}

/// Builds, installs, runs, prints.
pub(crate) fn run(words: &[String]) -> Result<()> {
    match words.first().map(String::as_str) {
        // This program again, as a client on the other core.
        Some("drain") => return load::drain_main(&words[1..]),
        Some("hold") => return load::hold_main(&words[1..]),
        Some("hold-streams") => return load::hold_streams_main(&words[1..]),
        Some("--help") => {
            println!("{HELP}");
            return Ok(());
        }
        Some(_) | None => {}
    }
    if words.iter().any(|word| word == "--count") {
        return count::run(words);
    }
    let plan = Plan::parse(words)?;
    check_machine()?;
    let programs = programs(&plan)?;
    let mut report = Report::new(machine());
    for job in &plan.jobs {
        match job.as_str() {
            "http" => jobs::closed_loop(&plan, &programs, configs::Kind::Http, &mut report)?,
            "tcp" => jobs::closed_loop(&plan, &programs, configs::Kind::Tcp, &mut report)?,
            "stream" => jobs::stream(&plan, &programs, &mut report)?,
            "open" => jobs::open_loop(&plan, &programs, &mut report)?,
            "idle" => jobs::idle(&plan, &programs, &mut report)?,
            "tls" => jobs::closed_loop(&plan, &programs, configs::Kind::Tls, &mut report)?,
            "tls-new" => tls::handshakes(&plan, &programs, &mut report)?,
            "tls-idle" => tls::idle(&plan, &programs, &mut report)?,
            "h2-to-h1" => h2::closed_loop(&plan, &programs, configs::Kind::H2ToH1, &mut report)?,
            "h2-to-h2" => h2::closed_loop(&plan, &programs, configs::Kind::H2ToH2, &mut report)?,
            "tls-h2-to-h1" => {
                h2::closed_loop(&plan, &programs, configs::Kind::TlsH2ToH1, &mut report)?;
            }
            "grpc" => h2::closed_loop(&plan, &programs, configs::Kind::Grpc, &mut report)?,
            "ext-authz" => jobs::closed_loop(&plan, &programs, configs::Kind::Asked, &mut report)?,
            "h2-1" => h2::one_stream(&plan, &programs, &mut report)?,
            "h2-large" => h2::large(&plan, &programs, &mut report)?,
            "h2-held" => h2::held(&plan, &programs, &mut report)?,
            "clusters" => clusters::run(&plan, &programs, &mut report)?,
            "h2-abuse" => h2::abuse(&plan, &programs, &mut report)?,
            other => return Err(format!("no job '{other}'").into()),
        }
    }
    if let Some(path) = &plan.json {
        std::fs::write(path, report.to_json()?)?;
    }
    Ok(())
}

/// User instructions of our proxy for one request of each job.
pub(crate) fn instructions(program: &Path) -> Result<Vec<(&'static str, u64)>> {
    let contender = Contender { name: "towpath", program: program.to_owned() };
    let counts = count::JOBS.iter().map(|job| Ok((job.name, count::per_request(&contender, job)?)));
    counts.collect()
}

/// Where everything is.
pub(crate) struct Programs {
    pub(crate) nginx: PathBuf,
    pub(crate) wrk: PathBuf,
    pub(crate) h2load: PathBuf,
    /// The load generator of our own lab.
    pub(crate) lab: PathBuf,
    contenders: Vec<Contender>,
}

fn programs(plan: &Plan) -> Result<Programs> {
    let wants = |name: &str| plan.contenders.iter().any(|it| it == name);
    if !plan.no_build {
        println!("building the release programs…");
        let mut build = cargo();
        build.args(["build", "--quiet", "--release", "-p", "towpath-cli", "-p", "towpath-proxy"]);
        run_command(build.arg("--bins"))?;
    }
    let release = target().join("release");
    let mut contenders = Vec::new();
    for name in contender::NAMES.iter().filter(|name| wants(name)) {
        let program = match *name {
            "floor" if plan.no_build => built_floor()?,
            "floor" => floor()?,
            "towpath" => release.join("towpath-proxy"),
            peer => peers::ensure(peer)?,
        };
        contenders.push(Contender { name, program });
    }
    contenders.extend(plan.before.clone().map(Contender::before));
    Ok(Programs {
        nginx: peers::ensure("nginx")?,
        wrk: peers::ensure("wrk")?,
        h2load: peers::ensure("h2load")?,
        lab: release.join("towpath"),
        contenders,
    })
}

/// Builds the floor and asks cargo where it is.
fn floor() -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "-p", "towpath-io", "--bench", "floor"]);
    let messages = output(build.args(["--message-format=json"]).current_dir(root()))?;
    for line in messages.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if message["target"]["name"] == "floor"
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(path.into());
        }
    }
    Err("cargo built no floor".into())
}

/// The latest floor that was built.
fn built_floor() -> Result<PathBuf> {
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(target().join("release/deps"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("floor-") && !name.contains('.') {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    found.sort();
    found.pop().map(|(_, path)| path).ok_or_else(|| "no floor has been built".into())
}

fn check_machine() -> Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    if cores < 2 {
        return Err("two cores are needed: one for the proxy, one for the rest".into());
    }
    if !crate::shell::has("taskset") {
        return Err("taskset (package util-linux) is needed to pin programs to cores".into());
    }
    Ok(())
}

/// The machine in one line.
fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} × {}, Linux {}", model.unwrap_or("unknown CPU"), kernel.trim())
}

fn among(words: Vec<String>, known: &[&str]) -> Result<Vec<String>> {
    for word in &words {
        if !known.contains(&word.as_str()) {
            return Err(format!("'{word}' is none of {}", known.join(", ")).into());
        }
    }
    Ok(words)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
