//! `envoy.filters.http.health_check` without pass-through: whether this proxy wants traffic.

use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::Name;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, ResponseView};
use crate::matcher::HeaderMatcher;
use crate::record::{Flags, details};
use crate::stats::HealthCheckFilterStats;

/// Envoy `HealthCheck`.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// Which requests are answered; all must match.
    pub headers: Vec<HeaderMatcher>,
}

impl FilterConfig for HealthCheck {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let stats = scope.stats("http_health_check");
        Rc::new(Instance { headers: self.headers.clone(), stats })
    }
}

#[derive(Debug)]
struct Instance {
    headers: Vec<HeaderMatcher>,
    stats: Arc<HealthCheckFilterStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if !self.headers.iter().all(|header| header.matches(request.head)) {
            return OnRequest::Pass;
        }
        self.stats.request_total.inc();
        let mut reply = if request.drains {
            self.stats.failed.inc();
            let mut reply = Reply::new(503, b"", details::HEALTH_CHECK_FAILED);
            reply.flags.set(Flags::FAILED_LOCAL_HEALTH_CHECK);
            reply
        } else {
            self.stats.ok.inc();
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
