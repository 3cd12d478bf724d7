//! What is in a trace: spans by name, marks, counters, what is missing, and what it cost.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use super::clocks::{Clocks, number};
use super::packets::{self, Packet};
use super::{FileError, read};
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
    /// Spans by name, the most time first.
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
    /// The files' own accounts, one per recording: name and value, as they are written.
    pub accounts: Vec<Vec<(String, String)>>,
    /// From the first event to the last, in nanoseconds.
    pub length_ns: u64,
}

/// The spans of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanStat {
    /// The name.
    pub name: String,
    /// How many there are.
    pub count: u64,
    /// The time of all of them.
    pub total_ns: u64,
    /// Half of them took at most this long.
    pub p50_ns: u64,
    /// 99 in a hundred took at most this long.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Reads files and says what is in them.
///
/// # Errors
/// When a file cannot be read, or is no Perfetto trace.
pub fn stat<P: AsRef<Path>>(paths: &[P]) -> Result<Stat, FileError> {
    if paths.is_empty() {
        return Err(FileError::NoInput);
    }
    let mut reader = Reader::default();
    for path in paths {
        let bytes = read(path.as_ref())?;
        reader.file(path.as_ref(), &bytes)?;
    }
    Ok(reader.finish())
}

/// What the bytes of one file hold; `Err` is where it stops being a trace.
#[doc(hidden)]
pub fn stat_bytes(bytes: &[u8]) -> Result<Stat, FileError> {
    let mut reader = Reader::default();
    reader.file(Path::new("(memory)"), bytes)?;
    Ok(reader.finish())
}

#[derive(Default)]
struct Reader {
    stat: Stat,
    durations: HashMap<String, Vec<u64>>,
    marks: HashMap<String, u64>,
    /// Begin and end of spans that are open: by file and track.
    open: HashMap<u64, Vec<(String, u64)>>,
    /// Events that are not in the order of their times are put in order before they are matched.
    events: Vec<Timed>,
    first: Option<u64>,
    last: u64,
}

struct Timed {
    ns: u64,
    track: u64,
    kind: u64,
    name: String,
    unfinished: bool,
}

/// What a sequence has said before.
#[derive(Default)]
struct Sequence {
    names: HashMap<u64, String>,
    track: u64,
}

impl Reader {
    fn file(&mut self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        self.stat.bytes += bytes.len() as u64;
        let mut clocks = Clocks::default();
        let mut sequences: HashMap<u64, Sequence> = HashMap::new();
        for packet in packets::packets(path, bytes)? {
            self.stat.packets += 1;
            clocks.learn(&packet);
            let sequence = sequences.entry(packet.sequence).or_default();
            sequence.learn(&packet);
            self.packet(&packet, sequence, &clocks);
        }
        self.match_spans();
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>, sequence: &Sequence, clocks: &Clocks) {
        for (number, field) in packet.fields() {
            match (number, field) {
                (TRACK_DESCRIPTOR, Field::Bytes(_)) => self.stat.tracks += 1,
                (packets::DROPPED, Field::Number(1..)) => self.stat.gaps += 1,
                (packets::FTRACE, Field::Bytes(bundle)) => {
                    let events = Fields::of(bundle).filter(|&(number, _)| number == 2);
                    self.stat.kernel += events.count() as u64;
                }
                (TRACK_EVENT, Field::Bytes(event)) => self.event(event, packet, sequence, clocks),
                _ => {}
            }
        }
    }

    fn event(&mut self, event: &[u8], packet: &Packet<'_>, sequence: &Sequence, clocks: &Clocks) {
        let kind = number(event, EVENT_TYPE).unwrap_or(0);
        let name = sequence.name(event);
        match name.as_str() {
            ACCOUNT_NAME => {
                let account = annotations(event);
                // What was overwritten or never had a ring is not marked in place, and counted here alone.
                let missing = account.iter().filter(|(key, _)| {
                    matches!(key.as_str(), "lost" | "overwritten" | "homeless" | "refused")
                });
                self.stat.lost +=
                    missing.filter_map(|(_, value)| value.parse::<u64>().ok()).sum::<u64>();
                self.stat.accounts.push(account);
                return;
            }
            HEAD_NAME | LOST_NAME => return,
            _ => {}
        }
        let Some(ns) = clocks.boot_ns(packet) else { return };
        self.first = Some(self.first.map_or(ns, |first| first.min(ns)));
        self.last = self.last.max(ns);
        let track = number(event, EVENT_TRACK).unwrap_or(sequence.track);
        match kind {
            1 | 2 => {
                let unfinished =
                    kind == 2 && annotations(event).iter().any(|(key, _)| key == "unfinished");
                self.events.push(Timed { ns, track, kind, name, unfinished });
            }
            3 => *self.marks.entry(name).or_default() += 1,
            4 => self.stat.counters += 1,
            _ => {}
        }
    }

    fn match_spans(&mut self) {
        // Stable: of events at one time the order of the file counts, as in Perfetto itself.
        self.events.sort_by_key(|event| event.ns);
        for event in std::mem::take(&mut self.events) {
            let stack = self.open.entry(event.track).or_default();
            if event.kind == 1 {
                stack.push((event.name, event.ns));
            } else if let Some((name, begin)) = stack.pop() {
                self.stat.unfinished += u64::from(event.unfinished);
                self.durations.entry(name).or_default().push(event.ns - begin);
            } else {
                self.stat.beginless += 1;
            }
        }
        self.stat.unfinished += self.open.drain().map(|(_, stack)| stack.len() as u64).sum::<u64>();
    }

    fn finish(self) -> Stat {
        let mut stat = self.stat;
        stat.spans = self
            .durations
            .into_iter()
            .map(|(name, durations)| SpanStat::of(name, durations))
            .collect();
        stat.spans.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        stat.marks = self.marks.into_iter().collect();
        stat.marks.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        stat.length_ns = self.last.saturating_sub(self.first.unwrap_or(self.last));
        stat
    }
}

impl SpanStat {
    fn of(name: String, mut durations: Vec<u64>) -> Self {
        durations.sort_unstable();
        // The smallest duration that so many in a hundred do not exceed.
        let at = |percent: usize| durations[(durations.len() * percent).div_ceil(100).max(1) - 1];
        let total_ns = durations.iter().fold(0, |total: u64, ns| total.saturating_add(*ns));
        Self {
            name,
            count: durations.len() as u64,
            total_ns,
            p50_ns: at(50),
            p99_ns: at(99),
            max_ns: at(100),
        }
    }
}

impl Sequence {
    fn learn(&mut self, packet: &Packet<'_>) {
        if packet.number(packets::FLAGS).is_some_and(|flags| flags & 1 != 0) {
            *self = Self::default();
        }
        let defaults = packet.message(packets::DEFAULTS);
        if let Some(event) = defaults.and_then(|defaults| message(defaults, TRACK_EVENT)) {
            self.track = number(event, EVENT_TRACK).unwrap_or(0);
        }
        for (number_of, field) in
            packet.message(packets::INTERNED).map(Fields::of).into_iter().flatten()
        {
            if let (2, Field::Bytes(entry)) = (number_of, field)
                && let (Some(iid), Some(name)) = (number(entry, 1), text(entry, 2))
            {
                self.names.insert(iid, name);
            }
        }
    }

    fn name(&self, event: &[u8]) -> String {
        let interned = || self.names.get(&number(event, EVENT_NAME_IID)?).cloned();
        text(event, EVENT_NAME).or_else(interned).unwrap_or_default()
    }
}

fn annotations(event: &[u8]) -> Vec<(String, String)> {
    let all = Fields::of(event)
        .filter_map(|(number, field)| field.bytes().filter(|_| number == EVENT_ANNOTATION));
    all.filter_map(|annotation| {
        let key = text(annotation, 10)?;
        let value = Fields::of(annotation).find_map(|(number, field)| match (number, field) {
            (2 | 3, Field::Number(value)) => Some(value.to_string()),
            (4, Field::Number(value)) => Some(value.cast_signed().to_string()),
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
        for account in &self.accounts {
            let words: Vec<String> =
                account.iter().map(|(key, value)| format!("{key} {value}")).collect();
            writeln!(f, "account: {}", words.join(", "))?;
        }
        if !self.spans.is_empty() {
            writeln!(
                f,
                "\n{:<40} {:>10} {:>12} {:>12} {:>12} {:>12}",
                "span", "count", "p50", "p99", "max", "total"
            )?;
        }
        for span in &self.spans {
            let [p50, p99, max, total] =
                [span.p50_ns, span.p99_ns, span.max_ns, span.total_ns].map(Time);
            let name = printable(&span.name);
            writeln!(f, "{name:<40} {:>10} {p50:>12} {p99:>12} {max:>12} {total:>12}", span.count)?;
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
