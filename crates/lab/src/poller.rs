//! Level-triggered readiness with nanosecond deadlines.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{Errno, Result};
use rustix::time::Timespec;

/// Watches sockets, each under a number of the caller's choosing.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
}

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
    ReadWrite,
    Nothing,
}

impl Poller {
    pub(crate) fn new() -> Result<Self> {
        // Without this the kernel rounds every sleep up by 50 µs.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(256) })
    }

    pub(crate) fn add(&self, socket: impl AsFd, number: u64, interest: Interest) -> Result<()> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number), interest.flags())
    }

    pub(crate) fn modify(&self, socket: impl AsFd, number: u64, interest: Interest) -> Result<()> {
        epoll::modify(&self.epoll, socket, EventData::new_u64(number), interest.flags())
    }

    /// Waits until something is ready or `timeout` has passed; `None` waits for ever.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.events.clear();
        let timeout = timeout.map(timespec);
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The number and readiness of the event at `index`, in the order the kernel reported them.
    pub(crate) fn event(&self, index: usize) -> Option<Ready> {
        let event = *self.events.get(index)?;
        let flags = event.flags;
        let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        Some(Ready {
            number: event.data.u64(),
            readable: failed || flags.contains(EventFlags::IN),
            writable: failed || flags.contains(EventFlags::OUT),
        })
    }
}

/// One ready socket.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) number: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::Write => EventFlags::OUT,
            Self::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Self::Nothing => EventFlags::empty(),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().min(1 << 31) as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
