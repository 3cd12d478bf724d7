//! Which hosts are left out for their answers, and when they come back.
//!
//! Arrives: hosts whose errors in a row reached a threshold, and how the attempts on all of them ended, as workers
//! count them. Leaves: hosts that are ejected. The arithmetic is that of Envoy's outlier detector: each ejection of a
//! host lasts longer than its last one, never too many are out at once, and which may come back is decided once in an
//! interval.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use towpath_proto::{Address, Instant};

use super::degradation::Degradation;
use super::event::{Action, Event};
use super::status::below;
use crate::random::Random;
use crate::snapshot::health::{OutlierDetection, Run};
use crate::stats::{Counter, OutlierStats};
use crate::tally::{Counts, Origin, Rates};

/// The ejections of one cluster.
#[derive(Debug)]
pub(super) struct Detector {
    config: OutlierDetection,
    hosts: BTreeMap<Address, Offender>,
    /// How many are out.
    active: usize,
    /// What was not told yet.
    events: Vec<Event>,
}

/// What is found against a host; rates are in whole percent, as they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EjectionType {
    Run(Run),
    /// Its answers say that others would serve better: it is not left out for that.
    Degraded,
    /// Its success rate is too far below the mean.
    Success {
        origin: Origin,
        rate: u32,
        mean: u32,
        threshold: u32,
    },
    /// Too many of its attempts failed.
    Failure {
        origin: Origin,
        rate: u32,
    },
}

/// A host as far as its ejections go.
#[derive(Debug, Default)]
struct Offender {
    ejected: Option<Ejection>,
    /// How many base times the next ejection lasts, less one.
    backoff: u32,
    /// How often it was left out.
    ejections: u32,
    /// When it came back last.
    returned: Option<Instant>,
    /// Its answers say that others would serve better.
    degradation: Degradation,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ejection {
    pub(super) since: Instant,
    pub(super) lasts: Duration,
}

impl Detector {
    pub(super) const fn new(config: OutlierDetection) -> Self {
        Self { config, hosts: BTreeMap::new(), active: 0, events: Vec::new() }
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

    /// Which hosts are out.
    pub(super) fn ejected(&self) -> impl Iterator<Item = &Address> {
        self.hosts.iter().filter(|(_, host)| host.ejected.is_some()).map(|(host, _)| host)
    }

    pub(super) const fn active(&self) -> usize {
        self.active
    }

    /// Whose answers say that others would serve better.
    pub(super) fn degraded(&self) -> impl Iterator<Item = &Address> {
        self.hosts.iter().filter(|(_, host)| host.degradation.is_on()).map(|(host, _)| host)
    }

    /// An answer of a host says that others would serve better; true if that is news.
    pub(super) fn degrade(
        &mut self,
        host: &Address,
        stats: &OutlierStats,
        random: &mut Random,
        now: Instant,
    ) -> bool {
        let Some(offender) = self.hosts.get_mut(host) else { return false };
        if !offender.degradation.begin(&self.config, random, now) {
            return false;
        }
        stats.detected_degradation.inc();
        self.events.push(Event {
            host: host.clone(),
            at: now,
            ejections: offender.ejections,
            since_last: offender.returned.map(|returned| now.since(returned)),
            action: Action::Eject { of_type: EjectionType::Degraded, enforced: true },
        });
        true
    }

    /// What happened since it was asked last.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Compares the hosts that are not out by the attempts of the last interval; true if any is left out for it.
    pub(super) fn compare(
        &mut self,
        counts: &HashMap<Address, [Counts; 2]>,
        stats: &OutlierStats,
        random: &mut Random,
        now: Instant,
    ) -> (bool, Rates) {
        let (mut rates, before) = (Rates::default(), self.active);
        let config = self.config.comparison;
        if self.hosts.len() < config.success_hosts.min(config.failure_hosts) as usize {
            return (false, rates);
        }
        for origin in Origin::ALL {
            let tried: Vec<_> = self
                .hosts
                .iter()
                .filter(|(_, host)| host.ejected.is_none())
                .filter_map(|(host, _)| {
                    let counts = counts.get(host)?[origin as usize];
                    (counts.all > 0).then(|| (host.clone(), counts.all, percent(counts)))
                })
                .collect();
            let enough = config.success_volume.min(config.failure_volume);
            for (host, _, rate) in tried.iter().filter(|tried| tried.1 >= u64::from(enough)) {
                rates.hosts.entry(host.clone()).or_default()[origin as usize] = Some(*rate);
            }
            let with = |volume: u32, hosts: u32| {
                let compared: Vec<_> =
                    tried.iter().filter(|tried| tried.1 >= u64::from(volume)).collect();
                (!compared.is_empty() && compared.len() >= hosts as usize).then_some(compared)
            };
            if let Some(compared) = with(config.success_volume, config.success_hosts) {
                let (mean, threshold) = self.success_threshold(compared.iter().map(|it| it.2));
                rates.averages[origin as usize] = Some(mean);
                rates.thresholds[origin as usize] = Some(threshold);
                for (host, _, rate) in compared.iter().filter(|it| it.2 < threshold) {
                    stats.success.inc();
                    let [rate, mean, threshold] = [*rate, mean, threshold].map(whole);
                    let of_type = EjectionType::Success { origin, rate, mean, threshold };
                    self.eject(host, of_type, stats, random, now);
                }
            }
            if let Some(compared) = with(config.failure_volume, config.failure_hosts) {
                let limit = f64::from(config.failure_percent);
                for (host, _, rate) in compared.iter().filter(|it| 100.0 - it.2 >= limit) {
                    let of_type = EjectionType::Failure { origin, rate: whole(*rate) };
                    self.eject(host, of_type, stats, random, now);
                }
            }
        }
        (self.active > before, rates)
    }

    /// The mean of success rates, and below which one a host is left out.
    fn success_threshold(&self, rates: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let count = rates.clone().count().max(1) as f64;
        let mean = rates.clone().sum::<f64>() / count;
        let variance = rates.map(|rate| (rate - mean).powi(2)).sum::<f64>() / count;
        let factor = f64::from(self.config.comparison.stdev_factor) / 1000.0;
        (mean, mean - factor * variance.sqrt())
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
        self.eject(host, EjectionType::Run(run), stats, random, now)
    }

    /// Leaves a host out for what was found, unless it is out, or too many are, or chance keeps it (`enforcing_…`).
    fn eject(
        &mut self,
        host: &Address,
        of_type: EjectionType,
        stats: &OutlierStats,
        random: &mut Random,
        now: Instant,
    ) -> bool {
        let total = self.hosts.len();
        let Some(offender) = self.hosts.get_mut(host) else { return false };
        if offender.ejected.is_some() {
            return false;
        }
        let (enforcing, detected, enforced) = of_type.consequences(&self.config, stats);
        detected.inc();
        if of_type == EjectionType::Run(Run::Errors) {
            stats.consecutive_5xx.inc();
        }
        let with_it = (self.active as u64 + 1) * 100;
        let below_limit = with_it <= total as u64 * u64::from(self.config.max_percent);
        if !(below_limit || self.config.always_one && self.active == 0) {
            stats.overflow.inc();
            return false;
        }
        if matches!(
            of_type,
            EjectionType::Run(Run::Errors) | EjectionType::Success { origin: Origin::External, .. }
        ) {
            stats.total.inc();
        }
        let enforced_now = random.below(100) < u64::from(enforcing);
        offender.ejections += u32::from(enforced_now);
        self.events.push(Event {
            host: host.clone(),
            at: now,
            ejections: offender.ejections,
            since_last: offender.returned.map(|returned| now.since(returned)),
            action: Action::Eject { of_type, enforced: enforced_now },
        });
        if !enforced_now {
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
        let mut recovered = false;
        for (host, offender) in &mut self.hosts {
            if offender.degradation.sweep(now) {
                recovered = true;
                self.events.push(offender.is_back(host, None, now));
            }
            match offender.ejected {
                Some(ejection) if now.since(ejection.since) >= ejection.lasts => {
                    self.events.extend(offender.come_back(host, now));
                    self.active -= 1;
                }
                Some(_) => {}
                None => offender.backoff = offender.backoff.saturating_sub(1),
            }
        }
        stats.active.set(self.active as u64);
        recovered || self.active < before
    }

    /// A host has passed its health check; true if that brings it back.
    pub(super) fn uneject_checked(
        &mut self,
        host: &Address,
        stats: &OutlierStats,
        now: Instant,
    ) -> bool {
        if !self.config.returns_when_checked {
            return false;
        }
        let Some(offender) = self.hosts.get_mut(host) else { return false };
        let Some(event) = offender.come_back(host, now) else { return false };
        self.events.push(event);
        self.active -= 1;
        stats.active.set(self.active as u64);
        true
    }
}

impl Offender {
    /// It is not out any more, if it was.
    fn come_back(&mut self, host: &Address, now: Instant) -> Option<Event> {
        let ejection = self.ejected.take()?;
        self.returned = Some(now);
        Some(self.is_back(host, Some(now.since(ejection.since)), now))
    }

    fn is_back(&self, host: &Address, since_last: Option<Duration>, now: Instant) -> Event {
        let (host, ejections) = (host.clone(), self.ejections);
        Event { host, at: now, ejections, since_last, action: Action::Return }
    }
}

impl EjectionType {
    /// In how many percent of the cases the host is really left out, and where both is counted.
    fn consequences<'a>(
        self,
        config: &OutlierDetection,
        stats: &'a OutlierStats,
    ) -> (u32, &'a Counter, &'a Counter) {
        let OutlierDetection { errors, gateway, local, comparison, .. } = config;
        let of = |by_origin: [u32; 2], origin| by_origin[origin as usize];
        match self {
            Self::Degraded => (0, &stats.detected_degradation, &stats.enforced_total),
            Self::Run(Run::Errors) => {
                (errors.enforcing, &stats.detected_consecutive_5xx, &stats.enforced_consecutive_5xx)
            }
            Self::Run(Run::Gateway) => (
                gateway.enforcing,
                &stats.detected_consecutive_gateway,
                &stats.enforced_consecutive_gateway,
            ),
            Self::Run(Run::Local) => (
                local.enforcing,
                &stats.detected_consecutive_local,
                &stats.enforced_consecutive_local,
            ),
            Self::Success { origin, .. } => {
                let (detected, enforced) = match origin {
                    Origin::External => (&stats.detected_success, &stats.enforced_success),
                    Origin::Local => (&stats.detected_local_success, &stats.enforced_local_success),
                };
                (of(comparison.enforcing_success, origin), detected, enforced)
            }
            Self::Failure { origin, .. } => {
                let (detected, enforced) = match origin {
                    Origin::External => (&stats.detected_failure, &stats.enforced_failure),
                    Origin::Local => (&stats.detected_local_failure, &stats.enforced_local_failure),
                };
                (of(comparison.enforcing_failure, origin), detected, enforced)
            }
        }
    }
}

fn percent(counts: Counts) -> f64 {
    counts.good as f64 * 100.0 / counts.all as f64
}

/// A rate without its fraction, as events have it.
const fn whole(rate: f64) -> u32 {
    rate as u32
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::snapshot::health::{Comparison, Rule};
    use crate::wall_clock::WallClock;

    const SECOND: Duration = Duration::from_secs(1);

    struct Watched {
        detector: Detector,
        stats: OutlierStats,
        random: Random,
        now: Instant,
    }

    impl Watched {
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
                detects_degraded: false,
                comparison: Comparison::default(),
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
        let mut watched = Watched::new(2, |_| {});
        let lengths: Vec<_> = (0..6)
            .map(|_| {
                assert!(watched.note_streak(1));
                watched.seconds_out()
            })
            .collect();
        assert_eq!(lengths, [10, 20, 30, 35, 35, 35]);
        // Every quiet interval takes one step back.
        for _ in 0..100 {
            watched.now += SECOND;
            assert!(!watched.detector.sweep(&watched.stats, watched.now));
        }
        assert!(watched.note_streak(1));
        assert_eq!(watched.seconds_out(), 10);
    }

    #[test]
    fn too_many_are_never_out_at_once() {
        for (percent, most) in [(0, 0), (24, 0), (25, 1), (49, 1), (50, 2), (100, 4)] {
            let mut watched = Watched::new(4, |config| config.max_percent = percent);
            let out = (1..=4).filter(|number| watched.note_streak(*number)).count();
            assert_eq!(out, most, "{percent} %");
            assert_eq!(watched.stats.overflow.value(), 4 - most as u64);
            assert_eq!(watched.stats.active.value(), most as u64);
            assert_eq!(watched.stats.enforced_total.value(), most as u64);
        }
        let mut watched =
            Watched::new(4, |config| (config.max_percent, config.always_one) = (0, true));
        assert!(watched.note_streak(1) && !watched.note_streak(2));
    }

    #[test]
    fn an_ejected_host_is_not_ejected_again() {
        let mut watched = Watched::new(2, |_| {});
        assert!(watched.note_streak(1) && !watched.note_streak(1) && !watched.note_streak(9));
        assert_eq!(watched.stats.detected_consecutive_5xx.value(), 1);
    }

    #[test]
    fn enforcement_is_a_matter_of_chance() {
        for percent in [0u32, 30, 100] {
            let mut watched = Watched::new(200, |config| config.errors.enforcing = percent);
            let out = (1..=200).filter(|number| watched.note_streak(*number)).count() as u32;
            assert!(out.abs_diff(percent * 2) <= 20 * u32::from(percent == 30), "{percent}: {out}");
            assert_eq!(watched.stats.detected_consecutive_5xx.value(), 200);
        }
    }

    #[test]
    fn who_passes_a_check_comes_back_if_that_counts() {
        for counts in [true, false] {
            let mut watched = Watched::new(2, |config| config.returns_when_checked = counts);
            assert!(watched.note_streak(1));
            assert_eq!(
                watched.detector.uneject_checked(&host(1), &watched.stats, watched.now),
                counts
            );
            assert_eq!(watched.detector.ejected().count(), usize::from(!counts));
            assert!(!watched.detector.uneject_checked(&host(2), &watched.stats, watched.now));
        }
    }

    #[test]
    fn each_step_is_told() {
        let mut watched = Watched::new(2, |config| config.gateway.enforcing = 0);
        let mut clock = WallClock::default();
        clock.set(1_700_000_000_123_000_000);
        assert!(watched.note_streak(1));
        watched.seconds_out();
        assert!(watched.note_streak(1));
        watched.detector.uneject_checked(&host(1), &watched.stats, watched.now);
        let Watched { detector, stats, random, now } = &mut watched;
        assert!(!detector.note_streak(&host(2), Run::Gateway, stats, random, *now));
        let of_type =
            EjectionType::Success { origin: Origin::Local, rate: 1, mean: 99, threshold: 70 };
        detector.eject(&host(2), of_type, stats, random, *now);
        let mut lines = Vec::new();
        for event in watched.detector.take_events() {
            event.write("a \"b\"", &clock, &mut lines);
        }
        assert_eq!(
            String::from_utf8_lossy(&lines),
            r#"{"type":"CONSECUTIVE_5XX","timestamp":"2023-11-14T22:13:20.123Z","cluster_name":"a \"b\""
    ,"upstream_url":"10.0.0.1:80","action":"EJECT","num_ejections":1,"enforced":true
    ,"eject_consecutive_event":{}}
{"type":"CONSECUTIVE_5XX","timestamp":"2023-11-14T22:13:30.123Z","secs_since_last_action":"10"
    ,"cluster_name":"a \"b\""
    ,"upstream_url":"10.0.0.1:80","action":"UNEJECT","num_ejections":1,"enforced":false}
{"type":"CONSECUTIVE_5XX","timestamp":"2023-11-14T22:13:30.123Z","secs_since_last_action":"0"
    ,"cluster_name":"a \"b\""
    ,"upstream_url":"10.0.0.1:80","action":"EJECT","num_ejections":2,"enforced":true
    ,"eject_consecutive_event":{}}
{"type":"CONSECUTIVE_5XX","timestamp":"2023-11-14T22:13:30.123Z","secs_since_last_action":"0"
    ,"cluster_name":"a \"b\""
    ,"upstream_url":"10.0.0.1:80","action":"UNEJECT","num_ejections":2,"enforced":false}
{"type":"CONSECUTIVE_GATEWAY_FAILURE","timestamp":"2023-11-14T22:13:30.123Z","cluster_name":"a \"b\""
    ,"upstream_url":"10.0.0.2:80","action":"EJECT","num_ejections":0,"enforced":false
    ,"eject_consecutive_event":{}}
{"type":"SUCCESS_RATE_LOCAL_ORIGIN","timestamp":"2023-11-14T22:13:30.123Z","cluster_name":"a \"b\""
    ,"upstream_url":"10.0.0.2:80","action":"EJECT","num_ejections":1,"enforced":true
    ,"eject_success_rate_event":{"host_success_rate":1,"cluster_average_success_rate":99
    ,"cluster_success_rate_ejection_threshold":70}}
"#
            .replace("\n    ", "")
        );
        assert!(watched.detector.take_events().is_empty(), "told once");
    }

    #[test]
    fn who_leaves_the_cluster_is_not_counted() {
        let mut watched = Watched::new(3, |_| {});
        assert!(watched.note_streak(1) && watched.note_streak(2));
        let left = [host(2), host(3)];
        watched.detector.set_hosts(left.iter());
        assert_eq!(watched.detector.active(), 1);
        assert_eq!(watched.detector.ejected().collect::<Vec<_>>(), [&host(2)]);
    }

    impl Watched {
        /// Compares hosts that each had so many good attempts of so many; answers who is out then.
        fn compare(&mut self, origin: Origin, tries: &[(u64, u64)]) -> (Vec<u8>, Rates) {
            let counts = (1..).zip(tries).map(|(number, &(good, all))| {
                let mut counts = [Counts::default(); 2];
                counts[origin as usize] = Counts { all, good };
                (host(number), counts)
            });
            let Self { detector, stats, random, now } = self;
            let before = detector.active();
            let (changed, rates) = detector.compare(&counts.collect(), stats, random, *now);
            assert_eq!(changed, detector.active() > before);
            let out = (1..).zip(tries).map(|(number, _)| number);
            (
                out.filter(|number| detector.ejected().any(|it| *it == host(*number))).collect(),
                rates,
            )
        }
    }

    /// Envoy's documentation: the mean less so many standard deviations, here 96 - 1.9 * 8.
    #[test]
    fn who_is_far_below_the_mean_is_left_out() {
        let tries = [(100, 100), (100, 100), (100, 100), (100, 100), (80, 100)];
        let mut watched = Watched::new(5, |_| {});
        let (out, rates) = watched.compare(Origin::External, &tries);
        assert_eq!(out, [5]);
        assert_eq!(rates.averages, [Some(96.0), None]);
        assert!((rates.thresholds[0].unwrap() - 80.8).abs() < 1e-9, "{rates:?}");
        assert_eq!(rates.hosts[&host(5)], [Some(80.0), None]);
        let stats = &watched.stats;
        assert_eq!((stats.detected_success.value(), stats.enforced_success.value()), (1, 1));
        assert_eq!((stats.total.value(), stats.success.value()), (1, 1));
        // A host that is out is not compared, and four are too few.
        assert_eq!(watched.compare(Origin::External, &tries).1.averages, [None, None]);
    }

    #[test]
    fn hosts_are_compared_only_with_enough_tries_on_enough_of_them() {
        for (hosts, all, compared) in [(5, 100, true), (5, 99, false), (4, 100, false)] {
            let mut watched = Watched::new(hosts, |_| {});
            let mut tries = vec![(all, all); hosts.into()];
            tries[0].0 = 0;
            let (out, rates) = watched.compare(Origin::External, &tries);
            assert_eq!(rates.averages[0].is_some(), compared, "{hosts} {all}");
            assert_eq!(out.len(), usize::from(compared));
            // From 50 on a rate is shown.
            assert_eq!(rates.hosts.is_empty(), hosts < 5);
        }
        let mut watched = Watched::new(5, |_| {});
        assert_eq!(watched.compare(Origin::External, &[(0, 49); 5]).1, Rates::default());
    }

    #[test]
    fn who_fails_too_often_is_left_out_where_that_is_wanted() {
        for (origin, enforced) in [(Origin::External, [100, 0]), (Origin::Local, [0, 100])] {
            let mut watched = Watched::new(5, |config| {
                config.comparison.enforcing_failure = enforced;
                config.comparison.enforcing_success = [0, 0];
            });
            let tries = [(10, 50), (7, 50), (50, 50), (50, 50), (50, 50)];
            assert_eq!(watched.compare(origin, &tries).0, [2], "86 % of the second's failed");
            let other = if origin == Origin::Local { Origin::External } else { Origin::Local };
            let mut watched = Watched::new(5, |config| {
                config.comparison.enforcing_failure = enforced;
                config.comparison.enforcing_success = [0, 0];
            });
            assert_eq!(watched.compare(other, &tries).0, [0_u8; 0]);
            let stats = &watched.stats;
            assert_eq!(stats.detected_failure.value() + stats.detected_local_failure.value(), 1);
            assert_eq!(stats.enforced_total.value(), 0);
        }
    }

    #[test]
    fn comparing_leaves_out_no_more_than_the_limit() {
        let mut watched = Watched::new(10, |config| {
            config.max_percent = 20;
            config.comparison.enforcing_failure = [100, 0];
            config.comparison.enforcing_success = [0, 0];
        });
        assert_eq!(watched.compare(Origin::External, &[(0, 100); 10]).0, [1, 2]);
        assert_eq!(watched.stats.overflow.value(), 8);
    }
}
