//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `<stat prefix>.http_local_rate_limit.…`
    pub(in crate::filter) LocalRateLimitStats {
        Counter enabled;
        Counter enforced;
        Counter ok;
        Counter rate_limited;
    }
}
