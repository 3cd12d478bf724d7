//! `/stats/prometheus`: families by kind and name, one `# TYPE` line each, Envoy's names and labels.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use super::registry::{Reading, merged};
use super::sorted::{Kind, Query, Shape, codes, number};
use super::text::CHUNK;
use super::{Scope, Stat, StatSet};

/// `/stats/prometheus` in chunks of about 16 KiB.
pub struct Prometheus {
    reading: Reading,
    query: Query,
    /// What is left of the plan; the current family is the first.
    families: std::vec::IntoIter<Family>,
    current: Option<Open>,
    /// The labels of each scope as they are written, empty until a family asks for them.
    labels: Vec<Box<str>>,
    limits: Limits,
}

/// The upper bounds of a histogram's buckets and how they are written. Most histograms have the same.
#[derive(Default)]
struct Limits {
    bounds: Vec<f64>,
    /// What follows the labels of a scope, up to the value. One more than there are bounds: for what is beyond all.
    texts: Vec<String>,
}

impl Limits {
    fn follow(&mut self, bounds: &[f64]) {
        if self.texts.is_empty() || self.bounds != bounds {
            self.bounds = bounds.to_vec();
            let last = std::iter::once("+Inf".to_owned());
            let bounds = bounds.iter().map(ToString::to_string).chain(last);
            self.texts = bounds.map(|bound| format!("le=\"{bound}\"}} ")).collect();
        }
    }

    fn all(&self) -> impl Iterator<Item = (Option<f64>, &str)> {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.texts.iter().map(String::as_str))
    }
}

/// A metric and where its samples are.
struct Family {
    kind: Kind,
    name: String,
    /// Scopes that stand together in a reading, and what they have of it.
    parts: Vec<(Range<usize>, Vec<Source>)>,
}

/// A statistic of a set that has samples in a family.
#[derive(Clone, Copy)]
enum Source {
    Plain(usize),
    /// A counter whose name has a label in it: the label and its value.
    Labelled(usize, &'static str, &'static str),
    /// Counts by status, summed by class.
    Classes(usize),
    /// Counts by status.
    Codes(usize),
    /// Counts by status, summed.
    Completed(usize),
}

struct Open {
    family: Family,
    part: usize,
    next_scope: usize,
    typed: bool,
}

impl Open {
    fn new(family: Family) -> Self {
        let next_scope = family.parts.first().map_or(0, |(scopes, _)| scopes.start);
        Self { family, part: 0, next_scope, typed: false }
    }

    /// Goes on to another scope; whether there is one.
    fn advance(&mut self) -> bool {
        self.next_scope += 1;
        if self.family.parts.get(self.part).is_some_and(|(all, _)| self.next_scope < all.end) {
            return true;
        }
        self.part += 1;
        let next = self.family.parts.get(self.part);
        self.next_scope = next.map_or(0, |(scopes, _)| scopes.start);
        next.is_some()
    }
}

impl Prometheus {
    pub(super) fn new(reading: Reading, query: Query) -> Self {
        let families = plan(&reading, &query).into_iter();
        let labels = vec![Box::default(); reading.scopes.len()];
        Self { reading, query, families, current: None, labels, limits: Limits::default() }
    }

    /// Writes the samples of one scope.
    fn scope(&mut self, open: &mut Open, out: &mut String) {
        let (scope, sets) = &self.reading.scopes[open.next_scope];
        let labels = &mut self.labels[open.next_scope];
        if labels.is_empty() {
            *labels = labels_of(&self.reading, scope).into();
        }
        let before = out.len();
        if !open.typed {
            let kind = match open.family.kind {
                Kind::Counters => "counter",
                Kind::Gauges | Kind::TextReadouts => "gauge",
                Kind::Histograms if self.query.shape == Shape::Summary => "summary",
                Kind::Histograms => "histogram",
            };
            let _ = writeln!(out, "# TYPE {} {kind}", open.family.name);
        }
        let typed = out.len();
        let mut writer = Writer {
            reading: &self.reading,
            query: &self.query,
            name: &open.family.name,
            scope,
            sets,
            labels: &self.labels[open.next_scope],
            limits: &mut self.limits,
            out,
        };
        let sources = open.family.parts.get(open.part).map_or(&[][..], |(_, sources)| sources);
        for source in sources {
            writer.source(*source);
        }
        if out.len() > typed {
            open.typed = true;
        } else {
            out.truncate(before);
        }
    }
}

/// Writes what one scope has of one family.
struct Writer<'a> {
    reading: &'a Reading,
    query: &'a Query,
    name: &'a str,
    scope: &'a Scope,
    sets: &'a [Arc<dyn StatSet>],
    labels: &'a str,
    limits: &'a mut Limits,
    out: &'a mut String,
}

impl Writer<'_> {
    fn source(&mut self, source: Source) {
        match source {
            Source::Plain(index) => self.plain(index),
            Source::Labelled(index, label, text) => {
                let (_, used, value) = number(self.reading, self.scope, self.sets, index);
                if self.takes(index, "", used) {
                    self.labelled(label, text, value);
                }
            }
            Source::Classes(index) => {
                let mut classes = BTreeMap::<u16, u64>::new();
                for (code, count) in self.codes(index) {
                    *classes.entry(code / 100).or_default() += count;
                }
                for (class, count) in classes {
                    if self.takes(index, &format!("_{class}xx"), true) {
                        self.labelled("envoy_response_code_class", &class.to_string(), count);
                    }
                }
            }
            Source::Completed(index) => {
                let count: u64 = self.codes(index).values().sum();
                if count > 0 && self.takes(index, "_completed", true) {
                    self.sample(count);
                }
            }
            Source::Codes(index) => {
                for (code, count) in self.codes(index) {
                    if self.takes(index, &format!("_{code}"), true) {
                        self.labelled("envoy_response_code", &code.to_string(), count);
                    }
                }
            }
        }
    }

    fn codes(&self, index: usize) -> BTreeMap<u16, u64> {
        codes(self.reading, self.scope, self.sets, index)
    }

    fn plain(&mut self, index: usize) {
        // Looked at once: what says whether breakers are open is worked out each time.
        let is_tracked = match self.sets.first().map(|set| set.value(index)) {
            Some(Stat::Histogram(_)) => return self.histogram(index),
            Some(Stat::Tracked(_)) => true,
            Some(Stat::Counter(_) | Stat::Gauge(_) | Stat::Codes(_)) | None => false,
        };
        let (_, used, value) = number(self.reading, self.scope, self.sets, index);
        if (used || !is_tracked) && self.takes(index, "", used) {
            self.sample(value);
        }
    }

    fn histogram(&mut self, index: usize) {
        let bins = merged(self.sets, index);
        if !self.takes(index, "", bins.count() > 0) {
            return;
        }
        let comma = if self.labels.is_empty() { "" } else { "," };
        let (name, labels) = (self.name, self.labels);
        let told = match self.query.shape {
            Shape::Cumulative => {
                let full = || self.scope.full(name_of(self.sets, index));
                self.limits.follow(self.reading.rules.buckets_of(full));
                for (limit, text) in self.limits.all() {
                    let count = limit.map_or_else(|| bins.count(), |limit| bins.up_to(limit));
                    for part in [name, "_bucket{", labels, comma, text] {
                        self.out.push_str(part);
                    }
                    push_value(self.out, count);
                }
                bins
            }
            Shape::Summary => {
                let flushed = self.reading.flushed.get(&(self.scope.clone(), index));
                let interval = flushed.map(|flushed| flushed.interval.clone()).unwrap_or_default();
                for share in QUANTILES {
                    let value = interval
                        .quantile(share)
                        .map_or_else(|| "nan".to_owned(), |value| value.to_string());
                    let _ =
                        writeln!(self.out, "{name}{{{labels}{comma}quantile=\"{share}\"}} {value}");
                }
                interval
            }
        };
        let _ = writeln!(self.out, "{name}_sum{{{labels}}} {}", told.sum());
        let _ = writeln!(self.out, "{name}_count{{{labels}}} {}", told.count());
    }

    fn sample(&mut self, value: u64) {
        for part in [self.name, "{", self.labels, "} "] {
            self.out.push_str(part);
        }
        push_value(self.out, value);
    }

    /// A sample with a label before those of its scope.
    fn labelled(&mut self, label: &str, text: &str, value: u64) {
        let comma = if self.labels.is_empty() { "" } else { "," };
        for part in [self.name, "{", label, "=\"", text, "\"", comma, self.labels, "} "] {
            self.out.push_str(part);
        }
        push_value(self.out, value);
    }

    /// Whether a statistic is wanted; `suffix` completes the name of one that stands for many.
    fn takes(&self, index: usize, suffix: &str, used: bool) -> bool {
        let keep = &self.reading.rules.keep;
        if self.query.filter.is_none() && keep.is_all() {
            return used || !self.query.used_only;
        }
        let name = self.scope.full(name_of(self.sets, index)) + suffix;
        keep.keeps(&name) && self.query.takes(&name, used)
    }
}

impl Iterator for Prometheus {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        // The last scope of a chunk goes beyond it.
        let mut chunk = String::with_capacity(CHUNK + CHUNK / 4);
        while chunk.len() < CHUNK {
            let Some(mut open) =
                self.current.take().or_else(|| self.families.next().map(Open::new))
            else {
                break;
            };
            self.scope(&mut open, &mut chunk);
            if open.advance() {
                self.current = Some(open);
            }
        }
        (!chunk.is_empty()).then_some(chunk)
    }
}

fn name_of(sets: &[Arc<dyn StatSet>], index: usize) -> &'static str {
    sets.first().map_or("", |set| set.names()[index])
}

/// All families, in order. Their number depends on the kinds of scopes, not on how many scopes there are.
fn plan(reading: &Reading, query: &Query) -> Vec<Family> {
    let mut families = BTreeMap::<(u8, String), Family>::new();
    let mut start = 0;
    while let Some((scope, sets)) = reading.scopes.get(start) {
        let names = sets.first().map_or(&[][..], |set| set.names());
        let kind = (std::mem::discriminant(scope), scope.family());
        let rest = reading.scopes[start..].iter();
        // Two sets may be of one kind of scope: the admin endpoint's has fewer names than a connection manager's.
        let is_alike = |scope: &Scope, sets: &[Arc<dyn StatSet>]| {
            (std::mem::discriminant(scope), scope.family()) == kind
                && sets.first().is_some_and(|set| std::ptr::eq(set.names(), names))
        };
        let end = start + rest.take_while(|(scope, sets)| is_alike(scope, sets)).count();
        for (index, name) in names.iter().enumerate() {
            let Some(first) = sets.first() else { continue };
            for (kind, suffix, source) in sources(first.value(index), name, index) {
                if query.wants(kind) {
                    let name = metric(&scope.metric(&suffix));
                    let family = families
                        .entry((kind as u8, name.clone()))
                        .or_insert_with(|| Family { kind, name, parts: Vec::new() });
                    match family.parts.last_mut() {
                        Some((scopes, sources)) if *scopes == (start..end) => sources.push(source),
                        _ => family.parts.push((start..end, vec![source])),
                    }
                }
            }
        }
        start = end;
    }
    families.into_values().collect()
}

/// Which families a statistic is in.
fn sources(stat: Stat<'_>, name: &'static str, index: usize) -> Vec<(Kind, String, Source)> {
    match stat {
        Stat::Counter(_) => match label_in(name) {
            Some((family, label, text)) => {
                vec![(Kind::Counters, family, Source::Labelled(index, label, text))]
            }
            None => vec![(Kind::Counters, name.to_owned(), Source::Plain(index))],
        },
        Stat::Gauge(_) | Stat::Tracked(_) => {
            vec![(Kind::Gauges, name.to_owned(), Source::Plain(index))]
        }
        Stat::Histogram(_) => vec![(Kind::Histograms, name.to_owned(), Source::Plain(index))],
        Stat::Codes(_) => vec![
            (Kind::Counters, name.to_owned(), Source::Codes(index)),
            (Kind::Counters, format!("{name}_completed"), Source::Completed(index)),
            (Kind::Counters, format!("{name}_xx"), Source::Classes(index)),
        ],
    }
}

/// The family, the label and its value of a name that has one in it (Envoy `well_known_names.cc`): the class of
/// requests' statuses, and what a handshake agreed on. `consecutive_5xx` is a name.
pub(super) fn label_in(name: &'static str) -> Option<(String, &'static str, &'static str)> {
    if let Some((stem, class)) = name.strip_suffix("xx").and_then(|name| name.rsplit_once('_'))
        && stem.ends_with("_rq")
    {
        return Some((format!("{stem}_xx"), "envoy_response_code_class", class));
    }
    let (family, value) = name.split_once('.')?;
    let label = match family {
        "ciphers" => "cipher_suite",
        "curves" => "envoy_ssl_curve",
        "versions" => "envoy_ssl_version",
        _ => return None,
    };
    Some((family.to_owned(), label, value))
}

/// A name with only what a metric's name may have.
fn metric(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn labels_of(reading: &Reading, scope: &Scope) -> String {
    let own = scope.labels();
    let own = own.iter().map(|(name, value)| (*name, value.as_str()));
    let fixed = reading.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let labels = fixed.chain(own).map(|(name, value)| {
        let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        format!("{}=\"{value}\"", metric(name))
    });
    labels.collect::<Vec<_>>().join(",")
}

/// A value and the end of its line. Most are 0.
fn push_value(out: &mut String, value: u64) {
    if value < 10 {
        out.push(char::from(b'0' + value as u8));
        out.push('\n');
    } else {
        let _ = writeln!(out, "{value}");
    }
}

/// The quantiles of a summary.
pub(super) const QUANTILES: [f64; 10] = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0];

/// Envoy's default buckets.
pub(super) const BUCKETS: [f64; 19] = [
    0.5,
    1.0,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1000.0,
    2500.0,
    5000.0,
    10_000.0,
    30_000.0,
    60_000.0,
    300_000.0,
    600_000.0,
    1_800_000.0,
    3_600_000.0,
];
