//! Whether the peer of a connection that carries many of an app's requests is there.
//!
//! Arrives: bytes of a peer, requests that are given to its connection, looks at those that wait. Leaves: PING, and
//! where nothing comes of it in time, the wish for another connection for each request that may be moved.
//!
//! A PING is answered at once, however long the server needs for a response (RFC 9113 §6.7): silence speaks against
//! the network, not against the server. What is sent beside a request costs 17 bytes. Anything that comes answers it.
//! Servers count what is asked of them beside requests: it is asked ever more seldom while nothing else comes.
//! As a spike of the round trip is silence as well, a connection that is suspected is not given up: what comes first,
//! its sign of life or another connection, decides.

use std::time::Duration;

use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::ConnectionTimer;
use crate::exchange::Exchange;
use crate::exchange::app::resume::MOST_NOTES;
use crate::ids::{ResetReason, StreamIndex};
use crate::local::StandbyReason;
use crate::local::report::Ping;
use crate::snapshot::ClusterId;
use crate::upstream::liveness::GIVEN_UP_AFTER;

impl Exchange {
    /// Bytes have come over a connection that carries many streams.
    pub(crate) fn hear(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let received = connection.bytes_received;
        let path = connection.upstream_mut().and_then(|upstream| upstream.app.as_deref_mut());
        let Some(path) = path else { return };
        if let Some(heard) = &mut path.heard {
            *heard = now;
        }
        let Some(contact) = path.contact.as_deref_mut() else { return };
        if contact.received == received {
            return;
        }
        let Some(asked) = contact.hear(received, now) else { return };
        connection.deadlines.clear(ConnectionTimer::Heartbeat as usize);
        let streams = connection.streams.all();
        let Some(upstream) = connection.upstream() else { return };
        let (cluster, serial) = (upstream.pool_key.cluster, upstream.serial);
        for index in streams {
            self.answer_pings(index, serial, asked, now);
            self.clear_suspicion(index);
        }
        for index in self.upstreams.waiting_for(cluster) {
            self.answer_pings(index, serial, asked, now);
        }
        self.upstreams.end_hold(cluster);
        self.env.offer_soon(id);
    }

    /// A request is given to a connection, or waits there: its peer is asked if it was `quiet` for so long.
    pub(crate) fn check_contact(
        &mut self,
        index: StreamIndex,
        id: ConnectionId,
        quiet: Duration,
        now: Instant,
    ) {
        let contact = self.conns.table.get(id).and_then(|connection| connection.contact());
        if contact.is_some_and(|contact| now - contact.heard >= quiet) {
            self.upstreams.ask_peer(id, &mut self.conns, &mut self.env, now);
            self.note_ping(index, id);
        }
    }

    /// A response that may pause for long has begun.
    pub(crate) fn watch_pauses(&mut self, index: StreamIndex, gap: Duration, now: Instant) {
        let shared = self.upstream_of(index).is_some_and(|(_, it)| it.contact().is_some());
        if shared && gap > 2 * KEEP_ALIVE {
            self.watch_at(index, now + KEEP_ALIVE);
        }
    }

    /// Looks whether the peer of a response that pauses is there.
    pub(crate) fn keep_alive(&mut self, index: StreamIndex, id: ConnectionId, now: Instant) {
        self.check_contact(index, id, KEEP_ALIVE, now);
        self.watch_at(index, now + KEEP_ALIVE);
    }

    /// A request waits for what a PING comes to.
    pub(crate) fn note_hold(&mut self, index: StreamIndex, cluster: ClusterId, now: Instant) {
        let origin = self.upstreams.app.origins.get(&cluster);
        let held = origin.and_then(|origin| origin.held).filter(|held| now < held.until);
        if let Some(held) = held {
            self.note_ping(index, held.by);
        }
    }

    /// What a request's report tells of the PING that is under way.
    fn note_ping(&mut self, index: StreamIndex, id: ConnectionId) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let asked = connection.contact().and_then(|contact| contact.asked);
        let serial = connection.upstream().map(|upstream| upstream.serial);
        let (Some(at), Some(connection)) = (asked, serial) else { return };
        let Some(call) = self.call_mut(index) else { return };
        let pings = &mut call.report.pings;
        let is_noted = pings.iter().any(|ping| (ping.at, ping.connection) == (at, connection));
        if !is_noted && pings.len() < MOST_NOTES {
            pings.push(Ping { at, connection, answered: None });
        }
    }

    fn answer_pings(&mut self, index: StreamIndex, serial: u64, at: Instant, now: Instant) {
        let Some(call) = self.call_mut(index) else { return };
        for ping in &mut call.report.pings {
            if (ping.at, ping.connection) == (at, serial) {
                ping.answered.get_or_insert(now);
            }
        }
    }

    /// Its connection has answered after all.
    fn clear_suspicion(&mut self, index: StreamIndex) {
        let standby = self.call(index).and_then(|call| call.standby);
        if standby.is_some_and(|standby| standby.reason == StandbyReason::Unanswered) {
            self.withdraw_standby(index);
        }
    }

    /// A PING was not answered in time.
    pub(crate) fn on_unanswered(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Some(contact) = connection.contact_mut() else { return };
        let Some(asked) = contact.asked else { return };
        if std::mem::replace(&mut contact.suspect, true) {
            return self.fail_upstream(id, ResetReason::Terminated, Close::Abort, now);
        }
        let timer = ConnectionTimer::Heartbeat;
        self.conns.set_connection_timer(id, timer, asked + GIVEN_UP_AFTER, &mut self.env);
        self.move_streams(id, StandbyReason::Unanswered, now);
        let cluster = self.conns.table.get(id).and_then(|it| it.upstream());
        if let Some(cluster) = cluster.map(|upstream| upstream.pool_key.cluster) {
            self.upstreams.end_hold(cluster);
            self.upstreams.advance_origin(cluster, &mut self.conns, &mut self.env, now);
        }
    }

    /// Asks for another connection for all requests of one. That is one decision, and costs as much.
    pub(crate) fn move_streams(&mut self, id: ConnectionId, reason: StandbyReason, now: Instant) {
        let streams = self.conns.table.get(id).map(|connection| connection.streams.all());
        let mut paid = false;
        for index in streams.unwrap_or_default() {
            if self.may_have_standby(index, reason, now) {
                paid = paid || self.upstreams.app.budget.spend();
                if !paid {
                    return;
                }
                self.begin_standby(index, reason, now);
            }
        }
    }
}

/// From one look at a response that pauses to the next.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A connection that was silent for so long while a request waits there is asked.
pub(crate) const QUIET: Duration = Duration::from_millis(500);
