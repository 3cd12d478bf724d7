//! `envoy.filters.http.local_ratelimit`: so many requests in a time, in this process.
//!
//! All workers take from one bucket, which is a single number: when it was last empty. It fills without a timer.
//! Descriptors have buckets of their own: a request takes from those that it matches, the one that fills most slowly
//! first, and from the common one. A descriptor with an empty value has a bucket for each value that came, of which the
//! last so many are kept, behind a lock that is held for a look.

mod bucket;
mod dynamic;
mod stats;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Head, Name};

pub(crate) use self::bucket::Bucket;
use self::dynamic::Dynamic;
use self::stats::LocalRateLimitStats;
pub use super::rate_limits::HostLimits;
use super::rate_limits::{Described, Descriptor, RateLimit};
use super::{
    ByPrefix, FilterConfig, FilterScope, HttpFilter, OnRequest, Release, Reply, RequestView,
    ResponseView, RouteConfig, StreamFilter,
};
use crate::format::Facts;
use crate::fraction::Fraction;
use crate::grpc;
use crate::header_ops::{HeaderOps, Subject};
use crate::record::Flags;
use crate::stats::FilterNames;

/// Envoy `LocalRateLimit`, of a chain or of a route, with what is left of it.
#[derive(Clone, Debug)]
pub struct LocalRateLimit {
    limit: Arc<Limit>,
    bucket: Option<Arc<Bucket>>,
    /// Of `descriptors`.
    own: Arc<Own>,
}

/// The buckets of descriptors.
#[derive(Debug, Default)]
struct Own {
    exact: Vec<(Descriptor, Arc<Bucket>)>,
    dynamic: Vec<Dynamic>,
}

/// What it says.
#[derive(Debug)]
pub struct Limit {
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `token_bucket`: without one nothing is limited.
    pub tokens: Option<Tokens>,
    /// `descriptors`; an empty value stands for any.
    pub descriptors: Vec<(Descriptor, Tokens)>,
    /// `max_dynamic_descriptors`: how many values of one with an empty value have buckets at once. Default 20; at least
    /// 1.
    pub most_values: usize,
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
    /// `enable_x_ratelimit_headers`: clients are told what is left.
    pub tells: bool,
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
        let mut own = Own::default();
        for (entries, tokens) in &limit.descriptors {
            if entries.iter().any(|(_, value)| value.is_empty()) {
                own.dynamic.push(Dynamic::new(entries.clone(), *tokens, limit.most_values));
            } else {
                own.exact.push((entries.clone(), Arc::new(Bucket::new(*tokens))));
            }
        }
        Self { limit: Arc::new(limit), bucket, own: Arc::new(own) }
    }
}

/// What became of a request, and the bucket that its client is told of.
struct Outcome {
    allowed: bool,
    told: Option<Arc<Bucket>>,
}

impl LocalRateLimit {
    /// Has a request take its tokens at this time.
    fn take(&self, common: &Arc<Bucket>, request: &RequestView<'_>, now: u64) -> Outcome {
        if self.own.is_empty() {
            let told = self.limit.tells.then(|| Arc::clone(common));
            return Outcome { allowed: common.take(now, 1), told };
        }
        let mut found: Vec<(Described, Arc<Bucket>)> = Vec::new();
        for described in self.limit.describe(request) {
            if let Some(bucket) = self.own.bucket(&described.entries) {
                found.push((described, bucket));
            }
        }
        found.sort_by_key(|(_, bucket)| std::cmp::Reverse(bucket.per_token()));
        let tells = |it: &Described| it.tells.unwrap_or(self.limit.tells);
        for (described, bucket) in &found {
            let hits = described.hits.unwrap_or(1);
            if described.gives_back && described.hits.is_some() {
                bucket.give(now, hits);
            } else if !bucket.take(now, hits) {
                let told = tells(described).then(|| Arc::clone(bucket));
                return Outcome { allowed: false, told };
            }
        }
        let first = found.first().map(|(it, bucket)| tells(it).then(|| Arc::clone(bucket)));
        if !(found.is_empty() || self.limit.takes_common) {
            return Outcome { allowed: true, told: first.flatten() };
        }
        let of_common = || self.limit.tells.then(|| Arc::clone(common));
        if !common.take(now, 1) {
            return Outcome { allowed: false, told: of_common() };
        }
        Outcome { allowed: true, told: first.unwrap_or_else(of_common) }
    }
}

impl Own {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.dynamic.is_empty()
    }

    /// The bucket of what a request is called, if it has one.
    fn bucket(&self, entries: &Descriptor) -> Option<Arc<Bucket>> {
        let exact = self.exact.iter().find(|(wanted, _)| wanted == entries);
        match exact {
            Some((_, bucket)) => Some(Arc::clone(bucket)),
            None => self.dynamic.iter().find_map(|one| one.bucket(entries)),
        }
    }
}

impl Limit {
    /// All descriptors of a request.
    fn describe(&self, request: &RequestView<'_>) -> Vec<Described> {
        if !self.rate_limits.is_empty() {
            return self.rate_limits.iter().filter_map(|it| it.describe(request)).collect();
        }
        let limits = self.host_limits.limits(request, self.stage);
        limits.filter(|it| it.share.is_none()).filter_map(|it| it.describe(request)).collect()
    }
}

impl RouteConfig for LocalRateLimit {
    fn reads_record(&self) -> bool {
        let Limit { response, unenforced, descriptors, .. } = &*self.limit;
        !(response.is_empty() && unenforced.is_empty() && descriptors.is_empty())
    }
}

impl FilterConfig for LocalRateLimit {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let stats = ByPrefix::new(scope.clone(), |prefix| {
            FilterNames::new("http_local_rate_limit", format!("{prefix}.http_local_rate_limit"))
                .label("envoy_local_http_ratelimit_prefix", prefix)
        });
        Rc::new(Instance { config: self.clone(), stats })
    }

    fn reads_record(&self) -> bool {
        RouteConfig::reads_record(self)
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
        let now = now(facts);
        let Outcome { allowed, told } = config.take(bucket, request, now);
        let goes_on = |told: Option<Arc<Bucket>>| match told {
            Some(bucket) => OnRequest::Watch(Box::new(Told(bucket))),
            None => OnRequest::Pass,
        };
        if allowed {
            stats.ok.inc();
            return goes_on(told);
        }
        stats.rate_limited.inc();
        if !takes(limit.enforced, request.random.rotate_left(32)) {
            limit.unenforced.apply(request.head, Subject::Request, facts, request.scratch);
            return goes_on(told);
        }
        stats.enforced.inc();
        let mut reply = Reply::new(limit.status, b"local_rate_limited", "local_rate_limited");
        reply.flags.set(Flags::RATE_LIMITED);
        limit.response.apply(&mut reply.head, Subject::Response, facts, request.scratch);
        if limit.as_exhausted && grpc::is_grpc(request.head) {
            reply.head.set_number(Name::GrpcStatus, grpc::RESOURCE_EXHAUSTED.into());
        }
        if let Some(bucket) = told {
            bucket.tell(&mut reply.head, now);
        }
        OnRequest::Answer(reply)
    }
}

/// A stream whose client is told what is left in a bucket.
#[derive(Debug)]
struct Told(Arc<Bucket>);

impl StreamFilter for Told {
    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        self.0.tell(response.head, now(response.facts));
        Release::Now
    }
}

impl Bucket {
    /// Adds `x-ratelimit-*`.
    fn tell(&self, head: &mut Head, now: u64) {
        let left = self.left(now);
        for (name, value) in
            [(LIMIT, left.most), (REMAINING, left.tokens), (RESET, left.next.as_secs())]
        {
            head.append_bytes(name, value.to_string().as_bytes());
        }
    }
}

const LIMIT: &[u8] = b"x-ratelimit-limit";
const REMAINING: &[u8] = b"x-ratelimit-remaining";
const RESET: &[u8] = b"x-ratelimit-reset";

/// Nanoseconds since 1970.
fn now(facts: &Facts<'_>) -> u64 {
    facts.epoch_unix_ns.saturating_add(facts.now.as_nanos())
}
