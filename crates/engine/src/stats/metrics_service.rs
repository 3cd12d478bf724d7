//! Statistics as messages for Envoy's metrics service (`service.metrics.v3.StreamMetricsMessage`), whose metrics are
//! those of Prometheus' client model (`io.prometheus.client`).

use bytes::Bytes;

use super::Bins;
use super::prometheus::QUANTILES;
use super::samples::{Names, Sample, Value};
use crate::wire::Message;

/// Envoy `config.metrics.v3.MetricsServiceConfig`, as far as it is about what messages say.
#[derive(Clone, Debug, Default)]
pub struct MetricsService {
    /// `report_counters_as_deltas`.
    pub deltas: bool,
    /// `emit_tags_as_labels`.
    pub labels: bool,
    /// `histogram_emit_mode`.
    pub histograms: HistogramMode,
    /// `batch_size`: how many families are in a message at most; 0 is no limit.
    pub batch: usize,
}

/// Envoy `config.metrics.v3.HistogramEmitMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistogramMode {
    /// `SUMMARY_AND_HISTOGRAM`.
    #[default]
    Both,
    /// `SUMMARY`.
    Summary,
    /// `HISTOGRAM`.
    Histogram,
}

impl MetricsService {
    pub(super) fn page(&self, unix_ns: u64) -> Page<'_> {
        Page { config: self, unix_ms: unix_ns / 1_000_000, message: Message::default(), count: 0 }
    }
}

/// What the first message of a stream begins with: an `Identifier` with the node, which is encoded already.
#[must_use]
pub fn opening(node: &[u8]) -> Bytes {
    let mut message = Message::default();
    message.message(1, |identifier| {
        identifier.bytes(1, node);
    });
    message.0.into()
}

/// A message that is being written.
pub(super) struct Page<'a> {
    config: &'a MetricsService,
    unix_ms: u64,
    message: Message,
    count: usize,
}

impl Page<'_> {
    pub(super) fn take(&mut self, sample: &Sample<'_>, send: &mut impl FnMut(&[u8])) {
        match sample.value {
            Value::Counter { grown, total } => {
                let value = if self.config.deltas { grown } else { total } as f64;
                self.family(sample.names, COUNTER, send, |metric| {
                    metric.message(3, |counter| {
                        counter.double(1, value);
                    });
                });
            }
            Value::Gauge(value) => self.family(sample.names, GAUGE, send, |metric| {
                metric.message(2, |gauge| {
                    gauge.double(1, value as f64);
                });
            }),
            Value::Histogram { interval, .. } => {
                if self.config.histograms != HistogramMode::Histogram {
                    self.family(sample.names, SUMMARY, send, |metric| {
                        metric.message(4, |message| summary(message, interval));
                    });
                }
                if self.config.histograms != HistogramMode::Summary {
                    let buckets = sample.names.buckets();
                    self.family(sample.names, HISTOGRAM, send, |metric| {
                        metric.message(7, |message| histogram(message, interval, buckets));
                    });
                }
            }
        }
    }

    /// Adds a `MetricFamily` with one metric.
    fn family(
        &mut self,
        names: &Names<'_>,
        kind: u64,
        send: &mut impl FnMut(&[u8]),
        value: impl FnOnce(&mut Message),
    ) {
        let labels = self.config.labels;
        self.message.message(2, |family| {
            let name = if labels { &names.family } else { &names.whole };
            family.text(1, name.as_bytes()).number(3, kind).message(4, |metric| {
                for (name, value) in names.labels().filter(|_| labels) {
                    metric.message(1, |label| {
                        label.text(1, name.as_bytes()).text(2, value.as_bytes());
                    });
                }
                value(metric);
                metric.number(6, self.unix_ms);
            });
        });
        self.count += 1;
        if self.count == self.config.batch || self.message.0.len() >= LONG_MESSAGE {
            self.send(send);
        }
    }

    fn send(&mut self, send: &mut impl FnMut(&[u8])) {
        send(&self.message.0);
        self.message.0.clear();
        self.count = 0;
    }

    pub(super) fn finish(mut self, send: &mut impl FnMut(&[u8])) {
        if self.count > 0 {
            self.send(send);
        }
    }
}

fn summary(message: &mut Message, bins: &Bins) {
    message.number(1, bins.count()).double(2, bins.sum());
    for share in QUANTILES {
        message.message(3, |quantile| {
            quantile.double(1, share).double(2, bins.quantile(share).unwrap_or(f64::NAN));
        });
    }
}

fn histogram(message: &mut Message, bins: &Bins, buckets: &[f64]) {
    message.number(1, bins.count()).double(2, bins.sum());
    for bound in buckets {
        message.message(3, |bucket| {
            bucket.number(1, bins.up_to(*bound)).double(2, *bound);
        });
    }
}

/// `io.prometheus.client.MetricType`.
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;
const SUMMARY: u64 = 2;
const HISTOGRAM: u64 = 4;

/// A message that is longer is sent, however many more there are to come: servers of gRPC take 4 MiB unless they are
/// told otherwise.
const LONG_MESSAGE: usize = 3 << 20;
