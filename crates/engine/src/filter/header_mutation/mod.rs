//! `envoy.filters.http.header_mutation`: headers that a chain adds and takes away.

use std::rc::Rc;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, ResponseView};
use crate::header_ops::{HeaderMutations, Subject};

/// Envoy `HeaderMutation`.
#[derive(Clone, Debug)]
pub struct HeaderMutation {
    /// On the request's way in.
    pub request: HeaderMutations,
    /// On the response's way out.
    pub response: HeaderMutations,
}

impl FilterConfig for HeaderMutation {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(self.clone())
    }

    fn reads_record(&self) -> bool {
        true
    }
}

impl HttpFilter for HeaderMutation {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        self.request.apply(request.head, Subject::Request, request.facts, request.scratch);
        OnRequest::Pass
    }

    fn on_response(&self, response: &mut ResponseView<'_>) {
        if !self.response.is_empty() {
            self.response.apply(response.head, Subject::Response, response.facts, response.scratch);
        }
    }
}
