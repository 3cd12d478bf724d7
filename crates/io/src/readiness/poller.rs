//! Waiting for readiness: mio's registry, and on Linux our own wait on its epoll descriptor.
//!
//! mio rounds a timeout up to whole milliseconds because `epoll_wait` knows nothing finer.
//! `epoll_pwait2` (Linux 5.11) takes nanoseconds, so that is what waits where the kernel has it.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

/// What became of one registered descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    pub(super) token: usize,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The peer's FIN or worse has arrived: read on until it shows.
    pub(super) hung_up: bool,
    pub(super) failed: bool,
}

pub(super) struct Poller {
    poll: Poll,
    events: Events,
    #[cfg(linux_kernel)]
    precise: Option<precise::Waiter>,
}

const EVENTS: usize = 1024;

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
            #[cfg(linux_kernel)]
            precise: Some(precise::Waiter::new(EVENTS)),
        })
    }

    pub(super) fn waker(&self, token: usize) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), Token(token))
    }

    /// The one `epoll_ctl` of a descriptor's life: edge-triggered, both directions.
    pub(super) fn register(&self, source: &impl AsRawFd, token: usize) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&source.as_raw_fd()), Token(token), interest)
    }

    /// For listeners alone: a duplicated socket stays in the kernel's set when it is closed here.
    pub(super) fn register_listener(&self, source: &impl AsRawFd, token: usize) -> io::Result<()> {
        let interest = Interest::READABLE;
        self.poll.registry().register(&mut SourceFd(&source.as_raw_fd()), Token(token), interest)
    }

    /// The counterpart of [`Self::register_listener`].
    pub(super) fn deregister(&self, source: &impl AsRawFd) -> io::Result<()> {
        self.poll.registry().deregister(&mut SourceFd(&source.as_raw_fd()))
    }

    /// Waits and replaces what is in `ready`. A signal ends the wait with nothing.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Readiness>,
    ) -> io::Result<()> {
        ready.clear();
        #[cfg(linux_kernel)]
        if let Some(waiter) = &mut self.precise {
            match waiter.wait(self.poll.registry(), timeout, ready) {
                // An old kernel, or a sandbox that has never heard of the call.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => self.precise = None,
                Err(rustix::io::Errno::INTR) => return Ok(()),
                outcome => return Ok(outcome?),
            }
        }
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            outcome => outcome?,
        }
        ready.extend(self.events.iter().map(|event| Readiness {
            token: event.token().0,
            readable: event.is_readable(),
            writable: event.is_writable(),
            hung_up: event.is_read_closed() || event.is_error(),
            failed: event.is_error(),
        }));
        Ok(())
    }
}

#[cfg(linux_kernel)]
mod precise {
    use std::time::Duration;

    use mio::Registry;
    use rustix::buffer::spare_capacity;
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, EventFlags};

    use super::Readiness;

    pub(super) struct Waiter {
        events: Vec<epoll::Event>,
    }

    impl Waiter {
        pub(super) fn new(events: usize) -> Self {
            Self { events: Vec::with_capacity(events) }
        }

        pub(super) fn wait(
            &mut self,
            registry: &Registry,
            timeout: Option<Duration>,
            ready: &mut Vec<Readiness>,
        ) -> rustix::io::Result<()> {
            let timeout = timeout.map(timespec);
            self.events.clear();
            epoll::wait(registry, spare_capacity(&mut self.events), timeout.as_ref())?;
            ready.extend(self.events.iter().map(|&event| readiness(event)));
            Ok(())
        }
    }

    fn readiness(event: epoll::Event) -> Readiness {
        let flags = event.flags;
        Readiness {
            token: usize::try_from(event.data.u64()).unwrap_or(usize::MAX),
            readable: flags.intersects(EventFlags::IN),
            writable: flags.intersects(EventFlags::OUT),
            hung_up: flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR),
            failed: flags.intersects(EventFlags::ERR),
        }
    }

    fn timespec(timeout: Duration) -> Timespec {
        // A century is as good as for ever, and the kernel refuses what overflows its clock.
        let seconds = timeout.as_secs().min(100 * 366 * 86_400);
        Timespec {
            tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        }
    }
}
