//! Hosts that are found by a hash: the same one leads to the same host, and when hosts come and go most of the others
//! stay where they are. Envoy: "ring hash", "Maglev".
//!
//! A table is made when the first host is picked from it: those of classes without traffic cost nothing. A ring has 16
//! bytes for each point, a Maglev table 4 for each entry.

use std::collections::BTreeMap;

use super::bounded;
use super::hash::{murmur_hash, xx_hash};
use super::{Host, Policy};
use crate::snapshot::cluster::HashFunction;

/// Some hosts and their table.
#[derive(Debug)]
pub(super) struct Hashed {
    /// Hosts with their shares of all requests, which sum up to 1.
    members: Box<[(u32, f64)]>,
    policy: Policy,
    table: Option<Table>,
}

/// What the locality of a host weighs.
pub(super) type LocalityWeight<'a> = dyn Fn(u32) -> u32 + 'a;

/// What a request is found a host by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) hash: u64,
    /// How many hosts were refused before.
    pub(super) attempt: u32,
}

#[derive(Debug)]
enum Table {
    /// Points in the order of their hashes, each with its host.
    Ring(Box<[(u64, u32)]>),
    /// The host of each entry.
    Maglev(Box<[u32]>),
}

impl Hashed {
    pub(super) fn new(
        members: &[u32],
        hosts: &[Host],
        policy: Policy,
        locality_weight: Option<&LocalityWeight<'_>>,
    ) -> Self {
        Self { members: shares(members, hosts, locality_weight), policy, table: None }
    }

    pub(super) fn pick(&mut self, hosts: &[Host], key: Key) -> Option<u32> {
        let Self { members, policy, table, .. } = self;
        if members.is_empty() {
            return None;
        }
        let table = table.get_or_insert_with(|| Table::new(members, hosts, *policy));
        let host = table.find(key)?;
        match policy.bound_percent() {
            0 => Some(host),
            percent => Some(bounded::pick(host, members, hosts, percent, key.hash)),
        }
    }

    /// What its table says of itself, without making it; nothing where it has no hosts.
    pub(super) fn table_size(&self) -> Option<TableSize> {
        let shares: Vec<f64> = self.members.iter().map(|(_, share)| *share).collect();
        let mut counts = vec![0_u64; shares.len()];
        match self.policy {
            Policy::RingHash { least, most, .. } => {
                ring_turns(&shares, (least, most), |at| counts[at] += 1);
            }
            Policy::Maglev { size, .. } => maglev_turns(&shares, size, |at| counts[at] += 1),
            Policy::RoundRobin | Policy::LeastRequest { .. } | Policy::Random => return None,
        }
        let (least, most) = (counts.iter().min()?, counts.iter().max()?);
        Some(TableSize { all: counts.iter().sum(), least: *least, most: *most })
    }
}

/// How many places a table has, and how many of them the hosts with the fewest and the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSize {
    pub(crate) all: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Table {
    fn find(&self, key: Key) -> Option<u32> {
        match self {
            Self::Ring(points) => {
                let at = points.partition_point(|(hash, _)| *hash < key.hash);
                // A host that is refused is as if it were not on the ring. A ring of no size has none.
                let at = at.checked_rem(points.len())? + key.attempt as usize;
                points.get(at % points.len()).map(|(_, host)| *host)
            }
            Self::Maglev(entries) => {
                let hash = match key.attempt {
                    0 => key.hash,
                    attempt => key.hash ^ (u64::MAX - u64::from(attempt) + 1),
                };
                entries.get((hash % entries.len() as u64) as usize).copied()
            }
        }
    }

    fn new(members: &[(u32, f64)], hosts: &[Host], policy: Policy) -> Self {
        let name = |host: u32, by_hostname: bool| {
            let endpoint = hosts.get(host as usize).map(|host| &host.endpoint);
            endpoint.map_or_else(String::new, |endpoint| match by_hostname {
                true => endpoint.hostname.to_string(),
                false => endpoint.address.to_string(),
            })
        };
        match policy {
            Policy::RingHash { least, most, function, by_hostname, .. } => {
                let members = members.iter().map(|(host, share)| (*host, *share));
                let named = members.map(|(host, share)| (host, name(host, by_hostname), share));
                Self::Ring(ring(&named.collect::<Vec<_>>(), (least, most), function))
            }
            Policy::Maglev { size, by_hostname, .. } => {
                let members = members.iter().map(|(host, share)| (*host, *share));
                let named = members.map(|(host, share)| (host, name(host, by_hostname), share));
                Self::Maglev(maglev(&named.collect::<Vec<_>>(), size))
            }
            // No others are made of them.
            Policy::RoundRobin | Policy::LeastRequest { .. } | Policy::Random => {
                Self::Maglev(members.iter().map(|(host, _)| *host).collect())
            }
        }
    }
}

/// The share of each host: by its weight, or by its locality's and by its own within that.
fn shares(
    members: &[u32],
    hosts: &[Host],
    locality_weight: Option<&LocalityWeight<'_>>,
) -> Box<[(u32, f64)]> {
    let of = |member: &u32| hosts.get(*member as usize).map(|host| (*member, &host.endpoint));
    let known = || members.iter().filter_map(of);
    let mut localities: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let weigh = |member: u32| locality_weight.map_or(0.0, |weight| weight(member).into());
    for (member, endpoint) in known() {
        let locality = localities.entry(&endpoint.locality).or_default();
        *locality = (locality.0 + f64::from(endpoint.weight), weigh(member));
    }
    let total: f64 = localities.values().map(|(_, weight)| weight).sum();
    let sum: f64 = localities.values().map(|(sum, _)| sum).sum();
    let share = |weight: u32, locality: &str| match localities.get(locality) {
        Some((sum, weighed)) if total > 0.0 => weighed / total * f64::from(weight) / sum,
        Some(_) | None => f64::from(weight) / sum,
    };
    let mut members: Vec<_> = known().collect();
    if total > 0.0 {
        // Envoy goes through localities in their order.
        members.sort_by(|(_, one), (_, other)| one.locality.cmp(&other.locality));
    }
    let shares = members.into_iter().map(|(member, it)| (member, share(it.weight, &it.locality)));
    shares.filter(|(_, share)| *share > 0.0).collect()
}

/// Ketama's ring: each host has as many points as its share, the one with the least at least one of `least`.
fn ring(
    members: &[(u32, String, f64)],
    (least, most): (u64, u64),
    function: HashFunction,
) -> Box<[(u64, u32)]> {
    let shares: Vec<f64> = members.iter().map(|(_, _, share)| *share).collect();
    let mut points = Vec::new();
    let (mut last, mut number) = (usize::MAX, 0_u64);
    ring_turns(&shares, (least, most), |at| {
        number = if at == last { number + 1 } else { 0 };
        last = at;
        let (host, name, _) = &members[at];
        let point = format!("{name}_{number}");
        let hash = match function {
            HashFunction::XxHash => xx_hash(point.as_bytes(), 0),
            HashFunction::MurmurHash2 => murmur_hash(point.as_bytes()),
        };
        points.push((hash, *host));
    });
    points.sort_by_key(|(hash, _)| *hash);
    points.into()
}

/// Whose each point of a ring is: the places of hosts, one host after the other.
fn ring_turns(shares: &[f64], (least, most): (u64, u64), mut take: impl FnMut(usize)) {
    let smallest = shares.iter().copied().fold(1.0, f64::min);
    let scale = ((smallest * least as f64).ceil() / smallest).min(most as f64);
    let (mut made, mut wanted) = (0.0, 0.0);
    for (at, share) in shares.iter().enumerate() {
        wanted += scale * share;
        while made < wanted {
            take(at);
            made += 1.0;
        }
    }
}

/// A Maglev table (Eisenbud et al. 2016, §3.4): the hosts take entries in turn, each by an order of its own, and those
/// with a lesser share leave turns out.
fn maglev(members: &[(u32, String, f64)], size: u64) -> Box<[u32]> {
    struct Taker {
        host: u32,
        offset: u64,
        skip: u64,
        next: u64,
    }
    let shares: Vec<f64> = members.iter().map(|(_, _, share)| *share).collect();
    let mut takers: Vec<Taker> = members
        .iter()
        .map(|(host, name, _)| Taker {
            host: *host,
            offset: xx_hash(name.as_bytes(), 0) % size,
            skip: xx_hash(name.as_bytes(), 1) % (size - 1) + 1,
            next: 0,
        })
        .collect();
    const FREE: u32 = u32::MAX;
    let mut entries = vec![FREE; usize::try_from(size).unwrap_or(usize::MAX)].into_boxed_slice();
    maglev_turns(&shares, size, |at| {
        let taker = &mut takers[at];
        loop {
            let at = (taker.offset + taker.skip.wrapping_mul(taker.next) % size) % size;
            taker.next += 1;
            let Some(entry) = entries.get_mut(at as usize) else { return };
            if *entry == FREE {
                *entry = taker.host;
                return;
            }
        }
    });
    entries
}

/// Who takes each entry of a Maglev table, in turn: the places of hosts.
fn maglev_turns(shares: &[f64], size: u64, mut take: impl FnMut(usize)) {
    let largest = shares.iter().copied().fold(0.0, f64::max);
    let mut targets = vec![0.0; shares.len()];
    let (mut taken, mut turn) = (0, 1.0);
    while taken < size && largest > 0.0 {
        for (at, (share, target)) in shares.iter().zip(&mut targets).enumerate() {
            if taken == size {
                break;
            }
            if turn * share < *target {
                continue;
            }
            *target += largest;
            take(at);
            taken += 1;
        }
        turn += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use towpath_proto::Address;

    use super::*;
    use crate::snapshot::cluster::Endpoint;

    const RING: Policy = Policy::RingHash {
        least: 1024,
        most: 8 * 1024 * 1024,
        function: HashFunction::XxHash,
        by_hostname: false,
        bound_percent: 0,
    };
    const MAGLEV: Policy = Policy::Maglev { size: 65537, by_hostname: false, bound_percent: 0 };

    fn written(hosts: &[Host]) -> impl Fn(u32) -> u32 + use<'_> {
        |host| hosts[host as usize].endpoint.locality_weight
    }

    fn hosts(weights: &[u32]) -> Vec<Host> {
        let endpoint = |(number, weight): (usize, &u32)| Endpoint {
            weight: *weight,
            ..Endpoint::new(Address::Ip(format!("10.0.0.{number}:80").parse().unwrap()))
        };
        weights.iter().enumerate().map(endpoint).map(Host::new).collect()
    }

    fn picks(hosts: &[Host], members: &[u32], policy: Policy) -> Vec<u32> {
        let mut table = Hashed::new(members, hosts, policy, None);
        let key = |number: u64| Key { hash: xx_hash(&number.to_le_bytes(), 0), attempt: 0 };
        (0..20_000).map(|number| table.pick(hosts, key(number)).unwrap()).collect()
    }

    #[test]
    fn hosts_get_their_shares() {
        for (policy, tolerance) in [(RING, 0.3), (MAGLEV, 0.05)] {
            let hosts = hosts(&[1, 2, 5]);
            let mut counts: HashMap<u32, f64> = HashMap::new();
            for host in picks(&hosts, &[0, 1, 2], policy) {
                *counts.entry(host).or_default() += 1.0 / 20_000.0;
            }
            for (host, share) in [(0, 0.125), (1, 0.25), (2, 0.625)] {
                let (low, high) = (share * (1.0 - tolerance), share * (1.0 + tolerance));
                assert!((low..high).contains(&counts[&host]), "{policy:?} {host} {counts:?}");
            }
        }
    }

    #[test]
    fn most_stay_where_they_are_when_a_host_goes() {
        // A ring has more points of the others then.
        for (policy, most) in [(RING, 0.1), (MAGLEV, 0.03)] {
            let hosts = hosts(&[1; 10]);
            let all: Vec<u32> = (0..10).collect();
            let (before, after) = (picks(&hosts, &all, policy), picks(&hosts, &all[..9], policy));
            let moved = before.iter().zip(&after).filter(|(old, new)| **old != 9 && old != new);
            let moved = moved.count() as f64 / 20_000.0;
            assert!(moved <= most, "{policy:?} {moved}");
        }
    }

    #[test]
    fn a_host_that_is_refused_makes_room_for_others() {
        for policy in [RING, MAGLEV] {
            let hosts = hosts(&[1, 1]);
            let mut table = Hashed::new(&[0, 1], &hosts, policy, None);
            for hash in [0, 1, u64::MAX] {
                let pick = |attempt| table.pick(&hosts, Key { hash, attempt });
                let reached: Vec<_> = (0..16).map(pick).collect();
                assert!(reached.contains(&Some(0)) && reached.contains(&Some(1)), "{policy:?}");
            }
            assert!(Hashed::new(&[], &hosts, policy, None).pick(&hosts, key(0)).is_none());
            let empty = Policy::RingHash {
                least: 0,
                most: 0,
                function: HashFunction::XxHash,
                by_hostname: false,
                bound_percent: 0,
            };
            assert!(Hashed::new(&[0], &hosts, empty, None).pick(&hosts, key(0)).is_none());
        }
    }

    fn key(hash: u64) -> Key {
        Key { hash, attempt: 0 }
    }

    #[test]
    fn sizes_are_told_without_a_table() {
        let hosts = hosts(&[1, 2, 4]);
        for policy in [RING, MAGLEV] {
            let mut hashed = Hashed::new(&[0, 1, 2], &hosts, policy, None);
            let told = hashed.table_size().unwrap();
            assert!(hashed.table.is_none());
            let key = Key { hash: 0, attempt: 0 };
            hashed.pick(&hosts, key).unwrap();
            let owners: Vec<u32> = match hashed.table.as_ref().unwrap() {
                Table::Ring(points) => points.iter().map(|(_, host)| *host).collect(),
                Table::Maglev(entries) => entries.to_vec(),
            };
            let count = |host| owners.iter().filter(|owner| **owner == host).count() as u64;
            assert_eq!(told.all, owners.len() as u64, "{policy:?}");
            assert_eq!((told.least, told.most), (count(0), count(2)), "{policy:?}");
        }
        assert_eq!(Hashed::new(&[], &hosts, RING, None).table_size(), None);
    }

    #[test]
    fn localities_share_by_their_weights() {
        let mut hosts = hosts(&[1, 3, 1, 1]);
        for (host, (locality, weight)) in
            hosts.iter_mut().zip([("a", 1), ("a", 1), ("b", 3), ("c", 0)])
        {
            host.endpoint.locality = locality.into();
            host.endpoint.locality_weight = weight;
        }
        let all = [0, 1, 2, 3];
        let wanted = [(0, 0.0625), (1, 0.1875), (2, 0.75)];
        assert_eq!(*shares(&all, &hosts, Some(&written(&hosts))), wanted);
        assert_eq!(shares(&all, &hosts, None)[1], (1, 0.5));
        for host in &mut hosts {
            host.endpoint.locality_weight = 0;
        }
        assert_eq!(
            shares(&all, &hosts, Some(&written(&hosts)))[1],
            (1, 0.5),
            "no locality has a weight"
        );
    }
}
