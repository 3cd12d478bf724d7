//! Pools of upstream connections, one for each host of a cluster.
//!
//! Arrives: a stream that knows its host. Leaves: a connection for it, a place in the queue, or a refusal.
//!
//! An idle connection is taken from the top, so that the oldest ones fall out by their idle timeout. A pool never
//! opens more connections than streams wait for, nor more than the cluster's circuit breakers allow; the first
//! connection to a host is always allowed, so that a limit never makes a host unreachable.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Address, Close, ConnectionId, Instant};

use crate::conn::{Connection, ConnectionTimer, Connections};
use crate::env::{Env, TimerSlot};
use crate::format::address_text;
use crate::ids::{PoolClass, PoolKey, StreamIndex};
use crate::message::HostCounts;
use crate::tally::Tally;
use crate::total::Total;
use crate::upstream::Upstreams;
use crate::upstream::cluster::Resource;
use crate::upstream::passive_health::ErrorStreak;
use crate::upstream::tracked::TrackedEndpoint;
use crate::upstream::zone_books::Zone;

/// The connections to one host.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) address: Address,
    /// All that its host has, in the order in which they are connected to, if it has several.
    pub(crate) addresses: Option<Arc<[Address]>>,
    /// The first as log lines have it.
    pub(crate) address_text: Box<[u8]>,
    pub(crate) hostname: Arc<str>,
    /// Which of the cluster's sockets it is spoken to by, in place of the one of all others.
    pub(crate) socket: Option<u16>,
    /// Whose circuit breakers count, and what is spoken where clients choose.
    pub(crate) class: PoolClass,
    /// Where the host is in the balancer's list; `None` when it is gone.
    pub(crate) host: Option<u32>,
    /// All connections.
    pub(crate) open: Vec<ConnectionId>,
    /// Those that took another stream when they were last looked at, each once ([`Upstream::listed`]), the latest last.
    ///
    /// [`Upstream::listed`]: crate::conn::Upstream::listed
    pub(crate) ready: Vec<ConnectionId>,
    /// Streams that wait for a connection.
    pub(crate) pending: VecDeque<StreamIndex>,
    /// Connects under way for `pending`.
    pub(crate) connecting: u32,
    /// Connections and connects.
    pub(crate) connections: u32,
    /// How many streams the last connection took at once; none was made yet otherwise.
    pub(crate) carries: Option<u32>,
    /// How long the peer was seen to keep an idle connection, or says so.
    pub(crate) peer_idle: Option<Duration>,
    /// Of what is over; what is there now is counted when it is asked for ([`Pool::counted`]).
    pub(crate) counts: HostCounts,
    /// Errors in a row, where outliers are looked for.
    pub(crate) error_streak: ErrorStreak,
    /// Where its requests are counted by zones, if both ends are in one.
    pub(crate) zone: Option<Arc<Zone>>,
    /// Where its host has counters of its own.
    pub(crate) tracked: Option<Box<TrackedEndpoint>>,
    /// Its host's metadata says `canary: true` under `envoy.lb`.
    pub(crate) is_canary: bool,
    /// It is counted among its cluster's pools, where these are.
    pub(crate) is_counted: bool,
    /// How many connections all workers have to its host, where that is limited.
    pub(crate) total: Option<Arc<Total>>,
    /// How its attempts end, where hosts are compared.
    pub(crate) tally: Option<Arc<Tally>>,
}

/// What asking for a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Here it is; `fresh` if it carried no stream before.
    Ready(ConnectionId),
    /// The stream is in the queue.
    Pending,
    /// A circuit breaker is open.
    Overflow,
    /// There may be no other pool: as if its host were none.
    NoPool,
    /// It never comes to a host: too many wait already, or load is shed.
    QueueFull,
}

/// What a stream wants of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) stream: StreamIndex,
    /// A connection that has carried others will do.
    pub(crate) reuses: bool,
    /// Otherwise one that was opened after this, whatever it has carried.
    pub(crate) opened_after: Option<Instant>,
    /// It can be sent again if its connection turns out to be closing.
    pub(crate) repeatable: bool,
    /// Where it stands in the queue, if not at the end.
    pub(crate) turn: Option<usize>,
}

impl Pool {
    pub(crate) fn new(address: Address, hostname: Arc<str>, class: PoolClass) -> Self {
        Self {
            address_text: address_text(&address),
            address,
            addresses: None,
            hostname,
            socket: None,
            class,
            host: None,
            open: Vec::new(),
            ready: Vec::new(),
            pending: VecDeque::new(),
            connecting: 0,
            connections: 0,
            carries: None,
            peer_idle: None,
            counts: HostCounts::default(),
            error_streak: ErrorStreak::default(),
            zone: None,
            tracked: None,
            is_canary: false,
            is_counted: false,
            total: None,
            tally: None,
        }
    }

    /// Whether nothing hangs on it.
    pub(crate) fn is_unused(&self) -> bool {
        self.host.is_none() && self.connections == 0 && self.pending.is_empty()
    }

    /// Connections on which further streams may begin, now or later, and those under way.
    fn with_capacity_to_come(&self, conns: &Connections) -> u32 {
        let open = self.open.iter().filter_map(|id| conns.table.get(*id));
        let open = open.filter(|connection| connection.takes_streams()).count();
        u32::try_from(open).unwrap_or(u32::MAX).saturating_add(self.connecting)
    }

    /// Whether there are too few connections for the streams that wait or are under way, `ratio` thousandths of them.
    /// Each connect under way `carries` so many.
    fn wants_connection(&self, ratio: u32, carries: usize, conns: &Connections) -> bool {
        let (pending, to_come) = (self.pending.len(), self.connecting as usize * carries);
        if ratio == 1000 {
            return pending > to_come;
        }
        let open = self.ready.iter().filter_map(|id| conns.table.get(*id));
        let room: usize = open.map(|connection| connection.capacity() as usize).sum();
        let active = usize::try_from(self.counts.requests_active).unwrap_or(usize::MAX);
        (pending + active) * ratio as usize > (to_come + room + active) * 1000
    }

    /// A connection takes another stream.
    pub(crate) fn list(&mut self, connection: &mut Connection) {
        if !connection.set_listed(true) {
            self.ready.push(connection.id);
        }
    }

    /// It takes none, or is over.
    pub(crate) fn unlist(&mut self, connection: &mut Connection) {
        if connection.set_listed(false)
            && let Some(at) = self.ready.iter().rposition(|ready| *ready == connection.id)
        {
            self.ready.remove(at);
        }
    }

    /// The same of the connection that became ready last.
    pub(crate) fn unlist_last(&mut self, connection: &mut Connection) {
        if connection.set_listed(false) {
            self.ready.pop();
        }
    }

    /// A connection has no stream: it is closed after a while, before its peer does that.
    pub(crate) fn rest(
        &self,
        connection: &mut Connection,
        idle_timeout: Option<Duration>,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(look) = connection.next_look(self.idle_limit(idle_timeout), now) else { return };
        let (idle, slot) =
            (ConnectionTimer::Idle as usize, TimerSlot::of_connection(connection.id));
        connection.deadlines.set(idle, look, slot, &mut env.timers);
    }

    /// How long a connection may have no stream.
    fn idle_limit(&self, idle_timeout: Option<Duration>) -> Option<Duration> {
        let peer_idle = self.peer_idle.map(|idle| idle.saturating_sub(PEER_IDLE_MARGIN));
        match (idle_timeout, peer_idle) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Its connections count in another total from here on.
    pub(crate) fn count_in(&mut self, total: Option<Arc<Total>>) {
        let before = std::mem::replace(&mut self.total, total);
        if let Some(total) = &self.total {
            total.add(self.connections.into());
        }
        if let Some(before) = before {
            before.sub(self.connections.into());
        }
    }

    /// What `/clusters` tells of it.
    pub(crate) fn counted(&self) -> HostCounts {
        HostCounts {
            connections_active: u64::from(self.connections),
            requests_pending: self.pending.len() as u64,
            ..self.counts
        }
    }

    /// The peer let an idle connection go after `idle`.
    pub(crate) fn learn_idle(&mut self, idle: Duration) {
        if idle >= SHORTEST_PEER_IDLE {
            self.peer_idle = Some(self.peer_idle.map_or(idle, |known| known.min(idle)));
        }
    }
}

impl Upstreams {
    /// How long a connection of that pool may have no stream.
    pub(crate) fn idle_limit(&self, pool_key: PoolKey) -> Option<Duration> {
        let cluster = self.clusters.get(pool_key.cluster)?;
        self.clusters.pool(pool_key)?.idle_limit(cluster.config.idle_timeout)
    }

    /// A connection for an HTTP stream to a host.
    pub(crate) fn lease(
        &mut self,
        wish: Wish,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> Lease {
        let Some(cluster) = self.clusters.get_mut(pool_key.cluster) else { return Lease::Overflow };
        if cluster.is_full(pool_key, Resource::Requests) {
            cluster.stats.upstream_rq_active_overflow.inc();
            return Lease::Overflow;
        }
        while let Some(id) = self.take_ready(&wish, pool_key, conns) {
            if self.may_be_reused(id, pool_key, wish.repeatable, conns, now) {
                return Lease::Ready(id);
            }
            if conns.table.get(id).is_some_and(|it| it.contact().is_some()) {
                self.ask_before_use(id, conns, env, now);
                break;
            }
            self.close_upstream(id, Close::Flush, conns, env, now);
        }
        self.enqueue(wish, pool_key, conns, env, now)
    }

    /// A connection that takes another stream: the idle one that was used last, else the one with the fewest streams.
    /// An app, whose windows are its own, has one that carries many as long as that has room: it knows its path best.
    fn take_ready(
        &mut self,
        wish: &Wish,
        pool_key: PoolKey,
        conns: &mut Connections,
    ) -> Option<ConnectionId> {
        let cluster = self.clusters.get_mut(pool_key.cluster)?;
        let races = cluster.races;
        let ready = &mut cluster.pool_mut(pool_key)?.ready;
        let mut best: Option<(u32, usize)> = None;
        for at in (0..ready.len()).rev() {
            let Some(connection) = conns.table.get_mut(ready[at]) else { continue };
            let streams = connection.streams.len();
            if connection.capacity() == 0 {
                connection.set_listed(false);
                ready.remove(at);
                best = best.map(|(least, at)| (least, at - 1));
                continue;
            }
            let stays = races && !connection.mux.is_alone();
            let rank = if stays { u32::MAX - connection.requests() } else { streams };
            if connection.suits(wish.reuses, wish.opened_after)
                && best.is_none_or(|(least, _)| rank < least)
            {
                best = Some((rank, at));
                if rank == 0 {
                    break;
                }
            }
        }
        let (_, at) = best?;
        let id = ready[at];
        if let Some(connection) = conns.table.get_mut(id).filter(|it| it.capacity() == 1) {
            connection.set_listed(false);
            ready.remove(at);
        }
        Some(id)
    }

    /// Puts a stream into the queue of a host and opens a connection for it if none is on its way.
    pub(crate) fn enqueue(
        &mut self,
        wish: Wish,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> Lease {
        let Some(cluster) = self.clusters.get_mut(pool_key.cluster) else { return Lease::Overflow };
        if cluster.config.limits_pools() && !cluster.enter_pool(pool_key) {
            return Lease::NoPool;
        }
        if cluster.is_full(pool_key, Resource::Pending) {
            cluster.stats.upstream_rq_pending_overflow.inc();
            cluster.settle_pool(pool_key);
            return Lease::QueueFull;
        }
        cluster.joined_queue(pool_key);
        let races = cluster.races;
        if let Some(pool) = cluster.pool_mut(pool_key) {
            let at = wish.turn.unwrap_or(pool.pending.len());
            pool.pending.insert(at, wish.stream);
            pool.show();
        }
        if races {
            self.race_for(pool_key.cluster, conns, env, now);
        } else if env.overload.is_some() && self.is_shed(wish.stream, pool_key, conns, env) {
            return Lease::QueueFull;
        } else {
            self.open_for_pending(pool_key, conns, env, now);
        }
        Lease::Pending
    }

    /// Whether a stream that waits is refused because it would have a connection made, at a bad time.
    #[cold]
    fn is_shed(
        &mut self,
        stream: StreamIndex,
        pool_key: PoolKey,
        conns: &Connections,
        env: &mut Env,
    ) -> bool {
        let Some(cluster) = self.clusters.get_mut(pool_key.cluster) else { return false };
        let (carries, ratio) = (cluster.carries(pool_key), cluster.preconnect_milli(pool_key));
        let pool = cluster.pool(pool_key);
        let wants = pool.is_some_and(|pool| pool.wants_connection(ratio, carries, conns));
        if !wants || !env.sheds_connection() {
            return false;
        }
        cluster.stats.upstream_rq_cancelled.inc();
        self.leave_queue(stream, pool_key);
        true
    }

    /// Opens a connection if more streams wait than connects are under way, and those that are wanted ahead of need.
    pub(crate) fn open_for_pending(
        &mut self,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(cluster) = self.clusters.get_mut(pool_key.cluster) else { return };
        if cluster.races {
            return self.advance_origin(pool_key.cluster, conns, env, now);
        }
        if self.open_if_wanted(pool_key, conns, env, now) {
            self.preconnect(pool_key, conns, env, now);
        }
    }

    /// Opens the connections that a host is to have ahead of need, a few at a time.
    #[inline]
    pub(crate) fn preconnect(
        &mut self,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let cluster = self.clusters.get(pool_key.cluster);
        if cluster.is_some_and(|cluster| cluster.config.preconnect_milli > 1000) {
            for _ in 0..MOST_AHEAD {
                if !self.open_if_wanted(pool_key, conns, env, now) {
                    break;
                }
            }
        }
    }

    /// Opens one connection if its host is to have another; whether it did.
    fn open_if_wanted(
        &mut self,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> bool {
        let Some(cluster) = self.clusters.get_mut(pool_key.cluster) else { return false };
        let (carries, most) = (cluster.carries(pool_key), cluster.config.connections_per_host());
        let ratio = cluster.preconnect_milli(pool_key);
        let at_limit = cluster.is_full(pool_key, Resource::Connections);
        let Some(pool) = cluster.pool_mut(pool_key) else { return false };
        if !pool.wants_connection(ratio, carries, conns)
            || most.is_some_and(|most| pool.with_capacity_to_come(conns) >= most)
        {
            return false;
        }
        let has_some = pool.connections > 0;
        if at_limit {
            cluster.stats.upstream_cx_overflow.inc();
            if has_some {
                return false;
            }
        }
        self.start_connect(pool_key, None, env, now);
        true
    }

    /// Takes a stream out of a queue.
    pub(crate) fn leave_queue(&mut self, index: StreamIndex, pool_key: PoolKey) {
        let Some(cluster) = self.clusters.get_mut(pool_key.cluster) else { return };
        let Some(pool) = cluster.pool_mut(pool_key) else { return };
        if let Some(position) = pool.pending.iter().position(|&waiting| waiting == index) {
            pool.pending.remove(position);
            cluster.left_queue(pool_key);
            cluster.settle_pool(pool_key);
        }
    }

    /// Whether a connection can be trusted with a request; one that has others is.
    pub(crate) fn may_be_reused(
        &self,
        id: ConnectionId,
        pool_key: PoolKey,
        repeatable: bool,
        conns: &Connections,
        now: Instant,
    ) -> bool {
        let Some(connection) = conns.table.get(id) else { return false };
        if let Some(contact) = connection.contact() {
            return repeatable || now - contact.heard <= PROVEN_ALIVE;
        }
        if connection.is_busy() {
            return true;
        }
        // What cannot be repeated does not go where the peer may be hanging up at this moment.
        let races = self.clusters.get(pool_key.cluster).is_some_and(|cluster| cluster.races);
        if races && !repeatable && connection.idle_since(now) > PROVEN_ALIVE {
            return false;
        }
        let known = self.clusters.pool(pool_key).and_then(|pool| pool.peer_idle);
        repeatable
            || known.is_none_or(|known| connection.idle_since(now) + PEER_IDLE_MARGIN < known)
    }
}

/// Connections that one stream may open ahead of need, as in Envoy.
const MOST_AHEAD: usize = 3;

/// Shorter idle times of a peer are taken for restarts and the like, not for its habit.
pub(crate) const SHORTEST_PEER_IDLE: Duration = Duration::from_millis(1500);

/// How lately an app's connection must have carried something to be trusted with what cannot be repeated; HTTP/1 has no
/// other way to ask whether its peer is there than a new connection.
pub(crate) const PROVEN_ALIVE: Duration = Duration::from_millis(1000);

/// How long before the peer's own idle timeout a connection is not used any more.
pub(crate) const PEER_IDLE_MARGIN: Duration = Duration::from_millis(1000);
