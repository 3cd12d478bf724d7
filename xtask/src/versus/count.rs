//! User instructions of a whole proxy for one request, by callgrind: the same however busy the machine is.
//!
//! Each figure is the difference of two runs that differ in nothing but how many requests they serve, so that starting,
//! stopping and the first requests drop out. Origin and client are threads of this program: sixteen connections
//! that ask in lock-step.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::configs::{Extras, Kind, Log};
use super::contender::{self, Contender};
use super::filters::{self, Parts};
use super::jobs;
use crate::peers;
use crate::shell::{Result, cargo, run as run_command, target, terminate};

/// What every request or answer has more than the plain ones.
pub(super) struct Job {
    pub(super) name: &'static str,
    kind: Kind,
    edge: bool,
    log: bool,
    fields: usize,
    content: usize,
    /// What Towpath and Envoy alone are told to do, with a port at which something answers.
    parts: Option<fn(&Path, u16) -> Parts>,
}

impl Job {
    const fn of(name: &'static str) -> Self {
        let kind = Kind::Http;
        Self { name, kind, edge: false, log: false, fields: 0, content: 1024, parts: None }
    }

    const fn with(name: &'static str, parts: fn(&Path, u16) -> Parts) -> Self {
        Self { parts: Some(parts), ..Self::of(name) }
    }
}

pub(super) const JOBS: [Job; 13] = [
    Job::of("plain"),
    Job { edge: true, ..Job::of("edge") },
    Job { log: true, ..Job::of("log") },
    Job { fields: 10, ..Job::of("fields") },
    Job { content: 4096, ..Job::of("large") },
    Job { kind: Kind::Tcp, ..Job::of("tcp") },
    Job::with("routes", filters::routes),
    Job::with("access", filters::access),
    Job::with("jwt", filters::jwt),
    Job::with("json", filters::json),
    Job { kind: Kind::Asked, ..Job::with("ext-authz", filters::asked) },
    // Which requests have a span follows from their ids.
    Job { edge: true, ..Job::with("spans-1", filters::few_spans) },
    Job { edge: true, ..Job::with("spans-100", filters::all_spans) },
];

const CONNECTIONS: usize = 16;
/// Requests on each connection in the two runs.
const ROUNDS: (usize, usize) = (10, 60);
/// Envoy takes this long to start under callgrind on a machine that others use too.
const START: Duration = Duration::from_secs(300);
const ANSWER: Duration = Duration::from_secs(120);

/// `--count` and what is to be left out.
pub(super) fn run(words: &[String]) -> Result<()> {
    let (mut jobs, mut contenders, mut build) = (Vec::new(), Vec::new(), true);
    let mut before = None;
    let mut words = words.iter().filter(|word| *word != "--count");
    while let Some(word) = words.next() {
        let mut list = || -> Result<Vec<String>> {
            let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
            Ok(value.split(',').map(str::to_owned).collect())
        };
        match word.as_str() {
            "--jobs" => jobs = super::among(list()?, &JOBS.map(|job| job.name))?,
            "--only" => contenders = super::among(list()?, &contender::NAMES[1..5])?,
            "--no-build" => build = false,
            "--before" => before = Some(words.next().ok_or("--before wants a program")?.into()),
            _ => return Err(format!("no option '{word}'\n{}", super::HELP).into()),
        }
    }
    if build {
        let mut build = cargo();
        build.args(["build", "--quiet", "--release", "--bins", "-p", "towpath-proxy"]);
        run_command(build.args(["-p", "towpath-cli"]))?;
    }
    let mut chosen = Vec::new();
    for &name in &contender::NAMES[1..5] {
        if contenders.is_empty() || contenders.iter().any(|it| it == name) {
            let program = match name {
                "towpath" => target().join("release/towpath-proxy"),
                peer => peers::ensure(peer)?,
            };
            chosen.push(Contender { name, program });
        }
    }
    chosen.extend(before.map(Contender::before));
    println!(
        "user instructions for one request, {CONNECTIONS} connections in lock-step, and × the first's"
    );
    let head: String = chosen.iter().map(|it| format!("{:>20}", it.name)).collect();
    println!("{:<10}{head}", "job");
    for job in JOBS.iter().filter(|job| jobs.is_empty() || jobs.iter().any(|it| it == job.name)) {
        let mut counts = Vec::new();
        for contender in &chosen {
            let suits = job.kind.suits(contender.name, job.parts.is_some());
            counts.push(suits.then(|| per_request(contender, job)).transpose()?);
        }
        println!("{}", row(job.name, &counts));
    }
    Ok(())
}

/// A count beside each other's ratio to the first.
fn row(job: &str, counts: &[Option<u64>]) -> String {
    let first = counts.first().copied().flatten().unwrap_or_default().max(1) as f64;
    let cell = |count: &Option<u64>| match count {
        Some(count) => format!("{count} ×{:.2}", *count as f64 / first),
        None => "-".to_owned(),
    };
    let cells = counts.iter().map(|count| format!("{:>20}", cell(count)));
    format!("{job:<10}{}", cells.collect::<String>())
}

/// What one request costs.
pub(super) fn per_request(contender: &Contender, job: &Job) -> Result<u64> {
    let count = |rounds| {
        total(contender, job, rounds)
            .map_err(|error| format!("{}, {}: {error}", contender.name, job.name))
    };
    let (few, many) = (count(ROUNDS.0)?, count(ROUNDS.1)?);
    Ok(many.saturating_sub(few) / ((ROUNDS.1 - ROUNDS.0) * CONNECTIONS) as u64)
}

/// The user instructions of a process that serves so many rounds of requests.
fn total(contender: &Contender, job: &Job, rounds: usize) -> Result<u64> {
    let folder = target().join(format!("count-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let origin = origin(job.content)?;
    // Bound, so that no other program listens there, and never read.
    let logs = UdpSocket::bind("127.0.0.1:0")?;
    let log = Log { file: folder.join("access.log"), port: logs.local_addr()?.port() };
    let judge = (job.kind == Kind::Asked)
        .then(|| jobs::start_judge(&target().join("release/towpath")))
        .transpose()?;
    // Collectors of spans are origins like others.
    let other = judge.as_ref().map_or(origin, |(_, port)| *port);
    let parts = job.parts.map_or_else(Parts::default, |parts| parts(&folder, other));
    let extras = Extras { edge: job.edge, log: job.log.then_some(log), parts };
    let (port, mut words) = contender.command(job.kind, &extras, origin, &folder)?;
    if contender.name == "nginx" {
        words.extend(["-g".to_owned(), "master_process off;".to_owned()]);
    }
    let mut process = Counted::start(&words, &folder)?;
    process.await_port(port)?;
    ask(port, job, rounds)?;
    let counted = process.end();
    let _ = fs::remove_dir_all(&folder);
    counted
}

/// A process under callgrind; killed when dropped.
struct Counted {
    child: Child,
    folder: PathBuf,
}

impl Counted {
    fn start(words: &[String], folder: &Path) -> Result<Self> {
        let child = Command::new(peers::ensure("valgrind")?)
            .args(["--tool=callgrind", "--quiet", "--trace-children=yes"])
            .arg(format!("--callgrind-out-file={}/callgrind.%p", folder.display()))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("said"))?)
            .spawn()?;
        Ok(Self { child, folder: folder.to_owned() })
    }

    fn await_port(&mut self, port: u16) -> Result<()> {
        let end = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if self.child.try_wait()?.is_some() || Instant::now() > end {
                let said = fs::read_to_string(self.folder.join("said")).unwrap_or_default();
                return Err(format!("does not listen under callgrind: {}", said.trim()).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ends it in good order, so that callgrind writes what it counted; that of the shell before it is left out.
    fn end(mut self) -> Result<u64> {
        terminate(&mut self.child, START)?;
        let mut total = 0;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("callgrind.") {
                let report = fs::read_to_string(entry.path())?;
                // With threads there is a summary for each; `totals` is what all of them did.
                let line = report.lines().find_map(|line| line.strip_prefix("totals: "));
                total += line.map_or(Ok(0), |line| line.trim().parse::<u64>())?;
            }
        }
        if total == 0 { Err("callgrind counted nothing".into()) } else { Ok(total) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers every request on its port with so many bytes until this program ends.
fn origin(content: usize) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Fri, 20 Nov 2026 11:28:39 GMT\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {content}\r\n\r\n"
    );
    let answer = [head.into_bytes(), vec![b'x'; content]].concat();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || serve(stream, &answer));
        }
    });
    Ok(port)
}

/// Answers each head, until the peer has enough.
fn serve(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    let mut room = [0; 16 * 1024];
    loop {
        let length = stream.read(&mut room)?;
        if length == 0 {
            return Ok(());
        }
        received.extend_from_slice(&room[..length]);
        while let Some(end) = head_end(&received) {
            received.drain(..end);
            stream.write_all(answer)?;
        }
    }
}

/// Asks in lock-step on every connection.
fn ask(port: u16, job: &Job, rounds: usize) -> Result<()> {
    let mut request = "GET /api/v1/items/42?q=1 HTTP/1.1\r\nHost: service-7.namespace.svc:8080\r\n\
         User-Agent: curl/8.5.0\r\nAccept: */*\r\n"
        .to_owned();
    for number in 0..job.fields {
        request += &format!("X-Field-Number-{number}: a value as fields have it\r\n");
    }
    if job.name == "jwt" {
        request += filters::TOKEN;
    }
    request += "\r\n";
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER))?;
        streams.push(stream);
    }
    for _ in 0..rounds {
        for stream in &mut streams {
            stream.write_all(request.as_bytes())?;
        }
        for stream in &mut streams {
            read_answer(stream, job.content)?;
        }
    }
    Ok(())
}

/// Reads one answer, which must be the origin's.
fn read_answer(stream: &mut impl Read, content: usize) -> Result<()> {
    let mut received = Vec::new();
    let mut room = [0; 16 * 1024];
    loop {
        if let Some(end) = head_end(&received) {
            if !received.starts_with(b"HTTP/1.1 200 ") {
                let text = String::from_utf8_lossy(&received[..end]).into_owned();
                return Err(format!("answers {text}").into());
            }
            match received.len().cmp(&(end + content)) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(()),
                std::cmp::Ordering::Greater => return Err("answers too much".into()),
            }
        }
        let length = stream.read(&mut room)?;
        if length == 0 {
            return Err("closes in the middle of an answer".into());
        }
        received.extend_from_slice(&room[..length]);
    }
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_gets_what_the_origin_gives() {
        for job in &JOBS {
            ask(origin(job.content).unwrap(), job, 3).unwrap();
        }
        let more = origin(1025).unwrap();
        assert!(ask(more, &JOBS[0], 1).is_err());
    }

    #[test]
    fn only_the_whole_answer_counts() {
        let read = |mut text: &[u8]| read_answer(&mut text, 2).is_ok();
        assert!(read(b"HTTP/1.1 200 OK\r\n\r\nab"));
        assert!(!read(b"HTTP/1.1 200 OK\r\n\r\na"));
        assert!(!read(b"HTTP/1.1 200 OK\r\n\r\nabc"));
        assert!(!read(b"HTTP/1.1 503 Service Unavailable\r\n\r\nab"));
    }

    #[test]
    fn ratios_are_to_the_first() {
        assert_eq!(
            row("plain", &[Some(1000), Some(1900), None]),
            format!("plain     {:>20}{:>20}{:>20}", "1000 ×1.00", "1900 ×1.90", "-")
        );
    }
}
