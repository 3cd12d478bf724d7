//! Network filters: each that stands before the last of its chain has its conversion and its table of support in a file
//! of its name. All have an entry in [`FILTERS`].

mod connection_limit;
mod direct_response;
mod echo;
pub(super) mod local_ratelimit;
pub(super) mod rbac;
mod set_filter_state;
mod sni_cluster;
mod sni_dynamic_forward_proxy;

use std::sync::Arc;

use towpath_engine::snapshot::listener::{NetworkFilters, Terminal};

use super::Converter;
use super::bolt::BOLT_PROXY;
use super::istio::{EXCHANGE, STATS};
use crate::message::Message;
use crate::support::Entry;

/// How a filter is read.
pub(crate) struct Known {
    /// The type of its configuration.
    pub(crate) config_type: &'static str,
    pub(super) read: Read,
    /// The fields that it honours, of all its messages.
    pub(crate) support: &'static [Entry],
}

/// How a filter is read, by its place in its chain.
#[derive(Clone, Copy)]
pub(super) enum Read {
    /// Others follow it: it goes to those before the last. `None` ends the chain's conversion.
    Before(fn(&mut Converter<'_>, &Message, &mut NetworkFilters) -> Option<()>),
    /// It ends its chain.
    Last(fn(&mut Converter<'_>, &Message) -> Option<Terminal>),
}

impl Known {
    pub(super) const fn is_last(&self) -> bool {
        matches!(self.read, Read::Last(_))
    }
}

/// All there are.
pub(crate) const FILTERS: &[Known] = &[
    connection_limit::FILTER,
    direct_response::FILTER,
    echo::FILTER,
    local_ratelimit::FILTER,
    rbac::FILTER,
    set_filter_state::FILTER,
    sni_cluster::FILTER,
    sni_dynamic_forward_proxy::FILTER,
    // What these honour stands with what they are made of.
    Known {
        config_type: "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        read: Read::Last(|converter, config| {
            Some(Terminal::Http(Arc::new(converter.http(config)?)))
        }),
        support: &[],
    },
    Known {
        config_type: "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        read: Read::Last(|converter, config| {
            Some(Terminal::Tcp(Arc::new(converter.tcp_proxy(config)?)))
        }),
        support: &[],
    },
    Known {
        config_type: BOLT_PROXY,
        read: Read::Last(|converter, config| {
            Some(Terminal::Bolt(Arc::new(converter.bolt_proxy(config)?)))
        }),
        support: &[],
    },
    Known {
        config_type: EXCHANGE,
        read: Read::Before(|converter, config, before| {
            before.greetings = Some(Arc::new(converter.istio_greetings(config)));
            Some(())
        }),
        support: &[],
    },
    Known {
        config_type: STATS,
        read: Read::Before(|converter, config, before| {
            before.telemetry = converter.istio_telemetry(config).map(Arc::new);
            Some(())
        }),
        support: &[],
    },
];
