//! What processes and the machine spent between two instants, read from `/proc`.
//!
//! CPU time comes from each process's own CPU clock: nanoseconds, threads that have ended included. The
//! split into user and system is the kernel's, which samples it, so it is coarser than the sum. A process
//! given by id stands for its descendants too, so that a master and its workers are one target.

mod noise;
mod process;
mod syscalls;

use std::collections::BTreeMap;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;

pub use noise::{Noise, NoiseMeter};
use process::Reading;
pub use syscalls::SyscallMeter;

/// Watches processes.
#[derive(Debug)]
pub struct Meter {
    roots: Vec<u32>,
    begin: BTreeMap<u32, Reading>,
}

/// What the watched processes spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// CPU time.
    pub cpu_ns: u64,
    /// Of that, in user mode.
    pub user_ns: u64,
    /// Of that, in the kernel.
    pub system_ns: u64,
    /// CPU time of the thread that took most.
    pub busiest_thread_ns: u64,
    /// Time spent runnable but not running: others had the CPU.
    pub run_queue_wait_ns: u64,
    /// Context switches because the process waited for something.
    pub voluntary_switches: u64,
    /// Context switches because its time was up.
    pub involuntary_switches: u64,
    /// Resident memory at the end.
    pub rss_bytes: u64,
    /// Proportional share of resident memory at the end; 0 where it may not be read.
    pub pss_bytes: u64,
    /// Highest resident memory since the beginning, or of the process's life where that mark cannot be reset.
    pub peak_bytes: u64,
    /// Processes counted at the end.
    pub processes: u64,
}

/// Why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeterError {
    /// No such process, or not ours to look at.
    #[error("cannot read process {pid}: {error}")]
    Process {
        /// The process.
        pid: u32,
        /// Why.
        error: std::io::Error,
    },
}

impl Meter {
    /// Begins to watch `pids` and their descendants.
    pub fn begin(pids: &[u32]) -> Result<Self, MeterError> {
        for pid in pids {
            std::fs::metadata(format!("/proc/{pid}/stat"))
                .map_err(|error| MeterError::Process { pid: *pid, error })?;
        }
        let mut meter = Self { roots: pids.to_vec(), begin: BTreeMap::new() };
        for pid in meter.family() {
            process::reset_peak(pid);
            if let Some(reading) = Reading::take(pid) {
                meter.begin.insert(pid, reading);
            }
        }
        Ok(meter)
    }

    /// What was spent since the beginning. Processes that ended meanwhile are not in it.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost::default();
        for pid in self.family() {
            let Some(end) = Reading::take(pid) else { continue };
            let begin = self.begin.get(&pid).cloned().unwrap_or_default();
            end.add_difference(&begin, &mut cost);
        }
        cost
    }

    /// As [`Meter::cost`], with memory, which takes the kernel longer to add up.
    pub fn cost_with_memory(&self) -> Cost {
        let mut cost = self.cost();
        self.add_memory(&mut cost);
        cost
    }

    /// Adds the memory held at present.
    pub fn add_memory(&self, cost: &mut Cost) {
        for pid in self.family() {
            process::add_memory(pid, cost);
        }
    }

    /// The watched processes that are alive at present, each once.
    pub fn family(&self) -> Vec<u32> {
        let mut family = self.roots.clone();
        let mut at = 0;
        while at < family.len() {
            for child in process::children(family[at]) {
                if !family.contains(&child) {
                    family.push(child);
                }
            }
            at += 1;
        }
        family
    }
}

impl Cost {
    /// CPU time in user mode and in the kernel; `None` where there was too little of it to tell.
    pub fn split(&self) -> Option<(u64, u64)> {
        told(self.cpu_ns, self.user_ns, self.system_ns)
    }

    /// All of it as JSON, with null for what cannot be told.
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = serde_json::json!(self);
        if self.split().is_none() {
            value["user_ns"] = serde_json::Value::Null;
            value["system_ns"] = serde_json::Value::Null;
        }
        value
    }

    /// Adds what another run of the same target spent; memory is the larger of both.
    pub fn merge(&mut self, other: &Self) {
        self.cpu_ns += other.cpu_ns;
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.busiest_thread_ns += other.busiest_thread_ns;
        self.run_queue_wait_ns += other.run_queue_wait_ns;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.rss_bytes = self.rss_bytes.max(other.rss_bytes);
        self.pss_bytes = self.pss_bytes.max(other.pss_bytes);
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.processes = self.processes.max(other.processes);
    }
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Microseconds that the calling thread spent in user space and in the kernel, which the kernel splits by sampling:
/// good for the share, not for the sum.
pub fn thread_times_us() -> (u64, u64) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return (0, 0) };
    let microseconds =
        |time: nix::sys::time::TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    (microseconds(usage.user_time()), microseconds(usage.system_time()))
}

/// Time in user mode and in the kernel of `cpu_ns`, where samples tell it.
///
/// Where the kernel samples at every tick (1 to 10 ms), a share of a quarter of a second of CPU is right to some 3 to
/// 10 points in a hundred; of less it may be 0 or 100 % by chance.
pub fn told(cpu_ns: u64, user_ns: u64, system_ns: u64) -> Option<(u64, u64)> {
    (cpu_ns >= TOLD_NS).then_some((user_ns, system_ns))
}

const TOLD_NS: u64 = 250_000_000;

/// Splits CPU time as the kernel's samples were split; evenly, when there are none: see [`told`].
pub fn split(cpu_ns: u64, (user, system): (u64, u64)) -> (u64, u64) {
    let share = if user + system == 0 { 0.5 } else { user as f64 / (user + system) as f64 };
    let user_ns = (cpu_ns as f64 * share) as u64;
    (user_ns, cpu_ns - user_ns)
}

/// Time that the calling thread was runnable but had no CPU.
pub fn thread_run_queue_wait_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().nth(1).and_then(|wait| wait.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_busy_process_is_charged_and_its_children_too() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done & wait"])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let meter = Meter::begin(&[child.id()]).unwrap();
        let family = meter.family();
        let before = Instant::now();
        while meter.cost().cpu_ns < 20_000_000 && before.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let cost = meter.cost_with_memory();
        for pid in family {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid as i32),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
        child.wait().unwrap();
        assert!(cost.processes >= 2, "the shell and its busy child: {cost:?}");
        assert!(cost.cpu_ns >= 20_000_000, "{cost:?}");
        // Only the child is busy, and it has one thread.
        assert!((10_000_000..=cost.cpu_ns * 2).contains(&cost.busiest_thread_ns), "{cost:?}");
        assert!(cost.rss_bytes > 0 && cost.peak_bytes >= cost.rss_bytes / 2, "{cost:?}");
    }

    #[test]
    fn a_threads_own_time_is_split_as_the_kernel_counts_it() {
        let ((user, system), begin_ns) = (thread_times_us(), thread_cpu_ns());
        // Arithmetic until samples have seen it, however little of a CPU there is.
        let mut number = 1_u64;
        let deadline = Instant::now() + Duration::from_secs(60);
        while thread_times_us().0 < user + 100_000 && Instant::now() < deadline {
            for _ in 0..1_000_000 {
                number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
            }
        }
        let after = thread_times_us();
        let cpu_ns = thread_cpu_ns() - begin_ns;
        let (user_ns, system_ns) = split(cpu_ns, (after.0 - user, after.1 - system));
        assert_eq!(user_ns + system_ns, cpu_ns);
        assert!(user_ns > cpu_ns / 2, "{user_ns} of {cpu_ns}: arithmetic is no system call");
        assert_eq!(split(10, (0, 0)), (5, 5));
    }

    #[test]
    fn a_few_samples_do_not_tell_user_from_kernel() {
        let cost = Cost { cpu_ns: 34_000_000, user_ns: 34_000_000, ..Cost::default() };
        assert_eq!((cost.split(), cost.to_json()["system_ns"].is_null()), (None, true));
        let cost =
            Cost { cpu_ns: 340_000_000, user_ns: 200_000_000, system_ns: 140_000_000, ..cost };
        assert_eq!(cost.split(), Some((200_000_000, 140_000_000)));
        assert_eq!(cost.to_json()["user_ns"], 200_000_000);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        assert!(matches!(Meter::begin(&[u32::MAX]), Err(MeterError::Process { .. })));
    }
}
