//! The thread of a monitor of hosts: that of clusters which want it, and that of health discovery. What it says goes to
//! the control thread, which tells the workers or the server.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use towpath_engine::health::Monitor;
use towpath_engine::message::{FromMonitor, Message, ToMonitor};
use towpath_engine::stats::Registry;
use towpath_io::Handle;
use towpath_io::readiness::Options;

use crate::driver_thread::DriverThread;
use crate::server_stats::CONTROL;

/// The monitor's thread.
pub(crate) struct MonitorThread(DriverThread);

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
        let make = move || Monitor::new(CONTROL, crate::random(), registry);
        Self::start_one("monitor", make, epoch, news)
    }

    /// The same of one for health discovery, which tells by which status hosts answer, too.
    pub(crate) fn start_telling_answers(
        registry: Arc<Registry>,
        epoch: Instant,
        news: UnboundedSender<News>,
    ) -> io::Result<Self> {
        let make = move || Monitor::new(CONTROL, crate::random(), registry).telling_answers();
        Self::start_one("hds", make, epoch, news)
    }

    fn start_one(
        name: &str,
        make: impl FnOnce() -> Monitor + Send + 'static,
        epoch: Instant,
        news: UnboundedSender<News>,
    ) -> io::Result<Self> {
        let options = Options { epoch, read_bytes: READ_BYTES, ..Options::default() };
        let last = news.clone();
        // The receiver is gone only when the process ends.
        let said = move |message| match message {
            Message::FromMonitor(message) => {
                let _ = news.send(News::Said(message));
            }
            Message::ToMonitor(_) | Message::To(_) | Message::From(_) => {}
        };
        let ended = move |outcome| {
            let _ = last.send(News::Ended(outcome));
        };
        DriverThread::start(name.to_owned(), options, make, said, ended).map(Self)
    }

    /// How other threads tell it.
    pub(crate) fn handle(&self) -> Handle<Message> {
        self.0.handle()
    }

    /// Tells the monitor.
    pub(crate) fn tell(&self, message: ToMonitor) {
        self.0.tell(Message::ToMonitor(message));
    }
}

/// Answers to health checks are short.
const READ_BYTES: usize = 16 * 1024;
