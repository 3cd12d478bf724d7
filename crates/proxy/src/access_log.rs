//! Access-log files: lines arrive from workers and the admin endpoint, writes leave to files.
//!
//! One thread does all writing, so that a slow disk stops neither a worker nor the control thread. What waits for
//! it is bounded by [`MAX_WAITING`]; lines beyond that are dropped and counted.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::log;
use crate::logger::limit::Limit;

/// Bytes that may wait to be written, over all files.
pub const MAX_WAITING: usize = 16 * 1024 * 1024;

/// A destination of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, opened to append.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "'{}'", path.display()),
            Self::Stdout => f.write_str("to standard output"),
            Self::Stderr => f.write_str("to standard error"),
        }
    }
}

/// When buffered lines are written.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// This long after the first one.
    pub interval: Duration,
    /// Or when there is this much of them.
    pub size: usize,
}

/// Counters in the shape of Envoy's `filesystem.*`.
#[derive(Debug, Default)]
pub struct FileCounts {
    /// `write_buffered`: chunks taken in.
    pub buffered: AtomicU64,
    /// `write_completed`: writes that went well.
    pub completed: AtomicU64,
    /// `write_failed`: writes that did not; their lines are lost.
    pub failed: AtomicU64,
    /// `flushed_by_timer`.
    pub flushed_by_timer: AtomicU64,
    /// `reopen_failed`.
    pub reopen_failed: AtomicU64,
    /// Chunks that were dropped because too much was waiting.
    pub dropped: AtomicU64,
    waiting: AtomicUsize,
}

impl FileCounts {
    /// `write_total_buffered`: bytes that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// The writer's handle; the thread ends when it is dropped.
#[derive(Debug)]
pub struct AccessLogs {
    sender: LogSender,
    thread: Option<JoinHandle<()>>,
}

impl AccessLogs {
    /// Opens the files and starts the thread.
    ///
    /// # Errors
    /// Names the file that cannot be opened.
    pub fn start(targets: &[Target], flush: Flush) -> io::Result<Self> {
        let files = targets.iter().map(|target| Output::open(target).map(Some));
        let files = files.collect::<io::Result<Vec<_>>>()?;
        let (sender, commands) = channel();
        let counts = Arc::new(FileCounts::default());
        let writer = Writer { files, flush, counts: counts.clone() };
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || writer.run(&commands))?;
        Ok(Self { sender: LogSender { sender, counts }, thread: Some(thread) })
    }

    /// What workers write to.
    #[must_use]
    pub fn sender(&self) -> LogSender {
        self.sender.clone()
    }
}

impl Drop for AccessLogs {
    fn drop(&mut self) {
        let _ = self.sender.sender.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has lost its lines already.
            let _ = thread.join();
        }
    }
}

/// Where lines are handed in; never blocks.
#[derive(Clone, Debug)]
pub struct LogSender {
    sender: Sender<Command>,
    counts: Arc<FileCounts>,
}

impl LogSender {
    /// Queues whole lines for the target with this index.
    pub fn write(&self, target: usize, lines: Bytes) {
        let waiting = self.counts.waiting.fetch_add(lines.len(), Ordering::Relaxed);
        if waiting + lines.len() > MAX_WAITING {
            self.counts.waiting.fetch_sub(lines.len(), Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let _ = self.sender.send(Command::Lines(target, lines));
    }

    /// Writes what is buffered and opens all files anew.
    pub fn reopen(&self) {
        let _ = self.sender.send(Command::Reopen);
    }

    /// Opens one more file.
    ///
    /// # Errors
    /// Names the file when it cannot be opened.
    pub fn open(&self, index: usize, target: &Target) -> io::Result<()> {
        let output = Output::open(target)?;
        let _ = self.sender.send(Command::Open(index, Box::new(output)));
        Ok(())
    }

    /// Writes what is buffered for a file, and closes it.
    pub fn close(&self, index: usize) {
        let _ = self.sender.send(Command::Close(index));
    }

    /// What was written so far.
    #[must_use]
    pub fn counts(&self) -> &FileCounts {
        &self.counts
    }
}

enum Command {
    Lines(usize, Bytes),
    Open(usize, Box<Output>),
    Close(usize),
    Reopen,
    Stop,
}

struct Writer {
    /// By their numbers; `None` where a file is not wanted any more.
    files: Vec<Option<Output>>,
    flush: Flush,
    counts: Arc<FileCounts>,
}

impl Writer {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            match self.next(commands) {
                Ok(Command::Lines(target, lines)) => self.buffer(target, &lines),
                Ok(Command::Open(index, output)) => {
                    let least = self.files.len().max(index + 1);
                    self.files.resize_with(least, || None);
                    self.files[index] = Some(*output);
                }
                Ok(Command::Close(index)) => {
                    if let Some(mut file) = self.files.get_mut(index).and_then(Option::take) {
                        file.flush(&self.counts);
                    }
                }
                Ok(Command::Reopen) => self.reopen(),
                Err(RecvTimeoutError::Timeout) => self.flush_due(),
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for command in commands.try_iter() {
            if let Command::Lines(target, lines) = command {
                self.buffer(target, &lines);
            }
        }
        self.flush_all();
    }

    fn next(&self, commands: &Receiver<Command>) -> Result<Command, RecvTimeoutError> {
        match self.files.iter().flatten().filter_map(|file| file.since).min() {
            None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(since) => {
                commands.recv_timeout(self.flush.interval.saturating_sub(since.elapsed()))
            }
        }
    }

    fn buffer(&mut self, target: usize, lines: &[u8]) {
        let waiting = self.counts.waiting();
        let Some(file) = self.files.get_mut(target).and_then(Option::as_mut) else {
            self.counts.waiting.fetch_sub(lines.len(), Ordering::Relaxed);
            return;
        };
        self.counts.buffered.fetch_add(1, Ordering::Relaxed);
        file.waiting.extend_from_slice(lines);
        file.since.get_or_insert_with(Instant::now);
        if file.waiting.len() >= self.flush.size || waiting > MAX_WAITING / 2 {
            file.flush(&self.counts);
        }
        // A stream of lines must not keep other files from their turn.
        if file.since.is_some_and(|since| since.elapsed() >= self.flush.interval) {
            self.flush_due();
        }
    }

    fn flush_due(&mut self) {
        for file in self.files.iter_mut().flatten() {
            if file.since.is_some_and(|since| since.elapsed() >= self.flush.interval) {
                self.counts.flushed_by_timer.fetch_add(1, Ordering::Relaxed);
                file.flush(&self.counts);
            }
        }
    }

    fn flush_all(&mut self) {
        self.files.iter_mut().flatten().for_each(|file| file.flush(&self.counts));
    }

    fn reopen(&mut self) {
        self.flush_all();
        for output in self.files.iter_mut().flatten() {
            if let Err(error) = output.reopen() {
                self.counts.reopen_failed.fetch_add(1, Ordering::Relaxed);
                log!(File, Error, "cannot reopen access log: {error}");
            }
        }
    }
}

struct Output {
    target: Target,
    file: Option<File>,
    waiting: Vec<u8>,
    since: Option<Instant>,
    failures: Limit,
}

impl Output {
    fn open(target: &Target) -> io::Result<Self> {
        let mut output = Self {
            target: target.clone(),
            file: None,
            waiting: Vec::new(),
            since: None,
            failures: Limit::default(),
        };
        output.reopen()?;
        Ok(output)
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Target::File(path) = &self.target {
            self.file = Some(open(path)?);
        }
        Ok(())
    }

    fn flush(&mut self, counts: &FileCounts) {
        self.since = None;
        if self.waiting.is_empty() {
            return;
        }
        let outcome = match (&self.target, &mut self.file) {
            (Target::File(_), Some(file)) => file.write_all(&self.waiting),
            (Target::File(_), None) => Err(io::ErrorKind::NotFound.into()),
            (Target::Stdout, _) => {
                let mut out = io::stdout().lock();
                out.write_all(&self.waiting).and_then(|()| out.flush())
            }
            (Target::Stderr, _) => io::stderr().write_all(&self.waiting),
        };
        let count = if outcome.is_ok() { &counts.completed } else { &counts.failed };
        count.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = outcome
            && let Some(failures) = self.failures.count(1, Instant::now())
        {
            let target = &self.target;
            log!(File, Error, "cannot write access log {target}: {error}; writes lost: {failures}");
        }
        counts.waiting.fetch_sub(self.waiting.len(), Ordering::Relaxed);
        self.waiting.clear();
        self.waiting.shrink_to(KEPT_CAPACITY);
    }
}

/// Buffer space that a file keeps between writes.
const KEPT_CAPACITY: usize = 64 * 1024;

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
        io::Error::new(error.kind(), format!("unable to open file '{}': {error}", path.display()))
    })
}

#[cfg(test)]
mod tests;
