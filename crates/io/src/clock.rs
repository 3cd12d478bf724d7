//! The driver's clock: nanoseconds since an epoch shared by all shards.
//!
//! A server's is `CLOCK_MONOTONIC`, which stands still while the machine is suspended. In an app that time counts: a
//! connection that was used a moment before a night's sleep is a night old.

use std::time::{self, Duration};

use towpath_proto::Instant;

/// Tells a driver's time; also to threads that keep time beside one.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Awake {
        epoch: time::Instant,
    },
    /// The epoch, on the clock that runs on in suspend.
    Always {
        epoch: Duration,
    },
}

impl Clock {
    /// With `counts_suspend` the time in which the machine was suspended counts, where the platform tells it.
    #[must_use]
    pub fn new(epoch: time::Instant, counts_suspend: bool) -> Self {
        Self(match since_boot().filter(|_| counts_suspend) {
            Some(since_boot) => {
                Source::Always { epoch: since_boot.saturating_sub(epoch.elapsed()) }
            }
            None => Source::Awake { epoch },
        })
    }

    /// Never goes backwards: neither clock does, and an epoch in the future reads as zero.
    #[must_use]
    pub fn now(self) -> Instant {
        Instant::ZERO.after(match self.0 {
            Source::Awake { epoch } => time::Instant::now().saturating_duration_since(epoch),
            Source::Always { epoch } => since_boot().unwrap_or_default().saturating_sub(epoch),
        })
    }
}

#[cfg(linux_kernel)]
fn since_boot() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).ok()
}

/// Elsewhere only the clock of `std` is known.
#[cfg(not(linux_kernel))]
const fn since_boot() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree_while_nothing_sleeps() {
        let epoch = time::Instant::now();
        let (awake, always) = (Clock::new(epoch, false), Clock::new(epoch, true));
        assert!(matches!(awake.0, Source::Awake { .. }));
        assert_eq!(matches!(always.0, Source::Always { .. }), cfg!(linux));
        let before = awake.now();
        let between = always.now();
        let after = awake.now();
        // Both are read one after the other, twice.
        let slack = Duration::from_millis(1);
        assert!(
            before <= between + slack && between <= after + slack,
            "{before:?} {between:?} {after:?}"
        );
    }

    #[cfg(linux)]
    #[test]
    fn what_was_slept_counts() {
        let boot = since_boot().unwrap();
        let night = Duration::from_secs(8 * 3600);
        let clock = Clock(Source::Always { epoch: boot.saturating_sub(night) });
        assert!(clock.now() >= Instant::ZERO.after(night.min(boot)));
    }
}
