//! A live link: two network namespaces and an emulator between them.
//!
//! Programs in the *near* and the *far* namespace see real kernel TCP over a device whose packets pass
//! through the stages of [`towpath_sim::link`]. Nothing is asked of the kernel's own queueing disciplines.
//!
//! ```no_run
//! use towpath_lab::link::{Link, Tuning};
//! use towpath_sim::link::{Profile, Timeline};
//!
//! let link = Link::open(&Tuning::default())?;
//! let profile = Profile::find("3g").ok_or("no such profile")?;
//! link.follow(&profile.down(), &profile.up(), &Timeline::default(), 1, false);
//! let status = link.near().run(|| std::process::Command::new("ping").args(["-c1", "10.77.0.2"]).status())?;
//! assert!(status.success());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calibration;
mod device;
mod forwarder;
mod packet;
pub(crate) mod page;
pub mod recording;
mod report;
mod space;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_sim::link::{Conditions, Direction, Path, Timeline};

pub use calibration::Calibration;
pub use device::Backend;
use device::Device;
use forwarder::{Forwarder, Route};
pub use page::Circumstances;
pub use report::{Fate, Record, Report, Traffic};
pub use space::{Space, become_root_of_a_user_namespace};

/// The near end's address.
pub const NEAR: &str = "10.77.0.1";
/// The far end's address.
pub const FAR: &str = "10.77.0.2";
/// The near end's IPv6 address.
pub const NEAR6: &str = "fd77::1";
/// The far end's IPv6 address.
pub const FAR6: &str = "fd77::2";

/// What is pinned so that a run can be repeated elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How packets are taken from the kernel; `None` takes TUN where there is one.
    pub backend: Option<Backend>,
    /// TCP congestion control of both ends.
    pub congestion_control: String,
    /// When connection attempts are repeated.
    pub syn_schedule: SynSchedule,
    /// Largest packet.
    pub mtu: u16,
    /// Whether both ends' TCP asks for marks of congestion instead of losses (RFC 3168).
    pub ecn: bool,
}

/// When connection attempts are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynSchedule {
    /// After 1, 3, 7, 15, 31 s: Linux before 6.5, Android.
    Classic,
    /// After 1, 2, 3, 4, 5, 7, 11, 19 s: Linux since 6.5, and close to iOS and macOS.
    Linear,
}

/// An open link.
pub struct Link {
    near: Space,
    far: Space,
    up: Forwarder,
    down: Forwarder,
    backend: Backend,
    calibration: Option<Calibration>,
    // Holds the cables of the packet-socket backend.
    _middle: Option<Space>,
}

impl Link {
    /// Makes the namespaces and a link without conditions between them.
    pub fn open(tuning: &Tuning) -> io::Result<Self> {
        let refused = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot make a network namespace: {error}"))
        };
        let (near, far) =
            (Space::new("near").map_err(refused)?, Space::new("far").map_err(refused)?);
        let has_tun =
            || std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_ok();
        let backend = tuning
            .backend
            .unwrap_or_else(|| if has_tun() { Backend::Tun } else { Backend::PacketSocket });
        let mut middle = None;
        let (near_device, far_device) = match backend {
            Backend::Tun => (Device::tun(&near, true, tuning)?, Device::tun(&far, false, tuning)?),
            Backend::PacketSocket => {
                let space = middle.insert(Space::new("middle")?);
                Device::sockets(&near, &far, space, tuning)?
            }
        };
        let (near_device, far_device) = (Arc::new(near_device), Arc::new(far_device));
        let route = |direction| Route {
            path: Path::new(Conditions::default(), Timeline::default(), direction, 0),
            epoch: Instant::now(),
            is_logged: false,
        };
        let up = Forwarder::start(
            Arc::clone(&near_device),
            Arc::clone(&far_device),
            Direction::Up,
            route(Direction::Up),
        )?;
        let down =
            Forwarder::start(far_device, near_device, Direction::Down, route(Direction::Down))?;
        Ok(Self { near, far, up, down, backend, calibration: None, _middle: middle })
    }

    /// Measures what the emulator itself adds. It takes about a second and ends with a link without conditions.
    pub fn calibrate(&mut self) -> io::Result<Calibration> {
        let calibration = calibration::measure(self)?;
        self.calibration = Some(calibration);
        let none = Conditions::default();
        self.follow(&none, &none, &Timeline::default(), 0, false);
        Ok(calibration)
    }

    /// From this moment, which is the timeline's zero, the link is under these conditions. What was on its
    /// way is gone, and counting begins anew.
    pub fn follow(
        &self,
        down: &Conditions,
        up: &Conditions,
        timeline: &Timeline,
        seed: u64,
        is_logged: bool,
    ) {
        let epoch = Instant::now();
        let route = |conditions: &Conditions, direction| Route {
            path: Path::new(conditions.clone(), timeline.clone(), direction, seed),
            epoch,
            is_logged,
        };
        self.up.follow(route(up, Direction::Up));
        self.down.follow(route(down, Direction::Down));
    }

    /// From now on other conditions; what is on its way stays so, and counting goes on.
    pub fn change(&self, down: &Conditions, up: &Conditions) {
        self.down.change(down);
        self.up.change(up);
    }

    /// No link from now on for `length`.
    pub fn break_off(&self, length: Duration) {
        self.down.break_off(length);
        self.up.break_off(length);
    }

    /// The namespace of the program under test.
    pub fn near(&self) -> &Space {
        &self.near
    }

    /// The namespace of its peers.
    pub fn far(&self) -> &Space {
        &self.far
    }

    /// What happened since the link follows its present conditions.
    pub fn report(&self) -> Report {
        Report {
            up: self.up.traffic(),
            down: self.down.traffic(),
            calibration: self.calibration,
            hidden_drops: self.near.hidden_drops(device::NAME)
                + self.far.hidden_drops(device::NAME),
            is_realtime: self.up.is_realtime && self.down.is_realtime,
            backend: match self.backend {
                Backend::Tun => "tun",
                Backend::PacketSocket => "packet-socket",
            },
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            backend: None,
            congestion_control: "cubic".to_owned(),
            syn_schedule: SynSchedule::Linear,
            mtu: 1500,
            ecn: false,
        }
    }
}

impl SynSchedule {
    /// When attempts are repeated, as words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Classic => "classic: 1, 3, 7, 15, 31, 63 s",
            Self::Linear => "linear: 1, 2, 3, 4, 5, 7, 11, 19, 35 s",
        }
    }

    fn linear_timeouts(self) -> u8 {
        match self {
            Self::Classic => 0,
            Self::Linear => 4,
        }
    }
}
