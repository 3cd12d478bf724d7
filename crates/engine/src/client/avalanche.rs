//! What an app may send in a while: how many identical requests, and how many bytes.
//!
//! Arrives: each request with a number that stands for all of it, and the bytes that leave. Leaves: yes, or no.
//!
//! An app with a mistake in a loop, on a million phones, is an attack on its own servers. Mars refuses an identical
//! request after 105 in an hour (`mars/stn/src/frequency_limit.cc`) and holds mobile traffic to 80 MB an hour
//! (`flow_limit.cc`). Here both windows slide: in no stretch of time of a window's length is more let through than its
//! limit.

use std::collections::HashMap;
use std::time::Duration;

use towpath_proto::Instant;

/// An amount in a sliding window of time, counted by eighths of it: what has been let through is forgotten at most an
/// eighth of the window late, and never early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    amounts: [u64; SLOTS],
    slot_ns: u64,
    /// The number of the present slot since the beginning of time.
    latest: u64,
}

/// Eight slots are a window, and the present one has just begun.
const SLOTS: usize = 9;

impl Window {
    fn new(length: Duration) -> Self {
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self { amounts: [0; SLOTS], slot_ns: (length_ns / 8).max(1), latest: 0 }
    }

    fn turn(&mut self, now: Instant) {
        let latest = (now.as_nanos() / self.slot_ns).max(self.latest);
        for number in (self.latest + 1..=latest).take(SLOTS) {
            self.amounts[place(number)] = 0;
        }
        if latest - self.latest > SLOTS as u64 {
            self.amounts = [0; SLOTS];
        }
        self.latest = latest;
    }

    fn sum(&mut self, now: Instant) -> u64 {
        self.turn(now);
        self.amounts.iter().fold(0, |sum: u64, amount| sum.saturating_add(*amount))
    }

    fn add(&mut self, amount: u64, now: Instant) {
        self.turn(now);
        let slot = &mut self.amounts[place(self.latest)];
        *slot = slot.saturating_add(amount);
    }
}

const fn place(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}

/// A limit on identical requests.
#[derive(Clone, Debug)]
pub struct Identical {
    most: u32,
    window: Duration,
    counts: HashMap<u64, Window>,
}

impl Identical {
    /// At most so many in any stretch of time of that length; 0 is no limit.
    #[must_use]
    pub fn new(most: u32, window: Duration) -> Self {
        Self { most, window, counts: HashMap::new() }
    }

    /// Whether there is a limit.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Lets a request through, or not; `identity` stands for its method, address and body. What is refused does not
    /// count.
    pub fn take(&mut self, identity: u64, now: Instant) -> bool {
        if !self.is_on() {
            return true;
        }
        if !self.counts.contains_key(&identity) && self.counts.len() >= MOST_KNOWN {
            self.forget(now);
        }
        let window = self.window;
        let count = self.counts.entry(identity).or_insert_with(|| Window::new(window));
        let fits = count.sum(now) < u64::from(self.most);
        if fits {
            count.add(1, now);
        }
        fits
    }

    /// Makes room: what was asked least often is forgotten, so that what repeats itself stays known.
    fn forget(&mut self, now: Instant) {
        let counts = self.counts.iter_mut().map(|(identity, count)| (count.sum(now), *identity));
        if let Some((_, least)) = counts.min() {
            self.counts.remove(&least);
        }
    }
}

/// A limit on bytes sent.
#[derive(Clone, Debug)]
pub struct Flow {
    most: u64,
    window: Window,
}

impl Flow {
    /// At most so many bytes in any stretch of time of that length; 0 is no limit.
    #[must_use]
    pub fn new(most: u64, window: Duration) -> Self {
        Self { most, window: Window::new(window) }
    }

    /// Whether there is a limit.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Lets so many bytes through, or none of them.
    pub fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let fits = self.has_room(bytes, now);
        if fits {
            self.count(bytes, now);
        }
        fits
    }

    /// Whether so many bytes would be let through.
    pub fn has_room(&mut self, bytes: u64, now: Instant) -> bool {
        !self.is_on() || self.window.sum(now).saturating_add(bytes) <= self.most
    }

    /// Counts bytes that leave whatever the limit says.
    pub fn count(&mut self, bytes: u64, now: Instant) {
        if self.is_on() {
            self.window.add(bytes, now);
        }
    }
}

/// Requests that are told apart. Mars knows 30.
const MOST_KNOWN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn no_window_has_more_than_the_limit_wherever_it_begins() {
        let mut identical = Identical::new(10, HOUR);
        let let_through: Vec<u64> =
            (0..20_000).filter(|&second| identical.take(7, at(second))).collect();
        for first in &let_through {
            let within = let_through.iter().filter(|&at| (*first..first + 3600).contains(at));
            assert!(within.count() <= 10, "from {first}");
        }
        assert!(let_through.len() >= 40, "and the limit is used: {}", let_through.len());
    }

    #[test]
    fn at_the_limit_and_one_past() {
        let mut identical = Identical::new(3, HOUR);
        assert_eq!((0..5).filter(|_| identical.take(1, at(5))).count(), 3);
        assert!(identical.take(2, at(5)), "another request");
        assert!(!identical.take(1, at(3_600)));
        assert!(identical.take(1, at(3_600 + 450 + 450)), "an eighth late at most");
        assert!((0..1000).all(|_| Identical::new(0, HOUR).take(1, at(0))), "none is no limit");
    }

    #[test]
    fn what_repeats_itself_stays_known_among_many_others() {
        let mut identical = Identical::new(5, HOUR);
        for number in 0..10_000 {
            identical.take(1_000_000 + number, at(number / 10));
            identical.take(7, at(number / 10));
        }
        assert!(identical.counts.len() <= MOST_KNOWN);
        assert!(!identical.take(7, at(1_000)));
    }

    #[test]
    fn bytes_are_counted_whole_or_not_at_all_and_come_back() {
        let mut flow = Flow::new(1_000, HOUR);
        assert!(flow.take(600, at(0)));
        assert!(!flow.take(401, at(0)));
        assert!(flow.take(400, at(0)));
        assert!(!flow.take(1, at(3_599)));
        assert!(flow.take(1_000, at(4_050)));
        flow.count(u64::MAX, at(4_050));
        flow.count(u64::MAX, at(4_050));
        assert!(!flow.take(1, at(4_050)), "no overflow");
        assert!(Flow::new(0, HOUR).take(u64::MAX, at(0)), "none is no limit");
    }

    #[test]
    fn a_long_pause_forgets_everything() {
        let mut flow = Flow::new(10, Duration::from_secs(8));
        assert!(flow.take(10, at(1)));
        assert!(flow.take(10, at(1_000_000)));
        assert!(!flow.take(1, at(1_000_000)));
        assert!(Flow::new(1, Duration::ZERO).take(1, at(0)));
    }
}
