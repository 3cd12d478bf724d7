//! Named deadlines of one connection or stream behind one slot of the worker's [`Timers`].
//!
//! Arrives: "this timer, then". Leaves: the timers that have passed. Moving a deadline later is one store.

use std::num::NonZeroU64;
use std::time::Duration;

use towpath_proto::{Instant, Timers};

/// `N` named deadlines, and when the slot is armed for. The first [`INLINE`] are those that are mostly set; the others
/// lie in a box of their own, which is made when the first of them is set.
#[derive(Debug)]
pub(crate) struct Deadlines<const N: usize> {
    inline: [Instant; INLINE],
    others: Option<Box<[Instant; N]>>,
    armed: Instant,
}

/// How many deadlines have a place beside their owner's other fields.
pub(crate) const INLINE: usize = 2;

impl<const N: usize> Deadlines<N> {
    pub(crate) const fn new() -> Self {
        let inline = [Instant::FAR_FUTURE; INLINE];
        Self { inline, others: None, armed: Instant::FAR_FUTURE }
    }

    /// Moves one deadline.
    #[inline]
    pub(crate) fn set(&mut self, timer: usize, at: Instant, slot: u32, timers: &mut Timers) {
        match self.inline.get_mut(timer) {
            Some(place) => *place = at,
            None => self.set_other(timer, at),
        }
        if at < self.armed {
            self.armed = at;
            timers.set(slot, at);
        }
    }

    fn set_other(&mut self, timer: usize, at: Instant) {
        self.others.get_or_insert_with(|| Box::new([Instant::FAR_FUTURE; N]))[timer] = at;
    }

    /// Takes one deadline away.
    #[inline]
    pub(crate) fn clear(&mut self, timer: usize) {
        match (self.inline.get_mut(timer), &mut self.others) {
            (Some(place), _) => *place = Instant::FAR_FUTURE,
            (None, Some(others)) => others[timer] = Instant::FAR_FUTURE,
            (None, None) => {}
        }
    }

    /// Takes all away, as for another owner.
    pub(crate) fn clear_all(&mut self) {
        self.inline = [Instant::FAR_FUTURE; INLINE];
        if let Some(others) = &mut self.others {
            **others = [Instant::FAR_FUTURE; N];
        }
        self.armed = Instant::FAR_FUTURE;
    }

    pub(crate) fn is_set(&self, timer: usize) -> bool {
        self.get(timer).is_some()
    }

    /// When a timer is due, if it is set.
    pub(crate) fn get(&self, timer: usize) -> Option<Instant> {
        let other = || self.others.as_ref().map(|others| &others[timer]);
        self.inline.get(timer).or_else(other).copied().filter(|at| *at != Instant::FAR_FUTURE)
    }

    /// Which have passed (by index), cleared; the slot is armed for the next of the others.
    pub(crate) fn take_expired(
        &mut self,
        now: Instant,
        slot: u32,
        timers: &mut Timers,
    ) -> [bool; N] {
        let mut expired = [false; N];
        self.armed = Instant::FAR_FUTURE;
        let others = self.others.iter_mut().flat_map(|others| others.iter_mut().skip(INLINE));
        for (deadline, expired) in self.inline.iter_mut().chain(others).zip(&mut expired) {
            if *deadline <= now {
                *deadline = Instant::FAR_FUTURE;
                *expired = true;
            }
            self.armed = self.armed.min(*deadline);
        }
        if self.armed != Instant::FAR_FUTURE {
            timers.set(slot, self.armed);
        }
        expired
    }
}

/// A bound on time, or none, in the place of an `Option<Duration>` and half as large: nanoseconds, and one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(Option<NonZeroU64>);

impl Limit {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn get(self) -> Option<Duration> {
        self.0.map(|limit| Duration::from_nanos(limit.get() - 1))
    }
}

impl From<Option<Duration>> for Limit {
    fn from(limit: Option<Duration>) -> Self {
        Self(limit.map(|limit| {
            let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            NonZeroU64::MIN.saturating_add(ns)
        }))
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

    #[test]
    fn those_beyond_the_first_are_heard_and_cleared_alike() {
        let (mut timers, mut deadlines) = (Timers::new(), Deadlines::<4>::new());
        assert!(!deadlines.is_set(3));
        deadlines.clear(3);
        deadlines.set(3, at(10), 7, &mut timers);
        deadlines.set(2, at(20), 7, &mut timers);
        deadlines.set(1, at(15), 7, &mut timers);
        assert!(deadlines.is_set(2) && deadlines.is_set(3));
        assert_eq!(timers.expired(at(10)), Some(7));
        assert_eq!(deadlines.take_expired(at(10), 7, &mut timers), [false, false, false, true]);
        assert_eq!(timers.next(), Some(at(15)));
        deadlines.clear(1);
        deadlines.clear_all();
        assert!(!deadlines.is_set(2));
        assert_eq!(deadlines.take_expired(at(30), 7, &mut timers), [false; 4]);
    }

    #[test]
    fn a_limit_is_what_it_was_made_of() {
        for limit in [None, Some(Duration::ZERO), Some(Duration::from_nanos(7))] {
            assert_eq!(Limit::from(limit).get(), limit);
        }
        let longest = Limit::from(Some(Duration::MAX)).get();
        assert_eq!(longest, Some(Duration::from_nanos(u64::MAX - 1)));
        assert_eq!(size_of::<Limit>(), 8);
    }
}
