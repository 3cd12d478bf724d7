//! Clusters, their pools, connects under way, and the connections that lie in pools.
//!
//! Nothing here knows of streams but their index: what a pool is asked is a [`Wish`](pool::Wish), what it answers a
//! [`Lease`](pool::Lease).

pub(crate) mod aggregate;
pub(crate) mod asked;
pub(crate) mod avoided;
pub(crate) mod cluster;
pub(crate) mod clusters;
pub(crate) mod connect;
pub(crate) mod destinations;
pub(crate) mod flush;
pub(crate) mod host_pools;
mod hosts;
pub(crate) mod liveness;
pub(crate) mod local_cluster;
pub(crate) mod named;
pub(crate) mod origin;
pub(crate) mod passive_health;
pub(crate) mod pool;
pub(crate) mod protocol;
mod rounds;
pub(crate) mod shown;
pub(crate) mod subsets;
pub(crate) mod tracked;
mod wanted;
mod weighing;
pub(crate) mod wishes;
mod zone_books;

use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::Connections;
use crate::conn::context::ChainKind;
use crate::env::{Env, TimerSlot};
use crate::ids::PoolKey;
use crate::local::Local;
use crate::upstream::cluster::Resource;
use crate::upstream::clusters::Clusters;
use crate::upstream::connect::Attempts;
use crate::upstream::flush::Flushes;

/// The clusters, their pools, and connects under way.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    pub(crate) clusters: Clusters,
    pub(crate) attempts: Attempts,
    /// Connections whose clients are gone and whose last bytes are on their way.
    pub(crate) flushes: Flushes,
    /// What the app in this process asks for, and its origins, whose connects are raced.
    pub(crate) app: Box<Local>,
}

impl Upstreams {
    /// Ends an upstream connection that carries no stream.
    pub(crate) fn close_upstream(
        &mut self,
        id: ConnectionId,
        how: Close,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let gone = conns.table.get(id).is_none_or(|connection| connection.gone);
        if how == Close::Flush && !gone {
            conns.send_close_notify(id, env);
        }
        self.forget_upstream(id, conns, env, now);
        if !gone {
            conns.push(towpath_proto::Output::Close { connection: id, how }, env);
        }
    }

    /// Takes an upstream connection off the books; if streams wait, another one is opened.
    pub(crate) fn forget_upstream(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(mut connection) = conns.table.remove(id) else { return };
        debug_assert!(!connection.is_busy(), "a stream leaves its connection first");
        env.timers.clear(TimerSlot::of_connection(id));
        self.flushes.end(id);
        let Some(pool_key) = connection.upstream().map(|upstream| upstream.pool_key) else {
            return;
        };
        if connection.contact().is_some_and(|contact| contact.asked.is_some()) {
            self.end_hold(pool_key.cluster);
        }
        let Some(cluster) = self.clusters.get_mut(pool_key.cluster) else { return };
        cluster.give(pool_key, Resource::Connections);
        let stats = &cluster.stats;
        stats.upstream_cx_active.dec();
        stats.upstream_cx_destroy.inc();
        if connection.is_ended_by_peer() {
            stats.upstream_cx_destroy_remote.inc();
        } else {
            stats.upstream_cx_destroy_local.inc();
        }
        stats
            .upstream_cx_length_ms
            .record(u64::try_from((now - connection.opened).as_millis()).unwrap_or(u64::MAX));
        if let Some(upstream) = connection.upstream() {
            stats.upstream_rq_per_cx.record(upstream.requests.into());
        }
        stats.upstream_cx_close_notify.add(connection.mux.close_notices().into());
        stats.upstream_cx_rx_bytes_total.add(connection.bytes_received);
        stats.upstream_cx_tx_bytes_total.add(connection.plain_sent());
        stats.upstream_cx_tx_bytes_buffered.sub(connection.shown_buffered.into());
        let Some(pool) = cluster.pool_mut(pool_key) else { return };
        pool.connections -= 1;
        pool.unlist(&mut connection);
        if let Some(at) = pool.open.iter().rposition(|open| *open == id) {
            pool.open.swap_remove(at);
        }
        pool.show();
        let is_unused = pool.is_unused();
        let has_pending = !pool.pending.is_empty();
        cluster.settle_pool(pool_key);
        if is_unused {
            self.clusters.drop_if_unused(pool_key);
        } else if has_pending {
            self.open_for_pending(pool_key, conns, env, now);
        }
    }

    pub(crate) fn cluster_of(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
    ) -> Option<&mut cluster::ClusterState> {
        let pool_key = conns.table.get(id)?.upstream()?.pool_key;
        self.clusters.get_mut(pool_key.cluster)
    }

    /// The server let an idle connection go: others are not trusted for longer than that.
    pub(crate) fn learn_peer_idle(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        now: Instant,
    ) {
        let Some(connection) = conns.table.get(id) else { return };
        let idle = connection.idle_since(now);
        let Some(pool_key) = connection.upstream().map(|upstream| upstream.pool_key) else {
            return;
        };
        if let Some(pool) = self.clusters.pool_mut(pool_key) {
            pool.learn_idle(idle);
        }
    }
}

/// What happens when one side is slower than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Congestion {
    /// More waits to go out than the watermark.
    BackedUp,
    /// Half of that has left.
    Drained,
    /// Reading stops.
    Paused,
    /// Reading goes on.
    Resumed,
}

impl Upstreams {
    /// Shows what waits to leave a congested connection, in `…_cx_tx_bytes_buffered`; of others nothing.
    pub(crate) fn show_buffered(&mut self, id: ConnectionId, conns: &mut Connections) {
        let Some(connection) = conns.table.get_mut(id) else { return };
        let buffered = if connection.congested { connection.outstanding } else { 0 };
        let buffered = u32::try_from(buffered).unwrap_or(u32::MAX);
        let shown = std::mem::replace(&mut connection.shown_buffered, buffered);
        let gauge = match (connection.upstream(), connection.client()) {
            (Some(upstream), _) => self
                .clusters
                .get(upstream.pool_key.cluster)
                .map(|cluster| &cluster.stats.upstream_cx_tx_bytes_buffered),
            (None, Some(downstream)) => match &downstream.context.kind {
                ChainKind::Http(http) => Some(&http.stats.downstream_cx_tx_bytes_buffered),
                ChainKind::Tcp(tcp) => Some(&tcp.stats.downstream_cx_tx_bytes_buffered),
                ChainKind::Answer(_) | ChainKind::Local => None,
            },
            (None, None) => None,
        };
        if let Some(gauge) = gauge {
            gauge.sub(shown.into());
            gauge.add(buffered.into());
        }
    }

    /// Envoy's flow-control counters.
    pub(crate) fn count_congestion(
        &mut self,
        id: ConnectionId,
        event: Congestion,
        conns: &mut Connections,
    ) {
        let Some(connection) = conns.table.get(id) else { return };
        if let Some(upstream) = connection.upstream() {
            let Some(cluster) = self.clusters.get(upstream.pool_key.cluster) else { return };
            match event {
                Congestion::BackedUp => cluster.stats.upstream_flow_control_backed_up_total.inc(),
                Congestion::Drained => cluster.stats.upstream_flow_control_drained_total.inc(),
                Congestion::Paused => {
                    cluster.stats.upstream_flow_control_paused_reading_total.inc()
                }
                Congestion::Resumed => {
                    cluster.stats.upstream_flow_control_resumed_reading_total.inc()
                }
            }
            return;
        }
        let Some(downstream) = connection.downstream() else { return };
        match (&downstream.context.kind, event) {
            (ChainKind::Http(http), Congestion::Paused) => {
                http.stats.downstream_flow_control_paused_reading_total.inc();
            }
            (ChainKind::Http(http), Congestion::Resumed) => {
                http.stats.downstream_flow_control_resumed_reading_total.inc();
            }
            (ChainKind::Tcp(tcp), Congestion::Paused) => {
                tcp.stats.downstream_flow_control_paused_reading_total.inc();
            }
            (ChainKind::Tcp(tcp), Congestion::Resumed) => {
                tcp.stats.downstream_flow_control_resumed_reading_total.inc();
            }
            (_, Congestion::BackedUp | Congestion::Drained)
            | (ChainKind::Answer(_) | ChainKind::Local, _) => {}
        }
    }
}

impl Upstreams {
    pub(crate) fn count_retry_success(&self, pool_key: PoolKey) {
        if let Some(cluster) = self.clusters.get(pool_key.cluster) {
            cluster.stats.upstream_rq_retry_success.inc();
        }
    }
}
