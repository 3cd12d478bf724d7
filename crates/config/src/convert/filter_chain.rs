//! Filter chains: which connections they take, and the filters in them.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::FilterChain;
use towpath_engine::snapshot::listener::{
    Answer, ChainMatch, ConnectionLimit, NetworkFilters, SourceType, Terminal, Transport,
};
use towpath_engine::total::Total;

use super::Converter;
use super::bolt::BOLT_PROXY;
use super::extension::NETWORK_FILTER;
use super::extension_discovery::{Found, Place};
use super::filter::set_filter_state::NETWORK as SET_STATE;
use super::forward_proxy::SNI as SNI_FORWARD;
use super::istio::{EXCHANGE, STATS};
use super::rbac::NETWORK_RBAC;
use crate::message::Message;

const HTTP: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TCP: &str = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
const CONNECTION_LIMIT: &str =
    "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit";

const LOCAL_RATE: &str = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit";
const ECHO: &str = "envoy.extensions.filters.network.echo.v3.Echo";
const DIRECT_RESPONSE: &str = "envoy.extensions.filters.network.direct_response.v3.Config";
const SNI_CLUSTER: &str = "envoy.extensions.filters.network.sni_cluster.v3.SniCluster";
/// The network filters that there are.
const KNOWN: [&str; 13] = [
    HTTP,
    TCP,
    BOLT_PROXY,
    ECHO,
    DIRECT_RESPONSE,
    LOCAL_RATE,
    SET_STATE,
    CONNECTION_LIMIT,
    NETWORK_RBAC,
    SNI_CLUSTER,
    SNI_FORWARD,
    EXCHANGE,
    STATS,
];

/// What a chain answers at most; Envoy has no limit.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// What a filter is to its chain.
enum Filter {
    /// Others follow it; it is among those that were collected.
    Deciding,
    Last(Terminal),
}

impl Converter<'_> {
    pub(super) fn filter_chain(&mut self, chain: &Message) -> Option<FilterChain> {
        let matches = chain.message("filter_chain_match").map(|matches| self.chain_match(matches));
        let filters: Vec<_> = chain.messages("filters").collect();
        let count = filters.len();
        let (mut before, mut terminal) = (NetworkFilters::default(), None);
        for (message, index) in filters.into_iter().zip(1..) {
            match self.network_filter(message, &mut before, index == count)? {
                Filter::Last(_) if index < count => {
                    let name = message.text("name");
                    self.report.problem(
                        &message.at,
                        format!("terminal filter named {name} must be the last filter"),
                    );
                }
                Filter::Last(last) => terminal = Some(last),
                Filter::Deciding if index == count => {
                    let name = message.text("name");
                    self.report.problem(
                        &message.at,
                        format!("non-terminal filter named {name} is the last filter"),
                    );
                }
                Filter::Deciding => {}
            }
        }
        let socket = chain.message("transport_socket");
        let mut tls = socket.and_then(|socket| self.downstream_socket(socket, terminal.as_ref()));
        if count == 0 {
            // Connections end at once, before any handshake, and are counted like those of a chain that lacks a filter.
            before.is_missing = true;
            (terminal, tls) = (Some(Terminal::Answer(Answer::Fixed(Vec::new().into()))), None);
        }
        Some(FilterChain {
            name: Arc::from(chain.text("name")),
            matches: matches.unwrap_or_default(),
            filters: before,
            terminal: terminal?,
            tls,
            transport_timeout: chain.duration("transport_socket_connect_timeout"),
        })
    }

    /// Reads a filter; one that others follow goes to those before the last. `None` ends the chain's conversion.
    fn network_filter(
        &mut self,
        message: &Message,
        before: &mut NetworkFilters,
        is_last: bool,
    ) -> Option<Filter> {
        if is_last && message.has("config_discovery") {
            let text = "the last filter of a chain is not asked for by xDS";
            self.report.unsupported(message.at("config_discovery"), text);
            return None;
        }
        let place = Place {
            extends: NETWORK_FILTER,
            family: "network_filter",
            known: &KNOWN,
            terminal: &[HTTP, TCP, BOLT_PROXY, ECHO, DIRECT_RESPONSE],
            is_last,
        };
        let config = match self.filter_config(message, place)? {
            Found::Config(config) => config,
            Found::Missing => {
                before.is_missing = true;
                return Some(Filter::Deciding);
            }
        };
        match config.descriptor.full_name() {
            HTTP => return Some(Filter::Last(Terminal::Http(Arc::new(self.http(config)?)))),
            TCP => return Some(Filter::Last(Terminal::Tcp(Arc::new(self.tcp_proxy(config)?)))),
            BOLT_PROXY => {
                return Some(Filter::Last(Terminal::Bolt(Arc::new(self.bolt_proxy(config)?))));
            }
            ECHO => return Some(Filter::Last(Terminal::Answer(Answer::Echo))),
            DIRECT_RESPONSE => {
                let text = config.message("response");
                let text = text.and_then(|text| self.data(text, MAX_ANSWER_BYTES));
                let answer = Answer::Fixed(text.unwrap_or_default().into());
                return Some(Filter::Last(Terminal::Answer(answer)));
            }
            SET_STATE => before.states.push(self.connection_state(config)),
            LOCAL_RATE => before.rates.extend(self.connection_rate(config)),
            NETWORK_RBAC => {
                let behind = before.states.len();
                before.rbac.push(self.network_rbac(config, behind)?);
            }
            SNI_CLUSTER => before.states.extend(self.cluster_by_name(&config.at)),
            SNI_FORWARD => before.sni_forward = self.sni_forward(config),
            EXCHANGE => before.greetings = Some(Arc::new(self.istio_greetings(config))),
            STATS => before.telemetry = self.istio_telemetry(config).map(Arc::new),
            _ => before.limits.extend(self.connection_limit(config)),
        }
        Some(Filter::Deciding)
    }

    /// A limit, unless it is switched off.
    fn connection_limit(&mut self, config: &Message) -> Option<ConnectionLimit> {
        if let Some(enabled) = config.message("runtime_enabled")
            && !self.runtime_flag(enabled)
        {
            return None;
        }
        Some(ConnectionLimit {
            stat_prefix: Arc::from(config.text("stat_prefix")),
            max_connections: config.number("max_connections").unwrap_or(1),
            open: Total::default(),
            delay: config.duration("delay").unwrap_or(Duration::ZERO),
        })
    }

    fn server_names(&mut self, matches: &Message) -> Vec<Box<str>> {
        let mut names = Vec::new();
        for (name, at) in matches.texts("server_names") {
            let name = name.to_ascii_lowercase();
            let rest = name.strip_prefix("*.").map_or(&*name, |_| &name[1..]);
            if rest.contains('*') {
                self.report.problem(at, "partial wildcards are not supported in \"server_names\"");
            }
            names.push(rest.into());
        }
        names
    }

    fn chain_match(&mut self, matches: &Message) -> ChainMatch {
        for unimplemented in ["address_suffix", "suffix_len"] {
            if matches.has(unimplemented) {
                self.report.problem(
                    matches.at(unimplemented),
                    "reserved in Envoy's API: no version of Envoy reads it",
                );
            }
        }
        let transport = match matches.text("transport_protocol") {
            "" => None,
            "raw_buffer" => Some(Transport::RawBuffer),
            "tls" => Some(Transport::Tls),
            _ => {
                self.report.unsupported(
                    matches.at("transport_protocol"),
                    "no listener filter finds another than tls and raw_buffer",
                );
                None
            }
        };
        ChainMatch {
            server_names: self.server_names(matches),
            transport,
            protocols: matches
                .texts("application_protocols")
                .map(|(protocol, _)| protocol.as_bytes().into())
                .collect(),
            destination_port: matches
                .number("destination_port")
                .and_then(|port| u16::try_from(port).ok()),
            destination: self.prefixes(matches, "prefix_ranges"),
            direct_source: self.prefixes(matches, "direct_source_prefix_ranges"),
            source_type: match matches.choice("source_type").as_str() {
                "SAME_IP_OR_LOOPBACK" => SourceType::SameIpOrLoopback,
                "EXTERNAL" => SourceType::External,
                _ => SourceType::Any,
            },
            source: self.prefixes(matches, "source_prefix_ranges"),
            source_ports: matches
                .numbers("source_ports")
                .filter_map(|(port, _)| u16::try_from(port).ok())
                .collect(),
        }
    }
}
