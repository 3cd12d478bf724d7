//! From a packet's time to boot time, by the clock snapshots of its file.

use std::collections::HashMap;

use super::packets::{CLOCK_ID, DEFAULTS, FLAGS, Packet};
use crate::perfetto::{BOOTTIME, CLOCK_SNAPSHOT, REALTIME};
use crate::wire::Fields;

/// What the snapshots of one file say.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// For each clock (of a sequence, below 128; of the file, otherwise), what to add to have boot time.
    offsets: HashMap<(u64, u64), i128>,
    /// Default clock of a sequence.
    defaults: HashMap<u64, u64>,
    /// Time of day less boot time, from the first snapshot with both.
    pub(super) real_less_boot: Option<i128>,
}

impl Clocks {
    /// Learns from a packet, in the order of the file.
    pub(super) fn learn(&mut self, packet: &Packet<'_>) {
        if packet.number(FLAGS).is_some_and(|flags| flags & 1 != 0) {
            self.defaults.remove(&packet.sequence);
        }
        if let Some(clock) =
            packet.message(DEFAULTS).and_then(|defaults| number(defaults, CLOCK_ID))
        {
            self.defaults.insert(packet.sequence, clock);
        }
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
        for &(id, ns) in &clocks {
            self.offsets.insert(key(sequence, id), boot - i128::from(ns));
        }
    }

    /// Boot time of a packet; `None` when it has no time, or one on a clock that the file does not tie to boot time.
    pub(super) fn boot_ns(&self, packet: &Packet<'_>) -> Option<u64> {
        let clock = packet
            .clock
            .or_else(|| self.defaults.get(&packet.sequence).copied())
            .unwrap_or(BOOTTIME);
        let offset = match clock {
            BOOTTIME => 0,
            clock => *self.offsets.get(&key(packet.sequence, clock))?,
        };
        u64::try_from(i128::from(packet.timestamp?) + offset).ok()
    }

    /// The clock a packet's time is on.
    pub(super) fn clock(&self, packet: &Packet<'_>) -> u64 {
        packet.clock.or_else(|| self.defaults.get(&packet.sequence).copied()).unwrap_or(BOOTTIME)
    }
}

/// Clocks from 64 to 127 belong to their sequence.
fn key(sequence: u64, clock: u64) -> (u64, u64) {
    if (64..128).contains(&clock) { (sequence, clock) } else { (u64::MAX, clock) }
}

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
