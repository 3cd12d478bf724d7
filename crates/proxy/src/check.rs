//! `towpath check`: what a configuration sets and is not honoured.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use towpath_config::{Checked, Error, Location, Options, Problem, Rank, Source, Sources};

use crate::xds::offline;

/// What of an Envoy configuration is not honoured; exit code 1 if anything that changes behaviour
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example: towpath check examples/sidecar.yaml")]
pub struct Check {
    /// The bootstrap: YAML or JSON
    #[arg(value_name = "FILE", required_unless_present = "xds")]
    file: Option<PathBuf>,
    /// Check a recording of `towpath xds dump`, or a config dump, update by update: what a proxy with this bootstrap
    /// would refuse and why, and what would serve. Without FILE the bootstrap is the recording's own
    #[arg(long, value_name = "RECORDING")]
    xds: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Do not mind fields that Envoy does not know either
    #[arg(long)]
    allow_unknown_static_fields: bool,
}

impl Check {
    /// Checks, prints, and says what the process shall end with.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let file = match (&self.xds, &self.file) {
            (Some(recording), file) => return self.run_recorded(file.as_deref(), recording),
            (None, Some(file)) => file,
            // One of them is required.
            (None, None) => return ExitCode::FAILURE,
        };
        let lines = self.lines(file);
        let bad = lines.iter().any(|line| line.rank != "note" && line.rank != "ignored");
        let text = if self.json { as_json(file, &lines) } else { as_text(file, &lines) };
        match io::stdout().write_all(text.as_bytes()) {
            Ok(()) if !bad => ExitCode::SUCCESS,
            Ok(()) | Err(_) => ExitCode::FAILURE,
        }
    }

    fn options(&self) -> Options {
        Options {
            allow_unknown_static_fields: self.allow_unknown_static_fields,
            is_node_left_open: true,
            ..Options::default()
        }
    }

    fn run_recorded(&self, file: Option<&Path>, recording: &Path) -> ExitCode {
        let outcome = match offline::judge(file, recording, self.options()) {
            Ok(outcome) => outcome,
            Err(error) => {
                // Where standard error is closed nothing can be told.
                let _ = writeln!(io::stderr(), "towpath check: {error}");
                return ExitCode::FAILURE;
            }
        };
        let text = if self.json { format!("{:#}\n", outcome.as_json()) } else { outcome.as_text() };
        match io::stdout().write_all(text.as_bytes()) {
            Ok(()) if !outcome.is_bad() => ExitCode::SUCCESS,
            Ok(()) | Err(_) => ExitCode::FAILURE,
        }
    }

    fn lines(&self, file: &Path) -> Vec<Line> {
        let options = self.options();
        let checked = Source::read(file)
            .and_then(|source| towpath_config::check(&Sources::file(source), &options));
        match checked {
            Ok(Checked { problems, findings, notes, left_out }) => {
                let findings = findings.into_iter().map(|finding| Line {
                    rank: match finding.rank {
                        Rank::Harmless => "ignored",
                        Rank::ChangesBehaviour => "not supported",
                    },
                    location: Some(finding.location),
                    reason: finding.reason,
                });
                let notes = notes.into_iter().map(|note| Line {
                    rank: "note",
                    location: Some(note.location),
                    reason: note.message,
                });
                let more = (left_out > 0).then(|| Line {
                    rank: "invalid",
                    location: None,
                    reason: format!("{left_out} more are not listed"),
                });
                let problems = problems.into_iter().map(Line::invalid);
                problems.chain(findings).chain(notes).chain(more).collect()
            }
            Err(Error::Invalid(problems)) => problems.into_iter().map(Line::invalid).collect(),
            Err(error) => vec![Line { rank: "invalid", location: None, reason: error.to_string() }],
        }
    }
}

fn as_text(file: &Path, lines: &[Line]) -> String {
    if lines.is_empty() {
        return format!("{}: everything is honoured\n", file.display());
    }
    lines
        .iter()
        .map(|Line { rank, location, reason }| match location {
            Some(location) => format!("{location}: {rank}: {reason}\n"),
            None => format!("{rank}: {reason}\n"),
        })
        .collect()
}

fn as_json(file: &Path, lines: &[Line]) -> String {
    let findings: Vec<Value> = lines
        .iter()
        .map(|Line { rank, location, reason }| {
            let mut value = json!({"rank": rank, "reason": reason});
            if let Some(Location { file, line, column, path, .. }) = location {
                value["file"] = json!(**file);
                value["line"] = json!(line);
                value["column"] = json!(column);
                value["path"] = json!(path);
            }
            value
        })
        .collect();
    format!(
        "{:#}\n",
        json!({"schema": 1, "file": file.display().to_string(), "findings": findings})
    )
}

/// One thing to say.
struct Line {
    rank: &'static str,
    location: Option<Location>,
    reason: String,
}

impl Line {
    fn invalid(problem: Problem) -> Self {
        Self { rank: "invalid", location: Some(problem.location), reason: problem.message }
    }
}
