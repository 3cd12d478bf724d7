//! Listeners.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

use towpath_engine::matcher::tree::Tree;
use towpath_engine::snapshot::http_inspector::HttpInspector;
use towpath_engine::snapshot::listener::{
    Destination, Direction, Disabled, ListenerFilterConfig, ListenerFilters, Missing, OriginalDst,
};
use towpath_engine::snapshot::original_src::OriginalSrc;
use towpath_engine::snapshot::proxy_protocol::ProxyProtocol;
use towpath_engine::snapshot::subset;
use towpath_engine::snapshot::tls_inspector::TlsInspector;
use towpath_engine::snapshot::{BufferLimit, FilterChain, Listener};
use towpath_proto::{Address, Balance, ListenOptions, SocketOption, SocketState};

use super::Converter;
use super::address::{int_option, keepalive};
use super::discovery::BOOTSTRAP_TEXTS;
use super::extension::LISTENER_FILTER;
use super::extension_discovery::{Found, Place};
use super::matcher_tree;
use super::metadata::filter_metadata;
use super::proxy_protocol::{PROXY_PROTOCOL, listener_filter};
use crate::dynamic::Kind;
use crate::message::{Message, Value};

const CHAIN_NAME: &str = "google.protobuf.StringValue";
const HTTP_INSPECTOR: &str = "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector";
const ORIGINAL_DST: &str = "envoy.extensions.filters.listener.original_dst.v3.OriginalDst";
const LOCAL_RATE: &str = "envoy.extensions.filters.listener.local_ratelimit.v3.LocalRateLimit";
const ORIGINAL_SRC: &str = "envoy.extensions.filters.listener.original_src.v3.OriginalSrc";
const TLS_INSPECTOR: &str = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";

impl Converter<'_> {
    /// All listeners.
    pub(super) fn listeners(&mut self, messages: &[&Message]) {
        // Those whose sockets are in namespaces of their own.
        let mut elsewhere = HashSet::new();
        for message in messages {
            (self.files, self.rotating) = (0, 0);
            self.runtime.begin_part();
            self.needs_of_one.clear();
            self.begin_own_clusters();
            self.listener = Arc::from(message.text("name"));
            if message.at.text >= BOOTSTRAP_TEXTS {
                self.accept(message);
            }
            let Some(listener) = self.listener(message) else { continue };
            let needs = std::mem::take(&mut self.needs_of_one);
            self.needs.insert((Kind::Listener, Arc::clone(&listener.name)), needs);
            self.note_own_clusters(Kind::Listener, &listener.name);
            // Refused where it is written.
            let is_elsewhere = addresses(message)
                .any(|address| !address.text("network_namespace_filepath").is_empty());
            if is_elsewhere {
                elsewhere.insert(Arc::clone(&listener.name));
            }
            let is_here = |one: &Listener| !elsewhere.contains(&one.name);
            let other = self.snapshot.listeners.iter().find(|other| {
                other.name == listener.name
                    || (is_here(other) && is_here(&listener) && clash(other, &listener))
            });
            if let Some(other) = other {
                let text = if other.name == listener.name {
                    format!("duplicate listener '{}'", listener.name)
                } else {
                    format!(
                        "listener '{}' has an address that listener '{}' has already",
                        listener.name, other.name
                    )
                };
                self.report.problem(&message.at, text);
            }
            let print = self.part_print(message);
            let listener = self.same_listener(listener, print);
            self.snapshot.listeners.push(listener);
        }
    }

    fn listener(&mut self, message: &Message) -> Option<Listener> {
        let addresses = self.addresses(message);
        self.direction = match message.choice("traffic_direction").as_str() {
            "INBOUND" => Direction::Inbound,
            "OUTBOUND" => Direction::Outbound,
            _ => Direction::Unspecified,
        };
        let chains = self.chains(message);
        let matcher = match message.message("filter_chain_matcher") {
            None => Some(None),
            Some(tree) => self.chain_matcher(tree).map(Some),
        };
        let default_chain = message
            .message("default_filter_chain")
            .and_then(|chain| self.filter_chain(chain).map(Arc::new));
        let options = self.listen_options(message);
        let access_logs = self.access_logs(message, "access_log");
        if message.flag("enable_mptcp") && addresses.iter().any(|address| address.ip().is_none()) {
            let text = "enable_mptcp can only be used with IP addresses";
            self.report.problem(message.at("enable_mptcp"), text);
        }
        let first = addresses.first()?;
        let name: Arc<str> = match message.text("name") {
            "" => Arc::from(first.to_string()),
            name => Arc::from(name),
        };
        let stat_prefix = match message.text("stat_prefix") {
            "" => stat_name(first),
            prefix => prefix.to_owned(),
        };
        let limit =
            self.runtime.number(&format!("envoy.resource_limits.listener.{name}.connection_limit"));
        let buffer_limit = message
            .number("per_connection_buffer_limit_bytes")
            .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Some(Listener {
            name,
            stat_prefix: Arc::from(stat_prefix),
            addresses,
            bind: message.wrapped_flag("bind_to_port").unwrap_or(true),
            other_options: self.other_options(message, &options),
            options: Arc::new(options),
            filters: self.listener_filters(message),
            chains,
            matcher: matcher?,
            default_chain,
            buffer_limit: buffer_limit.map_or_else(BufferLimit::default, BufferLimit::strict),
            retry_buffer_limit: buffer_limit.unwrap_or(DEFAULT_RETRY_BUFFER_LIMIT),
            max_connections: limit,
            open: Arc::default(),
            ignore_global_limit: message.flag("ignore_global_conn_limit"),
            bypasses_overload: message.flag("bypass_overload_manager"),
            direction: self.direction,
            modify_only: message.choice("drain_type") == "MODIFY_ONLY",
            access_logs,
            filter_metadata: filter_metadata(message),
        })
    }

    fn listener_filters(&mut self, message: &Message) -> ListenerFilters {
        let mut list: Vec<Arc<dyn ListenerFilterConfig>> = Vec::new();
        let (mut is_missing, mut binds_source, mut steers) = (false, false, false);
        let hands_over = message.wrapped_flag("use_original_dst").unwrap_or(false);
        if hands_over {
            list.push(Arc::new(OriginalDst));
        }
        for filter in message.messages("listener_filters") {
            let known = [
                TLS_INSPECTOR,
                ORIGINAL_DST,
                HTTP_INSPECTOR,
                PROXY_PROTOCOL,
                LOCAL_RATE,
                ORIGINAL_SRC,
            ];
            // Without one it is reported, and the file is not loaded.
            let place = Place {
                extends: LISTENER_FILTER,
                family: "tcp_listener_filter",
                known: &known,
                terminal: &[],
                is_last: false,
            };
            let config = match self.filter_config(filter, place) {
                Some(Found::Config(config)) => config,
                Some(Found::Missing) => {
                    is_missing = true;
                    continue;
                }
                None => continue,
            };
            let filter_of = config.descriptor.full_name().to_owned();
            let made: Arc<dyn ListenerFilterConfig> = match &*filter_of {
                ORIGINAL_DST => Arc::new(OriginalDst),
                HTTP_INSPECTOR => Arc::new(HttpInspector),
                ORIGINAL_SRC => {
                    binds_source = true;
                    Arc::new(OriginalSrc { mark: config.number32("mark").unwrap_or(0) })
                }
                LOCAL_RATE => match self.connection_rate(config) {
                    Some(rate) => Arc::new(rate),
                    None => continue,
                },
                PROXY_PROTOCOL => {
                    let filter = listener_filter(config, self.report);
                    let rules = &filter.tlvs;
                    steers |= !rules.in_state
                        && rules.kept.iter().any(|rule| &*rule.namespace == subset::NAMESPACE);
                    Arc::new(filter)
                }
                _ => Arc::new(tls_inspector(config)),
            };
            let disabled = filter.message("filter_disabled").and_then(destination);
            list.push(match disabled {
                Some(by) => Arc::new(Disabled { by, filter: made }),
                None => made,
            });
        }
        // Envoy asks its first chain alone, and knows nothing of its place among the filters.
        let first = message.messages("filter_chains").next();
        if first.and_then(|chain| chain.wrapped_flag("use_proxy_proto")).unwrap_or(false) {
            list.push(Arc::new(ProxyProtocol::default()));
        }
        if is_missing {
            // Whatever the others would say.
            list = vec![Arc::new(Missing)];
        }
        let mut filters = ListenerFilters { list, ..ListenerFilters::default() };
        if let Some(timeout) = message.duration("listener_filters_timeout") {
            filters.timeout = (!timeout.is_zero()).then_some(timeout);
        }
        filters.continues_on_timeout = message.flag("continue_on_listener_filters_timeout");
        filters.hands_over = hands_over;
        filters.binds_source = binds_source;
        filters.steers = steers;
        filters
    }

    fn addresses(&mut self, message: &Message) -> Vec<Address> {
        let Some(first) = message.message("address") else {
            if !message.has("internal_listener") {
                self.report.problem(&message.at, "a listener needs an `address`");
                return Vec::new();
            }
            if !self.has_internal_listeners {
                let text = "needs the bootstrap extension `envoy.bootstrap.internal_listener`";
                self.report.problem(message.at("internal_listener"), text);
            }
            return vec![Address::Internal(Arc::from(format!("{}/", message.text("name"))))];
        };
        if message.has("internal_listener") {
            let text = "has both an `address` and an `internal_listener`";
            self.report.problem(message.at("internal_listener"), text);
        }
        let mut addresses = Vec::from_iter(self.address(first));
        let more: Vec<_> = message
            .messages("additional_addresses")
            .filter_map(|more| more.message("address"))
            .collect();
        addresses.extend(more.into_iter().filter_map(|more| self.address(more)));
        for socket in self::addresses(message).filter(|socket| socket.flag("ipv4_compat")) {
            let ip = socket.text("address").parse::<Ipv6Addr>();
            if !ip.is_ok_and(|ip| ip.is_unspecified() || ip.to_ipv4_mapped().is_some()) {
                let text =
                    "Only IPv6 address '::' or valid IPv4-mapped IPv6 address can set ipv4_compat";
                self.report.problem(socket.at("ipv4_compat"), text);
            }
        }
        addresses
    }

    fn chains(&mut self, message: &Message) -> Vec<Arc<FilterChain>> {
        let messages: Vec<_> = message.messages("filter_chains").collect();
        if messages.is_empty() && !message.has("default_filter_chain") && !is_udp(message) {
            self.report.problem(
                &message.at,
                format!("listener '{}' has no filter chains", message.text("name")),
            );
        }
        let has_matcher = message.has("filter_chain_matcher");
        let mut chains: Vec<Arc<FilterChain>> = Vec::new();
        for message in messages {
            let Some(chain) = self.filter_chain(message) else { continue };
            if has_matcher {
                self.check_named(message, &chain, &chains);
            } else if chains.iter().any(|other| other.matches == chain.matches) {
                self.report.problem(&message.at, "two filter chains have the same matching rules");
            }
            chains.push(Arc::new(chain));
        }
        chains
    }

    /// A matcher leads to the names of chains.
    fn check_named(&mut self, message: &Message, chain: &FilterChain, others: &[Arc<FilterChain>]) {
        if chain.name.is_empty() {
            let text = "\"name\" field is required when using a listener matcher";
            self.report.problem(&message.at, text);
        } else if others.iter().any(|other| other.name == chain.name) {
            let text = format!("filter chain name '{}' is there twice", chain.name);
            self.report.problem(message.at("name"), text);
        }
    }

    fn chain_matcher(&mut self, tree: &Message) -> Option<Tree<Arc<str>>> {
        let place = matcher_tree::Place {
            name: "the choice of a filter chain",
            allows: |input| !input.is_of_request(),
            about: matcher_tree::About::Stream,
        };
        self.matcher_tree(tree, place, &[CHAIN_NAME], &mut |_, config| {
            Some(Arc::from(config.text("value")))
        })
    }

    /// Of additional addresses that have options of their own.
    fn other_options(
        &mut self,
        message: &Message,
        first: &ListenOptions,
    ) -> Vec<(Address, Arc<ListenOptions>)> {
        let mut others = Vec::new();
        for more in message.messages("additional_addresses") {
            let mut options = first.clone();
            if let Some(own) = more.message("socket_options") {
                options.socket_options = self.socket_options(own, "socket_options");
                options.socket_options.extend(fast_open(message));
            }
            if let Some(own) = more.message("tcp_keepalive") {
                options.keepalive = keepalive(own);
            }
            if options != *first
                && let Some(address) = more.message("address").and_then(|it| self.address(it))
            {
                others.push((address, Arc::new(options)));
            }
        }
        others
    }

    fn listen_options(&mut self, message: &Message) -> ListenOptions {
        let address = message.message("address");
        let socket = address.and_then(|address| address.message("socket_address"));
        let pipe = address.and_then(|address| address.message("pipe"));
        let mut socket_options = self.socket_options(message, "socket_options");
        socket_options.extend(fast_open(message));
        let defaults = ListenOptions::default();
        ListenOptions {
            backlog: message.number32("tcp_backlog_size").unwrap_or(defaults.backlog),
            reuse_port: message.wrapped_flag("enable_reuse_port").unwrap_or(defaults.reuse_port),
            freebind: message.flag("freebind"),
            transparent: message.flag("transparent"),
            original_destination: asks_for_destination(message),
            v6_only: !socket.is_some_and(|socket| socket.flag("ipv4_compat")),
            mode: pipe.and_then(|pipe| pipe.number32("mode")).unwrap_or(0),
            socket_options,
            keepalive: message.message("tcp_keepalive").and_then(keepalive),
            multipath: message.flag("enable_mptcp"),
            accepts_per_wake: message
                .number32("max_connections_to_accept_per_socket_event")
                .unwrap_or(defaults.accepts_per_wake),
            balance: match message.message("connection_balance_config") {
                Some(config) if config.has("exact_balance") => Balance::Exact,
                Some(_) | None => Balance::Kernel,
            },
        }
    }
}

/// `tcp_fast_open_queue_length`.
fn fast_open(listener: &Message) -> Option<SocketOption> {
    let length = listener.number("tcp_fast_open_queue_length")?;
    let length = i32::try_from(length).unwrap_or(i32::MAX);
    Some(int_option(IPPROTO_TCP, TCP_FASTOPEN, length, SocketState::Listening))
}

/// A `ListenerFilterChainMatchPredicate`. How deep they go is limited where they are read.
fn destination(predicate: &Message) -> Option<Destination> {
    let rule = predicate.oneof("rule")?;
    let rules = |set: &Message| set.messages("rules").filter_map(destination).collect();
    Some(match (rule.descriptor.name(), &rule.value) {
        ("or_match", Value::Message(set)) => Destination::OneOf(rules(set)),
        ("and_match", Value::Message(set)) => Destination::All(rules(set)),
        ("not_match", Value::Message(inner)) => Destination::Not(Box::new(destination(inner)?)),
        ("destination_port_range", Value::Message(range)) => {
            let bound = |name| range.number32(name).unwrap_or(0);
            Destination::Ports(bound("start")..bound("end"))
        }
        // The rules want it to be true.
        _ => Destination::Any,
    })
}

fn tls_inspector(config: &Message) -> TlsInspector {
    let size = config.number("max_client_hello_size").and_then(|size| usize::try_from(size).ok());
    TlsInspector {
        ja3: config.wrapped_flag("enable_ja3_fingerprinting").unwrap_or(false),
        ja4: config.wrapped_flag("enable_ja4_fingerprinting").unwrap_or(false),
        only_tls: config.flag("close_connection_on_client_hello_parsing_errors"),
        most_bytes: size.unwrap_or(TlsInspector::MOST_BYTES),
    }
}

/// Whether a listener is for datagrams, which is reported with its address.
fn is_udp(message: &Message) -> bool {
    let address = message.message("address");
    let socket = address.and_then(|address| address.message("socket_address"));
    socket.is_some_and(|socket| socket.choice("protocol") == "UDP")
}

/// Whether a listener wants to know where its connections were going to.
fn asks_for_destination(message: &Message) -> bool {
    let mut filters = message.messages("listener_filters");
    message.wrapped_flag("use_original_dst").unwrap_or(false)
        || filters.any(|filter| match filter.message("config_discovery") {
            // Whatever comes of it.
            Some(discovery) => {
                discovery.texts("type_urls").any(|(url, _)| url.ends_with(ORIGINAL_DST))
            }
            None => filter.any("typed_config").is_some_and(|(any, _)| any.name == ORIGINAL_DST),
        })
}

/// The socket addresses of a listener.
fn addresses(listener: &Message) -> impl Iterator<Item = &Message> {
    let first = listener.message("address").into_iter();
    let others = listener.messages("additional_addresses").filter_map(|it| it.message("address"));
    first.chain(others).filter_map(|address| address.message("socket_address"))
}

/// Whether two listeners cannot both be there: they want one address.
fn clash(one: &Listener, other: &Listener) -> bool {
    let fixed = |address: &&Address| address.ip().is_none_or(|ip| ip.port() != 0);
    one.bind == other.bind
        && one.addresses.iter().filter(fixed).any(|address| other.addresses.contains(address))
}

/// An address as it stands in the names of statistics.
fn stat_name(address: &Address) -> String {
    match address {
        Address::Internal(name) => format!("envoy_internal_{}", name.trim_end_matches('/')),
        Address::Ip(_) | Address::Unix(_) => address.to_string().replace(':', "_"),
    }
}

/// Envoy's default for `per_connection_buffer_limit_bytes`, which bounds what it keeps for retries.
const DEFAULT_RETRY_BUFFER_LIMIT: usize = 1024 * 1024;
const IPPROTO_TCP: i32 = 6;
const TCP_FASTOPEN: i32 = 23;
