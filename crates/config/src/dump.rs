//! A bootstrap as `/config_dump` shows it.

use serde_json::{Map, Value as Json, json};

/// The dumps of a bootstrap and of the resources that are in it.
pub(crate) fn config_dump(bootstrap: &Json, updated: &str) -> Json {
    let resources = &bootstrap["static_resources"];
    let listeners = of(resources, "listeners");
    let routes: Vec<&Json> = listeners.iter().flat_map(route_configs).collect();
    json!({
        "configs": [
            dump("BootstrapConfigDump", json!({ "bootstrap": bootstrap, "last_updated": updated })),
            dump("ClustersConfigDump", json!({
                "static_clusters": typed(of(resources, "clusters"), "cluster", CLUSTER, updated),
            })),
            dump("ListenersConfigDump", json!({
                "static_listeners": typed(listeners, "listener", LISTENER, updated),
            })),
            dump("RoutesConfigDump", json!({
                "static_route_configs": typed(routes.into_iter(), "route_config", ROUTES, updated),
            })),
        ],
    })
}

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "envoy.config.listener.v3.Listener";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";

fn of<'a>(object: &'a Json, name: &str) -> &'a [Json] {
    object[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The inline route tables of a listener's connection managers.
fn route_configs(listener: &Json) -> impl Iterator<Item = &Json> {
    let chains = of(listener, "filter_chains").iter().chain(listener.get("default_filter_chain"));
    chains
        .flat_map(|chain| of(chain, "filters"))
        .filter_map(|filter| filter["typed_config"].get("route_config"))
}

/// Each resource with its type and time.
fn typed<'a>(
    resources: impl IntoIterator<Item = &'a Json>,
    key: &str,
    type_name: &str,
    updated: &str,
) -> Json {
    let one = |resource: &Json| {
        let resource = with_type(&format!("type.googleapis.com/{type_name}"), resource.clone());
        json!({ key: resource, "last_updated": updated })
    };
    Json::Array(resources.into_iter().map(one).collect())
}

fn dump(name: &str, body: Json) -> Json {
    with_type(&format!("type.googleapis.com/envoy.admin.v3.{name}"), body)
}

fn with_type(url: &str, body: Json) -> Json {
    let mut all = Map::new();
    all.insert("@type".to_owned(), Json::from(url));
    if let Json::Object(body) = body {
        all.extend(body);
    }
    Json::Object(all)
}
