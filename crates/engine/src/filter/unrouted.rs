//! The end of a chain that has no filters, and so no router: requests go no further.

use std::rc::Rc;

use bytes::Bytes;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, StreamFilter};
use crate::format::Facts;

/// Stands where the router would. As in Envoy a request waits there, its content is dropped, and its time runs out.
#[derive(Clone, Copy, Debug)]
pub struct Unrouted;

impl FilterConfig for Unrouted {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Self)
    }
}

impl HttpFilter for Unrouted {
    fn on_request(&self, _request: &mut RequestView<'_>) -> OnRequest {
        OnRequest::Talk { watcher: Box::new(Self), waits: true }
    }
}

impl StreamFilter for Unrouted {
    fn on_request_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        data.clear();
        Ok(())
    }
}
