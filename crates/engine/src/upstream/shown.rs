//! What is shown of a cluster's hosts: how many there are, how its hash table is filled, which sockets they got.
//!
//! All workers have the same hosts and readers add up, so one worker shows them for all.

use std::sync::Arc;

use crate::balancer::membership;
use crate::message::{ClusterDescription, HostCounts, HostDescription};
use crate::snapshot::Cluster;
use crate::snapshot::cluster::{Balancer as Policy, Endpoint};
use crate::stats::{MaglevStats, Registry, RingStats, Scope, SocketMatchStats};
use crate::upstream::cluster::ClusterState;

/// What the worker that shows a cluster's hosts writes beside the cluster's own statistics.
#[derive(Debug)]
pub(crate) struct Shown {
    table: Option<TableStats>,
    matches: SocketMatches,
}

/// Counts which sockets were chosen.
#[derive(Debug)]
pub(crate) struct SocketMatches {
    /// By the numbers of the cluster's sockets; the last is for hosts without one of their own.
    of: Box<[Arc<SocketMatchStats>]>,
}

impl SocketMatches {
    pub(crate) fn of(config: &Cluster, registry: &Registry, worker: u32) -> Self {
        let default = Arc::from("default");
        let names = config.socket_names.iter().chain(std::iter::once(&default));
        let of = names.map(|name| {
            let (cluster, name) = (Arc::clone(&config.stat_name), Arc::clone(name));
            registry.set(worker, Scope::ClusterPart { cluster, name })
        });
        Self { of: of.collect() }
    }

    /// The same where a socket is chosen for each connection.
    pub(crate) fn of_state(
        config: &Cluster,
        registry: &Registry,
        worker: u32,
    ) -> Option<Box<Self>> {
        config.chooses_by_state().map(|_| Box::new(Self::of(config, registry, worker)))
    }

    pub(crate) fn count(&self, socket: Option<u16>) {
        let at = socket.map_or(usize::MAX, usize::from);
        if let Some(stats) = self.of.get(at).or_else(|| self.of.last()) {
            stats.total_match_count.inc();
        }
    }
}

#[derive(Debug)]
enum TableStats {
    Ring(Arc<RingStats>),
    Maglev(Arc<MaglevStats>),
}

impl Shown {
    pub(crate) fn of(config: &Cluster, registry: &Registry, worker: u32) -> Self {
        let name = || Arc::clone(&config.stat_name);
        let table = match config.balancing.policy {
            Policy::RingHash { .. } => {
                Some(TableStats::Ring(registry.set(worker, Scope::ClusterRing(name()))))
            }
            Policy::Maglev { .. } => {
                Some(TableStats::Maglev(registry.set(worker, Scope::ClusterMaglev(name()))))
            }
            Policy::RoundRobin | Policy::LeastRequest { .. } | Policy::Random => None,
        };
        Self { table, matches: SocketMatches::of(config, registry, worker) }
    }

    /// Counts which sockets hosts got.
    pub(crate) fn count_matches(&self, endpoints: &[Endpoint]) {
        endpoints.iter().for_each(|endpoint| self.matches.count(endpoint.socket));
    }
}

impl ClusterState {
    pub(crate) fn describe(&self) -> ClusterDescription {
        let hosts = self.hosts.iter().zip(&self.pools_of).map(|(host, pools)| {
            let pools = pools.iter().filter_map(|pool| self.pools.get(pool as usize)?.as_ref());
            let mut counts = HostCounts::default();
            for pool in pools {
                counts += pool.counted();
            }
            let endpoint = host.endpoint.clone();
            HostDescription { endpoint, health_flags: host.health_flags, counts }
        });
        let (name, dropped) = (Arc::clone(&self.config.name), self.dropped);
        ClusterDescription { name, hosts: hosts.collect(), dropped }
    }

    /// Shows its hosts.
    pub(crate) fn show_hosts(&self) {
        let stats = &*self.stats;
        if self.config.shows_weights {
            let heaviest = self.hosts.iter().map(|host| host.endpoint.weight).max();
            stats.max_host_weight.set(heaviest.unwrap_or(0).into());
        }
        let (total, healthy, degraded) = membership(&self.hosts);
        stats.membership_total.set(total as u64);
        stats.membership_healthy.set(healthy as u64);
        stats.membership_degraded.set(degraded as u64);
        let excluded = self.hosts.iter().filter(|host| host.is_excluded()).count();
        stats.membership_excluded.set(excluded as u64);
        if self.config.tracks.endpoints {
            self.show_health_of_hosts();
        }
        let table = self.shown.as_ref().and_then(|shown| shown.table.as_ref());
        let Some((table, size)) = table.zip(self.balancer.table_size()) else { return };
        match table {
            TableStats::Ring(stats) => {
                stats.size.set(size.all);
                stats.min_hashes_per_host.set(size.least);
                stats.max_hashes_per_host.set(size.most);
            }
            TableStats::Maglev(stats) => {
                stats.min_entries_per_host.set(size.least);
                stats.max_entries_per_host.set(size.most);
            }
        }
    }
}
