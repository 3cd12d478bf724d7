//! The dynamic forward proxy: DNS caches, and clusters and filters that say one.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::cluster::{AskedNames, Balancing, Discovery, Family, SubClusters};
use towpath_engine::snapshot::names::DnsCache;

use super::Converter;
use super::dns::family;
use crate::error::Rank;
use crate::message::Message;

pub(super) const CLUSTER: &str = "envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig";

impl Converter<'_> {
    /// A cluster whose hosts are the names that requests choose.
    pub(super) fn named_hosts(
        &mut self,
        bootstrap: &Message,
        cluster: &Message,
        config: &Message,
    ) -> Option<Discovery> {
        if cluster.has("load_assignment") {
            let text = "cluster type 'envoy.clusters.dynamic_forward_proxy' has no endpoints of \
                        its own: requests name them";
            self.report.finding(cluster.at("load_assignment"), Rank::Harmless, text);
        }
        for own in ["health_checks", "outlier_detection"] {
            if cluster.has(own) {
                let text = "names that requests choose are not watched";
                self.report.unsupported(cluster.at(own), text);
            }
        }
        let Some(subs) = config.message("sub_clusters_config") else {
            return self.dns_cache_of(config).map(Discovery::Named);
        };
        // Envoy has a cache without a name here too, which nothing asks.
        self.dns_cache_of(config)?;
        let balancing = self.sub_balancing(cluster, subs)?;
        let stat_name = cluster.text("alt_stat_name");
        Some(Discovery::SubClusters(Box::new(SubClusters {
            most: subs.number32("max_sub_clusters").unwrap_or(DEFAULT_MOST),
            ttl: subs.duration("sub_cluster_ttl").unwrap_or(DEFAULT_TTL),
            balancing,
            dns: self.sub_dns(bootstrap, cluster, subs)?,
            stat_name: (!stat_name.is_empty()).then(|| Arc::from(stat_name.replace(':', "_"))),
        })))
    }

    /// How each sub-cluster chooses among the addresses of its name.
    fn sub_balancing(&mut self, cluster: &Message, subs: &Message) -> Option<Balancing> {
        if cluster.has("load_balancing_policy") {
            let text =
                "sub-clusters are made with it in Envoy, which then fails: write `lb_policy`";
            self.report.unsupported(cluster.at("load_balancing_policy"), text);
            return None;
        }
        match subs.choice("lb_policy").as_str() {
            "CLUSTER_PROVIDED" => {
                let text = "unsupported lb_policy 'CLUSTER_PROVIDED' in sub_cluster_config";
                self.report.problem(subs.at("lb_policy"), text);
                None
            }
            "LOAD_BALANCING_POLICY_CONFIG" => {
                let text = "no sub-cluster can be made with it in Envoy";
                self.report.unsupported(subs.at("lb_policy"), text);
                None
            }
            _ => self.balancing_of_names(cluster, subs),
        }
    }

    /// The names that requests to such a cluster ask for by TLS, unless it says otherwise: their own.
    pub(super) fn names_asked(
        &mut self,
        cluster: &Message,
        asked: Option<AskedNames>,
        has_options: bool,
    ) -> Option<AskedNames> {
        let config = cluster.message("cluster_type").and_then(|it| it.any("typed_config"));
        let Some(config) = config.and_then(|(any, _)| {
            any.message.as_ref().filter(|it| it.descriptor.full_name() == CLUSTER)
        }) else {
            return asked;
        };
        let asked = match asked {
            None if !has_options => Some(AskedNames { sni: true, certified: true, field: None }),
            other => other,
        };
        let is_safe = asked.as_ref().is_some_and(|names| names.sni && names.certified);
        if !is_safe && !config.flag("allow_insecure_cluster_options") {
            let text = "dynamic_forward_proxy cluster must have auto_sni and auto_san_validation \
                        true unless allow_insecure_cluster_options is set.";
            self.report.problem(&config.at, text);
        }
        asked
    }

    /// The DNS cache that a cluster or filter says: its name.
    pub(super) fn dns_cache_of(&mut self, config: &Message) -> Option<Arc<str>> {
        let in_place = ["sub_clusters_config", "sub_cluster_config"];
        let has_other = in_place
            .iter()
            .any(|name| config.descriptor.get_field_by_name(name).is_some() && config.has(name));
        if has_other {
            return Some(self.unnamed_cache());
        }
        let Some(config) = config.message("dns_cache_config") else {
            let text = "a DNS cache is needed: write `dns_cache_config`";
            self.report.unsupported(&config.at, text);
            return None;
        };
        let cache = self.dns_cache(config);
        let known = self.snapshot.dns_caches.iter().find(|known| known.name == cache.name);
        match known.map(|known| **known == cache) {
            Some(true) => {}
            Some(false) => {
                let name = &cache.name;
                let text = format!("config specified DNS cache '{name}' with different settings");
                self.report.problem(&config.at, text);
                return None;
            }
            None => self.snapshot.dns_caches.push(Arc::new(cache.clone())),
        }
        Some(cache.name)
    }

    /// The cache of what says none: Envoy makes one with nothing set.
    fn unnamed_cache(&mut self) -> Arc<str> {
        let name: Arc<str> = Arc::from("");
        if !self.snapshot.dns_caches.iter().any(|known| known.name == name) {
            let bootstrap = self.message;
            let resolver = self.resolver(bootstrap, bootstrap);
            self.snapshot.dns_caches.push(Arc::new(DnsCache {
                name: Arc::clone(&name),
                family: Family::default(),
                refresh: DEFAULT_REFRESH,
                least_refresh: DEFAULT_LEAST_REFRESH,
                failure_refresh: None,
                host_ttl: DEFAULT_HOST_TTL,
                max_hosts: DEFAULT_MOST,
                max_pending: DEFAULT_MOST,
                query_timeout: Some(DEFAULT_QUERY_TIMEOUT),
                preresolved: Vec::new(),
                resolver,
            }));
        }
        name
    }

    fn dns_cache(&mut self, config: &Message) -> DnsCache {
        let duration = |name, default| config.duration(name).unwrap_or(default);
        let bootstrap = self.message;
        let refresh = duration("dns_refresh_rate", DEFAULT_REFRESH);
        let least_refresh = duration("dns_min_refresh_rate", DEFAULT_LEAST_REFRESH);
        let failure_refresh = self.failure_refresh(config, refresh);
        let query_timeout = duration("dns_query_timeout", DEFAULT_QUERY_TIMEOUT);
        let breaker = config.message("dns_cache_circuit_breaker");
        let pending = breaker.and_then(|it| it.number32("max_pending_requests"));
        let preresolved: Vec<_> = config
            .messages("preresolve_hostnames")
            .map(|socket| {
                let port = socket.number("port_value").unwrap_or(0);
                Arc::from(format!("{}:{port}", socket.text("address")))
            })
            .collect();
        DnsCache {
            name: Arc::from(config.text("name")),
            family: family(&config.choice("dns_lookup_family")),
            refresh,
            least_refresh,
            failure_refresh,
            host_ttl: duration("host_ttl", DEFAULT_HOST_TTL),
            max_hosts: config.number32("max_hosts").unwrap_or(DEFAULT_MOST),
            max_pending: pending.unwrap_or(DEFAULT_MOST),
            query_timeout: (!query_timeout.is_zero()).then_some(query_timeout),
            preresolved,
            resolver: self.resolver(bootstrap, config),
        }
    }
}

const DEFAULT_REFRESH: Duration = Duration::from_secs(60);
const DEFAULT_LEAST_REFRESH: Duration = Duration::from_secs(5);
const DEFAULT_HOST_TTL: Duration = Duration::from_secs(300);
const DEFAULT_QUERY_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_MOST: u32 = 1024;
const DEFAULT_TTL: Duration = Duration::from_secs(300);
