//! Connections that streams of many clients share.

use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::{Connection, ConnectionTimer, Connections};
use crate::env::{Env, TimerSlot};
use crate::ids::PoolKey;
use crate::upstream::Upstreams;
use crate::upstream::pool::{Lease, Wish};

impl Upstreams {
    /// The shared connection with the fewest streams that has room; none if the stream must wait.
    pub(crate) fn shared_with_room(
        &self,
        pool_key: PoolKey,
        conns: &Connections,
    ) -> Option<ConnectionId> {
        let pool = self.clusters.pool(pool_key)?;
        if !pool.pending.is_empty() {
            // Who came first is served first.
            return None;
        }
        let roomy = pool.shared.iter().filter_map(|id| {
            let connection = conns.table.get(*id)?;
            (connection.capacity() > 0).then(|| (connection.streams.len(), *id))
        });
        roomy.min_by_key(|(streams, _)| *streams).map(|(_, id)| id)
    }

    /// A lease for a stream of a cluster that speaks Bolt.
    pub(crate) fn lease_shared(
        &mut self,
        wish: Wish,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> Lease {
        match self.shared_with_room(pool_key, conns) {
            Some(id) => Lease::Ready(id),
            None => self.enqueue(wish, pool_key, conns, env, now),
        }
    }

    /// Whether a host has as many shared connections as it may have, those under way included.
    pub(crate) fn has_all_shared(&self, pool_key: PoolKey, conns: &Connections) -> bool {
        let Some(cluster) = self.clusters.get(pool_key.cluster) else { return true };
        let (Some(bolt), Some(pool)) = (&cluster.config.bolt, cluster.pool(pool_key)) else {
            return false;
        };
        let live =
            |id: &&ConnectionId| conns.table.get(**id).is_some_and(Connection::takes_streams);
        let count = pool.shared.iter().filter(live).count() + pool.connecting as usize;
        count >= bolt.connections_per_host as usize
    }

    /// Starts the idle timeout of a shared connection without calls.
    pub(crate) fn rest_shared(
        &mut self,
        id: ConnectionId,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let idle =
            self.clusters.get(pool_key.cluster).and_then(|cluster| cluster.config.idle_timeout);
        let Some(connection) = conns.table.get_mut(id) else { return };
        connection.rested = now;
        if let Some(idle) = idle {
            let slot = TimerSlot::of_connection(id);
            connection.deadlines.set(
                ConnectionTimer::Idle as usize,
                now + idle,
                slot,
                &mut env.timers,
            );
        }
    }

    /// The host of a pool is gone: shared connections end with their last call.
    pub(crate) fn retire_shared_of(
        &mut self,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let shared =
            self.clusters.pool(pool_key).map(|pool| pool.shared.clone()).unwrap_or_default();
        for id in shared {
            let Some(connection) = conns.table.get_mut(id) else { continue };
            let busy = connection.is_busy();
            if let Some(upstream) = connection.upstream_mut() {
                upstream.retired = true;
            }
            if !busy {
                self.close_upstream(id, Close::Flush, conns, env, now);
            }
        }
    }

    /// Starts to look after a shared connection.
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
