//! What became of requests since the last report.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_engine::message::HostCounts;
use towpath_engine::snapshot::cluster::Endpoint;
use towpath_proto::Address as Place;

use super::message::{
    Address, ClusterStats, DroppedRequests, EndpointStats, Locality, LocalityStats,
};

/// A cluster whose load is reported.
#[derive(Debug)]
pub(super) struct Tracked {
    /// Since when.
    since: Instant,
    /// What was reported, or had happened before anything was to be.
    hosts: HashMap<Place, HostCounts>,
    dropped: u64,
    overload: u64,
    /// `eds_cluster_config.service_name`.
    service: String,
}

/// A cluster as it is: its hosts, and requests that circuit breakers turned away.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) hosts: Vec<(Endpoint, HostCounts)>,
    /// All that were not sent to a host.
    pub(super) dropped: u64,
    /// Those of them that were dropped by share.
    pub(super) overload: u64,
    /// What these are called.
    pub(super) category: Option<Arc<str>>,
}

impl Tracked {
    pub(super) fn new(load: &Load, service: String, now: Instant) -> Self {
        let hosts = load.hosts.iter().map(|(host, counts)| (host.address.clone(), *counts));
        let (dropped, overload) = (load.dropped, load.overload);
        Self { since: now, hosts: hosts.collect(), dropped, overload, service }
    }

    /// What is to be told since the last time; hosts one by one if that is wanted.
    pub(super) fn report(
        &mut self,
        name: &str,
        load: &Load,
        each_host: bool,
        now: Instant,
    ) -> ClusterStats {
        let mut localities: BTreeMap<(u32, &Arc<str>), LocalityStats> = BTreeMap::new();
        let mut hosts = HashMap::with_capacity(load.hosts.len());
        for (host, counts) in &load.hosts {
            let before = self.hosts.get(&host.address).copied().unwrap_or_default();
            hosts.insert(host.address.clone(), *counts);
            let stats = EndpointStats {
                address: Some(Address::of(&host.address)),
                total_successful_requests: since(before.requests_success, counts.requests_success),
                total_requests_in_progress: counts.requests_active,
                total_error_requests: since(before.requests_error, counts.requests_error),
                total_issued_requests: since(before.requests_total, counts.requests_total),
            };
            if is_idle(&stats) {
                continue;
            }
            let locality = localities.entry((host.priority, &host.locality));
            let locality = locality.or_insert_with(|| LocalityStats {
                locality: Some(Locality::of(&host.locality)),
                priority: host.priority,
                ..LocalityStats::default()
            });
            locality.total_successful_requests += stats.total_successful_requests;
            locality.total_requests_in_progress += stats.total_requests_in_progress;
            locality.total_error_requests += stats.total_error_requests;
            locality.total_issued_requests += stats.total_issued_requests;
            if each_host {
                locality.upstream_endpoint_stats.push(stats);
            }
        }
        let dropped_count = since(self.overload, load.overload);
        let category = load.category.as_deref().unwrap_or_default().to_owned();
        let dropped = (dropped_count > 0).then_some(DroppedRequests { category, dropped_count });
        let took = now.saturating_duration_since(self.since);
        let stats = ClusterStats {
            cluster_name: name.to_owned(),
            cluster_service_name: self.service.clone(),
            upstream_locality_stats: localities.into_values().collect(),
            total_dropped_requests: since(self.dropped, load.dropped),
            dropped_requests: dropped.into_iter().collect(),
            load_report_interval: Some(in_protobuf(took)),
        };
        (self.since, self.hosts) = (now, hosts);
        (self.dropped, self.overload) = (load.dropped, load.overload);
        stats
    }
}

fn is_idle(stats: &EndpointStats) -> bool {
    stats.total_successful_requests == 0
        && stats.total_requests_in_progress == 0
        && stats.total_error_requests == 0
        && stats.total_issued_requests == 0
}

/// A count that is less than it was began anew, with a host that went and came back.
fn since(before: u64, after: u64) -> u64 {
    after.checked_sub(before).unwrap_or(after)
}

fn in_protobuf(time: Duration) -> towpath_xds::wire::Duration {
    towpath_xds::wire::Duration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.subsec_nanos()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(port: u16, locality: &str, counts: [u64; 4]) -> (Endpoint, HostCounts) {
        let address = Place::Ip(([10, 0, 0, 1], port).into());
        let endpoint = Endpoint { locality: Arc::from(locality), ..Endpoint::new(address) };
        let [requests_total, requests_success, requests_error, requests_active] = counts;
        let counts = HostCounts {
            requests_total,
            requests_success,
            requests_error,
            requests_active,
            ..HostCounts::default()
        };
        (endpoint, counts)
    }

    #[test]
    fn what_happened_since_is_added_up_by_locality() {
        let now = Instant::now();
        let first =
            Load { hosts: vec![host(1, "r/z/", [5, 5, 0, 0])], dropped: 2, ..Load::default() };
        let mut tracked = Tracked::new(&first, "svc".to_owned(), now);
        let later = now + Duration::from_millis(1500);
        let load = Load {
            hosts: vec![
                host(1, "r/z/", [8, 6, 1, 1]),
                host(2, "r/z/", [2, 2, 0, 0]),
                host(3, "r/y/", [0, 0, 0, 0]),
            ],
            dropped: 5,
            overload: 2,
            category: Some("busy".into()),
        };
        let told = tracked.report("c", &load, true, later);
        assert_eq!((told.total_dropped_requests, &*told.cluster_service_name), (3, "svc"));
        let busy = DroppedRequests { category: "busy".to_owned(), dropped_count: 2 };
        assert_eq!(told.dropped_requests, [busy]);
        let took = told.load_report_interval.unwrap();
        assert_eq!((took.seconds, took.nanos), (1, 500_000_000));
        let [locality] = &told.upstream_locality_stats[..] else { panic!("{told:?}") };
        assert_eq!(locality.locality.as_ref().unwrap().zone, "z");
        assert_eq!(locality.total_issued_requests, 5);
        assert_eq!(locality.total_successful_requests, 3);
        assert_eq!(locality.total_error_requests, 1);
        assert_eq!(locality.total_requests_in_progress, 1);
        assert_eq!(locality.upstream_endpoint_stats.len(), 2);
        // What goes on is told again, what is over is not; a host that came back began anew.
        let load = Load {
            hosts: vec![host(1, "r/z/", [8, 6, 1, 1]), host(2, "r/z/", [1, 1, 0, 0])],
            dropped: 5,
            overload: 2,
            category: Some("busy".into()),
        };
        let told = tracked.report("c", &load, false, later);
        let [locality] = &told.upstream_locality_stats[..] else { panic!("{told:?}") };
        assert_eq!((locality.total_issued_requests, locality.total_requests_in_progress), (1, 1));
        assert!(locality.upstream_endpoint_stats.is_empty());
        assert_eq!((told.total_dropped_requests, told.dropped_requests.len()), (0, 0));
    }
}
