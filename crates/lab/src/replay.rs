//! The public performance reports, run again.
//!
//! Each recipe keeps the original's topology and question, adds what a reader of today misses (cost per
//! request, intervals, the losing cases), and puts the published figure beside ours where there is one.
//! Subjects take turns within each round, in an order drawn anew, as fresh processes.

pub mod atrace;
mod mars;
mod mobile;
mod mosn;
mod okhttp;
mod page;
pub mod peers;
mod sidecar;
mod verdict;

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use peers::Peers;

use crate::about::Made;
use crate::histogram::Nanoseconds;
use crate::load::Outcome;
use crate::random::Random;
use crate::stats::{bootstrap, median};

/// Which report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Envoy Mobile's analysis of CPU and battery.
    EnvoyMobile,
    /// Mars STN's benchmark on bad networks.
    Mars,
    /// A study of Istio's sidecar.
    Sidecar,
    /// SOFAMosn's forwarding performance.
    Mosn,
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shorter runs and fewer of them.
    pub is_quick: bool,
    /// Makes the order of subjects and the losses repeatable.
    pub seed: u64,
    /// Where the programs are.
    pub peers: Peers,
    /// Of Mars's tables only these, by number; all of them if empty.
    pub tables: Vec<u32>,
}

/// What came of it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Replay {
    /// One figure each.
    pub rows: Vec<Row>,
    /// What a reader must know: who was missing, what differs from the original.
    pub notes: Vec<String>,
    /// By what, when and where, of figures that were read from a file.
    #[serde(flatten)]
    pub made: Option<Made>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which table of the report.
    pub table: String,
    /// Which case of it.
    pub case: String,
    /// Whose figure.
    pub who: String,
    /// What it says.
    pub metric: String,
    /// The median over rounds.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Lower end of the 95 % interval, when there were rounds enough.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The original's figure: its subject's for Towpath, its control's for the same control.
    pub published: Option<f64>,
    /// Whose figure the original's is, as its report has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_of: Option<String>,
}

/// Values of all rounds, in the order in which rows are to appear.
#[derive(Default)]
struct Samples {
    order: Vec<Key>,
    values: BTreeMap<Key, Vec<f64>>,
    published: BTreeMap<Key, f64>,
    /// Who stands in whose place: a subject of ours, and the original's.
    originals: &'static [(&'static str, &'static str)],
    seed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    table: String,
    case: String,
    who: String,
    metric: &'static str,
    unit: &'static str,
}

/// Runs a recipe; `progress` is told what is being done.
pub fn run(
    recipe: Recipe,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> io::Result<Replay> {
    match recipe {
        Recipe::Sidecar => sidecar::run(options, progress),
        Recipe::Mosn => mosn::run(options, progress),
        Recipe::EnvoyMobile => mobile::run(options, progress),
        Recipe::Mars => mars::run(options, progress),
    }
}

impl Recipe {
    /// Every recipe.
    pub const ALL: [Self; 4] = [Self::Sidecar, Self::Mosn, Self::EnvoyMobile, Self::Mars];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::EnvoyMobile => "envoy-mobile",
            Self::Mars => "mars",
            Self::Sidecar => "sidecar",
            Self::Mosn => "mosn",
        }
    }
}

impl Replay {
    /// The figures with schema 1.
    pub fn to_json(&self) -> Value {
        json!({ "schema": 1, "rows": self.rows, "notes": self.notes })
    }

    /// Adds another recipe's figures.
    pub fn append(&mut self, mut other: Self) {
        self.rows.append(&mut other.rows);
        self.notes.append(&mut other.notes);
    }

    /// What a hurried reader takes home.
    pub fn verdict(&self) -> String {
        verdict::verdict(&self.rows)
    }
}

impl Samples {
    fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    fn add(
        &mut self,
        table: &str,
        case: &str,
        who: &str,
        metric: &'static str,
        unit: &'static str,
        value: f64,
    ) {
        if !value.is_finite() {
            return;
        }
        let key = Key {
            table: table.to_owned(),
            case: case.to_owned(),
            who: who.to_owned(),
            metric,
            unit,
        };
        if !self.values.contains_key(&key) {
            self.order.push(key.clone());
        }
        self.values.entry(key).or_default().push(value);
    }

    fn publish(
        &mut self,
        table: &str,
        case: &str,
        who: &str,
        metric: &'static str,
        unit: &'static str,
        value: f64,
    ) {
        let key = Key {
            table: table.to_owned(),
            case: case.to_owned(),
            who: who.to_owned(),
            metric,
            unit,
        };
        self.published.insert(key, value);
    }

    /// Whose published figure stands beside one of ours.
    fn original(&self, key: &Key) -> Option<&'static str> {
        self.published.get(key)?;
        self.originals.iter().find(|(who, _)| *who == key.who).map(|(_, original)| *original)
    }

    /// All values of one figure.
    fn of(&self, table: &str, case: &str, who: &str, metric: &str) -> &[f64] {
        let is_it = |key: &&Key| {
            key.table == table && key.case == case && key.who == who && key.metric == metric
        };
        self.order
            .iter()
            .find(is_it)
            .and_then(|key| self.values.get(key))
            .map_or(&[], Vec::as_slice)
    }

    /// Who has figures in a case.
    fn subjects(&self, table: &str, case: &str) -> Vec<String> {
        let keys = self.order.iter().filter(|key| key.table == table && key.case == case);
        let mut subjects: Vec<String> = keys.map(|key| key.who.clone()).collect();
        subjects.sort();
        subjects.dedup();
        subjects
    }

    /// All values of one figure, which is forgotten.
    fn take(&mut self, table: &str, case: &str, who: &str, metric: &str) -> Vec<f64> {
        let is_it = |key: &Key| {
            key.table == table && key.case == case && key.who == who && key.metric == metric
        };
        let Some(place) = self.order.iter().position(is_it) else { return Vec::new() };
        self.values.remove(&self.order.remove(place)).unwrap_or_default()
    }

    /// Cases in the order they came up, subjects within them in one order everywhere.
    fn into_rows(mut self) -> Vec<Row> {
        let place = |all: &[Key], is_it: &dyn Fn(&Key) -> bool| all.iter().position(is_it);
        let order = self.order.clone();
        self.order.sort_by_cached_key(|key| {
            let table = place(&order, &|other| other.table == key.table);
            let case = place(&order, &|other| other.table == key.table && other.case == key.case);
            let who = SUBJECTS.iter().position(|who| *who == key.who).unwrap_or(SUBJECTS.len());
            (table, case, who, key.who.clone(), place(&order, &|other| other == key))
        });
        let keys = std::mem::take(&mut self.order);
        let row = |key: Key| {
            let values = self.values.get(&key).map_or(&[][..], Vec::as_slice);
            let interval = (values.len() >= 3).then(|| bootstrap(values, median, self.seed));
            Row {
                value: median(values),
                low: interval.map(|it| it.low),
                high: interval.map(|it| it.high),
                published: self.published.get(&key).copied(),
                published_of: self.original(&key).map(str::to_owned),
                table: key.table,
                case: key.case,
                who: key.who,
                metric: key.metric.to_owned(),
                unit: key.unit.to_owned(),
            }
        };
        keys.into_iter().map(row).collect()
    }
}

/// The order in which subjects are listed; others follow by name.
const SUBJECTS: [&str; 8] =
    ["none", "direct", "towpath", "envoy", "nginx", "haproxy", "curl", "okhttp"];

/// A percentile in milliseconds; of no answers there is none.
fn percentile_ms(latency: &Nanoseconds, share: f64) -> f64 {
    if latency.count() == 0 { f64::NAN } else { latency.quantile(share) as f64 / 1e6 }
}

/// Says who gave no answer in a run, and so has neither latencies nor a cost of one.
fn name_the_silent(notes: &mut Vec<String>, what: &str, outcome: &Outcome) {
    let note = format!("{what} gave no answer within {} s.", outcome.duration.as_secs_f64());
    if outcome.answered == 0 && !notes.contains(&note) {
        notes.push(note);
    }
}

/// Shuffles subjects anew for each round, so that none always runs after the same other.
fn shuffle<T>(subjects: &mut [T], random: &mut Random) {
    for at in (1..subjects.len()).rev() {
        subjects.swap(at, random.below(at + 1));
    }
}
