//! What connects come to, for the streams that wait for them.

use std::sync::Arc;

use towpath_proto::{Address, AttemptId, Close, ConnectionId, Failure, Instant, Output};

use crate::conn::mux::Mux;
use crate::conn::tls::{Reached, Secured};
use crate::conn::{AppPath, Connection, ConnectionTimer, Contact, Role, Upstream};
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::exchange::stream::UpstreamState;
use crate::ids::{Closer, ResetReason, StreamIndex};
use crate::record::TlsNames;
use crate::record::details::Reset;
use crate::serving::{HTTP2, OfHttp2, SERVES};
use crate::upstream::connect::{Attempt, Attempts};

impl Exchange {
    /// The driver connected.
    pub(crate) fn on_connected(
        &mut self,
        id: AttemptId,
        connection: ConnectionId,
        local: Address,
        now: Instant,
    ) {
        if SERVES && local.internal().is_some() {
            self.passed = self.passed_by(id);
        }
        let mut reached = Reached { local, connected: now, outstanding: 0, below: None };
        self.tell_client(id, connection, &mut reached, now);
        let begun = match self.begin_tunnel(id, connection, reached, now) {
            Ok(()) => Ok(()),
            Err(reached) => self.begin_handshake(id, connection, reached, now),
        };
        if let Err(reached) = begun {
            self.establish(id, connection, reached.local, None, now);
            if let Some(made) = self.conns.table.get_mut(connection) {
                made.outstanding += reached.outstanding;
            }
        } else if let Some(attempt) =
            self.upstreams.attempts.get(id).filter(|one| one.target.is_some())
        {
            let cluster = attempt.pool_key.cluster;
            self.upstreams.app.on_race_moved(cluster, &mut self.env, now);
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
        let peer = self.upstreams.attempts.address(id);
        self.upstreams.end_round(id, &mut self.conns, &mut self.env);
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
        let alpn = secured.as_ref().and_then(|secured| secured.layer.alpn());
        let mut mux = cluster.mux_of(cluster.protocol(pool_key, attempt.stream.is_some(), alpn));
        let (limit, max_age) =
            (cluster.config.buffer_limit, cluster.config.max_connection_duration);
        let races = cluster.races;
        let (of_mesh, is_shown) = (cluster.config.mesh.is_some(), self.snapshot.shows_upstream_tls);
        let named = secured.as_ref().filter(|_| of_mesh || is_shown);
        let mut names = named.map(|secured| {
            let own = cluster.own_certificate(pool_key);
            let shown = is_shown.then(|| TlsNames::shown(&secured.layer, own));
            let names =
                if of_mesh { TlsNames::of(&secured.layer, own) } else { TlsNames::default() };
            TlsNames { shown, ..names }
        });
        let Some(pool) = cluster.pool_mut(pool_key) else { return };
        if races && let (Mux::Http2(http2), Some(usual)) = (&mut mux, pool.carries) {
            http2.expect_capacity(usual);
        }
        pool.carries = Some(mux.capacity());
        pool.open.push(connection);
        let remote = peer.filter(|peer| *peer != pool.address);
        let peer = match (attempt.target, &remote) {
            (Some(_), Some(remote)) => remote.clone(),
            _ => pool.address.clone(),
        };
        if let Some(remote) = remote.filter(|_| attempt.target.is_none()) {
            names.get_or_insert_default().remote = Some(Box::new(remote));
        }
        if attempt.stream.is_none() {
            pool.connecting -= 1;
        } else {
            cluster.left_queue(pool_key);
        }
        self.conns.push(limit.of_reads(connection), &mut self.env);
        let connected = secured.as_ref().map_or(now, |secured| secured.connected);
        let app = &self.upstreams.app;
        let window = || app.settings.stream_window(connected - attempt.started, now);
        let shared = HTTP2 && races && mux.is_http2();
        let contact = shared.then(|| OfHttp2::new(Contact::new(window(), now)));
        let app = contact.map(|contact| AppPath { contact: Some(contact), ..AppPath::default() });
        let serial = self.env.serial.next_connection();
        let role = Role::Upstream(Upstream {
            pool_key,
            requests: 0,
            retired: false,
            listed: false,
            serial,
            names: names.map(Arc::new),
            app: app.map(Box::new),
        });
        let made = self.conns.table.insert(Connection::new(
            connection,
            mux,
            role,
            local,
            peer.clone(),
            limit.bytes,
            now,
        ));
        made.show_mux();
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
                    stream
                        .recorder
                        .note(|record| record.connect = Some((attempt.started, connected)));
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
                    stream
                        .recorder
                        .note(|record| record.connect = Some((attempt.started, connected)));
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
                    let cluster = pool_key.cluster;
                    self.upstreams.app.on_race_won(cluster, id, &mut self.env, now);
                }
                self.upstreams.begin_heartbeat(connection, &mut self.conns, &mut self.env, now);
                self.offer(connection, now);
                // A client of HTTP/2 speaks first, whether or not a stream has come.
                self.open_windows(connection);
                if attempt.target.is_some() {
                    self.upstreams.advance_origin(
                        pool_key.cluster,
                        &mut self.conns,
                        &mut self.env,
                        now,
                    );
                    self.share(connection, now);
                }
            }
        }
    }

    /// The driver could not connect.
    pub(crate) fn on_connect_failed(&mut self, id: AttemptId, failure: Failure, now: Instant) {
        let reason = ResetReason::Connect(failure);
        let closer = match reason.reset() {
            Reset::LocalConnectionFailure(_) => Closer::Local(""),
            Reset::Overflow
            | Reset::RemoteConnectionFailure(_)
            | Reset::Tls(_)
            | Reset::ConnectionTimeout
            | Reset::ConnectionTermination
            | Reset::ProtocolError
            | Reset::LocalReset
            | Reset::RemoteReset
            | Reset::RemoteRefused => Closer::Remote,
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
        if self.upstreams.goes_on(id, &mut self.env, now) {
            return;
        }
        if let Some(attempt) = self.upstreams.end_attempt(id, closer, &mut self.env) {
            self.fail_waiting(attempt, reason, now);
        }
    }

    /// `connect_timeout` has passed.
    pub(crate) fn on_connect_timeout(&mut self, slot: u32, now: Instant) {
        let Some(id) = self.upstreams.attempts.in_slot(slot) else { return };
        if self.upstreams.is_round_due(id, &mut self.env, now) {
            return;
        }
        self.upstreams.end_round(id, &mut self.conns, &mut self.env);
        self.upstreams.cancel_connect(id, &mut self.conns, &mut self.env);
        let Some(attempt) = self.upstreams.end_attempt(id, Closer::Local(""), &mut self.env) else {
            return;
        };
        if let Some(cluster) = self.upstreams.clusters.get_mut(attempt.pool_key.cluster) {
            cluster.stats.upstream_cx_connect_timeout.inc();
        }
        self.fail_waiting(attempt, ResetReason::ConnectTimeout, now);
    }

    /// Everything that waited for a host that cannot be reached fails at once, so that each stream can decide
    /// for itself whether to try another.
    pub(crate) fn fail_waiting(&mut self, attempt: Attempt, reason: ResetReason, now: Instant) {
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
                cluster.settle_pool(pool_key);
                waiting
            }
        };
        // TCP's are no requests.
        let is_request = |index: &&StreamIndex| {
            self.streams.get(**index).is_some_and(|stream| stream.context.http().is_some())
        };
        if let Some(pool) = cluster.pool_mut(pool_key) {
            pool.counts.requests_error += waiting.iter().filter(is_request).count() as u64;
            pool.show();
        }
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

/// The outcome of a connect in traces, of one that came about.
pub(crate) const CONNECTED: &str = "connected";
