//! A running program and what `/proc` says of it.

use std::fmt::Display;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::shell::{Result, output};

/// Killed when dropped.
pub(super) struct Process {
    child: Child,
}

/// CPU time used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cpu {
    /// From the scheduler, exact.
    pub(super) total_ns: u64,
    /// From the tick counters, coarse: good for the proportion of user to system.
    user_ticks: u64,
    system_ticks: u64,
}

impl Process {
    /// Starts a program on a core, or several (`0-1`); its output goes nowhere.
    pub(super) fn start(core: impl Display, command: &[String]) -> Result<Self> {
        let child = pinned(core, command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", command[0]))?;
        Ok(Self { child })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Of the process, its threads and its children.
    pub(super) fn cpu(&self) -> Cpu {
        let mut sum = Cpu::default();
        for pid in family(self.pid()) {
            for thread in threads(pid) {
                let path = format!("/proc/{pid}/task/{thread}");
                let schedstat = fs::read_to_string(format!("{path}/schedstat")).unwrap_or_default();
                sum.total_ns += number(schedstat.split_whitespace().next());
                let stat = fs::read_to_string(format!("{path}/stat")).unwrap_or_default();
                let mut fields = stat.rsplit(") ").next().unwrap_or("").split(' ').skip(11);
                sum.user_ticks += number(fields.next());
                sum.system_ticks += number(fields.next());
            }
        }
        sum
    }

    /// Resident memory of the process and its children, in bytes, counting what they share once.
    pub(super) fn resident_bytes(&self) -> u64 {
        let sum =
            |field: &str| family(self.pid()).into_iter().map(|pid| rollup(pid, field)).sum::<u64>();
        sum("Pss:")
    }

    /// Descriptors that it has open.
    pub(super) fn descriptors(&self) -> usize {
        let of = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        family(self.pid()).into_iter().map(of).sum()
    }

    /// System calls in a span of time, if the kernel lets us count.
    pub(super) fn count_syscalls(&self, time: Duration) -> Option<u64> {
        let pids = family(self.pid()).iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let seconds = format!("{}", time.as_secs_f64());
        let counted = output(
            Command::new("sh")
                .args([
                    "-c",
                    "exec perf stat -x, -e raw_syscalls:sys_enter -p \"$0\" -- sleep \"$1\" 2>&1",
                ])
                .args([&pids, &seconds]),
        );
        let line = counted.ok()?;
        let line = line.lines().find(|line| line.contains("raw_syscalls"))?;
        line.split(',').next()?.parse().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Parents first: a master that lives would replace its workers.
        for pid in family(self.child.id()) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
        let _ = self.child.wait();
    }
}

impl Cpu {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            total_ns: self.total_ns - earlier.total_ns,
            user_ticks: self.user_ticks - earlier.user_ticks,
            system_ticks: self.system_ticks - earlier.system_ticks,
        }
    }

    /// User time: the exact total, divided as the ticks are.
    pub(super) fn user_ns(self) -> f64 {
        let ticks = self.user_ticks + self.system_ticks;
        if ticks == 0 {
            return 0.0;
        }
        self.total_ns as f64 * self.user_ticks as f64 / ticks as f64
    }
}

/// A command on a core, with room for descriptors.
pub(super) fn pinned(core: impl Display, command: &[String]) -> Command {
    let mut pinned = Command::new("sh");
    pinned.args([
        "-c",
        "ulimit -n 30000 2>/dev/null || ulimit -n $(ulimit -Hn); exec taskset -c \"$@\"",
        "sh",
        &core.to_string(),
    ]);
    pinned.args(command);
    pinned
}

/// Waits until a program accepts on the port.
pub(super) fn await_port(port: u16, process: &mut Process, name: &str) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if process.has_ended() {
            return Err(format!("{name} ended instead of listening on port {port}").into());
        }
        if Instant::now() > end {
            return Err(format!("{name} does not listen on port {port}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A process and its descendants, parents first.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut next = 0;
    while next < family.len() {
        let parent = family[next];
        next += 1;
        for thread in threads(parent) {
            let path = format!("/proc/{parent}/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    family
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn rollup(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap_or("");
    number(line.split_whitespace().nth(1)) * 1024
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}
