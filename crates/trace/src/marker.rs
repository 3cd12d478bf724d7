//! ftrace's `trace_marker`, in the nine forms of `ATrace` that viewers understand.
//!
//! One `write` per event, at the moment of the event: the kernel stamps it, and orders it with its own events. A line
//! is at most [`LONGEST`] bytes; a name that is too long is cut, then the track, and what still does not fit is not
//! written. What would end a line or shift its fields (NUL, line feed, and `|` where something follows) is replaced.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The most bytes `ATrace` writes: its buffer of 1,024 less a NUL.
pub(crate) const LONGEST: usize = 1023;

/// Opens the marker file at `path`, or where the kernel has it. The first that opens stays open.
pub(crate) fn open(path: Option<&Path>) -> io::Result<()> {
    if FILE.get().is_some() {
        return if path.is_none() {
            Ok(())
        } else {
            Err(io::Error::other("a trace_marker is open already"))
        };
    }
    let opened = match path {
        Some(path) => OpenOptions::new().write(true).open(path)?,
        None => open_any()?,
    };
    crate::ring::watch_forks();
    let _ = FILE.set(opened);
    Ok(())
}

fn open_any() -> io::Result<File> {
    let mut failure = io::Error::other("no trace_marker");
    for path in PATHS {
        match OpenOptions::new().write(true).open(path) {
            Ok(file) => return Ok(file),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

const PATHS: [&str; 2] =
    ["/sys/kernel/tracing/trace_marker", "/sys/kernel/debug/tracing/trace_marker"];

/// Markers that the kernel did not take: its tracing is off, or the file is gone.
pub(crate) fn refused() -> u64 {
    REFUSED.load(Relaxed)
}

/// The process number in markers: the one the host knows, if this process cannot see it itself.
pub(crate) fn set_pid(pid: u32) {
    PID.store(pid, Relaxed);
}

/// A forked child has a number of its own.
#[cfg(all(unix, not(miri)))]
pub(crate) fn forget_pid() {
    PID.store(0, Relaxed);
}

fn pid() -> u32 {
    match PID.load(Relaxed) {
        0 => {
            let pid = std::process::id();
            PID.store(pid, Relaxed);
            pid
        }
        pid => pid,
    }
}

static FILE: OnceLock<File> = OnceLock::new();
static PID: AtomicU32 = AtomicU32::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn begin(name: &str) -> bool {
    with(b'B', |line| line.last(name))
}

pub(crate) fn end() {
    with(b'E', |_| ());
}

pub(crate) fn instant(name: &str) {
    with(b'I', |line| line.last(name));
}

pub(crate) fn counter(name: &str, value: i64) {
    with(b'C', |line| line.name(name, Digits::of(value).text()));
}

pub(crate) fn async_begin(name: &str, cookie: i32) {
    with(b'S', |line| line.name(name, Digits::of(i64::from(cookie)).text()));
}

pub(crate) fn async_end(name: &str, cookie: i32) {
    with(b'F', |line| line.name(name, Digits::of(i64::from(cookie)).text()));
}

pub(crate) fn track_begin(track: &str, name: &str, cookie: i32) {
    let cookie = Digits::of(i64::from(cookie));
    with(b'G', |line| line.track(track, name, cookie.text()));
}

pub(crate) fn track_end(track: &str, cookie: i32) {
    with(b'H', |line| line.name(track, Digits::of(i64::from(cookie)).text()));
}

pub(crate) fn track_instant(track: &str, name: &str) {
    with(b'N', |line| line.track(track, name, ""));
}

/// Puts a line together and writes it.
#[inline]
fn with(form: u8, fill: impl FnOnce(&mut Line<'_>)) -> bool {
    BUFFER.with(|buffer| {
        // A signal may come in the middle of one line and have another to write.
        buffer.try_borrow_mut().is_ok_and(|mut buffer| write(&mut buffer, form, fill))
    })
}

/// A thread's line. It is never cleared, and what all lines begin with stays: either would cost as much as a short
/// line.
struct Buffer {
    bytes: [u8; LONGEST],
    /// The process whose number `bytes` begins with, and up to where.
    pid: u32,
    begun: usize,
}

thread_local! {
    static BUFFER: RefCell<Buffer> =
        const { RefCell::new(Buffer { bytes: [0; LONGEST], pid: 0, begun: 0 }) };
}

fn write(buffer: &mut Buffer, form: u8, fill: impl FnOnce(&mut Line<'_>)) -> bool {
    let Some(mut file) = FILE.get() else { return false };
    let mut line = buffer.line(pid(), form);
    fill(&mut line);
    if line.does_not_fit {
        return false;
    }
    let written = file.write(line.bytes()).is_ok();
    if !written {
        REFUSED.fetch_add(1, Relaxed);
    }
    // The viewer sees what the kernel took; a begin that it did not take wants no end.
    written
}

impl Buffer {
    /// A line that says `form|pid`.
    #[inline]
    fn line(&mut self, pid: u32, form: u8) -> Line<'_> {
        if self.pid != pid {
            self.begun = Line::of(&mut self.bytes, pid, form).length;
            self.pid = pid;
        }
        self.bytes[0] = form;
        Line { bytes: &mut self.bytes, length: self.begun, does_not_fit: false }
    }
}

/// A marker being put together.
struct Line<'a> {
    bytes: &'a mut [u8],
    length: usize,
    does_not_fit: bool,
}

impl<'a> Line<'a> {
    #[cold]
    fn of(bytes: &'a mut [u8], pid: u32, form: u8) -> Self {
        let mut line = Self { bytes, length: 0, does_not_fit: false };
        line.push(&[form, b'|']);
        line.push(Digits::of(i64::from(pid)).text().as_bytes());
        line
    }

    /// `|name`, the last field: it may contain anything but an end of line.
    fn last(&mut self, name: &str) {
        self.push(b"|");
        self.push_text(name, self.bytes.len() - self.length, false);
    }

    /// `|name|after`.
    fn name(&mut self, name: &str, after: &str) {
        self.push(b"|");
        self.push_text(name, self.bytes.len() - self.length - after.len() - 1, true);
        self.push(b"|");
        self.push(after.as_bytes());
    }

    /// `|track|name`, and `|after` unless that is empty: the name gives way first, down to one character.
    fn track(&mut self, track: &str, name: &str, after: &str) {
        self.push(b"|");
        let tail = if after.is_empty() { 0 } else { after.len() + 1 };
        let room = self.bytes.len() - self.length - 1 - tail;
        let least = name.chars().next().map_or(0, char::len_utf8);
        self.push_text(track, track.len().min(room.saturating_sub(least)), true);
        self.push(b"|");
        self.push_text(name, self.bytes.len() - self.length - tail, !after.is_empty());
        if !after.is_empty() {
            self.push(b"|");
            self.push(after.as_bytes());
        }
    }

    #[inline]
    fn push_text(&mut self, text: &str, room: usize, field: bool) {
        let text = if text.len() > room { crate::record::cut(text, room) } else { text };
        let start = self.length;
        self.push(text.as_bytes());
        let Some(written) = self.bytes.get_mut(start..self.length) else { return };
        // One pass without a branch, for the compiler to make wide; names that need care are rare.
        let bar = if field { b'|' } else { 0 };
        let bad = |byte: u8| u8::from(byte == 0) | u8::from(byte == b'\n') | u8::from(byte == bar);
        if written.iter().fold(0, |found, &byte| found | bad(byte)) != 0 {
            for byte in written {
                *byte = match *byte {
                    b'|' if field => b'/',
                    0 | b'\n' => b' ',
                    byte => byte,
                };
            }
        }
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.length..self.length + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.does_not_fit = true,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A number in decimal.
struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    fn of(value: i64) -> Self {
        let mut digits = Self { bytes: [0; 20], start: 20 };
        let mut rest = value.unsigned_abs();
        loop {
            digits.prepend(b'0' + (rest % 10) as u8);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            digits.prepend(b'-');
        }
        digits
    }

    fn prepend(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.start..]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(form: u8, pid: u32, fill: impl FnOnce(&mut Line<'_>)) -> String {
        let mut bytes = [0; LONGEST];
        let mut line = Line::of(&mut bytes, pid, form);
        fill(&mut line);
        assert!(!line.does_not_fit);
        String::from_utf8(line.bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_nine_forms() {
        assert_eq!(text(b'B', 42, |line| line.last("name")), "B|42|name");
        assert_eq!(text(b'E', 42, |_| ()), "E|42");
        assert_eq!(text(b'S', 42, |line| line.name("name", "7")), "S|42|name|7");
        assert_eq!(text(b'F', 42, |line| line.name("name", "-7")), "F|42|name|-7");
        assert_eq!(text(b'G', 42, |line| line.track("track", "name", "7")), "G|42|track|name|7");
        assert_eq!(text(b'H', 42, |line| line.name("track", "7")), "H|42|track|7");
        assert_eq!(text(b'I', 42, |line| line.last("name")), "I|42|name");
        assert_eq!(text(b'N', 42, |line| line.track("track", "name", "")), "N|42|track|name");
        assert_eq!(text(b'C', 42, |line| line.name("name", "9")), "C|42|name|9");
    }

    #[test]
    fn a_line_never_begins_with_another_process() {
        let mut buffer = Buffer { bytes: [0; LONGEST], pid: 0, begun: 0 };
        let mut text = |pid, form, name| {
            let mut line = buffer.line(pid, form);
            line.last(name);
            String::from_utf8(line.bytes().to_vec()).unwrap()
        };
        assert_eq!(text(4_194_304, b'B', "long before"), "B|4194304|long before");
        assert_eq!(text(4_194_304, b'I', "x"), "I|4194304|x");
        assert_eq!(text(7, b'B', "child"), "B|7|child");
    }

    #[test]
    fn names_are_cut_so_that_the_line_fits() {
        for length in [0, 1, 1016, 1017, 1018, 1019, 4096] {
            let name = "n".repeat(length);
            assert_eq!(text(b'B', 42, |line| line.last(&name)).len(), (5 + length).min(LONGEST));
            let line = text(b'S', 42, |line| line.name(&name, "12345"));
            assert_eq!(line.len(), (5 + length + 6).min(LONGEST));
            assert!(line.ends_with("|12345"), "the cookie is whole");
        }
        // 1,018 bytes of room hold 509 characters of two bytes.
        let wide = "é".repeat(1000);
        assert_eq!(text(b'B', 42, |line| line.last(&wide)).chars().count(), 5 + 509);
        assert_eq!(
            text(b'B', 421, |line| line.last(&wide)).len(),
            LONGEST - 1,
            "a character is not cut in two"
        );
    }

    #[test]
    fn a_long_track_is_cut_after_the_name_gave_way() {
        let long = "t".repeat(2000);
        let line = text(b'G', 42, |line| line.track(&long, "name", "7"));
        let fields: Vec<&str> = line.split('|').collect();
        assert_eq!((line.len(), fields[3], fields[4]), (LONGEST, "n", "7"));
        let line = text(b'G', 42, |line| line.track("track", &long, "7"));
        let fields: Vec<&str> = line.split('|').collect();
        assert_eq!((line.len(), fields[2], fields[4]), (LONGEST, "track", "7"));
        let line = text(b'N', 42, |line| line.track(&long, &long, ""));
        assert_eq!((line.len(), line.split('|').nth(3).unwrap()), (LONGEST, "t"));
        let line = text(b'N', 42, |line| line.track(&long, "", ""));
        assert_eq!((line.len(), line.split('|').nth(3).unwrap()), (LONGEST, ""));
    }

    #[test]
    fn what_would_shift_fields_or_end_the_line_is_replaced() {
        assert_eq!(text(b'B', 1, |line| line.last("a|b\0c\nd")), "B|1|a|b c d");
        assert_eq!(text(b'C', 1, |line| line.name("a|b\0c\nd", "5")), "C|1|a/b c d|5");
        assert_eq!(text(b'N', 1, |line| line.track("t|u", "a|b", "")), "N|1|t/u|a|b");
    }

    #[test]
    fn digits_of_the_extremes() {
        for value in [0, 1, -1, 9, 10, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN]
        {
            assert_eq!(Digits::of(value).text(), value.to_string());
        }
    }
}
