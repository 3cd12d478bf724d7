//! How long an origin that says it has too much to do is left alone.
//!
//! Arrives: answers 429 and 503, with or without `Retry-After`, and answers that say it is well again. Leaves: when a
//! request to it may begin.
//!
//! Limits belong to routes behind most gateways: what one target (method, and path without its query) was answered
//! holds up requests to the same target, and to all others only while several targets were so answered.
//!
//! No request comes back at the moment that the server named: each request draws its own delay behind it, so that those
//! who were sent away together do not return together. Where the server names no time the wait is drawn below a bound
//! that doubles with each such answer in a row (full jitter).

use std::collections::VecDeque;
use std::time::Duration;

use towpath_proto::Instant;

/// The back-offs of an origin's targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackOffs {
    /// By a number that stands for the target; the one that was last answered so comes last.
    targets: VecDeque<(u64, BackOff)>,
}

impl BackOffs {
    /// As [`BackOff::begin`], for a target.
    pub fn begin(
        &mut self,
        target: u64,
        sent: Instant,
        asked: Option<Duration>,
        most: Duration,
        random: u64,
        now: Instant,
    ) {
        let found = self.targets.iter().position(|(other, _)| *other == target);
        let mut rest = found.and_then(|at| self.targets.remove(at)).unwrap_or_default().1;
        rest.begin(sent, asked, most, random, now);
        if self.targets.len() >= MOST_TARGETS {
            self.targets.pop_front();
        }
        self.targets.push_back((target, rest));
    }

    /// Whether no target is left alone or was of late.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// As [`BackOff::recovered`], for a target.
    pub fn recovered(&mut self, target: u64, sent: Instant) {
        if let Some((_, rest)) = self.targets.iter_mut().find(|(other, _)| *other == target) {
            rest.recovered(sent);
        }
    }

    /// The rest that holds up a request to a target: its own, or, where several targets rest, the one of them that
    /// ends last.
    #[must_use]
    pub fn of(&self, target: u64, now: Instant) -> Option<&BackOff> {
        let resting = || self.targets.iter().filter(|(_, rest)| now < rest.until);
        let own = resting().find(|(other, _)| *other == target);
        let shared = || {
            let several = resting().nth(SEVERAL - 1).is_some();
            resting().filter(|_| several).max_by_key(|(_, rest)| rest.until)
        };
        own.or_else(shared).map(|(_, rest)| rest)
    }
}

/// One target's rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackOff {
    began: Instant,
    until: Instant,
    /// Delays behind its end are drawn below this.
    spread: Duration,
    /// Answers in a row that asked for it.
    row: u32,
    asked: bool,
}

impl BackOff {
    /// A request that was sent at `sent` was answered 429 or 503; `asked` is what `Retry-After` said. No rest is longer
    /// than `most`. `random` is any number.
    pub fn begin(
        &mut self,
        sent: Instant,
        asked: Option<Duration>,
        most: Duration,
        random: u64,
        now: Instant,
    ) {
        let bound = FIRST.saturating_mul(1 << self.row.min(20)).min(LONGEST);
        let wait = asked.unwrap_or_else(|| share(random, bound)).min(most);
        // Those that were under way when it began tell nothing new.
        if self.row == 0 || sent >= self.began {
            self.row = self.row.saturating_add(1);
            self.began = now;
        }
        if now + wait >= self.until {
            self.until = now + wait;
            self.spread = (wait / 4).clamp(LEAST_SPREAD, MOST_SPREAD);
            self.asked = asked.is_some();
        }
    }

    /// A request that was sent at `sent` was answered otherwise.
    pub fn recovered(&mut self, sent: Instant) {
        if sent >= self.began {
            self.row = 0;
        }
    }

    /// When a request may begin, where that is not now. Each draws anew: `random` is any number.
    #[must_use]
    pub fn wait(&self, random: u64, now: Instant) -> Option<Instant> {
        (now < self.until).then(|| self.until + share(random, self.spread))
    }

    /// Whether the server named the time.
    #[must_use]
    pub const fn is_asked(&self) -> bool {
        self.asked
    }
}

/// The share of `bound` that a random number stands for.
fn share(random: u64, bound: Duration) -> Duration {
    let most = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    let product = u128::from(random) * u128::from(most);
    Duration::from_nanos(u64::try_from(product >> 64).unwrap_or(most))
}

/// The bound of the first wait that no server named, doubled for each in a row.
const FIRST: Duration = Duration::from_millis(500);
/// So many targets that rest at once speak for the whole origin.
const SEVERAL: usize = 3;
/// Targets of an origin whose back-offs are known.
const MOST_TARGETS: usize = 64;
const LONGEST: Duration = Duration::from_secs(30);
const LEAST_SPREAD: Duration = Duration::from_millis(50);
const MOST_SPREAD: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(300);
    const HIGH: u64 = u64::MAX;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_the_server_names_holds_and_every_client_comes_a_little_later() {
        let mut rest = BackOff::default();
        assert_eq!(rest.wait(HIGH, at(0)), None);
        rest.begin(at(900), Some(ms(8_000)), MOST, HIGH, at(1_000));
        assert!(rest.is_asked());
        assert_eq!(rest.wait(0, at(1_000)), Some(at(9_000)));
        let latest = rest.wait(HIGH, at(8_999)).unwrap();
        assert!(latest > at(10_900) && latest <= at(11_000), "{latest:?}");
        assert_eq!(rest.wait(HIGH, at(9_000)), None);
    }

    #[test]
    fn one_target_holds_up_itself_and_several_hold_up_all() {
        let mut back_offs = BackOffs::default();
        let begin = |back_offs: &mut BackOffs, target: u64, wait| {
            back_offs.begin(target, at(0), Some(ms(wait)), MOST, 0, at(0));
        };
        begin(&mut back_offs, 1, 1_000);
        begin(&mut back_offs, 2, 3_000);
        assert_eq!(back_offs.of(1, at(0)).unwrap().wait(0, at(0)), Some(at(1_000)));
        assert_eq!(back_offs.of(9, at(0)), None, "two are not several");
        begin(&mut back_offs, 3, 2_000);
        assert_eq!(back_offs.of(9, at(0)).unwrap().wait(0, at(0)), Some(at(3_000)));
        assert_eq!(back_offs.of(9, at(1_500)), None, "the first is well again");
        assert_eq!(back_offs.of(3, at(1_500)).unwrap().wait(0, at(1_500)), Some(at(2_000)));
    }

    #[test]
    fn the_targets_that_are_known_are_bounded_and_the_oldest_goes_first() {
        let mut back_offs = BackOffs::default();
        for target in 0..=MOST_TARGETS as u64 {
            back_offs.begin(target, at(0), Some(ms(target + 1)), MOST, 0, at(0));
        }
        assert_eq!(back_offs.targets.len(), MOST_TARGETS);
        assert!(back_offs.targets.iter().all(|(target, _)| *target != 0));
    }

    #[test]
    fn no_rest_is_longer_than_the_limit() {
        let mut rest = BackOff::default();
        rest.begin(at(0), Some(Duration::MAX), MOST, 0, at(0));
        assert_eq!(rest.wait(0, at(0)), Some(Instant::ZERO + MOST));
        assert!(rest.wait(HIGH, at(0)).unwrap() <= Instant::ZERO + MOST + MOST_SPREAD);
    }

    #[test]
    fn without_a_word_the_bound_doubles_up_to_its_limit_and_starts_again_after_an_answer() {
        let mut rest = BackOff::default();
        let mut waits = Vec::new();
        let mut now = at(0);
        for _ in 0..9 {
            rest.begin(now, None, MOST, HIGH, now);
            let until = rest.wait(0, now).unwrap();
            waits.push((until - now).as_millis().div_ceil(100) * 100);
            now = until;
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        assert!(!rest.is_asked());
        rest.recovered(now);
        rest.begin(now, None, MOST, HIGH, now);
        assert!(rest.wait(0, now).unwrap() - now <= ms(500));
    }

    #[test]
    fn the_wait_is_drawn_over_the_whole_range() {
        let mut rest = BackOff::default();
        rest.begin(at(0), None, MOST, 0, at(0));
        assert_eq!(rest.wait(0, at(0)), None, "a draw of nothing is no wait");
        rest.begin(at(1), None, MOST, HIGH / 2, at(1));
        let wait = rest.wait(0, at(1)).unwrap() - at(1);
        assert!((ms(499)..=ms(501)).contains(&wait), "{wait:?}");
    }

    #[test]
    fn answers_to_what_was_under_way_neither_raise_the_bound_nor_end_the_row() {
        let mut rest = BackOff::default();
        rest.begin(at(100), None, MOST, HIGH, at(200));
        for _ in 0..5 {
            rest.begin(at(150), None, MOST, HIGH, at(210));
        }
        rest.recovered(at(150));
        rest.begin(at(900), None, MOST, HIGH, at(1_000));
        let wait = rest.wait(0, at(1_000)).unwrap() - at(1_000);
        assert!(wait > ms(900) && wait <= ms(1_000), "the second of the row: {wait:?}");
    }

    #[test]
    fn a_shorter_rest_does_not_end_a_longer_one() {
        let mut rest = BackOff::default();
        rest.begin(at(0), Some(ms(10_000)), MOST, 0, at(0));
        rest.begin(at(0), Some(ms(1_000)), MOST, 0, at(10));
        assert_eq!(rest.wait(0, at(20)), Some(at(10_000)));
    }
}
