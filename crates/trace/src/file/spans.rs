//! The spans of a file with all they carry, and what lies in what: for those who hand them on.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::FileError;
use super::clocks::{Clocks, number};
use super::packets::{self, Packet, Packets};
use crate::perfetto::{
    EVENT_ANNOTATION, EVENT_NAME, EVENT_NAME_IID, EVENT_TRACK, EVENT_TYPE, OWN_CATEGORY,
    TRACK_DESCRIPTOR, TRACK_EVENT,
};
use crate::wire::{Field, Fields};

/// What [`spans`] found in a file.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Spans {
    /// In the order of their begins: what a span lies in comes before it.
    pub spans: Vec<Span>,
    /// Marks that lie in no span.
    pub marks: u64,
    /// What to add to times to have nanoseconds since 1970; `None` for a file that does not tell the time of day.
    pub real_less_boot_ns: Option<i64>,
    /// Ends without a begin.
    pub beginless: u64,
    /// Bytes behind the last whole packet.
    pub cut: u64,
}

/// One span. The polls of an asynchronous span are not among them: what lies in a poll lies in the span.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Its category, and the target and level of one from `tracing`.
    pub categories: Vec<String>,
    /// Position of the span it lies in.
    pub parent: Option<usize>,
    /// The track or thread, by the number that the file gives it.
    pub track: u64,
    /// Name and number of its process.
    pub process: (String, u64),
    /// Begin, in nanoseconds of `CLOCK_BOOTTIME`.
    pub begin_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
    /// It was still open when the file ended.
    pub unfinished: bool,
    /// Its values, later ones over those of the same name.
    pub values: Vec<(String, FileValue)>,
    /// The marks in it.
    pub marks: Vec<Mark>,
}

/// A mark in a span.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// Its time, in nanoseconds of `CLOCK_BOOTTIME`.
    pub ns: u64,
    /// Its values.
    pub values: Vec<(String, FileValue)>,
}

/// A value as a file holds it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FileValue {
    /// A flag.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// A text; integers above those of [`FileValue::Integer`] are texts too.
    Text(String),
}

impl Span {
    /// Its value of this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&FileValue> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Its text of this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            FileValue::Text(text) => Some(text),
            FileValue::Bool(_) | FileValue::Integer(_) | FileValue::Float(_) => None,
        }
    }
}

/// Events that one file may have here: they lie in memory, some 300 bytes each.
const MOST_EVENTS: usize = 4_000_000;

/// Reads the spans of a file, all into memory: of a flight recorder's file, not of hours.
///
/// # Errors
/// When the file cannot be read, is no trace, or has more than 4 million events.
pub fn spans(path: impl AsRef<Path>) -> Result<Spans, FileError> {
    let path = path.as_ref();
    let mut packets = Packets::of_file(path)?;
    let mut reader = Reader::default();
    let failed = |error| FileError::Io(path.to_owned(), error);
    let mut count = 0;
    while let Some(packet) = packets.next().map_err(failed)? {
        count += 1;
        reader.packet(&packet);
        if reader.events.len() > MOST_EVENTS {
            return Err(FileError::TooManyEvents(path.to_owned()));
        }
    }
    if count == 0 && packets.rest().cut > 0 {
        return Err(FileError::NotATrace(path.to_owned(), packets.at()));
    }
    Ok(Spans { cut: packets.rest().cut, ..reader.finish() })
}

#[derive(Default)]
struct Reader {
    clocks: Clocks,
    sequences: HashMap<u64, Sequence>,
    tracks: HashMap<u64, Track>,
    processes: HashMap<u64, String>,
    events: Vec<Event>,
}

/// Texts by number, of one sequence.
#[derive(Default)]
struct Sequence {
    categories: HashMap<u64, String>,
    names: HashMap<u64, String>,
    fields: HashMap<u64, String>,
    texts: HashMap<u64, String>,
    track: u64,
}

#[derive(Default)]
struct Track {
    parent: Option<u64>,
    pid: Option<u64>,
    is_thread: bool,
}

struct Event {
    ns: u64,
    kind: u64,
    track: u64,
    name: String,
    categories: Vec<String>,
    values: Vec<(String, FileValue)>,
    flows: Vec<u64>,
}

impl Reader {
    fn packet(&mut self, packet: &Packet<'_>) {
        self.clocks.learn(packet);
        self.sequences.entry(packet.sequence).or_default().learn(packet);
        for (field, value) in packet.fields() {
            match (field, value) {
                (TRACK_DESCRIPTOR, Field::Bytes(bytes)) => self.descriptor(bytes),
                (TRACK_EVENT, Field::Bytes(bytes)) => self.event(bytes, packet),
                _ => {}
            }
        }
    }

    fn descriptor(&mut self, bytes: &[u8]) {
        let Some(uuid) = number(bytes, 1) else { return };
        let track = self.tracks.entry(uuid).or_default();
        track.parent = number(bytes, 5).or(track.parent);
        let (process, thread) = (message(bytes, 3), message(bytes, 4));
        track.is_thread |= thread.is_some();
        track.pid = process.or(thread).and_then(|it| number(it, 1)).or(track.pid);
        if let (Some(process), Some(pid)) = (process, track.pid) {
            self.processes.insert(pid, text(message(process, 6).unwrap_or_default()));
        }
    }

    fn event(&mut self, bytes: &[u8], packet: &Packet<'_>) {
        let (Some(ns), Some(sequence)) =
            (self.clocks.boot_ns(packet), self.sequences.get(&packet.sequence))
        else {
            return;
        };
        let mut event = Event {
            ns,
            kind: 0,
            track: sequence.track,
            name: String::new(),
            categories: Vec::new(),
            values: Vec::new(),
            flows: Vec::new(),
        };
        let known = |table: &HashMap<u64, String>, iid| table.get(&iid).cloned();
        for (field, value) in Fields::of(bytes) {
            match (field, value) {
                (EVENT_TYPE, Field::Number(kind)) => event.kind = kind,
                (EVENT_TRACK, Field::Number(track)) => event.track = track,
                (EVENT_NAME, Field::Bytes(name)) => event.name = text(name),
                (EVENT_NAME_IID, Field::Number(iid)) => {
                    event.name = known(&sequence.names, iid).unwrap_or_default();
                }
                (3, Field::Number(iid)) => {
                    event.categories.extend(known(&sequence.categories, iid));
                }
                (22, Field::Bytes(category)) => event.categories.push(text(category)),
                (47 | 48, Field::Fixed64(flow)) => event.flows.push(flow),
                (EVENT_ANNOTATION, Field::Bytes(bytes)) => {
                    event.values.extend(sequence.annotation(bytes));
                }
                _ => {}
            }
        }
        if !event.categories.iter().any(|category| category == OWN_CATEGORY) {
            self.events.push(event);
        }
    }

    fn finish(mut self) -> Spans {
        // Stable: of events at one time the order of the file counts.
        self.events.sort_by_key(|event| event.ns);
        let mut nest = Nest::new(&self.tracks);
        let mut last = 0;
        for event in std::mem::take(&mut self.events) {
            last = event.ns;
            match event.kind {
                1 => nest.begin(event, &self.processes),
                2 => nest.end(event),
                3 => nest.mark(event),
                _ => {}
            }
        }
        nest.finish(last);
        let real = self.clocks.real_less_boot.and_then(|ns| i64::try_from(ns).ok());
        Spans { real_less_boot_ns: real, ..nest.found }
    }
}

/// Puts begins and ends together, on all tracks at once.
struct Nest<'a> {
    tracks: &'a HashMap<u64, Track>,
    found: Spans,
    /// What is open on each track, with whether it is a poll: then the position is that of the span it is a poll of.
    open: HashMap<u64, Vec<(usize, bool)>>,
    /// Spans on tracks by the flow that joins their polls to them.
    by_flow: HashMap<u64, usize>,
    ended: HashSet<usize>,
}

impl<'a> Nest<'a> {
    fn new(tracks: &'a HashMap<u64, Track>) -> Self {
        Self {
            tracks,
            found: Spans::default(),
            open: HashMap::new(),
            by_flow: HashMap::new(),
            ended: HashSet::new(),
        }
    }

    fn begin(&mut self, event: Event, processes: &HashMap<u64, String>) {
        let is_thread = self.tracks.get(&event.track).is_some_and(|track| track.is_thread);
        if is_thread && let Some(lifetime) = self.lifetime(&event) {
            self.open.entry(event.track).or_default().push((lifetime, true));
            return;
        }
        let index = self.found.spans.len();
        let parent = self.innermost(event.track);
        if !is_thread {
            event.flows.iter().for_each(|&flow| {
                self.by_flow.entry(flow).or_insert(index);
            });
        }
        let pid = self.pid(event.track);
        self.found.spans.push(Span {
            name: event.name,
            categories: event.categories,
            parent,
            track: event.track,
            process: (processes.get(&pid).cloned().unwrap_or_default(), pid),
            begin_ns: event.ns,
            end_ns: event.ns,
            unfinished: true,
            values: event.values,
            marks: Vec::new(),
        });
        self.open.entry(event.track).or_default().push((index, false));
    }

    /// The asynchronous span that this is a poll of.
    fn lifetime(&self, event: &Event) -> Option<usize> {
        let of_flow = event.flows.iter().filter_map(|flow| self.by_flow.get(flow).copied());
        of_flow.into_iter().find(|&index| {
            !self.ended.contains(&index) && self.found.spans[index].name == event.name
        })
    }

    /// The innermost open span of a track, or of those it lies under.
    fn innermost(&self, mut track: u64) -> Option<usize> {
        for _ in 0..DEEPEST {
            let open = self.open.get(&track).and_then(|stack| stack.last());
            if let Some(&(index, _)) = open {
                return Some(index);
            }
            track = self.tracks.get(&track)?.parent?;
        }
        None
    }

    fn pid(&self, mut track: u64) -> u64 {
        for _ in 0..DEEPEST {
            let Some(known) = self.tracks.get(&track) else { return 0 };
            match (known.pid, known.parent) {
                (Some(pid), _) => return pid,
                (None, Some(parent)) => track = parent,
                (None, None) => return 0,
            }
        }
        0
    }

    fn end(&mut self, event: Event) {
        let Some((index, is_poll)) = self.open.get_mut(&event.track).and_then(Vec::pop) else {
            self.found.beginless += 1;
            return;
        };
        let span = &mut self.found.spans[index];
        let (marked, values): (Vec<_>, Vec<_>) =
            event.values.into_iter().partition(|(name, _)| name == "unfinished");
        for (name, value) in values {
            match span.values.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => span.values.push((name, value)),
            }
        }
        if !is_poll {
            span.end_ns = event.ns;
            span.unfinished = !marked.is_empty();
            self.ended.insert(index);
        }
    }

    fn mark(&mut self, event: Event) {
        match self.innermost(event.track) {
            Some(index) => {
                let Event { name, ns, values, .. } = event;
                self.found.spans[index].marks.push(Mark { name, ns, values });
            }
            None => self.found.marks += 1,
        }
    }

    /// What is open ends with the file.
    fn finish(&mut self, last: u64) {
        for (index, span) in self.found.spans.iter_mut().enumerate() {
            if !self.ended.contains(&index) {
                span.end_ns = last.max(span.begin_ns);
            }
        }
    }
}

/// Tracks under tracks; a file that makes a ring of them is not followed for ever.
const DEEPEST: usize = 64;

impl Sequence {
    fn learn(&mut self, packet: &Packet<'_>) {
        if packet.number(packets::FLAGS).is_some_and(|flags| flags & 1 != 0) {
            *self = Self::default();
        }
        let defaults = packet.message(packets::DEFAULTS);
        if let Some(event) = defaults.and_then(|defaults| message(defaults, TRACK_EVENT)) {
            self.track = number(event, EVENT_TRACK).unwrap_or(0);
        }
        for (field, value) in
            packet.message(packets::INTERNED).map(Fields::of).into_iter().flatten()
        {
            let table = match field {
                1 => &mut self.categories,
                2 => &mut self.names,
                3 => &mut self.fields,
                29 => &mut self.texts,
                _ => continue,
            };
            if let Some(entry) = value.bytes()
                && let (Some(iid), Some(bytes)) = (number(entry, 1), message(entry, 2))
            {
                table.insert(iid, text(bytes));
            }
        }
    }

    fn annotation(&self, bytes: &[u8]) -> Option<(String, FileValue)> {
        let named = || message(bytes, 10).map(text);
        let name =
            number(bytes, 1).and_then(|iid| self.fields.get(&iid).cloned()).or_else(named)?;
        let value = Fields::of(bytes).find_map(|(field, value)| {
            Some(match (field, value) {
                (2, Field::Number(value)) => FileValue::Bool(value != 0),
                (3, Field::Number(value)) => i64::try_from(value)
                    .map_or_else(|_| FileValue::Text(value.to_string()), FileValue::Integer),
                (4, Field::Number(value)) => FileValue::Integer(value.cast_signed()),
                (5, Field::Fixed64(bits)) => FileValue::Float(f64::from_bits(bits)),
                (6, Field::Bytes(bytes)) => FileValue::Text(text(bytes)),
                (17, Field::Number(iid)) => FileValue::Text(self.texts.get(&iid)?.clone()),
                _ => return None,
            })
        })?;
        Some((name, value))
    }
}

fn message(of: &[u8], wanted: u32) -> Option<&[u8]> {
    Fields::of(of).find_map(|(number, field)| field.bytes().filter(|_| number == wanted))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
