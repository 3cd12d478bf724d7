//! `envoy.filters.http.health_check`: whether this proxy wants traffic, whether clusters are well enough for it, or
//! what the host behind it says, kept for a while.

mod stats;

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Instant, Name};

use self::stats::HealthCheckFilterStats;
use super::{
    FilterConfig, FilterScope, HttpFilter, OnAnswer, OnRequest, Release, Reply, RequestView,
    ResponseFilter, ResponseView, StreamFilter,
};
use crate::format::Facts;
use crate::matcher::HeaderMatcher;
use crate::record::{Flags, details};
use crate::stats::{ClusterStats, Gauge, Registry, Scope};

/// Envoy `HealthCheck`.
#[derive(Clone, Debug, Default)]
pub struct HealthCheck {
    /// Which requests are health checks; all must match.
    pub headers: Vec<HeaderMatcher>,
    /// `pass_through_mode`: hosts answer them, as long as this proxy wants traffic.
    pub passes: bool,
    /// `cache_time`: how long their answer counts.
    pub cache: Option<Arc<Cache>>,
    /// `cluster_min_healthy_percentages`, by the clusters' names.
    pub clusters: Vec<(Arc<str>, f64)>,
}

/// What a host answered last, for all workers.
#[derive(Debug)]
pub struct Cache {
    time: Duration,
    answer: Mutex<Option<(Instant, Answer)>>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    status: u16,
    is_degraded: bool,
}

impl Cache {
    /// An answer counts so long.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        Self { time, answer: Mutex::default() }
    }

    fn answer(&self, now: Instant) -> Option<Answer> {
        let answer = *self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.filter(|(since, _)| now - *since < self.time).map(|(_, answer)| answer)
    }

    fn keep(&self, answer: Answer, now: Instant) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, answer));
    }
}

impl FilterConfig for HealthCheck {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let stats = scope.stats("http_health_check");
        let registry = Arc::clone(&scope.registry);
        Rc::new(Rc::new(Instance { config: self.clone(), stats, registry }))
    }
}

#[derive(Debug)]
struct Instance {
    config: HealthCheck,
    stats: Arc<HealthCheckFilterStats>,
    registry: Arc<Registry>,
}

impl HttpFilter for Rc<Instance> {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if !self.config.headers.iter().all(|header| header.matches(request.head)) {
            return OnRequest::Pass;
        }
        request.checks_health = true;
        if self.config.passes && !request.drains && self.cached(request).is_none() {
            return match &self.config.cache {
                Some(cache) => OnRequest::Watch(Box::new(Passed { cache: Arc::clone(cache) })),
                None => OnRequest::Pass,
            };
        }
        if request.ends {
            OnRequest::Answer(self.reply(request))
        } else {
            // Nothing of it is kept.
            OnRequest::Collect(Box::new(Check { filter: Self::clone(self) }), usize::MAX)
        }
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Rc<Instance> {
    fn on_response(&self, response: &mut ResponseView<'_>) {
        tell(response);
    }
}

impl Instance {
    /// What the host has said not long ago.
    fn cached(&self, request: &RequestView<'_>) -> Option<Answer> {
        self.config.cache.as_ref()?.answer(request.facts.now)
    }

    /// What is said of this proxy.
    fn reply(&self, request: &RequestView<'_>) -> Reply {
        self.stats.request_total.inc();
        let cached = self.cached(request).filter(|_| !request.drains);
        let (status, details) = if request.drains {
            (503, details::HEALTH_CHECK_FAILED)
        } else if let Some(answer) = cached {
            self.stats.cached_response.inc();
            (answer.status, details::HEALTH_CHECK_CACHED)
        } else {
            self.judge_clusters()
        };
        let mut reply = Reply::new(status, b"", details);
        if matches!(status, 200..300) {
            self.stats.ok.inc();
        } else {
            self.stats.failed.inc();
            reply.flags.set(Flags::FAILED_LOCAL_HEALTH_CHECK);
        }
        if cached.is_some_and(|answer| answer.is_degraded) {
            self.stats.degraded.inc();
            reply.head.append_bytes(DEGRADED, b"");
        }
        reply
    }

    /// The status that the clusters ask for, and why.
    fn judge_clusters(&self) -> (u16, &'static str) {
        if self.config.clusters.is_empty() {
            return (200, details::HEALTH_CHECK_OK);
        }
        for (name, least) in &self.config.clusters {
            let scope = Scope::Cluster(Arc::clone(name));
            // One worker's says how many hosts there are, that of each other nothing.
            let all = self.registry.all::<ClusterStats>(&scope);
            if all.is_empty() {
                self.stats.failed_cluster_not_found.inc();
                return (503, details::HEALTH_CHECK_FAILED_NO_CLUSTER_FOUND);
            }
            let sum = |gauge: fn(&ClusterStats) -> &Gauge| -> u64 {
                all.iter().map(|stats| gauge(stats).value()).sum()
            };
            let total = sum(|stats| &stats.membership_total);
            let well =
                sum(|stats| &stats.membership_healthy) + sum(|stats| &stats.membership_degraded);
            // Envoy compares whole percents.
            let least = *least as u64;
            if total == 0 {
                if least > 0 {
                    self.stats.failed_cluster_empty.inc();
                    return (503, details::HEALTH_CHECK_FAILED_CLUSTER_EMPTY);
                }
            } else if 100 * well < total * least {
                self.stats.failed_cluster_unhealthy.inc();
                return (503, details::HEALTH_CHECK_FAILED_CLUSTER_UNHEALTHY);
            }
        }
        (200, details::HEALTH_CHECK_OK_CLUSTER_HEALTHY)
    }
}

const DEGRADED: &[u8] = b"x-envoy-degraded";

/// A check that has content: it is answered when that is over.
#[derive(Debug)]
struct Check {
    filter: Rc<Instance>,
}

impl StreamFilter for Check {
    fn on_request_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        data.clear();
        Ok(())
    }

    fn on_collected(&mut self, request: &mut RequestView<'_>) -> OnAnswer {
        OnAnswer::Reply(self.filter.reply(request))
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        tell(response);
        Release::Now
    }
}

/// A check that a host answers, whose status is kept.
#[derive(Debug)]
struct Passed {
    cache: Arc<Cache>,
}

impl StreamFilter for Passed {
    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        let status = response.head.status();
        let is_degraded = response.head.get_bytes(DEGRADED).is_some();
        self.cache.keep(Answer { status, is_degraded }, response.facts.now);
        tell(response);
        Release::Now
    }
}

/// Says to a check who was checked, and to all that checks fail.
fn tell(response: &mut ResponseView<'_>) {
    if response.checks_health {
        let cluster = response.node_cluster.as_bytes();
        response.head.set(Name::XEnvoyUpstreamHealthCheckedCluster, cluster);
    }
    if response.health_fails {
        response.head.set(Name::XEnvoyImmediateHealthCheckFail, b"true");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Stream;
    use super::*;
    use crate::matcher::HeaderTest;

    const CHAIN: &str = "http.main.health_check.";

    struct Rig {
        registry: Arc<Registry>,
        filter: Rc<dyn HttpFilter>,
        drains: bool,
    }

    impl Rig {
        fn new(config: &HealthCheck) -> Self {
            let registry: Arc<Registry> = Arc::default();
            let scope = FilterScope::new("main".into(), Rc::default(), Arc::clone(&registry), 0);
            Self { filter: config.start(&scope), registry, drains: false }
        }

        fn ask(&self) -> OnRequest {
            Stream::new(b"GET", &[]).request(|view| {
                view.drains = self.drains;
                self.filter.on_request(view)
            })
        }

        fn status(&self) -> Option<u16> {
            if let OnRequest::Answer(reply) = self.ask() { Some(reply.head.status()) } else { None }
        }

        fn number(&self, name: &str) -> u64 {
            self.registry.read().number(&format!("{CHAIN}{name}")).unwrap_or(0)
        }
    }

    fn of_clusters(least: f64) -> HealthCheck {
        HealthCheck { clusters: vec![("app".into(), least)], ..HealthCheck::default() }
    }

    #[test]
    fn this_proxy_is_well_until_it_drains() {
        let mut rig = Rig::new(&HealthCheck::default());
        assert_eq!(rig.status(), Some(200));
        rig.drains = true;
        assert_eq!(rig.status(), Some(503));
        assert_eq!(
            (rig.number("request_total"), rig.number("ok"), rig.number("failed")),
            (2, 1, 1)
        );
        let mut passing = Rig::new(&HealthCheck { passes: true, ..HealthCheck::default() });
        assert!(matches!(passing.ask(), OnRequest::Pass));
        passing.drains = true;
        assert_eq!(passing.status(), Some(503), "the host is not asked any more");
    }

    #[test]
    fn other_requests_pass() {
        let path = HeaderMatcher::new("x-check", HeaderTest::Present(true)).unwrap();
        let rig = Rig::new(&HealthCheck { headers: vec![path], ..HealthCheck::default() });
        assert!(matches!(rig.ask(), OnRequest::Pass));
        assert_eq!(rig.number("request_total"), 0);
    }

    #[test]
    fn a_share_of_a_clusters_hosts_has_to_be_well() {
        let rig = Rig::new(&of_clusters(50.0));
        assert_eq!((rig.status(), rig.number("failed_cluster_not_found")), (Some(503), 1));
        let stats: Arc<ClusterStats> = rig.registry.set(0, Scope::Cluster("app".into()));
        assert_eq!((rig.status(), rig.number("failed_cluster_empty")), (Some(503), 1));
        stats.membership_total.set(5);
        for (healthy, degraded, wanted) in [(2, 0, 503), (2, 1, 200), (3, 0, 200)] {
            stats.membership_healthy.set(healthy);
            stats.membership_degraded.set(degraded);
            assert_eq!(rig.status(), Some(wanted), "{healthy} and {degraded} of 5");
        }
        assert_eq!(rig.number("failed_cluster_unhealthy"), 1);
        let none = Rig::new(&of_clusters(0.0));
        let _kept: Arc<ClusterStats> = none.registry.set(0, Scope::Cluster("app".into()));
        assert_eq!(none.status(), Some(200), "an empty cluster of which nothing is asked");
    }

    #[test]
    fn what_a_host_answered_counts_for_a_time() {
        let cache = Cache::new(Duration::from_secs(1));
        cache.keep(Answer { status: 503, is_degraded: true }, Instant::ZERO);
        let status = |at| cache.answer(Instant::ZERO + at).map(|answer| answer.status);
        assert_eq!(status(Duration::from_millis(999)), Some(503));
        assert_eq!(status(Duration::from_secs(1)), None);
        let cache = Some(Arc::new(cache));
        let rig = Rig::new(&HealthCheck { passes: true, cache, ..HealthCheck::default() });
        let OnRequest::Answer(reply) = rig.ask() else { panic!("it is not asked again") };
        assert_eq!((reply.head.status(), reply.head.get_bytes(DEGRADED)), (503, Some(&b""[..])));
        assert_eq!((rig.number("cached_response"), rig.number("degraded")), (1, 1));
    }
}
