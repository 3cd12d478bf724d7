use std::time::Duration;

use towpath_proto::Address;

use super::*;
use crate::balancer::hosts::Hosts;
use crate::balancer::{Balancer, Policy};
use crate::snapshot::cluster::{Balancing, Endpoint};
use crate::snapshot::health::HealthFlags;

const MINUTE: SlowStart =
    SlowStart { window: Duration::from_secs(60), aggression: 1.0, least: 0.1 };

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

fn host(weight: u32, healthy_since: f64) -> Host {
    let endpoint = Endpoint { weight, ..Endpoint::new(Address::unspecified()) };
    Host { healthy_since: Some(at(healthy_since)), ..Host::new(endpoint) }
}

fn balancer(policy: Policy, hosts: &[Host], now: Instant) -> Balancer {
    let slow_start = Some(MINUTE);
    let mut balancer = Balancer::new(Balancing { slow_start, ..Balancing::new(policy) });
    balancer.rebuild(hosts, 7, now);
    balancer
}

fn counts(balancer: &mut Balancer, hosts: &[Host], picks: u64, now: Instant) -> Vec<u32> {
    let mut counts = vec![0; hosts.len()];
    for random in 0..picks {
        counts[balancer.pick(hosts, random, &|_| false, 0, now).unwrap()] += 1;
    }
    counts
}

const LEAST_REQUEST: Policy = Policy::LeastRequest { choices: 2, bias_milli: 1000 };

/// Envoy's documentation: `max(min_weight_percent, time_factor ^ (1 / aggression))`.
#[test]
fn a_weight_grows_as_the_formula_says() {
    let with = |aggression, least| SlowStart { aggression, least, ..MINUTE };
    for (slow_start, elapsed, wanted) in [
        (with(1.0, 0.1), 0, 0.1),
        (with(1.0, 0.1), 5_999, 0.1),
        (with(1.0, 0.1), 6_600, 0.11),
        (with(1.0, 0.1), 30_000, 0.5),
        (with(1.0, 0.1), 59_999, 59_999.0 / 60_000.0),
        (with(1.0, 0.1), 60_000, 1.0),
        (with(1.0, 0.1), u64::MAX, 1.0),
        // 1 ms counts as the first.
        (with(1.0, 0.0), 0, 1.0 / 60_000.0),
        (with(2.0, 0.1), 15_000, 0.5),
        (with(0.5, 0.1), 30_000, 0.25),
        (with(0.5, 0.3), 30_000, 0.3),
        (with(1.0, 1.0), 0, 1.0),
    ] {
        let seen = part(&slow_start, elapsed);
        assert!((seen - wanted).abs() < 1e-9, "{slow_start:?} after {elapsed} ms: {seen}");
    }
}

#[test]
fn a_new_host_gets_the_share_of_its_time() {
    for policy in [Policy::RoundRobin, LEAST_REQUEST] {
        let hosts = [host(1, 0.0), host(1, 0.0), host(1, 100.0)];
        for (now, part) in [(100.0, 0.1), (115.0, 0.25), (130.0, 0.5), (145.0, 0.75)] {
            let mut balancer = balancer(policy, &hosts, at(now));
            let seen = counts(&mut balancer, &hosts, 10_000, at(now));
            let wanted = 10_000.0 * part / (2.0 + part);
            assert!((f64::from(seen[2]) - wanted).abs() < 3.0, "{policy:?} {now}: {seen:?}");
        }
    }
}

#[test]
fn weights_that_are_written_count_beside_time() {
    let hosts = [host(2, 0.0), host(6, 100.0)];
    let mut balancer = balancer(Policy::RoundRobin, &hosts, at(130.0));
    // 2 to 6 · ½.
    let seen = counts(&mut balancer, &hosts, 5_000, at(130.0));
    assert!(seen[0].abs_diff(2_000) < 3, "{seen:?}");
    // The weights grow from turn to turn: 2 to 6 at the end.
    let seen = counts(&mut balancer, &hosts, 4_000, at(161.0));
    assert!(seen[0].abs_diff(1_000) < 5, "{seen:?}");
}

#[test]
fn load_counts_beside_time() {
    let mut hosts = [host(1, 0.0), host(1, 100.0)];
    hosts[0].active = 3;
    let mut balancer = balancer(LEAST_REQUEST, &hosts, at(130.0));
    // 1/4 to 1/1 · ½.
    let seen = counts(&mut balancer, &hosts, 3_000, at(130.0));
    assert!(seen[0].abs_diff(1_000) < 3, "{seen:?}");
}

#[test]
fn hosts_that_begin_together_share_evenly() {
    let hosts = [host(1, 5.0), host(1, 5.0)];
    let mut balancer = balancer(Policy::RoundRobin, &hosts, at(5.0));
    assert_eq!(counts(&mut balancer, &hosts, 1_000, at(5.0)), [500, 500]);
}

#[test]
fn only_healthy_hosts_begin_slowly() {
    let mut hosts = vec![host(1, 100.0), host(1, 100.0)];
    for host in &mut hosts {
        host.health_flags = HealthFlags { degraded: true, ..HealthFlags::WELL };
    }
    hosts[0].healthy_since = None;
    assert_eq!(end(&hosts, &MINUTE), None);
    let view = Hosts::new(&hosts, Some(&MINUTE), Some(at(160.0)), at(100.0));
    assert_eq!([view.weight(0), view.weight(1), view.weight(9)], [1.0, 1.0, 1.0]);
}

#[test]
fn a_host_without_any_share_keeps_an_order() {
    let hosts = [host(1, 0.0), host(1, 100.0)];
    let steep = SlowStart { aggression: 1e-3, least: 0.0, ..MINUTE };
    let view = Hosts::new(&hosts, Some(&steep), Some(at(160.0)), at(100.0));
    assert!(view.weight(1) > 0.0 && (1.0 / view.weight(1)).is_finite());
}

#[test]
fn after_the_window_no_order_is_kept_that_costs() {
    let hosts = [host(1, 0.0), host(1, 100.0)];
    let even = |now| Hosts::new(&hosts, Some(&MINUTE), end(&hosts, &MINUTE), now).are_even(&[0, 1]);
    assert!(!even(at(160.0)), "as long as Envoy: the window's last moment is in it");
    assert!(even(at(160.1)));
}
