//! `towpath check`: what a configuration sets and is not honoured.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use towpath_config::{Checked, Error, Location, Options, Problem, Rank, Source, Sources};

/// What of an Envoy configuration is not honoured; exit code 1 if anything that changes behaviour
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example: towpath check examples/sidecar.yaml")]
pub struct Check {
    /// The bootstrap: YAML or JSON
    #[arg(value_name = "FILE")]
    file: PathBuf,
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
        let lines = self.lines();
        let bad = lines.iter().any(|line| line.rank != "note" && line.rank != "ignored");
        let text = if self.json { self.as_json(&lines) } else { self.as_text(&lines) };
        match io::stdout().write_all(text.as_bytes()) {
            Ok(()) if !bad => ExitCode::SUCCESS,
            Ok(()) | Err(_) => ExitCode::FAILURE,
        }
    }

    fn lines(&self) -> Vec<Line> {
        let options = Options {
            allow_unknown_static_fields: self.allow_unknown_static_fields,
            is_node_left_open: true,
            ..Options::default()
        };
        let checked = Source::read(&self.file)
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

    fn as_text(&self, lines: &[Line]) -> String {
        if lines.is_empty() {
            return format!("{}: everything is honoured\n", self.file.display());
        }
        lines
            .iter()
            .map(|Line { rank, location, reason }| match location {
                Some(location) => format!("{location}: {rank}: {reason}\n"),
                None => format!("{rank}: {reason}\n"),
            })
            .collect()
    }

    fn as_json(&self, lines: &[Line]) -> String {
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
            json!({"schema": 1, "file": self.file.display().to_string(), "findings": findings})
        )
    }
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
