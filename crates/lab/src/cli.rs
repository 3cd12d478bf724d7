//! The `towpath lab` commands: arguments, progress, exit codes.

mod agent;
mod agree;
mod compare;
mod conditions;
mod knee;
mod link;
mod lint;
mod live;
mod load;
mod origin;
mod replay;
mod secure;
mod terminal;
pub mod units;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::Value;

use crate::about::Made;
use crate::compare::ExperimentError;
use crate::load::LoadError;

pub use agent::Agent;
pub use agree::Agree;
pub use compare::Compare;
pub use knee::Knee;
pub use link::Link;
pub use lint::Lint;
pub use load::Load;
pub use origin::Origin;
pub use replay::ReplayCommand;

/// A `towpath lab` command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a test origin
    Origin(Origin),
    /// Generate load and account for what it costs
    Load(Box<Load>),
    /// Generate load for a `load --agents` elsewhere
    Agent(Agent),
    /// Run a command behind an emulated network
    Link(Box<Link>),
    /// Find the highest rate that meets a latency objective
    Knee(Box<Knee>),
    /// Compare two arrangements in interleaved pairs
    Compare(Compare),
    /// Check that another generator charges a server the same
    Agree(Agree),
    /// Run a public performance report again
    Replay(Box<ReplayCommand>),
    /// Check a published benchmark table for consistency
    Lint(Lint),
}

/// Carries a command out, prints its result and gives the exit code.
pub fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Origin(origin) => origin.run(),
        Command::Load(load) => load.run(),
        Command::Agent(agent) => agent.run(),
        Command::Link(link) => link.run(),
        Command::Knee(knee) => knee.run(),
        Command::Compare(compare) => compare.run(),
        Command::Agree(agree) => agree.run(),
        Command::Replay(replay) => replay.run(),
        Command::Lint(lint) => lint.run(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            let mut text = format!("towpath: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                let _ = write!(text, ": {cause}");
                source = cause.source();
            }
            eprintln!("{text}");
            ExitCode::from(code_of(&*error))
        }
    }
}

type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

/// What was asked for makes no sense: the command line or a file that it names.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

fn usage(text: impl Into<String>) -> Box<dyn std::error::Error> {
    Box::new(Usage(text.into()))
}

fn code_of(error: &(dyn std::error::Error + 'static)) -> u8 {
    let is_plan = |error: &LoadError| matches!(error, LoadError::Plan(_));
    let is_usage = error.is::<Usage>()
        || error.is::<ExperimentError>()
        || error.downcast_ref::<LoadError>().is_some_and(is_plan);
    if is_usage { USAGE } else { FAILURE }
}

/// Nothing could be measured.
const FAILURE: u8 = 1;
/// As clap ends for arguments that it does not understand.
const USAGE: u8 = 2;
/// The runs cannot tell.
const UNDECIDED: u8 = 3;
/// It was measured, and is not as it was said or asked to be.
const REFUTED: u8 = 4;

/// Prints to standard output; a reader that has gone away is not an error.
fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Rewrites the last line of an interactive terminal; elsewhere prints nothing.
fn print_progress(text: &str) {
    let mut stderr = io::stderr().lock();
    if stderr.is_terminal() {
        // A line that wraps cannot be taken back.
        let text: String = text.chars().take(terminal::stderr_width().saturating_sub(1)).collect();
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}

/// Writes a result with what it takes to judge and to repeat it.
fn write_result(path: &Path, kind: &str, value: Value) -> io::Result<()> {
    write_json(path, &crate::about::describe(kind, &Made::now(&command_line()), value))
}

fn write_json(path: &Path, value: &Value) -> io::Result<()> {
    write_text(path, &format!("{value:#}\n"))
}

fn write_text(path: &Path, text: &str) -> io::Result<()> {
    if path.as_os_str() == "-" {
        print(text);
        return Ok(());
    }
    std::fs::write(path, text).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
    })
}

/// The command as it was given, to be repeated.
fn command_line() -> String {
    let words = std::env::args().map(|word| {
        let is_plain = !word.is_empty()
            && word.chars().all(|c| c.is_alphanumeric() || "-_./:=+%,@".contains(c));
        if is_plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    words.collect::<Vec<String>>().join(" ")
}
