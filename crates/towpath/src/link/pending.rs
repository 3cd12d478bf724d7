//! The requests under way as the app's threads and the link's share them, and the ways to wait for one.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use towpath_io::Handle;

use super::message::Outcome;
use super::wire::{LinkMessage, Order};
use super::{Error, Life, Settings, State};

/// What the app's threads and the link's share.
pub(super) struct Inner {
    pending: Mutex<PendingCalls>,
    changed: Condvar,
    pub(super) handle: Handle<LinkMessage>,
    pub(super) settings: Settings,
}

#[derive(Default)]
struct PendingCalls {
    calls: HashMap<u64, Call>,
    next: u64,
    bytes: usize,
    closed: bool,
    state: State,
}

pub(super) struct Call {
    pub(super) bytes: usize,
    pub(super) wait: Wait,
}

pub(super) enum Wait {
    Blocking,
    Polled(Waker),
    Callback(Box<dyn FnOnce(Outcome) + Send>),
    Over(Outcome),
}

/// An answer to come; dropping it gives the request up, which may be processed nevertheless.
#[must_use = "dropping it gives the request up"]
pub struct Pending {
    pub(super) life: Arc<Life>,
    pub(super) id: u64,
}

/// Gives a request up from elsewhere.
#[derive(Clone)]
pub struct Canceller {
    pub(super) inner: Weak<Inner>,
    pub(super) id: u64,
}

impl Inner {
    pub(super) fn new(handle: Handle<LinkMessage>, settings: Settings) -> Self {
        Self { pending: Mutex::default(), changed: Condvar::new(), handle, settings }
    }

    pub(super) fn add(&self, call: Call) -> Result<u64, Error> {
        let mut pending = self.pending();
        if pending.closed {
            return Err(Error::Closed);
        }
        let fits = pending.bytes + call.bytes <= self.settings.max_bytes;
        if pending.calls.len() >= self.settings.max_calls || !fits {
            return Err(Error::Full);
        }
        let id = pending.next;
        pending.next += 1;
        pending.bytes += call.bytes;
        pending.calls.insert(id, call);
        Ok(id)
    }

    pub(super) fn remove(&self, id: u64) -> Option<Call> {
        let mut pending = self.pending();
        let call = pending.calls.remove(&id)?;
        pending.bytes -= call.bytes;
        Some(call)
    }

    pub(super) fn end(&self, id: u64, outcome: Outcome) {
        let mut pending = self.pending();
        let Some(call) = pending.calls.get_mut(&id) else { return };
        match std::mem::replace(&mut call.wait, Wait::Blocking) {
            Wait::Callback(on_end) => {
                let bytes = call.bytes;
                pending.calls.remove(&id);
                pending.bytes -= bytes;
                drop(pending);
                on_end(outcome);
            }
            Wait::Over(before) => call.wait = Wait::Over(before),
            Wait::Blocking => {
                call.wait = Wait::Over(outcome);
                drop(pending);
                self.changed.notify_all();
            }
            Wait::Polled(waker) => {
                call.wait = Wait::Over(outcome);
                drop(pending);
                waker.wake();
            }
        }
    }

    /// Gives a request up; who waits for it hears so.
    fn give_up(&self, id: u64) {
        let _ = self.order(Order::GiveUp(id));
        self.end(id, Err(Error::Cancelled));
    }

    pub(super) fn order(&self, order: Order) -> Result<(), Error> {
        self.handle.send(LinkMessage::Order(order)).map_err(|error| match error {
            towpath_io::SendError::Full(_) => Error::Full,
            towpath_io::SendError::Gone(_) => Error::Closed,
        })
    }

    pub(super) fn close(&self) {
        let mut pending = self.pending();
        pending.closed = true;
        pending.state.connected = false;
        let open: Vec<u64> = pending.calls.keys().copied().collect();
        drop(pending);
        self.changed.notify_all();
        open.into_iter().for_each(|id| self.end(id, Err(Error::Closed)));
    }

    pub(super) fn state(&self) -> State {
        self.pending().state
    }

    pub(super) fn set_state(&self, state: State) {
        self.pending().state = state;
        self.changed.notify_all();
    }

    /// Blocks until the state is as wanted, or the time is over; whether it is.
    pub(super) fn wait_until(&self, limit: Duration, mut is_so: impl FnMut(State) -> bool) -> bool {
        let is_not = |pending: &mut PendingCalls| !is_so(pending.state);
        let waited = self.changed.wait_timeout_while(self.pending(), limit, is_not);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn pending(&self) -> MutexGuard<'_, PendingCalls> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingCalls {
    /// The outcome, once it is there.
    fn take(&mut self, id: u64) -> Option<Outcome> {
        let call = self.calls.remove(&id)?;
        match call.wait {
            Wait::Over(outcome) => {
                self.bytes -= call.bytes;
                Some(outcome)
            }
            Wait::Blocking | Wait::Polled(_) | Wait::Callback(_) => {
                self.calls.insert(id, call);
                None
            }
        }
    }
}

impl Pending {
    /// Blocks until the answer. Not for the link's own thread.
    ///
    /// # Errors
    /// When there is none.
    pub fn wait(self) -> Outcome {
        let inner = &self.life.inner;
        let mut pending = inner.pending();
        loop {
            if let Some(outcome) = pending.take(self.id) {
                return outcome;
            }
            pending = inner.changed.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut pending = self.life.inner.pending();
        if let Some(outcome) = pending.take(self.id) {
            return Poll::Ready(outcome);
        }
        match pending.calls.get_mut(&self.id) {
            Some(call) => {
                call.wait = Wait::Polled(context.waker().clone());
                Poll::Pending
            }
            // Its outcome was taken before.
            None => Poll::Ready(Err(Error::Cancelled)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let inner = &self.life.inner;
        if inner.remove(self.id).is_some_and(|call| !matches!(call.wait, Wait::Over(_))) {
            let _ = inner.order(Order::GiveUp(self.id));
        }
    }
}

impl Canceller {
    /// Gives the request up, unless it has ended: its callback is called with [`Error::Cancelled`], on this thread.
    pub fn cancel(&self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.give_up(self.id);
        }
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("id", &self.id).finish()
    }
}
