//! `cluster.<name>.circuit_breakers.…`: worked out when they are read, from what all workers have in use.

use std::fmt;
use std::sync::{Mutex, PoisonError, Weak};

use super::{Gauge, Stat, StatSet, Tracked};

/// What has circuit breakers: a cluster.
pub trait Breakers: fmt::Debug + Send + Sync {
    /// What is in use of a resource at a priority, in the order of the names; its limit; whether what remains is shown.
    fn reading(&self, priority: usize, resource: usize) -> (u64, u32, bool);
}

/// The gauges of a cluster's circuit breakers; one set for the process.
#[derive(Debug, Default)]
pub struct BreakerStats {
    cluster: Mutex<Option<Weak<dyn Breakers>>>,
    open: [Gauge; ALL],
    remaining: [Tracked; ALL],
}

impl BreakerStats {
    /// Shows this cluster from here on.
    pub(crate) fn follow(&self, cluster: Weak<dyn Breakers>) {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(cluster);
    }

    fn reading(&self, at: usize) -> Option<(u64, u32, bool)> {
        // Not held while the cluster is asked: a worker that makes one takes it.
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(cluster?.upgrade()?.reading(at / RESOURCES, at % RESOURCES))
    }
}

impl StatSet for BreakerStats {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn value(&self, index: usize) -> Stat<'_> {
        let at = index % ALL;
        let reading = self.reading(at);
        if index < ALL {
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

/// What is limited at each of two priorities.
const RESOURCES: usize = 5;
const ALL: usize = 2 * RESOURCES;

/// Those that say whether a breaker is open, by priority and resource; then those that say what remains.
const NAMES: [&str; 2 * ALL] = [
    "default.cx_open",
    "default.rq_open",
    "default.rq_pending_open",
    "default.rq_retry_open",
    "default.cx_pool_open",
    "high.cx_open",
    "high.rq_open",
    "high.rq_pending_open",
    "high.rq_retry_open",
    "high.cx_pool_open",
    "default.remaining_cx",
    "default.remaining_rq",
    "default.remaining_pending",
    "default.remaining_retries",
    "default.remaining_cx_pools",
    "high.remaining_cx",
    "high.remaining_rq",
    "high.remaining_pending",
    "high.remaining_retries",
    "high.remaining_cx_pools",
];
