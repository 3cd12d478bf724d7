//! Routes that forward: which cluster, what is rewritten, how long, how often.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::ClusterId;
use towpath_engine::snapshot::http::{ConnectConfig, Upgrade};
use towpath_engine::snapshot::route::{
    ClusterChoice, Forward, GrpcTimeout, HostRewrite, Mirror, MirrorCluster, PathMatch,
    PathRewrite, WeightedCluster, WeightedTarget,
};
use towpath_engine::snapshot::subset::Criteria;

use super::Converter;
use super::route_table::Surroundings;
use super::subset::criteria;
use crate::error::Rank;
use crate::message::{At, Message, Value};
use crate::suggest::did_you_mean;

impl Converter<'_> {
    pub(super) fn forward(
        &mut self,
        action: &Message,
        surroundings: &Surroundings,
        matched: Option<&PathMatch>,
    ) -> Option<Forward> {
        let cluster = self.cluster_choice(action, surroundings);
        let path = self.path_rewrite(action, matched);
        let host = self.host_rewrite(action);
        let retry = match action.message("retry_policy") {
            Some(policy) => self.retry_policy(policy),
            None => surroundings.retry.clone(),
        };
        let max_stream_duration = action
            .message("max_stream_duration")
            .and_then(|max| max.duration("max_stream_duration"));
        let timeout = self.route_timeout(action);
        Some(Forward {
            cluster: cluster?,
            not_found_status: match action.choice("cluster_not_found_response_code").as_str() {
                "NOT_FOUND" => 404,
                "INTERNAL_SERVER_ERROR" => 500,
                _ => 503,
            },
            path: path?,
            host: host?,
            append_forwarded_host: action.flag("append_x_forwarded_host"),
            timeout,
            idle_timeout: action.duration("idle_timeout").map(unless_zero),
            flush_timeout: action.duration("flush_timeout").map(unless_zero),
            max_stream_duration: max_stream_duration.map(unless_zero),
            grpc_timeout: self.grpc_timeout(action),
            retry,
            hedges: match action.message("hedge_policy") {
                Some(policy) => hedges(policy),
                None => surroundings.hedges,
            },
            upgrades: self.route_upgrades(action),
            high_priority: action.choice("priority") == "HIGH",
            hash: self.hash_policies(action),
            criteria: criteria(action, None),
            mirrors: match self.mirrors(action, surroundings.validate_clusters) {
                mirrors if mirrors.is_empty() => Arc::clone(&surroundings.mirrors),
                mirrors => mirrors.into(),
            },
            internal_redirects: self.internal_redirects(action),
            bridge: None,
        })
    }

    /// The `timeout`, which Envoy does not have beside a `max_stream_duration`, not even by default.
    fn route_timeout(&mut self, action: &Message) -> Option<Duration> {
        if !action.has("max_stream_duration") {
            return unless_zero(action.duration("timeout").unwrap_or(DEFAULT_TIMEOUT));
        }
        if action.duration("timeout").is_some_and(|timeout| !timeout.is_zero()) {
            let why = "has no effect beside `max_stream_duration`, as in Envoy";
            self.report.finding(action.at("timeout"), Rank::Harmless, why.to_owned());
        }
        None
    }

    /// What becomes of a call's own time. The older fields have no effect beside a `max_stream_duration`.
    fn grpc_timeout(&mut self, action: &Message) -> GrpcTimeout {
        let duration = |name| action.duration(name);
        let Some(limits) = action.message("max_stream_duration") else {
            let offset = duration("grpc_timeout_offset").unwrap_or_default();
            return duration("max_grpc_timeout")
                .map_or(GrpcTimeout::Ignored, |max| GrpcTimeout::Response { max, offset });
        };
        for name in ["max_grpc_timeout", "grpc_timeout_offset"] {
            if action.has(name) {
                let why = "has no effect beside `max_stream_duration`, as in Envoy";
                self.report.finding(action.at(name), Rank::Harmless, why.to_owned());
            }
        }
        GrpcTimeout::Stream {
            max: limits.duration("grpc_timeout_header_max"),
            offset: limits.duration("grpc_timeout_header_offset").unwrap_or_default(),
        }
    }

    /// `request_mirror_policies` of a route, a virtual host or a table.
    pub(super) fn mirrors(&mut self, holder: &Message, must_exist: bool) -> Vec<Mirror> {
        let policies: Vec<_> = holder.messages("request_mirror_policies").collect();
        policies.into_iter().filter_map(|policy| self.mirror(policy, must_exist)).collect()
    }

    fn mirror(&mut self, policy: &Message, must_exist: bool) -> Option<Mirror> {
        let cluster = match (policy.text("cluster"), policy.text("cluster_header")) {
            ("", "") => {
                self.report.problem(&policy.at, "needs a `cluster` or a `cluster_header`");
                return None;
            }
            (name, "") => {
                self.cluster_id(name, must_exist, policy.at("cluster"))?;
                MirrorCluster::Named(Arc::from(name))
            }
            ("", header) => {
                MirrorCluster::Header(self.request_header(header, policy.at("cluster_header"))?)
            }
            _ => {
                self.report.problem(&policy.at, "has both a `cluster` and a `cluster_header`");
                return None;
            }
        };
        let share = policy.message("runtime_fraction");
        let host = policy.text("host_rewrite_literal");
        Some(Mirror {
            cluster,
            share: share.and_then(|share| self.runtime_fraction(share)),
            marks_host: !policy.flag("disable_shadow_host_suffix_append"),
            host: (!host.is_empty()).then(|| Arc::from(host.as_bytes())),
            ops: self.mutations(policy, "request_headers_mutations"),
            is_sampled: policy.wrapped_flag("trace_sampled"),
        })
    }

    fn cluster_choice(
        &mut self,
        action: &Message,
        surroundings: &Surroundings,
    ) -> Option<ClusterChoice> {
        let field = action.oneof("cluster_specifier")?;
        match (field.descriptor.name(), &field.value) {
            ("cluster", Value::String(name)) => {
                let id = self.cluster_id(name, surroundings.validate_clusters, &field.at)?;
                self.http_clusters.push((id, field.at.clone()));
                Some(ClusterChoice::One(id))
            }
            ("cluster_header", Value::String(name)) => {
                self.request_header(name, &field.at).map(ClusterChoice::Header)
            }
            ("cluster_specifier_plugin", Value::String(name)) => {
                let Some(specifier) = surroundings.specifiers.get(&**name) else {
                    let text = format!("unknown cluster specifier plugin '{name}'");
                    self.report.problem(&field.at, text);
                    return None;
                };
                specifier.clone().map(ClusterChoice::Specified)
            }
            ("inline_cluster_specifier_plugin", Value::Message(plugin)) => {
                self.specifier(plugin).map(ClusterChoice::Specified)
            }
            ("weighted_clusters", Value::Message(message)) => {
                self.weighted(message, criteria(action, None).as_ref(), surroundings)
            }
            _ => None,
        }
    }

    fn request_header(&mut self, name: &str, at: &At) -> Option<towpath_proto::head::HeaderName> {
        if name.starts_with(':') || name.eq_ignore_ascii_case("host") {
            self.report.unsupported(at, format!("`{name}` is not read here"));
            return None;
        }
        self.header_name(name, at)
    }

    /// The number of a cluster, which must exist where that is asked for.
    pub(super) fn cluster_id(
        &mut self,
        name: &str,
        must_exist: bool,
        at: &At,
    ) -> Option<ClusterId> {
        match self.snapshot.cluster_id(name) {
            Some(id) => Some(id),
            None if must_exist => {
                let meant = did_you_mean(name, self.snapshot.cluster_ids.keys());
                self.report.problem(at, format!("unknown cluster '{name}'{meant}"));
                None
            }
            None => Some(self.intern(name)),
        }
    }

    fn weighted(
        &mut self,
        message: &Message,
        wanted: Option<&Arc<Criteria>>,
        surroundings: &Surroundings,
    ) -> Option<ClusterChoice> {
        let prefix = message.text("runtime_key_prefix");
        let entries: Vec<_> = message.messages("clusters").collect();
        let (count, mut clusters) = (entries.len(), Vec::new());
        for entry in entries {
            let name = entry.text("name");
            let target = self.weighted_target(entry, surroundings);
            let weight = entry.number32("weight").unwrap_or(0);
            let weight =
                if prefix.is_empty() { weight } else { self.runtime_weight(prefix, name, weight) };
            let host_rewrite = entry.text("host_rewrite_literal");
            let request_headers = self.request_ops(entry);
            let response_headers = self.response_ops(entry);
            let host_rewrite =
                (!host_rewrite.is_empty()).then(|| Arc::from(host_rewrite.as_bytes()));
            let filters = self.filter_overrides(entry);
            clusters.extend(target.map(|cluster| WeightedCluster {
                cluster,
                weight,
                request_headers,
                response_headers,
                host_rewrite,
                criteria: criteria(entry, wanted),
                filters,
            }));
        }
        if clusters.is_empty() || clusters.len() < count {
            return None;
        }
        if count > usize::from(u16::MAX) {
            self.report.unsupported(&message.at, "more than 65,535 clusters");
            return None;
        }
        let total = self.total_weight(&clusters, &message.at)?;
        let by_hash = message.flag("use_hash_policy");
        let number = match message.text("header_name") {
            "" => None,
            name => Some(self.request_header(name, message.at("header_name"))?),
        };
        Some(ClusterChoice::Weighted { clusters, total, by_hash, number })
    }

    fn weighted_target(
        &mut self,
        entry: &Message,
        surroundings: &Surroundings,
    ) -> Option<WeightedTarget> {
        match (entry.text("name"), entry.text("cluster_header")) {
            ("", "") => {
                self.report.problem(&entry.at, "needs a `name` or a `cluster_header`");
                None
            }
            (name, "") => {
                let at = entry.at("name");
                let id = self.cluster_id(name, surroundings.validate_clusters, at)?;
                self.http_clusters.push((id, at.clone()));
                Some(WeightedTarget::Named(id))
            }
            ("", header) => {
                let header = self.request_header(header, entry.at("cluster_header"))?;
                Some(WeightedTarget::Header(header))
            }
            _ => {
                self.report.problem(&entry.at, "has both a `name` and a `cluster_header`");
                None
            }
        }
    }

    /// The sum of weights, which must be one that protobuf's 32 bits can say.
    pub(super) fn total_weight(&mut self, clusters: &[WeightedCluster], at: &At) -> Option<u64> {
        let total = clusters.iter().map(|cluster| u64::from(cluster.weight)).sum();
        match total {
            0 => self.report.problem(at, "the sum of the weights must be greater than 0"),
            1..=MAX_WEIGHT => return Some(total),
            _ => self.report.problem(at, format!("the sum of the weights exceeds {MAX_WEIGHT}")),
        }
        None
    }

    fn runtime_weight(&self, prefix: &str, cluster: &str, default: u32) -> u32 {
        let value = self.runtime.number(&format!("{prefix}.{cluster}"));
        value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default)
    }

    fn path_rewrite(
        &mut self,
        action: &Message,
        matched: Option<&PathMatch>,
    ) -> Option<PathRewrite> {
        const WAYS: [&str; 4] =
            ["path_rewrite_policy", "path_rewrite", "regex_rewrite", "prefix_rewrite"];
        let is_set = |name| {
            action.has(name) && !(action.message(name).is_none() && action.text(name).is_empty())
        };
        let mut set = WAYS.into_iter().filter(|name| is_set(name));
        let Some(way) = set.next() else { return Some(PathRewrite::Keep) };
        if let Some(other) = set.next() {
            let text = format!("only one of {other} and {way} can be set");
            self.report.problem(action.at(way), text);
        }
        match way {
            "path_rewrite_policy" => self.template_rewrite(action.message(way)?, matched),
            "path_rewrite" => {
                self.header_format(action.text(way), action.at(way)).map(PathRewrite::Format)
            }
            "regex_rewrite" => {
                let (pattern, substitution) = self.rewrite(action.message(way)?)?;
                Some(PathRewrite::Regex { pattern, substitution: substitution.into() })
            }
            _ => {
                if matches!(matched, Some(PathMatch::Template(_))) {
                    let text = "cannot use prefix_rewrite with path_match_policy";
                    self.report.problem(action.at(way), text);
                }
                Some(PathRewrite::Prefix(action.text(way).as_bytes().into()))
            }
        }
    }

    fn host_rewrite(&mut self, action: &Message) -> Option<HostRewrite> {
        let Some(field) = action.oneof("host_rewrite_specifier") else {
            return Some(HostRewrite::Keep);
        };
        Some(match (field.descriptor.name(), field.value.unwrapped()) {
            (_, Value::String(text)) if text.is_empty() => HostRewrite::Keep,
            ("host_rewrite_literal", Value::String(text)) => {
                HostRewrite::Literal(text.as_bytes().into())
            }
            ("host_rewrite_header", Value::String(text)) => {
                HostRewrite::Header(self.request_header(text, &field.at)?)
            }
            ("host_rewrite", Value::String(text)) => {
                HostRewrite::Format(self.format(text, false, &field.at)?)
            }
            ("auto_host_rewrite", Value::Bool(true)) => HostRewrite::Auto,
            ("auto_host_rewrite", Value::Bool(false)) => HostRewrite::Keep,
            ("host_rewrite_path_regex", Value::Message(rewrite)) => {
                let (pattern, substitution) = self.rewrite(rewrite)?;
                HostRewrite::PathRegex { pattern, substitution: substitution.into() }
            }
            _ => return None,
        })
    }

    /// `upgrade_configs` of a route, which may end CONNECT here.
    fn route_upgrades(&mut self, action: &Message) -> Vec<Upgrade> {
        let mut upgrades = self.upgrades(action);
        for (upgrade, config) in upgrades.iter_mut().zip(action.messages("upgrade_configs")) {
            let Some(connect) = config.message("connect_config") else { continue };
            let header = connect.message("proxy_protocol_config");
            upgrade.connect = Some(Arc::new(ConnectConfig {
                takes_post: connect.flag("allow_post"),
                header: header.map(|header| self.bare_header(header, "CONNECT")),
            }));
            if &*upgrade.kind != "connect" {
                let at = config.at("connect_config");
                if &*upgrade.kind == "connect-udp" {
                    self.report.unsupported(at, "UDP is not carried over HTTP");
                    continue;
                }
                let text = format!("upgrade `{}` is not CONNECT", upgrade.kind);
                self.report.problem(at, text);
            }
        }
        upgrades
    }

    /// `upgrade_configs` of a route or a connection manager.
    pub(super) fn upgrades(&mut self, message: &Message) -> Vec<Upgrade> {
        let mut upgrades: Vec<Upgrade> = Vec::new();
        for config in message.messages("upgrade_configs") {
            let kind = config.text("upgrade_type").to_ascii_lowercase();
            if upgrades.iter().any(|upgrade| *upgrade.kind == kind) {
                self.report
                    .problem(config.at("upgrade_type"), format!("upgrade `{kind}` is there twice"));
            }
            upgrades.push(Upgrade {
                kind: Arc::from(kind),
                enabled: config.wrapped_flag("enabled").unwrap_or(true),
                connect: None,
                chain: None,
            });
        }
        upgrades
    }
}

/// Zero means never.
pub(super) fn unless_zero(timeout: Duration) -> Option<Duration> {
    (!timeout.is_zero()).then_some(timeout)
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_WEIGHT: u64 = u32::MAX as u64;

/// Whether an attempt whose time is over goes on beside the next one.
pub(super) fn hedges(policy: &Message) -> bool {
    policy.flag("hedge_on_per_try_timeout")
}
