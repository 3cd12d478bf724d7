//! Several traces as one: an application, its sidecar, the kernel.
//!
//! Packets are copied whole. What must differ between files, the ids of their sequences, is renumbered; and the times
//! of a file made on another boot or machine are moved to the clock of the first by the time of day that both tell.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::FileError;
use super::clocks::{Clocks, clocks};
use super::packets::{self, Packet, Packets, Rest};
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
    /// For each input, the bytes at its end that are no whole packet and were left out.
    pub cut: Vec<u64>,
    /// Packets of more than 8 MiB, which were left out.
    pub too_large: u64,
}

impl std::fmt::Display for Merged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} packets, {} bytes", self.packets, self.bytes)?;
        for (index, moved) in self.moved_ns.iter().enumerate().filter(|&(_, &moved)| moved != 0) {
            writeln!(f, "file {}: moved by {moved} ns to the clock of the first", index + 1)?;
        }
        for (index, cut) in self.cut.iter().enumerate().filter(|&(_, &cut)| cut != 0) {
            writeln!(
                f,
                "file {}: {cut} bytes behind its last whole packet are left out",
                index + 1
            )?;
        }
        if self.too_large > 0 {
            writeln!(f, "{} packets above 8 MiB are left out", self.too_large)?;
        }
        Ok(())
    }
}

/// Writes one trace that holds all of `inputs`, on the clock of the first. Each is read twice, packet by packet.
///
/// # Errors
/// When a file cannot be read or written, is no Perfetto trace, or is of another boot and does not tell the time of
/// day.
pub fn merge<P: AsRef<Path>>(inputs: &[P], output: impl AsRef<Path>) -> Result<Merged, FileError> {
    let traces: Vec<Trace> =
        inputs.iter().map(|path| Trace::read(path.as_ref())).collect::<Result<_, _>>()?;
    let first = traces.first().ok_or(FileError::NoInput)?;
    let moved: Vec<i128> =
        traces.iter().map(|trace| trace.away_from(first)).collect::<Result<_, _>>()?;
    // Beside the output, which may be one of the inputs; it takes its place when it is whole.
    let path = output.as_ref();
    let failed = |error| FileError::Io(path.to_owned(), error);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let unfinished = path.with_file_name(name);
    let file = File::create(&unfinished).map_err(failed)?;
    let mut out = Out { file: BufWriter::new(file), packet: Vec::new(), packets: 0, bytes: 0 };
    let written = copy_all(&traces, &moved, &mut out);
    let written = written.and_then(|()| {
        out.file.flush().and_then(|()| std::fs::rename(&unfinished, path)).map_err(failed)
    });
    if let Err(error) = written {
        let _ = std::fs::remove_file(&unfinished);
        return Err(error);
    }
    let moved_ns =
        moved.into_iter().map(|moved| i64::try_from(moved).unwrap_or(i64::MAX)).collect();
    let cut = traces.iter().map(|trace| trace.rest.cut).collect();
    let too_large = traces.iter().map(|trace| trace.rest.too_large).sum();
    Ok(Merged { packets: out.packets, bytes: out.bytes, moved_ns, cut, too_large })
}

struct Out {
    file: BufWriter<File>,
    packet: Vec<u8>,
    packets: u64,
    bytes: u64,
}

fn copy_all(traces: &[Trace], moved: &[i128], out: &mut Out) -> Result<(), FileError> {
    let mut numbers = Numbers::default();
    for (index, (trace, &moved)) in traces.iter().zip(moved).enumerate() {
        let failed = |error| FileError::Io(trace.path.clone(), error);
        let mut clocks = Clocks::default();
        let mut packets = Packets::of_file(&trace.path)?;
        while let Some(packet) = packets.next().map_err(failed)? {
            clocks.learn(&packet);
            let sequence = numbers.of(index, packet.sequence);
            out.packet.clear();
            wire::message(&mut out.packet, PACKET, |out| {
                copy(out, &packet, sequence, moved, &clocks);
            });
            out.file.write_all(&out.packet).map_err(failed)?;
            out.packets += 1;
            out.bytes += out.packet.len() as u64;
        }
    }
    Ok(())
}

/// What is known of a file before it is copied.
struct Trace {
    path: PathBuf,
    boot_id: Option<String>,
    real_less_boot: Option<i128>,
    /// Its events have the time of day, though it does not say so.
    tells_real_time: bool,
    rest: Rest,
}

/// Two boots of one machine are further apart than a clock is ever set, and the same boot is not.
const SAME_BOOT_NS: i128 = 2_000_000_000;
/// A machine that runs since 2001 without a boot is less likely than a recorder that writes the time of day.
const REAL_TIME_FROM_NS: u64 = 1_000_000_000_000_000_000;

impl Trace {
    fn read(path: &Path) -> Result<Self, FileError> {
        let mut packets = Packets::of_file(path)?;
        let mut clocks = Clocks::default();
        let (mut id, mut count, mut first_ns) = (None, 0, None);
        let failed = |error| FileError::Io(path.to_owned(), error);
        while let Some(packet) = packets.next().map_err(failed)? {
            count += 1;
            clocks.learn(&packet);
            id = id.or_else(|| boot_id(&packet));
            if clocks.clock(&packet) == BOOTTIME {
                first_ns = first_ns.or(packet.timestamp);
            }
        }
        let rest = packets.rest();
        if count == 0 && packets.is_none() {
            return Err(FileError::NotATrace(path.to_owned(), packets.at()));
        }
        Ok(Self {
            path: path.to_owned(),
            boot_id: id,
            real_less_boot: clocks.real_less_boot,
            tells_real_time: clocks.real_less_boot.is_none() && first_ns >= Some(REAL_TIME_FROM_NS),
            rest,
        })
    }

    /// What to add to this file's times to have them on the clock of `first`.
    fn away_from(&self, first: &Self) -> Result<i128, FileError> {
        // Such a file is as one of a machine that booted in 1970.
        let real_less_boot =
            |trace: &Self| trace.real_less_boot.or_else(|| trace.tells_real_time.then_some(0));
        let (here, there) = (real_less_boot(self), real_less_boot(first));
        let same = |id: &String| first.boot_id.as_ref().map(|first| first == id);
        match (self.boot_id.as_ref().and_then(same), here, there) {
            (Some(true), _, _) => Ok(0),
            (Some(false), Some(here), Some(there)) => Ok(here - there),
            // A recorder that names no boot: where its clocks agree it is this one.
            (None, Some(here), Some(there)) if (here - there).abs() < SAME_BOOT_NS => Ok(0),
            (None, Some(here), Some(there)) => Ok(here - there),
            // Without a time of day a file with boot time is taken to be of this boot: kernel events have no more.
            (None, _, _) if self.tells_real_time == first.tells_real_time => Ok(0),
            (None | Some(false), _, _) => Err(FileError::NoCommonClock(self.path.clone())),
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
