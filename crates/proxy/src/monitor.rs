//! The thread of the monitor of hosts: one engine monitor on one driver, when a cluster wants it.
//!
//! What it says arrives here on its thread and goes to the control thread, which tells the workers. Nothing in here makes
//! a worker wait.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use towpath_engine::health::Monitor;
use towpath_engine::message::{FromMonitor, Message, ToMonitor};
use towpath_engine::stats::Registry;
use towpath_io::readiness::{Driver, Options};
use towpath_io::{Handle, SendError};

use crate::log;
use crate::server_stats::CONTROL;

/// The monitor's thread.
pub(crate) struct MonitorThread {
    handle: Handle<Message>,
    thread: Option<JoinHandle<()>>,
}

/// What the monitor's thread tells the control thread.
#[derive(Debug)]
pub(crate) enum News {
    Said(FromMonitor),
    /// Its driver has ended, in order or not.
    Ended(io::Result<()>),
}

impl MonitorThread {
    /// Starts the thread. `epoch` is where the workers' clock begins.
    pub(crate) fn start(
        registry: Arc<Registry>,
        epoch: Instant,
        news: UnboundedSender<News>,
    ) -> io::Result<Self> {
        let (ready, handle) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("monitor".to_owned())
            .spawn(move || run(registry, epoch, &news, &ready))?;
        let handle = handle
            .recv()
            .map_err(|_| io::Error::other("the monitor's thread died at its start"))??;
        Ok(Self { handle, thread: Some(thread) })
    }

    /// Tells the monitor.
    pub(crate) fn tell(&self, message: ToMonitor) {
        match self.handle.send(Message::ToMonitor(message)) {
            Ok(()) | Err(SendError::Gone(_)) => {}
            Err(SendError::Full(_)) => {
                log!(Upstream, Error, "the monitor of hosts does not take messages");
            }
        }
    }
}

impl Drop for MonitorThread {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(
    registry: Arc<Registry>,
    epoch: Instant,
    news: &UnboundedSender<News>,
    ready: &mpsc::Sender<io::Result<Handle<Message>>>,
) {
    let said = news.clone();
    let mailbox = move |message| match message {
        // The receiver is gone only when the process ends.
        Message::FromMonitor(message) => {
            let _ = said.send(News::Said(message));
        }
        Message::ToMonitor(_) | Message::To(_) | Message::From(_) => {}
    };
    let monitor = Monitor::new(CONTROL, crate::random(), registry);
    let options = Options { epoch, read_bytes: READ_BYTES, ..Options::default() };
    let outcome = match Driver::new(monitor, options, mailbox) {
        Ok(mut driver) => {
            let _ = ready.send(Ok(driver.handle()));
            driver.run()
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = news.send(News::Ended(outcome));
}

/// Answers to health checks are short.
const READ_BYTES: usize = 16 * 1024;
