//! A connection that can carry another stream, and the stream that gets it.

use towpath_proto::{Close, ConnectionId, Instant};

use crate::exchange::Exchange;
use crate::exchange::stream::UpstreamState;
use crate::exchange::tunnel::Passage;
use crate::ids::{PoolKey, ResetReason, StreamIndex};
use crate::upstream::cluster::Resource;

/// What became of the connection that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    /// It has all the streams that it is to have, rests, or is gone.
    Done,
    /// A stream got it, or was refused by a circuit breaker: the next one.
    Again,
}

impl Exchange {
    /// A connection may have room for further streams: those that wait for one come in.
    pub(crate) fn offer(&mut self, id: ConnectionId, now: Instant) {
        while self.offer_once(id, now) == Offer::Again {}
    }

    fn offer_once(&mut self, id: ConnectionId, now: Instant) -> Offer {
        let next = self.next_for(id);
        let Some(connection) = self.conns.table.get_mut(id) else { return Offer::Done };
        let (busy, room) = (connection.is_busy(), connection.capacity() > 0);
        let takes = connection.takes_streams();
        let Some(upstream) = connection.upstream() else { return Offer::Done };
        let pool_key = upstream.pool_key;
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else {
            return Offer::Done;
        };
        let idle_timeout = cluster.config.idle_timeout;
        let races = cluster.races;
        let Some(pool) = cluster.pool_mut(pool_key) else { return Offer::Done };
        // Streams that waited when its host was left out are served all the same.
        if !takes || (pool.host.is_none() && pool.pending.is_empty()) {
            pool.unlist(connection);
            if !busy {
                self.close_upstream(id, Close::Flush, now);
            }
            return Offer::Done;
        }
        if races && !connection.mux.is_alone() {
            // Its SETTINGS may have come since it was made.
            pool.carries = Some(connection.mux.capacity() + connection.streams.len());
        }
        let streams = &self.streams;
        let is_unknown = |waiting: &StreamIndex| {
            let stream = streams.get(*waiting);
            stream.is_some_and(|stream| stream.passage(connection) == Passage::Unknown)
        };
        let awaits_settings = pool.pending.iter().any(is_unknown);
        if room && let Some(next) = next {
            let next = pool.pending.remove(next);
            cluster.left_queue(pool_key);
            if let Some(next) = next {
                self.give_room(next, id, pool_key, now);
            }
            return Offer::Again;
        }
        if awaits_settings {
            if room {
                pool.list(connection);
            }
            self.bound_settings(id, now);
            return Offer::Done;
        }
        let alone = connection.mux.is_alone();
        if room && !busy && alone && !pool.pending.is_empty() && pool.connecting == 0 {
            // At its limit the pool makes room for the fresh connection that is waited for.
            self.close_upstream(id, Close::Flush, now);
            return Offer::Done;
        }
        if room {
            pool.list(connection);
        }
        if busy {
            return Offer::Done;
        }
        pool.rest(connection, idle_timeout, &mut self.env, now);
        self.upstreams.limit_idle(pool_key.cluster, &mut self.conns, &mut self.env, now);
        Offer::Done
    }

    /// Which of the streams that wait a connection is for, in their pool's order.
    fn next_for(&self, id: ConnectionId) -> Option<usize> {
        let connection = self.conns.table.get(id)?;
        let upstream = connection.upstream()?;
        let cluster = self.upstreams.clusters.get(upstream.pool_key.cluster)?;
        let pending = &cluster.pool(upstream.pool_key)?.pending;
        pending.iter().position(|&waiting| {
            let Some(stream) = self.streams.get(waiting) else { return true };
            let after = || cluster.races.then(|| self.fresh_after(waiting));
            let serves = upstream.requests == 0
                || !stream.retries.wants_fresh
                || connection.suits(false, after());
            serves && stream.passage(connection) != Passage::Unknown
        })
    }

    /// A stream that has waited gets a connection, unless another one has become its own, its time has passed, or too
    /// many have one.
    fn give_room(&mut self, next: StreamIndex, id: ConnectionId, pool_key: PoolKey, now: Instant) {
        let Some(next) = self.takes_standby(next, now) else { return };
        if self.is_unconnected(next, now) {
            return self.fail_unconnected(next, now);
        }
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else { return };
        if !cluster.is_full(pool_key, Resource::Requests) {
            return self.attach(next, id, now);
        }
        cluster.stats.upstream_rq_active_overflow.inc();
        if let Some(stream) = self.streams.get_mut(next) {
            stream.upstream = UpstreamState::None;
        }
        self.reset_upstream(next, ResetReason::Overflow, now);
    }
}
