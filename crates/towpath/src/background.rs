//! A thread for what must not hold up the engine's: files, handlers of answers that come from none of its connections,
//! and futures that wait for a time.
//!
//! It begins with the first job, ends when there has been none for a while, and begins again with the next. Jobs are
//! done one after the other, in the order of their times.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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
    /// By their time, and the order in which they came.
    jobs: BTreeMap<(Instant, u64), Job>,
    turn: u64,
    runs: bool,
}

impl Background {
    /// Has it done, soon. Where the system gives no thread it is done here.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.add(None, Box::new(job));
    }

    /// Has it done then.
    pub(crate) fn run_at(&self, due: Instant, job: impl FnOnce() + Send + 'static) {
        self.add(Some(due), Box::new(job));
    }

    fn add(&self, due: Option<Instant>, job: Job) {
        let mut state = self.inner.lock();
        state.turn += 1;
        let turn = state.turn;
        state.jobs.insert((due.unwrap_or_else(Instant::now), turn), job);
        if state.runs {
            self.inner.changed.notify_one();
            return;
        }
        state.runs = true;
        drop(state);
        let inner = Arc::clone(&self.inner);
        let thread = thread::Builder::new().name("towpath-aside".to_owned());
        if thread.spawn(move || inner.work()).is_err() {
            self.inner.work();
        }
    }

    /// Waits until all that was given before is done.
    #[cfg(feature = "cache")]
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
            let due = state.jobs.first_key_value().map(|((due, _), _)| *due);
            let wait = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => {
                    let job = state.jobs.pop_first().map(|(_, job)| job);
                    drop(state);
                    let _ = catch_unwind(AssertUnwindSafe(|| job.map(|job| job())));
                    state = self.lock();
                    continue;
                }
                Some(wait) => wait,
                None => LINGERS,
            };
            let waited = self.changed.wait_timeout(state, wait);
            let (left, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            state = left;
            if timed_out.timed_out() && state.jobs.is_empty() {
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
    #[cfg(feature = "cache")]
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

    #[test]
    fn what_is_for_later_waits_and_holds_up_nothing() {
        let background = Background::default();
        let (done, seen) = mpsc::channel();
        let now = Instant::now();
        for wait_ms in [60, 20, 40, 0] {
            let (done, due) = (done.clone(), now + Duration::from_millis(wait_ms));
            background.run_at(due, move || done.send((wait_ms, Instant::now() >= due)).unwrap());
        }
        drop(done);
        assert_eq!(seen.iter().collect::<Vec<_>>(), [0, 20, 40, 60].map(|it| (it, true)));
    }
}
