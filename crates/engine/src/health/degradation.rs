//! Hosts whose answers say that others would serve better (`x-envoy-degraded`): they count as degraded for a while,
//! longer each time.

use towpath_proto::Instant;

use super::outlier::Ejection;
use super::status::below;
use crate::random::Random;
use crate::snapshot::health::OutlierDetection;

/// What is known of one host.
#[derive(Debug, Default)]
pub(super) struct Degradation {
    on: Option<Ejection>,
    /// How many base times the next one lasts, less one.
    backoff: u32,
}

impl Degradation {
    /// An answer said so; whether that is news.
    pub(super) fn begin(
        &mut self,
        config: &OutlierDetection,
        random: &mut Random,
        now: Instant,
    ) -> bool {
        if !config.detects_degraded || self.on.is_some() {
            return false;
        }
        let steps = self.backoff + 1;
        let lasts = config.base_time.saturating_mul(steps).min(config.max_time);
        self.on = Some(Ejection { since: now, lasts: lasts + below(config.jitter, random) });
        // It is not counted further than the longest one needs.
        if config.base_time.saturating_mul(steps) < config.max_time + config.base_time {
            self.backoff += 1;
        }
        true
    }

    /// The look once in an interval; whether it is over. Who was not degraded is trusted a little more.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        match self.on {
            Some(on) if now.since(on.since) >= on.lasts => {
                self.on = None;
                true
            }
            Some(_) => false,
            None => {
                self.backoff = self.backoff.saturating_sub(1);
                false
            }
        }
    }

    pub(super) const fn is_on(&self) -> bool {
        self.on.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::snapshot::health::{Comparison, Rule};

    fn config(detects_degraded: bool) -> OutlierDetection {
        let rule = Rule { threshold: 0, enforcing: 0 };
        OutlierDetection {
            errors: rule,
            gateway: rule,
            local: rule,
            split: false,
            interval: Duration::from_secs(1),
            base_time: Duration::from_secs(10),
            max_time: Duration::from_secs(25),
            jitter: Duration::ZERO,
            max_percent: 10,
            always_one: false,
            returns_when_checked: true,
            detects_degraded,
            comparison: Comparison::default(),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn each_lasts_longer_than_the_last_one_up_to_a_bound() {
        let (config, mut random) = (config(true), Random::new(1));
        let mut host = Degradation::default();
        let mut now = 0;
        for lasts in [10, 20, 25, 25, 25] {
            assert!(host.begin(&config, &mut random, at(now)) && host.is_on());
            assert!(!host.begin(&config, &mut random, at(now + 1)), "it is no news");
            assert!(!host.sweep(at(now + lasts - 1)) && host.is_on());
            assert!(host.sweep(at(now + lasts)) && !host.is_on());
            now += 100;
        }
        // Each interval without one takes a step back.
        (0..5).for_each(|_| assert!(!host.sweep(at(now))));
        assert!(host.begin(&config, &mut random, at(now)));
        assert!(host.sweep(at(now + 10)));
    }

    #[test]
    fn nothing_is_detected_that_is_not_asked_for() {
        let mut host = Degradation::default();
        assert!(!host.begin(&config(false), &mut Random::new(1), at(0)) && !host.is_on());
    }
}
