//! Envoy `ExtensionWithMatcher`: a filter that some requests skip.

use std::rc::Rc;
use std::sync::Arc;

use super::{
    Ahead, FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, ResponseFilter,
    ResponseView, StreamFilter,
};
use crate::matcher::tree::Tree;

/// A filter behind a matcher.
#[derive(Debug)]
pub struct Matching {
    /// The filter.
    pub inner: Arc<dyn FilterConfig>,
    /// Requests for which it leads to an action, which is [`Skip`], go without the filter.
    pub tree: Tree<Skip>,
}

/// Envoy `SkipFilter`.
#[derive(Clone, Copy, Debug)]
pub struct Skip;

impl FilterConfig for Matching {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { inner: self.inner.start(scope), tree: self.tree.clone() })
    }

    fn reads_record(&self) -> bool {
        self.inner.reads_record() || self.tree.reads_record()
    }

    fn asked_ahead(&self) -> &[Arc<dyn Ahead>] {
        self.inner.asked_ahead()
    }
}

#[derive(Debug)]
struct Instance {
    inner: Rc<dyn HttpFilter>,
    tree: Tree<Skip>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        match self.tree.find(&request.subject()) {
            None => self.inner.on_request(request),
            // The filter does not see the response either.
            Some(Skip) => OnRequest::Watch(Box::new(Skipped)),
        }
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        self.inner.response_filter().map(|_| self as &dyn ResponseFilter)
    }
}

impl ResponseFilter for Instance {
    fn on_response(&self, response: &mut ResponseView<'_>) {
        if let Some(inner) = self.inner.response_filter() {
            inner.on_response(response);
        }
    }

    fn join(&self, response: &mut ResponseView<'_>) -> Option<Box<dyn StreamFilter>> {
        self.inner.response_filter()?.join(response)
    }
}

/// Goes with a stream that skips the filter.
#[derive(Debug)]
struct Skipped;

impl StreamFilter for Skipped {}
