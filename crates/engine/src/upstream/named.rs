//! Hosts of a cluster that are names: each that a request wants to go to becomes one when its address is known, and
//! goes with it.
//!
//! Arrives: a name (`HOST:PORT`) and its address. Leaves: the [`PoolKey`] of its host. How many there are is bounded by
//! the DNS cache that knows them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use towpath_proto::Address;

use crate::balancer::Host;
use crate::ids::{PoolClass, PoolKey};
use crate::snapshot::cluster::{Discovery, Endpoint};
use crate::upstream::cluster::ClusterState;
use crate::upstream::host_pools::HostPools;

/// Where each name is among the cluster's hosts.
#[derive(Debug, Default)]
pub(crate) struct Named(HashMap<Arc<str>, usize>);

impl Named {
    pub(crate) fn of(discovery: &Discovery) -> Option<Box<Self>> {
        matches!(discovery, Discovery::Named(_)).then(Box::default)
    }
}

impl ClusterState {
    /// The DNS cache that knows its hosts, if they are names.
    pub(crate) fn dns_cache(&self) -> Option<&Arc<str>> {
        match &self.config.discovery {
            Discovery::Named(cache) => Some(cache),
            Discovery::Static
            | Discovery::Dns(_)
            | Discovery::OriginalDestination(_)
            | Discovery::SubClusters(_)
            | Discovery::Aggregate(_) => None,
        }
    }

    /// The pool of a name at an address.
    pub(crate) fn pick_named(
        &mut self,
        name: &Arc<str>,
        address: SocketAddr,
        class: PoolClass,
    ) -> Option<PoolKey> {
        let host = self.take_named(name, address)?;
        self.pool_of(host, class)
    }

    /// A name is at an address: it becomes a host if it is none, and if it was elsewhere, new connections go there.
    pub(crate) fn take_named(&mut self, name: &Arc<str>, address: SocketAddr) -> Option<usize> {
        let place = self.named.as_ref()?.0.get(name).copied();
        let address = Address::Ip(address);
        let known = place.and_then(|place| self.hosts.get_mut(place).zip(place.into()));
        if let Some((host, place)) = known
            && host.endpoint.hostname == *name
        {
            if host.endpoint.address != address {
                host.endpoint.address = address.clone();
                for pool in self.pools_of.get(place)?.iter() {
                    if let Some(Some(pool)) = self.pools.get_mut(pool as usize) {
                        pool.address = address.clone();
                    }
                }
            }
            return Some(place);
        }
        let place = self.hosts.len();
        let (hostname, socket) = (Arc::clone(name), self.config.bare_socket);
        let endpoint = Endpoint { hostname, socket, ..Endpoint::new(address) };
        self.hosts.push(Host::new(endpoint));
        self.pools_of.push(HostPools::default());
        self.named.as_mut()?.0.insert(Arc::clone(name), place);
        self.show_change();
        Some(place)
    }

    /// A name is not kept any more. Answers the pools of its host.
    pub(crate) fn drop_named(&mut self, name: &str) -> Vec<u32> {
        let Some(place) = self.named.as_mut().and_then(|named| named.0.remove(name)) else {
            return Vec::new();
        };
        if place >= self.hosts.len() {
            return Vec::new();
        }
        self.hosts.swap_remove(place);
        let gone: Vec<u32> = self.pools_of.swap_remove(place).iter().collect();
        let moved = self.hosts.get(place).map(|host| Arc::clone(&host.endpoint.hostname));
        let pools = gone.iter().map(|pool| (*pool, None));
        let kept = self.pools_of.get(place).into_iter().flat_map(HostPools::iter);
        let host = u32::try_from(place).ok();
        let all: Vec<_> = pools.chain(kept.map(|pool| (pool, host))).collect();
        for (pool, host) in all {
            if let Some(Some(pool)) = self.pools.get_mut(pool as usize) {
                pool.host = host;
            }
        }
        if let (Some(moved), Some(named)) = (moved, &mut self.named) {
            named.0.insert(moved, place);
        }
        self.show_change();
        gone
    }

    /// All workers have the same hosts; one shows them.
    fn show_change(&self) {
        if self.shown.is_some() {
            self.stats.membership_change.inc();
            self.show_hosts();
        }
    }
}
