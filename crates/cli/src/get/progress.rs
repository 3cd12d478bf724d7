//! `--progress-bar`: a line on the standard error that says how much of a body came.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How a body comes. On a terminal its line is drawn anew, ten times a second at most; elsewhere only its last is
/// written.
pub(super) struct Progress {
    begun: Instant,
    drawn: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), drawn: None, is_terminal: io::stderr().is_terminal() }
    }

    /// So many bytes came, of so many if that is known.
    pub(super) fn tell(&mut self, received: u64, expected: Option<u64>) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= EVERY);
        if self.is_terminal && is_due {
            self.drawn = Some(Instant::now());
            eprint!("\r{}", line(received, expected, self.begun.elapsed()));
            let _ = io::stderr().flush();
        }
    }

    /// No more will come.
    pub(super) fn end(&self, received: u64, expected: Option<u64>) {
        let again = if self.is_terminal { "\r" } else { "" };
        eprintln!("{again}{}", line(received, expected, self.begun.elapsed()));
    }
}

/// One line of at most 79 columns, as long as any other with the same bar: it hides the one before.
fn line(received: u64, expected: Option<u64>, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    let rate = received as f64 / seconds.max(1e-3);
    let amounts = format!("{:>9}  {:>9}/s", bytes(received as f64), bytes(rate));
    let Some(expected) = expected.filter(|expected| *expected > 0) else {
        return format!("{amounts}  {seconds:>6.1} s{:35}", "");
    };
    let share = (received as f64 / expected as f64).min(1.0);
    let full = (share * BAR as f64) as usize;
    let left = match received {
        0 => "-".to_owned(),
        _ => format!("{:.1}", (seconds / share - seconds).min(99_999.0)),
    };
    format!(
        "{}{} {:>3.0} %  {amounts}  {left:>7} s left",
        "#".repeat(full),
        " ".repeat(BAR - full),
        share * 100.0
    )
}

/// `512 B`, `1.5 MiB`.
fn bytes(count: f64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fitting = units.into_iter().find(|(_, bits)| count >= (1_u64 << bits) as f64);
    fitting.map_or_else(
        || format!("{count:.0} B"),
        |(unit, bits)| format!("{:.1} {unit}", count / (1_u64 << bits) as f64),
    )
}

const BAR: usize = 26;
const EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_how_fast_and_how_long() {
        let half = line(512 << 10, Some(1 << 20), Duration::from_secs(2));
        assert_eq!(
            half,
            "#############               50 %  512.0 KiB  256.0 KiB/s      2.0 s left"
        );
        assert_eq!(
            line(0, Some(10), Duration::ZERO).trim(),
            "0 %        0 B        0 B/s        - s left"
        );
        let unknown = line(1 << 20, None, Duration::from_secs(1));
        assert_eq!(unknown.trim(), "1.0 MiB    1.0 MiB/s     1.0 s");
    }

    #[test]
    fn no_line_wraps_or_leaves_a_piece_of_the_one_before() {
        let all = [0, 1, 1023, 1 << 20, (1 << 30) - 1, 1 << 39];
        for received in all {
            let with =
                |expected| line(received, expected, Duration::from_millis(1)).chars().count();
            assert!((60..80).contains(&with(None)), "{received}: {}", with(None));
            assert!((70..80).contains(&with(Some(1 << 39))), "{received}: {}", with(Some(1 << 39)));
        }
    }
}
