//! The packets of a trace file, one at a time: a file of any size takes the memory of its largest packet.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::FileError;
use crate::perfetto::{PACKET, SEQUENCE_ID, TIMESTAMP};
use crate::wire::Fields;

/// Reads packets until the input ends, or is no trace any more.
pub(super) struct Packets<R> {
    input: R,
    /// Bytes of whole packets so far.
    at: u64,
    packet: Vec<u8>,
    rest: Rest,
    ends_in_packet: bool,
}

/// What there was besides packets that could be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// Bytes behind the last whole packet: the one that a killed process was writing, or no packets at all.
    pub(super) cut: u64,
    /// Packets above [`LARGEST`], which were stepped over.
    pub(super) too_large: u64,
}

/// The largest packet that is looked at; recorders write packets of some KB.
pub(super) const LARGEST: u64 = 8 << 20;

impl Packets<BufReader<File>> {
    pub(super) fn of_file(path: &Path) -> Result<Self, FileError> {
        let file = File::open(path).map_err(|error| FileError::Io(path.to_owned(), error))?;
        Ok(Self::new(BufReader::with_capacity(1 << 16, file)))
    }
}

impl<R: BufRead> Packets<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, at: 0, packet: Vec::new(), rest: Rest::default(), ends_in_packet: false }
    }

    /// The next packet; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Packet<'_>>> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(None);
            }
            let mut head = Head::default();
            let Some((field, length)) = head.read(&mut self.input)? else {
                self.ends_in_packet = head.is_packet && self.input.fill_buf()?.is_empty();
                return self.broken(head.taken);
            };
            if field != PACKET || length > LARGEST {
                let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink())?;
                if skipped < length {
                    return self.broken(head.taken + skipped);
                }
                self.rest.too_large += u64::from(field == PACKET);
                self.at += head.taken + length;
                continue;
            }
            self.packet.clear();
            let got = (&mut self.input).take(length).read_to_end(&mut self.packet)? as u64;
            if got < length {
                self.ends_in_packet = true;
                return self.broken(head.taken + got);
            }
            self.at += head.taken + length;
            break;
        }
        Ok(Some(packet(&self.packet)))
    }

    /// Nothing can be found behind what is no packet: the rest is measured, not read.
    fn broken(&mut self, taken: u64) -> io::Result<Option<Packet<'_>>> {
        self.rest.cut = taken + io::copy(&mut self.input, &mut io::sink())?;
        Ok(None)
    }

    /// Bytes of what has been read as packets.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Whether an input of which no packet could be read is no trace, rather than empty or cut within its first packet.
    pub(super) const fn is_none(&self) -> bool {
        self.rest.cut > 0 && !(self.at == 0 && self.ends_in_packet)
    }

    pub(super) const fn rest(&self) -> Rest {
        self.rest
    }
}

/// A field's number and length as they are read.
#[derive(Default)]
struct Head {
    taken: u64,
    is_packet: bool,
}

impl Head {
    /// Field and length; `None` for what is none.
    fn read(&mut self, input: &mut impl BufRead) -> io::Result<Option<(u32, u64)>> {
        let Some(key) = self.varint(input)? else { return Ok(None) };
        let Some(field) = u32::try_from(key >> 3).ok().filter(|&field| field != 0) else {
            return Ok(None);
        };
        self.is_packet = field == PACKET && key & 7 == 2;
        let length = match key & 7 {
            0 => self.varint(input)?.map(|_| 0),
            1 => Some(8),
            2 => self.varint(input)?,
            5 => Some(4),
            _ => None,
        };
        Ok(length.map(|length| (field, length)))
    }

    fn varint(&mut self, input: &mut impl BufRead) -> io::Result<Option<u64>> {
        let mut value = 0;
        for index in 0..10 {
            let Some(&byte) = input.fill_buf()?.first() else { return Ok(None) };
            input.consume(1);
            self.taken += 1;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok((index < 9 || byte <= 1).then_some(value));
            }
        }
        Ok(None)
    }
}

/// A packet's own bytes, and the fields that every packet may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) timestamp: Option<u64>,
    pub(super) clock: Option<u64>,
    pub(super) sequence: u64,
}

fn packet(bytes: &[u8]) -> Packet<'_> {
    let mut packet = Packet { bytes, timestamp: None, clock: None, sequence: 0 };
    for (number, field) in Fields::of(bytes) {
        match (number, field.number()) {
            (TIMESTAMP, Some(value)) => packet.timestamp = Some(value),
            (CLOCK_ID, Some(value)) => packet.clock = Some(value),
            (SEQUENCE_ID, Some(value)) => packet.sequence = value,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Rest) {
        let mut packets = Packets::new(bytes);
        let mut all = Vec::new();
        while let Some(packet) = packets.next().unwrap() {
            all.push(packet.bytes.to_vec());
        }
        assert_eq!(packets.at() + packets.rest().cut, bytes.len() as u64);
        (all, packets.rest())
    }

    #[test]
    fn every_prefix_gives_its_whole_packets() {
        let mut file = Vec::new();
        let mut ends = vec![0];
        for length in [0, 1, 127, 128, 300] {
            wire::bytes(&mut file, PACKET, &vec![7; length]);
            ends.push(file.len());
            wire::uint(&mut file, 9, 1 << 40);
        }
        for length in 0..=file.len() {
            let (packets, rest) = read(&file[..length]);
            assert_eq!(packets.len(), ends.iter().filter(|&&end| end <= length).count() - 1);
            assert!(rest.cut < 310, "{length}: {rest:?}");
        }
    }

    #[test]
    fn what_is_no_packet_ends_the_trace() {
        let mut file = Vec::new();
        wire::bytes(&mut file, PACKET, b"x");
        file.extend([0; 100]);
        assert_eq!(read(&file), (vec![b"x".to_vec()], Rest { cut: 100, too_large: 0 }));
        // The first two bytes could be another field of a trace.
        assert_eq!(read(b"hello"), (vec![], Rest { cut: 3, too_large: 0 }));
        assert_eq!(read(&[0xff; 20]).1.cut, 20);
    }

    #[test]
    fn a_packet_beyond_the_limit_is_stepped_over() {
        for (length, too_large) in [(LARGEST, 0), (LARGEST + 1, 1)] {
            let mut file = Vec::new();
            wire::bytes(&mut file, PACKET, &vec![0; usize::try_from(length).unwrap()]);
            wire::bytes(&mut file, PACKET, b"behind");
            let (packets, rest) = read(&file);
            assert_eq!((packets.len() as u64, rest.too_large), (2 - too_large, too_large));
        }
    }
}
