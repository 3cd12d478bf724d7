//! Heads for reuse, so that the steady path allocates none.

use super::Head;
use super::known::KnownLines;
use crate::chars;

/// A bounded store of empty heads that keep their capacity; with it the last authorities that were found to be valid
/// and lines that came before, since the same few come again and again.
#[derive(Debug)]
pub struct HeadPool {
    free: Vec<Head>,
    limit: usize,
    authorities: [Vec<u8>; AUTHORITIES],
    pub(crate) lines: KnownLines,
    /// What was read with an underscore in its name where that is not allowed, until it is taken.
    pub(crate) underscored: Underscored,
}

/// Fields with an underscore in their names, where the options speak of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Underscored {
    /// Fields that were left out.
    pub dropped: u32,
    /// Messages that were refused.
    pub rejected: u32,
}

impl HeadPool {
    /// A pool that keeps up to `limit` heads.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            free: Vec::new(),
            limit,
            authorities: [const { Vec::new() }; AUTHORITIES],
            lines: KnownLines::new(),
            underscored: Underscored { dropped: 0, rejected: 0 },
        }
    }

    /// Takes what was read with an underscore in its name, if anything was.
    #[inline]
    pub fn take_underscored(&mut self) -> Option<Underscored> {
        let any = self.underscored != Underscored::default();
        any.then(|| std::mem::take(&mut self.underscored))
    }

    /// An empty head.
    #[must_use]
    #[inline]
    pub fn take(&mut self) -> Head {
        self.free.pop().unwrap_or_default()
    }

    /// Takes a head back. One that grew out of proportion, or one too many, is dropped.
    #[inline]
    pub fn give(&mut self, mut head: Head) {
        if self.free.len() < self.limit && head.capacity() <= MAX_KEPT {
            head.reset();
            self.free.push(head);
        }
    }

    /// Whether it is an authority ([`chars::is_authority`]).
    #[inline]
    pub(crate) fn is_authority(&mut self, bytes: &[u8]) -> bool {
        let [first, .., last] = bytes else { return chars::is_authority(bytes) };
        let slot = bytes.len() ^ usize::from(*first) ^ usize::from(*last);
        let known = &mut self.authorities[slot % AUTHORITIES];
        known == bytes || remember_authority(known, bytes)
    }

    /// How many heads wait for use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Whether no head waits for use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }
}

impl Default for HeadPool {
    /// Enough for the requests that one worker has in hand at once on a busy machine.
    fn default() -> Self {
        Self::new(256)
    }
}

#[cold]
fn remember_authority(known: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let valid = chars::is_authority(bytes);
    if valid && bytes.len() <= LONGEST_AUTHORITY {
        known.clear();
        known.extend_from_slice(bytes);
    }
    valid
}

/// How many authorities are remembered.
const AUTHORITIES: usize = 8;
/// The longest host name of DNS with a port.
const LONGEST_AUTHORITY: usize = 259;
/// Bytes of capacity above which a head is not worth keeping: far more than common heads need.
const MAX_KEPT: usize = 8 * 1024;
