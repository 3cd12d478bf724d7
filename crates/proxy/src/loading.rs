//! From the command line to a checked configuration, through `towpath-config`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use serde_json::Value;
use towpath_config::{
    Base, Discovery, Loaded, Options, Prints, Push, Resources, Runtime, Source, Sources,
};
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::log::Sink;
use towpath_engine::stats::Rules;
use towpath_proto::Address;

use crate::access_log::Target;
use crate::admin::AdminAddress;
use crate::flags::{Flags, IpVersion};
use crate::health_discovery::HealthDiscovery;
use crate::load_report::LoadReports;
use crate::log;

/// What `/runtime_modify` was told.
pub(crate) type Overrides = BTreeMap<String, String>;

/// What there is to serve.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) snapshot: Snapshot,
    /// What its parts were made from.
    pub(crate) prints: Prints,
    pub(crate) boot: Boot,
    pub(crate) admin: Admin,
    /// Labels of every statistic: `--stats-tag`, and `stats_config.stats_tags` with a fixed value.
    pub(crate) labels: Vec<(String, String)>,
    /// Which statistics are shown, and their buckets.
    pub(crate) rules: Rules,
    /// To whom statistics are sent.
    pub(crate) push: Push,
    /// The server that is told of the load of clusters.
    pub(crate) load_reports: Option<LoadReports>,
    /// The server that says which hosts are to be checked.
    pub(crate) health_discovery: Option<HealthDiscovery>,
    /// The control plane that is in charge.
    pub(crate) driven: Option<Driven>,
}

/// What a control plane's resources are put together with.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) sources: Sources,
    pub(crate) options: Options,
    pub(crate) discovery: Discovery,
}

/// What was loaded, as far as admin requests show it.
#[derive(Clone, Debug)]
pub(crate) struct Boot {
    /// The bootstrap as JSON. Text takes a fraction of the memory that values take.
    bootstrap: Box<str>,
    /// The same as it was read, where it names files that are read again when they change, or has an admin layer.
    sources: Option<Arc<Sources>>,
    /// When it was loaded.
    pub(crate) loaded: SystemTime,
    /// When the first one was.
    pub(crate) started: SystemTime,
    /// When clusters and listeners that are not as they were at the start were changed, by kind and name.
    pub(crate) changed: HashMap<(Kind, String), SystemTime>,
    /// Fields that were set and not honoured.
    pub(crate) unknown_fields: u64,
    /// `layered_runtime.layers`.
    pub(crate) runtime: Runtime,
}

impl Boot {
    /// One that has nothing in it.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> Self {
        Self {
            bootstrap: Box::from("{}"),
            sources: None,
            loaded: SystemTime::UNIX_EPOCH,
            started: SystemTime::UNIX_EPOCH,
            changed: HashMap::new(),
            unknown_fields: 0,
            runtime: Runtime::default(),
        }
    }

    /// The bootstrap.
    pub(crate) fn bootstrap(&self) -> Value {
        serde_json::from_str(&self.bootstrap).unwrap_or_default()
    }
}

/// A part of the configuration that is replaced by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Cluster,
    Listener,
}

/// `Bootstrap.admin`.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) address: Option<AdminAddress>,
    pub(crate) logs: Vec<Target>,
}

/// Loads what the flags name.
///
/// # Errors
/// All that is wrong with it, a line each.
pub(crate) fn load(flags: &Flags) -> Result<Configuration, String> {
    load_after(flags, read(flags)?, &Base::default(), &Overrides::new())
}

/// Loads what serves once more, with what the files that it names hold and the runtime says now.
///
/// # Errors
/// All that is wrong with them, a line each.
pub(crate) fn load_again(
    flags: &Flags,
    base: &Base,
    boot: &Boot,
    overrides: &Overrides,
) -> Result<Configuration, String> {
    let sources = boot.sources.as_ref();
    let sources = sources.ok_or_else(|| "it names no files, and has no admin layer".to_owned())?;
    load_after(flags, Sources::clone(sources), base, overrides)
}

/// Loads what takes the place of what serves.
///
/// # Errors
/// All that is wrong with it, a line each; and what cannot change while it serves.
pub(crate) fn reload(
    flags: &Flags,
    base: &Base,
    boot: &Boot,
    overrides: &Overrides,
) -> Result<Configuration, String> {
    let configuration = load_after(flags, read(flags)?, base, overrides)?;
    let fixed = fixed_changes(boot.bootstrap(), configuration.boot.bootstrap());
    if fixed.is_empty() {
        return Ok(configuration);
    }
    let file = flags.config_path.as_deref().map(|path| path.display().to_string());
    let file = file.unwrap_or_else(|| "--config-yaml".to_owned());
    let lines = fixed.iter().map(|path| {
        format!("{file}: {path}: cannot be changed while it serves; start the program anew")
    });
    Err(lines.collect::<Vec<_>>().join("\n"))
}

/// The fields of a bootstrap that differ, but for those that may.
fn fixed_changes(before: Value, after: Value) -> Vec<String> {
    let fields = |bootstrap: Value| -> BTreeMap<String, Value> {
        let Value::Object(mut fields) = bootstrap else { return BTreeMap::new() };
        let resources = fields.remove("static_resources");
        let resources = resources.as_ref().and_then(Value::as_object).into_iter().flatten();
        let others = resources
            .filter(|(name, _)| !matches!(name.as_str(), "clusters" | "listeners" | "secrets"))
            .map(|(name, value)| (format!("static_resources.{name}"), value.clone()));
        others.chain(fields).collect()
    };
    let (before, after) = (fields(before), fields(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

fn read(flags: &Flags) -> Result<Sources, String> {
    let file = flags.config_path.as_deref().map(Source::read).transpose();
    Ok(Sources {
        file: file.map_err(|error| error.to_string())?,
        yaml: flags.config_yaml.as_deref().map(|text| Source::yaml("--config-yaml", text)),
    })
}

fn load_after(
    flags: &Flags,
    sources: Sources,
    base: &Base,
    overrides: &Overrides,
) -> Result<Configuration, String> {
    let options = Options { runtime_overrides: overrides.clone(), ..options(flags) };
    let Loaded { snapshot, prints, bootstrap, notes, ignored, mut json } =
        towpath_config::reload(&sources, &options, base).map_err(|error| error.to_string())?;
    if !flags.skip_deprecated_logs {
        for note in notes {
            log!(Config, Warning, "{note}");
        }
    }
    for finding in &ignored {
        log!(Config, Info, "{finding}");
    }
    // The command line may have said otherwise than the file.
    json["node"]["id"] = snapshot.node.id.clone().into();
    json["node"]["cluster"] = snapshot.node.cluster.clone().into();
    if !flags.service_zone.is_empty() {
        json["node"]["locality"]["zone"] = snapshot.node.zone.clone().into();
    }
    let admin = admin(bootstrap.admin, &snapshot, &json)?;
    let names_files =
        prints.secrets().next().is_some() || bootstrap.runtime.disks().roots().next().is_some();
    let boot = Boot {
        bootstrap: json.to_string().into_boxed_str(),
        sources: (names_files || bootstrap.runtime.admin_layer().is_some())
            .then(|| Arc::new(sources.clone())),
        loaded: SystemTime::now(),
        started: SystemTime::now(),
        changed: HashMap::new(),
        unknown_fields: ignored.len() as u64,
        runtime: bootstrap.runtime,
    };
    let fixed = bootstrap
        .stats
        .tags
        .iter()
        .filter_map(|tag| Some((tag.name.to_string(), tag.fixed.as_ref()?.to_string())));
    let labels = flags.stats_tag.iter().cloned().chain(fixed).collect();
    let (load_reports, health_discovery) =
        match (bootstrap.load_reports, bootstrap.health_discovery) {
            (None, None) => (None, None),
            (load_reports, health_discovery) => {
                let resources = Resources::new(sources.clone(), options.clone());
                let resources = resources.map_err(|error| error.to_string())?;
                let node = resources.node("towpath", env!("CARGO_PKG_VERSION"));
                let load_reports = load_reports.map(|server| LoadReports::new(server, &node));
                let options = options.clone();
                let discovery = |server| HealthDiscovery { server, node, options };
                (load_reports, health_discovery.map(discovery))
            }
        };
    let driven = bootstrap.discovery.map(|discovery| Driven { sources, options, discovery });
    Ok(Configuration {
        snapshot,
        prints,
        boot,
        admin,
        labels,
        rules: bootstrap.stats.rules,
        push: bootstrap.push,
        load_reports,
        health_discovery,
        driven,
    })
}

/// How to load, as far as flags say it.
fn options(flags: &Flags) -> Options {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Options {
        allow_unknown_static_fields: flags.allow_unknown_static_fields,
        node_id: given(&flags.service_node),
        node_cluster: given(&flags.service_cluster),
        node_zone: given(&flags.service_zone),
        node_address: *OWN_ADDRESS.get_or_init(|| own_address(flags.local_address_ip_version)),
        runtime_overrides: Overrides::new(),
        is_node_left_open: false,
        reject_unknown_dynamic_fields: flags.reject_unknown_dynamic_fields,
    }
}

/// As it was at the start: addresses that come later are not this process's.
static OWN_ADDRESS: OnceLock<Option<IpAddr>> = OnceLock::new();

/// The first address of this machine that others may reach, or else a loopback address.
fn own_address(version: IpVersion) -> Option<IpAddr> {
    let of_version = |ip: &IpAddr| match version {
        IpVersion::V4 => ip.is_ipv4(),
        IpVersion::V6 => ip.is_ipv6(),
    };
    let loopback = match version {
        IpVersion::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpVersion::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let found = nix::ifaddrs::getifaddrs().ok()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    });
    let mut seen = found.filter(|ip| of_version(ip) && !ip.is_loopback());
    Some(seen.next().unwrap_or(loopback))
}

fn admin(
    admin: Option<towpath_config::Admin>,
    snapshot: &Snapshot,
    json: &Value,
) -> Result<Admin, String> {
    let Some(towpath_config::Admin { address, access_logs }) = admin else {
        return Ok(Admin { address: None, logs: Vec::new() });
    };
    let address = match address {
        None => None,
        Some(Address::Ip(address)) => Some(AdminAddress::Ip(address)),
        Some(Address::Internal(_)) => return Err("admin.address: is inside the process".into()),
        Some(Address::Unix(path)) => {
            let mode = json["admin"]["address"]["pipe"]["mode"]
                .as_u64()
                .and_then(|mode| u32::try_from(mode).ok());
            Some(AdminAddress::Unix(path.to_path_buf(), mode.unwrap_or(0)))
        }
    };
    let mut logs = Vec::new();
    for log in access_logs {
        // The endpoint writes one format only; anything else would be ignored in silence.
        let config = json["admin"]["access_log"].to_string();
        if log.filter.is_some() || config.contains("format") {
            return Err("admin.access_log: filters and formats are not supported; only the default format is".into());
        }
        let sink = log.sink().and_then(|sink| snapshot.sinks.get(sink.0 as usize));
        logs.extend(sink.map(target));
    }
    Ok(Admin { address, logs })
}

/// Where the snapshot's access logs go, by sink.
pub(crate) fn targets(snapshot: &Snapshot) -> Vec<Target> {
    snapshot.sinks.iter().map(target).collect()
}

fn target(sink: &Sink) -> Target {
    match sink {
        Sink::File(path) => Target::File(path.clone()),
        Sink::Stdout => Target::Stdout,
        Sink::Stderr => Target::Stderr,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_own_address_is_that_of_the_start() {
        let loads = ["v4", "v6"].map(|version| {
            let flags = ["towpath-proxy", "--local-address-ip-version", version];
            options(&Flags::parse_from(flags)).node_address
        });
        assert!(loads[0].is_some());
        assert_eq!(loads[0], loads[1]);
    }
}
