//! Where connections come in: listening, limits, and the choice of a filter chain.
//!
//! Arrives: snapshots, accepted sockets. Leaves: a downstream connection with its [`ChainContext`], or a closed socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use towpath_proto::http1::Underscores;
use towpath_proto::tls::Clock;
use towpath_proto::{Address, Close, ConnectionId, Failure, Instant, ListenerId, Output};

use crate::conn::context::{
    BoltContext, ChainContext, ChainKind, HttpContext, PlacedChain, TcpContext,
};
use crate::conn::counted::CountedRoutes;
use crate::conn::tls::ChainTls;
use crate::conn::{Arriving, Connections};
use crate::downstream::close::Hold;
use crate::env::Env;
use crate::filter::FilterScope;
use crate::filter::head_limits::HeadLimits;
use crate::filter::istio_stats::Metrics;
#[cfg(feature = "lua")]
use crate::filter::lua::Specifiers;
use crate::ids::Closer;
use crate::message::FromWorker;
use crate::network_filter::{RunningFilters, count_alike};
use crate::record::{ClientConnection, Record};
use crate::serving::Serving;
use crate::snapshot::Http;
use crate::snapshot::http::HttpChain;
use crate::snapshot::listener::{
    Arrival, ChainMatch, FilterChain, Listener, ListenerFilter, Prefix, SourceType, Terminal,
};
use crate::snapshot::plain::{PlainRoutes, is_recorded};
use crate::stats::{ListenerStats, Scope};
use crate::total::Total;
use crate::tracer::report::Stats;

/// A listener of this worker.
#[derive(Debug)]
pub(crate) struct ListenerState {
    pub(crate) config: Arc<Listener>,
    pub(crate) stats: Arc<ListenerStats>,
    /// Those of the configuration, in order.
    pub(crate) filters: Rc<[Box<dyn ListenerFilter>]>,
    /// One for each filter chain, in order; then the default chain's.
    pub(crate) chains: Vec<Rc<ChainContext>>,
    /// The id of each address, and whether it has answered.
    pub(crate) sockets: Vec<(ListenerId, Socket)>,
    /// Sockets that it gave up with the last snapshot: what waited in them comes afterwards.
    former: Vec<ListenerId>,
    pub(crate) active: u64,
    pub(crate) state: ListenerPhase,
    /// The round in which it accepted last, and how many then.
    accepted: (u32, u64),
}

impl ListenerState {
    /// Counts a connection among those that one event of the listening socket brought.
    pub(crate) fn count_accept(&mut self, round: u32) {
        let histogram = &self.stats.connections_accepted_per_socket_event;
        let (last, before) = self.accepted;
        if last == round && before > 0 {
            histogram.replace(before, before + 1);
            self.accepted.1 += 1;
        } else {
            histogram.record(1);
            self.accepted = (round, 1);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    Asked,
    Answered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerPhase {
    Open,
    /// Not listening any more; its connections live on.
    Closed,
}

/// All listeners of a worker.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) slots: Vec<ListenerState>,
    pub(crate) next_id: u32,
    /// The process's downstream connections on all listeners that count.
    open: Arc<Total>,
    /// This worker's.
    counted: u64,
    /// Downstream connections that wait for their peers' ends.
    pub(crate) closing: u64,
    /// The generation of a snapshot, until all its addresses have answered.
    pub(crate) untold: Option<u64>,
    /// A listener of the snapshot is not open yet: its filters ask a server first.
    pub(crate) waits: bool,
}

impl Listeners {
    /// The process's downstream connections on all listeners that count.
    pub(crate) fn open(&self) -> u64 {
        self.open.value()
    }

    /// Counts them there from here on.
    pub(crate) fn follow(&mut self, open: &Arc<Total>) {
        if !Arc::ptr_eq(&self.open, open) {
            self.open.sub(self.counted);
            open.add(self.counted);
            self.open = Arc::clone(open);
        }
    }

    pub(crate) fn count_in(&mut self) {
        self.counted += 1;
        self.open.add(1);
    }

    fn count_out(&mut self) {
        self.counted -= 1;
        self.open.sub(1);
    }

    pub(crate) fn by_id(&mut self, id: ListenerId) -> Option<(usize, &mut ListenerState)> {
        self.slots.iter_mut().enumerate().find(|(_, slot)| {
            slot.sockets.iter().any(|(socket, _)| *socket == id) || slot.former.contains(&id)
        })
    }

    /// The open listener that a connection to an address is for: the one with the address, else the one with its port
    /// on any address.
    pub(crate) fn at(&self, address: SocketAddr) -> Option<usize> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        [address, SocketAddr::new(any, address.port())].into_iter().find_map(|wanted| {
            let wanted = Address::Ip(wanted);
            self.slots.iter().position(|slot| {
                slot.state == ListenerPhase::Open && slot.config.addresses.contains(&wanted)
            })
        })
    }

    pub(crate) fn has_filters(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| !slot.config.filters.list.is_empty())
    }

    /// What waited in sockets that are closed has come: their slots are free for others.
    pub(crate) fn forget_former(&mut self) {
        for state in &mut self.slots {
            state.former.clear();
            if state.state == ListenerPhase::Closed {
                state.sockets.clear();
            }
        }
    }

    /// Whether the configuration does not have this listener any more.
    pub(crate) fn is_closed(&self, slot: usize) -> bool {
        self.slots.get(slot).is_none_or(|state| state.state == ListenerPhase::Closed)
    }

    /// A connection of this chain is over; `closing` if it was, and then whether its chain had refused it.
    pub(crate) fn release(&mut self, context: &ChainContext, closing: Option<bool>) {
        self.closing -= u64::from(closing.is_some());
        if closing != Some(true) {
            self.release_chain(context);
        }
        if let Some(slot) = self.slots.get_mut(context.slot) {
            slot.active -= 1;
            context.listener.open.sub(1);
        }
        if !context.listener.ignore_global_limit {
            self.count_out();
        }
    }

    /// A connection counts for its listener, and in all limits, before a filter chain has it.
    pub(crate) fn begin_arriving(&mut self, slot: usize, arrival: Arrival) -> Option<Arriving> {
        let state = self.slots.get_mut(slot)?;
        state.active += 1;
        state.stats.downstream_pre_cx_active.inc();
        let (config, stats) = (Arc::clone(&state.config), Arc::clone(&state.stats));
        let filters = Rc::clone(&state.filters);
        config.open.add(1);
        if !config.ignore_global_limit {
            self.count_in();
        }
        Some(Arriving {
            config,
            stats,
            filters,
            slot,
            passed: 0,
            arrival,
            received: BytesMut::new(),
        })
    }

    /// It does not any more. Answers whether its listener still takes connections.
    pub(crate) fn end_arriving(&mut self, arriving: &Arriving) -> ListenerPhase {
        arriving.stats.downstream_pre_cx_active.dec();
        arriving.config.open.sub(1);
        if !arriving.config.ignore_global_limit {
            self.count_out();
        }
        let Some(state) = self.slots.get_mut(arriving.slot) else { return ListenerPhase::Closed };
        state.active -= 1;
        state.state
    }

    /// A connection does not count for its chain any more.
    fn release_chain(&self, context: &ChainContext) {
        if self.slots.get(context.slot).is_some() {
            context.filters.leave();
        }
    }

    /// Downstream connections on all listeners that are not closing.
    pub(crate) fn active_all(&self) -> u64 {
        self.slots.iter().map(|slot| slot.active).sum::<u64>() - self.closing
    }

    pub(crate) fn all_answered(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| slot.sockets.iter().all(|(_, socket)| *socket == Socket::Answered))
    }
}

impl Listeners {
    pub(crate) fn open_listener(
        &mut self,
        config: &Arc<Listener>,
        conns: &mut Connections,
        env: &mut Env,
    ) {
        let is_free = |state: &ListenerState| {
            state.state == ListenerPhase::Closed && state.active == 0 && state.sockets.is_empty()
        };
        let slot = self.slots.iter().position(is_free).unwrap_or(self.slots.len());
        let stats = env.registry.set(env.index, Scope::Listener(Arc::clone(&config.stat_prefix)));
        let state = ListenerState {
            config: Arc::clone(config),
            chains: env.contexts(slot, config, &stats, &conns.handshakes.clock),
            filters: env.listener_filters(config),
            stats,
            sockets: self.listen(config, Vec::new(), conns, env),
            former: Vec::new(),
            active: 0,
            state: ListenerPhase::Open,
            accepted: (0, 0),
        };
        if slot == self.slots.len() {
            self.slots.push(state);
        } else {
            self.slots[slot] = state;
        }
    }

    /// Takes another configuration for a listener.
    pub(crate) fn replace_listener(
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
            config.bind
                && before.options_of(address) == config.options_of(address)
                && config.addresses.contains(address)
        });
        let former: Vec<ListenerId> = gone.into_iter().map(|(_, (listener, _))| listener).collect();
        for &listener in &former {
            conns.push(Output::Unlisten { listener }, env);
        }
        let sockets = self.listen(config, kept, conns, env);
        let stats = env.registry.set(env.index, Scope::Listener(Arc::clone(&config.stat_prefix)));
        let Some(state) = self.slots.get_mut(slot) else { return };
        state.chains = env.contexts(slot, config, &stats, &conns.handshakes.clock);
        state.filters = env.listener_filters(config);
        (state.stats, state.sockets, state.former) = (stats, sockets, former);
    }

    /// The sockets of a listener's addresses: those that there are, and new ones.
    pub(crate) fn listen(
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
            let (address, options) = (address.clone(), Arc::clone(config.options_of(address)));
            conns.push(Output::Listen { listener, address, options }, env);
            (listener, Socket::Asked)
        });
        sockets.collect()
    }

    /// Gives the connections of listeners that have changed to the chains that stand where theirs did. Those of a chain
    /// that is gone drain: what is under way on them ends as it began.
    pub(crate) fn move_connections(
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
            match self.successor(&downstream.context).cloned() {
                Some(context) => {
                    let before = std::mem::replace(&mut downstream.context, context);
                    before.filters.leave();
                    before.listener.open.sub(1);
                    let after = Rc::clone(&downstream.context);
                    let _ = after.enter(false);
                    self.count_globally(&before, &after);
                }
                None => conns.drain(id, env, now),
            }
        }
    }

    /// The chain that took the place of another in its listener: of the same name or criteria, and counted alike.
    pub(crate) fn successor(&self, before: &ChainContext) -> Option<&Rc<ChainContext>> {
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
            let counts_alike = count_alike(&old.filters.list, &new.filters.list);
            same && old.tls.is_some() == new.tls.is_some()
                && before.is_default == context.is_default
                && before.listener.ignore_global_limit == context.listener.ignore_global_limit
                && Arc::ptr_eq(&before.stats, &context.stats)
                && before.kind.counts_with(&context.kind)
                && counts_alike
        })
    }

    /// Stops listening on one listener.
    pub(crate) fn close_listener(&mut self, slot: usize, conns: &mut Connections, env: &mut Env) {
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
        let address = state.config.addresses.get(at).cloned().unwrap_or_else(Address::unspecified);
        env.tell(FromWorker::Listening { listener: name, address, outcome });
        self.tell_taken(env);
    }

    /// Says that a snapshot is taken, once all its addresses have answered.
    pub(crate) fn tell_taken(&mut self, env: &mut Env) {
        if !self.waits
            && self.all_answered()
            && let Some(generation) = self.untold.take()
        {
            env.tell(FromWorker::Taken { generation });
        }
    }

    /// A connection goes over to another chain, whose listener may count it otherwise.
    fn count_globally(&mut self, before: &ChainContext, after: &ChainContext) {
        match (before.listener.ignore_global_limit, after.listener.ignore_global_limit) {
            (true, false) => self.count_in(),
            (false, true) => self.count_out(),
            (true, true) | (false, false) => {}
        }
    }

    pub(crate) fn refuse(
        &mut self,
        id: ConnectionId,
        context: &Rc<ChainContext>,
        (delay, closer): (Duration, Closer),
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        if delay.is_zero() {
            self.count_downstream_close(id, closer, conns, env, now);
            conns.end_connection(id, Close::Now, env);
            return;
        }
        self.release_chain(context);
        let hold = Hold { wait: delay, closer, refused: true };
        self.begin_closing(id, hold, conns, env, now);
    }
}

impl Env {
    fn listener_filters(&self, config: &Listener) -> Rc<[Box<dyn ListenerFilter>]> {
        let filters = config.filters.list.iter();
        filters.map(|filter| filter.start(&self.registry, self.index)).collect()
    }

    /// The chains of a listener in order; then the default chain.
    pub(crate) fn contexts(
        &self,
        slot: usize,
        config: &Arc<Listener>,
        stats: &Arc<ListenerStats>,
        clock: &Clock,
    ) -> Vec<Rc<ChainContext>> {
        let chains = config.chains.iter().chain(config.default_chain.as_ref());
        chains.map(|chain| Rc::new(self.context(slot, config, chain, stats, clock))).collect()
    }

    pub(crate) fn context(
        &self,
        slot: usize,
        listener: &Arc<Listener>,
        chain: &Arc<FilterChain>,
        stats: &Arc<ListenerStats>,
        clock: &Clock,
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
            Terminal::Answer(answer) => ChainKind::Answer(Serving::new(answer.clone())),
            Terminal::Tcp(config) => ChainKind::Tcp(Serving::new(TcpContext {
                config: Arc::clone(config),
                stats: self.registry.set(self.index, Scope::Tcp(Arc::clone(&config.stat_prefix))),
                metrics: chain.filters.telemetry.as_ref().map(|telemetry| {
                    let registry = Arc::clone(&self.registry);
                    Rc::new(Metrics::new(Arc::clone(telemetry), registry, self.index))
                }),
            })),
        };
        let filters = RunningFilters::start(&chain.filters.list, &self.registry, self.index);
        let is_recorded = match &kind {
            ChainKind::Http(http) => {
                is_recorded(&http.config) || listener.filters.steers || filters.sets
            }
            ChainKind::Tcp(tcp) => {
                !(tcp.config.access_logs.is_empty() && listener.access_logs.is_empty())
                    || listener.filters.steers
                    || filters.sets
                    || tcp.config.tunneling.is_some()
                    || tcp.config.tlvs.as_ref().is_some_and(|own| !own.added.made.is_empty())
                    || tcp.metrics.is_some()
            }
            ChainKind::Answer(_) => false,
            ChainKind::Local => true,
        };
        let tls = chain.tls.as_ref().map(|tls| {
            let scope = Scope::ListenerTls(Arc::clone(&listener.stat_prefix));
            let stats = self.registry.set(self.index, scope);
            let secrets = || {
                let scope = Scope::ListenerTlsContext(Arc::clone(&listener.stat_prefix));
                self.registry.set(self.index, scope)
            };
            ChainTls {
                server: tls.template.as_ref().map(|template| template.server(clock)),
                stats,
                secrets: tls.template.is_none().then(secrets),
            }
        });
        let of_worker = Scope::ListenerWorker {
            listener: Arc::clone(&listener.stat_prefix),
            worker: self.index,
        };
        ChainContext {
            listener: Arc::clone(listener),
            chain: Arc::clone(chain),
            stats: Arc::clone(stats),
            worker_stats: self.registry.set(self.index, of_worker),
            kind,
            tls,
            filters,
            greeting_stats: chain
                .filters
                .greetings
                .as_ref()
                .map(|_| self.registry.set(self.index, Scope::MetadataExchange)),
            is_recorded,
            slot,
            is_default: listener.default_chain.as_ref().is_some_and(|it| Arc::ptr_eq(it, chain)),
        }
    }

    pub(crate) fn http_context(
        &self,
        listener: &Arc<Listener>,
        config: &Arc<Http>,
        bolt: Option<BoltContext>,
    ) -> HttpContext {
        let (listener, prefix) = (&listener.stat_prefix, &config.stat_prefix);
        let of_listener =
            Scope::ListenerHttp { listener: Arc::clone(listener), prefix: Arc::clone(prefix) };
        let mut scope = FilterScope::new(
            Arc::clone(prefix),
            Rc::clone(&self.notes),
            Arc::clone(&self.registry),
            self.index,
        );
        scope.limits = HeadLimits::of(&config.http1);
        let tracer = config.tracing.as_ref().and_then(|tracing| tracing.provider.as_ref());
        let chain = |chain: &HttpChain| PlacedChain::start(chain, &scope, &config.routes);
        HttpContext {
            #[cfg(feature = "lua")]
            specifiers: Specifiers::new(Rc::clone(&self.notes)),
            tracing_stats: scope.stats("http_tracing"),
            tracer_stats: tracer.map(|it| Stats::of(&it.dialect, &self.registry, self.index)),
            config: Arc::clone(config),
            plain: PlainRoutes::new(config),
            counted: CountedRoutes::of(&config.routes, &scope),
            chain: chain(&config.chain),
            upgraded: config.upgraded.iter().map(chain).collect(),
            listener_stats: self.registry.set(self.index, of_listener),
            stats: self.registry.set(self.index, Scope::Http(Arc::clone(prefix))),
            bolt,
            http1_stats: (config.http1.underscores != Underscores::Allow)
                .then(|| self.registry.set(self.index, Scope::Http1)),
            http2_stats: config
                .http2
                .is_some()
                .then(|| self.registry.set(self.index, Scope::Http2)),
        }
    }
}

impl ListenerState {
    /// The filter chain for a connection. Each criterion in Envoy's order keeps the most specific of the chains that
    /// are left; there is no way back (Envoy `FilterChainMatch`).
    pub(crate) fn pick_chain(&self, arrival: &Arrival) -> Option<&Rc<ChainContext>> {
        let default = self.config.default_chain.as_ref().and_then(|_| self.chains.last());
        if let Some(tree) = &self.config.matcher {
            // A name that no chain has ends the connection; the default is for those that the tree leads nowhere.
            return match tree.find(&arrival.subject()) {
                Some(name) => self
                    .chains
                    .iter()
                    .take(self.config.chains.len())
                    .find(|context| context.chain.name == *name),
                None => default,
            };
        }
        if let [only] = &self.chains[..]
            && (self.config.default_chain.is_some() || only.chain.matches == ChainMatch::default())
        {
            return Some(only);
        }
        let (local, peer) = (arrival.local.ip(), arrival.client.ip());
        let direct = arrival.peer.ip();
        let mut left: Vec<&Rc<ChainContext>> =
            self.chains.iter().take(self.config.chains.len()).collect();
        narrow(&mut left, |chain| match (chain.destination_port, local) {
            (None, _) => Some(0),
            (Some(port), Some(local)) if port == local.port() => Some(1),
            (Some(_), _) => None,
        });
        narrow(&mut left, |chain| longest(&chain.destination, local.map(|local| local.ip())));
        narrow(&mut left, |chain| named(&chain.server_names, arrival.server_name.as_deref()));
        narrow(&mut left, |chain| match chain.transport {
            None => Some(0),
            Some(transport) => (transport == arrival.transport).then_some(1),
        });
        narrow(&mut left, |chain| offered(&chain.protocols, &arrival.protocols));
        narrow(&mut left, |chain| longest(&chain.direct_source, direct.map(|direct| direct.ip())));
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
        left.first().copied().or(default)
    }
}

/// What a listener's own log can say of a connection.
pub(crate) fn connection_record(local: Address, peer: Address, opened: Instant) -> Record {
    Record {
        start: opened,
        client: ClientConnection { opened: Some(opened), ..ClientConnection::default() },
        downstream_local: Some(local),
        downstream_remote: Some(peer.clone()),
        downstream_direct_remote: Some(peer),
        ..Record::default()
    }
}

/// Keeps the chains that match best.
pub(crate) fn narrow(
    chains: &mut Vec<&Rc<ChainContext>>,
    fit: impl Fn(&ChainMatch) -> Option<u32>,
) {
    let best = chains.iter().filter_map(|context| fit(&context.chain.matches)).max();
    chains.retain(|context| best.is_some() && fit(&context.chain.matches) == best);
}

/// How well the best of these names has the one that a client asks for: itself, else the longest wildcard; 0 where any
/// will do.
fn named(names: &[Box<str>], asked: Option<&str>) -> Option<u32> {
    if names.is_empty() {
        return Some(0);
    }
    let asked = asked?;
    let is_below =
        |name: &str| name.starts_with('.') && asked.len() > name.len() && asked.ends_with(name);
    let fit = |name: &str| match name == asked {
        true => Some(u32::MAX),
        false => is_below(name).then(|| u32::try_from(name.len()).unwrap_or(u32::MAX - 1)),
    };
    names.iter().filter_map(|name| fit(name)).max()
}

/// How early the client offers one of these protocols; 0 where any will do.
fn offered(wanted: &[Box<[u8]>], offered: &[Box<[u8]>]) -> Option<u32> {
    if wanted.is_empty() {
        return Some(0);
    }
    let first = offered.iter().position(|protocol| wanted.contains(protocol))?;
    Some(u32::MAX - u32::try_from(first).unwrap_or(u32::MAX - 1))
}

/// How long the longest prefix is that holds the address, plus one; 0 where any address will do.
pub(crate) fn longest(prefixes: &[Prefix], address: Option<IpAddr>) -> Option<u32> {
    if prefixes.is_empty() {
        return Some(0);
    }
    let address = address?;
    let holding = prefixes.iter().filter(|prefix| prefix.contains(address));
    holding.map(|prefix| u32::from(prefix.length) + 1).max()
}
