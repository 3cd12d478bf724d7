//! The command line: Envoy's names, so that launchers need not know which program they start.
//!
//! Flags arrive as words, leave as [`Flags`]. A flag that cannot be honoured is an error when ignoring it would
//! change what the proxy does, and a note in the log when it would not.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::logger::{Component, Level};

/// The proxy's command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "towpath-proxy",
    about = "A sidecar and gateway that runs Envoy's configuration",
    disable_version_flag = true,
    args_override_self = true,
    after_help = "Example:\n  towpath-proxy -c examples/sidecar.yaml --concurrency 2 -l info"
)]
pub struct Flags {
    /// Path to the bootstrap: YAML or JSON.
    #[arg(short = 'c', long, value_name = "FILE")]
    pub config_path: Option<PathBuf>,
    /// Bootstrap as text; merged over the file.
    #[arg(long, value_name = "YAML")]
    pub config_yaml: Option<String>,
    /// Serve, or only check the configuration.
    #[arg(long, value_enum, default_value = "serve")]
    pub mode: Mode,
    /// Worker threads; 0 means one. One for each usable core when not given.
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// trace, debug, info, warning, error, critical or off.
    #[arg(short = 'l', long, default_value = "info", value_parser = Level::parse)]
    pub log_level: Level,
    /// Levels of single components: `upstream:debug,config:trace`.
    #[arg(long, default_value = "", value_parser = component_levels)]
    pub component_log_level: ComponentLevels,
    /// Shape of a log line in spdlog's syntax.
    #[arg(long, default_value = crate::logger::DEFAULT_FORMAT)]
    pub log_format: String,
    /// Escape control characters in log messages.
    #[arg(long)]
    pub log_format_escaped: bool,
    /// Write the log to a file instead of standard error.
    #[arg(long, value_name = "FILE")]
    pub log_path: Option<PathBuf>,
    /// Overrides `node.cluster`.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub service_cluster: String,
    /// Overrides `node.id`.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub service_node: String,
    /// Overrides `node.locality.zone`.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub service_zone: String,
    /// How long a drain may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub drain_time_s: u32,
    /// After SIGTERM, go on listening for so long, with `connection: close` on every response. Not Envoy's.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub drain_delay_s: u32,
    /// Tell clients to go at once, or more and more of them over the drain time.
    #[arg(long, value_enum, default_value = "gradual")]
    pub drain_strategy: DrainStrategy,
    /// Part of hot restart, which is not supported; accepted.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub parent_shutdown_time_s: u32,
    /// Family of this host's own address, which `x-forwarded-for` has for clients that are on it.
    #[arg(long, value_enum, default_value = "v4")]
    pub local_address_ip_version: IpVersion,
    /// Access logs are written at least this often.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub file_flush_interval_msec: u32,
    /// Access logs are written when this much is waiting; 0 means 64.
    #[arg(long, value_name = "KB", default_value_t = 0)]
    pub file_flush_min_size_kb: u32,
    /// No hot restart; there is none.
    #[arg(long)]
    pub disable_hot_restart: bool,
    /// Prints `disabled` and ends.
    #[arg(long)]
    pub hot_restart_version: bool,
    /// Only 0: there is no hot restart.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub restart_epoch: u32,
    /// Tells several proxies on a host apart for hot restart.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub base_id: u32,
    /// Choose a base id.
    #[arg(long)]
    pub use_dynamic_base_id: bool,
    /// Where to write the base id.
    #[arg(long, value_name = "FILE")]
    pub base_id_path: Option<PathBuf>,
    /// Part of hot restart; accepted.
    #[arg(long, value_name = "PATH", default_value = "@envoy_domain_socket")]
    pub socket_path: String,
    /// Part of hot restart; accepted.
    #[arg(long, value_name = "MODE", default_value = "600")]
    pub socket_mode: String,
    /// Part of hot restart; accepted.
    #[arg(long)]
    pub skip_hot_restart_on_no_parent: bool,
    /// Part of hot restart; accepted.
    #[arg(long)]
    pub skip_hot_restart_parent_stats: bool,
    /// Where to write the address of the admin endpoint once it is bound.
    #[arg(long, value_name = "FILE")]
    pub admin_address_path: Option<PathBuf>,
    /// Load a file even if it sets fields that are not honoured.
    #[arg(long, alias = "allow-unknown-fields")]
    pub allow_unknown_static_fields: bool,
    /// Refuse unknown fields in configuration from a control plane.
    #[arg(long)]
    pub reject_unknown_dynamic_fields: bool,
    /// Do not even count unknown fields in configuration from a control plane.
    #[arg(long)]
    pub ignore_unknown_dynamic_fields: bool,
    /// No log lines about deprecated fields.
    #[arg(long)]
    pub skip_deprecated_logs: bool,
    /// Let the kernel write a core file.
    #[arg(long)]
    pub enable_core_dump: bool,
    /// Count the cores of the cpuset for the default of `--concurrency`; they always are.
    #[arg(long)]
    pub cpuset_threads: bool,
    /// A tag on every statistic: `tag:value`. May be repeated.
    #[arg(long, value_name = "TAG:VALUE", value_parser = stats_tag)]
    pub stats_tag: Vec<(String, String)>,
    /// Levels for each source file; there are none, `--component-log-level` goes on working.
    #[arg(long)]
    pub enable_fine_grain_logging: bool,
    /// There are no contended mutexes to trace; accepted.
    #[arg(long)]
    pub enable_mutex_tracing: bool,
    /// Extensions cannot be turned off one by one; refused when not empty.
    #[arg(long, value_name = "NAMES", default_value = "")]
    pub disable_extensions: String,
    /// Log a backtrace as one entry; accepted.
    #[arg(long)]
    pub log_stacktrace_single_entry: bool,
    /// Tie each worker to a core.
    #[arg(long)]
    pub pin_workers: bool,
    /// Microseconds that a busy worker waits for more events before it asks for them; 0 turns that off.
    #[arg(long, value_name = "US", default_value_t = 50, value_parser = clap::value_parser!(u16).range(..=1000))]
    pub gather_us: u16,
    /// Record every request's spans into a Perfetto file, from start to end.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// What that file has: categories and levels. Frames and windows of HTTP/2 come with info,protocol=debug.
    #[arg(long, value_name = "CATEGORY=LEVEL,...", requires = "trace")]
    pub trace_keep: Option<String>,
    /// Keep the spans of the last moments in memory, and write a Perfetto file for a request that takes this long.
    #[arg(long, value_name = "DURATION=DIR", value_parser = slow_trace, conflicts_with = "trace")]
    pub trace_slow: Option<SlowTrace>,
    /// Print the version and end.
    #[arg(long)]
    pub version: bool,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Check the configuration, then serve.
    Serve,
    /// Check the configuration and end.
    Validate,
    /// Start everything but the workers, and end.
    #[value(name = "init_only", alias = "init-only")]
    InitOnly,
}

/// `--drain-strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DrainStrategy {
    /// A share of responses that grows over the drain time says `Connection: close`.
    Gradual,
    /// Every response says it.
    Immediate,
}

/// `--local-address-ip-version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// `--component-log-level`, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentLevels {
    /// As it was given.
    pub text: String,
    /// What it says.
    pub levels: Vec<(Component, Level)>,
}

/// `--trace-slow`, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowTrace {
    /// What is slow.
    pub after: Duration,
    /// Where the files go.
    pub folder: PathBuf,
}

impl Flags {
    /// How many workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        match self.concurrency {
            Some(wanted) => usize::try_from(wanted).unwrap_or(MAX_WORKERS).clamp(1, MAX_WORKERS),
            None => std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS),
        }
    }

    /// `--drain-time-s`.
    #[must_use]
    pub fn drain_time(&self) -> Duration {
        Duration::from_secs(self.drain_time_s.into())
    }

    /// `--drain-delay-s`.
    #[must_use]
    pub fn drain_delay(&self) -> Duration {
        Duration::from_secs(self.drain_delay_s.into())
    }

    /// `--file-flush-interval-msec`.
    #[must_use]
    pub fn flush_interval(&self) -> Duration {
        Duration::from_millis(self.file_flush_interval_msec.into())
    }

    /// `--file-flush-min-size-kb` in bytes.
    #[must_use]
    pub fn flush_size(&self) -> usize {
        match self.file_flush_min_size_kb {
            0 => 64 * 1024,
            kb => usize::try_from(kb).unwrap_or(usize::MAX).saturating_mul(1024),
        }
    }

    /// Notes on flags that are accepted without effect.
    ///
    /// # Errors
    /// When ignoring a flag would change what the proxy does.
    pub fn check(&self) -> Result<Vec<&'static str>, String> {
        if self.restart_epoch != 0 {
            return Err(format!(
                "--restart-epoch {}: hot restart is not supported",
                self.restart_epoch
            ));
        }
        if !self.disable_extensions.is_empty() {
            return Err(format!(
                "--disable-extensions {}: extensions cannot be disabled",
                self.disable_extensions
            ));
        }
        if self.reject_unknown_dynamic_fields && self.ignore_unknown_dynamic_fields {
            return Err(
                "--reject-unknown-dynamic-fields contradicts --ignore-unknown-dynamic-fields"
                    .into(),
            );
        }
        for (index, (tag, _)) in self.stats_tag.iter().enumerate() {
            if self.stats_tag[..index].iter().any(|(other, _)| other == tag) {
                return Err(format!("--stats-tag: tag '{tag}' is given twice"));
            }
        }
        let mut notes = Vec::new();
        if !self.disable_hot_restart {
            notes.push("hot restart is not supported; --disable-hot-restart is assumed");
        }
        if self.enable_fine_grain_logging {
            notes.push("--enable-fine-grain-logging has no effect: levels are set for components");
        }
        if self.enable_mutex_tracing {
            notes.push("--enable-mutex-tracing has no effect: the data path has no mutex");
        }
        Ok(notes)
    }
}

/// What `--version` prints.
#[must_use]
pub fn version_line(program: &str) -> String {
    format!("\n{program}  version: {}\n", version())
}

/// `<commit>/<version>/<tree>/<build>/<TLS library>`: the five fields that Envoy's tools split at the slashes.
#[must_use]
pub fn version() -> String {
    format!("{COMMIT}/{}/{TREE}/{BUILD}/{TLS}", env!("CARGO_PKG_VERSION"))
}

/// Whether the sources were as committed, in Envoy's word.
pub const TREE: &str = "Clean";

/// How this program was built.
pub const BUILD: &str = if cfg!(debug_assertions) { "DEBUG" } else { "RELEASE" };

/// The TLS library.
pub const TLS: &str = "rustls";

/// The commit that this program was built from, zeros where the build did not know it. See `build.rs`.
pub const COMMIT: &str = env!("TOWPATH_COMMIT");

const MAX_WORKERS: usize = 1024;

fn component_levels(text: &str) -> Result<ComponentLevels, String> {
    let mut levels = Vec::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let Some((name, level)) = pair.split_once(':') else {
            return Err(format!("component log level not correctly specified '{pair}'"));
        };
        let component = Component::parse(name)
            .ok_or_else(|| format!("invalid component specified '{name}'"))?;
        levels.push((component, Level::parse(level)?));
    }
    Ok(ComponentLevels { text: text.to_owned(), levels })
}

fn slow_trace(text: &str) -> Result<SlowTrace, String> {
    let malformed = || format!("'{text}' is not DURATION=DIR, as in 50ms=/var/tmp/slow");
    let (after, folder) =
        text.split_once('=').filter(|(_, folder)| !folder.is_empty()).ok_or_else(malformed)?;
    let digits = after.find(|byte: char| !byte.is_ascii_digit()).ok_or_else(malformed)?;
    let (number, unit) = after.split_at(digits);
    let number: u64 = number.parse().map_err(|_| malformed())?;
    let after = match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return Err(malformed()),
    };
    if after.is_zero() {
        return Err("every request takes longer than 0: use --trace for all of them".into());
    }
    Ok(SlowTrace { after, folder: folder.into() })
}

fn stats_tag(text: &str) -> Result<(String, String), String> {
    let Some((tag, value)) = text.split_once(':') else {
        return Err(format!("misformatted stats-tag '{text}'"));
    };
    if tag.is_empty() || !tag.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(format!("misformatted stats-tag '{text}' contains invalid char in '{tag}'"));
    }
    if value.is_empty() || value.contains('.') {
        return Err(format!("misformatted stats-tag '{text}' contains invalid char in '{value}'"));
    }
    Ok((tag.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests;
