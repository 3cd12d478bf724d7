//! `/server_info` and `/memory`.

use serde_json::{Value, json};

use super::reply::Reply;
use crate::control::Control;
use crate::flags::{self, DrainStrategy, Flags, IpVersion, Mode};
use crate::memory::Memory;

/// Envoy's `ServerInfo`.
pub(super) fn server_info(control: &Control) -> Reply {
    let uptime = format!("{}s", control.uptime().as_secs());
    super::json(&json!({
        "version": flags::version(),
        "state": control.phase().name(),
        "uptime_current_epoch": uptime,
        "uptime_all_epochs": uptime,
        "hot_restart_version": "disabled",
        "hot_restart_initializing": false,
        "command_line_options": options(&control.flags),
        "node": node(control),
    }))
}

/// Envoy's `Memory`.
pub(super) fn memory() -> Reply {
    let Memory { resident, anonymous, size } = Memory::read();
    super::json(&json!({
        "allocated": anonymous.to_string(),
        "heap_size": size.to_string(),
        "pageheap_unmapped": "0",
        "pageheap_free": "0",
        "total_thread_cache": "0",
        "total_physical_bytes": resident.to_string(),
    }))
}

/// Envoy's `Node`: the bootstrap's, and who reads it.
pub(super) fn node(control: &Control) -> Value {
    let mut node = control.boot.borrow().bootstrap()["node"].take();
    let version: Vec<u64> =
        env!("CARGO_PKG_VERSION").split('.').filter_map(|part| part.parse().ok()).collect();
    let [major, minor, patch] = [0, 1, 2].map(|index| version.get(index).copied().unwrap_or(0));
    node["user_agent_name"] = json!("towpath");
    node["user_agent_build_version"] = json!({
        "version": {"major_number": major, "minor_number": minor, "patch": patch},
        "metadata": {
            "revision.sha": flags::COMMIT,
            "revision.status": flags::TREE,
            "build.type": flags::BUILD,
            "ssl.version": flags::TLS,
        },
    });
    node
}

/// Envoy's `CommandLineOptions`.
fn options(flags: &Flags) -> Value {
    let path = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    };
    let stats_tags: Vec<String> =
        flags.stats_tag.iter().map(|(tag, value)| format!("{tag}:{value}")).collect();
    json!({
        "base_id": flags.base_id.to_string(),
        "concurrency": flags.workers(),
        "config_path": path(&flags.config_path),
        "config_yaml": flags.config_yaml.as_deref().unwrap_or_default(),
        "allow_unknown_static_fields": flags.allow_unknown_static_fields,
        "admin_address_path": path(&flags.admin_address_path),
        "local_address_ip_version": match flags.local_address_ip_version {
            IpVersion::V4 => "v4",
            IpVersion::V6 => "v6",
        },
        "log_level": flags.log_level.name(),
        "component_log_level": flags.component_log_level.text,
        "log_format": flags.log_format,
        "log_path": path(&flags.log_path),
        "service_cluster": flags.service_cluster,
        "service_node": flags.service_node,
        "service_zone": flags.service_zone,
        "file_flush_interval": duration(flags.file_flush_interval_msec),
        "drain_time": format!("{}s", flags.drain_time_s),
        "parent_shutdown_time": format!("{}s", flags.parent_shutdown_time_s),
        "mode": match flags.mode {
            Mode::Serve => "Serve",
            Mode::Validate => "Validate",
            Mode::InitOnly => "InitOnly",
        },
        "disable_hot_restart": true,
        "enable_mutex_tracing": flags.enable_mutex_tracing,
        "restart_epoch": flags.restart_epoch,
        "cpuset_threads": flags.cpuset_threads,
        "reject_unknown_dynamic_fields": flags.reject_unknown_dynamic_fields,
        "log_format_escaped": flags.log_format_escaped,
        "disabled_extensions": [],
        "ignore_unknown_dynamic_fields": flags.ignore_unknown_dynamic_fields,
        "use_dynamic_base_id": flags.use_dynamic_base_id,
        "base_id_path": path(&flags.base_id_path),
        "drain_strategy": match flags.drain_strategy {
            DrainStrategy::Gradual => "Gradual",
            DrainStrategy::Immediate => "Immediate",
        },
        "enable_fine_grain_logging": flags.enable_fine_grain_logging,
        "socket_path": flags.socket_path,
        "socket_mode": u32::from_str_radix(&flags.socket_mode, 8).unwrap_or_default(),
        "enable_core_dump": flags.enable_core_dump,
        "stats_tag": stats_tags,
        "skip_hot_restart_on_no_parent": flags.skip_hot_restart_on_no_parent,
        "skip_hot_restart_parent_stats": flags.skip_hot_restart_parent_stats,
        "skip_deprecated_logs": flags.skip_deprecated_logs,
        "file_flush_min_size": flags.file_flush_min_size_kb,
        "log_stacktrace_single_entry": flags.log_stacktrace_single_entry,
    })
}

/// A duration as proto JSON writes it: no fraction, or three digits.
fn duration(milliseconds: u32) -> String {
    match milliseconds % 1000 {
        0 => format!("{}s", milliseconds / 1000),
        rest => format!("{}.{rest:03}s", milliseconds / 1000),
    }
}
