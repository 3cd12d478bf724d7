//! Calls on their way to servers, on connections that all clients share.
//!
//! Arrives: a call with a connection, what the kernel has taken of it, time to ask for a sign of life. Leaves: the call
//! under a number of our own, heartbeats, and the end of one-way calls.

use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::ConnectionTimer;
use crate::conn::mux::Liveness;
use crate::exchange::Exchange;
use crate::exchange::rpc::Bridging;
use crate::exchange::stream::{Progress, UpstreamState};
use crate::ids::{Closer, Leg, ResetReason, StreamIndex};
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
        let Some(frame) = &stream.frame else { return };
        connection.mux.send_whole(leg.number, frame, &mut self.conns.out);
        let frame_bytes = frame.bytes().len();
        stream.recorder.note(|record| weigh_request(record, frame_bytes));
        if !stream.retries.is_possible() {
            let end = connection.encoded + self.conns.out.len() as u64;
            connection.mux.await_sent(leg.number, end);
        }
    }

    /// The kernel has taken more of what a shared connection sends: frames that it has whole, and that nothing can want
    /// again, are let go. (An attempt is repeated unasked only where none of its bytes were taken.)
    pub(crate) fn release_frames(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        while let Some(number) = connection.mux.next_sent(connection.bytes_sent) {
            let stream = connection.streams.get(number);
            if let Some(stream) = stream.and_then(|index| self.streams.get_mut(index)) {
                stream.frame = None;
            }
        }
    }

    /// Time to ask a quiet connection for a sign of life, or to count one that did not come.
    pub(crate) fn on_heartbeat_deadline(&mut self, id: ConnectionId, now: Instant) {
        let Some(asking) = self.upstreams.asking_of(id, &self.conns) else { return };
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let received = connection.bytes_received;
        let liveness = connection.mux.check_liveness(received, asking.misses);
        let (missed, dead) = match liveness {
            None => return,
            Some(Liveness::Alive) => {
                return self.conns.await_heartbeat(id, asking, &mut self.env, now);
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
        if dead && pool_key.is_none() {
            return self.drop_client(id, Close::Abort, Closer::Local(""), now);
        }
        if dead {
            return self.fail_upstream(id, ResetReason::Terminated, Close::Abort, now);
        }
        self.conns.encode_for(id, &mut self.env);
        if let Some(connection) = self.conns.table.get_mut(id) {
            connection.mux.ask(&mut self.conns.out);
        }
        self.conns.set_connection_timer(
            id,
            ConnectionTimer::Heartbeat,
            now + asking.timeout,
            &mut self.env,
        );
    }

    /// A one-way call is over when it is written.
    pub(crate) fn end_oneway(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let sent = matches!(stream.upstream, UpstreamState::Active(_));
        // HTTP has an answer to everything, and its connection serves again when it has come.
        if !stream.is_oneway || !sent || stream.bridging == Bridging::ToHttp {
            return;
        }
        stream.response_end = Progress::Ended;
        stream.status = 200;
        stream.recorder.note(|record| record.details = crate::record::details::ONEWAY);
        self.on_response_ended(index, now);
    }
}

pub(crate) fn weigh_request(record: &mut Record, frame: usize) {
    record.upstream_wire_sent = frame as u64;
    record.upstream_bytes_sent = record.bytes_received;
}
