//! Subsets of a cluster's hosts, in both their forms, and which of them routes ask for.

use std::collections::BTreeSet;
use std::sync::Arc;

use towpath_engine::snapshot::subset::{
    Criteria, Fallback, NAMESPACE, Selector, SelectorFallback, Subsets,
};

use super::Converter;
use super::metadata::{namespace, structure};
use crate::message::{Message, Value};

impl Converter<'_> {
    /// What a cluster's `lb_subset_config` says; nothing where it has no selector.
    pub(super) fn lb_subsets(&mut self, cluster: &Message) -> Option<Subsets> {
        let config = cluster.message("lb_subset_config")?;
        let common = cluster.message("common_lb_config");
        let weighs = common.is_some_and(|common| common.has("locality_weighted_lb_config"));
        if config.flag("locality_weight_aware") && !weighs {
            self.report.problem(
                config.at("locality_weight_aware"),
                "needs `common_lb_config.locality_weighted_lb_config`",
            );
        }
        let subsets = self.subsets(config);
        config.messages("subset_selectors").next().and(Some(subsets))
    }

    /// What the cluster's field or the policy's message says.
    pub(super) fn subsets(&mut self, config: &Message) -> Subsets {
        let selectors = config.messages("subset_selectors");
        let selectors = selectors.filter_map(|selector| self.selector(selector)).collect();
        Subsets {
            selectors,
            fallback: fallback(config).unwrap_or_default(),
            default_subset: structure(config, "default_subset"),
            weighs_localities: config.flag("locality_weight_aware"),
            scales_weights: config.flag("scale_locality_weight"),
            panics_to_any: config.flag("panic_mode_any"),
            lists_are_any: config.flag("list_as_any"),
            tries_fallbacks: config.choice("metadata_fallback_policy") == "FALLBACK_LIST",
            allows_more_keys: false,
        }
    }

    /// A selector; nothing where it has no key, as it selects nothing then.
    fn selector(&mut self, selector: &Message) -> Option<Selector> {
        let keys = texts(selector, "keys");
        let fewer = texts(selector, "fallback_keys_subset");
        let at = selector.at("fallback_keys_subset");
        if keys.is_empty() {
            return None;
        }
        let fallback = match selector.choice("fallback_policy").as_str() {
            "KEYS_SUBSET" => {
                if fewer.is_empty() {
                    self.report.problem(at, "fallback_keys_subset cannot be empty");
                } else if !fewer.is_subset(&keys) {
                    self.report.problem(at, "fallback_keys_subset must be a subset of the keys");
                } else if fewer.len() == keys.len() {
                    self.report.problem(at, "fallback_keys_subset cannot be equal to the keys");
                }
                Some(SelectorFallback::Keys(fewer))
            }
            _ => {
                if !fewer.is_empty() {
                    let text = "fallback_keys_subset can be set only for KEYS_SUBSET";
                    self.report.problem(at, text);
                }
                fallback(selector).map(SelectorFallback::To)
            }
        };
        Some(Selector { keys, is_single: selector.flag("single_host_per_subset"), fallback })
    }
}

/// What `metadata_match` of a route, of one of its clusters or of `tcp_proxy` asks for, on top of what is asked for
/// already.
pub(super) fn criteria(holder: &Message, below: Option<&Arc<Criteria>>) -> Option<Arc<Criteria>> {
    match namespace(holder, "metadata_match", NAMESPACE) {
        Some(wanted) => Some(Arc::new(Criteria::over(below, &wanted))),
        None => below.cloned(),
    }
}

/// `fallback_policy`; nothing where the cluster's is meant.
fn fallback(message: &Message) -> Option<Fallback> {
    match message.choice("fallback_policy").as_str() {
        "NO_FALLBACK" => Some(Fallback::None),
        "ANY_ENDPOINT" => Some(Fallback::Any),
        "DEFAULT_SUBSET" => Some(Fallback::Default),
        _ => None,
    }
}

fn texts(message: &Message, name: &str) -> BTreeSet<Box<str>> {
    let texts = message.items(name).iter().filter_map(|item| match &item.value {
        Value::String(text) => Some(text.as_str().into()),
        _ => None,
    });
    texts.collect()
}
