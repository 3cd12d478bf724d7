//! The application log: one line for each event of the control plane, in Envoy's shape.
//!
//! Messages arrive through `log!`, whole lines leave to standard error or a file. Nothing on a request's path
//! logs here. Levels are kept for each component and can be changed while running (`/logging`).

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

pub use format::Format;

pub(crate) mod format;
pub(crate) mod limit;

/// Logs a message: `log!(Main, Info, "starting {}", name)`.
#[macro_export]
macro_rules! log {
    ($component:ident, $level:ident, $($message:tt)+) => {{
        let component = $crate::logger::Component::$component;
        if $crate::logger::enabled(component, $crate::logger::Level::$level) {
            let level = $crate::logger::Level::$level;
            $crate::logger::write(component, level, file!(), line!(), format_args!($($message)+));
        }
    }};
}

/// Envoy's default `--log-format`.
pub const DEFAULT_FORMAT: &str = "[%Y-%m-%d %T.%e][%t][%l][%n] [%g:%#] %v";

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Every step.
    Trace,
    /// For debugging.
    Debug,
    /// What an operator wants to know.
    Info,
    /// Something is odd.
    Warning,
    /// Something failed.
    Error,
    /// The process cannot go on.
    Critical,
    /// Nothing at all.
    Off,
}

impl Level {
    const ALL: [Self; 7] = [
        Self::Trace,
        Self::Debug,
        Self::Info,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Off,
    ];

    /// The level with this name.
    ///
    /// # Errors
    /// In Envoy's words, when there is none.
    pub fn parse(name: &str) -> Result<Self, String> {
        if name == "warn" {
            return Ok(Self::Warning);
        }
        Self::ALL
            .into_iter()
            .find(|level| level.name() == name)
            .ok_or_else(|| format!("invalid log level specified '{name}'"))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Off => "off",
        }
    }
}

/// Who speaks. Launchers name any of Envoy's loggers; those that never speak here have a level all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component(usize);

#[expect(non_upper_case_globals, reason = "they read as variants in log!(Main, Info, …)")]
impl Component {
    /// The admin endpoint.
    pub const Admin: Self = Self::named("admin");
    /// Configuration.
    pub const Config: Self = Self::named("config");
    /// Name resolution.
    pub const Dns: Self = Self::named("dns");
    /// Access-log files.
    pub const File: Self = Self::named("file");
    /// Scripts.
    pub const Lua: Self = Self::named("lua");
    /// Start and stop.
    pub const Main: Self = Self::named("main");
    /// The rest.
    pub const Misc: Self = Self::named("misc");
    /// Clusters and hosts.
    pub const Upstream: Self = Self::named("upstream");
}

impl Component {
    /// The component with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        NAMES.iter().position(|known| *known == name).map(Self)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[self.0]
    }

    /// All of them, in Envoy's order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..NAMES.len()).map(Self)
    }

    const fn named(name: &str) -> Self {
        let mut index = 0;
        while index < NAMES.len() {
            if same(NAMES[index], name) {
                return Self(index);
            }
            index += 1;
        }
        panic!("no such component");
    }
}

/// Where lines go and how they look. Without it, lines go to standard error in the default shape.
///
/// # Errors
/// When the file cannot be opened, or was set up before.
pub fn set_up(format: Format, path: Option<&Path>, escape: bool) -> io::Result<()> {
    let file = path.map(open).transpose()?;
    let output = Output { format, path: path.map(Path::to_path_buf), file, escape };
    OUTPUT.set(Mutex::new(output)).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Opens the log file anew, after it was renamed.
///
/// # Errors
/// When it cannot be opened; the old one goes on being written.
pub fn reopen() -> io::Result<()> {
    let Some(output) = OUTPUT.get() else { return Ok(()) };
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = &output.path {
        output.file = Some(open(path)?);
    }
    Ok(())
}

/// Whether a message of this level is written.
#[must_use]
pub fn enabled(component: Component, level: Level) -> bool {
    level as u8 >= LEVELS[component.0].load(Ordering::Relaxed)
}

/// The component's level.
#[must_use]
pub fn level(component: Component) -> Level {
    Level::ALL[usize::from(LEVELS[component.0].load(Ordering::Relaxed))]
}

/// Sets a component's level.
pub fn set_level(component: Component, level: Level) {
    LEVELS[component.0].store(level as u8, Ordering::Relaxed);
}

/// Sets the level of all.
pub fn set_all(level: Level) {
    Component::all().for_each(|component| set_level(component, level));
}

/// Writes a line, whatever the level. `log!` is the way to call it.
pub fn write(
    component: Component,
    level: Level,
    file: &str,
    line: u32,
    message: fmt::Arguments<'_>,
) {
    let entry = format::Entry {
        component,
        level,
        file,
        line,
        message: &message.to_string(),
        at: SystemTime::now(),
    };
    let Some(output) = OUTPUT.get() else {
        let _ = io::stderr().write_all(Format::default().render(&entry, false).as_bytes());
        return;
    };
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    let text = output.format.render(&entry, output.escape);
    // Nothing is left to tell it to when the log itself cannot be written.
    let _ = match &mut output.file {
        Some(file) => file.write_all(text.as_bytes()),
        None => io::stderr().write_all(text.as_bytes()),
    };
}

struct Output {
    format: Format,
    path: Option<PathBuf>,
    file: Option<File>,
    escape: bool,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

const fn same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

static OUTPUT: OnceLock<Mutex<Output>> = OnceLock::new();
static LEVELS: [AtomicU8; NAMES.len()] = [const { AtomicU8::new(Level::Info as u8) }; NAMES.len()];

/// The loggers of Envoy 1.40, in its order.
const NAMES: [&str; 73] = [
    "a2a",
    "admin",
    "ai_protocol_manager",
    "alternate_protocols_cache",
    "aws",
    "assert",
    "backtrace",
    "basic_auth",
    "cache_filter",
    "client",
    "config",
    "connection",
    "conn_handler",
    "compression",
    "credential_injector",
    "decompression",
    "dns",
    "dubbo",
    "envoy_bug",
    "ext_authz",
    "ext_proc",
    "rocketmq",
    "file",
    "filter",
    "forward_proxy",
    "geolocation",
    "grpc",
    "happy_eyeballs",
    "hc",
    "health_checker",
    "http",
    "http2",
    "hystrix",
    "init",
    "io",
    "jwt",
    "json_rpc",
    "kafka",
    "key_value_store",
    "lua",
    "local_rate_limit",
    "main",
    "matcher",
    "mcp",
    "misc",
    "mongo",
    "multi_connection",
    "notification",
    "oauth2",
    "quic",
    "quic_stream",
    "pool",
    "rate_limit_quota",
    "rbac",
    "rds",
    "redis",
    "router",
    "runtime",
    "stats",
    "secret",
    "sse",
    "tap",
    "testing",
    "thrift",
    "tracing",
    "upstream",
    "udp",
    "wasm",
    "websocket",
    "golang",
    "stats_sinks",
    "dynamic_modules",
    "ip_tagging",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_found_by_name() {
        for level in Level::ALL {
            assert_eq!(Level::parse(level.name()), Ok(level));
        }
        assert_eq!(Level::parse("warn"), Ok(Level::Warning));
        assert!(Level::parse("WARN").is_err());
    }

    #[test]
    fn components_keep_their_own_level() {
        let upstream = Component::parse("upstream").unwrap();
        assert_eq!(upstream, Component::Upstream);
        assert_eq!(Component::all().count(), NAMES.len());
        set_level(upstream, Level::Trace);
        assert!(enabled(upstream, Level::Trace));
        assert!(!enabled(Component::Main, Level::Trace));
        set_all(Level::Off);
        assert!(!enabled(upstream, Level::Critical));
        set_all(Level::Info);
        assert_eq!(level(upstream), Level::Info);
    }
}
