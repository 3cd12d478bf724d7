//! Istio's standard metrics: each a family of its own, and one set for each combination of labels.

use std::sync::Arc;

use super::{Counter, Gauge, Histogram, Stat, StatSet};

/// Names and values, in the order in which they are told.
pub type Labels = Arc<[(&'static str, Arc<str>)]>;

/// A set of one statistic, whose name is its scope's.
macro_rules! alone {
    ($(#[$about:meta])* $name:ident, $kind:ident) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $name(pub $kind);

        impl StatSet for $name {
            fn names(&self) -> &'static [&'static str] {
                &[""]
            }

            fn value(&self, _: usize) -> Stat<'_> {
                Stat::$kind(&self.0)
            }
        }
    };
}

alone! {
    /// One counter of Istio's.
    IstioCounter, Counter
}
alone! {
    /// One gauge.
    IstioGauge, Gauge
}
alone! {
    /// One distribution.
    IstioHistogram, Histogram
}
