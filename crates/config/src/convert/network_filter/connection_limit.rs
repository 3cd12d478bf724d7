//! How many connections a filter chain has at once.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::network_filter::connection_limit::ConnectionLimit;
use towpath_engine::total::Total;

use super::{Known, Read};
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    read: Read::Before(|converter, config, before| {
        let switch = config.message("runtime_enabled");
        if switch.is_none_or(|switch| converter.runtime_flag(switch)) {
            before.list.push(Arc::new(ConnectionLimit {
                stat_prefix: Arc::from(config.text("stat_prefix")),
                max_connections: config.number("max_connections").unwrap_or(1),
                open: Total::default(),
                delay: config.duration("delay").unwrap_or(Duration::ZERO),
            }));
        }
        Some(())
    }),
    support: SUPPORT,
};

const SUPPORT: &[Entry] = &[Entry {
    message: CONFIG,
    honoured: &["stat_prefix", "max_connections", "delay", "runtime_enabled"],
    harmless: &[],
    changes: &[],
}];
