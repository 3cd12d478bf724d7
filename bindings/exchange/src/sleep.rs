//! A thread that waits for an exchange to go on.

/// What woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The exchange goes on, perhaps.
    ByExchange,
    /// A signal came, perhaps.
    BySignal,
}

#[cfg(target_os = "linux")]
mod platform {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;
    use rustix::thread::futex;

    use super::Woken;

    /// A thread that waits, and can be interrupted by a signal: `std::sync::Condvar` goes on waiting then.
    #[derive(Debug, Default)]
    pub struct Sleep {
        /// 1 when there was a wake-up since the last sleep.
        woken: AtomicU32,
    }

    impl Sleep {
        /// Wakes it, or lets its next sleep end at once.
        pub fn wake(&self) {
            if self.woken.swap(1, Ordering::AcqRel) == 0 {
                // All: after a cancellation from elsewhere each of them has to look.
                let _ = futex::wake(&self.woken, futex::Flags::PRIVATE, i32::MAX as u32);
            }
        }

        /// Waits for a wake-up, or takes one that came since the last sleep.
        pub fn sleep(&self) -> Woken {
            while self.woken.swap(0, Ordering::AcqRel) == 0 {
                let slept = futex::wait(&self.woken, futex::Flags::PRIVATE, 0, None);
                if slept == Err(Errno::INTR) {
                    return Woken::BySignal;
                }
            }
            Woken::ByExchange
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Duration;

    use super::Woken;

    /// A thread that waits, and looks for signals now and then.
    #[derive(Debug, Default)]
    pub struct Sleep {
        woken: Mutex<bool>,
        changed: Condvar,
    }

    impl Sleep {
        /// Wakes it, or lets its next sleep end at once.
        pub fn wake(&self) {
            *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.changed.notify_all();
        }

        /// Waits for a wake-up, or takes one that came since the last sleep.
        pub fn sleep(&self) -> Woken {
            let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(woken, LOOK, |woken| !*woken);
            let (mut woken, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if std::mem::take(&mut *woken) { Woken::ByExchange } else { Woken::BySignal }
        }
    }

    const LOOK: Duration = Duration::from_millis(100);
}

pub use platform::Sleep;

impl std::task::Wake for Sleep {
    fn wake(self: std::sync::Arc<Self>) {
        Self::wake(&self);
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        Self::wake(self);
    }
}
