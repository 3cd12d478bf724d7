//! So many requests in a time.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::local_ratelimit::{Limit, LocalRateLimit, Tokens};
use towpath_engine::snapshot::route::HeaderOps;

use super::Known;
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
            as_exhausted: config.flag("rate_limited_as_resource_exhausted"),
        }))
    }

    fn tokens(&mut self, bucket: &Message) -> Option<Tokens> {
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
        ],
        harmless: &[
            ("stage", "it chooses among descriptors, which are refused"),
            ("vh_rate_limits", "it chooses among descriptors, which are refused"),
            ("always_consume_default_token_bucket", "there is no other bucket"),
            ("max_dynamic_descriptors", "descriptors are refused"),
        ],
        changes: &[
            ("descriptors", "all requests of a filter or route take from one bucket"),
            ("rate_limits", "all requests of a filter or route take from one bucket"),
            ("local_cluster_rate_limit", "a bucket is of this process alone"),
            ("local_rate_limit_per_downstream_connection", "a bucket is for all connections"),
            ("enable_x_ratelimit_headers", "x-ratelimit-* are not added"),
        ],
    },
    Entry {
        message: "envoy.type.v3.TokenBucket",
        honoured: &["max_tokens", "tokens_per_fill", "fill_interval"],
        harmless: &[],
        changes: &[],
    },
    Entry { message: "envoy.type.v3.HttpStatus", honoured: &["code"], harmless: &[], changes: &[] },
];
