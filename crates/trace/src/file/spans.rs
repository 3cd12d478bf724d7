//! The spans of a file with all they carry, and what lies in what: for programs that hand them on.
//!
//! A file of any size takes less than 64 MB of memory. Its events are put in the order of their times, for a file has
//! them thread by thread; then begins and ends are put together; then spans are put in the order of their begins, so
//! that each is known whole before those in it. What does not fit into memory waits in files without names
//! ([`super::sorter`]).

mod nest;
mod reader;
mod stored;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::FileError;
use super::packets::Packets;
use super::sorter::{Records, Sorted};
use nest::Nest;
use reader::Reader;

/// What [`spans`] found in a file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Spans {
    /// Marks that lie in no span.
    pub marks: u64,
    /// What to add to times to have nanoseconds since 1970; `None` for a file that does not tell the time of day.
    pub real_less_boot_ns: Option<i64>,
    /// Ends without a begin.
    pub beginless: u64,
    /// Bytes behind the last whole packet.
    pub cut: u64,
    processes: HashMap<u64, String>,
    sorted: Sorted,
}

impl Spans {
    /// The spans in the order of their begins: what a span lies in comes before it.
    ///
    /// # Errors
    /// Those of the file in which spans wait that do not fit into memory.
    pub fn iter(&self) -> io::Result<Iter<'_>> {
        Ok(Iter { processes: &self.processes, records: self.sorted.iter()? })
    }
}

/// The spans of [`Spans`].
#[derive(Debug)]
pub struct Iter<'a> {
    processes: &'a HashMap<u64, String>,
    records: Records<'a>,
}

impl Iterator for Iter<'_> {
    type Item = io::Result<Span>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.records.next()?;
        Some(record.map(|(_, bytes)| {
            let mut span = stored::span(&bytes);
            let name = self.processes.get(&span.process.1).cloned();
            span.process.0 = name.unwrap_or_default();
            span
        }))
    }
}

/// One span. The polls of an asynchronous span are not among them: what lies in a poll lies in the span.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// The first 1,000 marks in it.
    pub marks: Vec<Mark>,
    /// Marks in it beyond those.
    pub marks_left_out: u64,
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

/// Reads the spans of a file, in less than 64 MB of memory for files of any size. What does not fit waits in files
/// without names in [`std::env::temp_dir`], which may become several times as large as this one.
///
/// # Errors
/// When the file or those without names cannot be read or written, when it is no trace, or when what is open in it at
/// once is too much for that memory.
pub fn spans(path: impl AsRef<Path>) -> Result<Spans, FileError> {
    let path = path.as_ref();
    let mut packets = Packets::of_file(path)?;
    let mut reader = Reader::default();
    let failed = |error| FileError::Io(path.to_owned(), error);
    let too_much = |what| FileError::TooMuch(path.to_owned(), what);
    let mut count = 0;
    while let Some(packet) = packets.next().map_err(failed)? {
        count += 1;
        reader.packet(&packet).map_err(failed)?;
        if reader.lacks_names() {
            return Err(too_much("more than 6 MB of names are in use at once"));
        }
    }
    if count == 0 && packets.is_none() {
        return Err(FileError::NotATrace(path.to_owned(), packets.at()));
    }
    let (events, read) = reader.finish().map_err(failed)?;
    let mut nest = Nest::default();
    for event in events.iter().map_err(failed)? {
        nest.event(event.map_err(failed)?).map_err(failed)?;
        if nest.is_full() {
            return Err(too_much("more than 16 MB of spans are open at once"));
        }
    }
    let nested = nest.finish().map_err(failed)?;
    Ok(Spans {
        marks: nested.marks,
        real_less_boot_ns: read.real_less_boot_ns,
        beginless: nested.beginless,
        cut: packets.rest().cut,
        processes: read.processes,
        sorted: nested.sorted,
    })
}
