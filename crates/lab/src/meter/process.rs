//! One process's lines in `/proc`.

use std::collections::BTreeMap;
use std::fs;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

use super::Cost;

/// Counters that only grow.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    cpu_ns: u64,
    user_ticks: u64,
    system_ticks: u64,
    run_queue_wait_ns: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    /// CPU nanoseconds of each thread, by its id.
    threads: BTreeMap<u32, u64>,
}

impl Reading {
    /// `None` when the process is gone.
    pub(super) fn take(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (user_ticks, system_ticks) = ticks(&stat)?;
        let mut reading = Self { user_ticks, system_ticks, ..Self::default() };
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let path = task.path();
            let schedstat = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            let mut numbers =
                schedstat.split_ascii_whitespace().filter_map(|text| text.parse::<u64>().ok());
            let cpu_ns = numbers.next().unwrap_or(0);
            let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
            reading.threads.extend(tid.map(|tid: u32| (tid, cpu_ns)));
            reading.run_queue_wait_ns += numbers.next().unwrap_or(0);
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            reading.voluntary_switches += line_number(&status, "voluntary_ctxt_switches:");
            reading.involuntary_switches += line_number(&status, "nonvoluntary_ctxt_switches:");
        }
        reading.cpu_ns = clock_ns(pid).unwrap_or_else(|| reading.threads.values().sum());
        Some(reading)
    }

    pub(super) fn add_difference(&self, begin: &Self, cost: &mut Cost) {
        let cpu_ns = self.cpu_ns.saturating_sub(begin.cpu_ns);
        let user = self.user_ticks.saturating_sub(begin.user_ticks);
        let system = self.system_ticks.saturating_sub(begin.system_ticks);
        let (user_ns, system_ns) = super::split(cpu_ns, (user, system));
        cost.cpu_ns += cpu_ns;
        cost.user_ns += user_ns;
        cost.system_ns += system_ns;
        let spent = self.threads.iter().map(|(tid, cpu_ns)| {
            cpu_ns.saturating_sub(begin.threads.get(tid).copied().unwrap_or(0))
        });
        cost.busiest_thread_ns = spent.fold(cost.busiest_thread_ns, u64::max);
        cost.run_queue_wait_ns += self.run_queue_wait_ns.saturating_sub(begin.run_queue_wait_ns);
        cost.voluntary_switches += self.voluntary_switches.saturating_sub(begin.voluntary_switches);
        cost.involuntary_switches +=
            self.involuntary_switches.saturating_sub(begin.involuntary_switches);
        cost.processes += 1;
    }
}

/// Ticks in user space and in the kernel, of a line of `stat`.
pub(super) fn ticks(stat: &str) -> Option<(u64, u64)> {
    // The second field is the program's name in parentheses, which may contain anything.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The processes that `pid`'s threads have started and that are alive.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

/// Lets the peak begin anew; where that is not permitted, the peak is that of the process's life.
pub(super) fn reset_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

pub(super) fn add_memory(pid: u32, cost: &mut Cost) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    cost.rss_bytes += line_number(&status, "VmRSS:") * 1024;
    cost.peak_bytes += line_number(&status, "VmHWM:") * 1024;
    cost.pss_bytes += line_number(&rollup, "Pss:") * 1024;
}

fn clock_ns(pid: u32) -> Option<u64> {
    let clock: ClockId = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    let time = clock.now().ok()?;
    Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// The number after `name` on the line that begins with it.
pub(super) fn line_number(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    rest.split_ascii_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
