//! A connection that can carry another stream, and the stream that gets it.

use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::ConnectionTimer;
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::exchange::stream::UpstreamState;
use crate::ids::{ResetReason, StreamIndex};
use crate::upstream::cluster::Resource;
use crate::upstream::pool::PEER_IDLE_MARGIN;

/// What became of the connection that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It has a stream, rests, or is gone.
    Done,
    /// Who waited for it was refused by a circuit breaker: the next one.
    Refused,
}

impl Exchange {
    /// A connection has no stream any more and can carry another.
    pub(crate) fn offer(&mut self, id: ConnectionId, now: Instant) {
        if self.conns.table.get(id).is_some_and(|connection| !connection.mux.is_alone()) {
            self.offer_shared(id, now);
            return;
        }
        while self.offer_once(id, now) == Offer::Refused {}
    }

    pub(crate) fn offer_once(&mut self, id: ConnectionId, now: Instant) -> Offer {
        let Some(connection) = self.conns.table.get_mut(id) else { return Offer::Done };
        let Some(upstream) = connection.upstream() else { return Offer::Done };
        let (pool_key, retired) = (upstream.pool_key, upstream.retired || connection.ended);
        let used = upstream.requests > 0;
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else {
            return Offer::Done;
        };
        let idle_timeout = cluster.config.idle_timeout;
        let Some(pool) = cluster.pool_mut(pool_key) else { return Offer::Done };
        // Streams that waited when its host was left out are served all the same.
        if retired || (pool.host.is_none() && pool.pending.is_empty()) {
            self.upstreams.close_upstream(id, Close::Flush, &mut self.conns, &mut self.env, now);
            return Offer::Done;
        }
        let streams = &self.streams;
        let suits = |waiting: &StreamIndex| {
            !used || streams.get(*waiting).is_none_or(|stream| !stream.retries.wants_fresh)
        };
        if let Some(next) = pool.pending.iter().position(suits) {
            let next = pool.pending.remove(next);
            cluster.left_queue(pool_key);
            let Some(next) = next else { return Offer::Done };
            let Some(next) = self.takes_standby(next, now) else { return Offer::Refused };
            let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else {
                return Offer::Done;
            };
            if !cluster.is_full(pool_key, Resource::Requests) {
                self.attach(next, id, now);
                return Offer::Done;
            }
            cluster.stats.upstream_rq_active_overflow.inc();
            if let Some(stream) = self.streams.get_mut(next) {
                stream.upstream = UpstreamState::None;
            }
            self.reset_upstream(next, ResetReason::Overflow, now);
            return Offer::Refused;
        }
        if !pool.pending.is_empty() && pool.connecting == 0 {
            // At its limit the pool makes room for the fresh connection that is waited for.
            self.upstreams.close_upstream(id, Close::Flush, &mut self.conns, &mut self.env, now);
            return Offer::Done;
        }
        pool.idle.push(id);
        let limit =
            [idle_timeout, pool.peer_idle.map(|idle| idle.saturating_sub(PEER_IDLE_MARGIN))];
        if let Some(limit) = limit.into_iter().flatten().min() {
            let slot = TimerSlot::of_connection(id);
            connection.deadlines.set(
                ConnectionTimer::Idle as usize,
                now + limit,
                slot,
                &mut self.env.timers,
            );
        }
        self.upstreams.limit_idle(pool_key.cluster, &mut self.conns, &mut self.env, now);
        Offer::Done
    }
}
