//! What hosts say of their load in their answers, and what they are weighed as for it. Envoy's policy
//! `client_side_weighted_round_robin`.
//!
//! Arrives: reports, from all workers. Leaves: a weight for each host, `requests per second / utilization`; for
//! one that has said nothing lately, or has only begun to, the median of the others.

#[cfg(feature = "serving")]
mod report;
#[cfg(not(feature = "serving"))]
#[path = "absent.rs"]
mod report;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use towpath_proto::{Address, Instant};

pub(crate) use self::report::LoadReport;

/// Envoy `ClientSideWeightedRoundRobin`, and what the hosts of a cluster have said.
#[derive(Debug, Default)]
pub struct LoadReports {
    /// How reports become weights.
    pub rules: Rules,
    /// What each host has said last; not configuration, but it ends with it.
    hosts: Mutex<HashMap<Address, Weak<HostLoad>>>,
}

/// How reports become weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// `blackout_period`: how long a host's reports do not count after its first one. Default 10 s.
    pub blackout: Duration,
    /// `weight_expiration_period`: how long a report counts. Default 180 s.
    pub expiration: Duration,
    /// `weight_update_period`: how long weights hold. Default 1 s.
    pub period: Duration,
    /// `error_utilization_penalty`: the part of failures among requests counts so many times as utilization. Not
    /// negative; default 0.
    pub penalty: f64,
    /// `metric_names_for_computing_utilization`: the greatest of these counts, where one is above 0.
    pub metrics: Vec<Box<str>>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            blackout: Duration::from_secs(10),
            expiration: Duration::from_secs(180),
            period: Duration::from_secs(1),
            penalty: 0.0,
            metrics: Vec::new(),
        }
    }
}

impl LoadReports {
    /// By rules, without a report.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, hosts: Mutex::default() }
    }

    /// What a host has said, for a worker that has it: it is forgotten with the last one that has it.
    pub(crate) fn of_host(&self, address: &Address) -> Arc<HostLoad> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.get(address).and_then(Weak::upgrade) {
            return known;
        }
        hosts.retain(|_, known| known.strong_count() > 0);
        let new = Arc::default();
        hosts.insert(address.clone(), Arc::downgrade(&new));
        new
    }
}

/// What one host has said. Times are in nanoseconds, as [`Instant`] has them, and one more; 0 is never.
#[derive(Debug, Default)]
pub(crate) struct HostLoad {
    weight: AtomicU32,
    first: AtomicU64,
    last: AtomicU64,
}

impl HostLoad {
    /// Takes a report in. One that says no weight is passed.
    pub(crate) fn take(&self, report: &LoadReport, rules: &Rules, now: Instant) {
        let Some(weight) = weight(report, rules) else { return };
        self.weight.store(weight, Ordering::Relaxed);
        let was_silent = self.expired(rules, now);
        self.last.store(stamp(now), Ordering::Relaxed);
        if was_silent {
            self.first.store(stamp(now), Ordering::Relaxed);
        }
    }

    /// Whether it has said nothing that counts still.
    fn expired(&self, rules: &Rules, now: Instant) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        last == 0 || elapsed(last, now) > rules.expiration
    }

    /// Its weight, if that counts.
    fn weight(&self, rules: &Rules, now: Instant) -> Option<u32> {
        let is_new = elapsed(self.first.load(Ordering::Relaxed), now) < rules.blackout;
        (!self.expired(rules, now) && !is_new).then(|| self.weight.load(Ordering::Relaxed))
    }
}

fn stamp(now: Instant) -> u64 {
    now.as_nanos().saturating_add(1)
}

/// How long ago a stamp is.
fn elapsed(stamp: u64, now: Instant) -> Duration {
    Duration::from_nanos(self::stamp(now).saturating_sub(stamp))
}

/// What a host is weighed as by its report: nothing where that has no rate, or no utilization.
fn weight(report: &LoadReport, rules: &Rules) -> Option<u32> {
    let rate = report.rps_fractional;
    if rate <= 0.0 {
        return None;
    }
    let named = report.greatest(&rules.metrics);
    let said = [named, report.application_utilization].into_iter().find(|it| *it > 0.0);
    let utilization = said.unwrap_or(report.cpu_utilization) + rules.penalty * report.eps / rate;
    // What is greater than all numbers becomes the greatest.
    (utilization > 0.0).then(|| (rate / utilization) as u32)
}

/// The weights of hosts of one priority, at least 1 each.
pub(crate) fn weights(hosts: &[&HostLoad], rules: &Rules, now: Instant) -> Vec<u32> {
    let said: Vec<Option<u32>> = hosts.iter().map(|host| host.weight(rules, now)).collect();
    let others = median(said.iter().flatten().copied().collect());
    said.into_iter().map(|weight| weight.unwrap_or(others).max(1)).collect()
}

/// The median, of an even number the mean of the two in the middle; 1 of none.
fn median(mut weights: Vec<u32>) -> u32 {
    weights.sort_unstable();
    let middle = weights.len() / 2;
    let Some(upper) = weights.get(middle).copied() else { return 1 };
    match weights.len() % 2 {
        1 => upper,
        _ => weights[middle - 1].midpoint(upper),
    }
}

#[cfg(all(test, feature = "serving"))]
mod tests;
