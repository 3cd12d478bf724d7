//! The packets of a trace file, as far as they are looked at.

use std::path::Path;

use super::FileError;
use crate::perfetto::{PACKET, SEQUENCE_ID, TIMESTAMP};
use crate::wire::{Field, Fields};

/// A packet's own bytes, and the fields that every packet may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) timestamp: Option<u64>,
    pub(super) clock: Option<u64>,
    pub(super) sequence: u64,
}

/// All packets of a file, in order.
pub(super) fn packets<'a>(path: &Path, bytes: &'a [u8]) -> Result<Vec<Packet<'a>>, FileError> {
    let mut fields = Fields::of(bytes);
    let mut packets = Vec::new();
    for (number, field) in fields.by_ref() {
        if let (PACKET, Field::Bytes(bytes)) = (number, field) {
            packets.push(packet(bytes));
        }
    }
    if fields.broken || (packets.is_empty() && !bytes.is_empty()) {
        let at = bytes.len() - fields.rest().len();
        return Err(FileError::NotATrace(path.to_owned(), at as u64));
    }
    Ok(packets)
}

fn packet(bytes: &[u8]) -> Packet<'_> {
    let mut packet = Packet { bytes, timestamp: None, clock: None, sequence: 0 };
    for (number, field) in Fields::of(bytes) {
        match (number, field) {
            (TIMESTAMP, Field::Number(value)) => packet.timestamp = Some(value),
            (CLOCK_ID, Field::Number(value)) => packet.clock = Some(value),
            (SEQUENCE_ID, Field::Number(value)) => packet.sequence = value,
            _ => {}
        }
    }
    packet
}

impl<'a> Packet<'a> {
    pub(super) fn fields(&self) -> Fields<'a> {
        Fields::of(self.bytes)
    }

    /// The first field of this number that is bytes.
    pub(super) fn message(&self, number: u32) -> Option<&'a [u8]> {
        self.fields().find_map(|(found, field)| field.bytes().filter(|_| found == number))
    }

    /// The first field of this number that is a number.
    pub(super) fn number(&self, number: u32) -> Option<u64> {
        self.fields().find_map(|(found, field)| field.number().filter(|_| found == number))
    }
}

pub(super) const CLOCK_ID: u32 = 58;
pub(super) const DEFAULTS: u32 = 59;
pub(super) const FTRACE: u32 = 1;
pub(super) const INTERNED: u32 = 12;
pub(super) const FLAGS: u32 = 13;
pub(super) const DROPPED: u32 = 42;
