//! A view of a run while it goes on, on a terminal; nothing of it stays when the run ends.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use super::terminal::stderr_width;
use super::units::{show_count, show_ns, show_number_of};
use crate::load::{Plan, Progress};

/// Draws over its last picture on standard error.
pub(super) struct Live {
    title: String,
    rates: History,
    medians: History,
    tails: History,
    /// Lines on the screen that are ours.
    lines: usize,
}

/// The last values, drawn as bars of a character's height.
#[derive(Default)]
struct History(VecDeque<f64>);

impl Live {
    /// `None` when standard error is no terminal, or one that cannot move its cursor.
    pub(super) fn of(plan: &Plan) -> Option<Self> {
        let is_dumb = std::env::var("TERM").map_or(true, |name| name.is_empty() || name == "dumb");
        (io::stderr().is_terminal() && !is_dumb).then(|| Self::new(plan))
    }

    fn new(plan: &Plan) -> Self {
        let title = format!(
            "{}   {} arrivals, {}",
            plan.target,
            plan.arrivals.name(),
            show_number_of(plan.connections as u64, "connection")
        );
        Self {
            title,
            rates: History::default(),
            medians: History::default(),
            tails: History::default(),
            lines: 0,
        }
    }

    /// Shows the latest glimpse.
    pub(super) fn show(&mut self, progress: &Progress) {
        let width = stderr_width();
        let lines = self.picture(progress);
        let mut text = self.erasure();
        for line in &lines {
            let cut: String = line.chars().take(width.saturating_sub(1)).collect();
            let _ = writeln!(text, "{cut}\x1b[K");
        }
        self.lines = lines.len();
        write(&text);
    }

    /// Takes the view away.
    pub(super) fn clear(&mut self) {
        let text = self.erasure();
        self.lines = 0;
        write(&text);
    }

    fn erasure(&self) -> String {
        match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }

    fn picture(&mut self, progress: &Progress) -> Vec<String> {
        self.rates.push(progress.rps);
        self.medians.push(progress.latency.p50 as f64);
        self.tails.push(progress.latency.p99 as f64);
        let (elapsed, total) = (progress.elapsed.as_secs_f64(), progress.total.as_secs_f64());
        let done = ((elapsed / total.max(1e-9)).clamp(0.0, 1.0) * BAR as f64).round() as usize;
        let phase = if progress.elapsed < progress.warmup { ", warming up" } else { "" };
        vec![
            self.title.clone(),
            format!(
                "{}{} {elapsed:.1} of {total:.1} s{phase}",
                "█".repeat(done),
                "░".repeat(BAR - done)
            ),
            format!("rate   {:>12}  {}", format!("{:.0}/s", progress.rps), self.rates.bars()),
            format!("p50    {:>12}  {}", show_ns(progress.latency.p50 as f64), self.medians.bars()),
            format!("p99    {:>12}  {}", show_ns(progress.latency.p99 as f64), self.tails.bars()),
            format!("errors {:>12}", show_count(progress.errors)),
        ]
    }
}

impl History {
    fn push(&mut self, value: f64) {
        if self.0.len() == BAR {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// Each value as a share of the largest.
    fn bars(&self) -> String {
        let largest = self.0.iter().copied().fold(0.0, f64::max);
        let bar = |value: &f64| {
            let share = if largest > 0.0 { value / largest } else { 0.0 };
            EIGHTHS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1]
        };
        self.0.iter().map(bar).collect()
    }
}

fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

const BAR: usize = 40;
const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Percentiles;
    use std::time::Duration;

    fn progress(seconds: u64, rps: f64) -> Progress {
        Progress {
            elapsed: Duration::from_secs(seconds),
            warmup: Duration::from_secs(1),
            total: Duration::from_secs(10),
            rps,
            latency: Percentiles { p50: 80_000, p99: 1_200_000, ..Percentiles::default() },
            errors: 1234,
        }
    }

    #[test]
    fn the_picture_has_what_matters_and_a_history_of_bounded_length() {
        let mut live = Live::new(&Plan::new("127.0.0.1:80".parse().unwrap()));
        assert!(live.picture(&progress(0, 10.0))[1].ends_with("0.0 of 10.0 s, warming up"));
        let lines = live.picture(&progress(5, 80.0));
        assert_eq!(lines[1], format!("{}{} 5.0 of 10.0 s", "█".repeat(20), "░".repeat(20)));
        assert_eq!(lines[2], "rate           80/s  ▁█");
        assert!(lines[3].contains("80.0 µs") && lines[4].contains("1.20 ms"));
        assert!(lines[5].ends_with("1,234"));
        for _ in 0..100 {
            live.picture(&progress(6, 0.0));
        }
        assert_eq!(live.rates.0.len(), BAR);
        assert_eq!(live.rates.bars(), "▁".repeat(BAR));
    }

    #[test]
    fn a_new_picture_replaces_the_last() {
        let mut live = Live::new(&Plan::new("127.0.0.1:80".parse().unwrap()));
        assert_eq!(live.erasure(), "");
        live.lines = 6;
        assert_eq!(live.erasure(), "\x1b[6A\r\x1b[J");
    }
}
