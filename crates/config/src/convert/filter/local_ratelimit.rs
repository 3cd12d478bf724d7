//! So many requests in a time.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::local_ratelimit::{HostLimits, Limit, LocalRateLimit, Tokens};
use towpath_engine::filter::rate_limits::Descriptor;
use towpath_engine::snapshot::route::HeaderOps;

use super::Known;
use super::rate_limits::Place;
use crate::convert::Converter;
use crate::message::{Message, Value};
use crate::support::Entry;

const LIMIT: &str = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";

pub(super) const FILTER: Known = Known {
    config_type: LIMIT,
    convert: |converter, config| Some(Arc::new(converter.local_rate_limit(config)?)),
    by_route: Some((LIMIT, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    if !config.has("token_bucket") {
        let text = "local rate limit token bucket must be set for per filter configs";
        converter.report.problem(&config.at, text);
        return None;
    }
    Some(Arc::new(converter.local_rate_limit(config)?))
}

impl Converter<'_> {
    fn local_rate_limit(&mut self, config: &Message) -> Option<LocalRateLimit> {
        let tokens = match config.message("token_bucket") {
            Some(bucket) => Some(self.tokens(bucket)?),
            None => None,
        };
        let fraction = |name| config.message(name);
        let enabled = fraction("filter_enabled").and_then(|it| self.runtime_fraction(it));
        let enforced = fraction("filter_enforced").and_then(|it| self.runtime_fraction(it));
        let code = config.message("status").and_then(|status| status.get("code"));
        let status = match code.map(|code| &code.value) {
            Some(Value::Enum(code)) => u16::try_from(*code).ok(),
            _ => None,
        };
        let mut ops = |name| HeaderOps { remove: Vec::new(), add: self.added(config, name) };
        Some(LocalRateLimit::new(Limit {
            stat_prefix: Arc::from(config.text("stat_prefix")),
            tokens,
            enabled,
            enforced,
            // Envoy takes no status below 400.
            status: status.filter(|status| *status >= 400).unwrap_or(TOO_MANY_REQUESTS),
            response: ops("response_headers_to_add"),
            unenforced: ops("request_headers_to_add_when_not_enforced"),
            descriptors: self.limited_descriptors(config)?,
            rate_limits: self.rate_limits_of(config, Place::Local),
            stage: config.number32("stage").unwrap_or(0),
            host_limits: match config.choice("vh_rate_limits").as_str() {
                "INCLUDE" => HostLimits::Too,
                "IGNORE" => HostLimits::Never,
                _ => HostLimits::Otherwise,
            },
            most_values: config
                .number("max_dynamic_descriptors")
                .map_or(MOST_VALUES, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            tells: config.choice("enable_x_ratelimit_headers") == "DRAFT_VERSION_03",
            takes_common: config
                .wrapped_flag("always_consume_default_token_bucket")
                .unwrap_or(true),
            as_exhausted: config.flag("rate_limited_as_resource_exhausted"),
        }))
    }

    fn limited_descriptors(&mut self, config: &Message) -> Option<Vec<(Descriptor, Tokens)>> {
        let mut found: Vec<(Descriptor, Tokens)> = Vec::new();
        for message in config.messages("descriptors").collect::<Vec<_>>() {
            let tokens = self.tokens(message.message("token_bucket")?)?;
            let mut entries = Descriptor::new();
            for entry in message.messages("entries") {
                let (key, value) = (entry.text("key"), entry.text("value"));
                entries.push((key.as_bytes().into(), value.as_bytes().into()));
            }
            if found.iter().any(|(known, _)| *known == entries) {
                let text = "duplicate descriptor in the local rate descriptor";
                self.report.problem(&message.at, text);
                return None;
            }
            found.push((entries, tokens));
        }
        Some(found)
    }

    /// A `TokenBucket` of a local rate limit.
    pub(in crate::convert) fn tokens(&mut self, bucket: &Message) -> Option<Tokens> {
        let interval = bucket.duration("fill_interval").unwrap_or_default();
        if interval < SHORTEST_FILL {
            let text = "local rate limit token bucket fill timer must be >= 50ms";
            self.report.problem(bucket.at("fill_interval"), text);
            return None;
        }
        Some(Tokens {
            max: bucket.number32("max_tokens")?,
            per_fill: bucket.number32("tokens_per_fill").unwrap_or(1),
            interval,
        })
    }
}

const TOO_MANY_REQUESTS: u16 = 429;
/// Of a descriptor with an empty value.
const MOST_VALUES: usize = 20;
const SHORTEST_FILL: Duration = Duration::from_millis(50);

const SUPPORT: &[Entry] = &[
    Entry {
        message: LIMIT,
        honoured: &[
            "stat_prefix",
            "status",
            "token_bucket",
            "filter_enabled",
            "filter_enforced",
            "request_headers_to_add_when_not_enforced",
            "response_headers_to_add",
            "rate_limited_as_resource_exhausted",
            "descriptors",
            "rate_limits",
            "stage",
            "vh_rate_limits",
            "always_consume_default_token_bucket",
            "max_dynamic_descriptors",
            "enable_x_ratelimit_headers",
        ],
        harmless: &[],
        changes: &[
            ("local_cluster_rate_limit", "a bucket is of this process alone"),
            ("local_rate_limit_per_downstream_connection", "a bucket is for all connections"),
        ],
    },
    Entry {
        message: "envoy.extensions.common.ratelimit.v3.LocalRateLimitDescriptor",
        honoured: &["entries", "token_bucket"],
        harmless: &[],
        changes: &[("shadow_mode", "what a bucket refuses is refused")],
    },
    Entry {
        message: "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry",
        honoured: &["key", "value"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.type.v3.TokenBucket",
        honoured: &["max_tokens", "tokens_per_fill", "fill_interval"],
        harmless: &[],
        changes: &[],
    },
    Entry { message: "envoy.type.v3.HttpStatus", honoured: &["code"], harmless: &[], changes: &[] },
];
