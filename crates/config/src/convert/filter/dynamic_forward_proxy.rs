//! Requests that go where they say.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::dynamic_forward_proxy::{ForwardProxy, RouteHost};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.dynamic_forward_proxy.v3.PerRouteConfig";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| {
        let cache = converter.dns_cache_of(config)?;
        let by_state = config.flag("allow_dynamic_host_from_filter_state");
        let subs = config.message("sub_cluster_config");
        let within = subs.and_then(|subs| subs.duration("cluster_init_timeout"));
        let within = within.unwrap_or(DEFAULT_WITHIN);
        Some(Arc::new(ForwardProxy { cache, by_state, within }))
    },
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    if config.has("host_rewrite_header") {
        let (name, at) = (config.text("host_rewrite_header"), config.at("host_rewrite_header"));
        let name = converter.header_name(name, at)?;
        return Some(Arc::new(RouteHost::Header(name)));
    }
    Some(Arc::new(RouteHost::Literal(Arc::from(config.text("host_rewrite_literal")))))
}

const DEFAULT_WITHIN: Duration = Duration::from_secs(5);

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "dns_cache_config",
            "allow_dynamic_host_from_filter_state",
            "sub_cluster_config",
        ],
        harmless: &[("save_upstream_address", "nothing that is there reads it")],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.dynamic_forward_proxy.v3.SubClusterConfig",
        honoured: &["cluster_init_timeout"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: ROUTE_TYPE,
        honoured: &["host_rewrite_literal", "host_rewrite_header"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig",
        honoured: &[
            "name",
            "dns_lookup_family",
            "dns_refresh_rate",
            "dns_min_refresh_rate",
            "host_ttl",
            "max_hosts",
            "dns_failure_refresh_rate",
            "dns_cache_circuit_breaker",
            "dns_resolution_config",
            "typed_dns_resolver_config",
            "preresolve_hostnames",
            "dns_query_timeout",
        ],
        harmless: &[],
        changes: &[
            ("disable_dns_refresh_on_failure", "a name that fails is asked for again"),
            ("use_tcp_for_dns_lookups", "DNS is asked over UDP first"),
            ("key_value_config", "names are not kept beyond the process"),
            ("resolved_address_filter", "all addresses are taken"),
        ],
    },
    Entry {
        message: "envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheCircuitBreakers",
        honoured: &["max_pending_requests"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig",
        honoured: &["dns_cache_config", "allow_insecure_cluster_options", "sub_clusters_config"],
        harmless: &[("allow_coalesced_connections", "each name has connections of its own")],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.clusters.dynamic_forward_proxy.v3.SubClustersConfig",
        honoured: &["lb_policy", "max_sub_clusters", "sub_cluster_ttl", "dns_cluster_config"],
        harmless: &[("preresolve_clusters", "Envoy 1.40 does not read it")],
        changes: &[],
    },
];
