//! The steps of a drain that end streams.

use towpath_proto::{Close, Instant};

use crate::conn::Role;
use crate::exchange::Exchange;
use crate::message::Drain;

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
                (Role::Closing(_), _) => {
                    let how = Close::Flush;
                    self.listeners.end_closing(id, how, &mut self.conns, &mut self.env, now);
                }
            }
        }
        self.env.hand_over_logs();
        self.env.draining.drain.get_or_insert(Drain::at_once(None));
        self.env.draining.listening = false;
        self.env.draining.settled = true;
        self.listeners.check_drained(&mut self.env);
    }
}

/// The details of a stream that a drain's deadline ended.
pub(crate) const DRAIN_DEADLINE: &str = "drain_deadline";
