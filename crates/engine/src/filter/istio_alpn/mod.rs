//! Istio's `alpn`: says in handshakes with other sidecars what is spoken inside, which they choose their chains by.

use std::rc::Rc;
use std::sync::Arc;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView};
use crate::mesh::AlpnOverride;

/// Istio `alpn.v2alpha1.FilterConfig`.
#[derive(Debug)]
pub struct IstioAlpn(pub Arc<AlpnOverride>);

impl FilterConfig for IstioAlpn {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance(Arc::clone(&self.0)))
    }

    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance(Arc<AlpnOverride>);

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let keeps = request.facts.mesh.is_some_and(|mesh| mesh.keeps_alpn);
        if let Some(mesh) = request.facts.found.filter(|_| request.forwards && !keeps) {
            // The first says it.
            let _ = mesh.found().alpn.set(Arc::clone(&self.0));
        }
        OnRequest::Pass
    }
}
