//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.ext_proc.…`
    pub(in crate::filter) ExtProcStats {
        Counter clear_route_cache_disabled;
        Counter clear_route_cache_ignored;
        Counter clear_route_cache_upstream_ignored;
        Counter failure_mode_allowed;
        Counter http_not_ok_resp_received;
        Counter immediate_responses_sent;
        Counter message_timeouts;
        Counter override_message_timeout_ignored;
        Counter override_message_timeout_received;
        Counter rejected_header_mutations;
        Counter server_half_closed;
        Counter spurious_msgs_received;
        Counter stream_msgs_received;
        Counter stream_msgs_sent;
        Counter streams_closed;
        Counter streams_failed;
        Counter streams_started;
    }
}
