//! What a worker counts of a host's errors, for outlier detection.
//!
//! Arrives: statuses of answers, connects that were made or failed, streams that came to nothing. Leaves: word to the
//! monitor when a run of errors reaches its threshold. What is an error follows Envoy's router and TCP proxy.

use crate::env::Env;
use crate::ids::PoolKey;
use crate::message::FromWorker;
use crate::snapshot::health::{OutlierDetection, Run};
use crate::tally::Origin;
use crate::upstream::Upstreams;
use crate::upstream::cluster::ClusterState;
use crate::upstream::clusters::Clusters;

/// A host's errors in a row, as one worker saw them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorStreak {
    pub(crate) errors: u32,
    pub(crate) gateway: u32,
    pub(crate) local: u32,
}

/// What came of an attempt, as far as the host is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostOutcome {
    /// It answered with this status.
    Answered(u16),
    /// A connection to it was made, and nothing will be answered on it: opaque bytes.
    Served,
    /// A connection to it was made or found.
    Reached,
    /// No connection, or one that was lost.
    Lost,
    /// No answer in time; the client was answered with this status.
    Late(u16),
}

impl HostOutcome {
    /// Whose doing it is, and whether it is no failure; `None` if it says nothing. Envoy's `putResult`.
    fn judged(self, split: bool) -> Option<(Origin, bool)> {
        let local = if split { Origin::Local } else { Origin::External };
        match self {
            Self::Answered(status) => Some((Origin::External, status < 500)),
            Self::Served => Some((local, true)),
            Self::Reached => split.then_some((local, true)),
            Self::Lost => Some((local, false)),
            Self::Late(status) => Some((local, !split && status < 500)),
        }
    }
}

impl ErrorStreak {
    /// Takes a sign in; answers the runs that reached their thresholds.
    pub(crate) fn take(
        &mut self,
        sign: HostOutcome,
        config: &OutlierDetection,
    ) -> [Option<Run>; 2] {
        match (sign, config.split) {
            (HostOutcome::Answered(status), _) => self.answered(status, config),
            (HostOutcome::Served, false) => self.answered(200, config),
            (HostOutcome::Reached, false) => [None, None],
            (HostOutcome::Lost, false) => self.answered(503, config),
            (HostOutcome::Late(status), false) => self.answered(status, config),
            (HostOutcome::Served | HostOutcome::Reached, true) => {
                self.local = 0;
                [None, None]
            }
            (HostOutcome::Lost | HostOutcome::Late(_), true) => {
                [reaches(&mut self.local, config.local.threshold, Run::Local), None]
            }
        }
    }

    pub(crate) fn answered(&mut self, status: u16, config: &OutlierDetection) -> [Option<Run>; 2] {
        if status < 500 {
            (self.errors, self.gateway) = (0, 0);
            return [None, None];
        }
        let gateway = if matches!(status, 502..=504) {
            reaches(&mut self.gateway, config.gateway.threshold, Run::Gateway)
        } else {
            self.gateway = 0;
            None
        };
        [gateway, reaches(&mut self.errors, config.errors.threshold, Run::Errors)]
    }
}

/// One more in a row. The next run begins when the threshold is reached.
pub(crate) fn reaches(count: &mut u32, threshold: u32, run: Run) -> Option<Run> {
    *count = count.saturating_add(1);
    (*count == threshold).then(|| {
        *count = 0;
        run
    })
}

impl ClusterState {
    /// Forgets the errors of a host that came back.
    pub(crate) fn forgive(&mut self, pool: u32) {
        if let Some(Some(pool)) = self.pools.get_mut(pool as usize) {
            pool.error_streak = ErrorStreak::default();
        }
    }
}

impl Clusters {
    /// Whether something is learnt from what the host of a pool answers.
    pub(crate) fn watches_answers(&self, pool_key: PoolKey) -> bool {
        self.get(pool_key.cluster)
            .is_some_and(|cluster| cluster.config.outliers.is_some() || cluster.weigh_at.is_some())
    }

    /// Whether the host of a pool counts as degraded when its answers say so.
    pub(crate) fn detects_degraded(&self, pool_key: PoolKey) -> bool {
        let outliers =
            self.get(pool_key.cluster).and_then(|cluster| cluster.config.outliers.as_ref());
        outliers.is_some_and(|outliers| outliers.detects_degraded)
    }
}

impl Upstreams {
    /// Notes what came of an attempt on a host.
    #[inline]
    pub(crate) fn note(&mut self, pool_key: PoolKey, sign: HostOutcome, env: &mut Env) {
        if self
            .clusters
            .get(pool_key.cluster)
            .is_some_and(|cluster| cluster.config.outliers.is_some())
        {
            self.note_watched(pool_key, sign, env);
        }
    }

    /// An answer without an error said that others than its host would serve better.
    #[cold]
    pub(crate) fn note_degraded(&self, pool_key: PoolKey, status: u16, env: &mut Env) {
        let Some(cluster) = self.clusters.get(pool_key.cluster) else { return };
        if status >= 500 {
            return;
        }
        let Some(pool) = cluster.pool(pool_key) else { return };
        let host = pool.host.and_then(|host| cluster.hosts.get(host as usize));
        if host.is_some_and(|host| !host.health_flags.degraded_by_answers) {
            let host = pool.address.clone();
            env.tell(FromWorker::Degraded { cluster: pool_key.cluster, host });
        }
    }

    #[cold]
    pub(crate) fn note_watched(&mut self, pool_key: PoolKey, sign: HostOutcome, env: &mut Env) {
        let Some(cluster) = self.clusters.get_mut(pool_key.cluster) else { return };
        let Some(config) = cluster.config.outliers.as_deref().copied() else { return };
        let Some(pool) = cluster.pool_mut(pool_key) else { return };
        if let Some(tally) = &pool.tally
            && let Some((origin, is_good)) = sign.judged(config.split)
        {
            tally.count(origin, is_good);
        }
        let runs = pool.error_streak.take(sign, &config);
        let host = pool.address.clone();
        for run in runs.into_iter().flatten() {
            let streak =
                FromWorker::ErrorStreak { cluster: pool_key.cluster, host: host.clone(), run };
            env.tell(streak);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::snapshot::health::{Comparison, Rule};

    fn config(split: bool) -> OutlierDetection {
        let rule = |threshold| Rule { threshold, enforcing: 100 };
        OutlierDetection {
            errors: rule(3),
            gateway: rule(2),
            local: rule(2),
            split,
            interval: Duration::from_secs(1),
            base_time: Duration::from_secs(1),
            max_time: Duration::from_secs(1),
            jitter: Duration::ZERO,
            max_percent: 100,
            always_one: false,
            returns_when_checked: true,
            detects_degraded: false,
            comparison: Comparison::default(),
        }
    }

    fn course(split: bool, signs: &[HostOutcome]) -> Vec<Run> {
        let (config, mut error_streak) = (config(split), ErrorStreak::default());
        signs.iter().flat_map(|sign| error_streak.take(*sign, &config)).flatten().collect()
    }

    #[test]
    fn errors_in_a_row_are_counted_and_any_other_answer_ends_the_row() {
        use HostOutcome::Answered;
        assert_eq!(course(false, &[Answered(500); 3]), [Run::Errors]);
        assert_eq!(course(false, &[Answered(500); 6]), [Run::Errors; 2]);
        assert_eq!(
            course(false, &[Answered(500), Answered(501), Answered(404), Answered(500)]),
            []
        );
        assert_eq!(course(false, &[Answered(503); 3]), [Run::Gateway, Run::Errors]);
        assert_eq!(course(false, &[Answered(503), Answered(500), Answered(503)]), [Run::Errors]);
    }

    #[test]
    fn what_is_lost_counts_as_an_answer_unless_it_is_told_apart() {
        use HostOutcome::{Answered, Late, Lost, Reached, Served};
        assert_eq!(course(false, &[Lost, Late(504), Lost]), [Run::Gateway, Run::Errors]);
        assert_eq!(course(false, &[Lost, Reached, Lost]), [Run::Gateway]);
        assert_eq!(course(false, &[Lost, Served, Lost]), []);
        assert_eq!(course(true, &[Lost, Late(504)]), [Run::Local]);
        assert_eq!(course(true, &[Lost, Reached, Lost]), []);
        assert_eq!(course(true, &[Answered(503), Reached, Answered(503)]), [Run::Gateway]);
    }

    #[test]
    fn what_is_lost_is_a_failed_answer_unless_it_is_told_apart() {
        use HostOutcome::{Answered, Late, Lost, Reached, Served};
        use Origin::{External, Local};
        for (outcome, together, apart) in [
            (Answered(499), Some((External, true)), Some((External, true))),
            (Answered(500), Some((External, false)), Some((External, false))),
            (Served, Some((External, true)), Some((Local, true))),
            (Reached, None, Some((Local, true))),
            (Lost, Some((External, false)), Some((Local, false))),
            (Late(504), Some((External, false)), Some((Local, false))),
            (Late(204), Some((External, true)), Some((Local, false))),
        ] {
            assert_eq!((outcome.judged(false), outcome.judged(true)), (together, apart));
        }
    }

    #[test]
    fn a_threshold_of_0_is_never_reached() {
        let mut config = config(false);
        config.errors.threshold = 0;
        let mut error_streak = ErrorStreak::default();
        for _ in 0..1000 {
            assert_eq!(error_streak.take(HostOutcome::Answered(500), &config), [None, None]);
        }
    }
}
