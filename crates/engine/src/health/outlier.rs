//! Which hosts are left out for their answers, and when they come back.
//!
//! Arrives: hosts whose errors in a row reached a threshold, as workers count them. Leaves: who is ejected. The
//! arithmetic is that of Envoy's outlier detector: each ejection of a host lasts longer than its last one, never too
//! many are out at once, and who may come back is decided once in an interval.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_proto::{Address, Instant};

use super::status::below;
use crate::random::Random;
use crate::snapshot::health::{OutlierDetection, Run};
use crate::stats::OutlierStats;

/// The ejections of one cluster.
#[derive(Debug)]
pub(super) struct Detector {
    config: OutlierDetection,
    hosts: BTreeMap<Address, Offender>,
    /// How many are out.
    active: usize,
}

/// A host as far as its ejections go.
#[derive(Debug, Default)]
struct Offender {
    ejected: Option<Ejection>,
    /// How many base times the next ejection lasts, less one.
    backoff: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ejection {
    since: Instant,
    lasts: Duration,
}

impl Detector {
    pub(super) const fn new(config: OutlierDetection) -> Self {
        Self { config, hosts: BTreeMap::new(), active: 0 }
    }

    /// How often [`Detector::sweep`] is wanted.
    pub(super) const fn interval(&self) -> Duration {
        self.config.interval
    }

    /// Knows these hosts, and no others.
    pub(super) fn set_hosts<'a>(&mut self, hosts: impl Iterator<Item = &'a Address>) {
        let mut old = std::mem::take(&mut self.hosts);
        self.hosts =
            hosts.map(|host| (host.clone(), old.remove(host).unwrap_or_default())).collect();
        self.active = self.hosts.values().filter(|host| host.ejected.is_some()).count();
    }

    /// Who is out.
    pub(super) fn ejected(&self) -> impl Iterator<Item = &Address> {
        self.hosts.iter().filter(|(_, host)| host.ejected.is_some()).map(|(host, _)| host)
    }

    pub(super) const fn active(&self) -> usize {
        self.active
    }

    /// A worker saw a host's errors reach a threshold; true if the host is left out for it.
    pub(super) fn note_streak(
        &mut self,
        host: &Address,
        run: Run,
        stats: &OutlierStats,
        random: &mut Random,
        now: Instant,
    ) -> bool {
        let total = self.hosts.len();
        let Some(offender) = self.hosts.get_mut(host) else { return false };
        if offender.ejected.is_some() {
            return false;
        }
        let (rule, detected, enforced) = match run {
            Run::Errors => (
                self.config.errors,
                &stats.detected_consecutive_5xx,
                &stats.enforced_consecutive_5xx,
            ),
            Run::Gateway => (
                self.config.gateway,
                &stats.detected_consecutive_gateway,
                &stats.enforced_consecutive_gateway,
            ),
            Run::Local => (
                self.config.local,
                &stats.detected_consecutive_local,
                &stats.enforced_consecutive_local,
            ),
        };
        detected.inc();
        if run == Run::Errors {
            stats.consecutive_5xx.inc();
        }
        let with_it = (self.active as u64 + 1) * 100;
        let below_limit = with_it <= total as u64 * u64::from(self.config.max_percent);
        if !(below_limit || self.config.always_one && self.active == 0) {
            stats.overflow.inc();
            return false;
        }
        if run == Run::Errors {
            stats.total.inc();
        }
        if random.below(100) >= u64::from(rule.enforcing) {
            return false;
        }
        enforced.inc();
        stats.enforced_total.inc();
        let steps = offender.backoff + 1;
        let lasts = self.config.base_time.saturating_mul(steps).min(self.config.max_time);
        let jitter = below(self.config.jitter, random);
        offender.ejected = Some(Ejection { since: now, lasts: lasts + jitter });
        // It is not counted further than the longest ejection needs.
        let longest = self.config.max_time + self.config.base_time;
        if self.config.base_time.saturating_mul(steps) < longest {
            offender.backoff += 1;
        }
        self.active += 1;
        stats.active.set(self.active as u64);
        true
    }

    /// The look once in an interval; true if a host came back. Who was not out is trusted a little more.
    pub(super) fn sweep(&mut self, stats: &OutlierStats, now: Instant) -> bool {
        let before = self.active;
        for offender in self.hosts.values_mut() {
            match offender.ejected {
                Some(ejection) if now.since(ejection.since) >= ejection.lasts => {
                    offender.ejected = None;
                    self.active -= 1;
                }
                Some(_) => {}
                None => offender.backoff = offender.backoff.saturating_sub(1),
            }
        }
        stats.active.set(self.active as u64);
        self.active < before
    }

    /// A host has passed its health check; true if that brings it back.
    pub(super) fn acquit(&mut self, host: &Address, stats: &OutlierStats) -> bool {
        let Some(offender) = self.hosts.get_mut(host) else { return false };
        if !self.config.returns_when_checked || offender.ejected.take().is_none() {
            return false;
        }
        self.active -= 1;
        stats.active.set(self.active as u64);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::snapshot::health::Rule;

    const SECOND: Duration = Duration::from_secs(1);

    struct Court {
        detector: Detector,
        stats: OutlierStats,
        random: Random,
        now: Instant,
    }

    impl Court {
        fn new(hosts: u8, adjust: impl FnOnce(&mut OutlierDetection)) -> Self {
            let rule = Rule { threshold: 5, enforcing: 100 };
            let mut config = OutlierDetection {
                errors: rule,
                gateway: rule,
                local: rule,
                split: false,
                interval: SECOND,
                base_time: SECOND * 10,
                max_time: SECOND * 35,
                jitter: Duration::ZERO,
                max_percent: 100,
                always_one: false,
                returns_when_checked: true,
            };
            adjust(&mut config);
            let mut detector = Detector::new(config);
            let all: Vec<_> = (1..=hosts).map(host).collect();
            detector.set_hosts(all.iter());
            let (stats, random) = (OutlierStats::default(), Random::new(3));
            Self { detector, stats, random, now: Instant::ZERO }
        }

        fn note_streak(&mut self, number: u8) -> bool {
            let Self { detector, stats, random, now } = self;
            detector.note_streak(&host(number), Run::Errors, stats, random, *now)
        }

        /// How many seconds pass until a host comes back.
        fn seconds_out(&mut self) -> u64 {
            for second in 1..1000 {
                self.now += SECOND;
                if self.detector.sweep(&self.stats, self.now) {
                    return second;
                }
            }
            panic!("no host comes back");
        }
    }

    fn host(number: u8) -> Address {
        Address::Ip(SocketAddr::from(([10, 0, 0, number], 80)))
    }

    #[test]
    fn each_ejection_lasts_longer_up_to_the_longest() {
        let mut court = Court::new(2, |_| {});
        let lengths: Vec<_> = (0..6)
            .map(|_| {
                assert!(court.note_streak(1));
                court.seconds_out()
            })
            .collect();
        assert_eq!(lengths, [10, 20, 30, 35, 35, 35]);
        // Every quiet interval takes one step back.
        for _ in 0..100 {
            court.now += SECOND;
            assert!(!court.detector.sweep(&court.stats, court.now));
        }
        assert!(court.note_streak(1));
        assert_eq!(court.seconds_out(), 10);
    }

    #[test]
    fn too_many_are_never_out_at_once() {
        for (percent, most) in [(0, 0), (24, 0), (25, 1), (49, 1), (50, 2), (100, 4)] {
            let mut court = Court::new(4, |config| config.max_percent = percent);
            let out = (1..=4).filter(|number| court.note_streak(*number)).count();
            assert_eq!(out, most, "{percent} %");
            assert_eq!(court.stats.overflow.value(), 4 - most as u64);
            assert_eq!(court.stats.active.value(), most as u64);
            assert_eq!(court.stats.enforced_total.value(), most as u64);
        }
        let mut court = Court::new(4, |config| (config.max_percent, config.always_one) = (0, true));
        assert!(court.note_streak(1) && !court.note_streak(2));
    }

    #[test]
    fn who_is_out_is_not_accused_again() {
        let mut court = Court::new(2, |_| {});
        assert!(court.note_streak(1) && !court.note_streak(1) && !court.note_streak(9));
        assert_eq!(court.stats.detected_consecutive_5xx.value(), 1);
    }

    #[test]
    fn enforcement_is_a_matter_of_chance() {
        for percent in [0u32, 30, 100] {
            let mut court = Court::new(200, |config| config.errors.enforcing = percent);
            let out = (1..=200).filter(|number| court.note_streak(*number)).count() as u32;
            assert!(out.abs_diff(percent * 2) <= 20 * u32::from(percent == 30), "{percent}: {out}");
            assert_eq!(court.stats.detected_consecutive_5xx.value(), 200);
        }
    }

    #[test]
    fn who_passes_a_check_comes_back_if_that_counts() {
        for counts in [true, false] {
            let mut court = Court::new(2, |config| config.returns_when_checked = counts);
            assert!(court.note_streak(1));
            assert_eq!(court.detector.acquit(&host(1), &court.stats), counts);
            assert_eq!(court.detector.ejected().count(), usize::from(!counts));
            assert!(!court.detector.acquit(&host(2), &court.stats));
        }
    }

    #[test]
    fn who_leaves_the_cluster_is_not_counted() {
        let mut court = Court::new(3, |_| {});
        assert!(court.note_streak(1) && court.note_streak(2));
        let left = [host(2), host(3)];
        court.detector.set_hosts(left.iter());
        assert_eq!(court.detector.active(), 1);
        assert_eq!(court.detector.ejected().collect::<Vec<_>>(), [&host(2)]);
    }
}
