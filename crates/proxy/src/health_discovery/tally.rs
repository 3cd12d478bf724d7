//! What was found out about the hosts that are checked, and what the server is told of it.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_config::{CheckPlan, CheckedCluster, CheckedLocality};
use towpath_engine::message::{FromMonitor, ToMonitor};
use towpath_engine::snapshot::health::{CheckAnswers, ClusterHealth, HealthFlags};
use towpath_engine::snapshot::{Cluster, ClusterId, Snapshot};
use towpath_proto::Address as Place;

use super::message::{
    ClusterEndpointsHealth, Endpoint, EndpointHealth, EndpointHealthResponse, HealthStatus,
    LocalityEndpointsHealth, Struct,
};
use crate::load_report::message::Address;

/// What is checked, and how it is.
#[derive(Debug, Default)]
pub(super) struct Tally {
    clusters: Vec<CheckedCluster>,
    /// What the clusters that are watched were made from, and as what the monitor knows them.
    watched: HashMap<ClusterId, (u64, Arc<Cluster>)>,
    health: HashMap<ClusterId, Arc<ClusterHealth>>,
    answers: HashMap<ClusterId, Arc<CheckAnswers>>,
}

impl Tally {
    /// Follows a plan. Says what the monitor is to be told; checks of hosts that stay go on.
    pub(super) fn follow(&mut self, plan: CheckPlan) -> Vec<ToMonitor> {
        let CheckPlan { clusters, snapshot, .. } = plan;
        let mut before = std::mem::take(&mut self.watched);
        let mut known = Snapshot { clusters: snapshot.clusters.clone(), ..Snapshot::default() };
        let mut hosts = Vec::new();
        for cluster in &clusters {
            for id in &cluster.checks {
                let slot = known.clusters.get_mut(id.0 as usize).and_then(Option::as_mut);
                let Some(config) = slot else { continue };
                match before.remove(id) {
                    Some((manner, same)) if manner == cluster.manner => {
                        let endpoints = config.endpoints.clone();
                        hosts.push(ToMonitor::Hosts { cluster: *id, endpoints });
                        *config = same;
                    }
                    _ => {
                        self.health.remove(id);
                        self.answers.remove(id);
                    }
                }
                self.watched.insert(*id, (cluster.manner, Arc::clone(config)));
            }
        }
        self.health.retain(|id, _| self.watched.contains_key(id));
        self.answers.retain(|id, _| self.watched.contains_key(id));
        self.clusters = clusters;
        std::iter::once(ToMonitor::Snapshot(Arc::new(known))).chain(hosts).collect()
    }

    /// Takes in what the monitor says. What is not watched any more is of no use.
    pub(super) fn hear(&mut self, news: FromMonitor) {
        match news {
            FromMonitor::Health { cluster, hosts, answers } => {
                if self.watched.contains_key(&cluster) {
                    self.health.insert(cluster, hosts);
                    self.answers.insert(cluster, answers.unwrap_or_default());
                }
            }
            FromMonitor::Log { .. } | FromMonitor::Warm => {}
        }
    }

    /// How all hosts are.
    pub(super) fn report(&self) -> EndpointHealthResponse {
        let clusters: Vec<_> =
            self.clusters.iter().map(|cluster| self.of_cluster(cluster)).collect();
        let localities = clusters.iter().flat_map(|cluster| &cluster.locality_endpoints_health);
        let all = localities.flat_map(|locality| locality.endpoints_health.iter().cloned());
        EndpointHealthResponse {
            endpoints_health: all.collect(),
            cluster_endpoints_health: clusters,
        }
    }

    fn of_cluster(&self, cluster: &CheckedCluster) -> ClusterEndpointsHealth {
        let of_locality = |locality: &CheckedLocality| {
            let hosts = locality.endpoints.iter().map(|host| self.of_host(cluster, host));
            LocalityEndpointsHealth {
                locality: Some(locality.locality.clone()),
                endpoints_health: hosts.collect(),
            }
        };
        ClusterEndpointsHealth {
            cluster_name: cluster.name.clone(),
            locality_endpoints_health: cluster.localities.iter().map(of_locality).collect(),
        }
    }

    fn of_host(&self, cluster: &CheckedCluster, host: &Place) -> EndpointHealth {
        let found = cluster.checks.iter().map(|id| {
            let health = self.health.get(id).and_then(|hosts| hosts.get(host));
            health.copied().unwrap_or(HealthFlags::unchecked(false))
        });
        let answers = cluster.checks.iter().rev();
        let mut answers = answers.filter_map(|id| self.answers.get(id)?.get(host));
        EndpointHealth {
            endpoint: Some(Endpoint { address: Some(Address::of(host)) }),
            health_status: status(found).into(),
            health_metadata: answers.next().copied().map(Struct::of_status),
        }
    }
}

/// What a host's checks come to: well is one whose every check says so. One that is not checked is not.
fn status(mut found: impl Iterator<Item = HealthFlags>) -> HealthStatus {
    let worse = |one: HealthStatus, other: HealthStatus| match (one, other) {
        (HealthStatus::Unhealthy, _) | (_, HealthStatus::Unhealthy) => HealthStatus::Unhealthy,
        (HealthStatus::Timeout, _) | (_, HealthStatus::Timeout) => HealthStatus::Timeout,
        _ => HealthStatus::Healthy,
    };
    let of_check = |flags: HealthFlags| match (flags.failed_check, flags.is_degraded()) {
        (false, false) => HealthStatus::Healthy,
        (true, _) if flags.timed_out => HealthStatus::Timeout,
        (true, _) | (false, true) => HealthStatus::Unhealthy,
    };
    let Some(first) = found.next() else { return HealthStatus::Unhealthy };
    found.fold(of_check(first), |so_far, flags| worse(so_far, of_check(flags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_well_when_every_check_says_so() {
        let well = HealthFlags::WELL;
        let failed = HealthFlags::unchecked(false);
        let late = HealthFlags { timed_out: true, ..failed };
        let degraded = HealthFlags { degraded: true, ..well };
        // A timeout that is not enough to fail.
        let slow = HealthFlags { timed_out: true, ..well };
        let of = |found: &[HealthFlags]| status(found.iter().copied());
        assert_eq!(of(&[]), HealthStatus::Unhealthy);
        assert_eq!(of(&[well]), HealthStatus::Healthy);
        assert_eq!(of(&[slow]), HealthStatus::Healthy);
        assert_eq!(of(&[failed]), HealthStatus::Unhealthy);
        assert_eq!(of(&[degraded]), HealthStatus::Unhealthy);
        assert_eq!(of(&[late]), HealthStatus::Timeout);
        assert_eq!(of(&[well, late]), HealthStatus::Timeout);
        assert_eq!(of(&[failed, well, late]), HealthStatus::Unhealthy);
    }
}
