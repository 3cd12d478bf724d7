//! Where a request goes: normalised, filtered, routed, placed on a host.
//!
//! Arrives: a stream with its request head. Leaves: a lease from a pool, or an answer of our own.

#[cfg(feature = "lua")]
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::bolt::Frame;
use towpath_proto::head::{Head, HeaderName, Method};
use towpath_proto::name::Name;
use towpath_proto::{Address, Instant};
use towpath_trace::Stamp;

use crate::conn::context::{ChainContext, HttpContext};
use crate::conn::mux;
use crate::conn::spans::Phase;
use crate::deadlines::Limit;
use crate::exchange::choice::{choose_host, hash_of};
use crate::exchange::edge::Origin;
use crate::exchange::filters::{FilterStatus, Resume};
use crate::exchange::hedging::Hedging;
use crate::exchange::log::{DOWNSTREAM_START, Setting};
use crate::exchange::overrides::OVERRIDES;
use crate::exchange::retry::parse_number;
use crate::exchange::rewrite::{set_host, written};
use crate::exchange::rpc::Bridging;
use crate::exchange::rpc::downstream::is_head_read;
use crate::exchange::stream::{Pass, Progress, RouteRef, Routed, Stream, Upgrade, UpstreamState};
use crate::exchange::strict_headers;
use crate::exchange::timers::HttpTimer;
use crate::exchange::{Exchange, edge, grpc};
#[cfg(feature = "lua")]
use crate::filter::lua::ClusterUse;
use crate::format::{Facts, Format};
use crate::grpc::{is_grpc, set_timeout};
use crate::ids::{Kind, Leg, NO_CLUSTER, PoolKey, Priority, ResetReason, StreamIndex};
use crate::matcher::Subject;
use crate::record::{Flags, details};
use crate::route::head::normalize;
use crate::route::{Picked, Sanitized};
#[cfg(feature = "lua")]
use crate::snapshot::cluster::InUse;
use crate::snapshot::overload::ScaledTime;
use crate::snapshot::route::{
    Action, BodyFormat, ClusterChoice, Forward, GrpcTimeout, HostRewrite, Route, WeightedTarget,
};
use crate::snapshot::specifier::Specifier;
use crate::snapshot::{ClusterId, Snapshot};
#[cfg(feature = "lua")]
use crate::total::Total;
use crate::upstream::pool::{Lease, Wish};

impl Exchange {
    /// From a request's head to a place for it.
    pub(crate) fn route_request(
        &mut self,
        index: StreamIndex,
        context: &ChainContext,
        pass: Pass,
        now: Instant,
    ) {
        let (Some(stream), Some(http)) = (self.streams.get_mut(index), context.http()) else {
            return;
        };
        stream.recorder.note(|record| record.protocol = Some(stream.request.version()));
        if stream.request.method() == Method::Connect {
            stream.upgrade = Upgrade::Connect;
        }
        let id = stream.downstream.connection;
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if pass == Pass::First && !http.config.ignored_upgrades.is_empty() {
            edge::ignore_upgrades(&mut stream.request, &http.config.ignored_upgrades);
        }
        let tls = http.config.tells_certificates().then(|| connection.downstream_tls()).flatten();
        let connection = &*connection;
        match normalize(&mut stream.request, &http.config, &connection.local) {
            Sanitized::Unchanged | Sanitized::Changed => {}
            Sanitized::Rejected => {
                http.stats.downstream_rq_failed_path_normalization.inc();
                self.conns.close_after_response(id);
                self.local_reply(index, 400, b"", details::PATH_NORMALIZATION_FAILED, now);
                return;
            }
            Sanitized::Redirect => {
                http.stats.downstream_rq_redirected_with_normalized_path.inc();
                let location = stream.request.path().to_vec();
                self.redirect_to(index, 307, &location, details::PATH_NORMALIZATION_FAILED, now);
                return;
            }
        }
        let path = stream.request.path();
        if !path.is_empty() && !path.starts_with(b"/") {
            http.stats.downstream_rq_non_relative_path.inc();
            self.local_reply(index, 404, b"", details::ABSOLUTE_PATH_REJECTED, now);
            return;
        }
        let origin = match pass {
            Pass::First => {
                if !http.config.early_mutations.is_empty() {
                    let clusters = &self.upstreams.clusters;
                    edge::mutate_early(stream, http, clusters, &mut self.env, now);
                }
                let (head, random) = (&mut stream.request, &mut self.env.random);
                let id = || random.uuid();
                let tls = tls.as_deref();
                let marked = edge::mark_request(
                    head,
                    connection,
                    (&http.config, &self.snapshot.node),
                    tls,
                    id,
                );
                let (origin, client) = match marked {
                    Ok(marked) => marked,
                    Err(status) => {
                        http.stats.downstream_rq_rejected_via_ip_detection.inc();
                        let why = details::ORIGINAL_IP_DETECTION_FAILED;
                        return self.local_reply(index, status, b"", why, now);
                    }
                };
                if let Some(client) = client {
                    stream.recorder.note(|record| {
                        record.downstream_remote = Some(Address::Ip(client));
                    });
                }
                origin
            }
            // What it must not say it has been rid of.
            Pass::Redirected => Origin::Forwarded,
        };
        let random = self.env.random.next();
        // Before the filters: what they change leads elsewhere only where one of them says so, as in Envoy.
        let wants_tls = stream.choose_route(http, &self.snapshot, random);
        if stream.request.has_any(&[Name::Upgrade]) || stream.upgrade == Upgrade::Connect {
            let is_admitted = stream.admit_upgrade(&http.config);
            if is_admitted {
                stream.chain = stream.upgrade_of(&http.config).and_then(|upgrade| upgrade.chain);
            } else if wants_tls || stream.route.is_some() {
                return self.refuse_upgrade(index, http, now);
            }
        }
        let has_filters = !http.chain(stream.chain).filters.is_empty();
        if http.config.tracing.is_some() {
            self.begin_tracing(index, &http.config, pass);
        }
        if http.config.log_on_new_request {
            self.log_under_way(index, DOWNSTREAM_START, now);
        }
        let mut resume = Resume { origin, random, wants_tls };
        if has_filters && self.filter_request(index, 0, &mut resume, now) == FilterStatus::Stopped {
            return;
        }
        self.route_filtered(index, context, resume, now);
    }

    /// Goes on with a request that has passed its filters.
    #[inline]
    pub(crate) fn route_filtered(
        &mut self,
        index: StreamIndex,
        context: &ChainContext,
        resume: Resume,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get(index) else { return };
        let routed = match stream.route {
            Some(route) => Routed::of(context, route),
            None => None,
        };
        match routed {
            Some(routed) => self.take_route(index, routed.route, resume, now),
            None => self.answer_unrouted(index, resume.wants_tls, now),
        }
    }

    /// Does what a route says.
    fn take_route(&mut self, index: StreamIndex, route: &Route, resume: Resume, now: Instant) {
        let Resume { origin, random, .. } = resume;
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.trace_phase(Phase::Route);
        let count_direct = |stream: &Stream| {
            if let Some(http) = stream.context.http() {
                http.stats.rq_total.inc();
                http.stats.rq_direct_response.inc();
            }
        };
        match &route.action {
            Action::Direct { status, body, format } => {
                count_direct(stream);
                self.direct_response(index, *status, body, format.as_deref(), now);
            }
            Action::Redirect(redirect) => {
                let setting =
                    Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
                let location = redirect.location(&route.path, &stream.request, |format| {
                    written(format, stream, &stream.request, setting, now)
                });
                count_direct(stream);
                let status = redirect.status;
                self.redirect_to(index, status, &location, details::DIRECT_RESPONSE, now);
            }
            Action::Forward(forward) => {
                if !self.forward_plain(index, forward, origin, now) {
                    self.begin_forward(index, forward, origin, random, now);
                }
            }
        }
    }

    /// Answers a request that no route takes, or that is to come by https.
    fn answer_unrouted(&mut self, index: StreamIndex, wants_tls: bool, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.trace_phase(Phase::Route);
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        http.stats.rq_total.inc();
        if wants_tls {
            http.stats.rq_direct_response.inc();
            let request = &stream.request;
            let location = [b"https://", request.authority(), request.path()].concat();
            return self.redirect_to(index, 301, &location, details::DIRECT_RESPONSE, now);
        }
        stream.flags.set(Flags::NO_ROUTE_FOUND);
        http.stats.no_route.inc();
        self.local_reply(index, 404, b"", details::ROUTE_NOT_FOUND, now);
    }

    /// A `direct_response` route.
    pub(crate) fn direct_response(
        &mut self,
        index: StreamIndex,
        status: u16,
        body: &[u8],
        format: Option<&BodyFormat>,
        now: Instant,
    ) {
        let mut head = self.env.heads.take();
        head.set_status(status);
        // RFC 9110 §10.2.2: what was made is where the request went. Envoy says the same of what has moved.
        if (status == 201 || (300..400).contains(&status))
            && let Some(request) = self.streams.get(index).and_then(|it| it.request.present())
        {
            let place = [request.scheme(), b"://", request.authority(), request.path()].concat();
            head.set(Name::Location, &place);
        }
        let (body, content_type) = match format {
            Some(BodyFormat { format, content_type }) => {
                (self.formatted(index, format, body, now), content_type.as_deref())
            }
            None => (body.to_vec(), None),
        };
        self.answer_as(index, head, body, content_type, details::DIRECT_RESPONSE, now);
    }

    /// The content that a format makes of a body.
    fn formatted(&self, index: StreamIndex, format: &Format, body: &[u8], now: Instant) -> Vec<u8> {
        let Some(stream) = self.streams.get(index) else { return Vec::new() };
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = crate::exchange::log::facts(stream, None, setting, now);
        let mut made = Vec::new();
        format.write(&mut made, &Facts { local_reply_body: body, ..facts });
        made
    }

    /// Answers with a `location`.
    pub(crate) fn redirect_to(
        &mut self,
        index: StreamIndex,
        status: u16,
        location: &[u8],
        details: &'static str,
        now: Instant,
    ) {
        let mut head = self.env.heads.take();
        head.set_status(status);
        head.set(Name::Location, location);
        self.answer(index, head, Vec::new(), details, now);
    }

    /// A route that forwards: cluster, limits, rewrites; then a place.
    pub(crate) fn begin_forward(
        &mut self,
        index: StreamIndex,
        forward: &Forward,
        origin: Origin,
        random: u64,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let (kind, context) = (stream.kind, stream.context.clone());
        let Some(http) = context.http() else { return };
        // Only a call comes here without a cluster from where its route was found.
        if matches!(kind, Kind::Rpc(_)) {
            let (cluster, weighted) = choose_cluster(&self.snapshot, stream, forward, random);
            stream.cluster = cluster.unwrap_or(NO_CLUSTER);
            if let Some(route) = &mut stream.route {
                route.weighted = weighted;
            }
        }
        let cluster = Some(stream.cluster).filter(|id| *id != NO_CLUSTER);
        // What is routed by a header can name any cluster.
        let speaks = |id: &ClusterId| {
            let cluster = self.upstreams.clusters.get(*id);
            let wanted = matches!(kind, Kind::Rpc(_)) != forward.bridge.is_some();
            cluster.is_some_and(|it| it.config.bolt.is_some() == wanted)
        };
        let cluster = cluster.filter(speaks);
        stream.cluster = cluster.unwrap_or(NO_CLUSTER);
        let Some(cluster) = cluster else {
            stream.flags.set(Flags::NO_CLUSTER_FOUND);
            http.stats.rq_total.inc();
            http.stats.no_cluster.inc();
            self.local_reply(index, forward.not_found_status, b"", details::CLUSTER_NOT_FOUND, now);
            return;
        };
        if let (Some(route), Some(request)) = (&mut stream.route, stream.request.present()) {
            let host = http.config.routes.hosts.get(route.host as usize);
            route.virtual_cluster = host.and_then(|host| host.virtual_cluster(request));
        }
        stream.priority = if forward.high_priority { Priority::High } else { Priority::Default };
        let strict = &http.config.chain(stream.chain).router.strict_headers;
        if !strict.is_empty()
            && let Some(refused) = strict_headers::refused(strict, &stream.request)
        {
            stream.flags.set(Flags::INVALID_ENVOY_REQUEST_HEADERS);
            http.stats.rq_total.inc();
            self.conns.close_after_response(stream.downstream.connection);
            return self.local_reply(index, 400, &refused.body, refused.details, now);
        }
        if !self.begin_crossing(index, forward, now) {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        // Filters may have led it here, or have it ask.
        if stream.upgrade == Upgrade::No && !stream.admit_upgrade(&http.config) {
            return self.refuse_upgrade(index, http, now);
        }
        stream.posts_bytes = false;
        if let Some(connect) = forward.connect() {
            if stream.upgrade == Upgrade::Connect {
                stream.upgrade = Upgrade::ConnectHere;
            }
            stream.posts_bytes = connect.takes_post
                && stream.request.method() == Method::Post
                && stream.upgrade == Upgrade::No
                && matches!(stream.kind, Kind::Http(_));
        }
        http.stats.rq_total.inc();
        let trusted = origin != Origin::Edge;
        let known = self.upstreams.clusters.get(cluster);
        let (own, mirrors) = known
            .map(|it| (it.config.retry.clone(), it.config.mirrors.clone()))
            .unwrap_or_default();
        let policy = own.as_ref().or(forward.retry.as_ref());
        stream.retries.begin(policy.map(|it| &**it), forward.hedges, &stream.request, trusted);
        if forward.internal_redirects.is_some() {
            stream.redirected_mut().follows = true;
        }
        if let Some(own) = own {
            stream.retries.tried.get_or_insert_default().policy = Some(own);
        }
        stream.bound_kept_body();
        stream.response_timeout = grpc::response_timeout(forward, &stream.request).into();
        let per_try = forward.retry.as_deref().and_then(|retry| retry.per_try_timeout);
        stream.per_try_timeout = per_try.into();
        timeouts_from_headers(stream, origin);
        if stream.request.present().is_some_and(|head| head.has_any(&OVERRIDES)) {
            stream.take_overrides(&self.upstreams.clusters, &self.env);
        }
        if let Some(timeout) = stream.frame.as_ref().and_then(Frame::timeout) {
            stream.response_timeout = Some(timeout).into();
        }
        if let Some(idle) = forward.idle_timeout {
            let idle = idle.map(|idle| self.env.reduced(ScaledTime::StreamIdle, idle));
            self.set_idle(index, idle, now);
        }
        self.limit_duration(index, forward, now);
        if self.drop_overload(index, now) {
            return;
        }
        self.rewrite(index, forward, now);
        if let Some(stream) = self.streams.get_mut(index) {
            stream.limit_retries();
        }
        let stream = self.streams.get(index);
        if stream.is_some_and(|it| it.request_end == Progress::Ended || it.asks_for_websocket()) {
            self.start_response_timer(index, now);
        }
        let mirrors = mirrors.as_ref().unwrap_or(&forward.mirrors);
        if !mirrors.is_empty() {
            let stream = self.streams.get(index);
            let timeout = stream.and_then(|stream| stream.response_timeout.get());
            self.begin_mirrors(index, mirrors, timeout, now);
        }
        self.place_crossing(index, now);
    }

    /// Tells a client that waits for it to send its body, unless the upstream is asked. Other expectations are the
    /// upstream's to meet or to refuse (RFC 9110 §10.1.1), as in Envoy.
    #[cold]
    pub(crate) fn answer_expectation(&mut self, index: StreamIndex, http: &HttpContext) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Leg { connection: downstream, number } = stream.downstream;
        let is_known = {
            let mut expected = stream.request.values(Name::Expect);
            matches!((expected.next(), expected.next()),
                (Some(one), None) if one.eq_ignore_ascii_case(b"100-continue"))
        };
        if !is_known || http.config.proxy_100_continue {
            return;
        }
        stream.request.remove(Name::Expect);
        self.conns.encode_for(downstream, &mut self.env);
        let Some(connection) = self.conns.table.get_mut(downstream) else { return };
        if connection.mux.wants_continue() {
            let head = Head::response(100);
            connection.mux.send(number, mux::Part::Interim(&head), &mut self.conns.out);
            self.streams.count_informational(index, 100);
        }
    }

    /// Chooses a host for a stream (again) and asks its pool for a connection.
    pub(crate) fn place_stream(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if let Kind::Tcp(_) = stream.kind {
            let cluster = stream.cluster;
            self.place_tcp(index, cluster, now);
            return;
        }
        stream.trace_phase(Phase::PoolWait);
        match self.upstreams.clusters.get(stream.cluster) {
            Some(cluster) if cluster.named.is_some() => return self.place_named(index, false, now),
            Some(_) => {}
            None => return self.reset_upstream(index, ResetReason::ClusterGone, now),
        }
        match choose_host(stream, &self.conns, &mut self.upstreams.clusters, &mut self.env, now) {
            Some(pool_key) => self.place_on(index, pool_key, now),
            None => self.reset_upstream(index, ResetReason::NoHost, now),
        }
    }

    /// Asks the pool of a stream's host for a connection.
    pub(crate) fn place_on(&mut self, index: StreamIndex, pool_key: PoolKey, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let pool = self.upstreams.clusters.pool(pool_key);
        stream.recorder.note(|record| {
            record.upstream_host = pool.map(|pool| pool.address.clone());
            record.pool_asked = Some(now);
        });
        if self.env.overload.is_some() && self.refuse_at_host(index, now) {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.recorder.is_followed() {
            self.begin_try_span(index, now);
        }
        if self.streams.get(index).is_some_and(|stream| !stream.recorder.is_off()) {
            self.begin_attempt_log(index, now);
        }
        self.measure_attempt(index, now);
        if !self.filter_attempt(index, now) {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        let lease = if stream.upgrade == Upgrade::ConnectHere || stream.posts_bytes {
            self.lease_raw(index, pool_key, now)
        } else {
            let (reuses, repeatable) = (!stream.retries.wants_fresh, stream.retries.repeatable);
            let origin = self.upstreams.clusters.get(pool_key.cluster).filter(|it| it.races);
            let races = origin.is_some();
            let pool = origin.and_then(|origin| origin.pool(pool_key));
            let has_none = pool.is_some_and(|pool| pool.open.is_empty());
            let turn = races.then(|| self.place_in_queue(index, pool_key)).flatten();
            let opened_after = races.then(|| self.fresh_after(index));
            let wish = Wish { stream: index, reuses, opened_after, repeatable, turn };
            let shared = if has_none { self.shared_connection(index, now) } else { None };
            match shared {
                Some(id) => Lease::Ready(id),
                None => self.upstreams.lease(wish, pool_key, &mut self.conns, &mut self.env, now),
            }
        };
        match lease {
            Lease::Ready(connection) => self.attach(index, connection, now),
            Lease::Pending => {
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.upstream = UpstreamState::Pending(pool_key);
                }
                self.begin_waiting(index);
                self.note_hold(index, pool_key.cluster, now);
            }
            Lease::Overflow => self.reset_upstream(index, ResetReason::Overflow, now),
            Lease::NoPool => {
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.recorder.note(|record| record.upstream_host = None);
                }
                self.reset_upstream(index, ResetReason::NoHost, now);
            }
            Lease::QueueFull => {
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.recorder.note(|record| record.upstream_host = None);
                }
                self.reset_upstream(index, ResetReason::Overflow, now);
            }
        }
    }

    /// What is decided anew for each attempt.
    pub(crate) fn finish_request_head(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        // A call that stays one leaves as its frame.
        let is_call = matches!(stream.kind, Kind::Rpc(_)) && stream.bridging == Bridging::None;
        if is_call && !is_head_read(stream, self.env.slow_after) {
            return;
        }
        // What passes filters first has said so to them.
        if !stream.retries.is_filtered() {
            let attempts = stream.attempts;
            self.name_attempt(index, attempts.into(), now);
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let (Some(http), Some(routed)) =
            (context.http(), stream.route.and_then(|route| Routed::of(&context, route)))
        else {
            return;
        };
        let Some(forward) = routed.forward() else { return };
        if http.config.scheme_of_upstream
            && let Some(pool_key) = stream.retries.pool_key
            && let Some(cluster) = self.upstreams.clusters.get(pool_key.cluster)
        {
            let is_tls = cluster.tls_of(pool_key).is_some();
            stream.request.set_scheme(if is_tls { b"https" } else { b"http" });
        }
        if matches!(forward.host, HostRewrite::Auto)
            && let Some(pool_key) = stream.retries.pool_key
            && let Some(pool) = self.upstreams.clusters.pool(pool_key)
            && !pool.hostname.is_empty()
        {
            let name = pool.hostname.clone();
            let router = &http.config.chain(stream.chain).router;
            let quiet = router.suppress_envoy_headers || stream.retries.done > 0;
            set_host(&mut stream.request, name.as_bytes(), forward, quiet);
        }
    }

    /// Tells a server which attempt of its request this is, of which trace, and how long it may take.
    pub(super) fn name_attempt(&mut self, index: StreamIndex, attempts: u64, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.recorder.is_followed() {
            stream.tell_trace();
        }
        let context = stream.context.clone();
        let (Some(http), Some(routed)) =
            (context.http(), stream.route.and_then(|route| Routed::of(&context, route)))
        else {
            return tell_time_left(stream, now);
        };
        if routed.host.attempt_count_in_request {
            self.env.attempt_count.set(attempts, &mut stream.request);
        }
        if routed.host.timeout_retry_in_request && stream.retries.done > 0 {
            let follows: &[u8] = if stream.retries.follows_timeout() { b"true" } else { b"false" };
            stream.request.set_bytes(IS_TIMEOUT_RETRY, follows);
        }
        let Some(forward) = routed.forward() else { return };
        let told = !http.config.chain(stream.chain).router.suppress_envoy_headers;
        let of_grpc = matches!(forward.grpc_timeout, GrpcTimeout::Response { .. });
        if (told || of_grpc)
            && let Some(expected) = expected_time(stream, now)
        {
            if told {
                let ms = u64::try_from(expected.as_millis()).unwrap_or(u64::MAX);
                self.env.expected_timeout.set(ms, &mut stream.request);
            }
            if of_grpc && is_grpc(&stream.request) {
                set_timeout(&mut stream.request, expected);
            }
        }
    }

    /// Starts what bounds one attempt, once it has a connection and all of the request is here.
    pub(crate) fn start_try_timers(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        match stream.kind {
            Kind::Http(_) | Kind::Rpc(_) | Kind::Callout(_) => {}
            Kind::Tcp(_) => return,
            Kind::App => return self.begin_try(index, now),
        }
        let is_on = matches!(stream.upstream, UpstreamState::Active(_)) && stream.is_unanswered();
        if !is_on || stream.request_end != Progress::Ended || stream.upgrade != Upgrade::No {
            return;
        }
        let (per_try, idle) = (stream.per_try_timeout.get(), stream.per_try_idle_timeout());
        if let Some(per_try) = per_try {
            self.set_timer(index, HttpTimer::PerTry, now + per_try);
        }
        if let Some(idle) = idle {
            self.set_timer(index, HttpTimer::PerTryIdle, now + idle);
        }
    }
}

impl Stream {
    /// Finds its route, which decides its cluster as far as the route names one; whether it is to come by https.
    #[inline]
    pub(crate) fn choose_route(
        &mut self,
        http: &HttpContext,
        snapshot: &Arc<Snapshot>,
        random: u64,
    ) -> bool {
        let since = snapshot.times_routes.then(Stamp::now_monotonic);
        let picked = http.config.routes.pick(&self.request, self.recorder.known(), random);
        self.recorder.note_lookup(since);
        (self.route, self.cluster) = (RouteRef::picked(&picked), NO_CLUSTER);
        if let Picked::Route { route, .. } = &picked
            && let Action::Forward(forward) = &route.action
        {
            match &forward.cluster {
                ClusterChoice::One(id) => self.cluster = *id,
                // Nothing comes of a route whose plugin is not there.
                ClusterChoice::Specified(it) if matches!(**it, Specifier::Missing) => {
                    self.route = None;
                }
                ClusterChoice::Header(_)
                | ClusterChoice::Specified(_)
                | ClusterChoice::Weighted { .. } => {
                    let (cluster, weighted) = choose_cluster(snapshot, self, forward, random);
                    self.cluster = cluster.unwrap_or(NO_CLUSTER);
                    if let Some(route) = &mut self.route {
                        route.weighted = weighted;
                    }
                }
            }
        }
        matches!(picked, Picked::TlsRequired { .. })
    }

    /// Settles how much of its request is kept for another attempt.
    pub(crate) fn bound_kept_body(&mut self) {
        let limit = self.routed().and_then(|routed| routed.route.retry_buffer_limit);
        let listener = &self.context.listener;
        let may_come_again = self.retries.remaining > 0 || self.retries.follows();
        self.retries.buffer_limit = limit.unwrap_or(match may_come_again {
            false => listener.buffer_limit.bytes,
            true => listener.retry_buffer_limit,
        });
    }
}

/// The cluster of a request, and its place among those that share a route.
pub(crate) fn choose_cluster(
    snapshot: &Arc<Snapshot>,
    stream: &Stream,
    forward: &Forward,
    random: u64,
) -> (Option<ClusterId>, Option<u16>) {
    match &forward.cluster {
        ClusterChoice::One(id) => (Some(*id), None),
        ClusterChoice::Header(name) => (named_cluster(snapshot, stream, name), None),
        ClusterChoice::Specified(specifier) => {
            (specified_cluster(snapshot, stream, specifier), None)
        }
        ClusterChoice::Weighted { clusters, by_hash, number, .. } => {
            let number = number.as_ref().and_then(|name| the_number(&stream.request, name));
            let hash = || by_hash.then(|| hash_of(stream, &forward.hash, |_, _| None)).flatten();
            let chosen = forward.cluster.weighted(number.or_else(hash).unwrap_or(random));
            let at =
                chosen.and_then(|chosen| clusters.iter().position(|one| std::ptr::eq(one, chosen)));
            let cluster = chosen.and_then(|chosen| match &chosen.cluster {
                WeightedTarget::Named(id) => Some(*id),
                WeightedTarget::Header(name) => named_cluster(snapshot, stream, name),
            });
            (cluster, at.and_then(|at| u16::try_from(at).ok()))
        }
    }
}

/// The cluster that a request's header names.
fn named_cluster(snapshot: &Snapshot, stream: &Stream, name: &HeaderName) -> Option<ClusterId> {
    let named = std::str::from_utf8(stream.request.get_named(name)?).ok()?;
    snapshot.cluster_id(named)
}

/// The cluster that a plugin finds.
#[cold]
fn specified_cluster(
    snapshot: &Arc<Snapshot>,
    stream: &Stream,
    specifier: &Specifier,
) -> Option<ClusterId> {
    match specifier {
        Specifier::Matcher(tree) => {
            let record = stream.recorder.record();
            let name = tree.find(&Subject {
                local: record.downstream_local.as_ref(),
                direct: record.downstream_direct_remote.as_ref(),
                remote: record.downstream_remote.as_ref(),
                server_name: record.server_name.as_deref().unwrap_or_default(),
                tls: record.downstream_tls.as_deref(),
                request: Some(&stream.request),
                info: stream.recorder.info(),
                ..Subject::default()
            })?;
            snapshot.cluster_id(name)
        }
        #[cfg(feature = "lua")]
        Specifier::Lua(specifier) => {
            let scripts = &stream.context.http()?.specifiers;
            let seen = Arc::clone(snapshot);
            let uses = move |name: &str| {
                let in_use = &seen.cluster(seen.cluster_id(name)?)?.in_use;
                let sum = |of: fn(&InUse) -> &Total| in_use.iter().map(|it| of(it).value()).sum();
                Some(ClusterUse {
                    connections: sum(|it| &it.connections),
                    requests: sum(|it| &it.requests),
                    pending: sum(|it| &it.pending),
                })
            };
            snapshot.cluster_id(&scripts.find(specifier, &stream.request, Rc::new(uses)))
        }
        Specifier::Missing => None,
    }
}

/// The number that a header says, where there is one such header.
fn the_number(head: &Head, name: &HeaderName) -> Option<u64> {
    let mut values = head.get_all(name);
    let (value, None) = (values.next()?, values.next()) else { return None };
    std::str::from_utf8(value).ok()?.trim_ascii().parse().ok()
}

/// How long a server has for the attempt that begins.
pub(crate) fn expected_time(stream: &Stream, now: Instant) -> Option<Duration> {
    let first = stream.retries.done == 0;
    let elapsed = stream.times.request_end.filter(|_| !first).map(|end| now - end);
    let left = stream
        .response_timeout
        .get()
        .map(|whole| whole.saturating_sub(elapsed.unwrap_or_default()).max(SHORTEST_WAIT));
    let is_one_of_several = stream.retries.hedging != Hedging::Off;
    let one = stream.per_try_timeout.get().filter(|_| !is_one_of_several);
    [one, left].into_iter().flatten().min()
}

/// Tells a server that is asked again on the proxy's own account how long it has, where it was told before.
fn tell_time_left(stream: &mut Stream, now: Instant) {
    let is_told =
        stream.retries.done > 0 && stream.request.get(Name::XEnvoyExpectedRqTimeoutMs).is_some();
    if is_told && let Some(expected) = expected_time(stream, now) {
        let ms = u64::try_from(expected.as_millis()).unwrap_or(u64::MAX);
        stream.request.set_number(Name::XEnvoyExpectedRqTimeoutMs, ms);
    }
}

/// `x-envoy-upstream-rq-timeout-ms` and `x-envoy-upstream-rq-per-try-timeout-ms`, from a peer that may say so.
pub(crate) fn timeouts_from_headers(stream: &mut Stream, origin: Origin) {
    let milliseconds =
        |head: &Head, name| head.get(name).and_then(parse_number::<u64>).map(Duration::from_millis);
    if origin != Origin::Edge {
        if let Some(timeout) = milliseconds(&stream.request, Name::XEnvoyUpstreamRqTimeoutMs) {
            stream.response_timeout = (!timeout.is_zero()).then_some(timeout).into();
        }
        if let Some(timeout) = milliseconds(&stream.request, Name::XEnvoyUpstreamRqPerTryTimeoutMs)
        {
            stream.per_try_timeout = (!timeout.is_zero()).then_some(timeout).into();
        }
    }
    if let (Some(per_try), Some(whole)) =
        (stream.per_try_timeout.get(), stream.response_timeout.get())
        && per_try >= whole
    {
        stream.per_try_timeout = Limit::NONE;
    }
    const SPENT: [Name; 8] = [
        Name::XEnvoyUpstreamRqTimeoutMs,
        Name::XEnvoyUpstreamRqPerTryTimeoutMs,
        Name::XEnvoyRetryOn,
        Name::XEnvoyRetryGrpcOn,
        Name::XEnvoyMaxRetries,
        Name::XEnvoyRetriableStatusCodes,
        Name::XEnvoyRetriableHeaderNames,
        Name::XEnvoyHedgeOnPerTryTimeout,
    ];
    if let Some(head) = stream.request.present_mut() {
        head.remove_each(&SPENT);
    }
}

const IS_TIMEOUT_RETRY: &[u8] = b"x-envoy-is-timeout-retry";
/// What is told of a timeout that has passed already: 0 would mean none.
pub(crate) const SHORTEST_WAIT: Duration = Duration::from_millis(1);
