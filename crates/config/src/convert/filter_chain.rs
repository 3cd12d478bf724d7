//! Filter chains: which connections they take, and the filters in them.

use std::sync::Arc;

use towpath_engine::snapshot::FilterChain;
use towpath_engine::snapshot::listener::{
    Answer, ChainMatch, NetworkFilters, SourceType, Terminal, Transport,
};

use super::Converter;
use super::extension::NETWORK_FILTER;
use super::extension_discovery::{Found, Place};
use super::metadata::filter_metadata;
use super::network_filter::{FILTERS, Read};
use crate::message::Message;

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
            filter_metadata: filter_metadata(chain),
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
        let known: Vec<_> = FILTERS.iter().map(|known| known.config_type).collect();
        let last = FILTERS.iter().filter(|known| known.is_last());
        let terminal: Vec<_> = last.map(|known| known.config_type).collect();
        let place = Place {
            extends: NETWORK_FILTER,
            family: "network_filter",
            known: &known,
            terminal: &terminal,
            is_last,
        };
        let config = match self.filter_config(message, place)? {
            Found::Config(config) => config,
            Found::Missing => {
                before.is_missing = true;
                return Some(Filter::Deciding);
            }
        };
        let config_type = config.descriptor.full_name();
        match FILTERS.iter().find(|known| known.config_type == config_type)?.read {
            Read::Before(read) => read(self, config, before).map(|()| Filter::Deciding),
            Read::Last(read) => read(self, config).map(Filter::Last),
        }
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
