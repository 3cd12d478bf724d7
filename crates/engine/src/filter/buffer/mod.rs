//! `envoy.filters.http.buffer`: a request goes on when all of it is here, and says how long it is.

use std::rc::Rc;

use bytes::Bytes;
use towpath_proto::Name;

use super::StreamFilter;
use super::{FilterConfig, FilterScope, HttpFilter, OnAnswer, OnRequest, RequestView, RouteConfig};

/// Envoy `Buffer`.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// `max_request_bytes`: what is longer is answered with 413.
    pub limit: usize,
}

/// Envoy `BufferPerRoute`.
#[derive(Clone, Copy, Debug)]
pub enum RouteBuffer {
    /// `disabled`.
    Disabled,
    /// `buffer`.
    Limit(Buffer),
}

impl RouteConfig for RouteBuffer {}

impl FilterConfig for Buffer {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(*self)
    }
}

impl HttpFilter for Buffer {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if request.ends {
            return OnRequest::Pass;
        }
        match request.route.first().copied().unwrap_or(RouteBuffer::Limit(*self)) {
            RouteBuffer::Disabled => OnRequest::Pass,
            RouteBuffer::Limit(Self { limit }) => OnRequest::Collect(Box::new(Collected), limit),
        }
    }
}

#[derive(Debug)]
struct Collected;

impl StreamFilter for Collected {
    fn on_collected(&mut self, request: &mut RequestView<'_>) -> OnAnswer {
        if request.head.get(Name::ContentLength).is_none() {
            let length: usize = request.content.iter().map(Bytes::len).sum();
            request.head.set_number(Name::ContentLength, length as u64);
        }
        OnAnswer::GoOn
    }
}

#[cfg(test)]
pub(super) mod tests;
