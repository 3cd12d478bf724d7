//! Control planes and other servers that are named by their addresses.

use std::time::Duration;

use towpath_xds::Type;

use super::beside::{Start, envoy, towpath};
use super::common::{Proxy, Scratch, origin, until};
use super::control_plane::{ControlPlane, Place};
use super::{FORMS, acked, ask, bootstrap, endpoints, fill, listener, routes, tcp};

/// A bootstrap whose control plane is a target of gRPC.
fn targeted(target: &str, form: &str) -> String {
    let google = format!("google_grpc: {{ target_uri: \"{target}\", stat_prefix: ads }}");
    bootstrap("{ pipe: { path: /no/such } }", form)
        .replace("envoy_grpc: { cluster_name: xds }", &google)
}

const COUNTERS: [&str; 6] = [
    "grpc.ads.streams_total",
    "grpc.ads.streams_closed_0",
    "grpc.ads.streams_closed_14",
    "control_plane.connected_state",
    "cluster_manager.cds.update_success",
    "cluster_manager.active_clusters",
];

fn story(start: Start, form: &str, by_name: bool) -> Vec<(String, Option<u64>)> {
    let plane = ControlPlane::start();
    fill(&plane, origin(Duration::ZERO));
    let target = match by_name {
        true => format!("dns:///localhost:{}", plane.address.port()),
        false => plane.address.to_string(),
    };
    let proxy = start(&targeted(&target, form));
    until("it serves", || proxy.get("/ready").1 == "LIVE\n");
    acked(&plane, Type::Routes, "r1");
    until("the routes", || ask(&proxy, "web").0 == 200);
    let mut seen: Vec<_> =
        COUNTERS.iter().map(|name| ((*name).to_owned(), proxy.stat(name))).collect();
    let shown = proxy.get("/clusters").1;
    assert!(!shown.contains("google") && !shown.contains(&plane.address.port().to_string()));
    drop(plane);
    let ended = || ["0", "14"].map(|it| proxy.stat(&format!("grpc.ads.streams_closed_{it}")));
    until("its end", || ended().iter().flatten().sum::<u64>() > 0);
    seen.push(("a stream that its server ends".to_owned(), ended()[1].filter(|count| *count > 0)));
    until("another is tried", || proxy.stat("grpc.ads.streams_total") > Some(1));
    until("the server is missing", || proxy.stat("grpc.ads.streams_closed_13") > Some(0));
    seen
}

#[test]
fn a_control_plane_is_named_by_its_address() {
    for form in FORMS {
        let seen = story(towpath, form, form == FORMS[0]);
        assert_eq!(seen[0].1, Some(1), "{form}");
        assert_eq!(
            seen[5].1,
            Some(2),
            "{form}: no cluster is shown but those of files and the plane"
        );
    }
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn a_control_plane_by_its_address_is_as_in_envoy() {
    for form in FORMS {
        for by_name in [false, true] {
            assert_eq!(story(towpath, form, by_name), story(envoy, form, by_name), "{form}");
        }
    }
}

#[test]
fn a_control_plane_is_at_a_unix_socket() {
    let scratch = Scratch::new();
    let path = scratch.path("plane.sock");
    let plane = ControlPlane::start_at(Place::Unix(path.clone()));
    fill(&plane, origin(Duration::ZERO));
    let proxy =
        Proxy::launch(Scratch::new(), &targeted(&format!("unix:{}", path.display()), "GRPC"), &[]);
    until("it serves", || proxy.get("/ready").0 == 200);
    until("the routes", || ask(&proxy, "web").0 == 200);
}

/// A listener whose filter asks a server that is not there.
fn limited(port: u16) -> String {
    let limit = format!(
        "- name: limit
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
          domain: d
          failure_mode_deny: true
          rate_limits: [ {{ actions: [ {{ generic_key: {{ descriptor_value: v }} }} ] }} ]
          rate_limit_service: {{ transport_api_version: V3, grpc_service: {{ google_grpc: \
         {{ target_uri: \"127.0.0.1:{port}\", stat_prefix: limit }} }} }}
      - name: router"
    );
    listener("web", super::ANY_PORT, "table").replace("- name: router", &limit)
}

#[test]
fn servers_of_a_listener_come_and_go_with_it() {
    let plane = ControlPlane::start();
    fill(&plane, origin(Duration::ZERO));
    plane.set(Type::Listener, "l1", &[("web", &limited(1))]);
    let proxy = Proxy::launch(Scratch::new(), &bootstrap(&tcp(plane.address), "GRPC"), &[]);
    until("it serves", || proxy.get("/ready").0 == 200);
    until("the routes", || ask(&proxy, "web").0 == 500);
    let calls = || proxy.stat("grpc.limit.streams_total");
    let closed = || proxy.stat("grpc.limit.streams_closed_13");
    let before = calls();
    assert!(before > Some(0) && closed() == before, "{before:?}");
    // With other endpoints its listener is not converted again.
    plane.set(Type::Endpoints, "e2", &[("app", &endpoints("app", origin(Duration::ZERO)))]);
    acked(&plane, Type::Endpoints, "e2");
    assert_eq!(ask(&proxy, "web").0, 500);
    // One that waits for its routes leaves the one that serves as it is.
    plane.set(Type::Listener, "l2", &[("web", &limited(2).replace("table", "other"))]);
    until("others are asked for", || {
        plane.last(Type::Routes).is_some_and(|said| said.names.contains("other"))
    });
    let before = calls();
    assert_eq!(ask(&proxy, "web").0, 500);
    assert_eq!(calls(), before.map(|count| count + 1), "the same server is asked");
    plane.set(Type::Listener, "l3", &[("web", &listener("web", super::ANY_PORT, "table"))]);
    plane.set(Type::Routes, "r2", &[("table", &routes("table", "route: { cluster: app }"))]);
    until("it is not asked any more", || ask(&proxy, "web").0 == 200);
    until("its counters are gone", || calls().is_none());
    assert_eq!(proxy.stat("cluster_manager.active_clusters"), Some(2));
    assert_eq!(proxy.stat("cluster_manager.cluster_removed"), Some(0));
}
