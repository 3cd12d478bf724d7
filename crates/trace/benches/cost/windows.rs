//! Windows in turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Something to measure: `work(n)` does it `n` times.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) prepare: fn(),
    pub(crate) work: Box<dyn FnMut(u64)>,
    /// What must be done before and after the work, untimed.
    pub(crate) before: fn(u64),
    pub(crate) after: fn(u64),
}

/// Nanoseconds of one operation: the median of the windows, and their quartiles.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Figure {
    pub(crate) fn of(name: &'static str, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |part: f64| samples[((samples.len() - 1) as f64 * part).round() as usize];
        Self { name, median: at(0.5), low: at(0.25), high: at(0.75) }
    }
}

/// How often each case has its turn.
pub(crate) struct Run {
    pub(crate) windows: usize,
}

const WINDOW: Duration = Duration::from_micros(1000);

impl Run {
    pub(crate) fn of(&self, mut cases: Vec<Case>) -> Vec<Figure> {
        let counts: Vec<u64> = cases.iter_mut().map(fitting).collect();
        let mut samples = vec![Vec::with_capacity(self.windows); cases.len()];
        for _ in 0..self.windows {
            for ((case, &count), samples) in cases.iter_mut().zip(&counts).zip(&mut samples) {
                (case.prepare)();
                // The first events after a switch find cold caches and answers not asked for yet.
                timed(case, count / 20 + 1);
                samples.push(timed(case, count));
            }
        }
        cases.iter().zip(samples).map(|(case, samples)| Figure::of(case.name, samples)).collect()
    }
}

fn timed(case: &mut Case, count: u64) -> f64 {
    (case.before)(count);
    let begun = Instant::now();
    (case.work)(black_box(count));
    let took = begun.elapsed();
    (case.after)(count);
    took.as_nanos() as f64 / count as f64
}

/// How many fit a window.
fn fitting(case: &mut Case) -> u64 {
    (case.prepare)();
    timed(case, 100);
    let mut count = 1;
    loop {
        let took = timed(case, count);
        let window = WINDOW.as_nanos() as f64;
        if took * count as f64 * 4.0 > window {
            return (window / took).max(1.0) as u64;
        }
        count *= 2;
    }
}

/// Keeps this thread on one processor.
pub(crate) fn pin(processor: usize) {
    #[cfg(target_os = "linux")]
    {
        let mut set = rustix::thread::CpuSet::new();
        set.set(processor);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = processor;
}

/// The machine, in a line.
pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    format!("{model}, {processors} processors, Linux {}, load {}", kernel.trim(), load.trim())
}
