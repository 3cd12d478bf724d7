//! One connection's socket, its queue of unwritten chunks, and what is known of its readiness.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use socket2::Socket;
use towpath_proto::{AttemptId, ConnectionId, Failure, Instant};

use crate::buffers::Size;
use crate::counters::Counters;
use crate::failure;

pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) phase: Phase,
    pub(super) queue: VecDeque<Bytes>,
    /// Writing failed; what the peer sent before is still being read.
    pub(super) failure: Option<Failure>,
    /// Which buffer the next read goes into.
    pub(super) size: Size,
    /// Bytes received between two polls at most.
    pub(super) read_limit: u32,
    /// How many turns used that up since the machine last stopped reading for longer than a turn; `None`: it is strict.
    pub(super) growth: Option<u8>,
    /// The machine wants to read.
    pub(super) wanted: bool,
    /// The turn in which it last did not.
    pub(super) paused_in: u32,
    /// The window in which it was last counted as ready.
    pub(super) seen_in: u32,
    /// It is closing, and the kernel took something of its queue since it was last looked at.
    pub(super) progressed: bool,
    /// The kernel may hold something to read.
    pub(super) readable: bool,
    /// The kernel may take something.
    pub(super) writable: bool,
    /// A FIN or an error is on its way up: read until it shows.
    pub(super) hung_up: bool,
    /// The peer's FIN was read.
    pub(super) ended: bool,
    /// What our own direction waits for, or that it is over.
    pub(super) ours: Ours,
    /// In the driver's list of connections to read.
    pub(super) in_reads: bool,
    /// In the driver's list of connections to write.
    pub(super) in_writes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting(AttemptId),
    Open,
    /// The machine has let go; the rest is written, then the peer's FIN awaited.
    Closing {
        begun: Instant,
    },
}

/// Our direction of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ours {
    Open,
    /// A FIN follows the queue.
    Ending,
    /// A reset follows the queue, once the peer has all of it.
    Resetting,
    Ended,
}

/// What one attempt to empty the queue did.
pub(super) struct Written {
    pub(super) bytes: usize,
    pub(super) failure: Option<Failure>,
}

/// `writev` takes more, but the returns diminish and the array lives on the stack.
const MAX_SLICES: usize = 64;
/// A smaller chunk that waits is copied: the buffer that it pins has up to 64 KiB.
const SMALL_BYTES: usize = 16 * 1024;
/// Turns at the read limit until it is lifted. With 64 KiB that is 8 MiB: more than the kernels' buffers take for a
/// peer that never reads (`tcp_wmem` ends at 4 MiB, and a receive buffer grows only while it is read).
const GROWN_AFTER: u8 = 128;
/// Turns until it is lifted again after the first pause: 2 MiB, more than the third of a send buffer that is free when
/// a slow peer's socket takes something again.
const GROWN_AGAIN_AFTER: u8 = 32;
/// So many chunks may come to a queue that waits before it is compacted again.
const COMPACT_EVERY: usize = 16;

impl Connection {
    pub(super) const fn new(socket: Socket, phase: Phase) -> Self {
        Self {
            socket,
            phase,
            queue: VecDeque::new(),
            failure: None,
            size: Size::Page,
            read_limit: u32::MAX,
            growth: None,
            wanted: true,
            paused_in: 0,
            seen_in: 0,
            progressed: false,
            readable: false,
            writable: true,
            hung_up: false,
            ended: false,
            ours: Ours::Open,
            in_reads: false,
            in_writes: false,
        }
    }

    /// Bytes received between two polls at most, if the driver sets no other bound.
    pub(super) const fn read_limit(&self) -> usize {
        match self.growth {
            Some(GROWN_AFTER) => usize::MAX,
            Some(_) | None => self.read_limit as usize,
        }
    }

    /// Counts a turn that used the read limit up.
    pub(super) fn used_up(&mut self) {
        if let Some(turns) = &mut self.growth {
            *turns = turns.saturating_add(1).min(GROWN_AFTER);
        }
    }

    /// The machine did not read for longer than a turn: the other side is slow, so less is taken at a time.
    pub(super) fn shrink(&mut self) {
        self.size = Size::Page;
        let grown = self.growth == Some(GROWN_AFTER);
        self.growth =
            self.growth.and(Some(if grown { GROWN_AFTER - GROWN_AGAIN_AFTER } else { 0 }));
    }

    /// Writes until the queue is empty or the kernel takes no more.
    pub(super) fn write(&mut self, counters: &Counters) -> Written {
        let mut total = 0;
        while self.writable && !self.queue.is_empty() {
            counters.writes.add(1);
            let (outcome, offered) = self.write_once();
            match outcome {
                Ok(bytes) => {
                    total += bytes;
                    self.advance(bytes);
                    // A short write is a full kernel buffer; its edge will come.
                    self.writable = bytes == offered;
                }
                Err(Errno::AGAIN) => self.writable = false,
                Err(Errno::INTR) => {}
                Err(error) => {
                    counters.bytes_written.add(total as u64);
                    let failure = Some(failure::of_code(error.raw_os_error()));
                    return Written { bytes: total, failure };
                }
            }
        }
        counters.bytes_written.add(total as u64);
        if !self.writable {
            counters.blocked_writes.add(1);
            self.compact();
        }
        Written { bytes: total, failure: None }
    }

    /// Adds to the queue.
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.queue.push_back(chunk);
        if !self.writable && self.queue.len().is_multiple_of(COMPACT_EVERY) {
            self.compact();
        }
    }

    /// Copies what is small out of the buffers that it pins, neighbours together: it may wait for long.
    fn compact(&mut self) {
        let is_small = |chunk: &&Bytes| chunk.len() < SMALL_BYTES;
        let small = self.queue.iter().filter(is_small).map(Bytes::len).sum();
        if small == 0 {
            return;
        }
        let mut joined = BytesMut::with_capacity(small);
        for chunk in std::mem::take(&mut self.queue) {
            if is_small(&&chunk) {
                joined.extend_from_slice(&chunk);
                continue;
            }
            if !joined.is_empty() {
                self.queue.push_back(joined.split().freeze());
            }
            self.queue.push_back(chunk);
        }
        if !joined.is_empty() {
            self.queue.push_back(joined.freeze());
        }
    }

    /// Sends our FIN.
    pub(super) fn end(&mut self) {
        // Fails only when the connection is gone already, and that shows when it is read.
        let _ = self.socket.shutdown(Shutdown::Write);
        self.ours = Ours::Ended;
    }

    /// Makes closing the socket a reset.
    pub(super) fn abort(&self) {
        let _ = self.socket.set_linger(Some(Duration::ZERO));
    }

    /// The error the kernel holds for this socket, if any.
    pub(super) fn take_error(&self) -> Option<Failure> {
        match self.socket.take_error() {
            Ok(error) => error.map(|error| failure::of(&error)),
            Err(error) => Some(failure::of(&error)),
        }
    }

    /// Whether what arrives is wanted by the machine, or must be read to close in peace.
    pub(super) fn reads(&self) -> bool {
        match self.phase {
            Phase::Connecting(_) => false,
            Phase::Open => self.wanted && !self.ended,
            Phase::Closing { .. } => !self.ended,
        }
    }

    fn write_once(&self) -> (rustix::io::Result<usize>, usize) {
        let socket = self.socket.as_fd();
        if self.queue.len() == 1 {
            let chunk = &self.queue[0];
            return (rustix::net::send(socket, chunk, flags()), chunk.len());
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let mut offered = 0;
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(chunk);
            offered += chunk.len();
            count += 1;
        }
        let mut control = SendAncillaryBuffer::default();
        let sent = rustix::net::sendmsg(socket, &slices[..count], &mut control, flags());
        (sent, offered)
    }

    fn advance(&mut self, mut bytes: usize) {
        while let Some(front) = self.queue.front_mut() {
            if bytes < front.len() {
                front.advance(bytes);
                return;
            }
            bytes -= front.len();
            self.queue.pop_front();
        }
        // A burst's queue must not stay with the connection for ever.
        if self.queue.capacity() > MAX_SLICES {
            self.queue = VecDeque::new();
        }
    }
}

/// A library must not be killed by a peer that went away.
const fn flags() -> SendFlags {
    #[cfg(linux_kernel)]
    return SendFlags::NOSIGNAL;
    #[cfg(not(linux_kernel))]
    return SendFlags::empty();
}

/// The connections of a driver by slot.
#[derive(Default)]
pub(super) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

impl Connections {
    pub(super) fn insert(&mut self, connection: Connection) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(connection);
        ConnectionId::new(index, slot.generation)
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<Connection> {
        let slot = self.slots.get_mut(index)?;
        let connection = slot.connection.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(u32::try_from(index).unwrap_or(u32::MAX));
        Some(connection)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot's present user.
    pub(super) fn at(&mut self, index: usize) -> Option<(ConnectionId, &mut Connection)> {
        let slot = self.slots.get_mut(index)?;
        let id = ConnectionId::new(u32::try_from(index).ok()?, slot.generation);
        Some((id, slot.connection.as_mut()?))
    }

    /// The connection that a machine means, if it is still the machine's.
    pub(super) fn open(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.find(id).filter(|connection| connection.phase == Phase::Open)
    }

    pub(super) fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.generation == id.generation() { slot.connection.as_mut() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Slot>() <= 104, "{}", size_of::<Slot>());
    }

    #[test]
    fn a_reused_slot_has_another_id() {
        let mut connections = Connections::default();
        let socket = || Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        let first = connections.insert(Connection::new(socket(), Phase::Open));
        assert!(connections.open(first).is_some());
        assert!(connections.remove(first.slot()).is_some());
        assert!(connections.remove(first.slot()).is_none());
        let second = connections.insert(Connection::new(socket(), Phase::Open));
        assert_eq!(first.slot(), second.slot());
        assert!(connections.open(first).is_none());
        assert!(connections.open(second).is_some());
    }
}
