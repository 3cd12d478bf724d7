//! One plan on several threads: connections and arrivals are divided, start and end are common, and what each counted
//! is added up exactly.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::outcome::{Outcome, Progress};
use super::{LoadError, Plan};

/// Which part of a plan a generator carries out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// This one, from 0.
    pub index: usize,
    /// Of so many.
    pub of: usize,
    /// Connections of the whole plan, where this is a part of it.
    pub(crate) all_connections: Option<usize>,
    /// Where the generators of one process wait for each other.
    #[serde(skip)]
    pub(crate) meeting: Option<Arc<Meeting>>,
}

impl Default for Share {
    fn default() -> Self {
        Self::new(0, 1)
    }
}

impl Share {
    /// Part `index`, from 0, of so many.
    pub fn new(index: usize, of: usize) -> Self {
        Self { index, of, all_connections: None, meeting: None }
    }

    /// How many of `count` things fall to this part, when they are dealt out in turn.
    pub(crate) fn part_of(&self, count: usize) -> usize {
        count / self.of + usize::from(self.index < count % self.of)
    }

    /// The number that the part's own `index` has among all.
    pub(super) fn number(&self, index: usize) -> usize {
        index * self.of + self.index
    }

    /// A part of this part.
    pub(super) fn within(&self, inner: &Self) -> Self {
        Self { index: inner.index * self.of + self.index, of: self.of * inner.of, ..self.clone() }
    }
}

/// Where generators that start together meet.
pub(crate) struct Meeting {
    state: Mutex<State>,
    all_there: Condvar,
    /// Answers and errors of all, for the observer.
    pub(super) answers: AtomicU64,
    pub(super) errors: AtomicU64,
    is_stopped: AtomicBool,
}

/// Tells when the agents, which are all ready, are to start; `None` when they are not to.
pub(super) type Signal = Box<dyn FnOnce() -> Option<Instant> + Send>;

struct State {
    missing: usize,
    is_off: bool,
    signal: Option<Signal>,
    epoch: Option<Instant>,
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meeting").finish_non_exhaustive()
    }
}

impl Meeting {
    /// Of so many generators, who start when `signal` says so, or as soon as all are there.
    pub(super) fn of(count: usize, signal: Option<Signal>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { missing: count, is_off: false, signal, epoch: None }),
            all_there: Condvar::new(),
            answers: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// All are to end as soon as they look.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(&self, is_ready: bool) {
        let mut state = self.lock();
        state.missing -= 1;
        state.is_off |= !is_ready;
        if state.missing == 0 {
            let signal = state.signal.take().filter(|_| !state.is_off);
            state.epoch = signal.map_or_else(|| Some(Instant::now()), |signal| signal());
            self.all_there.notify_all();
        }
    }
}

/// A generator's duty to arrive: one that cannot start says so, so that the others do not wait.
#[derive(Debug)]
pub(super) struct Arrival(Option<Arc<Meeting>>);

impl Arrival {
    pub(super) fn at(meeting: Option<&Arc<Meeting>>) -> Self {
        Self(meeting.cloned())
    }

    /// Waits for the others, and for the instant at which all start: that, or `None` when one of them cannot.
    pub(super) fn start(&mut self, is_ready: bool) -> Option<Instant> {
        let Some(meeting) = self.0.take() else { return is_ready.then(Instant::now) };
        meeting.arrive(is_ready);
        let mut state = meeting.lock();
        while state.missing > 0 {
            state = meeting.all_there.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let epoch = state.epoch.filter(|_| !state.is_off)?;
        drop(state);
        std::thread::sleep(epoch.saturating_duration_since(Instant::now()));
        Some(epoch)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(meeting) = self.0.take() {
            meeting.arrive(false);
        }
    }
}

/// Runs the plan's threads, the first of them on this one.
pub(super) fn run(
    plan: &Plan,
    meeting: &Arc<Meeting>,
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    let part = |index: usize| {
        let inner = Share::new(index, plan.threads);
        let mut share = plan.share.within(&inner);
        share.all_connections.get_or_insert(plan.connections);
        share.meeting = Some(Arc::clone(meeting));
        let is_first = index == 0;
        Plan {
            connections: inner.part_of(plan.connections),
            share,
            threads: 1,
            // Watching the target is one's task, and enough.
            pids: if is_first { plan.pids.clone() } else { Vec::new() },
            payers: if is_first { plan.payers.clone() } else { Vec::new() },
            ..plan.clone()
        }
    };
    let mut results = std::thread::scope(|scope| {
        let others: Vec<_> = (1..plan.threads)
            .map(|index| {
                let part = part(index);
                scope.spawn(move || super::generator::generate(&part, None))
            })
            .collect();
        let first = super::generator::generate(&part(0), observer);
        let ended = others.into_iter().map(|other| {
            other.join().unwrap_or(Err(LoadError::Plan("a thread of the load generator failed")))
        });
        std::iter::once(first).chain(ended).collect::<Vec<_>>()
    });
    // The reason is with the one that failed by itself.
    if let Some(at) =
        results.iter().position(|it| matches!(it, Err(error) if !matches!(error, LoadError::Aside)))
    {
        return results.swap_remove(at);
    }
    let mut all = results.into_iter();
    let mut sum = all.next().unwrap_or(Err(LoadError::Aside))?;
    for outcome in all {
        sum.join(&outcome?);
    }
    sum.intended_rps = plan.intended_rps();
    Ok(sum)
}

impl Meeting {
    pub(super) fn count_answer(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_dealt_out_without_one_missing_or_twice() {
        for (count, of) in [(10, 3), (2, 4), (7, 1)] {
            let mut numbers = Vec::new();
            for index in 0..of {
                let share = Share::new(index, of);
                numbers.extend((0..share.part_of(count)).map(|at| share.number(at)));
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..count).collect::<Vec<usize>>());
        }
        // Two machines of three threads: six different parts.
        let parts = (0..2).flat_map(|a| (0..3).map(move |b| (a, b)));
        let mut indices: Vec<usize> =
            parts.map(|(a, b)| Share::new(a, 2).within(&Share::new(b, 3)).index).collect();
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn none_waits_for_one_that_does_not_come() {
        let meeting = Meeting::of(2, None);
        drop(Arrival::at(Some(&meeting)));
        assert_eq!(Arrival::at(Some(&meeting)).start(true), None);
        let meeting = Meeting::of(2, None);
        let other = Arc::clone(&meeting);
        let waiting = std::thread::spawn(move || Arrival::at(Some(&other)).start(true));
        let epoch = Arrival::at(Some(&meeting)).start(true);
        assert!(epoch.is_some() && waiting.join().unwrap() == epoch, "all start at one instant");
    }

    #[test]
    fn a_signal_says_when_and_whether_those_who_are_ready_start() {
        let later = Instant::now() + std::time::Duration::from_millis(20);
        let meeting = Meeting::of(1, Some(Box::new(move || Some(later))));
        assert_eq!(Arrival::at(Some(&meeting)).start(true), Some(later));
        assert!(Instant::now() >= later, "it was waited for");
        let meeting = Meeting::of(1, Some(Box::new(|| None)));
        assert_eq!(Arrival::at(Some(&meeting)).start(true), None);
        let meeting = Meeting::of(1, Some(Box::new(|| panic!("not asked where one is not ready"))));
        assert_eq!(Arrival::at(Some(&meeting)).start(false), None);
    }
}
