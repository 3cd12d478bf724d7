//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `cluster.<name>.ratelimit.…`, and the filter's stat prefix.
    pub(in crate::filter) RateLimitStats {
        Counter error;
        Counter failure_mode_allowed;
        Counter ok;
        Counter over_limit;
    }
}
