//! Keeps slow start from overflowing the queue of a slow path.
//!
//! Arrives: how long a connect took, the bytes that come, what the kernel measured of those that went. Leaves: how much
//! the peer may have under way, and how fast to send.
//!
//! Slow start doubles what is under way with each round trip until something is lost. Where a path bears little, that
//! happens in the last flight of an ordinary transfer, and what was lost comes a round trip later.
//!
//! What comes is limited by the receiver's window (as in rLEDBAT, RFC 9840): a connection over a long path begins with
//! [`WINDOW`] bytes, and gets what the kernel thinks right as soon as the path shows that it bears more. A bucket that
//! runs empty somewhat below the rate at which that window would be the limit says so: on a fast path the first flight
//! of ten segments (RFC 6928) makes it run over, two round trips before the window can be in the way.
//!
//! What goes is paced, once a round trip half longer than the shortest says that a queue stands: as fast as the kernel
//! measured that the path delivers (as BBR does), so that the queue stays as it is. Both end after [`PROTECTED`] bytes:
//! what is lost in a longer transfer is made good before its end.

use std::time::Duration;

use towpath_proto::{FlowLimit, Instant, PathFacts};

/// What is known of a connection over a long path.
#[derive(Clone, Debug)]
pub struct SlowStart {
    round_trip: Duration,
    is_held: bool,
    received: u64,
    bucket: u64,
    emptied: Instant,
    /// Bytes per second that the path delivered at best lately.
    best: u64,
    pace: Option<u32>,
    /// What had been acknowledged when a body was first looked at.
    before: Option<u64>,
}

impl SlowStart {
    /// Of a connection whose handshake took so long; `None` where the way is short.
    #[must_use]
    pub fn new(round_trip: Duration, now: Instant) -> Option<Self> {
        (round_trip >= LONG_PATH).then_some(Self {
            round_trip,
            is_held: true,
            received: 0,
            bucket: 0,
            emptied: now,
            best: 0,
            pace: None,
            before: None,
        })
    }

    /// Whether the peer may have only [`WINDOW`] bytes under way.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// The window is the kernel's affair from now on; answers whether it was not yet.
    pub fn release(&mut self) -> bool {
        std::mem::take(&mut self.is_held)
    }

    /// Bytes have come. Whether the window is the kernel's affair from now on.
    pub fn receive(&mut self, bytes: usize, now: Instant) -> bool {
        if !self.is_held {
            return false;
        }
        let leaks = micros(now - self.emptied).saturating_mul(LEAK) / micros(self.round_trip);
        self.emptied = now;
        self.bucket = self.bucket.saturating_sub(leaks);
        self.bucket += bytes as u64;
        self.received += bytes as u64;
        self.is_held = self.bucket <= BUCKET && self.received < PROTECTED;
        !self.is_held
    }

    /// A body begins; answers whether the pace of the last one is to be taken back.
    pub fn begin_body(&mut self) -> bool {
        self.before = None;
        self.pace.take().is_some()
    }

    /// What the kernel says while a body is on its way. Answers another pace, if there is to be one.
    pub fn judge(&mut self, facts: &PathFacts) -> Option<FlowLimit> {
        let before = *self.before.get_or_insert(facts.acknowledged);
        self.best = facts.delivery_rate.max(self.best - self.best / 8);
        let is_known = facts.acknowledged - before >= INITIAL_WINDOW && self.best > 0;
        let pace = if facts.acknowledged >= PROTECTED {
            None
        } else if is_known && facts.round_trip * 2 > facts.least_round_trip * 3 {
            Some(u32::try_from(self.best.max(least_rate(facts))).unwrap_or(u32::MAX))
        } else if facts.round_trip * 4 < facts.least_round_trip * 5 {
            None
        } else {
            self.pace
        };
        let is_new = pace != self.pace;
        self.pace = pace;
        is_new.then_some(FlowLimit::Send(pace))
    }

    /// When to look at a body on its way again; `None` when it needs no more looking at.
    #[must_use]
    pub fn look_after(&self, facts: &PathFacts) -> Option<Duration> {
        let goes_on = facts.unacknowledged > 0 && facts.acknowledged < PROTECTED;
        goes_on.then(|| (self.round_trip / 4).max(SOONEST))
    }

    /// How long the way is, there and back.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}

/// Four segments for each of the shortest round trips: no pace is slower, lest one bad measure hold up what follows it.
fn least_rate(facts: &PathFacts) -> u64 {
    INITIAL_WINDOW * 2 / 5 * 1_000_000 / micros(facts.least_round_trip)
}

/// Microseconds, at least one.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// What the peer may have under way at first, bytes. A kernel doubles it for its own bookkeeping and offers between
/// one and two times as much.
pub const WINDOW: u32 = 32 << 10;
/// What may come for good in a round trip without saying so, bytes: less than the kernel offers of that window, more
/// than 2G bears.
const LEAK: u64 = 28 << 10;
/// What may come at once without saying that the path is fast, bytes: less than the first flight.
const BUCKET: u64 = 10 << 10;
/// What a kernel sends before anything is acknowledged: ten segments (RFC 6928).
const INITIAL_WINDOW: u64 = 14_480;
/// So many bytes of a connection are looked after, in either direction.
pub const PROTECTED: u64 = 256 << 10;
/// A path is long from here on. A shorter one that is too slow for the window has less than 5 Mbit/s, and what
/// is lost is made good at once.
const LONG_PATH: Duration = Duration::from_millis(50);
const SOONEST: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn at(time_s: f64) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(time_s)
    }

    /// A download over a path of that rate and round trip: seconds, and the most bytes that waited for the rate. The
    /// sender is in slow start; the window is what Linux offers of `WINDOW` as long as it is held.
    fn download(rate: f64, round_trip: f64, segments: usize, holds: bool) -> (f64, f64) {
        const SEGMENT: f64 = 1448.0;
        let mut state = SlowStart::new(Duration::from_secs_f64(round_trip), at(0.0));
        let (mut congestion_window, mut sent, mut free, mut queue) =
            (10_usize, 0, 0.0_f64, 0.0_f64);
        // When what is under way arrives, and when it is acknowledged.
        let (mut arrivals, mut now) = (VecDeque::new(), 0.0);
        let mut received = 0;
        loop {
            let is_held = holds && state.as_ref().is_some_and(SlowStart::is_held);
            let window = if is_held { WINDOW as usize * 5 / 4 / 1448 } else { usize::MAX };
            while sent < segments && sent - received < congestion_window.min(window) {
                free = f64::max(free, now) + SEGMENT / rate;
                queue = queue.max((free - now) * rate);
                arrivals.push_back(free + round_trip / 2.0);
                sent += 1;
            }
            let arrived = arrivals.pop_front().expect("something is under way");
            if let Some(state) = &mut state {
                state.receive(SEGMENT as usize, at(arrived));
            }
            received += 1;
            congestion_window += 1;
            if received == segments {
                return (arrived, queue);
            }
            now = arrived + round_trip / 2.0;
        }
    }

    #[test]
    fn no_path_is_more_than_a_fiftieth_slower_for_it() {
        for round_trip_ms in [50, 100, 200, 400, 840, 1500] {
            for kilobits in [20, 100, 240, 780, 1_500, 3_000, 5_000, 10_000, 50_000, 1_000_000] {
                for segments in [7, 30, 60, 85, 200, 1000] {
                    let (rate, round_trip) =
                        (f64::from(kilobits) * 125.0, f64::from(round_trip_ms) / 1e3);
                    let (free, _) = download(rate, round_trip, segments, false);
                    let (held, _) = download(rate, round_trip, segments, true);
                    assert!(
                        held <= free * 1.02,
                        "{kilobits} kbit/s, {round_trip_ms} ms, {segments}: {held} for {free}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_queue_of_a_slow_path_stays_short() {
        // 3G and EDGE, 120 KiB.
        for (kilobits, round_trip) in [(780.0, 0.2), (240.0, 0.84), (35.0, 1.3)] {
            let (_, free) = download(kilobits * 125.0, round_trip, 85, false);
            let (_, held) = download(kilobits * 125.0, round_trip, 85, true);
            let window = f64::from(WINDOW) * 1.25;
            assert!(held < window && free > window, "{kilobits}: {held}, {free}");
        }
    }

    #[test]
    fn a_short_way_is_let_alone() {
        assert!(SlowStart::new(Duration::from_millis(49), at(0.0)).is_none());
    }

    #[test]
    fn what_is_protected_has_an_end() {
        let mut state = SlowStart::new(Duration::from_secs(1), at(0.0)).expect("a long path");
        let released = (1..1000).find(|second| state.receive(1448, at(f64::from(*second))));
        assert_eq!(released, Some(182));
        assert!(!state.receive(1 << 20, at(1001.0)), "once");
    }

    fn facts(acknowledged: u64, round_trip_ms: u64, delivery_rate: u64) -> PathFacts {
        PathFacts {
            round_trip: Duration::from_millis(round_trip_ms),
            least_round_trip: Duration::from_millis(200),
            unacknowledged: 10,
            acknowledged,
            delivery_rate,
            ..PathFacts::default()
        }
    }

    #[test]
    fn a_queue_that_stands_is_not_made_longer() {
        let mut state = SlowStart::new(Duration::from_millis(200), at(0.0)).expect("a long path");
        // Nothing is known before a first flight was acknowledged.
        assert_eq!(state.judge(&facts(1, 400, 25_000)), None);
        assert_eq!(state.judge(&facts(14_000, 400, 25_000)), None);
        assert_eq!(state.judge(&facts(16_000, 350, 39_800)), Some(FlowLimit::Send(Some(39_800))));
        // A measure that is worse for once counts little, and what changes little is said all the same.
        assert_eq!(state.judge(&facts(18_000, 350, 20_000)), Some(FlowLimit::Send(Some(34_825))));
        // One bad measure after the other is not followed below four segments for each of the shortest round trips.
        let worse = (0..20).filter_map(|_| state.judge(&facts(18_000, 350, 100))).last();
        assert_eq!(worse, Some(FlowLimit::Send(Some(28_960))));
        assert!(state.judge(&facts(19_000, 350, 39_800)).is_some());
        // The queue becomes shorter; it is gone.
        assert_eq!(state.judge(&facts(20_000, 280, 39_800)), None);
        assert_eq!(state.judge(&facts(22_000, 240, 39_800)), Some(FlowLimit::Send(None)));
        assert_eq!(state.judge(&facts(24_000, 240, 39_800)), None);
    }

    #[test]
    fn pacing_ends_with_the_body_and_with_what_is_protected() {
        let mut state = SlowStart::new(Duration::from_millis(200), at(0.0)).expect("a long path");
        assert_eq!(state.judge(&facts(0, 400, 0)), None);
        assert!(state.judge(&facts(20_000, 400, 10_000)).is_some());
        assert!(state.begin_body());
        assert!(!state.begin_body());
        assert_eq!(state.judge(&facts(20_000, 400, 10_000)), None, "the next flight is awaited");
        assert!(state.judge(&facts(40_000, 400, 10_000)).is_some());
        assert_eq!(state.judge(&facts(PROTECTED, 400, 10_000)), Some(FlowLimit::Send(None)));
        assert_eq!(state.look_after(&facts(PROTECTED, 400, 10_000)), None);
        assert_eq!(state.look_after(&facts(40_000, 400, 0)), Some(Duration::from_millis(50)));
    }
}
