//! Runtime keys. Only static layers are there, so a key's value is known when the file is loaded and everything that
//! names a key is compiled with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use towpath_engine::snapshot::route::Fraction;

use super::Converter;
use crate::error::Rank;
use crate::message::{At, Message, Value, tree_to_json};
use crate::tree::{Node, Value as Tree};

/// The static layers, merged: later layers override.
#[derive(Clone, Debug, Default)]
pub struct Runtime {
    values: BTreeMap<String, Json>,
    asked: RefCell<BTreeSet<String>>,
}

impl Runtime {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.asked.borrow_mut().insert(key.to_owned());
        self.values.get(key)
    }

    /// Every key with its value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key that is a whole number.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Json::Number(number) => number.as_u64(),
            Json::String(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn float(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Json::Number(number) => number.as_f64(),
            Json::String(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl Converter<'_> {
    /// Reads `layered_runtime`.
    pub(super) fn read_runtime(&mut self, bootstrap: &Message) {
        let Some(runtime) = bootstrap.message("layered_runtime") else { return };
        let mut names = BTreeSet::new();
        let layers: Vec<_> = runtime.messages("layers").collect();
        for layer in layers {
            let name = layer.text("name");
            if !names.insert(name.to_owned()) {
                self.report.problem(layer.at("name"), format!("duplicate layer name: {name}"));
            }
            if let Some(field) = layer.get("static_layer")
                && let Value::Json(node) = &field.value
            {
                self.flatten("", node, &field.at);
            }
        }
    }

    /// Nested maps are keys with dots, unless they say a fraction.
    fn flatten(&mut self, prefix: &str, node: &Node, at: &At) {
        let Tree::Map(entries) = &node.value else { return };
        for (name, node) in entries {
            let key = if prefix.is_empty() {
                name.name.clone()
            } else {
                format!("{prefix}.{}", name.name)
            };
            let at = At { pos: name.pos, ..at.clone() };
            match &node.value {
                Tree::Map(_)
                    if node.get("numerator").is_none() && node.get("denominator").is_none() =>
                {
                    self.flatten(&key, node, &at);
                }
                Tree::List(_) | Tree::Null => {
                    self.report.problem(&at, format!("invalid runtime entry value for {key}"));
                }
                Tree::Map(_) | Tree::Bool(_) | Tree::Number(_) | Tree::String(_) => {
                    self.runtime.values.insert(key, tree_to_json(node));
                }
            }
        }
    }

    /// Reports keys that nothing read although Envoy would. Comes after all conversion.
    pub(super) fn check_runtime(&mut self, bootstrap: &Message) {
        let Some(layers) = bootstrap.get("layered_runtime") else { return };
        let asked = self.runtime.asked.borrow().clone();
        let unread: Vec<_> =
            self.runtime.values.keys().filter(|key| !asked.contains(*key)).cloned().collect();
        for key in unread {
            if HARMLESS.iter().any(|harmless| key.starts_with(harmless)) {
                self.report.finding(
                    &layers.at,
                    Rank::Harmless,
                    format!("runtime key `{key}` has no meaning here"),
                );
            } else if READ_BY_ENVOY.iter().any(|prefix| key.starts_with(prefix)) {
                self.report.unsupported(&layers.at, format!("runtime key `{key}` is not read"));
            } else {
                self.report.finding(
                    &layers.at,
                    Rank::Harmless,
                    format!("nothing reads runtime key `{key}`"),
                );
            }
        }
    }

    /// A `RuntimeFractionalPercent` with the key's value, if it has one.
    pub(super) fn runtime_fraction(&mut self, message: &Message) -> Option<Fraction> {
        let default = message.message("default_value").map(fraction);
        let key = message.text("runtime_key");
        self.fraction_of_key(key).or(default)
    }

    /// A fraction in the runtime: a percentage, or numerator and denominator.
    pub(super) fn fraction_of_key(&self, key: &str) -> Option<Fraction> {
        match self.runtime.get(key)? {
            Json::Number(number) => Some(Fraction {
                numerator: u32::try_from(number.as_u64()?.min(100)).ok()?,
                denominator: 100,
            }),
            Json::Object(object) => {
                let numerator = object.get("numerator").and_then(Json::as_u64).unwrap_or(0);
                let denominator =
                    object.get("denominator").and_then(Json::as_str).unwrap_or("HUNDRED");
                Some(Fraction {
                    numerator: u32::try_from(numerator).ok()?,
                    denominator: denominator_of(denominator),
                })
            }
            _ => None,
        }
    }

    /// A `RuntimeUInt32`.
    pub(super) fn runtime_number(&mut self, message: &Message) -> u32 {
        let key = message.text("runtime_key");
        let default = message.number32("default_value").unwrap_or(0);
        self.runtime.number(key).and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    }

    /// A `RuntimeDouble`.
    pub(super) fn runtime_float(&mut self, message: &Message) -> f64 {
        let key = message.text("runtime_key");
        self.runtime.float(key).unwrap_or_else(|| message.float("default_value").unwrap_or(0.0))
    }

    /// A `RuntimeFeatureFlag`.
    pub(super) fn runtime_flag(&mut self, message: &Message) -> bool {
        let key = message.text("runtime_key");
        match self.runtime.get(key) {
            Some(Json::Bool(flag)) => *flag,
            _ => message.flag("default_value"),
        }
    }
}

/// A `FractionalPercent`.
pub(super) fn fraction(message: &Message) -> Fraction {
    Fraction {
        numerator: message.number32("numerator").unwrap_or(0),
        denominator: denominator_of(&message.choice("denominator")),
    }
}

fn denominator_of(name: &str) -> u32 {
    match name {
        "TEN_THOUSAND" => 10_000,
        "MILLION" => 1_000_000,
        _ => 100,
    }
}

/// Keys that tune what is not here or what has no limit here, and limits of listeners that do not exist.
const HARMLESS: &[&str] = &[
    "envoy.resource_limits.listener.",
    "re2.max_program_size.",
    "envoy.deprecated_features",
    "envoy.features.",
    // What traces has read its own.
    "tracing.",
];

/// Beginnings of the keys that Envoy itself reads, beside those that a configuration names.
const READ_BY_ENVOY: &[&str] = &[
    "envoy.",
    "overload.",
    "upstream.",
    "circuit_breakers.",
    "health_check.",
    "outlier_detection.",
    "http.",
    "http_connection_manager.",
    "conn_pool_on_high_watermark",
    "redis.",
    "ssl.",
    "fault.",
    "ext_authz.",
    "ratelimit.",
];
