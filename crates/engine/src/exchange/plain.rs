//! Ordinary exchanges: HTTP on both sides, a request that no route changes, connections that go on.
//!
//! Arrives: a stream with its route, or one whose response has ended. Leaves: what [`Exchange::begin_forward`] and
//! [`Exchange::finish`] leave, with each of its parts looked up once. Whatever is not ordinary is left to those.

use std::time::Duration;

use towpath_proto::Instant;
use towpath_proto::name::Name;

use crate::conn::mux::{Mux, Part, Released};
use crate::conn::{Connection, ConnectionTimer, Connections, Reading, Role};
use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::choice::choose_own_host;
use crate::exchange::edge::Origin;
use crate::exchange::hedging::Hedging;
use crate::exchange::overrides::OVERRIDES;
use crate::exchange::router::{SHORTEST_WAIT, timeouts_from_headers};
use crate::exchange::rpc::Bridging;
use crate::exchange::stream::{Progress, Stream, Upgrade, UpstreamState};
use crate::exchange::timers::HttpTimer;
use crate::ids::{Kind, Leg, PoolKey, Priority, ResetReason, StreamIndex};
use crate::record::Heads;
use crate::snapshot::route::{ClusterChoice, Forward};
use crate::upstream::cluster::{ClusterState, Resource};
use crate::upstream::pool::PEER_IDLE_MARGIN;

impl Exchange {
    /// Ends an ordinary exchange; false, and nothing done, if it is none.
    pub(crate) fn finish_plain(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let UpstreamState::Active(leg) = stream.upstream else { return false };
        if !is_plain(stream) {
            return false;
        }
        let waiting = self.conns.waiting_for(leg.connection);
        let Some(connection) = self.conns.table.get_mut(leg.connection) else { return false };
        let Some(pool_key) = goes_on(connection) else { return false };
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else { return false };
        let idle_timeout = cluster.config.idle_timeout;
        let Some(pool) = cluster.pool_mut(pool_key) else { return false };
        if pool.host.is_none() || !pool.pending.is_empty() {
            return false;
        }
        if connection.mux.is_alone() {
            let sent = connection.encoded + waiting;
            stream.weigh_attempt(connection.bytes_received, sent);
        }
        connection.release(leg.number);
        connection.rested = now;
        // One that carries one stream at a time goes on, so it takes another.
        if connection.mux.is_alone() || connection.capacity() > 0 {
            pool.list(connection);
        }
        if !connection.is_busy() {
            pool.rest(connection, idle_timeout, &mut self.env, now);
        }
        cluster.request_over(pool_key, stream.outcome());
        let is_quiet = connection.mux.is_quiet();
        let downstream = stream.downstream;
        let waiting = self.conns.waiting_for(downstream.connection);
        let connection = self.conns.table.get_mut(downstream.connection);
        let released = match connection {
            Some(connection) => {
                connection.weigh(stream, waiting);
                connection.release(downstream.number)
            }
            None => Released::Close,
        };
        if released == Released::GoesOn {
            self.bound_flush(index, now);
        }
        self.close_record(index, now);
        if !is_quiet {
            self.open_windows(leg.connection);
        }
        let id = downstream.connection;
        match released {
            Released::KeepAlive => self.rest_downstream(id, now),
            Released::GoesOn => self.after_call(id, now),
            Released::Close => {
                self.close_downstream(id, now);
            }
        }
        true
    }
}

impl Exchange {
    /// Sends an ordinary request on its way; false, and nothing done, if it is none.
    pub(crate) fn forward_plain(
        &mut self,
        index: StreamIndex,
        forward: &Forward,
        origin: Origin,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let ClusterChoice::One(id) = forward.cluster else { return false };
        let Some(cluster) = self.upstreams.clusters.get_mut(id) else { return false };
        if !(is_plain_request(stream) && stream.plain().forwards && cluster.plain && !cluster.races)
        {
            return false;
        }
        if let Some(http) = stream.context.http() {
            http.stats.rq_total.inc();
            if stream.plain().adds
                && let Some(route) = stream.route
                && let Some(added) = http.plain.added(route.host, route.route)
            {
                stream.request.append_prepared(&added.to_requests);
            }
        }
        let retry = forward.retry.as_deref();
        stream.cluster = id;
        stream.priority = if forward.high_priority { Priority::High } else { Priority::Default };
        stream.retries.begin(retry, false, &stream.request, origin != Origin::Edge);
        stream.retries.limit(retry, &stream.request);
        stream.response_timeout = forward.timeout.into();
        stream.per_try_timeout = retry.and_then(|retry| retry.per_try_timeout).into();
        timeouts_from_headers(stream, origin);
        if stream.request_end != Progress::Ended {
            stream.bound_kept_body();
        } else if let Some(timeout) = stream.response_timeout.get() {
            stream.set_timer(index, HttpTimer::Response, now + timeout, &mut self.env.timers);
        }
        let env = &mut self.env;
        let Some(pool_key) = choose_own_host(stream, &self.conns, cluster, env, now) else {
            self.reset_upstream(index, ResetReason::NoHost, now);
            return true;
        };
        // Load may be shed where the host is known.
        if self.env.overload.is_some()
            || !attach_plain(
                (index, stream),
                cluster,
                pool_key,
                &mut self.conns,
                &mut self.env,
                now,
            )
        {
            self.place_on(index, pool_key, now);
        }
        true
    }
}

/// Gives an ordinary request the connection that rests on top of its host's pool, and sends it; false, and nothing
/// done, if there is none that serves.
#[inline(always)]
fn attach_plain(
    (index, stream): (StreamIndex, &mut Stream),
    cluster: &mut ClusterState,
    pool_key: PoolKey,
    conns: &mut Connections,
    env: &mut Env,
    now: Instant,
) -> bool {
    if cluster.is_full(pool_key, Resource::Requests) {
        return false;
    }
    let Some(pool) = cluster.pool_mut(pool_key) else { return false };
    let is_only = pool.ready.len() == 1;
    let Some(id) = pool.ready.last().copied() else { return false };
    let Some(connection) = conns.table.get_mut(id) else { return false };
    let idle = connection.idle_since(now);
    let lasts = |known: Duration| idle + PEER_IDLE_MARGIN < known;
    let may_be_closing = !connection.is_busy() && !pool.peer_idle.is_none_or(lasts);
    let capacity = connection.capacity();
    let end = stream.request_end == Progress::Ended;
    // Of several that carry many streams the one with the fewest is looked for.
    if !(is_client_of_http1(connection) || (connection.mux.is_http2() && is_only))
        || capacity == 0
        // The head of a large upload leaves by itself as the first of its connection.
        || (connection.encoded == 0 && !end)
        || (may_be_closing && !stream.retries.repeatable)
    {
        return false;
    }
    let Some(number) = connection.mux.open() else { return false };
    if capacity == 1 {
        pool.unlist_last(connection);
    }
    let Role::Upstream(upstream) = &mut connection.role else { return false };
    stream.reused = upstream.requests > 0 || connection.opened < now;
    stream.retries.sent_before = connection.bytes_sent;
    upstream.requests += 1;
    stream.upstream = UpstreamState::Active(Leg { connection: id, number });
    stream.begin_attempt(connection, now);
    connection.streams.bind(number, index);
    connection.deadlines.clear(ConnectionTimer::Idle as usize);
    cluster.request_began(pool_key, now);
    if stream.recorder.is_followed() {
        stream.tell_trace();
    }
    env.name_attempt(stream);
    conns.encode_for(id, env);
    if let Some(connection) = conns.table.get_mut(id) {
        let before = stream.recorder.before_head(&conns.out);
        connection.mux.send(number, Part::Head(&stream.request, end), &mut conns.out);
        if let Some(before) = before {
            let (head, mux) = (&stream.request, &connection.mux);
            stream.recorder.count_sent(Heads::UpstreamSent, head, mux, before, &conns.out);
        }
    }
    stream.bound_attempt(index, cluster.config.max_stream_duration, now, &mut env.timers);
    if let Some(per_try) = stream.per_try_timeout.get().filter(|_| end) {
        stream.set_timer(index, HttpTimer::PerTry, now + per_try, &mut env.timers);
    }
    true
}

impl Env {
    /// Tells the server which attempt of a request this is, the first, and how long it may take.
    #[inline(always)]
    fn name_attempt(&mut self, stream: &mut Stream) {
        let Some(http) = stream.context.http() else { return };
        if stream.plain().names_attempt {
            self.attempt_count.set(stream.attempts.into(), &mut stream.request);
        }
        let whole = stream.response_timeout.get().map(|whole| whole.max(SHORTEST_WAIT));
        let is_one_of_several = stream.retries.hedging != Hedging::Off;
        let one = stream.per_try_timeout.get().filter(|_| !is_one_of_several);
        let expected = match (one, whole) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let is_told = !http.config.chain.router.suppress_envoy_headers;
        if let Some(expected) = expected.filter(|_| is_told) {
            let ms = u64::try_from(expected.as_millis()).unwrap_or(u64::MAX);
            self.expected_timeout.set(ms, &mut stream.request);
        }
    }
}

/// Whether a request asks for nothing but an answer, and no attempt of it is traced; nothing of its content has
/// come, and no filter looks at that.
fn is_plain_request(stream: &Stream) -> bool {
    (stream.request_end == Progress::Ended || stream.filters.is_none())
        && stream.body.len() == 0
        && stream.upgrade == Upgrade::No
        && !stream.recorder.follows_attempts()
        && !stream.request.has_any(&UNUSUAL)
        && matches!(stream.kind, Kind::Http(_))
}

/// What no plain request has.
const UNUSUAL: [Name; 2 + OVERRIDES.len()] = {
    let [alt, late, longest] = OVERRIDES;
    [Name::Upgrade, Name::Expect, alt, late, longest]
};

/// Whether a stream is over as it should be, and speaks HTTP on both sides.
fn is_plain(stream: &Stream) -> bool {
    stream.is_complete()
        && stream.upgrade == Upgrade::No
        && stream.bridging == Bridging::None
        && matches!(stream.kind, Kind::Http(_))
}

/// The pool of an upstream connection that goes on, or rests, when a stream leaves it.
fn goes_on(connection: &Connection) -> Option<PoolKey> {
    let Role::Upstream(upstream) = &connection.role else { return None };
    let mux = &connection.mux;
    let goes_on = ((is_client_of_http1(connection) && mux.capacity() > 0)
        || (mux.is_http2() && !mux.is_exhausted()))
        && connection.reading == Reading::On
        && !(connection.congested || upstream.retired || connection.is_spent());
    goes_on.then_some(upstream.pool_key)
}

const fn is_client_of_http1(connection: &Connection) -> bool {
    matches!(connection.mux, Mux::Http1Client(_))
}
