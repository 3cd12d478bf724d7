//! A header block that came before, and the head that it was.
//!
//! A peer often sends one block again and again: each answer of a gRPC method, its trailers, the requests of a client
//! that asks the same. What a block says depends on its bytes and on the table alone: one that entered nothing into
//! the table is the same head for as long as the table stays what it was, and is copied instead of read.

use super::head::Built;
use super::hpack::Decoder;
use crate::head::{Field, Head, HeadPool};

/// The last block of its kind that was worth keeping; with its head, once it has come twice.
#[derive(Debug)]
pub(super) struct KnownBlock {
    block: Vec<u8>,
    /// How often the table had changed.
    changes: u64,
    known: Option<Box<Known>>,
    /// Other blocks that are let pass before the next one is kept, and how many were the last time: blocks that are
    /// never the same are kept ever less often.
    passes: u8,
    patience: u8,
}

#[derive(Debug)]
struct Known {
    built: Built,
    /// Bytes of its names and values.
    decoded: usize,
}

impl KnownBlock {
    pub(super) const fn new() -> Self {
        Self { block: Vec::new(), changes: 0, known: None, passes: 0, patience: 0 }
    }

    /// Gives back its memory.
    pub(super) fn forget(&mut self) {
        *self = Self::new();
    }

    /// What `block` is and how long its names and values are together, if that is known.
    #[inline]
    pub(super) fn find(
        &mut self,
        block: &[u8],
        decoder: &Decoder,
        heads: &mut HeadPool,
    ) -> Option<(Built, usize)> {
        let known = self.known.as_ref().filter(|_| self.is(block, decoder))?;
        (self.passes, self.patience) = (0, 0);
        let mut head = heads.take();
        head.copy_from(&known.built.head);
        Some((Built { head, ..known.built }, known.decoded))
    }

    /// Keeps a block that was read, and that entered nothing into the table, if that is worth it.
    pub(super) fn keep(&mut self, block: &[u8], decoder: &Decoder, built: &Built) {
        let came_before = self.is(block, decoder);
        if !came_before && self.passes > 0 {
            self.passes -= 1;
            return;
        }
        let is_small = block.len() <= LONGEST && decoder.decoded_bytes() <= LONGEST_DECODED;
        // A peer that lets a value enter no table does not want it to be remembered (RFC 7541 §7.1.3).
        if !is_small || built.head.fields().iter().any(Field::is_never_indexed) {
            return;
        }
        if came_before {
            let mut head = Head::default();
            head.copy_from(&built.head);
            let built = Built { head, ..*built };
            self.known = Some(Box::new(Known { built, decoded: decoder.decoded_bytes() }));
            return;
        }
        self.patience = (self.patience * 2 + 1).min(MOST_PATIENCE);
        self.passes = self.patience;
        (self.block, self.changes, self.known) = (block.to_vec(), decoder.changes(), None);
    }

    #[inline]
    fn is(&self, block: &[u8], decoder: &Decoder) -> bool {
        self.block == block && decoder.is_as_after(self.changes)
    }

    #[cfg(test)]
    pub(super) fn is_kept(&self, block: &[u8]) -> bool {
        self.block == block
    }

    #[cfg(test)]
    pub(super) fn has_head(&self) -> bool {
        self.known.is_some()
    }
}

/// In bytes.
const LONGEST: usize = 512;
const LONGEST_DECODED: usize = 1024;
const MOST_PATIENCE: u8 = 63;
