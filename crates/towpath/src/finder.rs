//! Who in the library connects on its own, and asks the engine where to.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_engine::local::message::Found;

/// Those who ask, by number.
#[derive(Default)]
pub(crate) struct Askers {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    askers: HashMap<u64, Tell>,
}

/// Called with each answer, on the engine's thread. It must not block.
type Tell = Box<dyn Fn(Found) + Send>;

impl Askers {
    /// One more, and its number.
    pub(crate) fn add(&self, tell: impl Fn(Found) + Send + 'static) -> u64 {
        let mut open = self.open();
        open.next += 1;
        let number = open.next;
        open.askers.insert(number, Box::new(tell));
        number
    }

    pub(crate) fn remove(&self, asker: u64) {
        self.open().askers.remove(&asker);
    }

    pub(crate) fn tell(&self, found: Found) {
        if let Some(tell) = self.open().askers.get(&found.asker) {
            tell(found);
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
