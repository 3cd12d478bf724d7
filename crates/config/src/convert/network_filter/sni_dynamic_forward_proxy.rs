//! Connections go to the server that their client asks for.

use std::sync::Arc;

use towpath_engine::network_filter::sni_dynamic_forward_proxy::SniForward;

use super::{Known, Read};
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    read: Read::Before(|converter, config, before| {
        if let Some(cache) = converter.dns_cache_of(config) {
            let port = config.number("port_value").and_then(|port| u16::try_from(port).ok());
            match port {
                Some(port) => before.list.push(Arc::new(SniForward { cache, port })),
                None => {
                    let text =
                        "without a port connections go to port 0 in Envoy: write `port_value`";
                    converter.report.unsupported(&config.at, text);
                }
            }
        }
        Some(())
    }),
    support: SUPPORT,
};

const SUPPORT: &[Entry] = &[Entry {
    message: CONFIG,
    honoured: &["dns_cache_config", "port_value"],
    harmless: &[("save_upstream_address", "nothing that is there reads it")],
    changes: &[],
}];
