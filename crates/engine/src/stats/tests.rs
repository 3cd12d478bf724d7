use std::sync::Arc;

use regex::bytes::Regex;

use super::*;
use crate::matcher::StringMatcher;

sets::stats! {
    /// As one filter counts.
    pub(super) CorsStats {
        Counter origin_invalid;
        Counter origin_valid;
    }
}

sets::stats! {
    /// As another does.
    pub(super) CsrfStats {
        Counter request_valid;
    }
}

fn text(registry: &Registry, query: Query) -> String {
    registry.read().text(query).collect()
}

/// Two workers with one cluster, and others around it.
struct World {
    registry: Registry,
    _sets: Vec<Arc<dyn StatSet>>,
}

fn world() -> World {
    let registry = Registry::new();
    let mut sets: Vec<Arc<dyn StatSet>> = Vec::new();
    for worker in 0..2 {
        let cluster: Arc<ClusterStats> = registry.set(worker, Scope::Cluster("c".into()));
        cluster.upstream_cx_total.add(2);
        cluster.upstream_cx_active.inc();
        cluster.membership_total.set(0);
        cluster.upstream_rq.count(200);
        cluster.upstream_rq.count(503);
        cluster.external_upstream_rq.count(200);
        cluster.upstream_cx_length_ms.record(305);
        let http: Arc<HttpStats> = registry.set(worker, Scope::Http("in".into()));
        http.downstream_rq_2xx.inc();
        sets.extend([cluster as Arc<dyn StatSet>, http]);
    }
    let nested: Arc<ClusterStats> = registry.set(0, Scope::Cluster("c.membership".into()));
    nested.upstream_rq_total.inc();
    let dashed: Arc<ClusterStats> = registry.set(0, Scope::Cluster("c-d".into()));
    let server: Arc<ServerStats> = registry.set(u32::MAX, Scope::Server);
    server.state.set(0);
    let listener: Arc<ListenerHttpStats> =
        registry.set(0, Scope::ListenerHttp { listener: "0.0.0.0_80".into(), prefix: "in".into() });
    listener.downstream_rq_5xx.add(3);
    sets.extend([nested as Arc<dyn StatSet>, dashed, server, listener]);
    World { registry, _sets: sets }
}

fn used() -> Query {
    Query { used_only: true, ..Query::default() }
}

#[test]
fn what_was_used_is_listed_in_order_and_summed() {
    let world = world();
    assert_eq!(
        text(&world.registry, used()),
        "cluster.c.external.upstream_rq_200: 2\n\
         cluster.c.external.upstream_rq_2xx: 2\n\
         cluster.c.external.upstream_rq_completed: 2\n\
         cluster.c.membership.upstream_rq_total: 1\n\
         cluster.c.membership_total: 0\n\
         cluster.c.upstream_cx_active: 2\n\
         cluster.c.upstream_cx_total: 4\n\
         cluster.c.upstream_rq_200: 2\n\
         cluster.c.upstream_rq_2xx: 2\n\
         cluster.c.upstream_rq_503: 2\n\
         cluster.c.upstream_rq_5xx: 2\n\
         cluster.c.upstream_rq_completed: 4\n\
         http.in.downstream_rq_2xx: 2\n\
         listener.0.0.0.0_80.http.in.downstream_rq_5xx: 3\n\
         server.state: 0\n\
         cluster.c.upstream_cx_length_ms: P0(nan,303.3333333333333) P25(nan,303.3333333333333) \
         P50(nan,303.3333333333333) P75(nan,306.6666666666667) P90(nan,306.6666666666667) \
         P95(nan,306.6666666666667) P99(nan,306.6666666666667) P99.5(nan,306.6666666666667) \
         P99.9(nan,306.6666666666667) P100(nan,306.6666666666667)\n"
    );
}

#[test]
fn everything_is_listed_in_the_order_of_names() {
    let world = world();
    let all = text(&world.registry, Query::default());
    let numbers: Vec<_> = all
        .lines()
        .take_while(|line| !line.ends_with("No recorded values") && !line.contains("P0("))
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    assert!(numbers.len() > 220, "{}", numbers.len());
    assert!(numbers.is_sorted());
    assert!(all.contains("\ncluster.c-d.upstream_rq_time: No recorded values\n"));
}

#[test]
fn filters_and_types_choose() {
    let world = world();
    let filter = Some(Regex::new("^server|cx_active$").unwrap());
    let query = Query { filter, kind: Some(Kind::Gauges), used_only: true, ..Query::default() };
    assert_eq!(text(&world.registry, query), "cluster.c.upstream_cx_active: 2\nserver.state: 0\n");
    let query = Query { kind: Some(Kind::TextReadouts), ..Query::default() };
    assert_eq!(text(&world.registry, query), "");
}

#[test]
fn an_interval_is_what_came_between_two_flushes() {
    let world = world();
    world.registry.flush();
    let query = || Query { filter: Some(Regex::new("length_ms").unwrap()), ..used() };
    assert!(text(&world.registry, query()).contains("P0(303.3333333333333,303.3333333333333)"));
    world.registry.flush();
    assert!(text(&world.registry, query()).contains("P0(nan,303.3333333333333)"));
}

#[test]
fn json_has_envoys_shape() {
    let world = world();
    let filter = Regex::new("cx_total|length_ms").unwrap();
    let query = Query { filter: Some(filter), ..used() };
    let json: String = world.registry.read().json(query).collect();
    let value = r#"{"cumulative":303.3333333333333,"interval":null}"#;
    assert!(json.starts_with(concat!(
        r#"{"stats":[{"name":"cluster.c.upstream_cx_total","value":4},{"histograms":"#,
        r#"{"supported_quantiles":[0,25,50,75,90,95,99,99.5,99.9,100],"computed_quantiles":["#,
        r#"{"name":"cluster.c.upstream_cx_length_ms","values":["#
    )));
    assert!(json.contains(value));
    assert!(json.ends_with("}]}]}}]}"));
    let nothing = Query { filter: Some(Regex::new("^$").unwrap()), ..used() };
    assert_eq!(world.registry.read().json(nothing).collect::<String>(), r#"{"stats":[]}"#);
}

#[test]
fn prometheus_has_envoys_families_and_labels() {
    let world = world();
    let page: String = world.registry.read().prometheus(used()).collect();
    let (numbers, histogram) =
        page.split_once("# TYPE envoy_cluster_upstream_cx_length_ms").unwrap();
    assert_eq!(
        numbers,
        r#"# TYPE envoy_cluster_external_upstream_rq counter
envoy_cluster_external_upstream_rq{envoy_response_code="200",envoy_cluster_name="c"} 2
# TYPE envoy_cluster_external_upstream_rq_completed counter
envoy_cluster_external_upstream_rq_completed{envoy_cluster_name="c"} 2
# TYPE envoy_cluster_external_upstream_rq_xx counter
envoy_cluster_external_upstream_rq_xx{envoy_response_code_class="2",envoy_cluster_name="c"} 2
# TYPE envoy_cluster_upstream_cx_total counter
envoy_cluster_upstream_cx_total{envoy_cluster_name="c"} 4
# TYPE envoy_cluster_upstream_rq counter
envoy_cluster_upstream_rq{envoy_response_code="200",envoy_cluster_name="c"} 2
envoy_cluster_upstream_rq{envoy_response_code="503",envoy_cluster_name="c"} 2
# TYPE envoy_cluster_upstream_rq_completed counter
envoy_cluster_upstream_rq_completed{envoy_cluster_name="c"} 4
# TYPE envoy_cluster_upstream_rq_total counter
envoy_cluster_upstream_rq_total{envoy_cluster_name="c.membership"} 1
# TYPE envoy_cluster_upstream_rq_xx counter
envoy_cluster_upstream_rq_xx{envoy_response_code_class="2",envoy_cluster_name="c"} 2
envoy_cluster_upstream_rq_xx{envoy_response_code_class="5",envoy_cluster_name="c"} 2
# TYPE envoy_http_downstream_rq_xx counter
envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="in"} 2
# TYPE envoy_listener_http_downstream_rq_xx counter
envoy_listener_http_downstream_rq_xx{envoy_response_code_class="5",envoy_http_conn_manager_prefix="in"
    ,envoy_listener_address="0.0.0.0_80"} 3
# TYPE envoy_cluster_membership_total gauge
envoy_cluster_membership_total{envoy_cluster_name="c"} 0
# TYPE envoy_cluster_upstream_cx_active gauge
envoy_cluster_upstream_cx_active{envoy_cluster_name="c"} 2
# TYPE envoy_server_state gauge
envoy_server_state{} 0
"#
        .replace("\n    ", "")
    );
    assert!(histogram.starts_with(
        " histogram\nenvoy_cluster_upstream_cx_length_ms_bucket{envoy_cluster_name=\"c\",le=\"0.5\"} 0\n"
    ));
    for line in [
        "_bucket{envoy_cluster_name=\"c\",le=\"250\"} 0\n",
        "_bucket{envoy_cluster_name=\"c\",le=\"500\"} 2\n",
        "_bucket{envoy_cluster_name=\"c\",le=\"3600000\"} 2\n",
        "_bucket{envoy_cluster_name=\"c\",le=\"+Inf\"} 2\n",
        "_sum{envoy_cluster_name=\"c\"} 609.8360655737705\n",
        "_count{envoy_cluster_name=\"c\"} 2\n",
    ] {
        assert!(histogram.contains(line), "{line}{histogram}");
    }
}

#[test]
fn prometheus_has_labels_for_classes_of_requests_and_for_handshakes_alone() {
    let registry = Registry::new();
    let outliers: Arc<OutlierStats> = registry.set(0, Scope::ClusterOutliers("c".into()));
    outliers.consecutive_5xx.inc();
    outliers.detected_consecutive_5xx.inc();
    outliers.enforced_consecutive_5xx.inc();
    let tls: Arc<TlsStats> = registry.set(0, Scope::ClusterTls("c".into()));
    tls.cipher_rsa_aes128.inc();
    tls.group_x25519.inc();
    tls.version_tls12.inc();
    let page: String = registry.read().prometheus(used()).collect();
    let samples: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        samples,
        [
            r#"envoy_cluster_outlier_detection_ejections_consecutive_5xx{envoy_cluster_name="c"} 1"#,
            r#"envoy_cluster_outlier_detection_ejections_detected_consecutive_5xx{envoy_cluster_name="c"} 1"#,
            r#"envoy_cluster_outlier_detection_ejections_enforced_consecutive_5xx{envoy_cluster_name="c"} 1"#,
            r#"envoy_cluster_ssl_ciphers{cipher_suite="ECDHE-RSA-AES128-GCM-SHA256",envoy_cluster_name="c"} 1"#,
            r#"envoy_cluster_ssl_curves{envoy_ssl_curve="X25519",envoy_cluster_name="c"} 1"#,
            r#"envoy_cluster_ssl_versions{envoy_ssl_version="TLSv1.2",envoy_cluster_name="c"} 1"#,
        ]
    );
}

#[test]
fn each_family_is_typed_once_and_streams_in_chunks() {
    let registry = Registry::new();
    let clusters: Vec<Arc<ClusterStats>> =
        (0..200).map(|n| registry.set(0, Scope::Cluster(format!("cluster-{n}").into()))).collect();
    clusters[0].upstream_rq_total.inc();
    let chunks: Vec<String> = registry.read().prometheus(Query::default()).collect();
    assert!(chunks.len() > 20 && chunks.iter().all(|chunk| chunk.len() < 32 * 1024));
    let page = chunks.concat();
    let mut types: Vec<_> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let before = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), before);
    assert_eq!(page.matches("envoy_cluster_upstream_rq_total{").count(), 200);
    assert!(registry.read().text(Query::default()).all(|chunk| chunk.len() < 32 * 1024));
}

/// What was written for one scope is not taken for another: other buckets, no labels, labels of the command line.
#[test]
fn each_histogram_has_its_own_buckets_and_labels() {
    for (labels, own) in
        [(Vec::new(), ""), (vec![("zone".to_owned(), "z\"1".to_owned())], r#"zone="z\"1""#)]
    {
        let odd = StringMatcher::exact("cluster.b.upstream_rq_time", false);
        let rules = Rules { buckets: vec![(odd, vec![2.5, 10.0])], ..Rules::default() };
        let registry = Registry::configured(labels, rules);
        let clusters: [Arc<ClusterStats>; 3] =
            ["a", "b", "c"].map(|name| registry.set(0, Scope::Cluster(name.into())));
        clusters.iter().for_each(|it| it.upstream_rq_time.record(7));
        let server: Arc<ServerStats> = registry.set(1, Scope::Server);
        server.initialization_time_ms.record(7);
        let usual = &prometheus::BUCKETS[..];
        let parts = [
            "# TYPE envoy_cluster_upstream_rq_time histogram\n".to_owned(),
            of_a_seven("envoy_cluster_upstream_rq_time", &[own, "envoy_cluster_name=\"a\""], usual),
            of_a_seven(
                "envoy_cluster_upstream_rq_time",
                &[own, "envoy_cluster_name=\"b\""],
                &[2.5, 10.0],
            ),
            of_a_seven("envoy_cluster_upstream_rq_time", &[own, "envoy_cluster_name=\"c\""], usual),
            "# TYPE envoy_server_initialization_time_ms histogram\n".to_owned(),
            of_a_seven("envoy_server_initialization_time_ms", &[own], usual),
        ];
        let histograms = Query { kind: Some(Kind::Histograms), ..used() };
        assert_eq!(registry.read().prometheus(histograms).collect::<String>(), parts.concat());
    }
}

/// What a histogram says in which one 7 was recorded.
fn of_a_seven(family: &str, labels: &[&str], limits: &[f64]) -> String {
    let labels: Vec<&str> = labels.iter().copied().filter(|label| !label.is_empty()).collect();
    let bucket = |limit: String, count: u8| {
        let limit = format!("le=\"{limit}\"");
        let labels = [&labels[..], &[&limit]].concat().join(",");
        format!("{family}_bucket{{{labels}}} {count}\n")
    };
    let buckets = limits.iter().map(|limit| bucket(limit.to_string(), u8::from(*limit > 7.0)));
    let buckets = buckets.chain([bucket("+Inf".to_owned(), 1)]).collect::<String>();
    let labels = labels.join(",");
    format!(
        "{buckets}{family}_sum{{{labels}}} {}\n{family}_count{{{labels}}} 1\n",
        7.049_645_390_070_921_f64
    )
}

#[test]
fn labels_are_escaped() {
    let registry = Registry::new();
    let cluster: Arc<ClusterStats> = registry.set(0, Scope::Cluster("a\"b\\c\nd".into()));
    cluster.upstream_rq_total.inc();
    let page: String = registry.read().prometheus(used()).collect();
    assert!(page.contains(r#"{envoy_cluster_name="a\"b\\c\nd"} 1"#));
}

#[test]
fn a_worker_has_one_set_of_a_scope_and_it_goes_with_its_last_owner() {
    let registry = Registry::new();
    let scope = || Scope::Tcp("t".into());
    let one: Arc<TcpStats> = registry.set(0, scope());
    let same: Arc<TcpStats> = registry.set(0, scope());
    let other: Arc<TcpStats> = registry.set(1, scope());
    assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
    one.downstream_cx_total.inc();
    other.downstream_cx_total.inc();
    assert_eq!(registry.read().number("tcp.t.downstream_cx_total"), Some(2));
    drop((one, same));
    assert_eq!(registry.read().number("tcp.t.downstream_cx_total"), Some(1));
    drop(other);
    assert_eq!(registry.read().number("tcp.t.downstream_cx_total"), None);
}

#[test]
fn readers_do_not_disturb_a_writer() {
    let registry = Registry::new();
    let cluster: Arc<ClusterStats> = registry.set(0, Scope::Cluster("c".into()));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 0;
            while last < 100_000 {
                let now = registry.read().number("cluster.c.upstream_rq_total").unwrap();
                assert!(now >= last);
                last = now;
            }
        });
        for _ in 0..100_000 {
            cluster.upstream_rq_total.inc();
            cluster.upstream_rq_time.record(3);
            cluster.upstream_rq.count(200);
        }
        reader.join().unwrap();
    });
    assert_eq!(registry.read().number("cluster.c.upstream_rq_200"), Some(100_000));
}

#[test]
fn prometheus_has_every_filter_of_every_manager_once() {
    let registry = Registry::new();
    let of = |manager: &'static str, family| Scope::Filter {
        names: FilterNames::new(family, manager)
            .label("envoy_http_conn_manager_prefix", &manager.into()),
        of: std::any::TypeId::of::<()>(),
    };
    let cors = ["a", "b"].map(|prefix| registry.set::<CorsStats>(0, of(prefix, "http_cors")));
    let csrf = ["a", "b"].map(|prefix| registry.set::<CsrfStats>(0, of(prefix, "http_csrf")));
    cors[1].origin_valid.add(2);
    csrf[0].request_valid.add(3);
    let all: String = registry.read().prometheus(used()).collect();
    assert_eq!(
        all,
        "# TYPE envoy_http_cors_origin_valid counter\n\
         envoy_http_cors_origin_valid{envoy_http_conn_manager_prefix=\"b\"} 2\n\
         # TYPE envoy_http_csrf_request_valid counter\n\
         envoy_http_csrf_request_valid{envoy_http_conn_manager_prefix=\"a\"} 3\n"
    );
}

#[test]
fn a_metric_of_istio_has_no_prefix_in_prometheus() {
    let registry = Registry::new();
    let scope = |reporter: &str| {
        let labels: Labels = [("reporter", reporter.into()), ("source_app", "".into())].into();
        Scope::Istio { metric: crate::mesh::IstioMetric::Requests, labels }
    };
    let sets = ["source", "destination"]
        .map(|reporter| registry.lasting::<IstioCounter>(0, scope(reporter)).unwrap());
    sets[0].0.add(4);
    let again = registry.lasting::<IstioCounter>(0, scope("source")).unwrap();
    assert!(Arc::ptr_eq(&sets[0], &again));
    drop((sets, again));
    let all: String = registry.read().prometheus(used()).collect();
    assert_eq!(
        all,
        "# TYPE istio_requests_total counter\n\
         istio_requests_total{reporter=\"source\",source_app=\"\"} 4\n"
    );
    let text: String = registry.read().text(used()).collect();
    assert_eq!(text, "istiocustom.istio_requests_total.reporter.source.source_app.: 4\n");
}

#[test]
fn a_host_of_a_cluster_has_its_address_in_a_label() {
    let registry = Registry::new();
    let scope = Scope::ClusterEndpoint { cluster: "c".into(), address: "10.0.0.1:80".into() };
    let host: Arc<EndpointStats> = registry.set(0, scope);
    host.rq_total.inc();
    assert_eq!(text(&registry, used()), "cluster.c.endpoint.10.0.0.1_80.rq_total: 1\n");
    let all: String = registry.read().prometheus(used()).collect();
    assert_eq!(
        all,
        "# TYPE envoy_cluster_endpoint_rq_total counter\n\
         envoy_cluster_endpoint_rq_total{envoy_cluster_name=\"c\",envoy_endpoint_address=\"10.0.0.1:80\"} 1\n"
    );
}
