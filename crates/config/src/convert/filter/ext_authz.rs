//! Another server is asked whether a request may go on.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::ext_authz::{
    Body, ExtAuthz, HttpService, RouteBody, RouteExtAuthz, Server, Service, SharedExtAuthz,
};
use towpath_engine::matcher::StringMatcher;
use towpath_engine::snapshot::route::HeaderOps;

use super::Known;
use crate::convert::Converter;
use crate::error::Rank;
use crate::message::{Message, Value};
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| {
        Some(Arc::new(SharedExtAuthz(Arc::new(converter.ext_authz(config)?))))
    },
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    let Some(settings) = config.message("check_settings") else {
        return config.flag("disabled").then(|| Arc::new(RouteExtAuthz::Disabled) as _);
    };
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        _ => String::new(),
    };
    let extensions = settings.entries("context_extensions");
    let extensions = extensions.iter().map(|(name, item)| (name.clone(), text(&item.value)));
    let body = match settings.message("with_request_body") {
        _ if settings.flag("disable_request_body_buffering") => RouteBody::None,
        Some(body) => RouteBody::Sent(sent_body(body)?),
        None => RouteBody::AsFilter,
    };
    let server = match settings.has("grpc_service") || settings.has("http_service") {
        true => Some(Arc::new(converter.authz_server(settings)?)),
        false => None,
    };
    let request =
        settings.message("http_service").and_then(|it| it.message("authorization_request"));
    if let Some(request) = request.filter(|request| request.has("allowed_headers")) {
        let text = "Envoy does not read it here: the filter says which headers a server sees";
        converter.report.finding(request.at("allowed_headers"), Rank::Harmless, text);
    }
    let has_span = settings.wrapped_flag("emit_client_span");
    Some(Arc::new(RouteExtAuthz::Check {
        extensions: extensions.collect(),
        body,
        has_span,
        server,
    }))
}

fn sent_body(body: &Message) -> Option<Body> {
    Some(Body {
        limit: usize::try_from(body.number("max_request_bytes")?).ok()?,
        partial: body.flag("allow_partial_message"),
        as_bytes: body.flag("pack_as_bytes"),
    })
}

impl Converter<'_> {
    fn ext_authz(&mut self, config: &Message) -> Option<ExtAuthz> {
        if config.choice("transport_api_version") == "V2" {
            let text = "the v2 API has been removed; write V3";
            self.report.problem(config.at("transport_api_version"), text);
        }
        let server = Arc::new(self.authz_server(config)?);
        let body = config.message("with_request_body");
        let enabled = config.message("filter_enabled");
        let code = config.message("status_on_error").and_then(|status| status.get("code"));
        let status = match code.map(|code| &code.value) {
            Some(Value::Enum(code)) => u16::try_from(*code).ok().filter(|code| *code != 0),
            _ => None,
        };
        let disables = config.message("deny_at_disable");
        let disables = disables.and_then(|flag| flag.wrapped_flag("default_value"));
        let request = config.message("http_service");
        let request = request.and_then(|service| service.message("authorization_request"));
        let of_request = request.and_then(|request| self.matchers(request, "allowed_headers"));
        let of_filter = self.matchers(config, "allowed_headers");
        if of_request.is_some() && of_filter.is_some() {
            let text = "Invalid duplicate configuration for allowed_headers.";
            self.report.problem(config.at("allowed_headers"), text);
        }
        let namespaces = |field| config.texts(field).map(|(name, _)| name.into()).collect();
        let mut allowed = of_filter.or(of_request);
        if config.has("http_service") {
            let always = ALWAYS_SEEN.iter().map(|name| StringMatcher::exact(name, false));
            allowed.get_or_insert_default().extend(always);
        }
        Some(ExtAuthz {
            server,
            failure_mode_allow: config.flag("failure_mode_allow"),
            tells_failure: config.flag("failure_mode_allow_header_add"),
            status_on_error: status.unwrap_or(FORBIDDEN),
            body: match body {
                Some(body) => Some(sent_body(body)?),
                None => None,
            },
            clears_route: config.flag("clear_route_cache"),
            enabled: enabled.and_then(|enabled| self.runtime_fraction(enabled)),
            enabled_by: match config.message("filter_enabled_metadata") {
                Some(matcher) => Some(self.metadata_matcher(matcher)?),
                None => None,
            },
            denies_disabled: disables.unwrap_or(false),
            stat_prefix: Arc::from(config.text("stat_prefix")),
            allowed,
            disallowed: self.matchers(config, "disallowed_headers").unwrap_or_default(),
            raw_headers: config.flag("encode_raw_headers"),
            tells_certificate: config.flag("include_peer_certificate"),
            tells_server_name: config.flag("include_tls_session"),
            namespaces: namespaces("metadata_context_namespaces"),
            route_namespaces: namespaces("route_metadata_context_namespaces"),
            charges_cluster: config.wrapped_flag("charge_cluster_response_stats").unwrap_or(true),
            has_span: config.wrapped_flag("emit_client_span").unwrap_or(true),
            most_refusal: config.number32("max_denied_response_body_bytes").unwrap_or(0) as usize,
            keeps_metadata: config
                .wrapped_flag("enable_dynamic_metadata_ingestion")
                .unwrap_or(true),
            validates: config.flag("validate_mutations"),
            rules: match config.message("decoder_header_mutation_rules") {
                Some(rules) => Some(self.mutation_rules(rules)?),
                None => None,
            },
            labels: self.mesh_node.labels(config.text("bootstrap_metadata_labels_key")),
            shadow: config.flag("shadow_mode"),
        })
    }

    /// Of a filter or of a route.
    fn authz_server(&mut self, config: &Message) -> Option<Server> {
        if let Some(service) = config.message("grpc_service") {
            let (service, timeout) = self.grpc_service(service)?;
            let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
            return Some(Server { service: Service::Grpc(service), timeout });
        }
        let Some(service) = config.message("http_service") else {
            self.report.unsupported(&config.at, "needs `grpc_service` or `http_service`");
            return None;
        };
        let Some(uri) = service.message("server_uri") else {
            self.report.unsupported(&service.at, "needs a `server_uri`");
            return None;
        };
        if uri.has("uri") {
            let text = "the request keeps its own host; where it goes says the cluster";
            self.report.finding(uri.at("uri"), Rank::Harmless, text);
        }
        let prefix = service.text("path_prefix");
        if !(prefix.is_empty() || prefix.starts_with('/')) {
            let text = "path_prefix should start with \"/\".";
            self.report.problem(service.at("path_prefix"), text);
        }
        let path = service.text("path_override");
        if !(path.is_empty() || path.starts_with('/')) {
            let text = "path_override should start with \"/\".";
            self.report.problem(service.at("path_override"), text);
        }
        if !(path.is_empty() || prefix.is_empty()) {
            let text = "Only one of path_prefix or path_override may be set.";
            self.report.problem(service.at("path_override"), text);
        }
        let answer = service.message("authorization_response");
        let mut of_answer =
            |name| answer.and_then(|answer| self.matchers(answer, name)).unwrap_or_default();
        let (upstream, appended) = (
            of_answer("allowed_upstream_headers"),
            of_answer("allowed_upstream_headers_to_append"),
        );
        let (client, client_on_success) =
            (of_answer("allowed_client_headers"), of_answer("allowed_client_headers_on_success"));
        let metadata = of_answer("dynamic_metadata_from_headers");
        let request = service.message("authorization_request");
        let headers = request.map(|request| self.header_values(request, "headers_to_add"));
        let timeout = self.whole_timeout(uri)?;
        let service = HttpService {
            cluster: Arc::from(uri.text("cluster")),
            path_prefix: prefix.into(),
            path: path.into(),
            headers: headers.unwrap_or_else(HeaderOps::default),
            upstream,
            appended,
            client,
            client_on_success,
            metadata,
            retry: self.core_retry_policy(service, "retry_policy", None),
        };
        let service = Service::Http(Box::new(service));
        Some(Server { service, timeout: timeout.unwrap_or(DEFAULT_TIMEOUT) })
    }

    /// A `ListStringMatcher`.
    fn matchers(&mut self, holder: &Message, name: &str) -> Option<Vec<StringMatcher>> {
        let list = holder.message(name)?;
        let patterns: Vec<_> = list.messages("patterns").collect();
        Some(patterns.into_iter().filter_map(|pattern| self.string_matcher(pattern)).collect())
    }
}

/// What a filter that asks by HTTP shows in any case, if it is not disallowed.
const ALWAYS_SEEN: [&str; 4] = ["authorization", ":method", ":path", ":authority"];
const FORBIDDEN: u16 = 403;
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(200);

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "grpc_service",
            "http_service",
            "failure_mode_allow",
            "failure_mode_allow_header_add",
            "with_request_body",
            "clear_route_cache",
            "status_on_error",
            "metadata_context_namespaces",
            "route_metadata_context_namespaces",
            "filter_enabled",
            "filter_enabled_metadata",
            "deny_at_disable",
            "include_peer_certificate",
            "stat_prefix",
            "allowed_headers",
            "disallowed_headers",
            "include_tls_session",
            "charge_cluster_response_stats",
            "transport_api_version",
            "emit_client_span",
            "max_denied_response_body_bytes",
            "enable_dynamic_metadata_ingestion",
            "validate_mutations",
            "decoder_header_mutation_rules",
            "encode_raw_headers",
            "bootstrap_metadata_labels_key",
            "shadow_mode",
        ],
        harmless: &[],
        changes: &[
            ("typed_metadata_context_namespaces", "metadata is a `Struct`"),
            ("route_typed_metadata_context_namespaces", "metadata is a `Struct`"),
            ("filter_metadata", "nothing reads it"),
            ("emit_filter_state_stats", "the filter state says nothing of it"),
            ("enforce_response_header_limits", "what an answer adds to a response is not counted"),
        ],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_authz.v3.BufferSettings",
        honoured: &["max_request_bytes", "allow_partial_message", "pack_as_bytes"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_authz.v3.HttpService",
        honoured: &[
            "server_uri",
            "path_prefix",
            "path_override",
            "authorization_request",
            "authorization_response",
            "retry_policy",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_authz.v3.AuthorizationRequest",
        honoured: &["allowed_headers", "headers_to_add"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_authz.v3.AuthorizationResponse",
        honoured: &[
            "allowed_upstream_headers",
            "allowed_upstream_headers_to_append",
            "allowed_client_headers",
            "allowed_client_headers_on_success",
            "dynamic_metadata_from_headers",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: ROUTE_TYPE,
        honoured: &["disabled", "check_settings"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.ext_authz.v3.CheckSettings",
        honoured: &[
            "context_extensions",
            "disable_request_body_buffering",
            "with_request_body",
            "emit_client_span",
            "grpc_service",
            "http_service",
        ],
        harmless: &[],
        changes: &[],
    },
];
