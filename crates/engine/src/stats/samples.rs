//! Statistics one by one, for what sends them away: what has changed since the last time, and how each is called.
//!
//! Arrives: a [`Reading`]. Leaves: a [`Sample`] of each statistic that was ever written.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::prometheus::label_in;
use super::registry::{Flushed, Reading};
use super::sorted::{Kind, codes, number};
use super::{Bins, Scope, Stat};

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// What counters stood at. A counter of a status is that of its code, of its class (1 to 9) or of all (0).
    told: HashMap<(Scope, usize, u16), u64>,
}

/// One statistic.
pub(super) struct Sample<'a> {
    pub(super) names: &'a Names<'a>,
    pub(super) value: Value<'a>,
}

/// What it says.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    /// How much it grew since the last time, and what it stands at.
    Counter { grown: u64, total: u64 },
    /// What it stands at.
    Gauge(u64),
    /// What came in the interval before the last [`flush`](super::Registry::flush), and all until then.
    Histogram { interval: &'a Bins, total: &'a Bins },
}

impl Samples {
    /// Shows all that was ever written.
    pub(super) fn walk(&mut self, reading: &Reading, visit: &mut impl FnMut(&Sample<'_>)) {
        let before = std::mem::take(&mut self.told);
        for (scope, sets) in reading.scopes.iter() {
            let Some(first) = sets.first() else { continue };
            let mut names = Names::new(reading, scope);
            let mut counted = |index, part, total: u64| {
                let key = (scope.clone(), index, part);
                // After `/reset_counters` one counts from zero again.
                let last = before.get(&key).copied().unwrap_or(0);
                self.told.insert(key, total);
                Value::Counter { grown: total.checked_sub(last).unwrap_or(total), total }
            };
            for (index, name) in first.names().iter().enumerate() {
                let mut tell = |suffix: &str, family: &str, label, value: Value<'_>| {
                    if names.set(name, suffix, family, label) {
                        visit(&Sample { names: &names, value });
                    }
                };
                match first.value(index) {
                    Stat::Codes(_) => {
                        let mut sums = [0u64; 10];
                        for (code, count) in codes(reading, scope, sets, index) {
                            let label = Some(("envoy_response_code", code.to_string()));
                            tell(&format!("_{code}"), name, label, counted(index, code, count));
                            sums[0] += count;
                            sums[usize::from(code / 100).min(9)] += count;
                        }
                        for (class, &count) in (0..).zip(&sums).filter(|(_, count)| **count > 0) {
                            let value = counted(index, class, count);
                            if class == 0 {
                                tell("_completed", &format!("{name}_completed"), None, value);
                            } else {
                                let label = Some(("envoy_response_code_class", class.to_string()));
                                let suffix = format!("_{class}xx");
                                tell(&suffix, &format!("{name}_xx"), label, value);
                            }
                        }
                    }
                    Stat::Histogram(_) => {
                        if let Some(Flushed { interval, total }) =
                            reading.flushed.get(&(scope.clone(), index))
                        {
                            tell("", name, None, Value::Histogram { interval, total });
                        }
                    }
                    Stat::Counter(_) | Stat::Gauge(_) | Stat::Tracked(_) => {
                        let (kind, used, value) = number(reading, scope, sets, index);
                        if !used {
                            continue;
                        }
                        if kind == Kind::Counters {
                            let (family, label) = match label_in(name) {
                                Some((family, label, text)) => {
                                    (family, Some((label, text.to_owned())))
                                }
                                None => ((*name).to_owned(), None),
                            };
                            tell("", &family, label, counted(index, 0, value));
                        } else {
                            tell("", name, None, Value::Gauge(value));
                        }
                    }
                }
            }
        }
    }
}

/// The names of one statistic: whole, and without what its labels say.
pub(super) struct Names<'a> {
    reading: &'a Reading,
    /// `cluster.app`
    prefix: String,
    /// `cluster`
    stem: String,
    /// The labels of its scope.
    scope: Vec<(String, String)>,
    pub(super) whole: String,
    pub(super) family: String,
    label: Option<(String, String)>,
}

impl<'a> Names<'a> {
    fn new(reading: &'a Reading, scope: &Scope) -> Self {
        let prefix = scope.to_string();
        let mut stem = prefix.clone();
        let own = scope.labels();
        for (name, value) in &own {
            if *name == "envoy_worker_id" {
                stem.truncate(stem.len().saturating_sub(1 + value.len()));
                continue;
            }
            // Whole parts of the name only: `.1` is none of `.127`.
            let parts = format!(".{stem}.");
            if let Some(at) = parts.find(&format!(".{value}.")) {
                let rest = format!("{}{}", &parts[..at], &parts[at + 1 + value.len()..]);
                stem = rest.trim_matches('.').to_owned();
            }
        }
        stem.push(if stem.ends_with(".worker") { '_' } else { '.' });
        let stem = scope.without_labels().unwrap_or(stem);
        let fixed = reading.labels.iter().map(|(name, value)| (name.clone(), value.clone()));
        let own = own.into_iter().map(|(name, value)| (dotted(name), value));
        Self {
            reading,
            prefix,
            stem,
            scope: fixed.chain(own).collect(),
            whole: String::new(),
            family: String::new(),
            label: None,
        }
    }

    /// Goes on to another statistic; false if the configuration leaves it out.
    fn set(
        &mut self,
        name: &str,
        suffix: &str,
        family: &str,
        label: Option<(&'static str, String)>,
    ) -> bool {
        self.whole.clear();
        let dot = if name.is_empty() { "" } else { "." };
        let _ = write!(self.whole, "{}{dot}{name}{suffix}", self.prefix);
        self.family.clear();
        let _ = write!(self.family, "{}{family}", self.stem);
        self.label = label.map(|(name, value)| (dotted(name), value));
        self.reading.rules.keep.keeps(&self.whole)
    }

    /// The upper bounds of its buckets, of a histogram.
    pub(super) fn buckets(&self) -> &'a [f64] {
        self.reading.rules.buckets_of(|| self.whole.clone())
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.label.iter().chain(&self.scope).map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A label as Envoy's tags are called, which Prometheus cannot have.
fn dotted(label: &str) -> String {
    match label.strip_prefix("envoy_") {
        Some(rest) => format!("envoy.{rest}"),
        None => label.to_owned(),
    }
}
