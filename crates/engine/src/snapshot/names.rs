//! Names that requests choose, and how their addresses are kept. Envoy's `DnsCacheConfig`, compiled.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::Family;
use super::dns::DnsOptions;

/// Envoy `extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsCache {
    /// `name`: clusters and filters that say it share the addresses.
    pub name: Arc<str>,
    /// `dns_lookup_family`.
    pub family: Family,
    /// `dns_refresh_rate`: how long after a question without an address the next one is asked. Default 60 s.
    pub refresh: Duration,
    /// `dns_min_refresh_rate`: what holds for a shorter time is asked for after this. At least 1 s, default 5 s.
    pub least_refresh: Duration,
    /// `dns_failure_refresh_rate`: base and maximum interval; the refresh rate where not set.
    pub failure_refresh: Option<(Duration, Duration)>,
    /// `host_ttl`: how long a name stays that no request asks for. Default 5 min.
    pub host_ttl: Duration,
    /// `max_hosts`: names at once, at least 1. Default 1024.
    pub max_hosts: u32,
    /// `dns_cache_circuit_breaker.max_pending_requests`: requests that wait for addresses. Default 1024.
    pub max_pending: u32,
    /// `dns_query_timeout`: default 5 s; none waits for the resolver.
    pub query_timeout: Option<Duration>,
    /// `preresolve_hostnames`: names that are asked for before a request does, as `HOST:PORT`.
    pub preresolved: Vec<Arc<str>>,
    /// Whom it asks.
    pub resolver: DnsOptions,
}
