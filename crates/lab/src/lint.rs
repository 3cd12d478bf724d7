//! Consistency checks on a published benchmark table.
//!
//! Text in (CSV or Markdown, numbers in any common unit), findings out. Nothing here knows how the figures
//! were made: it only asks whether they can all be true at once, and what is missing to believe them.

mod check;
mod document;
mod prose;

use serde::Serialize;

use crate::results::{self, Figures, Stretch, Tool};

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
    /// Percentiles that the tool guessed, and between which seconds.
    pub guessed: Vec<(f64, [f64; 2])>,
    /// CPUs used: 1.0 is one whole CPU.
    pub cpus: Option<f64>,
    /// Bytes of memory.
    pub memory: Option<f64>,
    /// Sum of all latencies in seconds.
    pub total_s: Option<f64>,
    /// How long was measured, in seconds.
    pub duration_s: Option<f64>,
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
    /// Whether fewer requests than the concurrency may have been under way, because a rate was asked for.
    pub may_be_paced: bool,
    /// Whether the tool adds the latencies of requests that it thinks it left out.
    pub is_corrected: bool,
    /// Whether each connection may have carried several requests at once, which the tool does not tell.
    pub may_have_streams: bool,
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

/// Reads a text, which may be what a load generator printed, and checks what it says.
pub fn lint(text: &str) -> Vec<Finding> {
    let Some(figures) = results::read(text) else { return check::all(&read(text)) };
    let seconds = results::stretches(text).unwrap_or_default();
    let rows: Vec<Row> =
        std::iter::once(Row::from(&figures)).chain(seconds.iter().map(Row::from)).collect();
    check::all(&rows)
}

/// The seconds of a run are its spread, and want none of their own.
impl From<&Stretch> for Row {
    fn from(it: &Stretch) -> Self {
        Self {
            line: it.line,
            case: format!("from {} s", it.from_s),
            rate: Some(it.rate),
            percentiles: it.percentiles.clone(),
            has_spread: true,
            may_be_paced: true,
            ..Self::default()
        }
    }
}

impl From<&Figures> for Row {
    fn from(it: &Figures) -> Self {
        Self {
            line: 1,
            case: it.tool.name().to_owned(),
            concurrency: it.connections,
            rate: it.rate,
            mean_s: it.mean_s,
            percentiles: it.percentiles.clone(),
            guessed: it.guessed.clone(),
            duration_s: it.duration_s,
            count: it.requests,
            may_be_paced: true,
            is_corrected: it.tool == Tool::Wrk,
            may_have_streams: it.tool == Tool::H2load,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
