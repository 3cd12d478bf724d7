//! Keeps requests in the proxy's own locality as far as that gives no host more than its share. Envoy: "zone aware
//! routing".
//!
//! What each locality has of the proxies (the hosts of the local cluster) is held against what it has of the hosts:
//! one with as much or more of these keeps all of its requests, another one as many as its hosts have room for, and the
//! rest go where room is left. All of it for priority 0 alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::group::Group;
use super::hashed::Key;
use super::hosts::Hosts;
use super::priority::Class;
use super::{Balancing, Dice, Host};
use crate::snapshot::cluster::{Health, Zones};
use crate::stats::ZoneStats;

/// What is known of the proxies that share their hosts.
#[derive(Debug, Default)]
pub(crate) struct LocalHosts {
    healthy: HashMap<Box<str>, Share>,
    /// How many localities have a proxy, of any health.
    localities: usize,
    /// This proxy's locality has one.
    has_own: bool,
    /// Percent of them that are healthy or degraded.
    well: f64,
}

/// How many healthy hosts a locality has, and what they weigh.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    count: u64,
    weight: u64,
}

impl LocalHosts {
    /// What the hosts of the local cluster say.
    pub(crate) fn of(hosts: &[Host], own: Option<&str>) -> Self {
        let mut local = Self::default();
        let (mut all, mut well) = (0_u64, 0_u64);
        let mut localities: BTreeMap<&str, Share> = BTreeMap::new();
        for host in hosts.iter().filter(|host| host.endpoint.priority == 0) {
            let share = localities.entry(&host.endpoint.locality).or_default();
            all += u64::from(!host.is_excluded());
            well += u64::from(host.health() != Health::Unhealthy);
            if host.health() == Health::Healthy {
                share.add(host);
            }
        }
        local.localities = localities.len();
        local.has_own = own.is_some_and(|own| localities.contains_key(own));
        local.well = if all == 0 { 0.0 } else { 100.0 * well as f64 / all as f64 };
        local.healthy = localities.into_iter().map(|(name, share)| (name.into(), share)).collect();
        local
    }
}

impl Share {
    fn add(&mut self, host: &Host) {
        self.count += 1;
        self.weight += u64::from(host.endpoint.weight.max(1));
    }

    const fn size(self, by_weight: bool) -> u64 {
        if by_weight { self.weight } else { self.count }
    }
}

/// What a balancer needs to know of zones.
#[derive(Clone, Debug)]
pub(crate) struct ZoneSetup {
    pub(crate) config: Arc<Zones>,
    pub(crate) stats: Arc<ZoneStats>,
    pub(crate) local: Arc<LocalHosts>,
}

/// How a balancer's requests are shared among the localities of its first priority.
#[derive(Debug)]
pub(super) struct ZoneRouting {
    setup: ZoneSetup,
    /// The proxy's own locality, if it has hosts, and then the others.
    localities: Box<[Locality]>,
    /// The first of them is the proxy's own.
    has_own: bool,
    routing: Routing,
}

#[derive(Debug)]
struct Locality {
    name: Box<str>,
    share: Share,
    healthy: Group,
    degraded: Group,
}

/// Who takes the requests.
#[derive(Debug, Default, PartialEq, Eq)]
enum Routing {
    /// Localities do not count.
    #[default]
    Off,
    /// All stay in the proxy's own.
    Direct,
    /// So many in 10,000 stay, and the others go where there is room, in running sums.
    Residual { own: u64, room: Vec<u64> },
}

impl ZoneRouting {
    pub(super) fn new(setup: ZoneSetup) -> Self {
        Self { setup, localities: Box::default(), has_own: false, routing: Routing::Off }
    }

    /// The local cluster has other hosts.
    pub(super) fn follow(&mut self, local: &Arc<LocalHosts>) {
        self.setup.local = Arc::clone(local);
        self.route();
    }

    /// Takes note of the hosts.
    pub(super) fn rebuild(&mut self, hosts: &Hosts<'_>, config: Balancing, dice: &mut Dice) {
        let mut members: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for place in hosts.places(|host| host.endpoint.priority == 0) {
            if let Some(host) = hosts.get(place) {
                members.entry(&host.endpoint.locality).or_default().push(place);
            }
        }
        let own = self.setup.config.locality.as_deref();
        let own = own.and_then(|own| members.remove_entry(own));
        self.has_own = own.is_some();
        let mut locality = |(name, members): (&str, Vec<u32>)| {
            let of = |health| {
                let is_so = |place: &u32| hosts.get(*place).is_some_and(|it| it.health() == health);
                members.iter().copied().filter(is_so).collect::<Box<[u32]>>()
            };
            let (healthy, degraded) = (of(Health::Healthy), of(Health::Degraded));
            let mut share = Share::default();
            healthy.iter().filter_map(|place| hosts.get(*place)).for_each(|it| share.add(it));
            Locality {
                name: name.into(),
                share,
                healthy: Group::new(healthy, hosts, config.policy, dice),
                degraded: Group::new(degraded, hosts, config.policy, dice),
            }
        };
        self.localities = own.into_iter().chain(members).map(&mut locality).collect();
        self.route();
    }

    /// Settles who takes the requests.
    fn route(&mut self) {
        self.setup.stats.lb_recalculate_zone_structures.inc();
        self.routing = if self.is_possible() { self.shared() } else { Routing::Off };
    }

    fn is_possible(&self) -> bool {
        let ZoneSetup { config, stats, local } = &self.setup;
        if self.localities.len() < 2 || (config.forced.is_none() && local.localities < 2) {
            return false;
        }
        if !local.has_own {
            stats.lb_local_cluster_not_ok.inc();
            return false;
        }
        let healthy: u64 = self.localities.iter().map(|locality| locality.share.count).sum();
        if healthy < config.least_hosts {
            stats.lb_zone_cluster_too_small.inc();
            return false;
        }
        true
    }

    fn shared(&self) -> Routing {
        let ZoneSetup { config, local, .. } = &self.setup;
        let size = |share: &Share| share.size(config.by_weight);
        let all_local: u64 = local.healthy.values().map(size).sum();
        let all: u64 = self.localities.iter().map(|locality| size(&locality.share)).sum();
        let part = |size: u64, all: u64| (10_000 * size).checked_div(all).unwrap_or(0);
        // What it has of the proxies, and of the hosts. One without a healthy host has nothing of either.
        let parts = self.localities.iter().map(|locality| {
            let proxies = local.healthy.get(&locality.name).filter(|_| locality.share.count > 0);
            (part(proxies.map_or(0, size), all_local), part(size(&locality.share), all))
        });
        let parts: Vec<(u64, u64)> = parts.collect();
        let own = parts.first().copied().filter(|_| self.has_own);
        if let Some((proxies, hosts)) = own {
            let healthy = self.localities.first().map_or(0, |own| own.share.count);
            let is_forced = config.forced.is_some_and(|least| healthy >= u64::from(least));
            if (hosts > 0 && hosts >= proxies) || is_forced {
                return Routing::Direct;
            }
        }
        let mut sum = 0;
        let room = parts.iter().enumerate().map(|(at, (proxies, hosts))| {
            if at > 0 || own.is_none() {
                sum += hosts.saturating_sub(*proxies);
            }
            sum
        });
        let room = room.collect();
        let own = own.and_then(|(proxies, hosts)| (hosts * 10_000).checked_div(proxies));
        Routing::Residual { own: own.unwrap_or(0), room }
    }

    /// A host of the locality that takes a request; nothing where localities do not count for it.
    pub(super) fn pick(
        &mut self,
        class: Class,
        config: Balancing,
        hosts: &Hosts<'_>,
        key: Key,
        dice: &mut Dice,
    ) -> Option<Option<u32>> {
        let ZoneSetup { config: zones, stats, local } = &self.setup;
        if self.routing == Routing::Off || dice.below(100) >= usize::from(zones.enabled_percent) {
            return None;
        }
        if local.well < f64::from(config.panic_threshold) {
            stats.lb_local_cluster_not_ok.inc();
            return config.fails_in_panic.then_some(None);
        }
        let at = match &self.routing {
            Routing::Off => return None,
            Routing::Direct => {
                stats.lb_zone_routing_all_directly.inc();
                0
            }
            Routing::Residual { own, .. } if (dice.below(10_000) as u64) < *own => {
                stats.lb_zone_routing_sampled.inc();
                0
            }
            Routing::Residual { room, .. } => {
                stats.lb_zone_routing_cross_zone.inc();
                match room.last().copied().unwrap_or(0) {
                    0 => {
                        stats.lb_zone_no_capacity_left.inc();
                        dice.below(self.localities.len())
                    }
                    all => {
                        let drawn = dice.below(usize::try_from(all).unwrap_or(usize::MAX)) as u64;
                        room.partition_point(|sum| *sum <= drawn)
                    }
                }
            }
        };
        let locality = self.localities.get_mut(at)?;
        Some(match class {
            Class::Degraded => locality.degraded.pick(hosts, key, dice),
            Class::Healthy | Class::All => locality.healthy.pick(hosts, key, dice),
        })
    }
}

#[cfg(test)]
mod tests;
