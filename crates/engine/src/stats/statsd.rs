//! Statistics as lines for statsd, which are sent away once in an interval.
//!
//! Arrives: statistics one by one. Leaves: datagrams. Counters are told by how much they grew since the last time,
//! gauges as they stand, and of histograms what came in the interval before the last [`flush`](super::Registry::flush):
//! a line for each value that two digits tell apart, with `@` and the share that it stands for.

use std::fmt::Write as _;

use super::samples::{Names, Sample, Value};

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

/// The server that is told, and how.
#[derive(Clone, Debug)]
pub struct Sink {
    /// How lines look.
    pub dialect: Dialect,
    /// Before each name.
    pub prefix: String,
    /// Lines are put together up to so many bytes; 0 sends each on its own.
    pub datagram_bytes: usize,
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

/// Lines that go to a sink together.
pub(super) struct Datagram<'a> {
    sink: &'a Sink,
    text: String,
    line: String,
}

impl<'a> Datagram<'a> {
    pub(super) const fn new(sink: &'a Sink) -> Self {
        Self { sink, text: String::new(), line: String::new() }
    }

    pub(super) fn take(&mut self, sample: &Sample<'_>, send: &mut impl FnMut(&[u8])) {
        match sample.value {
            Value::Counter { grown, .. } => {
                self.add(sample.names, &|out| counter(out, grown), send);
            }
            Value::Gauge(value) => self.add(sample.names, &|out| gauge(out, value), send),
            Value::Histogram { interval, .. } => {
                for (value, count) in interval.values() {
                    self.add(sample.names, &|out| timing(out, value, count), send);
                }
            }
        }
    }

    fn add(
        &mut self,
        names: &Names<'_>,
        value: &dyn Fn(&mut String),
        send: &mut impl FnMut(&[u8]),
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

    pub(super) fn finish(&mut self, send: &mut impl FnMut(&[u8])) {
        if !self.text.is_empty() {
            send(self.text.as_bytes());
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
        ClusterStats, GrpcProtocol, GrpcStats, Keep, ListenerWorkerStats, Push, Registry, Rules,
        Scope, push,
    };
    use super::*;

    fn told(push: &mut Push, registry: &Registry, to: usize) -> Vec<String> {
        registry.flush();
        let mut all = Vec::new();
        push.flush(&registry.read(), 0, |sink, datagram| {
            if sink == to {
                all.push(String::from_utf8(datagram.to_vec()).unwrap());
            }
        });
        all.sort();
        all
    }

    fn push(dialect: Dialect, datagram_bytes: usize) -> Push {
        let sink = Sink { dialect, prefix: "p".to_owned(), datagram_bytes };
        Push::new(vec![push::Sink::Statsd(sink)])
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
