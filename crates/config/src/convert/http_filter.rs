//! HTTP filters. The last one is the router.

use std::sync::Arc;

use towpath_engine::snapshot::http::{HttpFilter, Router};

use super::Converter;
use super::extension::HTTP_FILTER;
use crate::message::Message;

const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const HEADER_MUTATION: &str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
const HEALTH_CHECK: &str = "envoy.extensions.filters.http.health_check.v3.HealthCheck";

impl Converter<'_> {
    /// The filters before the router, and the router.
    pub(super) fn http_filters(&mut self, message: &Message) -> Option<(Vec<HttpFilter>, Router)> {
        let messages: Vec<_> = message.messages("http_filters").collect();
        let Some(last) = messages.last() else {
            // Envoy takes it, and answers 404 to everything.
            self.report.unsupported(&message.at, "needs `http_filters`, the last of them a router");
            return None;
        };
        let (mut filters, mut router) = (Vec::new(), None);
        for filter in &messages {
            let name = filter.text("name");
            let is_last = std::ptr::eq(*filter, *last);
            if self.is_bare(filter, ROUTER) {
                router = Some(self.router(None, filter, is_last));
                continue;
            }
            let Some((config, _)) =
                self.extension(filter, HTTP_FILTER, &[ROUTER, HEADER_MUTATION, HEALTH_CHECK])
            else {
                continue;
            };
            match config.descriptor.full_name() {
                ROUTER => router = Some(self.router(Some(config), filter, is_last)),
                HEADER_MUTATION => filters.push(self.header_mutation(name, config)),
                _ => filters.extend(self.health_check(config)),
            }
            if is_last && config.descriptor.full_name() != ROUTER {
                self.report.problem(
                    &filter.at,
                    format!("non-terminal HTTP filter named {name} is the last filter"),
                );
            }
        }
        Some((filters, router?))
    }

    fn router(&mut self, config: Option<&Message>, filter: &Message, is_last: bool) -> Router {
        if !is_last {
            let name = filter.text("name");
            self.report.problem(
                &filter.at,
                format!("terminal HTTP filter named {name} must be the last filter"),
            );
        }
        let Some(config) = config else { return Router::default() };
        Router {
            dynamic_stats: config.wrapped_flag("dynamic_stats").unwrap_or(true),
            suppress_envoy_headers: config.flag("suppress_envoy_headers"),
            respect_expected_timeout: config.flag("respect_expected_rq_timeout"),
        }
    }

    fn header_mutation(&mut self, name: &str, config: &Message) -> HttpFilter {
        let mutations = config.message("mutations");
        let mut ops =
            |name| mutations.map(|mutations| self.mutations(mutations, name)).unwrap_or_default();
        HttpFilter::HeaderMutation {
            name: Arc::from(name),
            request: ops("request_mutations"),
            response: ops("response_mutations"),
        }
    }

    fn health_check(&mut self, config: &Message) -> Option<HttpFilter> {
        if config.flag("pass_through_mode") {
            self.report.unsupported(
                config.at("pass_through_mode"),
                "health checks are answered here, not passed through",
            );
            return None;
        }
        if config.has("cache_time") {
            self.report.problem(
                config.at("cache_time"),
                "cache_time must not be set without pass_through_mode",
            );
        }
        Some(HttpFilter::HealthCheck { headers: self.header_matchers(config, "headers") })
    }
}
