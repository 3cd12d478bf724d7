//! Events that wait to be taken.
//!
//! Arrives: events, from engines' threads. Leaves: the same in the same order, to the caller that takes them. A
//! descriptor is readable as long as any wait: one byte is in its pipe then, put there by the first and taken out with
//! the last.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::failure::Result;
use crate::request::{Request, Told};

/// `towpath_queue`.
pub struct Queue {
    waiting: Mutex<Waiting>,
    came: Condvar,
    bell: bell::Bell,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<(Arc<Request>, Told)>,
    closed: bool,
}

impl Queue {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { waiting: Mutex::default(), came: Condvar::new(), bell: bell::Bell::new()? })
    }

    /// One more; whether a reader will take it.
    pub(crate) fn push(&self, request: Arc<Request>, told: Told) -> bool {
        let mut waiting = self.waiting();
        if waiting.closed {
            return false;
        }
        waiting.events.push_back((request, told));
        if waiting.events.len() == 1 {
            self.bell.ring();
        }
        drop(waiting);
        self.came.notify_one();
        true
    }

    /// The first, within the time; none waits without end.
    pub(crate) fn next(&self, limit: Option<Duration>) -> Option<(Arc<Request>, Told)> {
        // Beyond what an instant can say is without end.
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut waiting = self.waiting();
        loop {
            if let Some(event) = waiting.events.pop_front() {
                if waiting.events.is_empty() {
                    self.bell.still();
                }
                return Some(event);
            }
            waiting = match until {
                None => self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let woken = self.came.wait_timeout(waiting, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// They are not taken any more: what waits is dropped, and so is what comes.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut waiting = self.waiting();
            waiting.closed = true;
            std::mem::take(&mut waiting.events)
        };
        for (request, told) in dropped {
            request.drop_event(&told);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.waiting().closed
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.bell.descriptor()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

#[cfg(unix)]
mod bell {
    //! Something that a loop can watch.

    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use crate::abi::Code;
    use crate::failure::{Failure, Result};

    pub(super) struct Bell {
        near: UnixStream,
        far: UnixStream,
    }

    impl Bell {
        pub(super) fn new() -> Result<Self> {
            let lacking = |error: std::io::Error| Failure::new(Code::Resource, error.to_string());
            let (near, far) = UnixStream::pair().map_err(lacking)?;
            near.set_nonblocking(true).map_err(lacking)?;
            far.set_nonblocking(true).map_err(lacking)?;
            Ok(Self { near, far })
        }

        /// At most one byte is ever in it: neither can fail for want of room, nor of a byte.
        pub(super) fn ring(&self) {
            let _ = (&self.far).write(&[1]);
        }

        pub(super) fn still(&self) {
            let _ = (&self.near).read(&mut [0]);
        }

        pub(super) fn descriptor(&self) -> i32 {
            self.near.as_raw_fd()
        }
    }
}

#[cfg(not(unix))]
mod bell {
    //! Nothing that a loop could watch.

    use crate::failure::Result;

    pub(super) struct Bell;

    impl Bell {
        pub(super) fn new() -> Result<Self> {
            Ok(Self)
        }

        pub(super) fn ring(&self) {}

        pub(super) fn still(&self) {}

        pub(super) fn descriptor(&self) -> i32 {
            -1
        }
    }
}
