//! `/config_dump`: the configuration in force, as Envoy's `ConfigDump`.

use std::time::SystemTime;

use hyper::StatusCode;
use regex::Regex;
use serde_json::{Map, Value, json};
use towpath_config::Kind;

use super::endpoints::assignments;
use super::query::Query;
use super::reply::Reply;
use crate::control::Control;
use crate::discovery::{Dump, Shown, State};
use crate::loading::{Boot, Kind as Part};
use crate::logger::format::Civil;

/// Dumps everything, or what `resource`, `mask` and `name_regex` leave of it.
pub(super) async fn config_dump(control: &Control, query: &Query) -> Reply {
    let workers = if query.has("include_eds") { control.describe().await } else { Vec::new() };
    let boot = control.boot.borrow();
    let mut bootstrap = boot.bootstrap();
    bootstrap["node"] = super::server_info::node(control);
    let snapshot = control.snapshot.borrow();
    let generation = snapshot.generation;
    let refused = control.refused.borrow();
    let resources = control.shown.borrow();
    let is_driven = control.is_driven;
    let served = Served {
        boot: &boot,
        generation,
        refused: refused.as_ref(),
        is_driven,
        resources: &resources,
        assignments: assignments(&bootstrap, &snapshot, &workers),
        has_routes: snapshot.listeners.iter().any(|listener| listener.has_routes()),
    };
    match dump(&bootstrap, &served, query) {
        Ok(configs) if configs.is_empty() => super::json(&json!({})),
        Ok(configs) => super::json(&json!({"configs": configs})),
        Err((status, why)) => Reply::refused_plainly(status, why),
    }
}

type Refusal = (StatusCode, String);

/// What serves, and since when.
struct Served<'a> {
    boot: &'a Boot,
    generation: u64,
    /// A later one that was not taken: when, and why.
    refused: Option<&'a (SystemTime, String)>,
    /// A control plane is in charge.
    is_driven: bool,
    /// Its resources.
    resources: &'a Dump,
    /// The hosts of the bootstrap's clusters, by the names of their assignments.
    assignments: Vec<(String, Value)>,
    /// A listener has a connection manager. Envoy has the parts of routes only then.
    has_routes: bool,
}

impl Served<'_> {
    /// When a part was changed last.
    fn updated(&self, field: &str, resource: &Value) -> String {
        let of = |kind, name: &str| self.boot.changed.get(&(kind, name.to_owned())).copied();
        let at = match field {
            "cluster" => of(Part::Cluster, name(resource)),
            "listener" => of(Part::Listener, name(resource)),
            // Route tables are parts of listeners.
            _ => Some(self.boot.loaded),
        };
        Civil::of(at.unwrap_or(self.boot.started)).rfc3339_millis()
    }
}

fn dump(bootstrap: &Value, served: &Served<'_>, query: &Query) -> Result<Vec<Value>, Refusal> {
    let names = query.first("name_regex").map(whole_name).transpose()?;
    let wanted = |name: &str| names.as_ref().is_none_or(|regex| regex.is_match(name));
    let resource = query.first("resource");
    let endpoints = query.has("include_eds");
    let sections = SECTIONS.iter().filter(|section| match section.kind {
        Some(Kind::Endpoints) => endpoints,
        Some(Kind::Routes) => served.has_routes,
        _ => section.message != SCOPED_ROUTES || served.has_routes,
    });
    let sections: Vec<_> =
        sections.map(|section| (section, section.dump(bootstrap, served, &wanted))).collect();
    let mask = query.first("mask");
    match resource {
        Some(resource) => one(sections, resource, mask),
        None => {
            // Envoy has this part only where there are any.
            let is_shown = |(section, value): &(&Section, Value)| {
                section.kind != Some(Kind::Extension) || value.get("ecds_filters").is_some()
            };
            let shown = sections.into_iter().filter(is_shown).map(|(_, value)| value);
            all(shown.collect(), mask)
        }
    }
}

/// One part of the dump: a message of `envoy.admin.v3`.
struct Section {
    message: &'static str,
    /// The field that holds the resource, and the type of that.
    field: &'static str,
    of: &'static str,
    kind: Option<Kind>,
    /// The list of those of the bootstrap.
    statics: Option<List>,
    /// Lists of those of a control plane.
    dynamics: &'static [(List, Which)],
}

/// A list, and the message of its elements.
type List = (&'static str, &'static str);

/// Which resources a list has.
#[derive(Clone, Copy)]
enum Which {
    Active,
    Warming,
    /// Both, as states of one element.
    States,
    /// Those that are there, with their names.
    Named,
    /// Those that are not, with their names.
    Awaited,
}

/// Always empty.
const SCOPED_ROUTES: &str = "ScopedRoutesConfigDump";

const SECTIONS: [Section; 8] = [
    Section {
        message: "BootstrapConfigDump",
        field: "",
        of: "",
        kind: None,
        statics: None,
        dynamics: &[],
    },
    Section {
        message: "ClustersConfigDump",
        field: "cluster",
        of: "envoy.config.cluster.v3.Cluster",
        kind: Some(Kind::Cluster),
        statics: Some(("static_clusters", "StaticCluster")),
        dynamics: &[
            (("dynamic_active_clusters", "DynamicCluster"), Which::Active),
            (("dynamic_warming_clusters", "DynamicCluster"), Which::Warming),
        ],
    },
    Section {
        message: "EcdsConfigDump",
        field: "ecds_filter",
        of: "envoy.config.core.v3.TypedExtensionConfig",
        kind: Some(Kind::Extension),
        statics: None,
        dynamics: &[(("ecds_filters", "EcdsFilterConfig"), Which::Active)],
    },
    Section {
        message: "EndpointsConfigDump",
        field: "endpoint_config",
        of: "envoy.config.endpoint.v3.ClusterLoadAssignment",
        kind: Some(Kind::Endpoints),
        statics: Some(("static_endpoint_configs", "StaticEndpointConfig")),
        dynamics: &[(("dynamic_endpoint_configs", "DynamicEndpointConfig"), Which::Active)],
    },
    Section {
        message: "ListenersConfigDump",
        field: "listener",
        of: "envoy.config.listener.v3.Listener",
        kind: Some(Kind::Listener),
        statics: Some(("static_listeners", "StaticListener")),
        dynamics: &[(("dynamic_listeners", "DynamicListener"), Which::States)],
    },
    Section { message: SCOPED_ROUTES, field: "", of: "", kind: None, statics: None, dynamics: &[] },
    Section {
        message: "RoutesConfigDump",
        field: "route_config",
        of: "envoy.config.route.v3.RouteConfiguration",
        kind: Some(Kind::Routes),
        statics: Some(("static_route_configs", "StaticRouteConfig")),
        dynamics: &[(("dynamic_route_configs", "DynamicRouteConfig"), Which::Active)],
    },
    Section {
        message: "SecretsConfigDump",
        field: "secret",
        of: "envoy.extensions.transport_sockets.tls.v3.Secret",
        kind: Some(Kind::Secret),
        statics: Some(("static_secrets", "StaticSecret")),
        dynamics: &[
            (("dynamic_active_secrets", "DynamicSecret"), Which::Named),
            (("dynamic_warming_secrets", "DynamicSecret"), Which::Awaited),
        ],
    },
];

impl Section {
    fn dump(&self, bootstrap: &Value, served: &Served<'_>, wanted: &dyn Fn(&str) -> bool) -> Value {
        let message = admin_type(self.message);
        let Some(kind) = self.kind else {
            if self.message == SCOPED_ROUTES {
                return json!({"@type": message});
            }
            let loaded = Civil::of(served.boot.loaded).rfc3339_millis();
            let mut section =
                json!({"@type": message, "bootstrap": bootstrap, "last_updated": loaded});
            if let Some((at, why)) = served.refused {
                // Envoy's `UpdateFailureState`, which it has for each listener of a control plane.
                let at = Civil::of(*at).rfc3339_millis();
                section["error_state"] = json!({"last_update_attempt": at, "details": why});
            }
            return section;
        };
        let mut section = Map::from_iter([("@type".to_owned(), json!(message))]);
        if let Some(version) = self.version(kind, served) {
            section.insert("version_info".to_owned(), json!(version));
        }
        if let Some((list, _)) = self.statics {
            let elements: Vec<Value> = if kind == Kind::Endpoints {
                let all = served.assignments.iter().filter(|(name, _)| wanted(name));
                all.map(|(_, assignment)| json!({self.field: typed(self.of, assignment)})).collect()
            } else {
                resources(bootstrap, self.field)
                    .into_iter()
                    .filter(|resource| wanted(name(resource)))
                    .map(|resource| {
                        let typed = typed(self.of, resource);
                        if kind == Kind::Secret {
                            return json!({"name": name(resource), self.field: typed});
                        }
                        let updated = served.updated(self.field, resource);
                        json!({self.field: typed, "last_updated": updated})
                    })
                    .collect()
            };
            if !elements.is_empty() {
                section.insert(list.to_owned(), elements.into());
            }
        }
        for ((list, _), which) in self.dynamics {
            let of = served.resources.of(kind).filter(|(name, _)| wanted(name));
            let elements: Vec<Value> = of
                .filter_map(|(name, shown)| self.element(name, shown, *which, served.resources))
                .collect();
            if !elements.is_empty() {
                section.insert((*list).to_owned(), elements.into());
            }
        }
        section.into()
    }

    /// The version of all: the control plane's, or where a file was read anew the number of that.
    fn version(&self, kind: Kind, served: &Served<'_>) -> Option<String> {
        if kind.is_asked_for_by_name() {
            return None;
        }
        if served.is_driven {
            return served.resources.version(kind).map(str::to_owned);
        }
        // What a proxy starts with has no version in Envoy either.
        (served.generation > 1).then(|| served.generation.to_string())
    }

    fn element(&self, name: &str, shown: &Shown, which: Which, all: &Dump) -> Option<Value> {
        let state = |state: &State| state.dump(self.field, self.of, all);
        let named = |of: &State| {
            let mut element = Map::from_iter([("name".to_owned(), json!(name))]);
            element.extend(state(of));
            element
        };
        let mut element = match which {
            Which::Active => state(shown.active.as_ref()?),
            Which::Warming => state(shown.warming.as_ref()?),
            Which::Named => named(shown.active.as_ref()?),
            Which::Awaited => named(shown.warming.as_ref()?),
            Which::States => {
                let mut element = Map::from_iter([("name".to_owned(), json!(name))]);
                let states = [("active_state", &shown.active), ("warming_state", &shown.warming)];
                for (key, of) in states {
                    if let Some(of) = of {
                        element.insert(key.to_owned(), state(of).into());
                    }
                }
                element
            }
        };
        if let Some(error) = shown.error_state() {
            element.insert("error_state".to_owned(), error);
        }
        Some(element.into())
    }
}

fn resources<'a>(bootstrap: &'a Value, field: &str) -> Vec<&'a Value> {
    let list =
        |key| bootstrap["static_resources"][key].as_array().map(Vec::as_slice).unwrap_or_default();
    match field {
        "cluster" => list("clusters").iter().collect(),
        "listener" => list("listeners").iter().collect(),
        "secret" => list("secrets").iter().collect(),
        _ => list("listeners").iter().flat_map(|listener| route_configs(listener)).collect(),
    }
}

/// The route tables that are written inside connection managers.
fn route_configs(listener: &Value) -> Vec<&Value> {
    let chains = listener["filter_chains"].as_array().map(Vec::as_slice).unwrap_or_default();
    chains
        .iter()
        .chain([&listener["default_filter_chain"]])
        .filter_map(|chain| chain["filters"].as_array())
        .flatten()
        .map(|filter| &filter["typed_config"]["route_config"])
        .filter(|table| table.is_object())
        .collect()
}

fn one(
    sections: Vec<(&Section, Value)>,
    resource: &str,
    mask: Option<&str>,
) -> Result<Vec<Value>, Refusal> {
    if resource == "bootstrap" {
        let why = "bootstrap is not a repeated field. Use ?mask=bootstrap to get only this field";
        return Err((StatusCode::BAD_REQUEST, why.into()));
    }
    for (section, mut value) in sections {
        let mut lists = section.statics.iter().chain(section.dynamics.iter().map(|(list, _)| list));
        let Some((list, element)) = lists.find(|(list, _)| *list == resource) else { continue };
        let Value::Array(elements) = value[list].take() else { return Ok(Vec::new()) };
        let owner = section.message;
        let kind = format!("{}.{element}", admin_type(owner));
        return elements
            .into_iter()
            .map(|element| {
                let element =
                    mask.map_or_else(|| Some(element.clone()), |mask| masked(&element, mask));
                element.map(|element| with_type(&kind, element)).ok_or_else(|| nothing_masked(mask))
            })
            .collect();
    }
    Err((StatusCode::NOT_FOUND, format!("{resource} not found in config dump")))
}

fn all(sections: Vec<Value>, mask: Option<&str>) -> Result<Vec<Value>, Refusal> {
    let Some(paths) = mask else { return Ok(sections) };
    let found: Vec<Value> = sections
        .iter()
        .filter_map(|section| Some(with_type(section["@type"].as_str()?, masked(section, paths)?)))
        .collect();
    if found.is_empty() { Err(nothing_masked(mask)) } else { Ok(found) }
}

fn nothing_masked(mask: Option<&str>) -> Refusal {
    let mask = mask.unwrap_or_default();
    let why = format!("FieldMask {mask} could not be successfully applied to any configs.");
    (StatusCode::BAD_REQUEST, why)
}

/// What a field mask (`a.b,c`) leaves of a message; `None` when it has none of the fields.
fn masked(message: &Value, mask: &str) -> Option<Value> {
    let mut kept = Value::Object(Map::new());
    let mut any = false;
    for path in mask.split(',').filter(|path| !path.is_empty()) {
        any |= keep(message, &mut kept, path);
    }
    any.then_some(kept)
}

fn keep(from: &Value, to: &mut Value, path: &str) -> bool {
    let (field, rest) =
        path.split_once('.').map_or((path, None), |(field, rest)| (field, Some(rest)));
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return false };
    let Some(value) = from.get(field) else { return false };
    if let Some(kind) = from.get("@type") {
        to.insert("@type".to_owned(), kind.clone());
    }
    match (rest, value) {
        (None, _) => {
            to.insert(field.to_owned(), value.clone());
            true
        }
        (Some(rest), Value::Array(elements)) => {
            let kept: Vec<Value> =
                elements.iter().filter_map(|element| masked(element, rest)).collect();
            let any = !kept.is_empty();
            if any {
                to.insert(field.to_owned(), kept.into());
            }
            any
        }
        (Some(rest), _) => {
            let mut kept = to.get(field).cloned().unwrap_or_else(|| json!({}));
            let any = keep(value, &mut kept, rest);
            if any {
                to.insert(field.to_owned(), kept);
            }
            any
        }
    }
}

fn whole_name(pattern: &str) -> Result<Regex, Refusal> {
    Regex::new(&format!("^(?:{pattern})$")).map_err(|error| {
        let why =
            format!("INVALID_ARGUMENT: Error while parsing name_regex from {pattern}: {error}");
        (StatusCode::BAD_REQUEST, why)
    })
}

fn name(resource: &Value) -> &str {
    resource["name"].as_str().unwrap_or_default()
}

fn admin_type(message: &str) -> String {
    format!("type.googleapis.com/envoy.admin.v3.{message}")
}

fn typed(message: &str, resource: &Value) -> Value {
    with_type(&format!("type.googleapis.com/{message}"), resource.clone())
}

/// The message with its type in front.
fn with_type(kind: &str, message: Value) -> Value {
    let mut typed = Map::from_iter([("@type".to_owned(), json!(kind))]);
    if let Value::Object(fields) = message {
        typed.extend(fields.into_iter().filter(|(name, _)| name != "@type"));
    }
    typed.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bootstrap() -> Value {
        json!({
            "node": {"id": "n1", "cluster": "c1"},
            "static_resources": {
                "listeners": [{"name": "in", "filter_chains": [{"filters": [{"typed_config": {
                    "@type": "type.googleapis.com/x", "route_config": {"name": "table", "virtual_hosts": []}}}]}]}],
                "clusters": [{"name": "local", "type": "STATIC"}, {"name": "other"}],
            },
        })
    }

    fn dumped(query: &str) -> Result<Value, Refusal> {
        let boot = Boot::of_nothing();
        let resources = &Dump::default();
        let served = Served {
            boot: &boot,
            generation: 1,
            refused: None,
            is_driven: false,
            resources,
            assignments: vec![("local".to_owned(), json!({"cluster_name": "local"}))],
            has_routes: true,
        };
        dump(&bootstrap(), &served, &Query::parse(query)).map(Value::from)
    }

    #[test]
    fn everything() {
        let all = dumped("").unwrap();
        assert_eq!(all[0]["bootstrap"]["node"]["id"], "n1");
        assert_eq!(all[1]["static_clusters"][1]["cluster"]["name"], "other");
        assert_eq!(
            all[2]["static_listeners"][0]["listener"]["@type"],
            "type.googleapis.com/envoy.config.listener.v3.Listener"
        );
        let scoped = "type.googleapis.com/envoy.admin.v3.ScopedRoutesConfigDump";
        assert_eq!(all[3], json!({"@type": scoped}));
        assert_eq!(all[4]["static_route_configs"][0]["route_config"]["name"], "table");
    }

    #[test]
    fn endpoints_are_shown_where_they_are_asked_for() {
        let endpoints = |query: &str| dumped(query).unwrap()[2]["static_endpoint_configs"].take();
        assert_eq!(endpoints(""), Value::Null);
        let shown = &endpoints("include_eds")[0]["endpoint_config"];
        assert_eq!(shown["cluster_name"], "local");
        let found = dumped("include_eds&resource=static_endpoint_configs&name_regex=other");
        assert_eq!(found.unwrap(), json!([]));
        let refused = dumped("resource=static_endpoint_configs").unwrap_err();
        assert_eq!(refused.0, StatusCode::NOT_FOUND);
    }

    #[test]
    fn a_resource_is_one_list() {
        let clusters = dumped("resource=static_clusters&mask=cluster.name").unwrap();
        assert_eq!(
            clusters[0],
            json!({
                "@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump.StaticCluster",
                "cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "local"},
            })
        );
        assert_eq!(dumped("resource=dynamic_listeners").unwrap(), json!([]));
        assert_eq!(dumped("resource=foo").unwrap_err().0, StatusCode::NOT_FOUND);
        assert_eq!(dumped("resource=bootstrap").unwrap_err().0, StatusCode::BAD_REQUEST);
        assert_eq!(
            dumped("resource=static_clusters&mask=nope").unwrap_err().0,
            StatusCode::BAD_REQUEST
        );
    }

    #[test]
    fn names_match_as_a_whole() {
        assert_eq!(dumped("resource=static_clusters&name_regex=lo").unwrap(), json!([]));
        let found = dumped("resource=static_clusters&name_regex=lo.*").unwrap();
        assert_eq!(found.as_array().unwrap().len(), 1);
        assert_eq!(dumped("name_regex=(").unwrap_err().0, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn masks_keep_what_they_name() {
        let found = dumped("mask=bootstrap.node.id,static_clusters.cluster.type").unwrap();
        assert_eq!(found[0]["bootstrap"], json!({"node": {"id": "n1"}}));
        assert_eq!(found[1]["static_clusters"][0]["cluster"]["type"], "STATIC");
        assert_eq!(found.as_array().unwrap().len(), 2);
        assert_eq!(dumped("mask=nope.nope").unwrap_err().0, StatusCode::BAD_REQUEST);
    }
}
