//! Measures of the process and its machine, each a pressure: what is used over what there is.
//!
//! Files of `/proc` and of the cgroup as the process sees it; both are memory of the kernel and read in microseconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use towpath_engine::snapshot::overload::Resource;

use crate::memory::Memory;

/// Measures one resource.
#[derive(Debug)]
pub(super) struct Meter {
    of: Resource,
    cgroup: PathBuf,
    /// Of processors: how far the counts were, and what the last looks came to.
    before: Option<Times>,
    utilization: f64,
}

impl Meter {
    pub(super) fn new(of: Resource) -> Self {
        let cgroup = PathBuf::from("/sys/fs/cgroup");
        let mut meter = Self { of, cgroup, before: None, utilization: 0.0 };
        if let Resource::Processors { of_container } = meter.of {
            meter.before = meter.times(of_container, Instant::now()).ok();
        }
        meter
    }

    /// The pressure, or why there is none. `open` is how many downstream connections there are.
    pub(super) fn read(&mut self, open: u64, now: Instant) -> Result<f64, String> {
        match &self.of {
            Resource::Heap { max } => Ok(share(Memory::read().anonymous, *max)),
            Resource::Connections { max } => Ok(share(open, *max)),
            Resource::Injected { file } => injected(&read(file)?),
            Resource::CgroupMemory { max } => self.cgroup_memory(*max),
            Resource::Processors { of_container } => {
                let of_container = *of_container;
                self.processors(of_container, now)
            }
        }
    }

    fn cgroup_memory(&self, max: Option<u64>) -> Result<f64, String> {
        let v2 = ["memory.current", "memory.max"];
        let v1 = ["memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes"];
        let [used, limit] = if self.cgroup.join(v2[0]).exists() { v2 } else { v1 };
        let bytes = |name| bytes(&read(&self.cgroup.join(name))?);
        let limit = match (bytes(limit)?, max) {
            (limit, Some(max)) => limit.min(max),
            (limit, None) => limit,
        };
        Ok(if limit == u64::MAX { 0.0 } else { share(bytes(used)?, limit) })
    }

    fn processors(&mut self, of_container: bool, now: Instant) -> Result<f64, String> {
        let times = self.times(of_container, now)?;
        let Some(before) = self.before.replace(times) else { return Ok(self.utilization) };
        let (worked, passed) = (times.worked - before.worked, times.passed - before.passed);
        if worked < 0.0 || passed <= 0.0 {
            return Err(format!("processors worked {worked} of {passed}"));
        }
        self.utilization += NEW_SHARE * ((worked / passed).clamp(0.0, 1.0) - self.utilization);
        Ok(self.utilization)
    }

    fn times(&self, of_container: bool, now: Instant) -> Result<Times, String> {
        if !of_container {
            return host_times(&read(Path::new("/proc/stat"))?);
        }
        let file = |name: &str| read(&self.cgroup.join(name));
        let passed = now.duration_since(*START).as_secs_f64();
        if self.cgroup.join("cpu.stat").exists() {
            let cores = cores(&file("cpu.max")?, &file("cpuset.cpus.effective")?)?;
            let used = used_micros(&file("cpu.stat")?)?;
            return Ok(Times { worked: used / 1e6 / cores, passed });
        }
        let shares = number(&file("cpu/cpu.shares")?)?;
        let used = number(&file("cpuacct/cpuacct.usage")?)?;
        if shares <= 0.0 {
            return Err(format!("{shares} CPU shares"));
        }
        // As Envoy: shares are taken for thousandths of a processor.
        Ok(Times { worked: used / 1e9 * 1000.0 / shares, passed })
    }
}

/// How long processors worked, and how long they could have, in one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    worked: f64,
    passed: f64,
}

/// How much of what is shown the last look is; the rest is what was shown before. As Envoy.
const NEW_SHARE: f64 = 0.05;

/// Only differences count.
static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

fn share(used: u64, of: u64) -> f64 {
    used as f64 / of.max(1) as f64
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn number(text: &str) -> Result<f64, String> {
    let text = text.trim();
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

/// A pressure in a file, from 0 to 1.
fn injected(text: &str) -> Result<f64, String> {
    let pressure = number(text)?;
    if (0.0..=1.0).contains(&pressure) {
        Ok(pressure)
    } else {
        Err(format!("{pressure} is no pressure from 0 to 1"))
    }
}

/// Bytes as cgroups have them; what is not limited is `u64::MAX`.
fn bytes(text: &str) -> Result<u64, String> {
    match text.trim() {
        "max" | "-1" => Ok(u64::MAX),
        text => text.parse().map_err(|_| format!("`{text}` are no bytes")),
    }
}

/// The first line of `/proc/stat`: time in user mode, with low priority, in the kernel, and idle.
fn host_times(stat: &str) -> Result<Times, String> {
    let line = stat.strip_prefix("cpu  ").and_then(|rest| rest.lines().next());
    let fields: Vec<f64> = line
        .map(|line| line.split_whitespace().take(4).map_while(|it| it.parse().ok()).collect())
        .unwrap_or_default();
    let [user, nice, system, idle] = fields[..] else {
        return Err("/proc/stat has no times of all processors".to_owned());
    };
    let worked = user + nice + system;
    Ok(Times { worked, passed: worked + idle })
}

/// `usage_usec` of `cpu.stat`.
fn used_micros(stat: &str) -> Result<f64, String> {
    let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    number(line.ok_or("cpu.stat has no usage_usec")?)
}

/// How many processors a cgroup may use: those of its set, or less by its quota.
fn cores(max: &str, set: &str) -> Result<f64, String> {
    let mut count = 0.0;
    for part in set.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first < 0.0 || last < first {
            return Err(format!("`{part}` are no processors"));
        }
        count += last - first + 1.0;
    }
    let mut words = max.split_whitespace();
    let (Some(quota), Some(period)) = (words.next(), words.next()) else {
        return Err(format!("`{}` is no quota of processors", max.trim()));
    };
    if quota == "max" {
        return Ok(count);
    }
    let (quota, period) = (number(quota)?, number(period)?);
    if quota <= 0.0 || period <= 0.0 {
        return Err(format!("`{}` is no quota of processors", max.trim()));
    }
    Ok(count.min(quota / period))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::overload::folder;

    #[test]
    fn what_files_say() {
        assert_eq!(injected("0.25\n"), Ok(0.25));
        assert!(injected("1.5").is_err() && injected("much").is_err() && injected("nan").is_err());
        assert_eq!((bytes("max\n"), bytes("4096\n")), (Ok(u64::MAX), Ok(4096)));
        let times = host_times("cpu  10 20 30 40 50 60\ncpu0 1 2 3 4\n");
        assert_eq!(times, Ok(Times { worked: 60.0, passed: 100.0 }));
        assert!(host_times("cpu0 1 2 3 4").is_err());
        assert_eq!(used_micros("nr 1\nusage_usec 5000\n"), Ok(5000.0));
        assert_eq!(cores("max 100000\n", "0-2,5\n"), Ok(4.0));
        assert_eq!(cores("150000 100000\n", "0-3\n"), Ok(1.5));
        assert!(cores("1", "0").is_err() && cores("max 1", "3-1").is_err());
    }

    #[test]
    fn a_cgroup_may_have_what_it_says_or_less() {
        let folder = folder("cgroup");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let meter =
            |max| Meter { cgroup: folder.clone(), ..Meter::new(Resource::CgroupMemory { max }) };
        let mut open = meter(None);
        assert!(open.read(0, Instant::now()).is_err());
        write("memory.current", "500\n");
        write("memory.max", "max\n");
        assert_eq!(open.read(0, Instant::now()), Ok(0.0));
        assert_eq!(meter(Some(1000)).read(0, Instant::now()), Ok(0.5));
        write("memory.max", "2000\n");
        assert_eq!(open.read(0, Instant::now()), Ok(0.25));
        assert_eq!(meter(Some(9000)).read(0, Instant::now()), Ok(0.25));
    }

    #[test]
    fn processors_of_a_cgroup_are_smoothed() {
        let folder = folder("processors");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("cpu.max", "max 100000");
        write("cpuset.cpus.effective", "0-1");
        write("cpu.stat", "usage_usec 0\n");
        let mut meter = Meter::new(Resource::Processors { of_container: true });
        meter.cgroup = folder.clone();
        let begin = Instant::now();
        meter.before = meter.times(true, begin).ok();
        write("cpu.stat", "usage_usec 1000000\n");
        let pressure = meter.read(0, begin + Duration::from_secs(1)).unwrap();
        // One of two processors worked, and a look counts for a twentieth.
        assert!((pressure - 0.025).abs() < 1e-9, "{pressure}");
        assert!(meter.read(0, begin + Duration::from_secs(1)).is_err(), "no time has passed");
    }

    #[test]
    fn this_process_has_memory() {
        let mut meter = Meter::new(Resource::Heap { max: 1 << 40 });
        let pressure = meter.read(0, Instant::now()).unwrap();
        assert!(pressure > 0.0 && pressure < 0.1, "{pressure}");
        let mut connections = Meter::new(Resource::Connections { max: 8 });
        assert_eq!(connections.read(2, Instant::now()), Ok(0.25));
    }
}
