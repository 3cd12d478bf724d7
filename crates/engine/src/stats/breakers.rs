//! `cluster.<name>.circuit_breakers.…`: worked out when they are read, from what all workers have in use.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Gauge, Stat, StatSet, Tracked};
use crate::snapshot::Cluster;
use crate::snapshot::cluster::{InUse, Limits};

/// The gauges of a cluster's circuit breakers; one set for the process.
#[derive(Debug, Default)]
pub struct BreakerStats {
    cluster: Mutex<Weak<Cluster>>,
    open: [Gauge; 8],
    remaining: [Tracked; 8],
}

impl BreakerStats {
    /// Shows this cluster from here on.
    pub(crate) fn follow(&self, cluster: &Arc<Cluster>) {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(cluster);
    }

    /// What is in use and its limit, and whether what remains is shown.
    fn reading(&self, at: usize) -> Option<(u64, u32, bool)> {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
        let limits = [&cluster.limits, &cluster.high_limits][at / 4];
        let (in_use, limit) = of(&cluster.in_use[at / 4], limits)[at % 4];
        Some((in_use, limit, limits.track_remaining))
    }
}

/// In the order of the names.
fn of(in_use: &InUse, limits: &Limits) -> [(u64, u32); 4] {
    [
        (in_use.connections.value(), limits.connections),
        (in_use.requests.value(), limits.requests),
        (in_use.pending.value(), limits.pending),
        (in_use.retries.value(), limits.retries),
    ]
}

impl StatSet for BreakerStats {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn value(&self, index: usize) -> Stat<'_> {
        let at = index % 8;
        let reading = self.reading(at);
        if index < 8 {
            let gauge = &self.open[at];
            if let Some((in_use, limit, _)) = reading {
                gauge.set(u64::from(in_use >= limit.into()));
            }
            return Stat::Gauge(gauge);
        }
        let gauge = &self.remaining[at];
        if let Some((in_use, limit, true)) = reading {
            gauge.set(u64::from(limit).saturating_sub(in_use));
        }
        Stat::Tracked(gauge)
    }
}

/// Those that say whether a breaker is open, by priority and resource; then those that say what remains.
const NAMES: [&str; 16] = [
    "default.cx_open",
    "default.rq_open",
    "default.rq_pending_open",
    "default.rq_retry_open",
    "high.cx_open",
    "high.rq_open",
    "high.rq_pending_open",
    "high.rq_retry_open",
    "default.remaining_cx",
    "default.remaining_rq",
    "default.remaining_pending",
    "default.remaining_retries",
    "high.remaining_cx",
    "high.remaining_rq",
    "high.remaining_pending",
    "high.remaining_retries",
];
