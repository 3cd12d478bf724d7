//! What headers and cookies say becomes dynamic metadata.

use std::sync::Arc;

use towpath_engine::field::Field;
use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::header_to_metadata::{
    Becomes, Entry as Written, HeaderToMetadata, Rule, Rules, Source,
};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.http.header_to_metadata.v3.Config";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    convert: |converter, config| Some(Arc::new(converter.header_to_metadata(config))),
    by_route: Some((CONFIG, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    if !config.has("request_rules") && !config.has("response_rules") {
        let text = "needs `request_rules` or `response_rules` by route";
        converter.report.problem(&config.at, text);
        return None;
    }
    Some(Arc::new(converter.header_to_metadata(config)))
}

impl Converter<'_> {
    fn header_to_metadata(&mut self, config: &Message) -> HeaderToMetadata {
        let mut rules =
            |name| config.messages(name).filter_map(|rule| self.metadata_rule(rule)).collect();
        let prefix = config.text("stat_prefix");
        HeaderToMetadata(Arc::new(Rules {
            request: rules("request_rules"),
            response: rules("response_rules"),
            stat_prefix: (!prefix.is_empty()).then(|| Arc::from(prefix)),
        }))
    }

    fn metadata_rule(&mut self, rule: &Message) -> Option<Rule> {
        let source = self.metadata_source(rule)?;
        let (present, missing) =
            (rule.message("on_header_present"), rule.message("on_header_missing"));
        if present.is_none() && missing.is_none() {
            let text = "needs `on_header_present` or `on_header_missing`";
            self.report.problem(&rule.at, text);
        }
        if let Some(missing) = missing
            && missing.text("value").is_empty()
        {
            self.report.problem(&missing.at, "needs a `value`, as there is none in the request");
        }
        if let Some(present) = present
            && !present.text("value").is_empty()
            && present.has("regex_value_rewrite")
        {
            let text = "`value` and `regex_value_rewrite` cannot both be set";
            self.report.problem(&present.at, text);
        }
        let present = present.and_then(|entry| self.metadata_entry(entry));
        Some(Rule {
            source,
            present,
            missing: missing.and_then(|entry| self.metadata_entry(entry)),
        })
    }

    fn metadata_source(&mut self, rule: &Message) -> Option<Source> {
        let removes = rule.flag("remove");
        match (rule.text("header"), rule.text("cookie")) {
            ("", "") => self.report.problem(&rule.at, "needs a `header` or a `cookie`"),
            ("", _) if removes => {
                self.report.problem(rule.at("remove"), "a cookie cannot be removed");
            }
            ("", cookie) => return Some(Source::Cookie(cookie.as_bytes().into())),
            (header, "") => match Field::parse(header) {
                Some(field @ Field::Header(_)) => return Some(Source::Header { field, removes }),
                Some(field) if !removes => return Some(Source::Header { field, removes }),
                Some(_) => {
                    let text = format!("`{header}` cannot be removed");
                    self.report.unsupported(rule.at("remove"), text);
                }
                None => {
                    let text = format!("`{header}` is not a header name");
                    self.report.unsupported(rule.at("header"), text);
                }
            },
            _ => self.report.problem(&rule.at, "`header` and `cookie` cannot both be set"),
        }
        None
    }

    fn metadata_entry(&mut self, entry: &Message) -> Option<Written> {
        let kind = entry.choice("type");
        if kind == "PROTOBUF_VALUE" {
            let text = "encoded values are not read; there are STRING and NUMBER";
            self.report.unsupported(entry.at("type"), text);
        }
        let becomes = match (entry.text("value"), entry.message("regex_value_rewrite")) {
            ("", None) => Becomes::Itself,
            ("", Some(rewrite)) => {
                let (pattern, substitution) = self.rewrite(rewrite)?;
                Becomes::Rewritten(pattern, substitution.into())
            }
            (text, _) => Becomes::Text(text.as_bytes().into()),
        };
        let namespace = match entry.text("metadata_namespace") {
            "" => "envoy.filters.http.header_to_metadata",
            namespace => namespace,
        };
        Some(Written {
            namespace: namespace.into(),
            key: entry.text("key").into(),
            becomes,
            is_number: kind == "NUMBER",
            is_base64: entry.choice("encode") == "BASE64",
        })
    }
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: CONFIG,
        honoured: &["request_rules", "response_rules", "stat_prefix"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.header_to_metadata.v3.Config.Rule",
        honoured: &["header", "cookie", "on_header_present", "on_header_missing", "remove"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.header_to_metadata.v3.Config.KeyValuePair",
        honoured: &["metadata_namespace", "key", "value", "regex_value_rewrite", "type", "encode"],
        harmless: &[],
        changes: &[],
    },
];
