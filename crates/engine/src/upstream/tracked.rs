//! Where clusters that ask for it count their attempts and their hosts (Envoy `track_cluster_stats`).

use std::rc::Rc;
use std::sync::Arc;

use crate::env::Env;
use crate::ids::PoolKey;
use crate::message::HostCounts;
use crate::snapshot::Cluster;
use crate::snapshot::cluster::Health;
use crate::stats::{BudgetStats, EndpointStats, Registry, Scope, SizeStats};
use crate::upstream::cluster::ClusterState;
use crate::upstream::pool::Pool;

/// What a cluster counts beside.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) budgets: Option<Arc<BudgetStats>>,
    pub(crate) sizes: Option<Arc<SizeStats>>,
    /// Where hosts have their counters, if they do.
    endpoints: Option<Arc<Registry>>,
    cluster: Arc<str>,
    worker: u32,
}

/// The counters of a host, and what a pool has added to them.
#[derive(Debug)]
pub(crate) struct TrackedEndpoint {
    stats: Arc<EndpointStats>,
    shown: HostCounts,
}

impl Tracked {
    /// That of a cluster, if it asks for any.
    pub(crate) fn of(config: &Cluster, env: &Env) -> Option<Rc<Self>> {
        let (tracks, registry, worker) = (config.tracks, &env.registry, env.index);
        if tracks == Default::default() {
            return None;
        }
        let name = || Arc::clone(&config.stat_name);
        Some(Rc::new(Self {
            budgets: tracks
                .timeout_budgets
                .then(|| registry.set(worker, Scope::ClusterBudgets(name()))),
            sizes: tracks.sizes.then(|| registry.set(worker, Scope::ClusterSizes(name()))),
            endpoints: tracks.endpoints.then(|| Arc::clone(registry)),
            cluster: name(),
            worker,
        }))
    }

    /// Whether attempts are measured.
    pub(crate) fn measures(&self) -> bool {
        self.budgets.is_some() || self.sizes.is_some()
    }

    /// Where a pool adds to the counters of its host.
    pub(crate) fn endpoint(&self, pool: &Pool) -> Option<Box<TrackedEndpoint>> {
        let address = Arc::from(String::from_utf8_lossy(&pool.address_text));
        let scope = Scope::ClusterEndpoint { cluster: Arc::clone(&self.cluster), address };
        let stats: Arc<EndpointStats> = self.endpoints.as_ref()?.set(self.worker, scope);
        if self.worker == 0 && !stats.healthy.is_used() {
            stats.healthy.set(1);
        }
        Some(Box::new(TrackedEndpoint { stats, shown: HostCounts::default() }))
    }
}

impl TrackedEndpoint {
    /// Adds what is new. Of several pools each adds its own.
    fn show(&mut self, counts: HostCounts) {
        let (stats, shown) = (&self.stats, std::mem::replace(&mut self.shown, counts));
        stats.cx_connect_fail.add(counts.connect_failures - shown.connect_failures);
        stats.cx_total.add(counts.connections_total - shown.connections_total);
        stats.rq_error.add(counts.requests_error - shown.requests_error);
        stats.rq_success.add(counts.requests_success - shown.requests_success);
        stats.rq_timeout.add(counts.requests_timeout - shown.requests_timeout);
        stats.rq_total.add(counts.requests_total - shown.requests_total);
        for (gauge, shown, now) in [
            (&stats.cx_active, shown.connections_active, counts.connections_active),
            (&stats.rq_active, shown.requests_active, counts.requests_active),
            (&stats.rq_pending_active, shown.requests_pending, counts.requests_pending),
        ] {
            gauge.set((gauge.value() + now).saturating_sub(shown));
        }
    }
}

impl Pool {
    /// Shows what it has, where its host has counters of its own.
    #[inline]
    pub(crate) fn show(&mut self) {
        if self.tracked.is_some() {
            self.show_tracked();
        }
    }

    #[cold]
    fn show_tracked(&mut self) {
        let counts = self.counted();
        if let Some(tracked) = &mut self.tracked {
            tracked.show(counts);
        }
    }
}

impl ClusterState {
    /// Shows what the pool of a host has, where hosts have counters of their own.
    #[inline]
    pub(crate) fn show_pool(&mut self, pool_key: PoolKey) {
        if self.tracked.is_some()
            && let Some(pool) = self.pool_mut(pool_key)
        {
            pool.show();
        }
    }

    /// Gives pools that are there the counters that the configuration wants.
    pub(crate) fn track_pools(&mut self) {
        let tracked = self.tracked.as_ref().filter(|tracked| tracked.endpoints.is_some());
        for pool in self.pools.iter_mut().flatten() {
            match tracked {
                Some(tracked) if pool.tracked.is_none() => pool.tracked = tracked.endpoint(pool),
                Some(_) => {}
                None => pool.tracked = None,
            }
            pool.show();
        }
    }

    /// Shows which hosts are well.
    pub(crate) fn show_health_of_hosts(&self) {
        for (host, pools) in self.hosts.iter().zip(&self.pools_of) {
            for pool in pools.iter() {
                let pool = self.pools.get(pool as usize).and_then(Option::as_ref);
                if let Some(tracked) = pool.and_then(|pool| pool.tracked.as_ref()) {
                    tracked.stats.healthy.set((host.health() == Health::Healthy).into());
                }
            }
        }
    }
}
