//! All clusters of a worker, and their pools by key.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_proto::tls::Fault;

use crate::ids::{PoolKey, Priority};
use crate::message::ClusterDescription;
use crate::snapshot::ClusterId;
use crate::snapshot::cluster::Endpoint;
use crate::snapshot::health::ClusterHealth;
use crate::upstream::cluster::ClusterState;
use crate::upstream::local_cluster::LocalCluster;
use crate::upstream::pool::Pool;

/// All clusters of a worker, by [`ClusterId`].
#[derive(Debug, Default)]
pub(crate) struct Clusters {
    pub(crate) slots: Vec<Option<Box<ClusterState>>>,
    /// Those that requests had made, whose ids no snapshot has.
    subs: HashMap<ClusterId, Box<ClusterState>>,
    /// What was found out about hosts of clusters that are still to come.
    pub(crate) early_health: HashMap<ClusterId, Arc<ClusterHealth>>,
    /// Whose hosts decide which requests stay in this proxy's zone.
    pub(crate) local: Option<LocalCluster>,
}

impl Clusters {
    pub(crate) fn get(&self, id: ClusterId) -> Option<&ClusterState> {
        match self.slots.get(id.0 as usize) {
            Some(slot) => slot.as_deref(),
            None => self.subs.get(&id).map(|sub| &**sub),
        }
    }

    pub(crate) fn get_mut(&mut self, id: ClusterId) -> Option<&mut ClusterState> {
        match self.slots.get_mut(id.0 as usize) {
            Some(slot) => slot.as_deref_mut(),
            None => self.subs.get_mut(&id).map(|sub| &mut **sub),
        }
    }

    pub(crate) fn pool(&self, pool_key: PoolKey) -> Option<&Pool> {
        self.get(pool_key.cluster)?.pool(pool_key)
    }

    /// What is configured of the host of a pool.
    pub(crate) fn endpoint(&self, id: ClusterId, pool: &Pool) -> Option<&Endpoint> {
        let host = self.get(id)?.hosts.get(pool.host? as usize)?;
        Some(&host.endpoint)
    }

    /// TLS has failed on a connection of a pool.
    pub(crate) fn count_fault(&self, pool_key: PoolKey, fault: Fault) {
        let cluster = self.get(pool_key.cluster);
        if let Some(tls) = cluster.and_then(|cluster| cluster.tls_of(pool_key)) {
            tls.stats.count_fault(fault);
        }
    }

    pub(crate) fn pool_mut(&mut self, pool_key: PoolKey) -> Option<&mut Pool> {
        self.get_mut(pool_key.cluster)?.pool_mut(pool_key)
    }

    /// Frees the pool of a host that is gone, once nothing hangs on it, and with the last one a cluster that is gone.
    pub(crate) fn drop_if_unused(&mut self, pool_key: PoolKey) {
        let Some(cluster) = self.get_mut(pool_key.cluster) else { return };
        cluster.drop_if_unused(pool_key);
        if cluster.leaves {
            self.drop_if_left(pool_key.cluster);
        }
    }

    /// A retry is over. While it waits its host may go, and its pool with it; its cluster stays.
    pub(crate) fn retry_over(&mut self, id: ClusterId, priority: Priority) {
        let Some(cluster) = self.get_mut(id) else { return };
        cluster.retry_over(priority);
        self.drop_if_left(id);
    }

    pub(crate) fn drop_if_left(&mut self, id: ClusterId) {
        if self.get(id).is_some_and(ClusterState::is_left) {
            self.put(id, None);
        }
    }

    pub(crate) fn describe(&self) -> Vec<ClusterDescription> {
        let all = self.slots.iter().flatten().chain(self.subs.values());
        all.map(|cluster| cluster.describe()).collect()
    }

    pub(crate) fn put(
        &mut self,
        id: ClusterId,
        cluster: Option<Box<ClusterState>>,
    ) -> Option<Box<ClusterState>> {
        if id.is_sub() {
            return match cluster {
                Some(cluster) => self.subs.insert(id, cluster),
                None => self.subs.remove(&id),
            };
        }
        let index = id.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        std::mem::replace(&mut self.slots[index], cluster)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}
