//! Clusters of another configuration, and what becomes of the streams on the ones before.

use std::sync::Arc;

use towpath_proto::{Close, Instant};

use crate::exchange::Exchange;
use crate::exchange::stream::Stream;
use crate::ids::{PoolKey, ResetReason};
use crate::snapshot::cluster::Endpoint;
use crate::snapshot::health::ClusterHealth;
use crate::snapshot::{Cluster, ClusterId, Snapshot};
use crate::upstream::cluster::ClusterState;
use crate::upstream::shown::Shown;

impl Exchange {
    /// Takes a snapshot's clusters in place of those `before`; those that did not change keep everything.
    ///
    /// Of thousands of clusters a few changed: the others are told by the two snapshots' own lists, which lie in a
    /// row, and what is known of each is not touched.
    pub(crate) fn update_clusters(&mut self, before: &Snapshot, now: Instant) {
        let snapshot = Arc::clone(&self.snapshot);
        let (wanted, before) = (&snapshot.clusters, &before.clusters);
        let place = |cluster: &Option<Arc<Cluster>>| cluster.as_ref().map(Arc::as_ptr);
        let pairs = wanted.iter().zip(before).enumerate();
        let changed = pairs.filter(|(_, (wanted, before))| place(wanted) != place(before));
        let mut follow_another = false;
        let follows = |index: usize| {
            wanted
                .get(index)
                .and_then(Option::as_ref)
                .is_some_and(|cluster| cluster.zones.is_some())
        };
        for (index, _) in changed {
            follow_another |= follows(index);
            self.update_cluster(&snapshot, index, now);
        }
        let both = wanted.len().min(before.len());
        for index in both..wanted.len().max(self.upstreams.clusters.len()) {
            follow_another |= follows(index);
            self.update_cluster(&snapshot, index, now);
        }
        // Of thousands of clusters most changes concern none that follows another.
        if follow_another || self.upstreams.clusters.local.is_some() {
            self.upstreams.clusters.find_local();
        }
    }

    /// Takes one cluster of a new snapshot, or its absence.
    fn update_cluster(&mut self, snapshot: &Snapshot, index: usize, now: Instant) {
        let id = ClusterId(u32::try_from(index).unwrap_or(u32::MAX));
        // Once one asks for it, it stays: recording more than is asked for changes nothing that is seen.
        self.env.reads_records |= snapshot.cluster(id).is_some_and(|it| it.reads_records());
        match (snapshot.cluster(id), self.upstreams.clusters.get(id)) {
            (None, None) => {}
            (Some(wanted), Some(live)) if live.may_become(wanted) => {
                self.replace_cluster(id, wanted, now);
            }
            (None, Some(_)) => self.leave_cluster(id, now),
            (Some(wanted), _) => {
                self.retire_cluster(id, now);
                self.upstreams.open_cluster(id, wanted, &mut self.conns, &mut self.env, now);
            }
        }
    }

    /// Takes another configuration for a cluster: pools of addresses that stay are kept, and connections where they
    /// would be made alike now; the others end with their streams.
    pub(crate) fn replace_cluster(&mut self, id: ClusterId, config: &Arc<Cluster>, now: Instant) {
        let tls = self.conns.cluster_tls(config, &self.env);
        let Some(cluster) = self.upstreams.clusters.get_mut(id) else { return };
        let is_alike = cluster.config.connects_like(config);
        let is_shown = cluster.shown.is_some() && cluster.config.shows_like(config);
        let gone = cluster.reconfigure(Arc::clone(config), tls, &mut self.env, now);
        if self.env.index == 0 {
            cluster.stats.membership_change.inc();
            if !is_shown {
                let shown = Shown::of(config, &self.env.registry, self.env.index);
                cluster.shown = Some(Box::new(shown));
            }
            if let Some(shown) = &cluster.shown {
                shown.count_matches(&config.endpoints);
            }
            cluster.show_hosts();
        }
        let stays = is_alike && !config.ends.on_change;
        let pools = if stays { Vec::new() } else { cluster.pool_keys() };
        for pool in gone {
            self.retire_pool(PoolKey { cluster: id, pool }, now);
        }
        for pool_key in pools {
            self.upstreams.drain_pool(pool_key, &mut self.conns, &mut self.env, now);
        }
    }

    /// A cluster is in no configuration any more: what was on its way to it goes on to its end, and nothing new begins.
    pub(crate) fn leave_cluster(&mut self, id: ClusterId, now: Instant) {
        let Some(cluster) = self.upstreams.clusters.get_mut(id) else { return };
        if std::mem::replace(&mut cluster.leaves, true) {
            return;
        }
        cluster.update(&[], 0, now);
        for pool_key in cluster.pool_keys() {
            self.upstreams.drain_pool(pool_key, &mut self.conns, &mut self.env, now);
            self.upstreams.clusters.drop_if_unused(pool_key);
        }
        self.upstreams.clusters.drop_if_left(id);
    }

    /// Takes the endpoints of a DNS cluster.
    pub(crate) fn update_hosts(&mut self, id: ClusterId, endpoints: &[Endpoint], now: Instant) {
        let Some(cluster) = self.upstreams.clusters.get_mut(id) else { return };
        let gone = cluster.update(endpoints, self.env.random.next(), now);
        if self.env.index == 0 {
            cluster.stats.membership_change.inc();
            if let Some(shown) = &cluster.shown {
                shown.count_matches(endpoints);
            }
            cluster.show_hosts();
        }
        self.upstreams.clusters.follow_local();
        for pool in gone {
            self.retire_pool(PoolKey { cluster: id, pool }, now);
        }
        self.drain_if_asked(id, now);
    }

    /// Where that is asked for, no connection of a cluster whose hosts are others is used for another stream.
    fn drain_if_asked(&mut self, id: ClusterId, now: Instant) {
        let Some(cluster) = self.upstreams.clusters.get(id) else { return };
        if !cluster.config.ends.on_change {
            return;
        }
        for pool_key in cluster.pool_keys() {
            self.upstreams.drain_pool(pool_key, &mut self.conns, &mut self.env, now);
        }
    }

    /// Takes what was found out about the hosts of a cluster.
    pub(crate) fn update_health(
        &mut self,
        id: ClusterId,
        health: Arc<ClusterHealth>,
        now: Instant,
    ) {
        let Self { upstreams, conns, env, .. } = self;
        let fell = upstreams.update_health(id, health, conns, env, now);
        let ends = self.upstreams.clusters.get(id).is_some_and(|it| it.config.ends.on_failure);
        for pool in fell.into_iter().filter(|_| ends) {
            self.cut_opaque(PoolKey { cluster: id, pool }, now);
        }
    }

    /// Ends the opaque bytes to the host of a pool. Tunnels through HTTP go on.
    fn cut_opaque(&mut self, pool_key: PoolKey, now: Instant) {
        let open = self.upstreams.clusters.pool(pool_key).map(|pool| pool.open.clone());
        for id in open.unwrap_or_default() {
            let Some(connection) = self.conns.table.get(id) else { continue };
            for index in connection.streams.all() {
                let is_opaque = |stream: &Stream| {
                    stream.context.tcp().is_some_and(|tcp| tcp.config.tunneling.is_none())
                };
                if self.streams.get(index).is_some_and(is_opaque) {
                    self.close_tcp(index, Close::Flush, now);
                }
            }
        }
    }

    /// A cluster is gone: what waits fails, what is idle is closed, what is busy ends with its stream.
    pub(crate) fn retire_cluster(&mut self, id: ClusterId, now: Instant) {
        let Some(cluster) = self.upstreams.clusters.get_mut(id) else { return };
        let gone = cluster.update(&[], 0, now);
        for pool in gone {
            self.retire_pool(PoolKey { cluster: id, pool }, now);
        }
        let open = self.upstreams.clusters.get(id).map(ClusterState::open_connections);
        for connection in open.unwrap_or_default() {
            self.fail_upstream(connection, ResetReason::ClusterGone, Close::Flush, now);
        }
        for attempt in self.upstreams.attempts.of_cluster(id) {
            self.upstreams.cancel_attempt(attempt, &mut self.conns, &mut self.env);
        }
        self.upstreams.clusters.put(id, None);
    }

    /// The host of a pool is gone: idle connections are closed, the queue moves on.
    pub(crate) fn retire_pool(&mut self, pool_key: PoolKey, now: Instant) {
        self.upstreams.drain_pool(pool_key, &mut self.conns, &mut self.env, now);
        let waiting = self
            .upstreams
            .clusters
            .pool(pool_key)
            .map(|pool| pool.pending.clone())
            .unwrap_or_default();
        for stream in waiting {
            self.upstreams.leave_queue(stream, pool_key);
            self.place_stream(stream, now);
        }
        self.upstreams.clusters.drop_if_unused(pool_key);
    }
}
