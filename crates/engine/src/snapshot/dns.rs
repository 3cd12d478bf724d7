//! Whom names are asked of, and how. Envoy's `CaresDnsResolverConfig`, compiled.

use std::net::SocketAddr;
use std::time::Duration;

/// How a cluster or a DNS cache asks for names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DnsOptions {
    /// Name servers; empty means the system's.
    pub servers: Vec<SocketAddr>,
    /// `use_resolvers_as_fallback`: they are asked only where the system has none.
    pub is_fallback: bool,
    /// `query_timeout_seconds`: how long each attempt of a question may take; without it the system's.
    pub timeout: Option<Duration>,
    /// `query_tries`: how often a question is asked, at least once; without it the system's.
    pub tries: Option<u32>,
    /// `rotate_nameservers`: servers take turns.
    pub rotates: bool,
    /// `edns0_max_payload_size`: how large an answer over UDP may be, 512 to 4096.
    pub payload_bytes: Option<u16>,
    /// `use_tcp_for_dns_lookups`.
    pub over_tcp: bool,
    /// `no_default_search_domain`: names are asked for as they are written.
    pub no_search: bool,
    /// `filter_unroutable_families`: addresses of a family are not asked for where no interface has one.
    pub only_own_families: bool,
}

impl DnsOptions {
    /// Of these servers, with all else as it is when nothing is said.
    #[must_use]
    pub fn of(servers: Vec<SocketAddr>) -> Self {
        Self { servers, ..Self::default() }
    }
}
