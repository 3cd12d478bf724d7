//! What is counted of a part of a cluster's requests: of those that go from this proxy's zone to that of their host,
//! zone by zone, and of those that canaries have answered.

use std::sync::Arc;

use crate::env::Env;
use crate::ids::PoolKey;
use crate::snapshot::Cluster;
use crate::stats::{PartStats, Registry, Scope};
use crate::upstream::cluster::ClusterState;
use crate::upstream::pool::Pool;

/// The counters of a cluster's zones, as many as its hosts are in.
#[derive(Debug)]
pub(crate) struct ZoneBooks {
    registry: Arc<Registry>,
    worker: u32,
    cluster: Arc<str>,
    from: Arc<str>,
    open: Vec<(Box<str>, Arc<Zone>)>,
}

/// A zone as requests to it are counted.
#[derive(Debug)]
pub(crate) struct Zone {
    /// `zone.<ours>.<the host's>`
    pub(crate) name: Arc<str>,
    pub(crate) stats: Arc<PartStats>,
}

impl ZoneBooks {
    /// Those of a cluster, if this proxy is in a zone.
    pub(crate) fn of(config: &Cluster, registry: &Arc<Registry>, worker: u32) -> Option<Box<Self>> {
        let from = Arc::clone(config.own_zone.as_ref()?);
        let (registry, cluster) = (Arc::clone(registry), Arc::clone(&config.stat_name));
        Some(Box::new(Self { registry, worker, cluster, from, open: Vec::new() }))
    }

    /// Where requests to hosts of a locality (`region/zone/sub_zone`) are counted, if that has a zone.
    pub(crate) fn to(&mut self, locality: &str) -> Option<Arc<Zone>> {
        let zone = locality.split('/').nth(1).filter(|zone| !zone.is_empty())?;
        if let Some((_, open)) = self.open.iter().find(|(known, _)| **known == *zone) {
            return Some(Arc::clone(open));
        }
        let name: Arc<str> = Arc::from(format!("zone.{}.{zone}", self.from));
        let (cluster, part) = (Arc::clone(&self.cluster), Arc::clone(&name));
        let stats = self.registry.set(self.worker, Scope::ClusterPart { cluster, name: part });
        let open = Arc::new(Zone { name, stats });
        self.open.push((Box::from(zone), Arc::clone(&open)));
        Some(open)
    }
}

impl ClusterState {
    /// Where requests to the host of a pool are counted by zones.
    #[inline]
    pub(crate) fn zone_of(&self, pool_key: Option<PoolKey>) -> Option<&Zone> {
        self.zone_books.as_ref()?;
        self.own_pool(pool_key)?.zone.as_deref()
    }

    /// Whether the host of a pool is a canary.
    #[inline]
    pub(crate) fn is_canary(&self, pool_key: Option<PoolKey>) -> bool {
        self.has_canaries && self.own_pool(pool_key).is_some_and(|pool| pool.is_canary)
    }

    /// Counts the answer of a canary, and how many milliseconds it `took` where that is known.
    #[cold]
    pub(crate) fn count_canary(&mut self, status: u16, took: Option<u64>, env: &Env) {
        let cluster = &self.config.stat_name;
        let stats = self.canary_stats.get_or_insert_with(|| {
            let (cluster, name) = (Arc::clone(cluster), Arc::from("canary"));
            env.registry.set(env.index, Scope::ClusterPart { cluster, name })
        });
        stats.count(status, took);
    }

    /// Those of an aggregate are its own clusters'.
    #[inline]
    fn own_pool(&self, pool_key: Option<PoolKey>) -> Option<&Pool> {
        self.pool(pool_key.filter(|pool_key| pool_key.cluster == self.id)?)
    }
}
