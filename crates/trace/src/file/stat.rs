//! What is in a trace: spans by name, marks, counters, what is missing, and what it cost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fmt;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use super::FileError;
use super::clocks::{Clocks, number};
use super::histogram::Histogram;
use super::packets::{self, Packet, Packets};
use crate::perfetto::{
    ACCOUNT_NAME, EVENT_ANNOTATION, EVENT_NAME, EVENT_NAME_IID, EVENT_TRACK, EVENT_TYPE, HEAD_NAME,
    LOST_NAME, TRACK_DESCRIPTOR, TRACK_EVENT,
};
use crate::wire::{Field, Fields};

/// What several files hold together.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stat {
    /// Bytes of the files.
    pub bytes: u64,
    /// Packets in them.
    pub packets: u64,
    /// Spans by name, and by where they lie, the most time first.
    pub spans: Vec<SpanStat>,
    /// Marks by name, the most frequent first.
    pub marks: Vec<(String, u64)>,
    /// Samples of counters.
    pub counters: u64,
    /// Events of the kernel.
    pub kernel: u64,
    /// Tracks, threads among them.
    pub tracks: u64,
    /// Ends without a begin.
    pub beginless: u64,
    /// Begins without an end, and spans that a recording ended when it stopped.
    pub unfinished: u64,
    /// Places where a writer marked a gap.
    pub gaps: u64,
    /// Events that the files say they lost.
    pub lost: u64,
    /// Bytes at the ends of the files that are no whole packet: what a killed process was writing.
    pub cut: u64,
    /// Packets of more than 8 MiB, which were not looked at.
    pub too_large: u64,
    /// Heads of recordings: one without an account was cut off, or goes on in another file.
    pub begun: u64,
    /// Accounts at the ends of recordings.
    pub accounted: u64,
    /// The first thousand of them: name and value, as they are written.
    pub accounts: Vec<Vec<(String, String)>>,
    /// From the first event to the last, in nanoseconds.
    pub length_ns: u64,
}

/// The spans of one name in one kind of place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanStat {
    /// The name.
    pub name: String,
    /// They lie on threads: work, or the polls of an asynchronous span. Else they lie on tracks: requests, or the
    /// lifetimes of asynchronous spans.
    pub on_thread: bool,
    /// How many there are.
    pub count: u64,
    /// The time of all of them.
    pub total_ns: u64,
    /// Half of them took at most this long; of more than 64, to one part in 64.
    pub p50_ns: u64,
    /// 99 in a hundred took at most this long, likewise.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Reads files and says what is in them, in less than 64 MB of memory for files of any size. Of a file that was cut, by
/// a killed process or a full disk, what is whole is read and [`Stat::cut`] says how much is not.
///
/// # Errors
/// When a file cannot be read, or does not even begin as a Perfetto trace.
pub fn stat<P: AsRef<Path>>(paths: &[P]) -> Result<Stat, FileError> {
    if paths.is_empty() {
        return Err(FileError::NoInput);
    }
    let mut reader = Reader::default();
    for path in paths {
        let path = path.as_ref();
        reader.file(path, &mut Packets::of_file(path)?)?;
    }
    Ok(reader.finish())
}

/// What the bytes of one file hold.
#[doc(hidden)]
pub fn stat_bytes(bytes: &[u8]) -> Result<Stat, FileError> {
    let mut reader = Reader::default();
    reader.file(Path::new("(memory)"), &mut Packets::new(bytes))?;
    Ok(reader.finish())
}

#[derive(Default)]
struct Reader {
    stat: Stat,
    names: Names,
    durations: HashMap<(u32, bool), Histogram>,
    marks: HashMap<u32, u64>,
    /// Names and begins of spans that are open, by track.
    open: HashMap<u64, Vec<(u32, u64)>>,
    open_count: usize,
    threads: HashSet<u64>,
    /// Events that are not quite in the order of their times are put in order before they are matched.
    events: BinaryHeap<Reverse<Timed>>,
    order: u64,
    first: Option<u64>,
    last: u64,
}

/// Of events at one time the order of the file counts, as in Perfetto itself.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Timed {
    ns: u64,
    order: u64,
    track: u64,
    name: u32,
    begins: bool,
    unfinished: bool,
}

/// Names, each kept once. What comes when there are too many is counted under one name for all.
#[derive(Default)]
struct Names {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    bytes: usize,
}

impl Names {
    fn of(&mut self, text: &[u8]) -> u32 {
        let text = String::from_utf8_lossy(text);
        if let Some(&number) = self.numbers.get(&*text) {
            return number;
        }
        let full = self.texts.len() >= MOST_NAMES || self.bytes + text.len() > MOST_NAME_BYTES;
        if full && *text != *OTHER_NAMES {
            return self.of(OTHER_NAMES.as_bytes());
        }
        let text: Arc<str> = text.into();
        self.bytes += text.len();
        self.texts.push(text.clone());
        let number = u32::try_from(self.texts.len() - 1).unwrap_or(u32::MAX);
        self.numbers.insert(text, number);
        number
    }

    fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }
}

// Together these keep to 64 MB, whatever the file.
const MOST_NAMES: usize = 16_384;
const MOST_NAME_BYTES: usize = 4 << 20;
const OTHER_NAMES: &str = "(other names)";
/// Events that wait to be put in order.
const WINDOW: usize = 1 << 16;
const MOST_OPEN: usize = 200_000;
const MOST_THREADS: usize = 100_000;
const MOST_SEQUENCES: usize = 50_000;
const MOST_INTERNED: usize = 200_000;
const MOST_ACCOUNTS: usize = 1_000;

/// What the sequences of a file have said before.
#[derive(Default)]
struct Sequences {
    known: HashMap<u64, Sequence>,
    interned: usize,
}

#[derive(Default)]
struct Sequence {
    names: HashMap<u64, u32>,
    track: u64,
}

impl Reader {
    fn file<R: BufRead>(&mut self, path: &Path, packets: &mut Packets<R>) -> Result<(), FileError> {
        let mut clocks = Clocks::default();
        let mut sequences = Sequences::default();
        let mut count = 0;
        let failed = |error| FileError::Io(path.to_owned(), error);
        while let Some(packet) = packets.next().map_err(failed)? {
            count += 1;
            clocks.learn(&packet);
            sequences.learn(&packet, &mut self.names);
            self.packet(&packet, &sequences, &clocks);
        }
        let rest = packets.rest();
        if count == 0 && rest.too_large == 0 && packets.is_none() {
            return Err(FileError::NotATrace(path.to_owned(), packets.at()));
        }
        self.stat.packets += count;
        self.stat.bytes += packets.at() + rest.cut;
        self.stat.cut += rest.cut;
        self.stat.too_large += rest.too_large;
        while let Some(Reverse(event)) = self.events.pop() {
            self.match_span(event);
        }
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>, sequences: &Sequences, clocks: &Clocks) {
        for (field, value) in packet.fields() {
            match (field, value) {
                (TRACK_DESCRIPTOR, Field::Bytes(descriptor)) => {
                    self.stat.tracks += 1;
                    let thread = message(descriptor, 4).and_then(|_| number(descriptor, 1));
                    if self.threads.len() < MOST_THREADS {
                        self.threads.extend(thread);
                    }
                }
                (packets::DROPPED, Field::Number(1..)) => self.stat.gaps += 1,
                (packets::FTRACE, Field::Bytes(bundle)) => {
                    let events = Fields::of(bundle).filter(|&(number, _)| number == 2);
                    self.stat.kernel += events.count() as u64;
                }
                (TRACK_EVENT, Field::Bytes(event)) => self.event(event, packet, sequences, clocks),
                _ => {}
            }
        }
    }

    fn event(&mut self, event: &[u8], packet: &Packet<'_>, sequences: &Sequences, clocks: &Clocks) {
        let kind = number(event, EVENT_TYPE).unwrap_or(0);
        let sequence = sequences.known.get(&packet.sequence);
        let interned = || sequence?.names.get(&number(event, EVENT_NAME_IID)?).copied();
        let name = message(event, EVENT_NAME).map(|name| self.names.of(name)).or_else(interned);
        let name = name.unwrap_or_else(|| self.names.of(b""));
        match self.names.text(name) {
            ACCOUNT_NAME => return self.account(annotations(event)),
            HEAD_NAME => {
                self.stat.begun += 1;
                return;
            }
            LOST_NAME => return,
            _ => {}
        }
        let Some(ns) = clocks.boot_ns(packet) else { return };
        self.first = Some(self.first.map_or(ns, |first| first.min(ns)));
        self.last = self.last.max(ns);
        let track = number(event, EVENT_TRACK)
            .unwrap_or_else(|| sequence.map_or(0, |sequence| sequence.track));
        match kind {
            1 | 2 => {
                let is_unfinished = |(key, _): &(String, String)| key == "unfinished";
                let unfinished = kind == 2 && annotations(event).iter().any(is_unfinished);
                self.order += 1;
                let order = self.order;
                let begins = kind == 1;
                self.events.push(Reverse(Timed { ns, order, track, name, begins, unfinished }));
                let beyond = if self.events.len() > WINDOW { self.events.pop() } else { None };
                if let Some(Reverse(event)) = beyond {
                    self.match_span(event);
                }
            }
            3 => *self.marks.entry(name).or_default() += 1,
            4 => self.stat.counters += 1,
            _ => {}
        }
    }

    fn account(&mut self, account: Vec<(String, String)>) {
        // What was overwritten or never had a ring is not marked in place, and counted here alone.
        let missing = account.iter().filter(|(key, _)| {
            matches!(key.as_str(), "lost" | "overwritten" | "homeless" | "refused" | "unentered")
        });
        self.stat.lost += missing.filter_map(|(_, value)| value.parse::<u64>().ok()).sum::<u64>();
        self.stat.accounted += 1;
        if self.stat.accounts.len() < MOST_ACCOUNTS {
            self.stat.accounts.push(account);
        }
    }

    fn match_span(&mut self, event: Timed) {
        if event.begins {
            if self.open_count >= MOST_OPEN {
                self.stat.unfinished += 1;
                return;
            }
            self.open_count += 1;
            self.open.entry(event.track).or_default().push((event.name, event.ns));
            return;
        }
        let Some((name, begin)) = self.open.get_mut(&event.track).and_then(Vec::pop) else {
            self.stat.beginless += 1;
            return;
        };
        self.open_count -= 1;
        if self.open.get(&event.track).is_some_and(Vec::is_empty) {
            self.open.remove(&event.track);
        }
        self.stat.unfinished += u64::from(event.unfinished);
        let on_thread = self.threads.contains(&event.track);
        let durations = self.durations.entry((name, on_thread)).or_default();
        durations.add(event.ns.saturating_sub(begin));
    }

    fn finish(self) -> Stat {
        let Self { mut stat, names, durations, marks, open, first, last, .. } = self;
        stat.unfinished += open.values().map(|stack| stack.len() as u64).sum::<u64>();
        stat.spans = durations
            .into_iter()
            .map(|((name, on_thread), durations)| SpanStat {
                name: names.text(name).to_owned(),
                on_thread,
                count: durations.count,
                total_ns: durations.total,
                p50_ns: durations.percentile(50),
                p99_ns: durations.percentile(99),
                max_ns: durations.most,
            })
            .collect();
        stat.spans.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        let marks = marks.into_iter().map(|(name, count)| (names.text(name).to_owned(), count));
        stat.marks = marks.collect();
        stat.marks.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        stat.length_ns = last.saturating_sub(first.unwrap_or(last));
        stat
    }
}

impl Sequences {
    fn learn(&mut self, packet: &Packet<'_>, names: &mut Names) {
        if self.known.len() >= MOST_SEQUENCES && !self.known.contains_key(&packet.sequence) {
            return;
        }
        let sequence = self.known.entry(packet.sequence).or_default();
        if packet.number(packets::FLAGS).is_some_and(|flags| flags & 1 != 0) {
            self.interned -= sequence.names.len();
            *sequence = Sequence::default();
        }
        let defaults = packet.message(packets::DEFAULTS);
        if let Some(event) = defaults.and_then(|defaults| message(defaults, TRACK_EVENT)) {
            sequence.track = number(event, EVENT_TRACK).unwrap_or(0);
        }
        let interned = packet.message(packets::INTERNED).map(Fields::of).into_iter().flatten();
        for (field, value) in interned {
            let (2, Field::Bytes(entry)) = (field, value) else { continue };
            let (Some(iid), Some(name)) = (number(entry, 1), message(entry, 2)) else { continue };
            if self.interned < MOST_INTERNED {
                let new = sequence.names.insert(iid, names.of(name)).is_none();
                self.interned += usize::from(new);
            }
        }
    }
}

fn annotations(event: &[u8]) -> Vec<(String, String)> {
    let all = Fields::of(event)
        .filter_map(|(number, field)| field.bytes().filter(|_| number == EVENT_ANNOTATION));
    all.filter_map(|annotation| {
        let key = text(annotation, 10)?;
        let value = Fields::of(annotation).find_map(|(number, field)| match (number, field) {
            (2 | 3, Field::Number(value)) => Some(value.to_string()),
            (4, Field::Number(value)) => Some((value as i64).to_string()),
            (5, Field::Fixed64(value)) => Some(format!("{:.2}", f64::from_bits(value))),
            (6, Field::Bytes(value)) => Some(String::from_utf8_lossy(value).into_owned()),
            _ => None,
        });
        Some((key, value.unwrap_or_default()))
    })
    .collect()
}

fn message(of: &[u8], wanted: u32) -> Option<&[u8]> {
    Fields::of(of).find_map(|(number, field)| field.bytes().filter(|_| number == wanted))
}

fn text(of: &[u8], wanted: u32) -> Option<String> {
    message(of, wanted).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spans: u64 = self.spans.iter().map(|span| span.count).sum();
        let marks: u64 = self.marks.iter().map(|(_, count)| count).sum();
        writeln!(
            f,
            "{} bytes, {} packets, {} long",
            self.bytes,
            self.packets,
            Time(self.length_ns)
        )?;
        writeln!(
            f,
            "{spans} spans, {marks} marks, {} counter samples, {} kernel events, {} tracks",
            self.counters, self.kernel, self.tracks
        )?;
        writeln!(
            f,
            "missing: {} events in {} gaps; {} ends without a begin, {} spans unfinished",
            self.lost, self.gaps, self.beginless, self.unfinished
        )?;
        if self.cut > 0 {
            writeln!(f, "cut: {} bytes behind the last whole packet", self.cut)?;
        }
        if self.too_large > 0 {
            writeln!(f, "not read: {} packets above 8 MiB", self.too_large)?;
        }
        let silent = self.begun.saturating_sub(self.accounted);
        if silent > 0 {
            writeln!(
                f,
                "without an account: {silent} of {} recordings, which were cut off or go on in another file",
                self.begun
            )?;
        }
        for account in &self.accounts {
            let words: Vec<String> =
                account.iter().map(|(key, value)| format!("{key} {value}")).collect();
            writeln!(f, "account: {}", words.join(", "))?;
        }
        if !self.spans.is_empty() {
            writeln!(
                f,
                "\n{:<40} {:<6} {:>10} {:>12} {:>12} {:>12} {:>12}",
                "span", "on", "count", "p50", "p99", "max", "total"
            )?;
        }
        for span in &self.spans {
            let [p50, p99, max, total] =
                [span.p50_ns, span.p99_ns, span.max_ns, span.total_ns].map(Time);
            let name = printable(&span.name);
            let on = if span.on_thread { "thread" } else { "track" };
            writeln!(
                f,
                "{name:<40} {on:<6} {:>10} {p50:>12} {p99:>12} {max:>12} {total:>12}",
                span.count
            )?;
        }
        if !self.marks.is_empty() {
            writeln!(f, "\n{:<40} {:>10}", "mark", "count")?;
        }
        for (name, count) in &self.marks {
            writeln!(f, "{:<40} {count:>10}", printable(name))?;
        }
        Ok(())
    }
}

/// A name that cannot disturb the terminal it is printed on.
fn printable(name: &str) -> String {
    let mut short: String =
        name.chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if name.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

/// Nanoseconds as people read them.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let text = match self.0 {
            0..1_000 => format!("{ns} ns"),
            1_000..1_000_000 => format!("{:.2} us", ns / 1e3),
            1_000_000..1_000_000_000 => format!("{:.2} ms", ns / 1e6),
            _ => format!("{:.3} s", ns / 1e9),
        };
        f.pad(&text)
    }
}
