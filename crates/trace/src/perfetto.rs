//! The Perfetto file: a stream of packets that the Perfetto UI and its trace processor read.
//!
//! Each thread is a packet sequence of its own, with its own interned names; one more holds the tracks. Times are on
//! clock 64 of the sequence, nanoseconds of our counter since the recording began, tied to `CLOCK_BOOTTIME` by clock
//! snapshots. Field numbers: `protos/perfetto/trace/trace_packet.proto` and its neighbours in google/perfetto.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use crate::callsite::Callsite;
use crate::clock::{self, Reading};
use crate::collect::{Account, Placed, Sink};
use crate::decode::{Arena, Stored};
use crate::process::Process;
use crate::record::value_kind;
use crate::ring::Thread;
use crate::tracks::{TrackId, What};
use crate::value::{self, Text};
use crate::wire::{bytes, fixed64, message, uint};

/// Writes packets for what it is handed.
pub(crate) struct Perfetto<W> {
    out: W,
    buffer: Vec<u8>,
    failure: Option<io::Error>,
    written: u64,
    process: Process,
    /// Of every id in this file.
    seed: u64,
    start: Reading,
    latest: Reading,
    threads: HashMap<u64, Sequence>,
    /// Of tracks, counters and the file's account.
    shared: Sequence,
    sequence_ids: HashSet<u32>,
    /// Tracks that are in the file, with their parents and whether they have a name.
    described: HashMap<u64, (u64, bool)>,
    names: Fields,
}

/// One packet sequence and what has been interned on it.
struct Sequence {
    id: u32,
    uuid: u64,
    started: bool,
    dropped: bool,
    snapshot_ns: u64,
    names: Bits,
    fields: Bits,
    strings: Bits,
    categories: u64,
    /// Callsites whose source location, and target, were told.
    places: Bits,
    /// Levels whose names were told.
    levels: u8,
    dynamic: HashMap<Box<str>, u64>,
}

impl<W: Write> Perfetto<W> {
    /// A file for `process`, with times counted from `start`.
    pub(crate) fn new(out: W, process: Process, start: Reading) -> Self {
        let seed = process.seed(start.boot_ns);
        let shared = Sequence::new(sequence_id(seed, 0), uuid(seed, PROCESS, 0));
        let mut perfetto = Self {
            out,
            buffer: Vec::with_capacity(FLUSH_AT * 2),
            failure: None,
            written: 0,
            process,
            seed,
            start,
            latest: start,
            threads: HashMap::new(),
            sequence_ids: HashSet::from([shared.id]),
            shared,
            described: HashMap::new(),
            names: Fields::default(),
        };
        perfetto.head();
        perfetto
    }

    /// Closes the file with its account.
    pub(crate) fn finish(mut self, account: &Account) -> io::Result<W> {
        self.account(account);
        self.into_inner()
    }

    /// What it was written to, once everything has reached it.
    pub(crate) fn into_inner(mut self) -> io::Result<W> {
        self.flush();
        let failure = self.failure.take();
        failure.map_or_else(|| self.out.flush(), Err)?;
        Ok(self.out)
    }

    /// What has been written so far reaches the file; the file is whole at this point.
    pub(crate) fn flush(&mut self) {
        if self.failure.is_none() {
            match self.out.write_all(&self.buffer) {
                Ok(()) => self.written += self.buffer.len() as u64,
                Err(error) => self.failure = Some(error),
            }
        }
        self.buffer.clear();
    }

    /// Nothing more is written, because of `error`.
    pub(crate) fn fail(&mut self, error: io::Error) {
        self.failure.get_or_insert(error);
    }

    pub(crate) fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// Bytes that were taken: of a file that ends there no packet is cut.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// The process, and what a reader of the file should know about how it was made.
    fn head(&mut self) {
        let process = self.process.clone();
        let id = self.shared.id;
        let process_uuid = self.shared.uuid;
        self.start_shared();
        packet(&mut self.buffer, |packet| {
            uint(packet, TIMESTAMP, 0);
            uint(packet, SEQUENCE_ID, u64::from(id));
            uint(packet, SEQUENCE_FLAGS, NEEDS_STATE);
            message(packet, TRACK_DESCRIPTOR, |descriptor| {
                uint(descriptor, 1, process_uuid);
                message(descriptor, 3, |message| {
                    uint(message, 1, u64::from(process.pid));
                    process.command.iter().for_each(|word| bytes(message, 2, word.as_bytes()));
                    bytes(message, 6, process.name.as_bytes());
                });
            });
        });
        let source =
            if clock::choose() == clock::Source::Counter { "counter" } else { "monotonic" };
        let about = [
            ("crate", About::Text(concat!("towpath-trace ", env!("CARGO_PKG_VERSION")))),
            ("boot_id", About::Text(&process.boot_id)),
            ("clock", About::Text(source)),
            ("pid", About::Number(u64::from(process.pid))),
        ];
        self.about(HEAD_NAME, 0, &about);
    }

    /// What the recording did, as the file's last mark.
    pub(crate) fn account(&mut self, account: &Account) {
        let ns = self.since_start(self.latest.boot_ns);
        let written = self.written + self.buffer.len() as u64;
        let about = [
            ("events", About::Number(account.events)),
            ("lost", About::Number(account.lost)),
            ("overwritten", About::Number(account.overwritten)),
            ("homeless", About::Number(account.homeless)),
            ("refused", About::Number(account.refused)),
            ("unentered", About::Number(account.unentered)),
            ("texts_cut", About::Number(account.texts_cut)),
            ("beginless", About::Number(account.beginless)),
            ("unfinished", About::Number(account.unfinished)),
            ("aside", About::Number(account.aside)),
            ("split", About::Number(account.split)),
            ("threads", About::Number(account.threads)),
            ("ns_per_event", About::Real(account.ns_per_event)),
            ("emit_ns", About::Number((account.ns_per_event * account.events as f64) as u64)),
            ("drain_ns", About::Number(account.drain_ns)),
            ("bytes", About::Number(written)),
        ];
        self.about(ACCOUNT_NAME, ns, &about);
    }

    /// A mark on the process's track about the file itself.
    fn about(&mut self, name: &str, ns: u64, about: &[(&str, About<'_>)]) {
        let (id, uuid) = (self.shared.id, self.shared.uuid);
        packet(&mut self.buffer, |packet| {
            uint(packet, TIMESTAMP, ns);
            uint(packet, SEQUENCE_ID, u64::from(id));
            uint(packet, SEQUENCE_FLAGS, NEEDS_STATE);
            message(packet, TRACK_EVENT, |event| {
                uint(event, EVENT_TYPE, INSTANT);
                uint(event, EVENT_TRACK, uuid);
                bytes(event, 22, OWN_CATEGORY.as_bytes());
                bytes(event, EVENT_NAME, name.as_bytes());
                for (key, value) in about {
                    message(event, EVENT_ANNOTATION, |annotation| {
                        bytes(annotation, 10, key.as_bytes());
                        match value {
                            About::Number(value) => uint(annotation, 3, *value),
                            About::Real(value) => fixed64(annotation, 5, value.to_bits()),
                            About::Text(value) => bytes(annotation, 6, value.as_bytes()),
                        }
                    });
                }
            });
        });
    }

    fn since_start(&self, boot_ns: u64) -> u64 {
        boot_ns.saturating_sub(self.start.boot_ns)
    }

    fn start_shared(&mut self) {
        self.shared.keep_going(&mut self.buffer, &self.start, &self.latest, false);
    }

    /// The file's number of a track, described before it is used; `name` is that of the event that uses it.
    fn describe(&mut self, track: TrackId, name: &str) -> u64 {
        let seed = self.seed;
        let process = self.shared.uuid;
        match track {
            TrackId::Thread { ring, aside: 0 } => uuid(seed, THREAD, ring),
            TrackId::Thread { ring, aside } => {
                let aside = uuid(seed, ASIDE + u64::from(aside), ring);
                self.track(aside, uuid(seed, THREAD, ring), "spans aside");
                aside
            }
            TrackId::Async { id, parent, aside } => {
                let own = uuid(seed, TRACK + u64::from(aside), id);
                let parent = if parent == 0 { process } else { uuid(seed, TRACK, parent) };
                if parent != process && !self.described.contains_key(&parent) {
                    self.track(parent, process, "");
                }
                self.track(own, parent, name);
                own
            }
        }
    }

    fn track(&mut self, uuid: u64, parent: u64, name: &str) {
        let known = self.described.get(&uuid).copied();
        if known.is_some_and(|(_, named)| named || name.is_empty()) {
            return;
        }
        // A track keeps the parent it was first described with.
        let parent = known.map_or(parent, |(parent, _)| parent);
        self.remember(uuid, parent, !name.is_empty());
        self.descriptor(uuid, |descriptor| {
            uint(descriptor, 5, parent);
            if !name.is_empty() {
                bytes(descriptor, 2, readable(name).as_bytes());
            }
        });
    }

    /// What was described is forgotten when it becomes much: describing again does no harm.
    fn remember(&mut self, uuid: u64, parent: u64, named: bool) {
        if self.described.len() >= DESCRIBED {
            self.described.clear();
        }
        self.described.insert(uuid, (parent, named));
    }

    fn descriptor(&mut self, uuid: u64, fill: impl FnOnce(&mut Vec<u8>)) {
        let id = self.shared.id;
        packet(&mut self.buffer, |packet| {
            uint(packet, TIMESTAMP, 0);
            uint(packet, SEQUENCE_ID, u64::from(id));
            uint(packet, SEQUENCE_FLAGS, NEEDS_STATE);
            message(packet, TRACK_DESCRIPTOR, |descriptor| {
                uint(descriptor, 1, uuid);
                fill(descriptor);
            });
        });
    }

    fn counter_track(&mut self, name: &str, unit: &str) -> u64 {
        let uuid = uuid(self.seed, COUNTER_TRACK, hash(name.as_bytes()));
        if !self.described.contains_key(&uuid) {
            let parent = self.shared.uuid;
            self.remember(uuid, parent, true);
            self.descriptor(uuid, |descriptor| {
                uint(descriptor, 5, parent);
                bytes(descriptor, 2, readable(name).as_bytes());
                message(descriptor, 8, |counter| match unit {
                    "" => {}
                    "ns" => uint(counter, 3, 1),
                    "count" => uint(counter, 3, 2),
                    "bytes" => uint(counter, 3, 3),
                    other => bytes(counter, 6, other.as_bytes()),
                });
            });
        }
        uuid
    }
}

impl<W: Write> Sink for Perfetto<W> {
    fn thread(&mut self, ring: u64, thread: &Thread) {
        let seed = self.seed;
        let mut id = sequence_id(seed, ring);
        while !self.sequence_ids.insert(id) {
            id = id.wrapping_add(1).max(1);
        }
        let sequence = Sequence::new(id, uuid(seed, THREAD, ring));
        let (uuid, process) = (sequence.uuid, u64::from(self.process.pid));
        self.start_shared();
        self.descriptor(uuid, |descriptor| {
            message(descriptor, 4, |message| {
                uint(message, 1, process);
                uint(message, 2, u64::from(thread.tid));
                bytes(message, 5, readable(&thread.name).as_bytes());
            });
        });
        self.threads.insert(ring, sequence);
    }

    fn event(&mut self, event: &Placed<'_>) {
        let mut track = self.describe(event.track, event.name);
        if event.what == What::Counter {
            let unit = event.callsite.map_or("", |(_, site)| site.unit());
            track = self.counter_track(event.name, unit);
        }
        let ns = self.since_start(event.ns);
        let sequence = match event.track {
            TrackId::Thread { ring, .. } => self.threads.get_mut(&ring).unwrap_or(&mut self.shared),
            TrackId::Async { .. } => &mut self.shared,
        };
        let far = sequence.snapshot_ns + SNAPSHOT_EVERY_NS < self.latest.boot_ns;
        if !sequence.started || sequence.dropped || far {
            sequence.keep_going(&mut self.buffer, &self.start, &self.latest, far);
        }
        encode(&mut self.buffer, sequence, &mut self.names, event, track, ns);
        if self.buffer.len() >= FLUSH_AT {
            self.flush();
        }
    }

    fn lost(&mut self, ring: u64, ns: u64, count: u64) {
        let ns = self.since_start(ns);
        if let Some(sequence) = self.threads.get_mut(&ring) {
            sequence.drop_mark();
            sequence.keep_going(&mut self.buffer, &self.start, &self.latest, false);
            let id = sequence.id;
            packet(&mut self.buffer, |packet| {
                uint(packet, TIMESTAMP, ns);
                uint(packet, SEQUENCE_ID, u64::from(id));
                uint(packet, SEQUENCE_FLAGS, NEEDS_STATE);
                message(packet, TRACK_EVENT, |event| {
                    uint(event, EVENT_TYPE, INSTANT);
                    bytes(event, 22, OWN_CATEGORY.as_bytes());
                    bytes(event, EVENT_NAME, LOST_NAME.as_bytes());
                    message(event, EVENT_ANNOTATION, |annotation| {
                        bytes(annotation, 10, b"count");
                        uint(annotation, 3, count);
                    });
                });
            });
        }
    }

    fn gone(&mut self, ring: u64) {
        self.threads.remove(&ring);
    }

    fn reading(&mut self, reading: &Reading) {
        self.latest = *reading;
    }
}

impl Sequence {
    fn new(id: u32, uuid: u64) -> Self {
        Self {
            id,
            uuid,
            started: false,
            dropped: false,
            snapshot_ns: 0,
            names: Bits::default(),
            fields: Bits::default(),
            strings: Bits::default(),
            categories: 0,
            places: Bits::default(),
            levels: 0,
            dynamic: HashMap::new(),
        }
    }

    /// Events are missing here: readers forget what was interned, and so do we.
    fn drop_mark(&mut self) {
        self.dropped = true;
        self.started = false;
    }

    /// Begins the sequence, or begins it again after a gap, or ties its clock once more.
    fn keep_going(&mut self, buffer: &mut Vec<u8>, start: &Reading, latest: &Reading, tie: bool) {
        if self.started && !tie {
            return;
        }
        let begins = !self.started;
        packet(buffer, |packet| {
            uint(packet, SEQUENCE_ID, u64::from(self.id));
            uint(packet, SEQUENCE_FLAGS, if begins { STATE_CLEARED } else { NEEDS_STATE });
            if begins && self.dropped {
                uint(packet, 42, 1);
            } else if begins {
                uint(packet, 87, 1);
            }
            if begins {
                message(packet, 59, |defaults| {
                    uint(defaults, 58, OWN_CLOCK);
                    message(defaults, TRACK_EVENT, |event| uint(event, EVENT_TRACK, self.uuid));
                });
            }
            snapshot(packet, start, latest);
        });
        self.snapshot_ns = latest.boot_ns;
        self.dropped = false;
        if begins {
            self.started = true;
            self.names.clear();
            self.fields.clear();
            self.strings.clear();
            self.categories = 0;
            self.places.clear();
            self.levels = 0;
            self.dynamic.clear();
        }
    }
}

/// Our clock and the system's at one moment.
fn snapshot(packet: &mut Vec<u8>, start: &Reading, at: &Reading) {
    let clocks = [
        (OWN_CLOCK, at.boot_ns.saturating_sub(start.boot_ns)),
        (BOOTTIME, at.boot_ns),
        (MONOTONIC, at.monotonic_ns),
        (REALTIME, at.real_ns),
    ];
    message(packet, CLOCK_SNAPSHOT, |snapshot| {
        for (id, ns) in clocks {
            message(snapshot, 1, |clock| {
                uint(clock, 1, id);
                uint(clock, 2, ns);
            });
        }
        uint(snapshot, 2, BOOTTIME);
    });
}

#[inline]
fn encode(
    buffer: &mut Vec<u8>,
    sequence: &mut Sequence,
    names: &mut Fields,
    event: &Placed<'_>,
    track: u64,
    ns: u64,
) {
    let name = sequence.name(event);
    packet(buffer, |packet| {
        uint(packet, TIMESTAMP, ns);
        uint(packet, SEQUENCE_ID, u64::from(sequence.id));
        uint(packet, SEQUENCE_FLAGS, NEEDS_STATE);
        sequence.intern(packet, names, event, name);
        message(packet, TRACK_EVENT, |out| {
            let kind = match event.what {
                What::Begin => 1,
                What::End | What::Unfinished => 2,
                What::Mark => INSTANT,
                What::Counter => 4,
            };
            uint(out, EVENT_TYPE, kind);
            if track != sequence.uuid {
                uint(out, EVENT_TRACK, track);
            }
            if kind == 4 {
                return counter(out, event.values);
            }
            if kind != 2 {
                if event.category.bits() != 0 {
                    uint(out, 3, category_iid(event));
                }
                if let Some((id, site)) = event.callsite {
                    if !site.target().is_empty() {
                        uint(out, 3, FIRST_TARGET + u64::from(id));
                        uint(out, 3, FIRST_LEVEL + site.level() as u64);
                    }
                    uint(out, 34, u64::from(id));
                }
                match name {
                    Named::Iid(iid) | Named::New(iid) => uint(out, EVENT_NAME_IID, iid),
                    Named::Inline => bytes(out, EVENT_NAME, readable(event.name).as_bytes()),
                }
            }
            if event.what == What::Unfinished {
                message(out, EVENT_ANNOTATION, |annotation| {
                    bytes(annotation, 10, b"unfinished");
                    uint(annotation, 2, 1);
                });
            }
            annotations(out, names, event);
        });
    });
}

/// How an event's name is given.
#[derive(Clone, Copy)]
enum Named {
    /// Interned before.
    Iid(u64),
    /// To be interned with this event.
    New(u64),
    /// Too many names: this one is written out.
    Inline,
}

impl Sequence {
    #[inline]
    fn name(&mut self, event: &Placed<'_>) -> Named {
        if !matches!(event.what, What::Begin | What::Mark) {
            return Named::Iid(0);
        }
        if let (Some((id, _)), false) = (event.callsite, event.own_name) {
            let iid = u64::from(id);
            return if self.names.insert(id) { Named::New(iid) } else { Named::Iid(iid) };
        }
        if let Some(&iid) = self.dynamic.get(event.name) {
            return Named::Iid(iid);
        }
        if self.dynamic.len() >= DYNAMIC_NAMES {
            return Named::Inline;
        }
        let iid = FIRST_DYNAMIC + self.dynamic.len() as u64;
        self.dynamic.insert(event.name.into(), iid);
        Named::New(iid)
    }

    /// Writes what this event uses and the sequence does not know yet.
    #[inline]
    fn intern(
        &mut self,
        packet: &mut Vec<u8>,
        names: &mut Fields,
        event: &Placed<'_>,
        name: Named,
    ) {
        let begins = matches!(event.what, What::Begin | What::Mark);
        let category =
            if begins { event.category.bits() & event.category.bits().wrapping_neg() } else { 0 };
        let new_category = category & !self.categories != 0;
        let new_values = event.values.iter().enumerate().any(|(index, &(kind, word))| {
            let text = kind == value_kind::INTERNED && !self.strings.contains(word as u32);
            text || is_annotation(kind) && !self.fields.contains(names.number(event, index))
        });
        let new_place = event.callsite.filter(|&(id, _)| begins && !self.places.contains(id));
        if !new_category && !new_values && new_place.is_none() && !matches!(name, Named::New(_)) {
            return;
        }
        message(packet, 12, |interned| {
            if let Some((id, site)) = new_place {
                self.place(interned, id, site);
            }
            if new_category {
                self.categories |= category;
                entry(interned, 1, category_iid(event), event.category.name());
            }
            if let Named::New(iid) = name {
                entry(interned, 2, iid, event.name);
            }
            for (index, &(kind, word)) in event.values.iter().enumerate() {
                let number = names.number(event, index);
                if is_annotation(kind) && event.what != What::Counter && self.fields.insert(number)
                {
                    entry(interned, 3, u64::from(number), names.name(number));
                }
                if kind == value_kind::INTERNED && self.strings.insert(word as u32) {
                    let text = value::text(Text::from_number(word as u32));
                    entry(interned, 29, word + 1, text.as_deref().unwrap_or(REFUSED_TEXT));
                }
            }
        });
    }
}

impl Sequence {
    /// Where a callsite is, and its target and level, which are categories too.
    fn place(&mut self, interned: &mut Vec<u8>, id: u32, site: &Callsite) {
        self.places.insert(id);
        if !site.target().is_empty() {
            entry(interned, 1, FIRST_TARGET + u64::from(id), site.target());
            let level = site.level();
            if self.levels & 1 << level as u8 == 0 {
                self.levels |= 1 << level as u8;
                entry(interned, 1, FIRST_LEVEL + level as u64, level.name());
            }
        }
        let (file, line) = site.location();
        message(interned, 4, |location| {
            uint(location, 1, u64::from(id));
            bytes(location, 2, file.as_bytes());
            uint(location, 4, u64::from(line));
        });
    }
}

fn entry(interned: &mut Vec<u8>, field: u32, iid: u64, text: &str) {
    message(interned, field, |entry| {
        uint(entry, 1, iid);
        bytes(entry, 2, readable(text).as_bytes());
    });
}

fn category_iid(event: &Placed<'_>) -> u64 {
    u64::from(event.category.bits().trailing_zeros()) + 1
}

const fn is_annotation(kind: u8) -> bool {
    !matches!(kind, value_kind::ABSENT | value_kind::FLOW | value_kind::LAST_FLOW)
}

fn counter(out: &mut Vec<u8>, values: &[Stored]) {
    let Some(&(kind, word)) = values.first() else { return };
    match (kind, i64::try_from(word)) {
        (value_kind::FLOAT, _) => fixed64(out, 44, word),
        (value_kind::UNSIGNED, Err(_)) => fixed64(out, 44, (word as f64).to_bits()),
        _ => uint(out, 30, word),
    }
}

#[inline]
fn annotations(out: &mut Vec<u8>, names: &mut Fields, event: &Placed<'_>) {
    for (index, &(kind, word)) in event.values.iter().enumerate() {
        match kind {
            value_kind::FLOW => fixed64(out, 47, word),
            value_kind::LAST_FLOW => fixed64(out, 48, word),
            value_kind::ABSENT => {}
            _ => message(out, EVENT_ANNOTATION, |annotation| {
                uint(annotation, 1, u64::from(names.number(event, index)));
                annotation_value(annotation, kind, word, event.arena);
            }),
        }
    }
}

fn annotation_value(annotation: &mut Vec<u8>, kind: u8, word: u64, arena: &Arena) {
    match kind {
        value_kind::BOOL => uint(annotation, 2, word),
        value_kind::SIGNED => uint(annotation, 4, word),
        value_kind::FLOAT => fixed64(annotation, 5, word),
        value_kind::INTERNED => uint(annotation, 17, word + 1),
        value_kind::TEXT => bytes(annotation, 6, readable(arena.text_of(word)).as_bytes()),
        _ => uint(annotation, 3, word),
    }
}

/// Names of values, numbered across the file.
#[derive(Default)]
struct Fields {
    /// Of each callsite, by its number; those that were not met yet have none.
    by_callsite: Vec<Vec<u32>>,
    numbers: HashMap<&'static str, u32>,
    names: Vec<&'static str>,
}

impl Fields {
    fn number(&mut self, event: &Placed<'_>, index: usize) -> u32 {
        let Some((id, site)) = event.callsite else {
            return self.number_of(UNNAMED[index.min(UNNAMED.len() - 1)]);
        };
        if let Some(&number) =
            self.by_callsite.get(id as usize).and_then(|numbers| numbers.get(index))
        {
            return number;
        }
        let numbers: Vec<u32> = site.fields().iter().map(|name| self.number_of(name)).collect();
        let number = numbers.get(index).copied();
        if self.by_callsite.len() <= id as usize {
            self.by_callsite.resize_with(id as usize + 1, Vec::new);
        }
        self.by_callsite[id as usize] = numbers;
        number.unwrap_or_else(|| self.number_of(UNNAMED[index.min(UNNAMED.len() - 1)]))
    }

    fn number_of(&mut self, name: &'static str) -> u32 {
        let Self { numbers, names, .. } = self;
        *numbers.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() as u32
        })
    }

    fn name(&self, number: u32) -> &'static str {
        self.names.get((number as usize).wrapping_sub(1)).copied().unwrap_or("value")
    }
}

/// A set of small numbers.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    #[inline]
    fn contains(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    #[inline]
    fn insert(&mut self, number: u32) -> bool {
        let at = number as usize / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        let new = self.0[at] & 1 << (number % 64) == 0;
        self.0[at] |= 1 << (number % 64);
        new
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

enum About<'a> {
    Number(u64),
    Real(f64),
    Text(&'a str),
}

/// A NUL would end the text in every reader: it is shown as its symbol.
pub(crate) fn readable(text: &str) -> std::borrow::Cow<'_, str> {
    if text.as_bytes().contains(&0) { text.replace('\0', "\u{2400}").into() } else { text.into() }
}

#[inline]
fn packet(buffer: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    message(buffer, PACKET, fill);
}

fn uuid(seed: u64, what: u64, number: u64) -> u64 {
    mix(seed ^ mix(what ^ mix(number))) | 1
}

fn sequence_id(seed: u64, ring: u64) -> u32 {
    (mix(seed ^ mix(ring)) as u32).max(1)
}

/// The finaliser of `SplitMix64`: every bit of the input changes about half of the output.
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

pub(crate) const PACKET: u32 = 1;
pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
pub(crate) const TIMESTAMP: u32 = 8;
pub(crate) const SEQUENCE_ID: u32 = 10;
pub(crate) const TRACK_EVENT: u32 = 11;
pub(crate) const SEQUENCE_FLAGS: u32 = 13;
pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
pub(crate) const EVENT_ANNOTATION: u32 = 4;
pub(crate) const EVENT_TYPE: u32 = 9;
pub(crate) const EVENT_NAME_IID: u32 = 10;
pub(crate) const EVENT_TRACK: u32 = 11;
pub(crate) const EVENT_NAME: u32 = 23;
pub(crate) const INSTANT: u64 = 3;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const OWN_CLOCK: u64 = 64;
pub(crate) const REALTIME: u64 = 1;
pub(crate) const MONOTONIC: u64 = 3;
pub(crate) const BOOTTIME: u64 = 6;

/// The category of what the file says about itself.
pub(crate) const OWN_CATEGORY: &str = "towpath.trace";
pub(crate) const HEAD_NAME: &str = "trace begins";
pub(crate) const ACCOUNT_NAME: &str = "trace account";
pub(crate) const LOST_NAME: &str = "events lost";
const REFUSED_TEXT: &str = "(text not kept)";
const UNNAMED: [&str; 4] = ["value", "value2", "value3", "value4"];

const PROCESS: u64 = 1 << 32;
const THREAD: u64 = 2 << 32;
const ASIDE: u64 = 3 << 32;
const TRACK: u64 = 4 << 32;
const COUNTER_TRACK: u64 = 5 << 32;

/// Categories are numbered below these.
const FIRST_LEVEL: u64 = 65;
const FIRST_TARGET: u64 = 128;
/// Callsites are numbered below this.
const FIRST_DYNAMIC: u64 = 1 << 32;
const DYNAMIC_NAMES: usize = 8192;
const DESCRIBED: usize = 1 << 17;
const FLUSH_AT: usize = 1 << 16;
const SNAPSHOT_EVERY_NS: u64 = 1_000_000_000;
