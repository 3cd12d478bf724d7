//! Hosts that requests name, in clusters that let them. Envoy's policy `override_host`.

use std::collections::HashMap;

use towpath_proto::Address;

use crate::balancer::Host;
use crate::filter::WantedHost;
use crate::ids::{PoolClass, PoolKey};
use crate::upstream::cluster::ClusterState;

/// The hosts that one request names, for its first attempt and those that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AskedHosts {
    /// The next one is the last of these.
    rest: Vec<Address>,
}

impl AskedHosts {
    /// Those that lists name, as `IP:PORT,IP:PORT`. What is no address is no host of any cluster.
    pub(crate) fn of<'a>(lists: impl IntoIterator<Item = &'a str>) -> Self {
        let names = lists.into_iter().flat_map(|list| list.split(','));
        let named = names.filter_map(|name| WantedHost::address(name.trim_ascii()));
        let mut rest: Vec<Address> = named.collect();
        rest.reverse();
        Self { rest }
    }
}

/// Where the hosts of a cluster are, by address.
#[derive(Debug, Default)]
pub(crate) struct Places(HashMap<Address, usize>);

impl Places {
    pub(crate) fn of(hosts: &[Host]) -> Self {
        let mut places = HashMap::with_capacity(hosts.len());
        for (place, host) in hosts.iter().enumerate() {
            places.entry(host.endpoint.address.clone()).or_insert(place);
        }
        Self(places)
    }
}

impl ClusterState {
    /// The pool of the next host that a request names and this cluster has, whatever its health. Names that it passes
    /// are not asked for again.
    #[cold]
    pub(crate) fn pick_asked(
        &mut self,
        asked: &mut AskedHosts,
        class: PoolClass,
    ) -> Option<PoolKey> {
        let places = self.places.as_deref()?;
        let place = loop {
            let address = asked.rest.pop()?;
            if let Some(place) = places.0.get(&address) {
                break *place;
            }
        };
        self.pool_of(place, class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(lists: &[&str]) -> Vec<String> {
        let asked = AskedHosts::of(lists.iter().copied());
        asked.rest.iter().rev().map(Address::to_string).collect()
    }

    #[test]
    fn lists_are_taken_one_after_the_other() {
        assert_eq!(
            named(&["127.0.0.1:80, [::1]:81", "10.0.0.1:1"]),
            ["127.0.0.1:80", "[::1]:81", "10.0.0.1:1"]
        );
        assert_eq!(named(&["\t127.0.0.1:80 ,,  ,127.0.0.1:80"]), ["127.0.0.1:80", "127.0.0.1:80"]);
    }

    #[test]
    fn what_is_no_address_is_passed() {
        assert_eq!(
            named(&["a:80,127.0.0.1,127.0.0.1:080,127.0.0.1:8 0,::1:80,10.0.0.1:80"]),
            ["10.0.0.1:80"]
        );
        assert!(named(&[""]).is_empty());
        assert!(named(&[]).is_empty());
    }
}
