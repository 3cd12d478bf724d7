//! Each host in its turn; with unequal weights, as often as its weight says, evenly spread.

use super::schedule::Schedule;
use super::{Dice, Host};

#[derive(Debug)]
pub(super) struct RoundRobin {
    hosts: Box<[u32]>,
    next: usize,
    /// Only with unequal weights.
    schedule: Option<Schedule>,
}

impl RoundRobin {
    pub(super) fn new(members: Box<[u32]>, hosts: &[Host], dice: &mut Dice) -> Self {
        let schedule = (!equal_weights(&members, hosts)).then(|| {
            let mut schedule = Schedule::default();
            for host in &members {
                schedule.add(*host, weight(hosts, *host));
            }
            // Begin somewhere in the round, as every worker has a round of its own.
            for _ in 0..dice.below(members.len()) {
                schedule.next(|host| weight(hosts, host));
            }
            schedule
        });
        let next = dice.below(members.len().max(1));
        Self { hosts: members, next, schedule }
    }

    #[inline]
    pub(super) fn pick(&mut self, hosts: &[Host]) -> Option<u32> {
        if let Some(schedule) = &mut self.schedule {
            return schedule.next(|host| weight(hosts, host));
        }
        let host = *self.hosts.get(self.next)?;
        self.next = if self.next + 1 == self.hosts.len() { 0 } else { self.next + 1 };
        Some(host)
    }

    pub(super) fn len(&self) -> usize {
        self.hosts.len()
    }
}

/// Whether all members have one weight.
pub(super) fn equal_weights(members: &[u32], hosts: &[Host]) -> bool {
    let mut weights = members.iter().map(|host| weight(hosts, *host));
    weights.next().is_none_or(|first| weights.all(|other| other == first))
}

/// The weight of a host; 0 would never come again and counts as 1.
pub(super) fn weight(hosts: &[Host], host: u32) -> f64 {
    hosts.get(host as usize).map_or(1.0, |host| f64::from(host.endpoint.weight.max(1)))
}
