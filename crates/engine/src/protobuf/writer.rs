//! A message written field by field, for those that are written for each request: no tree of it is made first.

use bytes::Bytes;
use prost::Message;

use super::FRAME_START;

/// A message as it is written (Protobuf's encoding, proto3): a field that has its default is left out.
#[derive(Debug)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// One that will be framed for gRPC, with room for so many bytes.
    pub(crate) fn framed(room: usize) -> Self {
        let mut bytes = Vec::with_capacity(FRAME_START + room);
        bytes.extend([0; FRAME_START]);
        Self(bytes)
    }

    /// The frame.
    pub(crate) fn into_frame(mut self) -> Bytes {
        let length = self.0.len() - FRAME_START;
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        self.0[1..FRAME_START].copy_from_slice(&length);
        self.0.into()
    }

    /// A `string`. What is no UTF-8 of it is replaced.
    pub(crate) fn text(&mut self, field: u32, text: &[u8]) {
        if text.is_ascii() {
            return self.bytes(field, text);
        }
        self.bytes(field, String::from_utf8_lossy(text).as_bytes());
    }

    /// A `string` in small letters.
    pub(crate) fn lower_text(&mut self, field: u32, text: &[u8]) {
        if !text.is_ascii() {
            return self.text(field, &text.to_ascii_lowercase());
        }
        self.bytes(field, text);
        let start = self.0.len() - text.len();
        self.0[start..].make_ascii_lowercase();
    }

    /// A `bytes`.
    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.key(field, LENGTH_DELIMITED);
            self.varint(bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
    }

    /// An unsigned number, or a signed one that is not below zero.
    pub(crate) fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.key(field, VARINT);
            self.varint(number);
        }
    }

    /// A message within it, also an empty one.
    pub(crate) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        self.key(field, LENGTH_DELIMITED);
        // Most have a length of one byte.
        let before = self.0.len();
        self.0.push(0);
        fill(self);
        let length = self.0.len() - before - 1;
        if length < 0x80 {
            self.0[before] = length as u8;
            return;
        }
        // The others are written again, behind room for the rest of the length.
        let end = self.0.len();
        self.varint(length as u64);
        let digits = self.0.len() - end;
        let mut written = [0; LONGEST_VARINT];
        written[..digits].copy_from_slice(&self.0[end..]);
        self.0.pop();
        self.0.copy_within(before + 1..end, before + digits);
        self.0[before..before + digits].copy_from_slice(&written[..digits]);
    }

    /// A message within it that there is already.
    pub(crate) fn encode(&mut self, field: u32, message: &impl Message) {
        self.message(field, |out| {
            // A vector grows, so that nothing is too long for it.
            let _ = message.encode(&mut out.0);
        });
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

/// A number of 64 bits.
const LONGEST_VARINT: usize = 10;
const VARINT: u32 = 0;
const LENGTH_DELIMITED: u32 = 2;

#[cfg(test)]
mod tests {
    use super::super::{HeaderValue, in_frame};
    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct All {
        #[prost(message, optional, boxed, tag = "1")]
        within: Option<Box<Self>>,
        #[prost(string, tag = "2")]
        text: String,
        #[prost(bytes = "vec", tag = "3")]
        bytes: Vec<u8>,
        #[prost(uint64, tag = "17")]
        number: u64,
        #[prost(message, optional, tag = "4")]
        ready: Option<HeaderValue>,
    }

    fn write(out: &mut Writer, of: &All) {
        out.text(2, of.text.as_bytes());
        out.bytes(3, &of.bytes);
        out.number(17, of.number);
        if let Some(ready) = &of.ready {
            out.encode(4, ready);
        }
        if let Some(within) = &of.within {
            out.message(1, |out| write(out, within));
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut of = All::default();
        for length in [0, 1, 127, 128, 129, 16_383, 16_384, 70_000] {
            let key = "k".repeat(length);
            of = All {
                text: "t".repeat(length),
                bytes: vec![7; length / 2],
                number: u64::MAX >> (length % 64),
                ready: Some(HeaderValue { key, ..HeaderValue::default() }),
                within: Some(Box::new(of)),
            };
            let mut out = Writer::framed(0);
            write(&mut out, &of);
            let frame = out.into_frame();
            assert_eq!(All::decode(in_frame(&frame).unwrap()).unwrap(), of);
        }
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let mut out = Writer::framed(0);
        out.text(2, b"A\xffb");
        out.message(1, |out| out.lower_text(2, b"A\xffB"));
        out.message(1, |out| out.message(1, |out| out.lower_text(2, &[b'B'; 65])));
        let frame = out.into_frame();
        let read = All::decode(in_frame(&frame).unwrap()).unwrap();
        assert_eq!(read.text, "A\u{fffd}b");
        let within = read.within.unwrap();
        assert_eq!(within.text, "a\u{fffd}b");
        assert_eq!(within.within.unwrap().text, "b".repeat(65));
    }
}
