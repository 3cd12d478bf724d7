//! What a filter calls the statistics that it keeps.

use std::sync::Arc;

/// What a filter's statistics are called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilterNames {
    pub(super) family: &'static str,
    pub(super) prefix: Arc<str>,
    pub(super) labels: Vec<(&'static str, Arc<str>)>,
}

impl FilterNames {
    /// Those behind this dotted prefix. What their metrics' names begin with, after `envoy_`, is the family.
    #[must_use]
    pub fn new(family: &'static str, prefix: impl Into<Arc<str>>) -> Self {
        Self { family, prefix: prefix.into(), labels: Vec::new() }
    }

    /// The same with one more part of the prefix and a label that says it; an empty one is none.
    #[must_use]
    pub fn part(mut self, label: &'static str, part: &Arc<str>) -> Self {
        if part.is_empty() {
            return self;
        }
        self.prefix = format!("{}.{part}", self.prefix).into();
        self.label(label, part)
    }

    /// The same with a label in Prometheus' format, which Envoy has in the order of their names.
    #[must_use]
    pub fn label(mut self, name: &'static str, value: &Arc<str>) -> Self {
        self.labels.push((name, Arc::clone(value)));
        self.labels.sort_by_key(|(name, _)| *name);
        self
    }
}
