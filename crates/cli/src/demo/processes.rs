//! The demo's processes: this same program as origin and as sidecar.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use towpath_lab::meter::{Cost, Meter};

use super::Error;

/// An origin.
pub(super) struct Origin {
    child: Running,
    pub(super) address: String,
}

impl Origin {
    /// Starts `towpath lab origin` on a free port.
    pub(super) fn start(body: usize) -> Result<Self, Error> {
        let mut command = this_program()?;
        command.args(["lab", "origin", "--listen", "127.0.0.1:0", "--size"]).arg(body.to_string());
        let mut child = Running(command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?);
        let stdout = child.0.stdout.take().ok_or("the origin has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("listening on ").ok_or("the origin did not start")?.to_owned();
        Ok(Self { child, address })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.0.id()
    }
}

/// A sidecar in front of an origin.
pub(super) struct Sidecar {
    child: Running,
    admin: String,
    pub(super) address: String,
    /// Its configuration; lives as long as it.
    _directory: Scratch,
}

impl Sidecar {
    /// Starts `towpath proxy` under `examples/sidecar.yaml`, with free ports, and waits until it is ready.
    pub(super) fn start(origin: &str, workers: u32) -> Result<Self, Error> {
        let directory = Scratch::new()?;
        let (inbound, admin) = (free_port()?, free_port()?);
        let port = origin.rsplit(':').next().unwrap_or_default();
        let text = BOOTSTRAP
            .replace("port_value: 15006", &format!("port_value: {inbound}"))
            .replace("port_value: 15000", &format!("port_value: {admin}"))
            .replace("port_value: 8080", &format!("port_value: {port}"));
        let path = directory.0.join("sidecar.yaml");
        std::fs::write(&path, text)?;
        let mut command = this_program()?;
        command.args(["proxy", "-l", "warning", "--concurrency"]).arg(workers.to_string());
        command.args(["--drain-time-s", "2", "-c"]).arg(&path);
        let child = Running(command.stdin(Stdio::null()).spawn()?);
        let mut sidecar = Self {
            child,
            admin: format!("127.0.0.1:{admin}"),
            address: format!("127.0.0.1:{inbound}"),
            _directory: directory,
        };
        sidecar.wait_until_ready()?;
        Ok(sidecar)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// What it holds in memory.
    pub(super) fn memory(&self) -> Result<Cost, Error> {
        Ok(Meter::begin(&[self.pid()])?.cost_with_memory())
    }

    /// Ends it in order.
    pub(super) fn stop(mut self) -> Result<(), Error> {
        // Failing to ask is failing to stop: the next line would wait for ever.
        get(&self.admin, "POST", "/quitquitquit")?;
        let status = self.child.0.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the sidecar ended with {status}").into())
        }
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            if get(&self.admin, "GET", "/ready").is_ok_and(|answer| answer.contains("LIVE")) {
                return Ok(());
            }
            if let Some(status) = self.child.0.try_wait()? {
                return Err(format!("the sidecar did not start: {status}").into());
            }
            if start.elapsed() > Duration::from_secs(10) {
                return Err("the sidecar did not get ready in 10 s".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

const BOOTSTRAP: &str = include_str!("sidecar.yaml");

fn this_program() -> Result<Command, Error> {
    Ok(Command::new(std::env::current_exe()?))
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, Error> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// One HTTP/1.0 exchange.
fn get(address: &str, method: &str, path: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A process that does not outlive us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that does not outlive us.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("towpath-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is not read any more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
