//! `envoy.filters.network.set_filter_state`: objects of a connection's filter state, with which all of its streams
//! begin; and `envoy.filters.network.sni_cluster`, which sets one.

use std::sync::Arc;

use super::{Moment, NetworkFilter, NetworkFilterConfig};
use crate::filter::set_filter_state::Setting;
use crate::stats::Registry;

/// Envoy `extensions.filters.network.set_filter_state.v3.Config`.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// `on_new_connection`.
    pub accepted: Box<[Setting]>,
    /// `on_downstream_tls_handshake`; without TLS when the connection begins.
    pub secured: Box<[Setting]>,
    /// `on_downstream_data`: with the first bytes.
    pub received: Box<[Setting]>,
}

impl NetworkFilterConfig for ConnectionState {
    fn start(self: Arc<Self>, _registry: &Registry, _worker: u32) -> Box<dyn NetworkFilter> {
        Box::new(Running(self))
    }
}

#[derive(Debug)]
struct Running(Arc<ConnectionState>);

impl NetworkFilter for Running {
    fn settings(&self, moment: Moment) -> &[Setting] {
        match moment {
            Moment::Accepted => &self.0.accepted,
            Moment::Secured => &self.0.secured,
            Moment::Received => &self.0.received,
        }
    }
}
