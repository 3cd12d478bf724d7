//! The statistics of HTTP connection managers, by Envoy's names.

use super::sets::{count_response, stats};

stats! {
    /// `http.<stat prefix>.…`
    pub HttpStats {
        Gauge downstream_cx_active;
        Counter downstream_cx_delayed_close_timeout;
        Counter downstream_cx_destroy;
        Counter downstream_cx_destroy_active_rq;
        Counter downstream_cx_destroy_local;
        Counter downstream_cx_destroy_remote;
        Counter downstream_cx_destroy_remote_active_rq;
        Counter downstream_cx_drain_close;
        Gauge downstream_cx_http1_active;
        Counter downstream_cx_http1_total;
        Gauge downstream_cx_http2_active;
        Counter downstream_cx_http2_total;
        Counter downstream_cx_idle_timeout;
        Histogram downstream_cx_length_ms;
        Counter downstream_cx_max_duration_reached;
        Counter downstream_cx_max_requests_reached;
        Counter downstream_cx_overload_disable_keepalive;
        Counter downstream_cx_protocol_error;
        Counter downstream_cx_rx_bytes_total;
        Gauge downstream_cx_ssl_active;
        Counter downstream_cx_ssl_total;
        Counter downstream_cx_total;
        Gauge downstream_cx_tx_bytes_buffered;
        Counter downstream_cx_tx_bytes_total;
        Gauge downstream_cx_upgrades_active;
        Counter downstream_cx_upgrades_total;
        Counter downstream_flow_control_paused_reading_total;
        Counter downstream_flow_control_resumed_reading_total;
        Counter downstream_rq_1xx;
        Counter downstream_rq_2xx;
        Counter downstream_rq_3xx;
        Counter downstream_rq_4xx;
        Counter downstream_rq_5xx;
        Gauge downstream_rq_active;
        Counter downstream_rq_completed;
        Counter downstream_rq_failed_path_normalization;
        Counter downstream_rq_header_timeout;
        Counter downstream_rq_http1_total;
        Counter downstream_rq_http2_total;
        Counter downstream_rq_idle_timeout;
        Counter downstream_rq_max_duration_reached;
        Counter downstream_rq_non_relative_path;
        Counter downstream_rq_overload_close;
        Counter downstream_rq_redirected_with_normalized_path;
        Counter downstream_rq_rejected_via_ip_detection;
        Counter downstream_rq_response_before_rq_complete;
        Counter downstream_rq_rx_reset;
        Histogram downstream_rq_time;
        Counter downstream_rq_timeout;
        Counter downstream_rq_too_large;
        Counter downstream_rq_total;
        Counter downstream_rq_tx_reset;
        Counter downstream_rq_ws_on_non_ws_route;
        Counter no_cluster;
        Counter no_route;
        Counter passthrough_internal_redirect_bad_location;
        Counter passthrough_internal_redirect_no_route;
        Counter passthrough_internal_redirect_predicate;
        Counter passthrough_internal_redirect_too_many_redirects;
        Counter passthrough_internal_redirect_unsafe_scheme;
        Counter rq_direct_response;
        Counter rq_overload_local_reply;
        Counter rq_reset_after_downstream_response_started;
        Counter rq_total;
        Counter rs_too_large;
    }
}

count_response! { HttpStats }

stats! {
    /// `http.async-client.…`: of requests of filters, logs and tracers.
    pub AsyncClientStats {
        Counter rq_reset_after_downstream_response_started;
        Counter rq_total;
    }
}
