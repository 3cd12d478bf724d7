use std::sync::Arc;

use towpath_proto::{Address, Instant};

use super::priority::{Class, Load, PastPriorities, Sizes};
use super::*;

const LEAST_REQUEST: Policy = Policy::LeastRequest { choices: 2, bias_milli: 1000 };
const POLICIES: [Policy; 3] = [Policy::RoundRobin, LEAST_REQUEST, Policy::Random];

fn host(weight: u32, priority: u32, health: Health) -> Host {
    Host::new(Endpoint { weight, priority, health, ..Endpoint::new(Address::unspecified()) })
}

fn hosts(weights: &[u32]) -> Vec<Host> {
    weights.iter().map(|weight| host(*weight, 0, Health::Healthy)).collect()
}

fn balancer(policy: Policy, hosts: &[Host]) -> Balancer {
    let mut balancer = Balancer::new(Balancing::new(policy));
    balancer.rebuild(hosts, 7, START);
    balancer
}

fn counts(policy: Policy, hosts: &[Host], picks: u64) -> Vec<u64> {
    let mut balancer = balancer(policy, hosts);
    let mut counts = vec![0; hosts.len()];
    for random in 0..picks {
        counts[balancer.pick(hosts, random, &|_| false, 0, START).unwrap()] += 1;
    }
    counts
}

const START: Instant = Instant::ZERO;

fn never(_: usize) -> bool {
    false
}

#[test]
fn no_host_no_pick() {
    for policy in POLICIES {
        assert_eq!(balancer(policy, &[]).pick(&[], 1, &never, 3, START), None);
    }
}

#[test]
fn round_robin_takes_each_in_turn() {
    let hosts = hosts(&[1, 1, 1]);
    let mut balancer = balancer(Policy::RoundRobin, &hosts);
    let picks: Vec<_> = (0..9).filter_map(|r| balancer.pick(&hosts, r, &never, 0, START)).collect();
    assert_eq!(picks[..3], picks[3..6]);
    assert_eq!(picks[..3], picks[6..]);
    let mut round = picks[..3].to_vec();
    round.sort_unstable();
    assert_eq!(round, [0, 1, 2]);
}

#[test]
fn weighted_round_robin_is_exact_over_a_round_and_smooth_within() {
    for weights in [vec![1, 2, 3], vec![5, 1, 1], vec![1, 1, 8], vec![100, 1], vec![3, 7, 2, 4]] {
        let hosts = hosts(&weights);
        let total: u32 = weights.iter().sum();
        let mut balancer = balancer(Policy::RoundRobin, &hosts);
        let mut seen = vec![0u32; weights.len()];
        for round in 1..=3u32 {
            for random in 0..total {
                seen[balancer.pick(&hosts, u64::from(random), &never, 0, START).unwrap()] += 1;
                // No host is ever ahead of or behind its share by more than one and a bit.
                let done: u32 = seen.iter().sum();
                for (count, weight) in seen.iter().zip(&weights) {
                    let share = f64::from(done * weight) / f64::from(total);
                    let slack = weights.len() as f64;
                    assert!((f64::from(*count) - share).abs() <= slack, "{weights:?} {seen:?}");
                }
            }
            for (count, weight) in seen.iter().zip(&weights) {
                assert!(count.abs_diff(weight * round) <= 1, "{weights:?} {seen:?}");
            }
        }
    }
}

#[test]
fn random_follows_the_weights() {
    let seen = counts(Policy::Random, &hosts(&[1, 2, 7]), 100_000);
    for (count, share) in seen.iter().zip([10_000f64, 20_000., 70_000.]) {
        assert!((*count as f64 - share).abs() < 5.0 * share.sqrt(), "{seen:?}");
    }
    let seen = counts(Policy::Random, &hosts(&[5, 5, 5, 5]), 100_000);
    assert!(seen.iter().all(|count| count.abs_diff(25_000) < 800), "{seen:?}");
}

#[test]
fn least_request_avoids_the_loaded() {
    let mut equal = hosts(&[1, 1, 1, 1]);
    equal[2].active = 10;
    let seen = counts(LEAST_REQUEST, &equal, 100_000);
    // Only two samples of the loaded host pick it: one in sixteen.
    assert!(seen[2].abs_diff(6250) < 500, "{seen:?}");

    // Load that follows the picks stays even.
    let mut live = hosts(&[1; 10]);
    let mut balancer = balancer(LEAST_REQUEST, &live);
    for random in 0..10_000 {
        let host = balancer.pick(&live, random, &never, 0, START).unwrap();
        live[host].active += 1;
    }
    assert!(live.iter().all(|host| host.active.abs_diff(1000) < 10));
}

#[test]
fn weighted_least_request_divides_weight_by_load() {
    let mut hosts = hosts(&[2, 1]);
    hosts[0].active = 3;
    let seen = counts(LEAST_REQUEST, &hosts, 3000);
    // 2/4 against 1/1.
    assert!(seen[0].abs_diff(1000) < 5 && seen[1].abs_diff(2000) < 5, "{seen:?}");
    let ignoring = Policy::LeastRequest { choices: 2, bias_milli: 0 };
    let seen = counts(ignoring, &hosts, 3000);
    assert!(seen[0].abs_diff(2000) < 5, "{seen:?}");
}

#[test]
fn a_skipped_host_is_taken_only_in_the_end() {
    for policy in POLICIES {
        let hosts = hosts(&[1, 1]);
        let mut balancer = balancer(policy, &hosts);
        for random in 0..200 {
            let host = balancer.pick(&hosts, random, &|host| host == 0, 64, START).unwrap();
            assert_eq!(host, 1, "{policy:?}");
        }
        assert!(balancer.pick(&hosts, 1, &|_| true, 5, START).is_some());
    }
}

#[test]
fn picks_depend_on_nothing_but_their_input() {
    for policy in POLICIES {
        let hosts = hosts(&[1, 5, 2, 2]);
        let run = || {
            let mut balancer = balancer(policy, &hosts);
            (0..100).map(|r| balancer.pick(&hosts, r * r, &never, 0, START)).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }
}

/// Hosts of priorities given as (healthy, degraded, unhealthy).
fn priorities(shape: &[(usize, usize, usize)]) -> Vec<Host> {
    let mut all = Vec::new();
    for (priority, (healthy, degraded, unhealthy)) in (0..).zip(shape) {
        all.extend((0..*healthy).map(|_| host(1, priority, Health::Healthy)));
        all.extend((0..*degraded).map(|_| host(1, priority, Health::Degraded)));
        all.extend((0..*unhealthy).map(|_| host(1, priority, Health::Unhealthy)));
    }
    all
}

fn percents(shape: &[(usize, usize, usize)]) -> Vec<(u64, usize, Class)> {
    percents_below(shape, 50)
}

/// The same with another threshold of panic.
fn percents_below(shape: &[(usize, usize, usize)], panic: u8) -> Vec<(u64, usize, Class)> {
    let hosts = priorities(shape);
    let balancer = balancer(Policy::RoundRobin, &hosts);
    Load::new(&balancer.sizes().collect::<Vec<_>>(), panic).percents()
}

/// The tables of Envoy's documentation on priority levels, degraded endpoints and the panic threshold.
#[test]
fn traffic_spills_over_as_envoy_documents() {
    use Class::{All, Degraded, Healthy};
    assert_eq!(percents(&[(100, 0, 0), (100, 0, 0)]), [(100, 0, Healthy)]);
    assert_eq!(percents(&[(72, 0, 28), (72, 0, 28)]), [(100, 0, Healthy)]);
    assert_eq!(percents(&[(71, 0, 29), (71, 0, 29)]), [(99, 0, Healthy), (1, 1, Healthy)]);
    assert_eq!(percents(&[(50, 0, 50), (50, 0, 50)]), [(70, 0, Healthy), (30, 1, Healthy)]);
    assert_eq!(percents(&[(25, 0, 75), (100, 0, 0)]), [(35, 0, Healthy), (65, 1, Healthy)]);
    assert_eq!(percents(&[(0, 0, 100), (100, 0, 0)]), [(100, 1, Healthy)]);
    assert_eq!(percents(&[(25, 0, 75), (25, 0, 75)]), [(50, 0, All), (50, 1, All)]);
    // Degraded hosts take what the healthy ones of all priorities cannot.
    assert_eq!(percents(&[(0, 100, 0)]), [(100, 0, Degraded)]);
    assert_eq!(percents(&[(5, 20, 75), (5, 0, 95)]).iter().map(|s| s.0).sum::<u64>(), 100);
    assert_eq!(percents(&[(50, 50, 0)]), [(70, 0, Healthy), (30, 0, Degraded)]);
}

/// Too few are healthy of all priorities together: each has a share of all the traffic by what it has.
#[test]
fn without_panic_priorities_share_what_none_of_them_can_take() {
    use Class::{Degraded, Healthy};
    let shared = percents_below(&[(10, 0, 90), (30, 0, 70)], 0);
    assert_eq!(shared, [(25, 0, Healthy), (75, 1, Healthy)]);
    let shared = percents_below(&[(10, 30, 60), (0, 0, 100)], 0);
    assert_eq!(shared, [(25, 0, Healthy), (75, 0, Degraded)]);
}

#[test]
fn panic_picks_among_all() {
    let hosts = priorities(&[(1, 0, 3)]);
    let mut in_panic = balancer(Policy::RoundRobin, &hosts);
    let picked: std::collections::BTreeSet<_> =
        (0..8).filter_map(|r| in_panic.pick(&hosts, r, &never, 0, START)).collect();
    assert_eq!(picked.len(), 4);
    assert!(in_panic.in_panic());

    let config = Balancing::new(Policy::RoundRobin);
    let mut calm = Balancer::new(Balancing { panic_threshold: 0, ..config });
    calm.rebuild(&hosts, 7, START);
    assert!((0..8).all(|r| calm.pick(&hosts, r, &never, 0, START) == Some(0)));
    assert!(!calm.in_panic());

    let dead = priorities(&[(0, 0, 2), (0, 0, 2)]);
    assert!(balancer(Policy::Random, &dead).pick(&dead, 1, &never, 0, START).is_some());
    calm.rebuild(&dead, 1, START);
    assert_eq!(calm.pick(&dead, 1, &never, 0, START), None);

    let mut failing = Balancer::new(Balancing { fails_in_panic: true, ..config });
    failing.rebuild(&hosts, 7, START);
    assert_eq!(failing.pick(&hosts, 1, &never, 0, START), None);
    assert!(failing.in_panic(), "it is counted");
}

#[test]
fn members_are_counted_by_health() {
    assert_eq!(membership(&priorities(&[(3, 2, 1)])), (6, 3, 2));
}

/// Hosts of localities given as (weight, healthy, unhealthy), all of one priority.
fn localities(shape: &[(u32, usize, usize)]) -> Vec<Host> {
    let mut all = Vec::new();
    for (number, (locality_weight, healthy, unhealthy)) in shape.iter().enumerate() {
        let count = healthy + unhealthy;
        all.extend((0..count).map(|at| {
            let health = if at < *healthy { Health::Healthy } else { Health::Unhealthy };
            let mut host = host(1, 0, health);
            host.endpoint.locality = Arc::from(format!("region/{number}/"));
            host.endpoint.locality_weight = *locality_weight;
            host
        }));
    }
    all
}

/// How many of so many picks each locality gets.
fn shares(policy: Policy, shape: &[(u32, usize, usize)], picks: u64) -> Vec<u64> {
    let hosts = localities(shape);
    let config = Balancing { weighs_localities: true, ..Balancing::new(policy) };
    let mut balancer = Balancer::new(config);
    balancer.rebuild(&hosts, 7, START);
    let mut shares = vec![0; shape.len()];
    for random in 0..picks {
        let host = balancer.pick(&hosts, random, &never, 0, START).unwrap();
        assert_eq!(hosts[host].health(), Health::Healthy);
        let place = shape.iter().scan(0, |end, (_, healthy, unhealthy)| {
            *end += healthy + unhealthy;
            Some(*end)
        });
        shares[place.take_while(|end| *end <= host).count()] += 1;
    }
    shares
}

/// The table of Envoy's documentation on locality weighted load balancing, and what has no weight.
#[test]
fn localities_get_their_weights_however_many_hosts_they_have() {
    for policy in POLICIES {
        for (shape, wanted) in [
            (&[(1, 1, 0), (2, 1, 0)][..], [1000, 2000]),
            (&[(1, 9, 0), (2, 1, 0)], [1000, 2000]),
            // Seven healthy hosts in ten are nearly enough (98 %); half of them are 70 %.
            (&[(1, 100, 0), (2, 70, 30)], [1014, 1986]),
            (&[(1, 100, 0), (2, 50, 50)], [1250, 1750]),
            (&[(1, 100, 0), (2, 0, 100)], [3000, 0]),
            // Without a weight there is no traffic, unless no locality has one.
            (&[(1, 1, 0), (0, 5, 0)], [3000, 0]),
            (&[(0, 1, 0), (0, 2, 0)], [1000, 2000]),
            // One that has a weight and no healthy host leaves all to the others, by hosts.
            (&[(0, 2, 0), (7, 0, 1)], [3000, 0]),
        ] {
            let seen = shares(policy, shape, 3000);
            let slack =
                if wanted == [1000, 2000] && policy != Policy::RoundRobin { 120 } else { 2 };
            assert!(
                seen.iter().zip(wanted).all(|(seen, wanted)| seen.abs_diff(wanted) <= slack),
                "{policy:?} {shape:?}: {seen:?}"
            );
        }
    }
}

#[test]
fn a_cluster_that_does_not_weigh_localities_does_not_look_at_their_weights() {
    let hosts = localities(&[(1, 1, 0), (99, 1, 0)]);
    assert_eq!(counts(Policy::RoundRobin, &hosts, 1000), [500, 500]);
}

/// In panic all hosts count alike, wherever they are.
#[test]
fn panic_picks_among_all_localities() {
    let hosts = localities(&[(1, 1, 4), (9, 1, 4)]);
    let config = Balancing::new(Policy::RoundRobin);
    let mut balancer = Balancer::new(Balancing { weighs_localities: true, ..config });
    balancer.rebuild(&hosts, 7, START);
    let picked: std::collections::BTreeSet<_> =
        (0..10).filter_map(|random| balancer.pick(&hosts, random, &never, 0, START)).collect();
    assert_eq!(picked.len(), 10);
    assert!(balancer.in_panic());
}

/// Picks of a hundred, by balancer and by the priority of the host.
fn joined(shapes: &[&[(usize, usize, usize)]]) -> Vec<(usize, u32)> {
    let hosts: Vec<Vec<Host>> = shapes.iter().map(|shape| priorities(shape)).collect();
    let mut balancers: Vec<Balancer> =
        hosts.iter().map(|hosts| balancer(Policy::RoundRobin, hosts)).collect();
    let mut joined = Joined::default();
    let picks = (0..1000).map(|random| {
        let chosen =
            joined.choose(balancers.len(), |at| balancers.get(at), 50, random * random, None);
        let (at, among, random) = chosen.unwrap();
        let host =
            balancers[at].pick_among(Some(among), &hosts[at], random, &never, 0, START).unwrap();
        (at, hosts[at][host].endpoint.priority)
    });
    picks.collect()
}

#[test]
fn balancers_that_are_joined_take_their_shares_as_one_balancer_s_priorities_would() {
    let share = |picks: &[(usize, u32)], of| picks.iter().filter(|pick| **pick == of).count();
    let whole = joined(&[&[(2, 0, 0)], &[(2, 0, 0)]]);
    assert_eq!(share(&whole, (0, 0)), 1000, "the first has all that it can take");
    // As with priorities: 50 % healthy take 70 %.
    let half = joined(&[&[(1, 0, 1)], &[(2, 0, 0)]]);
    assert!((650..750).contains(&share(&half, (0, 0))), "{}", share(&half, (0, 0)));
    assert_eq!(share(&half, (0, 0)) + share(&half, (1, 0)), 1000);
    let behind = joined(&[&[(0, 0, 2), (1, 0, 1)], &[(0, 0, 1), (3, 0, 0)]]);
    assert!((650..750).contains(&share(&behind, (0, 1))), "{}", share(&behind, (0, 1)));
    assert_eq!(share(&behind, (0, 1)) + share(&behind, (1, 1)), 1000);
    let panic = joined(&[&[(0, 0, 1)], &[(0, 0, 3)]]);
    assert!((200..300).contains(&share(&panic, (0, 0))), "{}", share(&panic, (0, 0)));
}

#[test]
fn shares_follow_the_hosts() {
    let (well, ill) = (priorities(&[(1, 0, 0)]), priorities(&[(0, 0, 1)]));
    let mut first = balancer(Policy::Random, &well);
    let second = balancer(Policy::Random, &well);
    let mut joined = Joined::default();
    let mut choose = |first: &Balancer, there: usize| {
        let balancers = [first, &second];
        joined.choose(2, |at| balancers.get(at).copied().filter(|_| at < there), 50, 3, None)
    };
    assert_eq!(choose(&first, 2).unwrap().0, 0);
    first.rebuild(&ill, 8, START);
    assert_eq!(choose(&first, 2).unwrap().0, 1);
    assert_eq!(choose(&first, 1).unwrap().0, 0, "the second is gone");
    assert!(choose(&first, 0).is_none());
}

/// The sequence that Envoy's documentation of `previous_priorities` has: P0 100, P1 0 and P2 50 percent healthy.
#[test]
fn priorities_that_were_tried_are_avoided_until_none_is_left() {
    let sizes =
        [100, 0, 50].map(|healthy| Sizes::new((healthy, 0, 100), 100, (healthy, 0, 100), 100));
    let mut past = PastPriorities::new(1);
    assert!(past.load(&sizes).is_none(), "the first try is as any");
    past.note(0);
    assert_eq!(past.load(&sizes).unwrap().percents(), [(100, 2, Class::Healthy)]);
    past.note(2);
    assert!(past.load(&sizes).is_none(), "it begins anew");
    past.note(0);
    assert_eq!(past.load(&sizes).unwrap().percents(), [(100, 2, Class::Healthy)]);
}

#[test]
fn priorities_are_avoided_after_so_many_tries_and_rounding_loses_nothing() {
    let sizes =
        [33, 33, 33, 33].map(|healthy| Sizes::new((healthy, 1, 100), 100, (healthy, 1, 100), 100));
    let mut past = PastPriorities::new(2);
    past.note(1);
    assert!(past.load(&sizes).is_none());
    past.note(1);
    let percents = past.load(&sizes).unwrap().percents();
    assert_eq!(percents.iter().map(|share| share.0).sum::<u64>(), 100);
    assert!(percents.iter().all(|share| share.1 != 1), "{percents:?}");
    past.note(0);
    let kept = past.load(&sizes).unwrap().percents();
    assert_eq!(kept, percents, "it is looked again after two more");
    past.note(9);
    assert!(past.load(&[]).is_none(), "all hosts are gone");
}

#[test]
fn a_full_scan_finds_the_least_loaded_of_all() {
    let all = Policy::LeastRequest { choices: 0, bias_milli: 1000 };
    let mut busy = hosts(&[1; 50]);
    for (at, host) in busy.iter_mut().enumerate() {
        host.active = if at == 31 { 1 } else { 2 };
    }
    assert_eq!(counts(all, &busy, 100)[31], 100);
    // Of those with as little to do each is as likely.
    busy[7].active = 1;
    let counts = counts(all, &busy, 1000);
    assert_eq!(counts[7] + counts[31], 1000);
    assert!((400..600).contains(&counts[7]), "{counts:?}");
}

#[test]
fn hosts_may_count_by_their_weights_for_their_priority() {
    let hosts =
        [host(1, 0, Health::Healthy), host(9, 0, Health::Unhealthy), host(1, 1, Health::Healthy)];
    let share = |weighs_health| {
        let balancing = Balancing { weighs_health, ..Balancing::new(Policy::Random) };
        let mut balancer = Balancer::new(balancing);
        balancer.rebuild(&hosts, 7, START);
        balancer.load.percents()
    };
    // 140 percent of a half, and of a tenth.
    assert_eq!(share(false), [(70, 0, Class::Healthy), (30, 1, Class::Healthy)]);
    assert_eq!(share(true), [(14, 0, Class::Healthy), (86, 1, Class::Healthy)]);
}

#[test]
fn hosts_that_are_not_asked_yet_or_drain_count_for_nothing() {
    let pending = HealthFlags { pending: true, ..HealthFlags::unchecked(true) };
    let mut hosts = vec![host(1, 0, Health::Healthy), host(1, 0, Health::Unhealthy)];
    hosts.push(host(1, 1, Health::Healthy));
    let shares = |hosts: &[Host]| balancer(Policy::Random, hosts).load.percents();
    assert_eq!(shares(&hosts), [(70, 0, Class::Healthy), (30, 1, Class::Healthy)]);
    hosts[1].endpoint.status = HealthStatus::Draining;
    assert_eq!(shares(&hosts), [(100, 0, Class::Healthy)]);
    hosts[1].endpoint.status = HealthStatus::Unhealthy;
    hosts[1].health_flags = pending;
    assert_eq!(shares(&hosts), [(100, 0, Class::Healthy)]);
    // Where no other host is left they are picked in panic.
    hosts[0].health_flags = pending;
    hosts.truncate(2);
    assert_eq!(shares(&hosts), [(100, 0, Class::All)]);
}
