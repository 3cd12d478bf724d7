//! Hosts that have just become healthy begin with a part of their weight. Envoy: "slow start".
//!
//! Each is as heavy as its time since then says, `max(min_weight_percent, (time / window)^(1 / aggression))` of its
//! weight, whenever it is its turn.

use towpath_proto::Instant;

use super::Host;
use crate::snapshot::cluster::{Health, SlowStart};

/// When the last of some hosts has all of its weight.
pub(super) fn end(hosts: &[Host], slow_start: &SlowStart) -> Option<Instant> {
    let healthy = hosts.iter().filter(|host| host.health() == Health::Healthy);
    let last = healthy.filter_map(|host| host.healthy_since).max()?;
    Some(last + slow_start.window)
}

/// Which part of its weight a host has so many milliseconds after it became healthy.
pub(super) fn part(slow_start: &SlowStart, elapsed: u64) -> f64 {
    let window = u64::try_from(slow_start.window.as_millis()).unwrap_or(u64::MAX);
    if elapsed >= window {
        return 1.0;
    }
    let time = elapsed.max(1) as f64 / window as f64;
    // The default needs no power.
    let grown = match slow_start.aggression {
        1.0 => time,
        aggression => time.powf(1.0 / aggression),
    };
    grown.max(slow_start.least)
}

#[cfg(test)]
mod tests;
