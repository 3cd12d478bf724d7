//! Requests to one name over the connection of another (RFC 9113 §9.1.1, "connection reuse").
//!
//! Arrives: a request to an origin that has no connection; addresses of an origin, or another's connection, while
//! requests wait; an answer 421. Leaves: the request on the other origin's connection, or asked again on one of its
//! own.
//!
//! A connection is taken for another name only if it speaks HTTP/2 under TLS, goes to the same port and to one of the
//! addresses that the name has, and if the certificate that its server showed would pass a handshake with that name,
//! by the same trust. Neither end goes through a proxy. A server that answers 421 all the same (RFC 9110 §15.5.20) is
//! not asked for that name on connections of the other again.

use std::sync::Arc;

use towpath_proto::tls::{self, ServerName};
use towpath_proto::{Address, ConnectionId, Instant};

use crate::conn::Connection;
use crate::exchange::Exchange;
use crate::exchange::stream::UpstreamState;
use crate::ids::{Leg, PoolKey, StreamIndex};
use crate::local::message::Transport;
use crate::serving::HTTP2;
use crate::snapshot::ClusterId;

impl Exchange {
    /// Another origin's connection for a request whose own has none.
    #[cold]
    pub(crate) fn shared_connection(
        &mut self,
        index: StreamIndex,
        now: Instant,
    ) -> Option<ConnectionId> {
        if !HTTP2 || !self.upstreams.app.settings.coalesces {
            return None;
        }
        let stream = self.streams.get(index)?;
        let (guest, repeatable) = (stream.cluster, stream.retries.repeatable);
        let call = self.call(index)?;
        let is_free = !stream.retries.wants_fresh && call.options.proxy.is_none();
        let pool = self.upstreams.clusters.pool(own_pool(guest))?;
        if !is_free || !pool.open.is_empty() {
            return None;
        }
        let candidates = self.candidates(guest);
        let id = candidates.into_iter().find(|id| {
            let host = self.conns.table.get(*id).and_then(Connection::upstream);
            let Some(pool_key) = host.map(|host| host.pool_key) else { return false };
            self.upstreams.may_be_reused(*id, pool_key, repeatable, &self.conns, now)
                && self.has_name(*id, guest, now)
        })?;
        // The address may have changed since the name was asked for.
        self.upstreams.app.ask_for_addresses(guest, &mut self.env, now);
        Some(id)
    }

    /// Connections of other origins that lead where one's own would, the oldest first.
    fn candidates(&self, guest: ClusterId) -> Vec<ConnectionId> {
        let origins = &self.upstreams.app.origins;
        let Some(own) = origins.get(&guest) else { return Vec::new() };
        if own.key.transport != Transport::Tls || own.tunnel.is_some() || own.addresses.is_empty() {
            return Vec::new();
        }
        let leads_there = |connection: &&Connection| {
            connection.mux.is_http2()
                && connection.capacity() > 0
                && matches!(&connection.peer, Address::Ip(peer) if own.addresses.contains(peer))
        };
        let hosts = origins.iter().filter(|(id, host)| {
            **id != guest
                && (host.key.transport, host.key.port) == (Transport::Tls, own.key.port)
                && host.tunnel.is_none()
                // Of one name requests that want other versions of HTTP have connections of their own.
                && host.key.host != own.key.host
                && own.may_share_with(&host.key.host)
        });
        let pools = hosts.filter_map(|(id, _)| self.upstreams.clusters.pool(own_pool(*id)));
        let open = pools.flat_map(|pool| &pool.open);
        let open = open.filter_map(|id| self.conns.table.get(*id)).filter(leads_there);
        let mut found: Vec<(u64, ConnectionId)> = open
            .filter_map(|connection| Some((connection.upstream()?.serial, connection.id)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether the certificate behind a connection has the name of an origin. Asked once for each of both.
    fn has_name(&mut self, id: ConnectionId, guest: ClusterId, now: Instant) -> bool {
        let Some(name) = self.upstreams.app.origins.get(&guest).map(|own| &own.key.host) else {
            return false;
        };
        let name = Arc::clone(name);
        let Some(connection) = self.conns.table.get(id) else { return false };
        let Some(host) = connection.upstream() else { return false };
        let known = host.app.iter().flat_map(|path| &path.names).find(|(known, _)| *known == name);
        if let Some((_, has)) = known {
            return *has;
        }
        self.conns.handshakes.clock.set(self.env.clock.since_1970(now));
        let has = match (self.client_of(guest), self.client_of(host.pool_key.cluster)) {
            (Some(own), Some(theirs)) if own.is_like(theirs) => {
                let server = ServerName::new(&name);
                let layer = connection.tls.as_deref();
                layer.is_some_and(|layer| server.is_ok_and(|name| own.vouches(layer, &name)))
            }
            (Some(_) | None, _) => false,
        };
        let connection = self.conns.table.get_mut(id);
        let upstream = connection.and_then(|connection| connection.upstream_mut());
        if let Some(path) = upstream.and_then(|upstream| upstream.app.as_deref_mut()) {
            if path.names.len() >= MOST_NAMES {
                path.names.remove(0);
            }
            path.names.push((name, has));
        }
        has
    }

    fn client_of(&self, id: ClusterId) -> Option<&tls::Client> {
        self.upstreams.clusters.get(id)?.tls_of(own_pool(id))?.client.as_ref()
    }

    /// Those that wait for an origin go onto connections of others, where they may.
    pub(crate) fn share_with_waiting(&mut self, guest: ClusterId, now: Instant) {
        if !HTTP2 {
            return;
        }
        for index in self.upstreams.waiting_for(guest) {
            let upstream = self.streams.get(index).map(|stream| stream.upstream);
            if !matches!(upstream, Some(UpstreamState::Pending(_))) {
                continue;
            }
            let Some(id) = self.shared_connection(index, now) else { continue };
            self.upstreams.leave_queue(index, own_pool(guest));
            self.attach(index, id, now);
        }
    }

    /// A connection to an origin is usable: those that wait for other origins there may have it, too.
    pub(crate) fn share(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id).filter(|it| it.contact().is_some()) else {
            return;
        };
        if connection.tls.is_none() {
            return;
        }
        let Some(host) = connection.upstream().map(|host| host.pool_key.cluster) else { return };
        let waits = |guest: &ClusterId| {
            let pool = self.upstreams.clusters.pool(own_pool(*guest));
            *guest != host && pool.is_some_and(|pool| !pool.pending.is_empty())
        };
        let mut guests: Vec<ClusterId> =
            self.upstreams.app.origins.keys().copied().filter(waits).collect();
        guests.sort_unstable();
        for guest in guests {
            self.share_with_waiting(guest, now);
            self.upstreams.advance_origin(guest, &mut self.conns, &mut self.env, now);
        }
    }

    /// A server answers 421: whether the request is asked again on a connection of its origin's own.
    pub(crate) fn misdirected(&mut self, index: StreamIndex, leg: Leg, now: Instant) -> bool {
        let Some(name) = self.shared_with(index, leg.connection) else { return false };
        let Some(stream) = self.streams.get(index) else { return false };
        let whole = stream.body.whole;
        if let Some(own) = self.upstreams.app.origins.get_mut(&stream.cluster) {
            own.keep_apart(name);
        }
        if !whole {
            return false;
        }
        self.withdraw_standby(index);
        let Some(call) = self.call_mut(index) else { return false };
        call.report.retries += 1;
        if let Some(last) = call.report.tries.last_mut() {
            last.reset_reason = "421: the server wants a connection of the name's own";
        }
        if let Some(stream) = self.streams.get_mut(index) {
            stream.upstream = UpstreamState::None;
            stream.retries.wants_fresh = true;
            stream.times.upstream_first_received = None;
            stream.clear_attempt_timers();
        }
        self.leave_answer(index, leg, now);
        self.place_call(index, now);
        true
    }

    /// The name that the connection of a request was opened for, if that is another's.
    pub(crate) fn shared_with(&self, index: StreamIndex, id: ConnectionId) -> Option<Arc<str>> {
        let own = self.streams.get(index)?.cluster;
        let host = self.conns.table.get(id)?.upstream()?.pool_key.cluster;
        if host == own {
            return None;
        }
        Some(Arc::clone(&self.upstreams.app.origins.get(&host)?.key.host))
    }

    /// Whether a request to an origin is under way, wherever it is.
    pub(crate) fn is_asked(&self, id: ClusterId) -> bool {
        let calls = self.upstreams.app.calls.values();
        let mut streams = calls.filter_map(|call| self.conns.table.get(*call)?.streams.only());
        streams.any(|index| self.streams.get(index).is_some_and(|stream| stream.cluster == id))
    }
}

const fn own_pool(cluster: ClusterId) -> PoolKey {
    PoolKey { cluster, pool: 0 }
}

/// Names whose outcome is kept for each connection.
const MOST_NAMES: usize = 32;
