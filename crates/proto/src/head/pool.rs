//! Heads for reuse, so that the steady path allocates none.

use super::Head;

/// A bounded store of empty heads that keep their capacity.
#[derive(Debug)]
pub struct HeadPool {
    free: Vec<Head>,
    limit: usize,
}

impl HeadPool {
    /// A pool that keeps up to `limit` heads.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { free: Vec::new(), limit }
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

/// Bytes of capacity above which a head is not worth keeping: far more than common heads need.
const MAX_KEPT: usize = 8 * 1024;
