//! The statistics that this proxy keeps, by Envoy's names. What Envoy has and this proxy cannot keep
//! (HTTP/3, …) is not here, so that nothing is shown that would always be zero.

use towpath_proto::tls::{CipherSuite, Distrust, Fault, Group, Layer, Stapling, Version};

use super::{Stat, StatSet};

/// Declares a set: the kind, the field and, where it differs, the name after the scope's prefix.
macro_rules! stats {
    ($(#[$doc:meta])* $vis:vis $set:ident { $($kind:ident $field:ident $(= $text:literal)?;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        $vis struct $set {
            $(
                #[doc = concat!("`", $crate::stats::stats!(@name $field $($text)?), "`")]
                $vis $field: $crate::stats::$kind,
            )+
        }

        impl $set {
            const NAMES: &[&str] = &[$($crate::stats::stats!(@name $field $($text)?),)+];
            const READ: &[fn(&Self) -> $crate::stats::Stat<'_>] =
                &[$(|set| $crate::stats::Stat::$kind(&set.$field),)+];
        }

        impl $crate::stats::StatSet for $set {
            fn names(&self) -> &'static [&'static str] {
                Self::NAMES
            }

            fn value(&self, index: usize) -> $crate::stats::Stat<'_> {
                Self::READ[index](self)
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $text:literal) => { $text };
}
pub(crate) use stats;

stats! {
    /// `load_reporter.…`: of reports that were wanted and sent.
    pub LoadReporterStats {
        Counter errors;
        Counter requests;
        Counter responses;
        Counter retries;
    }
}

stats! {
    /// `hds_delegate.…`: `requests` are what came from the server, `responses` what was sent to it.
    pub HealthDiscoveryStats {
        Counter errors;
        Counter requests;
        Counter responses;
        Counter updates;
    }
}

stats! {
    /// `access_logs.grpc_access_log.…`
    pub EntryStats {
        Counter grpc_entries_flush_failed;
        Counter grpc_entries_flushed;
        Counter logs_dropped;
        Counter logs_written;
    }
}

stats! {
    /// `access_logs.open_telemetry_access_log.<stat prefix>…`
    pub LogServiceStats {
        Counter logs_dropped;
        Counter logs_written;
    }
}

stats! {
    /// `towpath.stats_sinks.…`
    pub ExportStats {
        Counter messages_dropped;
        Counter messages_sent;
    }
}

stats! {
    /// `cluster.<name>.…`
    pub ClusterStats {
        Codes external_upstream_rq = "external.upstream_rq";
        Histogram external_upstream_rq_time = "external.upstream_rq_time";
        Codes internal_upstream_rq = "internal.upstream_rq";
        Histogram internal_upstream_rq_time = "internal.upstream_rq_time";
        Counter lb_healthy_panic;
        Gauge max_host_weight;
        Counter membership_change;
        Gauge membership_degraded;
        Gauge membership_excluded;
        Gauge membership_healthy;
        Gauge membership_total;
        Counter original_dst_host_invalid;
        Codes retry_upstream_rq = "retry.upstream_rq";
        Counter retry_or_shadow_abandoned;
        Counter update_attempt;
        Counter update_empty;
        Counter update_failure;
        Counter update_no_rebuild;
        Counter update_rejected;
        Counter update_success;
        Gauge upstream_cx_active;
        Counter upstream_cx_close_notify;
        Counter upstream_cx_connect_attempts_exceeded;
        Counter upstream_cx_connect_fail;
        Histogram upstream_cx_connect_ms;
        Counter upstream_cx_connect_timeout;
        Counter upstream_cx_destroy;
        Counter upstream_cx_destroy_local;
        Counter upstream_cx_destroy_local_with_active_rq;
        Counter upstream_cx_destroy_remote;
        Counter upstream_cx_destroy_remote_with_active_rq;
        Counter upstream_cx_destroy_with_active_rq;
        Counter upstream_cx_http1_total;
        Counter upstream_cx_http2_total;
        Counter upstream_cx_idle_timeout;
        Histogram upstream_cx_length_ms;
        Counter upstream_cx_max_duration_reached;
        Counter upstream_cx_max_requests;
        Counter upstream_cx_none_healthy;
        Counter upstream_cx_overflow;
        Counter upstream_cx_pool_overflow;
        Counter upstream_cx_protocol_error;
        Counter upstream_cx_rx_bytes_total;
        Counter upstream_cx_total;
        Gauge upstream_cx_tx_bytes_buffered;
        Counter upstream_cx_tx_bytes_total;
        Counter upstream_flow_control_backed_up_total;
        Counter upstream_flow_control_drained_total;
        Counter upstream_flow_control_paused_reading_total;
        Counter upstream_flow_control_resumed_reading_total;
        Counter upstream_internal_redirect_failed_total;
        Counter upstream_internal_redirect_succeeded_total;
        Codes upstream_rq;
        Gauge upstream_rq_active;
        Counter upstream_rq_active_overflow;
        Counter upstream_rq_cancelled;
        Counter upstream_rq_max_duration_reached;
        Gauge upstream_rq_pending_active;
        Counter upstream_rq_pending_failure_eject;
        Counter upstream_rq_pending_overflow;
        Counter upstream_rq_pending_total;
        Histogram upstream_rq_per_cx;
        Counter upstream_rq_per_try_idle_timeout;
        Counter upstream_rq_per_try_timeout;
        Counter upstream_rq_retry;
        Counter upstream_rq_retry_backoff_exponential;
        Counter upstream_rq_retry_backoff_ratelimited;
        Counter upstream_rq_retry_limit_exceeded;
        Counter upstream_rq_retry_overflow;
        Counter upstream_rq_retry_success;
        Counter upstream_rq_rx_reset;
        Counter upstream_rq_rx_reset_no_error;
        Histogram upstream_rq_time;
        Counter upstream_rq_timeout;
        Counter upstream_rq_total;
        Counter upstream_rq_tx_reset;
        Gauge version;
    }
}

stats! {
    /// `vhost.<name>.vcluster.<name>.…` and `vhost.<name>.route.<stat prefix>.…`
    pub RequestStats {
        Codes upstream_rq;
        Counter upstream_rq_retry;
        Counter upstream_rq_retry_limit_exceeded;
        Counter upstream_rq_retry_overflow;
        Counter upstream_rq_retry_success;
        Histogram upstream_rq_time;
        Counter upstream_rq_timeout;
        Counter upstream_rq_total;
    }
}

stats! {
    /// `cluster.<name>.ssl.…`
    pub TlsStats {
        Counter cipher_ecdsa_aes128 = "ciphers.ECDHE-ECDSA-AES128-GCM-SHA256";
        Counter cipher_ecdsa_aes256 = "ciphers.ECDHE-ECDSA-AES256-GCM-SHA384";
        Counter cipher_ecdsa_chacha20 = "ciphers.ECDHE-ECDSA-CHACHA20-POLY1305";
        Counter cipher_rsa_aes128 = "ciphers.ECDHE-RSA-AES128-GCM-SHA256";
        Counter cipher_rsa_aes256 = "ciphers.ECDHE-RSA-AES256-GCM-SHA384";
        Counter cipher_rsa_chacha20 = "ciphers.ECDHE-RSA-CHACHA20-POLY1305";
        Counter cipher_aes128 = "ciphers.TLS_AES_128_GCM_SHA256";
        Counter cipher_aes256 = "ciphers.TLS_AES_256_GCM_SHA384";
        Counter cipher_chacha20 = "ciphers.TLS_CHACHA20_POLY1305_SHA256";
        Counter connection_error;
        Counter group_p256 = "curves.P-256";
        Counter group_p384 = "curves.P-384";
        Counter group_x25519 = "curves.X25519";
        Counter group_x25519mlkem768 = "curves.X25519MLKEM768";
        Counter fail_verify_cert_hash;
        Counter fail_verify_error;
        Counter fail_verify_no_cert;
        Counter fail_verify_san;
        Counter handshake;
        Counter no_certificate;
        Counter ocsp_staple_failed;
        Counter ocsp_staple_omitted;
        Counter ocsp_staple_requests;
        Counter ocsp_staple_responses;
        Counter session_reused;
        Counter version_tls12 = "versions.TLSv1.2";
        Counter version_tls13 = "versions.TLSv1.3";
    }
}

stats! {
    /// `cluster.<name>.client_ssl_socket_factory.…`
    pub ClientTlsContextStats {
        Counter ssl_context_update_by_sds;
        Counter upstream_context_secrets_not_ready;
    }
}

stats! {
    /// `listener.<address>.server_ssl_socket_factory.…`
    pub ServerTlsContextStats {
        Counter downstream_context_secrets_not_ready;
        Counter ssl_context_update_by_sds;
    }
}

stats! {
    /// `<listener or cluster>.ssl.certificate.<name>.…`
    pub CertificateStats {
        Gauge expiration_unix_time_seconds;
    }
}

stats! {
    /// `cluster.<name>.bolt.…`
    pub ClusterBoltStats {
        Counter heartbeat_failures;
        Counter heartbeats;
        Counter late_answers;
        Counter refused_calls;
        Counter unasked_answers;
    }
}

stats! {
    /// `cluster.<name>.health_check.…`
    pub HealthCheckStats {
        Counter attempt;
        Gauge degraded;
        Counter failure;
        Gauge healthy;
        Counter network_failure;
        Counter success;
        Counter verify_cluster;
    }
}

stats! {
    /// `cluster.<name>.outlier_detection.…`
    pub OutlierStats {
        Gauge active = "ejections_active";
        Counter consecutive_5xx = "ejections_consecutive_5xx";
        Counter detected_consecutive_5xx = "ejections_detected_consecutive_5xx";
        Counter detected_consecutive_gateway = "ejections_detected_consecutive_gateway_failure";
        Counter detected_consecutive_local = "ejections_detected_consecutive_local_origin_failure";
        Counter detected_degradation = "ejections_detected_degradation";
        Counter detected_failure = "ejections_detected_failure_percentage";
        Counter detected_local_failure = "ejections_detected_local_origin_failure_percentage";
        Counter detected_local_success = "ejections_detected_local_origin_success_rate";
        Counter detected_success = "ejections_detected_success_rate";
        Counter enforced_consecutive_5xx = "ejections_enforced_consecutive_5xx";
        Counter enforced_consecutive_gateway = "ejections_enforced_consecutive_gateway_failure";
        Counter enforced_consecutive_local = "ejections_enforced_consecutive_local_origin_failure";
        Counter enforced_failure = "ejections_enforced_failure_percentage";
        Counter enforced_local_failure = "ejections_enforced_local_origin_failure_percentage";
        Counter enforced_local_success = "ejections_enforced_local_origin_success_rate";
        Counter enforced_success = "ejections_enforced_success_rate";
        Counter enforced_total = "ejections_enforced_total";
        Counter overflow = "ejections_overflow";
        Counter success = "ejections_success_rate";
        Counter total = "ejections_total";
    }
}

stats! {
    /// `bolt.<stat prefix>.…`
    pub BoltStats {
        Counter downstream_cx_slow_reader;
        Counter downstream_go_aways;
        Counter downstream_heartbeats;
        Counter downstream_rq_held_overflow;
        Counter downstream_rq_oneway;
    }
}

stats! {
    /// `http.admin.…`
    pub AdminHttpStats {
        Gauge downstream_cx_active;
        Counter downstream_cx_destroy;
        Gauge downstream_cx_http1_active;
        Counter downstream_cx_http1_total;
        Histogram downstream_cx_length_ms;
        Counter downstream_cx_rx_bytes_total;
        Counter downstream_cx_total;
        Counter downstream_cx_tx_bytes_total;
        Counter downstream_rq_1xx;
        Counter downstream_rq_2xx;
        Counter downstream_rq_3xx;
        Counter downstream_rq_4xx;
        Counter downstream_rq_5xx;
        Gauge downstream_rq_active;
        Counter downstream_rq_completed;
        Counter downstream_rq_http1_total;
        Histogram downstream_rq_time;
        Counter downstream_rq_total;
    }
}

stats! {
    /// `listener.admin.…`
    pub AdminListenerStats {
        Gauge downstream_cx_active;
        Counter downstream_cx_destroy;
        Histogram downstream_cx_length_ms;
        Counter downstream_cx_total;
    }
}

stats! {
    /// `http1.…` of clients' connections.
    pub Http1Stats {
        Counter dropped_headers_with_underscores;
        Counter requests_rejected_with_underscores_in_headers;
    }
}

stats! {
    /// `http2.…` of clients' connections, `cluster.<name>.http2.…`
    pub Http2Stats {
        Counter dropped_headers_with_underscores;
        Counter goaway_sent;
        Counter header_list_size_too_large;
        Counter header_overflow;
        Counter inbound_empty_frames_flood;
        Counter inbound_priority_frames_flood;
        Counter inbound_window_update_frames_flood;
        Counter keepalive_timeout;
        Counter outbound_control_flood;
        Counter outbound_flood;
        Counter requests_rejected_with_underscores_in_headers;
        Counter rx_messaging_error;
        Counter rx_reset;
        Counter stream_refused_errors;
        Gauge streams_active;
        Counter trailers;
        Counter tx_flush_timeout;
        Counter tx_reset;
    }
}

stats! {
    /// `cluster.<name>.grpc.<service>.<method>.…`: the statuses first, each at its number.
    pub GrpcStats {
        Counter status_0 = "0";
        Counter status_1 = "1";
        Counter status_2 = "2";
        Counter status_3 = "3";
        Counter status_4 = "4";
        Counter status_5 = "5";
        Counter status_6 = "6";
        Counter status_7 = "7";
        Counter status_8 = "8";
        Counter status_9 = "9";
        Counter status_10 = "10";
        Counter status_11 = "11";
        Counter status_12 = "12";
        Counter status_13 = "13";
        Counter status_14 = "14";
        Counter status_15 = "15";
        Counter status_16 = "16";
        Counter failure;
        Counter request_message_count;
        Counter response_message_count;
        Counter success;
        Counter total;
        Histogram upstream_rq_time;
    }
}

stats! {
    /// `listener.<address>.http.<stat prefix>.…`
    pub ListenerHttpStats {
        Counter downstream_rq_1xx;
        Counter downstream_rq_2xx;
        Counter downstream_rq_3xx;
        Counter downstream_rq_4xx;
        Counter downstream_rq_5xx;
        Counter downstream_rq_completed;
    }
}

stats! {
    /// `listener.<address>.…`
    pub ListenerStats {
        Histogram connections_accepted_per_socket_event;
        Gauge downstream_cx_active;
        Counter downstream_cx_destroy;
        Histogram downstream_cx_length_ms;
        Counter downstream_cx_overflow;
        Counter downstream_cx_overload_reject;
        Counter downstream_cx_total;
        Counter downstream_cx_transport_socket_connect_timeout;
        Counter downstream_global_cx_overflow;
        Counter downstream_listener_filter_error;
        Counter downstream_listener_filter_remote_close;
        Gauge downstream_pre_cx_active;
        Counter downstream_pre_cx_timeout;
        Counter extension_config_missing;
        Counter network_extension_config_missing;
        Counter no_filter_chain_match;
    }
}

stats! {
    /// `listener.<address>.worker_<n>.…`
    pub ListenerWorkerStats {
        Gauge downstream_cx_active;
        Counter downstream_cx_total;
    }
}

stats! {
    /// `tcp.<stat prefix>.…`
    pub TcpStats {
        Counter downstream_cx_drain_close;
        Counter downstream_cx_no_route;
        Counter downstream_cx_rx_bytes_total;
        Counter downstream_cx_total;
        Gauge downstream_cx_tx_bytes_buffered;
        Counter downstream_cx_tx_bytes_total;
        Counter downstream_flow_control_paused_reading_total;
        Counter downstream_flow_control_resumed_reading_total;
        Counter idle_timeout;
        Counter max_downstream_connection_duration;
        Gauge upstream_flush_active;
        Counter upstream_flush_total;
    }
}

stats! {
    /// `listener_manager.…`
    pub ListenerManagerStats {
        Counter listener_added;
        Counter listener_create_failure;
        Counter listener_create_success;
        Counter listener_modified;
        Counter listener_removed;
        Counter listener_stopped;
        Gauge total_listeners_active;
        Gauge total_listeners_draining;
        Gauge total_listeners_warming;
        Gauge workers_started;
    }
}

stats! {
    /// `towpath.config.…`: configurations that were read while another one served.
    pub ConfigStats {
        Counter update_attempt;
        Histogram update_duration;
        Counter update_rejected;
        Counter update_success;
        Gauge update_time;
        Gauge version;
    }
}

stats! {
    /// `cluster_manager.…`
    pub ClusterManagerStats {
        Gauge active_clusters;
        Counter cluster_added;
        Counter cluster_modified;
        Counter cluster_removed;
        Counter cluster_updated;
        Gauge warming_clusters;
    }
}

stats! {
    /// `cluster_manager.cds.…`, `listener_manager.lds.…`, `http.<stat prefix>.rds.<route table>.…`,
    /// `sds.<secret>.…`, `extension_config_discovery.<what>.<name>.…`: what became of resources that were asked for.
    pub DiscoveryStats {
        Counter init_fetch_timeout;
        Counter update_attempt;
        Counter update_failure;
        Counter update_rejected;
        Counter update_success;
        Gauge update_time;
        Gauge version;
    }
}

stats! {
    /// `extension_config_discovery.<what>.<name>.…`, beside what became of the resource itself.
    pub ExtensionStats {
        Counter config_conflict;
        Counter config_fail;
        Counter config_reload;
    }
}

stats! {
    /// `sds.<secret>.…`, beside what became of the secret itself.
    pub RotationStats {
        Counter key_rotation_failed;
    }
}

stats! {
    /// `control_plane.…`
    pub ControlPlaneStats {
        Gauge connected_state;
        Counter rate_limit_enforced;
    }
}

stats! {
    /// `filesystem.…`: the files of access logs.
    pub FilesystemStats {
        Counter flushed_by_timer;
        Counter reopen_failed;
        Counter write_buffered;
        Counter write_completed;
        Counter write_failed;
        Gauge write_total_buffered;
    }
}

stats! {
    /// `runtime.…`
    pub RuntimeStats {
        Gauge admin_overrides_active;
        Counter deprecated_feature_use;
        Counter load_error;
        Counter load_success;
        Gauge num_keys;
        Gauge num_layers;
        Counter override_dir_exists;
        Counter override_dir_not_exists;
    }
}

stats! {
    /// `http.<stat prefix>.tracing.…`
    pub TracingStats {
        Counter client_enabled;
        Counter health_check;
        Counter not_traceable;
        Counter random_sampling;
        Counter service_forced;
    }
}

stats! {
    /// `tracing.zipkin.…`
    pub ZipkinStats {
        Counter reports_dropped;
        Counter reports_failed;
        Counter reports_sent;
        Counter reports_skipped_no_cluster;
        Counter spans_dropped;
        Counter spans_sent;
        Counter timer_flushed;
    }
}

stats! {
    /// `tracing.opentelemetry.…`
    pub OpenTelemetryStats {
        Counter spans_dropped;
        Counter spans_sent;
        Counter timer_flushed;
    }
}

stats! {
    /// `server.…`
    pub ServerStats {
        Gauge concurrency;
        Gauge days_until_first_cert_expiring;
        Counter dynamic_unknown_fields;
        Gauge hot_restart_epoch;
        Histogram initialization_time_ms;
        Gauge live;
        Gauge memory_allocated;
        Gauge memory_heap_size;
        Gauge memory_physical_size;
        Gauge state;
        Counter static_unknown_fields;
        Gauge total_connections;
        Gauge uptime;
        Gauge version;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_cluster_is_small() {
        assert!(size_of::<ClusterStats>() <= 1280, "{}", size_of::<ClusterStats>());
    }

    #[test]
    fn fields_and_names_belong_together() {
        let stats = ClusterStats::default();
        stats.upstream_cx_total.inc();
        stats.membership_healthy.set(7);
        let at = |name| stats.names().iter().position(|known| *known == name).unwrap();
        let Stat::Counter(total) = stats.value(at("upstream_cx_total")) else { panic!() };
        assert_eq!(total.value(), 1);
        let Stat::Gauge(open) = stats.value(at("membership_healthy")) else { panic!() };
        assert_eq!(open.value(), 7);
    }

    #[test]
    fn no_name_is_there_twice() {
        let sets: [&dyn StatSet; 4] = [
            &ClusterStats::default(),
            &super::super::HttpStats::default(),
            &ListenerStats::default(),
            &TcpStats::default(),
        ];
        for set in sets {
            let mut names = set.names().to_vec();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), set.names().len());
        }
    }
}

impl TlsStats {
    /// Counts a handshake that is over.
    pub(crate) fn count_handshake(&self, layer: &Layer) {
        self.handshake.inc();
        if layer.is_resumed() {
            self.session_reused.inc();
        }
        if layer.peer_certificate().is_none() {
            self.no_certificate.inc();
        }
        match layer.version() {
            Some(Version::Tls12) => self.version_tls12.inc(),
            Some(Version::Tls13) => self.version_tls13.inc(),
            None => {}
        }
        self.count_choice("ciphers.", layer.cipher_suite().map(CipherSuite::name));
        self.count_choice("curves.", layer.group().map(Group::name));
    }

    /// Counts what became of a client's question what an authority says of our certificate.
    pub(crate) fn count_stapling(&self, layer: &Layer) {
        let Some(stapling) = layer.stapling() else { return };
        self.ocsp_staple_requests.inc();
        match stapling {
            Stapling::Shown => self.ocsp_staple_responses.inc(),
            Stapling::Omitted => self.ocsp_staple_omitted.inc(),
            Stapling::Failed => self.ocsp_staple_failed.inc(),
        }
    }

    fn count_choice(&self, kind: &str, choice: Option<&str>) {
        let of = |name: &&str| choice.is_some() && name.strip_prefix(kind) == choice;
        let index = Self::NAMES.iter().position(of);
        if let Some(Stat::Counter(counter)) = index.map(|index| self.value(index)) {
            counter.inc();
        }
    }

    /// Counts why there is no TLS. A connection that its peer ends in the handshake is counted as a connection only.
    pub(crate) fn count_fault(&self, fault: Fault) {
        match fault {
            Fault::Certificate(Distrust::Name) => self.fail_verify_san.inc(),
            Fault::Certificate(Distrust::Pin) => self.fail_verify_cert_hash.inc(),
            Fault::Certificate(Distrust::Missing) => self.fail_verify_no_cert.inc(),
            // To BoringSSL a key for something else breaks the protocol.
            Fault::Certificate(Distrust::KeyUsage) => self.connection_error.inc(),
            Fault::Certificate(_) => self.fail_verify_error.inc(),
            Fault::Ended | Fault::Reset => {}
            Fault::Alert(_)
            | Fault::HelloRefused
            | Fault::NotTls
            | Fault::Version
            | Fault::Incompatible
            | Fault::Violation
            | Fault::Decrypt
            | Fault::Time
            | Fault::Internal
            | _ => self.connection_error.inc(),
        }
    }
}

/// Counts a response by its class.
macro_rules! count_response {
    ($($set:ident)+) => {
        $(impl $set {
            /// Counts a finished response; status 0 means that none was sent.
            #[inline]
            pub fn count_response(&self, status: u16) {
                let class = match status / 100 {
                    1 => &self.downstream_rq_1xx,
                    2 => &self.downstream_rq_2xx,
                    3 => &self.downstream_rq_3xx,
                    4 => &self.downstream_rq_4xx,
                    5 => &self.downstream_rq_5xx,
                    _ => return,
                };
                class.inc();
                self.downstream_rq_completed.inc();
            }
        })+
    };
}

pub(super) use count_response;

count_response! { AdminHttpStats ListenerHttpStats }

/// Counts responses in all, and apart those to requests from inside and from outside.
macro_rules! count_by_origin {
    ($($set:ident)+) => {
        $(impl $set {
            /// Counts a response's head.
            #[inline]
            pub fn count_response(&self, status: u16, internal: bool) {
                self.upstream_rq.count(status);
                if internal {
                    self.internal_upstream_rq.count(status);
                } else {
                    self.external_upstream_rq.count(status);
                }
            }

            /// Counts what a response took, in milliseconds.
            #[inline]
            pub fn count_time(&self, took: u64, internal: bool) {
                self.upstream_rq_time.record(took);
                if internal {
                    self.internal_upstream_rq_time.record(took);
                } else {
                    self.external_upstream_rq_time.record(took);
                }
            }
        })+
    };
}

pub(super) use count_by_origin;

count_by_origin! { ClusterStats }

impl ClusterStats {
    /// Counts a connection that ended with a request on it.
    pub fn count_cut(&self, by_peer: bool) {
        self.upstream_cx_destroy_with_active_rq.inc();
        if by_peer {
            self.upstream_cx_destroy_remote_with_active_rq.inc();
        } else {
            self.upstream_cx_destroy_local_with_active_rq.inc();
        }
    }
}
