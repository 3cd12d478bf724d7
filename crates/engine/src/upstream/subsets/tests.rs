use std::net::{Ipv4Addr, SocketAddr};

use towpath_proto::Address;

use super::*;
use crate::random::Random;
use crate::snapshot::cluster::{Balancer as Policy, Endpoint};
use crate::snapshot::health::HealthFlags;

const START: Instant = Instant::ZERO;

fn text(value: &str) -> Value {
    Value::String(value.into())
}

fn fields(pairs: &[(&str, Value)]) -> Struct {
    pairs.iter().map(|(key, value)| ((*key).into(), value.clone())).collect()
}

fn host(number: u16, said: Struct) -> Host {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
    let said = [(NAMESPACE.into(), Value::Struct(said))];
    let filter_metadata = Some(Arc::new(said.into_iter().collect()));
    Host::new(Endpoint { filter_metadata, ..Endpoint::new(Address::Ip(address)) })
}

fn keys(keys: &[&str]) -> BTreeSet<Box<str>> {
    keys.iter().map(|key| Box::from(*key)).collect()
}

fn selector(names: &[&str]) -> Selector {
    Selector { keys: keys(names), is_single: false, fallback: None }
}

/// None of its hosts is taken that is not healthy.
fn live(config: Subsets, balancing: Balancing) -> LiveSubsets {
    let balancing = Balancing { panic_threshold: 0, ..balancing };
    LiveSubsets::new(&Arc::new(config), balancing, None, Arc::default())
}

fn pick(
    subsets: &mut LiveSubsets,
    hosts: &[Host],
    wanted: &Criteria,
    random: u64,
) -> Option<usize> {
    let mut pick = |balancer: &mut Balancer| balancer.pick(hosts, random, &|_| false, 0, START);
    subsets.choose(Some(wanted), &mut pick)
}

/// The hosts that requests get, and how often.
fn picks(subsets: &mut LiveSubsets, hosts: &[Host], wanted: &Struct) -> BTreeMap<usize, u32> {
    let wanted = Criteria::new(wanted.clone());
    let mut seen = BTreeMap::new();
    for random in 0..hosts.len() as u64 * 4 {
        if let Some(host) = pick(subsets, hosts, &wanted, random) {
            *seen.entry(host).or_default() += 1;
        }
    }
    seen
}

/// What Envoy's documentation says, host by host, without any table.
fn expected(config: &Subsets, hosts: &[Host], wanted: &Struct) -> BTreeSet<usize> {
    let healthy = |places: Vec<usize>| -> BTreeSet<usize> {
        places.into_iter().filter(|at| hosts[*at].health_flags == HealthFlags::WELL).collect()
    };
    let says = |host: &Host, wanted: &Struct| {
        let Some(Value::Struct(said)) =
            host.endpoint.filter_metadata.as_ref().unwrap().get(NAMESPACE)
        else {
            return false;
        };
        wanted.iter().all(|(key, value)| match said.get(key) {
            Some(Value::List(values)) if config.lists_are_any => values.contains(value),
            said => said == Some(value),
        })
    };
    let all = |wanted: &Struct| -> Vec<usize> {
        (0..hosts.len()).filter(|at| says(&hosts[*at], wanted)).collect()
    };
    let asked: Vec<&Box<str>> = wanted.keys().collect();
    let asks_by = |selector: &&Selector| selector.keys.iter().eq(asked.iter().copied());
    let of_subset = all(wanted);
    if config.selectors.iter().any(|it| asks_by(&it)) && !of_subset.is_empty() {
        return healthy(of_subset);
    }
    let to = |fallback: &Fallback| match fallback {
        Fallback::None => BTreeSet::new(),
        Fallback::Any => healthy((0..hosts.len()).collect()),
        Fallback::Default => healthy(all(&config.default_subset)),
    };
    // A selector after a longer one that begins with its keys says nothing.
    let place = config.selectors.iter().position(|it| asks_by(&it));
    let before = &config.selectors[..place.unwrap_or(0)];
    let is_step = |it: &Selector| asked.iter().copied().eq(it.keys.iter().take(asked.len()));
    let own = place.filter(|_| !before.iter().any(is_step));
    match own.and_then(|place| config.selectors[place].fallback.as_ref()) {
        Some(SelectorFallback::To(fallback)) => to(fallback),
        Some(SelectorFallback::Keys(keys)) => {
            let fewer = wanted.iter().filter(|(key, _)| keys.contains(*key));
            let fewer = fewer.map(|(key, value)| (key.clone(), value.clone())).collect();
            expected(config, hosts, &fewer)
        }
        None => {
            let fallback = to(&config.fallback);
            let panics = config.fallback != Fallback::None && config.panics_to_any;
            if fallback.is_empty() && panics { to(&Fallback::Any) } else { fallback }
        }
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn some_keys(random: &mut Random) -> Vec<&'static str> {
    let which = 1 + random.below(7);
    (0..3).filter(|at| which & (1 << at) != 0).map(|at| NAMES[at as usize]).collect()
}

fn some_value(random: &mut Random) -> Value {
    match random.below(5) {
        0 => Value::Number(random.below(2) as f64),
        1 => Value::List((0..=random.below(2)).map(|at| text(&at.to_string())).collect()),
        _ => text(&random.below(3).to_string()),
    }
}

fn some_struct(random: &mut Random) -> Struct {
    let mut said = Struct::new();
    for name in NAMES {
        if random.below(3) > 0 {
            said.insert(name.into(), some_value(random));
        }
    }
    said
}

fn some_fallback(random: &mut Random) -> Fallback {
    match random.below(3) {
        0 => Fallback::None,
        1 => Fallback::Any,
        _ => Fallback::Default,
    }
}

fn some_config(random: &mut Random) -> Subsets {
    let selectors = (0..random.below(5)).map(|_| {
        let names = some_keys(random);
        let fallback = match random.below(4) {
            0 | 1 => None,
            2 if names.len() > 1 => Some(SelectorFallback::Keys(keys(&names[1..]))),
            _ => Some(SelectorFallback::To(some_fallback(random))),
        };
        Selector { fallback, ..selector(&names) }
    });
    let selectors = selectors.collect();
    Subsets {
        selectors,
        fallback: some_fallback(random),
        default_subset: fields(&[("a", text("1"))]),
        panics_to_any: random.below(2) == 0,
        lists_are_any: random.below(2) == 0,
        ..Subsets::default()
    }
}

/// Hosts come, go, fall ill and say other things; after each change every request gets what it is to get, from all of
/// those and from no other one.
#[test]
fn requests_get_the_hosts_that_they_ask_for_however_these_change() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let config = some_config(&mut random);
        let mut subsets = live(config.clone(), Balancing::new(Policy::RoundRobin));
        let mut hosts: Vec<Host> = Vec::new();
        for _ in 0..6 {
            match random.below(4) {
                0 if !hosts.is_empty() => {
                    hosts.swap_remove(random.below(hosts.len() as u64) as usize);
                }
                1 if !hosts.is_empty() => {
                    let at = random.below(hosts.len() as u64) as usize;
                    let ejected = random.below(2) == 0;
                    hosts[at].health_flags = HealthFlags { ejected, ..HealthFlags::WELL };
                }
                _ => {
                    for _ in 0..=random.below(4) {
                        hosts.push(host(hosts.len() as u16, some_struct(&mut random)));
                    }
                }
            }
            subsets.rebuild(&hosts, random.next(), START);
            for _ in 0..12 {
                let wanted = some_struct(&mut random);
                let seen = picks(&mut subsets, &hosts, &wanted);
                let seen: BTreeSet<usize> = seen.into_keys().collect();
                let expected = expected(&config, &hosts, &wanted);
                assert_eq!(seen, expected, "seed {seed}: {config:?} {wanted:?} {hosts:?}");
            }
            let (stats, count) = (&subsets.stats, subsets.by_labels.len() as u64);
            assert_eq!(stats.lb_subsets_active.value(), count, "seed {seed}");
            let made = stats.lb_subsets_created.value() - stats.lb_subsets_removed.value();
            assert_eq!(made, count, "seed {seed}");
        }
        let stats = Arc::clone(&subsets.stats);
        drop(subsets);
        assert_eq!(stats.lb_subsets_active.value(), 0);
    }
}

#[test]
fn what_was_chosen_is_counted() {
    let hosts = [host(1, fields(&[("v", text("1"))])), host(2, Struct::new())];
    let config = Subsets {
        selectors: vec![selector(&["v"])],
        fallback: Fallback::Default,
        default_subset: fields(&[("v", text("9"))]),
        panics_to_any: true,
        ..Subsets::default()
    };
    let mut subsets = live(config, Balancing::new(Policy::RoundRobin));
    subsets.rebuild(&hosts, 1, START);
    let counts = |subsets: &LiveSubsets| {
        let stats = &subsets.stats;
        let all = [&stats.lb_subsets_selected, &stats.lb_subsets_fallback];
        let [selected, fallback] = all.map(|counter| counter.value());
        [selected, fallback, stats.lb_subsets_fallback_panic.value()]
    };
    let ask = |value| Criteria::new(fields(&[("v", text(value))]));
    assert_eq!(pick(&mut subsets, &hosts, &ask("1"), 0), Some(0));
    assert_eq!(counts(&subsets), [1, 0, 0]);
    assert!(pick(&mut subsets, &hosts, &ask("2"), 0).is_some());
    assert_eq!(counts(&subsets), [1, 0, 1]);
}

#[test]
fn a_single_host_is_the_first_of_the_first_priority() {
    let said = || fields(&[("id", text("x"))]);
    let mut hosts = vec![host(1, said()), host(2, said()), host(3, said()), host(4, said())];
    hosts[0].endpoint.priority = 1;
    hosts[3].endpoint.priority = 1;
    hosts[1].health_flags = HealthFlags { ejected: true, ..HealthFlags::WELL };
    let single = Selector { is_single: true, ..selector(&["id"]) };
    let config = Subsets { selectors: vec![single], ..Subsets::default() };
    let mut subsets = live(config, Balancing::new(Policy::RoundRobin));
    subsets.rebuild(&hosts, 1, START);
    assert_eq!(picks(&mut subsets, &hosts, &said()).into_keys().collect::<Vec<_>>(), [1]);
    // Of the last priority that was looked at.
    assert_eq!(subsets.stats.lb_subsets_single_host_per_subset_duplicate.value(), 1);
}

/// Envoy's documentation of `scale_locality_weight`: the weight of a locality is multiplied by the part of its hosts
/// that is in the subset.
#[test]
fn localities_weigh_as_much_as_part_of_them_is_there() {
    for policy in [Policy::RoundRobin, Policy::Random] {
        let mut hosts = Vec::new();
        for (locality, weight, versions) in [("x", 8, ["1", "1", "2", "2"]), ("y", 4, ["1"; 4])] {
            for version in versions {
                let mut host = host(hosts.len() as u16, fields(&[("v", text(version))]));
                host.endpoint.locality = Arc::from(locality);
                host.endpoint.locality_weight = weight;
                hosts.push(host);
            }
        }
        let share = |weighs_localities, scales_weights| {
            let config = Subsets {
                selectors: vec![selector(&["v"])],
                weighs_localities,
                scales_weights,
                ..Subsets::default()
            };
            let weighs = Balancing { weighs_localities: true, ..Balancing::new(policy) };
            let mut subsets = live(config, weighs);
            subsets.rebuild(&hosts, 1, START);
            let wanted = Criteria::new(fields(&[("v", text("1"))]));
            let picked = (0..3000).filter_map(|it| pick(&mut subsets, &hosts, &wanted, it * it));
            picked.filter(|host| &*hosts[*host].endpoint.locality == "x").count()
        };
        // Two hosts in six; 8 to 4; 8 · 2/4 to 4.
        for (weighs, scales, wanted) in
            [(false, false, 1000_usize), (true, false, 2000), (true, true, 1500)]
        {
            let seen = share(weighs, scales);
            assert!(seen.abs_diff(wanted) < 130, "{policy:?} {weighs} {scales}: {seen}");
        }
    }
}

#[test]
fn more_keys_than_a_selector_has_are_left_out_where_that_is_allowed() {
    let hosts = [host(1, fields(&[("a", text("1"))])), host(2, fields(&[("b", text("1"))]))];
    let wanted = fields(&[("a", text("1")), ("b", text("1")), ("c", text("1"))]);
    for (allows_more_keys, expected) in [(false, vec![]), (true, vec![1])] {
        let selectors = vec![selector(&["b"]), selector(&["a"])];
        let config = Subsets { selectors, allows_more_keys, ..Subsets::default() };
        let mut subsets = live(config, Balancing::new(Policy::RoundRobin));
        subsets.rebuild(&hosts, 1, START);
        let seen: Vec<usize> = picks(&mut subsets, &hosts, &wanted).into_keys().collect();
        assert_eq!(seen, expected);
    }
}

/// What a host says may make many subsets, but no more than that.
#[test]
fn there_is_a_limit_of_subsets() {
    let many = || Value::List((0..300).map(|number| Value::Number(number.into())).collect());
    let hosts = [host(1, fields(&[("a", many()), ("b", many())]))];
    let selectors = vec![selector(&["a", "b"])];
    let config = Subsets { selectors, lists_are_any: true, ..Subsets::default() };
    let (found, _) = members(&config, &hosts);
    assert_eq!(found.len(), MOST_SUBSETS);
}
