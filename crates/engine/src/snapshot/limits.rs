//! How much of a cluster may be in use, and how much is: Envoy's `CircuitBreakers`.

use std::time::Duration;

use super::Cluster;
use crate::stats::Breakers;
use crate::total::{Recent, Total};

/// What all workers together use of a cluster, for its circuit breakers: not configuration, but it ends with it.
#[derive(Debug, Default)]
pub struct InUse {
    /// Connections, with those that are being opened.
    pub connections: Total,
    /// Requests that wait for a connection.
    pub pending: Total,
    /// Requests on connections.
    pub requests: Total,
    /// Retries.
    pub retries: Total,
    /// Pools of connections for requests, where they are limited.
    pub pools: Total,
    /// Requests that began of late, where a retry budget goes by them.
    pub recent: Recent,
}

/// Envoy `CircuitBreakers.Thresholds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `max_connections`: default 1024.
    pub connections: u32,
    /// `max_pending_requests`: default 1024.
    pub pending: u32,
    /// `max_requests`: default 1024.
    pub requests: u32,
    /// `max_retries`: default 3.
    pub retries: u32,
    /// `max_connection_pools`: no limit by default.
    pub pools: u32,
    /// `retry_budget`: percent of the active requests in hundredths, and the least number of retries.
    pub retry_budget: Option<(u32, u32)>,
    /// `retry_budget.budget_interval`: the percentage is of the requests that began within it.
    pub budget_interval: Option<Duration>,
    /// `track_remaining`: whether `remaining_*` gauges are kept.
    pub track_remaining: bool,
}

impl Limits {
    /// There is no limit of pools.
    pub const NONE: u32 = u32::MAX;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            pending: 1024,
            requests: 1024,
            retries: 3,
            pools: Self::NONE,
            retry_budget: None,
            budget_interval: None,
            track_remaining: false,
        }
    }
}

/// The place of pools among what is limited.
const POOLS: usize = 4;

impl Breakers for Cluster {
    fn reading(&self, priority: usize, resource: usize) -> (u64, u32, bool) {
        let limits = [&self.limits, &self.high_limits][priority];
        let in_use = &self.in_use[priority];
        let (in_use, limit) = [
            (in_use.connections.value(), limits.connections),
            (in_use.requests.value(), limits.requests),
            (in_use.pending.value(), limits.pending),
            (in_use.retries.value(), limits.retries),
            (in_use.pools.value(), limits.pools),
        ][resource];
        // Of pools that are not limited none is counted, and nothing remains.
        let is_counted = resource != POOLS || limits.pools != Limits::NONE;
        (in_use, limit, limits.track_remaining && is_counted)
    }
}
