//! The chain of HTTP filters. The last one is the router.

use std::sync::Arc;

use towpath_engine::filter::missing::Missing;
use towpath_engine::filter::unrouted::Unrouted;
use towpath_engine::filter::{ChainFilter, FilterConfig};
use towpath_engine::snapshot::http::{HttpChain, Router};
use towpath_proto::Name;

use super::Converter;
use super::extension::HTTP_FILTER;
use super::extension_discovery::{Found, Place};
use super::filter::{FILTERS, Known, MATCHING, OF_TRIES, OF_TRIES_IN_ENVOY};
use crate::message::Message;

/// Sends an attempt to its host.
const UPSTREAM_CODEC: &str = "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec";
pub(super) const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

impl Converter<'_> {
    /// The filters before the router, and the router. What has none goes nowhere.
    pub(super) fn http_filters(&mut self, holder: &Message, field: &str) -> Option<HttpChain> {
        let messages: Vec<_> = holder.messages(field).collect();
        let Some(last) = messages.last() else {
            let name = Arc::from("without a router");
            let config = Arc::new(Unrouted);
            let filters = vec![ChainFilter { name, disabled: false, config }];
            return Some(HttpChain { filters, router: Router::default() });
        };
        let of_routes = FILTERS.iter().filter_map(|known| Some(known.by_route?.0));
        let own = FILTERS.iter().map(|known| known.config_type).chain(of_routes);
        let own: Vec<_> = own.collect();
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
        Some(HttpChain { filters, router: router? })
    }

    /// Filters that each attempt of a request passes before its host, without what sends it there.
    pub(super) fn upstream_http_filters(
        &mut self,
        holder: &Message,
        field: &str,
    ) -> Vec<ChainFilter> {
        let messages: Vec<_> = holder.messages(field).collect();
        let known: Vec<_> = OF_TRIES.iter().copied().chain([UPSTREAM_CODEC]).collect();
        let Some((last, before)) = messages.split_last() else { return Vec::new() };
        if self
            .try_filter(last, &known)
            .is_some_and(|it| it.descriptor.full_name() != UPSTREAM_CODEC)
        {
            let text = format!(
                "The codec filter is the only valid terminal upstream HTTP filter, use '{UPSTREAM_CODEC}'"
            );
            self.report.problem(&last.at, text);
        }
        if last.flag("disabled") {
            let text = "the last filter of a chain cannot be disabled";
            self.report.problem(last.at("disabled"), text);
        }
        let mut filters = Vec::new();
        for filter in before {
            let Some(config) = self.try_filter(filter, &known) else { continue };
            let name = filter.text("name");
            if config.descriptor.full_name() == UPSTREAM_CODEC {
                let text = format!("terminal filter named {name} must be the last filter");
                self.report.problem(&filter.at, text);
                continue;
            }
            filters.extend(self.own_filter(config).map(|config| ChainFilter {
                name: Arc::from(name),
                disabled: filter.flag("disabled"),
                config,
            }));
        }
        filters
    }

    fn try_filter<'m>(&mut self, filter: &'m Message, known: &[&str]) -> Option<&'m Message> {
        if filter.has("config_discovery") {
            let text = "filters of tries are not asked for by xDS";
            self.report.unsupported(filter.at("config_discovery"), text);
            return None;
        }
        let of = filter.any("typed_config").map_or("", |(any, _)| &any.name);
        let is_ours = of == ROUTER || FILTERS.iter().any(|known| known.config_type == of);
        if is_ours && ![OF_TRIES, OF_TRIES_IN_ENVOY].concat().contains(&of) {
            let name = filter.text("name");
            self.report.problem(&filter.at, format!("`{name}` ({of}) is no upstream HTTP filter"));
            return None;
        }
        self.extension(filter, HTTP_FILTER, known).map(|(config, _)| config)
    }

    fn own_filter(&mut self, config: &Message) -> Option<Arc<dyn FilterConfig>> {
        let type_name = config.descriptor.full_name();
        if let Some(known) = FILTERS.iter().find(|known| known.config_type == type_name) {
            return (known.convert)(self, config);
        }
        let is_of_routes = |known: &&Known| known.by_route.is_some_and(|(of, _)| of == type_name);
        let known = FILTERS.iter().find(is_of_routes)?;
        // Envoy finds the filter by it, and reads nothing of a message without fields.
        if config.fields.is_empty() {
            let text = format!("`{type_name}` is of routes; write {}", known.config_type);
            self.report.note(&config.at, text);
            return (known.convert)(self, config);
        }
        let text = format!("Unable to unpack as {}", known.config_type);
        self.report.problem(&config.at, text);
        None
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
        let options = config.message("upstream_log_options");
        Router {
            dynamic_stats: config.wrapped_flag("dynamic_stats").unwrap_or(true),
            suppress_envoy_headers: config.flag("suppress_envoy_headers"),
            respect_expected_timeout: config.flag("respect_expected_rq_timeout"),
            starts_child_span: config.flag("start_child_span"),
            strict_headers: config
                .texts("strict_check_headers")
                .map(|(name, _)| Name::resolve(name.as_bytes()))
                .collect(),
            upstream_filters: self.upstream_http_filters(config, "upstream_http_filters"),
            attempt_logs: self.access_logs(config, "upstream_log"),
            log_attempt_start: options
                .is_some_and(|it| it.flag("flush_upstream_log_on_upstream_stream")),
            attempt_log_interval: options.and_then(|it| it.duration("upstream_log_flush_interval")),
        }
    }
}
