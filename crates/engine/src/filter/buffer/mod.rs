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
mod tests {
    use super::super::testing::{Stream, scope};
    use super::*;

    /// The limit that a request with content is collected to.
    fn limit_of(mut stream: Stream) -> Option<usize> {
        let filter = Buffer { limit: 10 }.start(&scope());
        stream.ends = false;
        let outcome = stream.request(|view| filter.on_request(view));
        if let OnRequest::Collect(_, limit) = outcome { Some(limit) } else { None }
    }

    #[test]
    fn the_limit_is_the_most_specific_one() {
        let stream = || Stream::new(b"POST", &[]);
        assert_eq!(limit_of(stream()), Some(10));
        for limit in [0, 11] {
            let route = RouteBuffer::Limit(Buffer { limit });
            assert_eq!(limit_of(stream().on_route(route)), Some(limit));
        }
        assert_eq!(limit_of(stream().on_route(RouteBuffer::Disabled)), None);
        let filter = Buffer { limit: 10 };
        let passed = stream().request(|view| filter.on_request(view));
        assert!(matches!(passed, OnRequest::Pass), "without content");
    }

    #[test]
    fn a_request_says_how_long_it_is_unless_it_does_already() {
        for (said, wanted) in [(None, "5"), (Some("7"), "7")] {
            let mut stream = Stream::new(b"POST", &[]);
            if let Some(said) = said {
                stream.head.set(Name::ContentLength, said.as_bytes());
            }
            stream.content = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cde")];
            let went = stream.request(|view| Collected.on_collected(view));
            assert!(matches!(went, OnAnswer::GoOn));
            assert_eq!(stream.head.get(Name::ContentLength), Some(wanted.as_bytes()));
        }
    }
}
