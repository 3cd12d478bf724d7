use towpath_proto::{Address, Instant};

use super::*;
use crate::balancer::{Balancer, Policy};
use crate::snapshot::ClusterId;
use crate::snapshot::cluster::Endpoint;
use crate::snapshot::health::HealthFlags;

const START: Instant = Instant::ZERO;

/// Hosts of localities `0`, `1`, …: so many each.
fn hosts(sizes: &[usize]) -> Vec<Host> {
    let of = |(locality, size): (usize, &usize)| {
        let endpoint = Endpoint {
            locality: locality.to_string().into(),
            ..Endpoint::new(Address::unspecified())
        };
        vec![Host::new(endpoint); *size]
    };
    sizes.iter().enumerate().flat_map(of).collect()
}

fn zones() -> Zones {
    Zones {
        local: ClusterId(0),
        locality: Some("0".into()),
        enabled_percent: 100,
        least_hosts: 6,
        forced: None,
        by_weight: false,
    }
}

fn ill() -> HealthFlags {
    HealthFlags { ejected: true, ..HealthFlags::WELL }
}

struct Scene {
    balancer: Balancer,
    hosts: Vec<Host>,
    stats: Arc<ZoneStats>,
}

impl Scene {
    fn new(config: Zones, balancing: Balancing, proxies: &[Host], hosts: Vec<Host>) -> Self {
        let stats: Arc<ZoneStats> = Arc::default();
        let local = LocalHosts::of(proxies, config.locality.as_deref());
        let setup =
            ZoneSetup { config: Arc::new(config), stats: stats.clone(), local: Arc::new(local) };
        let mut balancer = Balancer::new(balancing).with_zones(Some(&setup));
        balancer.rebuild(&hosts, 7, START);
        Self { balancer, hosts, stats }
    }

    fn plain(proxies: &[usize], sizes: &[usize]) -> Self {
        let balancing = Balancing::new(Policy::RoundRobin);
        Self::new(zones(), balancing, &hosts(proxies), hosts(sizes))
    }

    /// Which part of so many requests each locality gets.
    fn shares(&mut self, picks: u32) -> Vec<f64> {
        let mut counts = vec![0.0; 4];
        for random in 0..picks {
            let picked = self.balancer.pick(&self.hosts, random.into(), &|_| false, 0, START);
            let locality = picked.map(|at| self.hosts[at].endpoint.locality.clone());
            if let Some(locality) = locality {
                counts[locality.parse::<usize>().unwrap()] += 1.0 / f64::from(picks);
            }
        }
        counts
    }

    fn counted(&self) -> [u64; 3] {
        let stats = &self.stats;
        let all = [
            &stats.lb_zone_routing_all_directly,
            &stats.lb_zone_routing_sampled,
            &stats.lb_zone_routing_cross_zone,
        ];
        all.map(|counter| counter.value())
    }
}

fn is_near(seen: &[f64], wanted: &[f64]) -> bool {
    seen.iter().zip(wanted).all(|(seen, wanted)| (seen - wanted).abs() < 0.01)
}

#[test]
fn a_locality_with_as_much_of_the_hosts_as_of_the_proxies_keeps_its_requests() {
    for sizes in [[3, 3], [5, 3]] {
        let mut scene = Scene::plain(&[2, 2], &sizes);
        assert!(is_near(&scene.shares(1000), &[1.0, 0.0]));
        assert_eq!(scene.counted(), [1000, 0, 0]);
    }
}

/// The example of Envoy's source: 40, 40 and 20 % of the proxies, 25, 50 and 25 % of the hosts.
#[test]
fn what_has_no_room_goes_where_room_is_left() {
    let mut scene = Scene::plain(&[4, 4, 2], &[2, 4, 2]);
    let shares = scene.shares(100_000);
    assert!(is_near(&shares, &[0.625, 0.25, 0.125]), "{shares:?}");
    let [direct, sampled, crossed] = scene.counted();
    assert_eq!((direct, sampled + crossed), (0, 100_000));
    assert!(sampled.abs_diff(62_500) < 1000);
}

/// Whatever stands where: when all proxies do so, each locality gets what it has of the hosts.
#[test]
fn all_proxies_together_use_every_host_alike() {
    for (proxies, sizes) in [
        ([1, 1, 1], [2, 2, 2]),
        ([5, 1, 1], [2, 2, 4]),
        ([1, 6, 3], [4, 1, 3]),
        ([2, 1, 7], [1, 1, 5]),
        ([3, 3, 0], [2, 2, 4]),
    ] {
        let (mut got, all) = (vec![0.0; 3], proxies.iter().sum::<usize>() as f64);
        for (zone, count) in proxies.iter().enumerate().filter(|(_, count)| **count > 0) {
            let config = Zones { locality: Some(zone.to_string().into()), ..zones() };
            let balancing = Balancing::new(Policy::Random);
            let mut scene = Scene::new(config, balancing, &hosts(&proxies), hosts(&sizes));
            for (got, share) in got.iter_mut().zip(scene.shares(50_000)) {
                *got += share * *count as f64 / all;
            }
        }
        let whole = sizes.iter().sum::<usize>() as f64;
        let wanted: Vec<f64> = sizes.iter().map(|size| *size as f64 / whole).collect();
        assert!(is_near(&got, &wanted), "{proxies:?} {sizes:?}: {got:?}");
    }
}

#[test]
fn localities_do_not_count_where_that_would_do_no_good() {
    let alike = |scene: &mut Scene, wanted: &[f64]| {
        let shares = scene.shares(12_000);
        assert!(is_near(&shares, wanted), "{shares:?}");
        assert_eq!(scene.counted(), [0, 0, 0]);
    };
    let half = [0.5, 0.5];
    // Five hosts are fewer than six.
    let mut scene = Scene::plain(&[2, 2], &[3, 2]);
    alike(&mut scene, &[0.6, 0.4]);
    assert_eq!(scene.stats.lb_zone_cluster_too_small.value(), 1);
    // No proxy is where this one says that it is.
    let mut scene = Scene::plain(&[0, 2, 2], &[3, 3]);
    alike(&mut scene, &half);
    assert_eq!(scene.stats.lb_local_cluster_not_ok.value(), 1);
    // All proxies are in one locality, or all hosts.
    alike(&mut Scene::plain(&[4], &[3, 3]), &half);
    alike(&mut Scene::plain(&[2, 2], &[6]), &[1.0]);
    // Too few proxies are well.
    let mut proxies = hosts(&[2, 2]);
    proxies[1..].iter_mut().for_each(|proxy| proxy.health_flags = ill());
    for fails_in_panic in [false, true] {
        let balancing = Balancing { fails_in_panic, ..Balancing::new(Policy::RoundRobin) };
        let mut scene = Scene::new(zones(), balancing, &proxies, hosts(&[3, 3]));
        alike(&mut scene, if fails_in_panic { &[0.0, 0.0] } else { &half });
        assert_eq!(scene.stats.lb_local_cluster_not_ok.value(), 12_000);
    }
    // They count for none of the requests.
    let off = Zones { enabled_percent: 0, ..zones() };
    let balancing = Balancing::new(Policy::RoundRobin);
    alike(&mut Scene::new(off, balancing, &hosts(&[2, 2]), hosts(&[3, 3])), &half);
}

#[test]
fn a_part_of_the_requests_may_be_left_out() {
    let config = Zones { enabled_percent: 40, ..zones() };
    let balancing = Balancing::new(Policy::RoundRobin);
    let mut scene = Scene::new(config, balancing, &hosts(&[2, 2]), hosts(&[3, 3]));
    let shares = scene.shares(50_000);
    assert!(is_near(&shares, &[0.7, 0.3]), "{shares:?}");
}

#[test]
fn requests_can_be_made_to_stay() {
    let forced = |least| Zones { forced: Some(least), ..zones() };
    let balancing = Balancing::new(Policy::RoundRobin);
    let mut scene = Scene::new(forced(2), balancing, &hosts(&[4]), hosts(&[2, 6]));
    assert!(is_near(&scene.shares(1000), &[1.0, 0.0]));
    let mut scene = Scene::new(forced(3), balancing, &hosts(&[4]), hosts(&[2, 6]));
    let shares = scene.shares(20_000);
    assert!(is_near(&shares, &[0.25, 0.75]), "as many as it has room for: {shares:?}");
}

#[test]
fn hosts_may_count_by_their_weights() {
    let mut upstream = hosts(&[3, 3]);
    upstream[0].endpoint.weight = 4;
    for (by_weight, wanted) in [(false, 1.0), (true, 1.0)] {
        let config = Zones { by_weight, ..zones() };
        let balancing = Balancing::new(Policy::RoundRobin);
        let mut scene = Scene::new(config, balancing, &hosts(&[2, 2]), upstream.clone());
        assert!(is_near(&scene.shares(1000), &[wanted]));
    }
    // 2/3 of the proxies and half of the hosts, but 6/9 of their weight.
    for (by_weight, wanted) in [(false, 0.75), (true, 1.0)] {
        let config = Zones { by_weight, ..zones() };
        let balancing = Balancing::new(Policy::RoundRobin);
        let mut scene = Scene::new(config, balancing, &hosts(&[2, 1]), upstream.clone());
        let shares = scene.shares(20_000);
        assert!((shares[0] - wanted).abs() < 0.01, "{by_weight}: {shares:?}");
    }
}

#[test]
fn it_follows_the_proxies() {
    let mut scene = Scene::plain(&[2, 2], &[3, 3]);
    assert!(is_near(&scene.shares(1000), &[1.0, 0.0]));
    let more = LocalHosts::of(&hosts(&[4, 1]), Some("0"));
    scene.balancer.follow(&Arc::new(more));
    let shares = scene.shares(20_000);
    assert!(is_near(&shares, &[0.625, 0.375]), "{shares:?}");
    assert_eq!(scene.stats.lb_recalculate_zone_structures.value(), 2);
}
