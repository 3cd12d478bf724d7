//! `envoy.filters.http.health_check` without pass-through: whether this proxy wants traffic.

use std::rc::Rc;

use towpath_proto::Name;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, ResponseView};
use crate::matcher::HeaderMatcher;
use crate::record::{Flags, details};

/// Envoy `HealthCheck`.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// Which requests are answered; all must match.
    pub headers: Vec<HeaderMatcher>,
}

impl FilterConfig for HealthCheck {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(self.clone())
    }
}

impl HttpFilter for HealthCheck {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if !self.headers.iter().all(|header| header.matches(request.head)) {
            return OnRequest::Pass;
        }
        let mut reply = if request.drains {
            let mut reply = Reply::new(503, b"", details::HEALTH_CHECK_FAILED);
            reply.flags.set(Flags::FAILED_LOCAL_HEALTH_CHECK);
            reply
        } else {
            Reply::new(200, b"", details::HEALTH_CHECK_OK)
        };
        reply.health_check = true;
        let cluster = request.node_cluster.as_bytes();
        reply.head.set(Name::XEnvoyUpstreamHealthCheckedCluster, cluster);
        OnRequest::Answer(reply)
    }

    fn on_response(&self, response: &mut ResponseView<'_>) {
        if response.health_fails {
            response.head.set(Name::XEnvoyImmediateHealthCheckFail, b"true");
        }
    }
}
