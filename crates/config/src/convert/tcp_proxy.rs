//! The TCP proxy filter.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::TcpProxy;
use towpath_engine::snapshot::listener::{TcpHash, TcpLogOptions, Tunneling};
use towpath_engine::snapshot::route::{ClusterChoice, HeaderOps, WeightedCluster};

use super::Converter;
use super::route_action::unless_zero;
use super::subset::criteria;
use crate::message::{Message, Value};

/// By what a TCP proxy hashes its clients.
fn tcp_hash(policy: &Message) -> Option<TcpHash> {
    if policy.has("source_ip") {
        return Some(TcpHash::Source);
    }
    let state = policy.message("filter_state")?;
    Some(TcpHash::State(state.text("key").into()))
}

impl Converter<'_> {
    pub(super) fn tcp_proxy(&mut self, message: &Message) -> Option<TcpProxy> {
        let cluster = self.tcp_cluster(message);
        let access_logs = self.access_logs(message, "access_log");
        Some(TcpProxy {
            stat_prefix: Arc::from(message.text("stat_prefix")),
            cluster: cluster?,
            idle_timeout: unless_zero(
                message.duration("idle_timeout").unwrap_or(DEFAULT_IDLE_TIMEOUT),
            ),
            hash: message.messages("hash_policy").next().and_then(tcp_hash),
            max_duration: message.duration("max_downstream_connection_duration"),
            max_connect_attempts: message.number32("max_connect_attempts").unwrap_or(1),
            criteria: criteria(message, None),
            tunneling: self.tunneling(message),
            tlvs: self.own_tlvs(message),
            access_logs,
            log_options: self.tcp_log_options(message),
        })
    }

    fn tunneling(&mut self, message: &Message) -> Option<Box<Tunneling>> {
        let config = message.message("tunneling_config")?;
        let hostname = self.format(config.text("hostname"), false, config.at("hostname"));
        let path = config.text("post_path");
        let post_path = match (config.flag("use_post"), path) {
            (true, "") => Some(Arc::from(&b"/"[..])),
            (true, path) => Some(Arc::from(path.as_bytes())),
            (false, "") => None,
            (false, _) => {
                self.report.problem(config.at("post_path"), "goes with `use_post: true` only");
                None
            }
        };
        let headers = HeaderOps { remove: Vec::new(), add: self.added(config, "headers_to_add") };
        Some(Box::new(Tunneling { hostname: hostname?, post_path, headers }))
    }

    fn tcp_log_options(&mut self, message: &Message) -> TcpLogOptions {
        const INTERVAL: &str = "access_log_flush_interval";
        const ON_CONNECTED: &str = "flush_access_log_on_connected";
        let Some(options) = message.message("access_log_options") else {
            return TcpLogOptions {
                interval: message.duration(INTERVAL),
                on_connected: message.flag(ON_CONNECTED),
                on_start: false,
            };
        };
        if message.has(INTERVAL) || message.flag(ON_CONNECTED) {
            self.report
                .problem(&options.at, "it says the same twice: the older fields stand beside it");
        }
        TcpLogOptions {
            interval: options.duration(INTERVAL),
            on_connected: options.flag(ON_CONNECTED),
            on_start: options.flag("flush_access_log_on_start"),
        }
    }

    /// A cluster that does not exist is no error to Envoy here: connections are closed while it is missing.
    fn tcp_cluster(&mut self, message: &Message) -> Option<ClusterChoice> {
        let field = message.oneof("cluster_specifier")?;
        match &field.value {
            Value::String(name) => Some(ClusterChoice::One(self.intern(name))),
            Value::Message(weighted) => {
                let wanted = criteria(message, None);
                let mut clusters = Vec::new();
                for entry in weighted.messages("clusters") {
                    let cluster = self.intern(entry.text("name"));
                    let weight = entry.number32("weight").unwrap_or(0);
                    clusters.push(WeightedCluster {
                        criteria: criteria(entry, wanted.as_ref()),
                        ..WeightedCluster::new(cluster, weight)
                    });
                }
                if clusters.iter().all(|cluster| cluster.weight == 0) {
                    return None; // The protos' rules have said so.
                }
                let total = self.total_weight(&clusters, &weighted.at)?;
                Some(ClusterChoice::Weighted { clusters, total, by_hash: false, number: None })
            }
            _ => None,
        }
    }
}

const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
