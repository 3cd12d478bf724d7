//! `envoy.filters.http.rbac`: rules that say who may ask for what.
//!
//! What they say becomes dynamic metadata for filters behind it and for logs.

use std::rc::Rc;
use std::sync::Arc;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, RouteConfig};
use crate::rbac::{COMMON, ENFORCED, Judgement, Rules, SHADOW};
use crate::stats::{RbacStats, ShadowRbacStats};
use crate::stream_info::{StreamInfo, Struct};

/// Envoy `extensions.filters.http.rbac.v3.RBAC`.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    /// `rules`; without them everything is allowed.
    pub rules: Option<Rules>,
    /// `shadow_rules`: only counted.
    pub shadow: Option<Rules>,
    /// `rules_stat_prefix`: of the counters, and of the keys of the metadata; it may be empty.
    pub prefix: Arc<str>,
    /// `shadow_rules_stat_prefix`: the same of the rules that are only counted.
    pub shadow_prefix: Arc<str>,
}

/// Envoy `RBACPerRoute`: takes the place of the chain's rules, with none too. Its prefixes are those of the metadata
/// alone.
#[derive(Clone, Debug)]
pub struct RbacPerRoute(pub Rbac);

impl RouteConfig for RbacPerRoute {
    fn reads_record(&self) -> bool {
        self.0.reads_record()
    }
}

impl FilterConfig for Rbac {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        // Counters have names of whole words: a dot at a prefix's end is Envoy's own.
        let of = |prefix: &str| {
            let rules = Arc::from(prefix.strip_suffix('.').unwrap_or(prefix));
            scope.names("http_rbac").part("envoy_rbac_http_prefix", &rules)
        };
        let stats = scope.named(of(&self.prefix));
        let shadow_stats = scope.named(of(&self.shadow_prefix));
        Rc::new(Instance { config: self.clone(), stats, shadow_stats })
    }

    /// What it says itself is kept where something else reads it.
    fn reads_record(&self) -> bool {
        [&self.rules, &self.shadow].into_iter().flatten().any(Rules::reads_record)
    }
}

#[derive(Debug)]
struct Instance {
    config: Rbac,
    stats: Arc<RbacStats>,
    shadow_stats: Arc<ShadowRbacStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let by_route = request.route.first().map(|RbacPerRoute(config)| config);
        let config = by_route.unwrap_or(&self.config);
        let subject = request.subject();
        let shadow = config.shadow.as_ref().map(|rules| rules.judge(&subject));
        let judgement = config.rules.as_ref().map(|rules| rules.judge(&subject));
        if let Some(shadow) = shadow {
            self.shadow_stats.count(shadow.is_allowed);
        }
        if let Some(info) = request.facts.info {
            self.note(by_route, (shadow, judgement), info);
        }
        let Some(judgement) = judgement else { return OnRequest::Pass };
        self.stats.count(judgement.is_allowed);
        if judgement.is_allowed {
            return OnRequest::Pass;
        }
        OnRequest::Answer(Reply::new(403, b"RBAC: access denied", judgement.details))
    }
}

impl Instance {
    /// Leaves in the dynamic metadata what was said. What is too much for one stream is left out.
    fn note(
        &self,
        by_route: Option<&Rbac>,
        (shadow, enforced): (Option<Judgement<'_>>, Option<Judgement<'_>>),
        info: &StreamInfo,
    ) {
        let mut entries = Struct::new();
        let prefix = |of: fn(&Rbac) -> &Arc<str>| {
            let own = by_route.map(of).filter(|prefix| !prefix.is_empty());
            &**own.unwrap_or_else(|| of(&self.config))
        };
        if let Some(shadow) = shadow {
            shadow.note(&mut entries, prefix(|config| &config.shadow_prefix), SHADOW);
        }
        if let Some(enforced) = enforced {
            enforced.note(&mut entries, prefix(|config| &config.prefix), ENFORCED);
        }
        if !entries.is_empty() {
            let _ = info.add_metadata(NAMESPACE, entries);
        }
        if let Some(hint) = enforced.and_then(|judgement| judgement.hint()) {
            let _ = info.add_metadata(COMMON, hint);
        }
    }
}

const NAMESPACE: &str = "envoy.filters.http.rbac";

#[cfg(test)]
mod tests {
    use super::super::testing::{Stream, scope};
    use super::*;
    use crate::rbac::{Action, Policy, Rule};

    fn rules(action: Action, rule: Rule) -> Rules {
        Rules::new(action, vec![Policy::new("p", vec![rule], vec![Rule::Any])])
    }

    fn refused(config: &Rbac, stream: &mut Stream) -> Option<u16> {
        let filter = config.start(&scope());
        let outcome = stream.request(|view| filter.on_request(view));
        if let OnRequest::Answer(reply) = outcome { Some(reply.head.status()) } else { None }
    }

    #[test]
    fn what_no_policy_takes_is_refused_where_policies_allow() {
        let none = || Rule::Not(Box::new(Rule::Any));
        for (action, rule, wanted) in [
            (Action::Allow, Rule::Any, None),
            (Action::Allow, none(), Some(403)),
            (Action::Deny, Rule::Any, Some(403)),
            (Action::Deny, none(), None),
            (Action::Log, none(), None),
        ] {
            let config = Rbac { rules: Some(rules(action, rule)), ..Rbac::default() };
            assert_eq!(refused(&config, &mut Stream::new(b"GET", &[])), wanted, "{action:?}");
        }
        let empty = Rbac { rules: Some(Rules::new(Action::Allow, Vec::new())), ..Rbac::default() };
        assert_eq!(refused(&empty, &mut Stream::new(b"GET", &[])), Some(403));
        assert_eq!(refused(&Rbac::default(), &mut Stream::new(b"GET", &[])), None);
    }

    #[test]
    fn shadow_rules_refuse_nothing_and_are_noted() {
        let shadow = Some(rules(Action::Deny, Rule::Any));
        let mut stream = Stream::new(b"GET", &[]);
        assert_eq!(refused(&Rbac { shadow, ..Rbac::default() }, &mut stream), None);
        assert!(stream.info.read_metadata(NAMESPACE, &[], |value| value.is_some()));
    }

    #[test]
    fn a_route_takes_the_place_of_the_chain() {
        let denies = Rbac { rules: Some(rules(Action::Deny, Rule::Any)), ..Rbac::default() };
        let without = Stream::new(b"GET", &[]).on_route(RbacPerRoute(Rbac::default()));
        assert_eq!(refused(&denies, &mut { without }), None);
        let with = Stream::new(b"GET", &[]).on_route(RbacPerRoute(denies));
        assert_eq!(refused(&Rbac::default(), &mut { with }), Some(403));
    }
}
