//! Requests that wait or are aborted to see what comes of it.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::fault::{Abort, AbortWith, Delay, Fault, Rate, SharedFault};
use towpath_engine::snapshot::route::Fraction;

use super::Known;
use crate::convert::Converter;
use crate::convert::metadata::structure;
use crate::convert::runtime::fraction;
use crate::message::{Message, Value};
use crate::support::Entry;

const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";

pub(super) const FILTER: Known = Known {
    config_type: FAULT,
    convert: |converter, config| Some(Arc::new(SharedFault::new(converter.fault(config)?))),
    by_route: Some((FAULT, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    Some(Arc::new(SharedFault::new(converter.fault(config)?)))
}

impl Converter<'_> {
    fn fault(&mut self, config: &Message) -> Option<Fault> {
        let key = named(config, "max_active_faults_runtime", "fault.http.max_active_faults");
        let most_active = self.runtime.number(key).or_else(|| config.number("max_active_faults"));
        let delay = match config.message("delay") {
            Some(delay) => Some(self.fault_delay(config, delay)?),
            None => None,
        };
        let abort = match config.message("abort") {
            Some(abort) => Some(self.fault_abort(config, abort)?),
            None => None,
        };
        let rate = config.message("response_rate_limit").map(|rate| self.fault_rate(config, rate));
        Some(Fault {
            delay,
            abort,
            rate,
            cluster: config.text("upstream_cluster").into(),
            headers: self.header_matchers(config, "headers"),
            nodes: config.texts("downstream_nodes").map(|(text, _)| text.into()).collect(),
            most_active,
            counts_clusters: !config.flag("disable_downstream_cluster_stats"),
            metadata: structure(config, "filter_metadata"),
        })
    }

    fn fault_delay(&mut self, config: &Message, delay: &Message) -> Option<Delay> {
        let key = named(config, "delay_percent_runtime", "fault.http.delay.fixed_delay_percent");
        let share = self.fault_share(delay, key);
        let key = named(config, "delay_duration_runtime", "fault.http.delay.fixed_duration_ms");
        let time = match delay.oneof("fault_delay_secifier")?.descriptor.name() {
            "fixed_delay" => {
                let fixed = self.runtime.number(key).map(Duration::from_millis);
                // As in Envoy, whole milliseconds.
                let own = delay.duration("fixed_delay").unwrap_or_default().as_millis();
                let own = Duration::from_millis(u64::try_from(own).unwrap_or(u64::MAX));
                Some(fixed.unwrap_or(own))
            }
            _ => None,
        };
        Some(Delay { time, share })
    }

    fn fault_rate(&mut self, config: &Message, rate: &Message) -> Rate {
        let default = "fault.http.rate_limit.response_percent";
        let key = named(config, "response_rate_limit_percent_runtime", default);
        let kib = rate.oneof("limit_type").and_then(|field| match &field.value {
            Value::Message(fixed) if field.descriptor.name() == "fixed_limit" => {
                fixed.number("limit_kbps")
            }
            _ => None,
        });
        Rate { kib, share: self.fault_share(rate, key) }
    }

    fn fault_abort(&mut self, config: &Message, abort: &Message) -> Option<Abort> {
        let key = named(config, "abort_percent_runtime", "fault.http.abort.abort_percent");
        let share = self.fault_share(abort, key);
        let field = abort.oneof("error_type")?;
        let how = match (field.descriptor.name(), &field.value) {
            ("http_status", Value::Uint(status)) => {
                let key =
                    named(config, "abort_http_status_runtime", "fault.http.abort.http_status");
                let status = self.runtime.number(key).unwrap_or(*status);
                let status = u16::try_from(status).ok().filter(|it| (200..600).contains(it));
                let Some(status) = status else {
                    let text = format!("runtime key `{key}` is no status from 200 to 599");
                    self.report.unsupported(&field.at, text);
                    return None;
                };
                AbortWith::Http(status)
            }
            ("grpc_status", Value::Uint(status)) => {
                let key =
                    named(config, "abort_grpc_status_runtime", "fault.http.abort.grpc_status");
                let status = self.runtime.number(key).unwrap_or(*status);
                AbortWith::Grpc(u32::try_from(status).ok()?)
            }
            _ => AbortWith::Header,
        };
        let body = Some(abort.text("response_body")).filter(|body| !body.is_empty());
        Some(Abort { how, share, body: body.map(Into::into) })
    }

    /// A `percentage`, which without being written is none.
    fn fault_share(&self, message: &Message, key: &str) -> Fraction {
        let own = message.message("percentage").map(fraction);
        let none = Fraction { numerator: 0, denominator: 100 };
        self.fraction_of_key(key).or(own).unwrap_or(none)
    }
}

/// The runtime key that a field names.
fn named<'a>(config: &'a Message, field: &str, default: &'a str) -> &'a str {
    Some(config.text(field)).filter(|key| !key.is_empty()).unwrap_or(default)
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: FAULT,
        honoured: &[
            "delay",
            "abort",
            "upstream_cluster",
            "headers",
            "downstream_nodes",
            "max_active_faults",
            "delay_percent_runtime",
            "abort_percent_runtime",
            "delay_duration_runtime",
            "abort_http_status_runtime",
            "max_active_faults_runtime",
            "abort_grpc_status_runtime",
            "disable_downstream_cluster_stats",
            "filter_metadata",
            "response_rate_limit",
            "response_rate_limit_percent_runtime",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.common.fault.v3.FaultRateLimit",
        honoured: &["fixed_limit", "header_limit", "percentage"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.common.fault.v3.FaultRateLimit.FixedLimit",
        honoured: &["limit_kbps"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.common.fault.v3.FaultRateLimit.HeaderLimit",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.common.fault.v3.FaultDelay",
        honoured: &["fixed_delay", "header_delay", "percentage"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.common.fault.v3.FaultDelay.HeaderDelay",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.fault.v3.FaultAbort",
        honoured: &["http_status", "grpc_status", "header_abort", "percentage", "response_body"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.fault.v3.FaultAbort.HeaderAbort",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
];
