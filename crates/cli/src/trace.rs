//! `towpath trace`: what Perfetto files hold, one file out of several, and what others are to have of them.

mod collect;
mod export;
mod otlp;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use towpath_trace::file::{self, FileError};

/// What to do with trace files.
#[derive(Debug, Subcommand)]
pub(crate) enum Trace {
    /// Say what is in Perfetto files: spans by name, losses, the recording's own cost
    ///
    /// Example: towpath trace stat app.pftrace
    Stat {
        /// Perfetto files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Put several Perfetto files on the clock of the first
    ///
    /// Example: towpath trace merge app.pftrace sidecar.pftrace -o both.pftrace
    Merge {
        /// Perfetto files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Where to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    Export(export::Export),
    Collect(collect::Collect),
}

impl Trace {
    pub(crate) fn run(self) -> ExitCode {
        let outcome = match &self {
            Self::Stat { files } => {
                file::stat(files).map(|stat| stat.to_string()).map_err(|error| with_source(&error))
            }
            Self::Merge { files, output } => file::merge(files, output)
                .map(|merged| merged.to_string())
                .map_err(|error| with_source(&error)),
            Self::Export(export) => export.run(),
            Self::Collect(collect) => collect.run(),
        };
        match outcome {
            Ok(text) => {
                use std::io::Write;
                // A reader that has seen enough and closed the pipe is no failure.
                let _ = std::io::stdout().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("towpath trace: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

fn with_source(error: &FileError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
