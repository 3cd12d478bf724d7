//! `towpath xds`: what a control plane sends, written down, compared in a person's words, and sent again.

mod dump;
pub(crate) mod offline;
mod recording;
mod replay;
mod words;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

pub use dump::Dump;
use recording::{Recording, State};
pub use replay::Replay;

/// What to do with what a control plane sends.
#[derive(Clone, Debug, Subcommand)]
pub enum Xds {
    /// Write down what a control plane sends to a proxy with this bootstrap
    ///
    /// Nothing is served: the control plane is asked as the proxy would ask it, for clusters, endpoints, listeners,
    /// routes, secrets and filters, one after the other, and is told of what would be refused. Each update is a line of
    /// JSON, with when it came and what of it would be refused; keys and passwords are left out. Ends when a proxy
    /// could serve.
    ///
    /// Example: towpath xds dump sidecar.yaml -o before.xds
    Dump(Dump),
    /// Say what changed: between two recordings, or step by step within one
    ///
    /// A recording is what `xds dump` writes. A `/config_dump?include_eds` of Envoy or of Towpath will do as well.
    /// Exit code 1 where something changed between two.
    ///
    /// Example: towpath xds diff before.xds after.xds
    Diff(Diff),
    /// Serve a recording as a control plane: ADS and single streams, state of the world and delta, in clear text
    ///
    /// What was recorded at one moment comes at one moment. Each answer of a proxy is printed, refusals with their
    /// reasons. Secrets whose keys were left out are not sent. Goes on until interrupted.
    ///
    /// Example: towpath xds replay before.xds --listen 127.0.0.1:18000
    Replay(Replay),
}

/// What `xds diff` was told.
#[derive(Clone, Debug, Args)]
pub struct Diff {
    /// A recording; FILE@N is what had come by its step N
    #[arg(value_name = "FILE")]
    before: String,
    /// What to compare its end with; without it, each of its steps is compared with the one before
    #[arg(value_name = "FILE")]
    after: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Xds {
    /// Does it, and says what the process shall end with.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let outcome = match self {
            Self::Dump(dump) => dump.run(),
            Self::Diff(diff) => diff.run(),
            Self::Replay(replay) => replay.run(),
        };
        outcome.unwrap_or_else(|error| {
            // Where standard error is closed nothing can be told.
            let _ = writeln!(std::io::stderr(), "towpath xds: {error}");
            ExitCode::from(2)
        })
    }
}

impl Diff {
    fn run(&self) -> Result<ExitCode, String> {
        let (text, differs) = match &self.after {
            Some(after) => {
                let changes = words::changes(&state(&self.before)?, &state(after)?);
                let text = if self.json {
                    format!("{:#}\n", json!({"schema": 1, "changes": words::as_json(&changes)}))
                } else if changes.is_empty() {
                    "nothing changed\n".to_owned()
                } else {
                    words::as_text(&changes)
                };
                (text, !changes.is_empty())
            }
            None => (self.steps()?, false),
        };
        let text = if self.json { text } else { recording::printable(&text) };
        // A reader that has seen enough and closed the pipe is no failure.
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// What each step of one recording changed.
    fn steps(&self) -> Result<String, String> {
        let recording = Recording::read(&PathBuf::from(&self.before))?;
        let (mut state, mut text, mut steps) = (State::default(), String::new(), Vec::new());
        for (timed, number) in recording.steps.iter().zip(1_u64..) {
            let step = &timed.step;
            let before = state.part(step);
            state.take(step);
            let changes = words::changes(&before, &state.part(step));
            if self.json {
                steps.push(json!({
                    "step": number,
                    "at_ms": timed.at_ms,
                    "type": step.kind,
                    "version": step.version,
                    "changes": words::as_json(&changes),
                    "rejected": recording::pairs(&step.rejected),
                }));
                continue;
            }
            text += &format!("{}\n", timed.title(number));
            text += &indented(&words::as_text(&changes));
            for (name, reason) in &step.rejected {
                text += &indented(&format!("refused `{name}`: {reason}\n"));
            }
        }
        if self.json {
            text = format!("{:#}\n", json!({"schema": 1, "steps": steps}));
        }
        Ok(text)
    }
}

/// What had come by the end of a recording, or by a step of it (`FILE@N`).
fn state(name: &str) -> Result<State, String> {
    let path = PathBuf::from(name);
    let (path, step) = match name.rsplit_once('@') {
        Some((file, number)) if !path.exists() => {
            let number = number.parse::<usize>();
            (PathBuf::from(file), Some(number.map_err(|_| format!("{name}: no step's number"))?))
        }
        _ => (path, None),
    };
    let recording = Recording::read(&path)?;
    let count = recording.steps.len();
    if let Some(step) = step.filter(|step| *step > count) {
        return Err(format!("{name}: there are {count} steps, and no step {step}"));
    }
    let mut state = State::default();
    for timed in recording.steps.iter().take(step.unwrap_or(count)) {
        state.take(&timed.step);
    }
    Ok(state)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
