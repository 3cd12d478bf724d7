//! From the command line to a checked configuration, through `towpath-config`.

use std::time::SystemTime;

use serde_json::Value;
use towpath_config::{Loaded, Options, Source, Sources};
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::log::Sink;
use towpath_engine::stats::Rules;
use towpath_proto::Address;

use crate::access_log::Target;
use crate::admin::AdminAddress;
use crate::flags::Flags;
use crate::log;

/// What there is to serve.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) snapshot: Snapshot,
    pub(crate) boot: Boot,
    pub(crate) admin: Admin,
    /// Labels of every statistic: `--stats-tag`, and `stats_config.stats_tags` with a fixed value.
    pub(crate) labels: Vec<(String, String)>,
    /// Which statistics are shown, and their buckets.
    pub(crate) rules: Rules,
}

/// What was loaded, as far as admin requests show it.
#[derive(Debug)]
pub(crate) struct Boot {
    /// The bootstrap as JSON. Text takes a fraction of the memory that values take.
    bootstrap: Box<str>,
    /// When it was loaded.
    pub(crate) loaded: SystemTime,
    /// Fields that were set and not honoured.
    pub(crate) unknown_fields: u64,
    /// `layered_runtime.layers`.
    pub(crate) runtime_layers: u64,
    /// The keys in them.
    pub(crate) runtime_keys: u64,
}

impl Boot {
    /// The bootstrap.
    pub(crate) fn bootstrap(&self) -> Value {
        serde_json::from_str(&self.bootstrap).unwrap_or_default()
    }
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
    let sources = Sources {
        file: flags
            .config_path
            .as_deref()
            .map(Source::read)
            .transpose()
            .map_err(|error| error.to_string())?,
        yaml: flags.config_yaml.as_deref().map(|text| Source::yaml("--config-yaml", text)),
    };
    let Loaded { snapshot, prints: _, bootstrap, notes, ignored, mut json } =
        towpath_config::load(&sources, &options(flags)).map_err(|error| error.to_string())?;
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
    let boot = Boot {
        bootstrap: json.to_string().into_boxed_str(),
        loaded: SystemTime::now(),
        unknown_fields: ignored.len() as u64,
        runtime_layers: json["layered_runtime"]["layers"].as_array().map_or(0, Vec::len) as u64,
        runtime_keys: bootstrap.runtime.iter().count() as u64,
    };
    let fixed = bootstrap
        .stats
        .tags
        .iter()
        .filter_map(|tag| Some((tag.name.to_string(), tag.fixed.as_ref()?.to_string())));
    let labels = flags.stats_tag.iter().cloned().chain(fixed).collect();
    Ok(Configuration { snapshot, boot, admin, labels, rules: bootstrap.stats.rules })
}

/// How to load, as far as flags say it.
fn options(flags: &Flags) -> Options {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Options {
        allow_unknown_static_fields: flags.allow_unknown_static_fields,
        node_id: given(&flags.service_node),
        node_cluster: given(&flags.service_cluster),
        node_zone: given(&flags.service_zone),
    }
}

fn admin(
    admin: Option<towpath_config::Admin>,
    snapshot: &Snapshot,
    json: &Value,
) -> Result<Admin, String> {
    let Some(towpath_config::Admin { address, access_logs }) = admin else {
        return Ok(Admin { address: None, logs: Vec::new() });
    };
    let address = address.map(|address| match address {
        Address::Ip(address) => AdminAddress::Ip(address),
        Address::Unix(path) => {
            let mode = json["admin"]["address"]["pipe"]["mode"]
                .as_u64()
                .and_then(|mode| u32::try_from(mode).ok());
            AdminAddress::Unix(path.to_path_buf(), mode.unwrap_or(0))
        }
    });
    let mut logs = Vec::new();
    for log in access_logs {
        // The endpoint writes one format only; anything else would be ignored in silence.
        let config = json["admin"]["access_log"].to_string();
        if log.filter.is_some() || config.contains("format") {
            return Err("admin.access_log: filters and formats are not supported; only the default format is".into());
        }
        logs.extend(snapshot.sinks.get(log.sink.0 as usize).map(target));
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
