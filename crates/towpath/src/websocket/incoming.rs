//! From received bytes to messages.
//!
//! Arrives: bytes, however they are cut. Leaves: whole messages and control frames, one at each call, so that what is
//! not wanted yet stays bytes; or why the connection has to end, with the code that tells the server.

use bytes::Bytes;
use towpath_proto::websocket::{Close, Frames, Item, Opcode, Sender, Utf8};

use super::deflate::Agreed;
#[cfg(feature = "gzip")]
use super::deflate::{Inflater, Undone};
use super::{CloseReason, Message};

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    Message(Message),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(CloseReason),
}

/// Why the connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: u16,
    pub(super) why: &'static str,
}

pub(super) struct Reader {
    frames: Frames,
    utf8: Utf8,
    is_text: bool,
    message: Vec<u8>,
    /// Bytes of a message at most.
    limit: usize,
    #[cfg(feature = "gzip")]
    inflater: Option<Inflater>,
    /// The message that has begun is compressed.
    is_compressed: bool,
}

impl Reader {
    pub(super) fn new(limit: usize, agreed: Option<Agreed>) -> Self {
        Self {
            frames: Frames::of(Sender::Server).compressed(agreed.is_some()),
            utf8: Utf8::default(),
            is_text: false,
            message: Vec::new(),
            limit,
            #[cfg(feature = "gzip")]
            inflater: agreed.map(Inflater::new),
            is_compressed: false,
        }
    }

    /// What comes next; nothing when the bytes are used up.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Came>, Fault> {
        let violation =
            |_| Fault { code: PROTOCOL, why: "the server does not keep to the protocol" };
        loop {
            let Self { frames, utf8, is_text, message, limit, is_compressed, .. } = self;
            let Some(item) = frames.next(bytes).map_err(violation)? else { return Ok(None) };
            match item {
                Item::Begin(opcode, compressed) => {
                    (*is_text, *is_compressed) = (opcode == Opcode::Text, compressed);
                    *utf8 = Utf8::default();
                }
                #[cfg(feature = "gzip")]
                Item::Piece(piece) if *is_compressed => {
                    let Some(inflater) = &mut self.inflater else { return Err(DAMAGED) };
                    let before = message.len();
                    inflater.feed(piece, message, *limit)?;
                    if *is_text && !utf8.take(&message[before..]) {
                        return Err(NO_TEXT);
                    }
                }
                Item::Piece(piece) => {
                    if piece.len() > limit.saturating_sub(message.len()) {
                        return Err(TOO_LONG);
                    }
                    if *is_text && !utf8.take(piece) {
                        return Err(NO_TEXT);
                    }
                    message.extend_from_slice(piece);
                }
                Item::End(_) => return self.end().map(Some),
                Item::Control(Opcode::Close, payload) => {
                    let close = Close::parse(payload).map_err(violation)?.ok_or(NO_TEXT)?;
                    return Ok(Some(Came::Close(CloseReason {
                        code: close.code,
                        reason: close.reason.to_owned(),
                    })));
                }
                Item::Control(Opcode::Ping, payload) => {
                    return Ok(Some(Came::Ping(payload.to_vec())));
                }
                Item::Control(_, payload) => return Ok(Some(Came::Pong(payload.to_vec()))),
            }
        }
    }

    fn end(&mut self) -> Result<Came, Fault> {
        #[cfg(feature = "gzip")]
        if let Some(inflater) = self.inflater.as_mut().filter(|_| self.is_compressed) {
            let before = self.message.len();
            inflater.end(&mut self.message, self.limit)?;
            if self.is_text && !self.utf8.take(&self.message[before..]) {
                return Err(NO_TEXT);
            }
        }
        let message = std::mem::take(&mut self.message);
        Ok(Came::Message(if self.is_text {
            Message::Text(String::from_utf8(message).map_err(|_| NO_TEXT)?)
        } else {
            Message::Binary(Bytes::from(message))
        }))
    }
}

#[cfg(feature = "gzip")]
impl From<Undone> for Fault {
    fn from(undone: Undone) -> Self {
        match undone {
            Undone::Damaged => DAMAGED,
            Undone::TooLong => TOO_LONG,
        }
    }
}

const PROTOCOL: u16 = 1002;
const NO_TEXT: Fault = Fault { code: 1007, why: "a text of the server is not UTF-8" };
#[cfg(feature = "gzip")]
const DAMAGED: Fault = Fault { code: 1007, why: "a message of the server cannot be decompressed" };
const TOO_LONG: Fault = Fault { code: 1009, why: "a message of the server is too long" };

#[cfg(test)]
mod tests {
    use towpath_proto::websocket::{Header, frame};

    use super::*;

    fn all(reader: &mut Reader, bytes: &[u8], step: usize) -> Result<Vec<Came>, Fault> {
        let mut came = Vec::new();
        for mut piece in bytes.chunks(step) {
            while let Some(one) = reader.next(&mut piece)? {
                came.push(one);
            }
            assert!(piece.is_empty());
        }
        Ok(came)
    }

    fn text(text: &str) -> Came {
        Came::Message(Message::Text(text.to_owned()))
    }

    #[test]
    fn messages_and_what_is_between_their_parts_come_however_they_are_cut() {
        let bytes = [
            Header::new(Opcode::Text, false, 3, None).bytes(),
            "hé".as_bytes(),
            &frame(Opcode::Ping, b"!", None),
            Header::new(Opcode::Continuation, false, 0, None).bytes(),
            &frame(Opcode::Pong, b"12345678", None),
            &frame(Opcode::Continuation, "llo €".as_bytes(), None),
            &frame(Opcode::Binary, b"", None),
            &frame(Opcode::Close, b"\x03\xe8bye", None),
        ]
        .concat();
        for step in 1..=bytes.len() {
            let close = CloseReason { code: 1000, reason: "bye".to_owned() };
            let expected = [
                Came::Ping(b"!".to_vec()),
                Came::Pong(b"12345678".to_vec()),
                text("héllo €"),
                Came::Message(Message::Binary(Bytes::new())),
                Came::Close(close),
            ];
            let mut reader = Reader::new(100, None);
            assert_eq!(all(&mut reader, &bytes, step).unwrap(), expected, "{step}");
        }
    }

    #[test]
    fn a_message_may_be_as_long_as_the_limit_and_no_longer() {
        for (length, is_taken) in [(9, true), (10, true), (11, false)] {
            let whole = frame(Opcode::Binary, &vec![7; length], None);
            let parts = [
                Header::new(Opcode::Text, false, 5, None).bytes(),
                b"01234",
                &frame(Opcode::Continuation, &vec![b'5'; length - 5], None),
            ]
            .concat();
            for bytes in [whole, parts] {
                for step in [1, 4, 100] {
                    let came = all(&mut Reader::new(10, None), &bytes, step);
                    assert_eq!(came.map_err(|fault| fault.code).is_ok(), is_taken, "{length}");
                }
            }
        }
        // What a header announces is not waited for, nor kept room for.
        let endless = [0x82, 0x7f, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3];
        let mut reader = Reader::new(2, None);
        assert_eq!(all(&mut reader, &endless, 100), Err(TOO_LONG));
    }

    #[test]
    fn what_is_no_text_is_found_in_its_first_piece() {
        let mut reader = Reader::new(100, None);
        let bytes = [Header::new(Opcode::Text, false, 2, None).bytes(), b"a\xff"].concat();
        assert_eq!(all(&mut reader, &bytes, 100), Err(NO_TEXT));
        let mut reader = Reader::new(100, None);
        assert_eq!(all(&mut reader, &frame(Opcode::Text, b"\xe2\x82", None), 100), Err(NO_TEXT));
        let mut reader = Reader::new(100, None);
        let close = frame(Opcode::Close, b"\x03\xe8\xff", None);
        assert_eq!(all(&mut reader, &close, 100), Err(NO_TEXT));
    }

    #[test]
    #[cfg(feature = "gzip")]
    fn a_compressed_message_is_text_after_that_and_bounded_after_that() {
        let agreed = Agreed::default();
        let mut deflater = super::super::deflate::Deflater::new(agreed);
        let compressed = |plain: &[u8], deflater: &mut super::super::deflate::Deflater| {
            let raw = deflater.message(plain).unwrap();
            let header = Header::new(Opcode::Text, true, raw.len(), None).compressed();
            [header.bytes(), &raw].concat()
        };
        let mut reader = Reader::new(1000, Some(agreed));
        for plain in ["Hello", "Hello", "€€€", &"a".repeat(1000)] {
            let bytes = compressed(plain.as_bytes(), &mut deflater);
            assert_eq!(all(&mut reader, &bytes, 3).unwrap(), [text(plain)]);
        }
        let bytes = compressed(&[b'a'; 1001], &mut deflater);
        assert_eq!(all(&mut reader, &bytes, 100), Err(TOO_LONG));
        let mut reader = Reader::new(1000, Some(agreed));
        let bytes = compressed(b"\xff", &mut super::super::deflate::Deflater::new(agreed));
        assert_eq!(all(&mut reader, &bytes, 100), Err(NO_TEXT));
        let mut reader = Reader::new(1000, Some(agreed));
        let header = Header::new(Opcode::Binary, true, 4, None).compressed();
        let bytes = [header.bytes(), &[0xff; 4]].concat();
        assert_eq!(all(&mut reader, &bytes, 100), Err(DAMAGED));
        let mut reader = Reader::new(1000, Some(agreed));
        assert_eq!(all(&mut reader, b"\x81\x05Hello", 2).unwrap(), [text("Hello")], "or not");
    }
}
