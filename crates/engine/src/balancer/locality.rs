//! Shares the traffic of one priority among its localities by their weights. Envoy: "locality weighted load balancing".
//!
//! A locality counts with its weight as long as enough of its hosts are eligible; below 100/140 of them
//! (Envoy's `overprovisioning_factor`) it loses weight
//! in proportion. Within it the cluster's policy decides.

use std::collections::BTreeMap;

use super::group::Group;
use super::hashed::Key;
use super::hosts::Hosts;
use super::schedule::Schedule;
use super::{Balancing, Dice, Host};

/// The eligible hosts of a priority, by locality.
#[derive(Debug)]
pub(super) struct Localities {
    schedule: Schedule,
    groups: Box<[Weighted]>,
}

#[derive(Debug)]
struct Weighted {
    weight: f64,
    group: Group,
}

impl Localities {
    /// `all` are the hosts of the priority that count, `eligible` those of them to choose from. `None` when no locality
    /// with a weight has an eligible host: then localities do not count.
    pub(super) fn new(
        all: &[u32],
        eligible: &[u32],
        hosts: &Hosts<'_>,
        config: Balancing,
        dice: &mut Dice,
    ) -> Option<Self> {
        let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
        for host in at(hosts, all) {
            *totals.entry(&host.endpoint.locality).or_default() += 1;
        }
        let mut members: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (index, host) in eligible.iter().zip(at(hosts, eligible)) {
            if hosts.locality_weight(*index) > 0 {
                members.entry(&host.endpoint.locality).or_default().push(*index);
            }
        }
        let groups: Box<[_]> = members
            .into_iter()
            .filter_map(|(locality, members)| {
                let locality_weight = hosts.locality_weight(*members.first()?);
                let total = totals.get(locality).copied().unwrap_or(1);
                let percent =
                    (members.len() as u64 * u64::from(config.overprovisioning) / total).min(100);
                let weight = f64::from(locality_weight) * percent as f64 / 100.0;
                let group = Group::new(members.into(), hosts, config.policy, dice);
                (weight > 0.0).then_some(Weighted { weight, group })
            })
            .collect();
        if groups.is_empty() {
            return None;
        }
        let mut schedule = Schedule::default();
        for (place, locality) in (0u32..).zip(&groups) {
            schedule.add(place, locality.weight);
        }
        let mut localities = Self { schedule, groups };
        // Begin somewhere in the round, as every worker has a round of its own.
        for _ in 0..dice.below(localities.groups.len()) {
            localities.next();
        }
        Some(localities)
    }

    pub(super) fn pick(&mut self, hosts: &Hosts<'_>, key: Key, dice: &mut Dice) -> Option<u32> {
        let place = self.next()?;
        self.groups.get_mut(place)?.group.pick(hosts, key, dice)
    }

    fn next(&mut self) -> Option<usize> {
        let Self { schedule, groups } = self;
        let weight = |place| groups.get(place as usize).map_or(1.0, |locality| locality.weight);
        schedule.next(weight).map(|place| place as usize)
    }
}

fn at<'a>(hosts: &Hosts<'a>, places: &'a [u32]) -> impl Iterator<Item = &'a Host> {
    let all = hosts.all;
    places.iter().filter_map(|place| all.get(*place as usize))
}
