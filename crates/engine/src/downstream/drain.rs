//! Going away in good order.
//!
//! Arrives: the control thread's wish to drain. Leaves: closed listeners, responses that say `Connection: close`,
//! idle connections closed once they have been quiet, answers for clients that have begun a request, and at last
//! [`FromWorker::Drained`].

use towpath_proto::Instant;

use crate::conn::Connections;
use crate::downstream::listener::Listeners;
use crate::env::Env;
use crate::env::draining::Draining;
use crate::message::{Drain, FromWorker};

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
            env.hand_over_entries();
            env.tell(FromWorker::Drained);
        }
    }
}
