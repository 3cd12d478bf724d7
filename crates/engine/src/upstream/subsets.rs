//! The subsets of a cluster on a worker: which there are, and which one takes a request that asks for one.
//!
//! Arrives: hosts with what is said of them, whenever these change, and what a request asks for. Leaves: a host. Each
//! subset has a balancer of its own over its part of the cluster's hosts; finding one is a look into a table.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use towpath_proto::Instant;

use crate::balancer::{Among, Balancer, Host, LocalHosts, Part, ZoneSetup};
use crate::env::Env;
use crate::ids::{PoolClass, PoolKey};
use crate::snapshot::cluster::{Balancing, Cluster};
use crate::snapshot::subset::{
    Criteria, Fallback, Label, NAMESPACE, Selector, SelectorFallback, Subsets, label,
};
use crate::stats::{Scope, SubsetStats};
use crate::stream_info::{Struct, Value};
use crate::upstream::avoided::Avoided;
use crate::upstream::cluster::ClusterState;

/// What a cluster with subsets keeps of them.
#[derive(Debug)]
pub(crate) struct LiveSubsets {
    config: Arc<Subsets>,
    /// How a host of a subset is chosen.
    balancing: Balancing,
    /// What its balancers know of zones.
    zones: Option<ZoneSetup>,
    stats: Arc<SubsetStats>,
    by_labels: HashMap<Box<[Label]>, Subset>,
    /// All hosts, where they may be fallen back on.
    any: Option<Balancer>,
    /// Those of the default subset, the same.
    default: Option<Balancer>,
    /// What is done for requests that ask by just these keys, where no subset is theirs.
    fallbacks: HashMap<Box<[Box<str>]>, SelectorFallback>,
}

/// The hosts that say the same under some keys.
#[derive(Debug)]
enum Subset {
    Many(Box<Balancer>),
    /// A place among the cluster's hosts.
    Single(usize),
}

/// Hosts of a subset that is being made.
#[derive(Debug, Default)]
struct Members {
    places: Vec<u32>,
    is_single: bool,
}

/// Picks a host by a balancer.
type Pick<'a> = dyn FnMut(&mut Balancer) -> Option<usize> + 'a;

impl LiveSubsets {
    /// Those of a cluster, if it has any.
    pub(crate) fn of(config: &Cluster, zones: Option<ZoneSetup>, env: &Env) -> Option<Box<Self>> {
        let subsets = config.subsets.as_ref()?;
        let scope = Scope::ClusterSubsets(Arc::clone(&config.stat_name));
        let stats = env.registry.set(env.index, scope);
        Some(Box::new(Self::new(subsets, config.balancing, zones, stats)))
    }

    fn new(
        config: &Arc<Subsets>,
        balancing: Balancing,
        zones: Option<ZoneSetup>,
        stats: Arc<SubsetStats>,
    ) -> Self {
        let mut subsets = Self {
            config: Arc::clone(config),
            balancing: Balancing {
                weighs_localities: balancing.weighs_localities && config.weighs_localities,
                ..balancing
            },
            zones,
            stats,
            by_labels: HashMap::new(),
            any: None,
            default: None,
            fallbacks: fallbacks(config),
        };
        let falls_to = |wanted: Fallback| {
            let of_selector = SelectorFallback::To(wanted.clone());
            config.fallback == wanted || subsets.fallbacks.values().any(|it| *it == of_selector)
        };
        let balancer = || Balancer::new(subsets.balancing).with_zones(subsets.zones.as_ref());
        let any = (falls_to(Fallback::Any) || config.panics_to_any).then(balancer);
        let default = falls_to(Fallback::Default).then(balancer);
        (subsets.any, subsets.default) = (any, default);
        subsets
    }

    /// Takes note of the hosts.
    pub(crate) fn rebuild(&mut self, hosts: &[Host], random: u64, now: Instant) {
        let whole = self.config.scales_weights.then(|| locality_sizes(hosts, None));
        let part = |members: &[u32]| Part {
            members: Box::from(members),
            weights: whole.as_ref().map(|whole| scaled(hosts, members, whole)),
        };
        let config = &self.config;
        if let Some(any) = &mut self.any {
            any.rebuild(hosts, random, now);
        }
        if let Some(default) = &mut self.default {
            let wanted = &config.default_subset;
            let is_in = |host: &Host| is_like(host, wanted, config.lists_are_any);
            let members = (0_u32..).zip(hosts).filter(|(_, host)| is_in(host));
            let members: Vec<u32> = members.map(|(place, _)| place).collect();
            default.rebuild_part(hosts, &part(&members), random, now);
        }
        let (found, repeated) = members(config, hosts);
        let before = self.by_labels.len();
        self.by_labels.retain(|labels, _| found.contains_key(labels));
        let removed = before - self.by_labels.len();
        let created = found.len() - self.by_labels.len();
        for (labels, members) in found {
            if members.is_single {
                let first = members.places.first().map_or(0, |place| *place as usize);
                self.by_labels.insert(labels, Subset::Single(first));
                continue;
            }
            let (balancing, zones) = (self.balancing, self.zones.as_ref());
            let new = || Subset::Many(Box::new(Balancer::new(balancing).with_zones(zones)));
            let subset = self.by_labels.entry(labels).or_insert_with(new);
            if matches!(subset, Subset::Single(_)) {
                *subset = new();
            }
            if let Subset::Many(balancer) = subset {
                balancer.rebuild_part(hosts, &part(&members.places), random, now);
            }
        }
        self.stats.lb_subsets_created.add(created as u64);
        self.stats.lb_subsets_removed.add(removed as u64);
        self.stats.lb_subsets_active.add(created as u64);
        self.stats.lb_subsets_active.sub(removed as u64);
        self.stats.lb_subsets_single_host_per_subset_duplicate.set(repeated);
    }

    /// The local cluster has other hosts.
    pub(crate) fn follow(&mut self, local: &Arc<LocalHosts>) {
        if let Some(zones) = &mut self.zones {
            zones.local = Arc::clone(local);
        }
        let own = self.by_labels.values_mut().filter_map(|subset| match subset {
            Subset::Many(balancer) => Some(&mut **balancer),
            Subset::Single(_) => None,
        });
        own.chain(&mut self.any).chain(&mut self.default).for_each(|it| it.follow(local));
    }

    /// The host of a request.
    fn choose(&mut self, criteria: Option<&Criteria>, pick: &mut Pick<'_>) -> Option<usize> {
        match criteria {
            Some(criteria) if self.config.tries_fallbacks => {
                let mut tries = criteria.tries().into_iter();
                tries.find_map(|criteria| self.choose_once(criteria.labels(), pick))
            }
            Some(criteria) => self.choose_once(criteria.labels(), pick),
            None => self.choose_once(&[], pick),
        }
    }

    fn choose_once(&mut self, labels: &[Label], pick: &mut Pick<'_>) -> Option<usize> {
        let needed = self.config.allows_more_keys.then(|| needed(&self.config, labels)).flatten();
        let labels = needed.as_deref().unwrap_or(labels);
        if let Some(subset) = self.by_labels.get_mut(labels) {
            self.stats.lb_subsets_selected.inc();
            return match subset {
                Subset::Many(balancer) => pick(balancer),
                Subset::Single(host) => Some(*host),
            };
        }
        let keys: Box<[Box<str>]> = labels.iter().map(|(key, _)| key.clone()).collect();
        match self.fallbacks.get(&keys).cloned() {
            None => self.fall_back(pick),
            Some(SelectorFallback::To(Fallback::None)) => None,
            Some(SelectorFallback::To(Fallback::Any)) => self.any.as_mut().and_then(pick),
            Some(SelectorFallback::To(Fallback::Default)) => self.default.as_mut().and_then(pick),
            // These are fewer each time.
            Some(SelectorFallback::Keys(keys)) => self.choose_once(&only(labels, &keys), pick),
        }
    }

    /// No subset is theirs, and no selector knows what to do.
    fn fall_back(&mut self, pick: &mut Pick<'_>) -> Option<usize> {
        let fallback = match self.config.fallback {
            Fallback::None => return None,
            Fallback::Any => self.any.as_mut(),
            Fallback::Default => self.default.as_mut(),
        };
        if let Some(host) = fallback.and_then(&mut *pick) {
            self.stats.lb_subsets_fallback.inc();
            return Some(host);
        }
        let any = self.any.as_mut().filter(|_| self.config.panics_to_any);
        let host = any.and_then(pick)?;
        self.stats.lb_subsets_fallback_panic.inc();
        Some(host)
    }
}

impl Drop for LiveSubsets {
    fn drop(&mut self) {
        let count = self.by_labels.len() as u64;
        self.stats.lb_subsets_removed.add(count);
        self.stats.lb_subsets_active.sub(count);
    }
}

impl ClusterState {
    /// Chooses a host of the subset that a stream asks for. Where an aggregate has decided for it, of which priority.
    #[cold]
    pub(crate) fn pick_of_subset(
        &mut self,
        among: Option<Among>,
        random: u64,
        class: PoolClass,
        mut avoided: Avoided<'_>,
        criteria: Option<&Criteria>,
        now: Instant,
    ) -> Option<PoolKey> {
        let mut subsets = self.subsets.take()?;
        let (id, hosts, pools_of, stats) = (self.id, &self.hosts, &self.pools_of, &self.stats);
        let (attempts, mut past) = (avoided.attempts, avoided.priorities.take());
        let skip = |host: usize| avoided.has(id, hosts.get(host), pools_of.get(host));
        let mut pick = |balancer: &mut Balancer| {
            let not_tried = past.as_deref_mut().and_then(|past| balancer.past(past, random));
            let among = among.or(not_tried);
            let host = balancer.pick_among(among, hosts, random, &skip, attempts, now);
            if balancer.in_panic() || balancer.is_empty() {
                stats.lb_healthy_panic.inc();
            }
            if let (Some(past), Some(host)) = (past.as_deref_mut(), host) {
                past.note(hosts.get(host).map_or(0, |host| host.endpoint.priority as usize));
            }
            host
        };
        let host = subsets.choose(criteria, &mut pick);
        self.subsets = Some(subsets);
        self.pool_of(host?, class)
    }
}

/// What selectors say of requests without a subset, by the keys that these ask by.
///
/// One whose keys are the first ones of a selector before it says nothing, as in Envoy: there they are a step on the
/// way to that one's, and a step takes no word afterwards.
fn fallbacks(config: &Subsets) -> HashMap<Box<[Box<str>]>, SelectorFallback> {
    let mut known: BTreeSet<Vec<Box<str>>> = BTreeSet::new();
    let mut fallbacks = HashMap::new();
    for selector in &config.selectors {
        let keys: Vec<Box<str>> = selector.keys.iter().cloned().collect();
        let is_new = !known.contains(&keys);
        known.extend((1..=keys.len()).map(|count| keys[..count].to_vec()));
        if let Some(fallback) = selector.fallback.as_ref().filter(|_| is_new) {
            fallbacks.insert(keys.into(), fallback.clone());
        }
    }
    fallbacks
}

/// The hosts of each subset, and how many are left out of one that takes only one of them.
fn members(config: &Subsets, hosts: &[Host]) -> (HashMap<Box<[Label]>, Members>, u64) {
    let mut found: HashMap<Box<[Label]>, Members> = HashMap::new();
    let last = hosts.iter().map(|host| host.endpoint.priority).max().unwrap_or(0);
    let mut repeated = 0;
    for (place, host) in (0_u32..).zip(hosts) {
        for selector in &config.selectors {
            for labels in labels_of(host, &selector.keys, config.lists_are_any) {
                if found.len() >= MOST_SUBSETS && !found.contains_key(&labels) {
                    continue;
                }
                let new = || Members { places: Vec::new(), is_single: selector.is_single };
                let members = found.entry(labels).or_insert_with(new);
                let priority = |place: &u32| hosts[*place as usize].endpoint.priority;
                let known = members.places.iter().any(|it| priority(it) == host.endpoint.priority);
                if members.is_single && known {
                    repeated += u64::from(host.endpoint.priority == last);
                } else {
                    members.places.push(place);
                }
            }
        }
    }
    for members in found.values_mut().filter(|members| members.is_single) {
        members.places.sort_by_key(|place| hosts[*place as usize].endpoint.priority);
    }
    (found, repeated)
}

/// The subsets that a host is in by some keys: one, or none where it does not say all of them, or one for each value
/// of a list.
fn labels_of(host: &Host, keys: &BTreeSet<Box<str>>, lists_are_any: bool) -> Vec<Box<[Label]>> {
    let Some(said) = said(host) else { return Vec::new() };
    let mut all: Vec<Vec<Label>> = Vec::new();
    for key in keys {
        let Some(value) = said.get(key) else { return Vec::new() };
        let values = match value {
            Value::List(values) if lists_are_any => &**values,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::List(_)
            | Value::Struct(_) => std::slice::from_ref(value),
        };
        let values: Vec<Label> = values.iter().map(|value| label(key, value)).collect();
        if all.is_empty() {
            all = values.into_iter().map(|value| vec![value]).collect();
            continue;
        }
        let longer = |labels: Vec<Label>| {
            let values = values.iter().cloned();
            values.map(move |value| [&*labels, &[value]].concat()).collect::<Vec<_>>()
        };
        all = all.into_iter().flat_map(longer).take(MOST_SUBSETS).collect();
    }
    // An empty list under the first key leaves a host with fewer labels than keys, in Envoy too.
    all.into_iter().map(Into::into).collect()
}

/// Whether a host says all that is wanted.
fn is_like(host: &Host, wanted: &Struct, lists_are_any: bool) -> bool {
    let said = said(host);
    wanted.iter().all(|(key, wanted)| match said.and_then(|said| said.get(key)) {
        Some(Value::List(values)) if lists_are_any => values.contains(wanted),
        Some(value) => value == wanted,
        None => false,
    })
}

fn said(host: &Host) -> Option<&Struct> {
    match host.endpoint.filter_metadata.as_deref()?.get(NAMESPACE)? {
        Value::Struct(said) => Some(said),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::List(_) => None,
    }
}

/// Of what a request asks by, the keys of the longest selector that it has all keys of.
fn needed(config: &Subsets, labels: &[Label]) -> Option<Vec<Label>> {
    let has = |wanted: &str| labels.iter().any(|(key, _)| **key == *wanted);
    let fits = |selector: &&Selector| selector.keys.iter().all(|key| has(key));
    let fitting = config.selectors.iter().filter(fits);
    // The first of those that are as long.
    let longest = fitting.min_by_key(|selector| std::cmp::Reverse(selector.keys.len()))?;
    Some(only(labels, &longest.keys))
}

fn only(labels: &[Label], keys: &BTreeSet<Box<str>>) -> Vec<Label> {
    labels.iter().filter(|(key, _)| keys.contains(key)).cloned().collect()
}

/// How many hosts each locality of each priority has, of some or of all.
fn locality_sizes<'a>(hosts: &'a [Host], members: Option<&[u32]>) -> BTreeMap<(u32, &'a str), u32> {
    let mut sizes = BTreeMap::new();
    let mut count = |host: &'a Host| {
        *sizes.entry((host.endpoint.priority, &*host.endpoint.locality)).or_default() += 1;
    };
    match members {
        Some(members) => {
            members.iter().filter_map(|place| hosts.get(*place as usize)).for_each(&mut count);
        }
        None => hosts.iter().for_each(&mut count),
    }
    sizes
}

/// The weight of each member's locality: as much of it as part of its hosts are in the subset.
fn scaled(
    hosts: &[Host],
    members: &[u32],
    whole: &BTreeMap<(u32, &str), u32>,
) -> HashMap<u32, u32> {
    let sizes = locality_sizes(hosts, Some(members));
    let weight = |place: &u32| {
        let endpoint = &hosts.get(*place as usize)?.endpoint;
        let at = (endpoint.priority, &*endpoint.locality);
        let (part, whole) = (*sizes.get(&at)?, *whole.get(&at)?);
        let weight = f64::from(endpoint.locality_weight) * f64::from(part) / f64::from(whole);
        Some((*place, weight.round() as u32))
    };
    members.iter().filter_map(weight).collect()
}

/// Subsets of one cluster on one worker. Hosts would be in no other one: how many there are grows with what a control
/// plane says of hosts.
const MOST_SUBSETS: usize = 65_536;

#[cfg(test)]
mod tests;
