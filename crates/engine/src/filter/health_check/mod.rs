//! `envoy.filters.http.health_check` without pass-through: whether this proxy wants traffic.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Name;

use super::{
    FilterConfig, FilterScope, HttpFilter, OnAnswer, OnRequest, Release, Reply, RequestView,
    ResponseView, StreamFilter,
};
use crate::format::Facts;
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
        Rc::new(Rc::new(Instance { headers: self.headers.clone(), stats }))
    }
}

#[derive(Debug)]
struct Instance {
    headers: Vec<HeaderMatcher>,
    stats: Arc<HealthCheckFilterStats>,
}

impl Instance {
    /// What is said of this proxy.
    fn reply(&self, request: &RequestView<'_>) -> Reply {
        self.stats.request_total.inc();
        if !request.drains {
            self.stats.ok.inc();
            return Reply::new(200, b"", details::HEALTH_CHECK_OK);
        }
        self.stats.failed.inc();
        let mut reply = Reply::new(503, b"", details::HEALTH_CHECK_FAILED);
        reply.flags.set(Flags::FAILED_LOCAL_HEALTH_CHECK);
        reply
    }
}

impl HttpFilter for Rc<Instance> {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if !self.headers.iter().all(|header| header.matches(request.head)) {
            return OnRequest::Pass;
        }
        request.checks_health = true;
        if request.ends {
            OnRequest::Answer(self.reply(request))
        } else {
            // Nothing of it is kept.
            OnRequest::Collect(Box::new(Check { filter: Self::clone(self) }), usize::MAX)
        }
    }

    fn on_response(&self, response: &mut ResponseView<'_>) {
        tell(response);
    }
}

/// A check that has content: it is answered when that is over.
#[derive(Debug)]
struct Check {
    filter: Rc<Instance>,
}

impl StreamFilter for Check {
    fn on_request_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        data.clear();
        Ok(())
    }

    fn on_collected(&mut self, request: &mut RequestView<'_>) -> OnAnswer {
        OnAnswer::Reply(self.filter.reply(request))
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        tell(response);
        Release::Now
    }
}

/// Says to a check who was checked, and to all that checks fail.
fn tell(response: &mut ResponseView<'_>) {
    if response.checks_health {
        let cluster = response.node_cluster.as_bytes();
        response.head.set(Name::XEnvoyUpstreamHealthCheckedCluster, cluster);
    }
    if response.health_fails {
        response.head.set(Name::XEnvoyImmediateHealthCheckFail, b"true");
    }
}
