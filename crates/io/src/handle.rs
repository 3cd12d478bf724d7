//! How other threads reach a machine: messages in, and the order to stop.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::Waker;
use towpath_proto::{ListenerId, QueryId};

use crate::balance::Accepted;
use crate::counters::Counters;
use crate::resolver::Told;

/// A driver's remote control; cheap to clone, usable from any thread.
pub struct Handle<T> {
    shared: Arc<Shared<T>>,
}

/// A message that was not taken, given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// The driver has not kept up: `Options::max_messages` are waiting.
    Full(T),
    /// The driver is gone.
    Gone(T),
}

/// What the driver takes from other threads.
pub(crate) enum Command<T> {
    Message(T),
    /// A name that is asked of the driver's resolver from outside.
    Resolve {
        query: QueryId,
        name: String,
    },
    Resolved {
        query: QueryId,
        told: Told,
    },
    /// A connection that another shard accepted.
    Accepted(Box<Accepted>),
}

/// The driver's end and the handles' common ground.
pub(crate) struct Shared<T> {
    commands: Mutex<Commands<T>>,
    waker: Waker,
    stopping: AtomicBool,
    max_messages: usize,
    pub(crate) counters: Counters,
}

struct Commands<T> {
    waiting: VecDeque<Command<T>>,
    gone: bool,
}

impl<T> Handle<T> {
    pub(crate) const fn new(shared: Arc<Shared<T>>) -> Self {
        Self { shared }
    }

    /// Hands a message to the machine, as `Input::Message` in the driver's next turn.
    ///
    /// # Errors
    /// Gives the message back when the driver is gone or too many messages wait.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.shared.send(message, Command::Message)
    }

    /// Asks the driver's resolver for a name, as `Output::Resolve` of the machine would. The answer is the machine's,
    /// which has asked another resolver before.
    ///
    /// # Errors
    /// When the driver is gone or too many messages wait.
    pub fn resolve(&self, query: QueryId, name: String) -> Result<(), SendError<()>> {
        self.shared.send((), |()| Command::Resolve { query, name })
    }

    /// Ends [`crate::readiness::Driver::run`] after its current turn. Nothing is flushed: a machine that wants to
    /// drain is told so by a message first.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
    }

    /// What the driver has done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("counters", &self.shared.counters).finish_non_exhaustive()
    }
}

impl<T> Shared<T> {
    pub(crate) fn new(waker: Waker, max_messages: usize) -> Self {
        Self {
            commands: Mutex::new(Commands { waiting: VecDeque::new(), gone: false }),
            waker,
            stopping: AtomicBool::new(false),
            max_messages,
            counters: Counters::default(),
        }
    }

    /// An answer of the resolver; not counted against the limit, which its own queue bounds.
    pub(crate) fn resolved(&self, query: QueryId, told: Told) {
        let mut commands = self.lock();
        commands.waiting.push_back(Command::Resolved { query, told });
        drop(commands);
        self.wake();
    }

    /// A connection from another shard; back if the driver is gone. Not counted against the limit: shards are given no
    /// more than others have.
    pub(crate) fn hand_over(&self, accepted: Accepted) -> Result<(), Accepted> {
        let mut commands = self.lock();
        if commands.gone {
            return Err(accepted);
        }
        commands.waiting.push_back(Command::Accepted(Box::new(accepted)));
        drop(commands);
        self.wake();
        Ok(())
    }

    /// Connections of one listener that wait here, or among those `taken` already.
    pub(crate) fn take_handed(
        &self,
        listener: ListenerId,
        taken: &mut VecDeque<Command<T>>,
    ) -> Vec<Accepted> {
        let mut handed = Vec::new();
        let mut commands = self.lock();
        for queue in [taken, &mut commands.waiting] {
            for command in mem::take(queue) {
                match command {
                    Command::Accepted(accepted) if accepted.listener == listener => {
                        handed.push(*accepted);
                    }
                    other @ (Command::Message(_)
                    | Command::Resolve { .. }
                    | Command::Resolved { .. }
                    | Command::Accepted(_)) => queue.push_back(other),
                }
            }
        }
        handed
    }

    /// Swaps what waits into `empty`, whose capacity is used for what comes next.
    pub(crate) fn take(&self, empty: &mut VecDeque<Command<T>>) {
        mem::swap(&mut self.lock().waiting, empty);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The driver's last word: what waits is dropped, and nothing more is taken.
    pub(crate) fn close(&self) {
        let mut commands = self.lock();
        commands.gone = true;
        let waiting = mem::take(&mut commands.waiting);
        drop(commands);
        drop(waiting);
    }

    fn send<C>(&self, content: C, of: impl FnOnce(C) -> Command<T>) -> Result<(), SendError<C>> {
        let mut commands = self.lock();
        if commands.gone {
            return Err(SendError::Gone(content));
        }
        if commands.waiting.len() >= self.max_messages {
            return Err(SendError::Full(content));
        }
        let first = commands.waiting.is_empty();
        commands.waiting.push_back(of(content));
        drop(commands);
        // The sender that found the queue empty wakes the driver, which takes everything at once.
        if first {
            self.wake();
        }
        Ok(())
    }

    fn wake(&self) {
        // Fails only when the eventfd itself is broken; the driver then sees the command at its next turn.
        let _ = self.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Commands<T>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> SendError<T> {
    /// The message.
    pub fn into_message(self) -> T {
        match self {
            Self::Full(message) | Self::Gone(message) => message,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Gone(_) => "Gone(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "too many messages wait for the driver",
            Self::Gone(_) => "the driver is gone",
        })
    }
}

impl<T> Error for SendError<T> {}
