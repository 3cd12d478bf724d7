//! Extensions: an `Any` that names its type.

use super::Converter;
use super::nearest::nearest;
use crate::message::{Any, At, Message, bare_extension};

/// A kind of extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// How messages call it.
    name: &'static str,
    /// Where Envoy's own extensions of this kind have their types.
    package: &'static str,
}

impl Kind {
    /// Whether an extension of this type could be one of the kind, in some program.
    pub(super) fn may_have(self, of: &str) -> bool {
        let is_envoys = of.starts_with("envoy.extensions.");
        if is_envoys { of.starts_with(self.package) } else { of.contains('.') }
    }
}

const fn kind(name: &'static str, package: &'static str) -> Kind {
    Kind { name, package }
}

pub(super) const ACCESS_LOGGER: Kind = kind("access logger", "envoy.extensions.access_loggers.");
/// They are from everywhere: `wasm`, `network.socket_interface`.
pub(super) const BOOTSTRAP_EXTENSION: Kind = kind("bootstrap extension", "");
pub(super) const CREDENTIAL: Kind =
    kind("credential", "envoy.extensions.http.injected_credentials.");
pub(super) const CLUSTER_SPECIFIER: Kind =
    kind("cluster specifier plugin", "envoy.extensions.router.cluster_specifiers.");
pub(super) const CLUSTER_TYPE: Kind = kind("cluster type", "envoy.extensions.clusters.");
pub(super) const COMPRESSOR: Kind = kind("compressor library", "envoy.extensions.compression.");
pub(super) const DECOMPRESSOR: Kind = kind("decompressor library", "envoy.extensions.compression.");
pub(super) const DNS_RESOLVER: Kind =
    kind("DNS resolver", "envoy.extensions.network.dns_resolver.");
pub(super) const HEALTH_CHECKER: Kind = kind("health checker", "envoy.extensions.health_checkers.");
pub(super) const HEALTH_EVENT_SINK: Kind =
    kind("health check event sink", "envoy.extensions.health_check.event_sinks.");
pub(super) const HTTP_FILTER: Kind = kind("HTTP filter", "envoy.extensions.filters.http.");
pub(super) const INPUT_MATCHER: Kind =
    kind("input matcher", "envoy.extensions.matching.input_matchers.");
pub(super) const LISTENER_FILTER: Kind =
    kind("listener filter", "envoy.extensions.filters.listener.");
pub(super) const LOAD_BALANCER: Kind =
    kind("load balancing policy", "envoy.extensions.load_balancing_policies.");
/// Actions are from everywhere.
pub(super) const FORMATTER: Kind = kind("formatter", "envoy.extensions.formatter.");
pub(super) const LOG_FILTER: Kind =
    kind("access log filter", "envoy.extensions.access_loggers.filters.");
pub(super) const MATCHING_ACTION: Kind = kind("action of a matcher", "");
pub(super) const MATCHING_INPUT: Kind =
    kind("input of a matcher", "envoy.extensions.matching.common_inputs.");
pub(super) const NETWORK_FILTER: Kind = kind("network filter", "envoy.extensions.filters.network.");
pub(super) const REGEX_ENGINE: Kind =
    kind("regular expression engine", "envoy.extensions.regex_engines.");
pub(super) const RESOURCE_MONITOR: Kind =
    kind("resource monitor", "envoy.extensions.resource_monitors.");
pub(super) const RESOURCE_DETECTOR: Kind =
    kind("resource detector", "envoy.extensions.tracers.opentelemetry.resource_detectors.");
pub(super) const PATH_MATCHER: Kind = kind("path matcher", "envoy.extensions.path.match.");
pub(super) const PATH_REWRITER: Kind = kind("path rewriter", "envoy.extensions.path.rewrite.");
pub(super) const EARLY_MUTATION: Kind =
    kind("early header mutation", "envoy.extensions.http.early_header_mutation.");
pub(super) const IP_DETECTION: Kind =
    kind("original IP detection", "envoy.extensions.http.original_ip_detection.");
pub(super) const HEADER_FORMATTER: Kind =
    kind("header formatter", "envoy.extensions.http.header_formatters.");
pub(super) const REDIRECT_PREDICATE: Kind =
    kind("internal redirect predicate", "envoy.extensions.internal_redirect.");
pub(super) const RETRY_PREDICATE: Kind =
    kind("retry host predicate", "envoy.extensions.retry.host.");
pub(super) const RETRY_PRIORITY: Kind = kind("retry priority", "envoy.extensions.retry.priority.");
pub(super) const SAMPLER: Kind =
    kind("sampler", "envoy.extensions.tracers.opentelemetry.samplers.");
pub(super) const SESSION_STATE: Kind =
    kind("session state", "envoy.extensions.http.stateful_session.");
pub(super) const STATS_SINK: Kind = kind("statistics sink", "envoy.extensions.stat_sinks.");
pub(super) const TRACER: Kind = kind("tracer", "envoy.extensions.tracers.");
pub(super) const TRANSPORT_SOCKET: Kind =
    kind("transport socket", "envoy.extensions.transport_sockets.");

pub(super) const UPSTREAM_FILTER: Kind =
    kind("upstream network filter", "envoy.extensions.filters.network.");

impl Converter<'_> {
    /// The typed config of an extension, checked. `known` are the types that are supported.
    ///
    /// Reports and returns `None` when it is missing, of an unknown type, or of one that is not supported.
    pub(super) fn extension<'m>(
        &mut self,
        holder: &'m Message,
        kind: Kind,
        known: &[&str],
    ) -> Option<(&'m Message, &'m At)> {
        let (name, what) = (holder.text("name"), kind.name);
        let Some((any, at)) = holder.any("typed_config") else {
            self.report.problem(&holder.at, format!("{what} `{name}` needs a `typed_config`"));
            return None;
        };
        self.typed_extension(name, any, at, kind, known).map(|message| (message, at))
    }

    /// The same of what was found elsewhere.
    pub(super) fn typed_extension<'m>(
        &mut self,
        name: &str,
        any: &'m Any,
        at: &At,
        kind: Kind,
        known: &[&str],
    ) -> Option<&'m Message> {
        let what = kind.name;
        let Some(message) = &any.message else {
            self.report.problem(at, format!("there is no {what} `{name}` of type `{}`", any.name));
            return None;
        };
        let is_known = known.contains(&any.name.as_str());
        let is_another =
            any.name.starts_with("envoy.extensions.") && !any.name.starts_with(kind.package);
        if !is_known && is_another {
            self.report.problem(at, format!("`{}` is no {what}", any.name));
            return None;
        }
        if !is_known {
            let near = nearest(&any.name).map(|near| format!("; {near} comes nearest"));
            let near = near.unwrap_or_default();
            self.report
                .unsupported(at, format!("{what} `{name}` ({}) is not there{near}", any.name));
            return None;
        }
        self.accept(message);
        Some(message)
    }

    /// Whether this is an extension of the v2 API that had nothing to configure, such as `name: envoy.router` alone.
    pub(super) fn is_bare(&mut self, holder: &Message, type_name: &str) -> bool {
        let name = holder.text("name");
        let bare = holder.any("typed_config").is_none() && bare_extension(name) == Some(type_name);
        if bare {
            let note = format!(
                "`{name}` alone is of the v2 API; write `typed_config: {{\"@type\": type.googleapis.com/{type_name}}}`"
            );
            self.report.note(&holder.at, note);
        }
        bare
    }
}
