//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.health_check.…`
    pub(in crate::filter) HealthCheckFilterStats {
        Counter cached_response;
        Counter degraded;
        Counter failed;
        Counter failed_cluster_empty;
        Counter failed_cluster_not_found;
        Counter failed_cluster_unhealthy;
        Counter ok;
        Counter request_total;
    }
}
