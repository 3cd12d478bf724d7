//! WebSocket (RFC 6455) as far as a generator of load and a test origin need it: the opening handshake, and where
//! messages end. No extensions.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::chunked::Malformed;

/// What the server answers to a client's `Sec-WebSocket-Key` (§4.2.2).
pub(crate) fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// A key for a handshake.
pub(crate) fn key(nonce: [u8; 16]) -> String {
    STANDARD.encode(nonce)
}

/// The value of a field of a head; of the last one, where it is there more than once.
pub(crate) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let of = |line: &'h str| line.split_once(':').filter(|(it, _)| it.eq_ignore_ascii_case(name));
    head.lines().skip(1).filter_map(of).last().map(|(_, value)| value.trim())
}

/// What a frame holds (§5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    /// Of a message with these bytes.
    pub(crate) fn of(payload: &[u8]) -> Self {
        if std::str::from_utf8(payload).is_ok() { Self::Text } else { Self::Binary }
    }

    fn number(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    fn is_control(self) -> bool {
        self.number() >= 8
    }
}

impl TryFrom<u8> for Opcode {
    type Error = Malformed;

    fn try_from(number: u8) -> Result<Self, Malformed> {
        let all =
            [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|it| it.number() == number).ok_or(Malformed)
    }
}

/// A whole frame; with a mask, one of a client.
pub(crate) fn frame(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut bytes = vec![0x80 | opcode.number()];
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        short @ ..126 => bytes.push(masked | short as u8),
        medium @ ..=0xffff => {
            bytes.push(masked | 126);
            bytes.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            bytes.push(masked | 127);
            bytes.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&mask.unwrap_or_default()[..if mask.is_some() { 4 } else { 0 }]);
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    if let Some(mask) = mask {
        unmask(&mut bytes[start..], mask, 0);
    }
    bytes
}

/// What came in frames.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item<'b> {
    /// A piece of a message, unmasked.
    Piece(&'b [u8]),
    /// The message ends here.
    End(Opcode),
    /// A control frame, whole.
    Control(Opcode, &'b [u8]),
}

/// Finds the frames of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Whether they must be masked, as those of clients are.
    are_masked: bool,
    /// The bytes of a header that is not complete yet.
    header: Vec<u8>,
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
    left: u64,
    mask: [u8; 4],
    /// Where in the mask the next byte is.
    phase: usize,
}

impl Frames {
    pub(crate) fn new(are_masked: bool) -> Self {
        Self {
            are_masked,
            header: Vec::new(),
            frame: None,
            message: None,
            control: Vec::new(),
            unmasked: Vec::new(),
        }
    }

    /// Takes received bytes.
    pub(crate) fn receive(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Item<'_>),
    ) -> Result<(), Malformed> {
        loop {
            let Some(frame) = &mut self.frame else {
                let Some((&byte, rest)) = bytes.split_first() else { return Ok(()) };
                bytes = rest;
                self.header.push(byte);
                self.frame = self.parse_header()?;
                if self.frame.is_some() {
                    self.header.clear();
                }
                continue;
            };
            let taken = usize::try_from(frame.left).unwrap_or(usize::MAX).min(bytes.len());
            let (payload, rest) = bytes.split_at(taken);
            bytes = rest;
            frame.left -= taken as u64;
            let into =
                if frame.opcode.is_control() { &mut self.control } else { &mut self.unmasked };
            let start = into.len();
            let payload = if self.are_masked || frame.opcode.is_control() {
                into.extend_from_slice(payload);
                unmask(&mut into[start..], frame.mask, frame.phase);
                frame.phase = (frame.phase + taken) % 4;
                &into[start..]
            } else {
                payload
            };
            if !frame.opcode.is_control() && !payload.is_empty() {
                each(Item::Piece(payload));
            }
            self.unmasked.clear();
            if frame.left > 0 {
                return Ok(());
            }
            let Frame { opcode, is_last, .. } = *frame;
            self.frame = None;
            if opcode.is_control() {
                each(Item::Control(opcode, &self.control));
                self.control.clear();
            } else if is_last {
                each(Item::End(self.message.take().unwrap_or(opcode)));
            }
        }
    }

    /// The frame that the header's bytes announce, once they are complete.
    fn parse_header(&mut self) -> Result<Option<Frame>, Malformed> {
        let [first, second, rest @ ..] = self.header.as_slice() else { return Ok(None) };
        let (opcode, is_last) = (Opcode::try_from(first & 0x0f)?, first & 0x80 != 0);
        let is_masked = second & 0x80 != 0;
        // §5.2: without extensions these bits are zero; §5.1: who masks; §5.5: control frames are short and whole.
        if first & 0x70 != 0 || is_masked != self.are_masked {
            return Err(Malformed);
        }
        let short = second & 0x7f;
        if opcode.is_control() && (short > 125 || !is_last) {
            return Err(Malformed);
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
        let left = match long {
            0 => u64::from(short),
            _ => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        if left > i64::MAX as u64 {
            return Err(Malformed);
        }
        // §5.4: a message begins with its kind and goes on with continuations.
        match (opcode, self.message) {
            (Opcode::Continuation, None) | (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(Malformed);
            }
            (Opcode::Text | Opcode::Binary, None) => self.message = Some(opcode),
            (Opcode::Continuation, Some(_)) | (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => {}
        }
        let mask = mask.try_into().unwrap_or_default();
        Ok(Some(Frame { opcode, is_last, left, mask, phase: 0 }))
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4], phase: usize) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte ^= mask[(phase + at) % 4];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What frames bring, with the pieces of each message joined.
    fn told(
        are_masked: bool,
        bytes: &[u8],
        step: usize,
    ) -> Result<Vec<(Opcode, Vec<u8>)>, Malformed> {
        let mut frames = Frames::new(are_masked);
        let (mut told, mut message) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks(step) {
            frames.receive(chunk, |item| match item {
                Item::Piece(piece) => message.extend_from_slice(piece),
                Item::End(opcode) => told.push((opcode, std::mem::take(&mut message))),
                Item::Control(opcode, payload) => told.push((opcode, payload.to_vec())),
            })?;
        }
        Ok(told)
    }

    #[test]
    fn the_handshake_is_that_of_the_specification() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(key(*b"the sample nonce"), "dGhlIHNhbXBsZSBub25jZQ==");
        let head = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nX: a:b\r\n\r\n";
        assert_eq!((field(head, "Upgrade"), field(head, "x")), (Some("websocket"), Some("a:b")));
        assert_eq!(field(head, "Y"), None);
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
            assert_eq!(told(false, &hello, step), Ok(whole.clone()));
            assert_eq!(told(true, &masked, step), Ok(whole.clone()));
            assert_eq!(told(false, &in_two, step), Ok(whole.clone()));
            assert_eq!(told(false, &ping_between, step), Ok(with_ping.clone()));
        }
    }

    #[test]
    fn messages_of_every_length_come_back() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8 | 0x80).collect();
            for mask in [None, Some([1, 2, 3, 4])] {
                let bytes = frame(Opcode::of(&payload), &payload, mask);
                let kind = if length == 0 { Opcode::Text } else { Opcode::Binary };
                assert_eq!(told(mask.is_some(), &bytes, 1000), Ok(vec![(kind, payload.clone())]));
            }
        }
    }

    #[test]
    fn what_breaks_the_rules_is_refused() {
        for bytes in [
            &[0x83u8, 0x00][..],                      // a kind that is not assigned
            &[0xc1, 0x00],                            // a bit of an extension
            &[0x81, 0x80, 0, 0, 0, 0],                // a mask from a server
            &[0x80, 0x00],                            // goes on with nothing
            &[0x01, 0x00, 0x81, 0x00],                // a message within a message
            &[0x09, 0x00],                            // a ping in parts
            &[0x89, 0x7e, 0x00, 0x7e],                // a long ping
            &[0x81, 0x7f, 0xff, 0, 0, 0, 0, 0, 0, 0], // longer than 2^63
        ] {
            assert_eq!(told(false, bytes, 100), Err(Malformed), "{bytes:x?}");
        }
        assert_eq!(told(true, &[0x81, 0x00], 100), Err(Malformed), "no mask from a client");
    }
}
