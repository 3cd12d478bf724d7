//! Chrome's trace-event JSON, one event per line.
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Write};

use crate::clock::Reading;
use crate::collect::{Account, Placed, Sink};
use crate::decode::Arena;
use crate::process::Process;
use crate::record::value_kind;
use crate::ring::Thread;
use crate::tracks::{TrackId, What};
use crate::value::{self, Text};

/// Writes events as it is handed them.
pub(crate) struct Chrome<W> {
    out: W,
    line: String,
    pid: u32,
    start: Reading,
    threads: HashMap<u64, u32>,
    /// Flows that have begun.
    flows: HashSet<u64>,
    failure: Option<io::Error>,
}

impl<W: Write> Chrome<W> {
    pub(crate) fn new(out: W, process: &Process, start: Reading) -> Self {
        let pid = process.pid;
        let mut chrome = Self {
            out,
            line: String::new(),
            pid,
            start,
            threads: HashMap::new(),
            flows: HashSet::new(),
            failure: None,
        };
        chrome.line.push_str("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        let _ = write!(
            chrome.line,
            "{{\"ph\":\"M\",\"pid\":{pid},\"name\":\"process_name\",\"args\":{{\"name\":"
        );
        text(&mut chrome.line, &process.name);
        chrome.line.push_str("}}");
        chrome.flush();
        chrome
    }

    pub(crate) fn finish(mut self, account: &Account) -> io::Result<()> {
        let Account {
            events,
            lost,
            overwritten,
            homeless,
            refused,
            unentered,
            beginless,
            unfinished,
            ns_per_event,
            ..
        } = account;
        let _ = write!(
            self.line,
            "\n],\"otherData\":{{\"events\":{events},\"lost\":{lost},\"overwritten\":{overwritten},\
             \"homeless\":{homeless},\"refused\":{refused},\"unentered\":{unentered},\"beginless\":\
             {beginless},\"unfinished\":{unfinished},\
             \"ns_per_event\":{ns_per_event:.2}}}}}\n"
        );
        self.flush();
        self.failure.take().map_or_else(|| self.out.flush(), Err)
    }

    fn flush(&mut self) {
        if self.failure.is_none() {
            self.failure = self.out.write_all(self.line.as_bytes()).err();
        }
        self.line.clear();
    }

    /// Begins an event, up to its name.
    fn open(&mut self, phase: &str, ns: u64, tid: u32) {
        let ns = ns.saturating_sub(self.start.boot_ns);
        let (pid, us, rest) = (self.pid, ns / 1000, ns % 1000);
        let _ = write!(
            self.line,
            ",\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{us}.{rest:03}"
        );
    }

    fn flow(&mut self, id: u64, ends: bool, ns: u64, tid: u32) {
        let phase = if ends {
            self.flows.remove(&id);
            "f"
        } else if self.flows.len() < FLOWS && self.flows.insert(id) {
            "s"
        } else {
            "t"
        };
        self.open(phase, ns, tid);
        let _ = write!(
            self.line,
            ",\"cat\":\"flow\",\"name\":\"flow\",\"bp\":\"e\",\"id\":\"{id:#x}\"}}"
        );
    }
}

impl<W: Write> Sink for Chrome<W> {
    fn thread(&mut self, ring: u64, thread: &Thread) {
        self.threads.insert(ring, thread.tid);
        let (pid, tid) = (self.pid, thread.tid);
        let _ = write!(
            self.line,
            ",\n{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"thread_name\",\"args\":{{\"name\":"
        );
        text(&mut self.line, &thread.name);
        self.line.push_str("}}");
        self.flush();
    }

    fn event(&mut self, event: &Placed<'_>) {
        let (tid, track) = match event.track {
            TrackId::Thread { ring, aside } => {
                let tid = self.threads.get(&ring).copied().unwrap_or(self.pid);
                (tid, (aside > 0).then(|| format!("{tid}.{aside}")))
            }
            TrackId::Async { id, aside, .. } => (self.pid, Some(format!("{id:#x}.{aside}"))),
        };
        let phase = match (event.what, &track) {
            (What::Begin, None) => "B",
            (What::Begin, Some(_)) => "b",
            (What::End | What::Unfinished, None) => "E",
            (What::End | What::Unfinished, Some(_)) => "e",
            (What::Mark, None) => "i",
            (What::Mark, Some(_)) => "n",
            (What::Counter, _) => "C",
        };
        self.open(phase, event.ns, tid);
        self.line.push_str(",\"name\":");
        text(&mut self.line, event.name);
        self.line.push_str(",\"cat\":");
        match event.callsite.map(|(_, site)| site).filter(|site| !site.target().is_empty()) {
            Some(site) => {
                let (category, level) = (event.category.name(), site.level().name());
                text(&mut self.line, &format!("{category},{},{level}", site.target()));
            }
            None => text(&mut self.line, event.category.name()),
        }
        if let Some(track) = track {
            let _ = write!(self.line, ",\"id\":\"{track}\"");
        }
        if phase == "i" {
            self.line.push_str(",\"s\":\"t\"");
        }
        self.line.push_str(",\"args\":{");
        let first = arguments(&mut self.line, event);
        if event.what == What::Unfinished {
            self.line.push_str(if first { "\"unfinished\":true" } else { ",\"unfinished\":true" });
        }
        self.line.push_str("}}");
        for &(kind, id) in event.values {
            if matches!(kind, value_kind::FLOW | value_kind::LAST_FLOW) {
                self.flow(id, kind == value_kind::LAST_FLOW, event.ns, tid);
            }
        }
        if self.line.len() >= FLUSH_AT {
            self.flush();
        }
    }

    fn lost(&mut self, ring: u64, ns: u64, count: u64) {
        let tid = self.threads.get(&ring).copied().unwrap_or(self.pid);
        self.open("i", ns, tid);
        let name = crate::perfetto::LOST_NAME;
        let _ =
            write!(self.line, ",\"s\":\"t\",\"name\":\"{name}\",\"args\":{{\"count\":{count}}}}}");
    }

    fn reading(&mut self, _reading: &Reading) {}
}

fn arguments(line: &mut String, event: &Placed<'_>) -> bool {
    let fields = event.callsite.map_or(&[][..], |(_, site)| site.fields());
    let mut first = true;
    for (index, &(kind, word)) in event.values.iter().enumerate() {
        if matches!(kind, value_kind::ABSENT | value_kind::FLOW | value_kind::LAST_FLOW) {
            continue;
        }
        if !first {
            line.push(',');
        }
        first = false;
        text(line, fields.get(index).copied().unwrap_or("value"));
        line.push(':');
        value(line, kind, word, event.arena);
    }
    first
}

fn value(line: &mut String, kind: u8, word: u64, arena: &Arena) {
    let _ = match kind {
        value_kind::SIGNED => write!(line, "{}", word as i64),
        value_kind::BOOL => write!(line, "{}", word != 0),
        // JSON has no infinities and no NaN.
        value_kind::FLOAT if f64::from_bits(word).is_finite() => {
            write!(line, "{:?}", f64::from_bits(word))
        }
        value_kind::FLOAT => write!(line, "\"{}\"", f64::from_bits(word)),
        value_kind::INTERNED => {
            let interned = value::text(Text::from_number(word as u32));
            text(line, interned.as_deref().unwrap_or_default());
            Ok(())
        }
        value_kind::TEXT => {
            text(line, arena.text_of(word));
            Ok(())
        }
        _ => write!(line, "{word}"),
    };
}

/// A JSON string.
fn text(line: &mut String, text: &str) {
    line.push('"');
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            // A NUL would end the text in readers written in C.
            '\0' => line.push('\u{2400}'),
            control if control < ' ' => {
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    line.push('"');
}

const FLUSH_AT: usize = 1 << 16;
/// Flows told apart at once; more of them are shown without their first step.
const FLOWS: usize = 1 << 20;
