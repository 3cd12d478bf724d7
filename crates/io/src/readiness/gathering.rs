//! A moment's pause before asking for events, when many sockets have some: what comes meanwhile is taken in the same
//! turn.
//!
//! A driver that is faster than those around it wakes up for an event or two, and waking up costs as much as the work.
//! Where at least [`Options::gather_from`](super::Options::gather_from) different sockets were ready for each
//! millisecond of late, a pause of [`Options::gather`](super::Options::gather) gathers several events, as network cards
//! do it before they interrupt. Different sockets are counted, not events: a few peers that wait for each answer before
//! they ask again would only be slowed down.

use std::time::Duration;

use towpath_proto::Instant;

pub(super) struct Gathering {
    pause: Duration,
    from: u32,
    /// The number of the window in which sockets are counted.
    window: u32,
    begun: Instant,
    /// Different sockets that were ready in it.
    sockets: u32,
    /// The window before had enough of them.
    is_busy: bool,
}

impl Gathering {
    pub(super) const fn new(pause: Duration, from: u32) -> Self {
        Self { pause, from, window: 1, begun: Instant::ZERO, sockets: 0, is_busy: false }
    }

    /// A turn begins.
    pub(super) fn turn(&mut self, now: Instant) {
        let passed = now - self.begun;
        if passed < WINDOW {
            return;
        }
        let wanted = u128::from(self.from) * passed.as_nanos();
        self.is_busy = u128::from(self.sockets) * WINDOW.as_nanos() >= wanted;
        self.window = self.window.wrapping_add(1);
        (self.begun, self.sockets) = (now, 0);
    }

    /// A socket is ready that was last counted in the window `seen`.
    pub(super) const fn count(&mut self, seen: &mut u32) {
        if *seen != self.window {
            *seen = self.window;
            self.sockets += 1;
        }
    }

    /// How long to pause before a wait that ends after `timeout` at the latest.
    pub(super) fn pause(&self, timeout: Option<Duration>) -> Option<Duration> {
        let has_time = timeout.is_none_or(|timeout| timeout > self.pause);
        (self.is_busy && has_time && !self.pause.is_zero()).then_some(self.pause)
    }
}

const WINDOW: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_micros(50);

    /// Whether it pauses after a window of `us` in which these sockets were ready, each as often as it is there.
    fn pauses(us: u64, sockets: impl IntoIterator<Item = usize>) -> bool {
        let mut gathering = Gathering::new(PAUSE, 4);
        let mut seen = [0; 8];
        gathering.turn(Instant::ZERO);
        for socket in sockets {
            gathering.count(&mut seen[socket]);
        }
        gathering.turn(Instant::ZERO + Duration::from_micros(us));
        gathering.pause(None).is_some()
    }

    #[test]
    fn many_sockets_in_a_millisecond_are_worth_a_pause_and_few_that_are_quick_are_not() {
        assert!(pauses(1000, 0..4));
        assert!(!pauses(1000, 0..3));
        assert!(!pauses(1000, (0..3).cycle().take(100)));
        assert!(!pauses(2000, 0..7), "it took two milliseconds");
        assert!(pauses(2000, 0..8));
        assert!(!pauses(999, 0..8), "the window is not over");
    }

    #[test]
    fn there_is_no_pause_where_something_is_due_or_none_is_wanted() {
        let busy = |pause| Gathering { is_busy: true, ..Gathering::new(pause, 4) };
        assert_eq!(busy(PAUSE).pause(Some(Duration::from_millis(1))), Some(PAUSE));
        assert_eq!(busy(PAUSE).pause(Some(PAUSE)), None);
        assert_eq!(busy(PAUSE).pause(Some(Duration::ZERO)), None);
        assert_eq!(busy(Duration::ZERO).pause(None), None);
        assert_eq!(Gathering::new(PAUSE, 4).pause(None), None);
    }
}
