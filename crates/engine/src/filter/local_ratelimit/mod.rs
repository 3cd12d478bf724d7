//! `envoy.filters.http.local_ratelimit`: so many requests in a time, in this process.
//!
//! All workers take from one bucket, which is a single number: when it was last empty. It fills without a timer.

mod bucket;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Name;

use self::bucket::Bucket;
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
}

/// What it says.
#[derive(Debug)]
pub struct Limit {
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `token_bucket`: without one nothing is limited.
    pub tokens: Option<Tokens>,
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
        Self { limit: Arc::new(limit), bucket }
    }
}

impl RouteConfig for LocalRateLimit {}

impl FilterConfig for LocalRateLimit {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let stats = ByPrefix::new(scope.clone(), Scope::LocalRateLimit);
        Rc::new(Instance { config: self.clone(), stats })
    }

    fn reads_record(&self) -> bool {
        !(self.limit.response.is_empty() && self.limit.unenforced.is_empty())
    }
}

#[derive(Debug)]
struct Instance {
    config: LocalRateLimit,
    stats: ByPrefix<LocalRateLimitStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let LocalRateLimit { limit, bucket } = request.route.first().unwrap_or(&self.config);
        let takes = |share: Option<Fraction>, random| share.is_some_and(|it| it.takes(random));
        let Some(bucket) = bucket.as_ref().filter(|_| takes(limit.enabled, request.random)) else {
            return OnRequest::Pass;
        };
        let stats = self.stats.of(&limit.stat_prefix);
        stats.enabled.inc();
        let facts = request.facts;
        if bucket.take(facts.epoch_unix_ns.saturating_add(facts.now.as_nanos())) {
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
