//! What else the machine was doing.

use std::fs;
use std::time::Instant;

use serde::Serialize;

/// Watches the machine.
#[derive(Debug)]
pub struct NoiseMeter {
    started: Instant,
    cpu: CpuLine,
    stalled_us: u64,
}

/// How disturbed a measurement was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Noise {
    /// Share of CPU time that the hypervisor gave to others.
    pub steal: f64,
    /// Share of time in which some task waited for a CPU; the load itself is part of it.
    pub psi_cpu: f64,
    /// Load average over a minute, at the end.
    pub load: f64,
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
        let cpu = CpuLine::read();
        let total = cpu.total.saturating_sub(self.cpu.total).max(1);
        let elapsed_us = (self.started.elapsed().as_micros() as f64).max(1.0);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Noise {
            steal: cpu.steal.saturating_sub(self.cpu.steal) as f64 / total as f64,
            psi_cpu: (stalled_us().saturating_sub(self.stalled_us) as f64 / elapsed_us).min(1.0),
            load: load
                .split_ascii_whitespace()
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
        }
    }
}

impl CpuLine {
    fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let numbers: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .filter_map(|text| text.parse().ok())
            .take(8)
            .collect();
        Self { total: numbers.iter().sum(), steal: numbers.get(7).copied().unwrap_or(0) }
    }
}

fn stalled_us() -> u64 {
    let pressure = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let some = pressure.lines().find(|line| line.starts_with("some")).unwrap_or_default();
    let total = some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="));
    total.and_then(|number| number.parse().ok()).unwrap_or(0)
}
