//! Where received bytes land: a few buffers for the whole shard, none for an idle connection.
//!
//! Chunks are slices of what was read, handed out without a copy. So a slice that is kept keeps its whole buffer, and
//! the question is how much a few kept bytes can pin:
//!
//! - Ordinary reads go into a **page** of 16 KiB. A kept slice pins at most one page.
//! - A connection whose read filled its page is read into a **block** of 64 KiB, if the machine's read limit lets more
//!   than a page be read at once.
//! - One whose read filled its block, and whose read limit is no smaller than that, is read in **bulk**: into a buffer
//!   of 512 KiB (by default; a gigabyte costs a fifth less than with 256 KiB).
//!
//! What comes back smaller than 4 KiB from a block or in bulk is copied out, and a connection of which less than a page
//! came goes back to pages; so does one that was paused for longer than a turn. A connection's queue copies out what is
//! small beside its buffer when the kernel takes no more (`Connection::compact`): so what waits for a slow peer takes
//! at most four times its size.
//!
//! Each buffer is rewound to its start whenever all slices are gone, which is the rule: by the end of a
//! turn its chunks have been written. Then the same few kilobytes, hot in the cache, serve every
//! turn, and nothing is allocated. When slices are still out, the rest of the buffer is used
//! first, and then a new one replaces it; the old one goes with its last slice.

use std::os::fd::BorrowedFd;

use bytes::{Bytes, BytesMut};
use rustix::io::Result;

use crate::sys;

/// Which buffer a connection is read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Page,
    Block,
    Bulk,
}

/// One read's result.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    /// The read filled all that was offered: there may be more.
    pub(crate) filled: bool,
    /// What to use for the connection's next read.
    pub(crate) next: Size,
}

#[derive(Debug)]
pub(crate) struct Buffers {
    page: BytesMut,
    block: BytesMut,
    bulk: BytesMut,
    bulk_bytes: usize,
}

const PAGE_BYTES: usize = 16 * 1024;
const BLOCK_BYTES: usize = 64 * 1024;
/// Smaller reads into anything larger than a page are copied.
const COPIED_BYTES: usize = 4 * 1024;

impl Buffers {
    /// `bulk_bytes` is at least two blocks.
    pub(crate) fn new(bulk_bytes: usize) -> Self {
        Self {
            page: BytesMut::with_capacity(PAGE_BYTES),
            block: BytesMut::new(),
            bulk: BytesMut::new(),
            bulk_bytes: bulk_bytes.max(2 * BLOCK_BYTES),
        }
    }

    /// Starts a turn: back to the front of each buffer of which no slice is out.
    pub(crate) fn rewind(&mut self) {
        // Whether it worked is asked when there is no room.
        let _ = self.page.try_reclaim(PAGE_BYTES);
        let _ = self.block.try_reclaim(BLOCK_BYTES);
        let _ = self.bulk.try_reclaim(self.bulk_bytes);
    }

    /// One `recv` of up to `most` bytes, on a connection of which no more than `limit` may be read at once. `None` is
    /// the peer's FIN.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        size: Size,
        most: usize,
        limit: usize,
    ) -> Result<Option<Chunk>> {
        let larger = match size {
            Size::Page if limit > PAGE_BYTES => Size::Block,
            Size::Page => Size::Page,
            Size::Block | Size::Bulk if limit >= self.bulk_bytes => Size::Bulk,
            Size::Block | Size::Bulk => Size::Block,
        };
        let buffer = match size {
            Size::Page => make_room(&mut self.page, PAGE_BYTES),
            Size::Block => make_room(&mut self.block, BLOCK_BYTES),
            Size::Bulk => make_room(&mut self.bulk, self.bulk_bytes),
        };
        let room = buffer.capacity().min(most);
        let bytes = sys::receive(socket, buffer, most)?;
        if bytes == 0 {
            return Ok(None);
        }
        let filled = bytes == room;
        let next = match size {
            Size::Block | Size::Bulk if bytes < PAGE_BYTES => Size::Page,
            Size::Page | Size::Block | Size::Bulk if filled => larger,
            Size::Page | Size::Block | Size::Bulk => size,
        };
        let chunk = if size != Size::Page && bytes < COPIED_BYTES {
            let copy = Bytes::copy_from_slice(buffer);
            buffer.clear();
            copy
        } else {
            buffer.split().freeze()
        };
        Ok(Some(Chunk { bytes: chunk, filled, next }))
    }

    /// One `recv` whose bytes are dropped; how many they were.
    pub(crate) fn discard(&mut self, socket: BorrowedFd<'_>) -> Result<usize> {
        let page = make_room(&mut self.page, PAGE_BYTES);
        let bytes = sys::receive(socket, page, PAGE_BYTES)?;
        page.clear();
        Ok(bytes)
    }
}

/// A buffer with less than a quarter left is replaced.
fn make_room(buffer: &mut BytesMut, full: usize) -> &mut BytesMut {
    if buffer.capacity() < full / 4 && !buffer.try_reclaim(full) {
        *buffer = BytesMut::with_capacity(full);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn read(buffers: &mut Buffers, stream: &UnixStream, size: Size) -> Chunk {
        buffers.receive(stream.as_fd(), size, usize::MAX, usize::MAX).unwrap().unwrap()
    }

    #[test]
    fn a_page_is_used_again_once_its_slices_are_gone() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut buffers = Buffers::new(0);
        near.write_all(b"one").unwrap();
        let first = read(&mut buffers, &far, Size::Page).bytes;
        let place = first.as_ptr();
        drop(first);
        buffers.rewind();
        near.write_all(b"two").unwrap();
        let second = read(&mut buffers, &far, Size::Page).bytes;
        assert_eq!(second, "two");
        assert_eq!(second.as_ptr(), place);
    }

    #[test]
    fn a_kept_slice_is_never_overwritten_and_pins_one_page() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut buffers = Buffers::new(0);
        let mut kept = Vec::new();
        for n in 0..200_u8 {
            buffers.rewind();
            near.write_all(&[n; 500]).unwrap();
            let chunk = read(&mut buffers, &far, Size::Page);
            assert_eq!(chunk.next, Size::Page);
            kept.push(chunk.bytes);
        }
        for (n, chunk) in (0..200_u8).zip(&kept) {
            assert!(chunk.iter().all(|&byte| byte == n));
        }
    }

    #[test]
    fn filled_buffers_lead_to_larger_ones_and_a_small_read_back() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut buffers = Buffers::new(0);
        near.write_all(&[1; PAGE_BYTES + BLOCK_BYTES + 20_000]).unwrap();
        let first = read(&mut buffers, &far, Size::Page);
        assert_eq!((first.bytes.len(), first.filled, first.next), (PAGE_BYTES, true, Size::Block));
        let second = read(&mut buffers, &far, first.next);
        assert_eq!(
            (second.bytes.len(), second.filled, second.next),
            (BLOCK_BYTES, true, Size::Bulk)
        );
        let third = read(&mut buffers, &far, second.next);
        assert_eq!((third.bytes.len(), third.filled, third.next), (20_000, false, Size::Bulk));
        near.write_all(b"tail").unwrap();
        let fourth = read(&mut buffers, &far, Size::Bulk);
        assert_eq!((&fourth.bytes[..], fourth.next), (&b"tail"[..], Size::Page));
        let bulk = buffers.bulk.as_ptr();
        near.write_all(b"x").unwrap();
        drop(read(&mut buffers, &far, Size::Bulk));
        assert_eq!(buffers.bulk.as_ptr(), bulk, "a copied read uses no space");
        drop(near);
        assert!(buffers.receive(far.as_fd(), Size::Bulk, 1, 1).unwrap().is_none());
        assert_eq!(buffers.discard(far.as_fd()).unwrap(), 0);
    }

    #[test]
    fn no_buffer_is_larger_than_the_read_limit_asks_for() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut buffers = Buffers::new(0);
        near.write_all(&[1; 150_000]).unwrap();
        let mut next = |size, limit| {
            let chunk = buffers.receive(far.as_fd(), size, limit, limit).unwrap().unwrap();
            (chunk.bytes.len(), chunk.next)
        };
        assert_eq!(next(Size::Page, 1000), (1000, Size::Page));
        assert_eq!(next(Size::Page, PAGE_BYTES), (PAGE_BYTES - 1000, Size::Page));
        assert_eq!(next(Size::Page, PAGE_BYTES + 1), (PAGE_BYTES, Size::Block));
        assert_eq!(next(Size::Block, 30_000), (30_000, Size::Block));
        assert_eq!(next(Size::Block, 2 * BLOCK_BYTES - 1), (BLOCK_BYTES - 30_000, Size::Block));
        assert_eq!(next(Size::Block, 10_000), (10_000, Size::Page));
    }
}
