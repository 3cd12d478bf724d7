//! What is measured of the process, and what is done when it is too much: Envoy `config.overload.v3.OverloadManager`.

use std::path::PathBuf;
use std::time::Duration;

/// `overload_manager`. What it comes to is computed by the control thread, and told to workers as [`Levels`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overload {
    /// `refresh_interval`: how often resources are measured; at least 1 ms.
    pub refresh_interval: Duration,
    /// `resource_monitors`.
    pub monitors: Vec<Monitor>,
    /// `actions`: each at most once.
    pub actions: Vec<(Action, Vec<Trigger>)>,
    /// `loadshed_points`: each at most once.
    pub points: Vec<(Point, Vec<Trigger>)>,
    /// `ShrinkHeapConfig`.
    pub shrink: Shrink,
    /// `ScaleTimersOverloadActionConfig`: what stays of each time when [`Action::ReduceTimeouts`] is wholly on, by the
    /// places of [`ScaledTime`].
    pub floors: [Option<Floor>; ScaledTime::ALL.len()],
    /// `buffer_factory_config`: which streams [`Action::ResetStreams`] looks at.
    pub track: Track,
}

/// `minimum_account_to_track_power_of_two`, from 10 to 56: streams that hold less than half of that power of two are
/// never reset. Others are in one of [`Track::CLASSES`] classes, each for twice as much as the one below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Track(pub u8);

impl Track {
    /// How many classes there are; the last one has no upper end.
    pub const CLASSES: u32 = 8;

    /// The class of a stream that holds so many bytes.
    #[must_use]
    pub const fn class(self, held: u64) -> Option<u32> {
        let Some(units) = held.checked_shr(self.0.saturating_sub(1) as u32) else { return None };
        match units.checked_ilog2() {
            Some(class) if class < Self::CLASSES => Some(class),
            Some(_) => Some(Self::CLASSES - 1),
            None => None,
        }
    }

    /// The lowest class that is reset at a level, from 0 to 1: at 0 it is the highest, as in Envoy.
    #[must_use]
    pub fn lowest(level: f64) -> u32 {
        let classes = f64::from(Self::CLASSES);
        // In range: a level is not above 1.
        let others = (level.clamp(0.0, 1.0) * classes).min(classes - 1.0) as u32;
        Self::CLASSES - 1 - others
    }
}

/// `ScaleTimersOverloadActionConfig.TimerType`: a time that can be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaledTime {
    /// How long a client's connection may be idle.
    ConnectionIdle = 0,
    /// How long a request of HTTP may be idle, by its route or its listener.
    StreamIdle = 1,
    /// How long a client's handshake may take.
    Handshake = 2,
    /// How long a client's connection of HTTP may last.
    ConnectionMax = 3,
    /// How long an answer that is over may take to leave.
    StreamFlush = 4,
}

impl ScaledTime {
    /// All, by their places.
    pub const ALL: [Self; 5] = [
        Self::ConnectionIdle,
        Self::StreamIdle,
        Self::Handshake,
        Self::ConnectionMax,
        Self::StreamFlush,
    ];

    /// Envoy's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConnectionIdle => "HTTP_DOWNSTREAM_CONNECTION_IDLE",
            Self::StreamIdle => "HTTP_DOWNSTREAM_STREAM_IDLE",
            Self::Handshake => "TRANSPORT_SOCKET_CONNECT",
            Self::ConnectionMax => "HTTP_DOWNSTREAM_CONNECTION_MAX",
            Self::StreamFlush => "HTTP_DOWNSTREAM_STREAM_FLUSH",
        }
    }
}

/// `ScaleTimer`: the least that a time is reduced to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Floor {
    /// `min_timeout`.
    Time(Duration),
    /// `min_scale`: a share of the whole, from 0 to 1.
    Share(f64),
}

impl Floor {
    /// What is left of a time at a level of its action.
    #[must_use]
    pub fn reduce(self, whole: Duration, level: f64) -> Duration {
        let least = match self {
            Self::Time(least) => least.min(whole),
            Self::Share(share) => whole.mul_f64(share.clamp(0.0, 1.0)),
        };
        least + (whole - least).mul_f64(1.0 - level.clamp(0.0, 1.0))
    }
}

/// When memory that is not in use goes back to the system, as long as [`Action::ShrinkHeap`] is on: all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrink {
    /// `timer_interval`: how often.
    pub interval: Duration,
}

impl Default for Shrink {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10) }
    }
}

/// `ResourceMonitor`.
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    /// Its name, which triggers and statistics have.
    pub name: String,
    /// What it measures.
    pub of: Resource,
}

/// What a monitor measures. Its pressure is what is used over what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `fixed_heap`: memory that is allocated, of so many bytes.
    Heap {
        /// `max_heap_size_bytes`.
        max: u64,
    },
    /// `injected_resource`: what a file says, from 0 to 1.
    Injected {
        /// `filename`.
        file: PathBuf,
    },
    /// `cpu_utilization`: what part of the time processors work.
    Processors {
        /// `mode: CONTAINER`: those of the cgroup, not the machine's.
        of_container: bool,
    },
    /// `cgroup_memory`: memory of the cgroup, of what it may have.
    CgroupMemory {
        /// `max_memory_bytes`, where it is less.
        max: Option<u64>,
    },
    /// `global_downstream_max_connections`: downstream connections, of so many.
    Connections {
        /// `max_active_downstream_connections`.
        max: u64,
    },
}

/// `Trigger`: how the pressure of one resource bears on an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// The place of its monitor.
    pub monitor: usize,
    /// At this pressure and below, nothing.
    pub from: f64,
    /// At this pressure and above, all; between the two, a part. A threshold has the same for both.
    pub full: f64,
}

impl Trigger {
    /// How much of its action a pressure asks for, from 0 to 1.
    #[must_use]
    pub fn level(&self, pressure: f64) -> f64 {
        if pressure >= self.full {
            1.0
        } else if pressure <= self.from {
            0.0
        } else {
            (pressure - self.from) / (self.full - self.from)
        }
    }
}

/// What is done: `OverloadAction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Action {
    /// Requests are answered with 503.
    StopRequests = 0,
    /// Connections of HTTP/1 end with the response, those of HTTP/2 are told to go.
    DisableKeepAlive = 1,
    /// Clients that connect wait in the listening socket.
    StopConnections = 2,
    /// Clients that connect are turned away.
    RejectConnections = 3,
    /// Memory that is not in use goes back to the system.
    ShrinkHeap = 4,
    /// Streams that hold most are reset, each time that its level changes.
    ResetStreams = 5,
    /// Idle connections of HTTP/3 are closed; there are none here.
    CloseIdle = 6,
    /// Idle connections of clients end earlier.
    ReduceTimeouts = 7,
}

impl Action {
    /// All, by their places.
    pub const ALL: [Self; 8] = [
        Self::StopRequests,
        Self::DisableKeepAlive,
        Self::StopConnections,
        Self::RejectConnections,
        Self::ShrinkHeap,
        Self::ResetStreams,
        Self::CloseIdle,
        Self::ReduceTimeouts,
    ];

    /// Envoy's name, which statistics have.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StopRequests => "envoy.overload_actions.stop_accepting_requests",
            Self::DisableKeepAlive => "envoy.overload_actions.disable_http_keepalive",
            Self::StopConnections => "envoy.overload_actions.stop_accepting_connections",
            Self::RejectConnections => "envoy.overload_actions.reject_incoming_connections",
            Self::ShrinkHeap => "envoy.overload_actions.shrink_heap",
            Self::ResetStreams => "envoy.overload_actions.reset_high_memory_stream",
            Self::CloseIdle => "envoy.overload_actions.close_idle_http_connections",
            Self::ReduceTimeouts => "envoy.overload_actions.reduce_timeouts",
        }
    }
}

/// Where load is shed, with the level's probability: `LoadShedPoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Point {
    /// Clients that connect are turned away.
    Accept = 0,
    /// A request is answered with 503.
    DecodeHeaders = 1,
    /// A request whose host is known is answered with 503.
    FilterCheck = 2,
    /// No connection to a host is made, and the request that wants it is answered with 503.
    NewConnection = 3,
    /// A connection of HTTP ends with the first bytes of its client.
    CreateCodec = 4,
    /// A connection of HTTP ends with what its client sends.
    GoAwayAndClose = 5,
    /// A connection of HTTP goes away in good order when its client sends something.
    GoAway = 6,
    /// What a client of HTTP/1 sends is answered with 500, and its connection ends.
    AbortHttp1 = 7,
}

impl Point {
    /// All, by their places.
    pub const ALL: [Self; 8] = [
        Self::Accept,
        Self::DecodeHeaders,
        Self::FilterCheck,
        Self::NewConnection,
        Self::CreateCodec,
        Self::GoAwayAndClose,
        Self::GoAway,
        Self::AbortHttp1,
    ];

    /// Those that look at all that a client of HTTP sends.
    pub const OF_DISPATCH: [Self; 3] = [Self::GoAwayAndClose, Self::GoAway, Self::AbortHttp1];

    /// Envoy's name, which statistics have.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "envoy.load_shed_points.tcp_listener_accept",
            Self::DecodeHeaders => "envoy.load_shed_points.http_connection_manager_decode_headers",
            Self::FilterCheck => "envoy.load_shed_points.http_downstream_filter_check",
            Self::NewConnection => "envoy.load_shed_points.connection_pool_new_connection",
            Self::CreateCodec => "envoy.load_shed_points.hcm_ondata_creating_codec",
            Self::GoAwayAndClose => {
                "envoy.load_shed_points.http2_server_go_away_and_close_on_dispatch"
            }
            Self::GoAway => "envoy.load_shed_points.http2_server_go_away_on_dispatch",
            Self::AbortHttp1 => "envoy.load_shed_points.http1_server_abort_dispatch",
        }
    }
}

/// How much of each action is on, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Levels {
    actions: [f64; Action::ALL.len()],
    points: [f64; Point::ALL.len()],
}

impl Levels {
    /// How much of an action.
    #[must_use]
    pub const fn action(&self, action: Action) -> f64 {
        self.actions[action as usize]
    }

    /// With which probability load is shed at a point.
    #[must_use]
    pub const fn point(&self, point: Point) -> f64 {
        self.points[point as usize]
    }
}

impl Overload {
    /// What the pressures of the monitors, by their places, come to; `None` is one that was not measured yet.
    #[must_use]
    pub fn levels(&self, pressures: &[Option<f64>]) -> Levels {
        let most = |triggers: &[Trigger]| {
            let levels = triggers.iter().filter_map(|trigger| {
                let pressure = pressures.get(trigger.monitor).copied().flatten()?;
                Some(trigger.level(pressure))
            });
            levels.fold(0.0, f64::max)
        };
        let mut levels = Levels::default();
        for (action, triggers) in &self.actions {
            levels.actions[*action as usize] = most(triggers);
        }
        for (point, triggers) in &self.points {
            levels.points[*point as usize] = most(triggers);
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_all_or_nothing() {
        let trigger = Trigger { monitor: 0, from: 0.5, full: 0.5 };
        assert_eq!([0.0, 0.49, 0.5, 2.0].map(|it| trigger.level(it)), [0.0, 0.0, 1.0, 1.0]);
        let always = Trigger { monitor: 0, from: 0.0, full: 0.0 };
        assert!(always.level(0.0) >= 1.0, "Envoy's threshold of 0 is always reached");
    }

    #[test]
    fn a_scaled_trigger_grows_between_its_thresholds() {
        let trigger = Trigger { monitor: 0, from: 0.5, full: 0.75 };
        let levels = [0.5, 0.5625, 0.625, 0.75, 0.9].map(|it| trigger.level(it));
        assert_eq!(levels, [0.0, 0.25, 0.5, 1.0, 1.0]);
    }

    #[test]
    fn times_are_reduced_to_their_floor() {
        let seconds = Duration::from_secs;
        let reduced = |floor: Floor, level| floor.reduce(seconds(10), level);
        let two = Floor::Time(seconds(2));
        assert_eq!([0.0, 0.5, 1.0].map(|it| reduced(two, it)), [10, 6, 2].map(seconds));
        assert_eq!(
            [0.0, 0.5, 1.0].map(|it| reduced(Floor::Share(0.5), it)),
            [seconds(10), Duration::from_millis(7500), seconds(5)]
        );
        assert_eq!(reduced(Floor::Time(seconds(20)), 1.0), seconds(10), "nothing is made longer");
        assert_eq!(reduced(Floor::Share(0.0), 1.0), Duration::ZERO);
    }

    #[test]
    fn classes_of_streams_are_powers_of_two() {
        let track = Track(10);
        let classes = [0, 511, 512, 1023, 1024, 65_535, 65_536, 1 << 40].map(|it| track.class(it));
        let expected = [None, None, Some(0), Some(0), Some(1), Some(6), Some(7), Some(7)];
        assert_eq!(classes, expected);
        assert_eq!([0.0, 0.12, 0.125, 0.5, 0.875, 1.0].map(Track::lowest), [7, 7, 6, 3, 0, 0]);
    }

    #[test]
    fn the_highest_trigger_counts_and_what_was_never_measured_does_not() {
        let trigger = |monitor, full| Trigger { monitor, from: 0.0, full };
        let overload = Overload {
            actions: vec![(Action::RejectConnections, vec![trigger(0, 1.0), trigger(1, 2.0)])],
            points: vec![(Point::Accept, vec![trigger(1, 1.0)])],
            ..Overload::default()
        };
        let levels = overload.levels(&[Some(0.25), Some(0.75)]);
        assert_eq!(levels.action(Action::RejectConnections), 0.375);
        assert_eq!(levels.point(Point::Accept), 0.75);
        assert_eq!(levels.action(Action::StopRequests), 0.0);
        assert_eq!(overload.levels(&[None, None]), Levels::default());
    }
}
