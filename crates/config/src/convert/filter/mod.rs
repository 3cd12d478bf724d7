//! HTTP filters: each has its conversion and its table of support in a folder of its name, and an entry in [`FILTERS`].

mod api_key_auth;
mod bandwidth_limit;
mod basic_auth;
mod buffer;
mod compressor;
mod cors;
mod credential_injector;
mod csrf;
mod custom_response;
mod decompressor;
mod dynamic_forward_proxy;
mod ext_authz;
mod ext_proc;
mod fault;
mod grpc_http1_bridge;
mod grpc_json_transcoder;
mod grpc_stats;
mod grpc_web;
mod header_mutation;
mod header_to_metadata;
mod health_check;
mod istio_alpn;
mod istio_stats;
mod jwt_authn;
mod local_ratelimit;
#[cfg(feature = "lua")]
pub(super) mod lua;
mod mutation_rules;
mod oauth2;
mod peer_metadata;
pub(crate) mod rate_limits;
mod ratelimit;
mod rbac;
pub(super) mod set_filter_state;
mod set_metadata;
mod stateful_session;

use std::sync::Arc;

use towpath_engine::filter::{FilterConfig, FilterOverride, RouteConfig};

use super::Converter;
use super::bridge::{BOLT_BRIDGE, BOLT_BRIDGE_NAME};
use crate::message::{Message, Value};
use crate::support::Entry;

/// How a filter is read.
pub(crate) struct Known {
    /// The type of its configuration.
    pub(crate) config_type: &'static str,
    pub(crate) convert: fn(&mut Converter<'_>, &Message) -> Option<Arc<dyn FilterConfig>>,
    /// The type of what routes say to it, and how that is read.
    pub(crate) by_route: Option<(&'static str, ReadRoute)>,
    /// The fields that it honours, of all its messages.
    pub(crate) support: &'static [Entry],
}

type ReadRoute = fn(&mut Converter<'_>, &Message) -> Option<Arc<dyn RouteConfig>>;

/// All there are, but the router.
pub(crate) const FILTERS: &[Known] = &[
    api_key_auth::FILTER,
    bandwidth_limit::FILTER,
    basic_auth::FILTER,
    buffer::FILTER,
    compressor::FILTER,
    cors::FILTER,
    credential_injector::FILTER,
    csrf::FILTER,
    custom_response::FILTER,
    decompressor::FILTER,
    dynamic_forward_proxy::FILTER,
    ext_authz::FILTER,
    ext_proc::FILTER,
    fault::FILTER,
    grpc_http1_bridge::FILTER,
    grpc_json_transcoder::FILTER,
    grpc_stats::FILTER,
    grpc_web::FILTER,
    header_mutation::FILTER,
    header_to_metadata::FILTER,
    health_check::FILTER,
    istio_alpn::FILTER,
    istio_stats::FILTER,
    jwt_authn::FILTER,
    local_ratelimit::FILTER,
    oauth2::FILTER,
    peer_metadata::FILTER,
    #[cfg(feature = "lua")]
    lua::FILTER,
    ratelimit::FILTER,
    rbac::FILTER,
    set_filter_state::FILTER,
    set_metadata::FILTER,
    stateful_session::FILTER,
];

/// Those that may stand between the router and a host.
pub(crate) const OF_TRIES: &[&str] =
    &[credential_injector::FILTER.config_type, header_mutation::FILTER.config_type];

/// The others that may stand there in Envoy.
pub(crate) const OF_TRIES_IN_ENVOY: &[&str] = &[
    "envoy.extensions.filters.http.buffer.v3.Buffer",
    "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
    "envoy.extensions.filters.http.lua.v3.Lua",
];

impl Converter<'_> {
    /// What a table, a virtual host or a route says to filters (`typed_per_filter_config`).
    pub(super) fn filter_overrides(&mut self, holder: &Message) -> Vec<FilterOverride> {
        let mut overrides = Vec::new();
        for (name, item) in holder.entries("typed_per_filter_config") {
            let Value::Any(any) = &item.value else { continue };
            // What bridges a route to Bolt is a part of the route.
            if any.name == BOLT_BRIDGE && name == BOLT_BRIDGE_NAME {
                continue;
            }
            let filter: Arc<str> = Arc::from(name.as_str());
            if any.name != FILTER_CONFIG {
                let config = self.route_filter(name, &any.name, any.message.as_ref(), &item.at);
                overrides.extend(config.map(|config| FilterOverride {
                    filter,
                    disabled: false,
                    config: Some(config),
                }));
                continue;
            }
            let Some(wrapper) = &any.message else { continue };
            self.accept(wrapper);
            let inner = wrapper.any("config");
            let disabled = wrapper.flag("disabled");
            // One without a type only says that the filter is on; that of a filter that is off is not looked at.
            let config = inner
                .filter(|(any, _)| !disabled && !any.name.is_empty())
                .and_then(|(any, at)| self.route_filter(name, &any.name, any.message.as_ref(), at));
            if inner.is_none() && !disabled {
                self.report.problem(&item.at, "needs a `config`, or `disabled: true`");
            }
            overrides.push(FilterOverride { filter, disabled, config });
        }
        overrides
    }

    fn route_filter(
        &mut self,
        name: &str,
        type_name: &str,
        message: Option<&Message>,
        at: &crate::message::At,
    ) -> Option<Arc<dyn RouteConfig>> {
        let known = FILTERS.iter().filter_map(|known| known.by_route);
        let read = known.into_iter().find(|(known, _)| *known == type_name);
        let (Some((_, read)), Some(message)) = (read, message) else {
            let text = format!("`{name}` of type `{type_name}` is not configured by route");
            self.report.unsupported(at, text);
            return None;
        };
        self.accept(message);
        read(self, message)
    }
}

/// A filter that some requests skip.
pub(super) const MATCHING: &str = "envoy.extensions.common.matching.v3.ExtensionWithMatcher";
/// Says more of a filter than its configuration.
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";
