//! From a packet's time to boot time, by the clock snapshots of its file.

use std::collections::HashMap;

use super::packets::{CLOCK_ID, DEFAULTS, FLAGS, Packet};
use super::recent::Recent;
use crate::perfetto::{BOOTTIME, CLOCK_SNAPSHOT, REALTIME};
use crate::wire::Fields;

/// What the snapshots of one file say.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// For each clock of the file, what to add to have boot time.
    offsets: HashMap<u64, i128>,
    /// What belongs to one sequence: a thread has one, and is forgotten when many came after it.
    sequences: Recent<OfSequence>,
    /// Time of day less boot time, from the first snapshot with both.
    pub(super) real_less_boot: Option<i128>,
}

#[derive(Debug, Default)]
struct OfSequence {
    default: Option<u64>,
    /// Clocks from 64 to 127 belong to their sequence.
    offsets: Vec<(u64, i128)>,
}

impl Clocks {
    /// Learns from a packet, in the order of the file.
    pub(super) fn learn(&mut self, packet: &Packet<'_>) {
        if self.sequences.used() >= MOST_SEQUENCES {
            self.sequences.forget();
        }
        let sequence = self.sequences.of(packet.sequence);
        if packet.number(FLAGS).is_some_and(|flags| flags & 1 != 0) {
            sequence.default = None;
        }
        let clock = packet.message(DEFAULTS).and_then(|defaults| number(defaults, CLOCK_ID));
        sequence.default = clock.or(sequence.default);
        if let Some(snapshot) = packet.message(CLOCK_SNAPSHOT) {
            self.learn_snapshot(packet.sequence, snapshot);
        }
    }

    fn learn_snapshot(&mut self, sequence: u64, snapshot: &[u8]) {
        let clocks: Vec<(u64, u64)> = clocks(snapshot).map(|(id, ns, _)| (id, ns)).collect();
        let at = |id| clocks.iter().find(|(found, _)| *found == id).map(|(_, ns)| i128::from(*ns));
        let Some(boot) = at(BOOTTIME) else { return };
        if let Some(real) = at(REALTIME) {
            self.real_less_boot.get_or_insert(real - boot);
        }
        let own = &mut self.sequences.of(sequence).offsets;
        for &(id, ns) in &clocks {
            let offset = boot - i128::from(ns);
            if OF_SEQUENCE.contains(&id) {
                match own.iter_mut().find(|(known, _)| *known == id) {
                    Some((_, known)) => *known = offset,
                    None => own.push((id, offset)),
                }
            } else if self.offsets.len() < MOST_CLOCKS || self.offsets.contains_key(&id) {
                self.offsets.insert(id, offset);
            }
        }
    }

    /// Boot time of a packet; `None` when it has no time, or one on a clock that the file does not tie to boot time.
    pub(super) fn boot_ns(&self, packet: &Packet<'_>) -> Option<u64> {
        let offset = match self.clock(packet) {
            BOOTTIME => 0,
            clock if OF_SEQUENCE.contains(&clock) => {
                let own = &self.sequences.get(packet.sequence)?.offsets;
                own.iter().find(|(known, _)| *known == clock)?.1
            }
            clock => *self.offsets.get(&clock)?,
        };
        u64::try_from(i128::from(packet.timestamp?) + offset).ok()
    }

    /// The clock a packet's time is on.
    pub(super) fn clock(&self, packet: &Packet<'_>) -> u64 {
        let default = || self.sequences.get(packet.sequence)?.default;
        packet.clock.or_else(default).unwrap_or(BOOTTIME)
    }
}

const OF_SEQUENCE: std::ops::Range<u64> = 64..128;
/// Sequences of each half.
const MOST_SEQUENCES: usize = 28_672;
const MOST_CLOCKS: usize = 10_000;

/// Ids, times and the bytes of the clocks of a snapshot.
pub(super) fn clocks(snapshot: &[u8]) -> impl Iterator<Item = (u64, u64, &[u8])> {
    let messages =
        Fields::of(snapshot).filter_map(|(number, field)| field.bytes().filter(|_| number == 1));
    messages.filter_map(|clock| Some((number(clock, 1)?, number(clock, 2)?, clock)))
}

/// The first number in this field.
pub(super) fn number(message: &[u8], wanted: u32) -> Option<u64> {
    Fields::of(message).find_map(|(number, field)| field.number().filter(|_| number == wanted))
}
