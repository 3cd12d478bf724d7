//! Connections that go away in good order.

use std::time::Duration;

use towpath_proto::{ConnectionId, Instant};

use crate::conn::{ConnectionTimer, Connections};
use crate::env::Env;

impl Connections {
    /// Connections without a request are closed once they have been quiet for a while, so that a request that is on
    /// its way at this moment is still answered.
    pub(crate) fn close_quiet(&mut self, env: &mut Env, now: Instant) {
        for id in self.table.ids() {
            self.send_go_away(id, env, now);
            self.close_when_quiet(id, env, now);
        }
    }

    pub(crate) fn close_when_quiet(&mut self, id: ConnectionId, env: &mut Env, now: Instant) {
        let Some(connection) = self.table.get(id) else { return };
        if connection.downstream().is_some() && !connection.is_busy() {
            let at = (connection.rested + QUIET).max(now);
            self.set_connection_timer(id, ConnectionTimer::DelayedClose, at, env);
        }
    }

    /// One connection goes away in good order: with the response under way or the next one, or when it has been quiet.
    pub(crate) fn drain(&mut self, id: ConnectionId, env: &mut Env, now: Instant) {
        self.send_go_away(id, env, now);
        self.close_after_response(id);
        self.close_when_quiet(id, env, now);
    }
}

/// How long a connection must have been quiet before a drain closes it.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
