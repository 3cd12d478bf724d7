//! Another server is asked whether a request is one too many.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::rate_limits::HostLimits;
use towpath_engine::filter::ratelimit::{
    GlobalRateLimit, Requests, RouteRateLimit, SharedRateLimit,
};
use towpath_engine::fraction::Fraction;
use towpath_engine::snapshot::route::HeaderOps;

use super::Known;
use super::rate_limits::Place;
use crate::convert::Converter;
use crate::error::Rank;
use crate::message::{Message, Value};
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimit";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| {
        Some(Arc::new(SharedRateLimit(Arc::new(converter.global_rate_limit(config)?))))
    },
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    Some(Arc::new(RouteRateLimit {
        domain: config.text("domain").into(),
        host_limits: match config.choice("vh_rate_limits").as_str() {
            "INCLUDE" => HostLimits::Too,
            "IGNORE" => HostLimits::Never,
            _ => HostLimits::Otherwise,
        },
        rate_limits: converter.rate_limits_of(config, Place::Asking),
    }))
}

impl Converter<'_> {
    fn global_rate_limit(&mut self, config: &Message) -> Option<GlobalRateLimit> {
        let service = config.message("rate_limit_service")?;
        if service.choice("transport_api_version") == "V2" {
            let text = "the v2 API has been removed; write V3";
            self.report.problem(service.at("transport_api_version"), text);
        }
        let grpc = service.message("grpc_service")?;
        let (service, unread) = self.grpc_service(grpc)?;
        if unread.is_some() {
            let text = "the filter's own `timeout` counts";
            self.report.finding(grpc.at("timeout"), Rank::Harmless, text);
        }
        let timeout = self.whole_timeout(config);
        let mut share = |name, key: Option<&str>, default| match config.message(name) {
            Some(fraction) => self.runtime_fraction(fraction).unwrap_or(default),
            None => key.and_then(|key| self.fraction_of_key(key)).unwrap_or(default),
        };
        let denies = if config.flag("failure_mode_deny") { ALL } else { NONE };
        let denies_failures = share("failure_mode_deny_percent", None, denies);
        let enabled = share("filter_enabled", Some("ratelimit.http_filter_enabled"), ALL);
        let enforced = share("filter_enforced", Some("ratelimit.http_filter_enforcing"), ALL);
        let status = |name| {
            let code = config.message(name).and_then(|status| status.get("code"));
            match code.map(|code| &code.value) {
                Some(Value::Enum(code)) => u16::try_from(*code).ok(),
                _ => None,
            }
        };
        let namespace = config.text("metadata_namespace");
        let rate_limits = self.rate_limits_of(config, Place::Asking);
        Some(GlobalRateLimit {
            domain: config.text("domain").into(),
            stage: config.number32("stage").unwrap_or(0),
            requests: match config.text("request_type") {
                "internal" => Requests::Internal,
                "external" => Requests::External,
                _ => Requests::All,
            },
            service,
            timeout: timeout?.unwrap_or(DEFAULT_TIMEOUT),
            denies_failures,
            status_on_error: status("status_on_error").filter(|it| *it >= 100).unwrap_or(500),
            as_exhausted: config.flag("rate_limited_as_resource_exhausted"),
            tells: config.choice("enable_x_ratelimit_headers") == "DRAFT_VERSION_03",
            tells_refusal: !config.flag("disable_x_envoy_ratelimited_header"),
            tells_when: config.flag("enable_retry_after_header"),
            // Envoy takes no status below 400.
            status: status("rate_limited_status").filter(|it| *it >= 400).unwrap_or(429),
            response: HeaderOps {
                remove: Vec::new(),
                add: self.added(config, "response_headers_to_add"),
            },
            stat_prefix: Arc::from(config.text("stat_prefix")),
            enabled,
            enforced,
            rate_limits,
            namespace: if namespace.is_empty() { NAMESPACE } else { namespace }.into(),
        })
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_millis(20);
const NAMESPACE: &str = "envoy.filters.http.ratelimit";
const ALL: Fraction = Fraction { numerator: 100, denominator: 100 };
const NONE: Fraction = Fraction { numerator: 0, denominator: 100 };

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "domain",
            "stage",
            "request_type",
            "timeout",
            "failure_mode_deny",
            "rate_limited_as_resource_exhausted",
            "rate_limit_service",
            "enable_x_ratelimit_headers",
            "disable_x_envoy_ratelimited_header",
            "rate_limited_status",
            "response_headers_to_add",
            "status_on_error",
            "stat_prefix",
            "filter_enabled",
            "filter_enforced",
            "failure_mode_deny_percent",
            "rate_limits",
            "metadata_namespace",
            "enable_retry_after_header",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.ratelimit.v3.RateLimitServiceConfig",
        honoured: &["grpc_service", "transport_api_version"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: ROUTE_TYPE,
        honoured: &["vh_rate_limits", "rate_limits", "domain"],
        harmless: &[("override_option", "Envoy does not read it either")],
        changes: &[],
    },
];
