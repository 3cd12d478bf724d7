//! `envoy.filters.http.ratelimit`: another server is asked by gRPC whether a request is one too many, by what it is
//! called ([`rate_limits`](super::rate_limits)).

mod call;
mod headers;
mod stats;
mod wire;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Name;

use self::call::Call;
use self::stats::RateLimitStats;
use super::grpc_service::GrpcService;
use super::rate_limits::{Described, HostLimits, RateLimit};
use super::{CLUSTER, FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, RouteConfig};
use crate::fraction::Fraction;
use crate::header_ops::HeaderOps;
use crate::stats::{ClusterStats, FilterNames, Scope};

/// Envoy `extensions.filters.http.ratelimit.v3.RateLimit`.
#[derive(Debug)]
pub struct GlobalRateLimit {
    /// `domain`.
    pub domain: Box<str>,
    /// `stage`: which limits of routes are read; 0 to 10.
    pub stage: u32,
    /// `request_type`.
    pub requests: Requests,
    /// `rate_limit_service`.
    pub service: GrpcService,
    /// `timeout`, from the question to the end of the answer. Default 20 ms.
    pub timeout: Duration,
    /// `failure_mode_deny`, `failure_mode_deny_percent`: without an answer these requests are refused.
    pub denies_failures: Fraction,
    /// `status_on_error`: with this. Default 500.
    pub status_on_error: u16,
    /// `rate_limited_as_resource_exhausted`: callers of gRPC read that instead of `UNAVAILABLE`.
    pub as_exhausted: bool,
    /// `enable_x_ratelimit_headers`: clients are told what is left.
    pub tells: bool,
    /// `disable_x_envoy_ratelimited_header`, turned round.
    pub tells_refusal: bool,
    /// `enable_retry_after_header`: a refusal with 429 says when to come again.
    pub tells_when: bool,
    /// `rate_limited_status`: default 429.
    pub status: u16,
    /// `response_headers_to_add`, to a refusal.
    pub response: HeaderOps,
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `filter_enabled`: which requests are asked about.
    pub enabled: Fraction,
    /// `filter_enforced`: which of those that are too many are refused.
    pub enforced: Fraction,
    /// `rate_limits`: in place of those of the route.
    pub rate_limits: Vec<RateLimit>,
    /// `metadata_namespace`.
    pub namespace: Box<str>,
}

/// `request_type`: which requests are asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// `both`.
    #[default]
    All,
    /// `internal`: those with `x-envoy-internal`.
    Internal,
    /// `external`: the others.
    External,
}

/// Envoy `RateLimitPerRoute`.
#[derive(Debug)]
pub struct RouteRateLimit {
    /// `domain`; empty means the filter's.
    pub domain: Box<str>,
    /// `vh_rate_limits`.
    pub host_limits: HostLimits,
    /// `rate_limits`: in place of all others.
    pub rate_limits: Vec<RateLimit>,
}

impl RouteConfig for RouteRateLimit {}

/// The configuration, shared by all workers.
#[derive(Clone, Debug)]
pub struct SharedRateLimit(pub Arc<GlobalRateLimit>);

impl FilterConfig for SharedRateLimit {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let (config, scope) = (Arc::clone(&self.0), scope.clone());
        Rc::new(Instance(Rc::new(Shared { config, scope, clusters: RefCell::default() })))
    }

    fn reads_record(&self) -> bool {
        true
    }
}

/// What the calls of one worker's chain share.
#[derive(Debug)]
struct Shared {
    config: Arc<GlobalRateLimit>,
    scope: FilterScope,
    /// The counters of the clusters of routes.
    clusters: RefCell<HashMap<Arc<str>, OfCluster>>,
}

/// Counters of a cluster.
#[derive(Clone, Debug)]
struct OfCluster {
    limits: Arc<RateLimitStats>,
    all: Arc<ClusterStats>,
}

impl Shared {
    /// The counters of a cluster, which the configuration has named.
    fn stats(&self, cluster: &str) -> OfCluster {
        // The registry has a lock: each cluster's counters are looked up once.
        let mut known = self.clusters.borrow_mut();
        if let Some(stats) = known.get(cluster) {
            return stats.clone();
        }
        let name: Arc<str> = Arc::from(cluster);
        let names = FilterNames::new("cluster_ratelimit", format!("cluster.{name}.ratelimit"));
        let names =
            names.label(CLUSTER, &name).part("towpath_ratelimit_prefix", &self.config.stat_prefix);
        let all = self.scope.set(Scope::Cluster(Arc::clone(&name)));
        let stats = OfCluster { limits: self.scope.named(names), all };
        known.entry(name).or_insert(stats).clone()
    }
}

impl GlobalRateLimit {
    fn asks_about(&self, request: &RequestView<'_>) -> bool {
        let is_internal = || request.head.get(Name::XEnvoyInternal) == Some(b"true");
        let is_of_type = match self.requests {
            Requests::All => true,
            Requests::Internal => is_internal(),
            Requests::External => !is_internal(),
        };
        is_of_type
            && request.forwards
            && !request.facts.cluster.is_empty()
            && self.enabled.takes(request.random)
    }

    /// All descriptors of a request.
    fn describe(&self, request: &RequestView<'_>) -> Vec<Described> {
        let route = request.route.first::<RouteRateLimit>();
        let embedded = route.map(|route| &route.rate_limits).filter(|list| !list.is_empty());
        let embedded = embedded.unwrap_or(&self.rate_limits);
        if !embedded.is_empty() {
            return embedded.iter().filter_map(|it| it.describe(request)).collect();
        }
        let random = request.random.rotate_left(16);
        let limits = route.map_or_else(HostLimits::default, |route| route.host_limits);
        let limits = limits.limits(request, self.stage);
        let shared = limits.filter(|it| it.share.is_none_or(|share| share.takes(random)));
        shared.filter_map(|it| it.describe(request)).collect()
    }
}

#[derive(Debug)]
struct Instance(Rc<Shared>);

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let config = &self.0.config;
        if !config.asks_about(request) {
            return OnRequest::Pass;
        }
        let descriptors = config.describe(request);
        if descriptors.is_empty() {
            return OnRequest::Pass;
        }
        let call = Call::new(Rc::clone(&self.0), &descriptors);
        let callout = call.ask(&descriptors, request);
        OnRequest::Ask(Box::new(call), callout)
    }
}

#[cfg(test)]
mod tests {
    use towpath_proto::Head;

    use self::wire::{OVER_LIMIT, RateLimitResponse};
    use super::super::testing::{Stream, scope};
    use super::*;
    use crate::filter::rate_limits::Action;
    use crate::filter::{Answer, Failed, OnAnswer};
    use crate::protobuf::framed;

    const NONE: Fraction = Fraction { numerator: 0, denominator: 100 };
    const ALL: Fraction = Fraction { numerator: 100, denominator: 100 };

    fn config() -> GlobalRateLimit {
        let limit = RateLimit {
            stage: 0,
            share: None,
            actions: vec![Action::Fixed { key: b"k"[..].into(), value: b"v"[..].into() }],
            limit: None,
            hits: None,
            tells: None,
        };
        GlobalRateLimit {
            domain: "d".into(),
            stage: 0,
            requests: Requests::All,
            service: GrpcService::new("limits"),
            timeout: Duration::from_millis(20),
            denies_failures: NONE,
            status_on_error: 500,
            as_exhausted: false,
            tells: false,
            tells_refusal: true,
            tells_when: false,
            status: 429,
            response: HeaderOps::default(),
            stat_prefix: "".into(),
            enabled: ALL,
            enforced: ALL,
            rate_limits: vec![limit],
            namespace: "n".into(),
        }
    }

    /// What becomes of a request with this field, of which the server says that.
    fn outcome(config: GlobalRateLimit, field: &[(&str, &str)], said: Answer) -> Option<OnAnswer> {
        let filter = SharedRateLimit(Arc::new(config)).start(&scope());
        let mut stream = Stream::new(b"GET", field);
        stream.cluster = "app";
        let asked = stream.request(|view| filter.on_request(view));
        let OnRequest::Ask(mut call, callout) = asked else {
            assert!(matches!(asked, OnRequest::Pass), "{asked:?}");
            return None;
        };
        assert_eq!((&*callout.cluster, callout.timeout.as_millis()), ("limits", 20));
        Some(stream.request(|view| call.on_answer(&said, view)))
    }

    fn answer(code: i32) -> Answer {
        let message = RateLimitResponse { overall_code: code, ..RateLimitResponse::default() };
        let mut trailers = Head::default();
        trailers.set_number(Name::GrpcStatus, 0);
        let (head, body) = (Head::response(200), framed(&message));
        Answer::Response { head, body, trailers: Some(trailers) }
    }

    fn refused(outcome: Option<OnAnswer>) -> Option<u16> {
        if let Some(OnAnswer::Reply(reply)) = outcome { Some(reply.head.status()) } else { None }
    }

    #[test]
    fn one_too_many_is_refused_where_that_is_enforced() {
        assert_eq!(refused(outcome(config(), &[], answer(1))), None);
        let Some(OnAnswer::Reply(reply)) = outcome(config(), &[], answer(OVER_LIMIT)) else {
            panic!("it passes")
        };
        assert_eq!(reply.head.status(), 429);
        assert_eq!(reply.head.get(Name::XEnvoyRateLimited), Some(&b"true"[..]));
        let lenient = GlobalRateLimit { enforced: NONE, ..config() };
        assert_eq!(refused(outcome(lenient, &[], answer(OVER_LIMIT))), None);
    }

    #[test]
    fn without_an_answer_requests_pass_or_are_refused_as_configured() {
        let broken = Answer::Response {
            head: Head::response(200),
            body: b"\0\0\0\0\x05abc"[..].into(),
            trailers: None,
        };
        let failures = || [Answer::Failed(Failed::TimedOut), broken.clone()];
        for failure in failures() {
            assert_eq!(refused(outcome(config(), &[], failure)), None);
        }
        for failure in failures() {
            let strict = GlobalRateLimit { denies_failures: ALL, ..config() };
            assert_eq!(refused(outcome(strict, &[], failure)), Some(500));
        }
    }

    #[test]
    fn requests_of_another_kind_are_not_asked_about() {
        let inside = [("x-envoy-internal", "true")];
        for (requests, field, is_asked) in [
            (Requests::Internal, &inside[..], true),
            (Requests::Internal, &[], false),
            (Requests::External, &inside[..], false),
            (Requests::External, &[], true),
        ] {
            let outcome = outcome(GlobalRateLimit { requests, ..config() }, field, answer(1));
            assert_eq!(outcome.is_some(), is_asked, "{requests:?} {field:?}");
        }
        let off = GlobalRateLimit { enabled: NONE, ..config() };
        assert!(outcome(off, &[], answer(OVER_LIMIT)).is_none());
        let nothing = GlobalRateLimit { rate_limits: Vec::new(), ..config() };
        assert!(outcome(nothing, &[], answer(OVER_LIMIT)).is_none(), "it has no descriptor");
    }
}
