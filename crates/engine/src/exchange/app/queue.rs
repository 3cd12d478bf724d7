//! The order in which an app's requests wait for a connection.
//!
//! Arrives: a request that found none. Leaves: its place in its origin's queue, by urgency and age.

use towpath_proto::Instant;

use crate::exchange::Exchange;
use crate::ids::{PoolKey, StreamIndex};

impl Exchange {
    /// Where a request stands in a queue: behind those whose turn is not later than its own.
    pub(crate) fn place_in_queue(&self, index: StreamIndex, pool_key: PoolKey) -> Option<usize> {
        let turn = self.turn(index);
        let pool = self.upstreams.clusters.pool(pool_key)?;
        let before = pool.pending.iter().rposition(|&other| self.turn(other) <= turn);
        Some(before.map_or(0, |before| before + 1))
    }

    /// A connection that is to be another than the one that a request was on was opened after this.
    pub(crate) fn fresh_after(&self, index: StreamIndex) -> Instant {
        let Some(call) = self.call(index) else { return Instant::ZERO };
        let last = call.report.tries.last();
        last.map_or(call.fresh_after, |last| last.began.max(call.fresh_after))
    }

    pub(crate) fn turn(&self, index: StreamIndex) -> Instant {
        let turn = self.call(index).map(|call| call.options.priority.turn(call.began));
        turn.unwrap_or(Instant::ZERO)
    }
}
