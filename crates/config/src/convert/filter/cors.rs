//! Which pages of other origins may read responses.

use std::sync::Arc;

use towpath_engine::filter::cors::{Cors, CorsPolicy};
use towpath_engine::filter::{FilterOverride, RouteConfig};
use towpath_engine::matcher::StringMatcher;

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.cors.v3.Cors",
    convert: |_, _| Some(Arc::new(Cors)),
    by_route: Some(("envoy.extensions.filters.http.cors.v3.CorsPolicy", by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, policy: &Message) -> Option<Arc<dyn RouteConfig>> {
    Some(Arc::new(converter.cors_policy(policy)))
}

impl Converter<'_> {
    /// The `cors` of a virtual host or route, which counts where no filter is configured by route.
    pub(in crate::convert) fn old_cors(&mut self, holder: &Message) -> Option<FilterOverride> {
        let policy = holder.message("cors")?;
        let config: Arc<dyn RouteConfig> = Arc::new(self.cors_policy(policy));
        Some(FilterOverride { filter: Arc::from(""), disabled: false, config: Some(config) })
    }

    fn cors_policy(&mut self, policy: &Message) -> CorsPolicy {
        let mut fraction =
            |name| policy.message(name).and_then(|fraction| self.runtime_fraction(fraction));
        let (enabled, shadow) = (fraction("filter_enabled"), fraction("shadow_enabled"));
        let text = |name| Arc::from(policy.text(name));
        CorsPolicy {
            origins: self.origins(policy),
            methods: text("allow_methods"),
            headers: text("allow_headers"),
            exposed: text("expose_headers"),
            max_age: text("max_age"),
            credentials: policy.wrapped_flag("allow_credentials"),
            private_network: policy.wrapped_flag("allow_private_network_access"),
            forwards_others: policy.wrapped_flag("forward_not_matching_preflights"),
            enabled,
            shadow,
        }
    }

    fn origins(&mut self, policy: &Message) -> Vec<StringMatcher> {
        let origins: Vec<_> = policy.messages("allow_origin_string_match").collect();
        origins.into_iter().filter_map(|origin| self.string_matcher(origin)).collect()
    }
}

const HONOURED: &[&str] = &[
    "allow_origin_string_match",
    "allow_methods",
    "allow_headers",
    "expose_headers",
    "max_age",
    "allow_credentials",
    "filter_enabled",
    "shadow_enabled",
    "allow_private_network_access",
    "forward_not_matching_preflights",
];

const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.extensions.filters.http.cors.v3.Cors",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.cors.v3.CorsPolicy",
        honoured: HONOURED,
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.CorsPolicy",
        honoured: HONOURED,
        harmless: &[],
        changes: &[],
    },
];
