//! Requests that must come from pages of the same host.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::csrf::CsrfPolicy;

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const POLICY: &str = "envoy.extensions.filters.http.csrf.v3.CsrfPolicy";

pub(super) const FILTER: Known = Known {
    config_type: POLICY,
    convert: |converter, config| Some(Arc::new(policy(converter, config)?)),
    by_route: Some((POLICY, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    Some(Arc::new(policy(converter, config)?))
}

fn policy(converter: &mut Converter<'_>, config: &Message) -> Option<CsrfPolicy> {
    let enabled = converter.runtime_fraction(config.message("filter_enabled")?);
    let shadow = config.message("shadow_enabled");
    let shadow = shadow.and_then(|shadow| converter.runtime_fraction(shadow));
    let origins: Vec<_> = config.messages("additional_origins").collect();
    Some(CsrfPolicy {
        enabled: enabled?,
        shadow,
        origins: origins
            .into_iter()
            .filter_map(|origin| converter.string_matcher(origin))
            .collect(),
    })
}

const SUPPORT: &[Entry] = &[Entry {
    message: POLICY,
    honoured: &["filter_enabled", "shadow_enabled", "additional_origins"],
    harmless: &[],
    changes: &[],
}];
