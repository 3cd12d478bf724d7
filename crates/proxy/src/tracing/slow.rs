//! `--trace-slow`: a flight recorder, and a file for a request that was slow.
//!
//! Workers tell of slow requests without ever waiting; a thread of its own copies the rings and writes. At most one
//! file each [`APART`] is written, and the folder keeps the latest [`MOST_FILES`] within [`MOST_BYTES`].

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use towpath_engine::message::SlowStream;
use towpath_trace::{Options, Recording};

use crate::flags::SlowTrace;
use crate::log;

/// Time before and after a slow request that its file holds.
const AROUND: Duration = Duration::from_millis(10);
/// Files are written at least this far apart.
const APART: Duration = Duration::from_secs(1);
/// Files in the folder; the oldest makes room.
const MOST_FILES: usize = 64;
/// Bytes of all files in the folder.
const MOST_BYTES: u64 = 256 << 20;
/// A worker's ring: it holds about a tenth of a second of a worker that is never idle.
const RING_BYTES: usize = 4 << 20;
/// How far back a file may reach, if the rings do.
const KEEP: Duration = Duration::from_secs(60);

/// The flight recorder and the thread that writes.
pub(super) struct SlowRequests {
    after: Duration,
    recording: Arc<Recording>,
    sender: SlowSender,
    writer: JoinHandle<()>,
}

/// What became of slow requests so far.
#[derive(Debug, Default)]
pub(crate) struct SlowCounts {
    /// Slow requests.
    pub(crate) requests: AtomicU64,
    /// Files written.
    pub(crate) written: AtomicU64,
    /// Slow requests that got no file of their own.
    pub(crate) suppressed: AtomicU64,
    /// Files that could not be written.
    pub(crate) failed: AtomicU64,
}

/// Tells the writer of slow requests, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct SlowSender {
    shared: Arc<Shared>,
    jobs: SyncSender<SlowStream>,
}

#[derive(Debug)]
struct Shared {
    counts: SlowCounts,
    began: Instant,
    /// When the next file may be written, in ns since `began`.
    next_ns: AtomicU64,
}

impl SlowRequests {
    /// Begins to record.
    pub(super) fn start(wanted: &SlowTrace) -> Result<Self, String> {
        let refused = |what: &dyn std::fmt::Display| {
            format!("cannot record slow requests into {}: {what}", wanted.folder.display())
        };
        fs::create_dir_all(&wanted.folder).map_err(|error| refused(&error))?;
        let recording = Options::new().ring_bytes(RING_BYTES).flight_recorder(KEEP).start();
        let recording = Arc::new(recording.map_err(|error| refused(&super::with_source(&error)))?);
        let (jobs, queue) = sync_channel(1);
        let shared = Arc::new(Shared {
            counts: SlowCounts::default(),
            began: Instant::now(),
            next_ns: AtomicU64::new(0),
        });
        let writer = Writer {
            recording: recording.clone(),
            folder: wanted.folder.clone(),
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new().name("slow-traces".into());
        let writer = thread.spawn(move || writer.run(&queue)).map_err(|error| refused(&error))?;
        Ok(Self { after: wanted.after, recording, sender: SlowSender { shared, jobs }, writer })
    }

    pub(super) fn after(&self) -> Duration {
        self.after
    }

    pub(super) fn sender(&self) -> SlowSender {
        self.sender.clone()
    }

    pub(super) fn recording(&self) -> Arc<Recording> {
        self.recording.clone()
    }

    /// Writes what is asked for already. The workers, who hold senders, have ended.
    pub(super) fn finish(self) {
        let Self { sender, writer, .. } = self;
        drop(sender);
        // Its panic was reported when it happened.
        let _ = writer.join();
    }
}

impl SlowSender {
    /// Asks for a file, unless one was written a moment ago.
    pub(crate) fn tell(&self, slow: SlowStream) {
        let counts = &self.shared.counts;
        counts.requests.fetch_add(1, Ordering::Relaxed);
        if !self.shared.may_write() || self.jobs.try_send(slow).is_err() {
            counts.suppressed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> &SlowCounts {
        &self.shared.counts
    }
}

impl Shared {
    /// Whether it is time for another file; of those that ask at the same time one hears yes.
    fn may_write(&self) -> bool {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let next = self.next_ns.load(Ordering::Relaxed);
        let then = now.saturating_add(APART.as_nanos() as u64);
        now >= next
            && self
                .next_ns
                .compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

struct Writer {
    recording: Arc<Recording>,
    folder: PathBuf,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(self, queue: &Receiver<SlowStream>) {
        let counts = &self.shared.counts;
        for (number, slow) in queue.iter().enumerate() {
            match self.write(number, &slow) {
                Ok(path) => {
                    counts.written.fetch_add(1, Ordering::Relaxed);
                    log!(Main, Info, "slow request, {:?}: {}", slow.duration, path.display());
                }
                Err(error) => {
                    counts.failed.fetch_add(1, Ordering::Relaxed);
                    log!(Main, Error, "cannot write a trace to {}: {error}", self.folder.display());
                }
            }
        }
    }

    fn write(&self, number: usize, slow: &SlowStream) -> io::Result<PathBuf> {
        std::thread::sleep(AROUND);
        let capture = self.recording.capture_between(slow.from, slow.until, AROUND);
        make_room(&self.folder, MOST_FILES, MOST_BYTES)?;
        let path = self.folder.join(name(number, slow.duration, SystemTime::now()));
        let unfinished = path.with_extension("part");
        let mut file = BufWriter::new(File::create(&unfinished)?);
        let written = capture.write_perfetto(&mut file);
        let written = written.and_then(|()| file.into_inner()?.sync_data());
        if let Err(error) = written.and_then(|()| fs::rename(&unfinished, &path)) {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        Ok(path)
    }
}

/// A name that sorts by time.
fn name(number: usize, duration: Duration, now: SystemTime) -> String {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (ms, pid, took) = (since_1970.as_millis(), std::process::id(), duration.as_millis());
    format!("{PREFIX}{ms:013}-{pid}-{number}-{took}ms.{EXTENSION}")
}

const PREFIX: &str = "slow-";
const EXTENSION: &str = "pftrace";

/// Removes the oldest of our files until one more may come.
fn make_room(folder: &Path, most_files: usize, most_bytes: u64) -> io::Result<()> {
    let mut ours = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && path.extension().is_some_and(|extension| extension == EXTENSION);
        if is_ours {
            ours.push((path, entry.metadata()?.len()));
        }
    }
    ours.sort();
    let mut bytes: u64 = ours.iter().map(|(_, bytes)| bytes).sum();
    let mut files = ours.len();
    for (path, size) in ours {
        if files < most_files && bytes < most_bytes {
            break;
        }
        fs::remove_file(path)?;
        (files, bytes) = (files - 1, bytes - size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        Shared { counts: SlowCounts::default(), began: Instant::now(), next_ns: AtomicU64::new(0) }
    }

    #[test]
    fn of_many_slow_requests_one_is_written() {
        let shared = Arc::new(shared());
        let (jobs, queue) = sync_channel(1);
        let sender = SlowSender { shared, jobs };
        let moment = towpath_trace::Stamp::monotonic_ns(1);
        let slow = SlowStream { duration: APART, from: moment, until: moment };
        (0..1000).for_each(|_| sender.tell(slow));
        let counts = sender.counts();
        assert_eq!(counts.requests.load(Ordering::Relaxed), 1000);
        assert_eq!(counts.suppressed.load(Ordering::Relaxed), 999);
        assert_eq!(queue.try_iter().count(), 1);
    }

    #[test]
    fn a_writer_that_does_not_keep_up_is_not_waited_for() {
        let shared = Arc::new(shared());
        let (jobs, _queue) = sync_channel(0);
        let sender = SlowSender { shared, jobs };
        let moment = towpath_trace::Stamp::monotonic_ns(1);
        sender.tell(SlowStream { duration: APART, from: moment, until: moment });
        assert_eq!(sender.counts().suppressed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_oldest_files_make_room_and_others_are_left_alone() {
        let folder = std::env::temp_dir().join(format!("towpath-slow-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("app.pftrace"), "not ours").unwrap();
        for number in 0..5 {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(number);
            let name = name(0, Duration::from_millis(70), at);
            fs::write(folder.join(name), "0123456789").unwrap();
        }
        let left = || {
            let mut names: Vec<String> = fs::read_dir(&folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        make_room(&folder, 6, 51).unwrap();
        assert_eq!(left().len(), 6, "there is room");
        make_room(&folder, 4, 51).unwrap();
        assert_eq!(left().len(), 4);
        make_room(&folder, 64, 21).unwrap();
        let names = left();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names.len(), 3);
        assert_eq!(names[0], "app.pftrace");
        assert!(names[1].starts_with("slow-0000000000003-"), "{names:?}");
    }
}
