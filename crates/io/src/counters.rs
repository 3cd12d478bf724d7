//! What a driver did, counted by its one thread and readable from every other.

use std::sync::atomic::{AtomicU64, Ordering};

/// A driver's counters. Written by the driver's thread alone, so that counting costs a plain add;
/// read at any time, each on its own (there is no common moment).
#[derive(Debug, Default)]
pub struct Counters {
    /// Turns: returns from waiting.
    pub wakeups: Counter,
    /// `recv` calls on connections.
    pub reads: Counter,
    /// Bytes received.
    pub bytes_read: Counter,
    /// `send` and `sendmsg` calls.
    pub writes: Counter,
    /// Bytes the kernel took.
    pub bytes_written: Counter,
    /// Writes that the kernel took in part or not at all.
    pub blocked_writes: Counter,
    /// Connections accepted.
    pub accepts: Counter,
    /// Accepts that failed for want of descriptors or memory (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`).
    pub accepts_exhausted: Counter,
    /// Connects begun.
    pub connects: Counter,
    /// Connections ended, in whichever way.
    pub closes: Counter,
    /// Connections that were cut while their last bytes were being flushed, because their peer took too long.
    pub flushes_cut: Counter,
    /// Connections that there were at the end of the last turn; the one number that also falls.
    pub open: Counter,
    /// Messages taken from other threads.
    pub messages: Counter,
}

/// One number with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The number so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Load and store are two steps: right for one writer, and without a locked instruction.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}
