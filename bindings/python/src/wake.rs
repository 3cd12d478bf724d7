//! How it is heard that an exchange goes on.
//!
//! Arrives: wake-ups, on the engine's thread. Leaves: a thread that goes on, or tokens for an event loop. Nothing
//! here calls Python from the engine's thread.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;

use pyo3::prelude::*;

/// Who is woken.
pub(crate) enum Wake {
    /// The thread that waits in [`Sleep::sleep`].
    Thread(Sleep),
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
            Self::Loop { ready, token } => ready.add(*token),
        }
    }
}

/// What woke a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    ByExchange,
    /// Perhaps: a signal came, which Python may have a handler for.
    BySignal,
}

#[cfg(target_os = "linux")]
mod sleep {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;
    use rustix::thread::futex;

    use super::Woken;

    /// A thread that waits, and can be interrupted by a signal: `std::sync::Condvar` goes on waiting then.
    #[derive(Default)]
    pub(crate) struct Sleep {
        /// 1 when there was a wake-up since the last sleep.
        woken: AtomicU32,
    }

    impl Sleep {
        pub(crate) fn wake(&self) {
            if self.woken.swap(1, Ordering::AcqRel) == 0 {
                // All: after a cancellation from elsewhere each of them has to look.
                let _ = futex::wake(&self.woken, futex::Flags::PRIVATE, i32::MAX as u32);
            }
        }

        /// Waits for a wake-up, or takes one that came since the last sleep.
        pub(crate) fn sleep(&self) -> Woken {
            while self.woken.swap(0, Ordering::AcqRel) == 0 {
                let slept = futex::wait(&self.woken, futex::Flags::PRIVATE, 0, None);
                if slept == Err(Errno::INTR) {
                    return Woken::BySignal;
                }
            }
            Woken::ByExchange
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod sleep {
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Duration;

    use super::Woken;

    /// A thread that waits, and looks for signals now and then.
    #[derive(Default)]
    pub(crate) struct Sleep {
        woken: Mutex<bool>,
        changed: Condvar,
    }

    impl Sleep {
        pub(crate) fn wake(&self) {
            *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.changed.notify_all();
        }

        /// Waits for a wake-up, or takes one that came since the last sleep.
        pub(crate) fn sleep(&self) -> Woken {
            let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(woken, LOOK, |woken| !*woken);
            let (mut woken, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if std::mem::take(&mut *woken) { Woken::ByExchange } else { Woken::BySignal }
        }
    }

    const LOOK: Duration = Duration::from_millis(100);
}

pub(crate) use sleep::Sleep;

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
