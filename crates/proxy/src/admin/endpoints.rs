//! `static_endpoint_configs` of `/config_dump?include_eds`: the hosts of the bootstrap's clusters, as workers see them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use towpath_engine::message::{ClusterDescription, HostDescription};
use towpath_engine::snapshot::cluster::{Discovery, DropOverload, Endpoint, Health};
use towpath_engine::snapshot::{Cluster, Snapshot};
use towpath_engine::stream_info::{JsonStyle, write_struct};
use towpath_proto::Address;

use super::clusters::{coarse_health, config_of, hosts, locality_json};
use super::listeners::address;

/// The load assignment of each of the bootstrap's clusters, by its name.
pub(super) fn assignments(
    bootstrap: &Value,
    snapshot: &Snapshot,
    workers: &[Vec<ClusterDescription>],
) -> Vec<(String, Value)> {
    let of = |cluster: &Cluster| {
        let config = config_of(bootstrap, &cluster.name)?;
        let told = config["eds_cluster_config"]["service_name"].as_str();
        let name = told.filter(|name| !name.is_empty()).unwrap_or(&cluster.name);
        Some((name.to_owned(), assignment(name, cluster, &hosts(&cluster.name, workers))))
    };
    snapshot.shown_clusters().filter_map(|cluster| of(cluster)).collect()
}

fn assignment(name: &str, cluster: &Cluster, hosts: &[HostDescription]) -> Value {
    let mut policy = json!({"overprovisioning_factor": cluster.balancing.overprovisioning});
    if let Some(drops) = &cluster.drops {
        let share = json!({"numerator": drops.parts, "denominator": "MILLION"});
        const _: () = assert!(DropOverload::ALL == 1_000_000, "the share is of a million");
        policy["drop_overloads"] = json!([{"category": *drops.category, "drop_percentage": share}]);
    }
    let mut assignment = json!({"cluster_name": name, "policy": policy});
    // Hosts that requests bring along are in no assignment.
    let is_assigned = !matches!(cluster.discovery, Discovery::OriginalDestination(_));
    let mut groups: BTreeMap<(u32, &str), Vec<&HostDescription>> = BTreeMap::new();
    for host in hosts.iter().filter(|_| is_assigned) {
        groups.entry((host.endpoint.priority, &host.endpoint.locality)).or_default().push(host);
    }
    if !groups.is_empty() {
        let is_named = matches!(cluster.discovery, Discovery::Dns(_));
        let group = |((priority, locality), hosts): (_, Vec<&HostDescription>)| {
            let weight = hosts.first().map_or(0, |host| host.endpoint.locality_weight);
            let hosts: Vec<Value> =
                hosts.into_iter().map(|host| host_json(host, is_named)).collect();
            let mut group = json!({
                "locality": locality_json(locality),
                "lb_endpoints": hosts,
                "load_balancing_weight": weight,
            });
            if priority > 0 {
                group["priority"] = json!(priority);
            }
            group
        };
        assignment["endpoints"] = groups.into_iter().map(group).collect();
    }
    assignment
}

fn host_json(host: &HostDescription, is_named: bool) -> Value {
    let it = &host.endpoint;
    let mut endpoint = Map::from_iter([
        ("address".to_owned(), address(&it.address)),
        ("health_check_config".to_owned(), check(it)),
    ]);
    if !it.hostname.is_empty() {
        endpoint.insert("hostname".to_owned(), json!(*it.hostname));
    }
    let others = it.addresses.iter().flat_map(|all| all.iter().skip(1));
    let others: Vec<Value> = others.map(|other| json!({"address": address(other)})).collect();
    if !others.is_empty() {
        endpoint.insert("additional_addresses".to_owned(), others.into());
    }
    let health = match coarse_health(host) {
        Health::Healthy => "HEALTHY",
        Health::Degraded => "DEGRADED",
        Health::Unhealthy => "UNHEALTHY",
    };
    let mut shown = json!({
        "endpoint": endpoint,
        "health_status": health,
        "load_balancing_weight": it.weight,
    });
    if let Some(metadata) = &it.filter_metadata {
        let mut text = Vec::new();
        write_struct(&mut text, metadata, JsonStyle::Plain);
        let metadata: Value = serde_json::from_slice(&text).unwrap_or_default();
        shown["metadata"] = json!({"filter_metadata": metadata});
    } else if is_named {
        // Each host that a name stands for has some, as in Envoy.
        shown["metadata"] = json!({});
    }
    shown
}

fn check(endpoint: &Endpoint) -> Value {
    let mut shown = Map::new();
    let Some(check) = &endpoint.check else { return shown.into() };
    if !check.hostname.is_empty() {
        shown.insert("hostname".to_owned(), json!(*check.hostname));
    }
    // Where the check goes elsewhere, Envoy says the port of that.
    let elsewhere = check.address.as_ref().filter(|it| **it != endpoint.address);
    let port = check.port.filter(|port| Some(*port) != port_of(&endpoint.address));
    if let Some(port) = port.or_else(|| elsewhere.and_then(port_of)) {
        shown.insert("port_value".to_owned(), json!(port));
    }
    shown.into()
}

fn port_of(address: &Address) -> Option<u16> {
    match address {
        Address::Ip(ip) => Some(ip.port()),
        Address::Unix(_) | Address::Internal(_) => None,
    }
}
