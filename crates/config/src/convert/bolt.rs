//! The Bolt proxy filter, and how Bolt is spoken to a cluster. Towpath's own; `docs/bolt.md` has their schema.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::HostIndex;
use towpath_engine::snapshot::bolt::{
    BoltHeader, BoltMatch, BoltProxy, BoltUpstream, Bridge, Heartbeat,
};
use towpath_engine::snapshot::http::{
    Codec, EscapedSlashes, Http, HttpChain, InternalAddresses, Router, ServerHeader, StripPort,
};
use towpath_engine::snapshot::log::AccessLog;
use towpath_engine::snapshot::route::{
    Action, ClusterChoice, Expressions, Forward, GrpcTimeout, HeaderOps, HostRewrite, PathMatch,
    PathRewrite, RequireTls, Route, RouteTable, Text, VirtualHost, WeightedCluster,
};
use towpath_proto::bolt::Options;
use towpath_proto::{Name, PreparedField};

use super::Converter;
use super::bridge::BOLT_BRIDGE_NAME;
use super::route_action::unless_zero;
use crate::message::{Message, Value};

/// The filter's configuration.
pub(super) const BOLT_PROXY: &str = "towpath.extensions.bolt.v1.BoltProxy";
/// A cluster's options.
pub(super) const BOLT_OPTIONS: &str = "towpath.extensions.bolt.v1.BoltProtocolOptions";

impl Converter<'_> {
    pub(super) fn bolt_proxy(&mut self, message: &Message) -> Option<BoltProxy> {
        let prefix = message.text("stat_prefix");
        if prefix.is_empty() {
            self.report.problem(&message.at, "needs a `stat_prefix`");
        }
        let routes: Vec<&Message> = message.messages("routes").collect();
        if routes.is_empty() {
            self.report.problem(&message.at, "needs at least one route");
        }
        let access_logs = self.access_logs(message, "access_log");
        let (mut matches, mut actions) = (Vec::new(), Vec::new());
        for route in &routes {
            matches.push(self.bolt_match(route));
            let action = self.bolt_action(route);
            actions.push(action.map(|action| Arc::new(plain_route(route.text("name"), action))));
        }
        let max_in_flight = self.at_least(message, "max_requests_in_flight", 1, 1024);
        let options = self.bolt_options(message);
        let max_unread = self.at_least(message, "max_unread_bytes", 1, 16 << 20);
        let max_held = self.at_least(message, "max_held_bytes", 1, 16 << 20);
        let idle = unless_zero(message.duration("idle_timeout").unwrap_or(HOUR));
        let matches: Option<Vec<BoltMatch>> = matches.into_iter().collect();
        let (matches, actions) = (matches?, actions.into_iter().collect::<Option<Vec<_>>>()?);
        Some(BoltProxy {
            http: Arc::new(http(prefix, actions, access_logs, idle)),
            matches,
            options,
            max_in_flight,
            max_unread: max_unread as usize,
            max_held: max_held as usize,
            go_away: message.flag("go_away"),
        })
    }

    fn bolt_match(&mut self, route: &Message) -> Option<BoltMatch> {
        let Some(message) = route.message("match") else { return Some(BoltMatch::default()) };
        let service = message.message("service").map(|matcher| self.string_matcher(matcher));
        let method = message.message("method").map(|matcher| self.string_matcher(matcher));
        let entries: Vec<&Message> = message.messages("headers").collect();
        let mut headers = Vec::new();
        for entry in entries {
            let name = entry.text("name");
            if name.is_empty() {
                self.report.problem(&entry.at, "needs a `name`");
            }
            let value = entry.message("string_match").map(|matcher| self.string_matcher(matcher));
            headers.push(BoltHeader {
                name: Arc::from(name),
                value: sound(value)?,
                invert: entry.flag("invert_match"),
            });
        }
        Some(BoltMatch { service: sound(service)?, method: sound(method)?, headers })
    }

    fn bolt_action(&mut self, route: &Message) -> Option<Forward> {
        let Some(action) = route.message("route") else {
            self.report.problem(&route.at, "needs a `route`");
            return None;
        };
        let before = self.bolt_clusters.len();
        let cluster = self.bolt_cluster(action);
        let bridge = action.message("http").map(|http| self.http_bridge(http));
        if bridge.is_some() {
            // What it leads to must speak HTTP.
            let clusters = self.bolt_clusters.split_off(before);
            self.http_clusters.extend(clusters);
        }
        let retry = action.message("retry_policy").and_then(|policy| self.retry_policy(policy));
        Some(Forward {
            cluster: cluster?,
            not_found_status: 503,
            path: PathRewrite::Keep,
            host: HostRewrite::Keep,
            append_forwarded_host: false,
            timeout: unless_zero(action.duration("timeout").unwrap_or(DEFAULT_TIMEOUT)),
            idle_timeout: None,
            flush_timeout: None,
            max_stream_duration: None,
            grpc_timeout: GrpcTimeout::default(),
            retry,
            hedges: false,
            upgrades: Vec::new(),
            high_priority: action.choice("priority") == "HIGH",
            hash: Vec::new(),
            criteria: None,
            mirrors: Arc::default(),
            internal_redirects: None,
            bridge: sound(bridge)?.map(Bridge::ToHttp),
        })
    }

    fn bolt_cluster(&mut self, action: &Message) -> Option<ClusterChoice> {
        let Some(field) = action.oneof("cluster_specifier") else {
            self.report.problem(&action.at, "needs one of cluster, weighted_clusters");
            return None;
        };
        match &field.value {
            Value::String(name) => {
                let id = self.cluster_id(name, true, &field.at)?;
                self.bolt_clusters.push((id, field.at.clone()));
                Some(ClusterChoice::One(id))
            }
            Value::Message(weighted) => {
                let mut clusters = Vec::new();
                for entry in weighted.messages("clusters") {
                    let id = self.cluster_id(entry.text("name"), true, entry.at("name"))?;
                    self.bolt_clusters.push((id, entry.at("name").clone()));
                    let weight = entry.number32("weight").unwrap_or(0);
                    clusters.push(WeightedCluster::new(id, weight));
                }
                if clusters.iter().all(|cluster| cluster.weight == 0) {
                    self.report.problem(&weighted.at, "needs a cluster with a weight above 0");
                    return None;
                }
                let total = self.total_weight(&clusters, &weighted.at)?;
                Some(ClusterChoice::Weighted { clusters, total, by_hash: false, number: None })
            }
            _ => None,
        }
    }

    /// Bolt goes to clusters that speak it, and HTTP to those that do not.
    pub(super) fn check_protocols(&mut self) {
        for (id, at) in std::mem::take(&mut self.bolt_clusters) {
            if let Some(cluster) = self.snapshot.cluster(id)
                && cluster.bolt.is_none()
            {
                let text = format!(
                    "cluster '{}' does not speak Bolt: its typed_extension_protocol_options need `{BOLT_OPTIONS}`, or \
                     a Bolt route its `http`",
                    cluster.name
                );
                self.report.problem(&at, text);
            }
        }
        for (id, at) in std::mem::take(&mut self.http_clusters) {
            if let Some(cluster) = self.snapshot.cluster(id)
                && cluster.bolt.is_some()
            {
                let text = format!(
                    "cluster '{}' speaks Bolt, not HTTP: an HTTP route to it needs typed_per_filter_config \
                     `{BOLT_BRIDGE_NAME}`, a Bolt route no `http`",
                    cluster.name
                );
                self.report.problem(&at, text);
            }
        }
    }

    /// The options of a cluster that speaks Bolt.
    pub(super) fn bolt_upstream(&mut self, message: &Message) -> BoltUpstream {
        let connections = self.at_least(message, "connections_per_host", 1, 1);
        let max_in_flight = self.at_least(message, "max_requests_in_flight", 1, 4096);
        if max_in_flight > MOST_IN_FLIGHT {
            self.report.problem(
                message.at("max_requests_in_flight"),
                format!("must be at most {MOST_IN_FLIGHT}"),
            );
        }
        BoltUpstream {
            connections_per_host: connections,
            max_in_flight,
            options: self.bolt_options(message),
            heartbeat: message.message("heartbeat").map(|heartbeat| self.heartbeat(heartbeat)),
        }
    }

    fn heartbeat(&mut self, message: &Message) -> Heartbeat {
        let defaults = Heartbeat::default();
        let mut duration = |name, default| {
            let duration = message.duration(name).unwrap_or(default);
            if duration < SHORTEST_BEAT {
                self.report.problem(message.at(name), "must be at least 1 ms");
            }
            duration
        };
        let (interval, timeout) =
            (duration("interval", defaults.interval), duration("timeout", defaults.timeout));
        Heartbeat {
            interval,
            timeout,
            misses: self.at_least(message, "misses", 1, defaults.misses),
        }
    }

    fn bolt_options(&mut self, message: &Message) -> Options {
        let max_frame = self.at_least(message, "max_frame_bytes", 1024, 16 << 20);
        Options { max_frame: max_frame as usize }
    }

    fn at_least(&mut self, message: &Message, name: &str, least: u32, default: u32) -> u32 {
        let number = message.number32(name).unwrap_or(default);
        if number < least {
            self.report.problem(message.at(name), format!("must be at least {least}"));
        }
        number
    }
}

/// Nothing given is fine; something given and refused is not.
fn sound<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}

/// A route whose action counts; what it takes is decided elsewhere.
fn plain_route(name: &str, action: Forward) -> Route {
    Route {
        name: Arc::from(name),
        stat_prefix: None,
        path: PathMatch::Prefix(Text { bytes: Arc::from(&b"/"[..]), case_sensitive: true }),
        headers: Vec::new(),
        query: Vec::new(),
        rare: None,
        fraction: None,
        grpc_only: false,
        action: Action::Forward(Box::new(action)),
        request_headers: HeaderOps::default(),
        response_headers: HeaderOps::default(),
        retry_buffer_limit: None,
        tracing: None,
        filters: Vec::new(),
        filter_metadata: None,
    }
}

/// What the engine shares between HTTP and Bolt.
fn http(
    prefix: &str,
    routes: Vec<Arc<Route>>,
    access_logs: Vec<AccessLog>,
    idle_timeout: Option<Duration>,
) -> Http {
    let host = VirtualHost {
        name: Arc::from("bolt"),
        domains: vec![Arc::from("*")],
        routes,
        expressions: Expressions::default(),
        matcher: None,
        virtual_clusters: Vec::new(),
        require_tls: RequireTls::None,
        request_headers: HeaderOps::default(),
        response_headers: HeaderOps::default(),
        attempt_count_in_request: false,
        attempt_count_in_response: false,
        timeout_retry_in_request: false,
        filters: Vec::new(),
        filter_metadata: None,
    };
    let table =
        RouteTable { hosts: vec![host], index: HostIndex::default(), ..RouteTable::default() };
    Http {
        stat_prefix: Arc::from(prefix),
        codec: Codec::Auto,
        http1: Arc::default(),
        http2: None,
        routes: Arc::new(table),
        chain: HttpChain {
            filters: Vec::new(),
            router: Router { suppress_envoy_headers: true, ..Router::default() },
        },
        upgraded: Vec::new(),
        server_name: PreparedField::new(Name::Server, b""),
        server_header: ServerHeader::PassThrough,
        idle_timeout,
        max_connection_duration: None,
        max_stream_duration: None,
        max_requests_per_connection: 0,
        stream_idle_timeout: None,
        stream_flush_timeout: None,
        request_timeout: None,
        request_headers_timeout: None,
        delayed_close_timeout: Duration::ZERO,
        access_logs,
        log_flush_interval: None,
        log_on_new_request: false,
        log_on_tunnel: false,
        client_certificate: Default::default(),
        client_certificate_matcher: None,
        tells_overload: false,
        use_remote_address: false,
        xff_trusted_hops: 0,
        skip_xff_append: true,
        ignored_upgrades: Vec::new(),
        detections: Vec::new(),
        early_mutations: Default::default(),
        internal_addresses: InternalAddresses::default(),
        via: Arc::from(""),
        proxy_status: None,
        told: None,
        generate_request_id: false,
        preserve_external_request_id: false,
        request_id_in_response: false,
        ipv4_mapped: false,
        append_forwarded_port: false,
        proxy_100_continue: false,
        normalize_path: false,
        merge_slashes: false,
        escaped_slashes: EscapedSlashes::Keep,
        strip_port: StripPort::No,
        strip_trailing_dot: false,
        scheme_of_upstream: false,
        scheme: None,
        upgrades: Vec::new(),
        local_reply: None,
        tracing: None,
    }
}

const HOUR: Duration = Duration::from_secs(3600);
/// As an HTTP route's.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
const SHORTEST_BEAT: Duration = Duration::from_millis(1);
/// Half of the numbers that a connection has.
const MOST_IN_FLIGHT: u32 = 1 << 15;
