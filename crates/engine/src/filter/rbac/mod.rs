//! `envoy.filters.http.rbac`: rules that say who may ask for what.

use std::rc::Rc;
use std::sync::Arc;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, RouteConfig};
use crate::rbac::Rules;
use crate::stats::RbacStats;

/// Envoy `extensions.filters.http.rbac.v3.RBAC`.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    /// `rules`; without them everything is allowed.
    pub rules: Option<Rules>,
    /// `shadow_rules`: only counted.
    pub shadow: Option<Rules>,
}

/// Envoy `RBACPerRoute`: takes the place of the chain's rules, with none too.
#[derive(Clone, Debug)]
pub struct RbacPerRoute(pub Rbac);

impl RouteConfig for RbacPerRoute {}

impl FilterConfig for Rbac {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { config: self.clone(), stats: scope.stats("http_rbac") })
    }

    /// Addresses, and what the client's certificate says.
    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance {
    config: Rbac,
    stats: Arc<RbacStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let by_route = request.route.first().map(|RbacPerRoute(config)| config);
        let config = by_route.unwrap_or(&self.config);
        let subject = request.subject();
        if let Some(shadow) = &config.shadow {
            self.stats.count_shadow(shadow.judge(&subject).is_allowed);
        }
        let Some(rules) = &config.rules else { return OnRequest::Pass };
        let judgement = rules.judge(&subject);
        self.stats.count(judgement.is_allowed);
        if judgement.is_allowed {
            return OnRequest::Pass;
        }
        OnRequest::Answer(Reply::new(403, b"RBAC: access denied", judgement.details))
    }
}
