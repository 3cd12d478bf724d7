//! When a request is sent again: Envoy's `RetryPolicy` of routes and of what the proxy itself asks.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::head::HeaderName;

use crate::matcher::HeaderMatcher;
use crate::stream_info::{FilterMetadata, Struct, Value};

/// Envoy `RetryPolicy`.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// What is retried.
    pub on: RetryOn,
    /// `num_retries`: default 1.
    pub retries: u32,
    /// `per_try_timeout`.
    pub per_try_timeout: Option<Duration>,
    /// `per_try_idle_timeout`.
    pub per_try_idle_timeout: Option<Duration>,
    /// `retriable_status_codes`, sorted.
    pub statuses: Vec<u16>,
    /// `retry_back_off.base_interval`: default 25 ms.
    pub base_interval: Duration,
    /// `retry_back_off.max_interval`: default ten times the base.
    pub max_interval: Duration,
    /// `retry_host_predicate` with `previous_hosts`: hosts that failed are not picked again.
    pub avoid_previous_hosts: bool,
    /// The other `retry_host_predicate`s: hosts of which one of these is true get no retries.
    pub omitted: Option<Arc<[OmittedHosts]>>,
    /// `host_selection_retry_max_attempts`: default 1.
    pub host_attempts: u32,
    /// `retriable_headers`: what `retriable-headers` looks for in a response; one that matches is enough.
    pub headers: Vec<HeaderMatcher>,
    /// `retriable_request_headers`: only requests of which one matches are retried; all where there is none.
    pub request_headers: Vec<HeaderMatcher>,
    /// `rate_limited_retry_back_off`.
    pub rate_limited: Option<RateLimitedBackOff>,
    /// `retry_priority` with `previous_priorities`: after so many attempts, and each time after as many more, the
    /// priorities that were tried are not picked again. Never 0.
    pub previous_priorities: Option<u32>,
}

/// Hosts that retries do not go to, while another one is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum OmittedHosts {
    /// `omit_canary_hosts`: those whose metadata says `canary: true` under `envoy.lb`.
    Canaries,
    /// `omit_host_metadata`: those whose metadata has all of these under `envoy.lb`; a list there has what is one of
    /// its items. Without any there is no such host.
    With(Struct),
}

impl OmittedHosts {
    /// Whether a host with this metadata is one.
    #[must_use]
    pub fn has(&self, metadata: &FilterMetadata) -> bool {
        let Some(Value::Struct(said)) = metadata.as_ref().and_then(|all| all.get(BALANCER)) else {
            return false;
        };
        match self {
            Self::Canaries => said.get("canary") == Some(&Value::Bool(true)),
            Self::With(wanted) => {
                let agrees = |(key, wanted)| match said.get(key) {
                    Some(Value::List(items)) => items.contains(wanted),
                    said => said == Some(wanted),
                };
                !wanted.is_empty() && wanted.iter().all(agrees)
            }
        }
    }
}

/// The namespace of the metadata that balancers go by.
const BALANCER: &str = "envoy.lb";

/// Envoy `RetryPolicy.RateLimitedRetryBackOff`: the response says when to come again.
#[derive(Clone, Debug)]
pub struct RateLimitedBackOff {
    /// `reset_headers`: the first with a number that is taken counts.
    pub headers: Vec<ResetHeader>,
    /// `max_interval`: what asks for more is not listened to. Default 300 s.
    pub max: Duration,
}

/// Envoy `RetryPolicy.ResetHeader`.
#[derive(Clone, Debug)]
pub struct ResetHeader {
    /// `name`.
    pub name: HeaderName,
    /// `format: UNIX_TIMESTAMP`: it names a point in time, not a number of seconds from now.
    pub is_timestamp: bool,
}

/// `retry_on`, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryOn(pub u32);

impl RetryOn {
    /// `5xx`.
    pub const STATUS_5XX: Self = Self(1);
    /// `gateway-error`: 502, 503, 504.
    pub const GATEWAY_ERROR: Self = Self(1 << 1);
    /// `reset`.
    pub const RESET: Self = Self(1 << 2);
    /// `reset-before-request`.
    pub const RESET_BEFORE_REQUEST: Self = Self(1 << 3);
    /// `connect-failure`.
    pub const CONNECT_FAILURE: Self = Self(1 << 4);
    /// `refused-stream`.
    pub const REFUSED_STREAM: Self = Self(1 << 5);
    /// `retriable-4xx`: 409.
    pub const STATUS_4XX: Self = Self(1 << 6);
    /// `retriable-status-codes`.
    pub const STATUS_CODES: Self = Self(1 << 7);
    /// `envoy-ratelimited`.
    pub const RATE_LIMITED: Self = Self(1 << 8);

    /// `cancelled`.
    pub const GRPC_CANCELLED: Self = Self(1 << 9);
    /// `deadline-exceeded`.
    pub const GRPC_DEADLINE_EXCEEDED: Self = Self(1 << 10);
    /// `internal`.
    pub const GRPC_INTERNAL: Self = Self(1 << 11);
    /// `resource-exhausted`.
    pub const GRPC_RESOURCE_EXHAUSTED: Self = Self(1 << 12);
    /// `unavailable`.
    pub const GRPC_UNAVAILABLE: Self = Self(1 << 13);

    /// `retriable-headers`.
    pub const HEADERS: Self = Self(1 << 14);

    /// A condition of `x-envoy-retry-on`.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"5xx" => Self::STATUS_5XX,
            b"gateway-error" => Self::GATEWAY_ERROR,
            b"reset" => Self::RESET,
            b"reset-before-request" => Self::RESET_BEFORE_REQUEST,
            b"connect-failure" => Self::CONNECT_FAILURE,
            b"refused-stream" => Self::REFUSED_STREAM,
            b"retriable-4xx" => Self::STATUS_4XX,
            b"retriable-status-codes" => Self::STATUS_CODES,
            b"envoy-ratelimited" => Self::RATE_LIMITED,
            b"retriable-headers" => Self::HEADERS,
            _ => return None,
        })
    }

    /// A condition of `x-envoy-retry-grpc-on`.
    #[must_use]
    pub fn named_for_grpc(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"cancelled" => Self::GRPC_CANCELLED,
            b"deadline-exceeded" => Self::GRPC_DEADLINE_EXCEEDED,
            b"internal" => Self::GRPC_INTERNAL,
            b"resource-exhausted" => Self::GRPC_RESOURCE_EXHAUSTED,
            b"unavailable" => Self::GRPC_UNAVAILABLE,
            _ => return None,
        })
    }

    /// The condition that a status of gRPC is one of; empty where there is none.
    #[must_use]
    pub const fn of_grpc_status(status: u8) -> Self {
        match status {
            1 => Self::GRPC_CANCELLED,
            4 => Self::GRPC_DEADLINE_EXCEEDED,
            8 => Self::GRPC_RESOURCE_EXHAUSTED,
            13 => Self::GRPC_INTERNAL,
            14 => Self::GRPC_UNAVAILABLE,
            _ => Self(0),
        }
    }

    /// Whether any of these is in the set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
