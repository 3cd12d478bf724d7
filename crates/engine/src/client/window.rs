//! How much of each response a server may have under way over HTTP/2.
//!
//! Arrives: what comes over a connection. Leaves: a larger window, where the path bears more than the present one.
//!
//! A stream moves at most a window in a round trip: one that is smaller than what the path has under way holds it up,
//! one that is larger lets more wait for an app that does not read. It begins with what the app allows to wait, and is
//! doubled whenever half of it came within a round trip, as gRPC and Chromium's QUIC do, up to a bound.

use std::time::Duration;

use towpath_proto::Instant;

/// The window of each stream of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    size: u32,
    most: u32,
    round_trip: Duration,
    since: Instant,
    /// What came since then.
    bytes: u64,
}

impl Window {
    /// A window of `size` bytes, `most` at most, over a path whose round trip takes so long.
    #[must_use]
    pub const fn new(size: u32, most: u32, round_trip: Duration, now: Instant) -> Self {
        Self { size, most, round_trip, since: now, bytes: 0 }
    }

    /// So many bytes came; the new size, if it grows.
    pub fn receive(&mut self, bytes: usize, now: Instant) -> Option<u32> {
        if now - self.since > self.round_trip {
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes += bytes as u64;
        if self.size >= self.most || self.bytes < u64::from(self.size / 2) {
            return None;
        }
        self.size = self.size.saturating_mul(2).min(self.most);
        (self.since, self.bytes) = (now, 0);
        Some(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// What a transfer at a steady rate comes to after a second.
    fn after_a_second(bytes_per_s: usize) -> u32 {
        let mut window = Window::new(64 << 10, 4 << 20, RTT, Instant::ZERO);
        let mut size = 64 << 10;
        for ms in 1..=1000 {
            let now = Instant::ZERO + Duration::from_millis(ms);
            size = window.receive(bytes_per_s / 1000, now).unwrap_or(size);
        }
        size
    }

    #[test]
    fn it_follows_the_product_of_bandwidth_and_delay() {
        // 20 KB in a round trip.
        assert_eq!(after_a_second(200_000), 64 << 10);
        // 100 KB: it may be 200 and is not held up by less.
        assert_eq!(after_a_second(1_000_000), 256 << 10);
        assert_eq!(after_a_second(10_000_000), 2 << 20);
        assert_eq!(after_a_second(1_000_000_000), 4 << 20, "the bound");
    }

    #[test]
    fn pauses_do_not_add_up() {
        let mut window = Window::new(64 << 10, 4 << 20, RTT, Instant::ZERO);
        for round in 1..100u64 {
            let now = Instant::ZERO + Duration::from_millis(101 * round);
            assert_eq!(window.receive(30_000, now), None);
        }
    }

    #[test]
    fn one_that_is_at_its_bound_stays() {
        let mut window = Window::new(64 << 10, 64 << 10, RTT, Instant::ZERO);
        assert_eq!(window.receive(1 << 20, Instant::ZERO), None);
    }
}
