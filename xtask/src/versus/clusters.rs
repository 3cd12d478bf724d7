//! What many clusters cost the two that read Envoy's configuration: memory, the start, and a scrape of all counters.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::shell::{Result, output};

use super::configs::{Extras, Kind};
use super::contender::{Contender, free_port};
use super::filters::{self, Parts};
use super::jobs::{Scene, add, column};
use super::load;
use super::process::{Process, await_port};
use super::report::{Figure, Report, Row};
use super::{Plan, Programs};

const CLUSTERS: usize = 5000;
/// Requests a second while all counters are read and while they are not: few enough that both proxies are mostly idle.
const RATE: u64 = 1000;
/// What reads counters has a thread of its own, which is not to take the worker's core from it.
const BOTH_CORES: &str = "0-1";
const SLICE: Duration = Duration::from_secs(2);

/// A proxy that has read them.
struct Loaded {
    process: Process,
    port: u16,
    admin: u16,
    took: Duration,
}

pub(super) fn run(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let origin = Scene::origin(programs)?;
    let columns = [
        column("MiB", "memory_mib", 1),
        column("loaded s", "load_seconds", 2),
        column("scrape s", "scrape_seconds", 3),
        column("scrape MB", "scrape_megabytes", 1),
        column("p99 µs", "p99_us", 0),
        column("scraped p99", "scraped_p99_us", 0),
    ];
    let able = |it: &&Contender| Kind::Http.suits(it.name, true);
    let contenders: Vec<_> = programs.contenders.iter().filter(able).collect();
    let row =
        |it: &&Contender| Row { who: it.name, figures: vec![Figure::default(); columns.len()] };
    let mut rows: Vec<_> = contenders.iter().map(row).collect();
    let json = origin.folder.join("load.json");
    for _ in 0..plan.rounds {
        for (contender, row) in contenders.iter().zip(&mut rows) {
            let about = |error| format!("{}: {error}", contender.name);
            let loaded = load(contender, origin.port, &origin.folder).map_err(about)?;
            std::thread::sleep(Duration::from_millis(500));
            let memory = loaded.process.resident_bytes() as f64 / f64::from(1 << 20);
            // The first one makes what later ones find.
            scrape(loaded.admin)?;
            let (bytes, took) = scrape(loaded.admin)?;
            let quiet = load::open(&programs.lab, loaded.port, RATE, SLICE, &json)?;
            let scraped = while_scraped(loaded.admin, || {
                load::open(&programs.lab, loaded.port, RATE, SLICE, &json)
            })?;
            let failed = quiet.failed + scraped.failed;
            if failed > 0 {
                return Err(format!("{}: {failed} requests failed", contender.name).into());
            }
            let (loaded, took) = (loaded.took.as_secs_f64(), took.as_secs_f64());
            add(row, [memory, loaded, took, bytes as f64 / 1e6, quiet.p99_us, scraped.p99_us]);
        }
    }
    let title = format!(
        "clusters: {CLUSTERS} of 4 endpoints each in the bootstrap; requests at {RATE}/s, open loop, while all \
         counters are read again and again and while they are not; {} rounds",
        plan.rounds
    );
    report.table(&title, "clusters", &columns, &rows);
    Ok(())
}

/// Starts a proxy with all of them, and waits until it listens.
fn load(contender: &Contender, origin: u16, folder: &Path) -> Result<Loaded> {
    let clusters = (0..CLUSTERS).map(|number| filters::four_hosts(&format!("service-{number}")));
    let parts = Parts { clusters: clusters.collect(), ..Parts::default() };
    let extras = Extras { parts, ..Extras::default() };
    let (port, command) = contender.command(Kind::Http, &extras, origin, folder)?;
    let config = command.iter().find(|word| word.ends_with(".yaml")).ok_or("no configuration")?;
    let admin = free_port()?;
    let text = format!(
        "admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {admin} }} }} }}\n{}",
        fs::read_to_string(config)?
    );
    fs::write(config, text)?;
    let start = Instant::now();
    let mut process = Process::start(BOTH_CORES, &command)?;
    await_port(port, &mut process, contender.name)?;
    Ok(Loaded { process, port, admin, took: start.elapsed() })
}

/// Reads all counters once: how many bytes, and how long it took.
fn scrape(admin: u16) -> Result<(usize, Duration)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", admin))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream
        .write_all(b"GET /stats/prometheus HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")?;
    // Kept nowhere: memory for all of it would be most of what is measured.
    let mut room = vec![0; 256 * 1024];
    let (mut begins, mut length) = (Vec::new(), 0);
    loop {
        let read = stream.read(&mut room)?;
        if read == 0 {
            break;
        }
        if begins.len() < STATUS.len() {
            begins.extend_from_slice(&room[..read]);
        }
        length += read;
    }
    if !begins.starts_with(STATUS) || length < CLUSTERS * 100 {
        return Err(format!("a scrape of {length} bytes").into());
    }
    Ok((length, start.elapsed()))
}

const STATUS: &[u8] = b"HTTP/1.1 200";

/// Reads all counters once from another process that lets all others go first: a scraper has a machine of its own.
fn scrape_aside(admin: u16) -> Result<()> {
    let url = format!("http://127.0.0.1:{admin}/stats/prometheus");
    let curl = ["-n", "19", "curl", "--silent", "--fail", "--output", "/dev/null", "--write-out"];
    let said = output(Command::new("nice").args(curl).args(["%{size_download}", &url]))?;
    let length: usize = said.trim().parse()?;
    if length < CLUSTERS * 100 {
        return Err(format!("a scrape of {length} bytes").into());
    }
    Ok(())
}

/// Does something while all counters are read, again and again.
fn while_scraped<T: Send>(admin: u16, what: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                scrape_aside(admin).map_err(|error| error.to_string())?;
                // A scraper asks every few seconds; here twice a second.
                std::thread::sleep(Duration::from_millis(500));
            }
            Ok::<_, String>(())
        });
        let done = what();
        is_over.store(true, Ordering::Relaxed);
        scraper.join().map_err(|_| "the scraper panicked")??;
        done
    })
}
