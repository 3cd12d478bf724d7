//! A thread with one machine of the engine on one driver: a worker, or the monitor of hosts.
//!
//! What the machine says arrives on its thread; nothing in here makes it wait.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use towpath_engine::message::Message;
use towpath_io::readiness::{Driver, Options};
use towpath_io::{Counters, Handle, SendError};
use towpath_proto::Machine;

use crate::log;

/// A machine on a thread of its own, which ends with this.
pub(crate) struct DriverThread {
    name: String,
    handle: Handle<Message>,
    thread: Option<JoinHandle<()>>,
}

impl DriverThread {
    /// Starts the thread, and the machine that `make` makes there. What it says goes to `said`; `ended` is told how the
    /// driver ended.
    pub(crate) fn start<M: Machine<Message = Message>>(
        name: String,
        options: Options,
        make: impl FnOnce() -> M + Send + 'static,
        said: impl FnMut(Message) + Send + 'static,
        ended: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> io::Result<Self> {
        let (ready, handle) = mpsc::channel();
        let run = move || match Driver::new(make(), options, said) {
            Ok(mut driver) => {
                let _ = ready.send(Ok(driver.handle()));
                ended(driver.run());
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name(name.clone()).spawn(run)?;
        let handle = handle
            .recv()
            .map_err(|_| io::Error::other(format!("{name}: the thread died at its start")))??;
        Ok(Self { name, handle, thread: Some(thread) })
    }

    /// Its remote control, for other threads.
    pub(crate) fn handle(&self) -> Handle<Message> {
        self.handle.clone()
    }

    /// Tells the machine.
    pub(crate) fn tell(&self, message: Message) {
        match self.handle.send(message) {
            Ok(()) | Err(SendError::Gone(_)) => {}
            Err(SendError::Full(_)) => log!(Main, Error, "{} does not take messages", self.name),
        }
    }

    /// Lets the driver end.
    pub(crate) fn stop(&self) {
        self.handle.stop();
    }

    /// What the driver did.
    pub(crate) fn counters(&self) -> &Counters {
        self.handle.counters()
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
