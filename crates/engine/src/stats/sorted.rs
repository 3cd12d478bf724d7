//! All statistics in the order in which Envoy lists them: counters and gauges by name, then histograms by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::registry::{Reading, merged};
use super::scope::joined;
use super::{Bins, Gauge, Scope, Stat, StatSet};
use crate::expression::Regex;

/// Which statistics are wanted. The default is all.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// `usedonly`: those that were ever written.
    pub used_only: bool,
    /// `filter`: those whose name has a match.
    pub filter: Option<Regex>,
    /// `invert_filter`: those whose name has none.
    pub invert: bool,
    /// `type`.
    pub kind: Option<Kind>,
    /// `histogram_buckets`, for Prometheus.
    pub shape: Shape,
}

/// How Prometheus is told of histograms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// `cumulative`: counts of all values up to each bound.
    #[default]
    Cumulative,
    /// `summary`: quantiles of what came since the last flush.
    Summary,
}

/// A kind of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `type=Counters`.
    Counters,
    /// `type=Gauges`.
    Gauges,
    /// `type=Histograms`.
    Histograms,
    /// `type=TextReadouts`: there are none.
    TextReadouts,
}

impl Query {
    pub(super) fn wants(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
    }

    pub(super) fn takes(&self, name: &str, used: bool) -> bool {
        (used || !self.used_only)
            && self
                .filter
                .as_ref()
                .is_none_or(|regex| regex.is_match(name.as_bytes()) != self.invert)
    }
}

/// One statistic, merged over the workers.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) value: Merged,
}

pub(super) enum Merged {
    Number(u64),
    Histogram { total: Bins, interval: Bins },
}

/// The lines. One scope's names are in memory at a time (a few, where prefixes nest).
pub(super) struct Sorted {
    reading: Reading,
    query: Query,
    pending: BTreeMap<String, Vec<Pending>>,
    histograms: bool,
}

enum Pending {
    /// All names of the scope come at or after its prefix.
    Scope(usize),
    Value(Merged),
}

impl Sorted {
    pub(super) fn new(reading: Reading, query: Query) -> Self {
        let pending = begin(&reading);
        Self { reading, query, pending, histograms: false }
    }

    /// Opens a scope: its names take its place.
    fn open(&mut self, scope: usize) {
        let (scope, sets) = &self.reading.scopes[scope];
        let Some(first) = sets.first() else { return };
        let prefix = scope.to_string();
        for (index, name) in first.names().iter().enumerate() {
            let full = joined(&prefix, name);
            let (kind, used, number) = match (first.value(index), self.histograms) {
                (Stat::Histogram(_), true) => {
                    let total = merged(sets, index);
                    if self.query.wants(Kind::Histograms)
                        && self.reading.rules.keep.keeps(&full)
                        && self.query.takes(&full, total.count() > 0)
                    {
                        let flushed = self.reading.flushed.get(&(scope.clone(), index));
                        let interval = flushed.map(|f| f.interval.clone()).unwrap_or_default();
                        insert(&mut self.pending, full, Merged::Histogram { total, interval });
                    }
                    continue;
                }
                (Stat::Counter(_) | Stat::Gauge(_), false) => {
                    number(&self.reading, scope, sets, index)
                }
                (Stat::Tracked(_), false) => {
                    let tracked = number(&self.reading, scope, sets, index);
                    if !tracked.1 {
                        continue;
                    }
                    tracked
                }
                (Stat::Codes(_), false) if self.query.wants(Kind::Counters) => {
                    for (suffix, count) in code_lines(&self.reading, scope, sets, index) {
                        let full = format!("{full}_{suffix}");
                        if self.reading.rules.keep.keeps(&full) && self.query.takes(&full, true) {
                            insert(&mut self.pending, full, Merged::Number(count));
                        }
                    }
                    continue;
                }
                _ => continue,
            };
            if self.query.wants(kind)
                && self.reading.rules.keep.keeps(&full)
                && self.query.takes(&full, used)
            {
                insert(&mut self.pending, full, Merged::Number(number));
            }
        }
    }
}

impl Iterator for Sorted {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            let Some(mut entry) = self.pending.first_entry() else {
                if self.histograms {
                    return None;
                }
                self.histograms = true;
                self.pending = begin(&self.reading);
                continue;
            };
            match entry.get_mut().pop() {
                Some(Pending::Value(value)) => {
                    return Some(Line { name: entry.key().clone(), value });
                }
                Some(Pending::Scope(scope)) => self.open(scope),
                None => {
                    entry.remove();
                }
            }
        }
    }
}

fn begin(reading: &Reading) -> BTreeMap<String, Vec<Pending>> {
    let mut pending = BTreeMap::<_, Vec<_>>::new();
    for (index, (scope, _)) in reading.scopes.iter().enumerate() {
        pending.entry(scope.to_string()).or_default().push(Pending::Scope(index));
    }
    pending
}

fn insert(pending: &mut BTreeMap<String, Vec<Pending>>, name: String, value: Merged) {
    pending.entry(name).or_default().push(Pending::Value(value));
}

/// A counter or gauge over all workers: its kind, whether it was written, and the sum.
pub(super) fn number(
    reading: &Reading,
    scope: &Scope,
    sets: &[Arc<dyn StatSet>],
    index: usize,
) -> (Kind, bool, u64) {
    let mut all = (Kind::Counters, false, 0u64);
    for set in sets {
        let mut add = |gauge: &Gauge| {
            all.0 = Kind::Gauges;
            all.2 = all.2.wrapping_add(gauge.value());
            all.1 |= gauge.is_used();
        };
        match set.value(index) {
            Stat::Gauge(gauge) => add(gauge),
            Stat::Tracked(gauge) => add(gauge),
            Stat::Counter(counter) => {
                all.2 = all.2.wrapping_add(counter.value());
                all.1 |= counter.value() > 0;
            }
            Stat::Histogram(_) | Stat::Codes(_) => {}
        }
    }
    if all.0 == Kind::Counters {
        all.2 = all.2.saturating_sub(reading.number_at_reset(scope, index));
    }
    all
}

/// Counts by status over all workers.
pub(super) fn codes(
    reading: &Reading,
    scope: &Scope,
    sets: &[Arc<dyn StatSet>],
    index: usize,
) -> BTreeMap<u16, u64> {
    let mut all = BTreeMap::<u16, u64>::new();
    for set in sets {
        if let Stat::Codes(codes) = set.value(index) {
            for (code, count) in codes.iter() {
                *all.entry(code).or_default() += count;
            }
        }
    }
    for (code, before) in reading.codes_at_reset(scope, index).into_iter().flatten() {
        if let Some(count) = all.get_mut(code) {
            *count = count.saturating_sub(*before);
        }
    }
    all
}

/// `200`, `2xx` and `completed`, once there is one.
fn code_lines(
    reading: &Reading,
    scope: &Scope,
    sets: &[Arc<dyn StatSet>],
    index: usize,
) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for (code, count) in codes(reading, scope, sets, index) {
        *lines.entry("completed".to_owned()).or_default() += count;
        *lines.entry(format!("{}xx", code / 100)).or_default() += count;
        lines.insert(code.to_string(), count);
    }
    lines
}
