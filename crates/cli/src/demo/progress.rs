//! A line that says how far the demo is.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};

/// Rewrites the last line of an interactive terminal; elsewhere it shows nothing.
pub(super) struct Progress {
    total_ms: u64,
    at_ms: Cell<u64>,
    message: Cell<&'static str>,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(total_ms: u64) -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { total_ms: total_ms.max(1), at_ms: Cell::new(0), message: Cell::new(""), is_shown }
    }

    pub(super) fn set_message(&self, message: &'static str) {
        self.message.set(message);
        self.show();
    }

    pub(super) fn set_position(&self, at_ms: u64) {
        self.at_ms.set(at_ms.min(self.total_ms));
        self.show();
    }

    pub(super) fn position(&self) -> u64 {
        self.at_ms.get()
    }

    pub(super) fn clear(&self) {
        self.write("");
    }

    fn show(&self) {
        self.write(&self.line());
    }

    fn line(&self) -> String {
        let share = self.at_ms.get() as f64 / self.total_ms as f64;
        let done = (share * BAR as f64).round() as usize;
        let bar = "█".repeat(done) + &"░".repeat(BAR - done);
        format!("{bar} {:>3.0} %  {}", share * 100.0, self.message.get())
    }

    fn write(&self, line: &str) {
        if self.is_shown {
            let mut stderr = io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
        }
    }
}

const BAR: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fills_up_and_never_overflows() {
        let progress = Progress::new(2000);
        progress.set_message("through the sidecar");
        progress.set_position(500);
        assert_eq!(
            progress.line(),
            format!("{}{}  25 %  through the sidecar", "█".repeat(10), "░".repeat(30))
        );
        progress.set_position(9000);
        assert_eq!((progress.position(), progress.line().matches('█').count()), (2000, 40));
    }
}
