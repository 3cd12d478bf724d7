//! Requests that go from this proxy's zone to that of their host: what is counted of them, zone by zone.

use std::sync::Arc;

use crate::ids::PoolKey;
use crate::snapshot::Cluster;
use crate::stats::{Registry, Scope, ZonePairStats};
use crate::upstream::cluster::ClusterState;

/// The counters of a cluster's zones, as many as its hosts are in.
#[derive(Debug)]
pub(crate) struct ZoneBooks {
    registry: Arc<Registry>,
    worker: u32,
    cluster: Arc<str>,
    from: Arc<str>,
    open: Vec<(Box<str>, Arc<ZonePairStats>)>,
}

impl ZoneBooks {
    /// Those of a cluster, if this proxy is in a zone.
    pub(crate) fn of(config: &Cluster, registry: &Arc<Registry>, worker: u32) -> Option<Box<Self>> {
        let from = Arc::clone(config.own_zone.as_ref()?);
        let (registry, cluster) = (Arc::clone(registry), Arc::clone(&config.stat_name));
        Some(Box::new(Self { registry, worker, cluster, from, open: Vec::new() }))
    }

    /// Where requests to hosts of a locality (`region/zone/sub_zone`) are counted, if that has a zone.
    pub(crate) fn to(&mut self, locality: &str) -> Option<Arc<ZonePairStats>> {
        let zone = locality.split('/').nth(1).filter(|zone| !zone.is_empty())?;
        if let Some((_, stats)) = self.open.iter().find(|(known, _)| **known == *zone) {
            return Some(Arc::clone(stats));
        }
        let name = Arc::from(format!("zone.{}.{zone}", self.from));
        let scope = Scope::ClusterPart { cluster: Arc::clone(&self.cluster), name };
        let stats: Arc<ZonePairStats> = self.registry.set(self.worker, scope);
        self.open.push((Box::from(zone), Arc::clone(&stats)));
        Some(stats)
    }
}

impl ClusterState {
    /// Where requests to the host of a pool are counted by zones.
    #[inline]
    pub(crate) fn zone_of(&self, pool_key: Option<PoolKey>) -> Option<&ZonePairStats> {
        self.zone_books.as_ref()?;
        // Those of an aggregate are its own clusters'.
        let pool_key = pool_key.filter(|pool_key| pool_key.cluster == self.id)?;
        self.pool(pool_key)?.zone.as_deref()
    }
}
