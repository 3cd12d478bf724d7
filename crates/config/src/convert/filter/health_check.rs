//! Whether this proxy wants traffic.

use std::sync::Arc;

use towpath_engine::filter::FilterConfig;
use towpath_engine::filter::health_check::{Cache, HealthCheck};

use super::Known;
use crate::convert::Converter;
use crate::message::{Message, Value};
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    convert,
    by_route: None,
    support: SUPPORT,
};

fn convert(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn FilterConfig>> {
    let passes = config.flag("pass_through_mode");
    if !passes && config.duration("cache_time").is_some_and(|time| !time.is_zero()) {
        converter.report.problem(
            config.at("cache_time"),
            "cache_time must not be set without pass_through_mode",
        );
    }
    let mut clusters = Vec::new();
    for (name, item) in config.entries("cluster_min_healthy_percentages") {
        let Value::Message(percent) = &item.value else { continue };
        converter.accept(percent);
        clusters.push((Arc::from(name.as_str()), percent.float("value").unwrap_or_default()));
    }
    if passes && !clusters.is_empty() {
        let text = "clusters are not looked at with pass_through_mode, in Envoy neither";
        converter.report.note(config.at("cluster_min_healthy_percentages"), text);
    }
    Some(Arc::new(HealthCheck {
        headers: converter.header_matchers(config, "headers"),
        passes,
        cache: config.duration("cache_time").map(|time| Arc::new(Cache::new(time))),
        clusters,
    }))
}

const SUPPORT: &[Entry] = &[Entry {
    message: "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    honoured: &["pass_through_mode", "headers", "cache_time", "cluster_min_healthy_percentages"],
    harmless: &[],
    changes: &[],
}];
