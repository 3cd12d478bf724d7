//! Several traces as one: an application, its sidecar, the kernel.
//!
//! Packets are copied whole. What must differ between files, the ids of their sequences, is renumbered; and the times of
//! a file made on another boot or machine are moved to the clock of the first by the time of day that both tell.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::clocks::{Clocks, clocks};
use super::packets::{self, Packet};
use super::{FileError, read};
use crate::perfetto::{BOOTTIME, CLOCK_SNAPSHOT, MONOTONIC, PACKET, SEQUENCE_ID, TIMESTAMP};
use crate::wire::{self, Field};

/// What a merge did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Merged {
    /// Packets written.
    pub packets: u64,
    /// Bytes written.
    pub bytes: u64,
    /// For each input, by how many nanoseconds its times were moved.
    pub moved_ns: Vec<i64>,
}

impl std::fmt::Display for Merged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} packets, {} bytes", self.packets, self.bytes)?;
        for (index, moved) in self.moved_ns.iter().enumerate().filter(|&(_, &moved)| moved != 0) {
            writeln!(f, "file {}: moved by {moved} ns to the clock of the first", index + 1)?;
        }
        Ok(())
    }
}

/// Writes one trace that holds all of `inputs`, on the clock of the first.
///
/// # Errors
/// When a file cannot be read or written, is no Perfetto trace, or is of another boot and does not tell the time of day.
pub fn merge<P: AsRef<Path>>(inputs: &[P], output: impl AsRef<Path>) -> Result<Merged, FileError> {
    let files: Vec<Vec<u8>> =
        inputs.iter().map(|path| read(path.as_ref())).collect::<Result<_, _>>()?;
    let mut traces = Vec::new();
    for (path, bytes) in inputs.iter().zip(&files) {
        traces.push(Trace::read(path.as_ref(), bytes)?);
    }
    let first = traces.first().ok_or(FileError::NoInput)?;
    let moved: Vec<i128> =
        traces.iter().map(|trace| trace.away_from(first)).collect::<Result<_, _>>()?;
    // Everything is known to be readable before the output is touched: it may even be one of the inputs.
    let mut out = Vec::with_capacity(files.iter().map(Vec::len).sum());
    let mut numbers = Numbers::default();
    let mut count = 0;
    for (index, (trace, &moved)) in traces.iter().zip(&moved).enumerate() {
        let mut clocks = Clocks::default();
        for packet in &trace.packets {
            clocks.learn(packet);
            let sequence = numbers.of(index, packet.sequence);
            wire::message(&mut out, PACKET, |out| copy(out, packet, sequence, moved, &clocks));
            count += 1;
        }
    }
    let path = output.as_ref();
    let failed = |error| FileError::Io(path.to_owned(), error);
    let mut file = BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    file.write_all(&out).and_then(|()| file.flush()).map_err(failed)?;
    let moved_ns =
        moved.into_iter().map(|moved| i64::try_from(moved).unwrap_or(i64::MAX)).collect();
    Ok(Merged { packets: count, bytes: out.len() as u64, moved_ns })
}

struct Trace<'a> {
    path: &'a Path,
    packets: Vec<Packet<'a>>,
    boot_id: Option<String>,
    real_less_boot: Option<i128>,
}

/// Two boots of one machine are further apart than a clock is ever set, and the same boot is not.
const SAME_BOOT_NS: i128 = 2_000_000_000;

impl<'a> Trace<'a> {
    fn read(path: &'a Path, bytes: &'a [u8]) -> Result<Self, FileError> {
        let packets = packets::packets(path, bytes)?;
        let mut clocks = Clocks::default();
        packets.iter().for_each(|packet| clocks.learn(packet));
        let boot_id = packets.iter().find_map(boot_id);
        Ok(Self { path, packets, boot_id, real_less_boot: clocks.real_less_boot })
    }

    /// What to add to this file's times to have them on the clock of `first`.
    fn away_from(&self, first: &Self) -> Result<i128, FileError> {
        let same = |id: &String| first.boot_id.as_ref().map(|first| first == id);
        match (self.boot_id.as_ref().and_then(same), self.real_less_boot, first.real_less_boot) {
            (Some(true), _, _) => Ok(0),
            (Some(false), Some(here), Some(there)) => Ok(here - there),
            // A recorder that names no boot: where its clocks agree it is this one.
            (None, Some(here), Some(there)) if (here - there).abs() < SAME_BOOT_NS => Ok(0),
            (None, Some(here), Some(there)) => Ok(here - there),
            // Without a time of day a file with boot time is taken to be of this boot: kernel events have no more.
            (None, _, _) => Ok(0),
            (Some(false), _, _) => Err(FileError::NoCommonClock(self.path.to_owned())),
        }
    }
}

/// The boot that our own files name.
fn boot_id(packet: &Packet<'_>) -> Option<String> {
    let event = packet.message(crate::perfetto::TRACK_EVENT)?;
    let name = crate::perfetto::EVENT_NAME;
    let is_head = wire::Fields::of(event)
        .any(|field| field == (name, Field::Bytes(crate::perfetto::HEAD_NAME.as_bytes())));
    let annotations = wire::Fields::of(event).filter_map(|(number, field)| {
        field.bytes().filter(|_| is_head && number == crate::perfetto::EVENT_ANNOTATION)
    });
    let mut annotations = annotations.map(|bytes| wire::Fields::of(bytes).collect::<Vec<_>>());
    let annotation = annotations.find(|fields| fields.contains(&(10, Field::Bytes(b"boot_id"))))?;
    let value =
        annotation.iter().find_map(|(number, field)| field.bytes().filter(|_| *number == 6))?;
    (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned())
}

/// New ids for the sequences of all files.
#[derive(Default)]
struct Numbers {
    known: HashMap<(usize, u64), u64>,
    taken: HashMap<u64, usize>,
}

impl Numbers {
    /// Keeps an id where it is the first to have it.
    fn of(&mut self, file: usize, sequence: u64) -> u64 {
        if sequence == 0 {
            return 0;
        }
        let Self { known, taken } = self;
        *known.entry((file, sequence)).or_insert_with(|| {
            let mut number = sequence;
            while taken.contains_key(&number) {
                // Ids are 32 bits wide and never 0.
                number = number % u64::from(u32::MAX) + 1;
            }
            taken.insert(number, file);
            number
        })
    }
}

/// A packet with another sequence id and its times moved.
fn copy(out: &mut Vec<u8>, packet: &Packet<'_>, sequence: u64, moved: i128, clocks: &Clocks) {
    let moves_itself = moved != 0 && matches!(clocks.clock(packet), BOOTTIME | MONOTONIC);
    for (number, field) in packet.fields() {
        match (number, field) {
            (SEQUENCE_ID, Field::Number(_)) => wire::uint(out, SEQUENCE_ID, sequence),
            (TIMESTAMP, Field::Number(ns)) if moves_itself => {
                wire::uint(out, TIMESTAMP, shifted(ns, moved))
            }
            (CLOCK_SNAPSHOT, Field::Bytes(bytes)) if moved != 0 => {
                wire::message(out, CLOCK_SNAPSHOT, |out| copy_snapshot(out, bytes, moved));
            }
            (packets::FTRACE, Field::Bytes(bytes)) if moved != 0 => {
                wire::message(out, packets::FTRACE, |out| copy_bundle(out, bytes, moved));
            }
            (number, field) => wire::field(out, number, field),
        }
    }
}

/// Boot time and the clock that stands with it are moved; the time of day and clocks of a sequence are what they were.
fn copy_snapshot(out: &mut Vec<u8>, snapshot: &[u8], moved: i128) {
    for (id, ns, _) in clocks(snapshot) {
        wire::message(out, 1, |clock| {
            wire::uint(clock, 1, id);
            let moves = matches!(id, BOOTTIME | MONOTONIC);
            wire::uint(clock, 2, if moves { shifted(ns, moved) } else { ns });
        });
    }
    for (number, field) in wire::Fields::of(snapshot).filter(|&(number, _)| number != 1) {
        wire::field(out, number, field);
    }
}

/// Kernel events have their times inside the bundle.
fn copy_bundle(out: &mut Vec<u8>, bundle: &[u8], moved: i128) {
    for (number, field) in wire::Fields::of(bundle) {
        let (2, Field::Bytes(event)) = (number, field) else {
            wire::field(out, number, field);
            continue;
        };
        wire::message(out, 2, |out| {
            for (number, field) in wire::Fields::of(event) {
                match (number, field) {
                    (1, Field::Number(ns)) => wire::uint(out, 1, shifted(ns, moved)),
                    (number, field) => wire::field(out, number, field),
                }
            }
        });
    }
}

fn shifted(ns: u64, moved: i128) -> u64 {
    u64::try_from((i128::from(ns) + moved).max(0)).unwrap_or(u64::MAX)
}
