//! `/clusters`: clusters and their hosts, the counts of all workers added up.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use hyper::StatusCode;
use regex::Regex;
use serde_json::{Map, Value, json};
use towpath_engine::message::{ClusterDescription, HostCounts, HostDescription};
use towpath_engine::snapshot::Cluster;
use towpath_engine::snapshot::cluster::{Health, HealthStatus, Limits};

use super::listeners::address;
use super::query::Query;
use super::reply::Reply;
use crate::control::Control;

/// Asks the workers and lists what they say.
pub(super) async fn clusters(control: &Control, query: &Query) -> Reply {
    let filter = match query.first("filter").map(Regex::new).transpose() {
        Ok(filter) => filter,
        Err(error) => {
            return Reply::refused(StatusCode::BAD_REQUEST, format!("Invalid re2 regex: {error}"));
        }
    };
    let descriptions = control.describe().await;
    let snapshot = control.snapshot.borrow().clone();
    let bootstrap = control.boot.borrow().bootstrap();
    let subs: Vec<Arc<Cluster>> = control.subs.borrow().ready().cloned().collect();
    let rows: Vec<(&Arc<Cluster>, Vec<HostDescription>)> = snapshot
        .shown_clusters()
        .chain(&subs)
        .filter(|cluster| filter.as_ref().is_none_or(|filter| filter.is_match(&cluster.name)))
        .map(|cluster| (cluster, hosts(&cluster.name, &descriptions)))
        .collect();
    if query.first("format") == Some("json") {
        let statuses: Vec<Value> =
            rows.iter().map(|(cluster, hosts)| status(&bootstrap, cluster, hosts)).collect();
        super::json(&json!({"cluster_statuses": statuses}))
    } else {
        Reply::text(
            rows.iter()
                .map(|(cluster, hosts)| text(&bootstrap, cluster, hosts))
                .collect::<String>(),
        )
    }
}

/// The hosts of a cluster over all workers, in the order of the first.
pub(super) fn hosts(cluster: &str, workers: &[Vec<ClusterDescription>]) -> Vec<HostDescription> {
    let mut hosts: Vec<HostDescription> = Vec::new();
    let described = workers.iter().flatten().filter(|description| *description.name == *cluster);
    for host in described.flat_map(|description| &description.hosts) {
        let is_known = |known: &&mut HostDescription| {
            let (known, host) = (&known.endpoint, &host.endpoint);
            known.address == host.address && known.hostname == host.hostname
        };
        match hosts.iter_mut().find(is_known) {
            Some(known) => known.counts += host.counts,
            None => hosts.push(host.clone()),
        }
    }
    hosts
}

fn text(bootstrap: &Value, cluster: &Cluster, hosts: &[HostDescription]) -> String {
    let name = &cluster.name;
    let mut text = format!("{name}::observability_name::{}\n", observability_name(cluster));
    let rates = cluster.tallies.rates();
    if cluster.outliers.is_some() {
        for (origin, rate) in ["success_rate", "local_origin_success_rate"].iter().enumerate() {
            let (average, threshold) = (rates.averages[origin], rates.thresholds[origin]);
            let _ = writeln!(text, "{name}::outlier::{rate}_average::{}", known(average));
            let _ =
                writeln!(text, "{name}::outlier::{rate}_ejection_threshold::{}", known(threshold));
        }
    }
    for (priority, limits) in [("default", &cluster.limits), ("high", &cluster.high_limits)] {
        for (limit, value) in thresholds(limits) {
            let _ = writeln!(text, "{name}::{priority}_priority::{limit}::{value}");
        }
    }
    let is_of_api = !is_of_bootstrap(bootstrap, name);
    let _ = writeln!(text, "{name}::added_via_api::{is_of_api}");
    for host in hosts {
        let [region, zone, sub_zone] = locality(&host.endpoint.locality);
        let at = &host.endpoint.address;
        let of_host = |origin: usize| rates.hosts.get(at).and_then(|rates| rates[origin]);
        let counts: BTreeMap<_, _> =
            gauges(&host.counts).into_iter().chain(counters(&host.counts)).collect();
        for (count, value) in counts {
            let _ = writeln!(text, "{name}::{at}::{count}::{value}");
        }
        let _ = write!(
            text,
            "{name}::{at}::hostname::{}\n\
             {name}::{at}::health_flags::{}\n\
             {name}::{at}::weight::{}\n\
             {name}::{at}::region::{region}\n\
             {name}::{at}::zone::{zone}\n\
             {name}::{at}::sub_zone::{sub_zone}\n\
             {name}::{at}::canary::false\n\
             {name}::{at}::priority::{}\n\
             {name}::{at}::success_rate::{}\n\
             {name}::{at}::local_origin_success_rate::{}\n",
            host.endpoint.hostname,
            health_flags(host),
            host.endpoint.weight,
            host.endpoint.priority,
            known(of_host(0)),
            known(of_host(1)),
        );
    }
    text
}

/// `alt_stat_name`, or the name as it is written: statistics have it without colons.
fn observability_name(cluster: &Cluster) -> &str {
    let is_own = *cluster.name.replace(':', "_") == *cluster.stat_name;
    if is_own { &cluster.name } else { &cluster.stat_name }
}

/// A percentage; -1 where it is not known, as in Envoy.
fn known(percent: Option<f64>) -> f64 {
    percent.unwrap_or(-1.0)
}

fn status(bootstrap: &Value, cluster: &Cluster, hosts: &[HostDescription]) -> Value {
    let named = |limits| {
        let limits = thresholds(limits).into_iter();
        limits.map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>()
    };
    let mut high = Map::from_iter([("priority".to_owned(), json!("HIGH"))]);
    high.extend(named(&cluster.high_limits));
    let mut status = json!({
        "name": *cluster.name,
        "host_statuses": hosts.iter().map(host_status).collect::<Vec<_>>(),
        "circuit_breakers": {"thresholds": [named(&cluster.limits), high]},
        "observability_name": observability_name(cluster),
    });
    if !is_of_bootstrap(bootstrap, &cluster.name) {
        status["added_via_api"] = json!(true);
    }
    status
}

fn host_status(host: &HostDescription) -> Value {
    let counters = counters(&host.counts).into_iter().map(|(name, value)| stat(None, name, value));
    let gauges =
        gauges(&host.counts).into_iter().map(|(name, value)| stat(Some("GAUGE"), name, value));
    let mut status = Map::from_iter([
        ("address".to_owned(), address(&host.endpoint.address)),
        ("stats".to_owned(), counters.chain(gauges).collect()),
        ("health_status".to_owned(), health_status(host)),
        ("weight".to_owned(), json!(host.endpoint.weight)),
    ]);
    if !host.endpoint.hostname.is_empty() {
        status.insert("hostname".to_owned(), json!(*host.endpoint.hostname));
    }
    if host.endpoint.priority > 0 {
        status.insert("priority".to_owned(), json!(host.endpoint.priority));
    }
    status.insert("locality".to_owned(), locality_json(&host.endpoint.locality));
    status.into()
}

/// A `Locality`.
pub(super) fn locality_json(text: &str) -> Value {
    let [region, zone, sub_zone] = locality(text);
    let parts = [("region", region), ("zone", zone), ("sub_zone", sub_zone)];
    let known = parts.into_iter().filter(|(_, part)| !part.is_empty());
    known.map(|(name, part)| (name.to_owned(), json!(part))).collect::<Map<_, _>>().into()
}

/// A `SimpleMetric`; proto JSON leaves zeros out and writes 64-bit numbers as strings.
fn stat(kind: Option<&str>, name: &str, value: u64) -> Value {
    let mut stat = Map::new();
    if let Some(kind) = kind {
        stat.insert("type".to_owned(), json!(kind));
    }
    if value > 0 {
        stat.insert("value".to_owned(), json!(value.to_string()));
    }
    stat.insert("name".to_owned(), json!(name));
    stat.into()
}

/// Circuit breakers as the file has them; workers have a share each.
fn thresholds(limits: &Limits) -> [(&'static str, u32); 4] {
    [
        ("max_connections", limits.connections),
        ("max_pending_requests", limits.pending),
        ("max_requests", limits.requests),
        ("max_retries", limits.retries),
    ]
}

/// Whether a cluster is one of the bootstrap's, not a control plane's.
fn is_of_bootstrap(bootstrap: &Value, cluster: &str) -> bool {
    config_of(bootstrap, cluster).is_some()
}

/// The bootstrap's text of a cluster.
pub(super) fn config_of<'a>(bootstrap: &'a Value, cluster: &str) -> Option<&'a Value> {
    let clusters = bootstrap["static_resources"]["clusters"].as_array();
    clusters.into_iter().flatten().find(|config| config["name"] == cluster)
}

fn counters(counts: &HostCounts) -> [(&'static str, u64); 6] {
    [
        ("cx_connect_fail", counts.connect_failures),
        ("cx_total", counts.connections_total),
        ("rq_error", counts.requests_error),
        ("rq_success", counts.requests_success),
        ("rq_timeout", counts.requests_timeout),
        ("rq_total", counts.requests_total),
    ]
}

fn gauges(counts: &HostCounts) -> [(&'static str, u64); 3] {
    [
        ("cx_active", counts.connections_active),
        ("rq_active", counts.requests_active),
        ("rq_pending_active", counts.requests_pending),
    ]
}

fn locality(text: &str) -> [&str; 3] {
    let mut parts = text.splitn(3, '/');
    [(); 3].map(|()| parts.next().unwrap_or_default())
}

/// In Envoy's order.
fn health_flags(host: &HostDescription) -> String {
    let health_flags = host.health_flags;
    let drains = host.endpoint.status == HealthStatus::Draining;
    let flags = [
        (health_flags.failed_check, "/failed_active_hc"),
        (health_flags.ejected, "/failed_outlier_check"),
        (host.endpoint.health == Health::Unhealthy && !drains, "/failed_eds_health"),
        (health_flags.degraded, "/degraded_active_hc"),
        (host.endpoint.health == Health::Degraded, "/degraded_eds_health"),
        (health_flags.degraded_by_answers, "/degraded_outlier_detection"),
        (health_flags.pending, "/pending_active_hc"),
        (health_flags.timed_out, "/active_hc_timeout"),
        (drains, "/eds_status_draining"),
    ];
    let text: String = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
    if text.is_empty() { "healthy".to_owned() } else { text }
}

/// What is left of a host's flags where there are three states.
pub(super) fn coarse_health(host: &HostDescription) -> Health {
    let found = host.health_flags;
    if found.failed_check || found.ejected || host.endpoint.health == Health::Unhealthy {
        Health::Unhealthy
    } else if found.degraded
        || found.degraded_by_answers
        || host.endpoint.health == Health::Degraded
    {
        Health::Degraded
    } else {
        Health::Healthy
    }
}

fn health_status(host: &HostDescription) -> Value {
    let eds = match host.endpoint.health {
        Health::Healthy => "HEALTHY",
        Health::Degraded => "DEGRADED",
        Health::Unhealthy if host.endpoint.status == HealthStatus::Draining => "DRAINING",
        Health::Unhealthy => "UNHEALTHY",
    };
    let health_flags = host.health_flags;
    let flags = [
        ("failed_active_health_check", health_flags.failed_check),
        ("failed_outlier_check", health_flags.ejected),
        ("failed_active_degraded_check", health_flags.degraded),
        ("failed_degraded_outlier_detection", health_flags.degraded_by_answers),
        ("pending_active_hc", health_flags.pending),
        ("active_hc_timeout", health_flags.timed_out),
    ];
    let mut status = Map::from_iter([("eds_health_status".to_owned(), json!(eds))]);
    let set = flags.into_iter().filter(|(_, is_set)| *is_set);
    status.extend(set.map(|(name, is_set)| (name.to_owned(), json!(is_set))));
    status.into()
}
