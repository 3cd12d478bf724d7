//! The statistics of listener and network filters, by Envoy's names; those of HTTP filters are in their folders.

use super::sets::stats;

stats! {
    /// `tls_inspector.…`
    pub TlsInspectorStats {
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
    pub HttpInspectorStats {
        Counter http10_found;
        Counter http11_found;
        Counter http2_found;
        Counter http_not_found;
    }
}

stats! {
    /// `proxy_proto.<stat prefix>.…`: of connections without a header.
    pub ProxyProtocolStats {
        Counter not_found_allowed;
        Counter not_found_disallowed;
    }
}

stats! {
    /// `proxy_proto.<stat prefix>.versions.v<1 or 2>.…`
    pub ProxyProtocolVersionStats {
        Counter disallowed;
        Counter error;
        Counter found;
    }
}

stats! {
    /// `downstream_cx_proxy_proto_error`: of all filters together.
    pub ProxyProtocolErrors {
        Counter all = "";
    }
}

stats! {
    /// `cluster.<name>.upstream.proxyprotocol.…`
    pub ProxyHeaderStats {
        Counter v2_tlvs_exceed_max_length;
    }
}

stats! {
    /// `cluster.<name>.internal_upstream.…`
    pub PassingStats {
        Counter no_metadata;
    }
}

stats! {
    /// `cluster.<name>.…`, of a cluster whose requests are kept in zones.
    pub ZoneStats {
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
    pub SubsetStats {
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
    /// `metadata_exchange.…`: of what sidecars of a mesh tell each other before the bytes of apps.
    pub GreetingStats {
        Counter alpn_protocol_found;
        Counter alpn_protocol_not_found;
        Counter header_not_found;
        Counter initial_header_not_found;
        Counter metadata_added;
    }
}

stats! {
    /// `<stat prefix>.rbac.…`
    pub RbacStats {
        Counter allowed;
        Counter denied;
    }
}

stats! {
    /// The same, of rules that only count.
    pub ShadowRbacStats {
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
