//! A control plane in charge of the program.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod beside;
mod collections;
#[path = "../common/mod.rs"]
mod common;
mod control_plane;
mod disk_layers;
mod extensions;
mod files;
mod go_control_plane;
mod google_grpc;
mod health_discovery;
mod load_reports;
mod runtime;
mod secrets;
mod sidecar;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use common::{Proxy, Scratch, exchange, origin, until};
use control_plane::{ControlPlane, Place};
use towpath_xds::Type;

/// Both forms of the protocol.
const FORMS: [&str; 2] = ["GRPC", "DELTA_GRPC"];

fn bootstrap(control_plane: &str, form: &str) -> String {
    format!(
        r#"
node: {{ id: test-id, cluster: tests, metadata: {{ key: [ 1, {{ inner: yes }} ] }} }}
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
dynamic_resources:
  ads_config:
    api_type: {form}
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services: [ {{ envoy_grpc: {{ cluster_name: xds }} }} ]
  cds_config: {{ ads: {{}}, resource_api_version: V3, initial_fetch_timeout: TIMEOUT }}
  lds_config: {{ ads: {{}}, resource_api_version: V3, initial_fetch_timeout: TIMEOUT }}
static_resources:
  clusters:
  - name: xds
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: xds
      endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {control_plane} }} }} ] }} ]
"#
    )
    .replace("TIMEOUT", "0s")
}

fn tcp(at: SocketAddr) -> String {
    format!("{{ socket_address: {{ address: {}, port_value: {} }} }}", at.ip(), at.port())
}

fn cluster(name: &str) -> String {
    format!(
        "{{ name: {name}, type: EDS, connect_timeout: 1s, \
         circuit_breakers: {{ thresholds: [ {{ max_connections: 7 }} ] }}, \
         eds_cluster_config: {{ eds_config: {{ ads: {{}}, initial_fetch_timeout: 0s }} }} }}"
    )
}

fn endpoints(name: &str, at: SocketAddr) -> String {
    format!(
        "{{ cluster_name: {name}, endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {} }} }} ] }} ] }}",
        tcp(at)
    )
}

fn listener(name: &str, at: &str, table: &str) -> String {
    format!(
        r#"
name: {name}
address: {at}
filter_chains:
- filters:
  - name: http
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: {name}
      rds: {{ route_config_name: {table}, config_source: {{ ads: {{}}, initial_fetch_timeout: 0s }} }}
      http_filters:
      - name: router
        typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
"#
    )
}

const ANY_PORT: &str = "{ socket_address: { address: 127.0.0.1, port_value: 0 } }";

fn routes(table: &str, action: &str) -> String {
    format!(
        r#"{{ name: {table}, virtual_hosts: [ {{ name: all, domains: ["*"],
             routes: [ {{ match: {{ prefix: "/" }}, {action} }} ] }} ] }}"#
    )
}

/// A control plane with one of each.
fn planned(origin: SocketAddr) -> ControlPlane {
    let plane = ControlPlane::start();
    fill(&plane, origin);
    plane
}

fn fill(plane: &ControlPlane, origin: SocketAddr) {
    plane.set(Type::Cluster, "c1", &[("app", &cluster("app"))]);
    plane.set(Type::Endpoints, "e1", &[("app", &endpoints("app", origin))]);
    plane.set(Type::Listener, "l1", &[("web", &listener("web", ANY_PORT, "table"))]);
    plane.set(Type::Routes, "r1", &[("table", &routes("table", "route: { cluster: app }"))]);
}

fn ask(proxy: &Proxy, listener: &str) -> (u16, String) {
    exchange(&proxy.listener(listener), "GET", "/").unwrap()
}

/// Waits until a kind's last answer was an ACK of this version, or with delta an ACK at all.
fn acked(plane: &ControlPlane, kind: Type, version: &str) {
    until(&format!("{kind:?} {version} is acknowledged"), || {
        plane
            .last(kind)
            .is_some_and(|said| said.is_answer && said.error.is_none() && said.version == version)
    });
}

fn nack(plane: &ControlPlane, kind: Type) -> String {
    let mut error = None;
    until("it is not acknowledged", || {
        error = plane.last(kind).and_then(|said| said.error);
        error.is_some()
    });
    error.unwrap()
}

#[test]
fn the_thread_that_takes_updates_lets_all_others_go_first() {
    let plane = planned(origin(Duration::ZERO));
    let proxy = Proxy::start(&bootstrap(&tcp(plane.address), "DELTA_GRPC"), &[]);
    until("it gives way", || {
        let (discovery, process) = proxy.niceness("discovery");
        discovery == [(process + 10).min(19)]
    });
    let process = proxy.niceness("discovery").1;
    assert_eq!(proxy.niceness("worker-0").0, [process]);
}

#[test]
fn what_a_control_plane_sends_serves() {
    for form in FORMS {
        let plane = planned(origin(Duration::ZERO));
        let proxy = Proxy::start(&bootstrap(&tcp(plane.address), form), &[]);
        assert_eq!(ask(&proxy, "web"), (200, "hello".to_owned()), "{form}");
        let (_, clusters) = proxy.get("/clusters");
        for line in [
            "app::added_via_api::true",
            "xds::added_via_api::false",
            "app::default_priority::max_connections::7",
        ] {
            assert!(clusters.lines().any(|one| one == line), "{form}: {clusters}");
        }
        for (kind, version) in [
            (Type::Cluster, "c1"),
            (Type::Endpoints, "e1"),
            (Type::Listener, "l1"),
            (Type::Routes, "r1"),
        ] {
            acked(&plane, kind, version);
        }
        // Endpoints are asked for before their clusters are acknowledged, listeners after clusters.
        let order: Vec<(Type, bool)> =
            plane.said().iter().map(|said| (said.kind, said.is_answer)).collect();
        let at = |wanted| order.iter().position(|it| *it == wanted).unwrap();
        assert!(at((Type::Endpoints, false)) < at((Type::Cluster, true)), "{form}: {order:?}");
        assert!(at((Type::Cluster, true)) < at((Type::Listener, false)), "{form}: {order:?}");
        assert!(at((Type::Routes, false)) < at((Type::Listener, true)), "{form}: {order:?}");
        let with_node = plane.said().iter().filter(|said| said.has_node).count();
        assert_eq!(with_node, 1, "{form}: the node goes with the first request only");
        let node = String::from_utf8_lossy(&plane.node()).into_owned();
        for text in ["test-id", "tests", "inner", "towpath"] {
            assert!(node.contains(text), "{form}: {node}");
        }
        // Another origin, by endpoints alone.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = silent.local_addr().unwrap();
        drop(silent);
        plane.set(Type::Endpoints, "e2", &[("app", &endpoints("app", dead))]);
        until("the new endpoints", || ask(&proxy, "web").0 == 503);
        // Other routes, on the same listener.
        let at = proxy.listener("web");
        plane.set(
            Type::Routes,
            "r2",
            &[("table", &routes("table", "direct_response: { status: 418 }"))],
        );
        until("the new routes", || ask(&proxy, "web").0 == 418);
        assert_eq!(proxy.listener("web"), at);
        // They are counted when they serve.
        until("the count", || proxy.stat("http.web.rds.table.update_success") == Some(2));
        assert_eq!(proxy.stat("cluster.app.update_success"), Some(2), "{form}");
        assert_eq!(proxy.stat("cluster_manager.cds.update_success"), Some(1), "{form}");
        assert_eq!(proxy.stat("listener_manager.lds.update_success"), Some(1), "{form}");
        assert_eq!(proxy.stat("control_plane.connected_state"), Some(1), "{form}");
        // Without listeners nothing is served.
        plane.set(Type::Listener, "l2", &[]);
        until("the listener is gone", || exchange(&at, "GET", "/").is_err());
        assert_eq!(proxy.stat("listener_manager.total_listeners_active"), Some(0), "{form}");
    }
}

#[test]
fn hosts_are_checked_though_the_bootstrap_has_no_checks() {
    for form in FORMS {
        let plane = planned(origin(Duration::ZERO));
        let checks = ", health_checks: [ { timeout: 1s, interval: 0.1s, no_traffic_interval: 0.1s, \
                      unhealthy_threshold: 1, healthy_threshold: 1, http_health_check: { path: / } } ], \
                      common_lb_config: { healthy_panic_threshold: {} } }";
        let checked = cluster("app");
        let checked = format!("{}{checks}", checked.strip_suffix(" }").unwrap());
        plane.set(Type::Cluster, "c1", &[("app", &checked)]);
        let proxy = Proxy::start(&bootstrap(&tcp(plane.address), form), &[]);
        until("it is healthy", || ask(&proxy, "web").0 == 200);
        let attempts = || proxy.stat("cluster.app.health_check.attempt").unwrap_or(0);
        until("it is checked again", || attempts() > 1);
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = silent.local_addr().unwrap();
        drop(silent);
        plane.set(Type::Endpoints, "e2", &[("app", &endpoints("app", dead))]);
        let flag = format!("app::{dead}::health_flags::/failed_active_hc");
        until("the new host fails", || proxy.get("/clusters").1.lines().any(|it| it == flag));
    }
}

#[test]
fn the_start_waits_for_each_kind_in_its_turn() {
    let plane = ControlPlane::start();
    let proxy = Proxy::launch(Scratch::new(), &bootstrap(&tcp(plane.address), "GRPC"), &[]);
    let state = || proxy.get("/ready").1;
    until("clusters are asked for", || plane.last(Type::Cluster).is_some());
    assert_eq!(state(), "PRE_INITIALIZING\n");
    plane.set(Type::Cluster, "c1", &[("app", &cluster("app"))]);
    acked(&plane, Type::Cluster, "c1");
    assert_eq!(plane.last(Type::Endpoints).unwrap().names, ["app".to_owned()].into());
    assert_eq!(state(), "PRE_INITIALIZING\n", "its endpoints are missing");
    let (_, dump) = proxy.get("/config_dump?resource=dynamic_warming_clusters&mask=cluster.name");
    assert!(dump.contains("\"app\""), "{dump}");
    assert!(plane.last(Type::Listener).is_none(), "listeners are not asked for yet");
    plane.set(Type::Endpoints, "e1", &[("app", &endpoints("app", origin(Duration::ZERO)))]);
    until("listeners are asked for", || plane.last(Type::Listener).is_some());
    until("the next state", || state() == "INITIALIZING\n");
    plane.set(Type::Listener, "l1", &[("web", &listener("web", ANY_PORT, "table"))]);
    acked(&plane, Type::Listener, "l1");
    assert_eq!(state(), "INITIALIZING\n", "its routes are missing");
    assert_eq!(proxy.stat("listener_manager.workers_started"), Some(0));
    plane.set(Type::Routes, "r1", &[("table", &routes("table", "route: { cluster: app }"))]);
    until("it is live", || state() == "LIVE\n");
    assert_eq!(ask(&proxy, "web").0, 200);
    // A listener that is new waits for its routes, and the others serve meanwhile.
    plane.set(
        Type::Listener,
        "l2",
        &[
            ("web", &listener("web", ANY_PORT, "table")),
            ("more", &listener("more", ANY_PORT, "late")),
        ],
    );
    acked(&plane, Type::Listener, "l2");
    assert!(!proxy.get("/listeners").1.contains("more"));
    let (_, dump) = proxy.get("/config_dump?resource=dynamic_listeners&name_regex=more");
    assert!(dump.contains("warming_state") && !dump.contains("active_state"), "{dump}");
    let teapot = routes("late", "direct_response: { status: 418 }");
    plane.set(
        Type::Routes,
        "r2",
        &[("table", &routes("table", "route: { cluster: app }")), ("late", &teapot)],
    );
    until("the other listener", || proxy.get("/listeners").1.contains("more"));
    assert_eq!((ask(&proxy, "more").0, ask(&proxy, "web").0), (418, 200));
}

#[test]
fn a_bad_resource_is_named_and_the_good_ones_serve() {
    for form in FORMS {
        let plane = planned(origin(Duration::ZERO));
        let proxy = Proxy::start(&bootstrap(&tcp(plane.address), form), &[]);
        let bad = "{ name: bad, type: STATIC, upstream_config: { name: a, typed_config: { \"@type\": \
                   type.googleapis.com/google.protobuf.StringValue } }, connect_timeout: -1s }";
        let other = "{ name: other, type: STATIC }";
        plane.set(Type::Cluster, "c2", &[("app", &cluster("app")), ("bad", bad), ("other", other)]);
        let error = nack(&plane, Type::Cluster);
        assert!(error.contains("bad: connect_timeout: "), "{form}: {error}");
        assert!(error.contains("upstream_config: "), "{form}: {error}");
        assert!(!error.contains("other") && !error.contains("app"), "{form}: {error}");
        let clusters = || proxy.get("/clusters").1;
        until("the good one", || clusters().contains("other::"));
        assert!(!clusters().contains("bad::"), "{form}");
        assert_eq!(ask(&proxy, "web").0, 200, "{form}");
        assert_eq!(proxy.stat("cluster_manager.cds.update_rejected"), Some(1), "{form}");
        // The last good routes stay.
        plane.set(
            Type::Routes,
            "r2",
            &[("table", &routes("table", "route: { cluster: app, timeout: -2s }"))],
        );
        let error = nack(&plane, Type::Routes);
        assert!(
            error.contains("table: virtual_hosts[0].routes[0].route.timeout"),
            "{form}: {error}"
        );
        assert_eq!(ask(&proxy, "web").0, 200, "{form}");
        // And a good one after it is taken.
        plane.set(
            Type::Routes,
            "r3",
            &[("table", &routes("table", "direct_response: { status: 418 }"))],
        );
        until("the good routes", || ask(&proxy, "web").0 == 418);
        acked(&plane, Type::Routes, "r3");
    }
}

#[test]
fn a_listener_that_cannot_be_opened_is_named() {
    let plane = planned(origin(Duration::ZERO));
    let proxy = Proxy::start(&bootstrap(&tcp(plane.address), "GRPC"), &[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = tcp(taken.local_addr().unwrap());
    plane.set(
        Type::Listener,
        "l2",
        &[
            ("more", &listener("more", ANY_PORT, "table")),
            ("taken", &listener("taken", &at, "table")),
            ("web", &listener("web", ANY_PORT, "table")),
        ],
    );
    let error = nack(&plane, Type::Listener);
    assert!(error.contains("taken: ") && error.contains("cannot bind"), "{error}");
    until("the good one", || proxy.get("/listeners").1.contains("more::"));
    assert_eq!((ask(&proxy, "web").0, ask(&proxy, "more").0), (200, 200));
    let (_, dump) = proxy.get("/config_dump?resource=dynamic_listeners&name_regex=taken");
    assert!(dump.contains("error_state") && dump.contains("cannot bind"), "{dump}");
    // What never served is nothing when it is sent no more.
    plane.set(Type::Listener, "l3", &[("web", &listener("web", ANY_PORT, "table"))]);
    acked(&plane, Type::Listener, "l3");
    until("it is shown no more", || !proxy.get("/config_dump").1.contains("cannot bind"));
}

#[test]
fn what_serves_stays_while_the_control_plane_is_away() {
    for form in FORMS {
        let target = origin(Duration::ZERO);
        let plane = planned(target);
        let address = plane.address;
        let proxy = Proxy::start(&bootstrap(&tcp(address), form), &[]);
        drop(plane);
        until("it notices", || proxy.stat("control_plane.connected_state") == Some(0));
        assert_eq!(ask(&proxy, "web").0, 200, "{form}");
        let again = ControlPlane::start_at(Place::Tcp(address));
        fill(&again, target);
        until("it comes back", || again.streams() > 0);
        until("all kinds are asked for", || {
            [Type::Cluster, Type::Endpoints, Type::Listener, Type::Routes]
                .iter()
                .all(|kind| again.last(*kind).is_some())
        });
        let said = again.said();
        let first = |kind| said.iter().find(|said| said.kind == kind).unwrap();
        if form == "GRPC" {
            assert_eq!(first(Type::Cluster).version, "c1");
            assert_eq!(first(Type::Routes).version, "r1");
        } else {
            assert_eq!(first(Type::Cluster).known["app"], "c1");
            assert_eq!(first(Type::Endpoints).known["app"], "e1");
        }
        assert_eq!(first(Type::Routes).names, ["table".to_owned()].into());
        again.set(
            Type::Routes,
            "r9",
            &[("table", &routes("table", "direct_response: { status: 418 }"))],
        );
        until("the new routes", || ask(&proxy, "web").0 == 418);
        assert!(proxy.stat("cluster_manager.cds.update_failure") >= Some(1), "{form}");
    }
}

#[test]
fn a_start_without_a_control_plane_ends_with_its_patience() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp(silent.local_addr().unwrap());
    let config = bootstrap(&address, "DELTA_GRPC")
        .replace("initial_fetch_timeout: 0s", "initial_fetch_timeout: 0.3s");
    let proxy = Proxy::start(&config, &[]);
    assert_eq!(proxy.stat("cluster_manager.cds.init_fetch_timeout"), Some(1));
    assert_eq!(proxy.stat("listener_manager.lds.init_fetch_timeout"), Some(1));
    assert_eq!(proxy.get("/listeners"), (200, String::new()));
}

#[test]
fn a_unix_socket_will_do_and_the_file_is_not_read_anew() {
    let scratch = Scratch::new();
    let path = scratch.path("xds");
    let plane = ControlPlane::start_at(Place::Unix(path.clone()));
    fill(&plane, origin(Duration::ZERO));
    let pipe = format!("{{ pipe: {{ path: {} }} }}", path.display());
    let proxy = Proxy::start(&bootstrap(&pipe, "DELTA_GRPC"), &[]);
    assert_eq!(ask(&proxy, "web").0, 200);
    let (status, why) = proxy.post("/config/reload");
    assert_eq!(status, 400);
    assert!(why.contains("a control plane is in charge"), "{why}");
    assert_eq!(ask(&proxy, "web").0, 200);
}

#[test]
fn static_clusters_and_listeners_ask_for_theirs() {
    let plane = ControlPlane::start();
    plane.set(Type::Endpoints, "e1", &[("app", &endpoints("app", origin(Duration::ZERO)))]);
    plane.set(Type::Routes, "r1", &[("table", &routes("table", "route: { cluster: app }"))]);
    let indent = |text: &str| text.trim().replace('\n', "\n    ");
    let config = bootstrap(&tcp(plane.address), "GRPC")
        .lines()
        .filter(|line| !line.contains("ds_config: { ads"))
        .collect::<Vec<_>>()
        .join("\n")
        + &format!(
            "\n  - {}\n  listeners:\n  - {}\n",
            cluster("app"),
            indent(&listener("web", ANY_PORT, "table"))
        );
    let proxy = Proxy::start(&config, &[]);
    assert_eq!(ask(&proxy, "web").0, 200);
}

/// The source of a stream for one kind of resource.
fn own_stream(form: &str) -> String {
    format!(
        "{{ api_config_source: {{ api_type: {form}, transport_api_version: V3, \
         set_node_on_first_message_only: true, rate_limit_settings: {{ max_tokens: 100, fill_rate: 10 }}, \
         grpc_services: [ {{ envoy_grpc: {{ cluster_name: xds }} }} ] }}, initial_fetch_timeout: 0s }}"
    )
}

#[test]
fn each_kind_may_have_a_stream_of_its_own() {
    for form in FORMS {
        let plane = ControlPlane::start();
        let source = own_stream(form);
        let on_its_own = |text: String| {
            text.replace("{ ads: {}, initial_fetch_timeout: 0s }", &source).replace(
                "{ ads: {}, resource_api_version: V3, initial_fetch_timeout: 0s }",
                &source,
            )
        };
        let config = on_its_own(bootstrap(&tcp(plane.address), form));
        let (head, rest) = config.split_once("  ads_config:").unwrap();
        let (_, rest) = rest.split_once("  cds_config:").unwrap();
        let config = format!("{head}  cds_config:{rest}");
        let web = on_its_own(listener("web", ANY_PORT, "table"));
        plane.set(Type::Cluster, "c1", &[("app", &on_its_own(cluster("app")))]);
        let target = origin(Duration::ZERO);
        plane.set(Type::Endpoints, "e1", &[("app", &endpoints("app", target))]);
        plane.set(Type::Listener, "l1", &[("web", &web)]);
        plane.set(Type::Routes, "r1", &[("table", &routes("table", "route: { cluster: app }"))]);
        let proxy = Proxy::start(&config, &[]);
        assert_eq!(ask(&proxy, "web").0, 200, "{form}");
        for (kind, version) in [
            (Type::Cluster, "c1"),
            (Type::Endpoints, "e1"),
            (Type::Listener, "l1"),
            (Type::Routes, "r1"),
        ] {
            acked(&plane, kind, version);
            let methods = kind.methods();
            let method = methods[usize::from(form == "DELTA_GRPC")];
            let said = plane.said();
            let mut of_kind = said.iter().filter(|said| said.kind == kind);
            assert!(of_kind.all(|said| said.method == method), "{form}: {said:?}");
        }
        assert_eq!(plane.streams(), 4, "{form}");
        let with_node = plane.said().iter().filter(|said| said.has_node).count();
        assert_eq!(with_node, 4, "{form}: the node goes with the first request of each stream");
        assert_eq!(proxy.stat("control_plane.connected_state"), Some(1), "{form}");
        plane.set(
            Type::Routes,
            "r2",
            &[("table", &routes("table", "direct_response: { status: 418 }"))],
        );
        until("the new routes", || ask(&proxy, "web").0 == 418);
        // What nothing asks for any more has no stream.
        plane.set(Type::Listener, "l2", &[]);
        until("its routes are forgotten", || {
            !proxy.get("/config_dump?resource=dynamic_route_configs").1.contains("table")
        });
        assert_eq!(proxy.stat("cluster_manager.cds.update_success"), Some(1), "{form}");
    }
}

#[test]
fn what_is_good_for_a_time_goes_unless_it_is_renewed() {
    for form in FORMS {
        let plane = planned(origin(Duration::ZERO));
        plane.good_for(Type::Listener, Duration::from_millis(1500));
        let proxy = Proxy::start(&bootstrap(&tcp(plane.address), form), &[]);
        let at = proxy.listener("web");
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(300));
            plane.beat();
        }
        assert_eq!(exchange(&at, "GET", "/").unwrap().0, 200, "{form}");
        assert_eq!(proxy.stat("listener_manager.listener_removed"), Some(0), "{form}");
        until("its time is over", || exchange(&at, "GET", "/").is_err());
        assert_eq!(proxy.get("/listeners").1, "", "{form}");
        // It may come again.
        plane.set(Type::Listener, "l2", &[("web", &listener("web", ANY_PORT, "table"))]);
        if form == "DELTA_GRPC" {
            // The control plane believes that the listener is known, and its text is the same.
            plane.set(Type::Listener, "l3", &[("web", &listener("web", ANY_PORT, "other"))]);
            plane.set(
                Type::Routes,
                "r2",
                &[("other", &routes("other", "route: { cluster: app }"))],
            );
        }
        until("it is back", || proxy.get("/listeners").1.contains("web::"));
    }
}

#[test]
fn fields_that_no_message_has_are_refused_where_that_is_asked_for() {
    for (flags, is_taken) in [(&[][..], true), (&["--reject-unknown-dynamic-fields"][..], false)] {
        let plane = planned(origin(Duration::ZERO));
        let proxy = Proxy::start(&bootstrap(&tcp(plane.address), "GRPC"), flags);
        let teapot = routes("table", "direct_response: { status: 418 }");
        plane.set_strange(Type::Routes, "r2", "table", &teapot);
        if is_taken {
            until("it is taken", || ask(&proxy, "web").0 == 418);
        } else {
            let error = nack(&plane, Type::Routes);
            assert!(error.contains("table: 1 fields that no message has"), "{error}");
            assert_eq!(ask(&proxy, "web").0, 200);
        }
    }
}
