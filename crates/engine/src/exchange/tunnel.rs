//! Tunnels: CONNECT, and what a request is upgraded to, by either protocol on either side (RFC 9110 §7.8 and §9.3.6,
//! RFC 8441, RFC 9113 §8.5).
//!
//! Arrives: a request that asks to leave HTTP, and the response that lets it. Leaves: bytes as they are, through the
//! one forwarding loop. Over HTTP/2 a tunnel is the content of its stream. What a client sends ahead of the response is
//! kept, because a server that refuses would read it as its next request; over HTTP/1 it stays with the codec.

use towpath_proto::head::{Head, Version};
use towpath_proto::name::Name;
use towpath_proto::{Instant, websocket};

use crate::conn::Connection;
use crate::conn::spans::Part;
use crate::env::Work;
use crate::exchange::Exchange;
use crate::exchange::forward::Item;
use crate::exchange::stream::{Direction, Stream, Upgrade};
use crate::exchange::timers::HttpTimer;
use crate::ids::{Leg, Side, StreamIndex};
use crate::random::Random;

impl Exchange {
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
        stream.trace_part(Part::Tunnel);
        if let Some(http) = stream.context.http() {
            http.stats.downstream_cx_upgrades_total.inc();
            http.stats.downstream_cx_upgrades_active.inc();
        }
        if stream.request.version() != Version::Http2 {
            stream.request_end = Direction::Streaming;
        }
        stream.response_end = Direction::Streaming;
        stream.clear_timer(HttpTimer::Response);
        stream.clear_timer(HttpTimer::Request);
        let downstream = stream.downstream.connection;
        for connection in [downstream, upstream.connection] {
            if let Some(connection) = self.conns.table.get_mut(connection) {
                connection.mux.upgrade();
            }
            self.env.work.push_back(Work::Read(connection));
        }
        self.replay(index, upstream, now);
        self.update_source(index, true);
        if ended {
            self.pass(index, Side::Response, Item::End, now);
        }
    }
}

impl Stream {
    /// Whether what comes from the client is for a tunnel that is not open yet.
    pub(crate) fn awaits_tunnel(&self) -> bool {
        self.request.version() == Version::Http2 && self.asks_for_tunnel()
    }

    /// Whether the request asks for a tunnel, and was not answered.
    pub(crate) const fn asks_for_tunnel(&self) -> bool {
        match self.upgrade {
            Upgrade::No | Upgrade::Done => false,
            Upgrade::Requested | Upgrade::Connect | Upgrade::ConnectHere => true,
        }
    }

    /// Whether a connection can carry what the stream asks for.
    pub(crate) fn may_go_over(&self, connection: &Connection) -> bool {
        if self.upgrade != Upgrade::Requested || !connection.mux.is_http2() {
            return true;
        }
        // RFC 8441 §4: all content is the tunnel's, so that a request that has its own cannot be said.
        let has_content = self.request.version() != Version::Http2
            && (self.request_end != Direction::Ended || self.body.len() > 0);
        connection.mux.takes_upgrades() && !has_content
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

fn is_websocket(request: &Head) -> bool {
    request.get(Name::Upgrade).is_some_and(|wanted| wanted.eq_ignore_ascii_case(b"websocket"))
}

const KEY: &[u8] = b"sec-websocket-key";
const ACCEPT: &[u8] = b"sec-websocket-accept";
