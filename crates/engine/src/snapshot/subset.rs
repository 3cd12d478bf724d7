//! Subsets of a cluster's hosts, by what is said of these in `metadata.filter_metadata["envoy.lb"]`. Envoy: "load
//! balancer subsets".

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::stream_info::{JsonStyle, Struct, Value};

/// Envoy `Cluster.LbSubsetConfig`, and `load_balancing_policies.subset.v3.Subset`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subsets {
    /// `subset_selectors`: which keys of hosts make subsets.
    pub selectors: Vec<Selector>,
    /// `fallback_policy`: which hosts take a request that asks for no subset that is there.
    pub fallback: Fallback,
    /// `default_subset`: what hosts must say that are in the default subset.
    pub default_subset: Struct,
    /// `locality_weight_aware`: localities have their weights within a subset, too.
    pub weighs_localities: bool,
    /// `scale_locality_weight`: these are scaled by which part of a locality's hosts is in it.
    pub scales_weights: bool,
    /// `panic_mode_any`: any host is taken where the fallback has none.
    pub panics_to_any: bool,
    /// `list_as_any`: a host that says a list is in the subsets of all its values.
    pub lists_are_any: bool,
    /// `metadata_fallback_policy: FALLBACK_LIST`: a request may say further wishes, in [`FALLBACK_LIST`].
    pub tries_fallbacks: bool,
    /// `allow_redundant_keys`: a request may ask by more keys than a selector has.
    pub allows_more_keys: bool,
}

/// Which hosts take a request without a subset. Envoy `LbSubsetFallbackPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// `NO_FALLBACK`: none.
    #[default]
    None,
    /// `ANY_ENDPOINT`.
    Any,
    /// `DEFAULT_SUBSET`.
    Default,
}

/// Envoy `LbSubsetSelector`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// `keys`: hosts that say the same under all of these are a subset. Never empty.
    pub keys: BTreeSet<Box<str>>,
    /// `single_host_per_subset`: only its first host is taken, whatever its health.
    pub is_single: bool,
    /// `fallback_policy`: where it differs from the cluster's, for requests that ask by just these keys.
    pub fallback: Option<SelectorFallback>,
}

/// Envoy `LbSubsetSelectorFallbackPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorFallback {
    /// `NO_FALLBACK`, `ANY_ENDPOINT` and `DEFAULT_SUBSET`.
    To(Fallback),
    /// `KEYS_SUBSET`: the request asks again by these keys alone, which are fewer.
    Keys(BTreeSet<Box<str>>),
}

/// A key, and its value as JSON.
pub type Label = (Box<str>, Box<str>);

/// What a request asks of its host: `metadata_match.filter_metadata["envoy.lb"]` of its route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Criteria {
    wanted: Struct,
    labels: Vec<Label>,
}

impl Criteria {
    /// What is asked for.
    #[must_use]
    pub fn new(wanted: Struct) -> Self {
        let labels = wanted.iter().map(|(key, value)| label(key, value)).collect();
        Self { wanted, labels }
    }

    /// With what comes on top: a key that is there has its new value.
    #[must_use]
    pub fn with(&self, more: &Struct) -> Self {
        let mut wanted = self.wanted.clone();
        wanted.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
        Self::new(wanted)
    }

    /// The same, where there may be nothing below.
    #[must_use]
    pub fn over(below: Option<&Arc<Self>>, more: &Struct) -> Self {
        below.map_or_else(|| Self::new(more.clone()), |below| below.with(more))
    }

    /// What it comes to, in the order of its keys.
    #[must_use]
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// What is tried in turn: each of its fallbacks on top of the rest, or the rest alone.
    pub(crate) fn tries(&self) -> Vec<Cow<'_, Self>> {
        let Some(listed) = self.wanted.get(FALLBACK_LIST) else {
            return vec![Cow::Borrowed(self)];
        };
        let mut rest = self.wanted.clone();
        rest.remove(FALLBACK_LIST);
        let rest = Self::new(rest);
        let listed = match listed {
            Value::List(listed) if !listed.is_empty() => listed,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::List(_)
            | Value::Struct(_) => return vec![Cow::Owned(rest)],
        };
        let on_top = |one: &Value| match one {
            Value::Struct(more) => Cow::Owned(rest.with(more)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::List(_) => {
                Cow::Owned(rest.clone())
            }
        };
        listed.iter().map(on_top).collect()
    }
}

/// A key with a value, to be compared.
pub(crate) fn label(key: &str, value: &Value) -> Label {
    let mut json = Vec::new();
    value.write_json(&mut json, JsonStyle::Plain);
    (key.into(), String::from_utf8_lossy(&json).into())
}

/// Under which namespace hosts and requests say what they are and want.
pub const NAMESPACE: &str = "envoy.lb";
/// Under which key a request's further wishes are.
pub const FALLBACK_LIST: &str = "fallback_list";

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value {
        Value::String(value.into())
    }

    fn fields(pairs: &[(&str, Value)]) -> Struct {
        pairs.iter().map(|(key, value)| ((*key).into(), value.clone())).collect()
    }

    #[test]
    fn values_of_other_kinds_are_others() {
        let all = [
            Value::Null,
            Value::Bool(true),
            Value::Number(1.0),
            text("1"),
            text("true"),
            text("null"),
            Value::List(vec![Value::Number(1.0)]),
            Value::Struct(fields(&[("a", text("1"))])),
        ];
        let labels: BTreeSet<Label> = all.iter().map(|value| label("k", value)).collect();
        assert_eq!(labels.len(), all.len(), "{labels:?}");
        assert_eq!(label("k", &Value::Number(1.0)), label("k", &Value::Number(1.0)));
    }

    #[test]
    fn what_comes_on_top_counts() {
        let route = Criteria::new(fields(&[("stage", text("prod")), ("version", text("1"))]));
        let merged = route.with(&fields(&[("version", text("2")), ("a", text("b"))]));
        let wanted = fields(&[("a", text("b")), ("stage", text("prod")), ("version", text("2"))]);
        assert_eq!(merged, Criteria::new(wanted));
        let keys: Vec<&str> = merged.labels().iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["a", "stage", "version"], "in order");
    }

    #[test]
    fn fallbacks_are_tried_in_turn() {
        let list = |items| fields(&[("v", text("1")), (FALLBACK_LIST, items)]);
        let one = |value: &str| Criteria::new(fields(&[("v", text(value))]));
        let tries = |wanted| {
            let criteria = Criteria::new(wanted);
            criteria.tries().into_iter().map(Cow::into_owned).collect::<Vec<_>>()
        };
        let both = Value::List(vec![
            Value::Struct(fields(&[("v", text("2"))])),
            text("not one"),
            Value::Struct(fields(&[("v", text("3"))])),
        ]);
        assert_eq!(tries(list(both)), [one("2"), one("1"), one("3")]);
        assert_eq!(tries(list(Value::List(Vec::new()))), [one("1")]);
        assert_eq!(tries(list(text("no list"))), [one("1")]);
        assert_eq!(tries(fields(&[("v", text("1"))])), [one("1")]);
    }
}
