//! Rules that say who may connect.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::network_filter::rbac::NetworkRbac;

use super::{Known, Read};
use crate::convert::Converter;
use crate::message::{Message, Value};
use crate::support::Entry;

pub(in crate::convert) const CONFIG: &str = "envoy.extensions.filters.network.rbac.v3.RBAC";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    read: Read::Before(|converter, config, before| {
        for name in ["rules", "shadow_rules"] {
            if let Some(rules) = config.message(name) {
                converter.refuse_headers(rules);
            }
        }
        let (rules, shadow) = converter.rules_of(config);
        let prefix = config.text("stat_prefix");
        before.list.push(Arc::new(NetworkRbac {
            stat_prefix: Arc::from(prefix.strip_suffix('.').unwrap_or(prefix)),
            rules: rules?,
            shadow: shadow?,
            shadow_prefix: config.text("shadow_rules_stat_prefix").into(),
            is_continuous: config.choice("enforcement_type") == "CONTINUOUS",
            delay: config.duration("delay_deny").unwrap_or(Duration::ZERO),
        }));
        Some(())
    }),
    support: SUPPORT,
};

impl Converter<'_> {
    /// A connection has no headers: Envoy takes no rule that asks for one.
    fn refuse_headers(&mut self, message: &Message) {
        for field in &message.fields {
            let asks = matches!(message.descriptor.name(), "Permission" | "Principal");
            if asks && field.descriptor.name() == "header" {
                let text = "a header's rule is not supported by the RBAC network filter";
                self.report.problem(&field.at, text);
            }
            match &field.value {
                Value::Message(inner) => self.refuse_headers(inner),
                Value::List(items) => {
                    for item in items {
                        if let Value::Message(inner) = &item.value {
                            self.refuse_headers(inner);
                        }
                    }
                }
                Value::Map(entries) => {
                    for (_, item) in entries {
                        if let Value::Message(inner) = &item.value {
                            self.refuse_headers(inner);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

const SUPPORT: &[Entry] = &[Entry {
    message: CONFIG,
    honoured: &[
        "rules",
        "shadow_rules",
        "shadow_rules_stat_prefix",
        "stat_prefix",
        "enforcement_type",
        "delay_deny",
        "matcher",
        "shadow_matcher",
    ],
    harmless: &[],
    changes: &[],
}];
