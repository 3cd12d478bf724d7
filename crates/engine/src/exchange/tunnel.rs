//! Tunnels: CONNECT, and what a request is upgraded to, by either protocol on either side (RFC 9110 §7.8 and §9.3.6,
//! RFC 8441, RFC 9113 §8.5).
//!
//! Arrives: a request that asks to leave HTTP, and the response that lets it. Leaves: bytes as they are, through the
//! one forwarding loop. Over HTTP/2 a tunnel is the content of its stream. What a client sends ahead of the response is
//! kept, because a server that refuses would read it as its next request; over HTTP/1 it stays with the codec.

use towpath_proto::head::{Head, Version};
use towpath_proto::name::Name;
use towpath_proto::{Close, ConnectionId, Instant, websocket};

use crate::conn::context::HttpContext;
use crate::conn::spans::Phase;
use crate::conn::{Connection, ConnectionTimer};
use crate::env::Work;
use crate::exchange::Exchange;
use crate::exchange::edge::wanted_upgrade;
use crate::exchange::forward::Item;
use crate::exchange::log::DOWNSTREAM_TUNNEL;
use crate::exchange::stream::{Progress, Stream, Upgrade, UpstreamState};
use crate::exchange::timers::HttpTimer;
use crate::ids::{Kind, Leg, ResetReason, Side, StreamIndex};
use crate::random::Random;
use crate::record::details;
use crate::snapshot::Http;
use crate::snapshot::http::Upgrade as AllowedUpgrade;
use crate::upstream::cluster::Resource;

impl Exchange {
    /// Answers a request that asks for an upgrade which is not let through.
    #[cold]
    pub(super) fn refuse_upgrade(&mut self, index: StreamIndex, http: &HttpContext, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let cluster = self.upstreams.clusters.get(stream.cluster);
        let name = cluster.map(|cluster| cluster.config.name.clone());
        stream.recorder.note(|record| record.cluster = name);
        http.stats.downstream_rq_ws_on_non_ws_route.inc();
        self.local_reply(index, 403, b"", details::UPGRADE_FAILED, now);
    }

    /// A server of HTTP/1 has answered a request for WebSocket with neither its tunnel nor an error: as in Envoy the
    /// client has the head of that alone.
    #[cold]
    pub(super) fn end_websocket(&mut self, index: StreamIndex, now: Instant) {
        self.detach(index, Close::Abort, now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.recorder.note(|record| record.details = details::WEBSOCKET_HANDSHAKE_UNSUCCESSFUL);
        for name in [Name::ContentLength, Name::ContentType, Name::KeepAlive] {
            stream.response.remove(name);
        }
        stream.retries.remaining = 0;
        stream.response_end = Progress::Ended;
        let serial = stream.serial;
        self.send_response_head(index, true, now);
        if !self.is_past_filters(index, serial) {
            self.on_response_ended(index, now);
        }
    }

    /// The response to a request for a tunnel has gone down; `ended` if the server's direction was over with it.
    pub(crate) fn open_tunnel(
        &mut self,
        index: StreamIndex,
        upstream: Leg,
        ended: bool,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.upgrade = Upgrade::Done;
        stream.trace_phase(Phase::Tunnel);
        if let Some(http) = stream.context.http() {
            http.stats.downstream_cx_upgrades_total.inc();
            http.stats.downstream_cx_upgrades_active.inc();
        }
        let is_logged = stream.context.http().is_some_and(|http| http.config.log_on_tunnel);
        if stream.request.version() != Version::Http2 {
            stream.request_end = Progress::Streaming;
        }
        stream.response_end = Progress::Streaming;
        // An app's has begun the timers of its response already.
        if stream.kind != Kind::App {
            stream.clear_timer(HttpTimer::Response);
            stream.clear_timer(HttpTimer::Request);
        }
        let downstream = stream.downstream.connection;
        for connection in [downstream, upstream.connection] {
            if let Some(connection) = self.conns.table.get_mut(connection) {
                connection.mux.upgrade();
            }
            self.env.work.push_back(Work::Read(connection));
        }
        if is_logged {
            self.log_under_way(index, DOWNSTREAM_TUNNEL, now);
        }
        self.replay(index, upstream, now);
        self.update_source(index, true);
        if ended {
            self.pass(index, Side::Response, Item::End, now);
        }
    }
}

/// Requests that wait for a server's SETTINGS (RFC 8441 §3): whether it takes them is not known before.
impl Exchange {
    /// Puts a stream back into the queue of the pool whose connection it was given.
    pub(crate) fn await_settings(&mut self, index: StreamIndex, id: ConnectionId, now: Instant) {
        let pool_key =
            self.conns.table.get(id).and_then(Connection::upstream).map(|it| it.pool_key);
        let Some(pool_key) = pool_key else { return };
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else { return };
        if cluster.is_full(pool_key, Resource::Pending) {
            cluster.stats.upstream_rq_pending_overflow.inc();
            return self.reset_upstream(index, ResetReason::Overflow, now);
        }
        cluster.joined_queue(pool_key);
        if let Some(pool) = cluster.pool_mut(pool_key) {
            pool.pending.push_back(index);
        }
        if let Some(stream) = self.streams.get_mut(index) {
            stream.upstream = UpstreamState::Pending(pool_key);
        }
        self.bound_settings(id, now);
    }

    /// A server has as long for its SETTINGS as for the connect.
    pub(crate) fn bound_settings(&mut self, id: ConnectionId, now: Instant) {
        let Some(cluster) = self.upstreams.cluster_of(id, &mut self.conns) else { return };
        let timeout = cluster.config.connect_timeout;
        let timer = ConnectionTimer::RequestHead;
        if self.conns.table.get(id).is_some_and(|it| !it.deadlines.is_set(timer as usize)) {
            self.conns.set_connection_timer(id, timer, now + timeout, &mut self.env);
        }
    }

    /// A connection is over, or too late, before its server's SETTINGS have come: tunnels that wait for them fail.
    pub(crate) fn fail_unsettled(&mut self, id: ConnectionId, reason: ResetReason, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let Some(upstream) = connection.upstream() else { return };
        if connection.mux.takes_upgrades().is_some() {
            return;
        }
        let pool_key = upstream.pool_key;
        let Some(pool) = self.upstreams.clusters.pool(pool_key) else { return };
        let waits = |index: &StreamIndex| {
            let stream = self.streams.get(*index);
            stream.is_some_and(|stream| stream.passage(connection) == Passage::Unknown)
        };
        let waiting: Vec<StreamIndex> = pool.pending.iter().copied().filter(waits).collect();
        for index in waiting {
            self.upstreams.leave_queue(index, pool_key);
            if let Some(stream) = self.streams.get_mut(index) {
                stream.upstream = UpstreamState::None;
                self.reset_upstream(index, reason, now);
            }
        }
    }
}

/// Whether a connection can carry what a stream asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Free,
    /// Its server has not said what it takes.
    Unknown,
    Closed,
}

impl Stream {
    /// Notes what the request asks to be upgraded to; false if its route, or the listener, does not let that through.
    /// As in Envoy this is asked before any filter, of the route that it has then.
    pub(super) fn admit_upgrade(&mut self, http: &Http) -> bool {
        let Some(wanted) = self.request.present().and_then(wanted_upgrade) else { return true };
        let forward = self.routed().and_then(|routed| routed.forward());
        let of_route = forward.and_then(|forward| named(&forward.upgrades, wanted));
        // The route's word counts before the listener's.
        let is_allowed =
            of_route.or_else(|| self.upgrade_of(http)).is_some_and(|upgrade| upgrade.enabled);
        if self.upgrade == Upgrade::No {
            self.upgrade = Upgrade::Requested;
        }
        is_allowed
    }

    /// What the listener says of the upgrade that is asked for.
    pub(super) fn upgrade_of<'a>(&self, http: &'a Http) -> Option<&'a AllowedUpgrade> {
        named(&http.upgrades, wanted_upgrade(self.request.present()?)?)
    }

    /// Whether a client's request for WebSocket is not answered.
    pub(super) fn asks_for_websocket(&self) -> bool {
        self.upgrade == Upgrade::Requested
            && matches!(self.kind, Kind::Http(_))
            && is_websocket(&self.request)
    }

    /// Whether what comes from the client is for a tunnel that is not open yet.
    pub(crate) fn awaits_tunnel(&self) -> bool {
        self.request.version() == Version::Http2 && self.asks_for_tunnel()
    }

    /// Whether the request asks for a tunnel, and was not answered.
    pub(crate) const fn asks_for_tunnel(&self) -> bool {
        match self.upgrade {
            Upgrade::No | Upgrade::Done => false,
            Upgrade::Requested | Upgrade::Connect | Upgrade::ConnectHere | Upgrade::Post => true,
        }
    }

    /// Whether nothing more comes of a request. As in Envoy, what asks for a tunnel has no end.
    pub(super) fn is_all_here(&self) -> bool {
        self.request_end == Progress::Ended && !self.asks_for_tunnel()
    }

    /// Whether a connection can carry what the stream asks for.
    pub(crate) fn passage(&self, connection: &Connection) -> Passage {
        if self.upgrade != Upgrade::Requested || !connection.mux.is_http2() {
            return Passage::Free;
        }
        // RFC 8441 §4: all content is the tunnel's, so that a request that has its own cannot be said.
        let has_content = self.request.version() != Version::Http2
            && (self.request_end != Progress::Ended || self.body.len() > 0);
        match connection.mux.takes_upgrades() {
            _ if has_content => Passage::Closed,
            Some(true) => Passage::Free,
            Some(false) => Passage::Closed,
            None => Passage::Unknown,
        }
    }

    /// A request for WebSocket goes to a server of HTTP/1, which wants a key that HTTP/2 does not have.
    pub(crate) fn complete_upgrade_request(&mut self, random: &mut Random) {
        let is_wanted =
            self.upgrade == Upgrade::Requested && self.request.version() == Version::Http2;
        if is_wanted && is_websocket(&self.request) && self.request.get_bytes(KEY).is_none() {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&random.next().to_le_bytes());
            bytes[8..].copy_from_slice(&random.next().to_le_bytes());
            self.request.set_bytes(KEY, &websocket::key(bytes));
        }
    }

    /// An upgrade is answered for a client of HTTP/1, which wants to read what HTTP/2 leaves out.
    pub(crate) fn complete_upgrade_response(&mut self) {
        let Some(wanted) = self.request.get(Name::Upgrade) else { return };
        if self.request.version() == Version::Http2 {
            return;
        }
        if self.response.get(Name::Upgrade).is_none() {
            self.response.set(Name::Upgrade, wanted);
        }
        if is_websocket(&self.request)
            && self.response.get_bytes(ACCEPT).is_none()
            && let Some(key) = self.request.get_bytes(KEY)
        {
            self.response.set_bytes(ACCEPT, &websocket::accept(key));
        }
    }
}

fn named<'a>(upgrades: &'a [AllowedUpgrade], wanted: &[u8]) -> Option<&'a AllowedUpgrade> {
    upgrades.iter().find(|upgrade| wanted.eq_ignore_ascii_case(upgrade.kind.as_bytes()))
}

fn is_websocket(request: &Head) -> bool {
    request.get(Name::Upgrade).is_some_and(|wanted| wanted.eq_ignore_ascii_case(b"websocket"))
}

const KEY: &[u8] = b"sec-websocket-key";
const ACCEPT: &[u8] = b"sec-websocket-accept";
