//! The engine's machine, told the wall time whenever that has moved against the driver's clock.
//!
//! A phone's clock may be wrong until it has a network, and is set while apps run: a certificate is judged by the time
//! at which its handshake happens.

use std::time::{SystemTime, UNIX_EPOCH};

use towpath_engine::message::{Message, ToWorker};
use towpath_engine::worker::Worker;
use towpath_proto::{Input, Instant, Machine, Output};

/// A worker and what it was told of the time.
pub(crate) struct Timed<M = Worker> {
    worker: M,
    /// Nanoseconds since 1970 at the driver's epoch.
    epoch_unix_ns: u64,
    /// When the wall clock was last looked at.
    looked: Instant,
}

impl<M: Machine<Message = Message>> Timed<M> {
    pub(crate) const fn new(worker: M) -> Self {
        Self { worker, epoch_unix_ns: 0, looked: Instant::FAR_FUTURE }
    }

    /// Once in each of the driver's turns.
    fn look(&mut self, now: Instant, unix_ns: u64) {
        self.looked = now;
        let epoch_unix_ns = unix_ns.saturating_sub(now.as_nanos());
        if epoch_unix_ns.abs_diff(self.epoch_unix_ns) >= NOTICED_NS {
            self.epoch_unix_ns = epoch_unix_ns;
            let told = Message::To(ToWorker::WallClock { epoch_unix_ns });
            self.worker.handle(Input::Message(told), now);
        }
    }
}

impl<M: Machine<Message = Message>> Machine for Timed<M> {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        if now != self.looked {
            self.look(now, unix_ns());
        }
        self.worker.handle(input, now);
    }

    fn poll(&mut self, now: Instant) -> Output<Message> {
        self.worker.poll(now)
    }
}

/// The wall time, as nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Certificates and dates have whole seconds.
const NOTICED_NS: u64 = 500_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Keeps what it is told of the time.
    #[derive(Default)]
    struct Heard(Vec<u64>);

    impl Machine for Heard {
        type Message = Message;

        fn handle(&mut self, input: Input<Message>, _now: Instant) {
            if let Input::Message(Message::To(ToWorker::WallClock { epoch_unix_ns })) = input {
                self.0.push(epoch_unix_ns);
            }
        }

        fn poll(&mut self, _now: Instant) -> Output<Message> {
            Output::Idle
        }
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_clock_that_is_set_is_told_and_one_that_runs_is_not() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut timed = Timed::new(Heard::default());
        timed.look(at(5), 1_000_005 * S);
        timed.look(at(90), 1_000_090 * S + S / 10);
        assert_eq!(timed.worker.0, [1_000_000 * S]);
        // Forwards by a day, and back again.
        timed.look(at(91), 1_086_491 * S);
        timed.look(at(92), 1_000_092 * S);
        assert_eq!(timed.worker.0[1..], [1_086_400 * S, 1_000_000 * S]);
        // A clock that begins in 1970.
        timed.look(at(93), 0);
        assert_eq!(timed.worker.0[3..], [0]);
    }

    #[test]
    fn whatever_happens_first_the_time_is_known_before() {
        let mut timed = Timed::new(Heard::default());
        timed.handle(Input::Timeout, Instant::ZERO);
        assert!(timed.worker.0[0] > 1_700_000_000 * S, "{:?}", timed.worker.0);
        timed.handle(Input::Timeout, Instant::ZERO);
        assert_eq!(timed.worker.0.len(), 1);
    }
}
