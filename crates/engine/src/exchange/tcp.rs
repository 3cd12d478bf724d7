//! Opaque bytes: a TCP connection as a stream without heads.
//!
//! Arrives: an accepted connection of a TCP chain. Leaves: a stream with a place; from there on everything is as
//! for HTTP, through the one forwarding loop.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::Connection;
use crate::conn::mux::ONLY;
use crate::conn::spans::Phase;
use crate::exchange::Exchange;
use crate::exchange::asked::{keep_asked, pick_asked, take_asked, tell_choice};
use crate::exchange::choice::destination;
use crate::exchange::clients::whom_of_tcp;
use crate::exchange::criteria::criteria_of;
use crate::exchange::log::{TCP_CONNECTION_START, TCP_PERIODIC};
use crate::exchange::retry::doubled;
use crate::exchange::stream::{Progress, Stream, Upgrade, UpstreamState};
use crate::exchange::subs::sub_of_client;
use crate::exchange::timers::TcpTimer;
use crate::ids::{Closer, Kind, Leg, NO_CLUSTER, PoolClass, PoolKey, ResetReason, StreamIndex};
use crate::record::{CloseType, Flags};
use crate::route::{address_hash, state_hash};
use crate::snapshot::ClusterId;
use crate::snapshot::listener::TcpHash;
use crate::snapshot::route::{ClusterChoice, WeightedCluster};
use crate::upstream::aggregate::Aim;
use crate::upstream::avoided::Avoided;
use crate::upstream::cluster::{ClusterState, Resource};
use crate::upstream::pool::Lease;
use crate::upstream::protocol::Asks;

impl Exchange {
    /// Opens the stream of a TCP connection.
    pub(crate) fn open_tcp(&mut self, id: ConnectionId, now: Instant) {
        let Some((index, context)) = self.open_stream(Leg { connection: id, number: ONLY }, now)
        else {
            return;
        };
        let Some(tcp) = context.tcp() else { return };
        if let Some(duration) = tcp.config.max_duration {
            let longer = duration.mul_f64(tcp.config.duration_jitter).as_millis();
            let longer = self.env.random.below(u64::try_from(longer).unwrap_or(u64::MAX).max(1));
            self.set_timer(
                index,
                TcpTimer::MaxDuration,
                now + duration + Duration::from_millis(longer),
            );
        }
        self.set_idle(index, tcp.config.idle_timeout, now);
        self.set_report(index, now);
        if let Some(stream) = self.streams.get_mut(index) {
            stream.trace_begin(Phase::Route);
            // As long as its handshake lasted it was there, too.
            if let Some(connection) = self.conns.table.get(id) {
                stream.times.start = connection.opened;
            }
            stream.request_end = Progress::Streaming;
            stream.response_end = Progress::AwaitingHead;
            stream.retries.remaining = tcp.config.max_connect_attempts.saturating_sub(1);
        }
        let options = tcp.config.log_options;
        if let Some(interval) = options.interval {
            self.set_timer(index, TcpTimer::LogFlush, now + interval);
        }
        if options.on_start {
            self.log_under_way(index, TCP_CONNECTION_START, now);
        }
        let forward = context.filters.forward();
        if forward.is_none_or(|forward| self.resolve_for_sni(index, forward, now))
            && !tcp.config.connects.on_data
        {
            self.route_tcp(index, now);
        }
    }

    /// Bytes of a client whose upstream is not connected: where they were waited for, it is connected.
    #[cold]
    pub(crate) fn connect_on_data(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let waits = stream.cluster == NO_CLUSTER && stream.upstream == UpstreamState::None;
        if waits && stream.context.tcp().is_some_and(|tcp| tcp.config.connects.on_data) {
            self.route_tcp(index, now);
        }
    }

    /// Chooses the cluster of a TCP stream.
    pub(crate) fn route_tcp(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let (context, id) = (stream.context.clone(), stream.downstream.connection);
        let Some(tcp) = context.tcp() else { return };
        let random = self.env.random.next();
        let set = || self.conns.table.get(id)?.downstream()?.cluster_by_state();
        let named = context.filters.sets.then(set).flatten();
        let mut criteria = tcp.config.criteria.as_ref();
        let cluster = match (&tcp.config.cluster, named) {
            (ClusterChoice::One(_), Some(name)) => self.snapshot.cluster_id(&name),
            (ClusterChoice::One(cluster), None) => Some(*cluster),
            (ClusterChoice::Weighted { .. }, _) => {
                let chosen = tcp.config.cluster.weighted(random);
                criteria = chosen.and_then(|chosen| chosen.criteria.as_ref()).or(criteria);
                chosen.and_then(WeightedCluster::named)
            }
            (ClusterChoice::Header(_) | ClusterChoice::Specified(_), _) => None,
        };
        if let (Some(criteria), Some(stream)) = (criteria, self.streams.get_mut(index)) {
            stream.retries.tried.get_or_insert_default().criteria = Some(Arc::clone(criteria));
        }
        match cluster {
            Some(cluster) => self.place_tcp(index, cluster, now),
            None => self.end_tcp(index, ResetReason::ClusterGone, now),
        }
    }

    /// Chooses a host for a TCP stream and connects to it.
    pub(crate) fn place_tcp(&mut self, index: StreamIndex, id: ClusterId, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.cluster = id;
        stream.trace_phase(Phase::PoolWait);
        let Some(cluster) = self.upstreams.clusters.get_mut(id) else {
            self.end_tcp(index, ResetReason::ClusterGone, now);
            return;
        };
        stream.recorder.note(|record| record.cluster = Some(cluster.config.name.clone()));
        let context = stream.context.clone();
        let own = context.tcp().and_then(|tcp| tcp.config.tlvs.as_ref());
        if let Some(own) = own.filter(|own| !own.added.made.is_empty()) {
            self.make_tlvs(index, own, now);
        }
        let (Some(stream), Some(cluster)) =
            (self.streams.get_mut(index), self.upstreams.clusters.get_mut(id))
        else {
            return;
        };
        if cluster.named.is_some() {
            return self.place_tcp_named(index, id, now);
        }
        let serving = if cluster.has_subs {
            let client = self.conns.table.get(stream.downstream.connection);
            sub_of_client(stream, cluster, client, &self.env)
        } else {
            Some(id)
        };
        let Some(serving) = serving else { return self.connect_tcp(index, id, None, now) };
        let env = &mut self.env;
        let asks = Asks::of_client(whom_of_tcp(stream, &self.conns));
        let class = |cluster: &mut ClusterState| cluster.class_for(PoolClass::default(), &asks);
        let picked = match destination(stream, &self.conns, cluster) {
            Some(wanted) => wanted.and_then(|wanted| {
                let class = class(cluster)?;
                cluster.pick_destination(wanted, class, env, now)
            }),
            None => {
                let client = self.conns.table.get(stream.downstream.connection);
                let is_hashed = self.upstreams.clusters.is_hashed(serving);
                let hash = client.filter(|_| is_hashed).and_then(|client| hash_of(stream, client));
                let random = hash.unwrap_or_else(|| env.random.next());
                let has_some = |it: &ClusterState| it.subsets.is_some() || it.aggregate.is_some();
                let asks = self.upstreams.clusters.get(serving).is_some_and(has_some);
                let criteria = asks.then(|| criteria_of(stream)).flatten();
                let mut asked = take_asked(stream);
                let mut aim = |cluster: &mut ClusterState| {
                    let class = class(cluster)?;
                    let (recorder, request) = (&stream.recorder, &stream.request);
                    let named = pick_asked(&mut asked, recorder, request, cluster, class);
                    Some(named.map_or(Aim::Any(class), Aim::Named))
                };
                let tried = stream.retries.tried.get_or_insert_default();
                let avoided = Avoided { hosts: &tried.hosts, attempts: 3, ..Avoided::default() };
                let clusters = &mut self.upstreams.clusters;
                let criteria = criteria.as_deref();
                let picked = clusters.pick(serving, random, &mut aim, avoided, criteria, now);
                keep_asked(stream, asked);
                tell_choice(stream, clusters, picked);
                picked
            }
        };
        self.connect_tcp(index, id, picked, now);
    }

    /// Connects a TCP stream to its host, if it has one.
    pub(crate) fn connect_tcp(
        &mut self,
        index: StreamIndex,
        id: ClusterId,
        picked: Option<PoolKey>,
        now: Instant,
    ) {
        let Some(pool_key) = picked else {
            if let Some(cluster) = self.upstreams.clusters.get(id) {
                cluster.stats.upstream_cx_none_healthy.inc();
            }
            self.end_tcp(index, ResetReason::NoHost, now);
            return;
        };
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.retries.tried.get_or_insert_default().hosts.push(pool_key);
        if let Some(before) = stream.retries.pool_key.replace(pool_key) {
            let pool = self.upstreams.clusters.pool(before);
            stream.recorder.note_retry(pool.map(|pool| &pool.hostname));
        }
        stream.attempts += 1;
        let context = stream.context.clone();
        if let Some(tunneling) = context.tcp().and_then(|tcp| tcp.config.tunneling.as_deref()) {
            return self.place_tunneled(index, pool_key, tunneling, now);
        }
        if self.lease_raw(index, pool_key, now) == Lease::Overflow {
            self.end_tcp(index, ResetReason::Overflow, now);
        }
    }

    /// A connection of its own for a stream of opaque bytes.
    pub(crate) fn lease_raw(
        &mut self,
        index: StreamIndex,
        pool_key: PoolKey,
        now: Instant,
    ) -> Lease {
        let (Some(stream), Some(cluster)) =
            (self.streams.get_mut(index), self.upstreams.clusters.get_mut(pool_key.cluster))
        else {
            return Lease::Overflow;
        };
        if cluster.is_full(pool_key, Resource::Connections) {
            cluster.stats.upstream_cx_overflow.inc();
            // As Envoy's pools, which CONNECT takes and the TCP proxy asks past: a host without any gets one.
            let has_some = cluster.pool(pool_key).is_some_and(|pool| pool.connections > 0);
            if has_some || matches!(stream.kind, Kind::Tcp(_)) {
                return Lease::Overflow;
            }
        }
        if cluster.is_full(pool_key, Resource::Pending) {
            cluster.stats.upstream_rq_pending_overflow.inc();
            return Lease::Overflow;
        }
        cluster.joined_queue(pool_key);
        if self.env.sheds_connection() {
            cluster.stats.upstream_rq_cancelled.inc();
            cluster.left_queue(pool_key);
            return Lease::Overflow;
        }
        stream.upstream = UpstreamState::Pending(pool_key);
        self.upstreams.start_connect(pool_key, Some(index), &mut self.env, now);
        Lease::Pending
    }

    /// The connect for a TCP stream failed: another host, or the end.
    pub(crate) fn retry_tcp(&mut self, index: StreamIndex, reason: ResetReason, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let cluster = stream.retries.pool_key.map(|_| stream.cluster);
        let is_connect = matches!(
            reason,
            ResetReason::Connect(_) | ResetReason::ConnectTimeout | ResetReason::Tls(_)
        );
        // Until a proxy has let it through, all that fails is its connect.
        let asks = stream.asks_for_tunnel();
        if asks && reason != ResetReason::Overflow {
            stream.flags.set(Flags::UPSTREAM_CONNECTION_FAILURE);
        }
        if asks && is_connect {
            stream.recorder.note(|record| record.tunnel_status = 0);
        }
        let connecting = is_connect || asks;
        match cluster {
            Some(cluster) if connecting && stream.retries.remaining > 0 => {
                stream.retries.remaining -= 1;
                match stream.context.tcp().and_then(|tcp| tcp.config.connects.back_off) {
                    Some((base, most)) => self.back_off_tcp(index, base, most, now),
                    None => self.place_tcp(index, cluster, now),
                }
            }
            Some(_) | None => {
                let clusters = &self.upstreams.clusters;
                if connecting
                    && let Some(cluster) = cluster.and_then(|cluster| clusters.get(cluster))
                {
                    cluster.stats.upstream_cx_connect_attempts_exceeded.inc();
                    let host = stream.retries.pool_key.and_then(|pool_key| clusters.pool(pool_key));
                    stream.recorder.note(|record| {
                        record.upstream_host = host.map(|host| host.address.clone())
                    });
                    if is_connect {
                        stream.recorder.note(|record| {
                            record.transport_failure = reason.reset().transport_failure()
                        });
                    }
                    stream.flags.set_last_try_failed();
                }
                self.end_tcp(index, reason, now);
            }
        }
    }

    /// Lets the next connect of a TCP stream wait.
    fn back_off_tcp(&mut self, index: StreamIndex, base: Duration, most: Duration, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.upstream = UpstreamState::BackingOff;
        stream.trace_phase(Phase::BackOff);
        let bound = doubled(base, most, stream.attempts.saturating_sub(1)).as_millis();
        let wait = self.env.random.below(u64::try_from(bound).unwrap_or(u64::MAX).max(1));
        self.set_timer(index, TcpTimer::BackOff, now + Duration::from_millis(wait));
    }

    /// A TCP stream cannot go on.
    pub(crate) fn end_tcp(&mut self, index: StreamIndex, reason: ResetReason, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let (flag, local_close) = told(reason);
        // Why a tunnel was not opened has been told; of one that was open Envoy tells nothing.
        let is_told = stream.upgrade != Upgrade::No
            && !matches!(reason, ResetReason::NoHost | ResetReason::ClusterGone);
        if !is_told {
            stream.flags.set(flag);
        }
        if let (Some(tcp), ResetReason::ClusterGone) = (stream.context.tcp(), reason) {
            tcp.stats.downstream_cx_no_route.inc();
        }
        // A client whose upstream was reset in the middle, or whose bytes go nowhere, sees a reset too, not a clean
        // end; but behind all that came.
        let broken = !stream.asks_for_tunnel()
            && matches!(reason, ResetReason::Terminated | ResetReason::Reset);
        // What was read as early data is not unread.
        let reads = stream.context.tcp().is_some_and(|it| it.config.connects.early_data.is_some());
        let is_unread = stream.body.len() > 0 && !reads;
        let how = if broken || is_unread { Close::FlushReset } else { Close::Flush };
        stream.recorder.note(|record| {
            if reason == ResetReason::Reset {
                record.upstream_close_type = CloseType::RemoteReset;
                record.close_type = CloseType::LocalReset;
            }
            record.local_close = local_close;
        });
        self.close_tcp(index, how, now);
    }

    pub(crate) fn on_tcp_deadline(&mut self, index: StreamIndex, timer: TcpTimer, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let Some(tcp) = context.tcp() else { return };
        match timer {
            TcpTimer::Idle => {
                tcp.stats.idle_timeout.inc();
                stream.recorder.note_local_close("tcp_session_idle_timeout");
                self.close_tcp(index, Close::Flush, now);
            }
            TcpTimer::Report => self.report_tcp(index, now),
            TcpTimer::BackOff => {
                stream.upstream = UpstreamState::None;
                let cluster = stream.cluster;
                self.place_tcp(index, cluster, now);
            }
            TcpTimer::LogFlush => {
                self.log_under_way(index, TCP_PERIODIC, now);
                if let Some(interval) = tcp.config.log_options.interval {
                    self.set_timer(index, TcpTimer::LogFlush, now + interval);
                }
            }
            TcpTimer::MaxDuration => {
                tcp.stats.max_downstream_connection_duration.inc();
                stream.flags.set(Flags::DURATION_TIMEOUT);
                stream.recorder.note_local_close("max_connection_duration_reached");
                self.close_tcp(index, Close::Flush, now);
            }
        }
    }

    /// Ends both connections of a TCP stream.
    pub(crate) fn close_tcp(&mut self, index: StreamIndex, how: Close, now: Instant) {
        self.detach(index, how, now);
        let Some(downstream) = self.streams.get(index).map(|stream| stream.downstream) else {
            return;
        };
        let Leg { connection: downstream, number } = downstream;
        if let Some(connection) = self.conns.table.get_mut(downstream) {
            connection.release(number);
        }
        self.close_record(index, now);
        let Self { listeners, conns, env, .. } = self;
        if how == Close::Flush {
            return listeners.close_client(downstream, Closer::Local(""), conns, env, now);
        }
        listeners.count_downstream_close(downstream, Closer::Local(""), conns, env, now);
        conns.end_connection(downstream, how, env);
        listeners.check_drained(env);
    }
}

/// What its TCP proxy makes of a client for balancers that go by a hash.
fn hash_of(stream: &Stream, client: &Connection) -> Option<u64> {
    match stream.context.tcp()?.config.hash.as_ref()? {
        TcpHash::Source => client.peer.ip().map(|client| address_hash(client.ip())),
        TcpHash::State(name) => state_hash(client.downstream()?.state(name)?),
    }
}

/// What logs say of the end of a stream for a reason: its flag, and where the upstream connection did not begin why the
/// client's is closed, in Envoy's words and numbers.
const fn told(reason: ResetReason) -> (Flags, &'static str) {
    match reason {
        ResetReason::Connect(_) | ResetReason::ConnectTimeout | ResetReason::Tls(_) => {
            (Flags::UPSTREAM_CONNECTION_FAILURE, "tcp_initializion_failure:0")
        }
        ResetReason::NoHost => (Flags::NO_HEALTHY_UPSTREAM, "tcp_initializion_failure:1"),
        ResetReason::Overflow => (Flags::UPSTREAM_OVERFLOW, "tcp_initializion_failure:2"),
        ResetReason::ClusterGone => (Flags::NO_CLUSTER_FOUND, "tcp_initializion_failure:3"),
        ResetReason::Reset | ResetReason::StreamReset | ResetReason::Refused => {
            (Flags::UPSTREAM_REMOTE_RESET, "")
        }
        ResetReason::Terminated
        | ResetReason::Protocol
        | ResetReason::PerTryTimeout
        | ResetReason::PerTryIdleTimeout
        | ResetReason::MaxStreamDuration
        | ResetReason::RateLimited
        | ResetReason::Headers
        | ResetReason::Status(_)
        | ResetReason::GrpcStatus(_) => (Flags::UPSTREAM_CONNECTION_TERMINATION, ""),
    }
}
