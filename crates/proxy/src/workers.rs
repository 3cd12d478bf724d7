//! The worker threads: each runs one engine worker on one driver.
//!
//! What workers say arrives here on their threads: log lines go straight to the log writer, the rest to the
//! control thread. Nothing in here makes a worker wait.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::system::uname;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::mpsc::UnboundedSender;
use towpath_engine::message::{FromWorker, Message, ToWorker};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_io::readiness::{Driver, Options};
use towpath_io::{Counters, Handle, Listeners, SendError};

use crate::access_log::LogSender;
use crate::log;
use crate::tracing::SlowSender;

/// How to run workers.
pub(crate) struct Setup {
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    pub(crate) registry: Arc<Registry>,
    pub(crate) logs: LogSender,
    /// Where the workers' clock begins.
    pub(crate) epoch: Instant,
    /// Whom to tell of slow requests.
    pub(crate) slow: Option<SlowSender>,
}

/// What a worker thread tells the control thread.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) worker: usize,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Said(FromWorker),
    /// The thread's driver has ended, in order or not.
    Ended(io::Result<()>),
}

/// All worker threads.
pub(crate) struct Workers {
    handles: Vec<Handle<Message>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts the threads. They do nothing before their first snapshot.
    pub(crate) fn start(setup: &Setup, events: &UnboundedSender<Event>) -> io::Result<Self> {
        let listeners = Listeners::new();
        let hostname: Arc<str> = uname().nodename().to_string_lossy().into();
        let cores = if setup.pin { usable_cores()? } else { Vec::new() };
        let mut workers = Self { handles: Vec::new(), threads: Vec::new() };
        for index in 0..setup.workers {
            let seat = Seat {
                index,
                core: cores.get(index % cores.len().max(1)).copied(),
                options: Options {
                    shard: index,
                    shards: setup.workers,
                    listeners: listeners.clone(),
                    epoch: setup.epoch,
                    ..Options::default()
                },
                worker: WorkerOptions {
                    index: u32::try_from(index).unwrap_or(u32::MAX),
                    workers: u32::try_from(setup.workers).unwrap_or(u32::MAX),
                    seed: crate::random(),
                    registry: setup.registry.clone(),
                    hostname: hostname.clone(),
                },
                logs: setup.logs.clone(),
                slow: setup.slow.clone(),
                events: events.clone(),
            };
            let (ready, handle) = mpsc::channel();
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || seat.run(&ready))?;
            workers.threads.push(thread);
            let handle = handle
                .recv()
                .map_err(|_| io::Error::other("a worker thread died at its start"))??;
            workers.handles.push(handle);
        }
        Ok(workers)
    }

    /// Tells every worker.
    pub(crate) fn tell(&self, message: &ToWorker) {
        for (index, handle) in self.handles.iter().enumerate() {
            match handle.send(Message::To(message.clone())) {
                Ok(()) | Err(SendError::Gone(_)) => {}
                Err(SendError::Full(_)) => {
                    log!(Main, Error, "worker {index} does not take messages")
                }
            }
        }
    }

    /// Ends the drivers and waits for the threads.
    pub(crate) fn stop(&mut self) {
        self.handles.iter().for_each(Handle::stop);
        for thread in self.threads.drain(..) {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.handles.len()
    }

    /// What each driver did.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &Counters> {
        self.handles.iter().map(Handle::counters)
    }
}

/// What one thread starts with.
struct Seat {
    index: usize,
    core: Option<usize>,
    options: Options,
    worker: WorkerOptions,
    logs: LogSender,
    slow: Option<SlowSender>,
    events: UnboundedSender<Event>,
}

impl Seat {
    fn run(self, ready: &mpsc::Sender<io::Result<Handle<Message>>>) {
        let Self { index, core, options, worker, logs, slow, events } = self;
        if let Some(core) = core
            && let Err(error) = pin_to(core)
        {
            log!(Main, Warning, "cannot pin worker {index} to core {core}: {error}");
        }
        let said = events.clone();
        let mailbox = move |message| match message {
            Message::From(FromWorker::Log { sink, lines }) => logs.write(sink.0 as usize, lines),
            Message::From(FromWorker::Slow(stream)) => {
                if let Some(slow) = &slow {
                    slow.tell(stream);
                }
            }
            // The receiver is gone only when the process ends.
            Message::From(other) => {
                let _ = said.send(Event { worker: index, what: What::Said(other) });
            }
            Message::To(_) | Message::ToMonitor(_) | Message::FromMonitor(_) => {}
        };
        let outcome = match Driver::new(Worker::new(worker), options, mailbox) {
            Ok(mut driver) => {
                let _ = ready.send(Ok(driver.handle()));
                driver.run()
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        let _ = events.send(Event { worker: index, what: What::Ended(outcome) });
    }
}

fn usable_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

fn pin_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
