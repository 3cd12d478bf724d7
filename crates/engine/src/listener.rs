//! Where connections come in: listening, limits, and the choice of a filter chain.
//!
//! Arrives: snapshots, accepted sockets. Leaves: a downstream connection with its [`ChainContext`], or a closed socket.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::http1;
use towpath_proto::{Address, Close, ConnectionId, Failure, Instant, ListenerId, Output};

use crate::bolt;
use crate::connection::Connections;
use crate::connection::{Codec, Connection, ConnectionTimer, Downstream, Raw, Role};
use crate::env::Env;
use crate::exchange::Exchange;
use crate::message::FromWorker;
use crate::record::{Flags, Record};
use crate::serving::Serving;
use crate::snapshot::listener::{
    ChainMatch, FilterChain, Listener, NetworkFilter, Prefix, SourceType, Terminal,
};
use crate::snapshot::{AccessLog, BoltProxy, Http, TcpProxy};
use crate::stats::{
    BoltStats, ConnectionLimitStats, HttpStats, ListenerHttpStats, ListenerStats, Scope, TcpStats,
};

/// What a downstream connection keeps of its listener: the chain that took it and everything on the way.
///
/// Each worker has its own, and a stream takes hold of it often: hence `Rc`, whose count needs no locked instruction.
#[derive(Debug)]
pub(crate) struct ChainContext {
    pub(crate) listener: Arc<Listener>,
    pub(crate) chain: Arc<FilterChain>,
    pub(crate) stats: Arc<ListenerStats>,
    pub(crate) kind: ChainKind,
    /// The counters of the chain's network filters, in their order.
    limits: Vec<Arc<ConnectionLimitStats>>,
    /// Index into the worker's listeners, and among the listener's chains, for their counts.
    slot: usize,
    index: usize,
}

/// What takes the streams of a chain's connections.
#[derive(Debug)]
pub(crate) enum ChainKind {
    Http(Serving<HttpContext>),
    Tcp(Serving<TcpContext>),
    /// The app in this process.
    Local,
}

/// An HTTP chain.
#[derive(Debug)]
pub(crate) struct HttpContext {
    pub(crate) config: Arc<Http>,
    pub(crate) stats: Arc<HttpStats>,
    pub(crate) listener_stats: Arc<ListenerHttpStats>,
    /// Bolt is what comes in.
    pub(crate) bolt: Option<BoltContext>,
}

/// What a chain has besides when Bolt comes in.
#[derive(Debug)]
pub(crate) struct BoltContext {
    pub(crate) config: Arc<BoltProxy>,
    pub(crate) stats: Arc<BoltStats>,
}

/// A TCP chain.
#[derive(Debug)]
pub(crate) struct TcpContext {
    pub(crate) config: Arc<TcpProxy>,
    pub(crate) stats: Arc<TcpStats>,
}

impl ChainContext {
    /// The app's, which no listener has.
    pub(crate) fn local(stats: Arc<ListenerStats>) -> Self {
        let (listener, chain) = crate::local::no_listener();
        Self {
            listener: Arc::new(listener),
            chain: Arc::new(chain),
            stats,
            kind: ChainKind::Local,
            limits: Vec::new(),
            slot: usize::MAX,
            index: 0,
        }
    }

    pub(crate) fn http(&self) -> Option<&HttpContext> {
        match &self.kind {
            ChainKind::Http(http) => Some(http),
            ChainKind::Tcp(_) | ChainKind::Local => None,
        }
    }

    pub(crate) fn bolt(&self) -> Option<&BoltContext> {
        self.http()?.bolt.as_ref()
    }

    /// What is written when a stream ends.
    pub(crate) fn access_logs(&self) -> &[AccessLog] {
        match &self.kind {
            ChainKind::Http(http) => &http.config.access_logs,
            ChainKind::Tcp(tcp) => &tcp.config.access_logs,
            ChainKind::Local => &[],
        }
    }

    pub(crate) fn tcp(&self) -> Option<&TcpContext> {
        match &self.kind {
            ChainKind::Http(_) | ChainKind::Local => None,
            ChainKind::Tcp(tcp) => Some(tcp),
        }
    }
}

/// A listener of this worker.
#[derive(Debug)]
struct ListenerState {
    config: Arc<Listener>,
    stats: Arc<ListenerStats>,
    /// One for each filter chain, in order; then the default chain's.
    chains: Vec<Rc<ChainContext>>,
    /// The id of each address, and whether it has answered.
    sockets: Vec<(ListenerId, Socket)>,
    active: u64,
    /// Connections of each chain.
    chain_active: Vec<u64>,
    state: ListenerPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    Asked,
    Answered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerPhase {
    Open,
    /// Not listening any more; its connections live on.
    Closed,
}

/// All listeners of a worker.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    slots: Vec<ListenerState>,
    next_id: u32,
    /// Downstream connections on all listeners that count.
    pub(crate) active: u64,
    started: bool,
}

impl Listeners {
    fn by_id(&mut self, id: ListenerId) -> Option<(usize, &mut ListenerState)> {
        self.slots
            .iter_mut()
            .enumerate()
            .find(|(_, slot)| slot.sockets.iter().any(|(socket, _)| *socket == id))
    }

    /// A connection of this chain is over.
    pub(crate) fn release(&mut self, context: &ChainContext) {
        if let Some(slot) = self.slots.get_mut(context.slot) {
            slot.active -= 1;
            slot.chain_active[context.index] -= 1;
            context.limits.iter().for_each(|limit| limit.active_connections.dec());
        }
        if !context.listener.ignore_global_limit {
            self.active -= 1;
        }
    }

    /// Downstream connections on all listeners.
    pub(crate) fn active_all(&self) -> u64 {
        self.slots.iter().map(|slot| slot.active).sum()
    }

    fn all_answered(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| slot.sockets.iter().all(|(_, socket)| *socket == Socket::Answered))
    }
}

impl Exchange {
    /// Opens the listeners that a snapshot adds and closes those that it leaves out.
    pub(crate) fn update_listeners(&mut self, _now: Instant) {
        let snapshot = Arc::clone(&self.snapshot);
        let kept = |config: &Arc<Listener>| {
            snapshot.listeners.iter().any(|wanted| Arc::ptr_eq(wanted, config))
        };
        for slot in 0..self.listeners.slots.len() {
            let state = &self.listeners.slots[slot];
            if state.state == ListenerPhase::Open && !kept(&state.config) {
                self.listeners.close_listener(slot, &mut self.conns, &mut self.env);
            }
        }
        for config in &snapshot.listeners {
            let known = self.listeners.slots.iter().any(|slot| Arc::ptr_eq(&slot.config, config));
            if !known {
                self.listeners.open_listener(config, &mut self.conns, &mut self.env);
            }
        }
        self.listeners.tell_started(&mut self.env);
    }

    /// A client connected.
    pub(crate) fn on_accepted(
        &mut self,
        listener: ListenerId,
        id: ConnectionId,
        local: Address,
        peer: Address,
        now: Instant,
    ) {
        let global = self.snapshot.max_connections.filter(|&max| self.listeners.active >= max);
        let Some((_, state)) = self.listeners.by_id(listener) else {
            self.conns.push(Output::Close { connection: id, how: Close::Abort }, &mut self.env);
            return;
        };
        let refused = if state.config.max_connections.is_some_and(|max| state.active >= max) {
            state.stats.downstream_cx_overflow.inc();
            true
        } else if global.is_some() && !state.config.ignore_global_limit {
            state.stats.downstream_global_cx_overflow.inc();
            true
        } else {
            false
        };
        if refused {
            self.conns.push(Output::Close { connection: id, how: Close::Flush }, &mut self.env);
            return;
        }
        state.stats.downstream_cx_total.inc();
        let Some(context) = state.pick_chain(&local, &peer).cloned() else {
            state.stats.no_filter_chain_match.inc();
            state.stats.downstream_cx_destroy.inc();
            let config = Arc::clone(&state.config);
            let mut record = connection_record(local, peer, now);
            record.flags.set(Flags::NO_ROUTE_FOUND);
            self.env.log_connection(&config, "", &record, now);
            self.conns.push(Output::Close { connection: id, how: Close::Flush }, &mut self.env);
            return;
        };
        state.stats.downstream_cx_active.inc();
        state.active += 1;
        state.chain_active[context.index] += 1;
        context.limits.iter().for_each(|limit| limit.active_connections.inc());
        let limit = state.config.buffer_limit;
        if !context.listener.ignore_global_limit {
            self.listeners.active += 1;
        }
        let codec = match &context.kind {
            ChainKind::Http(http) => {
                http.stats.downstream_cx_total.inc();
                http.stats.downstream_cx_active.inc();
                if let Some(bolt) = &http.bolt {
                    let server = bolt::Server::new(Arc::clone(&bolt.config));
                    Codec::BoltServer(Serving::new(Box::new(server)))
                } else {
                    http.stats.downstream_cx_http1_total.inc();
                    http.stats.downstream_cx_http1_active.inc();
                    let server = http1::Server::new(Arc::clone(&http.config.http1));
                    Codec::Server(Serving::new(server))
                }
            }
            ChainKind::Tcp(tcp) => {
                tcp.stats.downstream_cx_total.inc();
                Codec::Raw(Raw::default())
            }
            // Nobody connects to it.
            ChainKind::Local => return,
        };
        let serial = self.env.serial.next_connection();
        let role = Role::Downstream(Downstream {
            context: Rc::clone(&context),
            requests: 0,
            closing: false,
            serial,
        });
        let connection = Connection::new(id, codec, role, local, peer, limit, now);
        self.conns.table.insert(connection).trace_accepted();
        self.conns.push(Output::ReadLimit { connection: id, bytes: limit }, &mut self.env);
        if let Some(delay) = self.listeners.refusal(&context) {
            self.listeners.refuse(id, &context, delay, &mut self.conns, &mut self.env, now);
            return;
        }
        match &context.kind {
            ChainKind::Http(http) => {
                if let Some(age) = http.config.max_connection_duration {
                    self.conns.set_connection_timer(
                        id,
                        ConnectionTimer::MaxDuration,
                        now + age,
                        &mut self.env,
                    );
                }
                self.rest_downstream(id, now);
            }
            ChainKind::Tcp(_) => self.open_tcp(id, now),
            ChainKind::Local => {}
        }
    }
}

impl Listeners {
    fn open_listener(&mut self, config: &Arc<Listener>, conns: &mut Connections, env: &mut Env) {
        let slot = self.slots.len();
        let stats = env.registry.set(env.index, Scope::Listener(Arc::clone(&config.stat_prefix)));
        let chains = config.chains.iter().chain(config.default_chain.as_ref());
        let chains = chains
            .enumerate()
            .map(|(index, chain)| env.context(slot, index, config, chain, &stats));
        let chains: Vec<Rc<ChainContext>> = chains.map(Rc::new).collect();
        let mut sockets = Vec::new();
        if config.bind {
            for address in &config.addresses {
                let listener = ListenerId(self.next_id);
                self.next_id += 1;
                sockets.push((listener, Socket::Asked));
                conns.push(
                    Output::Listen {
                        listener,
                        address: address.clone(),
                        options: Arc::clone(&config.options),
                    },
                    env,
                );
            }
        }
        self.slots.push(ListenerState {
            config: Arc::clone(config),
            stats,
            chain_active: vec![0; chains.len()],
            chains,
            sockets,
            active: 0,
            state: ListenerPhase::Open,
        });
    }

    /// Stops listening on one listener.
    fn close_listener(&mut self, slot: usize, conns: &mut Connections, env: &mut Env) {
        let Some(state) = self.slots.get_mut(slot) else { return };
        if state.state == ListenerPhase::Closed {
            return;
        }
        state.state = ListenerPhase::Closed;
        let sockets: Vec<ListenerId> = state.sockets.iter().map(|(id, _)| *id).collect();
        for listener in sockets {
            conns.push(Output::Unlisten { listener }, env);
        }
    }

    /// Stops listening; `inbound_only` leaves the others alone.
    pub(crate) fn close_listeners(
        &mut self,
        inbound_only: bool,
        conns: &mut Connections,
        env: &mut Env,
    ) {
        for slot in 0..self.slots.len() {
            let inbound =
                self.slots[slot].config.direction == crate::snapshot::listener::Direction::Inbound;
            if inbound || !inbound_only {
                self.close_listener(slot, conns, env);
            }
        }
    }

    /// The driver bound an address, or could not.
    pub(crate) fn on_listening(
        &mut self,
        listener: ListenerId,
        outcome: Result<Address, Failure>,
        env: &mut Env,
    ) {
        let Some((_, state)) = self.by_id(listener) else { return };
        let Some(at) = state.sockets.iter().position(|(id, _)| *id == listener) else { return };
        state.sockets[at].1 = Socket::Answered;
        let name = Arc::clone(&state.config.name);
        let wanted = state.config.addresses.get(at).cloned().unwrap_or_else(Address::unspecified);
        let outcome = outcome.map_err(|failure| (wanted, failure));
        env.tell(FromWorker::Listening { listener: name, outcome });
        self.tell_started(env);
    }

    fn tell_started(&mut self, env: &mut Env) {
        if !self.started && self.all_answered() {
            self.started = true;
            env.tell(FromWorker::Started);
        }
    }

    /// How long to hold a connection that a `connection_limit` filter of its chain refuses.
    fn refusal(&self, context: &ChainContext) -> Option<Duration> {
        let active =
            self.slots.get(context.slot).map_or(0, |slot| slot.chain_active[context.index]);
        context.chain.filters.iter().zip(&context.limits).find_map(|(filter, stats)| {
            let NetworkFilter::ConnectionLimit { max_connections, delay, .. } = filter;
            (active > *max_connections).then(|| {
                stats.limited_connections.inc();
                *delay
            })
        })
    }

    fn refuse(
        &mut self,
        id: ConnectionId,
        context: &Rc<ChainContext>,
        delay: Duration,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        self.count_downstream_close(id, crate::ids::Closer::Local, conns, env, now);
        if delay.is_zero() {
            conns.end_connection(id, Close::Flush, env);
            return;
        }
        if let Some(connection) = conns.table.get_mut(id) {
            connection.role = Role::Closing(Rc::clone(context));
        }
        conns.set_connection_timer(id, ConnectionTimer::DelayedClose, now + delay, env);
    }
}

impl Env {
    fn context(
        &self,
        slot: usize,
        index: usize,
        listener: &Arc<Listener>,
        chain: &Arc<FilterChain>,
        stats: &Arc<ListenerStats>,
    ) -> ChainContext {
        let kind = match &chain.terminal {
            Terminal::Http(config) => {
                ChainKind::Http(Serving::new(self.http_context(listener, config, None)))
            }
            Terminal::Bolt(config) => {
                let prefix = Arc::clone(&config.http.stat_prefix);
                let stats = self.registry.set(self.index, Scope::Bolt(prefix));
                let bolt = BoltContext { config: Arc::clone(config), stats };
                ChainKind::Http(Serving::new(self.http_context(listener, &config.http, Some(bolt))))
            }
            Terminal::Tcp(config) => ChainKind::Tcp(Serving::new(TcpContext {
                config: Arc::clone(config),
                stats: self.registry.set(self.index, Scope::Tcp(Arc::clone(&config.stat_prefix))),
            })),
        };
        let limits = chain.filters.iter().map(|filter| {
            let NetworkFilter::ConnectionLimit { stat_prefix, .. } = filter;
            self.registry.set(self.index, Scope::ConnectionLimit(Arc::clone(stat_prefix)))
        });
        let limits = limits.collect();
        ChainContext {
            listener: Arc::clone(listener),
            chain: Arc::clone(chain),
            stats: Arc::clone(stats),
            kind,
            limits,
            slot,
            index,
        }
    }

    fn http_context(
        &self,
        listener: &Arc<Listener>,
        config: &Arc<Http>,
        bolt: Option<BoltContext>,
    ) -> HttpContext {
        let (listener, prefix) = (&listener.stat_prefix, &config.stat_prefix);
        let of_listener =
            Scope::ListenerHttp { listener: Arc::clone(listener), prefix: Arc::clone(prefix) };
        HttpContext {
            config: Arc::clone(config),
            listener_stats: self.registry.set(self.index, of_listener),
            stats: self.registry.set(self.index, Scope::Http(Arc::clone(prefix))),
            bolt,
        }
    }
}

impl ListenerState {
    /// The filter chain for a connection. Each criterion in Envoy's order keeps the most specific of the chains that
    /// are left; there is no way back (Envoy `FilterChainMatch`).
    fn pick_chain(&self, local: &Address, peer: &Address) -> Option<&Rc<ChainContext>> {
        if let [only] = &self.chains[..]
            && (self.config.default_chain.is_some() || only.chain.matches == ChainMatch::default())
        {
            return Some(only);
        }
        let (local, peer) = (local.ip(), peer.ip());
        let mut left: Vec<&Rc<ChainContext>> =
            self.chains.iter().take(self.config.chains.len()).collect();
        narrow(&mut left, |chain| match (chain.destination_port, local) {
            (None, _) => Some(0),
            (Some(port), Some(local)) if port == local.port() => Some(1),
            (Some(_), _) => None,
        });
        narrow(&mut left, |chain| longest(&chain.destination, local.map(|local| local.ip())));
        narrow(&mut left, |chain| longest(&chain.direct_source, peer.map(|peer| peer.ip())));
        narrow(&mut left, |chain| match (chain.source_type, peer) {
            (SourceType::Any, _) => Some(0),
            (wanted, Some(peer)) => {
                let same =
                    peer.ip().is_loopback() || local.is_some_and(|local| local.ip() == peer.ip());
                (same == (wanted == SourceType::SameIpOrLoopback)).then_some(1)
            }
            (wanted, None) => (wanted == SourceType::SameIpOrLoopback).then_some(1),
        });
        narrow(&mut left, |chain| longest(&chain.source, peer.map(|peer| peer.ip())));
        narrow(&mut left, |chain| match peer {
            _ if chain.source_ports.is_empty() => Some(0),
            Some(peer) if chain.source_ports.contains(&peer.port()) => Some(1),
            Some(_) | None => None,
        });
        let default = self.config.default_chain.as_ref().and_then(|_| self.chains.last());
        left.first().copied().or(default)
    }
}

/// What a listener's own log can say of a connection.
pub(crate) fn connection_record(local: Address, peer: Address, opened: Instant) -> Record {
    Record {
        start: opened,
        downstream_local: Some(local),
        downstream_remote: Some(peer.clone()),
        downstream_direct_remote: Some(peer),
        ..Record::default()
    }
}

/// Keeps the chains that match best.
fn narrow(chains: &mut Vec<&Rc<ChainContext>>, fit: impl Fn(&ChainMatch) -> Option<u32>) {
    let best = chains.iter().filter_map(|context| fit(&context.chain.matches)).max();
    chains.retain(|context| best.is_some() && fit(&context.chain.matches) == best);
}

/// How long the longest prefix is that holds the address, plus one; 0 where any address will do.
fn longest(prefixes: &[Prefix], address: Option<IpAddr>) -> Option<u32> {
    if prefixes.is_empty() {
        return Some(0);
    }
    let address = address?;
    let holding = prefixes.iter().filter(|prefix| prefix.contains(address));
    holding.map(|prefix| u32::from(prefix.length) + 1).max()
}
