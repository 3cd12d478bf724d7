//! Which entry is sent when: ordering keys, back-off, origins that are to be left alone.
//!
//! Arrives: entries, what became of each attempt, the time. Leaves: the next entry to send, and when to look again. No
//! clock, no file, no socket.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Instant;

/// What waits to be sent.
#[derive(Debug)]
pub(super) struct Schedule {
    entries: BTreeMap<u64, Waiting>,
    origins: HashMap<Arc<str>, Pause>,
    running: usize,
    limits: Limits,
}

/// How often and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Sent at the same time.
    pub(super) parallel: usize,
    /// After the first failure, on average three quarters of it; doubled for each further one.
    pub(super) first_pause: Duration,
    pub(super) longest_pause: Duration,
}

#[derive(Debug)]
struct Waiting {
    ordering_key: Option<Arc<str>>,
    origin: Arc<str>,
    expires: Option<Instant>,
    pause: Pause,
    running: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    failures: u32,
    until: Instant,
}

/// What a failure is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// This entry: others of its origin may fare better.
    Entry,
    /// Its origin, or the way there: the others are not tried before one has come through.
    Origin,
    /// There is no network: nothing is tried before that has changed.
    Network,
}

impl Schedule {
    pub(super) fn new(limits: Limits) -> Self {
        Self { entries: BTreeMap::new(), origins: HashMap::new(), running: 0, limits }
    }

    /// One more, behind all others: its number is the highest.
    pub(super) fn add(
        &mut self,
        id: u64,
        origin: &str,
        ordering_key: Option<&str>,
        expires: Option<Instant>,
    ) {
        let (origin, ordering_key) = (Arc::from(origin), ordering_key.map(Arc::from));
        let pause = Pause::default();
        self.entries.insert(id, Waiting { ordering_key, origin, expires, pause, running: false });
    }

    /// The next to send, if one is due; it is under way from here on.
    pub(super) fn next(&mut self, now: Instant) -> Option<u64> {
        if self.running >= self.limits.parallel {
            return None;
        }
        // One that has failed lets those go ahead that have not.
        let failures = |id: u64| self.entries.get(&id).map_or(0, |entry| entry.pause.failures);
        let due = self.candidates().filter(|(_, at)| *at <= now);
        let (id, _) = due.min_by_key(|(id, _)| (failures(*id), *id))?;
        self.entries.get_mut(&id)?.running = true;
        self.running += 1;
        Some(id)
    }

    /// When the next is due, if nothing else happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.running >= self.limits.parallel {
            return None;
        }
        self.candidates().map(|(_, at)| at).min().filter(|at| *at < Instant::FAR_FUTURE)
    }

    /// Those that could be sent, and from when on: the first of each ordering key, and only one of an origin that
    /// failed.
    fn candidates(&self) -> impl Iterator<Item = (u64, Instant)> {
        let running = self.entries.values().filter(|entry| entry.running);
        let busy: HashSet<&str> = running.map(|entry| &*entry.origin).collect();
        let mut keys = HashSet::new();
        self.entries.iter().filter_map(move |(id, entry)| {
            let behind = entry
                .ordering_key
                .as_deref()
                .is_some_and(|ordering_key| !keys.insert(ordering_key));
            let origin = self.origins.get(&entry.origin).copied().unwrap_or_default();
            let held_back = origin.failures > 0 && busy.contains(&*entry.origin);
            let may = !entry.running && !behind && !held_back;
            may.then(|| (*id, entry.pause.until.max(origin.until)))
        })
    }

    /// An attempt came to nothing that is final. `at_least` is what the server asked for; `random` is any number.
    pub(super) fn failed(
        &mut self,
        id: u64,
        blame: Blame,
        at_least: Option<Duration>,
        random: u64,
        now: Instant,
    ) {
        let limits = self.limits;
        let Some(entry) = self.stop(id) else { return };
        let origin = Arc::clone(&entry.origin);
        match blame {
            Blame::Entry => entry.pause.lengthen(&limits, at_least, random, now),
            Blame::Origin => {
                entry.pause.lengthen(&limits, at_least, random, now);
                let origin = self.origins.entry(origin).or_default();
                // Those that failed together are one failure.
                if origin.until <= now || at_least.is_some() {
                    origin.lengthen(&limits, at_least, random, now);
                }
            }
            Blame::Network => {
                let origin = self.origins.entry(origin).or_default();
                origin.until = Instant::FAR_FUTURE;
            }
        }
    }

    /// It is to be sent again at once: what it failed of has changed meanwhile.
    pub(super) fn again(&mut self, id: u64) {
        self.stop(id);
    }

    /// There is a final answer: its origin is well.
    pub(super) fn answered(&mut self, id: u64) {
        self.stop(id);
        if let Some(entry) = self.entries.get(&id) {
            self.origins.remove(&entry.origin);
        }
        self.remove(id);
    }

    /// It waits no longer.
    pub(super) fn remove(&mut self, id: u64) {
        self.stop(id);
        let Some(removed) = self.entries.remove(&id) else { return };
        if self.entries.values().all(|entry| entry.origin != removed.origin) {
            self.origins.remove(&removed.origin);
        }
    }

    /// The network is another: what failed may be tried at once.
    pub(super) fn network_changed(&mut self) {
        self.origins.clear();
        for entry in self.entries.values_mut() {
            entry.pause = Pause::default();
        }
    }

    /// One whose time is over and that is not under way.
    pub(super) fn expired(&self, now: Instant) -> Option<u64> {
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let mut entries = self.entries.iter();
        entries.find(|(_, entry)| !entry.running && is_over(entry.expires)).map(|(id, _)| *id)
    }

    /// When the next one's time is over.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let waiting = self.entries.values().filter(|entry| !entry.running);
        waiting.filter_map(|entry| entry.expires).min()
    }

    pub(super) fn is_running(&self, id: u64) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.running)
    }

    fn stop(&mut self, id: u64) -> Option<&mut Waiting> {
        let entry = self.entries.get_mut(&id)?;
        self.running -= usize::from(std::mem::take(&mut entry.running));
        Some(entry)
    }
}

impl Pause {
    /// Drawn from the upper half of a bound that doubles, so that many clients that failed together do not come back
    /// together.
    fn lengthen(&mut self, limits: &Limits, at_least: Option<Duration>, random: u64, now: Instant) {
        let doublings = self.failures.min(20);
        let bound = limits.first_pause.saturating_mul(1 << doublings).min(limits.longest_pause);
        let part = f64::from((random >> 32) as u32) / f64::from(u32::MAX);
        let drawn = bound / 2 + (bound / 2).mul_f64(part);
        // A server's word is kept, and spread by a tenth.
        let asked = at_least.map(|asked| asked + asked.mul_f64(part / 10.0)).unwrap_or_default();
        self.failures = self.failures.saturating_add(1);
        self.until = now + drawn.max(asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        parallel: 3,
        first_pause: Duration::from_secs(1),
        longest_pause: Duration::from_secs(60),
    };

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    fn due(schedule: &mut Schedule, now: Instant) -> Vec<u64> {
        std::iter::from_fn(|| schedule.next(now)).collect()
    }

    #[test]
    fn no_more_than_a_few_at_a_time_in_order() {
        let mut schedule = Schedule::new(LIMITS);
        (1..=5).for_each(|id| schedule.add(id, "a", None, None));
        assert_eq!(due(&mut schedule, at(0)), [1, 2, 3]);
        assert_eq!(schedule.deadline(), None, "the end of one will tell");
        schedule.answered(2);
        assert_eq!(due(&mut schedule, at(0)), [4]);
    }

    #[test]
    fn an_ordering_key_has_one_on_its_way_whatever_becomes_of_it() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.add(1, "a", Some("x"), None);
        schedule.add(2, "b", Some("x"), None);
        schedule.add(3, "a", Some("y"), None);
        assert_eq!(due(&mut schedule, at(0)), [1, 3]);
        schedule.failed(1, Blame::Entry, None, 0, at(0));
        assert!(due(&mut schedule, at(0)).is_empty(), "the second does not pass the first");
        assert_eq!(due(&mut schedule, at(1)), [1]);
        schedule.answered(1);
        assert_eq!(due(&mut schedule, at(1)), [2]);
    }

    #[test]
    fn pauses_double_up_to_their_longest_and_are_drawn() {
        for (random, part) in [(0, 0.5), (u64::MAX, 1.0)] {
            let mut schedule = Schedule::new(LIMITS);
            schedule.add(1, "a", None, None);
            let mut now = at(0);
            for bound_s in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
                assert_eq!(schedule.next(now), Some(1));
                schedule.failed(1, Blame::Entry, None, random, now);
                let until = schedule.deadline().unwrap();
                assert_eq!(until - now, Duration::from_secs(bound_s).mul_f64(part));
                assert_eq!(schedule.next(now), None);
                now = until;
            }
        }
    }

    #[test]
    fn a_server_s_word_is_kept() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.add(1, "a", None, None);
        schedule.next(at(0));
        schedule.failed(1, Blame::Origin, Some(Duration::from_secs(100)), u64::MAX, at(0));
        assert_eq!(schedule.deadline(), Some(at(110)));
    }

    #[test]
    fn an_origin_that_failed_is_asked_by_one_until_it_answers() {
        let mut schedule = Schedule::new(LIMITS);
        (1..=4).for_each(|id| schedule.add(id, "down", None, None));
        schedule.add(5, "up", None, None);
        assert_eq!(due(&mut schedule, at(0)), [1, 2, 3]);
        (1..=3).for_each(|id| schedule.failed(id, Blame::Origin, None, 0, at(0)));
        assert_eq!(due(&mut schedule, at(0)), [5], "another origin is not to blame");
        schedule.answered(5);
        assert_eq!(due(&mut schedule, at(60)), [4], "one goes ahead, which has not failed");
        schedule.failed(4, Blame::Origin, None, 0, at(60));
        assert_eq!(due(&mut schedule, at(65)), [1], "and then another");
        schedule.answered(1);
        assert_eq!(due(&mut schedule, at(65)), [2, 3, 4], "all when one has come through");
    }

    #[test]
    fn those_that_fail_together_are_one_failure_of_their_origin() {
        let mut schedule = Schedule::new(LIMITS);
        (1..=3).for_each(|id| schedule.add(id, "down", None, None));
        due(&mut schedule, at(0));
        (1..=3).for_each(|id| schedule.failed(id, Blame::Origin, None, u64::MAX, at(0)));
        assert_eq!(schedule.deadline(), Some(at(1)));
    }

    #[test]
    fn without_a_network_nothing_is_tried_until_that_changes() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.add(1, "a", None, None);
        schedule.next(at(0));
        schedule.failed(1, Blame::Network, None, 0, at(0));
        assert_eq!((schedule.next(at(1_000_000)), schedule.deadline()), (None, None));
        schedule.network_changed();
        assert_eq!(schedule.next(at(1)), Some(1));
        schedule.again(1);
        assert_eq!(schedule.next(at(1)), Some(1));
    }

    #[test]
    fn what_is_over_is_found_unless_it_is_under_way() {
        let mut schedule = Schedule::new(LIMITS);
        schedule.add(1, "a", None, Some(at(10)));
        schedule.add(2, "a", None, None);
        assert_eq!((schedule.expired(at(9)), schedule.expired(at(10))), (None, Some(1)));
        assert_eq!(schedule.next_expiry(), Some(at(10)));
        assert_eq!(schedule.next(at(0)), Some(1));
        assert!(schedule.is_running(1));
        assert_eq!((schedule.expired(at(10)), schedule.next_expiry()), (None, None));
        schedule.failed(1, Blame::Entry, None, 0, at(0));
        assert_eq!(schedule.expired(at(10)), Some(1));
        schedule.remove(1);
        assert_eq!(schedule.expired(at(10)), None);
        assert_eq!(due(&mut schedule, at(9)), [2]);
    }
}
