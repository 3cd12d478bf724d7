//! Statistics that are sent by gRPC, to Envoy's metrics service and to OpenTelemetry's, alone and beside Envoy.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    dead_code,
    reason = "a test that cannot go on has failed; messages are read as far as they matter"
)]

mod collector;
#[path = "../common/mod.rs"]
mod common;
mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use prost::Message as _;

use collector::Told;
use common::{Proxy, Scratch, bootstrap, exchange, origin, program, until};
use messages::{Export, Family, KeyValue, StreamMetrics};

/// What each sink is told, by cases: its configuration.
const SINKS: [(&str, &str); 7] = [
    ("plain", METRICS),
    ("labels", "emit_tags_as_labels: true, histogram_emit_mode: SUMMARY"),
    ("deltas", "report_counters_as_deltas: true, histogram_emit_mode: HISTOGRAM"),
    ("batches", "batch_size: 20"),
    ("otlp", OTLP),
    ("otlp-whole", "emit_tags_as_attributes: false, use_tag_extracted_name: false, prefix: pre"),
    (
        "otlp-deltas",
        "report_counters_as_deltas: true, report_histograms_as_deltas: true, max_data_points_per_request: 30",
    ),
];
const METRICS: &str = "transport_api_version: V3";
const OTLP: &str = "emit_tags_as_attributes: true";

#[test]
fn each_service_is_told() {
    let all = told(program(), &[]);
    let value = |sink: &str, key: &str| {
        let told = &all[sink].values;
        *told.get(key).unwrap_or_else(|| panic!("{sink}: {key}: {:#?}", told.keys()))
    };
    for sink in ["plain", "deltas", "batches"] {
        assert_eq!(value(sink, "counter cluster.origin.upstream_rq_200"), 3.0);
        assert_eq!(value(sink, "gauge cluster.origin.membership_total"), 1.0);
    }
    assert_eq!(
        value(
            "labels",
            "counter cluster.upstream_rq envoy.cluster_name=origin envoy.response_code=200 my.tag=v"
        ),
        3.0
    );
    assert_eq!(
        value(
            "otlp",
            "sum cluster.upstream_rq envoy.cluster_name=origin envoy.response_code=200 my.tag=v"
        ),
        3.0
    );
    assert_eq!(value("otlp-whole", "sum pre.cluster.origin.upstream_rq_200"), 3.0);
    assert_eq!(
        value(
            "otlp-deltas",
            "sum cluster.upstream_rq envoy.cluster_name=origin envoy.response_code=200 my.tag=v"
        ),
        3.0
    );
    assert_eq!(
        value("otlp", "histogram cluster.upstream_rq_time envoy.cluster_name=origin my.tag=v"),
        3.0
    );
    assert_eq!(value("plain", "summary cluster.origin.upstream_rq_time"), 3.0);
    assert_eq!(value("plain", "histogram cluster.origin.upstream_rq_time"), 3.0);
    for (sink, _) in &SINKS[..4] {
        let shape = &all[*sink];
        assert_eq!(shape.streams, 1, "{sink}: one call goes on");
        assert_eq!(shape.identifiers, ["test tests"], "{sink}: it begins with who tells");
        assert!(shape.messages > 2, "{sink}");
    }
    assert_eq!(all["batches"].largest, 20);
    assert_eq!(all["otlp-deltas"].largest, 30);
    let has = |sink: &str, kind: &str| all[sink].values.keys().any(|key| key.starts_with(kind));
    assert!(has("labels", "summary") && !has("labels", "histogram"));
    assert!(!has("deltas", "summary") && has("deltas", "histogram"));
    for sink in ["otlp", "otlp-whole", "otlp-deltas"] {
        assert_eq!(all[sink].streams, all[sink].messages, "each request is a call of its own");
    }
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn envoy_tells_the_same() {
    let peers = std::env::var_os("TOWPATH_PEERS").expect("TOWPATH_PEERS names the peers' folder");
    let mut envoy = Command::new(Path::new(&peers).join("envoy"));
    envoy.stdin(Stdio::null());
    let theirs = told(envoy, &["--concurrency", "1", "--use-dynamic-base-id"]);
    let ours = told(program(), &["--concurrency", "1"]);
    for (sink, _) in SINKS {
        let (ours, theirs) = (&ours[sink], &theirs[sink]);
        let is_compared = |key: &str| {
            let name = key.split(' ').nth(1).unwrap_or_default();
            let name = name.strip_prefix("pre.").unwrap_or(name);
            !name.starts_with("listener.")
                && COMPARED.iter().any(|part| name.contains(part))
                && !key.contains("admin")
                && !key.contains("collector")
        };
        let count = ours.values.keys().filter(|key| is_compared(key)).count();
        assert!(count > 15, "{sink}: {ours:#?}");
        let differs = ours.values.iter().filter(|(key, _)| is_compared(key));
        let differs: Vec<_> =
            differs.filter(|(key, value)| theirs.values.get(*key) != Some(*value)).collect();
        assert!(differs.is_empty(), "{sink}: {differs:#?} {theirs:#?}");
        assert_eq!(ours.shapes, theirs.shapes, "{sink}: what points and families say");
        assert_eq!(ours.identifiers, theirs.identifiers, "{sink}");
        assert_eq!(ours.streams == 1, theirs.streams == 1, "{sink}");
        assert_eq!(ours.attributes, theirs.attributes, "{sink}");
        assert!(ours.largest.abs_diff(theirs.largest) == 0 || ours.largest > 30, "{sink}");
    }
}

const COMPARED: [&str; 9] = [
    "upstream_rq",
    "downstream_rq",
    "upstream_cx_total",
    "downstream_cx_total",
    "membership_",
    "upstream_cx_http1_total",
    "upstream_cx_active",
    "upstream_cx_connect_ms",
    "no_filter_chain",
];

#[test]
fn a_server_that_takes_nothing_holds_up_no_more_than_a_window() {
    let (slow, _heard) = collector::start(false);
    let mut proxy = Proxy::start(&with_sinks(&[("a", METRICS, slow), ("b", OTLP, slow)]), &[]);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    let dropped = || proxy.stat("towpath.stats_sinks.messages_dropped").unwrap_or(0);
    until("dropped", || {
        assert_eq!(exchange(&listener, "GET", "/").unwrap().0, 200);
        dropped() > 0
    });
    proxy.signal("TERM");
    let began = Instant::now();
    proxy.wait();
    assert!(began.elapsed() < Duration::from_secs(5), "nothing waits for it");
}

#[test]
fn entries_of_a_log_leave_by_one_call() {
    let (address, told) = collector::start(true);
    let proxy = Proxy::start(&with_entries(address), &["--concurrency", "1"]);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    for _ in 0..3 {
        assert_eq!(exchange(&listener, "GET", "/").unwrap().0, 200);
    }
    let flushed = || proxy.stat("access_logs.grpc_access_log.grpc_entries_flushed").unwrap_or(0);
    until("flushed", || flushed() == 3);
    let wait = Duration::from_secs(5);
    let told: Vec<Told> = (0..3).map(|_| told.recv_timeout(wait).unwrap()).collect();
    for (number, told) in told.iter().enumerate() {
        assert_eq!(told.path, "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs");
        assert_eq!(told.stream, 1, "the call goes on");
        // The key of the identifier, or of the entries.
        assert_eq!(told.message[0], if number == 0 { 0x0a } else { 0x12 });
    }
}

#[test]
fn entries_that_wait_leave_at_the_end_of_a_drain() {
    let (address, told) = collector::start(true);
    let config =
        with_entries(address).replace("buffer_size_bytes: 1,", "buffer_flush_interval: 2s,");
    let mut proxy = Proxy::start(&config, &["--concurrency", "1"]);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    assert_eq!(exchange(&listener, "GET", "/first").unwrap().0, 200);
    let wait = Duration::from_secs(5);
    assert!(has(&told.recv_timeout(wait).unwrap(), b"/first"), "the call goes on");
    assert_eq!(exchange(&listener, "GET", "/last").unwrap().0, 200);
    proxy.signal("TERM");
    proxy.wait();
    assert!(has(&told.recv_timeout(wait).expect("the last entry"), b"/last"));
}

#[test]
fn spans_and_statistics_that_wait_leave_before_the_process_ends() {
    let (spans, heard_spans) = collector::start(true);
    let (numbers, heard_numbers) = collector::start(true);
    let config = with_sinks(&[("numbers", METRICS, numbers)])
        .replace("stats_flush_interval: 0.5s", "stats_flush_interval: 200s")
        .replace("stat_prefix: ingress\n", TRACED);
    assert!(config.contains("200s") && config.contains("OpenTelemetryConfig"), "{config}");
    let config = format!("{config}{}", cluster(&("spans", "", spans)));
    let mut proxy = Proxy::start(&config, &["--concurrency", "1"]);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    assert_eq!(exchange(&proxy.listener("ingress"), "GET", "/last").unwrap().0, 200);
    let began = Instant::now();
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    assert!(began.elapsed() < Duration::from_secs(4), "what is told is not waited for longer");
    let wait = Duration::from_secs(5);
    let told = heard_spans.recv_timeout(wait).expect("the span of the last request");
    assert_eq!(told.path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert!(has(&told, b"/last"));
    let mut last = Heard::default();
    while let Ok(told) = heard_numbers.recv_timeout(Duration::from_secs(1)) {
        last.take(&told, METRICS);
    }
    assert_eq!(last.values["counter cluster.origin.upstream_rq_200"], 1.0);
}

/// Spans leave five seconds after the first of them.
const TRACED: &str = "stat_prefix: ingress\n          tracing: { provider: { name: otel, typed_config: { \"@type\": \
                      type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig, service_name: s, grpc_service: { \
                      envoy_grpc: { cluster_name: collector-spans } } } } }\n";

fn has(told: &Told, text: &[u8]) -> bool {
    told.message.windows(text.len()).any(|window| window == text)
}

#[test]
fn entries_that_a_server_does_not_take_are_dropped() {
    let (address, _heard) = collector::start(false);
    let proxy = Proxy::start(&with_entries(address), &["--concurrency", "1"]);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    let stat = |name: &str| proxy.stat(&format!("access_logs.grpc_access_log.{name}")).unwrap_or(0);
    until("dropped", || {
        assert_eq!(exchange(&listener, "GET", "/").unwrap().0, 200);
        stat("logs_dropped") > 2
    });
    assert!(stat("grpc_entries_flush_failed") > 2 && stat("logs_written") > 0);
}

fn with_entries(address: SocketAddr) -> String {
    let log = "stat_prefix: ingress\n          access_log: [ { name: entries, typed_config: { \"@type\": \
               type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig, common_config: { \
               log_name: l, buffer_size_bytes: 1, grpc_service: { envoy_grpc: { cluster_name: collector-log } } } } } \
               ]\n";
    let bootstrap = bootstrap(origin(Duration::ZERO)).replace("stat_prefix: ingress\n", log);
    format!("{bootstrap}{}", cluster(&("log", "", address)))
}

#[test]
fn a_server_that_is_not_there_costs_only_what_it_is_told() {
    // Nothing listens there, and nothing else can be given it: a connection has it.
    let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = std::net::TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let gone = connected.local_addr().unwrap();
    let proxy = Proxy::start(&with_sinks(&[("a", METRICS, gone), ("b", OTLP, gone)]), &[]);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    until("dropped", || proxy.stat("towpath.stats_sinks.messages_dropped").unwrap_or(0) > 2);
    assert_eq!(exchange(&proxy.listener("ingress"), "GET", "/").unwrap().0, 200);
    let tries = proxy.stat("cluster.collector-a.upstream_cx_connect_fail").unwrap();
    assert!(tries > 1, "a call that failed is begun anew: {tries}");
}

#[test]
fn what_is_told_to_a_cluster_without_hosts_is_dropped() {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let host = "endpoints: [ { lb_endpoints: [ { endpoint: { address: { socket_address: { address: 127.0.0.1,\n        \
                port_value: 9 } } } } ] } ]";
    let config = with_sinks(&[("a", METRICS, nowhere)]);
    assert!(config.contains(host));
    let proxy = Proxy::start(&config.replace(host, "endpoints: []"), &[]);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    until("dropped", || proxy.stat("towpath.stats_sinks.messages_dropped").unwrap_or(0) > 1);
    assert_eq!(proxy.stat("towpath.stats_sinks.messages_sent").unwrap_or(0), 0);
}

/// What a sink is told of three requests.
#[derive(Debug, Default)]
struct Heard {
    /// Deltas and numbers of values summed, all else as it was last.
    values: BTreeMap<String, f64>,
    /// How points of each kind look.
    shapes: BTreeSet<String>,
    identifiers: Vec<String>,
    /// Names of the resource's attributes.
    attributes: BTreeSet<String>,
    streams: usize,
    messages: usize,
    /// Families or points of the largest message.
    largest: usize,
}

fn told(program: Command, flags: &[&str]) -> BTreeMap<&'static str, Heard> {
    let collectors = SINKS.map(|(name, fields)| (name, fields, collector::start(true)));
    let sinks: Vec<_> =
        collectors.iter().map(|(name, fields, (address, _))| (*name, *fields, *address)).collect();
    let proxy = Proxy::run(program, Scratch::new(), &with_sinks(&sinks), flags);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    for _ in 0..3 {
        assert_eq!(exchange(&listener, "GET", "/").unwrap().0, 200);
    }
    std::thread::sleep(Duration::from_secs(3));
    let mut all = BTreeMap::new();
    for (name, fields, (_, receiver)) in &collectors {
        let mut heard = Heard::default();
        let mut streams = BTreeSet::new();
        while let Ok(told) = receiver.try_recv() {
            streams.insert(told.stream);
            heard.messages += 1;
            heard.take(&told, fields);
        }
        heard.streams = streams.len();
        all.insert(*name, heard);
    }
    all
}

impl Heard {
    fn take(&mut self, told: &Told, fields: &str) {
        match &*told.path {
            "/envoy.service.metrics.v3.MetricsService/StreamMetrics" => {
                let message = StreamMetrics::decode(&told.message[..]).unwrap();
                if let Some(node) = message.identifier.and_then(|it| it.node) {
                    self.identifiers.push(format!("{} {}", node.id, node.cluster));
                }
                self.largest = self.largest.max(message.families.len());
                for family in &message.families {
                    self.family(family, fields.contains("as_deltas: true"));
                }
            }
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => {
                self.export(&Export::decode(&told.message[..]).unwrap(), fields);
            }
            other => panic!("{other}"),
        }
    }

    fn family(&mut self, family: &Family, deltas: bool) {
        let [metric] = &family.metrics[..] else { panic!("{family:?}") };
        assert!(metric.timestamp_ms > 1_700_000_000_000);
        let labels = metric.labels.iter().map(|it| (it.name.clone(), it.value.clone()));
        let kind = family.kind;
        if let Some(counter) = &metric.counter {
            self.shapes.insert(format!("counter {kind:?}"));
            self.note("counter", &family.name, labels, counter.value.unwrap(), deltas);
        } else if let Some(gauge) = &metric.gauge {
            self.shapes.insert(format!("gauge {kind:?}"));
            self.note("gauge", &family.name, labels, gauge.value.unwrap(), false);
        } else if let Some(summary) = &metric.summary {
            let quantiles: Vec<_> = summary.quantiles.iter().map(|it| it.quantile).collect();
            self.shapes.insert(format!("summary {kind:?} {quantiles:?}"));
            if summary.count == 0 {
                let last = summary.quantiles.last().unwrap().value;
                self.shapes.insert(format!("nothing {last}"));
            }
            self.note("summary", &family.name, labels, summary.count as f64, true);
        } else if let Some(histogram) = &metric.histogram {
            let bounds: Vec<_> = histogram.buckets.iter().map(|it| it.bound).collect();
            self.shapes.insert(format!("histogram {kind:?} {bounds:?}"));
            let last = histogram.buckets.last().unwrap().count;
            assert_eq!(last, histogram.count, "{family:?}");
            self.note("histogram", &family.name, labels, histogram.count as f64, true);
        } else {
            panic!("{family:?}");
        }
    }

    fn export(&mut self, export: &Export, fields: &str) {
        let [resource] = &export.resources[..] else { panic!("{export:?}") };
        let names = resource.resource.iter().flat_map(|it| &it.attributes);
        self.attributes.extend(names.map(|pair| pair.key.clone()));
        let [scope] = &resource.scopes[..] else { panic!("{export:?}") };
        self.largest = self.largest.max(scope.metrics.len());
        for metric in &scope.metrics {
            if let Some(gauge) = &metric.gauge {
                let [point] = &gauge.points[..] else { panic!("{metric:?}") };
                assert!(point.at > 0 && point.since == 0);
                self.note(
                    "gauge",
                    &metric.name,
                    pairs(&point.attributes),
                    point.value as f64,
                    false,
                );
            } else if let Some(sum) = &metric.sum {
                let [point] = &sum.points[..] else { panic!("{metric:?}") };
                assert!(point.at > point.since && point.since > 0);
                self.shapes.insert(format!("sum {} {}", sum.temporality, sum.is_monotonic));
                let deltas = fields.contains("report_counters_as_deltas");
                self.note(
                    "sum",
                    &metric.name,
                    pairs(&point.attributes),
                    point.value as f64,
                    deltas,
                );
            } else if let Some(histogram) = &metric.histogram {
                let [point] = &histogram.points[..] else { panic!("{metric:?}") };
                assert!(point.at > point.since && point.since > 0);
                assert_eq!(point.counts.iter().sum::<u64>(), point.count);
                let shape = format!(
                    "histogram {} {:?} {}",
                    histogram.temporality,
                    point.bounds,
                    point.counts.len()
                );
                self.shapes.insert(shape);
                let deltas = fields.contains("report_histograms_as_deltas");
                self.note(
                    "histogram",
                    &metric.name,
                    pairs(&point.attributes),
                    point.count as f64,
                    deltas,
                );
            } else {
                panic!("{metric:?}");
            }
        }
    }

    fn note(
        &mut self,
        kind: &str,
        name: &str,
        labels: impl Iterator<Item = (String, String)>,
        value: f64,
        adds: bool,
    ) {
        let mut labels: Vec<_> = labels.map(|(name, value)| format!(" {name}={value}")).collect();
        labels.sort();
        let slot = self.values.entry(format!("{kind} {name}{}", labels.concat())).or_default();
        *slot = if adds { *slot + value } else { value };
    }
}

fn pairs(all: &[KeyValue]) -> impl Iterator<Item = (String, String)> {
    all.iter().map(|it| (it.key.clone(), it.value.clone().unwrap_or_default().text))
}

fn with_sinks(sinks: &[(&str, &str, SocketAddr)]) -> String {
    let sink = |(name, fields, _): &(&str, &str, SocketAddr)| {
        let (kind, version) = if name.starts_with("otlp") || *fields == OTLP {
            ("envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig", "")
        } else {
            ("envoy.config.metrics.v3.MetricsServiceConfig", "transport_api_version: V3, ")
        };
        let version = if fields.contains("transport") { "" } else { version };
        format!(
            "- name: {name}\n  typed_config: {{ \"@type\": type.googleapis.com/{kind}, {version}{fields}, \
             grpc_service: {{ envoy_grpc: {{ cluster_name: collector-{name} }} }} }}\n"
        )
    };
    let all: String = sinks.iter().map(sink).collect();
    let clusters: String = sinks.iter().map(cluster).collect();
    format!(
        "stats_flush_interval: 0.5s\nstats_config: {{ stats_tags: [ {{ tag_name: my.tag, fixed_value: v }} ] }}\n\
         stats_sinks:\n{all}{}{clusters}",
        bootstrap(origin(Duration::ZERO))
    )
}

fn cluster((name, _, address): &(&str, &str, SocketAddr)) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        r#"  - name: collector-{name}
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: collector-{name}
      endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {{ socket_address: {{ address: {ip},
        port_value: {port} }} }} }} }} ] }} ]
"#
    )
}
