//! The arithmetic of a link: the least time that one request on a connection of its own can take there.

use std::time::Duration;

use towpath_sim::link::{Conditions, Rate};

/// One direction: seconds for each byte, and of delay.
#[derive(Clone, Copy)]
struct Direction {
    per_byte: f64,
    delay: f64,
}

/// The least time for a connection, a request and its response, each body with `HEAD_BYTES` before it: one packet each
/// way to connect, then segments as fast as the link takes them, from an initial window of ten (RFC 6928) that doubles
/// with each round trip, every segment acknowledged at once, nothing lost. `None` where the rate is not a fixed one.
pub(super) fn optimum(
    up: &Conditions,
    down: &Conditions,
    request: usize,
    response: usize,
) -> Option<Duration> {
    let (up, down) = (Direction::of(up)?, Direction::of(down)?);
    let connecting = up.takes(CONTROL_BYTES) + down.takes(CONTROL_BYTES);
    let asking = transfer(request + HEAD_BYTES, up, down);
    let answering = transfer(response + HEAD_BYTES, down, up);
    Some(Duration::from_secs_f64(connecting + asking + answering))
}

impl Direction {
    fn of(conditions: &Conditions) -> Option<Self> {
        let per_byte = match &conditions.rate {
            Rate::Unlimited => 0.0,
            Rate::BitsPerSecond(bits) => 8.0 / bits,
            Rate::Trace(_) => return None,
        };
        Some(Self { per_byte, delay: conditions.delay.as_secs_f64() })
    }

    fn takes(self, bytes: usize) -> f64 {
        self.per_byte * bytes as f64 + self.delay
    }
}

/// Seconds until the last byte has arrived.
fn transfer(bytes: usize, forth: Direction, back: Direction) -> f64 {
    let segments = bytes.div_ceil(SEGMENT_BYTES);
    // When the link is free again, and when each acknowledgement is back: each lets two more segments go.
    let mut free = 0.0_f64;
    let mut acknowledged: Vec<f64> = Vec::with_capacity(segments);
    let mut left = bytes;
    for number in 0..segments {
        let allowed = match number.checked_sub(INITIAL_WINDOW) {
            None => 0.0,
            Some(beyond) => acknowledged[beyond / 2],
        };
        let size = left.min(SEGMENT_BYTES);
        left -= size;
        free = free.max(allowed) + forth.per_byte * (size + HEADER_BYTES) as f64;
        acknowledged.push(free + forth.delay + back.takes(HEADER_BYTES));
    }
    free + forth.delay
}

/// What a head of this benchmark takes, about.
const HEAD_BYTES: usize = 120;
/// IPv4 and TCP with a timestamp.
const HEADER_BYTES: usize = 52;
/// IPv4 and TCP with the options of a SYN.
const CONTROL_BYTES: usize = 60;
const SEGMENT_BYTES: usize = 1500 - HEADER_BYTES;
const INITIAL_WINDOW: usize = 10;

#[cfg(test)]
mod tests {
    use towpath_sim::link::Profile;

    use super::*;

    fn seconds(request: usize, response: usize) -> f64 {
        let profile = Profile::find("edge").expect("it is built in");
        optimum(&profile.up(), &profile.down(), request, response).expect("fixed").as_secs_f64()
    }

    #[test]
    fn a_small_request_takes_two_round_trips() {
        // 440 ms up and 400 ms down, 200 and 240 kbit/s.
        let bytes = (60.0 + 172.0) * 8.0 / 200e3 + (60.0 + 172.0) * 8.0 / 240e3;
        assert!((seconds(0, 0) - 1.68 - bytes).abs() < 1e-9, "{}", seconds(0, 0));
    }

    #[test]
    fn a_large_one_takes_its_bytes_and_one_pause_of_slow_start() {
        // Ten segments take 0.6 s, and the first acknowledgement is back after 0.902 s.
        let rest = seconds(64 << 10, 0) - seconds(0, 0);
        let bytes = f64::from(65_536 + 45 * 52) * 8.0 / 200e3;
        let pause = 0.902 - 0.6;
        assert!((rest - bytes - pause).abs() < 0.01, "{rest} for {bytes} and {pause}");
    }

    #[test]
    fn there_is_none_where_the_rate_changes() {
        let profile = Profile::find("cellular-5").expect("it is built in");
        assert_eq!(optimum(&profile.up(), &profile.down(), 0, 0), None);
    }
}
