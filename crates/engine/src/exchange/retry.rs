//! What happens to a stream whose upstream side failed: another attempt, or an answer of our own.
//!
//! Arrives: a stream and its [`ResetReason`]. Leaves: the stream placed again (at once or after a back-off), a local
//! reply, or, when part of a response is out already, a reset of the client.
//!
//! Two kinds of repetition are kept apart. The *route's policy* is what the operator asked for. The *silent* one
//! mends a race that is neither side's mistake: a pooled connection that its peer was closing when we used it. It
//! happens once, before any byte of a response, and only if no byte of the request left us or if the method may
//! be repeated (RFC 9110 §9.2.2, RFC 9112 §9.3.1), or if the server says that it has done nothing for the stream
//! (RFC 9113 §8.7). A policy with `num_retries: 0` forbids both.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::head::{Head, HeaderName, Method};
use towpath_proto::name::Name;
use towpath_proto::{Close, Instant};

use crate::balancer::PastPriorities;
use crate::conn::Connections;
use crate::conn::spans::Phase;
use crate::exchange::Exchange;
use crate::exchange::hedging::{Beside, Hedging};
use crate::exchange::overrides::Overrides;
use crate::exchange::redirect::Redirected;
use crate::exchange::stream::{Progress, Routed, Stream, Upgrade, UpstreamState};
use crate::exchange::timers::HttpTimer;
use crate::exchange::tracing::TryEnd;
use crate::grpc;
use crate::ids::{Kind, Leg, PoolKey, ResetReason, StreamIndex};
use crate::names::Ticket;
use crate::proxied::Tlv;
use crate::record::details::Reset;
use crate::record::{Flags, details};
use crate::snapshot::route::{OmittedHosts, RateLimitedBackOff, RetryOn, RetryPolicy};
use crate::snapshot::subset::Criteria;
use crate::upstream::asked::AskedHosts;
use crate::upstream::avoided::Avoided;
use crate::upstream::passive_health::HostOutcome;

impl Exchange {
    /// Notes why a stream was reset, where that is its host's doing.
    pub(crate) fn blame_host(&mut self, index: StreamIndex, reason: ResetReason) {
        let Some(stream) = self.streams.get(index) else { return };
        let Some(pool_key) = stream.retries.pool_key else { return };
        let sign = match reason {
            ResetReason::ConnectTimeout => HostOutcome::Late(504),
            ResetReason::PerTryTimeout | ResetReason::PerTryIdleTimeout => {
                HostOutcome::Late(stream.late_reply().0)
            }
            ResetReason::Connect(_) | ResetReason::Tls(_) => HostOutcome::Lost,
            // A connection of opaque bytes has served when it was made.
            ResetReason::Terminated | ResetReason::Reset | ResetReason::Protocol
                if matches!(stream.kind, Kind::Tcp(_)) =>
            {
                return;
            }
            ResetReason::Terminated
            | ResetReason::Reset
            | ResetReason::StreamReset
            | ResetReason::Protocol => HostOutcome::Lost,
            // It goes away in good order, or has enough to do.
            ResetReason::Refused
            | ResetReason::MaxStreamDuration
            | ResetReason::Overflow
            | ResetReason::NoHost
            | ResetReason::ClusterGone
            | ResetReason::RateLimited
            | ResetReason::Headers
            | ResetReason::Status(_)
            | ResetReason::GrpcStatus(_) => return,
        };
        self.upstreams.note(pool_key, sign, &mut self.env);
    }
}

/// The retry state of a stream.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    pub(crate) on: RetryOn,
    pub(crate) remaining: u32,
    /// Retries by the policy so far.
    pub(crate) done: u32,
    /// The next attempt wants a connection of its own.
    pub(crate) wants_fresh: bool,
    /// The method may be repeated.
    pub(crate) repeatable: bool,
    /// The policy has no retries, so that nothing is sent a second time.
    pub(crate) forbidden: bool,
    /// Where the last attempt went.
    pub(crate) pool_key: Option<PoolKey>,
    /// Hosts that were tried, if they are to be avoided.
    pub(crate) tried: Option<Box<Tried>>,
    /// How much of a body is kept for another attempt.
    pub(crate) buffer_limit: usize,
    /// This stream is counted in the cluster's retries.
    pub(crate) counted: Option<PoolKey>,
    /// How much had been sent and received before on the connection of the attempt under way.
    pub(crate) sent_before: u64,
    pub(crate) received_before: u64,
    /// What becomes of an attempt whose time is over.
    pub(crate) hedging: Hedging,
}

/// The hosts that a stream has been to, and what else few streams know of their retries.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    pub(crate) hosts: Vec<PoolKey>,
    /// How often another host is drawn where such a one comes up.
    pub(crate) attempts: u32,
    /// The hosts that were tried are to be avoided.
    avoids_hosts: bool,
    /// The hosts that retries do not go to.
    omitted: Option<Arc<[OmittedHosts]>>,
    /// The priorities that it has been to, if they are to be avoided.
    priorities: Option<PastPriorities>,
    /// What its client wants to be retried: answers with one of these headers, or with one of these statuses.
    header_names: Vec<HeaderName>,
    statuses: Vec<u16>,
    /// The wait before the next attempt is what an answer asked for.
    is_asked_to_wait: bool,
    /// What redirects that were followed have left.
    pub(crate) redirected: Option<Box<Redirected>>,
    /// Its place among those that wait for the address of a name.
    pub(crate) name: Option<Box<Ticket>>,
    /// When it is tried again, where its route does not say that.
    pub(crate) policy: Option<Arc<RetryPolicy>>,
    /// Which subset it asks for, where no route says that.
    pub(crate) criteria: Option<Arc<Criteria>>,
    /// Cookies for its client, whose requests are led by them from then on.
    pub(crate) cookies: Vec<Box<[u8]>>,
    /// The hosts that it names, once its cluster has asked for them.
    pub(crate) asked: Option<AskedHosts>,
    /// Which attempt has passed the filters before its host last, counted from 1.
    pub(super) filtered: u32,
    /// A host has said what its load is.
    pub(crate) said_load: bool,
    /// Why its cluster has no host for it, if there is more to say.
    pub(crate) no_host: Option<&'static str>,
    /// Attempts that go on beside the latest one, the first one first.
    pub(crate) beside: Vec<Beside>,
    /// The host of the latest attempt was told that it is late.
    pub(crate) is_late: bool,
    /// The latest retry is one because the time of an attempt was over.
    pub(super) follows_timeout: bool,
    /// What its own headers say of how it is routed.
    pub(super) overrides: Option<Box<Overrides>>,
    /// What is taken off its host was not needed.
    pub(crate) is_given_up: bool,
    /// What the TCP proxy tells of its connection by formats.
    pub(crate) tlvs: Box<[Tlv]>,
}

impl Retries {
    /// What the route and the request's own headers ask for.
    pub(crate) fn begin(
        &mut self,
        policy: Option<&RetryPolicy>,
        hedges: bool,
        request: &Head,
        trusted: bool,
    ) {
        self.begin_policy(policy, request, trusted);
        let said = request.get(Name::XEnvoyHedgeOnPerTryTimeout).filter(|_| trusted);
        let hedges = match said {
            Some(b"true") => true,
            Some(b"false") => false,
            Some(_) | None => hedges,
        };
        if hedges {
            let is_tried_again = self.on != RetryOn::default();
            self.hedging = if is_tried_again { Hedging::Begins } else { Hedging::GoesOn };
        }
    }

    fn begin_policy(&mut self, policy: Option<&RetryPolicy>, request: &Head, trusted: bool) {
        self.repeatable = is_repeatable(request.method());
        self.forbidden = policy.is_some_and(|policy| policy.retries == 0);
        self.repeatable &= !self.forbidden;
        if let Some(policy) = policy {
            self.on = policy.on;
            self.remaining = policy.retries;
            if policy.avoid_previous_hosts || policy.omitted.is_some() {
                let tried = self.tried.get_or_insert_default();
                tried.attempts = policy.host_attempts;
                tried.avoids_hosts = policy.avoid_previous_hosts;
                tried.omitted = policy.omitted.clone();
            }
            if let Some(every) = policy.previous_priorities {
                self.tried.get_or_insert_default().priorities = Some(PastPriorities::new(every));
            }
        }
        if !trusted {
            return;
        }
        if let Some(on) = request.get(Name::XEnvoyRetryOn) {
            self.on = self.on.with(conditions(on, RetryOn::named));
        }
        if let Some(on) = request.get(Name::XEnvoyRetryGrpcOn) {
            self.on = self.on.with(conditions(on, RetryOn::named_for_grpc));
        }
        if self.on == RetryOn::default() {
            return;
        }
        if policy.is_none() {
            self.remaining = 1;
        }
        if let Some(retries) = request.get(Name::XEnvoyMaxRetries).and_then(parse_number) {
            self.remaining = retries;
        }
        if let Some(statuses) = request.get(Name::XEnvoyRetriableStatusCodes) {
            let statuses = statuses.split(|&byte| byte == b',').filter_map(parse_number);
            self.tried.get_or_insert_default().statuses = statuses.collect();
        }
        if let Some(names) = request.get(Name::XEnvoyRetriableHeaderNames) {
            let names = names.split(|&byte| byte == b',').filter_map(header_name);
            self.tried.get_or_insert_default().header_names = names.collect();
        }
    }

    /// Forbids retries of a request that the policy's `retriable_request_headers` do not name.
    pub(crate) fn limit(&mut self, policy: Option<&RetryPolicy>, request: &Head) {
        let Some(policy) = policy.filter(|policy| !policy.request_headers.is_empty()) else {
            return;
        };
        if !policy.request_headers.iter().any(|header| header.matches(request)) {
            self.on = RetryOn::default();
        }
    }

    /// What another host is to be chosen for.
    pub(crate) fn avoided(&mut self) -> Avoided<'_> {
        let is_retry = self.done > 0;
        self.tried.as_deref_mut().map_or_else(Avoided::default, |it| Avoided {
            hosts: if it.avoids_hosts { &it.hosts } else { &[] },
            omitted: it.omitted.as_deref().filter(|_| is_retry).unwrap_or_default(),
            attempts: it.attempts,
            priorities: it.priorities.as_mut(),
        })
    }

    /// Notes whether the wait before the next attempt is what an answer asked for.
    fn note_wait(&mut self, is_asked: bool) {
        match self.tried.as_deref_mut() {
            Some(tried) => tried.is_asked_to_wait = is_asked,
            None if is_asked => self.tried.get_or_insert_default().is_asked_to_wait = true,
            None => {}
        }
    }

    fn is_asked_to_wait(&self) -> bool {
        self.tried.as_deref().is_some_and(|tried| tried.is_asked_to_wait)
    }

    /// Whether redirects may be followed, with the body.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        let redirected = self.tried.as_deref().and_then(|tried| tried.redirected.as_deref());
        redirected.is_some_and(|known| known.follows)
    }

    /// Whether its attempts pass filters before their hosts.
    #[inline]
    pub(crate) fn is_filtered(&self) -> bool {
        self.tried.as_deref().is_some_and(|tried| tried.filtered > 0)
    }

    /// Whether a second attempt may ever be made, so that the body must be kept.
    pub(crate) fn is_possible(&self) -> bool {
        self.remaining > 0 || self.repeatable || self.follows()
    }

    /// Why an answer is one that the policy may not want, beyond its status.
    pub(crate) fn objection(
        &self,
        policy: Option<&RetryPolicy>,
        response: &Head,
    ) -> Option<ResetReason> {
        if response.get(Name::XEnvoyRateLimited).is_some() {
            return Some(ResetReason::RateLimited);
        }
        if self.on.has(RetryOn::HEADERS) && self.looks_for(policy, response) {
            return Some(ResetReason::Headers);
        }
        let reason = ResetReason::GrpcStatus(grpc::status_of(response)?);
        self.wants(None, reason, true).then_some(reason)
    }

    /// Whether a response has a header that is retried.
    fn looks_for(&self, policy: Option<&RetryPolicy>, response: &Head) -> bool {
        let named = self.tried.as_deref().map_or(&[][..], |tried| &tried.header_names);
        policy.is_some_and(|policy| policy.headers.iter().any(|header| header.matches(response)))
            || named.iter().any(|name| response.get_named(name).is_some())
    }

    pub(crate) fn wants(
        &self,
        policy: Option<&RetryPolicy>,
        reason: ResetReason,
        request_sent: bool,
    ) -> bool {
        let on = self.on;
        match reason {
            ResetReason::Connect(_) | ResetReason::ConnectTimeout | ResetReason::Tls(_) => on.has(
                RetryOn::CONNECT_FAILURE
                    .with(RetryOn::STATUS_5XX)
                    .with(RetryOn::GATEWAY_ERROR)
                    .with(RetryOn::RESET)
                    .with(RetryOn::RESET_BEFORE_REQUEST),
            ),
            ResetReason::Terminated | ResetReason::Reset | ResetReason::StreamReset => {
                on.has(RetryOn::RESET.with(RetryOn::STATUS_5XX).with(RetryOn::GATEWAY_ERROR))
                    || (on.has(RetryOn::RESET_BEFORE_REQUEST) && !request_sent)
            }
            ResetReason::PerTryTimeout | ResetReason::PerTryIdleTimeout
                if self.hedging == Hedging::Begins =>
            {
                true
            }
            ResetReason::Protocol
            | ResetReason::PerTryTimeout
            | ResetReason::PerTryIdleTimeout
            | ResetReason::MaxStreamDuration => {
                on.has(RetryOn::RESET.with(RetryOn::STATUS_5XX).with(RetryOn::GATEWAY_ERROR))
            }
            ResetReason::Refused => on.has(
                RetryOn::REFUSED_STREAM
                    .with(RetryOn::RESET)
                    .with(RetryOn::STATUS_5XX)
                    .with(RetryOn::GATEWAY_ERROR),
            ),
            ResetReason::Overflow | ResetReason::NoHost | ResetReason::ClusterGone => false,
            ResetReason::RateLimited => on.has(RetryOn::RATE_LIMITED),
            ResetReason::Headers => on.has(RetryOn::HEADERS),
            ResetReason::GrpcStatus(status) => on.has(RetryOn::of_grpc_status(status)),
            ResetReason::Status(status) => {
                (on.has(RetryOn::STATUS_5XX) && (500..600).contains(&status))
                    || (on.has(RetryOn::GATEWAY_ERROR) && (502..=504).contains(&status))
                    || (on.has(RetryOn::STATUS_4XX) && status == 409)
                    || (on.has(RetryOn::STATUS_CODES) && self.names(policy, status))
            }
        }
    }

    /// Whether a status is one of `retriable_status_codes`, or of those that the client named.
    fn names(&self, policy: Option<&RetryPolicy>, status: u16) -> bool {
        policy.is_some_and(|policy| policy.statuses.binary_search(&status).is_ok())
            || self.tried.as_deref().is_some_and(|tried| tried.statuses.contains(&status))
    }
}

impl Stream {
    /// Is tried again by a policy that is no route's, each time for no longer than `per_try`, and within `timeout`, if
    /// that is bounded. What the head says of the time for an answer is then said of one attempt, as in Envoy.
    pub(crate) fn follow(
        &mut self,
        policy: Arc<RetryPolicy>,
        per_try: Option<Duration>,
        head: &mut Head,
        timeout: Option<Duration>,
    ) {
        self.retries.begin(Some(&policy), false, head, false);
        self.retries.buffer_limit = self.retries.buffer_limit.max(MOST_KEPT);
        let is_shorter = |one: &Duration| timeout.is_none_or(|whole| *one < whole);
        self.per_try_timeout = per_try.filter(is_shorter).into();
        self.response_timeout = timeout.into();
        self.retries.tried.get_or_insert_default().policy = Some(policy);
        if let Some(one) = self.per_try_timeout.get()
            && head.get(Name::XEnvoyExpectedRqTimeoutMs).is_some()
        {
            let ms = u64::try_from(one.as_millis()).unwrap_or(u64::MAX);
            head.set_number(Name::XEnvoyExpectedRqTimeoutMs, ms);
        }
    }

    /// Forbids retries that its policy does not want for such a request.
    pub(crate) fn limit_retries(&mut self) {
        let own = self.own_policy().cloned();
        let routed = self.route.and_then(|route| Routed::of(&self.context, route));
        let policy = own.as_deref().or_else(|| routed?.retry_policy());
        self.retries.limit(policy, &self.request);
    }

    /// The policy of a stream that goes before its route's, or that has no route.
    fn own_policy(&self) -> Option<&Arc<RetryPolicy>> {
        self.retries.tried.as_deref()?.policy.as_ref()
    }

    /// When it is tried again: what its route says, or the policy of its own.
    pub(crate) fn retry_policy(&self) -> Option<&RetryPolicy> {
        match self.own_policy() {
            Some(policy) => Some(policy),
            None => self.routed()?.retry_policy(),
        }
    }
}

impl RateLimitedBackOff {
    /// How long a response asks to be left alone, `unix` being the time since 1970.
    fn interval(&self, response: &Head, unix: Duration) -> Option<Duration> {
        let each = self.headers.iter().filter_map(|header| {
            let number = response.get_named(&header.name).and_then(parse_number::<u64>)?;
            let from = if header.is_timestamp { unix.as_secs() } else { 0 };
            number.checked_sub(from).map(Duration::from_secs)
        });
        each.into_iter().find(|interval| *interval <= self.max)
    }
}

/// A name of a header in a list; what is none can be in no response.
fn header_name(text: &[u8]) -> Option<HeaderName> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    HeaderName::new(&text.to_ascii_lowercase()).ok()
}

/// Whether a request with this method may be sent again when it is not known what became of it (RFC 9110 §9.2.2).
pub(crate) fn is_repeatable(method: Method) -> bool {
    match method {
        Method::Get
        | Method::Head
        | Method::Put
        | Method::Delete
        | Method::Options
        | Method::Trace => true,
        Method::Post | Method::Connect | Method::Patch | Method::Other => false,
    }
}

/// The conditions that a header names. Names that are not known are ignored, as in Envoy.
fn conditions(value: &[u8], named: fn(&[u8]) -> Option<RetryOn>) -> RetryOn {
    let names = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    names.filter_map(named).fold(RetryOn::default(), RetryOn::with)
}

/// A decimal number in a header.
pub(crate) fn parse_number<N: std::str::FromStr>(value: &[u8]) -> Option<N> {
    std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()
}

impl Exchange {
    /// Whether a stream's upstream connection was ended, not reset.
    fn is_upstream_ended(&self, index: StreamIndex) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        let UpstreamState::Active(Leg { connection, .. }) = stream.upstream else { return false };
        self.conns.table.get(connection).is_some_and(|it| it.ended && !it.gone)
    }

    /// The upstream side of a stream is over before its response was.
    pub(crate) fn reset_upstream(&mut self, index: StreamIndex, reason: ResetReason, now: Instant) {
        self.end_waiting(index);
        let Some(stream) = self.streams.get(index) else { return };
        let silent = may_repeat_silently(stream, reason, self.conns.request_bytes_sent(stream))
            && !self.conns.response_has_begun(stream);
        let request_sent = self.conns.request_bytes_sent(stream) > 0;
        let leaves = self.conns.leaves(stream);
        if !silent {
            self.blame_host(index, reason);
        }
        let upstream_ended = self.is_upstream_ended(index);
        self.end_try_span(index, TryEnd::Reset(reason), now);
        self.detach_latest(index, Close::Abort, now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        match stream.kind {
            Kind::Http(_) | Kind::Rpc(_) | Kind::Callout(_) => {}
            Kind::Tcp(_) => return self.retry_tcp(index, reason, now),
            Kind::App => return self.reset_call(index, reason, silent, request_sent, leaves, now),
        }
        if !stream.is_unanswered() {
            mark(stream, reason);
            self.reset_downstream(index, reason, upstream_ended, now);
            return;
        }
        let retried = self.retry(index, reason, request_sent, now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.retries.wants_fresh |= silent;
        match (retried, silent) {
            (true, _) => {}
            (false, true) => {
                stream.flags = Flags::default();
                self.place_stream(index, now);
            }
            (false, false) if stream.retries.outlives(reason) => {
                self.charge_reset(index, reason);
                self.watch_beside(index);
            }
            (false, false) => {
                mark(stream, reason);
                self.reply_for(index, reason, now);
            }
        }
    }

    /// Tries again by the route's policy; false if that is not wanted or not allowed.
    pub(crate) fn retry(
        &mut self,
        index: StreamIndex,
        reason: ResetReason,
        request_sent: bool,
        now: Instant,
    ) -> bool {
        let succeeded = self.release_retry(index);
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let (context, own) = (stream.context.clone(), stream.own_policy().cloned());
        let routed = stream.route.and_then(|route| Routed::of(&context, route));
        let policy = own.as_deref().or_else(|| routed?.retry_policy());
        if !stream.retries.wants(policy, reason, request_sent) {
            // Where there is no host, there was no further attempt.
            let was_asked = !matches!(reason, ResetReason::NoHost | ResetReason::ClusterGone);
            if let Some(pool_key) = succeeded.or_else(|| stream.hedged_key())
                && was_asked
            {
                stream.count(|stats| stats.upstream_rq_retry_success.inc());
                self.upstreams.count_retry_success(pool_key);
            }
            return false;
        }
        let Some(pool_key) = stream.retries.pool_key else { return false };
        // Of an aggregate: its own limits and counters.
        let counted = PoolKey { cluster: stream.cluster, ..pool_key };
        let Some(cluster) = self.upstreams.clusters.get_mut(counted.cluster) else { return false };
        if stream.retries.remaining == 0 {
            stream.flags.set(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
            cluster.stats.upstream_rq_retry_limit_exceeded.inc();
            stream.count(|stats| stats.upstream_rq_retry_limit_exceeded.inc());
            return false;
        }
        if !stream.body.whole || stream.upgrade != Upgrade::No {
            cluster.stats.retry_or_shadow_abandoned.inc();
            return false;
        }
        if cluster.is_full_of_retries(stream.priority, now) {
            stream.flags.set(Flags::UPSTREAM_OVERFLOW);
            cluster.stats.upstream_rq_retry_overflow.inc();
            stream.count(|stats| stats.upstream_rq_retry_overflow.inc());
            return false;
        }
        cluster.retry_began(stream.priority);
        stream.retries.counted = Some(counted);
        stream.retries.remaining -= 1;
        let unix = self.env.clock.since_1970(now);
        let asked = policy.and_then(|policy| asked_interval(policy, stream, reason, unix));
        stream.retries.note_wait(asked.is_some());
        let (least, bound) = match asked {
            Some(interval) => (interval, interval / 2),
            None => (Duration::ZERO, back_off_bound(policy, stream.retries.done)),
        };
        stream.retries.done += 1;
        stream.retries.note_cause(reason);
        stream.upstream = UpstreamState::BackingOff;
        stream.clear_attempt_timers();
        stream.trace_phase(Phase::BackOff);
        let chance = Duration::from_nanos(
            self.env.random.below(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX).max(1)),
        );
        self.set_timer(index, HttpTimer::BackOff, now + least + chance);
        true
    }

    /// A back-off is over: only now the retry is counted, as in Envoy.
    pub(crate) fn end_back_off(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.upstream = UpstreamState::None;
        if let Some(cluster) = self.upstreams.clusters.get(stream.cluster) {
            let stats = &cluster.stats;
            stats.upstream_rq_retry.inc();
            match stream.retries.is_asked_to_wait() {
                true => stats.upstream_rq_retry_backoff_ratelimited.inc(),
                false => stats.upstream_rq_retry_backoff_exponential.inc(),
            }
        }
        stream.count(|stats| stats.upstream_rq_retry.inc());
        self.place_stream(index, now);
    }

    /// A retry got what the policy takes for an answer.
    pub(crate) fn settle_retry(&mut self, index: StreamIndex) {
        if let Some(pool_key) = self.release_retry(index) {
            if let Some(stream) = self.streams.get(index) {
                stream.count(|stats| stats.upstream_rq_retry_success.inc());
            }
            self.upstreams.count_retry_success(pool_key);
        }
    }

    /// The stream does not count as a retry any more; answers where it did.
    #[inline]
    pub(crate) fn release_retry(&mut self, index: StreamIndex) -> Option<PoolKey> {
        let stream = self.streams.get_mut(index)?;
        stream.retries.counted?;
        self.release_counted(index)
    }

    #[cold]
    fn release_counted(&mut self, index: StreamIndex) -> Option<PoolKey> {
        let stream = self.streams.get_mut(index)?;
        let pool_key = stream.retries.counted.take()?;
        self.upstreams.clusters.retry_over(pool_key.cluster, stream.priority);
        Some(pool_key)
    }

    /// Answers for an upstream that failed.
    pub(crate) fn reply_for(&mut self, index: StreamIndex, reason: ResetReason, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let retried = stream.retries.done > 0;
        let status = if reason == ResetReason::Protocol { 502 } else { 503 };
        let reset = match reason {
            ResetReason::PerTryTimeout | ResetReason::PerTryIdleTimeout => {
                let details = if reason == ResetReason::PerTryTimeout {
                    details::UPSTREAM_PER_TRY_TIMEOUT
                } else {
                    details::UPSTREAM_PER_TRY_IDLE_TIMEOUT
                };
                let (status, text) = stream.late_reply();
                self.measure_spent(index, now);
                self.charge(index, status);
                return self.local_reply(index, status, text, details, now);
            }
            ResetReason::MaxStreamDuration => {
                // Envoy does not take a request of its own for one that has come.
                let has_come = stream.request_end == Progress::Ended
                    && !matches!(stream.kind, Kind::Callout(_));
                let status = if has_come { 504 } else { 408 };
                let text = b"upstream max stream duration reached";
                let details = details::UPSTREAM_MAX_STREAM_DURATION;
                return self.local_reply(index, status, text, details, now);
            }
            ResetReason::NoHost => {
                let status = self.status_without_host(stream);
                self.charge(index, status);
                let text = b"no healthy upstream";
                let tried = self.streams.get(index).and_then(|it| it.retries.tried.as_deref());
                let why = tried.and_then(|tried| tried.no_host);
                let why = why.unwrap_or(details::NO_HEALTHY_UPSTREAM);
                self.local_reply(index, status, text, why, now);
                return;
            }
            ResetReason::ClusterGone => {
                self.local_reply(index, 503, b"", details::CLUSTER_NOT_FOUND, now);
                return;
            }
            ResetReason::Status(_)
            | ResetReason::GrpcStatus(_)
            | ResetReason::RateLimited
            | ResetReason::Headers => return,
            ResetReason::Connect(_)
            | ResetReason::ConnectTimeout
            | ResetReason::Tls(_)
            | ResetReason::Terminated
            | ResetReason::Reset
            | ResetReason::StreamReset
            | ResetReason::Refused
            | ResetReason::Protocol
            | ResetReason::Overflow => reason.reset(),
        };
        let lead = if retried {
            "upstream connect error or disconnect/reset before headers. retried and the latest reset reason: "
        } else {
            "upstream connect error or disconnect/reset before headers. reset reason: "
        };
        let body = [lead, reset.reason()].concat().into_bytes();
        let quiet = stream.router().is_some_and(|router| router.suppress_envoy_headers);
        let is_held = stream.filters.as_deref().is_some_and(|filters| filters.held.is_some());
        let details = match is_held {
            // The host's response has begun, and counts; the client has nothing of it.
            true => {
                self.count_reset_call(index);
                reset.after_response()
            }
            false => {
                self.charge(index, status);
                reset.before_response()
            }
        };
        let mut head = self.env.heads.take();
        head.set_status(status);
        if reset == Reset::Overflow && !quiet {
            head.set(Name::XEnvoyOverloaded, b"true");
        }
        self.answer(index, head, body, details, now);
    }
}

impl Connections {
    /// How much of this stream's request the kernel has taken.
    pub(crate) fn request_bytes_sent(&self, stream: &Stream) -> u64 {
        let UpstreamState::Active(leg) = stream.upstream else { return 0 };
        self.table.get(leg.connection).map_or(0, |connection| {
            connection.bytes_sent.saturating_sub(stream.retries.sent_before)
        })
    }

    /// Whether a stream's connection takes no further one.
    pub(crate) fn leaves(&self, stream: &Stream) -> bool {
        let UpstreamState::Active(leg) = stream.upstream else { return false };
        self.table.get(leg.connection).is_some_and(|connection| connection.mux.is_exhausted())
    }

    /// Whether anything came back for this stream's request: a part of a head, or an interim response.
    pub(crate) fn response_has_begun(&self, stream: &Stream) -> bool {
        let UpstreamState::Active(leg) = stream.upstream else { return false };
        self.table.get(leg.connection).is_some_and(|connection| {
            // On one that many share, what comes for others is no sign.
            connection.mux.is_alone() && connection.bytes_received > stream.retries.received_before
        })
    }
}

/// See the module's text; that no byte of a response has come is up to the caller.
pub(crate) fn may_repeat_silently(stream: &Stream, reason: ResetReason, bytes_sent: u64) -> bool {
    // RFC 9113 §8.7: nothing was done for it.
    let is_safe = reason == ResetReason::Refused
        || (reason == ResetReason::Terminated
            && stream.reused
            && (bytes_sent == 0 || stream.retries.repeatable));
    let may_repeat = !stream.retries.forbidden && !stream.retries.wants_fresh;
    is_safe && may_repeat && stream.is_unanswered() && stream.body.whole
}

/// Sets the response flag of a reset.
pub(crate) fn mark(stream: &mut Stream, reason: ResetReason) {
    let Some(flag) = flag_of(reason) else { return };
    stream.flags.set(flag);
    stream.recorder.note(|record| record.transport_failure = reason.reset().transport_failure());
}

/// The response flag of a reset.
pub(crate) const fn flag_of(reason: ResetReason) -> Option<Flags> {
    Some(match reason {
        ResetReason::Connect(_) | ResetReason::ConnectTimeout | ResetReason::Tls(_) => {
            Flags::UPSTREAM_CONNECTION_FAILURE
        }
        ResetReason::Terminated | ResetReason::Reset => Flags::UPSTREAM_CONNECTION_TERMINATION,
        ResetReason::StreamReset | ResetReason::Refused => Flags::UPSTREAM_REMOTE_RESET,
        ResetReason::Protocol => Flags::UPSTREAM_PROTOCOL_ERROR,
        ResetReason::PerTryTimeout | ResetReason::PerTryIdleTimeout => {
            Flags::UPSTREAM_REQUEST_TIMEOUT
        }
        ResetReason::MaxStreamDuration => Flags::UPSTREAM_MAX_STREAM_DURATION,
        ResetReason::Overflow => Flags::UPSTREAM_OVERFLOW,
        ResetReason::NoHost => Flags::NO_HEALTHY_UPSTREAM,
        ResetReason::ClusterGone => Flags::NO_CLUSTER_FOUND,
        ResetReason::Status(_)
        | ResetReason::GrpcStatus(_)
        | ResetReason::RateLimited
        | ResetReason::Headers => return None,
    })
}

/// How long the answer that is retried asks to be left alone, if the policy listens to that.
fn asked_interval(
    policy: &RetryPolicy,
    stream: &Stream,
    reason: ResetReason,
    unix: Duration,
) -> Option<Duration> {
    let is_answer = matches!(
        reason,
        ResetReason::Status(_)
            | ResetReason::GrpcStatus(_)
            | ResetReason::RateLimited
            | ResetReason::Headers
    );
    let response = stream.response.present().filter(|_| is_answer)?;
    let interval = policy.rate_limited.as_ref()?.interval(response, unix);
    interval.filter(|interval| !interval.is_zero())
}

/// What the wait before a retry is drawn below, after so many.
fn back_off_bound(policy: Option<&RetryPolicy>, done: u32) -> Duration {
    let (base, most) =
        policy.map_or(DEFAULT_BACK_OFF, |policy| (policy.base_interval, policy.max_interval));
    doubled(base, most, done)
}

/// An interval, doubled so often, and no longer than that.
pub(crate) fn doubled(base: Duration, most: Duration, times: u32) -> Duration {
    base.saturating_mul(1 << times.min(20)).min(most)
}

/// What is kept of the content of a call whose messages come one after the other; with more it is not tried again.
/// Envoy's limit; it drops what is more, and sends the rest.
const MOST_KEPT: usize = 64 << 10;

/// Envoy's default: 25 ms, at most ten times that.
pub(crate) const DEFAULT_BACK_OFF: (Duration, Duration) =
    (Duration::from_millis(25), Duration::from_millis(250));
