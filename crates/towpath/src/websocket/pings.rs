//! Which pings were answered, and when.

use std::time::{Duration, Instant};

/// Pings are numbered, and an answer to one is one to all before it (RFC 6455 §5.5.3).
#[derive(Default)]
pub(super) struct Pings {
    sent: u64,
    answered: u64,
    /// When the last answer came.
    came: Option<Instant>,
}

/// A ping that the app waits for.
pub(super) struct Ping {
    number: u64,
    sent: Instant,
}

impl Pings {
    /// The next one, and its payload.
    pub(super) const fn send(&mut self, now: Instant) -> (Ping, [u8; 8]) {
        self.sent += 1;
        (Ping { number: self.sent, sent: now }, self.sent.to_be_bytes())
    }

    /// Takes a pong's payload: whether it answers anything. One that was not asked for does not.
    pub(super) fn answer(&mut self, payload: Vec<u8>, now: Instant) -> bool {
        let number = payload.try_into().map(u64::from_be_bytes).unwrap_or(0);
        let answers = (self.answered + 1..=self.sent).contains(&number);
        if answers {
            (self.answered, self.came) = (number, Some(now));
        }
        answers
    }

    /// How long the answer to this one took.
    pub(super) fn took(&self, ping: &Ping) -> Option<Duration> {
        let came = self.came.filter(|_| ping.number <= self.answered)?;
        Some(came.saturating_duration_since(ping.sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pong_answers_its_ping_and_those_before() {
        let (mut pings, now) = (Pings::default(), Instant::now());
        let later = |ms| now + Duration::from_millis(ms);
        let (first, payload) = pings.send(now);
        assert!(!pings.answer(Vec::new(), now) && !pings.answer(2_u64.to_be_bytes().to_vec(), now));
        let (second, last) = pings.send(later(10));
        let (third, _) = pings.send(later(20));
        assert!(pings.answer(last.to_vec(), later(30)));
        assert_eq!(pings.took(&first), Some(Duration::from_millis(30)));
        assert_eq!(pings.took(&second), Some(Duration::from_millis(20)));
        assert_eq!(pings.took(&third), None);
        assert!(!pings.answer(payload.to_vec(), later(40)), "it is answered already");
    }
}
