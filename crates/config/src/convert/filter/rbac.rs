//! Rules that say who may ask for what.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::rbac::{Rbac, RbacPerRoute};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const RBAC: &str = "envoy.extensions.filters.http.rbac.v3.RBAC";
const BY_ROUTE: &str = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute";

pub(super) const FILTER: Known = Known {
    config_type: RBAC,
    convert: |converter, config| Some(Arc::new(converter.http_rbac(config)?)),
    by_route: Some((BY_ROUTE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    let rbac = match config.message("rbac") {
        Some(rbac) => converter.http_rbac(rbac)?,
        None => Rbac::default(),
    };
    Some(Arc::new(RbacPerRoute(rbac)))
}

impl Converter<'_> {
    fn http_rbac(&mut self, config: &Message) -> Option<Rbac> {
        let (rules, shadow) = self.rules_of(config);
        Some(Rbac {
            rules: rules?,
            shadow: shadow?,
            prefix: config.text("rules_stat_prefix").into(),
            shadow_prefix: config.text("shadow_rules_stat_prefix").into(),
        })
    }
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: RBAC,
        honoured: &[
            "rules",
            "shadow_rules",
            "rules_stat_prefix",
            "shadow_rules_stat_prefix",
            "matcher",
            "shadow_matcher",
        ],
        harmless: &[("track_per_rule_stats", "policies are not counted one by one")],
        changes: &[],
    },
    Entry { message: BY_ROUTE, honoured: &["rbac"], harmless: &[], changes: &[] },
];
