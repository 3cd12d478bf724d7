//! From messages to bytes that wait for room.
//!
//! A long message leaves in several frames, so that an answer to a ping, or a close, need not wait for its end: what
//! is between two frames may be interrupted, a frame may not.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use towpath_proto::websocket::{Header, Opcode, mask};

use super::deflate::Agreed;
#[cfg(feature = "gzip")]
use super::deflate::Deflater;

pub(super) struct Writer {
    /// The first of them may have begun to leave.
    frames: VecDeque<Frame>,
    /// Bytes of the first one that have left.
    left: usize,
    /// Bytes of all that have not.
    waiting: usize,
    keys: Keys,
    agreed: Option<Agreed>,
    /// Made with the first message that is worth it.
    #[cfg(feature = "gzip")]
    deflater: Option<Deflater>,
}

struct Frame {
    bytes: Vec<u8>,
    kind: Opcode,
}

/// Masking keys that servers and what is between cannot foresee (RFC 6455 §10.3): SipHash, under a key of the system's,
/// of 1, 2, 3 …
struct Keys {
    hasher: RandomState,
    drawn: u64,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self {
            frames: VecDeque::new(),
            left: 0,
            waiting: 0,
            keys: Keys { hasher: RandomState::new(), drawn: 0 },
            agreed: None,
            #[cfg(feature = "gzip")]
            deflater: None,
        }
    }

    pub(super) fn agree(&mut self, agreed: Option<Agreed>) {
        self.agreed = agreed;
    }

    /// Bytes that wait for room.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn message(&mut self, kind: Opcode, payload: &[u8]) {
        #[cfg(feature = "gzip")]
        if let Some(agreed) = self.agreed.filter(|_| payload.len() >= WORTH_BYTES) {
            let deflater = self.deflater.get_or_insert_with(|| Deflater::new(agreed));
            match deflater.message(payload) {
                Some(raw) => return self.frames(kind, &raw, true),
                // What the server knows of messages before is not what we know any more.
                None => self.agreed = None,
            }
        }
        self.frames(kind, payload, false);
    }

    /// A control frame, before what has not begun to leave. Of pongs only the last is sent (§5.5.3), and of pings,
    /// whose answer is one to those before.
    pub(super) fn control(&mut self, kind: Opcode, payload: &[u8]) {
        let begun = usize::from(self.left > 0);
        if matches!(kind, Opcode::Ping | Opcode::Pong) {
            let waiting = self.frames.iter().skip(begun).position(|it| it.kind == kind);
            if let Some(old) = waiting.and_then(|at| self.frames.remove(begun + at)) {
                self.waiting -= old.bytes.len();
            }
        }
        let is_urgent = |frame: &&Frame| matches!(frame.kind, Opcode::Ping | Opcode::Pong);
        let at = if kind == Opcode::Close {
            // What the app has said before goes first.
            self.frames.len()
        } else {
            begun + self.frames.iter().skip(begun).take_while(is_urgent).count()
        };
        let frame = self.frame(kind, true, payload, false);
        self.waiting += frame.bytes.len();
        self.frames.insert(at, frame);
    }

    /// The bytes that are to leave next.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.frames.front().map(|frame| &frame.bytes[self.left..])
    }

    /// So many of them have left.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.left += bytes;
        self.waiting -= bytes;
        if self.frames.front().is_some_and(|frame| frame.bytes.len() == self.left) {
            self.frames.pop_front();
            self.left = 0;
        }
    }

    /// What has not begun to leave does not.
    pub(super) fn forget(&mut self) {
        self.frames.truncate(usize::from(self.left > 0));
        self.waiting = self.front().map_or(0, <[u8]>::len);
    }

    fn frames(&mut self, kind: Opcode, payload: &[u8], is_compressed: bool) {
        let mut rest = payload;
        let mut opcode = kind;
        loop {
            let (piece, later) = rest.split_at(rest.len().min(FRAME_BYTES));
            rest = later;
            let is_first = opcode == kind;
            let frame = self.frame(opcode, rest.is_empty(), piece, is_compressed && is_first);
            self.waiting += frame.bytes.len();
            self.frames.push_back(frame);
            if rest.is_empty() {
                return;
            }
            opcode = Opcode::Continuation;
        }
    }

    fn frame(&mut self, kind: Opcode, is_last: bool, payload: &[u8], is_compressed: bool) -> Frame {
        let key = self.keys.next();
        let header = Header::new(kind, is_last, payload.len(), Some(key));
        let header = if is_compressed { header.compressed() } else { header };
        let start = header.bytes().len();
        let mut bytes = Vec::with_capacity(start + payload.len());
        bytes.extend_from_slice(header.bytes());
        bytes.extend_from_slice(payload);
        mask(&mut bytes[start..], key, 0);
        Frame { bytes, kind }
    }
}

impl Keys {
    fn next(&mut self) -> [u8; 4] {
        self.drawn += 1;
        let drawn = self.hasher.hash_one(self.drawn).to_ne_bytes();
        [drawn[0], drawn[1], drawn[2], drawn[3]]
    }
}

/// A message has frames of so many bytes at most.
const FRAME_BYTES: usize = 64 * 1024;
/// A shorter message is sent as it is.
#[cfg(feature = "gzip")]
const WORTH_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use towpath_proto::websocket::{Frames, Item, Sender};

    use super::*;

    /// All that is to leave, taken in pieces of `step` bytes.
    fn taken(writer: &mut Writer, step: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(front) = writer.front() {
            let piece = &front[..front.len().min(step)];
            bytes.extend_from_slice(piece);
            let length = piece.len();
            writer.advance(length);
        }
        assert_eq!(writer.waiting(), 0);
        bytes
    }

    fn told(bytes: &[u8]) -> Vec<(Opcode, usize)> {
        let mut frames = Frames::of(Sender::Client).compressed(true);
        let (mut rest, mut told, mut length) = (bytes, Vec::new(), 0);
        while let Some(item) = frames.next(&mut rest).unwrap() {
            match item {
                Item::Begin(..) => length = 0,
                Item::Piece(piece) => length += piece.len(),
                Item::End(opcode) => told.push((opcode, length)),
                Item::Control(opcode, payload) => told.push((opcode, payload.len())),
            }
        }
        told
    }

    #[test]
    fn what_is_urgent_goes_between_the_frames_of_a_message() {
        let mut writer = Writer::new();
        writer.message(Opcode::Binary, &[7; 200_000]);
        let waiting = writer.waiting();
        assert!(waiting > 200_000);
        writer.advance(10);
        writer.control(Opcode::Pong, b"old");
        writer.control(Opcode::Ping, b"");
        writer.control(Opcode::Pong, b"newest");
        writer.control(Opcode::Close, b"\x03\xe8");
        let first = writer.front().unwrap().len();
        assert_eq!(first, FRAME_BYTES + 8 + 6 - 10, "what has begun goes on");
        writer.forget();
        assert_eq!(writer.waiting(), first, "a frame is never cut");
        let mut writer = Writer::new();
        writer.message(Opcode::Binary, &[7; 200_000]);
        let mut bytes = writer.front().unwrap()[..10].to_vec();
        writer.advance(10);
        writer.control(Opcode::Pong, b"old");
        writer.control(Opcode::Ping, b"");
        writer.control(Opcode::Pong, b"newest");
        writer.control(Opcode::Close, b"\x03\xe8");
        bytes.extend(taken(&mut writer, 999));
        let expected =
            [(Opcode::Ping, 0), (Opcode::Pong, 6), (Opcode::Binary, 200_000), (Opcode::Close, 2)];
        assert_eq!(told(&bytes), expected);
    }

    #[test]
    fn no_two_frames_have_a_key_in_common_and_an_empty_message_is_one() {
        let mut writer = Writer::new();
        for _ in 0..100 {
            writer.message(Opcode::Text, b"");
        }
        let bytes = taken(&mut writer, usize::MAX);
        assert_eq!(told(&bytes), [(Opcode::Text, 0); 100]);
        let mut keys: Vec<_> = bytes.chunks(6).map(|frame| frame[2..].to_vec()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100);
    }

    #[test]
    #[cfg(feature = "gzip")]
    fn what_is_worth_it_is_compressed_where_that_was_agreed_on() {
        let mut writer = Writer::new();
        let text = "towpath ".repeat(100);
        writer.message(Opcode::Text, text.as_bytes());
        let plain = taken(&mut writer, usize::MAX).len();
        writer.agree(Some(Agreed::default()));
        writer.message(Opcode::Text, text.as_bytes());
        let bytes = taken(&mut writer, usize::MAX);
        assert!(bytes[0] == 0xc1 && bytes.len() * 10 < plain, "{}", bytes.len());
        writer.message(Opcode::Text, &text.as_bytes()[..15]);
        assert_eq!(taken(&mut writer, usize::MAX)[0], 0x81);
    }
}
