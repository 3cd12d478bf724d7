//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `<stat prefix>.http_bandwidth_limit.…`
    pub(in crate::filter) BandwidthLimitStats {
        Gauge request_allowed_size;
        Counter request_allowed_total_size;
        Counter request_enabled;
        Counter request_enforced;
        Gauge request_incoming_size;
        Counter request_incoming_total_size;
        Gauge request_pending;
        Histogram request_transfer_duration;
        Gauge response_allowed_size;
        Counter response_allowed_total_size;
        Counter response_enabled;
        Counter response_enforced;
        Gauge response_incoming_size;
        Counter response_incoming_total_size;
        Gauge response_pending;
        Histogram response_transfer_duration;
    }
}
