//! Content that goes on no faster than a rate.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::bandwidth_limit::{BandwidthLimit, SharedBandwidthLimit};
use towpath_engine::filter::pace::Allowance;

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimit";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| Some(Arc::new(converter.bandwidth_limit(config))),
    by_route: Some((FILTER_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    if !config.has("limit_kbps") {
        let text = "limit must be set for per route filter config";
        converter.report.problem(&config.at, text);
        return None;
    }
    Some(Arc::new(converter.bandwidth_limit(config)))
}

impl Converter<'_> {
    fn bandwidth_limit(&mut self, config: &Message) -> SharedBandwidthLimit {
        let mode = config.choice("enable_mode");
        let flag = config.message("runtime_enabled");
        let is_on = flag.is_none_or(|flag| self.runtime_flag(flag));
        let prefix = config.text("response_trailer_prefix");
        SharedBandwidthLimit(Arc::new(BandwidthLimit {
            stat_prefix: config.text("stat_prefix").into(),
            requests: is_on && matches!(&*mode, "REQUEST" | "REQUEST_AND_RESPONSE"),
            responses: is_on && matches!(&*mode, "RESPONSE" | "REQUEST_AND_RESPONSE"),
            allowance: Allowance::new(config.number("limit_kbps").unwrap_or(0)),
            interval: config.duration("fill_interval").unwrap_or(INTERVAL),
            trailers: config.flag("enable_response_trailers").then(|| prefix.to_lowercase().into()),
        }))
    }
}

const INTERVAL: Duration = Duration::from_millis(50);

const SUPPORT: &[Entry] = &[Entry {
    message: FILTER_TYPE,
    honoured: &[
        "stat_prefix",
        "enable_mode",
        "limit_kbps",
        "fill_interval",
        "runtime_enabled",
        "enable_response_trailers",
        "response_trailer_prefix",
    ],
    harmless: &[],
    changes: &[],
}];
