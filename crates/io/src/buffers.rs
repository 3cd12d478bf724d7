//! Where received bytes land: two buffers for the whole shard, none for an idle connection.
//!
//! Chunks are slices of what was read, handed out without a copy. So a slice that somebody keeps
//! keeps its whole buffer, and the question is how much a few kept bytes can pin:
//!
//! - Ordinary reads go into a **page** of 16 KiB. A kept slice pins at most one page.
//! - A connection whose read filled its page is read in **bulk**: into a buffer of 512 KiB (by
//!   default; a gigabyte costs a fifth less than with 256 KiB). What comes back smaller than 4 KiB is
//!   copied out, so that a slice pins at most 128 times its own size, and the connection goes back to
//!   pages; so does one that was paused for longer than a turn.
//!
//! Both are rewound to their start whenever all slices are gone, which is the rule: by the end of a
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
    bulk: BytesMut,
    bulk_bytes: usize,
}

const PAGE_BYTES: usize = 16 * 1024;
/// A page with less than this left is replaced.
const PAGE_LEAST_BYTES: usize = 4 * 1024;
/// Bulk reads smaller than this are copied.
const BULK_COPIED_BYTES: usize = 4 * 1024;

impl Buffers {
    /// `bulk_bytes` is at least two pages.
    pub(crate) fn new(bulk_bytes: usize) -> Self {
        let bulk_bytes = bulk_bytes.max(2 * PAGE_BYTES);
        Self { page: BytesMut::with_capacity(PAGE_BYTES), bulk: BytesMut::new(), bulk_bytes }
    }

    /// Starts a turn: back to the front of each buffer that nobody holds a slice of.
    pub(crate) fn rewind(&mut self) {
        // Whether it worked is asked when there is no room.
        let _ = self.page.try_reclaim(PAGE_BYTES);
        let _ = self.bulk.try_reclaim(self.bulk_bytes);
    }

    /// One `recv`. `None` is the peer's FIN.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, size: Size) -> Result<Option<Chunk>> {
        match size {
            Size::Page => self.receive_page(socket),
            Size::Bulk => self.receive_bulk(socket),
        }
    }

    /// One `recv` whose bytes nobody wants; how many they were.
    pub(crate) fn discard(&mut self, socket: BorrowedFd<'_>) -> Result<usize> {
        make_room(&mut self.page, PAGE_LEAST_BYTES, PAGE_BYTES);
        let bytes = sys::receive(socket, &mut self.page)?;
        self.page.clear();
        Ok(bytes)
    }

    fn receive_page(&mut self, socket: BorrowedFd<'_>) -> Result<Option<Chunk>> {
        make_room(&mut self.page, PAGE_LEAST_BYTES, PAGE_BYTES);
        let room = self.page.capacity();
        let bytes = sys::receive(socket, &mut self.page)?;
        if bytes == 0 {
            return Ok(None);
        }
        let filled = bytes == room;
        let next = if filled { Size::Bulk } else { Size::Page };
        Ok(Some(Chunk { bytes: self.page.split().freeze(), filled, next }))
    }

    fn receive_bulk(&mut self, socket: BorrowedFd<'_>) -> Result<Option<Chunk>> {
        make_room(&mut self.bulk, self.bulk_bytes / 4, self.bulk_bytes);
        let room = self.bulk.capacity();
        let bytes = sys::receive(socket, &mut self.bulk)?;
        if bytes == 0 {
            return Ok(None);
        }
        let next = if bytes < PAGE_BYTES { Size::Page } else { Size::Bulk };
        let chunk = if bytes < BULK_COPIED_BYTES {
            let copy = Bytes::copy_from_slice(&self.bulk);
            self.bulk.clear();
            copy
        } else {
            self.bulk.split().freeze()
        };
        Ok(Some(Chunk { bytes: chunk, filled: bytes == room, next }))
    }
}

fn make_room(buffer: &mut BytesMut, least: usize, full: usize) {
    if buffer.capacity() < least && !buffer.try_reclaim(full) {
        *buffer = BytesMut::with_capacity(full);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn read(buffers: &mut Buffers, stream: &UnixStream, size: Size) -> Chunk {
        buffers.receive(stream.as_fd(), size).unwrap().unwrap()
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
    fn a_filled_page_leads_to_bulk_and_a_small_read_back() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut buffers = Buffers::new(64 * 1024);
        near.write_all(&[1; PAGE_BYTES + 20_000]).unwrap();
        let first = read(&mut buffers, &far, Size::Page);
        assert!(first.filled);
        assert_eq!(first.next, Size::Bulk);
        let second = read(&mut buffers, &far, first.next);
        assert_eq!((second.bytes.len(), second.filled, second.next), (20_000, false, Size::Bulk));
        near.write_all(b"tail").unwrap();
        let third = read(&mut buffers, &far, Size::Bulk);
        assert_eq!((&third.bytes[..], third.next), (&b"tail"[..], Size::Page));
        let bulk = buffers.bulk.as_ptr();
        drop(third);
        near.write_all(b"x").unwrap();
        drop(read(&mut buffers, &far, Size::Bulk));
        assert_eq!(buffers.bulk.as_ptr(), bulk, "a copied read uses no space");
        drop(near);
        assert!(buffers.receive(far.as_fd(), Size::Bulk).unwrap().is_none());
        assert_eq!(buffers.discard(far.as_fd()).unwrap(), 0);
    }
}
