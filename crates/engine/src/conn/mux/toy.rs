//! A toy protocol with many streams on one connection, for tests of what stands between a mux and its streams.
//!
//! A frame is a kind, a stream's number, a length and as many bytes. Heads are text. The client counts its streams, as
//! in HTTP/2, and begins as many at once as the server lets it. Each stream has a window in each direction, which its
//! receiver opens again as it takes bytes; the end of a stream in one direction is a frame, and a reset ends both. A
//! server that goes away says which streams it still answers.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use towpath_proto::head::Head;
use towpath_proto::{Event, Out};

use super::Arrival;

#[expect(clippy::wildcard_enum_match_arm, reason = "a script answers to what it cares about")]
pub(crate) mod tests;

/// Streams at once.
pub(crate) const STREAMS: usize = 8;
/// What may be sent for a stream before its receiver opens the window again.
pub(crate) const WINDOW: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Head,
    Data,
    End,
    Reset,
    /// So many bytes more.
    Window,
    /// From here on so many streams at once.
    Capacity,
    /// No stream beyond this number is answered.
    GoAway,
}

const KINDS: [Kind; 7] =
    [Kind::Head, Kind::Data, Kind::End, Kind::Reset, Kind::Window, Kind::Capacity, Kind::GoAway];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) fn frame(kind: Kind, id: u16, payload: &[u8]) -> Bytes {
    let length = u16::try_from(payload.len()).expect("a short payload");
    let mut frame = vec![kind as u8];
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    frame.into()
}

pub(crate) fn take_frame(received: &mut BytesMut) -> Result<Option<(Kind, u16, Bytes)>, Malformed> {
    let Some(&[kind, id_high, id_low, high, low]) = received.first_chunk() else {
        return Ok(None);
    };
    let kind = *KINDS.get(usize::from(kind)).ok_or(Malformed)?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if received.len() < 5 + length {
        return Ok(None);
    }
    received.advance(5);
    let id = u16::from_be_bytes([id_high, id_low]);
    Ok(Some((kind, id, received.split_to(length).freeze())))
}

/// `POST /path` or a status, then fields, a line each.
fn head_text(head: &Head) -> Vec<u8> {
    let mut text = match head.status() {
        0 => [head.method_bytes(), b" ", head.path()].concat(),
        status => status.to_string().into_bytes(),
    };
    for field in head.iter() {
        text.extend_from_slice(b"\n");
        text.extend_from_slice(field.name_bytes);
        text.push(b':');
        text.extend_from_slice(field.value);
    }
    text
}

fn read_head(text: &[u8]) -> Result<Head, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    let mut lines = text.lines();
    let first = lines.next().ok_or(Malformed)?;
    let mut head = match first.split_once(' ') {
        Some((method, path)) => {
            Head::request(method.as_bytes(), b"http", b"app.test", path.as_bytes())
        }
        None => Head::response(first.parse().map_err(|_| Malformed)?),
    };
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Malformed)?;
        head.append_bytes(name.as_bytes(), value.as_bytes());
    }
    Ok(head)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// One end of the protocol. Streams stand in a table as long as there may be at once; a stream's place in it is its
/// number.
#[derive(Debug)]
pub(crate) struct Toy {
    side: Side,
    received: BytesMut,
    streams: [Option<Stream>; STREAMS],
    /// Of the latest stream.
    last_id: u16,
    /// How many streams the server takes at once.
    limit: usize,
    /// Of the last stream that the server answers, once it goes away.
    answers_to: Option<u16>,
    /// Streams that the server has not taken, to be told.
    refused: Vec<u32>,
    /// Whole frames that go out with the next flush.
    frames: VecDeque<Bytes>,
    /// Streams whose windows were opened.
    opened: Vec<u32>,
}

#[derive(Debug)]
struct Stream {
    id: u16,
    /// What the peer lets us send.
    window: usize,
    /// What it may send.
    granted: usize,
    waiting: VecDeque<Bytes>,
    queued: usize,
    /// The peer's direction is over.
    received_end: bool,
    /// Ours is, once nothing waits.
    sent_end: bool,
    /// The stream has left.
    released: bool,
}

impl Stream {
    fn new(id: u16) -> Self {
        Self {
            id,
            window: WINDOW,
            granted: WINDOW,
            waiting: VecDeque::new(),
            queued: 0,
            received_end: false,
            sent_end: false,
            released: false,
        }
    }
}

impl Toy {
    pub(crate) fn server() -> Self {
        Self::new(Side::Server)
    }

    pub(crate) fn client() -> Self {
        Self::new(Side::Client)
    }

    fn new(side: Side) -> Self {
        Self {
            side,
            received: BytesMut::new(),
            streams: Default::default(),
            last_id: 0,
            limit: STREAMS,
            answers_to: None,
            refused: Vec::new(),
            frames: VecDeque::new(),
            opened: Vec::new(),
        }
    }

    pub(crate) fn receive(&mut self, chunk: &Bytes) {
        self.received.extend_from_slice(chunk);
    }

    pub(crate) fn buffered(&self) -> usize {
        self.received.len()
    }

    pub(crate) fn poll(&mut self) -> Result<Option<(u32, Arrival)>, Malformed> {
        loop {
            if let Some(number) = self.refused.pop() {
                return Ok(Some((number, Arrival::Refused)));
            }
            let Some((kind, id, payload)) = take_frame(&mut self.received)? else {
                return Ok(None);
            };
            if let Some(arrived) = self.on_frame(kind, id, payload)? {
                return Ok(Some(arrived));
            }
        }
    }

    fn on_frame(
        &mut self,
        kind: Kind,
        id: u16,
        payload: Bytes,
    ) -> Result<Option<(u32, Arrival)>, Malformed> {
        match kind {
            Kind::Capacity => {
                self.limit = usize::from(*payload.first().ok_or(Malformed)?);
                return Ok(None);
            }
            Kind::GoAway => {
                self.on_go_away(id);
                return Ok(None);
            }
            Kind::Head if self.side == Side::Server && id > self.last_id => self.accept(id)?,
            Kind::Head | Kind::Data | Kind::End | Kind::Reset | Kind::Window => {}
        }
        let mine = |stream: &Option<Stream>| stream.as_ref().is_some_and(|stream| stream.id == id);
        // A frame may be about a stream that is over here and not yet there.
        let Some(at) = self.streams.iter().position(mine) else { return Ok(None) };
        let number = u32::try_from(at).expect("a small table");
        let Some(stream) = &mut self.streams[at] else { return Ok(None) };
        let released = stream.released;
        let arrival = match kind {
            Kind::Head => Arrival::Part(Event::Head { head: read_head(&payload)?, end: false }),
            Kind::Data => {
                stream.granted = stream.granted.checked_sub(payload.len()).ok_or(Malformed)?;
                Arrival::Part(Event::Data(payload))
            }
            Kind::End => {
                stream.received_end = true;
                self.flush_stream(number);
                Arrival::Part(Event::End)
            }
            Kind::Window => {
                let more: [u8; 2] = payload[..].try_into().map_err(|_| Malformed)?;
                stream.window += usize::from(u16::from_be_bytes(more));
                self.flush_stream(number);
                self.opened.push(number);
                return Ok(None);
            }
            Kind::Reset => {
                (stream.received_end, stream.sent_end) = (true, true);
                stream.waiting.clear();
                stream.queued = 0;
                self.flush_stream(number);
                Arrival::Reset { no_error: false }
            }
            Kind::Capacity | Kind::GoAway => return Ok(None),
        };
        Ok((!released).then_some((number, arrival)))
    }

    /// A client begins a stream.
    fn accept(&mut self, id: u16) -> Result<(), Malformed> {
        self.last_id = id;
        if self.answers_to.is_some_and(|last| id > last) {
            return Ok(());
        }
        let free = self.streams.iter().position(Option::is_none).ok_or(Malformed)?;
        self.streams[free] = Some(Stream::new(id));
        Ok(())
    }

    /// The server takes no more streams, and does not answer those that it has not seen.
    fn on_go_away(&mut self, last: u16) {
        self.answers_to = Some(last);
        for (number, slot) in (0..).zip(&mut self.streams) {
            let Some(stream) = slot.as_mut().filter(|stream| stream.id > last) else { continue };
            if stream.released {
                *slot = None;
                continue;
            }
            (stream.received_end, stream.sent_end) = (true, true);
            stream.waiting.clear();
            stream.queued = 0;
            self.refused.push(number);
        }
    }

    /// A stream of our own.
    pub(crate) fn open(&mut self) -> Option<u32> {
        if self.capacity() == 0 {
            return None;
        }
        let free = self.streams.iter().position(Option::is_none)?;
        self.last_id += 1;
        self.streams[free] = Some(Stream::new(self.last_id));
        u32::try_from(free).ok()
    }

    pub(crate) fn capacity(&self) -> u32 {
        if self.side == Side::Server || self.answers_to.is_some() {
            return 0;
        }
        let taken = self.streams.iter().flatten().count();
        u32::try_from(self.limit.min(STREAMS).saturating_sub(taken)).expect("a small table")
    }

    /// No stream will begin here again.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.answers_to.is_some()
    }

    pub(crate) fn send_head(&mut self, number: u32, head: &Head) {
        let Some(stream) = &self.streams[number as usize] else { return };
        self.frames.push_back(frame(Kind::Head, stream.id, &head_text(head)));
    }

    pub(crate) fn send_data(&mut self, number: u32, data: Bytes) {
        let Some(stream) = &mut self.streams[number as usize] else { return };
        stream.queued += data.len();
        stream.waiting.push_back(data);
        self.flush_stream(number);
    }

    pub(crate) fn send_end(&mut self, number: u32) {
        let Some(stream) = &mut self.streams[number as usize] else { return };
        stream.sent_end = true;
        if stream.queued == 0 {
            self.frames.push_back(frame(Kind::End, stream.id, &[]));
        }
    }

    /// A server says how many streams it takes at once.
    pub(crate) fn send_capacity(&mut self, limit: u8) {
        self.frames.push_back(frame(Kind::Capacity, 0, &[limit]));
    }

    /// A server answers what it has and no more.
    pub(crate) fn send_go_away(&mut self) {
        self.answers_to = Some(self.last_id);
        self.frames.push_back(frame(Kind::GoAway, self.last_id, &[]));
    }

    /// Writes of a stream what its window takes.
    fn flush_stream(&mut self, number: u32) {
        let slot = &mut self.streams[number as usize];
        let Some(stream) = slot else { return };
        let had = stream.queued;
        while let Some(data) = stream.waiting.front_mut().filter(|_| stream.window > 0) {
            let piece = data.split_to(data.len().min(stream.window));
            stream.window -= piece.len();
            stream.queued -= piece.len();
            self.frames.push_back(frame(Kind::Data, stream.id, &piece));
            if data.is_empty() {
                stream.waiting.pop_front();
            }
        }
        if had > 0 && stream.queued == 0 && stream.sent_end {
            self.frames.push_back(frame(Kind::End, stream.id, &[]));
        }
        if stream.released && stream.received_end && stream.sent_end && stream.queued == 0 {
            *slot = None;
        }
    }

    /// What may still be taken to be sent for a stream.
    pub(crate) fn writable(&self, number: u32) -> usize {
        let stream = self.streams[number as usize].as_ref();
        stream.map_or(0, |stream| stream.window.saturating_sub(stream.queued))
    }

    /// What was received for a stream has a place.
    pub(crate) fn consumed(&mut self, number: u32) {
        let Some(stream) = &mut self.streams[number as usize] else { return };
        let more = u16::try_from(WINDOW - stream.granted).expect("a window is small");
        if more > 0 && !stream.received_end {
            stream.granted = WINDOW;
            self.frames.push_back(frame(Kind::Window, stream.id, &more.to_be_bytes()));
        }
    }

    /// Ends a stream in the middle.
    pub(crate) fn reset(&mut self, number: u32) {
        if let Some(stream) = self.streams[number as usize].take() {
            self.frames.push_back(frame(Kind::Reset, stream.id, &[]));
        }
    }

    /// Its stream has left. What a server has to say still goes out; where the peer has not ended, it is told that no
    /// more is read.
    pub(crate) fn release(&mut self, number: u32) {
        let Some(stream) = &mut self.streams[number as usize] else { return };
        let through = stream.received_end && stream.sent_end && stream.queued == 0;
        if !stream.sent_end || (self.side == Side::Client && !through) {
            return self.reset(number);
        }
        stream.released = true;
        stream.granted = usize::from(u16::MAX);
        self.flush_stream(number);
    }

    pub(crate) fn flush(&mut self, out: &mut Out) {
        self.frames.drain(..).for_each(|frame| out.push(frame));
    }

    pub(crate) fn take_opened(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.opened)
    }
}
