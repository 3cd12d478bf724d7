//! Hosts that weigh what they say of their load.
//!
//! Arrives: reports in the answers of hosts. Leaves: other weights, once in a period, for the balancer.

use towpath_proto::{Head, Instant};

use crate::ids::PoolKey;
use crate::load_report::{LoadReport, weights};
use crate::upstream::cluster::ClusterState;
use crate::upstream::clusters::Clusters;

impl ClusterState {
    /// Weighs its hosts, if that was long enough ago.
    #[cold]
    pub(crate) fn weigh_if_due(&mut self, random: u64, now: Instant) {
        if self.weigh_at.is_some_and(|at| at <= now) && self.weigh(now) {
            self.rebuild_balancer(random, now);
        }
    }

    /// Its hosts are others. Those that it begins with weigh what is written of them until the first period is over.
    pub(crate) fn weigh_others(&mut self, now: Instant) {
        let Some(reports) = self.config.load_reports.clone() else {
            self.weigh_at = None;
            return;
        };
        for host in &mut self.hosts {
            host.load = Some(reports.of_host(&host.endpoint.address));
        }
        if self.weigh_at.is_some() {
            self.weigh(now);
        } else if !self.hosts.is_empty() {
            self.weigh_at = Some(now + reports.rules.period);
        }
    }

    /// Gives each host its weight; answers whether one has another than before.
    fn weigh(&mut self, now: Instant) -> bool {
        let Some(reports) = self.config.load_reports.clone() else { return false };
        self.weigh_at = Some(now + reports.rules.period);
        let last = self.hosts.iter().map(|host| host.endpoint.priority).max().unwrap_or(0);
        let mut changed = false;
        for priority in 0..=last {
            let of = |host: &&mut crate::balancer::Host| host.endpoint.priority == priority;
            let known = self.hosts.iter().filter(|host| host.endpoint.priority == priority);
            let loads: Vec<_> = known.filter_map(|host| host.load.as_deref()).collect();
            let weights = weights(&loads, &reports.rules, now);
            for (host, weight) in self.hosts.iter_mut().filter(of).zip(weights) {
                changed |= host.endpoint.weight != weight;
                host.endpoint.weight = weight;
            }
        }
        changed
    }
}

impl Clusters {
    /// Whether the host of a pool is weighed by what it says.
    #[inline]
    pub(crate) fn reads_load(&self, pool_key: PoolKey) -> bool {
        self.get(pool_key.cluster).is_some_and(|cluster| cluster.weigh_at.is_some())
    }

    /// Takes in what the head, or the trailers, of an answer say of its host. Answers whether there was a report.
    pub(crate) fn read_load(&self, pool_key: PoolKey, head: &Head, now: Instant) -> bool {
        let Some(cluster) = self.get(pool_key.cluster) else { return false };
        let Some(reports) = &cluster.config.load_reports else { return false };
        let Some(report) = LoadReport::read(head) else { return false };
        let place = cluster.pool(pool_key).and_then(|pool| pool.host);
        let host = place.and_then(|place| cluster.hosts.get(place as usize));
        if let Some(load) = host.and_then(|host| host.load.as_ref()) {
            load.take(&report, &reports.rules, now);
        }
        true
    }
}
