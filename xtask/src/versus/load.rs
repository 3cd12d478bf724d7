//! The clients: wrk for the closed loop, our lab for the open one, and two of our own for streams and idlers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::shell::{Result, output};

use super::process::pinned;

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

/// As many requests as come through, on so many connections.
pub(super) fn wrk(wrk: &Path, port: u16, connections: usize, seconds: u64) -> Result<Closed> {
    let command = [
        wrk.display().to_string(),
        "-t1".to_owned(),
        format!("-c{connections}"),
        format!("-d{seconds}"),
        "--latency".to_owned(),
        format!("http://127.0.0.1:{port}/small"),
    ];
    parse_wrk(&output(&mut pinned(CLIENT_CORE, &command))?)
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
    let start = std::time::Instant::now();
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
}

pub(super) fn hold(port: u16, connections: usize) -> Result<Held> {
    let command = ourselves(&["hold", &port.to_string(), &connections.to_string()])?;
    let mut child =
        pinned(CLIENT_CORE, &command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or("the holder says nothing")?;
    let held = Held { child };
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line.trim() == "held" { Ok(held) } else { Err("not all connections could be held".into()) }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
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
    fn wrk_with_errors_is_no_result() {
        let errors = format!("{SAID}  Non-2xx or 3xx responses: 7\n");
        assert!(parse_wrk(&errors).unwrap_err().to_string().contains("Non-2xx"));
        assert!(parse_wrk("").is_err());
        assert!(microseconds("12 parsecs").is_err());
    }
}
