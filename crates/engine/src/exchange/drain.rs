//! The steps of a drain that end streams.

use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::Role;
use crate::exchange::Exchange;
use crate::message::Drain;

impl Exchange {
    /// The next step: stop accepting, or end what is left.
    pub(crate) fn on_drain_timer(&mut self, now: Instant) {
        if let Some(until) = self.env.draining.hands_over {
            return self.on_hand_over_timer(until, now);
        }
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
            let Some(connection) = self.conns.table.get(id) else { continue };
            match &connection.role {
                Role::Arriving(_) => self.end_arriving(id, Some(Close::Flush), now),
                Role::Downstream(_) => self.end_client(id, now),
                Role::Upstream(_) if connection.is_busy() => {}
                Role::Upstream(_) => self.close_upstream(id, Close::Flush, now),
                Role::Closing(_) => {
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

    /// Ends a client's connection and what is on it.
    fn end_client(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let answers = connection.mux.sends_whole();
        for index in connection.streams.all() {
            if answers {
                self.local_reply(index, 502, b"", DRAIN_DEADLINE, now);
            } else {
                self.abandon(index, DRAIN_DEADLINE, now);
            }
        }
        self.close_downstream(id, now);
    }
}

/// The details of a stream that a drain's deadline ended.
pub(crate) const DRAIN_DEADLINE: &str = "drain_deadline";
