//! `towpath lab lint`.

use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::units::show_number_of;
use crate::lint::{self, Finding, Level};

/// Check a published benchmark table for consistency
#[derive(Debug, Args)]
#[command(after_help = "\
Reads Markdown and CSV, and what wrk, wrk2, hey, oha, h2load, vegeta, k6, fortio and this lab print (text or
JSON, this lab's --csv), ghz's JSON, and HdrHistogram logs. Checks Little's law, CPU per request, order of percentiles,
totals, repeats and missing intervals. Exits with 4 when figures contradict each other.

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
        result.map_err(|error| {
            super::usage(format!("cannot read {}: {error}", self.table.display()))
        })?;
        let findings = lint::lint(&String::from_utf8_lossy(&bytes));
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
            text += &summary(&findings);
            super::terminal::tell(&text);
        }
        let refuted = findings.iter().any(|finding| finding.level == Level::Fail);
        Ok(if refuted { super::REFUTED.into() } else { ExitCode::SUCCESS })
    }
}

/// How many findings there are of each level. Where nothing could be checked that is said: it is no clean bill.
fn summary(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing was checked: no figure here says anything of another\n".to_owned();
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count() as u64;
    let number_of = |level, noun| show_number_of(count(level), noun);
    format!(
        "{}, {}, {}, {} passed\n",
        number_of(Level::Fail, "contradiction"),
        number_of(Level::Warn, "warning"),
        number_of(Level::Note, "note"),
        count(Level::Pass)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_cannot_be_read_is_a_wrong_argument() {
        let lint = Lint { table: "/nonexistent/table.md".into(), quiet: false, json: None };
        let error = lint.run().unwrap_err();
        assert_eq!(super::super::code_of(&*error), super::super::USAGE);
        assert!(error.to_string().contains("/nonexistent/table.md"), "{error}");
    }

    #[test]
    fn that_nothing_was_checked_is_said() {
        assert!(summary(&[]).starts_with("nothing was checked"));
        let table = "| rate | p50 | p99 |\n|---|---|---|\n| 100/s | 5 ms | 2 ms |\n";
        assert!(summary(&lint::lint(table)).starts_with("1 contradiction, 1 warning"));
    }
}
