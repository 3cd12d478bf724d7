//! How it is heard that an exchange goes on.
//!
//! Arrives: wake-ups, on the engine's thread. Leaves: a thread that goes on, or tokens for an event loop. Nothing
//! here calls Python from the engine's thread.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;

use pyo3::prelude::*;
use towpath_exchange::{Bell, Sleep};

/// The waiter that is woken.
pub(crate) enum Wake {
    /// The thread that waits in [`Sleep::sleep`].
    Thread(Sleep),
    /// Threads that wait in [`Bell::until`].
    Threads(Bell),
    /// An event loop, which knows the exchange by the token.
    Loop { ready: Arc<Ready>, token: u64 },
}

impl task::Wake for Wake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match &**self {
            Self::Thread(sleep) => sleep.wake(),
            Self::Threads(bell) => bell.ring(),
            Self::Loop { ready, token } => ready.add(*token),
        }
    }
}

/// The exchanges that an event loop has to look at, and a pipe that is readable as long as there are any.
pub(crate) struct Ready {
    tokens: Mutex<Vec<u64>>,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Ready {
    fn add(&self, token: u64) {
        let mut tokens = self.tokens();
        if tokens.is_empty() {
            // It has room: there is never more than this one byte in it.
            let _ = (&self.writer).write(&[1]);
        }
        if tokens.last() != Some(&token) {
            tokens.push(token);
        }
    }

    fn take(&self) -> Vec<u64> {
        let mut tokens = self.tokens();
        if !tokens.is_empty() {
            let _ = (&self.reader).read(&mut [0]);
        }
        std::mem::take(&mut tokens)
    }

    fn tokens(&self) -> MutexGuard<'_, Vec<u64>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an event loop watches: `fileno()` is readable when `take()` has tokens of exchanges that go on.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Hub {
    pub(crate) ready: Arc<Ready>,
}

#[pymethods]
impl Hub {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = pipe()?;
        Ok(Self { ready: Arc::new(Ready { tokens: Mutex::default(), reader, writer }) })
    }

    fn fileno(&self) -> i32 {
        self.ready.reader.as_raw_fd()
    }

    fn take(&self) -> Vec<u64> {
        self.ready.take()
    }
}
