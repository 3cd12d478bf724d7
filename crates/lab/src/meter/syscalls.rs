//! How many system calls processes make, counted by the kernel's own trace point.
//!
//! The trace point costs every system call of the machine a little while it is on, so it has no place in
//! a run that measures time.

use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};

/// Counts from its beginning on.
pub struct SyscallMeter {
    counters: Vec<Counter>,
}

impl SyscallMeter {
    /// Begins to count for all threads of `pids`, and for those they start.
    pub fn begin(pids: &[u32]) -> io::Result<Self> {
        let id = trace_point()?;
        let mut counters = Vec::new();
        for pid in pids {
            for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let Some(tid) = task.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
                else {
                    continue;
                };
                let mut counter = Builder::new(Tracepoint::with_id(id))
                    .observe_pid(tid)
                    .any_cpu()
                    .inherit(true)
                    .include_kernel()
                    .build()?;
                counter.enable()?;
                counters.push(counter);
            }
        }
        Ok(Self { counters })
    }

    /// System calls since the beginning.
    pub fn count(&mut self) -> io::Result<u64> {
        self.counters.iter_mut().map(Counter::read).sum()
    }
}

fn trace_point() -> io::Result<u64> {
    read_trace_point().or_else(|_| {
        // Where the trace file system is not mounted, a thread may look at it in a mount namespace of its own.
        let looking = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some("none"), "/sys/kernel/tracing", Some("tracefs"), MsFlags::empty(), none)?;
            read_trace_point()
        });
        looking.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

fn read_trace_point() -> io::Result<u64> {
    let text = std::fs::read_to_string("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id")?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_a_process_does_where_that_is_permitted() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do kill -0 $$; done"])
            .spawn()
            .unwrap();
        let result = SyscallMeter::begin(&[child.id()]).and_then(|mut meter| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            meter.count()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        match result {
            Ok(count) => assert!(count > 50, "{count}"),
            Err(error) => eprintln!("not permitted here: {error}"),
        }
    }
}
