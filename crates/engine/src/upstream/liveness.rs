//! Connections that are asked for a sign of life while they are quiet.

use towpath_proto::{ConnectionId, Instant};

use crate::conn::{ConnectionTimer, Connections};
use crate::env::Env;
use crate::snapshot::bolt::Heartbeat;
use crate::upstream::Upstreams;

impl Upstreams {
    /// Starts to look after a connection, if its cluster or its listener asks for that.
    pub(crate) fn begin_heartbeat(
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

    pub(crate) fn heartbeat_of(&self, id: ConnectionId, conns: &Connections) -> Option<Heartbeat> {
        let connection = conns.table.get(id)?;
        let http2 = match connection.upstream() {
            Some(upstream) => {
                let config = &self.clusters.get(upstream.pool_key.cluster)?.config;
                if let Some(bolt) = &config.bolt {
                    return bolt.heartbeat;
                }
                &config.http2
            }
            None => &connection.downstream()?.context.http()?.config.http2,
        };
        let keepalive = http2.as_ref().filter(|_| connection.mux.is_http2())?.keepalive?;
        let (interval, timeout) = (keepalive.interval, keepalive.timeout);
        Some(Heartbeat { interval, timeout, misses: 1 })
    }
}
