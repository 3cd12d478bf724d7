//! Recordings: switching on and off.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::capture::Capture;
use crate::category::{Category, Level};
use crate::clock::{Reading, Stamp};
use crate::collect::{Account, Collector, Sink};
use crate::directives::{Directives, UnknownDirective};
use crate::process::Process;
use crate::record::{self, Kind};
use crate::ring::{self, Plan, Ring, Thread};
use crate::segments::Segments;
use crate::timeline::Timeline;
use crate::{clock, gate, thread};

/// What to record, and into how much memory.
#[derive(Debug, Clone)]
pub struct Options {
    directives: Directives,
    ring_bytes: Option<usize>,
    most_threads: usize,
    keep: Option<Duration>,
    drain_every: Duration,
    file_limit: u64,
    /// Whether standard error hears of a file that could not be written: where no code asked for it, none looks.
    pub(crate) is_told: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            directives: Directives::of(Category::ALL, Level::Info),
            ring_bytes: None,
            most_threads: 1024,
            keep: None,
            drain_every: Duration::from_millis(20),
            file_limit: 1 << 30,
            is_told: false,
        }
    }
}

impl Options {
    /// Everything of level [`Level::Info`] and above, in rings that stop when full: of 1 MiB in memory, of 8 MiB on
    /// the way to a file, which take a burst of 130,000 spans between two drains.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only these categories, at the level that is set already for any.
    #[must_use]
    pub fn categories(self, categories: Category) -> Self {
        let directives = self.directives.of_categories(categories);
        Self { directives, ..self }
    }

    /// This level and everything more important.
    #[must_use]
    pub fn level(self, level: Level) -> Self {
        Self { directives: self.directives.at_level(level), ..self }
    }

    /// What to keep, in one line: categories and levels (`network,request@debug`, `info,network=trace`), and targets
    /// of `tracing`'s
    /// events (`info,hyper=debug,h2=off`), of which the longest that fits decides, as in `EnvFilter`.
    ///
    /// # Errors
    /// When a word is none of these.
    pub fn directives(self, line: &str) -> Result<Self, StartError> {
        let directives = Directives::parse(line).map_err(StartError::Directive)?;
        Ok(Self { directives, ..self })
    }

    /// Memory of one thread's ring: rounded up to a power of two of 32-byte records, from 64 KiB to 1 GiB.
    /// Untouched memory costs nothing, but from 2 MiB on the kernel may clear a huge page when a thread's first event
    /// comes, which takes a millisecond or two.
    #[must_use]
    pub fn ring_bytes(self, ring_bytes: usize) -> Self {
        Self { ring_bytes: Some(ring_bytes.clamp(SMALLEST_RING, LARGEST_RING)), ..self }
    }

    /// Threads that get a ring; the events of others are counted and not kept.
    #[must_use]
    pub fn most_threads(self, most_threads: usize) -> Self {
        Self { most_threads, ..self }
    }

    /// A flight recorder: rings run on, the oldest records are overwritten, and a capture holds the last `keep`,
    /// as far as the rings reach back.
    #[must_use]
    pub fn flight_recorder(self, keep: Duration) -> Self {
        Self { keep: Some(keep), ..self }
    }

    /// How often a recording to a file empties the rings.
    #[must_use]
    pub fn drain_every(self, drain_every: Duration) -> Self {
        Self { drain_every: drain_every.max(Duration::from_millis(1)), ..self }
    }

    /// Bytes that the files of [`Options::start_file`] may take: 1 GiB unless told otherwise. When half of it is
    /// written, `app.pftrace` becomes `app.1.pftrace`, over the one before it, and another `app.pftrace` begins.
    #[must_use]
    pub fn file_limit(self, bytes: u64) -> Self {
        Self { file_limit: bytes, ..self }
    }

    /// Begins recording into memory.
    ///
    /// # Errors
    /// When a recording is on already: there is one at a time in a process.
    pub fn start(self) -> Result<Recording, StartError> {
        let on = On::claim(&self, self.ring_bytes.unwrap_or(RING_IN_MEMORY))?;
        let timeline = Arc::new((Mutex::new(Timeline::starting(on.start)), Condvar::new()));
        let keeper = self.keep.map(|_| keep_time(&timeline)).transpose().map_err(StartError::Io)?;
        Ok(Recording { on, timeline, keeper, keep: self.keep })
    }

    /// Begins recording into a Perfetto file, emptied from the rings by a thread of its own. The file is whole after
    /// every drain, so a killed process leaves what it had.
    ///
    /// # Errors
    /// When a recording is on already, when this is a flight recorder, or when the file cannot be made.
    pub fn start_file(self, path: impl AsRef<Path>) -> Result<FileRecording, StartError> {
        let on = self.claim()?;
        let path = path.as_ref().to_owned();
        let file = File::create(&path).map_err(StartError::Io)?;
        self.write_file(on, path, file)
    }

    /// As [`Options::start_file`], to whatever takes bytes. It is given whole packets: when it refuses some, what it
    /// took before
    /// is a valid file, and no more is recorded.
    ///
    /// # Errors
    /// When a recording is on already, or when this is a flight recorder.
    pub fn start_writing(
        self,
        out: impl Write + Send + 'static,
    ) -> Result<FileRecording, StartError> {
        let on = self.claim()?;
        let out = Segments::unlimited(Box::new(out), on.start);
        self.write(on, out, None)
    }

    /// Opens the gate for a recording that is written as it goes.
    pub(crate) fn claim(&self) -> Result<On, StartError> {
        if self.keep.is_some() {
            return Err(StartError::FlightRecorderToFile);
        }
        On::claim(self, self.ring_bytes.unwrap_or(RING_TO_FILE))
    }

    pub(crate) fn write_file(
        self,
        on: On,
        path: PathBuf,
        file: File,
    ) -> Result<FileRecording, StartError> {
        // A pipe or a device has no size to be limited.
        let limit =
            if file.metadata().is_ok_and(|it| it.is_file()) { self.file_limit } else { u64::MAX };
        let out = Segments::limited(path.clone(), file, limit, on.start);
        self.write(on, out.map_err(StartError::Io)?, Some(path))
    }

    fn write(
        self,
        on: On,
        out: Segments,
        path: Option<PathBuf>,
    ) -> Result<FileRecording, StartError> {
        let stop = Arc::new(Stop::default());
        let writer = Writer {
            out,
            collector: Collector::new(Timeline::starting(on.start), true),
            stop: stop.clone(),
            every: self.drain_every,
            told: path.clone().filter(|_| self.is_told),
        };
        stop.at_exit();
        let thread = thread::spawn(move || writer.run()).map_err(StartError::Io)?;
        Ok(FileRecording { on, stop, path, thread: Some(thread) })
    }
}

const RING_IN_MEMORY: usize = 1 << 20;
const RING_TO_FILE: usize = 8 << 20;
const SMALLEST_RING: usize = 64 << 10;
const LARGEST_RING: usize = 1 << 30;

/// Why a recording did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Another recording is on.
    Busy,
    /// A flight recorder is captured, not written as it goes.
    FlightRecorderToFile,
    /// `TOWPATH_TRACE` is not `what:file`.
    Environment(String),
    /// What to keep is said with a word that means nothing.
    Directive(UnknownDirective),
    /// The file or the thread could not be made.
    Io(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another trace recording is on"),
            Self::FlightRecorderToFile => {
                f.write_str("a flight recorder is captured, not written to a file as it goes")
            }
            Self::Environment(value) => {
                write!(f, "TOWPATH_TRACE={value:?} is not of the form what:file")
            }
            Self::Directive(_) => f.write_str("what to record is not understood"),
            Self::Io(_) => f.write_str("the trace recording could not begin"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Directive(error) => Some(error),
            Self::Busy | Self::FlightRecorderToFile | Self::Environment(_) => None,
        }
    }
}

/// The gate is open and rings are given out, until this is dropped.
#[derive(Debug)]
pub(crate) struct On {
    pid: u32,
    start: Reading,
}

/// The process whose recording is on; another process's number is what a fork left behind.
static ON: AtomicU32 = AtomicU32::new(0);

impl On {
    fn claim(options: &Options, ring_bytes: usize) -> Result<Self, StartError> {
        let pid = std::process::id();
        let claimed =
            ON.fetch_update(Ordering::AcqRel, Ordering::Acquire, |on| (on != pid).then_some(pid));
        claimed.map_err(|_| StartError::Busy)?;
        ring::watch_forks();
        let start = Reading::take();
        let plan = Plan {
            capacity: (ring_bytes / size_of::<record::Words>()).next_power_of_two(),
            flight: options.keep.is_some(),
            most_rings: options.most_threads,
        };
        ring::registry().begin(plan);
        gate::record(options.directives.clone());
        #[cfg(feature = "tracing")]
        crate::facade::unentered::recording_begins(start.ticks);
        Ok(Self { pid, start })
    }

    /// A copy of a recording in a forked child records nothing: its threads and files are the parent's.
    fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    fn shut(&self) -> Vec<Arc<Ring>> {
        gate::record(Directives::default());
        ring::registry().end()
    }
}

impl Drop for On {
    fn drop(&mut self) {
        if self.is_ours() {
            self.shut();
            let _ = ON.compare_exchange(self.pid, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// A recording into memory. Dropping it forgets what it holds.
#[derive(Debug)]
pub struct Recording {
    on: On,
    timeline: SharedTimeline,
    keeper: Option<JoinHandle<()>>,
    keep: Option<Duration>,
}

type SharedTimeline = Arc<(Mutex<Timeline>, Condvar)>;

impl Recording {
    /// Keeps these categories from here on; spans that are open end as they should.
    pub fn set_categories(&self, categories: Category, level: Level) {
        if self.on.is_ours() {
            gate::record(Directives::of(categories, level));
        }
    }

    /// Ends the recording and answers what it holds.
    #[must_use]
    pub fn stop(self) -> Capture {
        let rings = if self.on.is_ours() { self.on.shut() } else { Vec::new() };
        self.collect(&rings)
    }

    /// A copy of what the rings hold, while the recording goes on. Only a flight recorder's rings run on for ever;
    /// others fill up and this does not empty them.
    #[must_use]
    pub fn capture(&self) -> Capture {
        let rings = if self.on.is_ours() { ring::registry().rings.clone() } else { Vec::new() };
        self.collect(&rings)
    }

    /// What [`Recording::capture`] would answer, cut to the spans that touch the time between two stamps, or `around`
    /// before or after it.
    #[must_use]
    pub fn capture_between(&self, from: Stamp, until: Stamp, around: Duration) -> Capture {
        let capture = self.capture();
        let timeline = self.timeline.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |stamp: Stamp| match stamp.monotonic {
            true => timeline.place_monotonic(stamp.value),
            false => timeline.place(stamp.value),
        };
        let around = u64::try_from(around.as_nanos()).unwrap_or(u64::MAX);
        let (from, until) = (place(from), place(until));
        capture.between(from.saturating_sub(around), until.saturating_add(around))
    }

    /// What [`Recording::capture`] would answer, cut to the time of the spans that have the value `trace_id` with
    /// this text, and `around`
    /// before and after it; `None` when there is none of it.
    #[must_use]
    pub fn capture_trace(&self, trace_id: &str, around: Duration) -> Option<Capture> {
        let capture = self.capture();
        let (from, until) = capture.time_of(trace_id)?;
        let around = u64::try_from(around.as_nanos()).unwrap_or(u64::MAX);
        Some(capture.between(from.saturating_sub(around), until.saturating_add(around)))
    }

    fn collect(&self, rings: &[Arc<Ring>]) -> Capture {
        let timeline = {
            let mut timeline = self.timeline.0.lock().unwrap_or_else(PoisonError::into_inner);
            timeline.add_now();
            timeline.clone()
        };
        let mut capture = Capture::new(Process::this(), timeline.first());
        let end = timeline.last();
        let mut collector = Collector::new(timeline, false);
        capture.reading(&end);
        collector.drain(rings, &mut capture);
        let account = collector.finish(&mut capture);
        capture
            .set_account(Account { ns_per_event: cost_of_event(&collector.timeline), ..account });
        let kept = self.keep.map(|keep| u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX));
        match kept {
            Some(kept) => capture.between(end.boot_ns.saturating_sub(kept), end.boot_ns),
            None => capture,
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.on.is_ours() {
            return;
        }
        if let Some(keeper) = self.keeper.take() {
            // The keeper holds the timeline weakly: it ends when we let go of it.
            self.timeline = Arc::new((Mutex::new(Timeline::default()), Condvar::new()));
            keeper.thread().unpark();
        }
    }
}

/// Reads the clocks once a second, so that a capture hours later places its records to the nanosecond.
fn keep_time(timeline: &SharedTimeline) -> io::Result<JoinHandle<()>> {
    let timeline = Arc::downgrade(timeline);
    thread::spawn(move || {
        while let Some(timeline) = timeline.upgrade() {
            timeline.0.lock().unwrap_or_else(PoisonError::into_inner).add(Reading::take());
            drop(timeline);
            std::thread::park_timeout(Duration::from_secs(1));
        }
    })
}

/// A recording into a Perfetto file. Dropping it completes the file, and so does the end of the program by `exit`.
#[derive(Debug)]
pub struct FileRecording {
    on: On,
    stop: Arc<Stop>,
    path: Option<PathBuf>,
    thread: Option<JoinHandle<io::Result<Account>>>,
}

/// Asks the writer to complete the file, and learns that it has.
#[derive(Debug, Default)]
struct Stop {
    /// Asked for, and done.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Stop {
    fn ask(&self) {
        self.lock().0 = true;
        self.changed.notify_all();
    }

    /// Has the file completed when the program ends by `exit`, which drops nothing.
    fn at_exit(self: &Arc<Self>) {
        *LATEST.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((std::process::id(), Arc::downgrade(self)));
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| thread::at_exit(complete_at_exit));
    }

    fn lock(&self) -> MutexGuard<'_, (bool, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The recording to a file that is on, and its process.
static LATEST: Mutex<Option<(u32, Weak<Stop>)>> = Mutex::new(None);

extern "C" fn complete_at_exit() {
    // A child that was forked while the lock was held must not wait for it.
    let latest = LATEST.try_lock().ok().and_then(|mut latest| latest.take());
    let ours = latest.filter(|(pid, _)| *pid == std::process::id());
    let Some(stop) = ours.and_then(|(_, stop)| stop.upgrade()) else { return };
    gate::record(Directives::default());
    stop.ask();
    let state = stop.lock();
    // A disk that hangs must not keep the program for ever.
    let _ = stop.changed.wait_timeout_while(state, AT_EXIT, |(_, done)| !*done);
}

/// The longest that the end of a program is held up.
const AT_EXIT: Duration = Duration::from_secs(5);

impl FileRecording {
    /// The file, unless it is a writer of the program's own.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Keeps these categories from here on; spans that are open end as they should.
    pub fn set_categories(&self, categories: Category, level: Level) {
        if self.on.is_ours() {
            gate::record(Directives::of(categories, level));
        }
    }

    /// Ends the recording, completes the file and answers its account.
    ///
    /// # Errors
    /// When writing failed at any time: the file ends there.
    pub fn finish(mut self) -> io::Result<Account> {
        self.complete()
    }

    fn complete(&mut self) -> io::Result<Account> {
        let Some(thread) = self.thread.take() else { return Ok(Account::default()) };
        if !self.on.is_ours() {
            // The thread is the parent's.
            std::mem::forget(thread);
            return Ok(Account::default());
        }
        gate::record(Directives::default());
        self.stop.ask();
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the trace writer panicked")))
    }
}

impl Drop for FileRecording {
    fn drop(&mut self) {
        let _ = self.complete();
    }
}

/// The thread that empties rings into a file.
struct Writer {
    out: Segments,
    collector: Collector,
    stop: Arc<Stop>,
    every: Duration,
    /// The file of which standard error is to hear when it cannot be written.
    told: Option<PathBuf>,
}

impl Writer {
    fn run(mut self) -> io::Result<Account> {
        while !self.wait() {
            let reading = Reading::take();
            if self.collector.timeline.add(reading) {
                self.out.reading(&reading);
            }
            let rings = ring::registry().rings.clone();
            self.drain(&rings);
            if let Some(error) = self.out.failure() {
                // A full disk: nothing more can be kept, so nothing more is recorded.
                gate::record(Directives::default());
                tell(&mut self.told, error);
            }
        }
        let rings = ring::registry().end();
        self.collector.timeline.add_now();
        self.out.reading(&self.collector.timeline.last());
        self.drain(&rings);
        let account = self.collector.finish(&mut self.out);
        let account = Account { ns_per_event: cost_of_event(&self.collector.timeline), ..account };
        let finished = self.out.finish(&account);
        if let Err(error) = &finished {
            tell(&mut self.told, error);
        }
        self.stop.lock().1 = true;
        self.stop.changed.notify_all();
        finished.map(|()| account)
    }

    fn drain(&mut self, rings: &[Arc<Ring>]) {
        self.collector.drain(rings, &mut self.out);
        self.out.flush();
    }

    fn wait(&self) -> bool {
        let waited =
            self.stop.changed.wait_timeout_while(self.stop.lock(), self.every, |(stop, _)| !*stop);
        waited.unwrap_or_else(PoisonError::into_inner).0.0
    }
}

/// Says once that a file ends before its recording.
fn tell(told: &mut Option<PathBuf>, error: &io::Error) {
    if let Some(path) = told.take() {
        eprintln!("towpath-trace: nothing more is recorded, {}: {error}", path.display());
    }
}

/// What one event costs, measured on a ring of its own: the best of a few short runs.
fn cost_of_event(timeline: &Timeline) -> f64 {
    const EVENTS: usize = 256;
    let ring = Ring::new(EVENTS, 1, true, Thread { tid: 0, name: String::new() });
    let runs = (0..16).map(|_| {
        let begun = clock::ticks();
        for event in 0..EVENTS as u64 {
            std::hint::black_box(&ring)
                .push([record::head(Kind::Mark, 1, 0, 0), clock::ticks(), event, 0], ring.base());
        }
        clock::ticks().saturating_sub(begun)
    });
    runs.min().unwrap_or(0) as f64 * timeline.ns_per_tick() / EVENTS as f64
}
