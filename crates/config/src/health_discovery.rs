//! What a server of health discovery (HDS) wants checked: a `HealthCheckSpecifier`, as clusters that the engine's own
//! checker watches.
//!
//! Each of its clusters becomes a cluster for each of its health checks, made by the same rules as one of a control
//! plane, and named as the server names it; further checks of a cluster have names of their own. Envoy does the same
//! with clusters of its own (`HdsDelegate::createClusterConfig`). A specifier is taken whole or not at all.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use towpath_engine::snapshot::{ClusterId, Snapshot};
use towpath_proto::Address;

use crate::base::{Base, Prints};
use crate::dynamic::{Given, Kind, Rejected, Resources};
use crate::load::Options;
use crate::source::{Source, Sources};
use wire::{CheckedEndpoint, Cluster, ClusterHealthCheck, HealthCheckSpecifier, Place};

mod wire;

/// What is to be checked, and how often the server is told.
#[derive(Debug)]
pub struct CheckPlan {
    /// `interval`: between two reports.
    pub interval: Duration,
    /// In the server's order.
    pub clusters: Vec<CheckedCluster>,
    /// What a monitor is to watch.
    pub snapshot: Arc<Snapshot>,
}

/// A cluster that the server named.
#[derive(Debug)]
pub struct CheckedCluster {
    /// `cluster_name`.
    pub name: String,
    /// The clusters of [`CheckPlan::snapshot`] that stand for it, one for each of its health checks.
    pub checks: Vec<ClusterId>,
    /// `locality_endpoints`, without those that are not to be checked.
    pub localities: Vec<CheckedLocality>,
    /// A digest of all but which endpoints there are: while it stays, checks of an endpoint go on.
    pub manner: u64,
}

/// Endpoints in one place.
#[derive(Debug)]
pub struct CheckedLocality {
    /// A `Locality`, encoded.
    pub locality: Bytes,
    /// The addresses by which they are reported.
    pub endpoints: Vec<Address>,
}

/// Reads what the server sent. Clusters that `before` had keep their ids.
///
/// # Errors
/// All that is wrong with it, a line each.
pub fn check_plan(
    message: Bytes,
    before: &Arc<Snapshot>,
    options: &Options,
) -> Result<CheckPlan, String> {
    if message.len() > MOST_BYTES {
        return Err(format!("{} bytes; the limit is {MOST_BYTES}", message.len()));
    }
    let specifier = HealthCheckSpecifier::decode(message)
        .map_err(|error| format!("not a HealthCheckSpecifier: {error}"))?;
    let interval = specifier.interval.map_or(DEFAULT_INTERVAL, |interval| interval.duration());
    let wanted = Wanted::of(specifier)?;
    let snapshot = converted(wanted.given, before, options)?;
    let id = |name: &String| {
        let id = snapshot.cluster_id(name).filter(|id| snapshot.cluster(*id).is_some());
        id.ok_or_else(|| format!("cluster `{name}` came to nothing"))
    };
    let clusters = wanted.clusters.into_iter().map(|(cluster, names)| {
        let checks = names.iter().map(id).collect::<Result<_, String>>()?;
        Ok(CheckedCluster { checks, ..cluster })
    });
    let clusters = clusters.collect::<Result<_, String>>()?;
    Ok(CheckPlan { interval, clusters, snapshot: Arc::new(snapshot) })
}

/// A specifier as clusters.
#[derive(Default)]
struct Wanted {
    /// With the names of what stands for it.
    clusters: Vec<(CheckedCluster, Vec<String>)>,
    given: Vec<Given>,
}

impl Wanted {
    fn of(specifier: HealthCheckSpecifier) -> Result<Self, String> {
        let (mut wanted, mut names, mut taken) = (Self::default(), HashSet::new(), HashSet::new());
        let mut room = MOST_CHECKS;
        for (index, check) in specifier.cluster_health_checks.into_iter().enumerate() {
            // Envoy makes use of the first alone, too.
            if !check.cluster_name.is_empty() && !names.insert(check.cluster_name.clone()) {
                continue;
            }
            let at = format!("cluster_health_checks[{index}] `{}`", check.cluster_name);
            let cluster = checked(&check).map_err(|why| format!("{at}: {why}"))?;
            let endpoints: usize = cluster.localities.iter().map(|it| it.endpoints.len()).sum();
            let cost = (endpoints + 1).saturating_mul(check.health_checks.len().max(1));
            let limit = || format!("more than {MOST_CHECKS} endpoints and clusters to check");
            room = room.checked_sub(cost).ok_or_else(limit)?;
            let base = match &*check.cluster_name {
                "" => format!("hds.{index}"),
                name => name.to_owned(),
            };
            let mut stand_ins = Vec::new();
            for (number, health_check) in check.health_checks.iter().enumerate() {
                let name =
                    if number == 0 { base.clone() } else { format!("{base}.check.{number}") };
                if !taken.insert(name.clone()) {
                    return Err(format!("{at}: the name `{name}` is taken"));
                }
                let body = stand_in(&name, &base, &check, health_check)
                    .map_err(|why| format!("{at}.health_checks[{number}]: {why}"))?;
                wanted.given.push(Given { name: name.clone(), body });
                stand_ins.push(name);
            }
            wanted.clusters.push((cluster, stand_ins));
        }
        Ok(wanted)
    }
}

/// What is reported of a cluster.
fn checked(check: &ClusterHealthCheck) -> Result<CheckedCluster, String> {
    let mut hasher = DefaultHasher::new();
    (&check.cluster_name, &check.health_checks, &check.transport_socket_matches).hash(&mut hasher);
    check.upstream_bind_config.hash(&mut hasher);
    let mut localities = Vec::new();
    for group in &check.locality_endpoints {
        let mut endpoints = Vec::new();
        for endpoint in &group.endpoints {
            let checked = CheckedEndpoint::decode(endpoint.clone())
                .map_err(|error| format!("an endpoint: {error}"))?;
            if checked.is_left_alone() {
                continue;
            }
            let address = checked.address.as_ref().and_then(address);
            endpoints.push(address.ok_or("an endpoint needs an IP address and a port, or a pipe")?);
            if let Some(config) = &checked.health_check_config {
                (&endpoints.last(), config).hash(&mut hasher);
            }
        }
        // There is nothing to report of one that has none.
        if !endpoints.is_empty() {
            let locality = group.locality.clone().unwrap_or_default();
            localities.push(CheckedLocality { locality, endpoints });
        }
    }
    let name = check.cluster_name.clone();
    Ok(CheckedCluster { name, checks: Vec::new(), localities, manner: hasher.finish() })
}

/// A cluster with one of the health checks.
fn stand_in(
    name: &str,
    named: &str,
    check: &ClusterHealthCheck,
    health_check: &Bytes,
) -> Result<Bytes, String> {
    let kind = wire::HealthCheck::decode(health_check.clone()).map_err(|it| it.to_string())?;
    if kind.logs() {
        return Err("no events of these checks are logged; the server is told".to_owned());
    }
    let mut cluster = Cluster::of(check).map_err(|error| error.to_string())?;
    cluster.name = name.to_owned();
    cluster.health_checks = vec![kind.naming(named, health_check)];
    if name != named {
        cluster.alt_stat_name = named.to_owned();
    }
    if kind.grpc_health_check.is_some() {
        cluster.http2_protocol_options = Some(Bytes::new());
    }
    Ok(cluster.encode_to_vec().into())
}

/// The address of an endpoint. Names are not looked up, by Envoy neither.
fn address(place: &Place) -> Option<Address> {
    if let Some(pipe) = &place.pipe {
        return Some(Address::Unix(Arc::from(Path::new(&pipe.path))));
    }
    let socket = place.socket_address.as_ref()?;
    let ip: IpAddr = socket.address.parse().ok()?;
    Some(Address::Ip(SocketAddr::new(ip, u16::try_from(socket.port_value?).ok()?)))
}

/// Clusters and nothing else, by the rules for those of a control plane.
fn converted(
    given: Vec<Given>,
    before: &Arc<Snapshot>,
    options: &Options,
) -> Result<Snapshot, String> {
    let nothing = Source::yaml("health discovery", "node: { id: hds, cluster: hds }");
    let sources = Sources { file: None, yaml: Some(nothing) };
    let mut resources =
        Resources::new(sources, options.clone()).map_err(|error| error.to_string())?;
    // Ids that no name had the last time; those that go now are not used for others at once.
    let used: HashSet<ClusterId> = before.cluster_ids.values().copied().collect();
    let all = (0..before.clusters.len()).filter_map(|id| u32::try_from(id).ok()).map(ClusterId);
    let free = all.filter(|id| !used.contains(id)).collect();
    let base = Base { snapshot: Arc::clone(before), prints: Prints::default(), free };
    let (build, rejected) = resources.offer(Kind::Cluster, given, &[], &base);
    if !rejected.is_empty() {
        let line = |it: &Rejected| format!("cluster `{}`: {}", it.name, it.reason);
        return Err(rejected.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
    if let Some((_, name)) = build.warming.first() {
        return Err(format!("cluster `{name}` asks for what no server of health discovery has"));
    }
    Ok(build.snapshot)
}

/// Envoy's.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// No specifier is larger.
const MOST_BYTES: usize = 16 << 20;
/// No specifier comes to more endpoints and clusters, each as often as it has health checks.
const MOST_CHECKS: usize = 20_000;

#[cfg(test)]
mod tests;
