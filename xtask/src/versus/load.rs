//! The clients: wrk and h2load for the closed loop, our lab for the open one and for gRPC, and some of our own for
//! streams and idlers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::shell::{Result, output, target};

use super::configs::Kind;
use super::contender::Running;
use super::process::pinned;
use super::{Programs, h2_wire};

/// What one closed-loop run brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    pub(super) requests: u64,
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// The clients' core, shared with the origin.
pub(super) const CLIENT_CORE: usize = 1;

/// What wrk asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks {
    pub(super) kind: Kind,
    pub(super) connections: usize,
    pub(super) seconds: u64,
    /// Each request has a connection of its own.
    pub(super) closes: bool,
}

/// Where clients under TLS read which suite they offer: the same to all, which would choose each another.
pub(super) const OPENSSL_CONFIG: &str = "openssl.cnf";
pub(super) const ONE_SUITE: &str = "openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = suites
[suites]
Ciphersuites = TLS_AES_128_GCM_SHA256
";

/// As many requests as come through, on so many connections.
pub(super) fn wrk(wrk: &Path, port: u16, asks: Asks) -> Result<Closed> {
    let scheme = if asks.kind.is_tls() { "https" } else { "http" };
    let mut command = vec![
        wrk.display().to_string(),
        "-t1".to_owned(),
        format!("-c{}", asks.connections),
        format!("-d{}", asks.seconds),
        "--latency".to_owned(),
    ];
    if asks.closes {
        command.extend(["-H", "Connection: close"].map(str::to_owned));
    }
    command.push(format!("{scheme}://127.0.0.1:{port}/small"));
    let mut client = pinned(CLIENT_CORE, &command);
    client.env("OPENSSL_CONF", target().join("versus").join(OPENSSL_CONFIG));
    parse_wrk(&output(&mut client)?)
}

fn parse_wrk(text: &str) -> Result<Closed> {
    for sign in ["Socket errors", "Non-2xx"] {
        if let Some(line) = text.lines().find(|line| line.contains(sign)) {
            return Err(format!("wrk counted errors: {}", line.trim()).into());
        }
    }
    let after = |start: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(start));
        line.map(str::trim).ok_or_else(|| format!("wrk said nothing of {start}"))
    };
    let requests = text.lines().find(|line| line.contains(" requests in "));
    let requests = requests.and_then(|line| line.split_whitespace().next()?.parse().ok());
    Ok(Closed {
        requests: requests.ok_or("wrk counted no requests")?,
        per_second: after("Requests/sec:")?.parse()?,
        p50_us: microseconds(after("50%")?)?,
        p99_us: microseconds(after("99%")?)?,
    })
}

/// wrk's `12.3us`, `1.25ms`, `2.00s`.
fn microseconds(text: &str) -> Result<f64> {
    for (unit, factor) in [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Ok(number.parse::<f64>()? * factor);
        }
    }
    Err(format!("'{text}' is no time").into())
}

/// How many connections with how many streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    pub(super) connections: usize,
    pub(super) each: usize,
}

/// What one run over HTTP/2 brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) requests: u64,
    pub(super) per_second: f64,
    pub(super) mean_us: f64,
}

/// As many requests as come through; over HTTP/1.1 where the job has no HTTP/2.
pub(super) fn h2load(
    programs: &Programs,
    kind: Kind,
    port: u16,
    streams: Streams,
    seconds: u64,
) -> Result<Answered> {
    let Streams { connections, each } = streams;
    let words = [format!("-c{connections}"), format!("-m{each}"), format!("-D{seconds}")];
    run_h2load(programs, kind, port, "small", &words)
}

/// One request gets the right answer.
pub(super) fn h2_check(programs: &Programs, kind: Kind, port: u16) -> Result<()> {
    run_h2load(programs, kind, port, "small", &["-n1".to_owned()]).map(|_| ())
}

/// One large answer through one stream; the seconds it took.
pub(super) fn h2_drain(programs: &Programs, port: u16, bytes: u64) -> Result<f64> {
    let words = ["-n1", "-w30", "-W30"].map(str::to_owned);
    let run = run_h2load(programs, Kind::H2ToH1, port, "large", &words)?;
    let seconds = run.mean_us / 1e6;
    // Loopback is not that fast: the answer was not whole.
    if seconds < bytes as f64 / 1e11 { Err("the answer was too short".into()) } else { Ok(seconds) }
}

fn run_h2load(
    programs: &Programs,
    kind: Kind,
    port: u16,
    path: &str,
    words: &[String],
) -> Result<Answered> {
    let scheme = if kind.is_tls() { "https" } else { "http" };
    let mut command = vec![programs.h2load.display().to_string(), "-t1".to_owned()];
    if !kind.is_h2() {
        command.push("--h1".to_owned());
    }
    command.extend_from_slice(words);
    command.push(format!("{scheme}://127.0.0.1:{port}/{path}"));
    parse_h2load(&output(&mut pinned(CLIENT_CORE, &command))?)
}

fn parse_h2load(text: &str) -> Result<Answered> {
    let line = |start: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        line.ok_or_else(|| format!("h2load said nothing of '{start}'"))
    };
    let number = |words: &str, unit: &str| -> Result<f64> {
        let part = words.split(", ").find_map(|part| part.trim().strip_suffix(unit));
        Ok(part.ok_or_else(|| format!("h2load counts no{unit}"))?.trim().parse()?)
    };
    let requests = line("requests: ")?;
    let done = number(requests, " done")?;
    for wrong in [" failed", " errored", " timeout"] {
        if number(requests, wrong)? > 0.0 {
            return Err(format!("h2load counted errors: {requests}").into());
        }
    }
    if number(line("status codes: ")?, " 2xx")? < done || done < 1.0 {
        return Err(format!("h2load got other answers: {}", line("status codes: ")?).into());
    }
    let times: Vec<&str> = line("time for request:")?.split_whitespace().collect();
    Ok(Answered {
        requests: done as u64,
        per_second: number(line("finished in ")?, " req/s")?,
        mean_us: microseconds(times.get(2).ok_or("h2load gives no times")?)?,
    })
}

/// As many calls of gRPC as come through.
pub(super) fn grpc(
    programs: &Programs,
    port: u16,
    streams: Streams,
    seconds: u64,
    folder: &Path,
) -> Result<Answered> {
    let (json, message) = (folder.join("grpc.json"), folder.join("message"));
    std::fs::write(&message, [b'x'; 100])?;
    let command = [
        programs.lab.display().to_string(),
        "lab".to_owned(),
        "load".to_owned(),
        "--grpc=bench.Echo/Call".to_owned(),
        format!("--body-file={}", message.display()),
        format!("--connections={}", streams.connections),
        format!("--streams={}", streams.each),
        format!("--duration={seconds}s"),
        "--warmup=0".to_owned(),
        format!("--json={}", json.display()),
        format!("http://127.0.0.1:{port}/"),
    ];
    output(&mut pinned(CLIENT_CORE, &command))?;
    let outcome: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    let errors = outcome["errors"].as_object();
    let failed: u64 = errors.map_or(0, |kinds| kinds.values().filter_map(Value::as_u64).sum());
    let requests = outcome["answered"].as_u64().ok_or("lab load answers nothing")?;
    if failed > 0 || requests == 0 {
        return Err(format!("{requests} calls were answered, errors: {}", outcome["errors"]).into());
    }
    let mean = outcome["latency_ns"]["mean"].as_f64().ok_or("lab load reports no mean")?;
    Ok(Answered { requests, per_second: requests as f64 / seconds as f64, mean_us: mean / 1000.0 })
}

/// What one open-loop run brought: latency counted from when a request was due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) answered: u64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) failed: u64,
}

/// Until everything is connected and warm.
pub(super) const WARM_UP: Duration = Duration::from_millis(200);

/// So many requests a second, whatever the answers do.
pub(super) fn open(lab: &Path, port: u16, rate: u64, time: Duration, json: &Path) -> Result<Open> {
    let command = [
        lab.display().to_string(),
        "lab".to_owned(),
        "load".to_owned(),
        format!("--rate={rate}"),
        "--connections=64".to_owned(),
        format!("--duration={}ms", time.as_millis()),
        format!("--warmup={}ms", WARM_UP.as_millis()),
        format!("--json={}", json.display()),
        format!("http://127.0.0.1:{port}/small"),
    ];
    output(&mut pinned(CLIENT_CORE, &command))?;
    let outcome: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    let latency = |name: &str| {
        let ns = outcome["latency_ns"][name].as_f64();
        ns.map(|ns| ns / 1000.0).ok_or_else(|| format!("lab load reports no latency {name}"))
    };
    let errors = outcome["errors"].as_object();
    let failed = errors.map_or(0, |kinds| kinds.values().filter_map(Value::as_u64).sum());
    Ok(Open {
        answered: outcome["answered"].as_u64().ok_or("lab load answers nothing")?,
        p50_us: latency("p50")?,
        p99_us: latency("p99")?,
        p999_us: latency("p999")?,
        failed,
    })
}

/// Reads one large answer to its end, in a process on the clients' core.
pub(super) fn drain(port: u16, bytes: u64) -> Result<f64> {
    let command = ourselves(&["drain", &port.to_string(), &bytes.to_string()])?;
    Ok(output(&mut pinned(CLIENT_CORE, &command))?.trim().parse()?)
}

/// `versus drain PORT BYTES`: prints the seconds it took.
pub(super) fn drain_main(words: &[String]) -> Result<()> {
    let [port, bytes] = words else { return Err("drain PORT BYTES".into()) };
    let (port, bytes): (u16, u64) = (port.parse()?, bytes.parse()?);
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let start = Instant::now();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n")?;
    let mut buffer = vec![0; 1 << 20];
    let mut got = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            n => got += n as u64,
        }
    }
    if got < bytes {
        return Err(format!("only {got} of {bytes} bytes came").into());
    }
    println!("{}", start.elapsed().as_secs_f64());
    Ok(())
}

/// Idle keep-alive connections, held by a process on the clients' core until dropped.
pub(super) struct Held {
    child: Child,
    /// It does not end by itself when its input does.
    is_killed: bool,
}

pub(super) fn hold(port: u16, connections: usize) -> Result<Held> {
    held(&["hold", &port.to_string(), &connections.to_string()])
}

/// Connections of HTTP/2, each with so many streams that wait for their answer, or idle after one that had it.
pub(super) fn hold_streams(port: u16, connections: usize, streams: usize) -> Result<Held> {
    let numbers = [port.into(), connections, streams].map(|number| number.to_string());
    held(&["hold-streams", &numbers[0], &numbers[1], &numbers[2]])
}

/// Connections that are opened by our lab and get a request every few seconds, for a minute at most.
pub(super) fn keep(lab: &Path, kind: Kind, running: &Running, connections: usize) -> Result<Held> {
    let scheme = if kind.is_tls() { "https" } else { "http" };
    let command = [
        lab.display().to_string(),
        "lab".to_owned(),
        "load".to_owned(),
        format!("--connections={connections}"),
        "--rate=500".to_owned(),
        "--duration=60s".to_owned(),
        "--insecure".to_owned(),
        format!("{scheme}://127.0.0.1:{}/small", running.port),
    ];
    let mut client = pinned(CLIENT_CORE, &command);
    client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut held = Held { child: client.spawn()?, is_killed: true };
    let end = Instant::now() + Duration::from_secs(30);
    while running.process.descriptors() < connections {
        if held.child.try_wait()?.is_some() || Instant::now() > end {
            return Err("not all connections could be held".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(held)
}

fn held(words: &[&str]) -> Result<Held> {
    let command = ourselves(words)?;
    let mut child =
        pinned(CLIENT_CORE, &command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or("the holder says nothing")?;
    let held = Held { child, is_killed: false };
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line.trim() == "held" { Ok(held) } else { Err("not all connections could be held".into()) }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if self.is_killed {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// `versus hold PORT COUNT`: one request on each connection, then waits for the end of its input.
pub(super) fn hold_main(words: &[String]) -> Result<()> {
    let [port, count] = words else { return Err("hold PORT COUNT".into()) };
    let (port, count): (u16, usize) = (port.parse()?, count.parse()?);
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /small HTTP/1.1\r\nHost: origin\r\n\r\n")?;
        read_answer(&mut stream)?;
        streams.push(stream);
    }
    println!("held");
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

/// `versus hold-streams PORT COUNT STREAMS`: as `hold`, over HTTP/2.
pub(super) fn hold_streams_main(words: &[String]) -> Result<()> {
    let [port, count, streams] = words else {
        return Err("hold-streams PORT COUNT STREAMS".into());
    };
    let (port, count, streams): (u16, usize, u32) =
        (port.parse()?, count.parse()?, streams.parse()?);
    let mut bytes = h2_wire::opening(&[]);
    bytes.extend(h2_wire::frame(h2_wire::SETTINGS, h2_wire::ACK, 0, &[]));
    for number in 0..streams.max(1) {
        bytes.extend(h2_wire::head(2 * number + 1, "GET", "/small", true));
    }
    // Its answer comes when all before it has been read.
    bytes.extend(h2_wire::frame(h2_wire::PING, 0, 0, b"question"));
    let mut held: Vec<TcpStream> = Vec::with_capacity(count);
    while held.len() < count {
        let first = held.len();
        // Many at once, so that neither side waits for the other each time.
        for _ in 0..AT_ONCE.min(count - first) {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(&bytes)?;
            held.push(stream);
        }
        for stream in &mut held[first..] {
            read_h2(stream, streams == 0)?;
        }
    }
    println!("held");
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

const AT_ONCE: usize = 100;

/// Reads until a PING is answered, and the first stream where that is wanted.
fn read_h2(stream: &mut TcpStream, wants_answer: bool) -> Result<()> {
    let (mut pong, mut answered) = (false, !wants_answer);
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while !pong || !answered {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err("the connection ended".into());
        }
        received.extend_from_slice(&buffer[..length]);
        while let Some((kind, flags, _, payload)) = h2_wire::first_frame(&received) {
            match kind {
                h2_wire::PING => pong |= flags & h2_wire::ACK != 0,
                h2_wire::DATA | h2_wire::HEADERS => answered |= flags & h2_wire::END_STREAM != 0,
                h2_wire::RESET | h2_wire::GO_AWAY => return Err("a stream was refused".into()),
                _ => {}
            }
            let whole = 9 + payload.len();
            received.drain(..whole);
        }
    }
    Ok(())
}

/// One answer, by its Content-Length.
pub(super) fn read_answer(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err("the connection ended within an answer".into());
        }
        answer.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        let Some(head) = text.find("\r\n\r\n") else { continue };
        let length = text[..head].lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.ok_or("an answer without a length")?.trim().parse()?;
        if answer.len() >= head + 4 + length {
            return Ok(answer);
        }
    }
}

fn ourselves(words: &[&str]) -> Result<Vec<String>> {
    let mut command = vec![std::env::current_exe()?.display().to_string(), "versus".to_owned()];
    command.extend(words.iter().map(|&word| word.to_owned()));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Running 2s test @ http://127.0.0.1:1/\n  Latency Distribution\n     50%  812.00us\n     \
                        75%    1.02ms\n     90%    1.20ms\n     99%    1.93ms\n  130712 requests in 2.00s, 158.08MB \
                        read\n\
                        Requests/sec:  65356.12\nTransfer/sec:     79.04MB\n";

    #[test]
    fn wrk_is_understood() {
        let closed = parse_wrk(SAID).unwrap();
        assert_eq!((closed.requests, closed.p50_us, closed.p99_us), (130_712, 812.0, 1930.0));
        assert!((closed.per_second - 65356.12).abs() < 1e-6);
    }

    #[test]
    fn h2load_is_understood() {
        let said = "finished in 2.00s, 59823.50 req/s, 64.07MB/s\nrequests: 119647 total, 119903 started, 119647 done, \
                    119647 succeeded, 0 failed, 0 errored, 0 timeout\nstatus codes: 119903 2xx, 0 3xx, 0 4xx, 0 5xx\n\
                    time for request:       60us      7.49ms      4.27ms       633us    75.34%\n";
        let run = parse_h2load(said).unwrap();
        assert_eq!((run.requests, run.mean_us), (119_647, 4270.0));
        assert!((run.per_second - 59823.5).abs() < 1e-6);
        for (from, to) in [("0 failed", "1 failed"), ("119903 2xx", "100 2xx"), (" done", " gone")]
        {
            assert!(parse_h2load(&said.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn wrk_with_errors_is_no_result() {
        let errors = format!("{SAID}  Non-2xx or 3xx responses: 7\n");
        assert!(parse_wrk(&errors).unwrap_err().to_string().contains("Non-2xx"));
        assert!(parse_wrk("").is_err());
        assert!(microseconds("12 parsecs").is_err());
    }
}
