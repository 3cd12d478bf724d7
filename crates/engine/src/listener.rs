//! Where connections come in: listening, limits, and the choice of a filter chain.
//!
//! Arrives: snapshots, accepted sockets. Leaves: a downstream connection with its [`ChainContext`], or a closed socket.

use std::cell::Cell;
use std::collections::HashMap;
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
    /// Index into the worker's listeners.
    slot: usize,
    /// It is the listener's default chain.
    is_default: bool,
    /// Its connections.
    active: Cell<u64>,
}

/// What takes the streams of a chain's connections.
#[derive(Debug)]
pub(crate) enum ChainKind {
    Http(Serving<HttpContext>),
    Tcp(Serving<TcpContext>),
    /// The app in this process.
    Local,
}

impl ChainKind {
    /// Whether two chains of the same kind have the same counters.
    fn counts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Http(one), Self::Http(other)) => {
                Arc::ptr_eq(&one.stats, &other.stats) && one.bolt.is_some() == other.bolt.is_some()
            }
            (Self::Tcp(one), Self::Tcp(other)) => Arc::ptr_eq(&one.stats, &other.stats),
            (Self::Http(_) | Self::Tcp(_) | Self::Local, _) => false,
        }
    }
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
            is_default: false,
            active: Cell::new(0),
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
            context.active.update(|active| active - 1);
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
    /// Takes the listeners of a snapshot, each by its name. What stays is not touched: sockets where their addresses
    /// stay, connections where their filter chains do; the next requests of these take the new routes.
    pub(crate) fn update_listeners(&mut self, now: Instant) {
        if self.env.draining.has_closed_listeners() {
            return;
        }
        let snapshot = Arc::clone(&self.snapshot);
        let wanted: HashMap<&str, &Arc<Listener>> =
            snapshot.listeners.iter().map(|config| (&*config.name, config)).collect();
        let mut changed = Vec::new();
        for slot in 0..self.listeners.slots.len() {
            let state = &self.listeners.slots[slot];
            if state.state == ListenerPhase::Closed {
                continue;
            }
            match wanted.get(&*state.config.name) {
                Some(config) if Arc::ptr_eq(config, &state.config) => continue,
                Some(config) => {
                    self.listeners.replace_listener(slot, config, &mut self.conns, &mut self.env);
                }
                None => self.listeners.close_listener(slot, &mut self.conns, &mut self.env),
            }
            changed.push(slot);
        }
        for config in &snapshot.listeners {
            let is_open = |state: &ListenerState| {
                state.state == ListenerPhase::Open && Arc::ptr_eq(&state.config, config)
            };
            if !self.listeners.slots.iter().any(is_open) {
                self.listeners.open_listener(config, &mut self.conns, &mut self.env);
            }
        }
        if !changed.is_empty() {
            self.listeners.move_connections(&changed, &mut self.conns, &mut self.env, now);
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
        context.active.update(|active| active + 1);
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
        let is_free =
            |state: &ListenerState| state.state == ListenerPhase::Closed && state.active == 0;
        let slot = self.slots.iter().position(is_free).unwrap_or(self.slots.len());
        let stats = env.registry.set(env.index, Scope::Listener(Arc::clone(&config.stat_prefix)));
        let state = ListenerState {
            config: Arc::clone(config),
            chains: env.contexts(slot, config, &stats),
            stats,
            sockets: self.listen(config, Vec::new(), conns, env),
            active: 0,
            state: ListenerPhase::Open,
        };
        if slot == self.slots.len() {
            self.slots.push(state);
        } else {
            self.slots[slot] = state;
        }
    }

    /// Takes another configuration for a listener.
    fn replace_listener(
        &mut self,
        slot: usize,
        config: &Arc<Listener>,
        conns: &mut Connections,
        env: &mut Env,
    ) {
        let Some(state) = self.slots.get_mut(slot) else { return };
        let before = std::mem::replace(&mut state.config, Arc::clone(config));
        let bound = before.addresses.iter().cloned().zip(std::mem::take(&mut state.sockets));
        let (kept, gone): (Vec<_>, Vec<_>) = bound.partition(|(address, _)| {
            config.bind && before.options == config.options && config.addresses.contains(address)
        });
        for (_, (listener, _)) in gone {
            conns.push(Output::Unlisten { listener }, env);
        }
        let sockets = self.listen(config, kept, conns, env);
        let stats = env.registry.set(env.index, Scope::Listener(Arc::clone(&config.stat_prefix)));
        let Some(state) = self.slots.get_mut(slot) else { return };
        state.chains = env.contexts(slot, config, &stats);
        (state.stats, state.sockets) = (stats, sockets);
    }

    /// The sockets of a listener's addresses: those that there are, and new ones.
    fn listen(
        &mut self,
        config: &Listener,
        mut kept: Vec<(Address, (ListenerId, Socket))>,
        conns: &mut Connections,
        env: &mut Env,
    ) -> Vec<(ListenerId, Socket)> {
        let addresses = if config.bind { &config.addresses[..] } else { &[] };
        let sockets = addresses.iter().map(|address| {
            if let Some(at) = kept.iter().position(|(bound, _)| bound == address) {
                return kept.swap_remove(at).1;
            }
            let listener = ListenerId(self.next_id);
            self.next_id += 1;
            let (address, options) = (address.clone(), Arc::clone(&config.options));
            conns.push(Output::Listen { listener, address, options }, env);
            (listener, Socket::Asked)
        });
        sockets.collect()
    }

    /// Gives the connections of listeners that have changed to the chains that stand where theirs did. Those of a chain
    /// that is gone drain: what is under way on them ends as it began.
    fn move_connections(
        &mut self,
        slots: &[usize],
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        for id in conns.table.ids() {
            let connection = conns.table.get_mut(id);
            let Some(downstream) = connection.and_then(|it| it.downstream_mut()) else { continue };
            if !slots.contains(&downstream.context.slot) {
                continue;
            }
            match self.successor(&downstream.context) {
                Some(context) => {
                    downstream.context.active.update(|active| active - 1);
                    context.active.update(|active| active + 1);
                    downstream.context = Rc::clone(context);
                }
                None => conns.drain(id, env, now),
            }
        }
    }

    /// The chain that took the place of another in its listener: of the same name or criteria, and counted alike.
    fn successor(&self, before: &ChainContext) -> Option<&Rc<ChainContext>> {
        let state = self.slots.get(before.slot)?;
        if state.state == ListenerPhase::Closed {
            return None;
        }
        state.chains.iter().find(|context| {
            let (old, new) = (&before.chain, &context.chain);
            let same = if old.name.is_empty() && new.name.is_empty() {
                old.matches == new.matches
            } else {
                old.name == new.name
            };
            let limits = before.limits.iter().zip(&context.limits);
            same && before.is_default == context.is_default
                && Arc::ptr_eq(&before.stats, &context.stats)
                && before.kind.counts_with(&context.kind)
                && before.limits.len() == context.limits.len()
                && limits.into_iter().all(|(old, new)| Arc::ptr_eq(old, new))
        })
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
        let active = context.active.get();
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
    /// The chains of a listener in order; then the default chain.
    fn contexts(
        &self,
        slot: usize,
        config: &Arc<Listener>,
        stats: &Arc<ListenerStats>,
    ) -> Vec<Rc<ChainContext>> {
        let chains = config.chains.iter().chain(config.default_chain.as_ref());
        chains.map(|chain| Rc::new(self.context(slot, config, chain, stats))).collect()
    }

    fn context(
        &self,
        slot: usize,
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
            is_default: listener.default_chain.as_ref().is_some_and(|it| Arc::ptr_eq(it, chain)),
            active: Cell::new(0),
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
