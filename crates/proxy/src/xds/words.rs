//! What changed between two states, in a person's words.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use towpath_xds::Type;

use super::recording::{State, short};

/// What became of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    kind: String,
    name: String,
    what: What,
    /// In few words, where there are some.
    summary: String,
    /// Each a thing that is another.
    lines: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    New,
    Gone,
    Changed,
}

/// All that is not the same, by kind and name.
pub(super) fn changes(before: &State, after: &State) -> Vec<Change> {
    let keys: BTreeSet<&(String, String)> = before.0.keys().chain(after.0.keys()).collect();
    let change = |key: &(String, String)| {
        let (what, (summary, lines)) = match (before.0.get(key), after.0.get(key)) {
            (Some((_, one)), Some((_, other))) if one == other => return None,
            (Some((_, one)), Some((_, other))) => (What::Changed, compared(&key.0, one, other)),
            (None, Some((_, new))) => (What::New, (about(&key.0, new), Vec::new())),
            (Some(_), None) => (What::Gone, (String::new(), Vec::new())),
            (None, None) => return None,
        };
        Some(Change { kind: key.0.clone(), name: key.1.clone(), what, summary, lines })
    };
    keys.into_iter().filter_map(change).collect()
}

pub(super) fn as_text(changes: &[Change]) -> String {
    let one = |change: &Change| {
        let Change { kind, name, what, summary, lines } = change;
        let what = match what {
            What::New if summary.is_empty() => "new".to_owned(),
            What::New => format!("new: {summary}"),
            What::Gone => "gone".to_owned(),
            What::Changed if summary.is_empty() && lines.len() == 1 => {
                return format!("{} {name}: {}\n", called(kind), lines.concat());
            }
            What::Changed => summary.clone(),
        };
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        format!("{} {name}: {what}\n{lines}", called(kind)).replace(": \n", ":\n")
    };
    changes.iter().map(one).collect()
}

pub(super) fn as_json(changes: &[Change]) -> Value {
    let one = |change: &Change| {
        let what = match change.what {
            What::New => "new",
            What::Gone => "gone",
            What::Changed => "changed",
        };
        json!({
            "type": change.kind,
            "name": change.name,
            "change": what,
            "summary": change.summary,
            "lines": change.lines,
        })
    };
    changes.iter().map(one).collect()
}

fn called(kind: &str) -> &str {
    match Type::of_message(kind) {
        Some(Type::Cluster) => "cluster",
        Some(Type::Endpoints) => "endpoints of",
        Some(Type::Listener) => "listener",
        Some(Type::Routes) => "route table",
        Some(Type::Secret) => "secret",
        Some(Type::Extension) => "filter",
        Some(Type::Runtime) => "runtime layer",
        None => short(kind),
    }
}

/// What is new, in few words.
fn about(kind: &str, new: &Value) -> String {
    match Type::of_message(kind) {
        Some(Type::Endpoints) => format!("{} endpoints", endpoints(new).len()),
        Some(Type::Routes) => {
            let hosts = list(new, "virtual_hosts");
            let routes: usize = hosts.iter().map(|host| list(host, "routes").len()).sum();
            format!("{} virtual hosts, {routes} routes", hosts.len())
        }
        Some(Type::Cluster) => new["type"].as_str().unwrap_or_default().to_owned(),
        Some(Type::Listener) => {
            let address = &new["address"];
            let chains = list(new, "filter_chains").len();
            format!("{}, {chains} filter chains", address_of(address))
        }
        Some(Type::Secret | Type::Extension | Type::Runtime) | None => String::new(),
    }
}

fn compared(kind: &str, before: &Value, after: &Value) -> (String, Vec<String>) {
    let mut lines = Vec::new();
    let summary = match Type::of_message(kind) {
        Some(Type::Endpoints) => endpoints_compared(before, after, &mut lines),
        Some(Type::Routes) => {
            hosts_compared(before, after, &mut lines);
            generic(
                "",
                &without(before, &["virtual_hosts"]),
                &without(after, &["virtual_hosts"]),
                &mut lines,
            );
            String::new()
        }
        Some(Type::Cluster | Type::Listener | Type::Secret | Type::Extension | Type::Runtime)
        | None => {
            generic("", before, after, &mut lines);
            String::new()
        }
    };
    if summary.is_empty() && lines.is_empty() {
        // In what has no name of its own, or in an order.
        generic("", before, after, &mut lines);
    }
    (summary, lines)
}

/// Addresses with all else that is said of each: its locality's name, priority and its own fields.
fn endpoints(assignment: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for group in list(assignment, "endpoints") {
        let of = json!({"locality": group["locality"], "priority": group["priority"]});
        for endpoint in list(group, "lb_endpoints") {
            let address = address_of(&endpoint["endpoint"]["address"]);
            let mut said = endpoint.clone();
            take(said.get_mut("endpoint").and_then(|it| it.get_mut("address")));
            if let Some(fields) = said.as_object_mut() {
                fields.insert("of".to_owned(), of.clone());
            }
            found.insert(address, said);
        }
    }
    found
}

fn endpoints_compared(before: &Value, after: &Value, lines: &mut Vec<String>) -> String {
    let (old, new) = (endpoints(before), endpoints(after));
    let added: Vec<_> = new.keys().filter(|address| !old.contains_key(*address)).collect();
    let gone: Vec<_> = old.keys().filter(|address| !new.contains_key(*address)).collect();
    lines.extend(added.iter().map(|address| format!("+ {address}")));
    lines.extend(gone.iter().map(|address| format!("- {address}")));
    let mut other = 0;
    for (address, said) in &new {
        let Some(was) = old.get(address).filter(|was| *was != said) else { continue };
        other += 1;
        generic(&format!("{address} "), was, said, lines);
    }
    let rest = |assignment: &Value| {
        let mut rest = assignment.clone();
        let groups = rest.get_mut("endpoints").and_then(Value::as_array_mut);
        groups.into_iter().flatten().for_each(|group| take(group.get_mut("lb_endpoints")));
        rest
    };
    generic("", &rest(before), &rest(after), lines);
    let mut summary = Vec::new();
    if !added.is_empty() {
        summary.push(format!("+{}", added.len()));
    }
    if !gone.is_empty() {
        summary.push(format!("-{}", gone.len()));
    }
    if other > 0 {
        summary.push(format!("{other} changed"));
    }
    summary.join(" ")
}

fn hosts_compared(before: &Value, after: &Value, lines: &mut Vec<String>) {
    let named = |table: &Value| -> Vec<(String, Value)> {
        let hosts = list(table, "virtual_hosts").iter();
        hosts
            .map(|host| (host["name"].as_str().unwrap_or_default().to_owned(), host.clone()))
            .collect()
    };
    let (old, new) = (named(before), named(after));
    for (name, _) in old.iter().filter(|(name, _)| new.iter().all(|(other, _)| other != name)) {
        lines.push(format!("virtual host {name}: gone"));
    }
    for (name, host) in &new {
        let Some((_, was)) = old.iter().find(|(other, _)| other == name) else {
            let routes = list(host, "routes").len();
            lines.push(format!("virtual host {name}: new: {routes} routes"));
            continue;
        };
        let mut inner = Vec::new();
        routes_compared(list(was, "routes"), list(host, "routes"), &mut inner);
        generic("", &without(was, &["routes"]), &without(host, &["routes"]), &mut inner);
        lines.extend(inner.into_iter().map(|line| format!("virtual host {name}: {line}")));
    }
}

/// Routes are the same by name, or by what they match, where there are several the nth by the nth.
fn routes_compared(before: &[Value], after: &[Value], lines: &mut Vec<String>) {
    let keyed = |routes: &[Value]| {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let key = |route: &Value| {
            let name = route["name"].as_str().filter(|name| !name.is_empty());
            let key = name.map_or_else(|| route["match"].to_string(), str::to_owned);
            let count = seen.entry(key.clone()).or_default();
            *count += 1;
            (key, *count)
        };
        routes.iter().map(key).collect::<Vec<_>>()
    };
    let (old, new) = (keyed(before), keyed(after));
    for (index, _) in old.iter().enumerate().filter(|(_, key)| !new.contains(key)) {
        lines.push(format!("route {}: gone", label(&before[index], index)));
    }
    let mut places = Vec::new();
    for (index, key) in new.iter().enumerate() {
        let route = &after[index];
        let Some(place) = old.iter().position(|other| other == key) else {
            lines.push(format!("route {}: new: {}", label(route, index), target(route)));
            continue;
        };
        places.push(place);
        let mut inner = Vec::new();
        let (was, is) = (target(&before[place]), target(route));
        if was != is {
            inner.push(if was.starts_with("weights ") && is.starts_with("weights ") {
                format!("{was} -> {}", is.trim_start_matches("weights "))
            } else {
                format!("{was} -> {is}")
            });
        }
        generic("", &untargeted(&before[place]), &untargeted(route), &mut inner);
        let label = label(route, index);
        lines.extend(inner.into_iter().map(|line| format!("route {label}: {line}")));
    }
    if !places.is_sorted() {
        lines.push("routes are in another order".to_owned());
    }
}

/// A route's place, from 1, and its name or what it matches.
fn label(route: &Value, index: usize) -> String {
    let number = index + 1;
    if let Some(name) = route["name"].as_str().filter(|name| !name.is_empty()) {
        return format!("{number} ({name})");
    }
    let matches = route["match"].as_object();
    let path = matches.and_then(|it| it.iter().find(|(name, _)| PATHS.contains(&name.as_str())));
    path.map_or_else(|| number.to_string(), |(name, it)| format!("{number} ({name} {})", shown(it)))
}

/// Where a route leads to.
fn target(route: &Value) -> String {
    let action = &route["route"];
    if let Some(clusters) = action["weighted_clusters"]["clusters"].as_array() {
        let one = |cluster: &Value| {
            format!("{} {}", cluster["name"].as_str().unwrap_or_default(), cluster["weight"])
        };
        return format!("weights {}", clusters.iter().map(one).collect::<Vec<_>>().join(", "));
    }
    if let Some(cluster) = action["cluster"].as_str() {
        return format!("cluster {cluster}");
    }
    let others = ["redirect", "direct_response", "route"];
    others.iter().find(|name| route[**name].is_object()).map_or("", |name| name).to_owned()
}

/// A route without what [`target`] says of it.
fn untargeted(route: &Value) -> Value {
    let mut rest = route.clone();
    if let Some(action) = rest.get_mut("route").and_then(Value::as_object_mut) {
        action.remove("cluster");
        let weighted = action.get_mut("weighted_clusters").and_then(|it| it.get_mut("clusters"));
        let clusters = weighted.and_then(Value::as_array_mut).into_iter().flatten();
        clusters.for_each(|cluster| take(cluster.get_mut("weight")));
    }
    rest
}

/// What is not the same anywhere in two values, a line each.
fn generic(path: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let missing = Value::Null;
                let (old, new) =
                    (old.get(key).unwrap_or(&missing), new.get(key).unwrap_or(&missing));
                generic(&joined(path, key), old, new, lines);
            }
        }
        (Value::Array(old), Value::Array(new)) => arrays(path, old, new, lines),
        (Value::Null, new) => lines.push(format!("{path}: {} is new", shown(new))),
        (old, Value::Null) => lines.push(format!("{path}: {} is gone", shown(old))),
        (old, new) => lines.push(format!("{path}: {} -> {}", shown(old), shown(new))),
    }
}

/// Elements are the same by name where all have one, or by their place where there are as many.
fn arrays(path: &str, before: &[Value], after: &[Value], lines: &mut Vec<String>) {
    if let (Some(old), Some(new)) = (by_name(before), by_name(after)) {
        for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let place = format!("{path}[{name}]");
            match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) => generic(&place, old, new, lines),
                (None, Some(new)) => lines.push(format!("{place}: new: {}", shown(new))),
                (Some(_), None) => lines.push(format!("{place}: gone")),
                (None, None) => {}
            }
        }
        let order = |all: &[Value], others: &BTreeMap<&str, &Value>| -> Vec<String> {
            let names = all.iter().filter_map(|it| it["name"].as_str());
            names.filter(|name| others.contains_key(name)).map(str::to_owned).collect()
        };
        if order(before, &new) != order(after, &old) {
            lines.push(format!("{path}: in another order"));
        }
        return;
    }
    if before.len() == after.len() {
        for (index, (old, new)) in before.iter().zip(after).enumerate() {
            generic(&format!("{path}[{index}]"), old, new, lines);
        }
        return;
    }
    for new in after.iter().filter(|it| !before.contains(it)) {
        lines.push(format!("{path}: + {}", shown(new)));
    }
    for old in before.iter().filter(|it| !after.contains(it)) {
        lines.push(format!("{path}: - {}", shown(old)));
    }
}

/// Elements by their names, if all have one of their own.
fn by_name(elements: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let named: BTreeMap<&str, &Value> = elements
        .iter()
        .map(|it| Some((it["name"].as_str().filter(|name| !name.is_empty())?, it)))
        .collect::<Option<_>>()?;
    (named.len() == elements.len()).then_some(named)
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() || path.ends_with(' ') {
        format!("{path}{key}")
    } else {
        format!("{path}.{key}")
    }
}

/// A value on part of a line.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    if text.len() <= MOST_SHOWN {
        return text;
    }
    format!("{}…", &text[..text.floor_char_boundary(MOST_SHOWN)])
}

fn address_of(address: &Value) -> String {
    let socket = &address["socket_address"];
    if let Some(host) = socket["address"].as_str() {
        let port = &socket["port_value"];
        let port = if port.is_null() { "0".to_owned() } else { shown(port) };
        return if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
    }
    let pipe = address["pipe"]["path"].as_str().map(str::to_owned);
    pipe.unwrap_or_else(|| shown(address))
}

fn without(value: &Value, names: &[&str]) -> Value {
    let Value::Object(fields) = value else { return value.clone() };
    let kept = fields.iter().filter(|(name, _)| !names.contains(&name.as_str()));
    Value::Object(kept.map(|(name, it)| (name.clone(), it.clone())).collect::<Map<_, _>>())
}

/// Leaves nothing of what there is.
fn take(value: Option<&mut Value>) {
    value.map(Value::take);
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What a route's match may say of the path.
const PATHS: [&str; 6] = [
    "prefix",
    "path",
    "safe_regex",
    "path_separated_prefix",
    "path_match_policy",
    "connect_matcher",
];
/// What is longer is cut.
const MOST_SHOWN: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn state(of: &[(Type, &str, Value)]) -> State {
        let one = |(kind, name, value): &(Type, &str, Value)| {
            ((kind.message().to_owned(), (*name).to_owned()), (String::new(), value.clone()))
        };
        State(of.iter().map(one).collect())
    }

    fn said(kind: Type, before: Value, after: Value) -> String {
        as_text(&changes(&state(&[(kind, "x", before)]), &state(&[(kind, "x", after)])))
    }

    fn assignment(hosts: &[(&str, u32)]) -> Value {
        let host = |(address, weight): &(&str, u32)| {
            json!({"endpoint": {"address": {"socket_address": {"address": address, "port_value": 80}}},
                   "load_balancing_weight": weight})
        };
        json!({"cluster_name": "x", "endpoints": [{"lb_endpoints": hosts.iter().map(host).collect::<Vec<_>>()}]})
    }

    #[test]
    fn endpoints_are_counted_and_named() {
        let before = assignment(&[("10.0.0.1", 1), ("10.0.0.2", 1)]);
        let after = assignment(&[("10.0.0.2", 5), ("10.0.0.3", 1), ("::1", 1)]);
        assert_eq!(
            said(Type::Endpoints, before, after),
            "endpoints of x: +2 -1 1 changed\n  + 10.0.0.3:80\n  + [::1]:80\n  - 10.0.0.1:80\n  \
             10.0.0.2:80 load_balancing_weight: 1 -> 5\n"
        );
    }

    #[test]
    fn weights_of_a_route_are_said_in_one_line() {
        let table = |one: u32, other: u32| {
            json!({"name": "x", "virtual_hosts": [{"name": "z", "domains": ["*"], "routes": [
                {"match": {"path": "/a"}, "redirect": {}},
                {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [
                    {"name": "v1", "weight": one}, {"name": "v2", "weight": other}]}}}]}]})
        };
        assert_eq!(
            said(Type::Routes, table(90, 10), table(50, 50)),
            "route table x: virtual host z: route 2 (prefix /): weights v1 90, v2 10 -> v1 50, v2 50\n"
        );
    }

    #[test]
    fn routes_that_come_go_and_move_are_named() {
        let route = |path: &str, cluster: &str| {
            json!({"match": {"path": path}, "route": {"cluster": cluster,
            "timeout": "1s"}})
        };
        let table = |routes: &[Value]| json!({"virtual_hosts": [{"name": "z", "routes": routes}]});
        let before = table(&[route("/a", "a"), route("/b", "b"), route("/c", "c")]);
        let after = table(&[route("/d", "d"), route("/b", "b"), route("/a", "e")]);
        assert_eq!(
            said(Type::Routes, before, after),
            "route table x:\n  virtual host z: route 3 (path /c): gone\n  virtual host z: route 1 (path /d): new: \
             cluster d\n  virtual host z: route 3 (path /a): cluster a -> cluster e\n  virtual host z: routes are in \
             another order\n"
        );
    }

    #[test]
    fn whatever_else_changed_is_said_by_its_path() {
        let before = json!({"name": "x", "connect_timeout": "1s", "chains": [{"name": "a", "v": 1}, {"name": "b"}],
            "old": [1, 2]});
        let after = json!({"name": "x", "connect_timeout": "2s", "chains": [{"name": "b"}, {"name": "a", "v": 2}],
            "new": true, "old": [2, 3, 4]});
        assert_eq!(
            said(Type::Cluster, before, after),
            "cluster x:\n  chains[a].v: 1 -> 2\n  chains: in another order\n  connect_timeout: 1s -> 2s\n  new: true \
            is \
             new\n  old: + 3\n  old: + 4\n  old: - 1\n"
        );
    }

    #[test]
    fn what_is_no_resource_is_compared_all_the_same() {
        let table = |clusters: Value, timeout: &str| {
            json!({"virtual_hosts": [{"name": "z", "routes": [
                {"match": {"prefix": "/"}, "route": {"weighted_clusters": clusters, "timeout": timeout}}]}]})
        };
        let cases = [
            (Type::Endpoints, json!("x"), json!("y")),
            (Type::Endpoints, json!({"endpoints": ["x"]}), json!({"endpoints": ["y"]})),
            (Type::Endpoints, json!({"endpoints": [{"lb_endpoints": ["x"]}]}), json!([])),
            (
                Type::Endpoints,
                json!({"endpoints": [{"lb_endpoints": [{"endpoint": "x"}]}]}),
                json!(1),
            ),
            (Type::Routes, table(json!("x"), "1s"), table(json!("x"), "2s")),
            (
                Type::Routes,
                table(json!({"clusters": ["x"]}), "1s"),
                table(json!({"clusters": [1]}), "1s"),
            ),
        ];
        for (kind, before, after) in cases {
            let text = said(kind, before.clone(), after.clone());
            assert!(!text.trim_end().ends_with(':'), "{before} {after}: {text}");
        }
    }

    #[test]
    fn whatever_changed_is_said_somehow() {
        // One address twice, and virtual hosts in another order.
        let before = assignment(&[("10.0.0.1", 1), ("10.0.0.1", 3)]);
        let after = assignment(&[("10.0.0.1", 2), ("10.0.0.1", 3)]);
        assert_eq!(
            said(Type::Endpoints, before, after),
            "endpoints of x: endpoints[0].lb_endpoints[0].load_balancing_weight: 1 -> 2\n"
        );
        let table =
            |names: [&str; 2]| json!({"virtual_hosts": names.map(|name| json!({"name": name}))});
        assert_eq!(
            said(Type::Routes, table(["a", "b"]), table(["b", "a"])),
            "route table x: virtual_hosts: in another order\n"
        );
    }

    #[test]
    fn what_is_new_or_gone_is_one_line() {
        let one = state(&[(Type::Cluster, "a", json!({"type": "EDS"}))]);
        let other = state(&[(Type::Endpoints, "b", assignment(&[("10.0.0.1", 1)]))]);
        assert_eq!(
            as_text(&changes(&one, &other)),
            "cluster a: gone\nendpoints of b: new: 1 endpoints\n"
        );
        assert!(changes(&one, &one).is_empty());
    }
}
