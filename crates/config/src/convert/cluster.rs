//! Clusters.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::cluster::{Discovery, Ends, Limits, Tracks};
use towpath_engine::snapshot::{BufferLimit, Cluster, ClusterId};
use towpath_proto::{ConnectOptions, SocketState, http1};

use super::Converter;
use super::address::{Written, int_option, keepalive};
use super::balancer::Balanced;
use super::discovery::{BOOTSTRAP_TEXTS, Part};
use super::istio::mesh_cluster;
use super::metadata::filter_metadata;
use super::upstream::Upstream;
use crate::dynamic::{Kind, Made};
use crate::message::Message;

impl Converter<'_> {
    /// Gives every cluster its number, so that routes can name clusters that stand after them.
    pub(super) fn name_clusters(&mut self, clusters: &[Part<'_>]) {
        for cluster in clusters {
            let name = cluster.name();
            if self.snapshot.cluster_id(name).is_some() {
                self.report.problem(&cluster.name_at(), format!("duplicate cluster '{name}'"));
            }
            self.intern(name);
        }
    }

    /// All clusters.
    pub(super) fn clusters(&mut self, bootstrap: &Message, parts: &[Part<'_>]) {
        for part in parts {
            let message = match *part {
                Part::New(message) => message,
                Part::Made { made, id, cluster, .. } => {
                    self.take_made(made, id, cluster);
                    continue;
                }
            };
            (self.files, self.rotating) = (0, 0);
            self.runtime.begin_part();
            self.has_secret_file = false;
            self.needs_of_one.clear();
            self.begin_own_clusters();
            if message.at.text >= BOOTSTRAP_TEXTS {
                self.accept(message);
            }
            let Some(cluster) = self.cluster(bootstrap, message) else {
                self.repeatable.push(None);
                continue;
            };
            let has_own = self.note_own_clusters(Kind::Cluster, &cluster.name);
            // Those that name others depend on them.
            let is_repeatable = !self.has_secret_file && !message.has("cluster_type") && !has_own;
            self.repeatable.push(is_repeatable.then(|| Arc::clone(&cluster.name)));
            let needs = std::mem::take(&mut self.needs_of_one);
            self.needs.insert((Kind::Cluster, Arc::clone(&cluster.name)), needs);
            let print = self.part_print(message);
            let cluster = self.same_cluster(cluster, print);
            let id = self.intern(&cluster.name);
            if let Some(slot) = self.snapshot.clusters.get_mut(id.0 as usize) {
                *slot = Some(cluster);
            }
        }
    }

    /// Takes the cluster that serves, of which nothing has changed.
    fn take_made(&mut self, made: &Made, id: ClusterId, cluster: &Arc<Cluster>) {
        self.prints.clusters.insert(Arc::clone(&cluster.name), made.print);
        for need in &made.needs {
            let key = (need.kind, Arc::clone(&need.name));
            self.sources.entry(key).or_insert_with(|| need.source.from.clone());
        }
        self.needs.insert((Kind::Cluster, Arc::clone(&cluster.name)), made.needs.clone());
        if let Some(slot) = self.snapshot.clusters.get_mut(id.0 as usize) {
            *slot = Some(Arc::clone(cluster));
        }
    }

    fn cluster(&mut self, bootstrap: &Message, message: &Message) -> Option<Cluster> {
        let discovery = self.discovery(bootstrap, message);
        let assignment = self.assignment(message);
        let choice = self.socket_choice(message);
        let endpoints = self.endpoints(message, assignment, discovery.as_ref(), choice.as_ref());
        let balancing = self.balancing(bootstrap, message, assignment, discovery.as_ref());
        let drops = assignment.and_then(|assignment| self.drops(assignment));
        let upstream = self.upstream(message);
        let connect = self.connect_options(bootstrap, message);
        let socket = message.message("transport_socket");
        let http2 = upstream.http2.as_deref();
        let tls = socket.and_then(|socket| self.upstream_socket(socket, http2));
        let sockets = self.sockets(message, http2);
        let proxy_headers = self.proxy_headers(message);
        let passing = self.passing(message);
        let pool_per_client = message.flag("connection_pool_per_downstream_connection");
        let is_told = proxy_headers.is_some() || pool_per_client;
        let matches = message.messages("transport_socket_matches");
        let socket_names = matches.map(|one| Arc::from(one.text("name"))).collect();
        let (limits, high_limits) = self.limits(message);
        let name = message.text("name");
        let stat_name = match message.text("alt_stat_name") {
            "" => name,
            other => other,
        };
        let Upstream {
            http1,
            http2,
            idle_timeout,
            max_connection_duration,
            max_stream_duration,
            max_requests_per_connection,
            bolt,
            asked_names,
            filters,
            hash,
            retry,
            mirrors,
        } = upstream;
        let greetings = self.upstream_filters(message);
        let mesh = mesh_cluster(message);
        let buffer_limit = message.number("per_connection_buffer_limit_bytes");
        let (discovery, endpoints) = (discovery?, endpoints?);
        let Balanced { balancing, subsets, override_hosts, load_reports, zones } = balancing?;
        let is_watched = match discovery {
            Discovery::Static | Discovery::Dns(_) => true,
            Discovery::OriginalDestination(_)
            | Discovery::Aggregate(_)
            | Discovery::Named(_)
            | Discovery::SubClusters(_) => false,
        };
        let shows_weights = message.has("eds_cluster_config")
            || matches!(&discovery, Discovery::Dns(dns) if !dns.logical);
        let health_check = self.active_check(message, http2.as_deref());
        let name: Arc<str> = Arc::from(name);
        let stat_name = match stat_name.replace(':', "_") {
            same if *same == *name => Arc::clone(&name),
            other => Arc::from(other),
        };
        Some(Cluster {
            name,
            stat_name,
            discovery: match discovery {
                Discovery::Dns(mut dns) => {
                    dns.names = endpoints.names;
                    Discovery::Dns(dns)
                }
                other => other,
            },
            shows_weights,
            endpoints: endpoints.addresses.into(),
            balancing,
            subsets,
            override_hosts,
            load_reports,
            ends: ends(message),
            own_zone: own_zone(bootstrap),
            tracks: tracks(message),
            zones,
            connect_timeout: message.duration("connect_timeout").unwrap_or(DEFAULT_CONNECT_TIMEOUT),
            connect: self.shared.connect(connect),
            tls: tls.map(Box::new),
            sockets: sockets.into_iter().map(|tls| tls.map(Box::new)).collect(),
            socket_names,
            bare_socket: Self::bare_socket(message, choice.as_ref()),
            socket_choice: choice.map(Arc::new),
            proxy_headers,
            passing,
            pool_per_client,
            buffer_limit: buffer_limit.map_or_else(BufferLimit::default, |limit| {
                BufferLimit::strict(usize::try_from(limit).unwrap_or(usize::MAX))
            }),
            limits,
            high_limits,
            idle_timeout: match is_told {
                true => Some(idle_timeout.map_or(CLIENT_IDLE, |it| it.min(CLIENT_IDLE))),
                false => idle_timeout,
            },
            max_connection_duration,
            max_stream_duration,
            preconnect_milli: preconnect_milli(message),
            max_requests_per_connection,
            http1: self.shared.http1(http1),
            http2,
            bolt,
            in_use: Default::default(),
            host_connections: self.host_connections(message),
            host_totals: Default::default(),
            health_check: health_check.filter(|_| is_watched),
            outliers: self.outliers(message).filter(|_| is_watched).map(Box::new),
            tallies: Default::default(),
            mesh,
            filter_metadata: filter_metadata(message),
            greetings,
            asked_names,
            filters,
            hash,
            retry,
            mirrors,
            drops,
        })
    }

    /// Circuit breakers of the default and of the high priority.
    fn limits(&mut self, message: &Message) -> (Limits, Limits) {
        let thresholds: Vec<_> = message
            .message("circuit_breakers")
            .into_iter()
            .flat_map(|breakers| breakers.messages("thresholds"))
            .collect();
        let mut of = |priority: &str| {
            let found =
                thresholds.iter().find(|thresholds| thresholds.choice("priority") == priority);
            self.threshold(found.copied(), message.text("name"), &priority.to_ascii_lowercase())
        };
        (of("DEFAULT"), of("HIGH"))
    }

    /// How many connections there may be to a host, of the default and of the high priority.
    fn host_connections(&mut self, message: &Message) -> [Option<u32>; 2] {
        let breakers = message.message("circuit_breakers");
        let thresholds: Vec<_> =
            breakers.into_iter().flat_map(|it| it.messages("per_host_thresholds")).collect();
        ["DEFAULT", "HIGH"].map(|priority| {
            let found = thresholds.iter().find(|it| it.choice("priority") == priority)?;
            let others =
                ["max_pending_requests", "max_requests", "max_retries", "max_connection_pools"];
            let refused = others.into_iter().chain(["retry_budget"]).find(|name| found.has(name));
            if let Some(name) = refused {
                let text = "Unsupported field in per_host_thresholds";
                self.report.problem(found.at(name), text);
            }
            found.number32("max_connections")
        })
    }

    fn threshold(&mut self, thresholds: Option<&Message>, cluster: &str, priority: &str) -> Limits {
        let defaults = Limits::default();
        let number = |name: &str, default: u32| {
            let key = self.runtime.number(&format!("circuit_breakers.{cluster}.{priority}.{name}"));
            let written =
                thresholds.and_then(|thresholds| thresholds.number32(name)).unwrap_or(default);
            key.and_then(|key| u32::try_from(key).ok()).unwrap_or(written)
        };
        let budget = thresholds.and_then(|thresholds| thresholds.message("retry_budget"));
        Limits {
            connections: number("max_connections", defaults.connections),
            pending: number("max_pending_requests", defaults.pending),
            requests: number("max_requests", defaults.requests),
            retries: number("max_retries", defaults.retries),
            pools: number("max_connection_pools", defaults.pools),
            retry_budget: budget.map(|budget| {
                let percent = budget
                    .message("budget_percent")
                    .map_or(20.0, |percent| percent.float("value").unwrap_or(0.0));
                (
                    (percent * 100.0).round() as u32,
                    budget.number32("min_retry_concurrency").unwrap_or(3),
                )
            }),
            budget_interval: budget
                .and_then(|budget| budget.duration("budget_interval"))
                .filter(|interval| !interval.is_zero()),
            track_remaining: thresholds
                .is_some_and(|thresholds| thresholds.flag("track_remaining")),
        }
    }

    fn connect_options(&mut self, bootstrap: &Message, message: &Message) -> ConnectOptions {
        let of_all = bootstrap
            .message("cluster_manager")
            .and_then(|manager| manager.message("upstream_bind_config"));
        let bind = message.message("upstream_bind_config").or(of_all);
        let mut options = ConnectOptions::default();
        if let Some(bind) = bind {
            if let Some(source) = bind.message("source_address") {
                options.source = match self.socket_address(source) {
                    Some(Written::Address(address)) => address.ip(),
                    Some(Written::Name(name, _)) => {
                        self.report
                            .problem(source.at("address"), format!("malformed IP address: {name}"));
                        None
                    }
                    None => None,
                };
            }
            options.socket_options = self.socket_options(bind, "socket_options");
            if bind.flag("freebind") {
                options.socket_options.push(int_option(
                    IPPROTO_IP,
                    IP_FREEBIND,
                    1,
                    SocketState::PreBind,
                ));
            }
        }
        let connection = message.message("upstream_connection_options");
        options.keepalive = connection
            .and_then(|connection| connection.message("tcp_keepalive"))
            .and_then(keepalive);
        options
    }
}

/// What is counted beside.
fn tracks(cluster: &Message) -> Tracks {
    let tracks = cluster.message("track_cluster_stats");
    let asks = |field| tracks.is_some_and(|tracks| tracks.flag(field));
    Tracks {
        timeout_budgets: cluster.flag("track_timeout_budgets") || asks("timeout_budgets"),
        sizes: asks("request_response_sizes"),
        endpoints: asks("per_endpoint_stats"),
    }
}

/// The zone that this proxy is in.
fn own_zone(bootstrap: &Message) -> Option<Arc<str>> {
    let zone = bootstrap.message("node")?.message("locality")?.text("zone");
    (!zone.is_empty()).then(|| Arc::from(zone))
}

/// The ratio is 1 to 3, as the rules of the proto have it.
fn preconnect_milli(cluster: &Message) -> u32 {
    let policy = cluster.message("preconnect_policy");
    let ratio = policy.and_then(|policy| policy.float("per_upstream_preconnect_ratio"));
    (ratio.unwrap_or(1.0).clamp(1.0, 3.0) * 1000.0).round() as u32
}

/// How long a connection that is for one client waits for its next request at most: each client has some.
const CLIENT_IDLE: Duration = Duration::from_secs(60);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const IPPROTO_IP: i32 = 0;
const IP_FREEBIND: i32 = 15;

/// What thousands of clusters have alike, of which there is one.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    connect: Arc<ConnectOptions>,
    http1: Arc<http1::Options>,
}

impl Shared {
    fn connect(&mut self, options: ConnectOptions) -> Arc<ConnectOptions> {
        if *self.connect != options {
            self.connect = Arc::new(options);
        }
        Arc::clone(&self.connect)
    }

    fn http1(&mut self, options: http1::Options) -> Arc<http1::Options> {
        if *self.http1 != options {
            self.http1 = Arc::new(options);
        }
        Arc::clone(&self.http1)
    }
}

/// Which connections end when hosts change.
fn ends(cluster: &Message) -> Ends {
    let common = cluster.message("common_lb_config");
    Ends {
        on_failure: cluster.flag("close_connections_on_host_health_failure"),
        on_change: common.is_some_and(|it| it.flag("close_connections_on_host_set_change")),
    }
}
