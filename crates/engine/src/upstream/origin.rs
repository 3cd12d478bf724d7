//! Connects of an origin of the app, as its race has them.

use std::net::SocketAddr;

use towpath_proto::{AttemptId, Close, ConnectionId, Instant};

use crate::client::race::{Order, Why};
use crate::conn::Connections;
use crate::env::Env;
use crate::ids::{PoolKey, StreamIndex};
use crate::local::report::{Attempt, AttemptOutcome};
use crate::snapshot::ClusterId;
use crate::upstream::Upstreams;

impl Upstreams {
    /// A stream began to wait for a connection to an origin.
    pub(crate) fn race_for(
        &mut self,
        id: ClusterId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let waiting = self.clusters.pool(PoolKey { cluster: id, pool: 0 });
        let first = waiting.is_some_and(|pool| pool.pending.len() == 1);
        if let Some(origin) = self.app.origins.get_mut(&id)
            && first
        {
            origin.race.renew(now);
            self.app.order_candidates(id, now);
        }
        self.advance_origin(id, conns, env, now);
    }

    /// Begins and gives up attempts as the race has it, and asks for addresses where they are missing or old.
    pub(crate) fn advance_origin(
        &mut self,
        id: ClusterId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let held = self.app.origins.get(&id).and_then(|origin| origin.held);
        let is_held = held.is_some_and(|held| now < held.until);
        let wanted = if is_held { 0 } else { self.connections_wanted(id) };
        if wanted > 0 {
            self.app.ask_for_addresses(id, env, now);
        }
        loop {
            let random = env.random.next();
            let local = &mut *self.app;
            let Some(origin) = local.origins.get_mut(&id) else { return };
            match origin.race.poll(wanted, random, &mut local.probes, now) {
                Some(Order::Start { address, why }) => {
                    self.start_attempt(id, address, why, env, now)
                }
                Some(Order::Cancel(number)) => {
                    self.cancel_attempt(AttemptId(number), conns, env);
                    if let Some(origin) = self.app.origins.get_mut(&id) {
                        origin.note_end(number, AttemptOutcome::GivenUp, now);
                    }
                }
                None => break,
            }
        }
        self.app.arm_origin(id, wanted, env, now);
    }

    /// An app's connection has no request any more: with too many of them the oldest is closed.
    pub(crate) fn limit_idle(
        &mut self,
        id: ClusterId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        if self.app.origins.contains_key(&id)
            && self.ready_pools().map(Vec::len).sum::<usize>() > self.app.settings.max_idle
        {
            self.close_oldest_idle(conns, env, now);
        }
    }

    pub(crate) fn close_oldest_idle(
        &mut self,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let oldest = self
            .ready_pools()
            .filter_map(|ready| {
                let mut ready = ready.iter().filter_map(|id| conns.table.get(*id));
                ready.find(|connection| !connection.is_busy())
            })
            .max_by_key(|connection| (connection.idle_since(now), connection.id))
            .map(|connection| connection.id);
        if let Some(id) = oldest {
            self.close_upstream(id, Close::Flush, conns, env, now);
        }
    }

    /// The connections of each origin that take another request, those that are idle for long first.
    fn ready_pools(&self) -> impl Iterator<Item = &Vec<ConnectionId>> {
        let keys = self.app.origins.keys().map(|id| PoolKey { cluster: *id, pool: 0 });
        keys.filter_map(|key| self.clusters.pool(key)).map(|pool| &pool.ready)
    }

    pub(crate) fn connections_wanted(&self, id: ClusterId) -> usize {
        let key = PoolKey { cluster: id, pool: 0 };
        let Some(cluster) = self.clusters.get(id) else { return 0 };
        let Some(pool) = cluster.pool(key) else { return 0 };
        let open = (pool.connections - pool.connecting) as usize;
        let wanted = pool.pending.len().div_ceil(cluster.carries(key));
        wanted.min(self.app.settings.max_connections.saturating_sub(open))
    }

    pub(crate) fn start_attempt(
        &mut self,
        id: ClusterId,
        address: SocketAddr,
        why: Why,
        env: &mut Env,
        now: Instant,
    ) {
        let pool_key = PoolKey { cluster: id, pool: 0 };
        let known = self.app.memory.facts(address, now);
        let Some(attempt) = self.begin_connect(pool_key, None, Some(address), env, now) else {
            return;
        };
        let Some(origin) = self.app.origins.get_mut(&id) else { return };
        origin.race.started(attempt.0, address, now);
        let known = known.map(|facts| facts.to_string()).unwrap_or_default();
        origin.note(
            attempt.0,
            Attempt { address, why, known, started: now, ended: None, outcome: None },
        );
    }

    /// The streams that wait for a connection to an origin, with or without one beside it.
    pub(crate) fn waiting_for(&self, id: ClusterId) -> Vec<StreamIndex> {
        let pool = self.clusters.pool(PoolKey { cluster: id, pool: 0 });
        pool.map(|pool| pool.pending.iter().copied().collect()).unwrap_or_default()
    }

    /// Whether an origin is not concerned by what becomes of the network; it is reached then.
    pub(crate) fn keep_exempt_origin(
        &mut self,
        id: ClusterId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> bool {
        let key = self.app.origins.get(&id).map(|origin| &origin.key);
        if !key.is_some_and(|key| self.app.is_exempt(key)) {
            return false;
        }
        if let Some(origin) = self.app.origins.get_mut(&id) {
            origin.race.set_online(true);
        }
        self.advance_origin(id, conns, env, now);
        true
    }
}
