//! Statistics as OTLP has them: `opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest`.

use super::Bins;
use super::samples::{Sample, Value};
use crate::wire::Message;

/// Envoy `extensions.stat_sinks.open_telemetry.v3.SinkConfig`, as far as it is about what requests say.
#[derive(Clone, Debug)]
pub struct OpenTelemetry {
    /// `resource_detectors`, and what is said of this program.
    pub resource: Vec<(String, String)>,
    /// `report_counters_as_deltas`.
    pub counter_deltas: bool,
    /// `report_histograms_as_deltas`.
    pub histogram_deltas: bool,
    /// `emit_tags_as_attributes`. Default true.
    pub attributes: bool,
    /// `use_tag_extracted_name`. Default true.
    pub short_names: bool,
    /// `prefix`, with a dot behind it; it may be empty.
    pub prefix: String,
    /// `max_data_points_per_request`; 0 is no limit.
    pub batch: usize,
    /// Since when one counts, in nanoseconds since 1970.
    pub since_unix_ns: u64,
    /// When requests were made last, in nanoseconds since 1970.
    pub last_unix_ns: u64,
}

impl OpenTelemetry {
    pub(super) fn page(&self, unix_ns: u64) -> Page<'_> {
        Page { config: self, unix_ns, metrics: Message::default(), count: 0 }
    }

    /// From here on one counts.
    pub const fn begin(&mut self, unix_ns: u64) {
        self.since_unix_ns = unix_ns;
        self.last_unix_ns = unix_ns;
    }

    /// Requests were made.
    pub(super) const fn told(&mut self, unix_ns: u64) {
        self.last_unix_ns = unix_ns;
    }
}

/// A request that is being written.
pub(super) struct Page<'a> {
    config: &'a OpenTelemetry,
    unix_ns: u64,
    /// Each a field of `ScopeMetrics`.
    metrics: Message,
    count: usize,
}

impl Page<'_> {
    pub(super) fn take(&mut self, sample: &Sample<'_>, send: &mut impl FnMut(&[u8])) {
        let config = self.config;
        match sample.value {
            Value::Counter { grown: 0, .. } if config.counter_deltas => return,
            Value::Histogram { interval, .. }
                if config.histogram_deltas && interval.count() == 0 =>
            {
                return;
            }
            Value::Counter { .. } | Value::Gauge(_) | Value::Histogram { .. } => {}
        }
        self.metrics.message(2, |metric| {
            let name = if config.short_names { &sample.names.family } else { &sample.names.whole };
            metric.text(1, [config.prefix.as_str(), name].concat().as_bytes());
            let (unix_ns, since) = (self.unix_ns, |deltas| config.since(deltas));
            match sample.value {
                Value::Gauge(value) => drop(metric.message(5, |gauge| {
                    gauge.message(1, |point| {
                        point.fixed64(3, unix_ns).fixed64(6, value);
                        config.attributes(point, 7, sample);
                    });
                })),
                Value::Counter { grown, total } => drop(metric.message(7, |sum| {
                    let deltas = config.counter_deltas;
                    sum.message(1, |point| {
                        point.fixed64(2, since(deltas)).fixed64(3, unix_ns);
                        point.fixed64(6, if deltas { grown } else { total });
                        config.attributes(point, 7, sample);
                    });
                    sum.number(2, temporality(deltas)).number(3, 1);
                })),
                Value::Histogram { interval, total } => drop(metric.message(9, |histogram| {
                    let deltas = config.histogram_deltas;
                    let bins = if deltas { interval } else { total };
                    histogram.message(1, |point| {
                        point.fixed64(2, since(deltas)).fixed64(3, unix_ns);
                        buckets(point, bins, sample.names.buckets());
                        config.attributes(point, 9, sample);
                    });
                    histogram.number(2, temporality(deltas));
                })),
            }
        });
        self.count += 1;
        if self.count == config.batch || self.metrics.0.len() >= LONG_REQUEST {
            self.send(send);
        }
    }

    fn send(&mut self, send: &mut impl FnMut(&[u8])) {
        let mut request = Message::default();
        request.message(1, |resource_metrics| {
            resource_metrics.message(1, |resource| {
                for (name, value) in &self.config.resource {
                    pair(resource, 1, name, value);
                }
            });
            resource_metrics.bytes(2, &self.metrics.0);
        });
        send(&request.0);
        self.metrics.0.clear();
        self.count = 0;
    }

    pub(super) fn finish(mut self, send: &mut impl FnMut(&[u8])) {
        if self.count > 0 {
            self.send(send);
        }
    }
}

impl OpenTelemetry {
    const fn since(&self, deltas: bool) -> u64 {
        if deltas { self.last_unix_ns } else { self.since_unix_ns }
    }

    fn attributes(&self, point: &mut Message, field: u8, sample: &Sample<'_>) {
        if self.attributes {
            let mut labels: Vec<_> = sample.names.labels().collect();
            labels.sort_unstable();
            for (name, value) in labels {
                pair(point, field, name, value);
            }
        }
    }
}

/// The counts of a histogram, each bucket without those before it; the last is of what is beyond all bounds.
fn buckets(point: &mut Message, bins: &Bins, bounds: &[f64]) {
    point.fixed64(4, bins.count()).double(5, bins.sum());
    let mut before = 0;
    let counts: Vec<u64> = bounds
        .iter()
        .map(|bound| {
            let all = bins.up_to(*bound);
            all.saturating_sub(std::mem::replace(&mut before, all))
        })
        .collect();
    let beyond = bins.count().saturating_sub(before);
    point.packed(6, counts.into_iter().chain([beyond]));
    point.packed(7, bounds.iter().map(|bound| bound.to_bits()));
}

fn pair(message: &mut Message, field: u8, name: &str, value: &str) {
    message.message(field, |pair| {
        pair.text(1, name.as_bytes()).message(2, |any| {
            any.text(1, value.as_bytes());
        });
    });
}

/// `AggregationTemporality`.
const fn temporality(deltas: bool) -> u64 {
    if deltas { 1 } else { 2 }
}

/// A request that is longer is sent, however many more there are to come: servers of gRPC take 4 MiB unless they are
/// told otherwise.
const LONG_REQUEST: usize = 3 << 20;
