use std::fmt::Write as _;

use towpath_engine::snapshot::health::Probe;

use super::*;
use crate::load::encoded;

const SPECIFIER: &str = "envoy.service.health.v3.HealthCheckSpecifier";
const PAUSES: &str = "timeout: 1s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1";

fn message(text: &str) -> Bytes {
    encoded(&Source::yaml("specifier", text), SPECIFIER).unwrap()
}

fn plan_after(text: &str, before: &Arc<Snapshot>) -> Result<CheckPlan, String> {
    check_plan(message(text), before, &Options::default())
}

fn plan(text: &str) -> Result<CheckPlan, String> {
    plan_after(text, &Arc::default())
}

/// A check by a GET of `/`.
fn http() -> String {
    format!("{{ {PAUSES}, http_health_check: {{ path: / }} }}")
}

fn at(address: &str, port: u16) -> String {
    format!("address: {{ socket_address: {{ address: {address}, port_value: {port} }} }}")
}

fn cluster(name: &str, checks: &str, endpoints: &str) -> String {
    format!(
        "{{ cluster_name: {name}, health_checks: [ {checks} ], \
         locality_endpoints: [ {{ locality: {{ zone: z }}, endpoints: [ {endpoints} ] }} ] }}"
    )
}

fn of(clusters: &[String]) -> String {
    format!("cluster_health_checks: [ {} ]", clusters.join(", "))
}

#[test]
fn a_cluster_is_checked_by_each_of_its_checks() {
    let checks = format!(
        "{}, {{ {PAUSES}, tcp_health_check: {{}} }}, {{ {PAUSES}, grpc_health_check: {{}} }}, {}",
        http(),
        http()
    );
    let endpoints = format!(
        "{{ {} }}, {{ {}, health_check_config: {{ disable_active_health_check: true }} }}",
        at("127.0.0.1", 1),
        at("127.0.0.1", 2)
    );
    let text = format!("{}\ninterval: 5s", of(&[cluster("app", &checks, &endpoints)]));
    let CheckPlan { interval, clusters, snapshot } = plan(&text).unwrap();
    assert_eq!(interval, Duration::from_secs(5));
    let [cluster] = &clusters[..] else { panic!("{clusters:?}") };
    assert_eq!((&*cluster.name, cluster.checks.len()), ("app", 4));
    let [locality] = &cluster.localities[..] else { panic!("{cluster:?}") };
    assert_eq!(&locality.locality[..], b"\x12\x01z");
    assert_eq!(locality.endpoints, [Address::Ip("127.0.0.1:1".parse().unwrap())]);
    for id in &cluster.checks {
        let made = snapshot.cluster(*id).unwrap();
        assert_eq!((&*made.stat_name, made.endpoints.len()), ("app", 1));
        assert_eq!(made.connect_timeout, Duration::from_secs(1));
        match &made.health_check.as_ref().unwrap().probe {
            Probe::Http(probe) => assert_eq!(&*probe.host, "app"),
            Probe::Grpc(probe) => assert_eq!(&*probe.authority, "app"),
            Probe::Tcp(_) => {}
            Probe::Bolt(_) => panic!("{made:?}"),
        }
    }
}

#[test]
fn clusters_keep_their_ids_and_ids_do_not_run_out() {
    let endpoints = format!("{{ {} }}", at("127.0.0.1", 1));
    let one = |name: &str| cluster(name, &http(), &endpoints);
    let mut before: Arc<Snapshot> = Arc::default();
    let mut ids = HashSet::new();
    for round in 0..20 {
        let text = of(&[one(&format!("new{round}")), one("stays")]);
        let plan = plan_after(&text, &before).unwrap();
        let [new, stays] = &plan.clusters[..] else { panic!("{:?}", plan.clusters) };
        assert_ne!(new.checks, stays.checks);
        ids.insert(stays.checks[0]);
        assert!(plan.snapshot.clusters.len() < 6, "{}", plan.snapshot.clusters.len());
        before = plan.snapshot;
    }
    assert_eq!(ids.len(), 1);
}

#[test]
fn the_manner_is_all_but_the_endpoints() {
    let endpoint = |port| format!("{{ {} }}", at("127.0.0.1", port));
    let manner = |checks: &str, endpoints: &str| {
        plan(&of(&[cluster("app", checks, endpoints)])).unwrap().clusters[0].manner
    };
    let before = manner(&http(), &endpoint(1));
    assert_eq!(manner(&http(), &format!("{}, {}", endpoint(2), endpoint(1))), before);
    assert_ne!(manner(&http().replace("path: /", "path: /x"), &endpoint(1)), before);
    let elsewhere =
        format!("{{ {}, health_check_config: {{ port_value: 9 }} }}", at("127.0.0.1", 1));
    assert_ne!(manner(&http(), &elsewhere), before);
}

#[test]
fn what_has_no_name_is_checked_and_what_has_one_twice_is_checked_once() {
    let endpoints = format!("{{ {} }}", at("\"::1\"", 1));
    let one = |name: &str, path: &str| {
        cluster(name, &http().replace("path: /", &format!("path: {path}")), &endpoints)
    };
    let plan = plan(&of(&[one("''", "/a"), one("''", "/b"), one("app", "/c"), one("app", "/d")]));
    let plan = plan.unwrap();
    let names: Vec<&str> = plan.clusters.iter().map(|cluster| &*cluster.name).collect();
    assert_eq!(names, ["", "", "app"]);
    let paths = plan.clusters.iter().map(|cluster| {
        let made = plan.snapshot.cluster(cluster.checks[0]).unwrap();
        match &made.health_check.as_ref().unwrap().probe {
            Probe::Http(probe) => probe.path.to_string(),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(paths.collect::<Vec<_>>(), ["/a", "/b", "/c"]);
}

#[test]
fn a_cluster_without_checks_has_none() {
    let plan = plan(&of(&[cluster("app", "", &format!("{{ {} }}", at("127.0.0.1", 1)))])).unwrap();
    assert_eq!(plan.clusters[0].checks, []);
    assert_eq!(plan.clusters[0].localities.len(), 1);
}

#[test]
fn what_is_wrong_is_refused_as_a_whole() {
    let good = format!("{{ {} }}", at("127.0.0.1", 1));
    let sds = "{ name: a, match: {}, transport_socket: { name: tls, typed_config: \
        { \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, \
        common_tls_context: { validation_context_sds_secret_config: { name: x, sds_config: \
        { path_config_source: { path: /nowhere } } } } } } }";
    let mut many = String::new();
    for port in 1..=10_001 {
        write!(many, "{{ {} }}, ", at("127.0.0.1", port)).unwrap();
    }
    let cases = [
        (cluster("app", "{ timeout: 1s }", &good), "interval"),
        (cluster("app", &http().replace("path: /", "path: ''"), &good), "path"),
        (cluster("app", &http(), &format!("{{ {} }}", at("localhost", 1))), "IP address"),
        (cluster("app", &http(), "{}"), "IP address"),
        (cluster("app", &format!("{}, {}", http(), http()), &many), "more than 20000"),
        (
            cluster("app", &http().replace("timeout", "event_log_path: /tmp/x, timeout"), &good),
            "no events",
        ),
        (
            cluster("app", &http(), &good).replace(
                "{ cluster_name",
                &format!("{{ transport_socket_matches: [ {sds} ], cluster_name"),
            ),
            "asks for what",
        ),
    ];
    for (bad, why) in cases {
        let fine = cluster("fine", &http(), &good);
        let error = plan(&of(&[fine, bad.clone()])).map(|plan| plan.clusters).unwrap_err();
        assert!(error.contains(why), "{bad:.300}: {error}");
    }
    let garbage = check_plan(Bytes::from_static(b"\x0a\xff"), &Arc::default(), &Options::default());
    assert!(garbage.unwrap_err().starts_with("not a HealthCheckSpecifier"));
    let large = check_plan(vec![0; MOST_BYTES + 1].into(), &Arc::default(), &Options::default());
    assert!(large.unwrap_err().contains("the limit is"));
}
