//! Connections to servers that all clients share.
//!
//! Arrives: a stream that knows its host, connections that are open, idle, lost or full. Leaves: a lease of a connection that
//! has room, numbers for calls, heartbeats, and each pending call failed when its connection is lost.

use towpath_proto::bolt::{Error, Message, Version};
use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::mux::Codec;
use crate::conn::mux::slots::Owner;
use crate::conn::{Connection, ConnectionTimer};
use crate::env::Work;
use crate::exchange::Exchange;
use crate::exchange::rpc::Crossing;
use crate::exchange::stream::{Direction, UpstreamState};
use crate::ids::{ResetReason, StreamIndex};
use crate::record::Record;
use crate::upstream::cluster::Resource;
use crate::upstream::shared::{has_room, takes_calls};

impl Exchange {
    /// A shared connection may have room: those who wait come in.
    pub(crate) fn offer_shared(&mut self, id: ConnectionId, now: Instant) {
        loop {
            let Some(connection) = self.conns.table.get(id) else { return };
            let (takes, room) = (takes_calls(connection), has_room(connection).is_some());
            let Some(pool_key) = connection.upstream().map(|upstream| upstream.pool_key) else {
                return;
            };
            let idle = !connection.is_busy();
            let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else { return };
            let Some(pool) = cluster.pool_mut(pool_key) else { return };
            let listed = pool.shared.contains(&id);
            if takes && !listed {
                pool.shared.push(id);
            }
            if !takes || (pool.host.is_none() && pool.pending.is_empty()) {
                // One that is being given up is closed by whoever does that.
                if idle && (takes || listed) {
                    self.upstreams.close_upstream(
                        id,
                        Close::Flush,
                        &mut self.conns,
                        &mut self.env,
                        now,
                    );
                    self.upstreams.open_for_pending(pool_key, &mut self.conns, &mut self.env, now);
                }
                return;
            }
            if !room {
                return;
            }
            let Some(next) = pool.pending.pop_front() else {
                if idle {
                    self.upstreams.rest_shared(id, pool_key, &mut self.conns, &mut self.env, now);
                }
                return;
            };
            cluster.left_queue(pool_key);
            if !cluster.is_full(pool_key, Resource::Requests) {
                self.attach(next, id, now);
                continue;
            }
            cluster.stats.upstream_rq_active_overflow.inc();
            if let Some(stream) = self.streams.get_mut(next) {
                stream.upstream = UpstreamState::None;
            }
            self.reset_upstream(next, ResetReason::Overflow, now);
        }
    }

    /// Encodes a stream's call under a number of our own.
    pub(crate) fn encode_call(&mut self, index: StreamIndex, id: ConnectionId) {
        let written = self.conns.out.len() as u64;
        let (Some(connection), Some(stream)) =
            (self.conns.table.get_mut(id), self.streams.get_mut(index))
        else {
            return;
        };
        stream.retries.sent_before = connection.encoded + written;
        let Some(number) = stream.call.number else { return };
        if let Some(frame) = &stream.call.frame {
            frame.write_as(number, &mut self.conns.out);
            weigh_request(&mut stream.record, frame.bytes().len());
            if !stream.retries.is_possible()
                && let Codec::BoltClient(client) = &mut connection.codec
            {
                client.await_sent(number, connection.encoded + self.conns.out.len() as u64);
            }
        }
    }

    /// The kernel has taken more of what a shared connection sends: frames that it has whole, and that nothing can want again,
    /// are let go. (A try is repeated unasked only where none of its bytes were taken.)
    pub(crate) fn let_frames_go(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Codec::BoltClient(client) = &mut connection.codec else { return };
        while let Some((number, owner)) = client.next_sent(connection.bytes_sent) {
            if let Owner::Stream(index) = owner
                && let Some(stream) = self.streams.get_mut(index)
                && stream.call.number == Some(number)
            {
                stream.call.frame = None;
            }
        }
    }

    /// A stream is through with a shared connection, which goes on without it.
    pub(crate) fn leave_shared(&mut self, index: StreamIndex, id: ConnectionId) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let (number, pool_key) = (stream.call.number.take(), stream.retries.pool_key);
        if let Some(pool_key) = pool_key {
            self.request_over(index, pool_key);
        }
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if let Codec::BoltClient(client) = &mut connection.codec
            && let Some(number) = number
        {
            // An answer that came has freed it already, and this does nothing.
            client.abandon(number);
            if client.is_worn()
                && let Some(upstream) = connection.upstream_mut()
            {
                upstream.retired = true;
            }
        }
        let offer = Work::Offer(id);
        // Many calls may leave one after the other; one look at who waits is enough.
        if self.env.work.back() != Some(&offer) {
            self.env.work.push_back(offer);
        }
    }

    /// A shared connection is lost: each of its calls fails by itself.
    pub(crate) fn fail_shared(&mut self, id: ConnectionId, reason: ResetReason, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if let Some(upstream) = connection.upstream_mut() {
            upstream.retired = true;
        }
        let Codec::BoltClient(client) = &mut connection.codec else { return };
        let calls = client.take_all();
        let Some(pool_key) = connection.upstream().map(|upstream| upstream.pool_key) else {
            return;
        };
        if let Some(pool) = self.upstreams.clusters.pool_mut(pool_key) {
            pool.shared.retain(|shared| *shared != id);
        }
        if !calls.is_empty()
            && let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster)
        {
            let by_peer = self.conns.table.get(id).is_some_and(Connection::is_ended_by_peer);
            cluster.stats.upstream_cx_destroy_with_active_rq.inc();
            if by_peer {
                cluster.stats.upstream_cx_destroy_remote_with_active_rq.inc();
            } else {
                cluster.stats.upstream_cx_destroy_local_with_active_rq.inc();
            }
        }
        for index in calls {
            self.reset_upstream(index, reason, now);
        }
    }

    /// What came from a server is not Bolt.
    pub(crate) fn on_answer_error(&mut self, id: ConnectionId, _error: Error, now: Instant) {
        let pool_key = self
            .conns
            .table
            .get(id)
            .and_then(|connection| connection.upstream())
            .map(|upstream| upstream.pool_key);
        if let Some(cluster) =
            pool_key.and_then(|pool_key| self.upstreams.clusters.get_mut(pool_key.cluster))
        {
            cluster.stats.upstream_cx_protocol_error.inc();
        }
        self.fail_shared(id, ResetReason::Protocol, now);
        self.upstreams.close_upstream(id, Close::Abort, &mut self.conns, &mut self.env, now);
    }

    /// Time to ask a quiet connection for a sign of life, or to count one that did not come.
    pub(crate) fn on_heartbeat_deadline(&mut self, id: ConnectionId, now: Instant) {
        let Some(heartbeat) = self.upstreams.heartbeat_of(id, &self.conns) else { return };
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let received = connection.bytes_received;
        let Codec::BoltClient(client) = &mut connection.codec else { return };
        let pulse = &mut client.pulse;
        let alive = received > pulse.seen;
        pulse.seen = received;
        if alive {
            (pulse.asked, pulse.missed) = (false, 0);
            self.conns.set_connection_timer(
                id,
                ConnectionTimer::Heartbeat,
                now + heartbeat.interval,
                &mut self.env,
            );
            return;
        }
        let missed_one = std::mem::replace(&mut pulse.asked, true);
        pulse.missed += u32::from(missed_one);
        let dead = pulse.missed >= heartbeat.misses;
        let pool_key = connection.upstream().map(|upstream| upstream.pool_key);
        if let Some(stats) = pool_key
            .and_then(|pool_key| self.upstreams.clusters.get(pool_key.cluster))
            .and_then(|cluster| cluster.bolt_stats.as_ref())
        {
            if missed_one {
                stats.heartbeat_failures.inc();
            }
            if !dead {
                stats.heartbeats.inc();
            }
        }
        if dead {
            self.fail_shared(id, ResetReason::Terminated, now);
            self.upstreams.close_upstream(id, Close::Abort, &mut self.conns, &mut self.env, now);
            return;
        }
        self.conns.encode_for(id, &mut self.env);
        // Without parts it is never too long. Version 1 is understood by all.
        let _ = Message::heartbeat(Version::V1, HEARTBEAT_NUMBER).write(&mut self.conns.out);
        self.conns.set_connection_timer(
            id,
            ConnectionTimer::Heartbeat,
            now + heartbeat.timeout,
            &mut self.env,
        );
    }

    /// A call that nobody answers is over when it is written.
    pub(crate) fn end_oneway(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let sent = matches!(stream.upstream, UpstreamState::Active(_));
        // HTTP has an answer to everything, and its connection serves again when it has come.
        if !stream.call.is_oneway() || !sent || stream.call.crossing == Crossing::ToHttp {
            return;
        }
        stream.response_end = Direction::Ended;
        stream.record.status = 200;
        stream.record.details = crate::record::details::ONEWAY;
        if let Some(number) = stream.call.number.take()
            && let UpstreamState::Active(id) = stream.upstream
            && let Some(connection) = self.conns.table.get_mut(id)
            && let Codec::BoltClient(client) = &mut connection.codec
        {
            client.close(number);
        }
        self.on_response_ended(index, now);
    }
}

pub(crate) fn weigh_request(record: &mut Record, frame: usize) {
    record.upstream_wire_sent = frame as u64;
    record.upstream_bytes_sent = record.bytes_received;
}

/// A heartbeat's answer is told by its command: its number means nothing.
pub(crate) const HEARTBEAT_NUMBER: u32 = 0;
