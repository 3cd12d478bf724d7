//! One connection: two ends, and between them buffers with limits, segments on their way, and faults.
//!
//! ```text
//! machine ─Send─▶ unsent ─(send buffer has room)─▶ kernel ─(window)─▶ in flight ─▶ received ─Received─▶ machine
//! ```
//!
//! The window is what the receive buffer has left, so a reader that does not read stops the writer's
//! kernel, then the writer's driver, and `Sent` stays away: back-pressure as it is.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use towpath_proto::{Address, ConnectionId, Failure, Instant, ListenerId};

use crate::faults::Path;
use crate::random::Random;

/// An end of a stream: which stream, and 0 for the end that connected or 1 for the end that accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndId {
    pub(super) stream: usize,
    pub(super) side: usize,
}

impl EndId {
    pub(super) const fn other(self) -> Self {
        Self { stream: self.stream, side: 1 - self.side }
    }
}

pub(super) struct Stream {
    pub(super) ends: [End; 2],
    pub(super) path: Path,
    /// Bytes that have left for the other end, in both directions.
    pub(super) carried: u64,
    /// When anything last left for the other end, in either direction.
    pub(super) moved: Instant,
    /// Nothing arrives any more.
    pub(super) vanished: bool,
    pub(super) listener: ListenerId,
}

pub(super) struct End {
    pub(super) node: usize,
    pub(super) address: Address,
    pub(super) id: ConnectionId,
    pub(super) life: Life,
    pub(super) wanted: bool,
    /// Bytes received between two polls at most.
    pub(super) read_limit: usize,
    /// The machine's direction.
    pub(super) ours: Ours,
    /// The peer's FIN has arrived.
    pub(super) fin: bool,
    /// The machine was told of it.
    pub(super) ended: bool,
    pub(super) failure: Option<Failure>,
    /// A reset follows what is sent, not a FIN.
    pub(super) resets: bool,
    /// In the driver, not yet in the kernel.
    pub(super) unsent: VecDeque<Bytes>,
    pub(super) unsent_bytes: usize,
    /// In the kernel, not yet on the way.
    pub(super) kernel: VecDeque<Bytes>,
    pub(super) kernel_bytes: usize,
    pub(super) in_flight: usize,
    /// When the peer's kernel last took something.
    pub(super) acknowledged: Instant,
    pub(super) send_buffer: usize,
    pub(super) received: VecDeque<Bytes>,
    pub(super) received_bytes: usize,
    pub(super) receive_buffer: usize,
    /// When the last segment that left here arrives; none may overtake it.
    pub(super) last_arrival: Instant,
    pub(super) readable_noted: bool,
    pub(super) writable_noted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// The machine has not been told.
    Unborn,
    Alive,
    /// The machine has let go; what is queued still leaves.
    Closing {
        since: Instant,
    },
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ours {
    Open,
    /// A FIN follows what is unsent.
    Ending,
    /// A FIN follows what is in the kernel.
    Ended,
    /// It is on its way.
    Left,
}

impl End {
    pub(super) fn new(node: usize, address: Address, buffers: (usize, usize)) -> Self {
        Self {
            node,
            address,
            id: ConnectionId::new(0, 0),
            life: Life::Unborn,
            wanted: true,
            read_limit: 256 * 1024,
            ours: Ours::Open,
            fin: false,
            ended: false,
            failure: None,
            resets: false,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            kernel: VecDeque::new(),
            kernel_bytes: 0,
            in_flight: 0,
            acknowledged: Instant::ZERO,
            send_buffer: buffers.0,
            received: VecDeque::new(),
            received_bytes: 0,
            receive_buffer: buffers.1,
            last_arrival: Instant::ZERO,
            readable_noted: false,
            writable_noted: false,
        }
    }

    pub(super) fn push(&mut self, chunk: Bytes) {
        self.unsent_bytes += chunk.len();
        self.unsent.push_back(chunk);
    }

    /// Room in the send buffer, which holds what is in the kernel and what is on its way.
    pub(super) fn room(&self) -> usize {
        let room = self.send_buffer.saturating_sub(self.kernel_bytes + self.in_flight);
        // A kernel says "writable" again when a good part is free, not for each byte.
        let silly = self.in_flight > 0 && room < self.unsent_bytes.min(self.send_buffer / 8);
        if silly { 0 } else { room }
    }

    /// Moves bytes from the driver's queue to the kernel.
    pub(super) fn enter_kernel(&mut self, bytes: usize) {
        let mut rest = bytes;
        while rest > 0 {
            let Some(chunk) = take(&mut self.unsent, rest) else {
                break;
            };
            rest -= chunk.len();
            self.kernel.push_back(chunk);
        }
        self.unsent_bytes -= bytes - rest;
        self.kernel_bytes += bytes - rest;
    }

    /// What one read finds: up to `limit` bytes, joined from what came in pieces.
    pub(super) fn read(&mut self, limit: usize) -> Option<Bytes> {
        let first = take(&mut self.received, limit)?;
        let mut rest = limit - first.len();
        let chunk = if rest == 0 || self.received.is_empty() {
            first
        } else {
            let mut joined = BytesMut::from(&first[..]);
            while rest > 0 {
                let Some(next) = take(&mut self.received, rest) else {
                    break;
                };
                rest -= next.len();
                joined.extend_from_slice(&next);
            }
            joined.freeze()
        };
        self.received_bytes -= chunk.len();
        Some(chunk)
    }

    /// Forgets what the machine wanted to send.
    pub(super) fn drop_unsent(&mut self) {
        self.unsent.clear();
        self.unsent_bytes = 0;
        self.kernel.clear();
        self.kernel_bytes = 0;
    }

    pub(super) fn drop_received(&mut self) {
        self.received.clear();
        self.received_bytes = 0;
    }

    /// Whether a read would find something: bytes, the end, or a failure.
    pub(super) fn has_news(&self) -> bool {
        self.received_bytes > 0 || (self.fin && !self.ended) || self.failure.is_some()
    }
}

impl Stream {
    /// The next segment to leave `side`, if the other end's window lets one.
    pub(super) fn next_segment(&mut self, side: usize, random: &mut Random) -> Option<Bytes> {
        let in_flight = self.ends[side].in_flight;
        let there = &self.ends[1 - side];
        let window = there.receive_buffer.saturating_sub(there.received_bytes + in_flight);
        let silly = there.receive_buffer / 8;
        let here = &mut self.ends[side];
        if window == 0 || here.kernel_bytes == 0 {
            return None;
        }
        // RFC 1122 §4.2.3.4: no silly windows. A better one comes when what is in flight is read.
        if in_flight > 0 && window < here.kernel_bytes.min(silly) {
            return None;
        }
        // Tiny segments are for the seams; a long stream of them would only be slow to simulate.
        let drawn = random.size(&(1..=self.path.segment_bytes)).max(here.kernel_bytes / 32);
        let segment = take(&mut here.kernel, drawn.min(window))?;
        here.kernel_bytes -= segment.len();
        here.in_flight += segment.len();
        self.carried += segment.len() as u64;
        Some(segment)
    }
}

/// Up to `limit` bytes from the first chunk.
fn take(chunks: &mut VecDeque<Bytes>, limit: usize) -> Option<Bytes> {
    let first = chunks.front_mut()?;
    if first.len() <= limit { chunks.pop_front() } else { Some(first.split_to(limit)) }
}
