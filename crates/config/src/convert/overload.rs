//! The overload manager: what it measures and what is done about it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::overload::{
    Action, Floor, Monitor, Overload, Point, Resource, ScaledTime, Shrink, Track, Trigger,
};

use super::Converter;
use super::extension::RESOURCE_MONITOR;
use crate::message::Message;

const DOWNSTREAM_CONNECTIONS: &str =
    "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig";
const FIXED_HEAP: &str = "envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig";
const INJECTED: &str =
    "envoy.extensions.resource_monitors.injected_resource.v3.InjectedResourceConfig";
const PROCESSORS: &str =
    "envoy.extensions.resource_monitors.cpu_utilization.v3.CpuUtilizationConfig";
const CGROUP_MEMORY: &str =
    "envoy.extensions.resource_monitors.cgroup_memory.v3.CgroupMemoryConfig";
const SCALE_TIMERS: &str = "envoy.config.overload.v3.ScaleTimersOverloadActionConfig";
const SHRINK_HEAP: &str = "envoy.config.overload.v3.ShrinkHeapConfig";

/// The name that makes a monitor one of connections, for Envoy.
const CONNECTIONS: &str = "envoy.resource_monitors.global_downstream_max_connections";
/// `refresh_interval` where it is not set.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// No shorter one is of use.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

impl Converter<'_> {
    /// The overload manager, and the limit on downstream connections that may be elsewhere.
    pub(super) fn overload(&mut self, bootstrap: &Message) {
        let of_runtime = self.runtime.number("overload.global_downstream_max_connections");
        self.snapshot.max_connections = of_runtime;
        let Some(manager) = bootstrap.message("overload_manager") else { return };
        let refresh_interval = manager.duration("refresh_interval").unwrap_or(REFRESH_INTERVAL);
        let mut overload = Overload {
            refresh_interval: refresh_interval.max(LEAST_INTERVAL),
            ..Overload::default()
        };
        for message in manager.messages("resource_monitors") {
            let Some(monitor) = self.resource_monitor(message) else { continue };
            if overload.monitors.iter().any(|other| other.name == monitor.name) {
                let name = &monitor.name;
                self.report.problem(&message.at, format!("a second resource monitor `{name}`"));
                continue;
            }
            if let Resource::Connections { max } = monitor.of {
                self.snapshot.max_connections = Some(max);
            }
            overload.monitors.push(monitor);
        }
        let factory = manager.message("buffer_factory_config");
        let power = factory.and_then(|it| it.number("minimum_account_to_track_power_of_two"));
        overload.track = Track(power.and_then(|power| u8::try_from(power).ok()).unwrap_or(0));
        for message in manager.messages("actions") {
            self.overload_action(message, &mut overload);
        }
        for message in manager.messages("loadshed_points") {
            self.shed_point(message, &mut overload);
        }
        self.snapshot.overload = Some(Arc::new(overload));
    }

    fn resource_monitor(&mut self, message: &Message) -> Option<Monitor> {
        let known = [DOWNSTREAM_CONNECTIONS, FIXED_HEAP, INJECTED, PROCESSORS, CGROUP_MEMORY];
        let (config, at) = self.extension(message, RESOURCE_MONITOR, &known)?;
        let name = message.text("name").to_owned();
        let of = match config.descriptor.full_name() {
            FIXED_HEAP => {
                let max = config.number("max_heap_size_bytes").unwrap_or(0);
                if max == 0 {
                    self.report.problem(at, "`max_heap_size_bytes` must be greater than 0");
                    return None;
                }
                Resource::Heap { max }
            }
            INJECTED => Resource::Injected { file: PathBuf::from(config.text("filename")) },
            PROCESSORS => {
                Resource::Processors { of_container: config.choice("mode") == "CONTAINER" }
            }
            CGROUP_MEMORY => Resource::CgroupMemory {
                max: config.number("max_memory_bytes").filter(|max| *max > 0),
            },
            _ => Resource::Connections {
                max: config.number("max_active_downstream_connections").unwrap_or(0),
            },
        };
        let is_named = name == CONNECTIONS;
        if is_named != matches!(of, Resource::Connections { .. }) {
            let problem = format!(
                "`{CONNECTIONS}` is the name of the monitor of connections, and of no other"
            );
            self.report.problem(message.at("name"), problem);
            return None;
        }
        Some(Monitor { name, of })
    }

    fn overload_action(&mut self, message: &Message, overload: &mut Overload) {
        let name = message.text("name");
        let known = Action::ALL.into_iter().find(|action| action.name() == name);
        let Some(action) = known else {
            let problem = format!("there is no overload action `{name}`");
            return self.report.problem(message.at("name"), problem);
        };
        if overload.actions.iter().any(|(other, _)| *other == action) {
            self.report.problem(message.at("name"), format!("a second overload action `{name}`"));
            return;
        }
        if action == Action::ResetStreams && overload.track == Track::default() {
            self.report
                .problem(message.at("name"), format!("`{name}` wants a `buffer_factory_config`"));
            return;
        }
        let has_own = [Action::ResetStreams, Action::ReduceTimeouts].contains(&action);
        if action == Action::ReduceTimeouts {
            self.reduced_times(message, overload);
        } else if let Some((any, at)) = message.any("typed_config").filter(|_| !has_own) {
            if action != Action::ShrinkHeap {
                self.report.problem(at, format!("`{name}` has no configuration"));
                return;
            }
            match any.message.as_ref().filter(|_| any.name == SHRINK_HEAP) {
                Some(config) => {
                    self.accept(config);
                    if let Some(interval) = config.duration("timer_interval") {
                        overload.shrink = Shrink { interval };
                    }
                }
                None => self.report.problem(at, format!("`{name}` wants a {SHRINK_HEAP}")),
            }
        }
        let triggers = self.triggers(message, &overload.monitors, true);
        overload.actions.push((action, triggers));
    }

    /// Which times are reduced, and how far.
    fn reduced_times(&mut self, message: &Message, overload: &mut Overload) {
        let Some((any, at)) = message.any("typed_config") else {
            let problem = format!("`{}` wants a {SCALE_TIMERS}", message.text("name"));
            return self.report.problem(&message.at, problem);
        };
        let Some(config) = any.message.as_ref().filter(|_| any.name == SCALE_TIMERS) else {
            let problem = format!("`{}` wants a {SCALE_TIMERS}", message.text("name"));
            return self.report.problem(at, problem);
        };
        self.accept(config);
        for timer in config.messages("timer_scale_factors") {
            let name = timer.choice("timer");
            // The proto's rules know no other.
            let Some(time) = ScaledTime::ALL.into_iter().find(|time| time.name() == name) else {
                continue;
            };
            if overload.floors[time as usize].is_some() {
                self.report.problem(timer.at("timer"), "Found duplicate entry for timer type");
            }
            let share = timer.message("min_scale").and_then(|share| share.float("value"));
            overload.floors[time as usize] = Some(match timer.duration("min_timeout") {
                Some(least) => Floor::Time(least),
                None => Floor::Share(share.unwrap_or(0.0) / 100.0),
            });
        }
    }

    fn shed_point(&mut self, message: &Message, overload: &mut Overload) {
        let name = message.text("name");
        let Some(point) = Point::ALL.into_iter().find(|point| point.name() == name) else {
            let reason = format!("load is not shed at `{name}`");
            self.report.unsupported(message.at("name"), reason);
            return;
        };
        if overload.points.iter().any(|(other, _)| *other == point) {
            self.report.problem(message.at("name"), format!("a second load shed point `{name}`"));
            return;
        }
        let triggers = self.triggers(message, &overload.monitors, false);
        overload.points.push((point, triggers));
    }

    /// What an action or point goes by. Points cannot go by connections, as in Envoy.
    fn triggers(&mut self, of: &Message, monitors: &[Monitor], counted: bool) -> Vec<Trigger> {
        let mut triggers: Vec<Trigger> = Vec::new();
        for message in of.messages("triggers") {
            let name = message.text("name");
            let found = monitors.iter().position(|monitor| monitor.name == name);
            let Some(monitor) = found.filter(|_| counted || name != CONNECTIONS) else {
                let problem = format!("there is no resource monitor `{name}` for it");
                self.report.problem(message.at("name"), problem);
                continue;
            };
            if triggers.iter().any(|other| other.monitor == monitor) {
                self.report.problem(message.at("name"), format!("a second trigger by `{name}`"));
                continue;
            }
            let Some((from, full)) = self.thresholds(message) else { continue };
            triggers.push(Trigger { monitor, from, full });
        }
        triggers
    }

    fn thresholds(&mut self, trigger: &Message) -> Option<(f64, f64)> {
        let Some(scaled) = trigger.message("scaled") else {
            let threshold = trigger.message("threshold");
            let value = threshold.and_then(|it| it.float("value")).unwrap_or(0.0);
            return Some((value, value));
        };
        let from = scaled.float("scaling_threshold").unwrap_or(0.0);
        let full = scaled.float("saturation_threshold").unwrap_or(0.0);
        if from >= full {
            let problem = "`scaling_threshold` must be less than `saturation_threshold`";
            self.report.problem(&scaled.at, problem);
            return None;
        }
        Some((from, full))
    }
}
