//! Whether a connection that should be moving still does.
//!
//! Arrives: what the kernel knows of the path (`TCP_INFO` on Linux), and when bytes last came. Leaves: a
//! [`Liveness`] and when to look again.
//!
//! A kernel repeats unacknowledged bytes after ever longer waits and gives up after a quarter of an hour. What is
//! not acknowledged within three round trips, and a second at least, will hardly be: from then on no new request
//! goes there, and a standby connection is opened in parallel. A server that has acknowledged everything and takes its
//! time to answer is not suspected.

use std::time::Duration;

use towpath_proto::{ConnectOptions, Instant, PathFacts};

/// What is thought of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Everything that was sent is acknowledged, or not for long enough to say; look again then.
    Fine(Instant),
    /// Nothing has been acknowledged for so long.
    Suspect(Duration),
}

/// What an app's connections are made with: the kernel sends again what is not acknowledged 50 ms after a round trip,
/// where it lets itself be told (Linux 6.15), instead of 200. That is a little more than the 40 ms for which a server's
/// kernel may keep an acknowledgement back in the hope of an answer to send it with.
#[must_use]
pub fn connect_options() -> ConnectOptions {
    ConnectOptions { least_rto: Some(LEAST_RTO), ..ConnectOptions::default() }
}

/// How long nothing may be acknowledged: three round trips, and a second at least.
#[must_use]
pub fn patience(round_trip: Duration) -> Duration {
    (round_trip * 3).clamp(LEAST_PATIENCE, MOST_PATIENCE)
}

/// Judges a connection by what the kernel says of it. `since` is when the request was given to it.
#[must_use]
pub fn judge(facts: &PathFacts, since: Instant, now: Instant) -> Liveness {
    let patience = patience(facts.round_trip);
    // Before the request there was nothing to acknowledge.
    let silent = facts.since_ack.min(now - since);
    if facts.unacknowledged == 0 {
        return Liveness::Fine(now + patience);
    }
    if silent >= patience {
        return Liveness::Suspect(silent);
    }
    Liveness::Fine(now + (patience - silent))
}

const LEAST_RTO: Duration = Duration::from_millis(50);
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
const MOST_PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn facts(round_trip: u64, unacknowledged: u32, since_ack: u64) -> PathFacts {
        PathFacts {
            round_trip: ms(round_trip),
            unacknowledged,
            since_ack: ms(since_ack),
            ..PathFacts::default()
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn patience_is_three_round_trips_within_bounds() {
        assert_eq!(patience(ms(10)), ms(1000));
        assert_eq!(patience(ms(800)), ms(2400));
        assert_eq!(patience(Duration::MAX / 8), ms(10_000));
    }

    #[test]
    fn what_is_not_acknowledged_for_long_is_suspect() {
        assert_eq!(judge(&facts(50, 1, 5_000), at(0), at(5_000)), Liveness::Suspect(ms(5_000)));
        assert_eq!(judge(&facts(50, 1, 999), at(0), at(5_000)), Liveness::Fine(at(5_001)));
        assert_eq!(judge(&facts(50, 1, 1_000), at(0), at(5_000)), Liveness::Suspect(ms(1_000)));
    }

    #[test]
    fn a_slow_server_is_not() {
        assert_eq!(judge(&facts(50, 0, 60_000), at(0), at(60_000)), Liveness::Fine(at(61_000)));
    }

    #[test]
    fn what_was_silent_before_the_request_counts_from_the_request() {
        assert_eq!(judge(&facts(50, 1, 60_000), at(1_000), at(1_400)), Liveness::Fine(at(2_000)));
    }
}
