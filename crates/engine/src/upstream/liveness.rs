//! Connections that are asked for a sign of life while they are quiet.

use towpath_proto::{ConnectionId, Instant};

use crate::conn::{ConnectionTimer, Connections};
use crate::env::Env;
use crate::upstream::Upstreams;

impl Upstreams {
    /// Starts to look after a connection, if its cluster asks for that.
    pub(crate) fn begin_pulse(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        if let Some(heartbeat) = self.heartbeat_of(id, conns) {
            conns.set_connection_timer(
                id,
                ConnectionTimer::Heartbeat,
                now + heartbeat.interval,
                env,
            );
        }
    }

    pub(crate) fn heartbeat_of(
        &self,
        id: ConnectionId,
        conns: &Connections,
    ) -> Option<crate::snapshot::bolt::Heartbeat> {
        let pool_key = conns.table.get(id)?.upstream()?.pool_key;
        self.clusters.get(pool_key.cluster)?.config.bolt.as_ref()?.heartbeat
    }
}
