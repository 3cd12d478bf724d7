//! Where and when something was measured, by which version of this program.

use std::fmt::Write as _;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that may be used.
    pub cpus: usize,
    /// What they are.
    pub cpu: String,
    /// The kernel.
    pub kernel: String,
    /// How their frequency is governed, where it is.
    pub governor: Option<String>,
    /// TCP's congestion control.
    pub congestion_control: Option<String>,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map_or("unknown CPU", |rest| rest.trim_start_matches(['\t', ' ', ':']));
        let setting = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned())
        };
        Self {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: model.to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            governor: setting("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            congestion_control: setting("/proc/sys/net/ipv4/tcp_congestion_control"),
        }
    }

    /// This machine, the program's version and the date, as a page ends with them.
    pub fn sentence(&self) -> String {
        format!("{}. Towpath {VERSION}, {}.", self.words(), rfc3339(SystemTime::now()))
    }

    fn words(&self) -> String {
        let mut text = format!("Machine: {} × {}, Linux {}", self.cpus, self.cpu, self.kernel);
        for (name, setting) in
            [("governor", &self.governor), ("congestion control", &self.congestion_control)]
        {
            if let Some(setting) = setting {
                let _ = write!(text, ", {name} {setting}");
            }
        }
        text
    }
}

/// By what, when and where a result was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The command line.
    pub command: String,
    /// The version of this program.
    pub version: String,
    /// When it was written, in UTC.
    pub date: String,
    /// Where.
    pub machine: Machine,
}

impl Made {
    /// By this command, here and now.
    pub fn now(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            version: VERSION.to_owned(),
            date: rfc3339(SystemTime::now()),
            machine: Machine::here(),
        }
    }

    /// The machine, the program's version and the date, as a page ends with them.
    pub fn sentence(&self) -> String {
        format!("{}. Towpath {}, {}.", self.machine.words(), self.version, self.date)
    }
}

/// Adds to a result what it takes to judge and to repeat it: kind, command, version, date, machine.
pub(crate) fn describe(kind: &str, made: &Made, mut value: Value) -> Value {
    value["schema"] = json!(1);
    value["kind"] = json!(kind);
    value["command"] = json!(made.command);
    value["version"] = json!(made.version);
    value["date"] = json!(made.date);
    value["machine"] = json!(made.machine);
    value
}

/// The instant in UTC, in whole seconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let date = OffsetDateTime::from(time).truncate_to_second();
    // Years of five digits have no such form.
    date.format(&Rfc3339).unwrap_or_default()
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_right_over_leap_years() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_177_319, "2026-11-20T12:21:59Z"),
        ] {
            assert_eq!(rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }
}
