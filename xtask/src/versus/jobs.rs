//! The jobs: many small requests, one large answer, a fixed rate, and doing nothing.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::shell::{Result, output, target};

use super::configs::{self, Extras, Kind};
use super::contender::{Running, free_port};
use super::filters;
use super::load;
use super::process::{Process, await_port};
use super::report::{Column, Figure, Report, Row};
use super::{Plan, Programs};

pub(super) const fn column(heading: &'static str, metric: &'static str, decimals: usize) -> Column {
    Column { heading, metric, decimals }
}

/// As many 1 KB answers as come through, for each number of connections.
pub(super) fn closed_loop(
    plan: &Plan,
    programs: &Programs,
    kind: Kind,
    report: &mut Report,
) -> Result<()> {
    let scene = Scene::start(plan, programs, kind)?;
    let columns = [
        column("CPU µs/req", "cpu_us_per_request", 2),
        column("user", "user_us_per_request", 2),
        column("system", "system_us_per_request", 2),
        column("req/CPU-s", "requests_per_cpu_second", 0),
        column("req/s", "requests_per_second", 0),
        column("p50 µs", "p50_us", 0),
        column("p99 µs", "p99_us", 0),
        column("MiB", "memory_mib", 1),
        column("calls/req", "syscalls_per_request", 2),
    ];
    for &connections in &plan.connections {
        let mut rows = scene.rows(columns.len());
        for round in 0..=plan.rounds {
            for (running, row) in turns(round, &scene.running, &mut rows) {
                // The first round warms up, and counts system calls, which costs the one counted.
                if round == 0 {
                    let calls = calls_per_request(programs, kind, running, connections)?;
                    row.figures[8].add(calls.unwrap_or(f64::NAN));
                    continue;
                }
                let before = running.process.cpu();
                let asks = load::Asks { kind, connections, seconds: plan.seconds, closes: false };
                let closed = load::wrk(&programs.wrk, running.port, asks)
                    .map_err(|error| format!("{}: {error}", running.name))?;
                let cpu = running.process.cpu().since(before);
                let requests = closed.requests as f64;
                let total = cpu.total_ns as f64 / 1000.0 / requests;
                let user = cpu.user_ns() / 1000.0 / requests;
                let memory = running.process.resident_bytes() as f64 / f64::from(1 << 20);
                let latency = (closed.p50_us, closed.p99_us);
                let rates = (1e6 / total, closed.per_second);
                add(
                    row,
                    [total, user, total - user, rates.0, rates.1, latency.0, latency.1, memory],
                );
            }
        }
        let title = format!(
            "{}: 1 KB answers, keep-alive, {connections} connections, {} rounds of {} s",
            kind.name(),
            plan.rounds,
            plan.seconds
        );
        report.table(&title, &format!("{}-{connections}", kind.name()), &columns, &rows);
    }
    Ok(())
}

fn calls_per_request(
    programs: &Programs,
    kind: Kind,
    running: &Running,
    connections: usize,
) -> Result<Option<f64>> {
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let asks = load::Asks { kind, connections, seconds: 2, closes: false };
            load::wrk(&programs.wrk, running.port, asks).map_err(|error| error.to_string())
        });
        std::thread::sleep(Duration::from_millis(700));
        let span = Duration::from_millis(600);
        let calls = running.process.count_syscalls(span);
        let closed = load.join().map_err(|_| "the load's thread panicked")?;
        let closed = closed.map_err(|error| format!("{}: {error}", running.name))?;
        Ok(calls.map(|calls| calls as f64 / (closed.per_second * span.as_secs_f64())))
    })
}

/// One large answer through one connection, without a look inside.
pub(super) fn stream(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let scene = Scene::start(plan, programs, Kind::Tcp)?;
    let columns = [
        column("CPU ms/GiB", "cpu_ms_per_gib", 0),
        column("user", "user_ms_per_gib", 0),
        column("GiB/s", "gib_per_second", 2),
        column("MiB", "memory_mib", 1),
    ];
    let mut rows = scene.rows(columns.len());
    let gib = plan.stream_bytes as f64 / f64::from(1 << 30);
    for round in 0..plan.rounds {
        for (running, row) in turns(round, &scene.running, &mut rows) {
            let before = running.process.cpu();
            let seconds = load::drain(running.port, plan.stream_bytes)
                .map_err(|error| format!("{}: {error}", running.name))?;
            let cpu = running.process.cpu().since(before);
            let memory = running.process.resident_bytes() as f64 / f64::from(1 << 20);
            let (total, user) = (cpu.total_ns as f64 / 1e6, cpu.user_ns() / 1e6);
            add(row, [total / gib, user / gib, gib / seconds, memory]);
        }
    }
    let title = format!("tcp: {gib} GiB through one connection, {} rounds", plan.rounds);
    report.table(&title, "stream", &columns, &rows);
    Ok(())
}

const RATE: u64 = 5000;

/// Few enough milliseconds that most slices are free of the machine's own stalls, which are longer than what is
/// measured and would be the 99th percentile of every longer run; fifteen requests are beyond it.
const SLICE: Duration = Duration::from_millis(300);
/// Of each second that a round is asked to have: about as many requests are measured as by one run of that length.
const SLICES_PER_SECOND: usize = 4;

/// A fixed rate, below what the slowest can do: what a proxy adds to the latency.
pub(super) fn open_loop(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let scene = Scene::start(plan, programs, Kind::Http)?;
    let columns = [
        column("p99 µs", "p99_us", 0),
        column("p50 µs", "p50_us", 0),
        column("p99.9 µs", "p999_us", 0),
        column("CPU µs/req", "cpu_us_per_request", 2),
        column("failed", "failed", 0),
    ];
    let mut rows = scene.rows(columns.len());
    let mut direct = Row { who: "direct", figures: vec![Figure::default(); columns.len()] };
    let json = scene.folder.join("load.json");
    let slices = plan.rounds * usize::try_from(plan.seconds)? * SLICES_PER_SECOND;
    for round in 0..slices {
        let open = load::open(&programs.lab, scene.origin_port, RATE, SLICE, &json)?;
        add(&mut direct, [open.p99_us, open.p50_us, open.p999_us, f64::NAN, open.failed as f64]);
        for (running, row) in turns(round, &scene.running, &mut rows) {
            let before = running.process.cpu();
            let open = load::open(&programs.lab, running.port, RATE, SLICE, &json)
                .map_err(|error| format!("{}: {error}", running.name))?;
            let cpu = running.process.cpu().since(before);
            // The warm-up is in the processor's time but not in the answers.
            let requests = open.answered as f64 + RATE as f64 * load::WARM_UP.as_secs_f64();
            let cpu = cpu.total_ns as f64 / 1000.0 / requests;
            add(row, [open.p99_us, open.p50_us, open.p999_us, cpu, open.failed as f64]);
        }
    }
    rows.insert(0, direct);
    let title = format!(
        "http: {RATE} requests/s, open loop, latency from when each was due; medians of {slices} slices of {} ms",
        SLICE.as_millis()
    );
    report.table(&title, "open", &columns, &rows);
    Ok(())
}

/// Who comes after whom: forwards and backwards in turns, so that none always follows the same neighbour.
pub(super) fn turns<'a>(
    round: usize,
    running: &'a [Running],
    rows: &'a mut [Row],
) -> Vec<(&'a Running, &'a mut Row)> {
    let mut turns: Vec<_> = running.iter().zip(rows).collect();
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

pub(super) fn add<const N: usize>(row: &mut Row, values: [f64; N]) {
    for (figure, value) in row.figures.iter_mut().zip(values) {
        figure.add(value);
    }
}

/// Memory: with nothing to do, and with many connections that do nothing.
pub(super) fn idle(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let scene = Scene::start(plan, programs, Kind::Http)?;
    let columns = [
        column("idle MiB", "idle_mib", 1),
        column("held MiB", "held_mib", 1),
        column("more MiB", "more_mib", 1),
        column("B/conn", "bytes_per_connection", 0),
    ];
    let mut rows = scene.rows(columns.len());
    let mib = f64::from(1 << 20);
    for (running, row) in scene.running.iter().zip(&mut rows) {
        std::thread::sleep(Duration::from_millis(300));
        let idle = running.process.resident_bytes() as f64;
        row.figures[0].add(idle / mib);
        // It opens an upstream connection for each, which is another job.
        if running.name == "floor" {
            continue;
        }
        let held = load::hold(running.port, plan.idle_connections);
        match held {
            Ok(held) => {
                std::thread::sleep(Duration::from_millis(500));
                let full = running.process.resident_bytes() as f64;
                drop(held);
                let each = (full - idle) / plan.idle_connections as f64;
                row.figures[1].add(full / mib);
                row.figures[2].add((full - idle) / mib);
                row.figures[3].add(each);
            }
            Err(error) => println!("  {}: {error}", running.name),
        }
    }
    let title = format!(
        "memory (PSS): idle, and with {} idle keep-alive connections",
        plan.idle_connections
    );
    report.table(&title, "idle", &columns, &rows);
    Ok(())
}

/// Who answers behind the contenders.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Nginx,
    /// Our lab's, with so many bytes.
    Answers {
        size: usize,
    },
    /// Our lab's, which does not answer as long as anything is held.
    Silent,
}

/// An origin without contenders.
pub(super) struct Alone {
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    _process: Process,
}

/// An origin and all contenders before it.
pub(super) struct Scene {
    pub(super) folder: PathBuf,
    origin_port: u16,
    pub(super) running: Vec<Running>,
    _origin: Process,
    /// Who is asked about each request.
    _judge: Option<Process>,
}

impl Scene {
    pub(super) fn start(plan: &Plan, programs: &Programs, kind: Kind) -> Result<Self> {
        let origin = match kind {
            Kind::Grpc => Origin::Answers { size: 100 },
            // nginx writes each stream's answer by itself, and with it 38,000 of them a second are all that the
            // core of client and origin has time for: a proxy before it waits more than it works.
            Kind::H2ToH2 => Origin::Answers { size: 1024 },
            Kind::Http | Kind::Tcp | Kind::H2ToH1 | Kind::Tls | Kind::TlsH2ToH1 | Kind::Asked => {
                Origin::Nginx
            }
        };
        Self::start_before(plan, programs, kind, origin)
    }

    pub(super) fn start_before(
        plan: &Plan,
        programs: &Programs,
        kind: Kind,
        origin: Origin,
    ) -> Result<Self> {
        let folder = target().join("versus");
        let files = folder.join("files");
        fs::create_dir_all(&files)?;
        fs::write(files.join("small"), [b'x'; 1024])?;
        // All holes: the origin reads it without a disk.
        fs::File::create(files.join("large"))?.set_len(plan.stream_bytes)?;
        if kind.is_h2() || kind.is_tls() {
            make_certificate(&folder)?;
        }
        fs::write(folder.join(load::OPENSSL_CONFIG), load::ONE_SUITE)?;
        let (plain, h2) = (free_port()?, free_port()?);
        let origin_port = if kind.has_h2_origin() { h2 } else { plain };
        let process = match origin {
            Origin::Nginx => start_origin(&programs.nginx, &folder, plain, h2)?,
            Origin::Answers { size } => {
                start_lab_origin(&programs.lab, &format!("--size={size}"), origin_port)?
            }
            Origin::Silent => start_lab_origin(&programs.lab, "--delay=3600s", origin_port)?,
        };
        let (mut judge, mut extras) = (None, Extras::default());
        if kind == Kind::Asked {
            let (process, port) = start_judge(&programs.lab)?;
            judge = Some(process);
            extras.parts = filters::asked(&folder, port);
        }
        let mut running = Vec::new();
        for contender in programs.contenders.iter().filter(|it| kind.suits(it.name, false)) {
            let proxy = contender.start(kind, &extras, origin_port, &folder)?;
            match kind {
                Kind::Http | Kind::Tcp | Kind::Asked => check(&proxy)?,
                // What makes the load looks at these answers.
                Kind::Grpc | Kind::Tls => {}
                _ if origin == Origin::Silent => {}
                Kind::H2ToH1 | Kind::H2ToH2 | Kind::TlsH2ToH1 => {
                    load::h2_check(programs, kind, proxy.port)
                        .map_err(|error| format!("{}: {error}", proxy.name))?
                }
            }
            running.push(proxy);
        }
        Ok(Self { folder, origin_port, running, _origin: process, _judge: judge })
    }

    /// An origin alone.
    pub(super) fn origin(programs: &Programs) -> Result<Alone> {
        let folder = target().join("versus");
        fs::create_dir_all(folder.join("files"))?;
        fs::write(folder.join("files/small"), [b'x'; 1024])?;
        let (port, h2) = (free_port()?, free_port()?);
        let process = start_origin(&programs.nginx, &folder, port, h2)?;
        Ok(Alone { folder, port, _process: process })
    }

    pub(super) fn rows(&self, figures: usize) -> Vec<Row> {
        let row = |running: &Running| Row {
            who: running.name,
            figures: vec![Figure::default(); figures],
        };
        self.running.iter().map(row).collect()
    }
}

/// A server that says OK to each question by gRPC, and its port.
pub(super) fn start_judge(lab: &Path) -> Result<(Process, u16)> {
    let port = free_port()?;
    // A message of no bytes says so.
    Ok((start_lab_origin(lab, "--size=0", port)?, port))
}

fn start_lab_origin(lab: &Path, answers: &str, port: u16) -> Result<Process> {
    let listen = format!("--listen=127.0.0.1:{port}");
    let command =
        [&*lab.display().to_string(), "lab", "origin", &listen, answers].map(str::to_owned);
    let mut origin = Process::start(load::CLIENT_CORE, &command)?;
    await_port(port, &mut origin, "the origin")?;
    Ok(origin)
}

/// A key and a certificate for `localhost`, and both in one file as HAProxy wants them.
fn make_certificate(folder: &Path) -> Result<()> {
    let [key, chain, both] = ["key.pem", "chain.pem", "both.pem"].map(|name| folder.join(name));
    if both.is_file() {
        return Ok(());
    }
    output(
        Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-nodes", "-days", "3650", "-subj", "/CN=localhost", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&chain),
    )
    .map_err(|error| format!("a certificate needs openssl: {error}"))?;
    fs::write(both, [fs::read(chain)?, fs::read(key)?].concat())?;
    Ok(())
}

fn start_origin(nginx: &Path, folder: &Path, port: u16, h2_port: u16) -> Result<Process> {
    let config = folder.join("origin.conf");
    fs::write(&config, configs::origin(folder, port, h2_port))?;
    let words = [nginx, Path::new("-p"), folder, Path::new("-c"), &config];
    let command: Vec<String> = words.iter().map(|word| word.display().to_string()).collect();
    let mut origin = Process::start(load::CLIENT_CORE, &command)?;
    await_port(port, &mut origin, "the origin")?;
    Ok(origin)
}

/// The right answer, before anything is measured.
fn check(running: &Running) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", running.port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /small HTTP/1.1\r\nHost: origin\r\n\r\n")?;
    let answer =
        load::read_answer(&mut stream).map_err(|error| format!("{}: {error}", running.name))?;
    let right = answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(&[b'x'; 1024]);
    if right { Ok(()) } else { Err(format!("{} gives the wrong answer", running.name).into()) }
}
