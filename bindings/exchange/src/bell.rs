//! Threads, any number of them, that wait for one thing to go on.

use std::time::Instant;

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It rang.
    Ring,
    /// A signal came, perhaps.
    Signal,
    /// The time is over.
    Nothing,
}

#[cfg(target_os = "linux")]
mod platform {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use rustix::io::Errno;
    use rustix::thread::futex;

    use super::Heard;

    /// Rings for all that wait. Unlike [`Sleep`](crate::Sleep), which is one thread's, each that waits hears each ring.
    #[derive(Debug, Default)]
    pub struct Bell {
        rings: AtomicU32,
        /// Threads in [`Bell::wait`]: without any there is no system call.
        waiting: AtomicU32,
    }

    impl Bell {
        /// How often it has rung: to be asked before what is waited for is looked at.
        pub fn rings(&self) -> u32 {
            self.rings.load(Ordering::SeqCst)
        }

        /// Rings.
        pub fn ring(&self) {
            self.rings.fetch_add(1, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) > 0 {
                let _ = futex::wake(&self.rings, futex::Flags::PRIVATE, i32::MAX as u32);
            }
        }

        /// Waits until it has rung more than `since` times.
        pub fn wait(&self, since: u32, until: Option<Instant>) -> Heard {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let heard = self.listen(since, until);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            heard
        }

        fn listen(&self, since: u32, until: Option<Instant>) -> Heard {
            while self.rings() == since {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return Heard::Nothing;
                }
                let left = left.and_then(|left| left.try_into().ok());
                let flags = futex::Flags::PRIVATE;
                if futex::wait(&self.rings, flags, since, left.as_ref()) == Err(Errno::INTR) {
                    return Heard::Signal;
                }
            }
            Heard::Ring
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use super::Heard;

    /// Rings for all that wait. Unlike [`Sleep`](crate::Sleep), which is one thread's, each that waits hears each ring.
    #[derive(Debug, Default)]
    pub struct Bell {
        rings: Mutex<u32>,
        rung: Condvar,
    }

    impl Bell {
        /// How often it has rung: to be asked before what is waited for is looked at.
        pub fn rings(&self) -> u32 {
            *self.rings.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Rings.
        pub fn ring(&self) {
            let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
            *rings = rings.wrapping_add(1);
            self.rung.notify_all();
        }

        /// Waits until it has rung more than `since` times.
        pub fn wait(&self, since: u32, until: Option<Instant>) -> Heard {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
            let look = left.map_or(LOOK, |left| left.min(LOOK));
            let waited = self.rung.wait_timeout_while(rings, look, |rings| *rings == since);
            let (rings, _) = waited.unwrap_or_else(PoisonError::into_inner);
            match left {
                _ if *rings != since => Heard::Ring,
                Some(left) if left <= LOOK => Heard::Nothing,
                Some(_) | None => Heard::Signal,
            }
        }
    }

    /// How often it is looked for signals.
    const LOOK: Duration = Duration::from_millis(100);
}

pub use platform::Bell;

impl Bell {
    /// Waits until `look` finds something, the time is over (none), or a signal came (`Err`).
    ///
    /// # Errors
    /// [`Interrupted`], when a signal may have come.
    pub fn until<T>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Interrupted> {
        loop {
            let rings = self.rings();
            if let Some(found) = look() {
                return Ok(Some(found));
            }
            match self.wait(rings, until) {
                Heard::Ring => {}
                Heard::Signal => return Err(Interrupted),
                Heard::Nothing => return Ok(None),
            }
        }
    }
}

/// A signal came, perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl std::task::Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_that_wait_hear_each_ring() {
        let (bell, told) = (Arc::new(Bell::default()), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (bell, told) = (Arc::clone(&bell), Arc::clone(&told));
                std::thread::spawn(move || {
                    let look = || (told.load(Ordering::SeqCst) == 100).then_some(());
                    while bell.until(None, look).is_err() {}
                })
            })
            .collect();
        for _ in 0..100 {
            told.fetch_add(1, Ordering::SeqCst);
            bell.ring();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let bell = Bell::default();
        let begin = Instant::now();
        let until = begin + Duration::from_millis(50);
        let mut found = bell.until(Some(until), || None::<()>);
        while found.is_err() {
            found = bell.until(Some(until), || None);
        }
        assert!(found == Ok(None) && begin.elapsed() >= Duration::from_millis(50));
        assert_eq!(bell.until(Some(begin), || Some(1)), Ok(Some(1)), "what is there is found");
    }
}
