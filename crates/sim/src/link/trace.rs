//! Recorded capacity: at which milliseconds a link could have delivered a full packet.

use std::time::Duration;

use towpath_proto::time::Instant;

use super::draw::mix;

/// Opportunities to deliver 1500 bytes each, repeated for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds, ascending; the last one is the period.
    milliseconds: Vec<u64>,
}

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceError {
    /// This line is not a number of milliseconds.
    NotANumber(usize),
    /// This line is earlier than the one before.
    Backwards(usize),
    /// There is nothing in it, or it takes no time.
    Empty,
}

impl Trace {
    /// Reads mahimahi's format: one number of milliseconds per line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut milliseconds: Vec<u64> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let instant = line.parse().map_err(|_| TraceError::NotANumber(at + 1))?;
            if milliseconds.last().is_some_and(|last| instant < *last) {
                return Err(TraceError::Backwards(at + 1));
            }
            milliseconds.push(instant);
        }
        if milliseconds.last().is_none_or(|period| *period == 0) {
            return Err(TraceError::Empty);
        }
        Ok(Self { milliseconds })
    }

    /// A made-up cellular link: the logarithm of the rate wanders (standard deviation 0.5, forgotten after
    /// about two seconds) around `mean_bits_per_second`, and about once a minute a handover stops everything
    /// for 0.2 to 0.8 s.
    pub fn synthetic_cellular(mean_bits_per_second: f64, length: Duration, seed: u64) -> Self {
        let mut state = seed;
        let mut share = move || {
            state = state.wrapping_add(1);
            (mix(state ^ mix(seed)) >> 11) as f64 / (1u64 << 53) as f64
        };
        let length_ms = (length.as_millis() as u64).max(1000);
        let mut milliseconds = Vec::new();
        let (mut wander, mut credit, mut handover_until) = (0.0, 0.0, 0);
        for now in 1..=length_ms {
            if now % 100 == 1 {
                let normal = (0..12).map(|_| share()).sum::<f64>() - 6.0;
                wander = STEP_MEMORY * wander
                    + DEVIATION * (1.0 - STEP_MEMORY * STEP_MEMORY).sqrt() * normal;
                if now >= handover_until && share() < 0.1 / 60.0 {
                    handover_until = now + 200 + (share() * 600.0) as u64;
                }
            }
            if now < handover_until {
                continue;
            }
            // The mean of a log-normal is exp(σ²/2) times its median.
            let rate = mean_bits_per_second * (wander - DEVIATION * DEVIATION / 2.0).exp();
            credit += rate / 1000.0 / (8.0 * 1500.0);
            while credit >= 1.0 {
                milliseconds.push(now);
                credit -= 1.0;
            }
        }
        milliseconds.push(length_ms);
        Self { milliseconds }
    }

    /// The rate over the whole period.
    pub fn mean_bits_per_second(&self) -> f64 {
        self.milliseconds.len() as f64 * 1500.0 * 8.0 / (self.period() as f64 / 1000.0)
    }

    /// When opportunity `index` is, counted from the beginning over all repetitions.
    pub(super) fn instant(&self, index: u64) -> Instant {
        let count = self.milliseconds.len() as u64;
        let within = self.milliseconds[(index % count) as usize];
        Instant::from_nanos(
            (index / count)
                .saturating_mul(self.period())
                .saturating_add(within)
                .saturating_mul(1_000_000),
        )
    }

    /// The first opportunity at `now` or later.
    pub(super) fn first_at(&self, now: Instant) -> u64 {
        let now_ms = now.as_nanos().div_ceil(1_000_000);
        let (rounds, within) = (now_ms / self.period(), now_ms % self.period());
        rounds * self.milliseconds.len() as u64
            + self.milliseconds.partition_point(|it| *it < within) as u64
    }

    fn period(&self) -> u64 {
        self.milliseconds.last().copied().unwrap_or(1)
    }
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotANumber(line) => write!(f, "line {line} is not a number of milliseconds"),
            Self::Backwards(line) => write!(f, "line {line} is earlier than the line before"),
            Self::Empty => f.write_str("the trace is empty"),
        }
    }
}

impl std::error::Error for TraceError {}

const DEVIATION: f64 = 0.5;
/// exp(−100 ms / 2 s)
const STEP_MEMORY: f64 = 0.951_229;
