//! Those who make the requests.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::super::Options;
use super::super::okhttp::{Compiled, Task};
use crate::link::{FAR, Link};
use crate::load::response::{Expect, Reader};
use crate::origin::filler;

/// Who makes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// One plain socket, attempts repeated as iOS does.
    KernelLinear,
    /// One plain socket, attempts repeated as Android does.
    KernelClassic,
    /// Another plain socket every four seconds; the first answer wins.
    Staggered,
    /// A command that makes one request: its name and words.
    Command(&'static str, PathBuf),
    /// OkHttp, with a new connection for each request.
    OkHttp(Arc<Compiled>),
    /// A command that makes all requests on one engine and says what came of each: its name and words.
    SharedCommand(&'static str, PathBuf, &'static [&'static str]),
    /// OkHttp with one client for all requests.
    SharedOkHttp(Arc<Compiled>),
}

/// What came of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    pub(super) attempts: u32,
    pub(super) successes: u32,
    /// Until the last success, or until it was given up.
    pub(super) total: Duration,
}

/// What a client is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Bytes to post; 0 is a GET.
    pub(super) request: usize,
    /// How many answers are wanted.
    pub(super) successes: u32,
    /// When it gives up.
    pub(super) budget: Duration,
    /// Each success is two requests on one connection, which begin so far apart.
    pub(super) spacing: Option<Duration>,
}

/// A client that is about to begin.
pub(super) struct Ready<'c> {
    client: &'c Client,
    job: Job,
    /// One that makes all requests itself and writes a line for each.
    lines: Option<Lines>,
}

type Lines = (Child, BufReader<std::process::ChildStdout>);

impl Client {
    /// Every client that this machine has.
    pub(super) fn all(options: &Options, notes: &mut Vec<String>) -> Vec<Self> {
        let mut clients = vec![Self::KernelLinear, Self::KernelClassic, Self::Staggered];
        match &options.peers.curl {
            Some(curl) => clients.push(Self::Command("curl", curl.clone())),
            None => notes.push("curl was not found; set TOWPATH_CURL.".to_owned()),
        }
        match Compiled::new(options.peers.okhttp.as_deref()) {
            Ok(compiled) => {
                let compiled = Arc::new(compiled);
                clients.push(Self::OkHttp(Arc::clone(&compiled)));
                clients.push(Self::SharedOkHttp(compiled));
            }
            Err(error) => notes.push(format!("OkHttp was not measured: {error}.")),
        }
        let towpath = &options.peers.towpath;
        let has_get = Command::new(towpath)
            .args(["get", "--help"])
            .output()
            .is_ok_and(|output| output.status.success());
        if has_get {
            clients.push(Self::Command("towpath", towpath.clone()));
            for (name, words) in ONE_ENGINE {
                clients.push(Self::SharedCommand(name, towpath.clone(), words));
            }
        } else {
            notes.push("Towpath's client was not measured: this command has no 'get'.".to_owned());
        }
        clients
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::KernelLinear => "one socket (linear SYN)",
            Self::KernelClassic => "one socket (classic SYN)",
            Self::Staggered => "staggered",
            Self::Command(name, _) => name,
            Self::OkHttp(..) => "okhttp",
            Self::SharedCommand(name, ..) => name,
            Self::SharedOkHttp(_) => "okhttp, one client",
        }
    }

    /// Whether its requests have more in common than the machine.
    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::SharedCommand(..) | Self::SharedOkHttp(_))
    }

    /// Whether it makes a connection for each request.
    pub(super) fn connects_anew(&self) -> bool {
        match self {
            Self::SharedCommand(_, _, words) => *words == NO_REUSE,
            Self::SharedOkHttp(_) => false,
            Self::KernelLinear
            | Self::KernelClassic
            | Self::Staggered
            | Self::Command(..)
            | Self::OkHttp(_) => true,
        }
    }

    /// Does everything that takes time but makes no request.
    pub(super) fn prepare(&self, link: &Link, job: Job) -> io::Result<Ready<'_>> {
        let lines = match self {
            Self::OkHttp(compiled) => Some(java(compiled, job.spacing.is_none(), link, job)?),
            Self::SharedOkHttp(compiled) => Some(java(compiled, false, link, job)?),
            Self::KernelLinear
            | Self::KernelClassic
            | Self::Staggered
            | Self::Command(..)
            | Self::SharedCommand(..) => None,
        };
        Ok(Ready { client: self, job, lines })
    }
}

/// Starts OkHttp; it waits for a line before its first request.
fn java(compiled: &Compiled, is_fresh: bool, link: &Link, job: Job) -> io::Result<Lines> {
    let task = Task {
        url: url(),
        successes: job.successes * if job.spacing.is_some() { 2 } else { 1 },
        interval_ms: job.spacing.map_or(0, |spacing| spacing.as_millis() as u64),
        timeout_ms: TIMEOUT.as_millis() as u64,
        body: job.request,
        is_fresh,
        budget_ms: job.budget.as_millis() as u64,
        waits: true,
    };
    let words = compiled.command(&task);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let (mut child, mut lines) = spawn_lines(command, link)?;
    let mut line = String::new();
    lines.read_line(&mut line)?;
    if line.trim() != "ready" {
        let _ = child.kill();
        let _ = child.wait();
        return Err(io::Error::other("java did not start"));
    }
    Ok((child, lines))
}

/// Starts the command that makes all requests on one engine; there are more than are wanted, for some may fail.
fn one_engine(path: &Path, words: &[&str], link: &Link, job: Job) -> io::Result<Lines> {
    let mut command = Command::new(path);
    command.args(["get", "--each", "--count", &job.successes.saturating_mul(100).to_string()]);
    if job.request > 0 {
        command.arg("-d").arg(String::from_utf8(filler(job.request)).unwrap_or_default());
    }
    command.args(words).arg(url());
    spawn_lines(command, link)
}

fn spawn_lines(mut command: Command, link: &Link) -> io::Result<Lines> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = link.near().run(move || command.spawn())?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("a command has no output"))?;
    Ok((child, BufReader::new(stdout)))
}

impl Ready<'_> {
    /// Makes requests until enough succeeded or the time is over.
    pub(super) fn go(mut self, link: &Link) -> io::Result<Attempts> {
        if let Client::SharedCommand(_, path, words) = self.client {
            return watch(one_engine(path, words, link, self.job)?, self.job);
        }
        if let Some(lines) = self.lines.take() {
            return watch(lines, self.job);
        }
        let started = Instant::now();
        let mut attempts = Attempts::default();
        while attempts.successes < self.job.successes && started.elapsed() < self.job.budget {
            attempts.attempts += 1;
            attempts.successes += u32::from(self.attempt(link));
        }
        attempts.total = started.elapsed();
        Ok(attempts)
    }

    fn attempt(&self, link: &Link) -> bool {
        let job = self.job;
        match self.client {
            Client::KernelLinear | Client::KernelClassic => {
                link.near().run(move || fetch(job)).is_ok()
            }
            Client::Staggered => link.near().run(staggered),
            Client::Command(name, path) => link.near().run(command(name, path, job)),
            // They make their requests themselves.
            Client::OkHttp(_) | Client::SharedOkHttp(_) | Client::SharedCommand(..) => false,
        }
    }
}

/// One request on a connection of its own, or two.
fn fetch(job: Job) -> io::Result<()> {
    let address: SocketAddr = format!("{FAR}:{PORT}").parse().map_err(io::Error::other)?;
    let deadline = Instant::now() + TIMEOUT;
    let started = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    if let Some(spacing) = job.spacing {
        exchange(&mut stream, job.request, "keep-alive", deadline)?;
        std::thread::sleep(spacing.saturating_sub(started.elapsed()));
    }
    exchange(&mut stream, job.request, "close", deadline)
}

fn exchange(
    stream: &mut TcpStream,
    size: usize,
    connection: &str,
    deadline: Instant,
) -> io::Result<()> {
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_write_timeout(Some(left()))?;
    let method = if size > 0 { "POST" } else { "GET" };
    let mut request = format!(
        "{method} / HTTP/1.1\r\nHost: {FAR}\r\nContent-Length: {size}\r\nConnection: {connection}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(&filler(size));
    stream.write_all(&request)?;
    let mut reader = Reader::new(Expect::Http);
    let mut buffer = vec![0; 64 << 10];
    loop {
        stream.set_read_timeout(Some(left()))?;
        let count = stream.read(&mut buffer)?;
        let answer = reader.receive(&buffer[..count]).map_err(|_| io::ErrorKind::InvalidData)?;
        match answer {
            Some(answer) if answer.status == 200 => return Ok(()),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None if count == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => {}
        }
    }
}

/// Another connection every four seconds until one is answered.
fn staggered() -> bool {
    let (done, any) = mpsc::channel();
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        let done = done.clone();
        std::thread::spawn(move || {
            let job = Job { request: 0, successes: 1, budget: TIMEOUT, spacing: None };
            if fetch(job).is_ok() {
                let _ = done.send(());
            }
        });
        if any.recv_timeout(Duration::from_secs(4)).is_ok() {
            return true;
        }
    }
    false
}

/// One run of a command-line client.
fn command(name: &'static str, path: &Path, job: Job) -> impl FnOnce() -> bool + Send + 'static {
    let mut command = Command::new(path);
    let size = job.request;
    if name == "curl" {
        command.args(["-s", "-f", "-o", "/dev/null", "-H", "Expect:", "--max-time", "60"]);
        if size > 0 {
            command.args(["--data-binary", "@-"]);
        }
        if let Some(spacing) = job.spacing {
            // It counts from start to start, in whole milliseconds.
            let hourly = 3_600_000 / spacing.as_millis().max(1);
            command.args(["--rate", &format!("{hourly}/h"), "-o", "/dev/null", &url()]);
        }
    } else {
        command.arg("get");
        if size > 0 {
            command.arg("-d").arg(String::from_utf8(filler(size)).unwrap_or_default());
        }
        if let Some(spacing) = job.spacing {
            command.args(["--count", "2", "--interval-ms", &spacing.as_millis().to_string()]);
        }
    }
    command.arg(url()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    move || {
        let Ok(mut child) = command.spawn() else { return false };
        if let Some(mut stdin) = child.stdin.take() {
            // A client that reads no input closes it.
            let _ = stdin.write_all(&filler(size));
        }
        child.wait().is_ok_and(|status| status.success())
    }
}

/// Counts the lines of one that makes all requests itself, until there are enough.
fn watch((mut child, lines): Lines, job: Job) -> io::Result<Attempts> {
    if let Some(stdin) = &mut child.stdin {
        // One that does not wait for it need not read it either.
        let _ = stdin.write_all(b"\n");
    }
    let wanted = job.successes * if job.spacing.is_some() { 2 } else { 1 };
    let started = Instant::now();
    let mut attempts = Attempts::default();
    for line in lines.lines() {
        attempts.attempts += 1;
        attempts.successes += u32::from(line?.starts_with("ok"));
        attempts.total = started.elapsed();
        if attempts.successes >= wanted || attempts.total >= job.budget {
            break;
        }
    }
    let _ = child.kill();
    child.wait()?;
    Ok(attempts)
}

fn url() -> String {
    format!("http://{FAR}:{PORT}/")
}

/// One engine for all requests: with connections that are kept, as apps have it, and with a new one for each, as Mars
/// was measured.
const ONE_ENGINE: [(&str, &[&str]); 2] =
    [("towpath, one engine", &[]), ("towpath, one engine, new connections", NO_REUSE)];
const NO_REUSE: &[&str] = &["--no-reuse"];
/// Where the server listens.
pub(super) const PORT: u16 = 8080;
/// The original raised OkHttp's to this for its outages.
const TIMEOUT: Duration = Duration::from_secs(60);
