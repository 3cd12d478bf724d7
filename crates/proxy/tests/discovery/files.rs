//! Resources in files.

use std::time::Duration;

use super::common::{Proxy, Scratch, exchange, origin, until};
use super::{ANY_PORT, ask, endpoints, listener, routes};

/// A `DiscoveryResponse` with these resources.
fn response(version: &str, kind: &str, resources: &[String]) -> String {
    let one = |resource: &String| {
        let resource = resource.trim();
        match resource.strip_prefix('{') {
            Some(rest) => format!("- {{ \"@type\": type.googleapis.com/{kind}, {rest}\n"),
            None => format!(
                "- \"@type\": type.googleapis.com/{kind}\n  {}\n",
                resource.replace('\n', "\n  ")
            ),
        }
    };
    format!(
        "version_info: {version}\nresources:\n{}",
        resources.iter().map(one).collect::<String>()
    )
}

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const LISTENER: &str = "envoy.config.listener.v3.Listener";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";

/// Puts a file in the place of another in one step.
fn put(scratch: &Scratch, name: &str, text: &str) {
    let written = scratch.write("next", text);
    std::fs::rename(written, scratch.path(name)).unwrap();
}

#[test]
fn files_are_read_anew_when_others_take_their_place() {
    let scratch = Scratch::new();
    let file = |name: &str| {
        format!(
            "{{ path_config_source: {{ path: {}, watched_directory: {{ path: {} }} }} }}",
            scratch.path(name).display(),
            scratch.path("").display()
        )
    };
    let target = origin(Duration::ZERO);
    let cluster = format!(
        "{{ name: app, type: EDS, connect_timeout: 1s, eds_cluster_config: {{ eds_config: {} }} }}",
        file("eds.yaml")
    );
    let web = listener("web", ANY_PORT, "table")
        .replace("{ ads: {}, initial_fetch_timeout: 0s }", &file("rds.yaml"));
    put(&scratch, "cds.yaml", &response("c1", CLUSTER, &[cluster]));
    put(&scratch, "eds.yaml", &response("e1", ENDPOINTS, &[endpoints("app", target)]));
    put(&scratch, "lds.yaml", &response("l1", LISTENER, std::slice::from_ref(&web)));
    let table = |action: &str| response("r", ROUTES, &[routes("table", action)]);
    put(&scratch, "rds.yaml", &table("route: { cluster: app }"));
    let config = format!(
        "node: {{ id: a, cluster: b }}\n\
         admin: {{ address: {ANY_PORT} }}\n\
         dynamic_resources: {{ cds_config: {}, lds_config: {} }}\n",
        file("cds.yaml"),
        file("lds.yaml")
    );
    let proxy = Proxy::start(&config, &[]);
    assert_eq!(ask(&proxy, "web"), (200, "hello".to_owned()));
    assert_eq!(proxy.stat("cluster_manager.cds.update_success"), Some(1));
    put(&scratch, "rds.yaml", &table("direct_response: { status: 418 }"));
    until("the new routes", || ask(&proxy, "web").0 == 418);
    // What cannot be read, and what is bad, leaves what serves.
    put(&scratch, "rds.yaml", "resources: [");
    until("it is refused", || proxy.stat("http.web.rds.table.update_rejected") == Some(1));
    put(&scratch, "rds.yaml", &table("route: { cluster: app, timeout: -1s }"));
    until("it is refused", || proxy.stat("http.web.rds.table.update_rejected") == Some(2));
    assert_eq!(ask(&proxy, "web").0, 418);
    let other = response("e2", ENDPOINTS, &[endpoints("app", origin(Duration::ZERO))]);
    put(&scratch, "eds.yaml", &other);
    until("the new endpoints", || proxy.stat("cluster.app.update_success") == Some(2));
    put(&scratch, "rds.yaml", &table("route: { cluster: app }"));
    until("the good routes", || ask(&proxy, "web").0 == 200);
    // Another listener of the same table, and then none.
    let more = web.replace("name: web", "name: more");
    put(&scratch, "lds.yaml", &response("l2", LISTENER, &[web, more]));
    until("another listener", || proxy.get("/listeners").1.contains("more::"));
    assert_eq!(ask(&proxy, "more").0, 200);
    let at = proxy.listener("web");
    put(&scratch, "lds.yaml", "version_info: l3\n");
    until("it is gone", || exchange(&at, "GET", "/").is_err());
}

#[test]
fn a_static_cluster_takes_its_endpoints_from_a_file() {
    let scratch = Scratch::new();
    let eds = response("e1", ENDPOINTS, &[endpoints("other", origin(Duration::ZERO))]);
    let file = scratch.write("eds.yaml", &eds);
    let config = super::common::bootstrap(origin(Duration::ZERO));
    let start = config.find("    load_assignment:").unwrap();
    let config = config[..start].replace("type: STATIC", "type: EDS")
        + &format!(
            "    eds_cluster_config: {{ service_name: app, eds_config: {{ path_config_source: {{ path: {} }} }} }}\n",
            file.display()
        );
    let proxy = Proxy::start(&config, &[]);
    let at = proxy.listener("ingress");
    let status = || exchange(&at, "GET", "/").unwrap().0;
    assert_eq!(status(), 503, "the file has another's endpoints");
    put(
        &scratch,
        "eds.yaml",
        &response("e2", ENDPOINTS, &[endpoints("app", origin(Duration::ZERO))]),
    );
    until("its endpoints", || status() == 200);
}
