//! A study of Istio's sidecar: a chain of three services and a store, without and with a proxy beside each.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::peers::{Forward, Layer, Proxy, Wire};
use super::{Options, Replay, Samples, name_the_silent, percentile_ms, shuffle};
use crate::address::Address;
use crate::experiment::{Program, Running, free_addresses};
use crate::load::{self, Arrivals, Outcome, Plan};
use crate::random::Random;

/// One question of the study.
#[derive(Clone, Copy)]
struct Case {
    /// Services one after the other; the last is the store.
    tiers: usize,
    replicas: usize,
    is_throttled: bool,
    /// Changes in percent with the sidecar: p95, rate, CPU, memory.
    published: Option<[f64; 4]>,
}

pub(super) fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> io::Result<Replay> {
    let (rounds, seconds) = if options.is_quick { (3, 0.8) } else { (8, 2.0) };
    let mut samples = Samples::new(options.seed);
    let mut notes = vec![
        "A chain of three HTTP services and a store makes seven proxy traversals; a single service makes one. \
         Throttled means a cap on each \
         connection's rate, as the study had it. The study's three contradicting CPU figures (+15, +18, +99 %) are one \
         figure per request. \
         Each service here is busy for as long as the study's were, because a percentage says as much about the \
         services as about the sidecar; \
         the CPU per request of the sidecar alone does not depend on them. All share this machine's processors, so \
         rates are not comparable with the study's."
            .to_owned(),
    ];
    if options.is_quick {
        notes.push("Quick: the single service was not replicated.".to_owned());
    }
    let sidecar = |proxy, between| Some(Sidecar { proxy, between });
    let mut subjects = vec![
        None,
        sidecar(Proxy::Towpath, Wire::Http1),
        sidecar(Proxy::Envoy, Wire::Http1),
        sidecar(Proxy::Towpath, Wire::Mutual),
        sidecar(Proxy::Envoy, Wire::Mutual),
    ];
    subjects.retain(|subject| match Mesh::launch(CASES[0], *subject, options) {
        Ok(_) => true,
        Err(error) => {
            notes.push(format!(
                "{} was not measured: {error}.",
                subject.map_or("none", Sidecar::name)
            ));
            false
        }
    });
    let mut random = Random::new(options.seed);
    for case in CASES {
        if options.is_quick && case.tiers == 1 && case.replicas > 1 {
            continue;
        }
        let name = case.name();
        for round in 0..rounds {
            shuffle(&mut subjects, &mut random);
            for subject in &subjects {
                let who = subject.map_or("none", Sidecar::name);
                progress(&format!("{name}, round {} of {rounds}, sidecar {who}", round + 1));
                let mesh = Mesh::launch(case, *subject, options).map_err(io::Error::other)?;
                let outcome = mesh
                    .measure(case, seconds)
                    .map_err(|error| io::Error::other(format!("{name}, sidecar {who}: {error}")))?;
                record(&mut samples, &name, who, &outcome);
                name_the_silent(&mut notes, &format!("{name}: {who}"), &outcome);
            }
        }
        compare(&mut samples, case, &name, &subjects);
    }
    Ok(Replay { rows: samples.into_rows(), notes, made: None })
}

/// A proxy beside each service.
#[derive(Clone, Copy)]
struct Sidecar {
    proxy: Proxy,
    /// What sidecars speak to each other; services and the client speak HTTP/1.1 in clear text.
    between: Wire,
}

impl Sidecar {
    fn name(self) -> &'static str {
        match (self.proxy, self.between) {
            (Proxy::Towpath, Wire::Mutual) => "towpath, HTTP/2 and mTLS",
            (Proxy::Envoy, Wire::Mutual) => "envoy, HTTP/2 and mTLS",
            (proxy, _) => proxy.name(),
        }
    }
}

/// The running services and the addresses that clients use.
struct Mesh {
    running: Running,
    entries: Vec<SocketAddr>,
}

impl Mesh {
    fn launch(case: Case, sidecar: Option<Sidecar>, options: &Options) -> Result<Self, String> {
        let pods = case.tiers * case.replicas;
        let addresses = free_addresses("127.0.0.1", 3 * pods).map_err(|error| error.to_string())?;
        let (services, rest) = addresses.split_at(pods);
        let (ingress, egress) = rest.split_at(pods);
        let tier = |list: &[SocketAddr], tier: usize| {
            list[tier * case.replicas..(tier + 1) * case.replicas].to_vec()
        };
        let entrances = if sidecar.is_some() { ingress } else { services };
        let mut programs = Vec::new();
        // From the store to the front, so that each finds the next one ready.
        for at in (0..case.tiers).rev() {
            for replica in 0..case.replicas {
                let pod = at * case.replicas + replica;
                let has_next = at + 1 < case.tiers;
                let next = match (has_next, sidecar) {
                    (false, _) => Vec::new(),
                    (true, None) => tier(services, at + 1),
                    (true, Some(_)) => vec![egress[pod]],
                };
                programs.push(service(services[pod], &next, options));
                if let Some(Sidecar { proxy, between }) = sidecar {
                    let mut inward = Forward::new(ingress[pod], vec![services[pod]]);
                    if at > 0 {
                        inward.clients = between;
                    }
                    let mut forwards = vec![inward];
                    if has_next {
                        let outward = Forward::new(egress[pod], tier(ingress, at + 1));
                        forwards.push(Forward { servers: between, ..outward });
                    }
                    programs.push(proxy.program(&options.peers, Layer::Http, &forwards)?);
                }
            }
        }
        let running = Running::launch(&programs, None).map_err(|error| error.to_string())?;
        Ok(Self { running, entries: tier(entrances, 0) })
    }

    fn measure(&self, case: Case, seconds: f64) -> io::Result<Outcome> {
        let mut entries = self.entries.iter().map(|entry| Address::Tcp(*entry));
        let Some(first) = entries.next() else {
            return Err(io::Error::other("the chain has no entry"));
        };
        let mut plan = Plan::new(first.into());
        plan.also = entries.collect();
        plan.connections = CONNECTIONS;
        plan.warmup = Duration::from_millis(300);
        plan.duration = Duration::from_secs_f64(seconds);
        if case.is_throttled {
            plan.arrivals = Arrivals::ClosedCapped { per_connection_rate: THROTTLE };
        }
        warm_up(&plan)?;
        plan.payers = self.running.payers();
        load::run(&plan).map_err(io::Error::other)
    }
}

/// Runs until every connection may have been answered: the first requests open a chain's own connections, with their
/// handshakes, which a machine that others use takes seconds for.
fn warm_up(plan: &Plan) -> io::Result<()> {
    let short =
        Plan { duration: Duration::from_millis(300), warmup: Duration::ZERO, ..plan.clone() };
    let deadline = Instant::now() + PATIENCE;
    let mut answered = 0;
    while answered < CONNECTIONS as u64 {
        if Instant::now() > deadline {
            return Err(io::Error::other(format!(
                "the chain gave {answered} answers within {} s",
                PATIENCE.as_secs()
            )));
        }
        answered += load::run(&short).map_err(io::Error::other)?.answered;
    }
    Ok(())
}

impl Case {
    fn name(self) -> String {
        let shape = if self.tiers == 1 { "single" } else { "chain" };
        let load = if self.is_throttled { "throttled" } else { "unthrottled" };
        format!("{shape}, replication {}, {load}", self.replicas)
    }
}

fn service(listen: SocketAddr, next: &[SocketAddr], options: &Options) -> Program {
    let mut command: Vec<String> = [
        &options.peers.towpath.display().to_string(),
        "lab",
        "origin",
        "--size",
        "1k",
        "--work",
        WORK,
        "--listen",
        &listen.to_string(),
    ]
    .map(str::to_owned)
    .into();
    for next in next {
        command.extend(["--next".to_owned(), format!("http://{next}/")]);
    }
    Program {
        name: "service".to_owned(),
        role: "service".to_owned(),
        command,
        config: None,
        listens: vec![listen],
    }
}

fn record(samples: &mut Samples, case: &str, who: &str, outcome: &Outcome) {
    // Of no answers nothing is finite, and what is not finite is no sample.
    let answered = outcome.answered as f64;
    let of = |role: &str| {
        outcome
            .payers
            .iter()
            .find(|(name, _)| name == role)
            .map(|(_, cost)| *cost)
            .unwrap_or_default()
    };
    let (services, proxies) = (of("service"), of("proxy"));
    let cpu_ns = (services.cpu_ns + proxies.cpu_ns) as f64;
    let memory = (services.pss_bytes + proxies.pss_bytes) as f64;
    samples.add(TABLE, case, who, "p95", "ms", percentile_ms(&outcome.latency, 0.95));
    samples.add(TABLE, case, who, "rate", "requests/s", outcome.achieved_rps());
    samples.add(TABLE, case, who, "cpu_per_request", "µs", cpu_ns / answered / 1e3);
    if who != "none" {
        let cpu_us = proxies.cpu_ns as f64 / answered / 1e3;
        samples.add(TABLE, case, who, "sidecar_cpu_per_request", "µs", cpu_us);
    }
    samples.add(TABLE, case, who, "cpu", "CPUs", cpu_ns / outcome.duration.as_nanos() as f64);
    samples.add(TABLE, case, who, "memory", "MiB", memory / 1_048_576.0);
    samples.add(TABLE, case, who, "errors", "requests", outcome.errors.total() as f64);
}

/// The study's own figures: changes against no sidecar, round by round.
fn compare(samples: &mut Samples, case: Case, name: &str, subjects: &[Option<Sidecar>]) {
    for sidecar in subjects.iter().flatten() {
        let who = sidecar.name();
        for (metric, change) in [
            ("p95", "p95_change"),
            ("rate", "rate_change"),
            ("cpu", "cpu_change"),
            ("memory", "memory_change"),
            ("cpu_per_request", "cpu_per_request_change"),
        ] {
            let without = samples.of(TABLE, name, "none", metric).to_vec();
            let with = samples.of(TABLE, name, who, metric).to_vec();
            for (with, without) in with.iter().zip(&without) {
                samples.add(TABLE, name, who, change, "%", (with / without - 1.0) * 100.0);
            }
        }
        if let (Wire::Http1, Some([p95, rate, cpu, memory])) = (sidecar.between, case.published) {
            samples.publish(TABLE, name, who, "p95_change", "%", p95);
            samples.publish(TABLE, name, who, "rate_change", "%", rate);
            samples.publish(TABLE, name, who, "cpu_change", "%", cpu);
            samples.publish(TABLE, name, who, "memory_change", "%", memory);
            let per_request = (1.0 + cpu / 100.0) / (1.0 + rate / 100.0);
            samples.publish(
                TABLE,
                name,
                who,
                "cpu_per_request_change",
                "%",
                (per_request - 1.0) * 100.0,
            );
        }
    }
}

const TABLE: &str = "Sidecar in a chain of services";
const CONNECTIONS: usize = 40;
/// A chain that needs longer for its first answers does not work.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests per second on each connection: what two shared processors can do with every sidecar.
const THROTTLE: f64 = 5.0;
/// What a request costs each service: the study's chain of four spent 1.3 ms.
const WORK: &str = "320us";

const fn case(
    tiers: usize,
    replicas: usize,
    is_throttled: bool,
    published: Option<[f64; 4]>,
) -> Case {
    Case { tiers, replicas, is_throttled, published }
}

const CASES: [Case; 8] = [
    case(4, 1, false, Some([90.0, -44.0, 15.0, 2.0])),
    case(4, 1, true, None),
    case(4, 3, false, Some([38.0, -38.0, 18.0, -5.0])),
    case(4, 3, true, Some([20.0, -3.0, 99.0, 2.0])),
    case(1, 1, false, None),
    case(1, 1, true, None),
    case(1, 3, false, None),
    case(1, 3, true, None),
];
