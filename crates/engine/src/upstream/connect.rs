//! Connects under way.
//!
//! Arrives: a pool (or a TCP stream) that wants a connection, and the driver's answer. Leaves: an upstream
//! connection in its pool or on its stream, or a reset for everything that waited for it.

use std::net::SocketAddr;
use std::sync::Arc;

use towpath_proto::{Address, AttemptId, ConnectOptions, ConnectionId, Instant, Output};
use towpath_trace::Stamp;

use crate::conn::Connections;
use crate::conn::spans::connect_begins;
use crate::env::{Env, TimerSlot};
use crate::ids::{Closer, PoolKey, Protocol, StreamIndex};
use crate::message::FromWorker;
use crate::snapshot::ClusterId;
use crate::upstream::Upstreams;
use crate::upstream::cluster::{ClusterState, Resource};
use crate::upstream::rounds::{RoundNumber, Rounds};

/// A connect under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) id: AttemptId,
    pub(crate) pool_key: PoolKey,
    /// The one stream that the connection is for (TCP); otherwise the stream that is first in the queue.
    pub(crate) stream: Option<StreamIndex>,
    /// Which of an origin's addresses it goes to; otherwise to the pool's.
    pub(crate) target: Option<SocketAddr>,
    /// Which of the connects to a host with several addresses it is.
    pub(crate) round: Option<RoundNumber>,
    /// The connection whose handshake is under way.
    pub(crate) securing: Option<ConnectionId>,
    pub(crate) started: Instant,
    /// The same for spans, if it is traced.
    pub(crate) since: Option<Stamp>,
}

/// All connects of a worker.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) slots: Vec<Option<Attempt>>,
    pub(crate) free: Vec<u32>,
    pub(crate) serial: u32,
    /// Those to hosts that have several addresses.
    pub(crate) rounds: Rounds,
}

impl Attempts {
    pub(crate) fn open(
        &mut self,
        pool_key: PoolKey,
        stream: Option<StreamIndex>,
        target: Option<SocketAddr>,
        started: Instant,
    ) -> AttemptId {
        let (round, securing, since) = (None, None, connect_begins());
        let id = AttemptId(0);
        self.put(Attempt { id, pool_key, stream, target, round, securing, started, since })
    }

    /// Gives an attempt its id.
    pub(crate) fn put(&mut self, attempt: Attempt) -> AttemptId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.serial = self.serial.wrapping_add(1);
        let id = AttemptId(u64::from(self.serial) << 32 | u64::from(slot));
        self.slots[slot as usize] = Some(Attempt { id, ..attempt });
        id
    }

    pub(crate) fn get_mut(&mut self, id: AttemptId) -> Option<&mut Attempt> {
        self.slots.get_mut(Self::slot(id) as usize)?.as_mut().filter(|attempt| attempt.id == id)
    }

    pub(crate) fn get(&self, id: AttemptId) -> Option<&Attempt> {
        self.slots.get(Self::slot(id) as usize)?.as_ref().filter(|attempt| attempt.id == id)
    }

    /// The driver has connected; the handshake begins.
    pub(crate) fn secure(&mut self, id: AttemptId, connection: ConnectionId) {
        if let Some(attempt) = self.get_mut(id) {
            attempt.securing = Some(connection);
        }
    }

    pub(crate) fn close(&mut self, id: AttemptId) -> Option<Attempt> {
        let slot = Self::slot(id);
        let pool_key = self.slots.get_mut(slot as usize)?;
        let attempt = pool_key.filter(|attempt| attempt.id == id)?;
        *pool_key = None;
        self.free.push(slot);
        Some(attempt)
    }

    pub(crate) fn in_slot(&self, slot: u32) -> Option<AttemptId> {
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
    pub(crate) const fn slot(id: AttemptId) -> u32 {
        id.0 as u32
    }
}

impl Upstreams {
    /// Begins a connect to the host of a pool.
    pub(crate) fn start_connect(
        &mut self,
        pool_key: PoolKey,
        stream: Option<StreamIndex>,
        env: &mut Env,
        now: Instant,
    ) {
        self.begin_connect(pool_key, stream, None, env, now);
    }

    /// Begins a connect to `target`, or to the pool's address.
    pub(crate) fn begin_connect(
        &mut self,
        pool_key: PoolKey,
        stream: Option<StreamIndex>,
        target: Option<SocketAddr>,
        env: &mut Env,
        now: Instant,
    ) -> Option<AttemptId> {
        let cluster = self.clusters.get_mut(pool_key.cluster)?;
        let (timeout, options) =
            (cluster.config.connect_timeout, cluster.connect_options(pool_key));
        cluster.take(pool_key, Resource::Connections);
        cluster.count_socket(pool_key);
        cluster.stats.upstream_cx_total.inc();
        cluster.stats.upstream_cx_active.inc();
        // As in Envoy, which has chosen by now.
        match cluster.protocol(pool_key, stream.is_some(), None) {
            Protocol::Http1 => cluster.stats.upstream_cx_http1_total.inc(),
            Protocol::Http2 => cluster.stats.upstream_cx_http2_total.inc(),
            Protocol::Raw | Protocol::Bolt => {}
            #[cfg(test)]
            Protocol::Toy => {}
        }
        if cluster.config.health_check.is_some() && !cluster.told_traffic {
            cluster.told_traffic = true;
            let traffic = FromWorker::Traffic { cluster: pool_key.cluster };
            env.tell(traffic);
        }
        let pool = cluster.pool_mut(pool_key)?;
        pool.connections += 1;
        pool.counts.connections_total += 1;
        if stream.is_none() {
            pool.connecting += 1;
        }
        pool.show();
        let addresses = pool.addresses.clone().filter(|_| target.is_none());
        let address = target.map_or_else(|| pool.address.clone(), Address::Ip);
        let attempt = self.attempts.open(pool_key, stream, target, now);
        if let Some(addresses) = addresses {
            self.begin_round(attempt, addresses, now + timeout, env, now);
            return Some(attempt);
        }
        env.timers.set(TimerSlot::Attempt(Attempts::slot(attempt)).number(), now + timeout);
        env.outputs.push_back(Output::Connect { attempt, address, options });
        Some(attempt)
    }

    /// The connection is not wanted any more.
    pub(crate) fn cancel_attempt(&mut self, id: AttemptId, conns: &mut Connections, env: &mut Env) {
        if self.attempts.get(id).is_none() {
            return;
        }
        self.end_round(id, conns, env);
        self.cancel_connect(id, conns, env);
        if let Some(attempt) = self.end_attempt(id, Closer::Local(""), env) {
            self.clusters.drop_if_unused(attempt.pool_key);
        }
    }

    /// Tells the driver that a connect, or the handshake that follows it, is given up.
    pub(crate) fn cancel_connect(&mut self, id: AttemptId, conns: &mut Connections, env: &mut Env) {
        match self.attempts.get(id).and_then(|attempt| attempt.securing) {
            Some(connection) => conns.cancel_handshake(connection, env),
            None => conns.push(Output::CancelConnect { attempt: id }, env),
        }
    }

    /// Takes an attempt off the books.
    pub(crate) fn end_attempt(
        &mut self,
        id: AttemptId,
        closer: Closer,
        env: &mut Env,
    ) -> Option<Attempt> {
        let attempt = self.attempts.close(id)?;
        env.timers.clear(TimerSlot::Attempt(Attempts::slot(id)).number());
        let cluster = self.clusters.get_mut(attempt.pool_key.cluster)?;
        cluster.give(attempt.pool_key, Resource::Connections);
        cluster.stats.upstream_cx_active.dec();
        cluster.stats.upstream_cx_destroy.inc();
        match closer {
            Closer::Local(_) => cluster.stats.upstream_cx_destroy_local.inc(),
            Closer::Remote | Closer::RemoteReset => cluster.stats.upstream_cx_destroy_remote.inc(),
        }
        let pool = cluster.pool_mut(attempt.pool_key)?;
        pool.connections -= 1;
        if attempt.stream.is_none() {
            pool.connecting -= 1;
        } else {
            cluster.left_queue(attempt.pool_key);
        }
        cluster.show_pool(attempt.pool_key);
        cluster.settle_pool(attempt.pool_key);
        Some(attempt)
    }
}

impl ClusterState {
    /// How the host of a pool is connected to.
    pub(crate) fn connect_options(&self, pool_key: PoolKey) -> Arc<ConnectOptions> {
        let options = Arc::clone(&self.config.connect);
        let wish = self.pool(pool_key).and_then(|pool| self.wishes.get(pool.class.wish));
        match wish.and_then(|wish| wish.source) {
            Some(source) => source.bind(&options),
            None => options,
        }
    }
}
