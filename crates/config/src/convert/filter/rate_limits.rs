//! How requests are called where they are limited by what they are (`rate_limits`).

use std::sync::Arc;

use towpath_engine::filter::rate_limits::{
    Action, HeaderSource, Hits, HitsSource, LimitOverride, LimitSource, MetadataKey, RateLimit,
    RateLimits,
};
use towpath_engine::filter::{FilterOverride, RouteConfig};
use towpath_engine::fraction::Fraction;

use crate::convert::Converter;
use crate::error::Rank;
use crate::message::{Message, Value};
use crate::support::Entry;

/// Where a `RateLimit` stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a route or virtual host.
    Route,
    /// In a filter that asks a server, or in what a route says to it.
    Asking,
    /// In a filter with buckets of its own.
    Local,
}

impl Converter<'_> {
    /// The `rate_limits` of a route or a virtual host.
    pub(in crate::convert) fn old_rate_limits(
        &mut self,
        holder: &Message,
        of_host: bool,
    ) -> Option<FilterOverride> {
        let list = self.rate_limits_of(holder, Place::Route);
        if list.is_empty() {
            return None;
        }
        let includes_host = !of_host && holder.wrapped_flag("include_vh_rate_limits") == Some(true);
        let config: Arc<dyn RouteConfig> = Arc::new(RateLimits { list, of_host, includes_host });
        Some(FilterOverride { filter: Arc::from(""), disabled: false, config: Some(config) })
    }

    /// A list of `RateLimit`s.
    pub(super) fn rate_limits_of(&mut self, holder: &Message, place: Place) -> Vec<RateLimit> {
        let limits: Vec<_> = holder.messages("rate_limits").collect();
        limits.into_iter().filter_map(|limit| self.rate_limit(limit, place)).collect()
    }

    fn rate_limit(&mut self, limit: &Message, place: Place) -> Option<RateLimit> {
        let is_embedded = place != Place::Route;
        let not_here: &[&str] = match place {
            Place::Route => &[],
            Place::Asking => &["stage", "disable_key"],
            Place::Local => &["stage", "disable_key", "limit"],
        };
        for field in not_here.iter().filter(|field| limit.has(field)) {
            let text = format!("'{field}' is not supported in the `rate_limits` of a filter");
            self.report.problem(limit.at(field), text);
        }
        let actions: Vec<_> = limit.messages("actions").collect();
        let actions = actions.into_iter().map(|action| self.rate_limit_action(action));
        let actions = actions.collect::<Option<_>>()?;
        let hits = match limit.message("hits_addend") {
            Some(hits) if is_embedded => Some(self.hits(hits)?),
            Some(hits) => {
                self.accept(hits);
                let text = "a request counts once where routes say what it is called";
                self.report.finding(limit.at("hits_addend"), Rank::Harmless, text);
                None
            }
            None => None,
        };
        let source = match limit.message("limit") {
            Some(limit) => Some(limit_source(limit)?),
            None => None,
        };
        let key = limit.text("disable_key");
        let share = (!key.is_empty()).then(|| {
            let key = format!("ratelimit.{key}.http_filter_enabled");
            self.fraction_of_key(&key).unwrap_or(ALL)
        });
        Some(RateLimit {
            stage: limit.number32("stage").unwrap_or(0),
            share,
            actions,
            limit: source,
            hits,
            tells: match limit.choice("x_ratelimit_option").as_str() {
                "OFF" => Some(false),
                "DRAFT_VERSION_03" => Some(true),
                _ => None,
            },
        })
    }

    fn hits(&mut self, hits: &Message) -> Option<Hits> {
        let (format, number) = (hits.text("format"), hits.number("number"));
        let source = match (format, number) {
            ("", Some(number)) => HitsSource::Number(number),
            ("", None) => {
                let text = "hits_addend must contain either a format or a number";
                self.report.problem(&hits.at, text);
                return None;
            }
            (_, Some(_)) => {
                let text = "hits_addend must contain either a format or a number";
                self.report.problem(hits.at("format"), text);
                return None;
            }
            (format, None) => {
                if format.matches('%').count() != 2 {
                    let text = "hits_addend format must contain exactly one substitution";
                    self.report.problem(hits.at("format"), text);
                }
                HitsSource::Format(self.format(format, true, hits.at("format"))?)
            }
        };
        Some(Hits { source, gives_back: hits.flag("is_negative_hits") })
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
            "destination_cluster" => Action::DestinationCluster,
            "query_parameters" => Action::Query {
                name: text("query_parameter_name", ""),
                key: text("descriptor_key", ""),
                is_optional: inner.flag("skip_if_absent"),
            },
            "metadata" => {
                if inner.choice("source") != "DYNAMIC" {
                    let text = "only the dynamic metadata says what a request is called";
                    self.report.unsupported(inner.at("source"), text);
                }
                Action::Metadata {
                    from: metadata_key(inner.message("metadata_key")?),
                    key: text("descriptor_key", ""),
                    default: text("default_value", ""),
                    is_optional: inner.flag("skip_if_absent"),
                }
            }
            "remote_address_match" => {
                let addresses = inner.message("address_matcher")?;
                Action::RemoteMatch {
                    key: text("descriptor_key", "remote_address_match"),
                    value: self.format(
                        inner.text("descriptor_value"),
                        true,
                        inner.at("descriptor_value"),
                    )?,
                    default: text("default_value", ""),
                    ranges: self.prefixes(addresses, "ranges"),
                    inverted: addresses.flag("invert_match"),
                }
            }
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

fn limit_source(limit: &Message) -> Option<LimitSource> {
    let field = limit.oneof("override_specifier")?;
    let Value::Message(inner) = &field.value else { return None };
    Some(match field.descriptor.name() {
        "dynamic_metadata" => LimitSource::Metadata(metadata_key(inner.message("metadata_key")?)),
        _ => {
            let unit = match inner.get("unit").map(|unit| &unit.value) {
                Some(Value::Enum(unit)) => *unit,
                _ => 0,
            };
            let requests = inner.number32("requests_per_unit").unwrap_or(0);
            LimitSource::Fixed(LimitOverride { requests, unit })
        }
    })
}

fn metadata_key(key: &Message) -> MetadataKey {
    let path = key.messages("path").map(|segment| segment.text("key").into());
    MetadataKey { namespace: key.text("key").into(), path: path.collect() }
}

const ALL: Fraction = Fraction { numerator: 100, denominator: 100 };
const NOT_THERE: &str = "a request cannot be called by this";

pub(crate) const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.config.route.v3.RateLimit",
        honoured: &[
            "stage",
            "actions",
            "disable_key",
            "limit",
            "hits_addend",
            "x_ratelimit_option",
        ],
        harmless: &[],
        changes: &[("apply_on_stream_done", "tokens are taken when a request begins")],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.HitsAddend",
        honoured: &["number", "format", "is_negative_hits"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Override",
        honoured: &["dynamic_metadata", "rate_limit"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Override.DynamicMetadata",
        honoured: &["metadata_key"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Override.RateLimitOverride",
        honoured: &["requests_per_unit", "unit"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action",
        honoured: &[
            "source_cluster",
            "destination_cluster",
            "request_headers",
            "query_parameters",
            "remote_address",
            "generic_key",
            "header_value_match",
            "metadata",
            "masked_remote_address",
            "query_parameter_value_match",
            "remote_address_match",
        ],
        harmless: &[],
        changes: &[("dynamic_metadata", NOT_THERE), ("extension", NOT_THERE)],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.DestinationCluster",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.QueryParameters",
        honoured: &["query_parameter_name", "descriptor_key", "skip_if_absent"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.MetaData",
        honoured: &["descriptor_key", "metadata_key", "default_value", "source", "skip_if_absent"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.route.v3.RateLimit.Action.RemoteAddressMatch",
        honoured: &["descriptor_value", "descriptor_key", "default_value", "address_matcher"],
        harmless: &[],
        changes: &[],
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
