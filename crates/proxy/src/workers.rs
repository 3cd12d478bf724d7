//! The worker threads: each runs one engine worker on one driver.
//!
//! What workers say arrives here on their threads: log lines go straight to the log writer, hosts' errors to their
//! monitor, the rest to the control thread.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::system::uname;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::mpsc::UnboundedSender;
use towpath_engine::message::{FromWorker, Message, ToMonitor, ToWorker};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_io::readiness::Options;
use towpath_io::{Counters, Handle, Listeners};

use crate::access_log::LogSender;
use crate::driver_thread::DriverThread;
use crate::log;
use crate::tracing::SlowSender;

/// How to run workers.
pub(crate) struct Setup {
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    /// How long a busy worker waits for more events.
    pub(crate) gather: Duration,
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
    threads: Vec<DriverThread>,
    monitor: Arc<OnceLock<Handle<Message>>>,
    /// Their sockets.
    pub(crate) listeners: Listeners,
}

impl Workers {
    /// Starts the threads. They do nothing before their first snapshot.
    pub(crate) fn start(setup: &Setup, events: &UnboundedSender<Event>) -> io::Result<Self> {
        let listeners = Listeners::new();
        let monitor = Arc::new(OnceLock::new());
        let hostname: Arc<str> = uname().nodename().to_string_lossy().into();
        let cores = if setup.pin { usable_cores()? } else { Vec::new() };
        let start = |index| {
            let options = Options {
                shard: index,
                shards: setup.workers,
                listeners: listeners.clone(),
                epoch: setup.epoch,
                gather: setup.gather,
                ..Options::default()
            };
            let worker = WorkerOptions {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                workers: u32::try_from(setup.workers).unwrap_or(u32::MAX),
                seed: crate::random(),
                registry: setup.registry.clone(),
                hostname: hostname.clone(),
            };
            let core = cores.get(index % cores.len().max(1)).copied();
            let make = move || {
                if let Some(core) = core
                    && let Err(error) = pin_to(core)
                {
                    log!(Main, Warning, "cannot pin worker {index} to core {core}: {error}");
                }
                // Where turns have no lengths, it waits for one to end.
                if let Err(error) = towpath_io::thread::take_turns_of(TURN) {
                    log!(Main, Debug, "worker {index}: {error}");
                }
                Worker::new(worker)
            };
            let last = events.clone();
            let ended = move |outcome| {
                let _ = last.send(Event { worker: index, what: What::Ended(outcome) });
            };
            let mailbox = Mailbox {
                worker: index,
                logs: setup.logs.clone(),
                slow: setup.slow.clone(),
                monitor: Arc::clone(&monitor),
                events: events.clone(),
            };
            let said = move |message| mailbox.take(message);
            DriverThread::start(format!("worker-{index}"), options, make, said, ended)
        };
        let threads = (0..setup.workers).map(start).collect::<io::Result<_>>()?;
        Ok(Self { threads, monitor, listeners })
    }

    /// From here on they tell this monitor of their hosts. There is one at most.
    pub(crate) fn report_to(&self, monitor: Handle<Message>) {
        let _ = self.monitor.set(monitor);
    }

    /// Tells every worker.
    pub(crate) fn tell(&self, message: &ToWorker) {
        for thread in &self.threads {
            thread.tell(Message::To(message.clone()));
        }
    }

    /// Tells the first worker, for what one alone does.
    pub(crate) fn tell_first(&self, message: ToWorker) {
        if let Some(thread) = self.threads.first() {
            thread.tell(Message::To(message));
        }
    }

    /// Ends the drivers and waits for the threads.
    pub(crate) fn stop(&mut self) {
        // All at once: each that is dropped is waited for.
        self.threads.iter().for_each(DriverThread::stop);
        self.threads.clear();
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }

    /// What each driver did.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &Counters> {
        self.threads.iter().map(DriverThread::counters)
    }
}

/// How long a worker's turn is where threads compete: the shortest there is, so that it need not wait until the turn of
/// another ends, which is 1.4 to 3 ms long.
const TURN: Duration = Duration::from_micros(100);

/// Where what a worker says goes to, on its own thread.
struct Mailbox {
    worker: usize,
    logs: LogSender,
    slow: Option<SlowSender>,
    /// Once there is one.
    monitor: Arc<OnceLock<Handle<Message>>>,
    events: UnboundedSender<Event>,
}

impl Mailbox {
    fn take(&self, message: Message) {
        match message {
            Message::From(FromWorker::Log { sink, lines }) => {
                self.logs.write(sink.0 as usize, lines)
            }
            Message::From(FromWorker::Slow(stream)) => {
                if let Some(slow) = &self.slow {
                    slow.tell(stream);
                }
            }
            // Not by the control thread: each thread on the way may let another attempt reach a host that is to be out.
            Message::From(FromWorker::ErrorStreak { cluster, host, run }) => {
                self.tell_monitor(ToMonitor::ErrorStreak { cluster, host, run });
            }
            Message::From(FromWorker::Degraded { cluster, host }) => {
                self.tell_monitor(ToMonitor::Degraded { cluster, host });
            }
            // The receiver is gone only when the process ends.
            Message::From(other) => {
                let _ = self.events.send(Event { worker: self.worker, what: What::Said(other) });
            }
            Message::To(_) | Message::ToMonitor(_) | Message::FromMonitor(_) => {}
        }
    }

    fn tell_monitor(&self, message: ToMonitor) {
        // One that does not keep up, or is gone, is not waited for.
        if let Some(monitor) = self.monitor.get() {
            let _ = monitor.send(Message::ToMonitor(message));
        }
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
