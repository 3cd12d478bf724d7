//! The local cluster: the proxies that share their hosts with this one. Envoy: `local_cluster_name`.
//!
//! Arrives: other hosts of it, or other health. Leaves: what the balancers of all other clusters know of them.

use std::sync::Arc;

use crate::balancer::{Balancer, LocalHosts, ZoneSetup};
use crate::env::Env;
use crate::snapshot::ClusterId;
use crate::stats::Scope;
use crate::upstream::cluster::ClusterState;
use crate::upstream::clusters::Clusters;
use crate::upstream::subsets::LiveSubsets;

/// What clusters follow.
#[derive(Debug)]
pub(crate) struct LocalCluster {
    id: ClusterId,
    /// Where this proxy is.
    own: Option<Arc<str>>,
    /// [`Balancer::stamp`] of what they know; 0 where they are to be told anew.
    stamp: u64,
}

impl ClusterState {
    /// Makes its balancers anew, without hosts.
    pub(crate) fn begin_balancers(&mut self, env: &Env) {
        let config = Arc::clone(&self.config);
        let zones = config.zones.as_ref().map(|zones| {
            let scope = Scope::ClusterZones(Arc::clone(&config.stat_name));
            let stats = env.registry.set(env.index, scope);
            ZoneSetup { config: Arc::clone(zones), stats, local: Arc::default() }
        });
        self.balancer = Balancer::new(config.balancing).with_zones(zones.as_ref());
        // Those of before have left the gauge when these are made.
        self.subsets = None;
        self.subsets = LiveSubsets::of(&config, zones, env);
    }
}

impl Clusters {
    /// Other clusters are there, or others of those follow.
    pub(crate) fn find_local(&mut self) {
        let zones = self.slots.iter().flatten().find_map(|cluster| cluster.config.zones.as_ref());
        self.local = zones.map(|zones| LocalCluster {
            id: zones.local,
            own: zones.locality.clone(),
            stamp: 0,
        });
        self.follow_local();
    }

    /// Tells the clusters that follow of the local one's hosts, where these have changed.
    pub(crate) fn follow_local(&mut self) {
        let Some(local) = &self.local else { return };
        let cluster = self.get(local.id);
        let stamp = cluster.map_or(0, |cluster| cluster.balancer.stamp());
        if stamp == local.stamp && stamp != 0 {
            return;
        }
        let hosts = cluster.map_or(&[][..], |cluster| &cluster.hosts);
        let hosts = Arc::new(LocalHosts::of(hosts, local.own.as_deref()));
        if let Some(local) = &mut self.local {
            local.stamp = stamp;
        }
        for cluster in self.slots.iter_mut().flatten().filter(|it| it.config.zones.is_some()) {
            cluster.balancer.follow(&hosts);
            if let Some(subsets) = &mut cluster.subsets {
                subsets.follow(&hosts);
            }
        }
    }
}
