//! A client connected, or the configuration of what takes it has changed.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::http2::PREFACE;
use towpath_proto::{Close, ConnectionId, Instant, ListenerId, Output, http1};

use crate::conn::context::{ChainKind, HttpContext};
use crate::conn::mux::http2::Http2;
use crate::conn::mux::{Mux, Raw, bolt_server};
use crate::conn::{Connection, ConnectionTimer, Downstream, Role};
use crate::downstream::listener::{ListenerPhase, ListenerState, connection_record};
use crate::env::log::ConnectionLine;
use crate::exchange::Exchange;
use crate::ids::Closer;
use crate::network_filter::Moment;
use crate::record::Flags;
use crate::serving::{OfHttp2, Serving};
use crate::snapshot::http2::Choice;
use crate::snapshot::listener::{Arrival, Fingerprints, Listener, PassthroughState};
use crate::snapshot::overload::ScaledTime;

impl Exchange {
    /// Takes the listeners of a snapshot, each by its name. What stays is not touched: sockets where their addresses
    /// stay, connections where their filter chains do; the next requests of these take the new routes.
    pub(crate) fn update_listeners(&mut self, now: Instant) {
        let snapshot = Arc::clone(&self.snapshot);
        self.listeners.untold = Some(snapshot.generation);
        if self.env.draining.has_closed_listeners() {
            return self.listeners.tell_taken(&mut self.env);
        }
        self.listeners.forget_former();
        self.listeners.follow(&snapshot.open);
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
        self.listeners.waits = false;
        for config in &snapshot.listeners {
            let is_open = |state: &ListenerState| {
                state.state == ListenerPhase::Open && Arc::ptr_eq(&state.config, config)
            };
            if self.listeners.slots.iter().any(is_open) {
                continue;
            }
            if config.asked_ahead().any(|(_, asked)| !asked.is_ready()) {
                self.listeners.waits = true;
            } else {
                self.listeners.open_listener(config, &mut self.conns, &mut self.env);
            }
        }
        if !changed.is_empty() {
            self.streams.forget_unused();
            self.listeners.move_connections(&changed, &mut self.conns, &mut self.env, now);
        }
        self.listeners.tell_taken(&mut self.env);
    }

    /// Opens listeners that wait for an answer no longer.
    pub(crate) fn open_waiting(&mut self, now: Instant) {
        if self.listeners.waits {
            self.update_listeners(now);
        }
    }

    /// A client connected.
    pub(crate) fn on_accepted(
        &mut self,
        listener: ListenerId,
        id: ConnectionId,
        arrival: Arrival,
        now: Instant,
    ) {
        let mut arrival = arrival;
        if arrival.local.internal().is_some() {
            arrival.passed = self.passed.take();
        }
        let open = self.listeners.open();
        let global = self.snapshot.max_connections.filter(|&max| open >= max);
        let Some((slot, state)) = self.listeners.by_id(listener) else {
            self.conns.push(Output::Close { connection: id, how: Close::Abort }, &mut self.env);
            return;
        };
        state.count_accept(self.env.round);
        let refused = if global.is_some() && !state.config.ignore_global_limit {
            state.stats.downstream_global_cx_overflow.inc();
            true
        } else if self.env.rejects_client(&state.config) {
            state.stats.downstream_cx_overload_reject.inc();
            true
        } else if state.config.max_connections.is_some_and(|max| state.config.open.value() >= max) {
            state.stats.downstream_cx_overflow.inc();
            true
        } else {
            false
        };
        if refused {
            self.conns.push(Output::Close { connection: id, how: Close::Now }, &mut self.env);
            return;
        }
        if !state.config.filters.list.is_empty() {
            return self.begin_arriving(slot, id, arrival, now);
        }
        self.admit(slot, id, arrival, now);
    }

    /// Gives a client's connection to the filter chain that takes it.
    pub(crate) fn admit(&mut self, slot: usize, id: ConnectionId, arrival: Arrival, now: Instant) {
        let Some(state) = self.listeners.slots.get_mut(slot) else { return };
        let picked = state.pick_chain(&arrival).cloned();
        let Some(context) = picked else {
            let Arrival { local, client: peer, proxied, .. } = arrival;
            state.stats.no_filter_chain_match.inc();
            let config = Arc::clone(&state.config);
            let mut record = connection_record(local, peer, now);
            record.proxied = proxied;
            record.flags.set(Flags::NO_ROUTE_FOUND);
            let line = ConnectionLine { listener: &config, chain: None, state: &[], kind: None };
            self.env.log_connection(&config.access_logs, &line, &record, now);
            self.conns.push(Output::Close { connection: id, how: Close::Now }, &mut self.env);
            return;
        };
        state.stats.downstream_cx_total.inc();
        state.stats.downstream_cx_active.inc();
        context.worker_stats.downstream_cx_total.inc();
        context.worker_stats.downstream_cx_active.inc();
        state.active += 1;
        let refused = context.enter(true);
        let limit = state.config.buffer_limit;
        if !context.listener.ignore_global_limit {
            self.listeners.count_in();
        }
        match &context.kind {
            ChainKind::Http(http) => {
                http.stats.downstream_cx_total.inc();
                http.stats.downstream_cx_active.inc();
                if context.tls.is_some() {
                    http.stats.downstream_cx_ssl_total.inc();
                    http.stats.downstream_cx_ssl_active.inc();
                }
            }
            ChainKind::Tcp(tcp) => tcp.stats.downstream_cx_total.inc(),
            ChainKind::Answer(_) => {}
            // No client connects to it.
            ChainKind::Local => return,
        }
        let serial = self.env.serial.next_connection();
        let Arrival { local, peer: direct, client: peer, restored, server_name, .. } = arrival;
        let (proxied, source) = (arrival.proxied, arrival.source);
        let Fingerprints { ja3, ja4 } = &arrival.fingerprints;
        let is_printed = ja3.is_some() || ja4.is_some();
        let mut downstream = Downstream::new(Rc::clone(&context), serial);
        let direct = (direct != peer).then_some(direct);
        let is_told =
            is_printed || proxied.is_some() || source.is_some() || arrival.passed.is_some();
        if restored || direct.is_some() || server_name.is_some() || is_told {
            let particulars = downstream.particulars.get_or_insert_default();
            (particulars.restored, particulars.direct) = (restored, direct);
            particulars.server_name = server_name.map(Arc::from);
            particulars.proxied = proxied;
            particulars.source = source;
            if let Some(PassthroughState { state, metadata }) = arrival.passed.map(|it| *it) {
                particulars.state = state;
                particulars.metadata = Some(Arc::new(metadata)).filter(|it| !it.is_empty());
            }
            particulars.fingerprints = is_printed.then(|| Arc::new(arrival.fingerprints));
        }
        let role = Role::Downstream(downstream);
        let mux = Mux::Raw(Raw::default());
        let server = context.tls.as_ref().and_then(|tls| tls.server.as_ref());
        let tls = server.map(|server| Box::new(server.between(&local, &peer).accept()));
        let connection = Connection::new(id, mux, role, local, peer, limit.bytes, now);
        let made = self.conns.table.insert(connection);
        made.trace_accepted();
        made.tls = tls;
        self.conns.push(limit.of_reads(id), &mut self.env);
        self.set_state(id, Moment::Accepted, now);
        if let Some(delay) = refused {
            return self.turn_away(id, delay, false, now);
        }
        if !context.filters.admits(now) {
            return self.turn_away(id, Duration::ZERO, true, now);
        }
        let mut is_ready = true;
        if context.chain.filters.is_missing {
            if let Some(state) = self.listeners.slots.get(slot) {
                state.stats.network_extension_config_missing.inc();
            }
            is_ready = false;
        }
        if let Some(secrets) = context.tls.as_ref().and_then(|tls| tls.secrets.as_ref()) {
            secrets.downstream_context_secrets_not_ready.inc();
            is_ready = false;
        }
        if !is_ready {
            let how = (Duration::ZERO, Closer::Local(""));
            return self.listeners.refuse(id, &context, how, &mut self.conns, &mut self.env, now);
        }
        if context.tls.is_none() {
            return self.open_client(id, now);
        }
        if let Some(timeout) = context.chain.transport_timeout {
            let timer = ConnectionTimer::RequestHead;
            let timeout = self.env.reduced(ScaledTime::Handshake, timeout);
            self.conns.set_connection_timer(id, timer, now + timeout, &mut self.env);
        }
        // A client that does not get on with the handshake is idle.
        self.rest_downstream(id, now);
    }

    /// A client's connection can be spoken on: it gets its mux.
    pub(crate) fn open_client(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Role::Downstream(downstream) = &mut connection.role else { return };
        downstream.ready = true;
        let context = Rc::clone(&downstream.context);
        self.set_state(id, Moment::Secured, now);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if let ChainKind::Http(http) = &context.kind {
            connection.mux = http_mux(http, connection.tls.as_ref().and_then(|layer| layer.alpn()));
            connection.show_mux();
        }
        if context.greeting_stats.is_some() {
            self.greet_client(id);
        }
        match &context.kind {
            ChainKind::Http(http) => {
                if self.env.may_shed_bytes(&context.listener)
                    && let Some(downstream) =
                        self.conns.table.get_mut(id).and_then(Connection::downstream_mut)
                {
                    downstream.unjudged = true;
                }
                if let Some(age) = http.config.max_connection_duration {
                    let age = self.env.reduced(ScaledTime::ConnectionMax, age);
                    self.conns.set_connection_timer(
                        id,
                        ConnectionTimer::MaxDuration,
                        now + age,
                        &mut self.env,
                    );
                }
                self.rest_downstream(id, now);
                // A server of HTTP/2 speaks first.
                self.open_windows(id);
                self.upstreams.begin_heartbeat(id, &mut self.conns, &mut self.env, now);
                if self.listeners.is_closed(context.slot) && !self.env.draining.is_on() {
                    self.conns.drain(id, &mut self.env, now);
                }
            }
            ChainKind::Tcp(_) => self.open_tcp(id, now),
            ChainKind::Answer(_) => self.open_answered(id, now),
            ChainKind::Local => {}
        }
    }

    /// A client has said with its first bytes what it speaks, perhaps.
    pub(crate) fn decide_protocol(&mut self, id: ConnectionId, now: Instant) {
        if self.choose_protocol(id, now) {
            self.pump(id, now);
        }
    }

    /// The same, without a look at what has come. Answers whether it was decided.
    pub(super) fn choose_protocol(&mut self, id: ConnectionId, now: Instant) -> bool {
        let Some(connection) = self.conns.table.get_mut(id) else { return false };
        let Mux::Undecided(first) = &mut connection.mux else { return false };
        let seen = first.len().min(PREFACE.len());
        let is_preface = first.get(..seen) == PREFACE.get(..seen);
        if first.is_empty() || (is_preface && seen < PREFACE.len()) {
            return false;
        }
        let first = std::mem::take(&mut **first).freeze();
        let Some(downstream) = connection.downstream() else { return false };
        let context = Rc::clone(&downstream.context);
        let Some(http) = context.http() else { return false };
        connection.mux = if is_preface { http2_mux(http) } else { http1_mux(http, None) };
        connection.show_mux();
        connection.mux.receive(first);
        self.open_windows(id);
        self.upstreams.begin_heartbeat(id, &mut self.conns, &mut self.env, now);
        true
    }
}

/// What a client of an HTTP filter chain speaks, by the configuration and by what its handshake came to.
fn http_mux(http: &HttpContext, alpn: Option<&[u8]>) -> Mux {
    if let Some(bolt) = &http.bolt {
        let server = bolt_server::Server::new(Arc::clone(&bolt.config));
        return Mux::BoltServer(Serving::new(Box::new(server)));
    }
    match (&http.config.http2, alpn) {
        (Some(config), _) if config.choice == Choice::Always => http2_mux(http),
        (Some(_), Some(b"h2")) => http2_mux(http),
        // Without a handshake that says it, the first bytes do.
        (Some(_), None) => Mux::Undecided(Serving::new(Box::default())),
        (Some(_), Some(_)) | (None, _) => http1_mux(http, alpn),
    }
}

fn http2_mux(http: &HttpContext) -> Mux {
    let (Some(config), Some(stats)) = (&http.config.http2, &http.http2_stats) else {
        return http1_mux(http, None);
    };
    http.stats.downstream_cx_http2_total.inc();
    http.stats.downstream_cx_http2_active.inc();
    Mux::Http2(OfHttp2::new(Box::new(Http2::server(config, Arc::clone(stats)))))
}

#[cfg_attr(not(test), expect(unused_variables, reason = "nothing else is offered"))]
fn http1_mux(http: &HttpContext, alpn: Option<&[u8]>) -> Mux {
    http.stats.downstream_cx_http1_total.inc();
    http.stats.downstream_cx_http1_active.inc();
    #[cfg(test)]
    if http.config.codec == crate::snapshot::http::Codec::Toy || alpn == Some(b"toy") {
        return Mux::Toy(Box::new(crate::conn::mux::toy::Toy::server()));
    }
    Mux::Http1Server(Serving::new(http1::Server::new(Arc::clone(&http.config.http1))))
}
