//! What other load generators print, read into one shape.
//!
//! The text or JSON of one run in, its figures out. Which tool printed it is seen from the text; nothing is guessed:
//! a figure that the tool does not print is absent.

mod hdr;
mod json;
mod series;
mod text;

use serde::Serialize;

pub(crate) use series::{HEADER as SERIES_HEADER, Stretch, stretches};

/// A program that prints what it measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// `wrk`.
    Wrk,
    /// `wrk2`.
    Wrk2,
    /// `hey`.
    Hey,
    /// `oha`, text or JSON.
    Oha,
    /// nghttp2's `h2load`.
    H2load,
    /// `vegeta report`, text or JSON.
    Vegeta,
    /// `k6`'s summary, text or JSON.
    K6,
    /// `fortio`, text or JSON.
    Fortio,
    /// `ghz`, JSON.
    Ghz,
    /// An HdrHistogram interval log, in nanoseconds.
    HdrLog,
    /// `towpath lab load --json`, or its `--csv`.
    Lab,
}

/// One run as a tool reported it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Who reported it.
    pub tool: Tool,
    /// Connections, workers or virtual users.
    pub connections: Option<f64>,
    /// Answers per second.
    pub rate: Option<f64>,
    /// The measured time in seconds.
    pub duration_s: Option<f64>,
    /// Requests that were answered.
    pub requests: Option<f64>,
    /// Requests that failed.
    pub errors: Option<f64>,
    /// Mean latency in seconds.
    pub mean_s: Option<f64>,
    /// Percentiles (50, 99.9, 100 for the slowest) and their latency in seconds, ascending.
    pub percentiles: Vec<(f64, f64)>,
    /// Percentiles that the tool guessed: it counted no finer than these bounds in seconds.
    pub guessed: Vec<(f64, [f64; 2])>,
}

/// The figures of one run, if a known tool printed this text.
pub fn read(text: &str) -> Option<Figures> {
    let mut figures = json::read(text)
        .or_else(|| hdr::read(text))
        .or_else(|| series::read(text))
        .or_else(|| text::read(text))?;
    figures.percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
    figures.percentiles.dedup_by(|a, b| a.0 == b.0);
    Some(figures)
}

impl Figures {
    fn of(tool: Tool) -> Self {
        Self {
            tool,
            connections: None,
            rate: None,
            duration_s: None,
            requests: None,
            errors: None,
            mean_s: None,
            percentiles: Vec::new(),
            guessed: Vec::new(),
        }
    }

    /// Notes which percentiles lie in a bucket that is wide beside them. The slowest is known as it is.
    fn note_guessed(&mut self, buckets: &[[f64; 2]]) {
        let of =
            |seconds: f64| buckets.iter().find(|[low, high]| *low <= seconds && seconds <= *high);
        let percentiles = self.percentiles.iter().filter(|(share, _)| *share < 100.0);
        self.guessed = percentiles
            .filter_map(|&(share, seconds)| {
                let [low, high] = *of(seconds)?;
                (high - low > MOST_GUESSED * seconds).then_some((share, [low, high]))
            })
            .collect();
    }

    /// The latency in seconds at a percentile that the tool printed.
    pub fn percentile(&self, percentile: f64) -> Option<f64> {
        let is_it = |(share, _): &&(f64, f64)| (share - percentile).abs() < 1e-6;
        self.percentiles.iter().find(is_it).map(|(_, seconds)| *seconds)
    }
}

/// A percentile and the bounds in seconds between which it is a guess: `p50 (0.014 to 1.000 ms)`.
pub(crate) fn show_guessed((share, [low, high]): (f64, [f64; 2])) -> String {
    format!("p{share} ({:.3} to {:.3} ms)", low * 1e3, high * 1e3)
}

impl Tool {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::Wrk2 => "wrk2",
            Self::Hey => "hey",
            Self::Oha => "oha",
            Self::H2load => "h2load",
            Self::Vegeta => "vegeta",
            Self::K6 => "k6",
            Self::Fortio => "fortio",
            Self::Ghz => "ghz",
            Self::HdrLog => "HdrHistogram log",
            Self::Lab => "towpath lab",
        }
    }
}

/// A bucket is wide when it is more than this share of the latency in it.
const MOST_GUESSED: f64 = 0.1;

#[cfg(test)]
mod tests;
