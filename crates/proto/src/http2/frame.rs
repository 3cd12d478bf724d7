//! Frames on the wire (RFC 9113 §4.1, §6).

use bytes::{BufMut, BytesMut};

use super::error::Code;

/// Bytes before a frame's payload.
pub(super) const HEADER: usize = 9;

/// What a client says first (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The reserved bit of stream numbers and windows is ignored.
pub(super) const MASK: u32 = (1 << 31) - 1;

/// Types of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    Push,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// Ignored (RFC 9113 §5.5).
    Unknown,
}

impl Kind {
    /// As RFC 9113 §6 has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Data => "DATA",
            Self::Headers => "HEADERS",
            Self::Priority => "PRIORITY",
            Self::Reset => "RST_STREAM",
            Self::Settings => "SETTINGS",
            Self::Push => "PUSH_PROMISE",
            Self::Ping => "PING",
            Self::GoAway => "GOAWAY",
            Self::WindowUpdate => "WINDOW_UPDATE",
            Self::Continuation => "CONTINUATION",
            Self::Unknown => "unknown",
        }
    }
}

const KINDS: [Kind; 10] = [
    Kind::Data,
    Kind::Headers,
    Kind::Priority,
    Kind::Reset,
    Kind::Settings,
    Kind::Push,
    Kind::Ping,
    Kind::GoAway,
    Kind::WindowUpdate,
    Kind::Continuation,
];

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: usize,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    pub(super) fn read(bytes: &[u8; HEADER]) -> Self {
        let &[high, middle, low, kind, flags, a, b, c, d] = bytes;
        Self {
            length: usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low),
            kind: KINDS.get(usize::from(kind)).copied().unwrap_or(Kind::Unknown),
            flags,
            stream: u32::from_be_bytes([a, b, c, d]) & MASK,
        }
    }

    pub(super) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The bytes of a frame's header. Lengths are below 2²⁴: nothing longer is written than a peer takes.
pub(super) fn header(length: usize, kind: Kind, flags: u8, stream: u32) -> [u8; HEADER] {
    let [_, high, middle, low] = (length as u32).to_be_bytes();
    let [a, b, c, d] = stream.to_be_bytes();
    [high, middle, low, kind as u8, flags, a, b, c, d]
}

pub(super) fn put_header(buffer: &mut BytesMut, length: usize, kind: Kind, flags: u8, stream: u32) {
    buffer.extend_from_slice(&header(length, kind, flags, stream));
}

pub(super) fn put_reset(buffer: &mut BytesMut, stream: u32, code: Code) {
    put_header(buffer, 4, Kind::Reset, 0, stream);
    buffer.put_u32(code.0);
}

pub(super) fn put_window_update(buffer: &mut BytesMut, stream: u32, more: u32) {
    put_header(buffer, 4, Kind::WindowUpdate, 0, stream);
    buffer.put_u32(more);
}

pub(super) fn put_ping(buffer: &mut BytesMut, flags: u8, payload: [u8; 8]) {
    put_header(buffer, 8, Kind::Ping, flags, 0);
    buffer.extend_from_slice(&payload);
}

pub(super) fn put_go_away(buffer: &mut BytesMut, last: u32, code: Code) {
    put_header(buffer, 8, Kind::GoAway, 0, 0);
    buffer.put_u32(last);
    buffer.put_u32(code.0);
}

/// The big-endian number that bytes begin with.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
