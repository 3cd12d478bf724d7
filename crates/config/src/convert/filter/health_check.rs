//! Whether this proxy wants traffic.

use std::sync::Arc;

use towpath_engine::filter::FilterConfig;
use towpath_engine::filter::health_check::HealthCheck;

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    convert,
    by_route: None,
    support: SUPPORT,
};

fn convert(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn FilterConfig>> {
    if config.flag("pass_through_mode") {
        converter.report.unsupported(
            config.at("pass_through_mode"),
            "health checks are answered here, not passed through",
        );
        return None;
    }
    if config.has("cache_time") {
        converter.report.problem(
            config.at("cache_time"),
            "cache_time must not be set without pass_through_mode",
        );
    }
    Some(Arc::new(HealthCheck { headers: converter.header_matchers(config, "headers") }))
}

const SUPPORT: &[Entry] = &[Entry {
    message: "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    honoured: &["pass_through_mode", "headers", "cache_time"],
    harmless: &[],
    changes: &[("cluster_min_healthy_percentages", "the answer does not depend on clusters")],
}];
