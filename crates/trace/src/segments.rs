//! A recording's file, kept within a size: when it is half as large as it may be, it is renamed and another begins.
//!
//! `app.pftrace` becomes `app.1.pftrace`, over the one before it, so that the latest half at least is there. Each of
//! the two is whole
//! by itself: what is open ends with the first, marked unfinished, and begins again with the second.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::callsite::Callsite;
use crate::category::Category;
use crate::clock::Reading;
use crate::collect::{Account, Placed, Sink};
use crate::decode::Arena;
use crate::environment::with;
use crate::perfetto::Perfetto;
use crate::process::Process;
use crate::ring::Thread;
use crate::tracks::{TrackId, What};

/// Where a recording that is written as it goes puts its packets.
pub(crate) struct Segments {
    perfetto: Perfetto<Box<dyn Write + Send>>,
    rotation: Option<Rotation>,
}

/// What the next file needs to know of the one before.
struct Rotation {
    path: PathBuf,
    file: File,
    /// Bytes at which a file is full.
    full: u64,
    process: Process,
    start: Reading,
    latest: Reading,
    threads: Vec<(u64, Thread)>,
    open: HashMap<TrackId, OpenLane>,
}

/// What is open on a track, the outermost first, and when the last event was.
#[derive(Default)]
struct OpenLane {
    spans: Vec<OpenSpan>,
    last_ns: u64,
}

struct OpenSpan {
    callsite: Option<(u32, &'static Callsite)>,
    name: Box<str>,
    own_name: bool,
    category: Category,
}

impl Segments {
    /// Everything to `out`, however much it becomes.
    pub(crate) fn unlimited(out: Box<dyn Write + Send>, start: Reading) -> Self {
        Self { perfetto: Perfetto::new(out, Process::this(), start), rotation: None }
    }

    /// To `file` at `path`, and from half of `limit` bytes on to another.
    pub(crate) fn limited(
        path: PathBuf,
        file: File,
        limit: u64,
        start: Reading,
    ) -> io::Result<Self> {
        let process = Process::this();
        let perfetto = Perfetto::new(boxed(file.try_clone()?), process.clone(), start);
        let rotation = Rotation {
            path,
            file,
            full: limit / 2,
            process,
            start,
            latest: start,
            threads: Vec::new(),
            open: HashMap::new(),
        };
        Ok(Self { perfetto, rotation: Some(rotation) })
    }

    /// What was handed over reaches the file, which is whole then.
    pub(crate) fn flush(&mut self) {
        self.perfetto.flush();
        self.keep_whole();
    }

    /// Why nothing more is written, where that is so.
    pub(crate) fn failure(&self) -> Option<&io::Error> {
        self.perfetto.failure()
    }

    /// Closes the file with the recording's account.
    pub(crate) fn finish(mut self, account: &Account) -> io::Result<()> {
        self.perfetto.account(account);
        self.perfetto.flush();
        self.keep_whole();
        self.perfetto.into_inner().map(|_| ())
    }

    /// Cuts off the packet that a full disk cut.
    fn keep_whole(&self) {
        if let (Some(_), Some(rotation)) = (self.perfetto.failure(), &self.rotation) {
            // What cannot be cut off is stepped over by readers.
            let _ = rotation.file.set_len(self.perfetto.written());
        }
    }

    fn rotate(&mut self) {
        let Some(rotation) = &mut self.rotation else { return };
        rotation.replay(&mut self.perfetto, What::Unfinished);
        self.perfetto.flush();
        let next = std::fs::rename(&rotation.path, with(&rotation.path, "1"))
            .and_then(|()| File::create(&rotation.path))
            .and_then(|file| Ok((file.try_clone()?, file)));
        match next {
            Ok((file, out)) => {
                rotation.file = file;
                self.perfetto = Perfetto::new(boxed(out), rotation.process.clone(), rotation.start);
                self.perfetto.reading(&rotation.latest);
                for (ring, thread) in &rotation.threads {
                    self.perfetto.thread(*ring, thread);
                }
                rotation.replay(&mut self.perfetto, What::Begin);
            }
            Err(error) => self.perfetto.fail(error),
        }
    }
}

fn boxed(file: File) -> Box<dyn Write + Send> {
    Box::new(file)
}

impl Rotation {
    fn follow(&mut self, event: &Placed<'_>) {
        match event.what {
            What::Begin => {
                let Placed { callsite, name, own_name, category, ns, .. } = *event;
                let track = self.open.entry(event.track).or_default();
                track.spans.push(OpenSpan { callsite, name: name.into(), own_name, category });
                track.last_ns = ns;
            }
            What::End | What::Unfinished => {
                let Some(track) = self.open.get_mut(&event.track) else { return };
                track.spans.pop();
                track.last_ns = event.ns;
                if track.spans.is_empty() {
                    self.open.remove(&event.track);
                }
            }
            What::Mark | What::Counter => {
                if let Some(track) = self.open.get_mut(&event.track) {
                    track.last_ns = event.ns;
                }
            }
        }
    }

    /// Ends all that is open, from inside out, or begins it, from outside in.
    fn replay(&self, out: &mut Perfetto<Box<dyn Write + Send>>, what: What) {
        let arena = Arena::default();
        for (&track, open) in &self.open {
            let mut emit = |span: &OpenSpan| {
                out.event(&Placed {
                    ns: open.last_ns,
                    track,
                    what,
                    callsite: span.callsite,
                    name: &span.name,
                    own_name: span.own_name,
                    category: span.category,
                    values: &[],
                    arena: &arena,
                });
            };
            match what {
                What::Begin => open.spans.iter().for_each(&mut emit),
                What::End | What::Unfinished | What::Mark | What::Counter => {
                    open.spans.iter().rev().for_each(&mut emit);
                }
            }
        }
    }
}

impl Sink for Segments {
    fn thread(&mut self, ring: u64, thread: &Thread) {
        self.perfetto.thread(ring, thread);
        if let Some(rotation) = &mut self.rotation {
            rotation.threads.push((ring, thread.clone()));
        }
    }

    fn event(&mut self, event: &Placed<'_>) {
        self.perfetto.event(event);
        if let Some(rotation) = &mut self.rotation {
            rotation.follow(event);
            if self.perfetto.written() >= rotation.full && self.perfetto.failure().is_none() {
                self.rotate();
            }
        }
    }

    fn lost(&mut self, ring: u64, ns: u64, count: u64) {
        self.perfetto.lost(ring, ns, count);
    }

    fn gone(&mut self, ring: u64) {
        self.perfetto.gone(ring);
        if let Some(rotation) = &mut self.rotation {
            rotation.threads.retain(|(known, _)| *known != ring);
        }
    }

    fn reading(&mut self, reading: &Reading) {
        self.perfetto.reading(reading);
        if let Some(rotation) = &mut self.rotation {
            rotation.latest = *reading;
        }
    }
}
