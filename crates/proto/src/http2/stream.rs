//! Streams, and the table of those of a connection.

use std::collections::VecDeque;

use bytes::Bytes;

use super::error::Code;
use super::flow::{ReceiveWindow, StreamWindow};
use crate::head::Head;

/// One stream.
///
/// Of the states of RFC 9113 §5.1 each direction has its half: what has not begun is *idle* and in no table, a stream
/// with one direction ended is *half-closed*, with both *closed*.
///
/// ```text
///                  receiving: Head, Body        receiving: Ended
/// sending: Head,   open                         half-closed (remote)
///          Body
/// sending: Ended   half-closed (local)          closed
/// ```
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) receiving: Progress,
    pub(super) sending: Progress,
    /// A RST_STREAM went one way or the other: nothing more is sent or reported.
    pub(super) reset: bool,
    /// Its user has left: what waits still goes out.
    pub(super) released: bool,
    /// It stands among those that have something to send.
    pub(super) ready: bool,
    /// What waits is the last.
    pub(super) ending: bool,
    /// A request without content in its answer: HEAD.
    pub(super) bodiless: bool,
    /// An extended CONNECT, which stands for an upgrade.
    pub(super) upgrade: bool,
    /// CONNECT of either kind.
    pub(super) tunnel: bool,
    /// What `content-length` still promises.
    pub(super) expected: Option<u64>,
    pub(super) send_window: StreamWindow,
    pub(super) receive_window: ReceiveWindow,
    /// What waits to be sent: the first piece, which most bodies are, and what stands behind it.
    first: Bytes,
    pub(super) queued: usize,
    behind: Option<Box<Behind>>,
}

/// What few streams have behind the first piece that waits.
#[derive(Debug, Default)]
struct Behind {
    pieces: VecDeque<Bytes>,
    trailers: Option<Head>,
}

/// How far one direction of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its head is to come.
    Head,
    Body,
    Ended,
}

impl Stream {
    pub(super) fn new(id: u32, receiving: Progress, receive: u32) -> Self {
        Self {
            id,
            receiving,
            sending: Progress::Head,
            reset: false,
            released: false,
            ready: false,
            ending: false,
            bodiless: false,
            upgrade: false,
            tunnel: false,
            expected: None,
            send_window: StreamWindow::default(),
            receive_window: ReceiveWindow::new(receive),
            first: Bytes::new(),
            queued: 0,
            behind: None,
        }
    }

    /// Puts a piece behind what waits to be sent.
    pub(super) fn enqueue(&mut self, data: Bytes) {
        self.queued += data.len();
        if self.first.is_empty() {
            self.first = data;
        } else {
            self.behind.get_or_insert_default().pieces.push_back(data);
        }
    }

    /// Takes at most so many bytes of the next piece that waits.
    pub(super) fn dequeue(&mut self, most: usize) -> Bytes {
        let piece = if most >= self.first.len() {
            let next = self.behind.as_mut().and_then(|behind| behind.pieces.pop_front());
            std::mem::replace(&mut self.first, next.unwrap_or_default())
        } else {
            self.first.split_to(most)
        };
        self.queued -= piece.len();
        piece
    }

    /// Keeps trailers until all before them has left.
    pub(super) fn keep_trailers(&mut self, trailers: Head) {
        self.behind.get_or_insert_default().trailers = Some(trailers);
    }

    pub(super) fn has_trailers(&self) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.trailers.is_some())
    }

    pub(super) fn take_trailers(&mut self) -> Option<Head> {
        self.behind.as_mut()?.trailers.take()
    }

    /// Whether something waits that could leave if the connection lets it.
    pub(super) fn has_something_to_send(&self, initial_window: u32) -> bool {
        if self.reset || self.sending == Progress::Ended {
            return false;
        }
        if self.queued > 0 { self.send_window.available(initial_window) > 0 } else { self.ending }
    }

    /// Takes a DATA frame of `length` bytes, `content` of which are no padding; otherwise why not.
    pub(super) fn admit(&mut self, length: usize, content: usize) -> Option<Code> {
        if !self.receive_window.receive(length) {
            return Some(Code::FLOW_CONTROL_ERROR);
        }
        if length > content {
            self.receive_window.release((length - content) as u32);
        }
        if let Some(expected) = &mut self.expected {
            let Some(left) = expected.checked_sub(content as u64) else {
                return Some(Code::PROTOCOL_ERROR);
            };
            *expected = left;
        }
        None
    }

    /// Nothing more leaves and nothing more is reported.
    pub(super) fn cut(&mut self) {
        self.reset = true;
        (self.receiving, self.sending) = (Progress::Ended, Progress::Ended);
        (self.first, self.behind) = Default::default();
        self.queued = 0;
    }
}

/// The streams of a connection: found by the number that their users know them by, or by the one on the wire.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Option<Stream>>,
    free: Vec<u32>,
    /// Wire numbers with their slots, ascending.
    ids: Vec<(u32, u32)>,
    closed: Closed,
}

/// What is known of a stream that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It ended, or its peer reset it.
    Closed,
    /// We reset it: what was under way is ignored (RFC 9113 §5.1).
    ResetByUs,
    /// That is not remembered.
    Forgotten,
    /// It never was: a later one has begun (RFC 9113 §5.1.1).
    Skipped,
}

/// The last streams that are over.
#[derive(Debug, Default)]
struct Closed {
    recent: VecDeque<(u32, Gone)>,
    forgotten_to: u32,
}

impl Streams {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Adds one; its number. Its identifier is above all others.
    pub(super) fn insert(&mut self, stream: Stream) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            if self.slots.len() == self.slots.capacity() {
                self.make_room();
            }
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.ids.push((stream.id, number));
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = Some(stream);
        }
        number
    }

    /// Room for a quarter more: where many streams wait, what is never used of it counts.
    #[cold]
    fn make_room(&mut self) {
        let more = (self.slots.len() / 4).max(LEAST_MORE);
        self.slots.reserve_exact(more);
        self.ids.reserve_exact(more);
    }

    /// Forgets one; its identifier.
    pub(super) fn remove(&mut self, number: u32) -> Option<u32> {
        let slot = self.slots.get_mut(number as usize)?;
        let gone = slot.as_ref()?.id;
        *slot = None;
        if let Ok(at) = self.ids.binary_search_by_key(&gone, |(id, _)| *id) {
            self.ids.remove(at);
        }
        if self.ids.is_empty() && self.slots.capacity() > KEPT {
            (self.slots, self.free, self.ids) = Default::default();
        } else {
            self.free.push(number);
        }
        Some(gone)
    }

    /// Remembers how one ended that is not there any more.
    pub(super) fn remember(&mut self, id: u32, gone: Gone) {
        let closed = &mut self.closed;
        if closed.recent.len() == REMEMBERED
            && let Some((oldest, _)) = closed.recent.pop_front()
        {
            closed.forgotten_to = closed.forgotten_to.max(oldest);
        }
        closed.recent.push_back((id, gone));
    }

    /// Gives back the room of streams that are over.
    pub(super) fn shrink(&mut self) {
        if self.ids.is_empty() {
            (self.slots, self.free, self.ids) = Default::default();
        }
        self.closed.recent.shrink_to_fit();
    }

    /// What became of a stream below the latest that is not there.
    pub(super) fn gone(&self, id: u32) -> Gone {
        let closed = &self.closed;
        if let Some((_, gone)) = closed.recent.iter().find(|(known, _)| *known == id) {
            return *gone;
        }
        if id <= closed.forgotten_to { Gone::Forgotten } else { Gone::Skipped }
    }

    pub(super) fn get(&self, number: u32) -> Option<&Stream> {
        self.slots.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Stream> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    /// By its identifier on the wire.
    pub(super) fn number_of(&self, id: u32) -> Option<u32> {
        let at = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.ids.get(at).map(|(_, number)| *number)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().flatten()
    }

    /// All of them with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Stream)> {
        let numbered = (0..).zip(&mut self.slots);
        numbered.filter_map(|(number, slot)| slot.as_mut().map(|stream| (number, stream)))
    }

    /// All numbers, the streams that began first before the others.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.ids.iter().map(|(_, number)| *number)
    }
}

/// Streams that are over and remembered.
const REMEMBERED: usize = 32;
/// Slots by which the table grows at least.
const LEAST_MORE: usize = 4;
/// Slots that an idle connection keeps.
const KEPT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: u32) -> Stream {
        Stream::new(id, Progress::Head, 1)
    }

    #[test]
    fn streams_are_found_by_either_number() {
        let mut streams = Streams::default();
        let numbers: Vec<u32> = [1, 5, 7].map(|id| streams.insert(stream(id))).to_vec();
        assert_eq!(streams.number_of(5), Some(numbers[1]));
        assert_eq!(streams.number_of(3), None);
        assert_eq!(streams.remove(numbers[1]), Some(5));
        assert!(streams.remove(numbers[1]).is_none());
        assert_eq!(streams.insert(stream(9)), numbers[1], "numbers are used again");
        assert_eq!(streams.numbers().collect::<Vec<_>>(), [0, 2, 1]);
    }

    #[test]
    fn how_the_last_streams_ended_is_known_and_of_others_that_they_were() {
        let mut streams = Streams::default();
        assert_eq!(streams.gone(1), Gone::Skipped);
        for id in 0..40 {
            streams.remember(4 * id + 1, Gone::ResetByUs);
        }
        assert_eq!(streams.gone(4 * 39 + 1), Gone::ResetByUs);
        assert_eq!(streams.gone(4 * 39 - 1), Gone::Skipped);
        assert_eq!(streams.gone(4 * 7 + 1), Gone::Forgotten);
        assert_eq!(streams.gone(4 * 8 + 1), Gone::ResetByUs);
    }

    #[test]
    fn an_idle_connection_keeps_little_and_a_stream_is_small() {
        let mut streams = Streams::default();
        let numbers: Vec<u32> = (0..100).map(|at| streams.insert(stream(2 * at + 1))).collect();
        assert_eq!(numbers.into_iter().filter_map(|number| streams.remove(number)).count(), 100);
        assert_eq!(streams.slots.capacity(), 0);
        assert!(size_of::<Stream>() <= 96, "{}", size_of::<Stream>());
    }
}
