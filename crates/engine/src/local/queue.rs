//! The order in which an app's requests wait for a connection.
//!
//! Arrives: a request that found none. Leaves: its place in its origin's queue, by urgency and age.

use towpath_proto::Instant;

use crate::ids::{PoolKey, StreamIndex};
use crate::worker::Worker;

impl Worker {
    /// Puts a request behind those whose turn is not later than its own.
    pub(crate) fn join_in_turn(&mut self, index: StreamIndex, pool_key: PoolKey) {
        let turn = self.turn(index);
        let Some(pool) = self.clusters.pool(pool_key) else { return };
        let before = pool.pending.iter().rposition(|&other| self.turn(other) <= turn);
        let at = before.map_or(0, |before| before + 1);
        if let Some(pool) = self.clusters.pool_mut(pool_key) {
            pool.pending.insert(at, index);
        }
    }

    fn turn(&self, index: StreamIndex) -> Instant {
        let turn = self.call(index).map(|call| call.options.priority.turn(call.began));
        turn.unwrap_or(Instant::ZERO)
    }
}
