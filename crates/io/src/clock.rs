//! The driver's clock: `CLOCK_MONOTONIC` as nanoseconds since an epoch shared by all shards.

use std::time;

use towpath_proto::Instant;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: time::Instant,
}

impl Clock {
    pub(crate) const fn new(epoch: time::Instant) -> Self {
        Self { epoch }
    }

    /// Never goes backwards: `std::time::Instant` does not, and an epoch in the future reads as zero.
    pub(crate) fn now(self) -> Instant {
        Instant::ZERO.after(time::Instant::now().saturating_duration_since(self.epoch))
    }
}
