//! Some hosts and the policy that chooses among them.

use super::hashed::{Hashed, Key, TableSize};
use super::hosts::Hosts;
use super::least_request::LeastRequest;
use super::random::Random;
use super::round_robin::RoundRobin;
use super::{Dice, Policy};

#[derive(Debug)]
pub(super) enum Group {
    RoundRobin(RoundRobin),
    LeastRequest(LeastRequest),
    Random(Random),
    Hashed(Hashed),
}

impl Group {
    pub(super) fn new(
        members: Box<[u32]>,
        hosts: &Hosts<'_>,
        policy: Policy,
        dice: &mut Dice,
    ) -> Self {
        match policy {
            Policy::RoundRobin => Self::RoundRobin(RoundRobin::new(members, hosts, dice)),
            Policy::LeastRequest { choices, bias_milli } => {
                Self::LeastRequest(LeastRequest::new(members, hosts, choices, bias_milli))
            }
            Policy::Random => Self::Random(Random::new(members, hosts)),
            Policy::RingHash { .. } | Policy::Maglev { .. } => {
                Self::Hashed(Hashed::new(&members, hosts.all, policy, None))
            }
        }
    }

    /// One of several localities that is chosen by a hash: their weights count with those of hosts.
    pub(super) fn hashed_by_locality(members: &[u32], hosts: &Hosts<'_>, policy: Policy) -> Self {
        Self::Hashed(Hashed::new(
            members,
            hosts.all,
            policy,
            Some(&|host| hosts.locality_weight(host)),
        ))
    }

    #[inline(always)]
    pub(super) fn pick(&mut self, hosts: &Hosts<'_>, key: Key, dice: &mut Dice) -> Option<u32> {
        match self {
            Self::RoundRobin(group) => group.pick(hosts),
            Self::LeastRequest(group) => group.pick(hosts, dice),
            Self::Random(group) => group.pick(dice),
            Self::Hashed(group) => group.pick(hosts.all, key),
        }
    }

    /// What the table says of itself, where a hash decides.
    pub(super) fn table_size(&self) -> Option<TableSize> {
        match self {
            Self::RoundRobin(_) | Self::LeastRequest(_) | Self::Random(_) => None,
            Self::Hashed(group) => group.table_size(),
        }
    }
}
