//! The hosts of a cluster: which there are, what is known of them, and their first pools.
//!
//! Arrives: endpoints, and what was found out about them. Leaves: the pools of hosts that are gone or not well.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_proto::{Address, Instant};

use crate::retry_policy::OmittedHosts;

use crate::balancer::Host;
use crate::free_slot;
use crate::ids::{PoolClass, PoolKey};
use crate::snapshot::cluster::{Endpoint, Health};
use crate::snapshot::health::{ClusterHealth, HealthFlags};
use crate::upstream::asked::Places;
use crate::upstream::cluster::{ClusterState, Resource};
use crate::upstream::host_pools::HostPools;
use crate::upstream::pool::Pool;

impl ClusterState {
    /// Takes new endpoints; pools of addresses that stay are kept. Answers the pools whose host is gone.
    pub(crate) fn update(&mut self, endpoints: &[Endpoint], random: u64, now: Instant) -> Vec<u32> {
        let healthy_since = self.healthy_since();
        let mut old: HashMap<Address, HostPools> = HashMap::new();
        for (index, pool) in self.pools.iter_mut().enumerate() {
            if let Some(pool) = pool
                && pool.host.take().is_some()
            {
                let pools = old.entry(pool.address.clone()).or_default();
                pools.put(pool.class, u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        // What hosts have said is forgotten with the last that have it: not before the same ones are there again.
        let said: Vec<_> = self.hosts.iter_mut().filter_map(|host| host.load.take()).collect();
        self.hosts.clear();
        self.pools_of.clear();
        // Of thousands of clusters most have a few hosts, and a vector that grows begins with room for four.
        self.hosts.reserve_exact(endpoints.len());
        self.pools_of.reserve_exact(endpoints.len());
        self.pools.reserve_exact(endpoints.len().saturating_sub(self.pools.len()));
        for endpoint in endpoints {
            let index = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
            let mut pools = old.remove(&endpoint.address).unwrap_or_default();
            let first = PoolClass::default();
            if pools.get(first).is_none() {
                pools.put(first, self.add_pool(endpoint, first));
            }
            let zone = self.zone_books.as_mut().and_then(|books| books.to(&endpoint.locality));
            let is_canary = OmittedHosts::Canaries.has(&endpoint.filter_metadata);
            self.has_canaries |= is_canary;
            let mut host = Host::new(endpoint.clone());
            for pool in pools.iter() {
                let class = self.pools.get(pool as usize).and_then(|it| Some(it.as_ref()?.class));
                let socket = class.and_then(|class| self.socket_of(endpoint, class));
                if let Some(Some(pool)) = self.pools.get_mut(pool as usize) {
                    pool.host = Some(index);
                    pool.hostname = Arc::clone(&endpoint.hostname);
                    pool.socket = socket;
                    pool.addresses.clone_from(&endpoint.addresses);
                    pool.zone.clone_from(&zone);
                    pool.is_canary = is_canary;
                    host.active += u32::try_from(pool.counts.requests_active).unwrap_or(u32::MAX);
                }
            }
            host.health_flags = self.health_flags(endpoint);
            host.healthy_since = healthy_since.get(&endpoint.address).copied();
            self.hosts.push(host);
            self.pools_of.push(pools);
        }
        self.weigh_others(now);
        drop(said);
        let is_asked = self.config.override_hosts.is_some();
        self.places = is_asked.then(|| Box::new(Places::of(&self.hosts)));
        self.rebuild_balancer(random, now);
        old.into_values().flat_map(|pools| pools.iter().collect::<Vec<_>>()).collect()
    }

    /// The balancer takes note of the hosts.
    pub(crate) fn rebuild_balancer(&mut self, random: u64, now: Instant) {
        if self.config.balancing.slow_start.is_some() {
            for host in &mut self.hosts {
                if host.health() == Health::Healthy {
                    host.healthy_since.get_or_insert(now);
                }
            }
        }
        self.balancer.rebuild(&self.hosts, random, now);
        if let Some(subsets) = &mut self.subsets {
            subsets.rebuild(&self.hosts, random, now);
        }
    }

    /// Since when each host is healthy, where that matters.
    fn healthy_since(&self) -> HashMap<Address, Instant> {
        if self.config.balancing.slow_start.is_none() {
            return HashMap::new();
        }
        let since = |host: &Host| Some((host.endpoint.address.clone(), host.healthy_since?));
        self.hosts.iter().filter_map(since).collect()
    }

    /// What is known of a host.
    pub(crate) fn health_flags(&self, endpoint: &Endpoint) -> HealthFlags {
        let health = self.health.as_ref();
        let known = health.and_then(|health| health.get(&endpoint.address)).copied();
        let check = self.config.health_check.as_ref().filter(|_| !endpoint.is_unchecked());
        let unknown = check.map(|check| HealthFlags::unchecked(check.ignores_new));
        known.or(unknown).unwrap_or(HealthFlags::WELL)
    }

    /// Takes note of what was found out about its hosts.
    ///
    /// Answers the pools of those that are not well any more.
    pub(crate) fn take_health(
        &mut self,
        health: Arc<ClusterHealth>,
        random: u64,
        now: Instant,
    ) -> Vec<u32> {
        self.health = Some(health);
        let health_flags: Vec<HealthFlags> =
            self.hosts.iter().map(|host| self.health_flags(&host.endpoint)).collect();
        let differs =
            |(host, health_flags): (&Host, &HealthFlags)| host.health_flags != *health_flags;
        if self.hosts.iter().zip(&health_flags).any(differs) {
            let fell = self.note_changes(&health_flags);
            for (host, health_flags) in self.hosts.iter_mut().zip(health_flags) {
                if host.health_flags.failed_check && !health_flags.failed_check {
                    host.healthy_since = Some(now);
                }
                host.health_flags = health_flags;
            }
            self.rebuild_balancer(random, now);
            return fell;
        }
        Vec::new()
    }

    /// What is known of its hosts.
    pub(crate) fn flags(&self) -> Vec<HealthFlags> {
        self.hosts.iter().map(|host| host.health_flags).collect()
    }

    /// All of its pools.
    pub(crate) fn places_of_pools(&self) -> Vec<u32> {
        self.pool_keys().iter().map(|pool_key| pool_key.pool).collect()
    }

    /// Forgives hosts that come back; answers the pools of those that are not well any more.
    pub(crate) fn note_changes(&mut self, health_flags: &[HealthFlags]) -> Vec<u32> {
        let mut fell = Vec::new();
        for (at, after) in health_flags.iter().enumerate() {
            let before = self.hosts[at].health_flags;
            let pools: Vec<u32> = self.pools_of[at].iter().collect();
            if before.ejected && !after.ejected {
                pools.iter().for_each(|pool| self.forgive(*pool));
            }
            let is_new = |was: bool, is: bool| is && !was;
            if is_new(before.failed_check, after.failed_check)
                || is_new(before.ejected, after.ejected)
            {
                fell.extend(pools);
            }
        }
        fell
    }

    pub(crate) fn add_pool(&mut self, endpoint: &Endpoint, class: PoolClass) -> u32 {
        let mut pool = Pool::new(endpoint.address.clone(), Arc::clone(&endpoint.hostname), class);
        pool.socket = self.socket_of(endpoint, class);
        pool.addresses.clone_from(&endpoint.addresses);
        pool.tally = self.config.tally_of(&pool.address);
        pool.zone = self.zone_books.as_mut().and_then(|books| books.to(&endpoint.locality));
        pool.is_canary = OmittedHosts::Canaries.has(&endpoint.filter_metadata);
        self.has_canaries |= pool.is_canary;
        pool.total = self.config.connections_of(&pool.address);
        pool.tracked = self.tracked.as_ref().and_then(|tracked| tracked.endpoint(&pool));
        u32::try_from(free_slot::put(&mut self.pools, pool)).unwrap_or(u32::MAX)
    }

    /// Counts a pool that is used again; false where there may be no other.
    #[cold]
    pub(super) fn enter_pool(&mut self, pool_key: PoolKey) -> bool {
        if self.pool(pool_key).is_none_or(|pool| pool.is_counted) {
            return true;
        }
        if self.is_full(pool_key, Resource::Pools) {
            self.stats.upstream_cx_pool_overflow.inc();
            return false;
        }
        if let Some(pool) = self.pool_mut(pool_key) {
            pool.is_counted = true;
        }
        self.take(pool_key, Resource::Pools);
        true
    }

    /// A pool on which nothing hangs any more is not counted.
    pub(crate) fn settle_pool(&mut self, pool_key: PoolKey) {
        let pool = self.pool_mut(pool_key).filter(|pool| pool.is_counted);
        if let Some(pool) = pool.filter(|it| it.connections == 0 && it.pending.is_empty()) {
            pool.is_counted = false;
            self.give(pool_key, Resource::Pools);
        }
    }

    /// Frees the pool of a host that is gone, once nothing hangs on it.
    pub(crate) fn drop_if_unused(&mut self, pool_key: PoolKey) {
        if self.pool(pool_key).is_some_and(Pool::is_unused) {
            self.pools[pool_key.pool as usize] = None;
        }
    }
}
