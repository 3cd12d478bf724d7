//! `cargo xtask xds`: what a large control plane costs, for Towpath and for Envoy on the same recorded streams.
//!
//! Three questions, asked of one program after the other, in rounds: how long a start with many clusters and routes
//! takes and what memory it leaves; how long one changed route takes until requests take it; and what many updates of
//! endpoints a second cost the threads that take them, and requests meanwhile. The control plane is `towpath xds
//! replay`, the load is oha's.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::shell::{Result, output, root, target};

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let plan = Plan::of(arguments)?;
    let folder = target().join("xds");
    fs::create_dir_all(&folder)?;
    let mut measured: [Vec<Measured>; 2] = Default::default();
    for round in 0..plan.rounds {
        for who in [Who::Towpath, Who::Envoy] {
            println!("round {} of {}: {}", round + 1, plan.rounds, who.name());
            let one = measure(&plan, who, &folder)?;
            println!("  {one:?}");
            measured[who as usize].push(one);
        }
    }
    print!("{}", report(&plan, &measured));
    Ok(())
}

#[derive(Debug)]
struct Plan {
    clusters: usize,
    /// Clusters whose endpoints change.
    churned: usize,
    /// Updates of endpoints a second, in groups of ten.
    updates: usize,
    seconds: u64,
    rounds: usize,
    programs: PathBuf,
    peers: PathBuf,
}

impl Plan {
    fn of(arguments: &[String]) -> Result<Self> {
        let mut plan = Self {
            clusters: 5_000,
            churned: 1_000,
            updates: 1_000,
            seconds: 20,
            rounds: 2,
            programs: target().join("release"),
            peers: std::env::var_os("TOWPATH_PEERS")
                .map_or_else(|| root().join("target/peers/bin"), PathBuf::from),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => (plan.clusters, plan.seconds, plan.rounds) = (500, 3, 1),
                "--programs" => plan.programs = words.next().ok_or(USAGE)?.into(),
                "--rounds" => plan.rounds = words.next().ok_or(USAGE)?.parse()?,
                _ => return Err(USAGE.into()),
            }
        }
        for program in ["towpath", "towpath-proxy"] {
            if !plan.programs.join(program).is_file() {
                let folder = plan.programs.display();
                return Err(format!("{folder} has no {program}: cargo build --release").into());
            }
        }
        Ok(plan)
    }
}

const USAGE: &str = "cargo xtask xds [--quick] [--rounds N] [--programs FOLDER]";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Towpath,
    Envoy,
}

impl Who {
    const fn name(self) -> &'static str {
        match self {
            Self::Towpath => "Towpath",
            Self::Envoy => "Envoy",
        }
    }
}

/// Of one program, once.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    ready_ms: f64,
    memory_mib: f64,
    /// From the control plane's message to the first request that takes the changed route; the median of several.
    applied_ms: f64,
    /// Share of a core that the threads without requests took while endpoints changed.
    control_cpu: f64,
    /// Of requests, without changes and with them.
    calm_p99_ms: f64,
    busy_p99_ms: f64,
    /// Of the updates of endpoints that were sent.
    taken: f64,
}

fn measure(plan: &Plan, who: Who, folder: &Path) -> Result<Measured> {
    let mut measured = Measured::default();
    let listener = free_port()?;
    let mut steps = start_of(plan.clusters, listener, false);
    for change in 0..CHANGES {
        let table = table(plan.clusters, Some(202 + change));
        steps.push(step(CHANGES_BEGIN + change as u64 * CHANGE_EVERY, ROUTES, &[("table", table)]));
    }
    let recording = write(folder, "routes.xds", &steps)?;
    let mut running = Running::start(plan, who, folder, &recording)?;
    measured.ready_ms = running.ready()?.as_secs_f64() * 1000.0;
    std::thread::sleep(Duration::from_secs(1));
    measured.memory_mib = running.memory()?;
    let mut times = Vec::new();
    for change in 0..CHANGES {
        times.push(running.applied(plan.clusters, listener, 202 + change)?);
    }
    times.sort_unstable();
    measured.applied_ms = times[times.len() / 2].as_secs_f64() * 1000.0;
    drop(running);

    let listener = free_port()?;
    let origin = Origin::start()?;
    let mut steps = start_of(plan.churned, listener, true);
    let (group, count) = (10, plan.seconds as usize * plan.updates / 10);
    let every = group as u64 * 1000 / plan.updates as u64;
    steps.push(step(0, ENDPOINTS, &[("c0", endpoints("c0", &[origin.port]))]));
    for index in 0..count {
        // The first has the requests, and stays.
        let name = |at: usize| format!("c{}", 1 + (index * group + at) % (plan.churned - 1));
        let one = |at: usize| {
            let name = name(at);
            let assignment = endpoints(&name, &[1, 2 + (index % 2) as u16]);
            (name, assignment)
        };
        let all: Vec<(String, Value)> = (0..group).map(one).collect();
        let all: Vec<(&str, Value)> =
            all.iter().map(|(name, it)| (name.as_str(), it.clone())).collect();
        steps.push(step(CHURN_BEGINS + index as u64 * every, ENDPOINTS, &all));
    }
    let recording = write(folder, "endpoints.xds", &steps)?;
    let began = Instant::now();
    let mut running = Running::start(plan, who, folder, &recording)?;
    running.ready()?;
    let load_seconds = plan.seconds.saturating_sub(1).max(1);
    measured.calm_p99_ms = load(plan, listener, 3)?;
    let churn = Duration::from_millis(CHURN_BEGINS + 500);
    std::thread::sleep(churn.saturating_sub(began.elapsed()));
    let (before, at) = (running.control_time()?, Instant::now());
    let taken = running.stat("cluster.c1.update_success")?;
    measured.busy_p99_ms = load(plan, listener, load_seconds)?;
    let took = at.elapsed().as_secs_f64();
    measured.control_cpu = (running.control_time()? - before).as_secs_f64() / took;
    let updates = (running.stat("cluster.c1.update_success")? - taken) as f64;
    let sent = took * plan.updates as f64 / (plan.churned - 1) as f64;
    measured.taken = updates / sent;
    Ok(measured)
}

/// A program, and the control plane that it asks. Both end with it.
struct Running {
    proxy: Child,
    plane: Child,
    /// Lines of the control plane, and when they came.
    lines: Receiver<(Instant, String)>,
    admin: String,
    began: Instant,
}

impl Running {
    fn start(plan: &Plan, who: Who, folder: &Path, recording: &Path) -> Result<Self> {
        let mut plane = Command::new(plan.programs.join("towpath"))
            .args(["xds", "replay", "--listen", "127.0.0.1:0"])
            .arg(recording)
            .stdout(Stdio::piped())
            .spawn()?;
        let out = plane.stdout.take().ok_or("no output of the control plane")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(std::result::Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        let (_, first) = lines.recv_timeout(PATIENCE)?;
        let at = first.strip_prefix("listening on ").ok_or("the control plane does not listen")?;
        let admin = free_port()?;
        let config = folder.join("bootstrap.json");
        fs::write(&config, bootstrap(at, admin).to_string())?;
        let mut command = match who {
            Who::Towpath => Command::new(plan.programs.join("towpath-proxy")),
            Who::Envoy => {
                let mut command = Command::new(plan.peers.join("envoy"));
                command.arg("--use-dynamic-base-id");
                command
            }
        };
        command.arg("-c").arg(&config).args(["--concurrency", "1", "-l", "critical"]);
        let began = Instant::now();
        let proxy = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { proxy, plane, lines, admin: format!("127.0.0.1:{admin}"), began })
    }

    fn ready(&mut self) -> Result<Duration> {
        loop {
            if get(&self.admin, "/ready").is_ok_and(|(status, _)| status == 200) {
                return Ok(self.began.elapsed());
            }
            if self.began.elapsed() > PATIENCE || self.proxy.try_wait()?.is_some() {
                return Err("it does not get ready".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Resident, in MiB.
    fn memory(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.proxy.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
        Ok(kib.parse::<f64>()? / 1024.0)
    }

    /// CPU time of all threads but workers.
    fn control_time(&self) -> Result<Duration> {
        let folder = format!("/proc/{}/task", self.proxy.id());
        let mut sum = 0;
        for thread in fs::read_dir(folder)? {
            let path = thread?.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            // Envoy's `wrk:worker_0`, Towpath's `worker-0`.
            if name.contains("worker") {
                continue;
            }
            let stat = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            sum += stat.split_whitespace().next().unwrap_or("0").parse::<u64>()?;
        }
        Ok(Duration::from_nanos(sum))
    }

    fn stat(&self, name: &str) -> Result<u64> {
        let (_, text) = get(&self.admin, &format!("/stats?filter=^{name}$"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(value.ok_or_else(|| format!("there is no {name}"))?.trim().parse()?)
    }

    /// How long after its step the last route answers with this status.
    fn applied(&self, clusters: usize, listener: u16, status: u16) -> Result<Duration> {
        let number = START_STEPS + usize::from(status - 201);
        let sent = loop {
            let (at, line) = self.lines.recv_timeout(PATIENCE)?;
            if line.starts_with(&format!("step {number},")) {
                break at;
            }
        };
        let path = format!("/r{}", clusters - 1);
        loop {
            if get(&format!("127.0.0.1:{listener}"), &path).is_ok_and(|(it, _)| it == status) {
                return Ok(sent.elapsed());
            }
            if sent.elapsed() > PATIENCE {
                return Err(format!("the route with {status} does not come").into());
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in [&mut self.proxy, &mut self.plane] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Answers every request with 200.
struct Origin {
    port: u16,
}

impl Origin {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(std::result::Result::ok) {
                std::thread::spawn(move || answer(stream));
            }
        });
        Ok(Self { port })
    }
}

fn answer(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(mut writer) = stream.try_clone() else { return };
    for line in BufReader::new(stream).lines().map_while(std::result::Result::ok) {
        if line.is_empty()
            && writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err()
        {
            return;
        }
    }
}

/// The 99th percentile of 500 requests a second, in ms, from when each was to begin.
fn load(plan: &Plan, listener: u16, seconds: u64) -> Result<f64> {
    let text = output(
        Command::new(plan.peers.join("oha"))
            .args(["--no-tui", "--output-format", "json", "-q", "500", "-c", "4"])
            .args(["--latency-correction", "-z", &format!("{seconds}s")])
            .arg(format!("http://127.0.0.1:{listener}/r0")),
    )?;
    let said: Value = serde_json::from_str(&text)?;
    let seconds = said["latencyPercentiles"]["p99"].as_f64().ok_or("oha says no percentile")?;
    Ok(seconds * 1000.0)
}

fn get(address: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
    let (mut text, mut piece) = (String::new(), [0; 16384]);
    // Who closes takes its time.
    while !is_whole(&text) {
        let length = stream.read(&mut piece)?;
        if length == 0 {
            break;
        }
        text += &String::from_utf8_lossy(&piece[..length]);
    }
    let status = text.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok((status, text))
}

fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        None => body.ends_with("0\r\n\r\n"),
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn address(port: u16) -> Value {
    json!({"socket_address": {"address": "127.0.0.1", "port_value": port}})
}

fn bootstrap(plane: &str, admin: u16) -> Value {
    let port = plane.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    json!({
        "node": {"id": "me", "cluster": "here"},
        "admin": {"address": address(admin)},
        "dynamic_resources": {
            "ads_config": {"api_type": "DELTA_GRPC", "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]},
            "cds_config": ads, "lds_config": ads},
        "static_resources": {"clusters": [{
            "name": "xds", "type": "STATIC",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {"http2_protocol_options": {}}}},
            "load_assignment": {"cluster_name": "xds", "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": address(port)}}]}]},
        }]},
    })
}

fn step(at_ms: u64, kind: &str, resources: &[(&str, Value)]) -> String {
    let one = |(name, resource): &(&str, Value)| json!({"name": name, "version": "", "resource": resource});
    let resources: Vec<Value> = resources.iter().map(one).collect();
    let line =
        json!({"at_ms": at_ms, "type": kind, "version": at_ms.to_string(), "resources": resources});
    format!("{line}\n")
}

/// Clusters, a listener and its table, with a route for each cluster.
fn start_of(count: usize, listener: u16, by_eds: bool) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|index| format!("c{index}")).collect();
    let cluster = |name: &str| {
        if by_eds {
            json!({"name": name, "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}})
        } else {
            json!({"name": name, "type": "STATIC", "load_assignment": endpoints(name, &[1])})
        }
    };
    let clusters: Vec<(&str, Value)> =
        names.iter().map(|name| (name.as_str(), cluster(name))).collect();
    let hcm = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let web = json!({"name": "web", "address": address(listener), "filter_chains": [{"filters": [
        {"name": "http", "typed_config": {"@type": hcm, "stat_prefix": "web",
            "rds": {"route_config_name": "table", "config_source": {"ads": {}}},
            "http_filters": [{"name": "router", "typed_config": {"@type": router}}]}}]}]});
    let mut steps = vec![step(0, CLUSTERS, &clusters)];
    if by_eds {
        let all: Vec<(&str, Value)> =
            names.iter().map(|name| (name.as_str(), endpoints(name, &[1, 2]))).collect();
        steps.push(step(0, ENDPOINTS, &all));
    }
    steps.push(step(0, LISTENERS, &[("web", web)]));
    steps.push(step(0, ROUTES, &[("table", table(count, None))]));
    steps
}

/// A route to each cluster; the last may answer by itself.
fn table(count: usize, status: Option<u16>) -> Value {
    let route = |index: usize| {
        let matches = json!({"path": format!("/r{index}")});
        match status.filter(|_| index + 1 == count) {
            Some(status) => json!({"match": matches, "direct_response": {"status": status}}),
            None => json!({"match": matches, "route": {"cluster": format!("c{index}")}}),
        }
    };
    let routes: Vec<Value> = (0..count).map(route).collect();
    json!({"name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]})
}

fn endpoints(name: &str, ports: &[u16]) -> Value {
    let host = |port: &u16| json!({"endpoint": {"address": address(*port)}});
    let hosts: Vec<Value> = ports.iter().map(host).collect();
    json!({"cluster_name": name, "endpoints": [{"lb_endpoints": hosts}]})
}

fn write(folder: &Path, name: &str, steps: &[String]) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, "{\"towpath_xds\":1}\n".to_owned() + &steps.concat())?;
    Ok(path)
}

fn report(plan: &Plan, measured: &[Vec<Measured>; 2]) -> String {
    type Row = (&'static str, fn(&Measured) -> f64);
    let rows: [Row; 7] = [
        ("time to ready, ms", |it| it.ready_ms),
        ("resident memory, MiB", |it| it.memory_mib),
        ("a changed route applied, ms (median)", |it| it.applied_ms),
        ("control threads while endpoints change, cores", |it| it.control_cpu),
        ("request p99 without changes, ms", |it| it.calm_p99_ms),
        ("request p99 with changes, ms", |it| it.busy_p99_ms),
        ("updates of endpoints taken, of those sent", |it| it.taken),
    ];
    let mut text = format!(
        "\n{} clusters and routes by delta ADS; {} updates of endpoints a second for {} s; one worker each; {} \
        rounds\n\n\
         | | Towpath | Envoy |\n|---|---|---|\n",
        plan.clusters, plan.updates, plan.seconds, plan.rounds
    );
    for (name, of) in rows {
        let cell = |all: &Vec<Measured>| {
            let numbers: Vec<String> = all.iter().map(|it| format!("{:.2}", of(it))).collect();
            numbers.join(" / ")
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {} | {} |", cell(&measured[0]), cell(&measured[1]));
    }
    text
}

const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const LISTENERS: &str = "envoy.config.listener.v3.Listener";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
const PATIENCE: Duration = Duration::from_secs(60);
/// Steps of a start without EDS.
const START_STEPS: usize = 3;
/// Route changes, and when they come, in ms.
const CHANGES: u16 = 5;
const CHANGES_BEGIN: u64 = 15_000;
const CHANGE_EVERY: u64 = 1_500;
/// When endpoints begin to change, in ms.
const CHURN_BEGINS: u64 = 10_000;
