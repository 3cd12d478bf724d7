//! The TCP proxy filter.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::TcpProxy;
use towpath_engine::snapshot::listener::{
    TcpConnects, TcpHash, TcpLogOptions, TunnelId, Tunneling,
};
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
            duration_jitter: message
                .message("max_downstream_connection_duration_jitter_percentage")
                .and_then(|percent| percent.float("value"))
                .map_or(0.0, |percent| percent / 100.0),
            max_connect_attempts: message.number32("max_connect_attempts").unwrap_or(1),
            connects: self.tcp_connects(message),
            criteria: criteria(message, None),
            tunneling: self.tunneling(message),
            tlvs: self.own_tlvs(message),
            access_logs,
            log_options: self.tcp_log_options(message),
        })
    }

    fn tcp_connects(&mut self, message: &Message) -> TcpConnects {
        let mode = message.choice("upstream_connect_mode");
        let early_data = message.number32("max_early_data_bytes").map(|most| most as usize);
        if mode != "IMMEDIATE" && early_data.is_none() {
            let text =
                "max_early_data_bytes must be set when upstream_connect_mode is not IMMEDIATE";
            self.report.problem(message.at("upstream_connect_mode"), text);
        }
        TcpConnects {
            back_off: message.message("backoff_options").and_then(|options| {
                let base = options.duration("base_interval")?;
                let most = options.duration("max_interval").unwrap_or(base * 10);
                if most < base {
                    let text =
                        "max_backoff_interval must be greater or equal to base_backoff_interval";
                    self.report.problem(options.at("max_interval"), text);
                }
                Some((base, most))
            }),
            on_data: mode == "ON_DOWNSTREAM_DATA",
            early_data,
        }
    }

    /// A `request_id_extension` of a tunnel, with what is said of it beside that.
    fn tunnel_id(&mut self, config: &Message) -> Option<TunnelId> {
        let extension = config.message("request_id_extension")?;
        self.extension_without_name(extension);
        extension.any("typed_config")?;
        let header = match config.text("request_id_header") {
            "" => "x-request-id",
            header => header,
        };
        let key = match config.text("request_id_metadata_key") {
            "" => "tunnel_request_id",
            key => key,
        };
        let header =
            self.header_name(&header.to_ascii_lowercase(), config.at("request_id_header"))?;
        Some(TunnelId { header, key: key.into() })
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
        self.formatters(config);
        Some(Box::new(Tunneling {
            hostname: hostname?,
            post_path,
            headers,
            keeps_head: config.flag("propagate_response_headers"),
            keeps_trailers: config.flag("propagate_response_trailers"),
            request_id: self.tunnel_id(config),
        }))
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
