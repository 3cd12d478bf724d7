//! Frames (RFC 6455 §5).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-------+-+-------------+-------------------------------+
//! |F|R|R|R| opcode|M| Payload len |    Extended payload length    |
//! |I|S|S|S|  (4)  |A|     (7)     |             (16/64)           |
//! |N|V|V|V|       |S|             |   (if payload len==126/127)   |
//! | |1|2|3|       |K|             |                               |
//! +-+-+-+-+-------+-+-------------+ - - - - - - - - - - - - - - - +
//! ```
//!
//! A received payload is handed on where it lies, or, where it is masked, from a buffer as long as what came at once.

use std::fmt;

/// What a frame holds (§5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// More of the message that has begun.
    Continuation,
    /// A message of UTF-8.
    Text,
    /// A message of bytes.
    Binary,
    /// The end of the connection, and why.
    Close,
    /// Is the peer there?
    Ping,
    /// It is.
    Pong,
}

/// Who sent a frame: those of clients are masked, those of servers are not (§5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The side that asked for the connection.
    Client,
    /// The other.
    Server,
}

/// A peer that does not keep to the protocol: the connection fails (§7.1.7), with 1002.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A bit is set that means nothing without an extension (§5.2).
    Reserved,
    /// A kind of frame that there is not (§5.2).
    Opcode,
    /// A client's frame without a mask, or a server's with one (§5.1).
    Mask,
    /// A control frame that is long, in parts or compressed (§5.5; RFC 7692 §6).
    Control,
    /// A length of 2^63 bytes or more, or written longer than it need be (§5.2).
    Length,
    /// A message within a message, or more of none (§5.4).
    Sequence,
    /// A close frame with half a code, or with one that is not to be sent (§5.5.1, §7.4).
    Close,
}

/// The bytes before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; LONGEST_HEADER],
    length: usize,
}

/// What came in frames.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'b> {
    /// A message begins: text or binary, compressed or not (RFC 7692 §6).
    Begin(Opcode, bool),
    /// A piece of it, unmasked; never empty.
    Piece(&'b [u8]),
    /// It ends here.
    End(Opcode),
    /// A control frame, whole: at most 125 bytes.
    Control(Opcode, &'b [u8]),
}

/// Finds the frames of one direction of a connection.
#[derive(Debug)]
pub struct Frames {
    sender: Sender,
    /// Whether messages may be compressed (RFC 7692).
    may_compress: bool,
    header: Header,
    frame: Option<Frame>,
    /// The kind of the message that has begun.
    message: Option<Opcode>,
    control: Vec<u8>,
    unmasked: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    opcode: Opcode,
    is_last: bool,
    is_compressed: bool,
    left: u64,
    mask: [u8; 4],
    /// Where in the mask the next byte is.
    phase: usize,
}

const LONGEST_HEADER: usize = 14;

impl Opcode {
    /// Of a message with these bytes: text where that is possible.
    #[must_use]
    pub const fn of(payload: &[u8]) -> Self {
        if std::str::from_utf8(payload).is_ok() { Self::Text } else { Self::Binary }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    const fn is_control(self) -> bool {
        self.number() >= 8
    }
}

impl TryFrom<u8> for Opcode {
    type Error = Violation;

    fn try_from(number: u8) -> Result<Self, Violation> {
        let all =
            [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|it| it.number() == number).ok_or(Violation::Opcode)
    }
}

impl Header {
    const NONE: Self = Self { bytes: [0; LONGEST_HEADER], length: 0 };

    /// Of a frame with a payload of `length` bytes, which is the last of its message if `is_last`; with a mask, one of
    /// a client.
    #[must_use]
    pub fn new(opcode: Opcode, is_last: bool, length: usize, mask: Option<[u8; 4]>) -> Self {
        let mut header = Self::NONE;
        header.push(&[if is_last { 0x80 } else { 0 } | opcode.number()]);
        let masked = if mask.is_some() { 0x80 } else { 0 };
        match length {
            short @ ..126 => header.push(&[masked | short as u8]),
            medium @ ..=0xffff => {
                header.push(&[masked | 126]);
                header.push(&(medium as u16).to_be_bytes());
            }
            long => {
                header.push(&[masked | 127]);
                header.push(&(long as u64).to_be_bytes());
            }
        }
        header.push(mask.as_ref().map_or(&[], |mask| mask));
        header
    }

    /// Of the first frame of a compressed message (RFC 7692 §6).
    #[must_use]
    pub const fn compressed(mut self) -> Self {
        self.bytes[0] |= 0x40;
        self
    }

    /// As they are sent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// A whole frame; with a mask, one of a client.
#[must_use]
pub fn frame(opcode: Opcode, payload: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
    let header = Header::new(opcode, true, payload.len(), key);
    let mut bytes = Vec::with_capacity(header.bytes().len() + payload.len());
    bytes.extend_from_slice(header.bytes());
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    if let Some(key) = key {
        mask(&mut bytes[start..], key, 0);
    }
    bytes
}

/// Masks bytes, or unmasks them (§5.3), beginning with the key's byte at `phase`.
pub fn mask(bytes: &mut [u8], key: [u8; 4], phase: usize) {
    let mut turned = key;
    turned.rotate_left(phase % 4);
    let word = u64::from(u32::from_ne_bytes(turned));
    let word = word << 32 | word;
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(turned.into_iter().cycle()) {
        *byte ^= key;
    }
}

impl Frames {
    /// Those that such a peer sends.
    #[must_use]
    pub const fn of(sender: Sender) -> Self {
        Self {
            sender,
            may_compress: false,
            header: Header::NONE,
            frame: None,
            message: None,
            control: Vec::new(),
            unmasked: Vec::new(),
        }
    }

    /// The same where compression was agreed on.
    #[must_use]
    pub const fn compressed(mut self, may_compress: bool) -> Self {
        self.may_compress = may_compress;
        self
    }

    /// What comes next of received bytes, which go on behind it; nothing when they are used up.
    ///
    /// # Errors
    /// When it is not the protocol. Nothing is to be read after that.
    pub fn next<'s, 'b: 's>(
        &'s mut self,
        bytes: &mut &'b [u8],
    ) -> Result<Option<Item<'s>>, Violation> {
        loop {
            let Some(frame) = &mut self.frame else {
                let Some((&byte, rest)) = bytes.split_first() else { return Ok(None) };
                *bytes = rest;
                self.header.push(&[byte]);
                let Some(frame) = self.parse_header()? else { continue };
                self.header = Header::NONE;
                self.control.clear();
                self.frame = Some(frame);
                if matches!(frame.opcode, Opcode::Text | Opcode::Binary) {
                    return Ok(Some(Item::Begin(frame.opcode, frame.is_compressed)));
                }
                continue;
            };
            let taken = usize::try_from(frame.left).unwrap_or(usize::MAX).min(bytes.len());
            let (payload, rest) = bytes.split_at(taken);
            *bytes = rest;
            let phase = frame.phase;
            frame.left -= taken as u64;
            frame.phase = (phase + taken) % 4;
            let frame = *frame;
            if frame.opcode.is_control() {
                let start = self.control.len();
                self.control.extend_from_slice(payload);
                mask(&mut self.control[start..], frame.mask, phase);
                if frame.left > 0 {
                    return Ok(None);
                }
                self.frame = None;
                return Ok(Some(Item::Control(frame.opcode, &self.control)));
            }
            if !payload.is_empty() {
                return Ok(Some(Item::Piece(match self.sender {
                    Sender::Server => payload,
                    Sender::Client => {
                        self.unmasked.clear();
                        self.unmasked.extend_from_slice(payload);
                        mask(&mut self.unmasked, frame.mask, phase);
                        &self.unmasked
                    }
                })));
            }
            if frame.left > 0 {
                return Ok(None);
            }
            self.frame = None;
            if frame.is_last {
                return Ok(Some(Item::End(self.message.take().unwrap_or(frame.opcode))));
            }
        }
    }

    /// The frame that the header's bytes announce, once they are complete.
    fn parse_header(&mut self) -> Result<Option<Frame>, Violation> {
        let [first, second, rest @ ..] = self.header.bytes() else { return Ok(None) };
        let (opcode, is_last) = (Opcode::try_from(first & 0x0f)?, first & 0x80 != 0);
        let is_compressed = first & 0x40 != 0;
        if first & 0x30 != 0 || (is_compressed && !self.may_compress) {
            return Err(Violation::Reserved);
        }
        let is_masked = second & 0x80 != 0;
        if is_masked != (self.sender == Sender::Client) {
            return Err(Violation::Mask);
        }
        let short = second & 0x7f;
        if opcode.is_control() && (short > 125 || !is_last || is_compressed) {
            return Err(Violation::Control);
        }
        let long = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if rest.len() < long + if is_masked { 4 } else { 0 } {
            return Ok(None);
        }
        let (length, mask) = rest.split_at(long);
        let length = length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let left = match long {
            0 => u64::from(short),
            // The shortest way to write it is the only one, and the highest bit is no part of it.
            2 if length < 126 => return Err(Violation::Length),
            8 if length <= 0xffff || length > i64::MAX as u64 => return Err(Violation::Length),
            _ => length,
        };
        match (opcode, self.message) {
            (Opcode::Continuation, None) | (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(Violation::Sequence);
            }
            // Only the first frame of a message says that it is compressed (RFC 7692 §6.1).
            (Opcode::Continuation, Some(_)) if is_compressed => return Err(Violation::Reserved),
            (Opcode::Text | Opcode::Binary, None) => self.message = Some(opcode),
            (Opcode::Continuation, Some(_)) | (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => {}
        }
        let mask = mask.try_into().unwrap_or_default();
        Ok(Some(Frame { opcode, is_last, is_compressed, left, mask, phase: 0 }))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserved => "a reserved bit is set",
            Self::Opcode => "there is no such kind of frame",
            Self::Mask => "a frame is masked, or is not",
            Self::Control => "a control frame is long or in parts",
            Self::Length => "a frame's length is not written as it must be",
            Self::Sequence => "a message is within another, or goes on that has not begun",
            Self::Close => "a close frame has no such code",
        })
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What frames bring, with the pieces of each message joined.
    fn told(
        mut frames: Frames,
        bytes: &[u8],
        step: usize,
    ) -> Result<Vec<(Opcode, Vec<u8>)>, Violation> {
        let (mut told, mut message) = (Vec::new(), Vec::new());
        for mut chunk in bytes.chunks(step) {
            while let Some(item) = frames.next(&mut chunk)? {
                match item {
                    Item::Begin(..) => assert!(message.is_empty()),
                    Item::Piece(piece) => message.extend_from_slice(piece),
                    Item::End(opcode) => told.push((opcode, std::mem::take(&mut message))),
                    Item::Control(opcode, payload) => told.push((opcode, payload.to_vec())),
                }
            }
            assert!(chunk.is_empty());
        }
        Ok(told)
    }

    fn of_server(bytes: &[u8], step: usize) -> Result<Vec<(Opcode, Vec<u8>)>, Violation> {
        told(Frames::of(Sender::Server), bytes, step)
    }

    #[test]
    fn the_examples_of_the_specification_are_read_however_they_are_cut() {
        // §5.7.
        let hello = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
        let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let in_two = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
        let ping_between = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x89, 0x01, 0x21, 0x80, 0x02, 0x6c, 0x6f];
        assert_eq!(frame(Opcode::Text, b"Hello", None), hello);
        assert_eq!(frame(Opcode::Text, b"Hello", Some([0x37, 0xfa, 0x21, 0x3d])), masked);
        let whole = vec![(Opcode::Text, b"Hello".to_vec())];
        let with_ping = vec![(Opcode::Ping, b"!".to_vec()), whole[0].clone()];
        for step in 1..=12 {
            assert_eq!(of_server(&hello, step), Ok(whole.clone()));
            assert_eq!(told(Frames::of(Sender::Client), &masked, step), Ok(whole.clone()));
            assert_eq!(of_server(&in_two, step), Ok(whole.clone()));
            assert_eq!(of_server(&ping_between, step), Ok(with_ping.clone()));
        }
    }

    #[test]
    fn every_way_to_write_a_length_is_written_and_read() {
        for length in [0, 1, 125, 126, 127, 0xffff, 0x1_0000, 0x1_0001] {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            for (sender, key) in [(Sender::Server, None), (Sender::Client, Some([1, 2, 3, 4]))] {
                let bytes = frame(Opcode::Binary, &payload, key);
                for step in [1, 7, 4096, usize::MAX] {
                    let whole = vec![(Opcode::Binary, payload.clone())];
                    assert_eq!(told(Frames::of(sender), &bytes, step), Ok(whole), "{length}");
                }
            }
        }
    }

    #[test]
    fn a_mask_is_the_same_wherever_a_payload_is_cut() {
        let key = [0x11, 0x22, 0x33, 0x44];
        let plain: Vec<u8> = (0..100).collect();
        let mut whole = plain.clone();
        mask(&mut whole, key, 0);
        let slowly: Vec<u8> =
            plain.iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]).collect();
        assert_eq!(whole, slowly);
        for cut in 0..plain.len() {
            let mut parts = plain.clone();
            let (one, other) = parts.split_at_mut(cut);
            mask(one, key, 0);
            mask(other, key, cut);
            assert_eq!(parts, whole, "{cut}");
        }
    }

    #[test]
    fn a_compressed_message_is_told_where_that_was_agreed_on() {
        let header = Header::new(Opcode::Text, false, 1, None).compressed();
        let bytes = [header.bytes(), b"a", &[0x80, 0x01], b"b"].concat();
        let mut frames = Frames::of(Sender::Server).compressed(true);
        let mut rest = bytes.as_slice();
        assert_eq!(frames.next(&mut rest), Ok(Some(Item::Begin(Opcode::Text, true))));
        assert_eq!(of_server(&bytes, 100), Err(Violation::Reserved));
        let again = [header.bytes(), b"a", &[0xc0, 0x01], b"b"].concat();
        let agreed = || Frames::of(Sender::Server).compressed(true);
        assert_eq!(told(agreed(), &again, 100), Err(Violation::Reserved), "once for a message");
        assert_eq!(told(agreed(), &[0xc9, 0], 100), Err(Violation::Control), "a ping is not");
    }

    #[test]
    fn what_is_not_the_protocol_is_refused() {
        use Violation::*;
        for (bytes, violation) in [
            (&[0xc1, 0x00][..], Reserved),
            (&[0xa1, 0x00], Reserved),
            (&[0x91, 0x00], Reserved),
            (&[0x83, 0x00], Opcode),
            (&[0x87, 0x00], Opcode),
            (&[0x8b, 0x00], Opcode),
            (&[0x81, 0x80, 0, 0, 0, 0], Mask),
            (&[0x80, 0x00], Sequence),
            (&[0x01, 0x00, 0x81, 0x00], Sequence),
            (&[0x81, 0x00, 0x80, 0x00], Sequence),
            (&[0x09, 0x00], Control),
            (&[0x89, 0x7e, 0x00, 0x7e], Control),
            (&[0x88, 0x7f], Control),
            (&[0x81, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0], Length),
            (&[0x81, 0x7e, 0x00, 0x7d], Length),
            (&[0x81, 0x7f, 0, 0, 0, 0, 0, 0, 0xff, 0xff], Length),
        ] {
            assert_eq!(of_server(bytes, 100), Err(violation), "{bytes:x?}");
        }
        assert_eq!(told(Frames::of(Sender::Client), &[0x81, 0x00], 100), Err(Mask));
    }
}
