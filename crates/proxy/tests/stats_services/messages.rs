//! What statistics are told in, as far as it is read here.

/// `service.metrics.v3.StreamMetricsMessage`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StreamMetrics {
    #[prost(message, optional, tag = "1")]
    pub(crate) identifier: Option<Identifier>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) families: Vec<Family>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Identifier {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Node {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) cluster: String,
}

/// `io.prometheus.client.MetricFamily`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Family {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(int32, optional, tag = "3")]
    pub(crate) kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(message, optional, tag = "2")]
    pub(crate) gauge: Option<Double>,
    #[prost(message, optional, tag = "3")]
    pub(crate) counter: Option<Double>,
    #[prost(message, optional, tag = "4")]
    pub(crate) summary: Option<Summary>,
    #[prost(int64, tag = "6")]
    pub(crate) timestamp_ms: i64,
    #[prost(message, optional, tag = "7")]
    pub(crate) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Label {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Double {
    #[prost(double, optional, tag = "1")]
    pub(crate) value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Summary {
    #[prost(uint64, tag = "1")]
    pub(crate) count: u64,
    #[prost(double, tag = "2")]
    pub(crate) sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) quantiles: Vec<Pair>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pair {
    #[prost(double, tag = "1")]
    pub(crate) quantile: f64,
    #[prost(double, tag = "2")]
    pub(crate) value: f64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Histogram {
    #[prost(uint64, tag = "1")]
    pub(crate) count: u64,
    #[prost(double, tag = "2")]
    pub(crate) sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) buckets: Vec<Bucket>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Bucket {
    #[prost(uint64, tag = "1")]
    pub(crate) count: u64,
    #[prost(double, tag = "2")]
    pub(crate) bound: f64,
}

/// `opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Export {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resources: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scopes: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AnyValue {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    pub(crate) metrics: Vec<OtlpMetric>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OtlpMetric {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) gauge: Option<Points>,
    #[prost(message, optional, tag = "7")]
    pub(crate) sum: Option<Points>,
    #[prost(message, optional, tag = "9")]
    pub(crate) histogram: Option<HistogramPoints>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Points {
    #[prost(message, repeated, tag = "1")]
    pub(crate) points: Vec<Point>,
    #[prost(int32, tag = "2")]
    pub(crate) temporality: i32,
    #[prost(bool, tag = "3")]
    pub(crate) is_monotonic: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Point {
    #[prost(fixed64, tag = "2")]
    pub(crate) since: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) at: u64,
    #[prost(sfixed64, tag = "6")]
    pub(crate) value: i64,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HistogramPoints {
    #[prost(message, repeated, tag = "1")]
    pub(crate) points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    pub(crate) temporality: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    pub(crate) since: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) at: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) count: u64,
    #[prost(double, tag = "5")]
    pub(crate) sum: f64,
    #[prost(fixed64, repeated, tag = "6")]
    pub(crate) counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub(crate) bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
}
