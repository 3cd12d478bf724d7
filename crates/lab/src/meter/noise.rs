//! What else the machine was doing.

use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Watches the machine.
#[derive(Debug)]
pub struct NoiseMeter {
    started: Instant,
    cpu: Option<CpuLine>,
    stalled_us: Option<u64>,
}

/// How disturbed a measurement was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Share of CPU time that the hypervisor gave to others; `None` where the kernel does not tell.
    pub steal: Option<f64>,
    /// Share of time in which some task waited for a CPU; the load itself is part of it.
    pub psi_cpu: Option<f64>,
    /// Load average over a minute, at the end.
    pub load: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuLine {
    total: u64,
    steal: u64,
}

impl NoiseMeter {
    /// Begins to watch.
    pub fn begin() -> Self {
        Self { started: Instant::now(), cpu: CpuLine::read(), stalled_us: stalled_us() }
    }

    /// What happened since the beginning.
    pub fn noise(&self) -> Noise {
        let elapsed_us = (self.started.elapsed().as_micros() as f64).max(1.0);
        let steal = self.cpu.zip(CpuLine::read()).map(|(begin, end)| {
            let total = end.total.saturating_sub(begin.total).max(1);
            end.steal.saturating_sub(begin.steal) as f64 / total as f64
        });
        let psi_cpu = self
            .stalled_us
            .zip(stalled_us())
            .map(|(begin, end)| (end.saturating_sub(begin) as f64 / elapsed_us).min(1.0));
        let load = fs::read_to_string("/proc/loadavg")
            .ok()
            .and_then(|load| load.split_ascii_whitespace().next()?.parse().ok());
        Noise { steal, psi_cpu, load }
    }
}

impl Noise {
    /// What a run of `other_s` seconds had, added to one of `own_s` seconds.
    pub(crate) fn merge(&mut self, own_s: f64, other: &Self, other_s: f64) {
        let mean = |mine: Option<f64>, theirs: Option<f64>| {
            mine.zip(theirs).map(|(a, b)| (a * own_s + b * other_s) / (own_s + other_s))
        };
        self.steal = mean(self.steal, other.steal);
        self.psi_cpu = mean(self.psi_cpu, other.psi_cpu);
        self.load = other.load;
    }

    /// Steal, CPU pressure and load, each as words.
    pub(crate) fn words(&self) -> [String; 3] {
        let percent = |share: Option<f64>, digits: usize| {
            share
                .map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.digits$} %", share * 100.0))
        };
        let load = self.load.map_or_else(|| UNKNOWN.to_owned(), |load| format!("{load:.2}"));
        [percent(self.steal, 1), percent(self.psi_cpu, 0), load]
    }
}

impl CpuLine {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let numbers: Vec<u64> = stat
            .lines()
            .next()?
            .split_ascii_whitespace()
            .filter_map(|text| text.parse().ok())
            .take(8)
            .collect();
        Some(Self { total: numbers.iter().sum(), steal: numbers.get(7).copied()? })
    }
}

fn stalled_us() -> Option<u64> {
    let pressure = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = pressure.lines().find(|line| line.starts_with("some"))?;
    let total = some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="));
    total?.parse().ok()
}

const UNKNOWN: &str = "unknown";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_unknown_and_not_nothing() {
        let mut noise = Noise { steal: None, psi_cpu: Some(0.5), load: Some(1.0) };
        assert_eq!(noise.words(), ["unknown", "50 %", "1.00"]);
        noise.merge(1.0, &Noise { steal: Some(0.1), psi_cpu: Some(0.1), load: None }, 3.0);
        assert_eq!(noise.words(), ["unknown", "20 %", "unknown"]);
    }
}
