//! `towpath lab lint`.

use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::lint::{self, Level};

/// Check a published benchmark table for consistency
#[derive(Debug, Args)]
#[command(after_help = "\
Reads Markdown and CSV, and what wrk, wrk2, hey, oha, h2load, vegeta, k6, fortio and this lab print (text or
JSON), and HdrHistogram logs. Checks Little's law, CPU per request, order of percentiles, totals, repeats and
missing intervals. Exits with 4 when figures contradict each other.

Example: towpath lab lint report.md")]
pub struct Lint {
    /// The table; - is standard input
    table: PathBuf,
    /// Print only what is wrong or odd
    #[arg(long, short)]
    quiet: bool,
    /// Write the findings with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Lint {
    pub(super) fn run(self) -> super::Outcome {
        let mut bytes = Vec::new();
        let result = if self.table.as_os_str() == "-" {
            std::io::stdin().read_to_end(&mut bytes).map(|_| ())
        } else {
            std::fs::read(&self.table).map(|content| bytes = content)
        };
        result.map_err(|error| format!("cannot read {}: {error}", self.table.display()))?;
        let findings = lint::lint(&String::from_utf8_lossy(&bytes));
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        if let Some(path) = &self.json {
            super::write_result(path, "lint", json!({ "findings": findings }))?;
        }
        if self.json.as_deref() != Some(std::path::Path::new("-")) {
            let mut text = String::new();
            for finding in
                findings.iter().filter(|finding| !self.quiet || finding.level >= Level::Warn)
            {
                let level = match finding.level {
                    Level::Pass => "pass",
                    Level::Note => "note",
                    Level::Warn => "warn",
                    Level::Fail => "FAIL",
                };
                let _ = writeln!(
                    text,
                    "{level}  line {:<4} {:<13} {}",
                    finding.line, finding.check, finding.text
                );
            }
            let _ = writeln!(
                text,
                "{} contradictions, {} warnings, {} notes, {} passed",
                count(Level::Fail),
                count(Level::Warn),
                count(Level::Note),
                count(Level::Pass)
            );
            super::print(&text);
        }
        Ok(if count(Level::Fail) > 0 { super::REFUTED.into() } else { ExitCode::SUCCESS })
    }
}
