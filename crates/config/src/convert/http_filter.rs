//! The chain of HTTP filters. The last one is the router.

use std::sync::Arc;

use towpath_engine::filter::missing::Missing;
use towpath_engine::filter::{ChainFilter, FilterConfig};
use towpath_engine::snapshot::http::Router;

use super::Converter;
use super::extension::HTTP_FILTER;
use super::extension_discovery::{Found, Place};
use super::filter::{FILTERS, MATCHING};
use crate::message::Message;

const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

impl Converter<'_> {
    /// The filters before the router, and the router.
    pub(super) fn http_filters(&mut self, message: &Message) -> Option<(Vec<ChainFilter>, Router)> {
        let messages: Vec<_> = message.messages("http_filters").collect();
        let Some(last) = messages.last() else {
            // Envoy takes it, and answers 404 to everything.
            self.report.unsupported(&message.at, "needs `http_filters`, the last of them a router");
            return None;
        };
        let own: Vec<_> = FILTERS.iter().map(|known| known.config_type).collect();
        let known: Vec<_> = own.iter().copied().chain([ROUTER, MATCHING]).collect();
        let (mut filters, mut router) = (Vec::new(), None);
        for filter in &messages {
            let name = filter.text("name");
            let is_last = std::ptr::eq(*filter, *last);
            if self.is_bare(filter, ROUTER) {
                router = Some(self.router(None, filter, is_last));
                continue;
            }
            let place = Place {
                extends: HTTP_FILTER,
                family: "http_filter",
                known: &known,
                terminal: &[ROUTER],
                is_last,
            };
            let config = match self.filter_config(filter, place) {
                Some(Found::Config(config)) => config,
                Some(Found::Missing) => {
                    if is_last {
                        router = Some(Router::default());
                    }
                    filters.push(ChainFilter {
                        name: Arc::from(name),
                        disabled: filter.flag("disabled"),
                        config: Arc::new(Missing),
                    });
                    continue;
                }
                None => continue,
            };
            let type_name = config.descriptor.full_name();
            if type_name == ROUTER {
                router = Some(self.router(Some(config), filter, is_last));
                continue;
            }
            let converted = match type_name {
                MATCHING => config.message("extension_config").and_then(|holder| {
                    let (inner, _) = self.extension(holder, HTTP_FILTER, &own)?;
                    let inner = self.own_filter(inner)?;
                    if inner.sees_ends() {
                        let text = "counts all that the chain takes, and cannot be matched";
                        self.report.unsupported(&holder.at, text);
                    }
                    self.matching_filter(config, inner)
                }),
                _ => self.own_filter(config),
            };
            filters.extend(converted.map(|config| ChainFilter {
                name: Arc::from(name),
                disabled: filter.flag("disabled"),
                config,
            }));
            if is_last {
                self.report.problem(
                    &filter.at,
                    format!("non-terminal HTTP filter named {name} is the last filter"),
                );
            }
        }
        Some((filters, router?))
    }

    fn own_filter(&mut self, config: &Message) -> Option<Arc<dyn FilterConfig>> {
        let type_name = config.descriptor.full_name();
        let known = FILTERS.iter().find(|known| known.config_type == type_name)?;
        (known.convert)(self, config)
    }

    fn router(&mut self, config: Option<&Message>, filter: &Message, is_last: bool) -> Router {
        let name = filter.text("name");
        if !is_last {
            self.report.problem(
                &filter.at,
                format!("terminal HTTP filter named {name} must be the last filter"),
            );
        }
        if filter.flag("disabled") {
            self.report.problem(
                filter.at("disabled"),
                format!("terminal HTTP filter named {name} cannot be disabled"),
            );
        }
        let Some(config) = config else { return Router::default() };
        Router {
            dynamic_stats: config.wrapped_flag("dynamic_stats").unwrap_or(true),
            suppress_envoy_headers: config.flag("suppress_envoy_headers"),
            respect_expected_timeout: config.flag("respect_expected_rq_timeout"),
            starts_child_span: config.flag("start_child_span"),
        }
    }
}
