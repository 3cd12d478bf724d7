//! Another server sees the parts of streams, and changes them.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::ext_proc::{
    BodyMode, ExtProc, HeaderMode, Namespaces, Overrides, ProcessingMode, RouteCache, RouteExtProc,
    SharedExtProc,
};
use towpath_engine::filter::mutation_rules::MutationRules;
use towpath_engine::format::cel::Expression;
use towpath_engine::matcher::StringMatcher;
use towpath_engine::snapshot::route::HeaderOps;

use super::Known;
use crate::convert::Converter;
use crate::message::{Message, Value};
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| {
        Some(Arc::new(SharedExtProc(Arc::new(converter.ext_proc(config)?))))
    },
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    let Some(overrides) = config.message("overrides") else {
        return config.flag("disabled").then(|| Arc::new(RouteExtProc::Disabled) as _);
    };
    let mode = match overrides.message("processing_mode") {
        Some(mode) => Some(converter.processing_mode(mode)?),
        None => None,
    };
    let service = match overrides.message("grpc_service") {
        Some(service) => Some(Arc::new(converter.talking_service(service)?)),
        None => None,
    };
    let metadata = match overrides.has("grpc_initial_metadata") {
        true => converter.header_values(overrides, "grpc_initial_metadata"),
        false => HeaderOps::default(),
    };
    Some(Arc::new(RouteExtProc::Overrides(Box::new(Overrides {
        mode,
        service,
        metadata,
        namespaces: namespaces(overrides),
        failure_mode_allow: overrides.wrapped_flag("failure_mode_allow"),
    }))))
}

fn namespaces(holder: &Message) -> Namespaces {
    let of = |name| {
        let list = holder.message("metadata_options")?.message(name)?;
        Some(list.texts("untyped").map(|(name, _)| name.into()).collect())
    };
    Namespaces { forwarded: of("forwarding_namespaces"), received: of("receiving_namespaces") }
}

impl Converter<'_> {
    fn ext_proc(&mut self, config: &Message) -> Option<ExtProc> {
        let Some(service) = config.message("grpc_service") else {
            if !config.has("http_service") {
                let text = "One and only one of grpc_service or http_service must be configured";
                self.report.problem(&config.at, text);
            }
            return None;
        };
        let service = Arc::new(self.talking_service(service)?);
        let mode = match config.message("processing_mode") {
            Some(mode) => self.processing_mode(mode)?,
            None => ProcessingMode::default(),
        };
        self.check_duplex(config, &mode);
        let mut allowed_modes = Vec::new();
        for mode in config.messages("allowed_override_modes") {
            allowed_modes.push(self.processing_mode(mode)?);
        }
        let code = config.message("status_on_error").and_then(|status| status.get("code"));
        let status = match code.map(|code| &code.value) {
            Some(Value::Enum(code)) => {
                u16::try_from(*code).ok().filter(|code| (400..600).contains(code))
            }
            _ => None,
        };
        let forward = config.message("forward_rules");
        let mut seen =
            |name| forward.and_then(|it| self.forward_rule(it, name)).unwrap_or_default();
        let (allowed, disallowed) = (seen("allowed_headers"), seen("disallowed_headers"));
        let rules = match config.message("mutation_rules") {
            Some(rules) => self.mutation_rules(rules)?,
            None => MutationRules::default(),
        };
        let retains = config.flag("disable_clear_route_cache");
        let route_cache = match &*config.choice("route_cache_action") {
            "CLEAR" => RouteCache::Clear,
            "RETAIN" => RouteCache::Retain,
            _ if retains => RouteCache::Retain,
            _ => RouteCache::Default,
        };
        if retains && config.choice("route_cache_action") != "DEFAULT" {
            let text = "disable_clear_route_cache and route_cache_action can not be set to \
                        none-default at the same time.";
            self.report.problem(config.at("route_cache_action"), text);
        }
        let lingers = config.duration("deferred_close_timeout").unwrap_or(DEFERRED_CLOSE);
        Some(ExtProc {
            service,
            mode,
            failure_mode_allow: config.flag("failure_mode_allow"),
            status_on_error: status.unwrap_or(ExtProc::STATUS_ON_ERROR),
            message_timeout: config.duration("message_timeout").unwrap_or(ExtProc::MESSAGE_TIMEOUT),
            max_message_timeout: config.duration("max_message_timeout").unwrap_or_default(),
            stat_prefix: Arc::from(config.text("stat_prefix")),
            rules,
            allowed,
            disallowed,
            allow_mode_override: config.flag("allow_mode_override"),
            allowed_modes,
            disable_immediate_response: config.flag("disable_immediate_response"),
            route_cache,
            namespaces: namespaces(config),
            sends_body_early: config.flag("send_body_without_waiting_for_header_response"),
            watches: config.flag("observability_mode").then_some(lingers),
            request_attributes: self.attributes(config, "request_attributes")?,
            response_attributes: self.attributes(config, "response_attributes")?,
        })
    }

    /// A `GrpcService` whose calls go on: none has a time of its own, as in Envoy.
    fn talking_service(
        &mut self,
        service: &Message,
    ) -> Option<towpath_engine::filter::ext_proc::GrpcService> {
        Some(self.grpc_service(service)?.0)
    }

    fn processing_mode(&mut self, mode: &Message) -> Option<ProcessingMode> {
        let headers = |name| match &*mode.choice(name) {
            "SEND" => HeaderMode::Send,
            "SKIP" => HeaderMode::Skip,
            _ => HeaderMode::Default,
        };
        let body = |name| match &*mode.choice(name) {
            "STREAMED" => Some(BodyMode::Streamed),
            "BUFFERED" => Some(BodyMode::Buffered),
            "BUFFERED_PARTIAL" => Some(BodyMode::BufferedPartial),
            "FULL_DUPLEX_STREAMED" => Some(BodyMode::FullDuplex),
            "NONE" => Some(BodyMode::None),
            _ => None,
        };
        for name in ["request_body_mode", "response_body_mode"] {
            if body(name).is_none() {
                let text = "a server is not shown gRPC's messages one by one; write NONE, \
                            STREAMED, BUFFERED, BUFFERED_PARTIAL or FULL_DUPLEX_STREAMED";
                self.report.unsupported(mode.at(name), text);
            }
        }
        Some(ProcessingMode {
            request_headers: headers("request_header_mode"),
            response_headers: headers("response_header_mode"),
            request_body: body("request_body_mode")?,
            response_body: body("response_body_mode")?,
            request_trailers: headers("request_trailer_mode"),
            response_trailers: headers("response_trailer_mode"),
        })
    }

    fn check_duplex(&mut self, config: &Message, mode: &ProcessingMode) {
        let parts = [
            ("request", mode.request_body, mode.request_trailers),
            ("response", mode.response_body, mode.response_trailers),
        ];
        for (side, body, trailers) in parts {
            if body == BodyMode::FullDuplex && trailers != HeaderMode::Send {
                let text = format!(
                    "If the ext_proc filter has the {side}_body_mode set to FULL_DUPLEX_STREAMED, \
                     then the {side}_trailer_mode has to be set to SEND"
                );
                self.report.problem(config.at("processing_mode"), text);
            }
        }
    }

    fn attributes(&mut self, config: &Message, name: &str) -> Option<Vec<Expression>> {
        let wanted: Vec<_> = config.texts(name).collect();
        wanted.into_iter().map(|(text, at)| self.expression(text, at)).collect()
    }

    /// A `ListStringMatcher`.
    fn forward_rule(&mut self, holder: &Message, name: &str) -> Option<Vec<StringMatcher>> {
        let list = holder.message(name)?;
        let patterns: Vec<_> = list.messages("patterns").collect();
        Some(patterns.into_iter().filter_map(|pattern| self.string_matcher(pattern)).collect())
    }
}

const DEFERRED_CLOSE: Duration = Duration::from_secs(5);

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "grpc_service",
            "failure_mode_allow",
            "processing_mode",
            "request_attributes",
            "response_attributes",
            "message_timeout",
            "stat_prefix",
            "mutation_rules",
            "max_message_timeout",
            "disable_clear_route_cache",
            "forward_rules",
            "allow_mode_override",
            "disable_immediate_response",
            "metadata_options",
            "observability_mode",
            "route_cache_action",
            "deferred_close_timeout",
            "send_body_without_waiting_for_header_response",
            "allowed_override_modes",
            "status_on_error",
        ],
        harmless: &[],
        changes: &[
            ("http_service", "the server is called by gRPC"),
            ("filter_metadata", "the filter state says nothing of it"),
            ("processing_request_modifier", "the server is told what Envoy tells without it"),
            ("on_processing_response", "nothing else hears what the server says"),
            ("allow_content_length_header", "a length that may be wrong is not told"),
        ],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_proc.v3.ProcessingMode",
        honoured: &[
            "request_header_mode",
            "response_header_mode",
            "request_body_mode",
            "response_body_mode",
            "request_trailer_mode",
            "response_trailer_mode",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_proc.v3.HeaderForwardingRules",
        honoured: &["allowed_headers", "disallowed_headers"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_proc.v3.MetadataOptions",
        honoured: &["forwarding_namespaces", "receiving_namespaces"],
        harmless: &[],
        changes: &[(
            "cluster_metadata_forwarding_namespaces",
            "the server is not told of clusters",
        )],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_proc.v3.MetadataOptions.MetadataNamespaces",
        honoured: &["untyped"],
        harmless: &[],
        changes: &[("typed", "metadata is a `Struct`")],
    },
    Entry {
        message: ROUTE_TYPE,
        honoured: &["disabled", "overrides"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_proc.v3.ExtProcOverrides",
        honoured: &[
            "processing_mode",
            "grpc_service",
            "metadata_options",
            "grpc_initial_metadata",
            "failure_mode_allow",
        ],
        // Envoy reads none of these either.
        harmless: &[
            ("async_mode", "it is not read"),
            ("request_attributes", "it is not read"),
            ("response_attributes", "it is not read"),
        ],
        changes: &[(
            "processing_request_modifier",
            "the server is told what Envoy tells without it",
        )],
    },
];
