//! Shares the traffic among priorities and, within one, among healthy, degraded and all hosts.

use super::group::Group;
use super::hashed::{Key, TableSize};
use super::hosts::Hosts;
use super::locality::Localities;
use super::{Balancing, Dice, Host};
use crate::snapshot::cluster::Health;

/// What a priority's share of the traffic follows from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) healthy: u64,
    pub(super) degraded: u64,
    /// Of all health that count.
    pub(super) counted: u64,
    /// With those that count for nothing.
    pub(super) all: u64,
    /// How far it is healthy, and how far degraded, in percent.
    pub(super) parts: (u64, u64),
}

impl Sizes {
    /// It counts as whole until fewer than 100 in `overprovisioning` of its hosts are healthy.
    pub(super) fn new(
        (healthy, degraded, counted): (u64, u64, u64),
        all: u64,
        (healthy_weight, degraded_weight, weight): (u64, u64, u64),
        overprovisioning: u32,
    ) -> Self {
        let percent = |part: u64| {
            (part * u64::from(overprovisioning)).checked_div(weight).unwrap_or(0).min(100)
        };
        let parts = (percent(healthy_weight), percent(degraded_weight));
        Self { healthy, degraded, counted, all, parts }
    }
}

/// The hosts of one priority.
#[derive(Debug)]
pub(super) struct Priority {
    healthy: Eligible,
    degraded: Eligible,
    all: Group,
    sizes: Sizes,
}

/// Which of a priority's hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Healthy,
    Degraded,
    /// Panic.
    All,
}

/// Hosts of one health, together or by locality.
#[derive(Debug)]
enum Eligible {
    Together(Group),
    ByLocality(Localities),
}

impl Priority {
    pub(super) fn new(
        hosts: &Hosts<'_>,
        priority: u32,
        config: Balancing,
        dice: &mut Dice,
    ) -> Self {
        let of_priority = |host: &Host| host.endpoint.priority == priority;
        let all = hosts.places(of_priority);
        let policy = config.policy;
        let weight = |members: &[u32]| match config.weighs_health {
            true => members.iter().map(|host| hosts.written_weight(*host)).sum(),
            false => members.len() as u64,
        };
        let counted = hosts.places(|host| of_priority(host) && !host.is_excluded());
        let (mut counts, mut weights) = ((0, 0, counted.len() as u64), (0, 0, weight(&counted)));
        let mut eligible = |health| {
            let members = hosts.places(|host| of_priority(host) && host.health() == health);
            let (count, sum) = (members.len() as u64, weight(&members));
            match health {
                Health::Healthy => (counts.0, weights.0) = (count, sum),
                Health::Degraded => (counts.1, weights.1) = (count, sum),
                Health::Unhealthy => {}
            }
            if config.weighs_localities && policy.is_hashed() {
                return Eligible::Together(Group::hashed_by_locality(&members, hosts, policy));
            }
            let localities = config
                .weighs_localities
                .then(|| Localities::new(&counted, &members, hosts, config, dice))
                .flatten();
            match localities {
                Some(localities) => Eligible::ByLocality(localities),
                None => Eligible::Together(Group::new(members, hosts, policy, dice)),
            }
        };
        let (healthy, degraded) = (eligible(Health::Healthy), eligible(Health::Degraded));
        let sizes = Sizes::new(counts, all.len() as u64, weights, config.overprovisioning);
        Self { healthy, degraded, all: Group::new(all, hosts, policy, dice), sizes }
    }

    pub(super) fn pick(
        &mut self,
        class: Class,
        hosts: &Hosts<'_>,
        key: Key,
        dice: &mut Dice,
    ) -> Option<usize> {
        let host = match class {
            Class::Healthy => self.healthy.pick(hosts, key, dice),
            Class::Degraded => self.degraded.pick(hosts, key, dice),
            Class::All => self.all.pick(hosts, key, dice),
        };
        host.map(|host| host as usize)
    }

    /// Whether a locality is chosen first, by its weight.
    pub(super) fn weighs_localities(&self, class: Class) -> bool {
        let eligible = match class {
            Class::Healthy => &self.healthy,
            Class::Degraded => &self.degraded,
            Class::All => return false,
        };
        matches!(eligible, Eligible::ByLocality(..))
    }

    /// What the table of its healthy hosts says of itself, or of all where none is healthy.
    pub(super) fn table_size(&self) -> Option<TableSize> {
        let healthy = match &self.healthy {
            Eligible::Together(group) => group.table_size(),
            Eligible::ByLocality(..) => None,
        };
        healthy.or_else(|| self.all.table_size())
    }

    pub(super) const fn sizes(&self) -> Sizes {
        self.sizes
    }
}

impl Eligible {
    #[inline(always)]
    fn pick(&mut self, hosts: &Hosts<'_>, key: Key, dice: &mut Dice) -> Option<u32> {
        match self {
            Self::Together(group) => group.pick(hosts, key, dice),
            Self::ByLocality(localities) => localities.pick(hosts, key, dice),
        }
    }
}

/// Percent of the traffic by priority and class. Envoy: "priority levels", "degraded", "panic".
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Cumulative percent; the last is 100 unless there is no host.
    shares: Vec<(u64, usize, Class)>,
}

impl Load {
    pub(super) fn new(sizes: &[Sizes], panic_threshold: u8) -> Self {
        let healthy: Vec<_> = sizes.iter().map(|it| it.parts.0).collect();
        let degraded: Vec<_> = sizes.iter().map(|it| it.parts.1).collect();
        let available = (healthy.iter().sum::<u64>() + degraded.iter().sum::<u64>()).min(100);
        let in_panic = |sizes: &Sizes| available < 100 && panics(*sizes, panic_threshold);
        if sizes.iter().all(in_panic) {
            return Self::by_size(sizes);
        }
        if available == 0 {
            // The first one has it all, and what is healthy of it.
            let class =
                if sizes.first().is_some_and(in_panic) { Class::All } else { Class::Healthy };
            return Self { shares: vec![(100, 0, class)] };
        }
        let mut loads = vec![(0, 0); sizes.len()];
        let mut left = 100;
        for (load, health) in loads.iter_mut().zip(&healthy) {
            load.0 = left.min(health * 100 / available);
            left -= load.0;
        }
        for (load, health) in loads.iter_mut().zip(&degraded) {
            load.1 = left.min(health * 100 / available);
            left -= load.1;
        }
        // What rounding left over goes to the first that can take it.
        if let Some(at) = healthy.iter().position(|health| *health > 0) {
            loads[at].0 += left;
        } else if let Some(at) = degraded.iter().position(|health| *health > 0) {
            loads[at].1 += left;
        }
        let mut shares = Self::default();
        for (priority, (load, sizes)) in loads.iter().zip(sizes).enumerate() {
            if in_panic(sizes) {
                shares.add(load.0 + load.1, priority, Class::All);
            } else {
                shares.add(load.0, priority, Class::Healthy);
                shares.add(load.1, priority, Class::Degraded);
            }
        }
        shares
    }

    /// All priorities panic: each takes a share by its size.
    fn by_size(sizes: &[Sizes]) -> Self {
        let total: u64 = sizes.iter().map(|it| it.all).sum();
        let mut shares = Self::default();
        if total == 0 {
            return shares;
        }
        // What rounding leaves over goes to the first.
        let given: u64 = sizes.iter().map(|it| it.all * 100 / total).sum();
        let mut left = 100 - given;
        for (priority, sizes) in sizes.iter().enumerate().filter(|(_, it)| it.all > 0) {
            shares.add(sizes.all * 100 / total + std::mem::take(&mut left), priority, Class::All);
        }
        shares
    }

    fn add(&mut self, percent: u64, priority: usize, class: Class) {
        if percent > 0 {
            let before = self.shares.last().map_or(0, |(end, ..)| *end);
            self.shares.push((before + percent, priority, class));
        }
    }

    /// Which hosts of a priority a request gets that wants those of a class: any when it panics.
    pub(super) fn class_of(&self, priority: usize, class: Class) -> Class {
        match self.shares.iter().any(|share| (share.1, share.2) == (priority, Class::All)) {
            true => Class::All,
            false => class,
        }
    }

    /// Where the next request goes.
    #[inline]
    pub(super) fn choose(&self, dice: &mut Dice) -> Option<(usize, Class)> {
        match &*self.shares {
            [] => None,
            [(_, priority, class)] => Some((*priority, *class)),
            shares => {
                let at = dice.below(100) as u64;
                let share = shares.iter().find(|(end, ..)| at < *end).or_else(|| shares.last());
                share.map(|(_, priority, class)| (*priority, *class))
            }
        }
    }
}

/// The priorities that the attempts of a stream went to. Envoy: `previous_priorities`.
#[derive(Debug)]
pub(crate) struct PastPriorities {
    /// After so many attempts it is looked again which priorities are to be avoided.
    every: usize,
    tried: Vec<usize>,
    avoided: Vec<bool>,
    /// What is left when these are avoided.
    load: Option<Load>,
}

impl PastPriorities {
    pub(crate) fn new(every: u32) -> Self {
        let every = usize::try_from(every).unwrap_or(usize::MAX).max(1);
        Self { every, tried: Vec::new(), avoided: Vec::new(), load: None }
    }

    /// An attempt went there.
    pub(crate) fn note(&mut self, priority: usize) {
        self.tried.push(priority);
    }

    /// How the next attempt is shared out; nothing where that is as for any stream.
    pub(super) fn load(&mut self, sizes: &[Sizes]) -> Option<&Load> {
        if self.tried.len() < self.every {
            return None;
        }
        if self.tried.len().is_multiple_of(self.every) {
            self.avoided.resize(sizes.len(), false);
            for priority in &self.tried {
                if let Some(avoided) = self.avoided.get_mut(*priority) {
                    *avoided = true;
                }
            }
            self.load = Load::without(sizes, &self.avoided);
            if self.load.is_none() {
                // All have been tried: it begins anew.
                self.avoided.fill(false);
                self.tried.clear();
            }
        }
        self.load.as_ref()
    }
}

impl Load {
    /// The shares of those that are not avoided; nothing where none of these has hosts.
    fn without(sizes: &[Sizes], avoided: &[bool]) -> Option<Self> {
        let parts = |(sizes, avoided): (&Sizes, &bool)| {
            if *avoided { (0, 0) } else { sizes.parts }
        };
        let (healthy, degraded): (Vec<u64>, Vec<u64>) =
            sizes.iter().zip(avoided).map(parts).unzip();
        let available = (healthy.iter().sum::<u64>() + degraded.iter().sum::<u64>()).min(100);
        if available == 0 {
            return None;
        }
        let mut loads = vec![(0, 0); sizes.len()];
        let mut left = 100;
        // What rounding leaves over is given out again.
        while left > 0 {
            for (load, health) in loads.iter_mut().zip(&healthy) {
                let share = left.min(health * 100 / available);
                (load.0, left) = (load.0 + share, left - share);
            }
            for (load, health) in loads.iter_mut().zip(&degraded) {
                let share = left.min(health * 100 / available);
                (load.1, left) = (load.1 + share, left - share);
            }
        }
        let mut shares = Self::default();
        for (priority, (healthy, degraded)) in loads.into_iter().enumerate() {
            shares.add(healthy, priority, Class::Healthy);
            shares.add(degraded, priority, Class::Degraded);
        }
        Some(shares)
    }
}

fn panics(Sizes { healthy, degraded, counted, .. }: Sizes, threshold: u8) -> bool {
    match counted {
        0 => threshold > 0,
        counted => (healthy + degraded) * 100 < counted * u64::from(threshold),
    }
}

#[cfg(test)]
impl Load {
    /// Percent by priority and class.
    pub(super) fn percents(&self) -> Vec<(u64, usize, Class)> {
        let mut before = 0;
        let share = |(end, priority, class): &(u64, usize, Class)| {
            let percent = end - before;
            before = *end;
            (percent, *priority, *class)
        };
        self.shares.iter().map(share).collect()
    }
}
