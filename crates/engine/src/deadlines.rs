//! Named deadlines of one connection or stream behind one slot of the worker's [`Timers`].
//!
//! Arrives: "this timer, then". Leaves: the timers that have passed. Moving a deadline later is one store.

use towpath_proto::{Instant, Timers};

/// `N` named deadlines, and when the slot is armed for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines<const N: usize> {
    at: [Instant; N],
    armed: Instant,
}

impl<const N: usize> Deadlines<N> {
    pub(crate) const fn new() -> Self {
        Self { at: [Instant::FAR_FUTURE; N], armed: Instant::FAR_FUTURE }
    }

    /// Moves one deadline.
    pub(crate) fn set(&mut self, timer: usize, at: Instant, slot: u32, timers: &mut Timers) {
        self.at[timer] = at;
        if at < self.armed {
            self.armed = at;
            timers.set(slot, at);
        }
    }

    /// Takes one deadline away.
    pub(crate) fn clear(&mut self, timer: usize) {
        self.at[timer] = Instant::FAR_FUTURE;
    }

    pub(crate) fn is_set(&self, timer: usize) -> bool {
        self.at[timer] != Instant::FAR_FUTURE
    }

    /// Which have passed (by index), cleared; the slot is armed for the rest.
    pub(crate) fn take_expired(
        &mut self,
        now: Instant,
        slot: u32,
        timers: &mut Timers,
    ) -> [bool; N] {
        let mut expired = [false; N];
        for (deadline, expired) in self.at.iter_mut().zip(&mut expired) {
            if *deadline <= now {
                *deadline = Instant::FAR_FUTURE;
                *expired = true;
            }
        }
        self.armed = self.at.iter().copied().min().unwrap_or(Instant::FAR_FUTURE);
        if self.armed != Instant::FAR_FUTURE {
            timers.set(slot, self.armed);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn each_timer_fires_at_its_own_time_behind_one_slot() {
        let (mut timers, mut deadlines) = (Timers::new(), Deadlines::<3>::new());
        deadlines.set(0, at(30), 7, &mut timers);
        deadlines.set(1, at(10), 7, &mut timers);
        deadlines.set(1, at(20), 7, &mut timers);
        assert_eq!(timers.expired(at(10)), Some(7));
        assert_eq!(deadlines.take_expired(at(10), 7, &mut timers), [false; 3]);
        assert_eq!(timers.expired(at(20)), Some(7));
        assert_eq!(deadlines.take_expired(at(20), 7, &mut timers), [false, true, false]);
        assert!(!deadlines.is_set(1) && deadlines.is_set(0));
        deadlines.clear(0);
        assert_eq!(timers.expired(at(30)), Some(7));
        assert_eq!(deadlines.take_expired(at(30), 7, &mut timers), [false; 3]);
        assert_eq!(timers.expired(at(30)), None);
        assert_eq!(timers.next(), None);
    }
}
