//! Objects of a connection's filter state.

use std::sync::Arc;

use towpath_engine::network_filter::set_filter_state::ConnectionState;

use super::{Known, Read};
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.network.set_filter_state.v3.Config";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    read: Read::Before(|converter, config, before| {
        let mut at = |field: &str| {
            let all = config.messages(field);
            all.filter_map(|value| converter.state_setting(value, true)).collect()
        };
        before.list.push(Arc::new(ConnectionState {
            accepted: at("on_new_connection"),
            secured: at("on_downstream_tls_handshake"),
            received: at("on_downstream_data"),
        }));
        Some(())
    }),
    support: SUPPORT,
};

const SUPPORT: &[Entry] = &[Entry {
    message: CONFIG,
    honoured: &["on_new_connection", "on_downstream_tls_handshake", "on_downstream_data"],
    harmless: &[],
    changes: &[],
}];
