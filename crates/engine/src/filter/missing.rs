//! A filter that a control plane was asked for and did not give: no request passes it.

use std::rc::Rc;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView};
use crate::record::Flags;

/// Stands where the filter would. Envoy answers 500 there, with the flag `NFCF`.
#[derive(Clone, Copy, Debug)]
pub struct Missing;

impl FilterConfig for Missing {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Self)
    }
}

impl HttpFilter for Missing {
    fn on_request(&self, _request: &mut RequestView<'_>) -> OnRequest {
        let mut reply = Reply::new(500, b"", "");
        reply.flags.set(Flags::NO_FILTER_CONFIG_FOUND);
        OnRequest::Answer(reply)
    }
}
