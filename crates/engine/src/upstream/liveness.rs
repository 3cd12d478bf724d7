//! Connections that are asked for a sign of life while they are quiet.

use std::time::Duration;

use towpath_proto::{Address, ConnectionId, Instant};

use crate::conn::{ConnectionTimer, Connections};
use crate::env::Env;
use crate::local::origin::Hold;
use crate::snapshot::ClusterId;
use crate::upstream::Upstreams;

/// How a connection is asked for signs of life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// How long it is quiet before it is asked; it is not by itself where there is none.
    interval: Option<Duration>,
    /// Up to so much is added to the interval.
    jitter: Duration,
    /// How long its answer may take.
    pub(crate) timeout: Duration,
    /// It ends when so many in a row are missed.
    pub(crate) misses: u32,
    /// As [`Http2Keepalive::idle`](crate::snapshot::http2::Http2Keepalive::idle).
    pub(crate) idle: Option<Duration>,
}

impl Upstreams {
    /// Starts to look after a connection, if its cluster or its listener asks for that.
    pub(crate) fn begin_heartbeat(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(asking) = self.asking_of(id, conns) else { return };
        if asking.idle.is_some()
            && let Some(upstream) = conns.table.get_mut(id).and_then(|it| it.upstream_mut())
        {
            upstream.app.get_or_insert_default().heard = Some(now);
        }
        conns.await_heartbeat(id, asking, env, now);
    }

    pub(crate) fn asking_of(&self, id: ConnectionId, conns: &Connections) -> Option<Asking> {
        let connection = conns.table.get(id)?;
        let http2 = match connection.upstream() {
            Some(upstream) => {
                let config = &self.clusters.get(upstream.pool_key.cluster)?.config;
                if let Some(bolt) = &config.bolt {
                    let heartbeat = bolt.heartbeat?;
                    return Some(Asking {
                        interval: Some(heartbeat.interval),
                        jitter: Duration::ZERO,
                        timeout: heartbeat.timeout,
                        misses: heartbeat.misses,
                        idle: None,
                    });
                }
                &config.http2
            }
            None => &connection.downstream()?.context.http()?.config.http2,
        };
        let keepalive = http2.as_ref().filter(|_| connection.mux.is_http2())?.keepalive?;
        let interval = keepalive.interval;
        Some(Asking {
            interval,
            jitter: interval.unwrap_or_default() * keepalive.jitter_percent / 100,
            timeout: keepalive.timeout,
            misses: 1,
            idle: keepalive.idle,
        })
    }

    /// Asks a server from which nothing has come for so long whether it is there, ahead of a stream.
    pub(crate) fn ask_ahead_of_stream(
        &self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let heard = conns.table.get(id).and_then(|connection| connection.heard());
        let (Some(heard), Some(asking)) = (heard, self.asking_of(id, conns)) else { return };
        if asking.idle.is_none_or(|idle| now - heard <= idle) {
            return;
        }
        conns.encode_for(id, env);
        let Some(connection) = conns.table.get_mut(id) else { return };
        if connection.mux.ask_ahead(connection.bytes_received, &mut conns.out) {
            let due = now + asking.timeout;
            conns.set_connection_timer(id, ConnectionTimer::Heartbeat, due, env);
        }
    }
}

impl Connections {
    /// Sets when a connection is asked next, if it is by itself.
    pub(crate) fn await_heartbeat(
        &mut self,
        id: ConnectionId,
        asking: Asking,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(interval) = asking.interval else { return };
        let jitter = u64::try_from(asking.jitter.as_nanos()).unwrap_or(u64::MAX);
        let more = if jitter == 0 { 0 } else { env.random.below(jitter) };
        let at = now + interval + Duration::from_nanos(more);
        self.set_connection_timer(id, ConnectionTimer::Heartbeat, at, env);
    }
}

/// Connections of an app that carry many streams.
impl Upstreams {
    /// Asks the peer for a sign of life, unless it has been asked, or too often.
    pub(crate) fn ask_peer(
        &self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let contact = conns.table.get_mut(id).and_then(|it| it.contact_mut());
        if !contact.is_some_and(|contact| contact.ask(now)) {
            return;
        }
        let patience = self.patience(id, conns, now);
        conns.encode_for(id, env);
        if let Some(connection) = conns.table.get_mut(id) {
            connection.mux.ask(&mut conns.out);
        }
        conns.set_connection_timer(id, ConnectionTimer::Heartbeat, now + patience, env);
    }

    /// Asks before a request is sent that must not be sent twice. Until the answer is due no other connection is begun
    /// for those that wait.
    pub(crate) fn ask_before_use(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        self.ask_peer(id, conns, env, now);
        let Some(connection) = conns.table.get(id) else { return };
        let Some(asked) = connection.contact().and_then(|contact| contact.asked) else { return };
        let until = asked + self.patience(id, conns, now);
        let cluster = connection.upstream().map(|upstream| upstream.pool_key.cluster);
        if let Some(origin) = cluster.and_then(|cluster| self.app.origins.get_mut(&cluster)) {
            origin.held = Some(Hold { by: id, until });
        }
    }

    /// Those that wait need not wait for that answer any more.
    pub(crate) fn end_hold(&mut self, cluster: ClusterId) {
        if let Some(origin) = self.app.origins.get_mut(&cluster) {
            origin.held = None;
        }
    }

    /// How long a sign of life may take: four times as long as connecting does there.
    fn patience(&self, id: ConnectionId, conns: &Connections, now: Instant) -> Duration {
        let Some(connection) = conns.table.get(id) else { return USUAL_PATIENCE };
        let Address::Ip(address) = &connection.peer else { return USUAL_PATIENCE };
        let stagger = self.app.memory.stagger(&[*address], now);
        stagger.map_or(USUAL_PATIENCE, |stagger| (stagger * 2).clamp(LEAST_PATIENCE, MOST_PATIENCE))
    }
}

/// A peer that was asked and is silent for so long is given up, and with it what is on its connection.
pub(crate) const GIVEN_UP_AFTER: Duration = Duration::from_secs(20);

const USUAL_PATIENCE: Duration = Duration::from_millis(500);
const LEAST_PATIENCE: Duration = Duration::from_millis(200);
const MOST_PATIENCE: Duration = Duration::from_secs(2);
