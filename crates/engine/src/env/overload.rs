//! What the process's load asks of a worker: refusing, ending and putting off.
//!
//! Arrives: [`Levels`] from the control thread. Leaves: yes or no, by chance where a level is neither 0 nor 1. Without
//! an overload manager nothing here is there, and each place that asks costs one comparison.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Instant;

use crate::env::Env;
use crate::random::Random;
use crate::snapshot::Listener;
use crate::snapshot::overload::{self, Action, Levels, Point, ScaledTime, Track};
use crate::stats::{HighMemoryStats, LoadShedStats, Scope};

/// What the control thread said last.
#[derive(Debug)]
pub(crate) struct Overload {
    levels: Levels,
    points: [Option<Arc<LoadShedStats>>; Point::ALL.len()],
    config: Arc<overload::Overload>,
    /// Where streams that hold most are reset.
    pub(crate) high_memory: Option<Arc<HighMemoryStats>>,
    /// Listening sockets are left alone.
    pub(crate) is_holding: bool,
}

impl Overload {
    /// Whether an action is wholly on.
    pub(crate) fn is_full(&self, action: Action) -> bool {
        self.levels.action(action) >= 1.0
    }

    /// Which streams are looked at.
    pub(crate) fn track(&self) -> Track {
        self.config.track
    }

    #[cold]
    fn reduced(&self, time: ScaledTime, whole: Duration, level: f64) -> Duration {
        let floor = self.config.floors[time as usize];
        floor.map_or(whole, |floor| floor.reduce(whole, level))
    }

    fn has(&self, point: Point) -> bool {
        self.points[point as usize].is_some()
    }

    fn acts(&self, action: Action, random: &mut Random) -> bool {
        happens(self.levels.action(action), random)
    }

    fn sheds(&self, point: Point, random: &mut Random) -> bool {
        let Some(stats) = &self.points[point as usize] else { return false };
        let sheds = happens(self.levels.point(point), random);
        if sheds {
            stats.shed_load_count.inc();
        }
        sheds
    }
}

/// What a time was, and what it is, as it is reduced by another share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    old: Duration,
    new: Duration,
}

impl Moved {
    /// When what was to end then ends now.
    pub(crate) fn deadline(self, before: Instant, now: Instant) -> Instant {
        // What would be over already is over now.
        now + (before - now + self.new).saturating_sub(self.old)
    }

    /// The time as it is.
    pub(crate) const fn now(self) -> Duration {
        self.new
    }
}

/// Chance has it with this probability.
fn happens(probability: f64, random: &mut Random) -> bool {
    if probability <= 0.0 || probability >= 1.0 {
        return probability >= 1.0;
    }
    // 32 bits are exact in a double.
    let drawn = (random.next() >> 32) as f64;
    drawn < probability * f64::from(u32::MAX)
}

impl Env {
    /// Takes the overload manager of a snapshot.
    pub(crate) fn take_overload(&mut self, config: Option<&Arc<overload::Overload>>) {
        let Some(config) = config else {
            self.overload = None;
            return;
        };
        if self.overload.as_ref().is_some_and(|before| Arc::ptr_eq(&before.config, config)) {
            return;
        }
        let before = self.overload.take();
        let mut points = [const { None }; Point::ALL.len()];
        for (point, _) in &config.points {
            let scope = Scope::Overload(Arc::from(point.name()));
            points[*point as usize] = Some(self.registry.set(self.index, scope));
        }
        let (levels, is_holding) =
            before.map_or_else(Default::default, |before| (before.levels, before.is_holding));
        let resets = config.actions.iter().any(|(action, _)| *action == Action::ResetStreams);
        let high_memory = resets.then(|| self.registry.set(self.index, Scope::HighMemory));
        let config = Arc::clone(config);
        let overload = Overload { levels, points, config, high_memory, is_holding };
        self.overload = Some(Box::new(overload));
    }

    /// The load has changed; answers how much streams are to be reset, if that has.
    pub(crate) fn set_levels(&mut self, levels: Levels) -> Option<f64> {
        let overload = self.overload.as_mut()?;
        let before = std::mem::replace(&mut overload.levels, levels);
        let [before, level] = [before, levels].map(|it| it.action(Action::ResetStreams));
        ((level - before).abs() > 0.0).then_some(level)
    }

    /// How much times are reduced.
    pub(crate) fn reduction(&self) -> f64 {
        let overload = self.overload.as_ref();
        overload.map_or(0.0, |overload| overload.levels.action(Action::ReduceTimeouts))
    }

    /// How long a client's connection may be idle, of what its configuration allows.
    pub(crate) fn idle_of(&self, whole: Option<Duration>) -> Option<Duration> {
        whole.map(|whole| self.reduced(ScaledTime::ConnectionIdle, whole))
    }

    /// What is left of a time that its configuration allows.
    #[inline]
    pub(crate) fn reduced(&self, time: ScaledTime, whole: Duration) -> Duration {
        match &self.overload {
            Some(overload) => overload.reduced(time, whole, self.reduction()),
            None => whole,
        }
    }

    /// What became of a time that was reduced by so much `before`, if that has changed.
    pub(crate) fn moved(&self, time: ScaledTime, whole: Duration, before: f64) -> Option<Moved> {
        let overload = self.overload.as_ref()?;
        let [old, new] =
            [before, self.reduction()].map(|level| overload.reduced(time, whole, level));
        (old != new).then_some(Moved { old, new })
    }

    /// Whether clients that connect to a listener are turned away.
    #[inline]
    pub(crate) fn rejects_client(&mut self, listener: &Listener) -> bool {
        self.overload.is_some() && self.rejects_by_chance(listener)
    }

    #[cold]
    fn rejects_by_chance(&mut self, listener: &Listener) -> bool {
        let Some(overload) = &self.overload else { return false };
        let is_internal = listener.addresses.iter().any(|address| address.internal().is_some());
        if listener.bypasses_overload || is_internal {
            return false;
        }
        overload.sheds(Point::Accept, &mut self.random)
            || overload.acts(Action::RejectConnections, &mut self.random)
    }

    /// Whether load may be shed with the first bytes of a connection, or with all.
    pub(crate) fn may_shed_bytes(&self, listener: &Listener) -> bool {
        let overload = self.overload.as_ref().filter(|_| !listener.bypasses_overload);
        overload.is_some_and(|overload| {
            overload.has(Point::CreateCodec)
                || Point::OF_DISPATCH.iter().any(|it| overload.has(*it))
        })
    }

    /// Whether load may be shed with all that comes on a connection.
    pub(crate) fn may_shed_all_bytes(&self, listener: &Listener) -> bool {
        let overload = self.overload.as_ref().filter(|_| !listener.bypasses_overload);
        overload.is_some_and(|overload| Point::OF_DISPATCH.iter().any(|it| overload.has(*it)))
    }

    /// Whether load is shed at one of the points that look at all that comes.
    #[cold]
    pub(crate) fn sheds_bytes(&mut self, point: Point, listener: &Listener) -> bool {
        let overload = self.overload.as_ref().filter(|_| !listener.bypasses_overload);
        overload.is_some_and(|overload| overload.sheds(point, &mut self.random))
    }

    /// Whether it is.
    #[cold]
    pub(crate) fn sheds_first_bytes(&mut self, listener: &Listener) -> bool {
        let overload = self.overload.as_ref().filter(|_| !listener.bypasses_overload);
        overload.is_some_and(|overload| overload.sheds(Point::CreateCodec, &mut self.random))
    }

    /// Whether a request to a listener is refused.
    #[cold]
    pub(crate) fn refuses_request(&mut self, listener: &Listener) -> bool {
        let Some(overload) = self.overload.as_ref().filter(|_| !listener.bypasses_overload) else {
            return false;
        };
        overload.sheds(Point::DecodeHeaders, &mut self.random)
            || overload.acts(Action::StopRequests, &mut self.random)
    }

    /// Whether a request to a listener is refused where its host is known.
    #[cold]
    pub(crate) fn refuses_at_host(&mut self, listener: &Listener) -> bool {
        let overload = self.overload.as_ref().filter(|_| !listener.bypasses_overload);
        overload.is_some_and(|overload| overload.sheds(Point::FilterCheck, &mut self.random))
    }

    /// Whether a connection to a host is not made.
    #[inline]
    pub(crate) fn sheds_connection(&mut self) -> bool {
        let overload = self.overload.as_ref();
        overload.is_some_and(|overload| overload.sheds(Point::NewConnection, &mut self.random))
    }

    /// Whether a connection of a listener ends with its response.
    #[cold]
    pub(crate) fn ends_keep_alive(&mut self, listener: &Listener) -> bool {
        let Some(overload) = self.overload.as_ref().filter(|_| !listener.bypasses_overload) else {
            return false;
        };
        overload.acts(Action::DisableKeepAlive, &mut self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_as_often_as_the_level_says() {
        let mut random = Random::new(7);
        let mut count = |level| (0..10_000).filter(|_| happens(level, &mut random)).count();
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        let quarter = count(0.25);
        assert!((2300..2700).contains(&quarter), "{quarter}");
    }
}
