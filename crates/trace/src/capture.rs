//! What a recording into memory held: for writing files, and for looking at.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::callsite::Callsite;
use crate::category::{Category, Level};
use crate::chrome::Chrome;
use crate::clock::Reading;
use crate::collect::{Account, Placed, Sink};
use crate::decode::{Arena, Place, Stored, Values};
use crate::perfetto::Perfetto;
use crate::process::Process;
use crate::record::value_kind;
use crate::ring::Thread;
use crate::tracks::{TrackId, What};
use crate::value::{self, Flow, Text, Value};

/// Events of all threads and tracks, whole and in order.
#[derive(Debug, Clone)]
pub struct Capture {
    process: Process,
    start: Reading,
    end: Reading,
    threads: Vec<(u64, Thread)>,
    entries: Vec<Entry>,
    arena: Arena,
    account: Account,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    Event(Kept),
    Lost { ring: u64, ns: u64, count: u64 },
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    ns: u64,
    track: TrackId,
    what: What,
    callsite: Option<(u32, &'static Callsite)>,
    name: Option<Place>,
    category: Category,
    values: Values,
}

impl Kept {
    /// Level, target and location of its callsite.
    fn origin(&self) -> (Option<Level>, &'static str, Option<(&'static str, u32)>) {
        let site = self.callsite.map(|(_, site)| site);
        (site.map(Callsite::level), site.map_or("", Callsite::target), site.map(Callsite::location))
    }
}

/// One span of a capture.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SpanView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its categories.
    pub category: Category,
    /// Its level, if its callsite has one.
    pub level: Option<Level>,
    /// The target of an event of `tracing`; empty for others.
    pub target: &'static str,
    /// Source file and line of its callsite.
    pub location: Option<(&'static str, u32)>,
    /// The thread it ran on, or the track it lies on.
    pub place: PlaceView,
    /// Begin, in nanoseconds of `CLOCK_BOOTTIME`.
    pub begin_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
    /// It was still open when the capture was made.
    pub unfinished: bool,
    /// How many spans of the same thread or track it lies in.
    pub depth: usize,
    /// Its values, those known at the end after those known at the begin.
    pub values: Vec<(&'a str, Value<'a>)>,
}

/// One mark or sample of a capture.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PointView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its level, if its callsite has one.
    pub level: Option<Level>,
    /// The target of an event of `tracing`; empty for others.
    pub target: &'static str,
    /// Source file and line of its callsite.
    pub location: Option<(&'static str, u32)>,
    /// Its time, in nanoseconds of `CLOCK_BOOTTIME`.
    pub ns: u64,
    /// Its values.
    pub values: Vec<(&'a str, Value<'a>)>,
}

/// Where a span lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlaceView {
    /// On the thread of this number.
    Thread(u32),
    /// On the track of this number.
    Track(u64),
}

impl Capture {
    pub(crate) fn new(process: Process, start: Reading) -> Self {
        Self {
            process,
            start,
            end: start,
            threads: Vec::new(),
            entries: Vec::new(),
            arena: Arena::default(),
            account: Account::default(),
        }
    }

    pub(crate) fn set_account(&mut self, account: Account) {
        self.account = account;
    }

    /// What was kept, what was not, and what it cost.
    #[must_use]
    pub const fn account(&self) -> Account {
        self.account
    }

    /// Writes a Perfetto file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_perfetto(&self, out: impl Write) -> io::Result<()> {
        let mut perfetto = Perfetto::new(out, self.process.clone(), self.start);
        self.replay(&mut perfetto);
        perfetto.finish(&self.account).map(drop)
    }

    /// Writes Chrome's JSON, which `chrome://tracing`, Perfetto and Speedscope read.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_chrome(&self, out: impl Write) -> io::Result<()> {
        let mut chrome = Chrome::new(out, &self.process, self.start);
        self.replay(&mut chrome);
        chrome.finish(&self.account)
    }

    /// The spans that touch the time between two moments of `CLOCK_BOOTTIME`, whole, and the marks and counters in it.
    #[must_use]
    pub fn between(mut self, from_ns: u64, until_ns: u64) -> Self {
        let within = |ns: u64| ns >= from_ns && ns <= until_ns;
        let mut keep = vec![true; self.entries.len()];
        let mut open: HashMap<TrackId, Vec<usize>> = HashMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let Entry::Event(event) = entry else { continue };
            match event.what {
                What::Mark | What::Counter => keep[index] = within(event.ns),
                What::Begin => open.entry(event.track).or_default().push(index),
                What::End | What::Unfinished => {
                    let Some(begin) = open.get_mut(&event.track).and_then(Vec::pop) else {
                        continue;
                    };
                    let Entry::Event(Kept { ns, .. }) = self.entries[begin] else { continue };
                    let touches = ns <= until_ns && event.ns >= from_ns;
                    (keep[begin], keep[index]) = (touches, touches);
                }
            }
        }
        let mut keep = keep.into_iter();
        self.entries.retain(|_| keep.next().unwrap_or(true));
        self
    }

    /// The spans, each after those it lies in.
    #[must_use]
    pub fn spans(&self) -> Vec<SpanView<'_>> {
        let mut spans: Vec<SpanView<'_>> = Vec::new();
        let mut open: HashMap<TrackId, Vec<usize>> = HashMap::new();
        for entry in &self.entries {
            let Entry::Event(event) = entry else { continue };
            let stack = open.entry(event.track).or_default();
            match event.what {
                What::Begin => {
                    let depth = stack.len();
                    stack.push(spans.len());
                    spans.push(self.span(event, depth));
                }
                What::End | What::Unfinished => {
                    let Some(span) = stack.pop().and_then(|index| spans.get_mut(index)) else {
                        continue;
                    };
                    span.end_ns = event.ns;
                    span.unfinished = event.what == What::Unfinished;
                    span.values.extend(self.values(event));
                }
                What::Mark | What::Counter => {}
            }
        }
        spans
    }

    /// From the first begin to the last end of the spans of this trace.
    pub(crate) fn time_of(&self, trace_id: &str) -> Option<(u64, u64)> {
        let spans = self.spans();
        let of_trace =
            spans.iter().filter(|span| span.values.contains(&("trace_id", Value::Text(trace_id))));
        of_trace
            .map(|span| (span.begin_ns, span.end_ns))
            .reduce(|(from, until), (begin, end)| (from.min(begin), until.max(end)))
    }

    /// The marks, by thread or track.
    #[must_use]
    pub fn marks(&self) -> Vec<PointView<'_>> {
        self.points(What::Mark)
    }

    /// The samples of counters, by thread.
    #[must_use]
    pub fn counters(&self) -> Vec<PointView<'_>> {
        self.points(What::Counter)
    }

    fn points(&self, what: What) -> Vec<PointView<'_>> {
        let events = self.entries.iter().filter_map(|entry| match entry {
            Entry::Event(event) if event.what == what => Some(event),
            Entry::Event(_) | Entry::Lost { .. } => None,
        });
        let view = |event: &'_ Kept| {
            let (level, target, location) = event.origin();
            let (name, values) = (self.name(event), self.values(event));
            PointView { name, level, target, location, ns: event.ns, values }
        };
        events.map(view).collect()
    }

    fn span<'a>(&'a self, event: &'a Kept, depth: usize) -> SpanView<'a> {
        let place = match event.track {
            TrackId::Thread { ring, .. } => PlaceView::Thread(
                self.threads
                    .iter()
                    .find(|(serial, _)| *serial == ring)
                    .map_or(0, |(_, thread)| thread.tid),
            ),
            TrackId::Async { id, .. } => PlaceView::Track(id),
        };
        let (level, target, location) = event.origin();
        SpanView {
            name: self.name(event),
            category: event.category,
            level,
            target,
            location,
            place,
            begin_ns: event.ns,
            end_ns: event.ns,
            unfinished: true,
            depth,
            values: self.values(event),
        }
    }

    fn name(&self, event: &Kept) -> &str {
        let site = event.callsite.map_or("", |(_, site)| site.name());
        event.name.map_or(site, |name| self.arena.text(name))
    }

    fn values<'a>(&'a self, event: &Kept) -> Vec<(&'a str, Value<'a>)> {
        let fields = event.callsite.map_or(&[][..], |(_, site)| site.fields());
        let values = self.arena.values(event.values).iter().enumerate();
        let named = values.map(|(index, value)| {
            (fields.get(index).copied().unwrap_or("value"), self.value(*value))
        });
        named.filter(|(_, value)| *value != Value::Absent).collect()
    }

    fn value(&self, (kind, word): Stored) -> Value<'_> {
        match kind {
            value_kind::UNSIGNED => Value::Unsigned(word),
            value_kind::SIGNED => Value::Signed(word as i64),
            value_kind::FLOAT => Value::Float(f64::from_bits(word)),
            value_kind::BOOL => Value::Bool(word != 0),
            value_kind::INTERNED => Value::Interned(Text::from_number(word as u32)),
            value_kind::TEXT => Value::Text(self.arena.text_of(word)),
            value_kind::FLOW => Value::Flow(Flow::through(word)),
            value_kind::LAST_FLOW => Value::Flow(Flow::last(word)),
            _ => Value::Absent,
        }
    }

    fn replay(&self, sink: &mut dyn Sink) {
        sink.reading(&self.end);
        self.threads.iter().for_each(|(ring, thread)| sink.thread(*ring, thread));
        for entry in &self.entries {
            match *entry {
                Entry::Lost { ring, ns, count } => sink.lost(ring, ns, count),
                Entry::Event(event) => sink.event(&Placed {
                    ns: event.ns,
                    track: event.track,
                    what: event.what,
                    callsite: event.callsite,
                    name: self.name(&event),
                    own_name: event.name.is_some(),
                    category: event.category,
                    values: self.arena.values(event.values),
                    arena: &self.arena,
                }),
            }
        }
    }
}

impl Sink for Capture {
    fn thread(&mut self, ring: u64, thread: &Thread) {
        self.threads.push((ring, thread.clone()));
    }

    fn event(&mut self, event: &Placed<'_>) {
        let name = event.own_name.then(|| self.arena.keep_text(event.name));
        let values = self.arena.keep(event.arena, event.values);
        let Placed { ns, track, what, callsite, category, .. } = *event;
        self.entries.push(Entry::Event(Kept { ns, track, what, callsite, name, category, values }));
    }

    fn lost(&mut self, ring: u64, ns: u64, count: u64) {
        self.entries.push(Entry::Lost { ring, ns, count });
    }

    fn reading(&mut self, reading: &Reading) {
        self.end = *reading;
    }
}

/// The text that a [`Value::Interned`] stands for.
#[must_use]
pub fn interned(text: Text) -> Option<std::sync::Arc<str>> {
    value::text(text)
}
