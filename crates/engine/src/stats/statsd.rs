//! Statistics as lines for statsd, which are sent away once in an interval.
//!
//! Arrives: a [`Reading`]. Leaves: datagrams. Counters are told by how much they grew since the last time, gauges as
//! they stand, and of histograms what came in the interval before the last [`flush`](super::Registry::flush): a line
//! for each value that two digits tell apart, with `@` and the share that it stands for.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::prometheus::label_in;
use super::registry::Reading;
use super::sorted::{Kind, codes, number};
use super::{Scope, Stat};

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Envoy `StatsdSink`: names as `/stats` has them.
    Plain,
    /// `DogStatsdSink`: labels behind `|#`.
    Dog,
    /// `GraphiteStatsdSink`: labels behind the name.
    Graphite,
}

/// Who is told, and how.
#[derive(Clone, Debug)]
pub struct Sink {
    /// How lines look.
    pub dialect: Dialect,
    /// Before each name.
    pub prefix: String,
    /// Lines are put together up to so many bytes; 0 sends each on its own.
    pub datagram_bytes: usize,
}

/// What was told so far, and to whom all is told.
#[derive(Debug)]
pub struct Push {
    sinks: Vec<Sink>,
    /// What counters stood at. A counter of a status is that of its code, of its class (1 to 9) or of all (0).
    told: HashMap<(Scope, usize, u16), u64>,
}

impl Push {
    /// Nothing was told yet.
    #[must_use]
    pub fn new(sinks: Vec<Sink>) -> Self {
        Self { sinks, told: HashMap::new() }
    }

    /// Makes the datagrams of all that was ever written, with the number of the sink that each is for.
    pub fn flush(&mut self, reading: &Reading, mut send: impl FnMut(usize, &[u8])) {
        let before = std::mem::take(&mut self.told);
        let mut datagrams: Vec<Datagram<'_>> =
            self.sinks.iter().enumerate().map(|(to, sink)| Datagram::new(to, sink)).collect();
        for (scope, sets) in reading.scopes.iter() {
            let Some(first) = sets.first() else { continue };
            let mut names = Names::new(reading, scope);
            let mut told = |index, part, value: u64| {
                let key = (scope.clone(), index, part);
                // After `/reset_counters` one counts from zero again.
                let last = before.get(&key).copied().unwrap_or(0);
                self.told.insert(key, value);
                value.checked_sub(last).unwrap_or(value)
            };
            for (index, name) in first.names().iter().enumerate() {
                let mut tell = |suffix: &str, family: &str, label, value: &dyn Fn(&mut String)| {
                    if names.set(name, suffix, family, label) {
                        for datagram in &mut datagrams {
                            datagram.add(&names, value, &mut send);
                        }
                    }
                };
                match first.value(index) {
                    Stat::Codes(_) => {
                        let mut sums = [0u64; 10];
                        for (code, count) in codes(reading, scope, sets, index) {
                            let grown = told(index, code, count);
                            let label = Some(("envoy_response_code", code.to_string()));
                            tell(&format!("_{code}"), name, label, &|out| counter(out, grown));
                            sums[0] += count;
                            sums[usize::from(code / 100).min(9)] += count;
                        }
                        for (class, &count) in (0..).zip(&sums).filter(|(_, count)| **count > 0) {
                            let grown = told(index, class, count);
                            let value = |out: &mut String| counter(out, grown);
                            if class == 0 {
                                tell("_completed", &format!("{name}_completed"), None, &value);
                            } else {
                                let label = Some(("envoy_response_code_class", class.to_string()));
                                let suffix = format!("_{class}xx");
                                tell(&suffix, &format!("{name}_xx"), label, &value);
                            }
                        }
                    }
                    Stat::Histogram(_) => {
                        let flushed = reading.flushed.get(&(scope.clone(), index));
                        for (value, count) in flushed.iter().flat_map(|all| all.interval.values()) {
                            tell("", name, None, &|out| timing(out, value, count));
                        }
                    }
                    Stat::Counter(_) | Stat::Gauge(_) | Stat::Tracked(_) => {
                        let (kind, used, value) = number(reading, scope, sets, index);
                        if !used {
                            continue;
                        }
                        if kind == Kind::Counters {
                            let grown = told(index, 0, value);
                            let (family, label) = match label_in(name) {
                                Some((family, label, text)) => {
                                    (family, Some((label, text.to_owned())))
                                }
                                None => ((*name).to_owned(), None),
                            };
                            tell("", &family, label, &|out| counter(out, grown));
                        } else {
                            tell("", name, None, &|out| gauge(out, value));
                        }
                    }
                }
            }
        }
        for datagram in &mut datagrams {
            datagram.finish(&mut send);
        }
    }
}

fn counter(out: &mut String, grown: u64) {
    let _ = write!(out, ":{grown}|c");
}

fn gauge(out: &mut String, value: u64) {
    let _ = write!(out, ":{value}|g");
}

fn timing(out: &mut String, value: f64, count: u64) {
    let _ = write!(out, ":{value}|ms");
    if count > 1 {
        let _ = write!(out, "|@{}", 1.0 / count as f64);
    }
}

/// The names of one statistic: whole, and without what its labels say.
struct Names<'a> {
    reading: &'a Reading,
    /// `cluster.app`
    prefix: String,
    /// `cluster`
    stem: String,
    /// The labels of its scope.
    scope: Vec<(String, String)>,
    whole: String,
    family: String,
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

    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
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

/// Lines that go to a sink together.
struct Datagram<'a> {
    to: usize,
    sink: &'a Sink,
    text: String,
    line: String,
}

impl<'a> Datagram<'a> {
    const fn new(to: usize, sink: &'a Sink) -> Self {
        Self { to, sink, text: String::new(), line: String::new() }
    }

    fn add(
        &mut self,
        names: &Names<'_>,
        value: &dyn Fn(&mut String),
        send: &mut impl FnMut(usize, &[u8]),
    ) {
        let line = &mut self.line;
        line.clear();
        line.push_str(&self.sink.prefix);
        line.push('.');
        match self.sink.dialect {
            Dialect::Plain => {
                push(line, &names.whole);
                value(line);
            }
            Dialect::Dog => {
                push(line, &names.family);
                value(line);
                for (index, (name, text)) in names.labels().enumerate() {
                    line.push_str(if index == 0 { "|#" } else { "," });
                    push(line, name);
                    line.push(':');
                    push(line, text);
                }
            }
            Dialect::Graphite => {
                push(line, &names.family);
                for (name, text) in names.labels() {
                    line.push(';');
                    push(line, name);
                    line.push('=');
                    push(line, text);
                }
                value(line);
            }
        }
        if self.text.len() + 1 + self.line.len() > self.sink.datagram_bytes {
            self.finish(send);
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&self.line);
    }

    fn finish(&mut self, send: &mut impl FnMut(usize, &[u8])) {
        if !self.text.is_empty() {
            send(self.to, self.text.as_bytes());
            self.text.clear();
        }
    }
}

/// Appends a name or a label; clients choose some of them, and what separates must not stand in them.
fn push(line: &mut String, text: &str) {
    let separates =
        |c: char| c.is_ascii_control() || matches!(c, ':' | '|' | ',' | ';' | '#' | '@');
    line.extend(text.chars().map(|c| if separates(c) { '_' } else { c }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{
        ClusterStats, GrpcProtocol, GrpcStats, Keep, ListenerWorkerStats, Registry, Rules,
    };
    use super::*;

    fn told(push: &mut Push, registry: &Registry, to: usize) -> Vec<String> {
        registry.flush();
        let mut all = Vec::new();
        push.flush(&registry.read(), |sink, datagram| {
            if sink == to {
                all.push(String::from_utf8(datagram.to_vec()).unwrap());
            }
        });
        all.sort();
        all
    }

    fn push(dialect: Dialect, datagram_bytes: usize) -> Push {
        Push::new(vec![Sink { dialect, prefix: "p".to_owned(), datagram_bytes }])
    }

    #[test]
    fn counters_are_told_by_what_they_grew() {
        let registry = Registry::new();
        let set: Arc<ClusterStats> = registry.set(0, Scope::Cluster(Arc::from("a:b")));
        let other: Arc<ClusterStats> = registry.set(1, Scope::Cluster(Arc::from("a:b")));
        let mut push = push(Dialect::Plain, 0);
        assert!(told(&mut push, &registry, 0).is_empty(), "what was never written is not told");
        set.upstream_rq_total.inc();
        other.upstream_rq_total.inc();
        set.upstream_rq.count(204);
        set.upstream_rq_active.set(3);
        for value in [7, 7, 305] {
            set.upstream_rq_time.record(value);
        }
        assert_eq!(
            told(&mut push, &registry, 0),
            [
                "p.cluster.a_b.upstream_rq_204:1|c",
                "p.cluster.a_b.upstream_rq_2xx:1|c",
                "p.cluster.a_b.upstream_rq_active:3|g",
                "p.cluster.a_b.upstream_rq_completed:1|c",
                "p.cluster.a_b.upstream_rq_time:305|ms",
                "p.cluster.a_b.upstream_rq_time:7|ms|@0.5",
                "p.cluster.a_b.upstream_rq_total:2|c",
            ]
        );
        set.upstream_rq_total.inc();
        let lines = told(&mut push, &registry, 0);
        assert!(lines.contains(&"p.cluster.a_b.upstream_rq_total:1|c".to_owned()), "{lines:?}");
        assert!(lines.contains(&"p.cluster.a_b.upstream_rq_204:0|c".to_owned()), "{lines:?}");
        registry.reset_counters();
        set.upstream_rq_total.inc();
        let lines = told(&mut push, &registry, 0);
        assert!(lines.contains(&"p.cluster.a_b.upstream_rq_total:1|c".to_owned()), "{lines:?}");
    }

    #[test]
    fn labels_are_cut_from_names() {
        let fixed = [("my.tag".to_owned(), "v".to_owned())];
        let registry = Registry::configured(fixed, Rules::default());
        let set: Arc<ClusterStats> = registry.set(0, Scope::Cluster(Arc::from("cluster")));
        set.upstream_rq.count(503);
        let listener: Arc<str> = Arc::from("127.0.0.1_80");
        let worker: Arc<ListenerWorkerStats> =
            registry.set(0, Scope::ListenerWorker { listener, worker: 1 });
        worker.downstream_cx_total.inc();
        let lines = told(&mut push(Dialect::Dog, 0), &registry, 0);
        let cluster = "|#envoy.response_code:503,my.tag:v,envoy.cluster_name:cluster";
        assert_eq!(lines[0], format!("p.cluster.upstream_rq:1|c{cluster}"));
        assert_eq!(
            lines[2],
            "p.cluster.upstream_rq_xx:1|c|#envoy.response_code_class:5,my.tag:v,envoy.cluster_name:cluster"
        );
        assert_eq!(
            lines[3],
            "p.listener.worker_downstream_cx_total:1|c|#my.tag:v,envoy.worker_id:1,envoy.listener_address:127.0.0.1_80"
        );
        let lines = told(&mut push(Dialect::Graphite, 0), &registry, 0);
        assert_eq!(
            lines[0],
            "p.cluster.upstream_rq;envoy.response_code=503;my.tag=v;envoy.cluster_name=cluster:1|c"
        );
    }

    #[test]
    fn clients_cannot_make_lines() {
        let registry = Registry::new();
        let method = Some((Arc::from("s\nx:1|c"), Arc::from("m|#a,b;c")));
        let scope =
            Scope::ClusterGrpc { cluster: Arc::from("c"), protocol: GrpcProtocol::Grpc, method };
        let set: Arc<GrpcStats> = registry.set(0, scope);
        set.total.inc();
        for dialect in [Dialect::Plain, Dialect::Dog, Dialect::Graphite] {
            let lines = told(&mut push(dialect, 0), &registry, 0);
            assert_eq!(lines.len(), 1);
            assert!(!lines[0].contains('\n') && lines[0].matches("|c").count() == 1, "{lines:?}");
        }
    }

    #[test]
    fn lines_go_together_as_far_as_they_may() {
        let keep = Rules { keep: Keep::Except(Vec::new()), ..Rules::default() };
        let registry = Registry::configured([], keep);
        let set: Arc<ClusterStats> = registry.set(0, Scope::Cluster(Arc::from("a")));
        for code in 200..300 {
            set.upstream_rq.count(code);
        }
        let alone = told(&mut push(Dialect::Dog, 0), &registry, 0);
        for limit in [1, 60, 61, 500, 1 << 20] {
            let together = told(&mut push(Dialect::Dog, limit), &registry, 0);
            let longest = alone.iter().map(String::len).max().unwrap();
            assert!(together.iter().all(|datagram| datagram.len() <= limit.max(longest)));
            let mut lines: Vec<_> = together.iter().flat_map(|text| text.lines()).collect();
            lines.sort_unstable();
            assert_eq!(lines, alone, "{limit}");
        }
        let none = Registry::configured([], Rules { keep: Keep::None, ..Rules::default() });
        let set: Arc<ClusterStats> = none.set(0, Scope::Cluster(Arc::from("a")));
        set.upstream_rq_total.inc();
        assert!(told(&mut push(Dialect::Plain, 0), &none, 0).is_empty());
    }
}
