//! A thread for what must not hold up the engine's: files, and handlers of answers that come from none of its
//! connections.
//!
//! It begins with the first job, ends when there has been none for a while, and begins again with the next. Jobs are
//! done in their order.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Does jobs, one after the other. Clones are the same thread.
#[derive(Clone, Default)]
pub(crate) struct Background {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    runs: bool,
}

impl Background {
    /// Has it done, soon. Where the system gives no thread it is done here.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.inner.lock();
        state.jobs.push_back(Box::new(job));
        if state.runs {
            self.inner.changed.notify_one();
            return;
        }
        state.runs = true;
        drop(state);
        let inner = Arc::clone(&self.inner);
        let thread = thread::Builder::new().name("towpath-files".to_owned());
        if thread.spawn(move || inner.work()).is_err() {
            self.inner.work();
        }
    }

    /// Waits until all that was given before is done.
    pub(crate) fn flush(&self) {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        self.run(move || drop(done));
        let _ = wait.recv();
    }
}

impl Inner {
    fn work(&self) {
        let mut state = self.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
            }
            let (left, timed_out) = self
                .changed
                .wait_timeout_while(state, LINGERS, |state| state.jobs.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            state = left;
            if timed_out.timed_out() {
                state.runs = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread costs less than to begin one for each of several jobs in a row.
const LINGERS: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_are_done_in_their_order_and_a_panic_ends_one_alone() {
        let background = Background::default();
        let (done, seen) = mpsc::channel();
        for number in 0..100 {
            let done = done.clone();
            background.run(move || {
                done.send(number).unwrap();
                assert_ne!(number, 50, "this panic is a part of the test");
            });
        }
        background.flush();
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }
}
