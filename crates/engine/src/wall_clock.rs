//! The wall clock, derived from the driver's: a worker is told once where its epoch lies.

use std::time::{Duration, SystemTime};

use towpath_proto::Instant;

/// What is needed to say what time it is.
#[derive(Debug, Default)]
pub(crate) struct WallClock {
    /// Nanoseconds since 1970 at the driver's epoch.
    pub(crate) epoch_unix_ns: u64,
    /// The second that `date` is for.
    second: u64,
    /// The host's name, for logs.
    pub(crate) hostname: std::sync::Arc<str>,
    date: Vec<u8>,
}

impl WallClock {
    pub(crate) fn new(hostname: std::sync::Arc<str>) -> Self {
        Self { hostname, ..Self::default() }
    }

    pub(crate) fn set(&mut self, epoch_unix_ns: u64) {
        self.epoch_unix_ns = epoch_unix_ns;
        self.date.clear();
    }

    /// Now as the time since 1970.
    pub(crate) const fn since_1970(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.epoch_unix_ns.saturating_add(now.as_nanos()))
    }

    /// Now as an HTTP date (RFC 9110 §5.6.7), made anew once a second.
    pub(crate) fn http_date(&mut self, now: Instant) -> &[u8] {
        let second = (self.epoch_unix_ns + now.as_nanos()) / 1_000_000_000;
        if second != self.second || self.date.is_empty() {
            self.second = second;
            self.date = http_date(second).into_bytes();
        }
        &self.date
    }
}

/// A second since 1970 as an HTTP date.
fn http_date(second: u64) -> String {
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(4_107_542_399), "Sun, 28 Feb 2100 23:59:59 GMT");
    }

    #[test]
    fn the_date_moves_with_the_second() {
        let mut clock = WallClock::default();
        clock.set(784_111_777_000_000_000);
        assert_eq!(clock.http_date(Instant::ZERO), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(
            clock.http_date(Instant::from_nanos(999_999_999)),
            b"Sun, 06 Nov 1994 08:49:37 GMT"
        );
        assert_eq!(
            clock.http_date(Instant::from_nanos(1_000_000_000)),
            b"Sun, 06 Nov 1994 08:49:38 GMT"
        );
    }
}
