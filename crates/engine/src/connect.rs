//! Connects under way.
//!
//! Arrives: a pool (or a TCP stream) that wants a connection, and the driver's answer. Leaves: an upstream
//! connection in its pool or on its stream, or a reset for everything that waited for it.

use std::net::SocketAddr;

use towpath_proto::http1;
use towpath_proto::{Address, AttemptId, Close, ConnectionId, Failure, Instant, Output};
use towpath_trace::Stamp;

use crate::connection::Connections;
use crate::connection::{Codec, Connection, ConnectionTimer, Raw, Role, Upstream};
use crate::env::Env;
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::ids::{Closer, PoolKey, Protocol, ResetReason, StreamIndex};
use crate::message::FromWorker;
use crate::record::details::Reset;
use crate::secure::Secured;
use crate::snapshot::ClusterId;
use crate::spans;
use crate::stream::UpstreamState;
use crate::upstream::Upstreams;

/// A connect under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    id: AttemptId,
    pool_key: PoolKey,
    protocol: Protocol,
    /// The one stream that the connection is for (TCP); otherwise whoever is first in the queue.
    stream: Option<StreamIndex>,
    /// Which of an origin's addresses it goes to; otherwise to the pool's.
    target: Option<SocketAddr>,
    /// The connection whose handshake is under way.
    securing: Option<ConnectionId>,
    started: Instant,
    /// The same for spans, if it is traced.
    since: Option<Stamp>,
}

/// All connects of a worker.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    slots: Vec<Option<Attempt>>,
    free: Vec<u32>,
    serial: u32,
}

impl Attempts {
    fn open(
        &mut self,
        pool_key: PoolKey,
        protocol: Protocol,
        stream: Option<StreamIndex>,
        target: Option<SocketAddr>,
        started: Instant,
    ) -> AttemptId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.serial = self.serial.wrapping_add(1);
        let id = AttemptId(u64::from(self.serial) << 32 | u64::from(slot));
        let (securing, since) = (None, spans::connect_begins());
        let attempt = Attempt { id, pool_key, protocol, stream, target, securing, started, since };
        self.slots[slot as usize] = Some(attempt);
        id
    }

    fn get(&self, id: AttemptId) -> Option<&Attempt> {
        self.slots.get(Self::slot(id) as usize)?.as_ref().filter(|attempt| attempt.id == id)
    }

    /// Which host it is for, and what will be spoken to it.
    pub(crate) fn purpose(&self, id: AttemptId) -> Option<(PoolKey, Protocol)> {
        self.get(id).map(|attempt| (attempt.pool_key, attempt.protocol))
    }

    /// The driver has connected; the handshake begins.
    pub(crate) fn secure(&mut self, id: AttemptId, connection: ConnectionId) {
        if let Some(Some(attempt)) = self.slots.get_mut(Self::slot(id) as usize)
            && attempt.id == id
        {
            attempt.securing = Some(connection);
        }
    }

    fn close(&mut self, id: AttemptId) -> Option<Attempt> {
        let slot = Self::slot(id);
        let pool_key = self.slots.get_mut(slot as usize)?;
        let attempt = pool_key.filter(|attempt| attempt.id == id)?;
        *pool_key = None;
        self.free.push(slot);
        Some(attempt)
    }

    fn in_slot(&self, slot: u32) -> Option<AttemptId> {
        Some(self.slots.get(slot as usize)?.as_ref()?.id)
    }

    pub(crate) fn of_cluster(&self, cluster: ClusterId) -> Vec<AttemptId> {
        let attempts = self.slots.iter().flatten();
        attempts
            .filter(|attempt| attempt.pool_key.cluster == cluster)
            .map(|attempt| attempt.id)
            .collect()
    }

    pub(crate) fn of_stream(&self, stream: StreamIndex) -> Option<AttemptId> {
        let mut attempts = self.slots.iter().flatten();
        attempts.find(|attempt| attempt.stream == Some(stream)).map(|attempt| attempt.id)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is the slot")]
    const fn slot(id: AttemptId) -> u32 {
        id.0 as u32
    }
}

impl Exchange {
    /// The driver connected.
    pub(crate) fn on_connected(
        &mut self,
        id: AttemptId,
        connection: ConnectionId,
        local: Address,
        now: Instant,
    ) {
        if !self.begin_handshake(id, connection, &local, now) {
            self.establish(id, connection, local, None, now);
        } else if let Some(attempt) =
            self.upstreams.attempts.get(id).filter(|one| one.target.is_some())
        {
            self.upstreams.app.on_race_moved(attempt.pool_key.cluster, now);
        }
    }

    /// A connection is usable.
    pub(crate) fn establish(
        &mut self,
        id: AttemptId,
        connection: ConnectionId,
        local: Address,
        secured: Option<Secured>,
        now: Instant,
    ) {
        let Some(attempt) = self.upstreams.attempts.close(id) else {
            self.conns.push(Output::Close { connection, how: Close::Abort }, &mut self.env);
            return;
        };
        self.env.timers.clear(TimerSlot::Attempt(Attempts::slot(id)).number());
        let pool_key = attempt.pool_key;
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else {
            self.conns.push(Output::Close { connection, how: Close::Abort }, &mut self.env);
            return;
        };
        cluster.stats.upstream_cx_connect_ms.record((now - attempt.started).as_millis() as u64);
        let codec = match attempt.protocol {
            Protocol::Http1 => Codec::Client(http1::Client::new(cluster.config.http1.clone())),
            Protocol::Raw => Codec::Raw(Raw::default()),
            Protocol::Bolt => cluster.bolt_client(),
        };
        let (limit, max_age) =
            (cluster.config.buffer_limit, cluster.config.max_connection_duration);
        let Some(pool) = cluster.pool_mut(pool_key) else { return };
        pool.counts.connections_total += 1;
        pool.open.push(connection);
        let peer = attempt.target.map_or_else(|| pool.address.clone(), Address::Ip);
        if attempt.stream.is_none() {
            pool.connecting -= 1;
        } else {
            cluster.left_queue(pool_key);
        }
        self.conns.push(Output::ReadLimit { connection, bytes: limit }, &mut self.env);
        let serial = self.env.serial.next_connection();
        let role = Role::Upstream(Upstream {
            pool_key,
            requests: 0,
            retired: false,
            serial,
            slow_start: None,
        });
        let made = self.conns.table.insert(Connection::new(
            connection,
            codec,
            role,
            local,
            peer.clone(),
            limit,
            now,
        ));
        let connected = secured.as_ref().map_or(now, |secured| secured.connected);
        let handshake_since = secured.as_ref().and_then(|secured| secured.since);
        if let Some(secured) = secured {
            made.outstanding = secured.outstanding;
            made.tls = Some(secured.layer);
        }
        if let Some(age) = max_age {
            let slot = TimerSlot::of_connection(connection);
            made.deadlines.set(
                ConnectionTimer::MaxDuration as usize,
                now + age,
                slot,
                &mut self.env.timers,
            );
        }
        match attempt.stream {
            Some(stream) => {
                if let Some(stream) = self.streams.get_mut(stream) {
                    stream.record.connect = Some((attempt.started, connected));
                    stream.trace_connect(attempt.since, &peer, CONNECTED);
                    stream.on_secured(handshake_since, made.tls.as_deref(), now);
                }
                self.attach(stream, connection, now);
            }
            None => {
                let waiting = self
                    .upstreams
                    .clusters
                    .pool(pool_key)
                    .and_then(|pool| pool.pending.front().copied());
                if let Some(stream) = waiting.and_then(|stream| self.streams.get_mut(stream)) {
                    stream.record.connect = Some((attempt.started, connected));
                    stream.trace_connect(attempt.since, &peer, CONNECTED);
                    stream.on_secured(handshake_since, made.tls.as_deref(), now);
                }
                if attempt.target.is_some() {
                    self.conns.begin_slowly(
                        connection,
                        connected - attempt.started,
                        &mut self.env,
                        now,
                    );
                    self.upstreams.app.on_race_won(pool_key.cluster, id, now);
                }
                self.upstreams.begin_pulse(connection, &mut self.conns, &mut self.env, now);
                self.offer(connection, now);
                if attempt.target.is_some() {
                    self.upstreams.advance_origin(
                        pool_key.cluster,
                        &mut self.conns,
                        &mut self.env,
                        now,
                    );
                }
            }
        }
    }

    /// The driver could not connect.
    pub(crate) fn on_connect_failed(&mut self, id: AttemptId, failure: Failure, now: Instant) {
        let reason = ResetReason::Connect(failure);
        let closer = match reason.reset() {
            Reset::LocalConnectionFailure(_) => Closer::Local,
            Reset::Overflow
            | Reset::RemoteConnectionFailure(_)
            | Reset::Tls(_)
            | Reset::ConnectionTimeout
            | Reset::ConnectionTermination
            | Reset::ProtocolError
            | Reset::LocalReset
            | Reset::RemoteReset => Closer::Remote,
        };
        self.fail_connect(id, closer, reason, now);
    }

    /// A connect came to nothing.
    pub(crate) fn fail_connect(
        &mut self,
        id: AttemptId,
        closer: Closer,
        reason: ResetReason,
        now: Instant,
    ) {
        if let Some(attempt) = self.upstreams.end_attempt(id, closer, &mut self.env) {
            self.fail_waiting(attempt, reason, now);
        }
    }

    /// `connect_timeout` has passed.
    pub(crate) fn on_connect_timeout(&mut self, slot: u32, now: Instant) {
        let Some(id) = self.upstreams.attempts.in_slot(slot) else { return };
        self.upstreams.take_back(id, &mut self.conns, &mut self.env);
        let Some(attempt) = self.upstreams.end_attempt(id, Closer::Local, &mut self.env) else {
            return;
        };
        if let Some(cluster) = self.upstreams.clusters.get_mut(attempt.pool_key.cluster) {
            cluster.stats.upstream_cx_connect_timeout.inc();
        }
        self.fail_waiting(attempt, ResetReason::ConnectTimeout, now);
    }

    /// Everything that waited for a host that cannot be reached fails at once, so that each stream can decide
    /// for itself whether to try another.
    fn fail_waiting(&mut self, attempt: Attempt, reason: ResetReason, now: Instant) {
        let pool_key = attempt.pool_key;
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else { return };
        cluster.stats.upstream_cx_connect_fail.inc();
        let Some(pool) = cluster.pool_mut(pool_key) else { return };
        pool.counts.connect_failures += 1;
        if attempt.target.is_some() {
            return self.on_race_lost(pool_key.cluster, attempt.id, reason, now);
        }
        let peer = pool.address.clone();
        let waiting: Vec<StreamIndex> = match attempt.stream {
            Some(stream) => vec![stream],
            None => {
                let waiting: Vec<StreamIndex> = pool.pending.drain(..).collect();
                waiting.iter().for_each(|_| cluster.left_queue(pool_key));
                waiting
            }
        };
        cluster.stats.upstream_rq_pending_failure_eject.add(waiting.len() as u64);
        for index in waiting {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.trace_connect(attempt.since, &peer, reason.reset().reason());
                // It left the queue; nothing is cancelled.
                stream.upstream = UpstreamState::None;
                self.reset_upstream(index, reason, now);
            }
        }
        self.upstreams.clusters.drop_if_unused(pool_key);
    }
}

impl Upstreams {
    /// Begins a connect to the host of a pool.
    pub(crate) fn start_connect(
        &mut self,
        pool_key: PoolKey,
        protocol: Protocol,
        stream: Option<StreamIndex>,
        env: &mut Env,
        now: Instant,
    ) {
        self.begin_connect(pool_key, protocol, stream, None, env, now);
    }

    /// Begins a connect to `target`, or to the pool's address.
    pub(crate) fn begin_connect(
        &mut self,
        pool_key: PoolKey,
        protocol: Protocol,
        stream: Option<StreamIndex>,
        target: Option<SocketAddr>,
        env: &mut Env,
        now: Instant,
    ) -> Option<AttemptId> {
        let cluster = self.clusters.get_mut(pool_key.cluster)?;
        let (timeout, options) = (cluster.config.connect_timeout, cluster.config.connect.clone());
        cluster.load_mut(pool_key).connections += 1;
        cluster.show_breakers(pool_key);
        cluster.stats.upstream_cx_total.inc();
        cluster.stats.upstream_cx_active.inc();
        match protocol {
            Protocol::Http1 => cluster.stats.upstream_cx_http1_total.inc(),
            Protocol::Raw | Protocol::Bolt => {}
        }
        if cluster.config.health_check.is_some() && !cluster.told_traffic {
            cluster.told_traffic = true;
            let traffic = FromWorker::Traffic { cluster: pool_key.cluster };
            env.tell(traffic);
        }
        let pool = cluster.pool_mut(pool_key)?;
        pool.connections += 1;
        if stream.is_none() {
            pool.connecting += 1;
        }
        let address = target.map_or_else(|| pool.address.clone(), Address::Ip);
        let attempt = self.attempts.open(pool_key, protocol, stream, target, now);
        env.timers.set(TimerSlot::Attempt(Attempts::slot(attempt)).number(), now + timeout);
        env.outputs.push_back(Output::Connect { attempt, address, options });
        Some(attempt)
    }

    /// Nobody wants the connection any more.
    pub(crate) fn cancel_attempt(
        &mut self,
        id: AttemptId,
        conns: &mut Connections,
        env: &mut Env,
        _now: Instant,
    ) {
        self.take_back(id, conns, env);
        if let Some(attempt) = self.end_attempt(id, Closer::Local, env) {
            self.clusters.drop_if_unused(attempt.pool_key);
        }
    }

    /// Tells the driver that a connect, or the handshake that follows it, is given up.
    fn take_back(&mut self, id: AttemptId, conns: &mut Connections, env: &mut Env) {
        match self.attempts.get(id).and_then(|attempt| attempt.securing) {
            Some(connection) => conns.cancel_handshake(connection, env),
            None => conns.push(Output::CancelConnect { attempt: id }, env),
        }
    }

    /// Takes an attempt off the books.
    fn end_attempt(&mut self, id: AttemptId, closer: Closer, env: &mut Env) -> Option<Attempt> {
        let attempt = self.attempts.close(id)?;
        env.timers.clear(TimerSlot::Attempt(Attempts::slot(id)).number());
        let cluster = self.clusters.get_mut(attempt.pool_key.cluster)?;
        cluster.load_mut(attempt.pool_key).connections -= 1;
        cluster.show_breakers(attempt.pool_key);
        cluster.stats.upstream_cx_active.dec();
        cluster.stats.upstream_cx_destroy.inc();
        match closer {
            Closer::Local => cluster.stats.upstream_cx_destroy_local.inc(),
            Closer::Remote => cluster.stats.upstream_cx_destroy_remote.inc(),
        }
        let pool = cluster.pool_mut(attempt.pool_key)?;
        pool.connections -= 1;
        if attempt.stream.is_none() {
            pool.connecting -= 1;
        } else {
            cluster.left_queue(attempt.pool_key);
        }
        Some(attempt)
    }
}

/// The outcome of a connect in traces, of one that came about.
const CONNECTED: &str = "connected";
