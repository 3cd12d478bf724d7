//! Where a cluster's endpoints come from: the file, or DNS in its two forms.

use std::net::SocketAddr;
use std::time::Duration;

use towpath_engine::snapshot::cluster::{Discovery, Dns, Family};
use towpath_engine::snapshot::dns::DnsOptions;
use towpath_engine::snapshot::happy_eyeballs::HappyEyeballs;

use super::Converter;
use super::aggregate::AGGREGATE;
use super::endpoint::happy_eyeballs;
use super::extension::{CLUSTER_TYPE, DNS_RESOLVER};
use super::forward_proxy::CLUSTER as FORWARD_PROXY;
use crate::message::Message;

const DNS_CLUSTER: &str = "envoy.extensions.clusters.dns.v3.DnsCluster";
const CARES: &str = "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig";
const GETADDRINFO: &str =
    "envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig";

impl Converter<'_> {
    pub(super) fn discovery(
        &mut self,
        bootstrap: &Message,
        cluster: &Message,
    ) -> Option<Discovery> {
        if let Some(custom) = cluster.message("cluster_type") {
            let (config, _) =
                self.extension(custom, CLUSTER_TYPE, &[DNS_CLUSTER, AGGREGATE, FORWARD_PROXY])?;
            if config.descriptor.full_name() == FORWARD_PROXY {
                return self.named_hosts(bootstrap, cluster, config);
            }
            if config.descriptor.full_name() == AGGREGATE {
                return Some(Discovery::Aggregate(self.aggregated(cluster, config)));
            }
            return self.dns_of_type(bootstrap, cluster, config).map(Box::new).map(Discovery::Dns);
        }
        let logical = match cluster.choice("type").as_str() {
            "STATIC" | "EDS" => return Some(Discovery::Static),
            "STRICT_DNS" => false,
            "LOGICAL_DNS" => true,
            "ORIGINAL_DST" => {
                return Some(Discovery::OriginalDestination(self.original_destination(cluster)));
            }
            other => {
                self.report.unsupported(cluster.at("type"), format!("{other} {NO_SUCH_TYPE}"));
                return None;
            }
        };
        self.dns_of_cluster(bootstrap, cluster, logical).map(Box::new).map(Discovery::Dns)
    }

    /// How the sub-clusters of a dynamic forward proxy are resolved.
    pub(super) fn sub_dns(
        &mut self,
        bootstrap: &Message,
        cluster: &Message,
        subs: &Message,
    ) -> Option<Dns> {
        match subs.message("dns_cluster_config") {
            Some(config) => self.dns_of_type(bootstrap, cluster, config),
            None => self.dns_of_cluster(bootstrap, cluster, false),
        }
    }

    /// What a `DnsCluster` says.
    fn dns_of_type(
        &mut self,
        bootstrap: &Message,
        cluster: &Message,
        config: &Message,
    ) -> Option<Dns> {
        let logical = config.flag("all_addresses_in_single_endpoint");
        let family = family(&config.choice("dns_lookup_family"));
        let dns = self.dns(bootstrap, config, logical, family)?;
        Some(Dns { eyeballs: happy_eyeballs(cluster), ..dns })
    }

    /// What a cluster says itself.
    fn dns_of_cluster(
        &mut self,
        bootstrap: &Message,
        cluster: &Message,
        logical: bool,
    ) -> Option<Dns> {
        let family = family(&cluster.choice("dns_lookup_family"));
        let dns = self.dns(bootstrap, cluster, logical, family)?;
        Some(Dns { eyeballs: happy_eyeballs(cluster), ..dns })
    }

    /// The DNS fields, which a cluster and a `DnsCluster` call the same.
    fn dns(
        &mut self,
        bootstrap: &Message,
        config: &Message,
        logical: bool,
        family: Family,
    ) -> Option<Dns> {
        let failure_refresh = self.failure_refresh(config, DEFAULT_REFRESH);
        Some(Dns {
            logical,
            names: Vec::new(),
            refresh: config.duration("dns_refresh_rate").unwrap_or(DEFAULT_REFRESH),
            failure_refresh,
            respect_ttl: config.flag("respect_dns_ttl"),
            jitter: config.duration("dns_jitter").unwrap_or(Duration::ZERO),
            family,
            eyeballs: HappyEyeballs::default(),
            least_refresh: least_refresh(config),
            resolver: self.resolver(bootstrap, config),
        })
    }

    /// The pauses after failures: the base and the maximum.
    pub(super) fn failure_refresh(
        &mut self,
        config: &Message,
        default: Duration,
    ) -> Option<(Duration, Duration)> {
        let rate = config.message("dns_failure_refresh_rate")?;
        let base = rate.duration("base_interval").unwrap_or(default);
        let max = rate.duration("max_interval").unwrap_or(base * 10);
        if max < base {
            self.report.problem(
                rate.at("max_interval"),
                "must be greater than or equal to the base_interval",
            );
        }
        Some((base, max))
    }

    /// The resolver of the cluster, else that of the bootstrap; none means the system's.
    pub(super) fn resolver(&mut self, bootstrap: &Message, config: &Message) -> DnsOptions {
        for holder in [config, bootstrap] {
            let has = |name: &str| {
                holder.descriptor.get_field_by_name(name).is_some() && holder.has(name)
            };
            if has("typed_dns_resolver_config")
                && let Some(typed) = holder.message("typed_dns_resolver_config")
            {
                return self.typed_resolver(typed);
            }
            if has("dns_resolution_config")
                && let Some(resolution) = holder.message("dns_resolution_config")
            {
                let options = DnsOptions::of(self.resolver_addresses(resolution, "resolvers"));
                return with_resolver_options(options, resolution);
            }
            if has("dns_resolvers") {
                let servers = self.resolver_addresses(holder, "dns_resolvers");
                let over_tcp = holder.flag("use_tcp_for_dns_lookups");
                return DnsOptions { over_tcp, ..DnsOptions::of(servers) };
            }
        }
        // That of a cluster is read with its own resolvers only.
        let over_tcp = bootstrap.flag("use_tcp_for_dns_lookups");
        DnsOptions { over_tcp, ..DnsOptions::default() }
    }

    fn typed_resolver(&mut self, typed: &Message) -> DnsOptions {
        match self.extension(typed, DNS_RESOLVER, &[CARES, GETADDRINFO]) {
            Some((config, _)) if config.descriptor.full_name() == CARES => self.cares(config),
            _ => DnsOptions::default(),
        }
    }

    fn cares(&mut self, config: &Message) -> DnsOptions {
        let payload = config.number("edns0_max_payload_size");
        let options = DnsOptions {
            is_fallback: config.flag("use_resolvers_as_fallback"),
            timeout: config.number("query_timeout_seconds").map(Duration::from_secs),
            tries: config.number32("query_tries"),
            rotates: config.flag("rotate_nameservers"),
            payload_bytes: payload.and_then(|bytes| u16::try_from(bytes).ok()),
            only_own_families: config.flag("filter_unroutable_families"),
            ..DnsOptions::of(self.resolver_addresses(config, "resolvers"))
        };
        with_resolver_options(options, config)
    }

    fn resolver_addresses(&mut self, message: &Message, name: &str) -> Vec<SocketAddr> {
        let addresses: Vec<_> = message.messages(name).collect();
        let mut resolvers = Vec::new();
        for address in addresses {
            // Resolvers are asked over UDP, so their addresses may say so.
            let socket = address.message("socket_address");
            match socket.and_then(|socket| self.socket_address(socket)) {
                Some(super::address::Written::Address(address)) => resolvers.extend(address.ip()),
                _ => self.report.problem(&address.at, "a resolver needs an IP address and port"),
            }
        }
        resolvers
    }
}

/// Those of `dns_resolver_options`.
fn with_resolver_options(options: DnsOptions, holder: &Message) -> DnsOptions {
    let Some(more) = holder.message("dns_resolver_options") else { return options };
    let over_tcp = more.flag("use_tcp_for_dns_lookups");
    DnsOptions { over_tcp, no_search: more.flag("no_default_search_domain"), ..options }
}

/// A cluster itself has no such field.
fn least_refresh(config: &Message) -> Duration {
    let field = config.descriptor.get_field_by_name("dns_min_refresh_rate");
    let least = field.and_then(|_| config.duration("dns_min_refresh_rate"));
    least.unwrap_or(Duration::ZERO)
}

pub(super) fn family(name: &str) -> Family {
    match name {
        "V4_ONLY" => Family::V4Only,
        "V6_ONLY" => Family::V6Only,
        "V4_PREFERRED" => Family::V4Preferred,
        "ALL" => Family::All,
        _ => Family::Auto,
    }
}

const DEFAULT_REFRESH: Duration = Duration::from_secs(5);
const NO_SUCH_TYPE: &str =
    "clusters are not there, only STATIC, STRICT_DNS, LOGICAL_DNS, EDS and ORIGINAL_DST";
