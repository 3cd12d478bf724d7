//! Consistency checks on anybody's benchmark table.
//!
//! Text in (CSV or Markdown, numbers in any common unit), findings out. Nothing here knows how the figures
//! were made: it only asks whether they can all be true at once, and what is missing to believe them.

mod check;
mod document;
mod number;
mod prose;

use serde::Serialize;

pub use document::read;

/// One measured case of one system, as far as a table told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Line of the text it begins on.
    pub line: usize,
    /// What was measured: a heading, a first column.
    pub case: String,
    /// Which system, where there are several.
    pub who: String,
    /// Requests under way.
    pub concurrency: Option<f64>,
    /// Requests per second.
    pub rate: Option<f64>,
    /// Mean latency in seconds.
    pub mean_s: Option<f64>,
    /// Percentiles (95, 99, 99.9, 100) and their latency in seconds.
    pub percentiles: Vec<(f64, f64)>,
    /// CPUs used: 1.0 is one whole CPU.
    pub cpus: Option<f64>,
    /// Bytes of memory.
    pub memory: Option<f64>,
    /// Total time in seconds.
    pub total_s: Option<f64>,
    /// Requests made.
    pub count: Option<f64>,
    /// Repeats of one quantity.
    pub repeats: Vec<f64>,
    /// A criterion-like estimate with its interval, in seconds.
    pub interval_s: Option<[f64; 3]>,
    /// Change of the rate in percent against some base.
    pub rate_change: Option<f64>,
    /// Change of CPU use in percent against that base.
    pub cpu_change: Option<f64>,
    /// Battery use in percent per minute.
    pub battery: Option<f64>,
    /// Whether any figure came with a spread.
    pub has_spread: bool,
}

/// Something worth knowing about a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// Which check found it.
    pub check: &'static str,
    /// Line of the text.
    pub line: usize,
    /// What was found.
    pub text: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The figures agree with each other.
    Pass,
    /// What the figures say when put differently.
    Note,
    /// Something is missing or odd.
    Warn,
    /// The figures cannot all be true.
    Fail,
}

/// Reads a text and checks what it says.
pub fn lint(text: &str) -> Vec<Finding> {
    check::all(&read(text))
}

#[cfg(test)]
mod tests;
