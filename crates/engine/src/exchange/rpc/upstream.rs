//! Connections to servers that all clients share.
//!
//! Arrives: a stream that knows its host, connections that are open, idle, lost or full. Leaves: a lease of a
//! connection that has room, numbers for calls, heartbeats, and each pending call failed when its connection is lost.

use towpath_proto::bolt::Error;
use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::ConnectionTimer;
use crate::conn::mux::{Liveness, bolt_client};
use crate::exchange::Exchange;
use crate::exchange::rpc::Crossing;
use crate::exchange::stream::{Direction, UpstreamState};
use crate::ids::{Leg, ResetReason, StreamIndex};
use crate::record::Record;

impl Exchange {
    /// Encodes a stream's call under a number of our own.
    pub(crate) fn encode_call(&mut self, index: StreamIndex, leg: Leg) {
        let written = self.conns.out.len() as u64;
        let (Some(connection), Some(stream)) =
            (self.conns.table.get_mut(leg.connection), self.streams.get_mut(index))
        else {
            return;
        };
        stream.retries.sent_before = connection.encoded + written;
        let Some(frame) = &stream.call.frame else { return };
        connection.mux.send_whole(leg.number, frame, &mut self.conns.out);
        weigh_request(&mut stream.record, frame.bytes().len());
        if !stream.retries.is_possible() {
            let end = connection.encoded + self.conns.out.len() as u64;
            connection.mux.await_sent(leg.number, end);
        }
    }

    /// The kernel has taken more of what a shared connection sends: frames that it has whole, and that nothing can want
    /// again, are let go. (A try is repeated unasked only where none of its bytes were taken.)
    pub(crate) fn release_frames(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        while let Some(number) = connection.mux.next_sent(connection.bytes_sent) {
            let stream = connection.streams.get(number);
            if let Some(stream) = stream.and_then(|index| self.streams.get_mut(index)) {
                stream.call.frame = None;
            }
        }
    }

    /// A shared connection is lost: each of its streams fails by itself, and it is closed.
    pub(crate) fn fail_shared(
        &mut self,
        id: ConnectionId,
        reason: ResetReason,
        how: Close,
        now: Instant,
    ) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let by_peer = connection.is_ended_by_peer();
        connection.mux.lose();
        let streams = connection.streams.all();
        let Some(upstream) = connection.upstream_mut() else { return };
        upstream.retired = true;
        let pool_key = upstream.pool_key;
        if !streams.is_empty()
            && let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster)
        {
            cluster.stats.count_cut(by_peer);
        }
        for index in streams {
            self.reset_upstream(index, reason, now);
        }
        self.upstreams.close_upstream(id, how, &mut self.conns, &mut self.env, now);
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
        self.fail_shared(id, ResetReason::Protocol, Close::Abort, now);
    }

    /// Time to ask a quiet connection for a sign of life, or to count one that did not come.
    pub(crate) fn on_heartbeat_deadline(&mut self, id: ConnectionId, now: Instant) {
        let Some(heartbeat) = self.upstreams.heartbeat_of(id, &self.conns) else { return };
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let received = connection.bytes_received;
        let liveness = connection.mux.check_liveness(received, heartbeat.misses);
        let (missed, dead) = match liveness {
            None => return,
            Some(Liveness::Alive) => {
                let at = now + heartbeat.interval;
                let timer = ConnectionTimer::Heartbeat;
                return self.conns.set_connection_timer(id, timer, at, &mut self.env);
            }
            Some(Liveness::Ask { missed }) => (missed, false),
            Some(Liveness::Dead) => (true, true),
        };
        let pool_key = connection.upstream().map(|upstream| upstream.pool_key);
        if let Some(stats) = pool_key
            .and_then(|pool_key| self.upstreams.clusters.get(pool_key.cluster))
            .and_then(|cluster| cluster.bolt_stats.as_ref())
        {
            if missed {
                stats.heartbeat_failures.inc();
            }
            if !dead {
                stats.heartbeats.inc();
            }
        }
        if dead {
            return self.fail_shared(id, ResetReason::Terminated, Close::Abort, now);
        }
        self.conns.encode_for(id, &mut self.env);
        bolt_client::Client::ping(&mut self.conns.out);
        self.conns.set_connection_timer(
            id,
            ConnectionTimer::Heartbeat,
            now + heartbeat.timeout,
            &mut self.env,
        );
    }

    /// A one-way call is over when it is written.
    pub(crate) fn end_oneway(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let sent = matches!(stream.upstream, UpstreamState::Active(_));
        // HTTP has an answer to everything, and its connection serves again when it has come.
        if !stream.call.is_oneway || !sent || stream.call.crossing == Crossing::ToHttp {
            return;
        }
        stream.response_end = Direction::Ended;
        stream.record.status = 200;
        stream.record.details = crate::record::details::ONEWAY;
        self.on_response_ended(index, now);
    }
}

pub(crate) fn weigh_request(record: &mut Record, frame: usize) {
    record.upstream_wire_sent = frame as u64;
    record.upstream_bytes_sent = record.bytes_received;
}
