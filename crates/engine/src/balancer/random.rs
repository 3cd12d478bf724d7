//! Any host, as likely as its weight says.

use super::Dice;
use super::hosts::Hosts;

#[derive(Debug)]
pub(super) struct Random {
    hosts: Box<[u32]>,
    /// Running sums of the weights; only with unequal ones.
    sums: Box<[u64]>,
}

impl Random {
    pub(super) fn new(members: Box<[u32]>, hosts: &Hosts<'_>) -> Self {
        let sums = if hosts.are_even(&members) {
            Box::default()
        } else {
            let mut sum = 0;
            let weights = members.iter().filter_map(|host| hosts.get(*host));
            weights
                .map(|host| {
                    sum += u64::from(host.endpoint.weight.max(1));
                    sum
                })
                .collect()
        };
        Self { hosts: members, sums }
    }

    pub(super) fn pick(&self, dice: &mut Dice) -> Option<u32> {
        let place = match self.sums.last() {
            None => dice.below(self.hosts.len()),
            Some(total) => {
                let at = dice.below(*total as usize) as u64;
                self.sums.partition_point(|sum| *sum <= at)
            }
        };
        self.hosts.get(place).copied()
    }
}
