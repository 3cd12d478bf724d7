//! Chooses a host of a cluster.
//!
//! A priority takes its share of the traffic by how healthy it is (with Envoy's overprovisioning factor of 1.4); within
//! it the policy decides among healthy hosts, degraded ones, or all of them when too few are healthy (*panic*); where
//! localities are weighed, a locality is chosen first. Equal weights cost O(1) per pick, unequal ones O(log n). All
//! randomness comes from the caller.

mod bounded;
mod group;
pub(crate) mod hash;
mod hashed;
mod hosts;
mod joined;
mod least_request;
mod locality;
mod priority;
mod random;
mod round_robin;
mod schedule;
mod slow_start;
mod zone;

use std::sync::Arc;

use towpath_proto::Instant;

use self::hashed::Key;
pub(crate) use self::hashed::TableSize;
use self::hosts::Hosts;
pub(crate) use self::hosts::Part;
pub(crate) use self::joined::{Among, Joined};
pub(crate) use self::priority::PastPriorities;
use self::priority::{Class, Load, Priority, Sizes};
use self::zone::ZoneRouting;
pub(crate) use self::zone::{LocalHosts, ZoneSetup};
use crate::load_report::HostLoad;
use crate::snapshot::cluster::{Balancer as Policy, Balancing, Endpoint, Health, HealthStatus};
use crate::snapshot::health::HealthFlags;

/// An endpoint with its live load.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where, and with which weight, priority and health.
    pub endpoint: Endpoint,
    /// Requests (or TCP connections) in progress on this worker.
    pub active: u32,
    /// What was found out about it.
    pub health_flags: HealthFlags,
    /// When it was first healthy, or its checks last made it so; kept where hosts start slowly.
    pub healthy_since: Option<Instant>,
    /// What it says of its load, where that is what it is weighed by.
    pub(crate) load: Option<Arc<HostLoad>>,
}

impl Host {
    /// A host with nothing to do.
    #[must_use]
    pub const fn new(endpoint: Endpoint) -> Self {
        let health_flags = HealthFlags::WELL;
        Self { endpoint, active: 0, health_flags, healthy_since: None, load: None }
    }

    /// Whether it counts for nothing: it drains, or was not asked yet how it is and is to be left out until then.
    pub(crate) fn is_excluded(&self) -> bool {
        self.health_flags.pending || self.endpoint.status == HealthStatus::Draining
    }

    /// Whether it is picked, all things considered.
    #[must_use]
    pub const fn health(&self) -> Health {
        match self.endpoint.health {
            _ if self.health_flags.failed_check || self.health_flags.ejected => Health::Unhealthy,
            Health::Unhealthy => Health::Unhealthy,
            Health::Degraded => Health::Degraded,
            Health::Healthy if self.health_flags.is_degraded() => Health::Degraded,
            Health::Healthy => Health::Healthy,
        }
    }
}

impl Host {
    /// What filters are shown of it by its address: what was found out before what is written.
    pub(crate) const fn status(&self) -> HealthStatus {
        let written = self.endpoint.status;
        match written {
            _ if self.health_flags.failed_check || self.health_flags.ejected => {
                HealthStatus::Unhealthy
            }
            HealthStatus::Unhealthy | HealthStatus::Draining | HealthStatus::Timeout => written,
            _ if self.health_flags.degraded => HealthStatus::Degraded,
            HealthStatus::Unknown | HealthStatus::Healthy | HealthStatus::Degraded => written,
        }
    }
}

/// The state of one cluster's balancer on one worker.
#[derive(Debug)]
pub struct Balancer {
    config: Balancing,
    priorities: Vec<Priority>,
    load: Load,
    in_panic: bool,
    /// When the last host has all of its weight, where hosts start slowly.
    slow_until: Option<Instant>,
    /// Where requests are kept in the proxy's own locality.
    zones: Option<Box<ZoneRouting>>,
    /// Another one with each [`Balancer::rebuild`].
    stamp: u64,
}

impl Balancer {
    /// A balancer without hosts.
    #[must_use]
    pub fn new(config: Balancing) -> Self {
        let (priorities, load) = (Vec::new(), Load::default());
        Self { config, priorities, load, in_panic: false, slow_until: None, zones: None, stamp: 0 }
    }

    /// The same, where localities count that are the proxy's own.
    pub(crate) fn with_zones(mut self, setup: Option<&ZoneSetup>) -> Self {
        let setup = setup.filter(|_| !self.config.policy.is_hashed());
        self.zones = setup.map(|setup| Box::new(ZoneRouting::new(setup.clone())));
        self
    }

    /// The local cluster has other hosts.
    pub(crate) fn follow(&mut self, local: &Arc<LocalHosts>) {
        if let Some(zones) = &mut self.zones {
            zones.follow(local);
        }
    }

    /// Another one with each [`Balancer::rebuild`], and never 0 after one.
    pub(crate) const fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Takes note of the hosts. To be called whenever a host came or went or its weight, priority or health
    /// changed; `random` decides where rounds begin, so that workers do not march in step.
    pub fn rebuild(&mut self, hosts: &[Host], random: u64, now: Instant) {
        self.rebuild_of(hosts, None, random, now);
    }

    /// The same, where only some of the hosts are its own. It is still given all of them to pick.
    pub(crate) fn rebuild_part(&mut self, hosts: &[Host], part: &Part, random: u64, now: Instant) {
        self.rebuild_of(hosts, Some(part), random, now);
    }

    fn rebuild_of(&mut self, hosts: &[Host], part: Option<&Part>, random: u64, now: Instant) {
        let mut dice = Dice(random);
        let priorities = hosts.iter().map(|host| host.endpoint.priority).max().map_or(0, |p| p + 1);
        let slow_start = self.config.slow_start.as_ref();
        self.slow_until = slow_start.and_then(|slow_start| slow_start::end(hosts, slow_start));
        let hosts = Hosts::new(hosts, slow_start, self.slow_until, now).of_part(part);
        // Priorities without a gap are the loader's business; a hole is an empty priority.
        self.priorities = (0..priorities.min(MAX_PRIORITIES))
            .map(|priority| Priority::new(&hosts, priority, self.config, &mut dice))
            .collect();
        let sizes: Vec<Sizes> = self.sizes().collect();
        self.load = Load::new(&sizes, self.config.panic_threshold);
        if let Some(zones) = &mut self.zones {
            zones.rebuild(&hosts, self.config, &mut dice);
        }
        self.stamp = dice.roll() | 1;
    }

    /// What the hash table of its last priority that has hosts says of itself, as Envoy shows it.
    pub(crate) fn table_size(&self) -> Option<TableSize> {
        self.priorities.iter().rev().find_map(Priority::table_size)
    }

    /// Whether it has no host, of any health.
    pub(crate) fn is_empty(&self) -> bool {
        self.sizes().all(|sizes| sizes.all == 0)
    }

    /// How many hosts each of its priorities has.
    fn sizes(&self) -> impl Iterator<Item = Sizes> {
        self.priorities.iter().map(Priority::sizes)
    }

    /// Picks a host by its place in `hosts`, which are those of the last [`Balancer::rebuild`].
    ///
    /// Where a request's hash decides, that is the random number.
    ///
    /// A host that `skip` refuses is given up for another, `attempts` times at most; then it is taken after all,
    /// as Envoy does. Nothing is picked only when the cluster has no host for the traffic.
    pub fn pick(
        &mut self,
        hosts: &[Host],
        random: u64,
        skip: &dyn Fn(usize) -> bool,
        attempts: u32,
        now: Instant,
    ) -> Option<usize> {
        self.pick_among(None, hosts, random, skip, attempts, now)
    }

    /// The same; where another balancer has decided for it, among which hosts.
    pub(crate) fn pick_among(
        &mut self,
        among: Option<Among>,
        hosts: &[Host],
        random: u64,
        skip: &dyn Fn(usize) -> bool,
        attempts: u32,
        now: Instant,
    ) -> Option<usize> {
        let mut dice = Dice(random);
        let mut attempt = 0;
        loop {
            if self.config.policy.is_hashed() {
                // The hash leads to the same priority each time.
                dice = Dice(random);
            }
            let key = Key { hash: random, attempt };
            let host = self.pick_once(among, hosts, key, &mut dice, now)?;
            if attempt == attempts || !skip(host) {
                return Some(host);
            }
            attempt += 1;
        }
    }

    /// Which hosts a stream may be given that has been to some priorities; nothing where that makes no difference.
    pub(crate) fn past(&self, past: &mut PastPriorities, random: u64) -> Option<Among> {
        let sizes: Vec<Sizes> = self.sizes().collect();
        let (priority, class) = past.load(&sizes)?.choose(&mut Dice(random))?;
        Some(Among { priority, class })
    }

    /// Whether too few hosts were healthy for the last pick, so that it was among all or failed (`lb_healthy_panic`).
    #[must_use]
    pub const fn in_panic(&self) -> bool {
        self.in_panic
    }

    fn pick_once(
        &mut self,
        among: Option<Among>,
        hosts: &[Host],
        key: Key,
        dice: &mut Dice,
        now: Instant,
    ) -> Option<usize> {
        let (priority, class) = match among {
            Some(Among { priority, class }) => (priority, self.load.class_of(priority, class)),
            None => self.load.choose(dice)?,
        };
        self.in_panic = class == Class::All;
        if self.in_panic && self.config.fails_in_panic {
            return None;
        }
        let hosts = Hosts::new(hosts, self.config.slow_start.as_ref(), self.slow_until, now);
        let priorities = self.priorities.get_mut(priority)?;
        if priority == 0
            && class != Class::All
            && let Some(zones) =
                self.zones.as_mut().filter(|_| !priorities.weighs_localities(class))
            && let Some(host) = zones.pick(class, self.config, &hosts, key, dice)
        {
            return host.map(|host| host as usize);
        }
        priorities.pick(class, &hosts, key, dice)
    }
}

/// How many hosts there are of each health: total, healthy, degraded.
#[must_use]
pub fn membership(hosts: &[Host]) -> (usize, usize, usize) {
    let count = |health| hosts.iter().filter(|host| host.health() == health).count();
    (hosts.len(), count(Health::Healthy), count(Health::Degraded))
}

/// Random numbers from one: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Copy, Debug)]
struct Dice(u64);

impl Dice {
    #[inline]
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, by multiplication instead of division.
    #[inline]
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.roll()) * n as u128) >> 64) as usize
    }
}

/// Envoy allows priorities 0 to 128.
const MAX_PRIORITIES: u32 = 129;

#[cfg(test)]
mod tests;
