//! Packets become events with all that their names and tracks stand for.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use super::super::clocks::{Clocks, number};
use super::super::packets::{self, Packet};
use super::super::recent::Recent;
use super::super::sorter::{Sorted, Sorter};
use super::nest::Event;
use super::{FileValue, stored};
use crate::perfetto::{
    EVENT_ANNOTATION, EVENT_NAME, EVENT_NAME_IID, EVENT_TRACK, EVENT_TYPE, OWN_CATEGORY,
    TRACK_DESCRIPTOR, TRACK_EVENT,
};
use crate::wire::{Field, Fields};

#[derive(Default)]
pub(super) struct Reader {
    clocks: Clocks,
    names: Names,
    tracks: Tracks,
    processes: HashMap<u64, String>,
    lacks_names: bool,
    count: u64,
    events: Sorter,
}

/// What is known of a file once it is read.
pub(super) struct Read {
    pub(super) real_less_boot_ns: Option<i64>,
    pub(super) processes: HashMap<u64, String>,
}

impl Reader {
    pub(super) fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.clocks.learn(packet);
        self.names.learn(packet);
        for (field, value) in packet.fields() {
            match (field, value) {
                (TRACK_DESCRIPTOR, Field::Bytes(bytes)) => self.descriptor(bytes),
                (TRACK_EVENT, Field::Bytes(bytes)) => self.event(bytes, packet)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// More names are in use at once than there is room for, so that one is missing.
    pub(super) const fn lacks_names(&self) -> bool {
        self.lacks_names
    }

    /// All events in the order of their times.
    pub(super) fn finish(self) -> io::Result<(Sorted, Read)> {
        let real_less_boot_ns = self.clocks.real_less_boot.and_then(|ns| i64::try_from(ns).ok());
        Ok((self.events.sorted()?, Read { real_less_boot_ns, processes: self.processes }))
    }

    fn descriptor(&mut self, bytes: &[u8]) {
        let Some(uuid) = number(bytes, 1) else { return };
        let track = self.tracks.of(uuid);
        track.parent = number(bytes, 5).or(track.parent);
        let (process, thread) = (message(bytes, 3), message(bytes, 4));
        track.is_thread |= thread.is_some();
        track.pid = process.or(thread).and_then(|it| number(it, 1)).or(track.pid);
        let (Some(process), Some(pid)) = (process, track.pid) else { return };
        if self.processes.len() < MOST_PROCESSES || self.processes.contains_key(&pid) {
            let name = text(message(process, 6).unwrap_or_default());
            self.processes.insert(pid, name.chars().take(LONGEST_PROCESS_NAME).collect());
        }
    }

    fn event(&mut self, bytes: &[u8], packet: &Packet<'_>) -> io::Result<()> {
        let kind = number(bytes, EVENT_TYPE).unwrap_or(0);
        let Some(ns) = self.clocks.boot_ns(packet).filter(|_| (1..=3).contains(&kind)) else {
            return Ok(());
        };
        let names = self.names.sequences.get(packet.sequence);
        let known = |table, iid| names?.texts.get(&(table, iid)).map(|text| (**text).to_owned());
        let track = names.map_or(0, |names| names.track);
        let mut event = Event { ns, kind, track, ..Event::default() };
        for (field, value) in Fields::of(bytes) {
            match (field, value) {
                (EVENT_TRACK, Field::Number(track)) => event.track = track,
                (EVENT_NAME, Field::Bytes(name)) => event.name = text(name),
                (EVENT_NAME_IID, Field::Number(iid)) => {
                    let name = known(NAMES, iid);
                    self.lacks_names |= name.is_none() && self.names.forgot;
                    event.name = name.unwrap_or_default();
                }
                (3, Field::Number(iid)) => event.categories.extend(known(CATEGORIES, iid)),
                (22, Field::Bytes(category)) => event.categories.push(text(category)),
                (47 | 48, Field::Fixed64(flow)) => event.flows.push(flow),
                (EVENT_ANNOTATION, Field::Bytes(bytes)) => {
                    event.values.extend(annotation(bytes, &known));
                }
                _ => {}
            }
        }
        if event.categories.iter().any(|category| category == OWN_CATEGORY) {
            return Ok(());
        }
        self.tracks.place(&mut event);
        // Of events at one time the order of the file counts.
        self.count += 1;
        self.events.push((ns.into(), self.count), &stored::of_event(&event))
    }
}

fn annotation(
    bytes: &[u8],
    known: &impl Fn(u32, u64) -> Option<String>,
) -> Option<(String, FileValue)> {
    let named = || message(bytes, 10).map(text);
    let name = number(bytes, 1).and_then(|iid| known(FIELDS, iid)).or_else(named)?;
    let value = Fields::of(bytes).find_map(|(field, value)| {
        Some(match (field, value) {
            (2, Field::Number(value)) => FileValue::Bool(value != 0),
            (3, Field::Number(value)) => i64::try_from(value)
                .map_or_else(|_| FileValue::Text(value.to_string()), FileValue::Integer),
            (4, Field::Number(value)) => FileValue::Integer(value as i64),
            (5, Field::Fixed64(bits)) => FileValue::Float(f64::from_bits(bits)),
            (6, Field::Bytes(bytes)) => FileValue::Text(text(bytes)),
            (17, Field::Number(iid)) => FileValue::Text(known(TEXTS, iid)?),
            _ => return None,
        })
    })?;
    Some((name, value))
}

#[derive(Debug, Clone, Copy, Default)]
struct Track {
    parent: Option<u64>,
    pid: Option<u64>,
    is_thread: bool,
}

/// The tracks that were described or used last: every request has one of its own.
#[derive(Default)]
struct Tracks(Recent<Track>);

impl Tracks {
    fn of(&mut self, uuid: u64) -> &mut Track {
        if self.0.used() >= MOST_TRACKS {
            self.0.forget();
        }
        self.0.of(uuid)
    }

    /// Says where an event's track lies.
    fn place(&mut self, event: &mut Event) {
        event.is_thread = self.of(event.track).is_thread;
        let mut at = event.track;
        // A file that makes a ring of its tracks is not followed for ever.
        for _ in 0..DEEPEST {
            let track = *self.of(at);
            if event.pid == 0 {
                event.pid = track.pid.unwrap_or(0);
            }
            let Some(parent) = track.parent else { return };
            event.ancestors.push(parent);
            at = parent;
        }
    }
}

/// What the sequences of a file have said before.
#[derive(Default)]
struct Names {
    sequences: Recent<Sequence>,
    /// The texts of all sequences: most have them all in common.
    texts: HashSet<Arc<str>>,
    text_bytes: usize,
    /// Entries of all sequences.
    entries: usize,
    /// Some were forgotten, and may have been of a sequence that goes on.
    forgot: bool,
}

/// Texts by table and number, of one sequence.
#[derive(Default)]
struct Sequence {
    texts: HashMap<(u32, u64), Arc<str>>,
    track: u64,
}

impl Names {
    fn learn(&mut self, packet: &Packet<'_>) {
        let Self { sequences, texts, text_bytes, entries, .. } = self;
        let sequence = sequences.of(packet.sequence);
        if packet.number(packets::FLAGS).is_some_and(|flags| flags & 1 != 0) {
            *entries -= sequence.texts.len();
            *sequence = Sequence::default();
        }
        let defaults = packet.message(packets::DEFAULTS);
        if let Some(event) = defaults.and_then(|defaults| message(defaults, TRACK_EVENT)) {
            sequence.track = number(event, EVENT_TRACK).unwrap_or(0);
        }
        let interned = packet.message(packets::INTERNED).map(Fields::of).into_iter().flatten();
        for (table, value) in interned.filter(|(table, _)| TABLES.contains(table)) {
            let parts = value.bytes().map(|entry| (number(entry, 1), message(entry, 2)));
            if let Some((Some(iid), Some(bytes))) = parts {
                let text: Arc<str> = String::from_utf8_lossy(bytes).into();
                let text = texts.get(&text).cloned().unwrap_or_else(|| {
                    *text_bytes += TEXT + text.len();
                    texts.insert(text.clone());
                    text
                });
                *entries += usize::from(sequence.texts.insert((table, iid), text).is_none());
            }
        }
        self.make_room();
    }

    fn make_room(&mut self) {
        if self.text_bytes > MOST_TEXT_BYTES {
            let Self { texts, text_bytes, .. } = self;
            texts.retain(|text| {
                let is_used = Arc::strong_count(text) > 1;
                *text_bytes -= if is_used { 0 } else { TEXT + text.len() };
                is_used
            });
        }
        let many = self.entries > MOST_ENTRIES || self.sequences.used() > MOST_SEQUENCES;
        if many || self.text_bytes > MOST_TEXT_BYTES {
            for (_, sequence) in self.sequences.forget() {
                self.entries -= sequence.texts.len();
                self.forgot = true;
            }
        }
    }
}

// Fields of Perfetto's InternedData.
const CATEGORIES: u32 = 1;
const NAMES: u32 = 2;
const FIELDS: u32 = 3;
const TEXTS: u32 = 29;
const TABLES: [u32; 4] = [CATEGORIES, NAMES, FIELDS, TEXTS];

/// What a text takes in memory beside its bytes.
const TEXT: usize = 64;
const MOST_TEXT_BYTES: usize = 6 << 20;
const MOST_ENTRIES: usize = 150_000;
const MOST_SEQUENCES: usize = 14_336;
/// Tracks of each half: what just fits into a table of 65,536.
const MOST_TRACKS: usize = 57_344;
const MOST_PROCESSES: usize = 4_096;
const LONGEST_PROCESS_NAME: usize = 256;
/// Tracks under tracks.
const DEEPEST: usize = 64;

fn message(of: &[u8], wanted: u32) -> Option<&[u8]> {
    Fields::of(of).find_map(|(number, field)| field.bytes().filter(|_| number == wanted))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
