//! A toy protocol with many streams on one connection, for tests of what stands between a mux and its streams.
//!
//! A frame is a kind, a stream's number, a length and as many bytes. Heads are text. Each stream has a window in each
//! direction, which its receiver opens again as it takes bytes; the end of a stream in one direction is a frame, and a
//! reset ends both. The client chooses numbers and uses one again when both sides have ended it.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use towpath_proto::head::Head;
use towpath_proto::{Event, Out};

use super::Arrival;

#[expect(clippy::wildcard_enum_match_arm, reason = "a script answers to what it cares about")]
mod tests;

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
}

const KINDS: [Kind; 5] = [Kind::Head, Kind::Data, Kind::End, Kind::Reset, Kind::Window];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) fn frame(kind: Kind, number: u32, payload: &[u8]) -> Bytes {
    let length = u16::try_from(payload.len()).expect("a short payload");
    let mut frame = vec![kind as u8, u8::try_from(number).expect("a small number")];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    frame.into()
}

pub(crate) fn take_frame(received: &mut BytesMut) -> Result<Option<(Kind, u32, Bytes)>, Malformed> {
    let Some(&[kind, number, high, low]) = received.first_chunk() else { return Ok(None) };
    let kind = *KINDS.get(usize::from(kind)).ok_or(Malformed)?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if usize::from(number) >= STREAMS {
        return Err(Malformed);
    }
    if received.len() < 4 + length {
        return Ok(None);
    }
    received.advance(4);
    Ok(Some((kind, number.into(), received.split_to(length).freeze())))
}

/// `POST /path` or a status, then fields, a line each.
pub(crate) fn head_text(head: &Head, first: String) -> Vec<u8> {
    let mut text = first.into_bytes();
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
    let (method, path) = lines.next().and_then(|line| line.split_once(' ')).ok_or(Malformed)?;
    let mut head = Head::request(method.as_bytes(), b"http", b"app.test", path.as_bytes());
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Malformed)?;
        head.append_bytes(name.as_bytes(), value.as_bytes());
    }
    Ok(head)
}

/// The server's end of the protocol.
#[derive(Debug, Default)]
pub(crate) struct Toy {
    received: BytesMut,
    streams: [Option<Stream>; STREAMS],
    /// Whole frames that go out with the next flush.
    frames: VecDeque<Bytes>,
    /// Streams whose windows were opened.
    opened: Vec<u32>,
}

#[derive(Debug)]
struct Stream {
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

impl Toy {
    pub(crate) fn receive(&mut self, chunk: &Bytes) {
        self.received.extend_from_slice(chunk);
    }

    pub(crate) fn buffered(&self) -> usize {
        self.received.len()
    }

    pub(crate) fn poll(&mut self) -> Result<Option<(u32, Arrival)>, Malformed> {
        while let Some((kind, number, payload)) = take_frame(&mut self.received)? {
            let slot = &mut self.streams[number as usize];
            let part = match (kind, slot.as_mut()) {
                (Kind::Head, None) => {
                    *slot = Some(Stream {
                        window: WINDOW,
                        granted: WINDOW,
                        waiting: VecDeque::new(),
                        queued: 0,
                        received_end: false,
                        sent_end: false,
                        released: false,
                    });
                    Event::Head { head: read_head(&payload)?, end: false }
                }
                (Kind::Data, Some(stream)) => {
                    stream.granted = stream.granted.checked_sub(payload.len()).ok_or(Malformed)?;
                    if stream.released {
                        continue;
                    }
                    Event::Data(payload)
                }
                (Kind::End, Some(stream)) => {
                    stream.received_end = true;
                    if stream.released {
                        self.flush_stream(number);
                        continue;
                    }
                    Event::End
                }
                (Kind::Window, Some(stream)) => {
                    let more: [u8; 2] = payload[..].try_into().map_err(|_| Malformed)?;
                    stream.window += usize::from(u16::from_be_bytes(more));
                    self.flush_stream(number);
                    self.opened.push(number);
                    continue;
                }
                (Kind::Reset, Some(stream)) => {
                    let released = stream.released;
                    stream.received_end = true;
                    stream.sent_end = true;
                    stream.waiting.clear();
                    stream.queued = 0;
                    if released {
                        *slot = None;
                        continue;
                    }
                    return Ok(Some((number, Arrival::Reset)));
                }
                // About a stream that is over here and not yet there.
                (Kind::Window | Kind::Reset | Kind::Data | Kind::End, None) => continue,
                (Kind::Head, Some(_)) => return Err(Malformed),
            };
            return Ok(Some((number, Arrival::Part(part))));
        }
        Ok(None)
    }

    pub(crate) fn send_head(&mut self, number: u32, head: &Head) {
        let text = head_text(head, head.status().to_string());
        self.frames.push_back(frame(Kind::Head, number, &text));
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
            self.frames.push_back(frame(Kind::End, number, &[]));
        }
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
            self.frames.push_back(frame(Kind::Data, number, &piece));
            if data.is_empty() {
                stream.waiting.pop_front();
            }
        }
        if had > 0 && stream.queued == 0 && stream.sent_end {
            self.frames.push_back(frame(Kind::End, number, &[]));
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
            self.frames.push_back(frame(Kind::Window, number, &more.to_be_bytes()));
        }
    }

    /// Ends a stream in the middle.
    pub(crate) fn reset(&mut self, number: u32) {
        if self.streams[number as usize].take().is_some() {
            self.frames.push_back(frame(Kind::Reset, number, &[]));
        }
    }

    /// Its stream has left: what waits still goes out. Where the peer has not ended, it is told that no more is read.
    pub(crate) fn release(&mut self, number: u32) {
        let Some(stream) = &mut self.streams[number as usize] else { return };
        if !stream.sent_end {
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
