//! How requests are called where they are limited by what they are (`rate_limits`).

use std::sync::Arc;

use towpath_engine::filter::rate_limits::{Action, HeaderSource, RateLimit, RateLimits};
use towpath_engine::filter::{FilterOverride, RouteConfig};

use crate::convert::Converter;
use crate::message::{Message, Value};
use crate::support::Entry;

impl Converter<'_> {
    /// The `rate_limits` of a route or a virtual host.
    pub(in crate::convert) fn old_rate_limits(
        &mut self,
        holder: &Message,
        of_host: bool,
    ) -> Option<FilterOverride> {
        let list = self.rate_limits_of(holder);
        if list.is_empty() {
            return None;
        }
        let includes_host = !of_host && holder.wrapped_flag("include_vh_rate_limits") == Some(true);
        let config: Arc<dyn RouteConfig> = Arc::new(RateLimits { list, of_host, includes_host });
        Some(FilterOverride { filter: Arc::from(""), disabled: false, config: Some(config) })
    }

    /// A list of `RateLimit`s.
    pub(super) fn rate_limits_of(&mut self, holder: &Message) -> Vec<RateLimit> {
        let limits: Vec<_> = holder.messages("rate_limits").collect();
        limits.into_iter().filter_map(|limit| self.rate_limit(limit)).collect()
    }

    fn rate_limit(&mut self, limit: &Message) -> Option<RateLimit> {
        let actions: Vec<_> = limit.messages("actions").collect();
        let actions = actions.into_iter().map(|action| self.rate_limit_action(action));
        let actions = actions.collect::<Option<_>>()?;
        Some(RateLimit { stage: limit.number32("stage").unwrap_or(0), actions })
    }

    fn rate_limit_action(&mut self, action: &Message) -> Option<Action> {
        let field = action.oneof("action_specifier")?;
        let Value::Message(inner) = &field.value else { return None };
        let text = |name: &str, default: &str| -> Box<[u8]> {
            let text = inner.text(name);
            if text.is_empty() { default } else { text }.as_bytes().into()
        };
        Some(match field.descriptor.name() {
            "source_cluster" => Action::SourceCluster,
            "remote_address" => Action::RemoteAddress,
            "masked_remote_address" => {
                let bits = |name, most: u8| {
                    inner.number32(name).and_then(|bits| u8::try_from(bits).ok()).unwrap_or(most)
                };
                Action::RemoteNetwork {
                    v4: bits("v4_prefix_mask_len", 32),
                    v6: bits("v6_prefix_mask_len", 128),
                }
            }
            "generic_key" => Action::Fixed {
                key: text("descriptor_key", "generic_key"),
                value: text("descriptor_value", ""),
            },
            "request_headers" => Action::Header {
                header: match inner.text("header_name") {
                    ":path" => HeaderSource::Path,
                    ":method" => HeaderSource::Method,
                    ":authority" | "host" => HeaderSource::Authority,
                    name => HeaderSource::Field(self.header_name(name, inner.at("header_name"))?),
                },
                key: text("descriptor_key", ""),
                is_optional: inner.flag("skip_if_absent"),
            },
            "header_value_match" => Action::Match {
                key: text("descriptor_key", "header_match"),
                value: text("descriptor_value", ""),
                wanted: inner.wrapped_flag("expect_match").unwrap_or(true),
                headers: self.header_matchers(inner, "headers"),
                query: Vec::new(),
            },
            "query_parameter_value_match" => Action::Match {
                key: text("descriptor_key", "query_match"),
                value: text("descriptor_value", ""),
                wanted: inner.wrapped_flag("expect_match").unwrap_or(true),
                headers: Vec::new(),
                query: self.query_matchers(inner, "query_parameters"),
            },
            // Reported by the table of support.
            _ => return None,
        })
    }
}

const NOT_THERE: &str = "a request cannot be called by this";

pub(crate) const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.config.route.v3.RateLimit",
        honoured: &["stage", "actions"],
        harmless: &[("disable_key", "no runtime key of this kind is read")],
        changes: &[
            ("limit", "limits are those of the filter"),
            ("hits_addend", "each request takes one token"),
            ("apply_on_stream_done", "tokens are taken when a request begins"),
        ],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action",
        honoured: &[
            "source_cluster",
            "request_headers",
            "remote_address",
            "generic_key",
            "header_value_match",
            "masked_remote_address",
            "query_parameter_value_match",
        ],
        harmless: &[],
        changes: &[
            ("destination_cluster", NOT_THERE),
            ("query_parameters", NOT_THERE),
            ("dynamic_metadata", NOT_THERE),
            ("metadata", NOT_THERE),
            ("extension", NOT_THERE),
        ],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.SourceCluster",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.RemoteAddress",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.MaskedRemoteAddress",
        honoured: &["v4_prefix_mask_len", "v6_prefix_mask_len"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.RequestHeaders",
        honoured: &["header_name", "descriptor_key", "skip_if_absent"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.GenericKey",
        honoured: &["descriptor_value", "descriptor_key"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.HeaderValueMatch",
        honoured: &["descriptor_key", "descriptor_value", "expect_match", "headers"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.QueryParameterValueMatch",
        honoured: &["descriptor_key", "descriptor_value", "expect_match", "query_parameters"],
        harmless: &[],
        changes: &[],
    },
];
