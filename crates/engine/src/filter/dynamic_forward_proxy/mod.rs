//! `envoy.filters.http.dynamic_forward_proxy`: a request waits until the address of the name that it wants to go to is
//! known.
//!
//! Arrives: requests whose route leads to a cluster of that kind. Leaves: the wish that the name be known. The names
//! are kept by the control thread (`names/`); who waits for them, and what is said of a name without an address, is
//! looked after by `exchange/names.rs`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::HeaderName;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, Resolve, RouteConfig};

/// Envoy `FilterConfig`.
#[derive(Clone, Debug)]
pub struct ForwardProxy {
    /// `dns_cache_config.name`.
    pub cache: Arc<str>,
    /// `allow_dynamic_host_from_filter_state`: what other filters say of host and port comes before the request's own.
    pub by_state: bool,
    /// `sub_cluster_config.cluster_init_timeout`: how long a request waits for a cluster that is made for it. Default
    /// 5 s.
    pub within: Duration,
}

/// Envoy `PerRouteConfig`: a host in place of the request's own.
#[derive(Clone, Debug)]
pub enum RouteHost {
    /// `host_rewrite_literal`.
    Literal(Arc<str>),
    /// `host_rewrite_header`: the first value of this field, where there is one.
    Header(HeaderName),
}

impl RouteConfig for RouteHost {}

impl FilterConfig for ForwardProxy {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(self.clone())
    }

    fn reads_record(&self) -> bool {
        self.by_state
    }
}

impl HttpFilter for ForwardProxy {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if !request.forwards {
            return OnRequest::Pass;
        }
        let host = match request.route.first::<RouteHost>() {
            Some(RouteHost::Literal(host)) => Some(host.as_bytes().into()),
            Some(RouteHost::Header(name)) => request.head.get_named(name).map(Box::from),
            None => None,
        };
        let cache = Arc::clone(&self.cache);
        let Self { by_state, within, .. } = *self;
        OnRequest::Resolve(Box::new(Resolve { cache, host, by_state, within }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stream, scope};
    use super::*;

    fn asked(mut stream: Stream) -> Option<Resolve> {
        let within = Duration::from_secs(5);
        let config = ForwardProxy { cache: "c".into(), by_state: true, within };
        let filter = config.start(&scope());
        let outcome = stream.request(|view| filter.on_request(view));
        if let OnRequest::Resolve(resolve) = outcome { Some(*resolve) } else { None }
    }

    #[test]
    fn a_route_says_which_host_is_meant() {
        let header = || RouteHost::Header(HeaderName::new("x-to").unwrap());
        let host = |stream| asked(stream).unwrap().host;
        let to = [("x-to", "b"), ("x-to", "c")];
        assert_eq!(host(Stream::new(b"GET", &to)), None);
        let literal = Stream::new(b"GET", &to).on_route(RouteHost::Literal("a".into()));
        assert_eq!(host(literal).as_deref(), Some(&b"a"[..]));
        assert_eq!(host(Stream::new(b"GET", &to).on_route(header())).as_deref(), Some(&b"b"[..]));
        assert_eq!(host(Stream::new(b"GET", &[]).on_route(header())), None);
    }

    #[test]
    fn what_is_answered_here_waits_for_no_name() {
        let mut stream = Stream::new(b"GET", &[]);
        stream.forwards = false;
        assert!(asked(stream).is_none());
    }
}
