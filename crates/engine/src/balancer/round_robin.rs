//! Each host in its turn; with unequal weights, as often as its weight says, evenly spread.

use super::Dice;
use super::hosts::Hosts;
use super::schedule::Schedule;

#[derive(Debug)]
pub(super) struct RoundRobin {
    hosts: Box<[u32]>,
    next: usize,
    /// Only with unequal weights.
    schedule: Option<Schedule>,
}

impl RoundRobin {
    pub(super) fn new(members: Box<[u32]>, hosts: &Hosts<'_>, dice: &mut Dice) -> Self {
        let schedule = (!hosts.are_even(&members)).then(|| {
            let mut schedule = Schedule::default();
            for host in &members {
                schedule.add(*host, hosts.weight(*host));
            }
            // Begin somewhere in the round, as every worker has a round of its own.
            for _ in 0..dice.below(members.len()) {
                schedule.next(|host| hosts.weight(host));
            }
            schedule
        });
        let next = dice.below(members.len().max(1));
        Self { hosts: members, next, schedule }
    }

    #[inline]
    pub(super) fn pick(&mut self, hosts: &Hosts<'_>) -> Option<u32> {
        if let Some(schedule) = &mut self.schedule {
            return schedule.next(|host| hosts.weight(host));
        }
        let host = *self.hosts.get(self.next)?;
        self.next = if self.next + 1 == self.hosts.len() { 0 } else { self.next + 1 };
        Some(host)
    }
}
