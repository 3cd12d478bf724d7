//! The statistics of DNS caches.

use std::sync::atomic::{AtomicU32, Ordering};

use super::sets::stats;
use super::{Gauge, Stat, StatSet};
use crate::total::Total;

stats! {
    /// `dns_cache.<name>.…`
    pub DnsCacheStats {
        Counter cache_load;
        Counter dns_address_filter_out;
        Counter dns_query_attempt;
        Counter dns_query_failure;
        Counter dns_query_success;
        Counter dns_query_timeout;
        Counter dns_rq_pending_overflow;
        Counter host_added;
        Counter host_address_changed;
        Counter host_overflow;
        Counter host_removed;
        Gauge num_hosts;
    }
}

/// `dns_cache.<name>.circuit_breakers.…`: what all workers have of a cache; one set for the process.
#[derive(Debug, Default)]
pub struct DnsCacheBreakerStats {
    /// Requests that wait for addresses.
    pub(crate) pending: Total,
    /// Names that are kept or asked for.
    pub(crate) hosts: Total,
    limit: AtomicU32,
    open: Gauge,
    remaining: Gauge,
}

impl DnsCacheBreakerStats {
    /// How many requests may wait, from here on.
    pub(crate) fn limit(&self, most: u32) {
        self.limit.store(most, Ordering::Relaxed);
    }

    /// One more waits, if it may.
    pub(crate) fn begin(&self) -> bool {
        let limit = u64::from(self.limit.load(Ordering::Relaxed));
        let may = self.pending.add(1) < limit;
        if !may {
            self.pending.sub(1);
        }
        may
    }
}

impl StatSet for DnsCacheBreakerStats {
    fn names(&self) -> &'static [&'static str] {
        &["rq_pending_open", "rq_pending_remaining"]
    }

    fn value(&self, index: usize) -> Stat<'_> {
        let (limit, pending) =
            (u64::from(self.limit.load(Ordering::Relaxed)), self.pending.value());
        if index == 0 {
            self.open.set(u64::from(pending >= limit));
            return Stat::Gauge(&self.open);
        }
        self.remaining.set(limit.saturating_sub(pending));
        Stat::Gauge(&self.remaining)
    }
}
