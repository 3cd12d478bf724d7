//! Programs under test: launched afresh for each run, watched, and ended.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::link::Space;

/// A program to launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// What it is called in messages.
    pub name: String,
    /// Who pays for it: `proxy`, `service`, `store`, …
    pub role: String,
    /// The command and its arguments. `{config}` is the path of its configuration, `{dir}` a directory of its own.
    pub command: Vec<String>,
    /// Its configuration, in which `{dir}` stands for the same.
    pub config: Option<String>,
    /// Where it listens when it is ready.
    pub listens: Vec<SocketAddr>,
}

/// Programs that run; they end when this is dropped.
#[derive(Debug)]
pub struct Running {
    children: Vec<(String, Child)>,
    directory: PathBuf,
}

impl Running {
    /// Launches programs one after the other, in `space` if given, each when the one before is ready.
    pub fn launch(programs: &[Program], space: Option<&Space>) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("towpath-lab-{}-{number}", std::process::id()));
        let mut running = Self { children: Vec::new(), directory };
        for (at, program) in programs.iter().enumerate() {
            running.start(at, program, space)?;
        }
        Ok(running)
    }

    /// The processes of a role.
    pub fn pids(&self, role: &str) -> Vec<u32> {
        self.children
            .iter()
            .filter(|(other, _)| other == role)
            .map(|(_, child)| child.id())
            .collect()
    }

    /// The processes of each role, for a load generator to account.
    pub fn payers(&self) -> Vec<(String, Vec<u32>)> {
        let mut roles: Vec<&String> = self.children.iter().map(|(role, _)| role).collect();
        roles.sort_unstable();
        roles.dedup();
        roles.into_iter().map(|role| (role.clone(), self.pids(role))).collect()
    }

    fn start(&mut self, at: usize, program: &Program, space: Option<&Space>) -> io::Result<()> {
        let directory = self.directory.join(at.to_string());
        std::fs::create_dir_all(&directory)?;
        let own = directory.display().to_string();
        let config = directory.join("config.yaml");
        if let Some(text) = &program.config {
            std::fs::write(&config, text.replace("{dir}", &own))?;
        }
        let fill = |word: &String| {
            word.replace("{config}", &config.display().to_string()).replace("{dir}", &own)
        };
        let words: Vec<String> = program.command.iter().map(fill).collect();
        let log = directory.join("log");
        let (stdout, stderr) =
            (std::fs::File::create(&log)?, std::fs::File::options().append(true).open(&log)?);
        let Some((first, rest)) = words.split_first() else {
            return Err(io::Error::other(format!("{}: there is no command", program.name)));
        };
        let mut command = Command::new(first);
        command.args(rest).process_group(0).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let spawned = match space {
            Some(space) => space.run(move || command.spawn()),
            None => command.spawn(),
        };
        let child = spawned.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot run {first}: {error}"))
        })?;
        self.children.push((program.role.clone(), child));
        self.await_listeners(program, space, &log)
    }

    fn await_listeners(
        &mut self,
        program: &Program,
        space: Option<&Space>,
        log: &std::path::Path,
    ) -> io::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        for &address in &program.listens {
            loop {
                let probe = move || {
                    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
                };
                if space.map_or_else(probe, |space| space.run(probe)) {
                    break;
                }
                let ended =
                    self.children.last_mut().and_then(|(_, child)| child.try_wait().ok().flatten());
                if ended.is_some() || Instant::now() > deadline {
                    let text = std::fs::read_to_string(log).unwrap_or_default();
                    let lines: Vec<&str> =
                        text.lines().filter(|line| !line.trim().is_empty()).collect();
                    let tail = lines[lines.len().saturating_sub(3)..].join("; ");
                    let what = if ended.is_some() { "ended" } else { "does not listen" };
                    return Err(io::Error::other(format!("{} {what}: {tail}", program.name)));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = |child: &Child| Pid::from_raw(child.id() as i32);
        for (_, child) in &self.children {
            let _ = killpg(group(child), Signal::SIGTERM);
        }
        let deadline = Instant::now() + PATIENCE;
        for (_, child) in &mut self.children {
            while Instant::now() < deadline && child.try_wait().is_ok_and(|status| status.is_none())
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = killpg(group(child), Signal::SIGKILL);
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Ports on `host` that were free a moment ago, all different. They lie below those that the kernel gives to
/// outgoing connections, of which a chain of services makes many before its last program listens.
pub fn free_addresses(host: &str, count: usize) -> io::Result<Vec<SocketAddr>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let host = host.parse().map_err(|_| io::Error::other("not an address"))?;
    let ports = u64::from(PORTS.end - PORTS.start);
    // Processes that run at the same time begin at different places.
    let begin = u64::from(std::process::id()) * 97;
    let mut held = Vec::new();
    for _ in 0..ports {
        if held.len() == count {
            break;
        }
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + ((begin + step) % ports) as u16;
        held.extend(TcpListener::bind(("127.0.0.1", port)).ok());
    }
    if held.len() < count {
        return Err(io::Error::other(format!("there are not {count} free ports")));
    }
    held.iter().map(|listener| Ok(SocketAddr::new(host, listener.local_addr()?.port()))).collect()
}

/// Below Linux's default `ip_local_port_range`.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const READY_WITHIN: Duration = Duration::from_secs(15);
/// How long programs may take to end by themselves.
const PATIENCE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Program {
        Program {
            name: "it".to_owned(),
            role: "r".to_owned(),
            command: ["sh", "-c", text].map(str::to_owned).into(),
            ..Program::default()
        }
    }

    #[test]
    fn programs_see_their_configuration_and_end_with_their_owner() {
        let mut program = shell("test \"$(cat {config})\" = {dir} && sleep 100 & wait");
        program.config = Some("{dir}".to_owned());
        let running = Running::launch(&[program], None).unwrap();
        let (pid, directory) = (running.pids("r")[0], running.directory.clone());
        assert_eq!(running.payers(), [("r".to_owned(), vec![pid])]);
        drop(running);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists() && !directory.exists());
    }

    #[test]
    fn free_ports_are_different_and_not_those_of_outgoing_connections() {
        let first = free_addresses("127.0.0.1", 40).unwrap();
        let second = free_addresses("127.0.0.1", 40).unwrap();
        let ports: std::collections::BTreeSet<u16> =
            first.iter().chain(&second).map(SocketAddr::port).collect();
        assert_eq!(ports.len(), 80);
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        assert!(free_addresses("nowhere", 1).is_err());
    }

    #[test]
    fn a_program_that_does_not_come_up_says_why() {
        let mut program = shell("echo no such luck >&2; exit 3");
        program.listens = free_addresses("127.0.0.1", 1).unwrap();
        let error = Running::launch(&[program], None).unwrap_err().to_string();
        assert!(error.contains("it ended: no such luck"), "{error}");
        let missing = Program { command: vec!["/nowhere/at/all".to_owned()], ..Program::default() };
        assert!(
            Running::launch(&[missing], None).unwrap_err().to_string().contains("/nowhere/at/all")
        );
    }
}
