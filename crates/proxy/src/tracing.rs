//! Recordings: of everything from start to end (`--trace`), of a few seconds (`POST /trace`), and of slow requests
//! (`--trace-slow`).
//!
//! There is one recording at a time in a process. A request for slow requests has a flight recorder, which answers
//! `POST /trace` as well; a file from start to end has the recording for itself.

mod demand;
mod slow;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::Duration;

use towpath_trace::FileRecording;

use crate::flags::Flags;
use crate::log;
pub(crate) use demand::Refused;
use slow::SlowRequests;
pub(crate) use slow::{SlowCounts, SlowSender};

/// The recordings of this process.
pub(crate) struct Tracing {
    whole: RefCell<Option<(PathBuf, FileRecording)>>,
    slow: RefCell<Option<SlowRequests>>,
    /// `POST /trace` is being answered.
    demanded: Cell<bool>,
}

impl Tracing {
    /// Begins what the command line asks for.
    ///
    /// # Errors
    /// Says in one line what cannot be recorded.
    pub(crate) fn start(flags: &Flags) -> Result<Self, String> {
        let keep = flags.trace_keep.as_deref();
        let whole = flags.trace.as_deref().map(|path| start_file(path, keep));
        let slow = flags.trace_slow.as_ref().map(SlowRequests::start);
        Ok(Self {
            whole: RefCell::new(whole.transpose()?),
            slow: RefCell::new(slow.transpose()?),
            demanded: Cell::new(false),
        })
    }

    /// From when on requests are slow, and whom to tell of them.
    pub(crate) fn slow(&self) -> Option<(Duration, SlowSender)> {
        self.slow.borrow().as_ref().map(|slow| (slow.after(), slow.sender()))
    }

    /// Completes all files; workers have ended.
    pub(crate) fn finish(&self) {
        if let Some(slow) = self.slow.take() {
            slow.finish();
        }
        let Some((path, recording)) = self.whole.take() else { return };
        match recording.finish() {
            Ok(account) => log!(
                Main,
                Info,
                "trace {}: {} events, {} lost",
                path.display(),
                account.events,
                account.lost
            ),
            Err(error) => log!(Main, Error, "trace {} is not whole: {error}", path.display()),
        }
    }
}

fn start_file(path: &Path, keep: Option<&str>) -> Result<(PathBuf, FileRecording), String> {
    let options = demand::options();
    let options = match keep {
        Some(line) => options.directives(line),
        None => Ok(options),
    };
    let recording = options.and_then(|options| options.start_file(path)).map_err(|error| {
        format!("cannot record a trace into {}: {}", path.display(), with_source(&error))
    })?;
    Ok((path.to_owned(), recording))
}

fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
