//! Going away in good order.
//!
//! Arrives: the control thread's wish to drain. Leaves: closed listeners, responses that say `Connection: close`,
//! idle connections closed once they have been quiet, answers for those who have begun a request, and at last [`FromWorker::Drained`].

use std::time::Duration;

use towpath_proto::{Close, ConnectionId, Instant};

use crate::connection::Connections;
use crate::connection::{ConnectionTimer, Role};
use crate::env::Env;
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::listener::Listeners;
use crate::message::{Drain, FromWorker};
use crate::random::Random;
use crate::snapshot::Listener;

/// How far a drain is.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    drain: Option<Drain>,
    began: Instant,
    listening: bool,
    /// What still waited in the listening sockets has been handed over, in the turn after they were closed.
    settled: bool,
    told: bool,
    /// `/healthcheck/fail`: nobody shall send more, but whoever does is served.
    health_fails: bool,
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

impl Exchange {
    /// The next step: stop accepting, or end what is left.
    pub(crate) fn on_drain_timer(&mut self, now: Instant) {
        let Some(drain) = self.env.draining.drain else { return };
        self.env.draining.settled = !self.env.draining.listening;
        if self.env.draining.listening
            && now >= self.env.draining.began + drain.close_listeners_after
        {
            self.env.draining.listening = false;
            self.listeners.close_listeners(drain.inbound_only, &mut self.conns, &mut self.env);
            self.conns.close_quiet(&mut self.env, now);
        }
        if drain.deadline.is_some_and(|deadline| now >= self.env.draining.began + deadline) {
            self.terminate(now);
            return;
        }
        self.env.arm_drain_timer(now);
        self.listeners.check_drained(&mut self.env);
    }

    /// Ends every connection at once.
    pub(crate) fn terminate(&mut self, now: Instant) {
        self.listeners.close_listeners(false, &mut self.conns, &mut self.env);
        for id in self.conns.table.ids() {
            self.end_calls(id, DRAIN_DEADLINE, now);
            let Some(connection) = self.conns.table.get(id) else { continue };
            match (&connection.role, connection.stream) {
                (Role::Upstream(_), None) if connection.is_busy() => {}
                (Role::Downstream(_), Some(index)) => {
                    self.abandon(index, DRAIN_DEADLINE, now);
                }
                (Role::Downstream(_), None) => {
                    self.listeners.close_downstream(id, &mut self.conns, &mut self.env, now)
                }
                (Role::Upstream(_), None) => self.upstreams.close_upstream(
                    id,
                    Close::Flush,
                    &mut self.conns,
                    &mut self.env,
                    now,
                ),
                (Role::Upstream(_), Some(_)) => {}
                (Role::Closing(_), _) => self.conns.end_connection(id, Close::Flush, &mut self.env),
            }
        }
        self.env.hand_over_logs();
        self.env.draining.drain.get_or_insert(Drain::at_once(None));
        self.env.draining.listening = false;
        self.env.draining.settled = true;
        self.listeners.check_drained(&mut self.env);
    }
}

impl Listeners {
    pub(crate) fn begin_drain(
        &mut self,
        drain: Drain,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        if env.draining.drain.is_none() {
            env.draining.began = now;
        }
        env.draining.drain = Some(drain);
        env.draining.listening = !drain.stop_accepting;
        env.draining.settled = false;
        env.draining.told = false;
        if drain.stop_accepting {
            self.close_listeners(drain.inbound_only, conns, env);
            conns.close_quiet(env, now);
        }
        env.arm_drain_timer(now);
        self.check_drained(env);
    }

    /// Tells the control thread once nothing is left.
    pub(crate) fn check_drained(&mut self, env: &mut Env) {
        let Draining { listening, settled, told, .. } = env.draining;
        if !env.draining.is_on() || listening || !settled || told {
            return;
        }
        if self.active_all() == 0 {
            env.draining.told = true;
            env.hand_over_logs();
            env.tell(FromWorker::Drained);
        }
    }
}

impl Connections {
    /// Connections without a request are closed once they have been quiet for a while, so that a request that is on
    /// its way at this moment is still answered.
    fn close_quiet(&mut self, env: &mut Env, now: Instant) {
        for id in self.table.ids() {
            self.bid_farewell(id, env, now);
            self.close_when_quiet(id, env, now);
        }
    }

    fn close_when_quiet(&mut self, id: ConnectionId, env: &mut Env, now: Instant) {
        let Some(connection) = self.table.get(id) else { return };
        if connection.downstream().is_some() && !connection.is_busy() {
            let at = (connection.rested + QUIET).max(now);
            self.set_connection_timer(id, ConnectionTimer::DelayedClose, at, env);
        }
    }

    /// One connection goes away in good order: with the response under way or the next one, or when it has been quiet.
    pub(crate) fn drain(&mut self, id: ConnectionId, env: &mut Env, now: Instant) {
        self.bid_farewell(id, env, now);
        self.close_after_response(id);
        self.close_when_quiet(id, env, now);
    }
}

impl Env {
    fn arm_drain_timer(&mut self, now: Instant) {
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

/// The details of a stream that a drain's deadline ended.
const DRAIN_DEADLINE: &str = "drain_deadline";

/// How long a connection must have been quiet before a drain closes it.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
