//! The end of an ordinary exchange: HTTP on both sides, complete, and both connections go on.
//!
//! Arrives: a stream whose response has ended. Leaves: what [`Exchange::finish`] leaves, with each of its parts looked up
//! once. Whatever is not ordinary is left to that.

use towpath_proto::Instant;

use crate::conn::mux::{Mux, Released};
use crate::conn::{Connection, Reading, Role};
use crate::exchange::Exchange;
use crate::exchange::rpc::Crossing;
use crate::exchange::stream::{Stream, Upgrade, UpstreamState};
use crate::ids::{PoolKey, StreamIndex};

impl Exchange {
    /// Ends an ordinary exchange; false, and nothing done, if it is none.
    pub(crate) fn finish_plain(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let UpstreamState::Active(leg) = stream.upstream else { return false };
        if !is_plain(stream) {
            return false;
        }
        let waiting = self.conns.waiting_for(leg.connection);
        let Some(connection) = self.conns.table.get_mut(leg.connection) else { return false };
        let Some(pool_key) = rests(connection) else { return false };
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else { return false };
        let idle_timeout = cluster.config.idle_timeout;
        let Some(pool) = cluster.pool_mut(pool_key) else { return false };
        if pool.host.is_none() || !pool.pending.is_empty() {
            return false;
        }
        connection.rested = now;
        pool.list(connection);
        pool.rest(connection, idle_timeout, &mut self.env, now);
        cluster.request_over(pool_key, stream.outcome());
        let sent = connection.encoded + waiting;
        let (wire, record) = (&stream.wire, &mut stream.record);
        record.upstream_wire_received += connection.bytes_received - wire.upstream_received;
        record.upstream_wire_sent += sent - wire.upstream_sent;
        connection.streams.unbind(leg.number);
        let downstream = stream.downstream;
        let waiting = self.conns.waiting_for(downstream.connection);
        let connection = self.conns.table.get_mut(downstream.connection);
        let released = connection.map_or(Released::Close, |connection| {
            connection.weigh(stream, waiting);
            connection.release(downstream.number)
        });
        self.close_record(index, now);
        let id = downstream.connection;
        match released {
            Released::KeepAlive => self.rest_downstream(id, now),
            Released::GoesOn => self.after_call(id, now),
            Released::Close => {
                self.listeners.close_downstream(id, &mut self.conns, &mut self.env, now);
            }
        }
        true
    }
}

/// Whether a stream is over as it should be, and speaks HTTP on both sides.
fn is_plain(stream: &Stream) -> bool {
    stream.is_complete()
        && stream.upgrade == Upgrade::No
        && stream.call.crossing == Crossing::None
        && stream.context.http().is_some_and(|http| http.bolt.is_none())
}

/// Where an upstream connection rests that its only stream leaves and that can carry another.
fn rests(connection: &Connection) -> Option<PoolKey> {
    let Role::Upstream(upstream) = &connection.role else { return None };
    let rests = matches!(connection.mux, Mux::Http1Client(_))
        && connection.mux.capacity() > 0
        && connection.reading == Reading::On
        && !(connection.congested || upstream.retired || connection.is_spent());
    rests.then_some(upstream.pool_key)
}
