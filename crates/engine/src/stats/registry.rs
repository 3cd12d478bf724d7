//! All sets of all workers.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::sorted::{Query, Sorted, codes, number};
use super::{Bins, FilterNames, Json, Prometheus, Rules, Scope, Stat, StatSet, Text};

/// Every set of statistics in the process. Locks are taken when a set is made and when all are read, never
/// when a number changes.
#[derive(Debug, Default)]
pub struct Registry {
    state: Mutex<State>,
    labels: Arc<[(String, String)]>,
    rules: Arc<Rules>,
}

/// A worker, and a set that it writes.
type Owned = (u32, Weak<dyn StatSet>);

/// The sets of one scope, one for each worker.
pub(super) type Sets = Vec<Arc<dyn StatSet>>;

#[derive(Debug, Default)]
struct State {
    /// The worker that writes, and the set. It is dropped with its last owner.
    sets: BTreeMap<Scope, Vec<Owned>>,
    /// Sets that stay when no worker writes them any more.
    lasting: Vec<Arc<dyn StatSet>>,
    /// By scope and index: the totals at the last flush, and what came in the interval before it.
    flushed: BTreeMap<(Scope, usize), Flushed>,
    /// By scope and index: what counters stood at when they were reset.
    reset: Arc<Resets>,
}

/// What counters stood at when they were last reset. Only a counter's writer may write it, so its zero is
/// moved instead.
#[derive(Debug, Default)]
pub(super) struct Resets {
    numbers: BTreeMap<(Scope, usize), u64>,
    codes: BTreeMap<(Scope, usize), BTreeMap<u16, u64>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Flushed {
    pub(super) total: Bins,
    pub(super) interval: Bins,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty registry whose every metric has these labels too (Envoy's `--stats-tag`, tags with a fixed value), and
    /// that is read by these rules.
    #[must_use]
    pub fn configured(labels: impl IntoIterator<Item = (String, String)>, rules: Rules) -> Self {
        Self { labels: labels.into_iter().collect(), rules: Arc::new(rules), ..Self::default() }
    }

    /// The set that `worker` writes for `scope`: the one it has, or a new one. Only that worker's thread may
    /// write it. It is forgotten when the last `Arc` is dropped.
    #[must_use]
    pub fn set<S: StatSet + Default>(&self, worker: u32, scope: Scope) -> Arc<S> {
        if scope.is_hidden() {
            return Arc::default();
        }
        let mut state = self.lock();
        let sets = state.sets.entry(scope).or_default();
        sets.retain(|(_, set)| set.strong_count() > 0);
        for (owner, set) in sets.iter() {
            let Some(set) = set.upgrade().filter(|_| *owner == worker) else { continue };
            let set: Arc<dyn Any + Send + Sync> = set;
            if let Ok(set) = set.downcast() {
                return set;
            }
        }
        let set = Arc::new(S::default());
        let weak: Weak<dyn StatSet> = Arc::<S>::downgrade(&set);
        // Most scopes have one, and a vector that grows begins with room for four.
        sets.reserve_exact(1);
        sets.push((worker, weak));
        set
    }

    /// The same for what a filter has named.
    #[must_use]
    pub fn filter_set<S: StatSet + Default>(&self, worker: u32, names: FilterNames) -> Arc<S> {
        self.set(worker, Scope::Filter { names, of: TypeId::of::<S>() })
    }

    /// The sets that workers write for `scope`.
    #[must_use]
    pub fn all<S: StatSet>(&self, scope: &Scope) -> Vec<Arc<S>> {
        let state = self.lock();
        let sets = state.sets.get(scope).map_or(&[][..], Vec::as_slice);
        let known = sets.iter().filter_map(|(_, set)| {
            let set: Arc<dyn Any + Send + Sync> = set.upgrade()?;
            set.downcast().ok()
        });
        known.collect()
    }

    /// The same of a set that stays as long as the process, unless there are too many of them: for what peers name.
    #[must_use]
    pub fn lasting<S: StatSet + Default>(&self, worker: u32, scope: Scope) -> Option<Arc<S>> {
        let has_room = {
            let state = self.lock();
            let known = state.sets.get(&scope);
            let is_known = known.is_some_and(|sets| {
                sets.iter().any(|(owner, set)| *owner == worker && set.strong_count() > 0)
            });
            if is_known { None } else { Some(state.lasting.len() < MOST_LASTING) }
        };
        if has_room == Some(false) {
            return None;
        }
        let set = self.set(worker, scope);
        if has_room.is_some() {
            self.lock().lasting.push(Arc::<S>::clone(&set));
        }
        Some(set)
    }

    /// Ends an interval of the histograms. To be called every `stats_flush_interval`.
    pub fn flush(&self) {
        let reading = self.read();
        let mut flushed = BTreeMap::new();
        for (scope, sets) in reading.scopes.iter() {
            let Some(first) = sets.first() else { continue };
            for index in 0..first.names().len() {
                if let Stat::Histogram(_) = first.value(index) {
                    let total = merged(sets, index);
                    if total.count() > 0 {
                        flushed.insert((scope.clone(), index), total);
                    }
                }
            }
        }
        let mut state = self.lock();
        let before = std::mem::take(&mut state.flushed);
        let nothing = Flushed::default();
        for (key, total) in flushed {
            let interval = total.since(&before.get(&key).unwrap_or(&nothing).total);
            state.flushed.insert(key, Flushed { total, interval });
        }
    }

    /// Sets all counters to zero, as `/reset_counters` does. Gauges and histograms stay.
    pub fn reset_counters(&self) {
        let reading = Reading { reset: Arc::default(), ..self.read() };
        let mut reset = Resets::default();
        for (scope, sets) in reading.scopes.iter() {
            let Some(first) = sets.first() else { continue };
            for index in 0..first.names().len() {
                let key = (scope.clone(), index);
                match first.value(index) {
                    Stat::Counter(_) => {
                        let (_, _, number) = number(&reading, scope, sets, index);
                        if number > 0 {
                            reset.numbers.insert(key, number);
                        }
                    }
                    Stat::Codes(_) => {
                        let codes = codes(&reading, scope, sets, index);
                        if !codes.is_empty() {
                            reset.codes.insert(key, codes);
                        }
                    }
                    Stat::Gauge(_) | Stat::Tracked(_) | Stat::Histogram(_) => {}
                }
            }
        }
        self.lock().reset = Arc::new(reset);
    }

    /// Takes hold of every set, so that it can be read without the lock.
    #[must_use]
    pub fn read(&self) -> Reading {
        let mut state = self.lock();
        let mut scopes = Vec::with_capacity(state.sets.len());
        state.sets.retain(|scope, sets| {
            let live: Vec<_> = sets.iter().filter_map(|(_, set)| set.upgrade()).collect();
            let keep = !live.is_empty();
            if keep {
                scopes.push((scope.clone(), live));
            }
            keep
        });
        Reading {
            scopes: scopes.into(),
            flushed: Arc::new(state.flushed.clone()),
            reset: Arc::clone(&state.reset),
            labels: Arc::clone(&self.labels),
            rules: Arc::clone(&self.rules),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many sets stay.
const MOST_LASTING: usize = 100_000;

/// The histogram `index` of one scope, over all workers.
pub(super) fn merged(sets: &[Arc<dyn StatSet>], index: usize) -> Bins {
    let mut bins = Bins::default();
    for set in sets {
        if let Stat::Histogram(histogram) = set.value(index) {
            histogram.merge_into(&mut bins);
        }
    }
    bins
}

/// The sets as they were at one moment; their numbers go on changing.
#[derive(Clone, Debug)]
pub struct Reading {
    pub(super) scopes: Arc<[(Scope, Sets)]>,
    pub(super) flushed: Arc<BTreeMap<(Scope, usize), Flushed>>,
    reset: Arc<Resets>,
    pub(super) labels: Arc<[(String, String)]>,
    pub(super) rules: Arc<Rules>,
}

impl Reading {
    /// What a counter stood at when it was reset.
    pub(super) fn number_at_reset(&self, scope: &Scope, index: usize) -> u64 {
        if self.reset.numbers.is_empty() {
            return 0;
        }
        self.reset.numbers.get(&(scope.clone(), index)).copied().unwrap_or(0)
    }

    /// What the counts of statuses stood at when they were reset.
    pub(super) fn codes_at_reset(
        &self,
        scope: &Scope,
        index: usize,
    ) -> Option<&BTreeMap<u16, u64>> {
        if self.reset.codes.is_empty() {
            return None;
        }
        self.reset.codes.get(&(scope.clone(), index))
    }

    /// Streams `/stats`.
    #[must_use]
    pub fn text(&self, query: Query) -> Text {
        Text::new(Sorted::new(self.clone(), query))
    }

    /// Streams `/stats?format=json`.
    #[must_use]
    pub fn json(&self, query: Query) -> Json {
        Json::new(Sorted::new(self.clone(), query))
    }

    /// Streams `/stats/prometheus`.
    #[must_use]
    pub fn prometheus(&self, query: Query) -> Prometheus {
        Prometheus::new(self.clone(), query)
    }

    /// One number by its whole name, for tests and readiness: a counter or gauge.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let mut all = Sorted::new(self.clone(), Query::default());
        all.find_map(|line| match line.value {
            super::sorted::Merged::Number(number) if line.name == name => Some(number),
            super::sorted::Merged::Number(_) | super::sorted::Merged::Histogram { .. } => None,
        })
    }
}
