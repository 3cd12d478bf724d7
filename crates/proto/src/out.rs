//! What leaves: small pieces are copied together, large ones are passed on as they are.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::lines::Lines;

/// An ordered queue of bytes to write.
///
/// Small pieces share blocks of 32 KiB: the piece that [`Out::drain`] hands out is a slice of the block, and the next
/// one goes behind it. A block whose slices are all gone by the time it is full is used again from its start, so
/// a steady state allocates next to nothing.
#[derive(Debug, Default)]
pub struct Out {
    buffer: BytesMut,
    whole: VecDeque<Bytes>,
    /// Bytes in `whole`.
    queued: usize,
    /// Where a head is put together.
    lines: Lines,
}

impl Out {
    /// An empty queue; allocates nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where small pieces are written: it comes after everything pushed so far.
    #[inline]
    pub fn buffer(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() - self.buffer.len() < LEAST_ROOM {
            self.begin_block();
        }
        &mut self.buffer
    }

    /// Writes a head, which is put together apart and goes into the block as one piece.
    #[inline]
    pub(crate) fn head(&mut self, write: impl FnOnce(&mut Lines)) {
        self.lines.clear();
        write(&mut self.lines);
        if self.buffer.capacity() - self.buffer.len() < LEAST_ROOM {
            self.begin_block();
        }
        self.buffer.extend_from_slice(self.lines.as_bytes());
        if self.lines.capacity() > MAX_LINES {
            self.lines = Lines::default();
        }
    }

    /// Adds bytes: copied when small, else passed on.
    #[inline]
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_LIMIT {
            self.buffer().extend_from_slice(&bytes);
            return;
        }
        self.seal();
        self.queued += bytes.len();
        self.whole.push_back(bytes);
    }

    /// How many bytes wait.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.queued + self.buffer.len()
    }

    /// Whether nothing waits.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes everything out where it is one small piece: the rule.
    #[inline]
    pub fn take_only(&mut self) -> Option<Bytes> {
        let only = self.whole.is_empty() && !self.buffer.is_empty();
        only.then(|| self.buffer.split().freeze())
    }

    /// Takes everything out, in order. No piece is empty.
    pub fn drain(&mut self) -> impl Iterator<Item = Bytes> {
        self.seal();
        self.queued = 0;
        self.whole.drain(..)
    }

    /// What is written already goes on from the block that it is in, unless moving it is cheaper.
    #[cold]
    fn begin_block(&mut self) {
        if self.buffer.len() > COPY_LIMIT {
            self.seal();
        }
        self.buffer.reserve(BLOCK);
    }

    fn seal(&mut self) {
        if !self.buffer.is_empty() {
            self.queued += self.buffer.len();
            self.whole.push_back(self.buffer.split().freeze());
        }
    }
}

/// Up to here a copy is cheaper than one more piece in the driver's list: passing a piece on costs about as
/// much as copying 1.5 KiB (25 ns), and its place in `writev` some more.
pub const COPY_LIMIT: usize = 2048;

const BLOCK: usize = 32 * 1024;
/// With less than this left a block is full. Most heads fit, so that none of them is moved as it grows.
const LEAST_ROOM: usize = 2048;
/// Room for lines that is kept: larger heads are seldom.
const MAX_LINES: usize = 16 * 1024;
