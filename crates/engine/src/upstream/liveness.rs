//! Connections that are asked for a sign of life while they are quiet.

use std::time::Duration;

use towpath_proto::{Address, ConnectionId, Instant};

use crate::conn::{ConnectionTimer, Connections};
use crate::env::Env;
use crate::local::origin::Hold;
use crate::snapshot::ClusterId;
use crate::snapshot::bolt::Heartbeat;
use crate::upstream::Upstreams;

impl Upstreams {
    /// Starts to look after a connection, if its cluster or its listener asks for that.
    pub(crate) fn begin_heartbeat(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        if let Some(heartbeat) = self.heartbeat_of(id, conns) {
            conns.set_connection_timer(
                id,
                ConnectionTimer::Heartbeat,
                now + heartbeat.interval,
                env,
            );
        }
    }

    pub(crate) fn heartbeat_of(&self, id: ConnectionId, conns: &Connections) -> Option<Heartbeat> {
        let connection = conns.table.get(id)?;
        let http2 = match connection.upstream() {
            Some(upstream) => {
                let config = &self.clusters.get(upstream.pool_key.cluster)?.config;
                if let Some(bolt) = &config.bolt {
                    return bolt.heartbeat;
                }
                &config.http2
            }
            None => &connection.downstream()?.context.http()?.config.http2,
        };
        let keepalive = http2.as_ref().filter(|_| connection.mux.is_http2())?.keepalive?;
        let (interval, timeout) = (keepalive.interval, keepalive.timeout);
        Some(Heartbeat { interval, timeout, misses: 1 })
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
