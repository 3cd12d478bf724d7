//! The overload manager: measures resources on the control thread, and says what workers shall do about it.

mod meter;

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_engine::snapshot::overload::{Action, Levels, Overload, Resource};
use towpath_engine::stats::{
    LoadShedStats, OverloadActionStats, OverloadStats, ProactiveResourceStats, Registry,
    ResourceStats, Scope, ShrinkStats,
};
use towpath_io::memory;

use self::meter::Meter;
use crate::server_stats::CONTROL;

/// What is measured, how much it is, and what it comes to.
#[derive(Debug)]
pub(crate) struct Manager {
    config: Arc<Overload>,
    monitors: Vec<Monitor>,
    stats: Arc<OverloadStats>,
    actions: Vec<ActionStats>,
    points: Vec<Arc<LoadShedStats>>,
    /// What workers were told last.
    told: Option<Levels>,
    refreshed: Instant,
    /// When memory is given back next, if the action is on then.
    shrink_at: Instant,
}

#[derive(Debug)]
struct Monitor {
    name: String,
    meter: Meter,
    stats: MonitorStats,
    pressure: Option<f64>,
}

#[derive(Debug)]
enum MonitorStats {
    Measured(Arc<ResourceStats>),
    Counted(Arc<ProactiveResourceStats>),
}

/// A scope has one set.
#[derive(Debug)]
enum ActionStats {
    Plain(Arc<OverloadActionStats>),
    Shrink(Arc<ShrinkStats>),
}

impl ActionStats {
    fn new(action: Action, registry: &Registry) -> Self {
        let scope = Scope::Overload(Arc::from(action.name()));
        if action == Action::ShrinkHeap {
            Self::Shrink(registry.set(CONTROL, scope))
        } else {
            Self::Plain(registry.set(CONTROL, scope))
        }
    }

    fn show(&self, level: f64) {
        let (active, scale_percent) = match self {
            Self::Plain(stats) => (&stats.active, &stats.scale_percent),
            Self::Shrink(stats) => (&stats.active, &stats.scale_percent),
        };
        active.set(u64::from(level >= 1.0));
        scale_percent.set(scale(level));
    }
}

impl Manager {
    pub(crate) fn new(config: Arc<Overload>, registry: &Registry, now: Instant) -> Self {
        let scope = |name: &str| Scope::Overload(Arc::from(name));
        let monitors = config.monitors.iter().map(|monitor| Monitor {
            name: monitor.name.clone(),
            meter: Meter::new(monitor.of.clone()),
            stats: match monitor.of {
                Resource::Connections { .. } => {
                    MonitorStats::Counted(registry.set(CONTROL, scope(&monitor.name)))
                }
                Resource::Heap { .. }
                | Resource::Injected { .. }
                | Resource::Processors { .. }
                | Resource::CgroupMemory { .. } => {
                    MonitorStats::Measured(registry.set(CONTROL, scope(&monitor.name)))
                }
            },
            pressure: None,
        });
        let actions = config.actions.iter().map(|(it, _)| ActionStats::new(*it, registry));
        let points = config.points.iter().map(|(it, _)| registry.set(CONTROL, scope(it.name())));
        Self {
            monitors: monitors.collect(),
            stats: registry.set(CONTROL, scope("")),
            actions: actions.collect(),
            points: points.collect(),
            told: None,
            refreshed: now,
            shrink_at: now + config.shrink.interval,
            config,
        }
    }

    /// Whether it goes by this.
    pub(crate) fn is_of(&self, config: &Overload) -> bool {
        *self.config == *config
    }

    /// Measures everything; answers what workers are to be told, if it is news. `open` is how many downstream
    /// connections there are.
    pub(crate) fn refresh(&mut self, open: u64, now: Instant) -> Option<Levels> {
        for monitor in &mut self.monitors {
            monitor.refresh(open, now);
        }
        let pressures: Vec<_> = self.monitors.iter().map(|monitor| monitor.pressure).collect();
        let levels = self.config.levels(&pressures);
        for ((action, _), stats) in self.config.actions.iter().zip(&self.actions) {
            stats.show(levels.action(*action));
        }
        for ((point, _), stats) in self.config.points.iter().zip(&self.points) {
            stats.scale_percent.set(scale(levels.point(*point)));
        }
        let delay = now.duration_since(self.refreshed);
        self.stats
            .refresh_interval_delay
            .record(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        self.refreshed = now;
        self.shrink(levels.action(Action::ShrinkHeap) >= 1.0, now);
        // Workers whose streams may be reset say each time what they hold.
        let asks = self.config.actions.iter().any(|(action, _)| *action == Action::ResetStreams);
        (asks || self.told != Some(levels)).then(|| {
            self.told = Some(levels);
            levels
        })
    }

    /// Gives memory back, when it is time to.
    fn shrink(&mut self, is_on: bool, now: Instant) {
        if self.shrink_at > now {
            return;
        }
        self.shrink_at = now + self.config.shrink.interval;
        let stats = self.actions.iter().find_map(|stats| match stats {
            ActionStats::Shrink(stats) => Some(stats),
            ActionStats::Plain(_) => None,
        });
        if let Some(stats) = stats.filter(|_| is_on) {
            memory::trim();
            stats.shrink_count.inc();
        }
    }

    pub(crate) fn interval(&self) -> Duration {
        self.config.refresh_interval
    }
}

impl Monitor {
    fn refresh(&mut self, open: u64, now: Instant) {
        match self.meter.read(open, now) {
            Ok(pressure) => {
                self.pressure = Some(pressure);
                match &self.stats {
                    MonitorStats::Measured(stats) => stats.pressure.set(percent(pressure)),
                    MonitorStats::Counted(stats) => stats.pressure.set(percent(pressure)),
                }
            }
            // What was measured last holds on.
            Err(why) => {
                crate::log!(Main, Debug, "cannot measure {}: {why}", self.name);
                match &self.stats {
                    MonitorStats::Measured(stats) => stats.failed_updates.inc(),
                    MonitorStats::Counted(stats) => stats.failed_updates.inc(),
                }
            }
        }
    }
}

/// A level as a gauge has it: Envoy's are single floats.
fn scale(level: f64) -> u64 {
    (level as f32 * 100.0) as u64
}

/// A pressure as a gauge has it.
fn percent(part: f64) -> u64 {
    (part * 100.0) as u64
}

/// An empty folder of a test's own.
#[cfg(test)]
fn folder(name: &str) -> std::path::PathBuf {
    let name = format!("towpath-overload-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    folder
}

#[cfg(test)]
mod tests {
    use towpath_engine::snapshot::overload::{Monitor, Trigger};

    use super::*;

    #[test]
    fn workers_are_told_of_news_alone_and_a_file_that_is_gone_changes_nothing() {
        let folder = folder("told");
        let file = folder.join("pressure");
        let config = Overload {
            refresh_interval: Duration::from_millis(10),
            monitors: vec![Monitor {
                name: "injected".to_owned(),
                of: Resource::Injected { file: file.clone() },
            }],
            actions: vec![(
                Action::StopRequests,
                vec![Trigger { monitor: 0, from: 0.5, full: 0.9 }],
            )],
            ..Overload::default()
        };
        let registry = Registry::default();
        let now = Instant::now();
        let mut manager = Manager::new(Arc::new(config), &registry, now);
        let level = |levels: Option<Levels>| levels.map(|it| it.action(Action::StopRequests));
        assert_eq!(level(manager.refresh(0, now)), Some(0.0), "workers may know of another file");
        std::fs::write(&file, "0.7").unwrap();
        let half = level(manager.refresh(0, now)).unwrap();
        assert!((half - 0.5).abs() < 1e-9, "{half}");
        assert_eq!(level(manager.refresh(0, now)), None);
        std::fs::write(&file, "1").unwrap();
        assert_eq!(level(manager.refresh(0, now)), Some(1.0));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(level(manager.refresh(0, now)), None);
        let MonitorStats::Measured(stats) = &manager.monitors[0].stats else { panic!("counted") };
        assert_eq!((stats.failed_updates.value(), stats.pressure.value()), (2, 100));
        let ActionStats::Plain(stats) = &manager.actions[0] else {
            panic!("it gives no memory back")
        };
        assert_eq!((stats.active.value(), stats.scale_percent.value()), (1, 100));
    }

    #[test]
    fn memory_is_given_back_at_intervals_as_long_as_it_is_wanted() {
        let file = folder("shrink").join("pressure");
        std::fs::write(&file, "1").unwrap();
        let monitor =
            Monitor { name: "injected".to_owned(), of: Resource::Injected { file: file.clone() } };
        let trigger = Trigger { monitor: 0, from: 0.5, full: 0.5 };
        let config = Overload {
            monitors: vec![monitor],
            actions: vec![(Action::ShrinkHeap, vec![trigger])],
            ..Overload::default()
        };
        let now = Instant::now();
        let mut manager = Manager::new(Arc::new(config), &Registry::default(), now);
        let mut count_at = |seconds| {
            manager.refresh(0, now + Duration::from_secs(seconds));
            let ActionStats::Shrink(stats) = &manager.actions[0] else { panic!("it does") };
            stats.shrink_count.value()
        };
        assert_eq!([count_at(1), count_at(10), count_at(15), count_at(20)], [0, 1, 1, 2]);
        std::fs::write(&file, "0").unwrap();
        assert_eq!(count_at(40), 2);
    }
}
