//! Hosts that have just become healthy begin with a part of their weight. Envoy: "slow start".
//!
//! Each is as heavy as its time since then says, `max(min_weight_percent, (time / window)^(1 / aggression))` of its
//! weight, whenever it is its turn.

use towpath_proto::Instant;

use super::Host;
use crate::snapshot::cluster::{Health, SlowStart};

/// The hosts of a cluster at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hosts<'a> {
    pub(super) all: &'a [Host],
    /// While some of them may have a part of their weight.
    slow_start: Option<&'a SlowStart>,
    now: Instant,
}

impl<'a> Hosts<'a> {
    /// `until`: when the last of them has all of its weight, where they begin slowly.
    #[inline]
    pub(super) fn new(
        all: &'a [Host],
        slow_start: Option<&'a SlowStart>,
        until: Option<Instant>,
        now: Instant,
    ) -> Self {
        let slow_start = until.filter(|until| now <= *until).and(slow_start);
        Self { all, slow_start, now }
    }

    #[inline]
    pub(super) fn get(&self, host: u32) -> Option<&'a Host> {
        self.all.get(host as usize)
    }

    /// What a host is weighed as. A weight of 0 would never come again and counts as 1.
    pub(super) fn weight(&self, host: u32) -> f64 {
        let Some(host) = self.get(host) else { return 1.0 };
        let weight = f64::from(host.endpoint.weight.max(1));
        match (self.slow_start, host.healthy_since) {
            (Some(slow_start), Some(since)) if host.health() == Health::Healthy => {
                // One whose turn is never to be made out would not come again in any order.
                (weight * part(slow_start, self.now.millis_since(since))).max(f64::MIN_POSITIVE)
            }
            _ => weight,
        }
    }

    /// Whether all of some hosts are weighed alike as long as none of them comes or goes.
    pub(super) fn are_even(&self, members: &[u32]) -> bool {
        let written = |host: &u32| self.get(*host).map_or(1, |host| host.endpoint.weight.max(1));
        let mut weights = members.iter().map(written);
        self.slow_start.is_none()
            && weights.next().is_none_or(|first| weights.all(|other| other == first))
    }
}

/// When the last of some hosts has all of its weight.
pub(super) fn end(hosts: &[Host], slow_start: &SlowStart) -> Option<Instant> {
    let healthy = hosts.iter().filter(|host| host.health() == Health::Healthy);
    let last = healthy.filter_map(|host| host.healthy_since).max()?;
    Some(last + slow_start.window)
}

/// Which part of its weight a host has so many milliseconds after it became healthy.
fn part(slow_start: &SlowStart, elapsed: u64) -> f64 {
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
