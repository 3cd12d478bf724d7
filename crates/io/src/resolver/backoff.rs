//! For how long a name is left alone that could not be told (RFC 9520 §3.2).

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Names that could not be told, and why.
#[derive(Debug)]
pub struct Failures<W> {
    all: Mutex<HashMap<String, Backoff<W>>>,
}

/// A name that is not asked for before a time.
#[derive(Clone, Copy, Debug)]
struct Backoff<W> {
    failures: u32,
    until: Instant,
    why: W,
}

impl<W> Default for Failures<W> {
    fn default() -> Self {
        Self { all: Mutex::default() }
    }
}

impl<W: Copy> Failures<W> {
    /// Why the name is left alone, if it is.
    pub fn backs_off(&self, name: &str, now: Instant) -> Option<W> {
        let all = self.lock();
        all.get(name).filter(|backoff| now < backoff.until).map(|backoff| backoff.why)
    }

    /// It could not be told.
    pub fn add(&self, name: &str, why: W, now: Instant) {
        let mut all = self.lock();
        if all.len() >= MOST_FAILURES {
            all.retain(|_, backoff| now < backoff.until);
        }
        if all.len() < MOST_FAILURES || all.contains_key(name) {
            let before = all.get(name).map_or(0, |backoff| backoff.failures);
            let until = now + pause(before, RandomState::new().build_hasher().finish());
            all.insert(name.to_owned(), Backoff { failures: before.saturating_add(1), until, why });
        }
    }

    /// It was told.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Backoff<W>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl<W> Failures<W> {
    /// As if the name's time were over.
    pub(super) fn let_pass(&self, name: &str) {
        let passed = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        self.all.lock().unwrap().get_mut(name).unwrap().until = passed;
    }

    pub(super) fn len(&self) -> usize {
        self.all.lock().unwrap().len()
    }
}

/// Twice as long after each failure, drawn from the upper half.
fn pause(failures: u32, random: u64) -> Duration {
    let whole = (FIRST_PAUSE * (1 << failures.min(8))).min(LONGEST_PAUSE);
    whole / 2 + (whole / 2).mul_f64(random as f64 / u64::MAX as f64)
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest that a request waits for a server that can tell again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const MOST_FAILURES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_are_drawn() {
        let all = |failures| (pause(failures, 0), pause(failures, u64::MAX));
        let seconds = Duration::from_secs_f64;
        assert_eq!(all(0), (seconds(0.5), seconds(1.0)));
        assert_eq!(all(1), (seconds(1.0), seconds(2.0)));
        assert_eq!(all(40), (seconds(2.5), seconds(5.0)));
    }

    #[test]
    fn failures_that_are_remembered_have_a_limit() {
        let (failures, now) = (Failures::default(), Instant::now());
        for number in 0..2 * MOST_FAILURES {
            failures.add(&number.to_string(), number, now);
        }
        assert_eq!(failures.len(), MOST_FAILURES);
        assert_eq!(failures.backs_off("7", now), Some(7));
        assert_eq!(failures.backs_off("7", now + LONGEST_PAUSE), None);
        failures.add("new", 0, now + LONGEST_PAUSE);
        assert_eq!(failures.len(), 1, "those whose time is over make room");
        failures.forget("new");
        assert_eq!(failures.backs_off("new", now + LONGEST_PAUSE), None);
    }
}
