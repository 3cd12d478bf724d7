//! Runtime keys of a control plane, of a file and of `/runtime_modify`.

use std::time::Duration;

use towpath_xds::Type;

use super::common::{Proxy, Scratch, bootstrap as serving, exchange, origin, until};
use super::control_plane::ControlPlane;
use super::{ANY_PORT, FORMS, acked, ask, bootstrap, fill, listener, nack, routes, tcp};

const RUNTIME: &str = "envoy.service.runtime.v3.Runtime";

/// A layer of the control plane, above one of the file and below one of the admin endpoint.
fn layers(source: &str) -> String {
    format!(
        "layered_runtime:\n  layers:\n  - {{ name: base, static_layer: {{ share: 0 }} }}\n  \
         - {{ name: plane, rtds_layer: {{ name: live, rtds_config: {source} }} }}\n  \
         - {{ name: admin, admin_layer: {{}} }}\n"
    )
}

fn share(percent: &str) -> String {
    format!("{{ name: live, layer: {{ share: {percent} }} }}")
}

/// Two routes: the first takes the `share`.
fn table() -> String {
    let first = "{ match: { prefix: \"/\", runtime_fraction: { default_value: { numerator: 0 }, \
                 runtime_key: share } }, direct_response: { status: 418 } }, ";
    routes("table", "route: { cluster: app }").replace("routes: [ ", &format!("routes: [ {first}"))
}

#[test]
fn a_control_plane_fills_a_layer_and_is_waited_for_first() {
    for form in FORMS {
        let plane = ControlPlane::start();
        fill(&plane, origin(Duration::ZERO));
        plane.set(Type::Routes, "r1", &[("table", &table())]);
        let config = bootstrap(&tcp(plane.address), form)
            + &layers("{ ads: {}, resource_api_version: V3, initial_fetch_timeout: 0s }");
        let proxy = Proxy::launch(Scratch::new(), &config, &[]);
        until("the runtime is asked for", || plane.last(Type::Runtime).is_some());
        assert!(plane.last(Type::Cluster).is_none(), "{form}: clusters come after the runtime");
        plane.set(Type::Runtime, "1", &[("live", &share("100"))]);
        until("it serves", || proxy.get("/ready").0 == 200);
        assert_eq!(ask(&proxy, "web").0, 418, "{form}");
        acked(&plane, Type::Runtime, "1");
        plane.set(Type::Runtime, "2", &[("live", &share("0"))]);
        until("the new value", || ask(&proxy, "web").0 == 200);
        plane.set(Type::Runtime, "3", &[("live", &share("[ 1 ]"))]);
        let why = nack(&plane, Type::Runtime);
        assert!(why.contains("invalid runtime entry value for share"), "{form}: {why}");
        assert_eq!(ask(&proxy, "web").0, 200, "{form}: what was good stays");
        assert_eq!(proxy.stat("runtime.update_rejected"), Some(1), "{form}");
        assert_eq!(proxy.stat("runtime.update_success"), Some(2), "{form}");
        // What an operator says comes last.
        assert_eq!(proxy.post("/runtime_modify?share=100").1, "OK\n");
        assert_eq!(ask(&proxy, "web").0, 418, "{form}");
        assert_eq!(proxy.stat("runtime.admin_overrides_active"), Some(1), "{form}");
        assert_eq!(proxy.post("/runtime_modify?share=").1, "OK\n");
        assert_eq!(ask(&proxy, "web").0, 200, "{form}");
    }
}

#[test]
fn a_file_fills_a_layer() {
    let scratch = Scratch::new();
    let file = |percent: &str| {
        format!(
            "version_info: a\nresources: [ {{ \"@type\": type.googleapis.com/{RUNTIME}, {} ]\n",
            { share(percent).trim_start_matches("{ ").to_owned() }
        )
    };
    let path = scratch.write("rtds.yaml", &file("100"));
    let web = listener("web", ANY_PORT, "table");
    let at = web.find("rds: {").unwrap();
    let end = at + web[at..].find('\n').unwrap();
    let web = web.replace(&web[at..end], &format!("route_config: {}", table()));
    let config = format!(
        "node: {{ id: a, cluster: b }}\nadmin: {{ address: {ANY_PORT} }}\n{}static_resources:\n  \
         clusters: [ {{ name: app, type: STATIC }} ]\n  listeners:\n  - {}\n",
        layers(&format!("{{ path_config_source: {{ path: {} }} }}", path.display())),
        web.trim().replace('\n', "\n    ")
    );
    let proxy = Proxy::start(&config, &[]);
    assert_eq!(ask(&proxy, "web").0, 418);
    let next = scratch.write("next", &file("0"));
    std::fs::rename(next, path).unwrap();
    until("the new value", || ask(&proxy, "web").0 == 503);
    let shown = proxy.get("/runtime").1;
    assert!(shown.contains("\"final_value\": \"0\"") && shown.contains("\"plane\""), "{shown}");
}

#[test]
fn an_operator_changes_what_a_file_says() {
    let config = serving(origin(Duration::ZERO));
    let plain = Proxy::start(&config, &[]);
    assert_eq!(plain.post("/runtime_modify?a=1"), (503, "No admin layer specified".to_owned()));
    assert_eq!(plain.post("/runtime_modify").0, 400);
    let key = "envoy.reloadable_features.http_reject_path_with_fragment";
    let layers = format!(
        "layered_runtime:\n  layers:\n  - {{ name: file, static_layer: {{ {key}: false }} }}\n  \
         - {{ name: admin, admin_layer: {{}} }}\n"
    );
    let proxy = Proxy::start(&(config + &layers), &[]);
    let at = proxy.listener("ingress");
    let status = || exchange(&at, "GET", "/path#fragment").unwrap().0;
    assert_eq!(status(), 200, "the fragment is cut");
    assert_eq!(proxy.post(&format!("/runtime_modify?{key}=true&other={{numerator:%203}}")).0, 200);
    assert_eq!(status(), 400);
    let shown = proxy.get("/runtime").1;
    assert!(shown.contains("\"final_value\": \"true\""), "{shown}");
    assert_eq!(proxy.stat("runtime.num_keys"), Some(2));
    assert_eq!(proxy.stat("runtime.num_layers"), Some(2));
    // A file that is read anew leaves it as it is.
    assert_eq!(proxy.post("/config/reload").0, 200);
    assert_eq!(status(), 400);
    assert_eq!(proxy.post(&format!("/runtime_modify?{key}=")).0, 200);
    assert_eq!(status(), 200);
}
