//! What the outcomes of a host's checks come to, and when it is checked next.
//!
//! Arrives: the outcome of each check. Leaves: whether the host is healthy, and the pause. The rules are those of
//! Envoy's health checkers: the first success makes a host healthy at once, a definite failure unhealthy at once;
//! otherwise the thresholds decide.

use std::time::Duration;

use super::probe::Outcome;
use crate::random::Random;
use crate::snapshot::health::{HealthCheck, HealthFlags};

/// The state of one host's checks.
#[derive(Debug)]
pub(super) struct HostStatus {
    health_flags: HealthFlags,
    /// Successes in a row while it is unhealthy, failures in a row while it is healthy.
    streak: u32,
    checked: bool,
}

/// What an outcome did to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    Unchanged,
    /// It counts towards a threshold that is not reached yet.
    Pending,
    Changed,
}

impl HostStatus {
    /// Where a new host is `ignored`, until its first check has ended.
    pub(super) const fn new(ignored: bool) -> Self {
        Self { health_flags: HealthFlags::unchecked(ignored), streak: 0, checked: false }
    }

    pub(super) const fn health_flags(&self) -> HealthFlags {
        self.health_flags
    }

    /// Whether a check of it has ended.
    pub(super) const fn is_checked(&self) -> bool {
        self.checked
    }

    /// Takes an outcome in; answers the pause before the next check.
    pub(super) fn conclude(
        &mut self,
        outcome: Outcome,
        config: &HealthCheck,
        has_traffic: bool,
        random: &mut Random,
    ) -> Duration {
        let (success, transition) = match outcome {
            Outcome::Success { degraded } => (true, self.succeeded(degraded, config)),
            Outcome::Refused | Outcome::Retriable | Outcome::Broken | Outcome::TimedOut => {
                (false, self.failed(outcome, config))
            }
        };
        self.checked = true;
        self.health_flags.pending = false;
        let pauses = &config.pauses;
        let base = match (has_traffic, success, transition == Transition::Pending) {
            (false, true, _) => pauses.no_traffic_healthy,
            (false, false, _) => pauses.no_traffic,
            (true, true, false) => pauses.healthy,
            (true, true, true) => pauses.healthy_edge,
            (true, false, false) => pauses.unhealthy,
            (true, false, true) => pauses.unhealthy_edge,
        };
        let share = base.saturating_mul(config.jitter_percent) / 100;
        base + below(share, random) + below(config.jitter, random)
    }

    fn succeeded(&mut self, degraded: bool, config: &HealthCheck) -> Transition {
        self.health_flags.degraded = degraded;
        self.health_flags.timed_out = false;
        if !self.health_flags.failed_check {
            self.streak = 0;
            return Transition::Unchanged;
        }
        self.streak += 1;
        if self.checked && self.streak < config.healthy_threshold {
            return Transition::Pending;
        }
        self.health_flags.failed_check = false;
        self.streak = 0;
        Transition::Changed
    }

    fn failed(&mut self, outcome: Outcome, config: &HealthCheck) -> Transition {
        self.health_flags.timed_out = outcome == Outcome::TimedOut;
        if self.health_flags.failed_check {
            self.streak = 0;
            return Transition::Unchanged;
        }
        self.streak += 1;
        if outcome != Outcome::Refused && self.streak < config.unhealthy_threshold {
            return Transition::Pending;
        }
        self.health_flags.failed_check = true;
        self.streak = 0;
        Transition::Changed
    }
}

/// A random duration below `most`; none below nothing.
pub(super) fn below(most: Duration, random: &mut Random) -> Duration {
    match u64::try_from(most.as_nanos()).unwrap_or(u64::MAX) {
        0 => Duration::ZERO,
        nanos => Duration::from_nanos(random.below(nanos)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::health::{Pauses, Probe, TcpProbe};

    const GOOD: Outcome = Outcome::Success { degraded: false };

    fn config() -> HealthCheck {
        let seconds = Duration::from_secs;
        HealthCheck {
            probe: Probe::Tcp(TcpProbe::default()),
            timeout: seconds(1),
            initial_jitter: Duration::ZERO,
            jitter: Duration::ZERO,
            jitter_percent: 0,
            unhealthy_threshold: 3,
            healthy_threshold: 2,
            reuse_connection: true,
            ignores_new: false,
            pauses: Pauses {
                healthy: seconds(10),
                healthy_edge: seconds(11),
                unhealthy: seconds(12),
                unhealthy_edge: seconds(13),
                no_traffic: seconds(60),
                no_traffic_healthy: seconds(61),
            },
            alpn: Vec::new(),
            log: None,
        }
    }

    /// Whether the host is healthy after each outcome, and the pause in seconds.
    fn course(outcomes: &[Outcome]) -> Vec<(bool, u64)> {
        let (config, mut status, mut random) = (config(), HostStatus::new(false), Random::new(1));
        let step = |outcome: &Outcome| {
            let pause = status.conclude(*outcome, &config, true, &mut random);
            (!status.health_flags().failed_check, pause.as_secs())
        };
        outcomes.iter().map(step).collect()
    }

    #[test]
    fn the_first_success_is_enough_and_later_ones_are_counted() {
        assert_eq!(course(&[GOOD]), [(true, 10)]);
        let bad = Outcome::Broken;
        assert_eq!(
            course(&[bad, GOOD, bad, GOOD, GOOD]),
            [(false, 12), (false, 11), (false, 12), (false, 11), (true, 10)]
        );
    }

    #[test]
    fn failures_are_counted_in_a_row() {
        for bad in [Outcome::Broken, Outcome::TimedOut, Outcome::Retriable] {
            assert_eq!(
                course(&[GOOD, bad, bad, GOOD, bad, bad, bad, bad])[1..],
                [
                    (true, 13),
                    (true, 13),
                    (true, 10),
                    (true, 13),
                    (true, 13),
                    (false, 12),
                    (false, 12)
                ]
            );
        }
    }

    #[test]
    fn a_refusal_needs_no_second_one() {
        assert_eq!(course(&[GOOD, Outcome::Refused]), [(true, 10), (false, 12)]);
    }

    #[test]
    fn a_threshold_of_0_counts_as_1() {
        let config = HealthCheck { unhealthy_threshold: 0, healthy_threshold: 0, ..config() };
        let (mut status, mut random) = (HostStatus::new(false), Random::new(1));
        for (outcome, healthy) in [(GOOD, true), (Outcome::Broken, false), (GOOD, true)] {
            status.conclude(outcome, &config, true, &mut random);
            assert_eq!(status.health_flags().failed_check, !healthy);
        }
    }

    #[test]
    fn a_cluster_that_is_not_used_is_left_alone() {
        let (config, mut random) = (config(), Random::new(1));
        let mut pause = |outcome| {
            HostStatus::new(false).conclude(outcome, &config, false, &mut random).as_secs()
        };
        assert_eq!((pause(GOOD), pause(Outcome::Broken)), (61, 60));
    }

    #[test]
    fn jitter_is_added_and_bounded() {
        let jitter = Duration::from_secs(5);
        let config = HealthCheck { jitter, jitter_percent: 50, ..config() };
        let (mut status, mut random) = (HostStatus::new(false), Random::new(1));
        let pauses: Vec<_> =
            (0..1000).map(|_| status.conclude(GOOD, &config, true, &mut random)).collect();
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*least >= Duration::from_secs(10) && *least < Duration::from_secs(12));
        assert!(*most < Duration::from_secs(20) && *most > Duration::from_secs(18));
    }

    #[test]
    fn what_a_check_says_beside_is_kept_until_the_next() {
        let (config, mut status, mut random) = (config(), HostStatus::new(false), Random::new(1));
        let mut after = |outcome| {
            status.conclude(outcome, &config, true, &mut random);
            (status.health_flags().degraded, status.health_flags().timed_out)
        };
        assert_eq!(after(Outcome::Success { degraded: true }), (true, false));
        assert_eq!(after(Outcome::TimedOut), (true, true));
        assert_eq!(after(Outcome::Broken), (true, false));
        assert_eq!(after(GOOD), (false, false));
    }

    #[test]
    fn a_new_host_is_ignored_until_its_first_check_has_ended() {
        for outcome in [GOOD, Outcome::Broken, Outcome::TimedOut] {
            let (mut status, mut random) = (HostStatus::new(true), Random::new(1));
            assert!(status.health_flags().pending && status.health_flags().failed_check);
            status.conclude(outcome, &config(), false, &mut random);
            assert!(!status.health_flags().pending);
            assert_eq!(status.health_flags().failed_check, outcome != GOOD);
        }
        assert!(!HostStatus::new(false).health_flags().pending);
    }
}
