//! What the configuration says about statistics (Envoy `StatsConfig`), applied when they are read: a worker counts
//! as ever.

use super::prometheus::BUCKETS;
use crate::matcher::StringMatcher;

/// Which statistics are there, and the buckets of histograms.
#[derive(Debug, Default)]
pub struct Rules {
    /// `stats_matcher`.
    pub keep: Keep,
    /// `histogram_bucket_settings`: the first that matches a name gives its upper bounds, in ascending order.
    pub buckets: Vec<(StringMatcher, Vec<f64>)>,
}

/// Envoy `config.metrics.v3.StatsMatcher`: patterns are for whole names, as `/stats` lists them.
#[derive(Debug, Default)]
pub enum Keep {
    /// All statistics are kept.
    #[default]
    All,
    /// `reject_all`.
    None,
    /// `inclusion_list`.
    Only(Vec<StringMatcher>),
    /// `exclusion_list`.
    Except(Vec<StringMatcher>),
}

impl Keep {
    /// Whether nothing is left out, so that names need not be looked at.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether the statistic with this name is there.
    #[must_use]
    pub fn keeps(&self, name: &str) -> bool {
        let has = |patterns: &[StringMatcher]| {
            patterns.iter().any(|pattern| pattern.matches(name.as_bytes()))
        };
        match self {
            Self::All => true,
            Self::None => false,
            Self::Only(patterns) => has(patterns),
            Self::Except(patterns) => !has(patterns),
        }
    }
}

impl Rules {
    /// The upper bounds of a histogram's buckets.
    pub(super) fn buckets_of(&self, name: impl FnOnce() -> String) -> &[f64] {
        if self.buckets.is_empty() {
            return &BUCKETS;
        }
        let name = name();
        let own = self.buckets.iter().find(|(matcher, _)| matcher.matches(name.as_bytes()));
        own.map_or(&BUCKETS, |(_, buckets)| buckets)
    }
}
