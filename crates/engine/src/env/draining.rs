//! How far a drain is.

use towpath_proto::Instant;

use crate::env::{Env, TimerSlot};
use crate::message::Drain;
use crate::random::Random;
use crate::snapshot::Listener;

/// How far a drain is.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    pub(crate) drain: Option<Drain>,
    pub(crate) began: Instant,
    pub(crate) listening: bool,
    /// What still waited in the listening sockets has been handed over, in the turn after they were closed.
    pub(crate) settled: bool,
    pub(crate) told: bool,
    /// Until when servers may take what waits for them, once the program ends.
    pub(crate) hands_over: Option<Instant>,
    /// `/healthcheck/fail`: clients shall send no more, but what they send is served.
    pub(crate) health_fails: bool,
}

impl Draining {
    /// Whether responses and idle connections are being ended.
    pub(crate) const fn is_on(&self) -> bool {
        self.drain.is_some()
    }

    /// Whether it has come so far that nothing is accepted any more.
    pub(crate) const fn has_closed_listeners(&self) -> bool {
        self.drain.is_some() && !self.listening
    }

    /// Whether the proxy says that it wants no traffic.
    pub(crate) const fn health_fails(&self) -> bool {
        self.health_fails
    }

    pub(crate) const fn set_health_fails(&mut self, fails: bool) {
        self.health_fails = fails;
    }

    /// Whether this response says `Connection: close`.
    pub(crate) fn closes(&self, listener: &Listener, random: &mut Random, now: Instant) -> bool {
        if self.health_fails && !listener.modify_only {
            return true;
        }
        let Some(drain) = &self.drain else { return false };
        if drain.immediate || !self.listening {
            return true;
        }
        let (elapsed, whole) =
            ((now - self.began).as_millis(), drain.close_listeners_after.as_millis().max(1));
        u128::from(random.next()) % whole < elapsed
    }
}

impl Env {
    pub(crate) fn arm_drain_timer(&mut self, now: Instant) {
        let Some(drain) = self.draining.drain else { return };
        let began = self.draining.began;
        let close = self.draining.listening.then(|| began + drain.close_listeners_after);
        let settle = (!self.draining.listening && !self.draining.settled).then_some(now);
        let end = drain.deadline.map(|deadline| began + deadline);
        if let Some(next) = close.into_iter().chain(settle).chain(end).min() {
            self.timers.set(TimerSlot::Drain.number(), next.max(now));
        }
    }
}
