//! `envoy.filters.network.sni_dynamic_forward_proxy`: connections wait until the addresses of the server that their
//! client asks for are known, which is where they go then.

use std::sync::Arc;

use super::{NetworkFilter, NetworkFilterConfig};
use crate::stats::Registry;

/// Envoy `extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniForward {
    /// `dns_cache_config.name`.
    pub cache: Arc<str>,
    /// `port_value`: the port of all that are asked for, 1 to 65,535.
    pub port: u16,
}

impl NetworkFilterConfig for SniForward {
    fn start(self: Arc<Self>, _registry: &Registry, _worker: u32) -> Box<dyn NetworkFilter> {
        Box::new(Self::clone(&self))
    }
}

impl NetworkFilter for SniForward {
    fn forward(&self) -> Option<&SniForward> {
        Some(self)
    }
}
