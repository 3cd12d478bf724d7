//! Bounds what a host gets of the requests that their hashes bring: at most so many percent of its share of all that
//! are under way. Mirrokni et al., *Consistent Hashing with Bounded Loads* (2018); Envoy: `hash_balance_factor`.
//!
//! A request whose host has no room goes to another one, by an order that its hash alone decides, so that requests that
//! are alike stay together. Each pick costs a look at all hosts of the cluster.

use super::Host;

/// The host of a request that its hash would bring to `first`: that one, the next with room, or the one with the least
/// above its bound.
pub(super) fn pick(
    first: u32,
    members: &[(u32, f64)],
    hosts: &[Host],
    percent: u32,
    hash: u64,
) -> u32 {
    let overall = hosts.iter().map(|host| u64::from(host.active)).sum::<u64>();
    let slots = ((overall + 1) * u64::from(percent)).div_ceil(100) as f64;
    let load = |host: u32, share: f64| {
        let active = hosts.get(host as usize).map_or(0, |host| host.active);
        f64::from(active) / (slots * share).ceil().max(1.0)
    };
    let share = members.iter().find(|(host, _)| *host == first).map_or(1.0, |(_, share)| *share);
    let mut least = (load(first, share), first);
    if least.0 <= 1.0 {
        return first;
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    let mut random = MersenneTwister::new(hash as u32);
    for at in 0..order.len() {
        let other = at + random.below((order.len() - at) as u32) as usize;
        order.swap(at, other);
        let Some((host, share)) = members.get(order[at]).copied() else { continue };
        if host == first {
            continue;
        }
        let load = load(host, share);
        if load <= 1.0 {
            return host;
        }
        if load < least.0 {
            least = (load, host);
        }
    }
    least.1
}

/// MT19937 (Matsumoto, Nishimura 1998), which Envoy shuffles hosts by.
struct MersenneTwister {
    state: [u32; LENGTH],
    next: usize,
}

impl MersenneTwister {
    fn new(seed: u32) -> Self {
        let mut state = [seed; LENGTH];
        for at in 1..LENGTH {
            let before = state[at - 1];
            state[at] =
                (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
        }
        Self { state, next: LENGTH }
    }

    /// A number below `count`, which is not 0.
    fn below(&mut self, count: u32) -> u32 {
        let part = (1_u64 << 32) / u64::from(count.max(1));
        loop {
            let drawn = u64::from(self.draw()) / part;
            if drawn < u64::from(count.max(1)) {
                return drawn as u32;
            }
        }
    }

    fn draw(&mut self) -> u32 {
        if self.next == LENGTH {
            self.twist();
        }
        let mut drawn = self.state[self.next];
        self.next += 1;
        drawn ^= drawn >> 11;
        drawn ^= (drawn << 7) & 0x9d2c_5680;
        drawn ^= (drawn << 15) & 0xefc6_0000;
        drawn ^ (drawn >> 18)
    }

    fn twist(&mut self) {
        for at in 0..LENGTH {
            let joined =
                (self.state[at] & 0x8000_0000) | (self.state[(at + 1) % LENGTH] & 0x7fff_ffff);
            let mixed = (joined >> 1) ^ if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + MIDDLE) % LENGTH] ^ mixed;
        }
        self.next = 0;
    }
}

const LENGTH: usize = 624;
const MIDDLE: usize = 397;

#[cfg(test)]
mod tests {
    use towpath_proto::Address;

    use super::*;
    use crate::snapshot::cluster::Endpoint;

    fn hosts(active: &[u32]) -> Vec<Host> {
        let host = |active: &u32| {
            let mut host = Host::new(Endpoint::new(Address::unspecified()));
            host.active = *active;
            host
        };
        active.iter().map(host).collect()
    }

    /// The standard's word for it (C++ [rand.predef]): the 10,000th number of the default seed.
    #[test]
    fn numbers_are_those_of_the_standard() {
        let mut random = MersenneTwister::new(5489);
        for _ in 1..10_000 {
            random.draw();
        }
        assert_eq!(random.draw(), 4_123_659_995);
    }

    #[test]
    fn a_host_with_room_keeps_its_requests() {
        let members = [(0, 0.5), (1, 0.5)];
        // Of 10 and this one 150 percent are 17 slots, half of them 9.
        assert_eq!(pick(0, &members, &hosts(&[9, 1]), 150, 3), 0);
        assert_eq!(pick(0, &members, &hosts(&[10, 0]), 150, 3), 1);
        assert_eq!(pick(0, &[(0, 1.0)], &hosts(&[1000]), 100, 3), 0, "there is no other");
    }

    #[test]
    fn the_least_above_its_bound_takes_what_nobody_has_room_for() {
        // Its other hosts have all that the cluster does: shares are of those that are chosen from.
        let members = [(0, 0.2), (1, 0.4), (2, 0.4)];
        let hosts = hosts(&[42, 50, 41]);
        for hash in 0..20 {
            assert_eq!(pick(0, &members, &hosts, 1, hash), 2);
        }
    }

    #[test]
    fn requests_that_are_alike_stay_together_and_the_others_are_spread() {
        let members: Vec<(u32, f64)> = (0..10).map(|host| (host, 0.1)).collect();
        let hosts = hosts(&[100, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut counts = [0_u32; 10];
        for hash in 0..9000_u64 {
            let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let host = pick(0, &members, &hosts, 125, hash);
            assert_eq!(pick(0, &members, &hosts, 125, hash), host);
            counts[host as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    /// What the paper proves: no host ever has more than its bound, whatever their hashes are.
    #[test]
    fn no_host_gets_more_than_its_bound() {
        let members: Vec<(u32, f64)> = (0..5).map(|host| (host, 0.2)).collect();
        let mut hosts = hosts(&[0; 5]);
        for request in 0..1000_u64 {
            // All of them are wanted at one host.
            let host = pick(2, &members, &hosts, 150, request) as usize;
            hosts[host].active += 1;
            let bound = ((request + 1) as f64 * 1.5).ceil() * 0.2;
            assert!(f64::from(hosts[host].active) <= bound.ceil() + 1.0, "{request}");
        }
        assert!(hosts.iter().all(|host| host.active > 0));
    }
}
