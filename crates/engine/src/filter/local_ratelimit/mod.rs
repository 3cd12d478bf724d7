//! `envoy.filters.http.local_ratelimit`: so many requests in a time, in this process.
//!
//! All workers take from one bucket, which is a single number: when it was last empty. It fills without a timer.
//! Descriptors have buckets of their own: a request takes from those that it matches, the one that fills most slowly
//! first, and from the common one.

mod bucket;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Name;

use self::bucket::Bucket;
use super::rate_limits::{Descriptor, RateLimit, RateLimits};
use super::{
    ByPrefix, FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, RouteConfig,
};
use crate::fraction::Fraction;
use crate::grpc;
use crate::header_ops::{HeaderOps, Subject};
use crate::record::Flags;
use crate::stats::{LocalRateLimitStats, Scope};

/// Envoy `LocalRateLimit`, of a chain or of a route, with what is left of it.
#[derive(Clone, Debug)]
pub struct LocalRateLimit {
    limit: Arc<Limit>,
    bucket: Option<Arc<Bucket>>,
    /// Of `descriptors`, those that fill slowly first.
    own: Arc<[(Descriptor, Bucket)]>,
}

/// What it says.
#[derive(Debug)]
pub struct Limit {
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `token_bucket`: without one nothing is limited.
    pub tokens: Option<Tokens>,
    /// `descriptors`.
    pub descriptors: Vec<(Descriptor, Tokens)>,
    /// `rate_limits`: in place of those of the route.
    pub rate_limits: Vec<RateLimit>,
    /// `stage`: which of the route's are read.
    pub stage: u32,
    /// `vh_rate_limits`: whether those of the virtual host count.
    pub host_limits: HostLimits,
    /// `always_consume_default_token_bucket`: also where a descriptor has a bucket. Default true.
    pub takes_common: bool,
    /// `filter_enabled`: which requests take a token. Default none.
    pub enabled: Option<Fraction>,
    /// `filter_enforced`: which of those without one are refused. Default none.
    pub enforced: Option<Fraction>,
    /// `status`: default 429.
    pub status: u16,
    /// `response_headers_to_add`, to a refusal.
    pub response: HeaderOps,
    /// `request_headers_to_add_when_not_enforced`.
    pub unenforced: HeaderOps,
    /// `rate_limited_as_resource_exhausted`: callers of gRPC read that instead of `UNAVAILABLE`.
    pub as_exhausted: bool,
}

/// Envoy `VhRateLimitsOptions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostLimits {
    /// `OVERRIDE`: where the route has none.
    #[default]
    Otherwise,
    /// `INCLUDE`.
    Too,
    /// `IGNORE`.
    Never,
}

/// Envoy `TokenBucket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// `max_tokens`: at least 1. It is full at the start.
    pub max: u32,
    /// `tokens_per_fill`: at least 1.
    pub per_fill: u32,
    /// `fill_interval`: at least 50 ms.
    pub interval: Duration,
}

impl LocalRateLimit {
    /// A limit of which nothing is used.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        let bucket = limit.tokens.map(|tokens| Arc::new(Bucket::new(tokens)));
        let mut own: Vec<_> = limit.descriptors.clone();
        own.sort_by(|(_, one), (_, other)| one.rate().total_cmp(&other.rate()));
        let own = own.into_iter().map(|(entries, tokens)| (entries, Bucket::new(tokens)));
        let own = own.collect();
        Self { limit: Arc::new(limit), bucket, own }
    }
}

impl Tokens {
    /// How many come in a second.
    fn rate(self) -> f64 {
        f64::from(self.per_fill) / self.interval.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl LocalRateLimit {
    /// Whether a request gets its tokens at this time.
    fn takes(&self, bucket: &Bucket, request: &RequestView<'_>, now: u64) -> bool {
        let descriptors =
            if self.own.is_empty() { Vec::new() } else { self.limit.describe(request) };
        let matches = |wanted: &Descriptor| descriptors.contains(wanted);
        let mut is_own = false;
        for (_, bucket) in self.own.iter().filter(|(wanted, _)| matches(wanted)) {
            is_own = true;
            if !bucket.take(now) {
                return false;
            }
        }
        (is_own && !self.limit.takes_common) || bucket.take(now)
    }
}

impl Limit {
    /// All descriptors of a request.
    fn describe(&self, request: &RequestView<'_>) -> Vec<Descriptor> {
        if !self.rate_limits.is_empty() {
            return self.rate_limits.iter().filter_map(|it| it.describe(request)).collect();
        }
        let all = || request.route.unnamed().all::<RateLimits>();
        let of_route = all().find(|limits| !limits.of_host);
        let includes_host = of_route.is_some_and(|limits| limits.includes_host)
            || match self.host_limits {
                HostLimits::Too => true,
                HostLimits::Otherwise => of_route.is_none(),
                HostLimits::Never => false,
            };
        let read = all().filter(|limits| includes_host || !limits.of_host);
        let of_stage = read.flat_map(|it| &it.list).filter(|it| it.stage == self.stage);
        of_stage.filter_map(|it| it.describe(request)).collect()
    }
}

impl RouteConfig for LocalRateLimit {}

impl FilterConfig for LocalRateLimit {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let stats = ByPrefix::new(scope.clone(), Scope::LocalRateLimit);
        Rc::new(Instance { config: self.clone(), stats })
    }

    fn reads_record(&self) -> bool {
        let Limit { response, unenforced, descriptors, .. } = &*self.limit;
        !(response.is_empty() && unenforced.is_empty() && descriptors.is_empty())
    }
}

#[derive(Debug)]
struct Instance {
    config: LocalRateLimit,
    stats: ByPrefix<LocalRateLimitStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let config = request.route.first().unwrap_or(&self.config);
        let LocalRateLimit { limit, bucket, .. } = config;
        let takes = |share: Option<Fraction>, random| share.is_some_and(|it| it.takes(random));
        let Some(bucket) = bucket.as_ref().filter(|_| takes(limit.enabled, request.random)) else {
            return OnRequest::Pass;
        };
        let stats = self.stats.of(&limit.stat_prefix);
        stats.enabled.inc();
        let facts = request.facts;
        let now = facts.epoch_unix_ns.saturating_add(facts.now.as_nanos());
        if config.takes(bucket, request, now) {
            stats.ok.inc();
            return OnRequest::Pass;
        }
        stats.rate_limited.inc();
        if !takes(limit.enforced, request.random.rotate_left(32)) {
            limit.unenforced.apply(request.head, Subject::Request, facts, request.scratch);
            return OnRequest::Pass;
        }
        stats.enforced.inc();
        let mut reply = Reply::new(limit.status, b"local_rate_limited", "local_rate_limited");
        reply.flags.set(Flags::RATE_LIMITED);
        limit.response.apply(&mut reply.head, Subject::Response, facts, request.scratch);
        if limit.as_exhausted && grpc::is_grpc(request.head) {
            reply.head.set_number(Name::GrpcStatus, grpc::RESOURCE_EXHAUSTED.into());
        }
        OnRequest::Answer(reply)
    }
}
