//! The statistics of filters, by Envoy's names.

use super::sets::stats;
use super::{Counter, Gauge, Histogram, Stat, StatSet};

stats! {
    /// `tls_inspector.…`
    TlsInspectorStats {
        Counter alpn_found;
        Counter alpn_not_found;
        Histogram bytes_processed;
        Counter client_hello_too_large;
        Counter sni_found;
        Counter sni_not_found;
        Counter tls_found;
        Counter tls_not_found;
    }
}

stats! {
    /// `http_inspector.…`
    HttpInspectorStats {
        Counter http10_found;
        Counter http11_found;
        Counter http2_found;
        Counter http_not_found;
    }
}

stats! {
    /// `proxy_proto.<stat prefix>.…`: of connections without a header.
    ProxyProtocolStats {
        Counter not_found_allowed;
        Counter not_found_disallowed;
    }
}

stats! {
    /// `proxy_proto.<stat prefix>.versions.v<1 or 2>.…`
    ProxyProtocolVersionStats {
        Counter disallowed;
        Counter error;
        Counter found;
    }
}

stats! {
    /// `downstream_cx_proxy_proto_error`: of all filters together.
    ProxyProtocolErrors {
        Counter all = "";
    }
}

stats! {
    /// `cluster.<name>.upstream.proxyprotocol.…`
    ProxyHeaderStats {
        Counter v2_tlvs_exceed_max_length;
    }
}

stats! {
    /// `listener_local_ratelimit.<stat prefix>.…`, and `local_rate_limit.<stat prefix>.…`
    ConnectionRateStats {
        Counter rate_limited;
    }
}

stats! {
    /// `<stat prefix>.http_local_rate_limit.…`
    LocalRateLimitStats {
        Counter enabled;
        Counter enforced;
        Counter ok;
        Counter rate_limited;
    }
}

stats! {
    /// `cluster.<name>.ratelimit.…`, and the filter's stat prefix.
    RateLimitStats {
        Counter error;
        Counter failure_mode_allowed;
        Counter ok;
        Counter over_limit;
    }
}

stats! {
    /// `http_filter_name.<stat prefix>.…`
    HeaderToMetadataStats {
        Counter base64_decode_failed;
        Counter header_value_too_long;
        Counter regex_substitution_failed;
        Counter request_header_not_found;
        Counter request_metadata_added;
        Counter request_rules_processed;
        Counter response_header_not_found;
        Counter response_metadata_added;
        Counter response_rules_processed;
    }
}

stats! {
    /// `cluster.<name>.…`, of a cluster whose requests are kept in zones.
    ZoneStats {
        Counter lb_local_cluster_not_ok;
        Counter lb_recalculate_zone_structures;
        Counter lb_zone_cluster_too_small;
        Counter lb_zone_no_capacity_left;
        Counter lb_zone_routing_all_directly;
        Counter lb_zone_routing_cross_zone;
        Counter lb_zone_routing_sampled;
    }
}

stats! {
    /// `cluster.<name>.…`, of a cluster that has subsets.
    SubsetStats {
        Gauge lb_subsets_active;
        Counter lb_subsets_created;
        Counter lb_subsets_fallback;
        Counter lb_subsets_fallback_panic;
        Counter lb_subsets_removed;
        Counter lb_subsets_selected;
        Gauge lb_subsets_single_host_per_subset_duplicate;
    }
}

stats! {
    /// `http.<stat prefix>.set_metadata.…`
    SetMetadataStats {
        Counter overwrite_denied;
    }
}

stats! {
    /// `metadata_exchange.…`: of what sidecars of a mesh tell each other before the bytes of apps.
    GreetingStats {
        Counter alpn_protocol_found;
        Counter alpn_protocol_not_found;
        Counter header_not_found;
        Counter initial_header_not_found;
        Counter metadata_added;
    }
}

stats! {
    /// `http.<stat prefix>.health_check.…`
    HealthCheckFilterStats {
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

stats! {
    /// `http.<stat prefix>.csrf.…`
    CsrfStats {
        Counter missing_source_origin;
        Counter request_invalid;
        Counter request_valid;
    }
}

stats! {
    /// `http.<stat prefix>.compressor.<library>.<coding>.request.…`, and of responses.
    CompressorStats {
        Counter compressed;
        Counter content_length_too_small;
        Counter not_compressed;
        Counter total_compressed_bytes;
        Counter total_uncompressed_bytes;
    }
}

stats! {
    /// `http.<stat prefix>.compressor.<library>.<coding>.…`
    CompressorResponseStats {
        Counter header_compressor_overshadowed;
        Counter header_compressor_used;
        Counter header_identity;
        Counter header_not_valid;
        Counter header_wildcard;
        Counter no_accept_header;
        Counter not_compressed_etag;
    }
}

stats! {
    /// `http.<stat prefix>.decompressor.<library>.<coding>.request.…`, and of responses.
    DecompressorStats {
        Counter decompressed;
        Counter not_decompressed;
        Counter total_compressed_bytes;
        Counter total_uncompressed_bytes;
    }
}

stats! {
    /// `http.<stat prefix>.decompressor.<library>.gzip.decompressor_library.…`
    ZlibStats {
        Counter zlib_data_error;
        Counter zlib_mem_error;
    }
}

stats! {
    /// `http.<stat prefix>.decompressor.<library>.brotli.decompressor_library.…`
    BrotliStats {
        Counter brotli_error;
    }
}

stats! {
    /// `http.<stat prefix>.decompressor.<library>.zstd.decompressor_library.…`
    ZstdStats {
        Counter zstd_checksum_wrong_error;
        Counter zstd_dictionary_error;
        Counter zstd_generic_error;
        Counter zstd_memory_error;
    }
}

stats! {
    /// `http.<stat prefix>.ext_authz.…` and `cluster.<name>.ext_authz.…`
    ExtAuthzStats {
        Counter denied;
        Counter disabled;
        Counter error;
        Counter failure_mode_allowed;
        Counter ignored_dynamic_metadata;
        Counter invalid;
        Counter ok;
    }
}

stats! {
    /// `http.<stat prefix>.ext_proc.…`
    ExtProcStats {
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

stats! {
    /// `<stat prefix>.http_bandwidth_limit.…`
    BandwidthLimitStats {
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

stats! {
    /// `http.<stat prefix>.transcoder_…`
    TranscoderStats {
        Gauge transcoder_request_buffer_bytes;
        Gauge transcoder_response_buffer_bytes;
    }
}

stats! {
    /// `http.<stat prefix>.api_key_auth.…`
    ApiKeyAuthStats {
        Counter allowed;
        Counter forbidden;
        Counter unauthorized;
    }
}

stats! {
    /// `http.<stat prefix>.basic_auth.…`
    BasicAuthStats {
        Counter allowed;
        Counter denied;
    }
}

stats! {
    /// `http.<stat prefix>.fault.…`
    FaultStats {
        Counter aborts_injected;
        Gauge active_faults;
        Counter delays_injected;
        Counter faults_overflow;
        Counter response_rl_injected;
    }
}

stats! {
    /// `http.<stat prefix>.fault.<downstream cluster>.…`
    FaultClusterStats {
        Counter aborts_injected;
        Counter delays_injected;
    }
}

stats! {
    /// `http.<stat prefix>.lua.…`, and the filter's stat prefix.
    LuaStats {
        Counter errors;
        Counter executions;
    }
}

stats! {
    /// `http.<stat prefix>.jwt_authn.…`
    JwtAuthnStats {
        Counter allowed;
        Counter cors_preflight_bypassed;
        Counter denied;
        Counter jwks_fetch_failed;
        Counter jwks_fetch_success;
        Counter jwt_cache_hit;
        Counter jwt_cache_miss;
    }
}

stats! {
    /// `http.<stat prefix>.stateful_session.…`
    StatefulSessionStats {
        Counter failed_closed;
        Counter failed_open;
        Counter no_session;
        Counter routed;
    }
}

stats! {
    /// `http.<stat prefix>.…`, and the filter's stat prefix.
    OAuth2Stats {
        Counter oauth_allow_failed_passthrough;
        Counter oauth_failure;
        Counter oauth_legacy_cbc_decrypt;
        Counter oauth_passthrough;
        Counter oauth_refreshtoken_failure;
        Counter oauth_refreshtoken_success;
        Counter oauth_success;
        Counter oauth_unauthorized_rq;
    }
}

stats! {
    /// `http.<stat prefix>.credential_injector.…`, or of a cluster.
    CredentialInjectorStats {
        Counter already_exists;
        Counter failed;
        Counter injected;
    }
}

stats! {
    /// `http.<stat prefix>.cors.…`
    CorsStats {
        Counter origin_invalid;
        Counter origin_valid;
    }
}

stats! {
    /// `<stat prefix>.rbac.…`
    RbacStats {
        Counter allowed;
        Counter denied;
    }
}

stats! {
    /// The same, of rules that only count.
    ShadowRbacStats {
        Counter shadow_allowed;
        Counter shadow_denied;
    }
}

impl RbacStats {
    /// Counts what rules say.
    pub(crate) fn count(&self, is_allowed: bool) {
        let counter = if is_allowed { &self.allowed } else { &self.denied };
        counter.inc();
    }
}

impl ShadowRbacStats {
    /// Counts what rules say.
    pub(crate) fn count(&self, is_allowed: bool) {
        let counter = if is_allowed { &self.shadow_allowed } else { &self.shadow_denied };
        counter.inc();
    }
}
