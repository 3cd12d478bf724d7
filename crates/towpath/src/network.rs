//! Who else in the library wants to know that the network changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The changes that the engine was told of.
#[derive(Default)]
pub(crate) struct Network {
    changes: AtomicU64,
    listeners: Mutex<Vec<Listener>>,
}

/// Called after each change; false when it need not be any more. It must not block.
type Listener = Box<dyn Fn() -> bool + Send>;

impl Network {
    /// The engine has been told of a change.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener());
    }

    /// How many there were.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn listen(&self, listener: impl Fn() -> bool + Send + 'static) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(Box::new(listener));
    }
}
