//! `envoy.filters.network.rbac`: rules that say who may connect.
//!
//! What they say becomes dynamic metadata of the connection, for filters behind it and for logs.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::{Judges, NetworkFilter, NetworkFilterConfig, Verdict};
use crate::matcher::Subject;
use crate::rbac::{COMMON, Rules, SHADOW};
use crate::stats::{FilterNames, RbacStats, Registry, ShadowRbacStats};
use crate::stream_info::Struct;

/// Envoy `extensions.filters.network.rbac.v3.RBAC`.
#[derive(Debug, Default)]
pub struct NetworkRbac {
    /// Its counters' prefix.
    pub stat_prefix: Arc<str>,
    /// `rules`; without them everything is allowed.
    pub rules: Option<Rules>,
    /// `shadow_rules`: only counted.
    pub shadow: Option<Rules>,
    /// `shadow_rules_stat_prefix`, of their counters and of the keys of the metadata; it may be empty.
    pub shadow_prefix: Arc<str>,
    /// `enforcement_type: CONTINUOUS`: all that comes is judged, not only the first bytes.
    pub is_continuous: bool,
    /// `delay_deny`: how long a connection that is refused is held before it is closed.
    pub delay: Duration,
}

impl NetworkFilterConfig for NetworkRbac {
    fn start(self: Arc<Self>, registry: &Registry, worker: u32) -> Box<dyn NetworkFilter> {
        let names = |rules: Arc<str>| {
            let names = FilterNames::new("rbac", format!("{}.rbac", self.stat_prefix))
                .label("envoy_rbac_prefix", &self.stat_prefix);
            names.part("towpath_rbac_rules_prefix", &rules)
        };
        // Counters have names of whole words: a dot at a prefix's end is Envoy's own.
        let prefix = &*self.shadow_prefix;
        let of_shadow = names(prefix.strip_suffix('.').unwrap_or(prefix).into());
        let shadow_stats = registry.filter_set(worker, of_shadow);
        let stats = registry.filter_set(worker, names(Arc::from("")));
        Box::new(Running { config: self, stats, shadow_stats })
    }

    fn counts_with(&self, other: &dyn NetworkFilterConfig) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<Self>().is_some_and(|other| {
            other.stat_prefix == self.stat_prefix && other.shadow_prefix == self.shadow_prefix
        })
    }
}

#[derive(Debug)]
struct Running {
    config: Arc<NetworkRbac>,
    stats: Arc<RbacStats>,
    shadow_stats: Arc<ShadowRbacStats>,
}

impl NetworkFilter for Running {
    fn judges(&self) -> Judges {
        let has = |rules: &Option<Rules>| rules.as_ref().is_some_and(Rules::has_conditions);
        Judges {
            first: true,
            all: self.config.is_continuous,
            by_conditions: has(&self.config.rules) || has(&self.config.shadow),
        }
    }

    fn judge(&self, subject: &Subject<'_>, verdict: &mut Verdict) -> bool {
        if let Some(shadow) = &self.config.shadow {
            let judgement = shadow.judge(subject);
            self.shadow_stats.count(judgement.is_allowed);
            let mut entries = Struct::new();
            judgement.note(&mut entries, &self.config.shadow_prefix, SHADOW);
            verdict.leave(subject.info, NAMESPACE, entries);
        }
        let Some(rules) = &self.config.rules else { return true };
        let judgement = rules.judge(subject);
        self.stats.count(judgement.is_allowed);
        if let Some(hint) = judgement.hint() {
            verdict.leave(subject.info, COMMON, hint);
        }
        if !judgement.is_allowed {
            verdict.refused = Some((judgement.details, self.config.delay));
        }
        judgement.is_allowed
    }
}

const NAMESPACE: &str = "envoy.filters.network.rbac";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rbac::{Action, Policy, Rule};
    use crate::stream_info::StreamInfo;

    fn rules(action: Action, policies: &[&str]) -> Option<Rules> {
        let policy = |name: &&str| Policy::new(name, vec![Rule::Any], vec![Rule::Any]);
        Some(Rules::new(action, policies.iter().map(policy).collect()))
    }

    #[test]
    fn what_is_judged_is_counted_and_left_for_filters_behind() {
        let registry = Registry::default();
        let rbac = NetworkRbac {
            stat_prefix: "r".into(),
            rules: rules(Action::Deny, &["all"]),
            shadow: rules(Action::Allow, &["all"]),
            shadow_prefix: "s.".into(),
            delay: Duration::from_secs(2),
            ..NetworkRbac::default()
        };
        let filter = Arc::new(rbac).start(&registry, 0);
        assert_eq!(filter.judges(), Judges { first: true, ..Judges::default() });
        let info = StreamInfo::default();
        let mut verdict = Verdict::default();
        let subject = Subject { info: Some(&info), ..Subject::default() };
        assert!(!filter.judge(&subject, &mut verdict));
        assert!(verdict.leaves && verdict.refused.is_some_and(|it| it.1.as_secs() == 2));
        let reading = registry.read();
        let number = |name: &str| reading.number(&format!("r.rbac.{name}"));
        assert_eq!([number("denied"), number("allowed")], [Some(1), Some(0)]);
        assert_eq!([number("s.shadow_allowed"), number("s.shadow_denied")], [Some(1), Some(0)]);
        info.read_all(|all| assert!(all.contains_key(NAMESPACE), "{all:?}"));
    }

    #[test]
    fn connections_go_on_with_rules_that_count_alike() {
        let rbac =
            |prefix: &str| NetworkRbac { stat_prefix: prefix.into(), ..NetworkRbac::default() };
        let other = NetworkRbac { rules: rules(Action::Deny, &[]), ..rbac("r") };
        assert!(rbac("r").counts_with(&other) && !rbac("q").counts_with(&other));
        assert!(
            !rbac("r").counts_with(&super::super::set_filter_state::ConnectionState::default())
        );
    }
}
