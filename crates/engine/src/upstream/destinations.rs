//! Hosts of an `ORIGINAL_DST` cluster: each address that a client wanted to reach becomes one when it is first asked
//! for, and goes when it was not for a while and has no connection.
//!
//! Arrives: the address that a stream wants to go to. Leaves: the [`PoolKey`] of its host.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use towpath_proto::{Address, Instant};

use crate::balancer::Host;
use crate::env::{Env, TimerSlot};
use crate::ids::{PoolClass, PoolKey};
use crate::snapshot::ClusterId;
use crate::snapshot::cluster::{Discovery, Endpoint};
use crate::upstream::Upstreams;
use crate::upstream::cluster::ClusterState;
use crate::upstream::host_pools::HostPools;

/// Where each destination is among the cluster's hosts.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    hosts: HashMap<SocketAddr, Destination>,
    /// The next look at which of them go is due.
    awaits_sweep: bool,
}

#[derive(Clone, Copy, Debug)]
struct Destination {
    host: u32,
    /// It was asked for since the last look.
    used: bool,
}

impl Destinations {
    pub(crate) fn of(discovery: &Discovery) -> Option<Box<Self>> {
        matches!(discovery, Discovery::OriginalDestination(_)).then(Box::default)
    }
}

impl ClusterState {
    /// The pool of the host at an address, which becomes a host of the cluster if it is none; `None` where there are
    /// too many.
    pub(crate) fn pick_destination(
        &mut self,
        wanted: SocketAddr,
        class: PoolClass,
        env: &mut Env,
        now: Instant,
    ) -> Option<PoolKey> {
        let host = self.destination(wanted)?;
        let Discovery::OriginalDestination(original) = &self.config.discovery else { return None };
        let destinations = self.destinations.as_mut()?;
        if !destinations.awaits_sweep {
            destinations.awaits_sweep = true;
            let slot = TimerSlot::Cluster(self.id.0).number();
            env.timers.set(slot, now + original.cleanup_interval);
        }
        self.pool_of(host as usize, class)
    }

    /// The host at an address; a new one takes its place behind the others.
    fn destination(&mut self, address: SocketAddr) -> Option<u32> {
        let destinations = self.destinations.as_mut()?;
        if let Some(known) = destinations.hosts.get_mut(&address) {
            known.used = true;
            return Some(known.host);
        }
        if self.hosts.len() >= MOST_DESTINATIONS {
            return None;
        }
        let host = u32::try_from(self.hosts.len()).ok()?;
        destinations.hosts.insert(address, Destination { host, used: true });
        let hostname = Arc::from(format!("{}{address}", self.config.name));
        let socket = self.config.bare_socket;
        let endpoint = Endpoint { hostname, socket, ..Endpoint::new(Address::Ip(address)) };
        let first = PoolClass::default();
        let pool = self.add_pool(&endpoint, first);
        if let Some(Some(pool)) = self.pools.get_mut(pool as usize) {
            pool.host = Some(host);
        }
        self.hosts.push(Host::new(endpoint));
        let mut pools = HostPools::default();
        pools.put(first, pool);
        self.pools_of.push(pools);
        self.stats.membership_change.inc();
        self.show_hosts();
        Some(host)
    }

    /// Leaves out the hosts that were not asked for since the last look and have no connection. Answers their pools.
    fn sweep(&mut self, random: u64, now: Instant) -> Vec<u32> {
        let Some(destinations) = &self.destinations else { return Vec::new() };
        let used = |at: usize| {
            let address = self.hosts.get(at).and_then(|host| host.endpoint.address.ip());
            address.and_then(|address| destinations.hosts.get(&address)).is_some_and(|it| it.used)
        };
        let held = |pool: u32| {
            self.pools.get(pool as usize).and_then(Option::as_ref).is_some_and(|pool| {
                pool.connections > 0 || !pool.pending.is_empty() || pool.counts.requests_active > 0
            })
        };
        let stays = |at: usize| {
            let pools = self.pools_of.get(at);
            used(at) || pools.is_some_and(|pools| pools.iter().any(held))
        };
        let endpoints: Vec<Endpoint> = (self.hosts.iter().enumerate())
            .filter(|(at, _)| stays(*at))
            .map(|(_, host)| host.endpoint.clone())
            .collect();
        let some_go = endpoints.len() < self.hosts.len();
        let gone = if some_go { self.update(&endpoints, random, now) } else { Vec::new() };
        if some_go {
            self.stats.membership_change.inc();
            self.show_hosts();
        }
        self.index_destinations();
        gone
    }

    /// Notes anew where each destination is.
    fn index_destinations(&mut self) {
        let Some(destinations) = &mut self.destinations else { return };
        let hosts = (0_u32..).zip(&self.hosts);
        let places = hosts.filter_map(|(host, it)| Some((it.endpoint.address.ip()?, host)));
        let indexed = places.map(|(address, host)| (address, Destination { host, used: false }));
        destinations.hosts = indexed.collect();
    }
}

impl Upstreams {
    /// The time of a cluster has come: destinations that were not asked for go. False if it has none of its own.
    pub(crate) fn sweep_destinations(
        &mut self,
        id: ClusterId,
        env: &mut Env,
        now: Instant,
    ) -> bool {
        let Some(cluster) = self.clusters.get_mut(id) else { return false };
        let Discovery::OriginalDestination(original) = &cluster.config.discovery else {
            return false;
        };
        let interval = original.cleanup_interval;
        let gone = cluster.sweep(env.random.next(), now);
        let some_stay = !cluster.hosts.is_empty();
        if let Some(destinations) = &mut cluster.destinations {
            destinations.awaits_sweep = some_stay;
        }
        if some_stay {
            env.timers.set(TimerSlot::Cluster(id.0).number(), now + interval);
        }
        for pool in gone {
            self.clusters.drop_if_unused(PoolKey { cluster: id, pool });
        }
        true
    }
}

/// Hosts of one cluster on one worker. Requests that want still another one find none: a client that may choose a
/// destination by a header could make any number.
pub(crate) const MOST_DESTINATIONS: usize = 65_536;
