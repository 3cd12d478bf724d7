//! Counts for limits that hold for the whole process, kept by all of its workers.
//!
//! Nothing else that a worker writes is read by another one. A [`Total`] is one relaxed atomic. A worker counts what it
//! uses by itself in a `Share` and tells the total of it: at once where the limit is small or the thing counted is
//! rare, and in steps where many requests a second would contend for the total's cache line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use towpath_proto::{Address, Instant};

/// How many of something all workers have.
#[derive(Debug, Default)]
pub struct Total(AtomicU64);

impl Total {
    /// Adds some; answers how many there were.
    pub(crate) fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    /// Takes some away.
    pub(crate) fn sub(&self, n: u64) {
        let before = self.0.fetch_sub(n, Ordering::Relaxed);
        debug_assert!(n <= before, "what is given back was taken");
    }

    /// How many there are.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many of something all workers have for each host of a cluster.
#[derive(Debug, Default)]
pub struct HostTotals(Mutex<Vec<(Address, Weak<Total>)>>);

impl HostTotals {
    /// The total of a host, which ends with the last one that holds it.
    pub(crate) fn open(&self, host: &Address) -> Arc<Total> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, total)| total.strong_count() > 0);
        let known = open.iter().find(|(known, _)| known == host);
        if let Some(total) = known.and_then(|(_, total)| total.upgrade()) {
            return total;
        }
        let total = Arc::new(Total::default());
        open.push((host.clone(), Arc::downgrade(&total)));
        total
    }
}

/// How many of something began of late, in all workers: a ring of counts, each of a tenth of an interval.
///
/// A worker that comes to a new tenth empties what is too old. Two that do so at once may lose a few of what the other
/// has just counted.
#[derive(Debug, Default)]
pub struct Recent(OnceLock<Box<Tenths>>);

/// There are some where a retry budget asks.
#[derive(Debug, Default)]
struct Tenths {
    /// The tenth that is counted in, by its number since the clock's beginning.
    newest: AtomicU64,
    counts: [AtomicU64; TENTHS as usize],
}

impl Recent {
    /// Counts one more.
    pub(crate) fn note(&self, interval: Duration, now: Instant) {
        let tenths = self.0.get_or_init(Box::default);
        let newest = tenths.come_to(interval, now);
        tenths.count(newest).fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were in an interval, or in up to a tenth of it less.
    pub(crate) fn value(&self, interval: Duration, now: Instant) -> u64 {
        let tenths = self.0.get_or_init(Box::default);
        tenths.come_to(interval, now);
        tenths.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl Tenths {
    /// Goes on to the tenth that it is by now; answers its number.
    fn come_to(&self, interval: Duration, now: Instant) -> u64 {
        let tenth = (interval.as_millis() / u128::from(TENTHS)).max(1);
        let since = (now - Instant::ZERO).as_millis();
        let now = u64::try_from(since / tenth).unwrap_or(u64::MAX);
        let before = self.newest.fetch_max(now, Ordering::Relaxed);
        for old in (before + 1..=now).rev().take(TENTHS as usize) {
            self.count(old).store(0, Ordering::Relaxed);
        }
        before.max(now)
    }

    fn count(&self, number: u64) -> &AtomicU64 {
        &self.counts[(number % TENTHS) as usize]
    }
}

/// As in Envoy.
const TENTHS: u64 = 10;

/// What one worker has, and how much of it the total knows: never more than there is, and at most `slack` less. So a
/// limit is never reached before it is, and is passed by at most the other workers' slack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    used: u32,
    told: u32,
}

impl Share {
    pub(crate) fn take(&mut self, total: &Total, slack: u32) {
        self.used += 1;
        if self.used - self.told > slack {
            self.tell(total, self.used - slack / 2);
        }
    }

    pub(crate) fn give(&mut self, total: &Total, slack: u32) {
        // What outlives its cluster may give back to another one that took over its id.
        self.used = self.used.saturating_sub(1);
        if self.used < self.told {
            self.tell(total, self.used.saturating_sub(slack / 2));
        }
    }

    pub(crate) fn is_used(self) -> bool {
        self.used > 0
    }

    /// What all workers have, as far as they have told.
    pub(crate) fn in_use(self, total: &Total) -> u32 {
        let others = total.value().saturating_sub(u64::from(self.told));
        u32::try_from(others).unwrap_or(u32::MAX).saturating_add(self.used)
    }

    /// Counts in another total from here on.
    pub(crate) fn move_to(&mut self, from: &Total, to: &Total) {
        self.tell(from, 0);
        self.tell(to, self.used);
    }

    /// Tells all that this worker has.
    pub(crate) fn tell_all(&mut self, total: &Total) {
        self.tell(total, self.used);
    }

    fn tell(&mut self, total: &Total, now: u32) {
        match now.checked_sub(self.told) {
            Some(0) => {}
            Some(more) => drop(total.add(more.into())),
            None => total.sub((self.told - now).into()),
        }
        self.told = now;
    }
}

/// By how much a worker's share may be ahead of the total: nothing up to 64 times as many as there are workers, and
/// beyond so little that all workers together are at most a 64th off.
pub(crate) fn slack(limit: u32, workers: u32) -> u32 {
    if workers <= 1 { 0 } else { limit / workers.saturating_mul(64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_limit_is_exact() {
        let total = Total::default();
        let (mut one, mut two) = (Share::default(), Share::default());
        let slack = slack(127, 2);
        for _ in 0..40 {
            one.take(&total, slack);
            two.take(&total, slack);
        }
        assert_eq!((one.in_use(&total), two.in_use(&total), total.value()), (80, 80, 80));
        (0..40).for_each(|_| one.give(&total, slack));
        assert_eq!((one.in_use(&total), two.in_use(&total)), (40, 40));
    }

    #[test]
    fn a_large_limit_is_never_reached_early_and_passed_by_a_64th_at_most() {
        let (limit, workers) = (10_000, 4);
        let total = Total::default();
        let mut shares = [Share::default(); 4];
        let slack = slack(limit, workers);
        let mut used = 0;
        // Takes and gives in an order that no worker follows evenly.
        let mut state = 1u32;
        for step in 0..200_000u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let share = &mut shares[(state >> 24) as usize % 4];
            let takes = (state >> 16) % 100 < if step < 100_000 { 60 } else { 40 };
            if takes && share.in_use(&total) < limit {
                share.take(&total, slack);
                used += 1;
            } else if takes {
                assert!(used >= limit, "refused at {used}");
            } else if share.used > 0 {
                share.give(&total, slack);
                used -= 1;
            }
            assert!(used <= limit + limit / 64, "{used}");
            assert!(total.value() <= u64::from(used));
        }
        for share in &mut shares {
            (0..share.used).for_each(|_| share.give(&total, slack));
        }
        assert_eq!(total.value(), 0);
    }

    #[test]
    fn what_began_an_interval_ago_does_not_count() {
        let (recent, second) = (Recent::default(), Duration::from_secs(1));
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(recent.value(second, at(0)), 0);
        (0..5).for_each(|_| recent.note(second, at(50)));
        (0..3).for_each(|_| recent.note(second, at(950)));
        assert_eq!(recent.value(second, at(999)), 8);
        assert_eq!(recent.value(second, at(1000)), 3, "the first tenth is over");
        recent.note(second, at(1001));
        assert_eq!((recent.value(second, at(1899)), recent.value(second, at(1900))), (4, 1));
        assert_eq!(recent.value(second, at(2000)), 0);
        recent.note(second, at(2000));
        assert_eq!(recent.value(second, at(1_000_000)), 0);
        // A worker whose clock is behind counts in the newest tenth.
        recent.note(second, at(999_990));
        assert_eq!(recent.value(second, at(1_000_000)), 1);
    }

    #[test]
    fn one_request_more_and_less_does_not_touch_the_total() {
        let total = Total::default();
        let mut share = Share::default();
        let slack = slack(1024, 2);
        (0..20).for_each(|_| share.take(&total, slack));
        let before = total.value();
        for _ in 0..100 {
            share.give(&total, slack);
            share.take(&total, slack);
        }
        assert_eq!(total.value(), before);
    }
}
