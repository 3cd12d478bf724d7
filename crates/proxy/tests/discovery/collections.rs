//! Collections of clusters and listeners, and single resources, by names of the form `xdstp://`.

use std::time::Duration;

use towpath_xds::Type;

use super::beside::{self, Start};
use super::common::{origin, until};
use super::control_plane::ControlPlane;
use super::{ANY_PORT, FORMS, acked, ask, bootstrap, endpoints, listener, nack, routes, tcp};

const CONTEXT: &str = "?xds.node.id=test-id&xds.node.metadata.key=%5B1,{\"inner\":true}%5D";

/// A bootstrap that asks for collections, beside what each name has of the node.
fn collected(plane: &ControlPlane, form: &str) -> String {
    let locators = "dynamic_resources:\n  \
        cds_resources_locator: xdstp://t/envoy.config.cluster.v3.Cluster/x/*\n  \
        lds_resources_locator: xdstp://t/envoy.config.listener.v3.Listener/*\n";
    let text = bootstrap(&tcp(plane.address), form).replacen("dynamic_resources:\n", locators, 1);
    format!("node_context_params: [ id, metadata, nothing ]\n{text}")
}

fn name(kind: Type, id: &str) -> String {
    format!("xdstp://t/{}/{id}{CONTEXT}", kind.message())
}

/// A cluster whose endpoints have a name of that form.
fn cluster(name: &str, service: &str) -> String {
    format!(
        "{{ name: '{name}', type: EDS, connect_timeout: 1s, eds_cluster_config: \
         {{ service_name: '{service}', eds_config: {{ ads: {{}}, initial_fetch_timeout: 0s }} }} }}"
    )
}

/// What both are asked and say: the names that they ask for, and what they serve.
fn story(start: Start, form: &str) -> Vec<String> {
    let plane = ControlPlane::start();
    let origin = origin(Duration::ZERO);
    let (app, other) = (name(Type::Cluster, "x/app"), name(Type::Cluster, "y/other"));
    let web = name(Type::Listener, "web");
    let table = "xdstp://t/envoy.config.route.v3.RouteConfiguration/table?a=1&b=2";
    let [hosts, more_hosts] =
        ["app", "second"].map(|id| format!("xdstp://t/{}/{id}?a=1&b=2", Type::Endpoints.message()));
    let (in_it, beside) = (cluster(&app, &hosts), cluster(&other, &hosts));
    plane.set(Type::Cluster, "c1", &[(&app, &in_it), (&other, &beside)]);
    let [one, two] = [&hosts, &more_hosts].map(|name| endpoints(name, origin));
    plane.set(Type::Endpoints, "e1", &[(&hosts, &one), (&more_hosts, &two)]);
    let of_web = listener(&format!("'{web}'"), ANY_PORT, &format!("'{table}'"));
    plane.set(Type::Listener, "l1", &[(&web, &of_web)]);
    let to_app = format!("route: {{ cluster: '{app}' }}");
    plane.set(Type::Routes, "r1", &[(table, &routes(&format!("'{table}'"), &to_app))]);
    let proxy = start(&collected(&plane, form));
    let mut seen = Vec::new();
    until("it is live", || proxy.get("/ready").1 == "LIVE\n");
    seen.push(format!("{:?}", ask(&proxy, &web)));
    seen.push(format!("{:?}", proxy.stat("cluster_manager.active_clusters")));
    // What is added to the collection serves, what is taken out of it goes, and what is bad is named.
    let second = name(Type::Cluster, "x/second");
    let added = cluster(&second, &more_hosts);
    plane.set(Type::Cluster, "c2", &[(&app, &in_it), (&second, &added)]);
    acked(&plane, Type::Cluster, "c2");
    until("three clusters", || proxy.stat("cluster_manager.active_clusters") == Some(3));
    let bad = added.replace("type: EDS", "type: EDS, lb_policy: CLUSTER_PROVIDED");
    plane.set(Type::Cluster, "c3", &[(&app, &in_it), (&second, &bad)]);
    assert!(nack(&plane, Type::Cluster).contains("x/second"));
    plane.set(Type::Cluster, "c4", &[(&app, &in_it)]);
    until("two clusters", || proxy.stat("cluster_manager.active_clusters") == Some(2));
    seen.push(format!("{:?}", ask(&proxy, &web)));
    let mut names: Vec<String> = plane.said().into_iter().flat_map(|said| said.names).collect();
    names.sort();
    names.dedup();
    seen.extend(names);
    seen
}

#[test]
fn collections_are_asked_for_by_their_names() {
    for form in FORMS {
        let seen = story(beside::towpath, form);
        assert!(seen[0].contains("200") && seen[2].contains("200"), "{seen:?}");
        assert_eq!(seen[1], "Some(2)");
        let of = |kind: Type, id: &str| name(kind, id);
        assert!(seen.contains(&of(Type::Cluster, "x/*")), "{form}: {seen:?}");
        assert!(seen.contains(&of(Type::Listener, "*")), "{form}: {seen:?}");
        assert_eq!(seen.len(), 3 + 5, "two collections, a table and endpoints: {seen:?}");
    }
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn collections_go_as_in_envoy() {
    for form in FORMS {
        assert_eq!(story(beside::towpath, form), story(beside::envoy, form), "{form}");
    }
}
