//! Retry policies, of routes and of servers that the proxy itself asks.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::route::{
    OmittedHosts, RateLimitedBackOff, ResetHeader, RetryOn, RetryPolicy,
};
use towpath_engine::stream_info::{Struct, Value};
use towpath_proto::HeaderName;

use super::Converter;
use super::extension::{RETRY_PREDICATE, RETRY_PRIORITY};
use super::metadata::metadata_of;
use crate::error::Rank;
use crate::message::Message;

impl Converter<'_> {
    /// A `RetryPolicy`; `None` when it retries nothing.
    pub(super) fn retry_policy(&mut self, message: &Message) -> Option<Arc<RetryPolicy>> {
        let on = self.retry_on(message);
        let (base_interval, max_interval) = self.back_off(message, DEFAULT_BASE);
        let mut statuses: Vec<u16> = message
            .numbers("retriable_status_codes")
            .filter_map(|(status, _)| u16::try_from(status).ok())
            .collect();
        statuses.sort_unstable();
        statuses.dedup();
        let policy = RetryPolicy {
            on,
            retries: message.number32("num_retries").unwrap_or(1),
            per_try_timeout: message
                .duration("per_try_timeout")
                .filter(|timeout| !timeout.is_zero()),
            per_try_idle_timeout: message
                .duration("per_try_idle_timeout")
                .filter(|timeout| !timeout.is_zero()),
            statuses,
            base_interval,
            max_interval,
            avoid_previous_hosts: self.avoids_previous_hosts(message),
            omitted: self.omitted_hosts(message),
            host_attempts: host_attempts(message),
            headers: self.header_matchers(message, "retriable_headers"),
            request_headers: self.header_matchers(message, "retriable_request_headers"),
            rate_limited: message
                .message("rate_limited_retry_back_off")
                .map(|back_off| self.rate_limited_back_off(back_off)),
            previous_priorities: self.previous_priorities(message),
        };
        Some(Arc::new(policy))
    }

    /// A `RetryPolicy` of a cluster.
    pub(super) fn cluster_retry_policy(&mut self, message: &Message) -> Option<Arc<RetryPolicy>> {
        for name in ["per_try_timeout", "per_try_idle_timeout"] {
            if message.has(name) {
                let why = "has no effect in a cluster, as in Envoy; write it in the route";
                self.report.finding(message.at(name), Rank::Harmless, why.to_owned());
            }
        }
        self.retry_policy(message)
    }

    /// The `core.v3.RetryPolicy` of a server that the proxy itself asks, if it has one. Envoy takes the conditions of
    /// some of them from itself: `on`.
    pub(super) fn core_retry_policy(
        &mut self,
        holder: &Message,
        name: &str,
        on: Option<RetryOn>,
    ) -> Option<Arc<RetryPolicy>> {
        let message = holder.message(name)?;
        let (base_interval, max_interval) = self.core_back_off(message);
        let told = self.retry_on(message);
        Some(Arc::new(RetryPolicy {
            on: on.unwrap_or(told),
            retries: message.number32("num_retries").unwrap_or(1),
            per_try_timeout: Some(max_interval),
            per_try_idle_timeout: None,
            statuses: Vec::new(),
            base_interval,
            max_interval,
            avoid_previous_hosts: self.avoids_previous_hosts(message),
            omitted: self.omitted_hosts(message),
            host_attempts: host_attempts(message),
            headers: Vec::new(),
            request_headers: Vec::new(),
            rate_limited: None,
            previous_priorities: self.previous_priorities(message),
        }))
    }

    /// How long to wait by a `core.v3.RetryPolicy`: below this, doubled each time, and no longer than that.
    pub(super) fn core_back_off(&mut self, message: &Message) -> (Duration, Duration) {
        self.back_off(message, DEFAULT_CORE_BASE)
    }

    fn retry_on(&mut self, message: &Message) -> RetryOn {
        let at = message.at("retry_on");
        let mut on = RetryOn::default();
        for word in
            message.text("retry_on").split(',').map(str::trim).filter(|word| !word.is_empty())
        {
            let named = RetryOn::named(word.as_bytes());
            if let Some(named) = named.or_else(|| RetryOn::named_for_grpc(word.as_bytes())) {
                on = on.with(named);
                continue;
            }
            match word {
                "http3-post-connect-failure" => {
                    self.report.finding(
                        at,
                        Rank::Harmless,
                        format!("`{word}` is about HTTP/3, which is not spoken"),
                    );
                }
                _ => self.report.finding(
                    at,
                    Rank::Harmless,
                    format!("`{word}` is no condition; Envoy ignores it too"),
                ),
            }
        }
        on
    }

    fn back_off(&mut self, message: &Message, default: Duration) -> (Duration, Duration) {
        let Some(back_off) = message.message("retry_back_off") else {
            return (default, default * 10);
        };
        let base =
            back_off.duration("base_interval").unwrap_or(default).max(Duration::from_millis(1));
        let max = back_off.duration("max_interval").unwrap_or(base * 10);
        if max < base {
            self.report.problem(
                back_off.at("max_interval"),
                "must be greater than or equal to the base_interval",
            );
        }
        (base, max)
    }

    fn rate_limited_back_off(&mut self, message: &Message) -> RateLimitedBackOff {
        let headers: Vec<_> = message.messages("reset_headers").collect();
        let headers = headers.into_iter().filter_map(|header| {
            let name = HeaderName::new(&header.text("name").to_ascii_lowercase());
            let name = name.map_err(|_| {
                self.report.problem(header.at("name"), "is no name of a header");
            });
            let is_timestamp = header.choice("format") == "UNIX_TIMESTAMP";
            Some(ResetHeader { name: name.ok()?, is_timestamp })
        });
        let headers = headers.collect();
        RateLimitedBackOff {
            headers,
            max: message.duration("max_interval").unwrap_or(DEFAULT_RESET_MAX),
        }
    }

    fn previous_priorities(&mut self, message: &Message) -> Option<u32> {
        let priority = message.message("retry_priority")?;
        let (config, _) = self.extension(priority, RETRY_PRIORITY, &[PREVIOUS_PRIORITIES])?;
        config.number32("update_frequency")
    }

    fn avoids_previous_hosts(&mut self, message: &Message) -> bool {
        let predicates: Vec<_> = message.messages("retry_host_predicate").collect();
        predicates.iter().any(|predicate| {
            predicate.any("typed_config").is_some_and(|(any, _)| any.name == PREVIOUS_HOSTS)
        })
    }

    fn omitted_hosts(&mut self, message: &Message) -> Option<Arc<[OmittedHosts]>> {
        let predicates: Vec<_> = message.messages("retry_host_predicate").collect();
        let known = [PREVIOUS_HOSTS, OMIT_CANARIES, OMIT_METADATA];
        let omitted = predicates.into_iter().filter_map(|predicate| {
            let (config, _) = self.extension(predicate, RETRY_PREDICATE, &known)?;
            let (any, _) = predicate.any("typed_config")?;
            match any.name.as_str() {
                OMIT_CANARIES => Some(OmittedHosts::Canaries),
                OMIT_METADATA => Some(OmittedHosts::With(balancer_metadata(config))),
                _ => None,
            }
        });
        let omitted: Arc<[_]> = omitted.collect();
        (!omitted.is_empty()).then_some(omitted)
    }
}

fn host_attempts(message: &Message) -> u32 {
    let attempts = message.number32("host_selection_retry_max_attempts");
    attempts.filter(|attempts| *attempts > 0).unwrap_or(1)
}

/// What hosts say to balancers, of a `metadata_match`.
fn balancer_metadata(config: &Message) -> Struct {
    let all = metadata_of(config, "metadata_match");
    match all.as_ref().and_then(|all| all.get("envoy.lb")) {
        Some(Value::Struct(wanted)) => wanted.clone(),
        Some(_) | None => Struct::new(),
    }
}

/// What Envoy retries of requests for keys and tokens, whatever their `retry_on` says.
pub(super) const ON_ANY_FAILURE: RetryOn = RetryOn::STATUS_5XX
    .with(RetryOn::GATEWAY_ERROR)
    .with(RetryOn::CONNECT_FAILURE)
    .with(RetryOn::RESET);

const DEFAULT_BASE: Duration = Duration::from_millis(25);
const DEFAULT_CORE_BASE: Duration = Duration::from_secs(1);
const DEFAULT_RESET_MAX: Duration = Duration::from_secs(300);
const PREVIOUS_PRIORITIES: &str =
    "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig";
const PREVIOUS_HOSTS: &str = "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";
const OMIT_CANARIES: &str =
    "envoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicate";
const OMIT_METADATA: &str =
    "envoy.extensions.retry.host.omit_host_metadata.v3.OmitHostMetadataConfig";
