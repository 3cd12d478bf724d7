//! The name of the server that a client asks for is the cluster that its bytes go to.

use std::sync::Arc;

use towpath_engine::filter::set_filter_state::Setting;
use towpath_engine::network_filter::set_filter_state::ConnectionState;
use towpath_engine::stream_info::Sharing;

use super::{Known, Read};
use crate::convert::filter::set_filter_state::TCP_CLUSTER;
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.network.sni_cluster.v3.SniCluster";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    read: Read::Before(|converter, config, before| {
        let setting = Setting {
            name: TCP_CLUSTER.into(),
            value: converter.format("%REQUESTED_SERVER_NAME%", true, &config.at)?,
            sharing: Sharing::None,
            skips_empty: true,
            is_hashable: false,
        };
        let accepted = Box::new([setting]);
        before.list.push(Arc::new(ConnectionState { accepted, ..ConnectionState::default() }));
        Some(())
    }),
    support: SUPPORT,
};

const SUPPORT: &[Entry] = &[Entry { message: CONFIG, honoured: &[], harmless: &[], changes: &[] }];
