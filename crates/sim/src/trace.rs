//! What happened in a world, to be read when it went wrong.

use std::collections::VecDeque;
use std::fmt;

use towpath_proto::Instant;

/// The latest events, and a fingerprint of all of them.
pub(crate) struct Trace {
    latest: VecDeque<Note>,
    fingerprint: u64,
}

/// One event: what a node was told (`<-`) or asked for (`->`).
#[derive(Clone, Copy)]
pub(crate) struct Note {
    pub(crate) at: Instant,
    pub(crate) node: usize,
    pub(crate) told: bool,
    pub(crate) what: &'static str,
    /// The stream, the listener or the attempt.
    pub(crate) subject: u64,
    /// Bytes, mostly.
    pub(crate) number: u64,
}

const KEPT: usize = 400;

impl Trace {
    pub(crate) fn new() -> Self {
        Self { latest: VecDeque::new(), fingerprint: 0xcbf2_9ce4_8422_2325 }
    }

    pub(crate) fn note(&mut self, note: Note) {
        let mix = |sum: u64, byte: u8| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        let what = note.what.bytes().fold(0, mix);
        let words = [
            note.at.as_nanos(),
            note.node as u64 * 2 + u64::from(note.told),
            what,
            note.subject,
            note.number,
        ];
        for word in words {
            self.fingerprint = (self.fingerprint ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            self.fingerprint ^= self.fingerprint >> 29;
        }
        if self.latest.len() == KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(note);
    }

    pub(crate) const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.latest {
            let arrow = if note.told { "<-" } else { "->" };
            let ms = note.at.as_nanos() / 1_000_000;
            let us = note.at.as_nanos() / 1000 % 1000;
            writeln!(
                f,
                "{ms:>8}.{us:03} ms  node {} {arrow} {:<12} #{} {}",
                note.node, note.what, note.subject, note.number
            )?;
        }
        Ok(())
    }
}
