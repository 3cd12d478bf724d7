//! Statistics that are sent away.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::export::Exporter;
use towpath_engine::snapshot::tracing::Collector;
use towpath_engine::stats::metrics_service::{HistogramMode, MetricsService};
use towpath_engine::stats::otlp::OpenTelemetry;
use towpath_engine::stats::push::Sink;
use towpath_engine::stats::statsd::{self, Dialect};

use super::Converter;
use super::address::Written;
use super::extension::STATS_SINK;
use super::facts::{Push, PushTarget};
use crate::message::Message;
use crate::support::Entry;

impl Converter<'_> {
    /// To whom statistics are sent, and when.
    pub(super) fn push(&mut self, bootstrap: &Message) -> Push {
        let sinks: Vec<_> = bootstrap.messages("stats_sinks").collect();
        let on_admin = bootstrap.flag("stats_flush_on_admin");
        let interval = bootstrap.duration("stats_flush_interval").unwrap_or(INTERVAL);
        Push {
            sinks: sinks.into_iter().filter_map(|sink| self.stats_sink(sink, bootstrap)).collect(),
            interval: (!on_admin).then_some(interval),
        }
    }

    fn stats_sink(&mut self, sink: &Message, bootstrap: &Message) -> Option<(PushTarget, Sink)> {
        let known = [STATSD, DOG_STATSD, GRAPHITE, METRICS_SERVICE, OPENTELEMETRY];
        let (config, at) = self.extension(sink, STATS_SINK, &known)?;
        let dialect = match config.descriptor.full_name() {
            METRICS_SERVICE => return self.metrics_service(config, bootstrap),
            OPENTELEMETRY => return self.metrics_by_otlp(config, bootstrap),
            STATSD => Dialect::Plain,
            DOG_STATSD => Dialect::Dog,
            _ => Dialect::Graphite,
        };
        let prefix = Some(config.text("prefix")).filter(|prefix| !prefix.is_empty());
        let datagram_bytes = match dialect {
            Dialect::Plain => 0,
            Dialect::Dog | Dialect::Graphite => {
                let bytes = config.number("max_bytes_per_datagram").unwrap_or(0);
                usize::try_from(bytes).unwrap_or(usize::MAX)
            }
        };
        let address = config.message("address")?;
        let Some(socket) = address.message("socket_address") else {
            self.report.unsupported(at, "statistics are sent by UDP; write a socket_address");
            return None;
        };
        match self.socket_address(socket)? {
            Written::Address(address) => Some((
                PushTarget::Udp(address.ip()?),
                Sink::Statsd(statsd::Sink {
                    dialect,
                    prefix: prefix.unwrap_or("envoy").to_owned(),
                    datagram_bytes,
                }),
            )),
            Written::Name(name, _) => {
                self.report.problem(&address.at, format!("malformed IP address: {name}"));
                None
            }
        }
    }
}

impl Converter<'_> {
    fn metrics_service(
        &mut self,
        config: &Message,
        bootstrap: &Message,
    ) -> Option<(PushTarget, Sink)> {
        self.check_version(config);
        let collector = self.static_collector(config, bootstrap, STREAM_METRICS)?;
        let sink = MetricsService {
            deltas: config.wrapped_flag("report_counters_as_deltas").unwrap_or(false),
            labels: config.flag("emit_tags_as_labels"),
            histograms: match config.choice("histogram_emit_mode").as_str() {
                "SUMMARY" => HistogramMode::Summary,
                "HISTOGRAM" => HistogramMode::Histogram,
                _ => HistogramMode::Both,
            },
            batch: config.number32("batch_size").map_or(0, |batch| batch as usize),
        };
        let opening = Some(towpath_engine::stats::metrics_service::opening(&self.node_bytes));
        Some((
            PushTarget::Server(Arc::new(Exporter { collector, opening })),
            Sink::MetricsService(sink),
        ))
    }

    fn metrics_by_otlp(
        &mut self,
        config: &Message,
        bootstrap: &Message,
    ) -> Option<(PushTarget, Sink)> {
        let collector = match config.message("http_service") {
            Some(service) => self.http_service(service, None)?,
            None => self.static_collector(config, bootstrap, EXPORT_METRICS)?,
        };
        let prefix = config.text("prefix");
        let sink = OpenTelemetry {
            resource: self.resource_of_program(config),
            counter_deltas: config.flag("report_counters_as_deltas"),
            histogram_deltas: config.flag("report_histograms_as_deltas"),
            attributes: config.wrapped_flag("emit_tags_as_attributes").unwrap_or(true),
            short_names: config.wrapped_flag("use_tag_extracted_name").unwrap_or(true),
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}.") },
            batch: config.number32("max_data_points_per_request").map_or(0, |most| most as usize),
            since_unix_ns: 0,
            last_unix_ns: 0,
        };
        let exporter = Arc::new(Exporter { collector, opening: None });
        Some((PushTarget::Server(exporter), Sink::OpenTelemetry(sink)))
    }

    /// The `grpc_service`, whose cluster the bootstrap must have.
    fn static_collector(
        &mut self,
        config: &Message,
        bootstrap: &Message,
        path: &str,
    ) -> Option<Collector> {
        let service = config.message("grpc_service")?;
        let collector = self.grpc_collector(service, path)?;
        let resources = bootstrap.message("static_resources").into_iter();
        let mut known = resources.flat_map(|all| all.messages("clusters"));
        if !known.any(|cluster| *cluster.text("name") == *collector.cluster) {
            let text = format!(
                "Unknown gRPC client cluster '{}': it is no static cluster",
                collector.cluster
            );
            self.report.problem(&service.at, text);
            return None;
        }
        Some(collector)
    }
}

pub(crate) const SUPPORT: &[Entry] = &[
    Entry {
        message: METRICS_SERVICE,
        honoured: &[
            "grpc_service",
            "transport_api_version",
            "report_counters_as_deltas",
            "emit_tags_as_labels",
            "histogram_emit_mode",
            "batch_size",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: OPENTELEMETRY,
        honoured: &[
            "grpc_service",
            "http_service",
            "resource_detectors",
            "report_counters_as_deltas",
            "report_histograms_as_deltas",
            "emit_tags_as_attributes",
            "use_tag_extracted_name",
            "prefix",
            "max_data_points_per_request",
        ],
        harmless: &[],
        changes: &[(
            "custom_metric_conversions",
            "statistics keep their names; which are told says stats_matcher",
        )],
    },
];

const METRICS_SERVICE: &str = "envoy.config.metrics.v3.MetricsServiceConfig";
const OPENTELEMETRY: &str = "envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig";
const STREAM_METRICS: &str = "/envoy.service.metrics.v3.MetricsService/StreamMetrics";
const EXPORT_METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const INTERVAL: Duration = Duration::from_secs(5);
const STATSD: &str = "envoy.config.metrics.v3.StatsdSink";
const DOG_STATSD: &str = "envoy.config.metrics.v3.DogStatsdSink";
const GRAPHITE: &str = "envoy.extensions.stat_sinks.graphite_statsd.v3.GraphiteStatsdSink";
