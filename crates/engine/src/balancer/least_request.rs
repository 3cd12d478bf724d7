//! The least loaded of a few random hosts, or of all; with unequal weights, round robin by weight over load.

use super::Dice;
use super::hosts::Hosts;
use super::schedule::Schedule;

#[derive(Debug)]
pub(super) struct LeastRequest {
    hosts: Box<[u32]>,
    /// How many hosts are compared; 0 for all.
    choices: u32,
    bias: f64,
    /// Only with unequal weights.
    schedule: Option<Schedule>,
}

impl LeastRequest {
    pub(super) fn new(
        members: Box<[u32]>,
        hosts: &Hosts<'_>,
        choices: u32,
        bias_milli: u32,
    ) -> Self {
        let bias = f64::from(bias_milli) / 1000.0;
        let schedule = (!hosts.are_even(&members)).then(|| {
            let mut schedule = Schedule::default();
            for host in &members {
                schedule.add(*host, effective_weight(hosts, *host, bias));
            }
            schedule
        });
        Self { hosts: members, choices, bias, schedule }
    }

    pub(super) fn pick(&mut self, hosts: &Hosts<'_>, dice: &mut Dice) -> Option<u32> {
        let bias = self.bias;
        if let Some(schedule) = &mut self.schedule {
            return schedule.next(|host| effective_weight(hosts, host, bias));
        }
        if self.choices == 0 {
            return self.least_of_all(hosts, dice);
        }
        let active = |host: u32| hosts.get(host).map_or(u32::MAX, |host| host.active);
        let mut best = *self.hosts.get(dice.below(self.hosts.len()))?;
        for _ in 1..self.choices {
            let other = self.hosts[dice.below(self.hosts.len())];
            if active(other) < active(best) {
                best = other;
            }
        }
        Some(best)
    }

    /// Of several with as little to do each is as likely (reservoir sampling).
    fn least_of_all(&self, hosts: &Hosts<'_>, dice: &mut Dice) -> Option<u32> {
        let mut best = None;
        let mut ties = 0;
        for host in &self.hosts {
            let active = hosts.get(*host).map_or(u32::MAX, |host| host.active);
            match best {
                Some((least, _)) if active > least => continue,
                Some((least, _)) if active == least => ties += 1,
                Some(_) | None => ties = 1,
            }
            if dice.below(ties) == 0 {
                best = Some((active, *host));
            }
        }
        best.map(|(_, host)| host)
    }
}

/// `weight / (active + 1)^bias`.
fn effective_weight(hosts: &Hosts<'_>, host: u32, bias: f64) -> f64 {
    let active = hosts.get(host).map_or(0, |host| host.active);
    let load = f64::from(active) + 1.0;
    // The default needs no power.
    hosts.weight(host) / if bias == 1.0 { load } else { load.powf(bias) }
}
